package report

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

func newFinding(w document.Workload) *finding {
	return &finding{row: w, reclaimed: map[nodeKey]float64{}, beyond: map[nodeKey]float64{}}
}

// TestDivide: what of ten allocated GPU-hours is unknown, and what others used. Means over steps may differ by a hundredth.
func TestDivide(t *testing.T) {
	for _, tt := range []struct {
		what                            string
		sharing                         string
		busy, gap, idle, observed       float64
		share                           float64 // of the allocation; 0 is one that only the rules have
		coverage, unknown, others, over float64
	}{
		{"all of it", "whole", 4, 3, 3, 10, 1, 1, 0, 0, 0},
		{"nothing observed", "whole", 0, 0, 0, 0, 1, 0, 10, 0, 0},
		{"seven hours observed", "whole", 4, 2, 1, 7, 1, 0.7, 3, 0, 0},
		{"gap and idle are known of some whose busy time is not", "whole", 2, 4, 3, 5, 1, 0.5, 1, 0, 0},
		{"observed for longer than allocated", "whole", 10, 0, 0, 12, 1, 1, 0, 0, 0},
		{"nearly all observed", "whole", 10, 0, 0, 9.995, 1, 1, 0, 0, 0},
		{"all but two in a thousand observed", "whole", 9.98, 0, 0, 9.98, 1, 0.998, 0.02, 0, 0},
		{"others used three hours", "whole", 4, 2, 1, 10, 1, 1, 0, 3, 0},
		{"others used an eighth of an hour", "whole", 4, 3, 2.875, 10, 1, 1, 0, 0.125, 0},
		{"means that differ", "whole", 4, 3, 2.95, 10, 1, 1, 0, 0, 0},
		{"more than allocated", "whole", 6, 3, 2, 10, 1, 1, 0, 0, 0},
		{"half a GPU for twenty hours", "shared", 4, 3, 3, 20, 0.5, 1, 0, 0, 0},
		{"observed for half of them", "shared", 2, 2, 1, 10, 0.5, 0.5, 5, 0, 0},
		{"others used a little of it", "shared", 4, 3, 2.95, 20, 0.5, 1, 0, 0.05, 0},
		{"within a step more and less than its share", "shared", 6, 3, 2, 20, 0.5, 1, 0, 0, 1},
		{"more than that", "shared", 16, 3, 2, 20, 0.5, 1, 0, 0, 11},
		{"by the rules", "whole", 4, 2, 1, 7, 0, 0.7, 3, 0, 0},
	} {
		a, l := hourSteps(24), &load{key: loadKey{model: h100}}
		f := newFinding(document.Workload{Allocated: 10, Busy: tt.busy, Gap: tt.gap, Idle: tt.idle, Sharing: tt.sharing})
		if tt.share > 0 {
			x := on("p", "u", 0, hoursOf(20, "0"))
			x.typical = tt.share
			l.allocations = append(l.allocations, x)
		}
		l.sum[qObserved], l.sum[qAllocated] = tt.observed, 10
		a.divide(l, f)
		r := &f.row
		for what, x := range map[string][2]float64{"coverage": {r.Coverage, tt.coverage}, "unknown": {r.Unknown, tt.unknown},
			"others": {r.UsedByOthers, tt.others}, "beyond": {r.Beyond, tt.over}} {
			if math.Abs(x[0]-x[1]) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", tt.what, what, x[0], x[1])
			}
		}
	}
	// Without an allocation, all that it did is beyond one.
	f := newFinding(document.Workload{Busy: 3, Sharing: "whole"})
	hourSteps(24).divide(&load{}, f)
	if r := f.row; r.Beyond != 3 || r.Coverage != 0 || r.Unknown != 0 || r.UsedByOthers != 0 {
		t.Errorf("%+v", r)
	}
}

