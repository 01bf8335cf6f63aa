package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// run runs gpu-report with a server.
func run(t *testing.T, server string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if server != "" {
		args = append([]string{"--prometheus.url=" + server}, args...)
	}
	code = reportMain(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

var start = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

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
	wrong := &reporttest.Server{}
	wrong.Add("node:gpu_time_seconds:rate5m", reporttest.Constant(8.01), "node", "n", "model", reporttest.Model, "state", "busy")
	wrong.Add("node:gpu_device_up:count", reporttest.Constant(8), "node", "n", "model", reporttest.Model)
	doubled := httptest.NewServer(wrong)
	defer doubled.Close()
	prices := t.TempDir() + "/prices.yaml"
	must.OK(t, os.WriteFile(prices, []byte("gpus: [{model: '*', per_hour: oops}]"), 0o600))
	now := "--now=" + start.Add(2*24*time.Hour).Format(time.RFC3339)
	for _, tt := range []struct {
		name    string
		server  string
		args    []string
		code    int
		message string
	}{
		{"fine", server.URL, []string{"--from=2d", now}, exitOK, ""},
		{"limit kept", server.URL, []string{"--from=2d", now, "--fail-on=idle>0.5"}, exitOK, ""},
		{"limit exceeded", server.URL, []string{"--from=2d", now, "--fail-on=idle>0.1"}, exitFailOn, "idle is 0.125"},
		{"goal missed", server.URL, []string{"--from=2d", now, "--goal=0.7", "--fail-on=below_goal>0.1"}, exitFailOn,
			"below_goal is 0.15, more than 0.1"},
		{"goal nearly reached", server.URL, []string{"--from=2d", now, "--goal=0.7", "--fail-on=below_goal>0.2"}, exitOK, ""},
		{"no goal to miss", server.URL, []string{"--fail-on=below_goal>0"}, exitUsage, "needs --goal"},
		{"partial", some.URL, []string{"--from=2d", now}, exitPartial, "a store is down"},
		{"an account that does not add up", doubled.URL, []string{"--from=2d", now}, exitPartial,
			"the account is wrong: the states differ " +
				"from the expected GPU-hours by -0.13 %, the limit is 0.1 %"},
		{"no data", empty.URL, []string{"--from=2d", now}, exitNoData, "check that this server scrapes it"},
		{"unreachable", broken.URL, []string{"--from=2d", now, "--prometheus.retries=0"}, exitBroken, "cannot reach"},
		{"period reversed", server.URL, []string{"--from=2026-02-02", "--to=2026-02-01"}, exitUsage, "ends"},
		{"no level", server.URL, []string{"--group-by=rack"}, exitUsage, "namespace"},
		{"one level", server.URL, []string{"--from=2d", now, "--format=csv", "--level=workload"}, exitOK, ""},
		{"no price list", server.URL, []string{"--prices=/nowhere.yaml"}, exitUsage, "/nowhere.yaml"},
		{"bad price list", server.URL, []string{"--prices=" + prices}, exitUsage, prices},
		{"no CA", server.URL, []string{"--prometheus.ca-file=/nowhere"}, exitUsage, "/nowhere"},
		{"renamed flag", server.URL, []string{"--gone-after=1d"}, exitUsage, "--removed-after"},
		{"no earlier report", server.URL, []string{"--compare=" + prices}, exitUsage, prices},
		{"two labels", server.URL, []string{"--group-by=label:a,label:b"}, exitUsage, "one label"},
		{"no budget", server.URL, []string{"--advice.budget=0"}, exitUsage, "must be above 0"},
		{"a month", server.URL, []string{"--from=2026-02", now, "--group-by=namespace"}, exitOK, ""},
		{"no matchers", server.URL, []string{"--match={a=\"b\"}"}, exitUsage, "without braces"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, stderr := run(t, tt.server, append(slices.Clip(tt.args), "--quiet")...)
			if code != tt.code || !strings.Contains(stderr, tt.message) {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, stderr)
			}
			if code != exitOK && strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
				t.Errorf("more than one line: %s", stderr)
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
		code, _, stderr := run(t, server.URL, "--from=9d", "--now="+start.Add(20*24*time.Hour).Format(time.RFC3339),
			"--format=html,md,csv,json,table", "--out="+dir, "--group-by=workload,model")
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		files := map[string]string{}
		for _, ext := range []string{"html", "md", "fleet.csv", "workload.csv", "json", "txt"} {
			b, err := os.ReadFile(dir + "/gpu-report." + ext)
			must.OK(t, err)
			files[ext] = string(b)
		}
		return files
	}
	a, b := once(), once()
	for ext := range a {
		if a[ext] != b[ext] || len(a[ext]) < 250 {
			t.Errorf("%s is not deterministic, or empty", ext)
		}
	}
}

// A report with prices, budgets and a goal, compared with one of half the price: every format has the money of both.
func TestPlans(t *testing.T) {
	server := httptest.NewServer(reporttest.Month(1))
	defer server.Close()
	dir := t.TempDir()
	report := func(from, prices string, args ...string) {
		t.Helper()
		must.OK(t, os.WriteFile(dir+"/prices.yaml", []byte(prices), 0o600))
		args = append(args, "--from="+from, "--now="+start.Add(20*24*time.Hour).Format(time.RFC3339), "--prices="+dir+"/prices.yaml")
		if code, _, stderr := run(t, server.URL, args...); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
	}
	report("2d", "gpus: [{model: '*', per_hour: 1}]", "--format=json", "--out="+dir+"/before.json")
	report("2d", "{gpus: [{model: '*', per_hour: 2}], budget_per_month: {fleet: 10000, typo: 1}}", "--compare="+dir+"/before.json",
		"--goal=0.5", "--format=html,md,csv,json,table", "--out="+dir)
	report("2d", "{gpus: [{model: '*', per_hour: 2}], budget_per_month: {fleet: 10000}}", "--compare="+dir+"/before.json",
		"--goal=0.5", "--format=short", "--out="+dir+"/short.txt")
	// A month by name has its own hours: this one 672, which cost 10,752.
	report("this-month", "gpus: [{model: '*', per_hour: 2}]", "--format=short", "--out="+dir+"/month.txt")
	// Eight GPUs: 384 EUR of two days, 11,688 of a month. 4.4 of 8 are busy.
	money := []string{"11,688 USD", "exceeded by 1,688 USD", "192 USD", "384 USD", "Goal: 50 % busy. Reached: 55 %; 48 of 48 parts"}
	for file, wants := range map[string][]string{"gpu-report.html": append(money, `class="goal"`), "gpu-report.md": money,
		"gpu-report.txt": money, "gpu-report.projection.csv": {"cost_usd_per_month", "fleet,11688,"},
		"gpu-report.change.csv": {"fleet,192,192,"}, "gpu-report.trend.csv": {"from,gpu_hours,"}, "gpu-report.fleet.csv": {"cost_usd,"},
		"short.txt":       {"(125 USD, before 62.40 USD)", "11,688 USD", "budget: exceeded by 1,688 USD", "Goal: 50 %"},
		"month.txt":       {"a month at this rate: 10,752 USD"},
		"gpu-report.json": {`"cost_per_month": 11688`, "budget of typo", "of other prices (" + reporttest.Model}} {
		text, err := os.ReadFile(dir + "/" + file)
		must.OK(t, err)
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
	}
}

// CSV has one level in a file; that of a label has the label's name, and the queries are there on request.
func TestLevels(t *testing.T) {
	month := reporttest.Month(1)
	month.Add("kube_namespace_labels", reporttest.Constant(1), "namespace", "team-0", "label_team", "research")
	server := httptest.NewServer(month)
	defer server.Close()
	dir := t.TempDir()
	args := []string{"--from=2d", "--now=" + start.Add(20*24*time.Hour).Format(time.RFC3339), "--format=csv", "--group-by=label:team"}
	code, out, stderr := run(t, server.URL, append(args, "--level=team", "--query")...)
	if code != exitOK || !strings.HasPrefix(out, "team,gpus,gpu_hours,busy_gpu_hours,") ||
		!strings.Contains(out, ",query,partial\nresearch,") {
		t.Errorf("exit code %d: %s %s", code, out, stderr)
	}
	code, _, stderr = run(t, server.URL, append(args, "--out="+dir)...)
	files, err := os.ReadDir(dir)
	must.OK(t, err)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f.Name(), "gpu-report."), ".csv"))
	}
	want := []string{"advice", "cluster", "fleet", "model", "namespace", "node", "node_pool", "team", "trend", "workload"}
	if code != exitOK || !slices.Equal(names, want) {
		t.Errorf("exit code %d: %s; files %v, want %v", code, stderr, names, want)
	}
	if text, err := os.ReadFile(dir + "/gpu-report.workload.csv"); err != nil || strings.Contains(string(text), "query") {
		t.Errorf("%v: %s", err, text)
	}
}

