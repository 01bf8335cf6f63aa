package deploy_test

import (
	"strings"
	"testing"
)

// Contradictory values fail the template with one line that says what to do.
func TestContradictions(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"exporter.lanes.fast=1s": "exporter.lanes was renamed: use exporter.pollIntervals",
		"report.window=7d":       "report.window was renamed: use report.period",
		"features.ownership=false,features.deviceCheckpoint=true": "features.deviceCheckpoint requires " +
			"features.ownership=true: it resolves GPUs of the allocations that the kubelet lists",
		"features.ownership=false,features.draCheckpoint=true":        "features.draCheckpoint requires features.ownership=true",
		"features.ownership=false,features.podMetadata=true":          "features.podMetadata requires features.ownership=true",
		"features.ownership=false,features.resourceSlices=true":       "features.resourceSlices requires features.ownership=true",
		"features.ownership=false,kubelet.gpuIDResources={a.com/gpu}": "kubelet.gpuIDResources requires features.ownership=true",
		"features.podLabels={team}":                                   "features.podLabels requires features.podMetadata=true",
		"features.containerVisible=true":                              "features.containerVisible requires features.processes=true",
		"exporter.processLimit=20":                                    "exporter.processLimit requires features.processes=true",
		"rules.kind=PrometheusRule,monitoring.kind=PodMonitor,monitoring.job=cards": "monitoring.job=cards does not match " +
			"rules.job=(.+/)?gpu-exporter",
		"exporter.enabled=false,monitoring.kind=ServiceMonitor": "exporter.enabled=false requires monitoring.kind=PodMonitor",
		"exporter.enabled=false,compat.release=dcgm-4.9":        "exporter.enabled=false excludes compat.release",
		"web.configSecret=a,web.tls.secretName=b":               "web.configSecret excludes web.tls and web.basicAuth",
		"gpu.runtimeClassName=":                                 "gpu.access=runtimeClass requires gpu.runtimeClassName",
		"gpu.access=claim": "gpu.access=claim requires features.draCheckpoint=true: the kubelet lists the exporter's own claim " +
			"like any other, and only the DRA driver's checkpoint shows that it allocates nothing",
		"gpu.access=cdi,features.migMonitor=true": "features.migMonitor requires " +
			"gpu.access=runtimeClass: its variable has no effect with cdi",
		"scheduling.priorityClassQuota=true,scheduling.priorityClassName=": "scheduling.priorityClassQuota requires " +
			"scheduling.priorityClassName",
		"scheduling.gpuNodeLabels=null,scheduling.nodeSelector=null": "the exporter would run on every node",
		"serviceAccount.create=false,openshift.scc=true": "openshift.scc would grant its permissions to the " +
			"service account default",
		"serviceAccount.create=false,features.podMetadata=true": "features.podMetadata would grant its permissions " +
			"to the service account default",
		"monitoring.basicAuth.username.name=a,monitoring.basicAuth.username.key=a,monitoring.basicAuth.password.name=a," +
			"monitoring.basicAuth.password.key=a": "monitoring.basicAuth requires web.basicAuth or web.configSecret",
		"monitoring.kind=PodMonitor," +
			"web.basicAuth.users.a=$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG": "web.basicAuth requires " +
			"monitoring.basicAuth",
		"exporter.extraArgs={--poll.fast=1s}": "exporter.extraArgs has --poll.fast, which the chart sets from another value",
		"exporter.extraArgs={--no-kubelet}": "exporter.extraArgs has --no-kubelet, which " +
			"the chart sets from another value",
		"resources.limits.memory=256MB":                      "resources.limits.memory must be in Mi or Gi, got 256MB",
		"rules.kind=none,rules.alerts.GPUUnavailable.for=1m": "rules.alerts has no effect with rules.kind=none",
		"compat.release=dcgm-4.8,compat.job=gpu-exporter":    "compat.job=gpu-exporter matches monitoring.job or rules.job",
		"compat.release=dcgm-4.8,compat.job=a/gpu-exporter,rules.kind=ConfigMap": "compat.job=a/gpu-exporter matches " +
			"monitoring.job or rules.job",
		"compat.honorLabels=false":               "compat.sharedGPUs, compat.deviceLabels and compat.port require compat.release",
		"compat.port=9400":                       "require compat.release",
		"exporter.extraArgs={--compat=dcgm-4.8}": "exporter.extraArgs has --compat, which the chart sets from another value",
		"report.enabled=true":                    "report.enabled requires report.prometheusURL",
		"image.repository=": "image.repository is empty and no image is published: build one (make image, or docker build -f " +
			"deploy/Dockerfile), push it to your registry and set image.repository and image.tag",
		"image.repository=,exporter.enabled=false,report.enabled=true,report.prometheusURL=http://p": "image.repository is empty",
		"report.enabled=true,report.prometheusURL=http://p,report.extraArgs={--from=7d}": "report.extraArgs has --from=7d, which the " +
			"chart sets from another value",
	} {
		out, err := helm(t, "template", "gpu-exporter", chart(t), "--set", set)
		if err == nil {
			t.Errorf("%s is taken", set)
			continue
		}
		line, _, _ := strings.Cut(out, "\n")
		if !strings.Contains(line, want) {
			t.Errorf("%s: %q, want %q", set, line, want)
		}
	}
}

