package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// asMain makes the test's own program play gpu-report, so that its time and memory can be measured.
const asMain = "GPU_REPORT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Exit(reportMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// run runs gpu-report as a process of its own.
func run(t *testing.T, args ...string) (stdout, stderr string, state *os.ProcessState) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	_ = cmd.Run()
	return out.String(), said.String(), cmd.ProcessState
}

var begin = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// month is the history of so many nodes with eight cards each: what the rules record, and every container on its card.
func month(nodes int) *reporttest.Server {
	s := &reporttest.Server{}
	const model = "NVIDIA H100 80GB HBM3"
	add := func(name string, at func(int64) (float64, bool), pairs ...string) {
		l := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			l[pairs[i]] = pairs[i+1]
		}
		s.Series = append(s.Series, reporttest.Series{Name: name, Labels: l, At: at})
	}
	constant := func(v float64) func(int64) (float64, bool) {
		return func(int64) (float64, bool) { return v, true }
	}
	// Values with as many digits as real ones.
	wave := func(i int) func(int64) (float64, bool) {
		return func(t int64) (float64, bool) { return 0.2 + 0.7*float64((t/300*7+int64(i)*13)%97)/97, true }
	}
	rest := func(i int) func(int64) (float64, bool) {
		w := wave(i)
		return func(t int64) (float64, bool) { v, _ := w(t); return 1 - v, true }
	}
	for n := range nodes {
		node := fmt.Sprintf("h100-%04d", n)
		for use, v := range map[string]float64{"busy": 4.4, "underused": 1.6, "idle": 1, "unallocated": 0.9, "unavailable": 0, "unknown": 0.1} {
			add("node:gpu_card_seconds:rate5m", constant(v), "node", node, "model", model, "use", use)
		}
		add("node:gpu_device_up:count", constant(8), "node", node, "model", model)
		add("node:gpu_power_watts:sum", constant(3600.25), "node", node, "model", model)
		for c := range 8 {
			i := n*8 + c
			uuid, namespace := fmt.Sprintf("GPU-%08d", i), fmt.Sprintf("team-%d", i%20)
			workload := fmt.Sprintf("app-%d", i/60)
			on := []string{"node", node, "uuid", uuid, "namespace", namespace, "pod", fmt.Sprintf("%s-%d", workload, i)}
			add("gpu_info", constant(1), "node", node, "uuid", uuid, "model", model)
			add("gpu_memory_total_bytes", constant(81559<<20), "node", node, "uuid", uuid)
			add("gpu_container_held_seconds_total", constant(1), on...)
			add("gpu_container_busy_seconds_total", wave(i), on...)
			add("gpu_container_unused_seconds_total", rest(i), append(on, "use", "idle")...)
			add("gpu_container_allocation_ratio", constant(1), append(on, "resource", "nvidia_com_gpu")...)
			add("gpu_container_memory_used_bytes", constant(30<<30), on...)
			if i%60 < 20 { // once for each workload
				w := []string{"namespace", namespace, "workload_type", "Deployment", "workload", workload, "model", model}
				add("workload:gpu_held_seconds:rate5m", constant(3), w...)
				add("workload:gpu_observed_seconds:rate5m", constant(3), w...)
				add("workload:gpu_busy_seconds:rate5m", wave(i), w...)
				add("workload:gpu_busy:ratio_max", wave(i), w...)
				add("workload:gpu_unused_seconds:rate5m", rest(i), append(w, "use", "idle")...)
				add("workload:gpu_unused_seconds:rate5m", rest(i), append(w, "use", "underused")...)
				add("workload:gpu_power_watts:sum", constant(1500.5), w...)
				add("workload:gpu_memory_used_bytes:max", constant(30<<30), w...)
				add("workload:gpu_pods:count", constant(3), w[:6]...)
			}
			add("pod:gpu_workload:info", constant(1), "node", node, "namespace", namespace, "pod", fmt.Sprintf("%s-%d", workload, i), "workload_type", "Deployment", "workload", workload)
		}
	}
	return s
}

// A month of a thousand cards takes less than a minute of two cores and less than 500 MiB, the server's own time
// apart.
func TestMonthOfAThousandCards(t *testing.T) {
	nodes, most := 125, 60*time.Second
	if testing.Short() {
		nodes = 10
	}
	server := httptest.NewServer(month(nodes))
	defer server.Close()
	began := time.Now()
	out, said, state := run(t, "--prometheus.url="+server.URL, "--from=30d", "--now="+begin.Add(30*24*time.Hour).Format(time.RFC3339), "--format=json", "--log.level=debug")
	if state.ExitCode() != exitOK {
		t.Fatalf("exit code %d: %s", state.ExitCode(), said)
	}
	var d report.Document
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	if want := float64(nodes) * 8 * 720; d.Fleet.Hours < 0.999*want || d.Fleet.Hours > 1.001*want || len(d.Workloads) < nodes*8/3 {
		t.Errorf("%.0f card-hours, want %.0f; %d workloads", d.Fleet.Hours, want, len(d.Workloads))
	}
	usage := state.SysUsage().(*syscall.Rusage)
	own, memory := state.UserTime()+state.SystemTime(), usage.Maxrss<<10
	t.Logf("%d cards: %v of its own in %v, %d MiB; %s", nodes*8, own.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), memory>>20, said[max(0, strings.LastIndex(said, "msg=read")):])
	if own > 2*most {
		t.Errorf("it took %v of processor time, and two cores have %v in a minute", own, 2*most)
	}
	if memory > 500<<20 {
		t.Errorf("it took %d MiB", memory>>20)
	}
}