// Each report is added to the history, which the next one has in every format; the same one replaces itself.
func TestHistory(t *testing.T) {
	server := httptest.NewServer(reporttest.Month(1))
	defer server.Close()
	dir := t.TempDir()
	for i, n := range []int{10, 10, 20} {
		now := start.Add(time.Duration(n) * 24 * time.Hour).Format(time.RFC3339)
		code, out, stderr := run(t, server.URL, "--from=2d", "--now="+now, "--history="+dir+"/past", "--format=md")
		if has := strings.Contains(out, "## Reports so far, per day"); code != exitOK || has != (i == 2) ||
			has && strings.Count(out, "2026-02-11 00&#58;00 | 192") != 1 {
			t.Errorf("%d: exit code %d: %s %s", i, code, stderr, out)
		}
	}
	if files, err := os.ReadDir(dir + "/past"); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	must.OK(t, os.WriteFile(dir+"/past/gpu-report-x.json", []byte("{}"), 0o600))
	code, _, stderr := run(t, server.URL, "--history="+dir+"/past")
	if code != exitUsage || !strings.Contains(stderr, "gpu-report-x.json") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Without a terminal there is a line for each stage and each tenth of it.
func TestProgress(t *testing.T) {
	var b strings.Builder
	show := showProgress(&b)
	show("nodes", 0, 1)
	for i := range 31 {
		show("namespaces", i, 30)
	}
	show("", 0, 0)
	if text := b.String(); strings.Count(text, "\n") != 12 || !strings.HasPrefix(text, "reading nodes\nreading namespaces: 0 % of 30\n") ||
		!strings.HasSuffix(text, "90 % of 30\nreading namespaces: 100 % of 30\n") {
		t.Error(text)
	}
}
