package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// Surer advice is better, and of advice that is as sure the one that saves more; of equal advice the first remains.
func TestBetter(t *testing.T) {
	of := func(level string, hours float64) *document.Advice {
		return &document.Advice{Confidence: level, SavedHours: hours}
	}
	for _, tt := range []struct {
		x, y *document.Advice
		want bool
	}{{of("high", 1), of("low", 9), true}, {of("low", 9), of("medium", 1), false}, {of("medium", 2), of("high", 1), true},
		{of("medium", 1), of("medium", 2), false}, {of("low", 2), of("low", 2), false}, {of("high", 2), of("high", 2), false}} {
		if got := better(tt.x, tt.y); got != tt.want {
			t.Errorf("%+v is better than %+v: %v", tt.x, tt.y, got)
		}
	}
}

// 1.25 times the demand in GPUs, by the GPUs of a replica; two remain.
func TestReplicasFor(t *testing.T) {
	for _, tt := range []struct {
		gpus, busy float64
		want       int
	}{{1, 3.2, 4}, {2, 3.2, 2}, {0.5, 3.2, 8}, {1, 3.3, 5}, {1, 0, 2}, {8, 15, 3}} {
		if got := replicasFor(service{pods: 20, gpus: tt.gpus}, tt.busy); got != tt.want {
			t.Errorf("%d replicas for %+v", got, tt)
		}
	}
}

