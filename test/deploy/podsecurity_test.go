package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// violations are the rules of a Pod Security Standard that the pod breaks, as the admission controller of Kubernetes judges.
func violations(t *testing.T, in installed, level api.Level) []string {
	t.Helper()
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must.OK(t, err)
	var out []string
	for _, r := range e.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &in.daemonset.Spec.Template.ObjectMeta,
		&in.pod) {
		if !r.Allowed {
			out = append(out, r.ForbiddenReason)
		}
	}
	slices.Sort(out)
	return out
}

// Pods without host paths meet the restricted standard; each permission violates exactly its own rules.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set                  string
		restricted, baseline []string
	}{
		{"features.ownership=false", nil, nil},
		{"features.ownership=false,gpu.access=cdi,web.tls.secretName=crt", nil, nil},
		{"features.ownership=true", []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"},
			[]string{"hostPath volumes"}},
		{"features.ownership=false,features.processes=true", []string{"host namespaces"}, []string{"host namespaces"}},
		{"features.podMetadata=true", []string{"restricted volume types", "runAsNonRoot != true", "runAsUser=0"},
			[]string{"hostPath volumes"}},
		{"features.ownership=false,features.migMonitor=true", []string{"runAsNonRoot != true", "runAsUser=0", "unrestricted capabilities"},
			[]string{"non-default capabilities"}},
		{"features.ownership=false,seLinuxOptions.type=spc_t", []string{"seLinuxOptions"}, []string{"seLinuxOptions"}},
		{"features.ownership=false,features.kernelLog=true",
			[]string{"allowPrivilegeEscalation != false", "privileged", "restricted volume types", "runAsNonRoot != true", "runAsUser=0",
				"unrestricted capabilities"},
			[]string{"hostPath volumes", "privileged"}},
	} {
		in := install(t, "--set", c.set)
		if got := violations(t, in, api.LevelRestricted); !slices.Equal(got, c.restricted) {
			t.Errorf("%s breaks of restricted: %q", c.set, got)
		}
		if got := violations(t, in, api.LevelBaseline); !slices.Equal(got, c.baseline) {
			t.Errorf("%s breaks of baseline: %q", c.set, got)
		}
	}
}

// The notes of helm install have commands for the nodes, the label that the namespace needs, and name a privileged
// container.
func TestNotes(t *testing.T) {
	t.Parallel()
	notes := func(set string) string {
		out, err := helm(t, "install", "gpu-exporter", chart(t), "-n", "gpus", "--dry-run=client", "--set", "dashboards.kind=none,"+set)
		if err != nil {
			t.Fatal(out)
		}
		_, text, ok := strings.Cut(out, "\nNOTES:\n")
		if !ok {
			t.Fatal("no notes")
		}
		return text
	}
	const label = "kubectl label namespace gpus pod-security.kubernetes.io/enforce=privileged --overwrite"
	for _, c := range []struct {
		set        string
		has, lacks []string
	}{
		{"web.port=10835", []string{"kubectl get nodes -l 'nvidia.com/gpu.present in (true)'",
			"kubectl get nodes -l 'cloud.google.com/gke-accelerator'", label,
			"daemonset/gpu-exporter -- gpu-exporter doctor", "Prometheus does not scrape it yet", "features.podMetadata"},
			[]string{"PRIVILEGED", "features.ownership"}},
		{"features.ownership=false,monitoring.kind=PodMonitor", []string{"features.ownership"}, []string{label, "does not scrape it"}},
		{"features.ownership=false,seLinuxOptions.type=spc_t", []string{label}, nil},
		{"features.kernelLog=true,gpu.access=hostDriver",
			[]string{"The container is PRIVILEGED, because of features.kernelLog, gpu.access=hostDriver."}, nil},
		{"compat.release=dcgm-4.8", []string{"The metrics of dcgm-exporter 4.8 are at /metrics/dcgm. They are not scraped"}, nil},
		{"compat.release=dcgm-4.9,monitoring.kind=PodMonitor",
			[]string{"dcgm-exporter 4.9 are at /metrics/dcgm, scraped as the job dcgm-compat."}, []string{"not scrape"}},
		{"report.enabled=true,report.prometheusURL=http://p",
			[]string{"kubectl -n gpus create job --from=cronjob/gpu-exporter-report gpu-report-now"}, nil},
		{"scheduling.gpuNodeLabels=null,scheduling.nodeSelector.pool=gpu",
			[]string{"kubectl get nodes -l 'kubernetes.io/os=linux,pool=gpu'"}, nil},
	} {
		text := notes(c.set)
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the notes have no %q:\n%s", c.set, want, text)
			}
		}
		for _, not := range c.lacks {
			if strings.Contains(text, not) {
				t.Errorf("%s: the notes have %q:\n%s", c.set, not, text)
			}
		}
	}
}
