package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
)

var update = flag.Bool("update", false, "write the goldens instead of comparing them")

// hostile are names that try to run code in a reader's program.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a|b`c`\n# d", `=cmd|' /C calc'!A0`,
	"\x1b[2J\x1b]0;x\a", "\u202etxt.exe", `]](javascript:alert(1))`, `{{.D}}`, `</style><style>*{display:none}`, "@everyone",
	`-->`,
	`$(rm -rf ~)`}

func pointer(v float64) *float64 { return &v }

// document is a report with everything in it; the names are taken in turn.
func sample(names []string) *document.Document {
	at := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	i := 0
	name := func() string { i++; return names[i%len(names)] }
	c := document.States{Busy: 400, Gap: 50, Idle: 250, Unallocated: 150, Unavailable: 20, Unknown: 30, NotReported: 100}
	account := document.Account{GPUs: 10, Hours: 1000, States: c, Reclaimable: 200, Coverage: 0.87, Beyond: 33, Unattributed: 7,
		UsedByOthers: 21, EnergyKWh: pointer(120),
		Cost: pointer(2500), ReclaimableCost: pointer(240), StateCost: &c, EnergyCost: pointer(20)}
	of := func(change func(*document.Account)) document.Account { a := account; change(&a); return a }
	d := &document.Document{Schema: document.Schema, Generated: at.Add(101 * time.Hour),
		Period:  document.Span{From: at, To: at.Add(100 * time.Hour), StepSeconds: 300, Hours: 100},
		Partial: true, PartialReasons: []string{"no price for " + name()},
		Notes:    []document.Note{{Code: "x", Text: "note on " + name()}},
		Sources:  []document.Source{{Data: "gpus", From: "rules", Series: "node:gpu_time_seconds:rate5m", Hours: 100}},
		Currency: "EUR", ProfileTable: "1", Fleet: account,
		Checks: document.Checks{Difference: 0.0001, Busy: pointer(0.001), Idle: pointer(0), ExpectedHours: 1000,
			ReportedHours: 900}}
	for k := range 10 {
		d.Trend = append(d.Trend, document.Bucket{From: at.Add(time.Duration(k) * 10 * time.Hour), Hours: 10,
			States: document.States{Busy: 40 + float64(k), Gap: 5, Idle: 25, Unallocated: 30 - float64(k)}})
	}
	for range 3 {
		d.Clusters = append(d.Clusters, of(func(a *document.Account) { a.Cluster = name() }))
		d.Models = append(d.Models, of(func(a *document.Account) { a.Model = name() }))
		d.NodePools = append(d.NodePools, of(func(a *document.Account) { a.Cluster, a.NodePool = name(), name() }))
		d.Nodes = append(d.Nodes, of(func(a *document.Account) { a.Cluster, a.Node, a.Model = name(), name(), name() }))
		d.Namespaces = append(d.Namespaces, of(func(a *document.Account) { a.Namespace = name() }))
	}
	d.Advice = append(d.Advice, document.Advice{Code: "consolidate", Reason: "half_empty_nodes", Model: name(), Nodes: 2, SavedHours: 1600,
		SavedGPUs: 16, SavedCost: pointer(4000), MonthHours: 11688, MonthCost: pointer(29220), Saving: "nodes", Owner: document.Operator,
		Title: "Give back 2 nodes of x: a, b", Evidence: "All pods would have run.", Confidence: "medium", Change: "kubectl drain a b",
		ChangeIn: "node pool", Risk: "medium", Effort: "The nodes are drained.",
		Replay: &document.Replay{Pods: 9, Throttled: .1, Unknown: "y"}},
		document.Advice{Code: "fewer_replicas", Reason: "low_demand", Title: "Run 1 replica", SavedHours: 9, MonthHours: 66,
			Saving: "freed", Owner: "z", Confidence: "high", Replay: &document.Replay{Pods: 8, Waiting: 3, WaitedHours: 4}})
	for k := range len(names) + 2 {
		last := at.Add(time.Hour)
		w := document.Workload{ID: name() + "/" + string(rune('a'+k)), Namespace: name(), Kind: name(), Name: name(),
			OwnerFrom: "recorded",
			Model:     name(), Sharing: "whole", Pods: 2, GPUs: 1, GPUsNow: 1, Allocated: 100,
			Busy: 10, Gap: 5, Idle: 85, Reclaimable: 80, LongestIdle: 60, LastBusy: &last, FirstSeen: at,
			LastSeen: at.Add(99 * time.Hour),
			BusyMean: pointer(0.1), BusyP95: pointer(0.3), BusyP99: pointer(0.4), BusyPeak: pointer(0.5),
			MemoryPeak: pointer(1e10), MemoryMedian: pointer(9e9), MemoryFloor: pointer(8e9), MemoryTotal: pointer(8e10),
			EnergyKWh: pointer(3), Cost: pointer(300), Unused: 90 - float64(k), UnusedCost: pointer(270), Coverage: 1,
			Confidence: "medium",
			Plot: &document.Plot{Busy: []float64{-1, 0, 0.5, 1, -1, 0.2}, Peak: []float64{-1, 0, 0.7, 1, -1, 0.3},
				Memory: []float64{-1, 1e9, 1e10, 1e10, -1, 1e9}, GPUs: []float64{0, 1, 1, 1, 0, 1}}}
		if k%2 == 0 {
			w.Advice = "release"
			d.Advice = append(d.Advice, document.Advice{Code: "release", Reason: "stopped", Workload: w.ID,
				Namespace: w.Namespace,
				Title:     "Release 1 GPU of " + w.Name, Evidence: "It stopped: " + w.Name + ".",
				Alternatives: "Nothing is smaller.",
				SavedHours:   80, SavedGPUs: 0.8, SavedCost: pointer(240), Risk: "low", Confidence: "medium",
				Change: "kubectl delete pod " + w.Name + "\n```\n# x", ChangeIn: "shell",
				Saving: "freed", Owner: w.Namespace, MonthHours: 584, MonthCost: pointer(1752), Effort: "The pods are stopped.",
				Validation: &document.Validation{TrainHours: 70, TestHours: 30, Size: "no GPU"}})
			if k == 2 {
				d.Advice[len(d.Advice)-1].Confidence = "low"
			}
		} else {
			w.NoAdvice, w.NoAdviceReason = "used_well", "it is used well"
			w.Plot, w.MemoryPeak, w.BusyMean = nil, nil, nil
		}
		d.Workloads = append(d.Workloads, w)
	}
	d.GroupLabel = "team"
	d.Groups = append(d.Groups, of(func(a *document.Account) { a.Group = name() }))
	d.Goal = &document.Goal{Busy: 0.7, Reached: 0.4, Met: 3}
	d.Projections = []document.Projection{{Name: "fleet", Cost: 18262.5, UnusedCost: 2191.5, Saved: 500, Budget: pointer(15000)},
		{Name: name(), Cost: 7305, UnusedCost: 900, Saved: 400}}
	d.Comparison = &document.Comparison{Before: document.Span{From: at.Add(-100 * time.Hour), To: at, Hours: 100},
		Changes: []document.Change{
			{Name: "fleet", HoursBefore: 216, Hours: 240, UnusedBefore: 96, Unused: 72, CostBefore: pointer(540), Cost: pointer(600),
				UnusedCostBefore: pointer(240), UnusedCost: pointer(180)},
			{Name: name(), Hours: 24, Unused: 12}},
		Followed: []string{"Release 1 GPU of " + name()}, New: []string{"Share the GPU of " + name()}}
	return d
}

