// Package prometheus_test runs the exporter with a real Prometheus: its scrape, its checks of the text format, and the
// example queries of the documentation. Prometheus and promtool are built from tools/prometheus.
package prometheus_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// exampleQueries are the queries of the documentation.
func exampleQueries(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	must.OK(t, err)
	var out []string
	for _, part := range strings.Split(string(text), "```promql\n")[1:] {
		q, _, ok := strings.Cut(part, "\n```")
		if !ok {
			t.Fatal("docs/metrics.md has a query without an end")
		}
		out = append(out, q)
	}
	if len(out) < 15 {
		t.Fatalf("docs/metrics.md has %d queries", len(out))
	}
	return out
}

// emptyInDemo are the queries without data on a healthy node in its first minute.
var emptyInDemo = map[string]string{
	`gpu_container_visible unless on (node, uuid, namespace, pod, container) gpu_container_allocation_ratio`: "no process uses a GPU " +
		"of another container",
	`gpu_temperature_celsius > on (node, uuid, sensor) gpu_temperature_limit_celsius{limit="max_operating"} - 5`: "no GPU is hot",
	`gpu_mig_mode != gpu_mig_mode_pending or gpu_ecc_mode != gpu_ecc_mode_pending`: "no mode change is " +
		"pending",
	`time() - gpu_xid_last_timestamp_seconds < 600`:                                        "no XID in the first minutes",
	`sum by (node, uuid) (increase(gpu_ecc_errors_total{severity="uncorrected"}[1h])) > 0`: "no memory error",
	`gpu_nvlink_links{state="up"} < max_over_time(gpu_nvlink_links{state="up"}[1d])`:       "no link is lost",
	`gpu_clock_event_active{reason!="idle"} == 1`:                                          "no clock is limited",
	`sum by (node, namespace, pod) (gpu_container_allocation_ratio) and on (node, namespace, pod) ` +
		`(time() - max by (node, namespace, pod) (gpu_container_last_busy_timestamp_seconds) > 1200)`: "no container was idle for twenty " +
		"minutes yet",
}

func TestContractQueries(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(servers.Build(t, servers.Promtool), "test", "rules", "contract_test.yml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestRealPrometheusScrapesTheDemo(t *testing.T) {
	t.Parallel()
	exporter, server, root := servers.Address(t), servers.Address(t), servers.Root(t)
	servers.Start(t, root, servers.Build(t, servers.Standin), "--scenario=testdata/scenarios/demo.scenario",
		"--pods=testdata/kubelet/demo.pods", "--quiet",
		"--", servers.Build(t, servers.Exporter), "--web.listen-address="+exporter, "--node-name=demo-node")
	metrics := "http://" + exporter + "/metrics"
	servers.Until(t, "the exporter serves the demo's GPUs", func() error {
		text, err := servers.Fetch(metrics)
		if err == nil && strings.Count(text, "\ngpu_busy_seconds_total{") < 8 {
			err = fmt.Errorf("not all GPUs are there yet")
		}
		return err
	})

	text, err := servers.Fetch(metrics)
	must.OK(t, err)
	lint := exec.Command(servers.Build(t, servers.Promtool), "check", "metrics")
	lint.Stdin = strings.NewReader(text)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	dir := t.TempDir()
	config := fmt.Sprintf("scrape_configs:\n- job_name: gpu-exporter\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  honor_labels: "+
		"true\n  scrape_native_histograms: true\n  static_configs:\n  - targets: ['%s']\n", exporter)
	path := filepath.Join(dir, "prometheus.yml")
	must.OK(t, os.WriteFile(path, []byte(config), 0o644))
	client := dashboard.Client{URL: "http://" + server}
	said := servers.Start(t, dir, servers.Build(t, servers.Prometheus), "--config.file="+path,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+server)

	count := func(q string, want int) {
		t.Helper()
		servers.Until(t, q, func() error {
			got, err := client.Instant(t.Context(), q, time.Now())
			if err == nil && len(got) != want {
				err = fmt.Errorf("%d series, want %d: %v", len(got), want, got)
			}
			return err
		})
	}
	count(`up == 1`, 1)
	count(`gpu_device_up == 1`, 8)
	count(`rate(gpu_busy_seconds_total[15s]) / rate(gpu_observed_seconds_total[15s]) <= 1`, 8)
	count(`gpu_allocation_ratio == 0`, 1) // GPU 7 is unallocated
	count(`sum by (node) (gpu_container_allocation_ratio)`, 1)
	count(`abs(sum by (uuid) (rate(gpu_time_seconds_total[20s])) - 1) < 0.2`, 8)                      // each second of each GPU once
	count(`histogram_quantile(0.99, sum(rate(gpu_exporter_poll_call_duration_seconds[15s]))) > 0`, 1) // a native histogram
	count(`scrape_samples_post_metric_relabeling != scrape_samples_scraped`, 0)
	for _, q := range exampleQueries(t, root) {
		got, err := client.Instant(t.Context(), q, time.Now())
		_, excused := emptyInDemo[q]
		switch {
		case err != nil:
			t.Errorf("%s: %v", q, err)
		case len(got) == 0 && !excused:
			t.Errorf("%s has no data", q)
		case len(got) > 0 && excused:
			t.Errorf("%s has %d series, although it is listed as empty", q, len(got))
		}
	}
	if strings.Contains(said.String(), "level=ERROR") || strings.Contains(said.String(), "Error on ingesting") {
		t.Errorf("warnings of Prometheus:\n%s", said.String())
	}
}