func TestExitCodes(t *testing.T) {
	server := httptest.NewServer(month(1))
	defer server.Close()
	empty := httptest.NewServer(&reporttest.Server{})
	defer empty.Close()
	broken := httptest.NewServer(nil)
	broken.Close()
	partial := month(1)
	partial.Extra = `,"warnings":["a store is down"]`
	some := httptest.NewServer(partial)
	defer some.Close()
	prices := t.TempDir() + "/prices.yaml"
	if err := os.WriteFile(prices, []byte("cards: [{model: '*', per_hour: oops}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := "--now=" + begin.Add(2*24*time.Hour).Format(time.RFC3339)
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"fine", []string{"--prometheus.url=" + server.URL, "--from=2d", now}, exitOK, ""},
		{"limit kept", []string{"--prometheus.url=" + server.URL, "--from=2d", now, "--fail-on=idle>0.5"}, exitOK, ""},
		{"limit exceeded", []string{"--prometheus.url=" + server.URL, "--from=2d", now, "--fail-on=idle>0.1"}, exitFailOn, "idle is 0.125"},
		{"partial", []string{"--prometheus.url=" + some.URL, "--from=2d", now}, exitPartial, "a store is down"},
		{"no data", []string{"--prometheus.url=" + empty.URL, "--from=2d", now}, exitNoData, "check that this server scrapes it"},
		{"unreachable", []string{"--prometheus.url=" + broken.URL, "--from=2d", now, "--prometheus.retries=0"}, exitBroken, "cannot reach"},
		{"no URL", nil, exitUsage, "--prometheus.url"},
		{"wrong URL", []string{"--prometheus.url=prometheus:9090"}, exitUsage, "http://prometheus:9090"},
		{"window turned round", []string{"--prometheus.url=" + server.URL, "--from=2026-02-02", "--to=2026-02-01"}, exitUsage, "before it begins"},
		{"no time", []string{"--prometheus.url=" + server.URL, "--from=soon"}, exitUsage, "30d"},
		{"no format", []string{"--prometheus.url=" + server.URL, "--format=pdf"}, exitUsage, "html"},
		{"two formats and no place", []string{"--prometheus.url=" + server.URL, "--format=html,md"}, exitUsage, "--out"},
		{"no level", []string{"--prometheus.url=" + server.URL, "--group-by=rack"}, exitUsage, "namespace"},
		{"no limit", []string{"--prometheus.url=" + server.URL, "--fail-on=idle"}, exitUsage, "NAME>VALUE"},
		{"no price list", []string{"--prometheus.url=" + server.URL, "--prices=/nowhere.yaml"}, exitUsage, "/nowhere.yaml"},
		{"bad price list", []string{"--prometheus.url=" + server.URL, "--prices=" + prices}, exitUsage, prices},
		{"no header", []string{"--prometheus.url=" + server.URL, "--prometheus.header=x"}, exitUsage, "NAME:VALUE"},
		{"no CA", []string{"--prometheus.url=" + server.URL, "--prometheus.ca-file=/nowhere"}, exitUsage, "/nowhere"},
		{"no matchers", []string{"--prometheus.url=" + server.URL, "--match={a=\"b\"}"}, exitUsage, "without braces"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, said bytes.Buffer
			code := reportMain(t.Context(), tt.args, &out, &said)
			if code != tt.code || !strings.Contains(said.String(), tt.says) {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, said.String())
			}
			if code != exitOK && strings.Count(strings.TrimSpace(said.String()), "\n") > 0 {
				t.Errorf("more than one line: %s", said.String())
			}
		})
	}
}

// Equal history, options and now give equal files.
func TestDeterministic(t *testing.T) {
	server := httptest.NewServer(month(2))
	defer server.Close()
	once := func() map[string]string {
		dir := t.TempDir()
		var out, said bytes.Buffer
		code := reportMain(t.Context(), []string{"--prometheus.url=" + server.URL, "--from=9d", "--now=" + begin.Add(20*24*time.Hour).Format(time.RFC3339), "--format=html,md,csv,json,table", "--out=" + dir}, &out, &said)
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, said.String())
		}
		files := map[string]string{}
		for _, ext := range []string{"html", "md", "csv", "json", "txt"} {
			b, err := os.ReadFile(dir + "/gpu-report." + ext)
			if err != nil {
				t.Fatal(err)
			}
			files[ext] = string(b)
		}
		return files
	}
	a, b := once(), once()
	for ext := range a {
		if a[ext] != b[ext] || len(a[ext]) < 500 {
			t.Errorf("%s differs from itself, or is empty", ext)
		}
	}
}
