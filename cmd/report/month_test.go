package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// asMain makes the test's own program play gpu-report.
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

// A month of sixteen GPUs is read whole, in one process.
func TestMonth(t *testing.T) {
	const nodes = 2
	server := httptest.NewServer(reporttest.Month(nodes))
	defer server.Close()
	out, said, state := run(t, "--prometheus.url="+server.URL, "--from=30d", "--now="+begin.Add(30*24*time.Hour).Format(time.RFC3339),
		"--format=json")
	if state.ExitCode() != exitOK {
		t.Fatalf("exit code %d: %s", state.ExitCode(), said)
	}
	var d report.Document
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	if want := float64(nodes) * 8 * 720; d.Fleet.Hours < 0.999*want || d.Fleet.Hours > 1.001*want || len(d.Workloads) < nodes*8/3 {
		t.Errorf("%.0f GPU-hours, want %.0f; %d workloads", d.Fleet.Hours, want, len(d.Workloads))
	}
}

func TestExitCodes(t *testing.T) {
	server := httptest.NewServer(reporttest.Month(1))
	defer server.Close()
	empty := httptest.NewServer(&reporttest.Server{})
	defer empty.Close()
	broken := httptest.NewServer(nil)
	broken.Close()
	partial := reporttest.Month(1)
	partial.Extra = `,"warnings":["a store is down"]`
	some := httptest.NewServer(partial)
	defer some.Close()
	prices := t.TempDir() + "/prices.yaml"
	if err := os.WriteFile(prices, []byte("gpus: [{model: '*', per_hour: oops}]"), 0o600); err != nil {
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
		{"window turned round", []string{"--prometheus.url=" + server.URL, "--from=2026-02-02", "--to=2026-02-01"}, exitUsage, "ends"},
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
	server := httptest.NewServer(reporttest.Month(2))
	defer server.Close()
	once := func() map[string]string {
		dir := t.TempDir()
		var out, said bytes.Buffer
		code := reportMain(t.Context(), []string{"--prometheus.url=" + server.URL, "--from=9d",
			"--now=" + begin.Add(20*24*time.Hour).Format(time.RFC3339), "--format=html,md,csv,json,table", "--out=" + dir}, &out, &said)
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
