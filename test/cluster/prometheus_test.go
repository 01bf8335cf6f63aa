package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// prometheus is a server. Its targets are the pods that announce has found last.
type prometheus struct{ url, targets string }

// startPrometheus starts one with the shipped rules. TARGETS in its jobs is the file of targets.
func startPrometheus(t *testing.T, dir, jobs string) *prometheus {
	t.Helper()
	program := filepath.Join(repository(), "bin", "prometheus")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run tools/install", err)
	}
	at := address(t)
	p := &prometheus{"http://" + at, filepath.Join(dir, "targets.json")}
	write(t, dir, "targets.json", "[]")
	config := write(t, dir, "prometheus.yml", `global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 5s}
rule_files: [`+filepath.Join(repository(), "alerts")+`/*.rules.yaml]
scrape_configs:
`+strings.ReplaceAll(jobs, "TARGETS", p.targets))
	server, err := start(dir, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at)
	noErr(t, err)
	t.Cleanup(server.stop)
	eventually(t, "Prometheus", func() error {
		resp, err := http.Get(p.url + "/-/ready")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s\n%s", resp.Status, server.output())
		}
		return err
	})
	return p
}

// sample is a series of a response.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query is the instant vector of an expression.
func (p *prometheus) query(expr string) ([]sample, error) {
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []sample }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

// value is the only value of an expression; 0: there is none.
func (p *prometheus) value(t *testing.T, expr string) float64 {
	t.Helper()
	got, err := p.query(expr)
	noErr(t, err)
	if len(got) == 0 {
		return 0
	}
	var v float64
	if _, err := fmt.Sscan(fmt.Sprint(got[0].Value[1]), &v); err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// announce writes the pods with a label, as the API server has them, where Prometheus finds them.
func (p *prometheus) announce(t *testing.T, c *cluster, namespace, selector, port string) []corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	noErr(t, err)
	targets := []any{}
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			targets = append(targets, map[string]any{"targets": []string{pod.Status.PodIP + ":" + port},
				"labels": map[string]string{"__meta_kubernetes_pod_node_name": pod.Spec.NodeName, "__meta_kubernetes_namespace": namespace,
					"__meta_kubernetes_pod_name": pod.Name, "__meta_kubernetes_pod_container_name": pod.Spec.Containers[0].Name}})
		}
	}
	text, err := json.Marshal(targets)
	noErr(t, err)
	noErr(t, os.WriteFile(p.targets+".new", text, 0o600))
	noErr(t, os.Rename(p.targets+".new", p.targets))
	return pods.Items
}