func written(t testing.TB, d *document.Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	levels := []string{""}
	if format == "csv" {
		levels = CSVLevels(d)
	}
	for _, level := range levels {
		b.WriteString(strings.TrimPrefix("\n"+level+":\n", "\n:\n"))
		must.OK(t, Write(&b, d, format, Options{Top: 20, Level: level, Query: true}))
	}
	return b.String()
}

// sheets are the CSV files of a document by level, with the queries.
func sheets(t testing.TB, d *document.Document) map[string][][]string {
	t.Helper()
	out := map[string][][]string{}
	for _, level := range CSVLevels(d) {
		var b bytes.Buffer
		must.OK(t, Write(&b, d, "csv", Options{Level: level, Query: true}))
		rows, err := csv.NewReader(&b).ReadAll() // refuses rows of different lengths
		must.OK(t, err)
		out[level] = rows
	}
	return out
}

func TestHostileNamesAreData(t *testing.T) {
	d := sample(hostile)
	html := written(t, d, "html")
	for _, s := range []string{"<script>alert", "<img", "onerror=alert(1)>", "</style><style>*", "ZgotmplZ"} {
		if strings.Contains(html, s) {
			t.Errorf("the page contains %q", s)
		}
	}
	if n := strings.Count(html, "<script"); n != 1 {
		t.Errorf("the page has %d scripts", n)
	}
	for _, format := range []string{"md", "table", "csv"} {
		text := written(t, d, format)
		for _, s := range []string{"\x1b", "\a", "\u202e"} {
			if strings.Contains(text, s) && format != "md" {
				t.Errorf("%s contains %q", format, s)
			}
		}
	}
	md := written(t, d, "md")
	outside := ""
	for i, part := range strings.Split(md, "````") { // code blocks may hold anything
		if i%2 == 0 {
			outside += part
		}
	}
	for _, row := range strings.Split(outside, "\n") {
		if strings.HasPrefix(row, "| ") && strings.Contains(row, "<script") || strings.HasPrefix(row, "# d") {
			t.Errorf("Markdown has %q", row)
		}
	}
	// Every row of a table has as many cells as its head.
	columns := 0
	for _, row := range strings.Split(md, "\n") {
		if !strings.HasPrefix(row, "|") {
			columns = 0
			continue
		}
		if n := strings.Count(row, "|"); columns == 0 {
			columns = n
		} else if n != columns {
			t.Errorf("a row has %d bars of %d: %s", n, columns, row)
		}
	}
}