// How sure a size is: seven days but a twentieth, 28 for a rhythm of weeks, four folds within the budget of 0.1 %.
func TestConfidence(t *testing.T) {
	for _, tt := range []struct {
		days     float64
		rhythm   string
		coverage float64
		folds    int
		worst    float64
		want     string
	}{
		{14, "day", 1, 4, 0.001, "high"}, {13.9, "day", 1, 4, 0, "medium"}, {14, "week", 1, 4, 0, "medium"},
		{27.9, "week", 1, 4, 0, "medium"}, {28, "week", 1, 4, 0, "high"}, {30, "day", 0.99, 4, 0, "high"},
		{30, "day", 0.98, 4, 0, "medium"}, {30, "day", 1, 3, 0, "medium"}, {30, "day", 1, 4, 0.002, "medium"},
		{30, "day", 1, 4, 0.01, "medium"}, {30, "day", 1, 4, 0.011, "low"}, {30, "day", 0.95, 4, 0, "medium"},
		{30, "day", 0.94, 4, 0, "low"}, {6.65, "day", 1, 4, 0, "low"}, {6.7, "day", 1, 4, 0, "medium"}, {30, "day", 1, 0, 0, "low"},
	} {
		var v *document.Validation
		w := document.Workload{Rhythm: tt.rhythm, Coverage: tt.coverage}
		if tt.folds > 0 {
			v = &document.Validation{Folds: tt.folds, Worst: tt.worst}
		}
		if got := w.Sure(v, time.Duration(int(tt.days*24))*time.Hour, 7*day, 0.95, 0.001); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// The parts of the trend are the shortest of which there are at most 124 whole ones.
func TestTrendParts(t *testing.T) {
	for hours, want := range map[int]time.Duration{10: 5 * time.Minute, 11: time.Hour, 124: time.Hour, 125: 3 * time.Hour,
		31 * 24: 6 * time.Hour, 375: 6 * time.Hour, 374: 3 * time.Hour, 1499: 12 * time.Hour, 1500: 24 * time.Hour, 9000: 24 * time.Hour} {
		f := newFleet(series.NewPeriod(monday, monday.Add(time.Duration(hours)*time.Hour), 5*time.Minute))
		parts := int(math.Ceil(float64(hours) / want.Hours()))
		if got := time.Duration(f.size) * 5 * time.Minute; got != want || len(f.buckets) != parts {
			t.Errorf("%d hours: %d parts of %s, want %d of %s", hours, len(f.buckets), got, parts, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"":                          func(*Options) {},
		"before it begins":          func(o *Options) { o.To = o.From },
		"at least 1h, got 11 steps": func(o *Options) { o.To = o.From.Add(55 * time.Minute) },
		"the maximum is 200000":     func(o *Options) { o.To = o.From.Add(200_001 * o.Step) },
		"--cluster-label":           func(o *Options) { o.ClusterLabel = "" },
		"label, got \"a b\"":        func(o *Options) { o.ClusterLabel = "a b" },
		"at most 0.5, got 0":        func(o *Options) { o.Advice.Budget = 0 },
		"at most 0.5, got 0.51":     func(o *Options) { o.Advice.Budget = 0.51 },
		"at most 0.5, got NaN":      func(o *Options) { o.Advice.Budget = math.NaN() },
		"--match takes matchers":    func(o *Options) { o.Match = `{a="b"}` },
	} {
		o := Defaults()
		o.From, o.To = monday, tenDays
		change(&o)
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for _, change := range []func(*Options){func(o *Options) { o.To = o.From.Add(time.Hour) }, func(o *Options) { o.Advice.Budget = 0.5 },
		func(o *Options) { o.To = o.From.Add(200_000 * o.Step) }} {
		o := Defaults()
		o.From, o.To = monday, tenDays
		if change(&o); o.Validate() != nil {
			t.Error(o.Validate())
		}
	}
}

// Values of dcgm-exporter that cannot be are counted and left out; a GPU's total is its own series, or the sum of its parts.
func TestImplausibleDCGM(t *testing.T) {
	var s scene
	l := map[string]string{"Hostname": "n1", "UUID": "a", "modelName": h100, "namespace": "team", "pod": "x-0"}
	without := maps.Clone(l)
	delete(without, "UUID")
	s.add("DCGM_FI_DEV_GPU_UTIL", l, constant(50))
	s.add("DCGM_FI_DEV_GPU_UTIL", without, constant(50)) // 2,880 steps
	s.add("DCGM_FI_DEV_POWER_USAGE", l, during(monday, monday.Add(day), constant(1e16)))
	s.add("DCGM_FI_DEV_POWER_USAGE", l, during(monday.Add(day), monday.Add(2*day), constant(6000))) // more than any GPU
	s.add("DCGM_FI_DEV_POWER_USAGE", l, during(monday.Add(2*day), monday.Add(3*day), constant(500)))
	s.add("DCGM_FI_DEV_FB_FREE", l, constant(1000))
	s.add("DCGM_FI_DEV_FB_TOTAL", l, constant(4096))
	// A second GPU is silent for five days; the activity of a whole GPU's engine is another figure.
	silent := with(l, "UUID", "b", "namespace", "", "pod", "")
	s.add("DCGM_FI_DEV_GPU_UTIL", silent, func(at int64) (float64, bool) {
		return 50, at <= monday.Add(2*day).Unix() || at > monday.Add(7*day).Unix()
	})
	s.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", l, constant(0.9))
	s.add("DCGM_FI_DEV_GPU_UTIL", with(silent, "UUID", "c", "Hostname", "n2"), during(monday, monday.Add(3*day), constant(100))) // removed
	d := s.must(t, func(o *Options) { o.DCGM = true })
	near(t, "energy", *d.Fleet.EnergyKWh, 12)
	near(t, "hours", d.Fleet.Hours, 2*240+72)
	near(t, "busy", d.Fleet.States.Busy, 120+60+72)
	near(t, "unallocated", d.Fleet.States.Unallocated, 60)
	near(t, "idle of a busy workload", d.Workloads[0].Idle+d.Workloads[0].Reclaimable+d.Workloads[0].LongestIdle, 0)
	near(t, "not reported", d.Fleet.States.NotReported, 120)
	if d.Fleet.Query != "" || d.Workloads[0].Query != "" { // no single query attributes them
		t.Error(d.Fleet.Query)
	}
	near(t, "total", *d.Workloads[0].MemoryTotal, 4096<<20)
	want := fmt.Sprint(2880 + 288)
	if !slices.ContainsFunc(d.Notes, func(n document.Note) bool {
		return n.Code == "dcgm_implausible" && strings.HasPrefix(n.Text, want+" values")
	}) {
		t.Errorf("%+v", d.Notes)
	}
}

// A node of four GPUs that was silent for two days had four in them, though it has eight later.
func TestSilentBeforeItGrew(t *testing.T) {
	var s scene
	l := map[string]string{"node": "n1", "model": h100}
	n := func(at int64) (float64, bool) {
		return map[bool]float64{true: 4, false: 8}[at <= monday.Add(6*day).Unix()], at <= monday.Add(-time.Hour).Unix() ||
			at > monday.Add(2*day).Unix()
	}
	s.add(metric.RuleGPUs, with(l, "state", "busy"), n)
	s.add(metric.RuleCount, l, n)
	d := s.must(t, nil)
	near(t, "hours", d.Fleet.Hours, 4*144+8*96)
	near(t, "not reported", d.Fleet.States.NotReported, 4*48)
}

// What existed in the day before the period is missing from its begin, by the rules or by the series.
func TestExistedBefore(t *testing.T) {
	for _, rules := range []bool{true, false} {
		var s scene
		l := map[string]string{"node": "n1", "model": h100}
		late := func(at int64) (float64, bool) {
			return 1, at <= monday.Add(-time.Hour).Unix() || at > monday.Add(2*day).Unix()
		}
		if rules {
			s.add(metric.RuleGPUs, with(l, "state", "busy"), late)
			s.add(metric.RuleCount, l, late)
		} else {
			s.add(metric.RawGPUs, with(l, "state", "busy", "uuid", "a"), late)
			s.add(metric.RawUp, with(l, "uuid", "a"), late)
		}
		d := s.must(t, nil)
		near(t, "hours", d.Fleet.Hours, 240)
		near(t, "not reported", d.Fleet.States.NotReported, 48)
		for _, n := range d.Notes {
			if n.Code == "nodes_joined" {
				t.Errorf("%+v", n)
			}
		}
	}
}

// A service that is confirmed for thirty days; its size is less sure where a step within the budget took more than half of it.
func TestConfidenceOfReplicas(t *testing.T) {
	for peak, want := range map[float64]string{0.32: "high", 0.34: "high", 0.4: "medium"} {
		var s scene
		s.node("n1", h100, 10, states{"busy": 3.2, "gap": 6.8}, nil)
		at := monday.Add(20 * day)
		s.job(job{memory: 70 * gib, to: monday.Add(30 * day), busy: between(at, at.Add(5*time.Minute), peak, 0.32), pods: names("app", 10)})
		d := s.must(t, func(o *Options) { o.To = monday.Add(30 * day) })
		if a := ofCode(t, d, document.AdviseReplicas); a.Title != "Run 7 replicas of app instead of 10" || a.Confidence != want {
			t.Errorf("%v: %s, confidence %s: %+v", peak, a.Title, a.Confidence, a.Validation)
		}
	}
}

// A MIG device of 1g.20gb has a seventh of the GPU's time and a quarter of its memory: 15 GiB of it is within the allocation.
func TestMemoryOfMIG(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 0.1, "gap": 0.9}, nil)
	s.job(job{share: 1. / 7, resource: "nvidia_com_mig_1g_20gb", memory: 15 * gib, pods: []string{"app-0"}, busy: hourOf(0, 24, 0.1, 0)})
	w := s.must(t, nil).Workloads[0]
	if w.MemoryBeyond != nil || w.Beyond != 0 || w.Profile != "1g.20gb" || w.Sharing != "mig" {
		t.Errorf("%+v", w)
	}
}

// How busy an allocation is: whatever is allocated, of all of it.
func TestActivity(t *testing.T) {
	for _, tt := range []struct {
		resource          string
		share, busy, want float64
	}{{"nvidia_com_mig_3g_40gb", 0.5, 0.25, 0.5}, {"nvidia_com_mig_1g_10gb", 1. / 7, 1. / 7, 1}, {"nvidia_com_gpu", 0.5, 0.25, 0.5},
		{"nvidia_com_gpu", 0.25, 0.245, 0.98},
		{"nvidia_com_gpu", 1, 0.25, 0.25}, {"nvidia_com_mig_3g_40gb", 0, 0.25, 0.25}, {"nvidia_com_gpu", 1, 1.5, 1}} {
		x := allocation{resource: tt.resource, typical: tt.share}
		if got := x.activity(0, tt.busy); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// How GPUs are shared is what most of their hours were; the profile is the most used one that is known.
func TestSharing(t *testing.T) {
	o := Defaults()
	a := &analysis{p: series.NewPeriod(monday, tenDays, time.Hour), opt: &o, facts: newGPUFacts()}
	a.facts.byModel[h100] = 81559 << 20
	of := func(resource string, typical float64, hours int) *allocation {
		return &allocation{resource: resource, typical: typical, busy: series.Track{V: make([]float32, hours)}}
	}
	const whole, one, two = "nvidia_com_gpu", "nvidia_com_mig_1g_10gb", "nvidia_com_mig_2g_20gb"
	for _, tt := range []struct {
		allocations      []*allocation
		sharing, profile string
	}{
		{[]*allocation{of(whole, 1, 10)}, "whole", ""},
		{[]*allocation{of(whole, 1, 10), of(whole, 0.5, 20)}, "whole", ""},
		{[]*allocation{of(whole, 1, 10), of(whole, 0.5, 21)}, "shared", ""},
		{[]*allocation{of(whole, 1, 3), of(one, 1./7, 25)}, "mig", "1g.10gb"},
		{[]*allocation{of(one, 1./7, 21), of(two, 2./7, 10)}, "mig", "1g.10gb"},
		{[]*allocation{of(one, 1./7, 19), of(two, 2./7, 10)}, "mig", "2g.20gb"},
		{[]*allocation{of("nvidia_com_mig_9g_90gb", 0.9, 100), of(two, 2./7, 10)}, "mig", "2g.20gb"},
	} {
		var r document.Workload
		a.sharing(&load{key: loadKey{model: h100}, allocations: tt.allocations}, &r)
		if r.Sharing != tt.sharing || r.Profile != tt.profile {
			t.Errorf("%+v: %s %s", tt.allocations, r.Sharing, r.Profile)
		}
	}
}

// Hours of Monday to Friday: the period begins on a Monday.
func TestWorkingTime(t *testing.T) {
	o := Defaults()
	a := &analysis{p: series.NewPeriod(monday, tenDays, time.Hour), opt: &o}
	for _, tt := range [][3]int{{0, 24, 24}, {96, 120, 24}, {96, 121, 24}, {119, 144, 1}, {120, 168, 0}, {143, 169, 1}, {120, 192, 24},
		{5, 5, 0}} {
		if got := a.p.WorkingTime(tt[0], tt[1], a.opt.zone()); got != time.Duration(tt[2])*time.Hour {
			t.Errorf("%v: %s", tt, got)
		}
	}
}

// A pod whose activity is unknown runs while its GPU is allocated to it.
func TestRunsWithoutActivity(t *testing.T) {
	o := Defaults()
	a := &analysis{p: series.NewPeriod(monday, tenDays, time.Hour), opt: &o, facts: newGPUFacts()}
	for _, x := range []allocation{{share: series.Track{From: 7, V: []float32{1, 1}}}, {busy: series.Track{From: 7, V: []float32{0, 0}}},
		{busy: series.Track{From: 8, V: []float32{0}}, share: series.Track{From: 7, V: []float32{1, 1}}}} {
		x.typical = 1
		runs := a.runs(&load{allocations: []*allocation{&x}})
		from := max(x.busy.From, 7)
		if len(runs) != 1 || runs[0].From != from || runs[0].To != 9 || runs[0].GPUs != 1 {
			t.Errorf("%+v", runs)
		}
	}
}

// Without measured activity there is no advice, and the row says why.
func TestUnmeasured(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"unknown": 1}, nil)
	s.add(metric.RuleAllocated, map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "app", "model": h100},
		constant(1))
	w := s.must(t, nil).Workloads[0]
	near(t, "unknown", w.Unknown, 240)
	if w.NoAdvice != "activity_unknown" || !strings.Contains(w.NoAdviceReason, "cannot be measured") || w.Coverage != 0 ||
		w.BusyMean != nil {
		t.Errorf("%+v", w)
	}
}

// How sure a row is: 19 hours of 20 that are asked for, 14 days.
func TestConfidenceOfRows(t *testing.T) {
	for hours, want := range map[int]string{18: "low", 19: "medium", 335: "medium", 336: "high"} {
		var s scene
		s.node("n1", h100, 1, states{"busy": 1}, nil)
		end := monday.Add(time.Duration(hours) * time.Hour)
		s.job(job{busy: hourOf(0, 24, 0.9, 0), to: end, memory: gib, pods: []string{"app-0"}})
		d := s.must(t, func(o *Options) { o.To, o.Advice.Observed = end, 20*time.Hour })
		if got := d.Workloads[0].Confidence; got != want {
			t.Errorf("%d hours: %s", hours, got)
		}
	}
}

// Keys of maps are in the order of their parts.
func TestSorted(t *testing.T) {
	m := map[allocationKey]int{}
	for i := range 32 {
		k := allocationKey{"c", "n", "p", "m", "u"}
		*[]*string{&k.cluster, &k.namespace, &k.pod, &k.node, &k.uuid}[i%5] += fmt.Sprintf("%02d", i)
		m[k] = i
	}
	keys := sorted(m)
	if !slices.IsSortedFunc(keys, func(x, y allocationKey) int { return slices.Compare(x.parts(), y.parts()) }) ||
		keys[0].parts()[4] != "u04" || keys[31].cluster != "c30" || len(keys[0].parts()) != 5 {
		t.Errorf("%v", keys)
	}
}

// Parts without data of at least two steps.
func TestGaps(t *testing.T) {
	f := fleet{}
	for _, c := range "..##.#...#.." {
		f.covered = append(f.covered, c == '#')
	}
	if got := f.gaps(); !slices.Equal(got, []series.Span{{From: 0, To: 2}, {From: 6, To: 9}, {From: 10, To: 12}}) {
		t.Errorf("%+v", got)
	}
}

// The GPUs of a node: what it says, or else the most that reported at a time, but for rounding.
func TestGPUsOfANode(t *testing.T) {
	track := func(v ...float32) series.Track { return series.Track{V: v} }
	for _, tt := range []struct {
		n    nodeGPUs
		want int
	}{{nodeGPUs{reported: track(3.98, 2)}, 4}, {nodeGPUs{reported: track(4.05)}, 4}, {nodeGPUs{reported: track(4.2)}, 5},
		{nodeGPUs{reported: track(4), count: track(8, 7.6)}, 8}, {nodeGPUs{size: 3, count: track(8)}, 3}} {
		if got := tt.n.gpus(); got != tt.want {
			t.Errorf("%d GPUs, want %d", got, tt.want)
		}
	}
}

// A pod on two GPUs at a time is one of two GPUs; on one after the other it ran twice.
func TestGPUsOfARun(t *testing.T) {
	o := Defaults()
	a := &analysis{p: series.NewPeriod(monday, tenDays, time.Hour), opt: &o, facts: newGPUFacts()}
	for from, want := range map[int]string{5: "2", 8: "2", 9: "1 1", 10: "1 1"} {
		l := load{}
		for i, at := range []int{7, from} {
			l.allocations = append(l.allocations, &allocation{key: allocationKey{pod: "x", uuid: fmt.Sprint(i)}, typical: 1,
				busy: series.Track{From: at, V: []float32{1, 1}}})
		}
		if from == 5 {
			l.allocations[1].busy.V = []float32{1, 1, 1}
		}
		var got []string
		for _, r := range a.runs(&l) {
			got = append(got, fmt.Sprint(r.GPUs))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("from %d: runs of %v GPUs, want %s", from, got, want)
		}
	}
}
