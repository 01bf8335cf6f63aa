package dashboards

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
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

func TestBrokenTablesAreRefused(t *testing.T) {
	if _, err := Files([]Dashboard{small()}); err != nil {
		t.Fatalf("a good dashboard was refused: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*Dashboard, *Panel)
		want   []string // what the one line must name
	}{
		"an unknown selector": {func(_ *Dashboard, p *Panel) { p.queries[0].Expr = "sum(gpu_power_watts{<nodes>})" }, []string{"<nodes>"}},
		"a selector of a variable that is missing": {func(_ *Dashboard, p *Panel) {
			p.queries[0].Expr = "sum(gpu_power_watts{<namespace>})"
		},
			[]string{`"Power"`, "<namespace>", "variable namespace"}},
		"a line wider than the grid": {func(_ *Dashboard, p *Panel) { p.width = 13 }, []string{"small", `"Power"`, "25"}},
		"a row without a title":      {func(b *Dashboard, _ *Panel) { b.Rows[1].Title = "" }, []string{"row 2"}},
		"a variable's selector": {func(b *Dashboard, _ *Panel) { b.Vars[2].Query = "label_values(gpu_info{<nothing>}, node)" },
			[]string{"variable node", "<nothing>"}},
	} {
		b := small()
		c.change(&b, &b.Rows[0].Lines[0].Panels[0])
		_, err := Files([]Dashboard{b})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", name, w, err)
			}
		}
	}
}

func TestLayoutNumbersAndPlaces(t *testing.T) {
	for _, b := range All() {
		grid, err := b.layout()
		must.OK(t, err)
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
		"gpu-fleet/GPUs": "needs rules and GPUs that report it", "gpu-capacity/GPU-hours by state": "needs rules and GPUs that report it",
		"gpu-fleet/Utilization": "needs rules and measured activity", "gpu-capacity/Schedulable": "needs rules and known allocation",
		"gpu-fleet/SM activity by model":             "needs rules and Hopper or newer",
		"gpu-capacity/Allocated and busy GPUs":       "needs rules and known allocation",
		"gpu-capacity/Pending":                       "needs rules, kube-state-metrics and pods with GPUs",
		"gpu-capacity/Quotas":                        "needs kube-state-metrics",
		"gpu-capacity/Devices by resource over time": "needs rules and known allocation",
		"gpu-namespace/Cost of unused":               "needs rules, prices of models and pods with GPUs",
		"gpu-namespace/All":                          "needs rules and pods with GPUs",
		"gpu-namespace/Busy of measured":             "needs rules, pods with GPUs and measured activity",
		"gpu-node/Host CPU":                          "needs node_exporter", "gpu-node/Available": "the exporter is not scraped",
		"gpu-workload/Restarts": "No container was restarted, or no kube-state-metrics, or rules not loaded.",
		"gpu-exporter/Scraped":  "no exporter is scraped",
		"gpu-device/Fans":       "not supported or not reported", "gpu-node/Memory used by GPU": "not supported or not reported",
		"gpu-health/GPUs with a problem": "No GPU has a problem, or the recording rules are not loaded.",
	}
	for _, d := range All() {
		d.everyPanel(func(p Panel) {
			if text, ok := want[d.UID+"/"+p.title]; ok {
				if got := p.emptyNeeds(); got != text {
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

// everyPanel calls f for each panel in the order of the dashboard, which is the order of the ids.
func (b Dashboard) everyPanel(f func(Panel)) {
	for _, r := range b.Rows {
		for _, l := range r.Lines {
			for _, p := range l.Panels {
				f(p)
			}
		}
	}
}
