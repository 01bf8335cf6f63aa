package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

// quiet is a pod on a whole GPU with the same demand and memory in each hour, in hundredths.
func quiet(id string, from, to int, demand, memory uint8) run {
	r := ran(id, "n", 1, from, to)
	r.first, r.demand, r.memory = from, slices.Repeat([]uint8{demand}, to-from), slices.Repeat([]uint8{memory}, to-from)
	return r
}

// What the pods of a workload would have been, had its advice been followed.
func TestPodsThatFollowAdvice(t *testing.T) {
	profile := func(name string) mig.Profile {
		gpu, _ := mig.For(h100, 0)
		p, _ := gpu.Profile(name)
		return p
	}
	pod := func(name string, gpus, from, to int) run {
		r := ran("team/Job/app/"+name, "n", gpus, from, to)
		r.model, r.workload, r.Gang = h100, "w", "g"
		return r
	}
	for _, tt := range []struct {
		name, advice string
		what         followed
		runs         []run
		want         []string
	}{
		{"no advice", "", followed{}, []run{pod("a", 2, 0, 9)}, []string{"a: 2 GPUs 0-9 g"}},
		{"nodes are repaired", document.AdviseFix, followed{}, []run{pod("a", 2, 0, 9)}, []string{"a: 2 GPUs 0-9 g"}},
		// a is released at 5: what runs then ends, what would run later never does.
		{"release", document.AdviseRelease, followed{ends: map[string]int{"a": 5}},
			[]run{pod("a", 1, 0, 4), pod("a", 1, 4, 9), pod("a", 1, 5, 9), pod("a", 1, 7, 9), pod("b", 1, 0, 9)},
			[]string{"a: 1 GPUs 0-4 g", "b: 1 GPUs 0-9 g", "a: 1 GPUs 4-5 g"}},
		{"two GPUs fewer", document.AdviseFewer, followed{fewer: 2},
			[]run{pod("a", 4, 0, 9), pod("b", 3, 0, 9), pod("c", 2, 0, 9), pod("d", 1, 0, 9)},
			[]string{"a: 2 GPUs 0-9 g", "b: 1 GPUs 0-9 g", "c: 2 GPUs 0-9 g", "d: 1 GPUs 0-9 g"}},
		// At most two at a time: d takes the place of a, which ends when d starts, and f that of e.
		{"two replicas", document.AdviseReplicas, followed{replicas: 2},
			[]run{pod("d", 1, 10, 20), pod("a", 1, 0, 10), pod("b", 1, 0, 30), pod("c", 1, 0, 30), pod("e", 1, 9, 21), pod("f", 1, 20, 22),
				pod("g", 1, 21, 23), pod("h", 1, 22, 24)},
			[]string{"a: 1 GPUs 0-10 g", "b: 1 GPUs 0-30 g", "d: 1 GPUs 10-20 g", "f: 1 GPUs 20-22 g", "h: 1 GPUs 22-24 g"}},
		{"a third of a GPU", document.AdviseShare, followed{size: &sizing.Size{Replicas: 3, Part: 1. / 3}},
			[]run{pod("a", 1, 0, 9), pod("b", 3, 1, 9)},
			[]string{"a: 1 GPUs 0-9  0.333", "b#2: 1 GPUs 1-9  0.333", "b#3: 1 GPUs 1-9  0.333", "b: 1 GPUs 1-9  0.333"}},
		{"a MIG device", document.AdviseShrink, followed{size: &sizing.Size{Profile: profile("3g.40gb")}},
			[]run{pod("a", 1, 0, 9), pod("b", 2, 1, 9)},
			[]string{"a: 1 GPUs 0-9  4 of 8 at 2", "b#2: 1 GPUs 1-9  4 of 8 at 2", "b: 1 GPUs 1-9  4 of 8 at 2"}},
	} {
		var got []string
		for _, p := range analysisOf(40, time.Hour).follow(slices.Clone(tt.runs), &document.Workload{Advice: tt.advice}, tt.what) {
			text := fmt.Sprintf("%s: %d GPUs %d-%d %s", strings.TrimPrefix(p.ID, "team/Job/app/"), p.GPUs, p.From, p.To, p.Gang)
			if p.Fraction > 0 {
				text += fmt.Sprintf(" %.3f", p.Fraction)
			}
			if p.Size > 0 {
				text += fmt.Sprintf(" %d of 8 at %d", p.Size, p.Places)
			}
			if got = append(got, text); p.Owner != "w" {
				t.Errorf("%s: owner %q", tt.name, p.Owner)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// On a part of a GPU a pod has the demand that it had, and its memory if that is a need; what is unknown remains unknown.
func TestDemandOnAPartOfAGPU(t *testing.T) {
	for _, tt := range []struct {
		name           string
		change         func(*run)
		kind           string
		demand, memory bool
	}{
		{"needed", func(*run) {}, demand.Needed, true, true},
		{"a cache", func(*run) {}, demand.Cache, true, false},
		{"preallocated", func(*run) {}, demand.Preallocated, true, false},
		{"memory unknown", func(r *run) { r.memory = nil }, demand.Needed, true, false},
		{"both unknown", func(r *run) { r.demand, r.memory = nil, nil }, demand.Needed, false, false},
	} {
		r := quiet("x", 3, 9, 20, 40)
		tt.change(&r)
		p := analysisOf(40, time.Hour).follow([]run{r}, &document.Workload{Advice: document.AdviseShare, MemoryKind: tt.kind},
			followed{size: &sizing.Size{Replicas: 2, Part: 0.5, Memory: gib}})[0]
		if (p.Demand != nil) != tt.demand || (p.Memory != nil) != tt.memory || tt.demand && p.Demand(8) != 0.2 ||
			tt.memory && p.Memory(3) != 0.4 {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}

// advised is a workload with advice: pods as they ran, and as they would have run.
func advised(id string, runs []run, replaced ...replay.Pod) *finding {
	x := placedOn(h100, runs...)
	x.row.ID, x.row.Advice = id, document.AdviseShare
	x.advice = []document.Advice{{Code: document.AdviseShare, Workload: id}}
	for i := range x.runs {
		x.runs[i].workload = id
	}
	for _, p := range replaced {
		p.Owner = id
		x.replaced = append(x.replaced, p)
	}
	return x
}

// half is a pod on half of a GPU, whose demand and memory are a fraction of the GPU before a step, and nothing afterwards.
func half(id string, from, to, until int, use, memory float64) replay.Pod {
	of := func(v float64) func(int) float64 {
		return func(k int) float64 {
			if k < until {
				return v
			}
			return 0
		}
	}
	return replay.Pod{ID: id, GPUs: 1, From: from, To: to, Shape: replay.Shape{Fraction: 0.5}, Demand: of(use), Memory: of(memory)}
}

// refuted replays advice on one node with GPUs, in 100 steps of an hour.
func refuted(budget float64, gpus int, change func(*fleet), found ...*finding) {
	a := analysisOf(100, time.Hour)
	a.opt.Advice.Budget = budget
	f := fleetOf(a, h100, map[string][2]float64{"n": {float64(gpus), 0}})
	if change != nil {
		change(f)
	}
	a.refute(f, a.byModel(f, found), found)
}

// another adds a node m with two GPUs.
func another(f *fleet) {
	n := f.node(nodeKey{"", "m", h100})
	n.size, n.pool, n.expected = 2, "pool", 2*float64(f.p.Steps())
}

// Advice is withdrawn where its pods would have been throttled, or waited, for more than the budget, or one was evicted or never ran.
func TestWhatAReplayRefutes(t *testing.T) {
	two := []run{ran("a", "n", 1, 0, 100), ran("b", "n", 1, 0, 100)}
	whole := func(id string, from, to int) replay.Pod { return ran(id, "n", 1, from, to).Pod }
	for _, tt := range []struct {
		name     string
		budget   float64
		gpus     int
		runs     []run
		replaced []replay.Pod
		want     string // of the reason; empty: it stands
	}{
		{"within the GPU", 0, 2, two, []replay.Pod{half("a", 0, 100, 100, 0.5, 0.5), half("b", 0, 100, 100, 0.5, 0.5)}, ""},
		{"throttled for 5 of 100 hours", 0.05, 2, two, []replay.Pod{half("a", 0, 100, 5, 0.6, 0), half("b", 0, 100, 5, 0.6, 0)}, ""},
		{"throttled for 6 of 100 hours", 0.05, 2, two, []replay.Pod{half("a", 0, 100, 6, 0.6, 0), half("b", 0, 100, 6, 0.6, 0)},
			"0 of 2 pods would have waited, 0 been evicted, throttled in 6.00 % of the time on shared GPUs"},
		{"evicted", 0.05, 2, two, []replay.Pod{half("a", 0, 100, 6, 0, 0.6), half("b", 0, 100, 6, 0, 0.6)},
			"0 of 2 pods would have waited, 1 been evicted, throttled in 0.00 % of the time on shared GPUs"},
		// a occupies the only GPU for 97 hours; b waits for 2 of its 3, of 100 that are requested.
		{"waits for 2 of 100", 0.02, 1, two[:1], []replay.Pod{whole("a", 0, 97), whole("b", 95, 98)}, ""},
		{"waits for 3 of 100", 0.02, 1, two[:1], []replay.Pod{whole("a", 0, 96), whole("b", 93, 97)},
			"1 of 2 pods would have waited, 0 been evicted"},
		{"never runs", 0.02, 1, two[:1], []replay.Pod{whole("a", 0, 99), whole("b", 98, 99)}, "1 of 2 pods would have waited"},
		// What happens without the advice does not refute it.
		{"no more waits than before", 0, 1, two, []replay.Pod{whole("a", 0, 100), whole("b", 0, 100)}, ""},
	} {
		x := advised("w", tt.runs, tt.replaced...)
		for _, p := range tt.replaced {
			x.nodes[p.ID] = "n"
		}
		refuted(tt.budget, tt.gpus, nil, x)
		if tt.want == "" {
			if len(x.advice) != 1 || x.row.Advice == "" || x.row.NoAdvice != "" || x.advice[0].Replay == nil {
				t.Errorf("%s: %+v", tt.name, x.row)
			}
			continue
		}
		if x.advice != nil || x.row.Advice != "" || x.row.NoAdvice != "refuted_by_replay" ||
			!strings.Contains(x.row.NoAdviceReason, `the advice "share", placed on the nodes of the period: `+tt.want) {
			t.Errorf("%s: %+v", tt.name, x.row)
		}
	}
}

// Pods that are throttled or evicted without the advice do not refute it, unless there are more of them.
func TestWhatHappensAnyway(t *testing.T) {
	was := func(use, memory float64, until int) (out []run) {
		for _, id := range []string{"a", "b"} {
			out = append(out, run{node: "n", Pod: half(id, 0, 100, until, use, memory)})
		}
		return out
	}
	is := func(use, memory float64, until int) []replay.Pod {
		return []replay.Pod{half("a", 0, 100, until, use, memory), half("b", 0, 100, until, use, memory)}
	}
	for _, tt := range []struct {
		name     string
		runs     []run
		replaced []replay.Pod
		stands   bool
	}{
		{"throttled as long", was(0.6, 0, 20), is(0.6, 0, 20), true},
		{"throttled for longer", was(0.6, 0, 20), is(0.6, 0, 21), false},
		{"evicted as before", was(0, 0.6, 20), is(0, 0.6, 20), true},
	} {
		x := advised("w", tt.runs, tt.replaced...)
		if refuted(0.001, 2, nil, x); (len(x.advice) > 0) != tt.stands {
			t.Errorf("%s: %+v", tt.name, x.row)
		} else if tt.stands && x.advice[0].Replay.Evicted != 0 {
			t.Errorf("%s: %+v", tt.name, x.advice[0].Replay)
		}
	}
}

// A GPU is unavailable for four hours, in which its pod waits: with the advice, and without. It is not the advice that makes it wait.
func TestReplayCountsWhatTheAdviceDoes(t *testing.T) {
	unavailable := func(f *fleet) { f.node(nodeKey{"", "n", h100}).unavailable = level(0, 4, 1) }
	x := advised("w", []run{ran("a", "n", 1, 0, 40)}, half("a", 0, 40, 0, 0, 0))
	refuted(0.001, 1, unavailable, x)
	if len(x.advice) == 0 {
		t.Fatal(x.row.NoAdviceReason)
	}
	if r := *x.advice[0].Replay; r != (document.Replay{Pods: 1, OccupiedHours: 36}) {
		t.Errorf("%+v", r)
	}
	// Of two GPUs one is unavailable: b waits for it. With the advice c waits for an hour until a ends, of 81 that are requested.
	for budget, stands := range map[float64]bool{1.01 / 81: true, 0.99 / 81: false} {
		c := func(id string, from, to int) replay.Pod { return ran(id, "n", 1, from, to).Pod }
		x = advised("w", []run{ran("a", "n", 1, 0, 40), ran("b", "n", 1, 0, 40)}, c("a", 0, 39), c("b", 0, 40), c("c", 38, 40))
		x.nodes["c"] = "n"
		refuted(budget, 2, unavailable, x)
		if !stands {
			if !strings.Contains(x.row.NoAdviceReason, "1 of 3 pods would have waited") {
				t.Errorf("%+v", x.row)
			}
			continue
		}
		if r := *x.advice[0].Replay; r != (document.Replay{Pods: 3, Waiting: 1, WaitedHours: 1, OccupiedHours: 39 + 36 + 1}) {
			t.Errorf("%+v", r)
		}
	}
}

// Without the advice a pod waits for four hours, and with it for seven: three more.
func TestLongestWaitOfReplay(t *testing.T) {
	x := advised("w", []run{ran("a", "n", 1, 0, 40)}, ran("a", "n", 1, 0, 7).Pod, ran("b", "n", 1, 0, 40).Pod)
	x.nodes["b"] = "n"
	refuted(0.5, 1, func(f *fleet) { f.node(nodeKey{"", "n", h100}).unavailable = level(0, 4, 1) }, x)
	// a runs from 4 to 7, b waits until then.
	want := document.Replay{Pods: 2, Waiting: 1, WaitedHours: 7, LongestWait: 3, OccupiedHours: 36}
	if len(x.advice) == 0 || *x.advice[0].Replay != want {
		t.Errorf("%+v", x.row)
	}
}

// The same of a history: the pod starts on a GPU that is unavailable for four hours.
func TestWaitingAnyway(t *testing.T) {
	var s scene
	l := map[string]string{"node": "n1", "model": l40s}
	ready := monday.Add(4 * time.Hour)
	s.node("n1", l40s, 1, states{}, nil)
	s.add(metric.RuleGPUs, with(l, "state", "unavailable"), during(monday, ready, constant(1)))
	s.add(metric.RuleGPUs, with(l, "state", "busy"), during(ready, tenDays, constant(1)))
	s.job(job{name: "a", model: l40s, memory: 5 * gib, busy: hourOf(0, 24, 0.05, 0), pods: []string{"a-0"}})
	d := s.must(t, nil)
	r := adviceOn(t, d, d.Workloads[0].ID).Replay
	if r == nil || r.Waiting != 0 || r.WaitedHours != 0 || r.LongestWait != 0 || r.Pods != 1 {
		t.Errorf("%+v", r)
	}
}

// What is withdrawn may refute other advice, to the end: in the hours from 10·i on, a pod of the workload before (0.1 of a GPU) and two of
// its own (0.6 each) share GPUs. One shares with the pod before it and one is alone, until the workload before gets its whole GPU back.
func TestWithdrawnAdviceRefutesOther(t *testing.T) {
	const n = 5
	var found []*finding
	for i := range n {
		own, next := 10*i, 10*i+10
		// In the order of names: the small pod first.
		ids := []string{fmt.Sprint("b-", i), fmt.Sprint("c-", i), fmt.Sprint("a-", i)}
		x := advised(fmt.Sprint("w", i), []run{ran(ids[0], "n", 1, own, next), ran(ids[1], "n", 1, own, next),
			ran(ids[2], "n", 1, next, next+10)},
			half(ids[0], own, next, 100, 0.6, 0), half(ids[1], own, next, 100, 0.6, 0), half(ids[2], next, next+10, 100, 0.1, 0))
		found = append(found, x)
	}
	// Alone the first one is throttled, so that all are withdrawn, one after the other.
	refuted(0.001, 3, nil, found...)
	for i, x := range found {
		if len(x.advice) > 0 || x.row.NoAdvice != "refuted_by_replay" {
			t.Errorf("advice %d stands: %+v", i, x.row)
		}
	}
	// Where the first one's two pods are apart, all stand.
	for i := range found {
		found[i].advice = []document.Advice{{Code: document.AdviseShare}}
		found[i].row.Advice, found[i].row.NoAdvice = document.AdviseShare, ""
	}
	found[0].replaced[1].From, found[0].replaced[1].To = 60, 70
	refuted(0.001, 3, nil, found...)
	for i, x := range found {
		if len(x.advice) != 1 || x.advice[0].Replay == nil || x.advice[0].Replay.Throttled != 0 {
			t.Errorf("advice %d: %+v", i, x.row)
		}
	}
}

// The figures are those of the placement in which all advice that stands is followed: x takes the second half of a GPU, and all of one on a
// node of its own once that of y is withdrawn. A figure that the advice has already remains, and the higher of both throttled parts.
func TestFiguresOfTheLastPlacement(t *testing.T) {
	for _, old := range []*document.Replay{nil, {OccupiedHours: 7, Throttled: 0.0005}} {
		x := advised("x", []run{ran("b", "n", 1, 0, 50)}, half("b", 0, 50, 0, 0, 0))
		y := advised("y", []run{ran("a", "n", 1, 0, 50), ran("c", "n", 1, 50, 90), ran("d", "n", 1, 50, 90)},
			half("a", 0, 50, 0, 0, 0), half("c", 50, 90, 90, 0.6, 0), half("d", 50, 90, 90, 0.6, 0))
		x.advice[0].Replay = old
		refuted(0.001, 2, another, x, y)
		if len(y.advice) > 0 || len(x.advice) != 1 {
			t.Fatalf("%+v %+v", x.row, y.row)
		}
		want := document.Replay{Pods: 1, OccupiedHours: 50}
		if old != nil {
			want.OccupiedHours, want.Throttled = 7, 0.0005
		}
		if *x.advice[0].Replay != want {
			t.Errorf("%+v, want %+v", x.advice[0].Replay, want)
		}
	}
}

// Advice that is not followed is not judged: less sharing, other models, and pods on nodes that are not known.
func TestAdviceThatIsNotReplayed(t *testing.T) {
	two := func() []run { return []run{ran("a", "n", 1, 0, 100), ran("b", "n", 1, 0, 100)} }
	busy := []replay.Pod{half("a", 0, 100, 100, 0.9, 0), half("b", 0, 100, 100, 0.9, 0)}
	for name, change := range map[string]func(*finding){
		"less sharing":    func(x *finding) { x.row.Advice = document.AdviseLessSharing },
		"another model":   func(x *finding) { x.row.Model = l40s },
		"another cluster": func(x *finding) { x.row.Cluster = "east" },
		"other nodes":     func(x *finding) { x.nodes = map[string]string{"a": "m", "b": "m"} },
	} {
		x := advised("w", two(), busy...)
		change(x)
		if refuted(0.001, 2, nil, x); len(x.advice) != 1 || x.advice[0].Replay != nil {
			t.Errorf("%s: %+v", name, x.row)
		}
	}
	x := advised("w", two(), busy...)
	if refuted(0.001, 2, nil, x); len(x.advice) > 0 {
		t.Error("what the others are compared with is not refuted")
	}
	// Workloads without advice are placed as they were: whole GPUs leave none to be shared by others of the same node, whose device plugin
	// shares all GPUs or none.
	for _, stands := range []bool{true, false} {
		y := advised("y", two(), busy...)
		y.advice, y.row.Advice = nil, ""
		z, more := advised("z", []run{ran("c", "n", 1, 0, 100)}, half("c", 0, 100, 100, 0.9, 0)), another
		if !stands {
			more = nil
		}
		refuted(0.001, map[bool]int{true: 2, false: 3}[stands], more, y, z)
		if !stands && z.row.NoAdvice != "refuted_by_replay" || stands && (len(z.advice) != 1 || z.advice[0].Replay.Throttled != 0 ||
			z.advice[0].Replay.OccupiedHours != 100) {
			t.Errorf("%t: %+v", stands, z.row)
		}
	}
}

// The replicas of a pod with several GPUs are on the node of the pod.
func TestPartsOfAPodHaveItsNode(t *testing.T) {
	x := advised("w", []run{ran("a", "n", 2, 0, 100)}, half("a", 0, 100, 100, 0.6, 0), half("a#2", 0, 100, 100, 0.6, 0))
	if refuted(0.001, 2, nil, x); len(x.advice) > 0 {
		t.Error("two parts with 0.6 each share a GPU")
	}
}

// A pod with two GPUs is released once both are idle: one was busy for four days.
func TestReleaseOfAPodWithTwoGPUs(t *testing.T) {
	var s scene
	s.node("n1", h100, 2, states{"busy": 0.4, "idle": 1.6}, nil)
	j := job{busy: between(monday, monday.Add(4*day), 0.9, 0), pods: []string{"app-0"}, gpus: []string{"GPU-a"}}
	s.job(j)
	j.busy, j.gpus = no, []string{"GPU-b"}
	s.allocate(j)
	d := s.must(t, nil)
	a := adviceOn(t, d, d.Workloads[0].ID)
	if a.Code != document.AdviseRelease || a.Replay == nil || a.Replay.Pods != 1 {
		t.Fatalf("%+v %+v", a, a.Replay)
	}
	near(t, "occupied", a.Replay.OccupiedHours, 2*96)
}

// Of three shares the one for which a node would have to be set aside that a pod without advice needs is withdrawn; those for which there
// is room stay, however many are tried.
func TestRoomForSomeShares(t *testing.T) {
	share := func(id, node string, saved float64) *finding {
		x := advised(id, []run{ran(id, node, 1, 0, 100)}, half(id, 0, 100, 0, 0, 0))
		x.row.Model, x.advice[0].SavedHours = h100, saved
		return x
	}
	a, b, c := share("a", "n", 50), share("b", "m", 40), share("c", "m", 30)
	whole := placedOn(h100, ran("w", "m", 1, 0, 100))
	whole.row.ID, whole.runs[0].workload = "w", "w"
	// Two halves on the GPU of one node; the third needs one of the three GPUs of the other, on which a pod runs.
	refuted(0.001, 1, func(f *fleet) {
		another(f)
		f.node(nodeKey{"", "m", h100}).size = 3
	}, a, b, c, whole)
	if len(a.advice) != 1 || len(b.advice) != 1 || len(c.advice) != 0 || !strings.Contains(c.row.NoAdviceReason, "would have waited") {
		t.Errorf("%+v\n%+v\n%+v", a.row, b.row, c.row)
	}
}
