package deploy_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
)

// reporter is the CronJob of a render, and the render with its pod in the place of the exporter's.
func reporter(t *testing.T, set ...string) (batchv1.CronJob, installed) {
	t.Helper()
	in := install(t, "--set", strings.Join(append([]string{"report.enabled=true", "report.prometheusURL=http://prometheus:9090",
		"serviceAccount.create=false"}, set...), ","))
	var job batchv1.CronJob
	in.find(t, "CronJob").into(t, &job)
	in.pod = job.Spec.JobTemplate.Spec.Template.Spec
	if len(in.pod.Containers) != 1 {
		t.Fatalf("%d containers", len(in.pod.Containers))
	}
	in.container = in.pod.Containers[0]
	in.daemonset.Spec.Template.ObjectMeta = job.Spec.JobTemplate.Spec.Template.ObjectMeta
	return job, in
}

// The report queries a server for history: it has no permission in the cluster or on a node, whatever the exporter has.
func TestReportRights(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"features.processes=true", "features.kernelLog=true", "features.podMetadata=true,serviceAccount.name=mine",
		"gpu.access=hostDriver", "report.volumeClaim=reports", "report.secretName=token", "web.tls.secretName=crt"} {
		_, in := reporter(t, set)
		if got := violations(t, in, api.LevelRestricted); len(got) != 0 {
			t.Errorf("%s: breaks of restricted: %q", set, got)
		}
		pod, c := in.pod, in.container
		if pod.ServiceAccountName != "" || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostPID ||
			pod.HostNetwork || pod.RuntimeClassName != nil || pod.PriorityClassName != "" {
			t.Errorf("%s: the pod is %+v", set, pod)
		}
		if *pod.SecurityContext.RunAsUser != 65534 || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: user %d, %+v", set, *pod.SecurityContext.RunAsUser, c.SecurityContext)
		}
		if visible, _ := in.env("NVIDIA_VISIBLE_DEVICES"); visible.Value != "void" {
			t.Errorf("%s: the container is shown GPUs: %q", set, visible.Value)
		}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				t.Errorf("%s: mounts %s of its node", set, v.HostPath.Path)
			}
		}
	}
	// OpenShift gives the user: one of the chart's would be refused.
	if _, in := reporter(t, "openshift.scc=true", "serviceAccount.name=mine"); in.pod.SecurityContext.RunAsUser != nil ||
		in.pod.SecurityContext.FSGroup != nil {
		t.Errorf("on OpenShift as user %d", *in.pod.SecurityContext.RunAsUser)
	}
	if got := install(t).kinds(); slices.ContainsFunc(got, func(k string) bool { return strings.HasPrefix(k, "CronJob") }) {
		t.Errorf("a report is rendered by default: %v", got)
	}
}

// The exporter's selectors, by which its monitor, its network policy and its DaemonSet find pods, do not find the report's.
func TestReportIsNoExporter(t *testing.T) {
	in := install(t, "--set", "report.enabled=true,report.prometheusURL=http://p")
	job, _ := reporter(t)
	labels := job.Spec.JobTemplate.Spec.Template.Labels
	all := true
	for key, value := range in.daemonset.Spec.Selector.MatchLabels {
		all = all && labels[key] == value
	}
	if all {
		t.Errorf("a pod with %v is one of the exporter's", labels)
	}
	long, _ := reporter(t, "fullnameOverride="+strings.Repeat("a", 63))
	if len(long.Name) > 52 || !strings.HasSuffix(long.Name, "-report") {
		t.Errorf("the name %s has %d signs", long.Name, len(long.Name))
	}
}

// What the job runs is what gpu-report understands, and where it fails it is the server that it cannot reach.
func TestReportArguments(t *testing.T) {
	t.Parallel()
	built(t)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, set := range []string{"report.period=7d", "report.volumeClaim=reports", "report.volumeClaim=reports,report.formats={html}",
		"report.volumeClaim=reports,report.formats={csv}",
		"report.extraArgs={--cluster-label=site,--top=5}"} {
		_, in := reporter(t, set)
		if !slices.Equal(in.container.Command, []string{"/usr/local/bin/gpu-report"}) {
			t.Errorf("%s: runs %v", set, in.container.Command)
		}
		job, named := in.env("JOB")
		if claim := strings.Contains(set, "volumeClaim"); named != claim {
			t.Errorf("%s: JOB is %+v", set, job)
		}
		var args []string
		for _, a := range in.container.Args {
			a = strings.ReplaceAll(a, "http://prometheus:9090", server.URL)
			args = append(args, strings.ReplaceAll(a, "/reports/$(JOB)", filepath.Join(t.TempDir(), "gpu-exporter-report-29384")))
		}
		cmd := exec.Command(filepath.Join(root(t), "bin", "gpu-report"), append(args, "--prometheus.retries=0")...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || strings.Contains(string(out), "unknown") || !strings.Contains(string(out), "404") {
			t.Errorf("%s: gpu-report %v: %v\n%s", set, args, err, out)
		}
	}
	var e corev1.EnvVar
	if e, _ = func() (corev1.EnvVar, bool) {
		_, in := reporter(t, "report.resources.limits.memory=1Gi")
		return in.env("GOMEMLIMIT")
	}(); e.Value != "858993459" {
		t.Errorf("of 1Gi GOMEMLIMIT is %q", e.Value)
	}
}
