package dashboards

import (
	"slices"
	"strings"
	"testing"
)

// small is a dashboard that keeps every law.
func small() Dashboard {
	return Dashboard{UID: "small", Title: "Small", Question: "Is it well?", Raw: true,
		Vars: []Variable{datasourceVariable(), clusterVariable("gpu_info"), nodeVariable(false), gpuVariable()},
		Rows: []Row{{Lines: []Line{line(4,
			stat(12, "Power", Watts, "sum(gpu_power_watts{<node>})", "Power of the GPUs."),
			series(12, "Busy", Ratio, "Utilization.", q(gpuName, rawBusy(perGPU, "<node>"))).between(0, 1))}},
			{Title: "More", Lines: []Line{line(8, table(24, "Cards", "GPU", "All GPUs.", label("gpu", "GPU").to(toGPUOfNode()),
				label("uuid", "UUID"), value("Power", Watts, "sum by (uuid, gpu) (gpu_power_watts{<node>})")))}}},
	}
}

// with returns the small dashboard with its first panel changed.
func with(change func(*Panel)) []Dashboard {
	b := small()
	change(&b.Rows[0].Lines[0].Panels[0])
	return []Dashboard{b, gpuDashboard(), nodeDashboard(), workloadDashboard(), namespaceDashboard(), sharingDashboard()}
}