// The parts of a workload's hours are what was allocated to it, for any shares, activity and observation.
func TestDivideAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		a, l := hourSteps(24), &load{key: loadKey{model: h100}}
		w := document.Workload{Sharing: []string{"whole", "shared", "mig"}[r.IntN(3)], Allocated: 24 * r.Float64()}
		x := on("p", "u", 0, hoursOf(24, "0"))
		if w.Sharing == "shared" {
			x.typical = 0.1 + 0.8*r.Float64()
			for k := range x.busy.V {
				x.busy.V[k] = r.Float32()
				w.Busy += float64(x.busy.V[k])
			}
		} else {
			w.Busy = w.Allocated * r.Float64()
		}
		rest := max(0, w.Allocated-w.Busy)
		w.Gap = rest * r.Float64()
		w.Idle = (rest - w.Gap) * r.Float64()
		l.allocations = append(l.allocations, x)
		l.sum[qObserved], l.sum[qAllocated] = 30*r.Float64(), w.Allocated
		f := newFinding(w)
		a.divide(l, f)
		d := &f.row
		parts := d.Busy - d.Beyond + d.Gap + d.Idle + d.Unknown + d.UsedByOthers
		slack := 1e-9
		if d.Sharing != "shared" {
			slack = 0.01 * d.Allocated
		}
		if math.Abs(parts-d.Allocated) > slack || d.Coverage < 0 || d.Coverage > 1 || d.Unknown < 0 || d.UsedByOthers < 0 || d.Beyond < 0 ||
			d.Unknown > d.Allocated*(1-d.Coverage)+1e-9 {
			t.Fatalf("parts of %v are %v: %+v", d.Allocated, parts, d)
		}
	}
}

// What was used beyond a share, of time by node and of memory at most.
func TestBeyondShare(t *testing.T) {
	of := func(node, resource string, share float64, busy, memory string) *allocation {
		x := on("p", "u", 0, busy)
		x.key.node, x.resource, x.typical, x.memory = node, resource, share, digits(0, memory)
		for i := range x.memory.V {
			x.memory.V[i] *= 100 * gib
		}
		return x
	}
	const whole, mig = "nvidia_com_gpu", "nvidia_com_mig_3g_40gb"
	for _, tt := range []struct {
		what           string
		list           []*allocation
		beyond, memory float64
	}{
		{"a whole GPU", []*allocation{of("n1", whole, 1, "xx", "99")}, 0, 0},
		{"a MIG device", []*allocation{of("n1", mig, 0.5, "99", "99")}, 0, 0},
		// 0.8 and 0.7 of half a GPU; 50 GiB of 40.
		{"half a GPU", []*allocation{of("n1", whole, 0.5, "8-70", "5444")}, 0.5, 10},
		{"within it", []*allocation{of("n1", whole, 0.5, "5500", "3333")}, 0, 0},
		// The most of all, 60 of 20 GiB.
		{"several", []*allocation{of("n1", whole, 0.5, "80", "55"), of("n2", whole, 0.25, "90", "66"), of("n1", whole, 0.5, "60", "50")},
			0.3 + 0.65 + 0.1, 40},
	} {
		a, f := hourSteps(24), newFinding(document.Workload{Allocated: 100, Sharing: "shared"})
		a.divide(&load{allocations: tt.list}, f)
		if math.Abs(f.row.Beyond-tt.beyond) > 1e-6 {
			t.Errorf("%s: beyond %v, want %v", tt.what, f.row.Beyond, tt.beyond)
		}
		sum := 0.0
		for _, v := range f.beyond {
			sum += v
		}
		near(t, tt.what+": by node", sum, tt.beyond)
		if tt.what == "several" {
			near(t, "second node", f.beyond[nodeKey{"", "n2", h100}], 0.65)
		}
		near(t, tt.what+": memory in GiB", number(f.row.MemoryBeyond)/gib, tt.memory)
		if (f.row.MemoryBeyond != nil) != (tt.memory > 0) {
			t.Errorf("%s: %v", tt.what, f.row.MemoryBeyond)
		}
	}
	// Of a model whose memory is unknown there is no part.
	a, f := hourSteps(24), newFinding(document.Workload{Sharing: "shared"})
	delete(a.facts.byModel, h100)
	if a.divide(&load{allocations: []*allocation{of("n1", whole, 0.5, "0", "9")}}, f); f.row.MemoryBeyond != nil {
		t.Error(*f.row.MemoryBeyond)
	}
}

