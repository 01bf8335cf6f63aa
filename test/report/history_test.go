// Package report_test compares gpu-report with simulated fleets whose script is known, written into a real Prometheus as
// history, and opens its pages in a real browser.
package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/blocks"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// programs are what the tests run.
type programs struct{ root, report, prometheus, promtool string }

func built(t *testing.T) programs {
	t.Helper()
	return programs{servers.Root(t), servers.Build(t, servers.Report), servers.Build(t, servers.Prometheus),
		servers.Build(t, servers.Promtool)}
}

// families are those that the report reads, and that rules read for it.
var families = []string{"gpu_time_seconds_total", "gpu_device_up", "gpu_energy_joules_total", "gpu_power_watts", "gpu_info",
	"gpu_memory_total_bytes", "gpu_busy_seconds_total", "gpu_observed_seconds_total", "gpu_sm_active_seconds_total",
	"gpu_profiled_seconds_total", "gpu_container_allocated_since_timestamp_seconds",
	"gpu_unattributed_busy_seconds_total", "gpu_exporter_build_info", "gpu_xid_events_total", "gpu_utilization_ratio",
	"gpu_utilization_peak_ratio", "gpu_container_allocated_seconds_total",
	"gpu_container_busy_seconds_total", "gpu_container_observed_seconds_total", "gpu_container_unused_seconds_total",
	"gpu_container_energy_joules_total",
	"gpu_container_memory_used_bytes", "gpu_container_allocation_ratio", "gpu_container_last_busy_timestamp_seconds", "gpu_pod_info",
	"gpu_recovery_action",
	"gpu_node_devices", "gpu_node_allocatable_devices", "gpu_node_allocated_devices", "kube_pod_container_resource_requests",
	"kube_pod_status_phase"}

func wanted(name string) bool { return slices.Contains(families, name) }

// write writes the history of a fleet into a directory.
func write(t *testing.T, dir string, f *fleet.Fleet, from, to time.Time, step time.Duration) {
	t.Helper()
	start := time.Now()
	r, err := blocks.Write(t.Context(), dir, f, blocks.Options{From: from, To: to, Step: step, Want: wanted})
	must.OK(t, err)
	t.Logf("%d samples in %d blocks, %v", r.Samples, r.Blocks, time.Since(start).Round(time.Millisecond))
}

// serve runs a Prometheus on a directory with history.
func (p programs) serve(t *testing.T, dir string) (url string, stop func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	must.OK(t, os.WriteFile(config, []byte("global: {scrape_interval: 1m}\n"), 0o600))
	address := servers.Address(t)
	server := servers.Start(t, dir, p.prometheus, "--config.file="+config, "--storage.tsdb.path="+dir, "--web.listen-address="+address,
		"--storage.tsdb.retention.time=100y", "--no-storage.tsdb.allow-overlapping-compaction", "--log.level=warn")
	url = "http://" + address
	servers.Until(t, "Prometheus", servers.Answers(url+"/-/ready"))
	return url, func() { _ = server.Stop() }
}

// read are the records that the report reads, with those that they are made from.
func read(name string) bool {
	return slices.Contains([]string{"gpu:gpu_model:info", "node:gpu_time_seconds:rate5m", "node:gpu_device_up:count",
		"node:gpu_power_watts:sum", "node:gpu_problems:count", "node:gpu_xid_events:increase5m",
		"node:gpu_unallocated_devices:sum", "namespace:gpu_requests_pending:sum", "pod:gpu_workload:info",
		"workload:gpu_allocated_seconds:rate5m", "workload:gpu_busy_seconds:rate5m",
		"workload:gpu_observed_seconds:rate5m", "workload:gpu_unused_seconds:rate5m", "workload:gpu_power_watts:sum",
		"workload:gpu_memory_used_bytes:max", "workload:gpu_busy:ratio_max",
		"workload:gpu_last_busy_timestamp_seconds:max", "workload:gpu_pods:count"}, name)
}

// recorded are the rules whose records the report reads. A rule that reads another needs it to exist: the owners of pods and the models of
// GPUs come first.
func recorded(t *testing.T) (files []string) {
	t.Helper()
	groups, err := alerts.Default().RecordingRules()
	must.OK(t, err)
	steps := []alerts.RuleGroup{{Name: "first"}, {Name: "others"}}
	n := 0
	for _, g := range groups {
		for _, r := range g.Rules {
			step := &steps[1]
			if r.Record == "pod:gpu_workload:info" || r.Record == "gpu:gpu_model:info" {
				step = &steps[0]
			}
			if read(r.Record) {
				step.Rules = append(step.Rules, r)
				n++
			}
		}
	}
	if n < 18 {
		t.Fatalf("only %d of the records that the report reads are shipped", n)
	}
	for _, step := range steps {
		file := filepath.Join(t.TempDir(), step.Name+".yaml")
		must.OK(t, os.WriteFile(file, []byte(alerts.RulesFile([]alerts.RuleGroup{step})), 0o600))
		files = append(files, file)
	}
	return files
}

// record adds what the shipped recording rules would have made of the history.
func (p programs) record(t *testing.T, dir string, from, to time.Time) {
	t.Helper()
	for _, file := range recorded(t) {
		out := t.TempDir()
		url, stop := p.serve(t, dir)
		text, err := exec.Command(p.promtool, "tsdb", "create-blocks-from", "rules", "--start="+from.Format(time.RFC3339),
			"--end="+to.Format(time.RFC3339), "--url="+url, "--eval-interval=60s", "--output-dir="+out, file).CombinedOutput()
		if err != nil {
			t.Fatalf("promtool: %v\n%s", err, text)
		}
		stop()
		entries, err := os.ReadDir(out)
		must.OK(t, err)
		for _, e := range entries {
			must.OK(t, os.Rename(filepath.Join(out, e.Name()), filepath.Join(dir, e.Name())))
		}
	}
}

// replay does the same in a VictoriaMetrics.
func (p programs) replay(t *testing.T, url string, from, to time.Time) {
	t.Helper()
	for _, file := range recorded(t) {
		text, err := exec.Command(servers.Build(t, servers.VMAlert), "-rule="+file, "-datasource.url="+url, "-remoteWrite.url="+url,
			"-evaluationInterval=60s", "-replay.timeFrom="+from.Format(time.RFC3339), "-replay.timeTo="+to.Format(time.RFC3339),
			"-replay.disableProgressBar", "-replay.rulesDelay=0s", "-remoteWrite.flushInterval=100ms").CombinedOutput()
		if err != nil {
			t.Fatalf("vmalert: %v\n%s", err, text)
		}
		servers.Until(t, "flush of VictoriaMetrics", servers.Answers(url+"/internal/force_flush"))
		// It caches results of queries of a time that is recorded later.
		servers.Until(t, "empty cache of VictoriaMetrics", servers.Answers(url+"/internal/resetRollupResultCache"))
	}
}

// run runs the report and reads its JSON.
func (p programs) run(t *testing.T, url string, args ...string) *document.Document {
	t.Helper()
	cmd := exec.Command(p.report, append([]string{"--prometheus.url=" + url, "--format=json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("gpu-report %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	var d document.Document
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	must.OK(t, decoder.Decode(&d))
	usage := cmd.ProcessState
	t.Logf("report in %v, of which %v processor time", time.Since(start).Round(time.Millisecond),
		(usage.UserTime() + usage.SystemTime()).Round(time.Millisecond))
	return &d
}
