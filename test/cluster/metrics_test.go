package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeQueries are the queries of the dashboards that read kube-state-metrics, for all that can be chosen, by panel.
func kubeQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository(), "dashboards", "gpu-*.json"))
	noErr(t, err)
	out := map[string]string{}
	type panel struct {
		Title   string
		Targets []struct{ RefID, Expr string }
		Panels  []json.RawMessage
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		noErr(t, err)
		queue := []json.RawMessage{text}
		for len(queue) > 0 {
			var p panel
			noErr(t, json.Unmarshal(queue[0], &p))
			queue = append(queue[1:], p.Panels...)
			for _, target := range p.Targets {
				if strings.Contains(target.Expr, "kube_") {
					expr := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "10m").Replace(target.Expr)
					expr = regexp.MustCompile(`=~"\$\w+"`).ReplaceAllString(expr, `=~".*"`)
					out[filepath.Base(file)+": "+p.Title+"/"+target.RefID] = expr
				}
			}
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d queries of kube-state-metrics", len(out))
	}
	return out
}

// TestKubeStateMetrics runs the rules, the dashboards' queries and the report that need kube-state-metrics with the real one, on real
// pods.
func TestKubeStateMetrics(t *testing.T) {
	c := startCluster(t, "install.md")
	one, two := c.nodes[0], c.nodes[1]
	c.shell(t, c.documented(t, "kubectl create namespace monitoring\n"))
	c.namespace(t, "batch", "privileged")
	c.namespace(t, "work", "privileged")
	c.kubectl(t, "label", "namespace", "work", "team=research")
	c.kubectl(t, "label", "node", one.name, two.name, "node-pool=blue")
	c.account(t, "work", "default")
	c.account(t, "batch", "default")
	plugins := append(one.nvidiaPlugins(), two.nvidiaPlugins()...)
	for _, p := range plugins {
		p.start(t)
	}
	t.Cleanup(func() {
		for _, p := range plugins {
			p.stop()
		}
	})
	c.create(t, `apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: work}
spec: {hard: {requests.nvidia.com/gpu: 4}}
`)
	elsewhere := func(pod string) string { return strings.Replace(pod, "namespace: work", "namespace: batch", 1) }
	c.create(t, podText("whole", one.name, "", container{name: "main", limits: "nvidia.com/gpu=1"}),
		// It restarts, and its container has ended before.
		strings.Replace(podText("restarts", one.name, "", container{name: "main", limits: "nvidia.com/gpu.shared=1"}),
			"while :; do sleep 1000 & wait; done", "sleep 3; exit 3", 1),
		podText("waits", "node-9", "", container{name: "main", limits: "nvidia.com/gpu=1"}),
		elsewhere(podText("queued", one.name, "", container{name: "main", limits: "nvidia.com/gpu=100"})))
	eventually(t, "the pods run", func() error {
		for _, name := range []string{"whole", "restarts"} {
			pod, err := c.client.CoreV1().Pods("work").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || len(pod.Status.ContainerStatuses) == 0 {
				return fmt.Errorf("%s does not run: %w", name, err)
			}
		}
		return nil
	})
	// A node with GPUs where no exporter runs.
	c.kubectl(t, "label", "node", two.name, "nvidia.com/gpu.present-")

	dir, at, own := t.TempDir(), address(t), address(t)
	host, port, _ := strings.Cut(at, ":")
	ownHost, ownPort, _ := strings.Cut(own, ":")
	state, err := start(dir, built(t, "tools/kube-state-metrics", "k8s.io/kube-state-metrics/v2", "kube-state-metrics"),
		"--kubeconfig="+c.kubeconfig, "--host="+host, "--port="+port, "--telemetry-host="+ownHost, "--telemetry-port="+ownPort,
		"--metric-labels-allowlist=nodes=[node-pool],namespaces=[team],pods=[team]")
	noErr(t, err)
	t.Cleanup(state.stop)
	p := startPrometheus(t, dir, `- job_name: kube-state-metrics
  honor_labels: true
  static_configs: [{targets: ["`+at+`"]}]
- job_name: gpu-exporter
  honor_labels: true
  file_sd_configs: [{files: [TARGETS]}]
  relabel_configs:
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: instance}
`)
	// What is right, and the dashboards' queries, which need a series each.
	want := map[string]string{
		`pod:gpu_requests:sum{namespace="work", pod="whole", phase="Running", resource="nvidia_com_gpu"}`:                    "1",
		`pod:gpu_requests_waiting:sum{namespace="work", pod="waits", resource="nvidia_com_gpu"}`:                             "1",
		`pod:gpu_requests_waiting:sum{namespace="batch", pod="queued", resource="nvidia_com_gpu"}`:                           "100",
		`kube_resourcequota{namespace="work", type="used", resource=~".*nvidia.com/.+"}`:                                     "2",
		`node:gpu_placement:info{node="node-1", pool="blue"}`:                                                                "1",
		`namespace:gpu_team:info{namespace="work", team="research"}`:                                                         "1",
		`node:gpu_without_exporter:count{node="node-2"}`:                                                                     "12",
		`ALERTS{alertname="GPUSchedulableWhilePodsWait", namespace="work", resource="nvidia_com_gpu", alertstate="pending"}`: "1",
		`ALERTS{alertname="GPUCapacityExhausted", resource="nvidia_com_gpu", alertstate="pending"}`:                          "1",
		`ALERTS{alertname="GPUExporterMissingOnNode", node="node-2", alertstate="pending"}`:                                  "1",
	}
	for panel, expr := range kubeQueries(t) {
		want["topk(1, "+expr+") # "+panel] = ""
	}
	begun := time.Now()
	for missing := []string{""}; len(missing) > 0; time.Sleep(time.Second) {
		p.announce(t, c, "monitoring", "app.kubernetes.io/name=gpu-exporter", "10835")
		missing = missing[:0]
		for expr, value := range want {
			got, err := p.query(expr)
			noErr(t, err)
			if len(got) != 1 || value != "" && got[0].Value[1] != value {
				missing = append(missing, fmt.Sprintf("%s is %v, want %s", expr, got, value))
			}
		}
		if time.Since(begun) > 7*time.Minute {
			t.Fatalf("not within 7 minutes:\n%s\n%s", strings.Join(missing, "\n"), state.output())
		}
	}
	t.Logf("%d queries were right after %.0f s", len(want), time.Since(begun).Seconds())
	c.kubectl(t, "cordon", one.name)
	eventually(t, "the node is cordoned", func() error {
		for panel, expr := range kubeQueries(t) {
			if strings.HasSuffix(panel, "Schedulable/A") && p.value(t, expr) == 0 {
				return nil
			}
		}
		return fmt.Errorf("the tile Schedulable is not 0")
	})
	out, err := c.command(t, built(t, ".", "./cmd/report", "gpu-report"), "--prometheus.url="+p.url, "--from=1h", "--group-by=label:team",
		"--format=csv", "--level=team", "--quiet")
	noErr(t, err)
	t.Log(out)
	if !regexp.MustCompile(`(?m)^.*\ba\b.*$`).MatchString(out) {
		t.Errorf("the report has no team a:\n%s", out)
	}
}