// Reclaimable is idle time in periods of half an hour or longer, by the node on which it was; the longest counts in all.
func TestReclaimable(t *testing.T) {
	idle := func(node, values string) *allocation {
		return &allocation{key: allocationKey{node: node}, model: h100, typical: 1, idle: digits(0, values)}
	}
	for _, tt := range []struct {
		what                 string
		list                 []*allocation
		reclaimable, longest float64 // minutes
		second               float64
	}{
		{"half an hour", []*allocation{idle("n1", "0xxxxxx0")}, 30, 30, 0},
		{"25 minutes", []*allocation{idle("n1", "0xxxxx00")}, 0, 25, 0},
		{"half an hour with half of a step before and after", []*allocation{idle("n1", "05xxxxx5")}, 30, 30, 0},
		{"twice", []*allocation{idle("n1", "xxxxxxx0xxxxxx")}, 65, 35, 0},
		{"on two nodes", []*allocation{idle("n1", "xxxxxxx"), idle("n2", "xxxxxxxx")}, 75, 40, 40},
		{"pauses of a part of a step, the longest last", []*allocation{idle("n1", "2020"), idle("n1", "0800")}, 0, 4, 0},
		{"pauses of a part of a step, the longest first", []*allocation{idle("n1", "0800"), idle("n1", "2020")}, 0, 4, 0},
		{"none", []*allocation{idle("n1", "0000")}, 0, 0, 0},
	} {
		a, f := hourSteps(24), newFinding(document.Workload{Allocated: 24, Sharing: "whole"})
		a.p = series.NewPeriod(monday, monday.Add(2*time.Hour), 5*time.Minute)
		a.divide(&load{allocations: tt.list}, f)
		near(t, tt.what+": reclaimable", 60*f.row.Reclaimable, tt.reclaimable)
		near(t, tt.what+": longest", 60*f.row.LongestIdle, tt.longest)
		near(t, tt.what+": of the second node", 60*f.reclaimed[nodeKey{"", "n2", h100}], tt.second)
	}
	// From sums: two GPUs for half an hour and one for 25 minutes.
	a, f := hourSteps(24), newFinding(document.Workload{Allocated: 24, Sharing: "whole"})
	a.p = series.NewPeriod(monday, monday.Add(2*time.Hour), 5*time.Minute)
	l := &load{key: loadKey{cluster: "c", model: h100}}
	l.tracks[qIdle] = series.Track{V: []float32{0, 2, 2, 2, 2, 2, 2, 0, 0, 1, 1, 1, 1, 1, 0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}}
	a.divide(l, f)
	near(t, "reclaimable by sums", 60*f.row.Reclaimable, 60+0.3)
	near(t, "longest by sums", 60*f.row.LongestIdle, 30)
	near(t, "of no known node", 60*f.reclaimed[nodeKey{"c", "", h100}], 60+0.3)
}

// The quantiles of the busiest GPU, and the mean of all observed ones.
func TestBusyRatios(t *testing.T) {
	var l load
	for k := range 200 {
		l.add(qBusiest, k, float64(k+1)/200)
		l.add(qBusy, k, 0.3)
		l.add(qObserved, k, 1.5)
	}
	var r document.Workload
	hourSteps(240).busyRatios(&l, &r, l.sum[qObserved])
	for what, x := range map[string][2]float64{"mean": {*r.BusyMean, 0.2}, "95th percentile": {*r.BusyP95, 0.95},
		"99th percentile": {*r.BusyP99, 0.99}, "peak": {*r.BusyPeak, 1}} {
		near(t, what, 1000*x[0], 1000*x[1])
	}
	var none, guest load
	none.add(qBusiest, 0, 1)
	r = document.Workload{}
	if hourSteps(240).busyRatios(&none, &r, 0); r.BusyMean != nil || r.BusyPeak != nil {
		t.Errorf("%+v", r)
	}
	guest.add(qBusy, 0, 2)
	guest.add(qObserved, 0, 1)
	if hourSteps(240).busyRatios(&guest, &r, guest.sum[qObserved]); *r.BusyMean != 1 || r.BusyPeak != nil {
		t.Errorf("%+v", r)
	}
}

