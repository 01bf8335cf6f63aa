package report

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
)

// quiet is a pod on a whole GPU with the same demand and memory in each hour, in hundredths.
func quiet(id string, from, to int, demand, memory uint8) run {
	r := ran(id, "n", 1, from, to)
	r.first, r.demand, r.memory = from, slices.Repeat([]uint8{demand}, to-from), slices.Repeat([]uint8{memory}, to-from)
	return r
}

// packed is what a scenario says of pods on a node with GPUs, in a period of 240 hours.
func packed(t *testing.T, a *analysis, model, scenario string, gpus int, x *finding) (p document.Packing, ok bool) {
	t.Helper()
	f := fleetOf(a, model, map[string][2]float64{"n": {float64(gpus), 0}})
	for _, p := range a.shared(a.byModel(f, []*finding{x})[0], []*finding{x}, f) {
		if p.Scenario == scenario {
			return p, true
		}
	}
	return p, false
}

// Twelve equal pods share GPUs, at most four on each: 1.25 times their demand has to fit, and 95 % of the memory. Of MIG devices seven of
// 1g.10gb (9.75 GiB of 79.6, 1/7 of the compute), four of 1g.20gb (19.6 GiB, 1/7), three of 2g.20gb (19.6 GiB, 2/7) or two of 3g.40gb
// (39.5 GiB, 3/7) fit.
func TestTwelvePodsShareGPUs(t *testing.T) {
	for _, tt := range []struct {
		scenario       string
		demand, memory uint8 // hundredths
		gpus           float64
	}{
		{"share", 0, 0, 3}, {"share", 20, 0, 3}, {"share", 21, 0, 4}, {"share", 26, 0, 4}, {"share", 27, 0, 6}, {"share", 40, 0, 6},
		{"share", 41, 0, 0}, {"share", 0, 23, 3}, {"share", 0, 24, 4}, {"share", 0, 31, 4}, {"share", 0, 32, 6}, {"share", 0, 47, 6},
		{"share", 0, 48, 0}, {"share", 27, 24, 6},
		{"mig", 0, 0, 2}, {"mig", 11, 12, 2}, {"mig", 11, 13, 3}, {"mig", 11, 24, 3}, {"mig", 12, 12, 4}, {"mig", 22, 24, 4},
		{"mig", 23, 24, 6},
		{"mig", 11, 25, 6}, {"mig", 34, 49, 6}, {"mig", 35, 49, 0}, {"mig", 34, 50, 0},
	} {
		var runs []run
		for i := range 12 {
			runs = append(runs, quiet(fmt.Sprintf("p%02d", i), 0, 240, tt.demand, tt.memory))
		}
		p, ok := packed(t, analysisOf(240, time.Hour), h100, tt.scenario, 12, placedOn(h100, runs...))
		if ok != (tt.gpus > 0) || p.GPUsAfter != tt.gpus || ok && (p.Items != 12 || p.GPUsBefore != 12) {
			t.Errorf("%+v: %+v", tt, p)
		}
	}
}

// Memory that is exactly that of a profile fits: a quarter of 78.5 GiB are the 19.6 GiB of 1g.20gb.
func TestMemoryOfExactlyAProfile(t *testing.T) {
	a := analysisOf(240, time.Hour)
	a.facts.byModel[h100] = 4 * 20096 << 20
	var runs []run
	for i := range 12 {
		runs = append(runs, quiet(fmt.Sprintf("p%02d", i), 0, 240, 11, 25))
	}
	if p, _ := packed(t, a, h100, "mig", 12, placedOn(h100, runs...)); p.GPUsAfter != 3 {
		t.Errorf("%+v", p)
	}
}

