package deploy_test

import (
	"os"
	"strings"
	"testing"
)

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What contradicts itself ends the template with one line that says what to do.
func TestContradictions(t *testing.T) {
	for set, want := range map[string]string{
		"features.ownership=false,features.deviceCheckpoint=true":                   "features.deviceCheckpoint contradicts features.ownership=false: it only adds to what the kubelet lists",
		"features.ownership=false,features.draCheckpoint=true":                      "features.draCheckpoint contradicts features.ownership=false",
		"features.ownership=false,features.podMetadata=true":                        "features.podMetadata contradicts features.ownership=false",
		"features.ownership=false,kubelet.honestResources={a.com/gpu}":              "kubelet.honestResources contradicts features.ownership=false",
		"features.podLabels={team}":                                                 "features.podLabels takes features.podMetadata=true",
		"features.containerVisible=true":                                            "features.containerVisible takes features.processes=true",
		"rules.kind=PrometheusRule,monitoring.kind=PodMonitor,monitoring.job=cards": "monitoring.job=GPUs is no job of rules.job=.*gpu-exporter.*",
		"web.configSecret=a,web.tls.secretName=b":                                   "web.configSecret contradicts web.tls and web.basicAuth",
		"gpu.runtimeClassName=":                                                     "gpu.access=runtimeClass takes gpu.runtimeClassName",
		"gpu.access=cdi,features.migMonitor=true":                                   "features.migMonitor takes gpu.access=runtimeClass: nobody reads its variable with cdi",
		"scheduling.priorityClassQuota=true,scheduling.priorityClassName=":          "scheduling.priorityClassQuota takes scheduling.priorityClassName",
		"scheduling.gpuNodeLabels=null,scheduling.nodeSelector=null":                "the exporter would run on every node",
		"serviceAccount.create=false,openshift.scc=true":                            "openshift.scc would give its rights to the service account default",
		"serviceAccount.create=false,features.podMetadata=true":                     "features.podMetadata would give its rights to the service account default",
		"monitoring.basicAuth.username.name=a,monitoring.basicAuth.username.key=a,monitoring.basicAuth.password.name=a,monitoring.basicAuth.password.key=a": "monitoring.basicAuth takes web.basicAuth or web.configSecret",
		"monitoring.kind=PodMonitor,web.basicAuth.users.a=$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG":                                     "web.basicAuth takes monitoring.basicAuth",
		"exporter.extraArgs={--poll.fast=1s}":                                            "exporter.extraArgs has --poll.fast, which the chart sets itself",
		"exporter.extraArgs={--no-kubelet}":                                              "exporter.extraArgs has --no-kubelet, which the chart sets itself",
		"resources.limits.memory=256MB":                                                  "resources.limits.memory is 256MB: spell it in Mi or Gi",
		"rules.kind=none,rules.alerts.GPUDeviceDown.for=1m":                              "rules.alerts contradicts rules.kind=none",
		"compat.release=dcgm-4.8,compat.job=gpu-exporter":                                "compat.job=gpu-exporter is the exporter's own job",
		"compat.release=dcgm-4.8,compat.job=a-gpu-exporter,rules.kind=ConfigMap":         "compat.job=a-gpu-exporter is the exporter's own job",
		"compat.honorLabels=false":                                                       "compat.honorLabels and compat.metricRelabelings take compat.release",
		"exporter.extraArgs={--compat=dcgm-4.8}":                                         "exporter.extraArgs has --compat, which the chart sets itself",
		"report.enabled=true":                                                            "report.enabled takes report.prometheusURL",
		"report.enabled=true,report.prometheusURL=http://p,report.extraArgs={--from=7d}": "report.extraArgs has --from=7d, which the chart sets itself",
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

// What is misspelt or of the wrong kind is refused by its name.
func TestSchemaRefuses(t *testing.T) {
	for set, want := range map[string]string{
		"features.proceses=true":                      "'/features': additional properties 'proceses' not allowed",
		"hostPID=true":                                "additional properties 'hostPID' not allowed",
		"compat.release=4.8":                          "'/compat/release'",
		"compat.realease=dcgm-4.8":                    "'/compat': additional properties 'realease' not allowed",
		"features.processes=yes":                      "'/features/processes'",
		"gpu.access=magic":                            "'/gpu/access'",
		"monitoring.kind=podmonitor":                  "'/monitoring/kind'",
		"web.port=100000":                             "'/web/port'",
		"exporter.pollIntervals.fast=2":               "'/exporter/pollIntervals/fast'",
		"features.slurmJobMapping=gpus":               "'/features/slurmJobMapping'",
		"image.digest=latest":                         "'/image/digest'",
		"kubelet.root=kubelet":                        "'/kubelet/root'",
		"exporter.extraArgs={call-deadline=10s}":      "'/exporter/extraArgs/0'",
		"web.basicAuth.users.a=secret":                "'/web/basicAuth/users/a'",
		"scheduling.gpuNodeLabels[0].kye=a":           "additional properties 'kye' not allowed",
		"kubelet.honestResources={nvidia}":            "'/kubelet/honestResources/0'",
		"resources.limits.nvidia\\.com/gpu=1":         "additional properties 'nvidia.com/gpu' not allowed",
		"rules.alerts.GPUDeviceDwon.for=1m":           "additional properties 'GPUDeviceDwon' not allowed",
		"rules.alerts.GPUDisappeared.windw=1h":        "additional properties 'windw' not allowed",
		"rules.alerts.GPURetiredPagesMany.pages=1000": "'/rules/alerts/GPURetiredPagesMany/pages'",
		"rules.alerts.GPUDeviceDown.severity=fatal":   "'/rules/alerts/GPUDeviceDown/severity'",
		"rules.alerts.GPUDeviceDown.for=five":         "'/rules/alerts/GPUDeviceDown/for'",
	} {
		out, err := helm(t, "template", "gpu-exporter", chart(t), "--set", set)
		if err == nil {
			t.Errorf("%s is taken", set)
		} else if !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", set, out, want)
		}
	}
}