// Memory of a container on a GPU by the hour, and how much of the idle time had any.
func TestMemoryOfARow(t *testing.T) {
	of := func(l *load, values ...float64) {
		for k, v := range values {
			l.add(qMemory, k, v*gib)
		}
	}
	var r document.Workload
	l := load{key: loadKey{model: h100}}
	a := hourSteps(240)
	if a.memory(&l, &r); *r.MemoryTotal != 80*gib || r.MemoryPeak != nil || r.IdleWithMemory != nil {
		t.Errorf("%+v", r)
	}
	of(&l, 1, 2, 3, 4, 9, 5, 6, 7, 8, 10)
	if a.memory(&l, &r); *r.MemoryMedian != 5*gib || *r.MemoryPeak != 10*gib || *r.MemoryFloor != gib || r.IdleWithMemory != nil ||
		r.MemoryKind != "needed" || *r.MemoryNeed != 10*gib || r.Preallocated {
		t.Errorf("%+v", r)
	}
	// Idle with 64 MiB, with a KiB less, and with unknown memory.
	l, r = load{key: loadKey{model: "other"}}, document.Workload{Sharing: "shared"}
	of(&l, 1./16, 1./16-1./(1<<20), 1)
	for k, v := range []float64{0.5, 0.25, 1, 0.125} {
		l.add(qIdle, k, v)
	}
	if a.memory(&l, &r); *r.IdleWithMemory != 1.5 || *r.IdleWithoutMemory != 0.375 || r.MemoryTotal != nil || r.MemoryKind != "" ||
		r.MemoryNeed != nil {
		t.Errorf("%v %v %+v", *r.IdleWithMemory, *r.IdleWithoutMemory, r)
	}
	// 36 GiB for ten hours are nine tenths of a MIG device of 3g.40gb, and less than half of the GPU.
	l, r = load{key: loadKey{model: h100}}, document.Workload{Sharing: "mig", Profile: "3g.40gb"}
	of(&l, 36, 36, 36, 36, 36, 36, 36, 36, 36, 36)
	if a.memory(&l, &r); !r.Preallocated || r.MemoryKind != "preallocated" || r.MemoryNeed != nil {
		t.Errorf("%+v", r)
	}
	r = document.Workload{Sharing: "whole"}
	if a.memory(&l, &r); r.Preallocated || *r.MemoryNeed != 36*gib {
		t.Errorf("%+v", r)
	}
}