func TestBrokenTablesAreRefused(t *testing.T) {
	if _, err := Files(with(func(*Panel) {}), nil); err != nil && !strings.Contains(err.Error(), "gpu:gpu_health:info") {
		t.Fatalf("a good dashboard was refused: %v", err)
	}
	expr := func(e string) []Dashboard { return with(func(p *Panel) { p.queries[0].Expr = e }) }
	dashboard := func(change func(*Dashboard)) []Dashboard {
		b := small()
		change(&b)
		return []Dashboard{b, gpuDashboard()}
	}
	for _, c := range []struct {
		name       string
		dashboards []Dashboard
		want       []string // what the one line must name
	}{
		{"a duplicate uid", []Dashboard{small(), small(), gpuDashboard()}, []string{"small", "duplicate"}},
		{"a uid that no URL should carry", dashboard(func(b *Dashboard) { b.UID = "Small board" }), []string{"Small board", "uid"}},
		{"an unknown metric", expr("sum(gpu_powr_watts{<node>})"), []string{"small", `"Power"`, "gpu_powr_watts"}},
		{"an unknown recording rule", expr("sum(node:gpu_nothing:sum{<node>})"), []string{"small", "node:gpu_nothing:sum"}},
		{"a suffix of a family that is no histogram", expr("sum(gpu_power_watts_sum{<node>})"), []string{"gpu_power_watts_sum"}},
		{"no metric at all", expr("vector(1)"), []string{`"Power"`, "no metric"}},
		{"an unknown selector", expr("sum(gpu_power_watts{<nodes>})"), []string{"<nodes>"}},
		{"a selector of a variable that is missing", expr("sum(gpu_power_watts{<namespace>})"),
			[]string{"<namespace>", "variable namespace"}},
		{"a variable that is missing", expr(`sum(gpu_power_watts{<node>, uuid="$GPU"})`), []string{"$GPU"}},
		{"no cluster", expr("sum(gpu_power_watts)"), []string{`"Power"`, "cluster"}},
		{"no cluster on one side", expr("sum(gpu_power_watts{<node>}) / sum(gpu_power_limit_watts{gpu=\"1\"})"), []string{"cluster"}},
		{"a window without a reason", expr("sum(rate(gpu_energy_joules_total{<node>}[5m]))"), []string{"[5m]"}},
		{"raw series above node level", dashboard(func(b *Dashboard) { b.Raw = false }), []string{"raw series gpu_power_watts"}},
		{"topk over time",
			dashboard(func(b *Dashboard) { b.Rows[0].Lines[0].Panels[1].queries[0].Expr = "topk(3, gpu_power_watts{<node>})" }),
			[]string{`"Busy"`, "topk"}},
		{"a ratio without limits", dashboard(func(b *Dashboard) { b.Rows[0].Lines[0].Panels[1].limits = [2]*float64{} }),
			[]string{`"Busy"`, "limits"}},
		{"no description", with(func(p *Panel) { p.help = "" }), []string{`"Power"`, "description"}},
		{"no unit", with(func(p *Panel) { p.unit = "" }), []string{`"Power"`, "unit"}},
		{"a duplicate title", with(func(p *Panel) { p.title = "Busy" }), []string{`"Busy"`, "duplicate"}},
		{"a line wider than the grid", with(func(p *Panel) { p.width = 13 }), []string{"small", `"Power"`, "25"}},
		{"a link to nowhere", with(func(p *Panel) { p.links = []Link{link("gpu-rack", "Open")} }), []string{"gpu-rack"}},
		{"a link that sets what the target lacks", with(func(p *Panel) { p.links = []Link{link("gpu-device", "Open", pick(varPod))} }),
			[]string{"gpu-device", "pod"}},
		{"a link that passes an unknown variable", with(func(p *Panel) { p.links = []Link{link("gpu-workload", "Open", hand(varPod))} }),
			[]string{"pod", "this dashboard"}},
		{"a link by a column that is not there", dashboard(func(b *Dashboard) {
			b.Rows[1].Lines[0].Panels[0].columns[0].link = &Link{UID: "gpu-device", Vars: []LinkVar{pick(varNode)}}
		}), []string{"column node"}},
		{"an order by no column", dashboard(func(b *Dashboard) { b.Rows[1].Lines[0].Panels[0].sortBy = "-Heat" }), []string{"Heat"}},
		{"no cluster variable", dashboard(func(b *Dashboard) { b.Vars = b.Vars[:1] }), []string{"variable cluster"}},
		{"a variable that asks for an unknown metric", dashboard(
			func(b *Dashboard) { b.Vars[2].Query = "label_values(gpu_nothing{<cluster>}, node)" }),
			[]string{"variable node", "gpu_nothing"}},
		{"an annotation of an unknown metric", dashboard(
			func(b *Dashboard) { b.Annotations = []Annotation{{Name: "M", Expr: "gpu_nothing{<cluster>}"}} }),
			[]string{`"M"`, "gpu_nothing"}},
		{"a row without a title", dashboard(func(b *Dashboard) { b.Rows[1].Title = "" }), []string{"row 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Files(c.dashboards, []string{"pod:gpu_workload:info"})
			if err == nil {
				t.Fatal("it passed")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
		})
	}
}

func TestMetricsOf(t *testing.T) {
	for expr, want := range map[string][]string{
		`sum by (node) (rate(gpu_busy_seconds_total{a="b{c}"}[5m])) / 1e9`:                       {"gpu_busy_seconds_total"},
		`node:gpu_unallocated:sum{x="1"} or on (cluster) group_left (model) 0 * max(up)`:         {"node:gpu_unallocated:sum", "up"},
		`a{b="x"} and on (c) b unless d offset 5m > bool 1`:                                      {"a", "b", "d"},
		`sum_over_time(x:y:z{c=~"$cluster"}[$__range:5m]) / 12`:                                  {"x:y:z"},
		`count_values("holders", count by (a) (m{n="o\"p"})) == inf`:                             {"m"},
		`predict_linear(m[7d], 1209600) + quantile_over_time(0.95, n{}[$__rate_interval] @ 5)`:   {"m", "n"},
		`label_replace(m, "a", "$1", "b", "(.+)") * on () group_left () max without (x) (m) + m`: {"m"},
	} {
		if got := metricsOf(expr); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

func TestLayoutNumbersAndPlaces(t *testing.T) {
	for _, b := range All() {
		grid, err := b.layout()
		if err != nil {
			t.Fatal(err)
		}
		next, bottom := 1, 0
		for _, r := range grid.rows {
			if r.heading != nil {
				if r.heading.id != next || r.heading.y != bottom || r.heading.w != gridWidth {
					t.Errorf("%s: heading %q stands at %+v", b.UID, r.row.Title, *r.heading)
				}
				next, bottom = next+1, bottom+1
			}
			for _, p := range r.panels {
				if p.at.id != next {
					t.Errorf("%s: %q has id %d, want %d", b.UID, p.title, p.at.id, next)
				}
				next++
				bottom = max(bottom, p.at.y+p.at.h)
			}
		}
	}
}

func TestAbsenceIsNotCalm(t *testing.T) {
	p := stat(3, "Fan", Ratio, "sum(gpu_fan_speed_ratio{<gpu>})", "Fan.").between(0, 1).ifUp("gpu_device_up{<gpu>}")
	if want := "max(sum(gpu_fan_speed_ratio{<gpu>})) or (0 * max(gpu_device_up{<gpu>}) - 1)"; p.queries[0].Expr != want {
		t.Errorf("%s, want %s", p.queries[0].Expr, want)
	}
	if !slices.Contains(p.mappings, Mapping{"-1", "N/A", Gray}) {
		t.Error("the sentinel has no name")
	}
	if strings.Contains(orZero("count(a)", "b"), "vector") {
		t.Error("a 0 without a presence condition looks normal while everything is down")
	}
}

func TestPlainTextKeepsBackslashes(t *testing.T) {
	for in, want := range map[string]string{
		`"a \u003e b \u0026\u003c"`: `"a > b &<"`,
		`"\\u003e"`:                 `"\\u003e"`,
		`"\\\u003e\n\u00e9"`:        `"\\>\n\u00e9"`,
		`"\`:                        `"\`,
	} {
		if got := string(plainText([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestSteps(t *testing.T) {
	for _, s := range [][]Step{badAbove(1, 2), badIfAny(), warnIfAny(), plainSteps(), usedSteps(), fullSteps()} {
		got := thresholds(s)
		if got.Steps[0].Value != nil {
			t.Error("the first step has a value: Grafana wants none")
		}
		for i := 2; i < len(got.Steps); i++ {
			if *got.Steps[i].Value <= *got.Steps[i-1].Value {
				t.Errorf("steps %v do not rise", s)
			}
		}
	}
}

// An empty panel shows what is missing: kube-state-metrics, node_exporter, prices, the recording rules, or the exporter.
func TestReasonsOfEmptyPanels(t *testing.T) {
	want := map[string]string{
		"gpu-fleet/GPUs": "no records: rules not loaded?", "gpu-capacity/GPU-hours by state": "no records: rules not loaded?",
		"gpu-capacity/Allocated and busy GPUs": "no records: rules not loaded?",
		"gpu-capacity/Pending":                 "needs kube-state-metrics and rules", "gpu-capacity/Quotas": "needs kube-state-metrics",
		"gpu-capacity/Devices by resource over time": "no records: rules not loaded?",
		"gpu-namespace/Cost of unused":               "no prices configured, or rules not loaded",
		"gpu-namespace/All":                          "no records: rules not loaded?",
		"gpu-node/Host CPU":                          "needs node_exporter", "gpu-node/Available": "the exporter is not scraped",
		"gpu-workload/Restarts": "No container was restarted, or no kube-state-metrics, or rules not loaded.",
		"gpu-exporter/Scraped":  "no exporter is scraped",
		"gpu-device/Fans":       "not supported or not reported", "gpu-node/Memory used by GPU": "not supported or not reported",
		"gpu-health/GPUs with a problem": "No GPU has a problem, or the recording rules are not loaded.",
	}
	for _, d := range All() {
		d.everyPanel(func(p Panel) {
			if text, ok := want[d.UID+"/"+p.title]; ok {
				if got := p.emptyReason(); got != text {
					t.Errorf("%s/%s says %q, want %q", d.UID, p.title, got, text)
				}
				delete(want, d.UID+"/"+p.title)
			}
		})
	}
	for name := range want {
		t.Errorf("there is no panel %s", name)
	}
}