func TestPartialStandsAtTheTop(t *testing.T) {
	d := sample([]string{"name"})
	for format, within := range map[string]int{"md": 200, "table": 120, "html": 12000} {
		text := written(t, d, format)
		at := strings.Index(strings.ToLower(text[strings.Index(text, "<body")+1:]), "partial")
		if at < 0 || at > within {
			t.Errorf("%s has the word partial at %d", format, at)
		}
	}
}

func TestNothingInIt(t *testing.T) {
	d := &document.Document{Schema: document.Schema, Generated: time.Unix(0, 0),
		Period: document.Span{From: time.Unix(0, 0), To: time.Unix(3600, 0), Hours: 1}}
	for _, format := range Formats() {
		text, _, _ := strings.Cut(written(t, d, format), "<script>")
		none := map[string]string{"table": "\nADVICE, questions last\nnone\n", "md": "\n## Advice\n\nNone.\n"}[format]
		if !strings.Contains(text, none) {
			t.Errorf("%s of nothing has advice: %s", format, text)
		}
		for _, s := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(text, s) {
				t.Errorf("%s of nothing contains %s", format, s)
			}
		}
	}
}

func TestGolden(t *testing.T) {
	files := map[string]string{}
	for _, format := range []string{"md", "table", "csv", "short", "html"} {
		text := written(t, sample([]string{"alpha", "beta", "gamma"}), format)
		if format == "html" { // without its styles and its script, a tag a line
			_, text, _ = strings.Cut(text, "<body>")
			text, _, _ = strings.Cut(text, "<script>")
			text = strings.ReplaceAll(text, "><", ">\n<")
		}
		files[filepath.Join("testdata", strings.TrimPrefix(File(format, "all"), "gpu-"))] = text
	}
	for file, want := range files {
		if *update {
			must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must.OK(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		must.OK(t, err)
		if string(got) != want {
			t.Errorf("%s is not what is rendered: run make generate and review the diff", file)
		}
	}
}

// The schema has every field that is written.
func TestSchemaKnowsTheDocument(t *testing.T) {
	schema, err := JSONSchema()
	must.OK(t, err)
	var s, doc map[string]any
	must.OK(t, json.Unmarshal(schema, &s))
	must.OK(t, json.Unmarshal([]byte(written(t, sample([]string{"x"}), "json")), &doc))
	defs := s["$defs"].(map[string]any)
	var hold func(path string, v any, s map[string]any)
	hold = func(path string, v any, s map[string]any) {
		if ref, ok := s["$ref"].(string); ok {
			s = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		switch v := v.(type) {
		case map[string]any:
			properties := s["properties"].(map[string]any)
			for k, x := range v {
				if properties[k] == nil {
					t.Errorf("%s.%s is not in the schema", path, k)
					continue
				}
				hold(path+"."+k, x, properties[k].(map[string]any))
			}
			required := s["required"].([]any)
			if slices.Contains(required, any("goal")) || path == "" && len(required) == 0 {
				t.Errorf("of %q %v are required", path, required)
			}
			for _, r := range required {
				if _, ok := v[r.(string)]; !ok {
					t.Errorf("%s lacks %s", path, r)
				}
			}
		case []any:
			for _, x := range v {
				hold(path+"[]", x, s["items"].(map[string]any))
			}
		case string:
			if words, ok := s["oneOf"].([]any); ok &&
				!slices.ContainsFunc(words, func(w any) bool { return w.(map[string]any)["const"] == v }) {
				t.Errorf("%s: %q is not in the schema", path, v)
			}
		}
	}
	hold("", doc, s)
}

// Every format has a file of its own, and times are in the zone of the report, which is named.
func TestFilesAndZones(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Formats() {
		if seen[File(f, "x")] {
			t.Errorf("two formats write %s", File(f, "x"))
		}
		seen[File(f, "x")] = true
	}
	at := time.Date(2026, 9, 30, 22, 0, 0, 0, time.UTC)
	d := &document.Document{Period: document.Span{From: at, To: at.Add(745 * time.Hour), Hours: 745, Zone: "Europe/Berlin"}}
	for _, f := range []string{"html", "md", "table", "short"} {
		var b strings.Builder
		must.OK(t, Write(&b, d, f, Options{}))
		if !strings.Contains(b.String(), "2026-10-01 00:00 to 2026-11-01 00:00 Europe/Berlin") || strings.Contains(b.String(), "UTC") {
			t.Errorf("%s: %.300s", f, b.String())
		}
	}
}

// The columns of CSV are documented, in units, and a label of the groups gets no name that another column has.
func TestColumns(t *testing.T) {
	units := map[string]string{"coverage_percent": "%", "memory_peak_gib": "GiB", "energy_kwh": "kWh", "gpu_hours": "GPU-hours",
		"gpu_hours_per_day_before": "GPU-hours per day", "unused_cost_CURRENCY_per_month": "currency of the prices per month",
		"longest_idle_hours": "hours", "busy_gpu_hours": "GPU-hours", "gpus": "GPUs", "reports": "number", "last_busy": "time, UTC",
		"kind": ""}
	for _, c := range Columns() {
		if unit, ok := units[c.Name]; ok && c.Unit != unit || !strings.HasSuffix(c.Meaning, ".") {
			t.Errorf("%s is in %q, not %q: %s", c.Name, c.Unit, unit, c.Meaning)
		}
		delete(units, c.Name)
	}
	d := sample([]string{"alpha"})
	for label, name := range map[string]string{"team": "team", "cost_center": "cost_center",
		"app.kubernetes.io/team": "app_kubernetes_io_team", "kind": "label_kind", "workload": "label_workload", "gpus": "label_gpus"} {
		d.GroupLabel = label
		all := sheets(t, d)
		for level := range all {
			if !slices.Contains(AllCSVLevels(label), level) {
				t.Errorf("%s: level %s is not documented", label, level)
			}
		}
		for _, level := range []string{name, "workload"} {
			if rows := all[level]; len(rows) < 2 || !slices.Contains(rows[0], name) {
				t.Errorf("%s: no level or column %s: %v", label, name, rows)
			}
		}
		for level, rows := range all {
			if sorted := slices.Sorted(slices.Values(rows[0])); len(slices.Compact(sorted)) != len(rows[0]) {
				t.Errorf("%s: two columns of %s have one name: %v", label, level, rows[0])
			}
		}
	}
	var b bytes.Buffer
	must.OK(t, Write(&b, &document.Document{}, "csv", Options{Level: "workload"}))
	if text := b.String(); strings.Contains(text, "CURRENCY") || strings.Contains(text, "LABEL") ||
		strings.Contains(text, "query") || len(units) > 0 {
		t.Errorf("without prices, label and request: %s; unknown %v", text, units)
	}
}