// TestWorkloadTimes: when a workload had GPUs, how many, and what it had at the end; what it used without any has the times
// of its use.
func TestWorkloadTimes(t *testing.T) {
	for _, tt := range []struct {
		what            string
		allocated, busy string
		first, last     int
		gpus, now       float64
	}{
		{"all of the time", "xxxxxxxxxx", "1111111111", 0, 10, 1, 1},
		{"within the period", "--xxxx----", "--1111----", 2, 6, 1, 0},
		{"with a pause", "--xx00x---", "----------", 2, 7, 1, 0},
		{"less at the end", "xxxxx55555", "1111111111", 0, 10, 0.75, 0.5},
		{"without an allocation", "----------", "---555----", 3, 6, 0, 0},
		{"an allocation of nothing", "0000000000", "--5-------", 2, 3, 0, 0},
	} {
		a, l := hourSteps(10), &load{key: loadKey{namespace: "team", kind: "Job", name: "x", model: h100}, pods: map[podKey]bool{}}
		for q, values := range map[quantity]string{qAllocated: tt.allocated, qBusy: tt.busy} {
			v := digits(0, values)
			for k, x := range v.All() {
				l.add(q, k, x)
			}
		}
		f := a.workload(l)
		r := &f.row
		if at := monday.Add(time.Duration(tt.first) * time.Hour); !r.FirstSeen.Equal(at) {
			t.Errorf("%s: first seen %s", tt.what, r.FirstSeen)
		}
		if at := monday.Add(time.Duration(tt.last) * time.Hour); !r.LastSeen.Equal(at) {
			t.Errorf("%s: last seen %s", tt.what, r.LastSeen)
		}
		near(t, tt.what+": GPUs", r.GPUs, tt.gpus)
		near(t, tt.what+": GPUs now", r.GPUsNow, tt.now)
	}
	// A hair of an allocation is none, and has a place in the period nevertheless.
	a, l := hourSteps(10), &load{}
	l.add(qAllocated, 4, 0.0005)
	if r := a.workload(l).row; !r.FirstSeen.Equal(monday) || !r.LastSeen.Equal(monday) || r.GPUsNow != 0 {
		t.Errorf("%+v", r)
	}
}

// TestWorkloadFigures: hours, energy, cost, pods and the last activity of a row.
func TestWorkloadFigures(t *testing.T) {
	list, err := prices.Parse([]byte("gpus: [{model: '*', per_hour: 3}]"))
	must.OK(t, err)
	a := hourSteps(24)
	a.p, a.opt.Prices = series.NewPeriod(monday, monday.Add(12*time.Hour), 30*time.Minute), list
	l := &load{key: loadKey{"c", "team", "Job", "x", h100}, from: "recorded", pods: map[podKey]bool{{"c", "team", "x-b"}: true,
		{"c", "team", "x-a"}: true}}
	for k := range 24 {
		l.add(qAllocated, k, 2)
		l.add(qBusy, k, 1)
		l.add(qObserved, k, 2)
		l.add(qGap, k, 0.25)
		l.add(qIdle, k, 0.75)
		l.add(qWatts, k, 500)
	}
	l.add(qLastBusy, 3, float64(monday.Unix())+4000.75)
	l.add(qPods, 0, 2.6)
	l.add(qBusy, 5, math.NaN())
	l.add(qBusy, 5, math.Inf(1))
	f := a.workload(l)
	r := &f.row
	for what, x := range map[string][2]float64{"allocated": {r.Allocated, 24}, "busy": {r.Busy, 12}, "gap": {r.Gap, 3}, "idle": {r.Idle, 9},
		"unused": {r.Unused, 12}, "energy": {*r.EnergyKWh, 6}, "cost": {*r.Cost, 72}, "unused cost": {*r.UnusedCost, 36},
		"pods":     {float64(r.Pods), 3},
		"coverage": {r.Coverage, 1}, "GPUs": {r.GPUs, 2}} {
		near(t, what, x[0], x[1])
	}
	if r.ID != "c/team/Job/x/"+h100 || r.Cluster != "c" || r.Namespace != "team" || r.Kind != "Job" || r.Name != "x" ||
		r.OwnerFrom != "recorded" ||
		!r.LastBusy.Equal(monday.Add(4000*time.Second)) || len(f.pods) != 2 || f.pods[0] != "x-a" || r.Plot == nil {
		t.Errorf("%+v %v", r, f.pods)
	}
	// What was never busy has no last activity, whatever the exporter began with, and what has no energy none of zero.
	idle := &load{}
	idle.add(qAllocated, 0, 1)
	idle.add(qLastBusy, 0, 1e9)
	if r := a.workload(idle).row; r.LastBusy != nil || r.EnergyKWh != nil || r.Pods != 0 {
		t.Errorf("%+v", r)
	}
	// Only what had or used GPUs is a workload, in the order of its key.
	s := newSpace(a.p, "team")
	s.loads = map[loadKey]*load{{name: "b"}: {key: loadKey{name: "b"}}, {name: "a"}: {key: loadKey{name: "a"}}, {name: "0"}: {}}
	s.loads[loadKey{name: "b"}].add(qAllocated, 0, 1)
	s.loads[loadKey{name: "a"}].add(qBusy, 0, 1)
	s.loads[loadKey{name: "0"}].add(qMemory, 0, 1)
	if list := a.namespace(s); len(list) != 2 || list[0].row.Name != "a" || list[1].row.Name != "b" {
		t.Errorf("%d workloads", len(list))
	}
}