// Misspelled values and values of the wrong type are refused by name.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"features.proceses=true":                     "'/features': additional properties 'proceses' not allowed",
		"hostPID=true":                               "additional properties 'hostPID' not allowed",
		"compat.release=4.8":                         "'/compat/release'",
		"compat.realease=dcgm-4.8":                   "'/compat': additional properties 'realease' not allowed",
		"features.processes=yes":                     "'/features/processes'",
		"gpu.access=magic":                           "'/gpu/access'",
		"monitoring.kind=podmonitor":                 "'/monitoring/kind'",
		"web.port=100000":                            "'/web/port'",
		"exporter.pollIntervals.fast=2":              "'/exporter/pollIntervals/fast'",
		"features.slurmJobMapping=gpus":              "'/features/slurmJobMapping'",
		"image.digest=latest":                        "'/image/digest'",
		"kubelet.root=kubelet":                       "'/kubelet/root'",
		"exporter.extraArgs={call-deadline=10s}":     "'/exporter/extraArgs/0'",
		"web.basicAuth.users.a=secret":               "'/web/basicAuth/users/a'",
		"scheduling.gpuNodeLabels[0].kye=a":          "additional properties 'kye' not allowed",
		"kubelet.gpuIDResources={nvidia}":            "'/kubelet/gpuIDResources/0'",
		"resources.limits.nvidia\\.com/gpu=1":        "additional properties 'nvidia.com/gpu' not allowed",
		"rules.alerts.GPUDeviceDwon.for=1m":          "additional properties 'GPUDeviceDwon' not allowed",
		"rules.alerts.GPUMissing.windw=1h":           "additional properties 'windw' not allowed",
		"rules.alerts.GPUMemorySparesLow.pages=1000": "'/rules/alerts/GPUMemorySparesLow/pages'",
		"rules.alerts.GPUUnavailable.severity=fatal": "'/rules/alerts/GPUUnavailable/severity'",
		"rules.alerts.GPUUnavailable.for=five":       "'/rules/alerts/GPUUnavailable/for'",
		"rules.prices.H100=2.8 EUR":                  "'/rules/prices/H100'",
		"rules.prices.H100=-1":                       "'/rules/prices/H100'",
		"commonLabels.a b=c":                         "invalid propertyName 'a b'",
		"monitoring.labels.team=a b":                 "'/monitoring/labels/team'",
		"exporter.extraEnv[0].name=NODE_NAME":        "'/exporter/extraEnv/0/name'",
	} {
		out, err := helm(t, "template", "gpu-exporter", chart(t), "--set", set)
		if err == nil {
			t.Errorf("%s is taken", set)
		} else if !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", set, out, want)
		}
	}
	for _, set := range []string{"resources=null", "image.repository=,exporter.enabled=false"} {
		if out, err := helm(t, "template", "gpu-exporter", chart(t), "--set", set); err != nil {
			t.Errorf("%s: %s", set, out)
		}
	}
}