// Two pods share a GPU if both had one for twelve hours, and are known; without two there is no scenario.
func TestPodsThatMayShare(t *testing.T) {
	for _, tt := range []struct {
		name   string
		model  string
		gpus   int
		change func(x *finding)
		want   bool
	}{
		{"both", h100, 2, func(*finding) {}, true},
		{"one for twelve hours", h100, 2, func(x *finding) { x.runs[1] = like(x.runs[1], quiet("b", 0, 12, 10, 10)) }, true},
		{"one for eleven hours", h100, 2, func(x *finding) { x.runs[1] = like(x.runs[1], quiet("b", 0, 11, 10, 10)) }, false},
		{"memory unknown", h100, 2, func(x *finding) { x.runs[1].memory = nil }, false},
		{"another model", h100, 2, func(x *finding) { x.runs[1].model = l40s }, false},
		{"another cluster", h100, 2, func(x *finding) { x.runs[1].cluster = "east" }, false},
		{"a node that is not known", h100, 2, func(x *finding) { x.runs[1].node = "m" }, false},
		{"memory without a need", h100, 2, func(x *finding) { x.row.Preallocated = true }, false},
		{"a node with one GPU", h100, 1, func(*finding) {}, true},
		{"three on a node with one GPU", h100, 1, func(x *finding) {
			x.runs[0], x.runs[1] = like(x.runs[0], quiet("a", 0, 240, 40, 40)), like(x.runs[1], quiet("b", 0, 240, 40, 40))
			x.runs = append(x.runs, like(x.runs[1], quiet("c", 0, 240, 40, 40)))
		}, false},
	} {
		x := placedOn(tt.model, quiet("a", 0, 240, 10, 10), quiet("b", 0, 240, 10, 10))
		tt.change(x)
		for _, scenario := range []string{"share", "mig"} {
			if p, ok := packed(t, analysisOf(240, time.Hour), tt.model, scenario, tt.gpus, x); ok != tt.want {
				t.Errorf("%s, %s: %+v", tt.name, scenario, p)
			}
		}
	}
	x := placedOn(l40s, quiet("a", 0, 240, 10, 10), quiet("b", 0, 240, 10, 10))
	if _, ok := packed(t, analysisOf(240, time.Hour), l40s, "share", 2, x); !ok {
		t.Error("a model without MIG cannot be shared")
	}
	if p, ok := packed(t, analysisOf(240, time.Hour), l40s, "mig", 2, x); ok {
		t.Errorf("%+v", p)
	}
}

// like is a run with the time, demand and memory of another.
func like(r, of run) run {
	r.Pod, r.first, r.demand, r.memory = of.Pod, of.first, of.demand, of.memory
	return r
}

// Two pods of five days in a period of ten, at 2 per hour; both may be in a gang, which is no reason to place them apart.
func TestFiguresOfAScenario(t *testing.T) {
	list, err := prices.Parse([]byte("{gpus: [{model: '*', per_hour: 2}]}"))
	if err != nil {
		t.Fatal(err)
	}
	a := analysisOf(240, time.Hour)
	a.opt.Prices = list
	x := placedOn(h100, quiet("a", 0, 120, 10, 10), quiet("b", 0, 120, 10, 10))
	x.runs[0].Gang, x.runs[1].Gang = "g", "g"
	for scenario, text := range map[string]string{
		"share": "2 pods with a whole GPU each and little demand are time-sliced, at most 4 on a GPU, in the order in which they started.",
		"mig":   "2 pods with a whole GPU each get the smallest MIG profile that covers demand and memory."} {
		p, _ := packed(t, a, h100, scenario, 2, x)
		if p.Text != text || p.Items != 2 || p.GPUsBefore != 1 || p.GPUsAfter != 0.5 || p.FreedHours != 120 || *p.FreedCost != 240 ||
			p.Overload != 0 || p.Limit != 0.001 || p.Model != h100 {
			t.Errorf("%s: %+v", scenario, p)
		}
	}
}

// Two pods with a fifth of a GPU, but for two hours of 240 with all of it: at the same time that is 2/240 of the shared time, at different
// times 4/240. One in a hundred is the budget.
func TestPeaksWithinAScenario(t *testing.T) {
	for apart, want := range map[int]float64{0: 2. / 240, 100: -1} {
		a := analysisOf(240, time.Hour)
		a.opt.Advice.Budget = 0.01
		x := placedOn(l40s, quiet("a", 0, 240, 20, 10), quiet("b", 0, 240, 20, 10))
		x.runs[0].demand[7], x.runs[0].demand[8] = 100, 100
		x.runs[1].demand[7+apart], x.runs[1].demand[8+apart] = 100, 100
		if p, ok := packed(t, a, l40s, "share", 2, x); ok != (want > 0) || ok && (p.Overload != want || p.Limit != 0.01) {
			t.Errorf("peaks %d hours apart: %+v", apart, p)
		}
	}
}

// The pods of a scenario begin when they began: one demand after the other is read at its own hours.
func TestScenarioReadsItsOwnHours(t *testing.T) {
	a := analysisOf(240, time.Hour)
	a.opt.Advice.Budget = 0.05
	// In the hours from 60 on a has 1.0 for four hours, b, which begins at 50, in the same ones: 4 of 190 hours.
	x := placedOn(l40s, quiet("a", 0, 240, 20, 10), quiet("b", 50, 240, 20, 10))
	for h := range 4 {
		x.runs[0].demand[60+h], x.runs[1].demand[10+h] = 100, 100
	}
	p, ok := packed(t, a, l40s, "share", 2, x)
	if want := 4. / 190; !ok || p.Overload != want || p.GPUsBefore != (240+190)/240. || p.GPUsAfter != 1 {
		t.Errorf("%+v", p)
	}
}