// TestNamespaces: workloads are added up by namespace, each figure on its own; what one has and another lacks is that of one.
func TestNamespaces(t *testing.T) {
	list, err := prices.Parse([]byte("{gpus: [{model: a, per_hour: 2}], energy_per_kwh: 0.5, power_usage_effectiveness: 1.5}"))
	must.OK(t, err)
	of := func(name, model string, busy, beyond, gap, idle, unknown, others, kwh float64) *finding {
		w := document.Workload{Namespace: name, Model: model, Busy: busy, Beyond: beyond, Gap: gap, Idle: idle, Unknown: unknown,
			UsedByOthers: others, Allocated: busy - beyond + gap + idle + unknown + others, Reclaimable: idle / 2}
		if kwh > 0 {
			w.EnergyKWh = &kwh
		}
		w.Cost = prices.Cost(list.Mean(prices.Part{Model: model}, monday, tenDays), w.Allocated)
		return &finding{row: w}
	}
	found := []*finding{of("y", "a", 5, 1, 2, 4, 1, 3, 10), of("x", "b", 1, 0, 1, 1, 1, 1, 0), of("y", "b", 7, 0, 0, 1, 0, 0, 0),
		of("y", "a", 1, 0, 1, 0, 0, 0, 4)}
	found[3].row.Allocated += 0.5 // a difference
	*found[3].row.Cost++
	rows := make([]*document.Workload, len(found))
	for i, f := range found {
		rows[i] = &f.row
	}
	out := document.Sum(rows, 10, list, func(w *document.Workload) document.Account {
		return document.Account{Namespace: w.Namespace}
	})
	if len(out) != 2 || out[0].Namespace != "x" || out[1].Namespace != "y" {
		t.Fatalf("%+v", out)
	}
	x, y := out[0], out[1]
	for what, v := range map[string][2]float64{"x hours": {x.Hours, 5}, "x GPUs": {x.GPUs, 0.5}, "x coverage": {x.Coverage, 0.8},
		"x difference": {x.Difference, 0}, "y hours": {y.Hours, 14 + 8 + 2.5}, "y busy": {y.States.Busy, 12}, "y gap": {y.States.Gap, 3},
		"y idle": {y.States.Idle, 5}, "y unknown": {y.States.Unknown, 1}, "y beyond": {y.Beyond, 1}, "y others": {y.UsedByOthers, 3},
		"y reclaimable": {y.Reclaimable, 2.5}, "y energy": {*y.EnergyKWh, 14}, "y energy cost": {*y.EnergyCost, 10.5},
		"y cost": {*y.Cost, 33}, "y cost of busy": {y.StateCost.Busy, 10}, "y cost of unused": {y.StateCost.Unused(), 14},
		"y cost of unknown": {y.StateCost.Unknown, 2}, "y coverage": {y.Coverage, 1 - 1/24.5}, "y difference": {y.Difference, 0.5 / 24.5}} {
		near(t, what, v[0], v[1])
	}
	if x.Cost != nil || x.StateCost != nil || x.EnergyKWh != nil || x.EnergyCost != nil {
		t.Errorf("%+v", x)
	}
	if *found[0].row.EnergyKWh != 10 || *found[0].row.Cost != 28 {
		t.Error("a workload has the figures of its namespace")
	}
}
