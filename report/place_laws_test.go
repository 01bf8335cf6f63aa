package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

const l40s, a30 = "NVIDIA L40S", "NVIDIA A30"

// analysisOf has a period of a number of steps, and the memory of three models: 80 GiB, 48 GiB and 24 GiB.
func analysisOf(steps int, step time.Duration) *analysis {
	o, facts := Defaults(), newGPUFacts()
	facts.byModel = map[string]float64{h100: 81559 << 20, l40s: 48 * gib, a30: 24 * gib}
	return &analysis{p: series.NewPeriod(monday, monday.Add(time.Duration(steps)*step), step), opt: &o, facts: facts}
}

// drawn is a track from a step on: a digit is tenths, # is 1, and a point has no value.
func drawn(from int, picture string) series.Track {
	t := series.Track{From: from}
	for _, c := range picture {
		v := float32(c-'0') / 10
		switch c {
		case '#':
			v = 1
		case '.':
			v = float32(math.NaN())
		}
		t.V = append(t.V, v)
	}
	return t
}

// level is a track with one value in each step of a time.
func level(from, to int, v float64) series.Track {
	return series.Track{From: from, V: slices.Repeat([]float32{float32(v)}, to-from)}
}

func allocated(pod, node, gpu string, busy series.Track) *allocation {
	return &allocation{key: allocationKey{pod: pod, node: node, uuid: gpu}, model: h100, typical: 1, busy: busy}
}

// What a pod had is one run for each time without a long pause; its whole GPUs of a time are placed together; a part of a GPU is
// placed alone.
func TestRunsAreWhatPodsHad(t *testing.T) {
	of := func(pod, node, gpu string, from int, picture string) *allocation {
		return allocated(pod, node, gpu, drawn(from, picture))
	}
	part := func(model, resource string, typical float64) *allocation {
		x := of("x", "n", "g", 0, "##")
		x.model, x.resource, x.typical = model, resource, typical
		return x
	}
	whole := func(r run) string { return fmt.Sprintf("%s on %s: %d GPUs %d-%d", r.ID, r.node, r.GPUs, r.From, r.To) }
	shape := func(r run) string {
		return fmt.Sprintf("%d of 8 slots, %d places, fraction %v, %.3f GPUs", r.Size, r.Places, r.Fraction, r.share)
	}
	for _, tt := range []struct {
		name string
		step time.Duration
		of   []*allocation
		show func(run) string
		want []string
	}{
		{"15 minutes without a GPU", 5 * time.Minute, []*allocation{of("x", "n", "g", 2, "##...##")}, whole,
			[]string{"team/x on n: 1 GPUs 2-9"}},
		{"20 minutes", 5 * time.Minute, []*allocation{of("x", "n", "g", 2, "##....##")}, whole,
			[]string{"team/x on n: 1 GPUs 2-4", "team/x on n: 1 GPUs 8-10"}},
		{"a step of ten minutes", 10 * time.Minute, []*allocation{of("x", "n", "g", 0, "#.#..#")}, whole,
			[]string{"team/x on n: 1 GPUs 0-3", "team/x on n: 1 GPUs 5-6"}},
		{"a step of an hour", time.Hour, []*allocation{of("x", "n", "g", 0, "#.##")}, whole,
			[]string{"team/x on n: 1 GPUs 0-1", "team/x on n: 1 GPUs 2-4"}},
		{"three GPUs", time.Hour, []*allocation{of("x", "n", "a", 4, "###"), of("x", "n", "b", 2, "###"), of("x", "n", "c", 4, "####")},
			whole,
			[]string{"team/x on n: 3 GPUs 2-8"}},
		{"one after the other", time.Hour, []*allocation{of("x", "n", "a", 4, "##"), of("x", "n", "b", 2, "##")}, whole,
			[]string{"team/x on n: 1 GPUs 4-6", "team/x on n: 1 GPUs 2-4"}},
		{"two nodes", time.Hour, []*allocation{of("x", "n", "a", 0, "##"), of("x", "m", "b", 0, "##")}, whole,
			[]string{"team/x on n: 1 GPUs 0-2", "team/x on m: 1 GPUs 0-2"}},
		{"two pods", time.Hour, []*allocation{of("x", "n", "a", 0, "##"), of("y", "n", "b", 0, "##")}, whole,
			[]string{"team/x on n: 1 GPUs 0-2", "team/y on n: 1 GPUs 0-2"}},
		{"a part beside a whole GPU", time.Hour, []*allocation{part(h100, "nvidia_com_gpu", 0.5), of("x", "n", "b", 0, "##")}, whole,
			[]string{"team/x on n: 1 GPUs 0-2", "team/x on n: 1 GPUs 0-2"}},
		{"a whole GPU beside a part", time.Hour, []*allocation{of("x", "n", "b", 0, "##"), part(h100, "nvidia_com_gpu", 0.5)}, whole,
			[]string{"team/x on n: 1 GPUs 0-2", "team/x on n: 1 GPUs 0-2"}},
		{"a whole GPU", time.Hour, []*allocation{part(h100, "nvidia_com_gpu", 1)}, shape,
			[]string{"0 of 8 slots, 0 places, fraction 0, 1.000 GPUs"}},
		{"two whole GPUs", time.Hour, []*allocation{part(h100, "nvidia_com_gpu", 1), part(h100, "nvidia_com_gpu", 1)}, shape,
			[]string{"0 of 8 slots, 0 places, fraction 0, 2.000 GPUs"}},
		{"a time-sliced GPU", time.Hour, []*allocation{part(h100, "nvidia_com_gpu", 0.25)}, shape,
			[]string{"0 of 8 slots, 0 places, fraction 0.25, 0.250 GPUs"}},
		// Of an H100 a device has sevenths of the compute and eighths of the memory.
		{"half of the memory", time.Hour, []*allocation{part(h100, "nvidia_com_mig_3g_40gb", 3./7)}, shape,
			[]string{"4 of 8 slots, 2 places, fraction 0, 0.429 GPUs"}},
		{"an eighth", time.Hour, []*allocation{part(h100, "nvidia_com_mig_1g_10gb", 1./7)}, shape,
			[]string{"1 of 8 slots, 7 places, fraction 0, 0.143 GPUs"}},
		{"a quarter", time.Hour, []*allocation{part(h100, "nvidia_com_mig_1g_20gb", 1./7)}, shape,
			[]string{"2 of 8 slots, 4 places, fraction 0, 0.143 GPUs"}},
		{"a quarter of an A30", time.Hour, []*allocation{part(a30, "nvidia_com_mig_1g_6gb", 0.25)}, shape,
			[]string{"2 of 8 slots, 4 places, fraction 0, 0.250 GPUs"}},
		// Where the size is unknown, the whole GPU is taken.
		{"a profile of another model", time.Hour, []*allocation{part(a30, "nvidia_com_mig_1g_10gb", 0.25)}, shape,
			[]string{"0 of 8 slots, 0 places, fraction 0, 0.250 GPUs"}},
		{"a model without a table", time.Hour, []*allocation{part(l40s, "nvidia_com_mig_1g_10gb", 0.25)}, shape,
			[]string{"0 of 8 slots, 0 places, fraction 0, 0.250 GPUs"}},
	} {
		var got []string
		for _, r := range analysisOf(100, tt.step).runs(&load{key: loadKey{cluster: "", namespace: "team"}, allocations: tt.of}) {
			got = append(got, strings.Replace(tt.show(r), "///", "", 1))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A run has the names by which it is placed and added up.
func TestNamesOfRuns(t *testing.T) {
	k := loadKey{"east", "team", "Job", "train", h100}
	x := allocated("train-0", "n", "a", drawn(0, "#"))
	y := allocated("train-1", "n", "b", drawn(0, "#"))
	runs := analysisOf(10, time.Hour).runs(&load{key: k, allocations: []*allocation{x, y}})
	id := "east/team/Job/train/" + h100
	for i, r := range runs {
		if r.ID != fmt.Sprint(id, "/train-", i) || r.workload != id || r.Gang != id || r.cluster != "east" || r.model != h100 ||
			r.node != "n" {
			t.Errorf("%+v", r)
		}
	}
	for kind, want := range map[string]string{"job": id, "Deployment": "", "ReplicaSet": "", "Pod": ""} {
		k.kind = kind
		for _, r := range analysisOf(10, time.Hour).runs(&load{key: k, allocations: []*allocation{x, y}}) {
			if r.Gang != strings.Replace(want, "Job", kind, 1) {
				t.Errorf("%s: gang %q", kind, r.Gang)
			}
		}
	}
}

// The demand of a run is the highest of each hour in hundredths of a GPU, rounded up; where something is unknown, there is none.
func TestDemandOfRuns(t *testing.T) {
	// Twelve steps are an hour; the run begins in the middle of the first one.
	busy := level(6, 30, 0.1)
	busy.V[5], busy.V[6], busy.V[23] = 0.301, 0.4, 0.505 // steps 11, 12 and 29
	memory := level(0, 40, 12*gib)
	memory.V[5], memory.V[20], memory.V[30] = 48*gib, 25*gib, 48*gib // step 20 is within the run
	for _, tt := range []struct {
		name           string
		change         func(*allocation)
		demand, memory []uint8
		first          int
	}{
		{"hours", func(*allocation) {}, []uint8{31, 40, 51}, []uint8{25, 53, 25}, 0},
		{"from a full hour to another", func(x *allocation) { x.busy = x.busy.Part(12, 24) }, []uint8{40}, []uint8{53}, 1},
		{"a step of the next hour", func(x *allocation) { x.busy = x.busy.Part(12, 25) }, []uint8{40, 10}, []uint8{53, 25}, 1},
		{"memory unknown", func(x *allocation) { x.memory = series.Track{} }, []uint8{31, 40, 51}, nil, 0},
		{"one sample of memory", func(x *allocation) { x.memory = level(20, 21, 25*gib) }, []uint8{31, 40, 51}, []uint8{0, 53, 0}, 0},
		{"activity unknown", func(x *allocation) { x.share, x.busy = x.busy, series.Track{} }, nil, nil, 0},
		{"memory of the model unknown", func(x *allocation) { x.model = "other" }, nil, nil, 0},
		{"no allocation", func(x *allocation) { x.typical = 0 }, nil, nil, 0},
		{"shared", func(x *allocation) { x.typical = 0.5 }, nil, nil, 0},
		{"a MIG device", func(x *allocation) { x.resource = "nvidia_com_mig_1g_10gb" }, nil, nil, 0},
	} {
		x := allocated("x", "n", "g", busy)
		x.model, x.memory = l40s, memory
		tt.change(x)
		r := analysisOf(100, 5*time.Minute).runs(&load{allocations: []*allocation{x}})
		if len(r) != 1 || !slices.Equal(r[0].demand, tt.demand) || !slices.Equal(r[0].memory, tt.memory) || r[0].first != tt.first ||
			(tt.demand == nil) != (r[0].demand == nil) || (tt.memory == nil) != (r[0].memory == nil) {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
	// Of two runs each has its own demand, and of a pod with two GPUs it is unknown.
	x := allocated("x", "n", "g", drawn(0, "12........34"))
	x.model, x.memory = l40s, level(0, 100, 24*gib)
	y := allocated("y", "n", "a", drawn(0, "11"))
	z := allocated("y", "n", "b", drawn(0, "11"))
	for _, of := range []*allocation{y, z} {
		of.model, of.memory = l40s, level(0, 100, 24*gib)
	}
	runs := analysisOf(100, 5*time.Minute).runs(&load{allocations: []*allocation{x, y, z}})
	if len(runs) != 3 || runs[0].demand[0] != 20 || runs[1].demand[0] != 40 || runs[1].memory[0] != 50 || runs[2].GPUs != 2 ||
		runs[2].demand != nil || runs[2].memory != nil {
		t.Errorf("%+v", runs)
	}
	// Read by step: the value of its hour.
	a, list := analysisOf(100, 5*time.Minute), []uint8{10, 20, 50}
	for k, want := range map[int]float64{12: 0.1, 23: 0.1, 24: 0.2, 36: 0.5, 47: 0.5} {
		if got := a.hourly(list, 1)(k); got != want {
			t.Errorf("step %d: %v", k, got)
		}
	}
}

// Rounded to hundredths, a fraction is never less than it was; one that was read as a whole hundredth stays it.
func TestHundredths(t *testing.T) {
	for n := range 101 {
		v := float64(float32(n) / 100)
		if got := series.Hundredths(v); int(got) != n {
			t.Errorf("%v: %d", v, got)
		}
		if got := series.Hundredths(float64(n)/100 + 1.2e-7); int(got) != min(100, n+1) {
			t.Errorf("%v and more: %d", v, got)
		}
	}
	if series.Hundredths(-1) != 0 || series.Hundredths(1.5) != 100 || series.Hundredths(math.Inf(1)) != 100 {
		t.Errorf("%d %d", series.Hundredths(-1), series.Hundredths(1.5))
	}
}

// fleetOf makes nodes with GPUs of one model in one pool, allocated for all of the period; a node with a minus has left.
func fleetOf(a *analysis, model string, nodes map[string][2]float64) *fleet {
	f := newFleet(a.p)
	for name, v := range nodes {
		n := f.node(nodeKey{"", strings.TrimPrefix(name, "-"), model})
		n.size, n.removed, n.pool = int(v[0]), name[0] == '-', "pool"
		n.expected = v[0] * float64(a.p.Steps())
		if v[1] > 0 {
			n.allocated = level(0, a.p.Steps(), v[1])
		}
	}
	return f
}

// of makes a finding of pods that ran on nodes.
func placedOn(model string, pods ...run) *finding {
	x := &finding{row: document.Workload{ID: "w", Model: model}, nodes: map[string]string{}}
	for _, r := range pods {
		r.model, r.workload = model, "w"
		r.share = r.Amount()
		x.runs, x.nodes[r.ID] = append(x.runs, r), r.node
	}
	return x
}

func ran(id, node string, gpus, from, to int) run {
	return run{node: node, Pod: replay.Pod{ID: id, GPUs: gpus, From: from, To: to}}
}

func pods(list []replay.Pod) (out []string) {
	for _, p := range list {
		out = append(out, fmt.Sprintf("%s %d: %d-%d", p.ID+p.Node, p.GPUs, p.From, p.To))
	}
	return out
}

// What a node's account has allocated and no known pod has is placed as unknown; so is what did not report; unavailable GPUs are bound
// to their node. All add up to what is in use.
func TestUnknownGPUsArePlaced(t *testing.T) {
	mig := func(n, size, places int, share float64) (out []run) {
		for i := range n {
			r := ran(fmt.Sprint("m", i), "n", 1, 0, 4)
			r.Shape, r.share = replay.Shape{Size: size, Places: places}, share
			out = append(out, r)
		}
		return out
	}
	for _, tt := range []struct {
		name                           string
		gpus                           int
		allocated, silent, unavailable string // by step, a digit is tenths
		runs                           []run
		unknown, broken                []string
	}{
		{"all known", 4, "2222", "", "", []run{ran("a", "n", 1, 0, 4), ran("b", "n", 1, 0, 4)}, nil, nil},
		{"one of three", 4, "3333", "", "", []run{ran("a", "n", 1, 0, 4)}, []string{"?n 2: 0-4"}, nil},
		{"for a time", 4, "3333", "", "", []run{ran("a", "n", 2, 1, 3)}, []string{"?n 3: 0-1", "?n 1: 1-3", "?n 3: 3-4"}, nil},
		{"none reported", 4, "22..", "..44", "", nil, []string{"?n 2: 0-2", "?n 4: 2-4"}, nil},
		{"some did not report", 4, "2222", "2222", "", nil, []string{"?n 4: 0-4"}, nil},
		{"some did not report, one is known", 4, "2222", "2222", "", []run{ran("a", "n", 1, 0, 4)}, []string{"?n 3: 0-4"}, nil},
		{"the pod of a silent node", 4, "....", "4444", "", []run{ran("a", "n", 1, 0, 4)}, []string{"?n 3: 0-4"}, nil},
		{"unavailable", 4, "1111", "", "0220", []run{ran("a", "n", 1, 0, 4)}, nil, []string{"?nn 2: 1-3"}},
		{"pods of another node", 4, "2222", "", "", []run{ran("a", "other", 2, 0, 4)}, []string{"?n 2: 0-4"}, nil},
		// A MIG device counts by its compute in the account, a seventh, and takes an eighth of the slots.
		{"21 devices of a seventh fill three GPUs", 3, "3333", "", "", mig(21, 1, 7, 1./7), nil, nil},
		{"14 devices of three sevenths, and a GPU", 8, "7777", "", "", mig(14, 4, 2, 3./7), []string{"?n 1: 0-4"}, nil},
	} {
		a := analysisOf(12, time.Hour)
		f := newFleet(a.p)
		n := f.node(nodeKey{"", "n", h100})
		n.size, n.pool = tt.gpus, "pool"
		track := func(picture string) series.Track {
			t := drawn(0, picture)
			for i := range t.V {
				t.V[i] *= 10
			}
			return t
		}
		n.allocated, n.silent, n.unavailable = track(tt.allocated), track(tt.silent), track(tt.unavailable)
		x := placedOn(h100, tt.runs...)
		for i, r := range tt.runs {
			if r.share > 0 {
				x.runs[i].share = r.share
			}
		}
		g := a.byModel(f, []*finding{x})[0]
		if !slices.Equal(pods(g.unknown), tt.unknown) || !slices.Equal(pods(g.broken), tt.broken) {
			t.Errorf("%s: unknown %q, broken %q", tt.name, pods(g.unknown), pods(g.broken))
		}
		if len(g.Pods) != len(g.pods)+len(g.unknown)+len(g.broken) {
			t.Errorf("%s: %q", tt.name, pods(g.Pods))
		}
	}
}

// A replay has the nodes of one model of one cluster; pods remain in their pool.
func TestGroupsOfNodes(t *testing.T) {
	a := analysisOf(12, time.Hour)
	f := newFleet(a.p)
	for i, k := range []nodeKey{{"west", "n1", h100}, {"east", "n1", l40s}, {"east", "n2", h100}, {"east", "n1", h100}} {
		n := f.node(k)
		n.size, n.pool = i+1, "pool-"+k.node
		n.allocated = level(i, i+2, float64(i+1))
	}
	x := placedOn(h100, ran("a", "n1", 1, 0, 2), ran("b", "n2", 2, 1, 3), ran("c", "n2", 1, 0, 3), ran("d", "gone", 1, 0, 3))
	for i := range x.runs {
		x.runs[i].cluster = "east"
	}
	x.runs[0].Shape, x.runs[2].Shape = replay.Shape{Size: 4, Places: 2}, replay.Shape{Size: 1, Places: 7}
	groups := a.byModel(f, []*finding{x})
	var got []string
	for _, g := range groups {
		got = append(got, fmt.Sprintf("%s %s: %v, peak %v, allocated %v, partitioned %v", g.key.cluster, g.key.model, len(g.Nodes), g.peak,
			g.Used, g.partitioned))
	}
	want := []string{
		// Steps 2 and 3 have 3 GPUs of n2, steps 3 and 4 have 4 of n1.
		"east " + h100 + ": 2, peak 7, allocated map[n1:8 n2:6], partitioned map[n1:4 n2:1]",
		"east " + l40s + ": 1, peak 2, allocated map[n1:4], partitioned map[n1:0]",
		"west " + h100 + ": 1, peak 1, allocated map[n1:2], partitioned map[n1:0]"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	g := groups[0]
	class := func(node string) string { return "east\x00" + h100 + "\x00pool-" + node + "\x00" }
	if !slices.Equal(g.Nodes, []replay.Node{{ID: "n1", Class: class("n1"), GPUs: 4, To: 12, Offers: replay.Whole},
		{ID: "n2", Class: class("n2"), GPUs: 3, To: 12, Offers: replay.Whole}}) {
		t.Errorf("%+v", g.Nodes)
	}
	for _, p := range slices.Concat(g.pods, g.unknown) {
		node := map[string]string{"a": "n1", "b": "n2", "c": "n2", "?n1": "n1", "?n2": "n2"}[p.ID]
		if node == "" || p.Class != class(node) {
			t.Errorf("%+v", p)
		}
	}
	if !slices.IsSortedFunc(g.Pods, func(x, y replay.Pod) int { return x.From - y.From }) || len(groups[1].pods)+len(groups[2].pods) > 0 {
		t.Errorf("%+v", g.Pods)
	}
}

// The nodes that a part of the period did not need, least used first; of equal ones the first by name. Those that have left are
// neither counted nor used.
func TestRemovableNodes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		nodes    map[string][2]float64 // GPUs, allocated
		runs     []run
		from, to int
		budget   float64
		order    string
		n        int
	}{
		{"nothing allocated", map[string][2]float64{"b": {1, 0}, "a": {1, 0}}, nil, 0, 20, 0, "a b", 2},
		{"one after the other", map[string][2]float64{"a": {1, 0}, "b": {1, 0}}, []run{ran("x", "a", 1, 0, 5), ran("y", "b", 1, 5, 10)},
			0, 20, 0, "a b", 1},
		// One step of eleven waits.
		{"a step at a time, within the budget", map[string][2]float64{"a": {1, 0}, "b": {1, 0}},
			[]run{ran("x", "a", 1, 0, 6), ran("y", "b", 1, 5, 10)}, 0, 20, 1. / 11, "a b", 1},
		{"a step at a time, above it", map[string][2]float64{"a": {1, 0}, "b": {1, 0}},
			[]run{ran("x", "a", 1, 0, 6), ran("y", "b", 1, 5, 10)}, 0, 20, 0.9 / 11, "a b", 0},
		{"before the second", map[string][2]float64{"a": {1, 0}, "b": {1, 0}}, []run{ran("x", "a", 1, 0, 6), ran("y", "b", 1, 5, 10)},
			0, 5, 0, "a b", 1},
		{"after the first", map[string][2]float64{"a": {1, 0}, "b": {1, 0}}, []run{ran("x", "a", 1, 0, 6), ran("y", "b", 1, 5, 10)},
			6, 20, 0, "a b", 1},
		{"after all", map[string][2]float64{"a": {1, 0}, "b": {1, 0}}, []run{ran("x", "a", 1, 0, 6), ran("y", "b", 1, 5, 10)},
			10, 20, 0, "a b", 2},
		// Allocated GPUs of each: a half, an eighth, a quarter.
		{"least used first", map[string][2]float64{"a": {2, 1}, "b": {8, 1}, "c": {4, 1}}, nil, 0, 20, 0, "b c a", 1},
		{"an unknown GPU", map[string][2]float64{"a": {1, 1}, "b": {1, 0}}, nil, 0, 20, 0, "b a", 1},
		// The second pod ran on a node that has left: without b nothing is left for it.
		{"a node that has left", map[string][2]float64{"-a": {8, 0}, "b": {1, 0}, "c": {1, 0}},
			[]run{ran("x", "b", 1, 0, 9), ran("y", "a", 1, 0, 9)}, 0, 20, 0, "b c", 0},
		{"a node that has left and was not needed", map[string][2]float64{"-a": {8, 0}, "b": {1, 0}, "c": {1, 0}},
			[]run{ran("x", "b", 1, 0, 9)}, 0, 20, 0, "b c", 1},
	} {
		a := analysisOf(20, time.Hour)
		f := fleetOf(a, h100, tt.nodes)
		g := a.byModel(f, []*finding{placedOn(h100, tt.runs...)})[0]
		order, n, r := g.Removable(tt.from, tt.to, tt.budget)
		if strings.Join(order, " ") != tt.order || n != tt.n || n > 0 && !r.Feasible(tt.budget) {
			t.Errorf("%s: %d of %v: %+v", tt.name, n, order, r)
		}
	}
}

// On random fleets: a replay without nodes is one of the others and of the pods that are not bound to them; each node less can only
// raise waiting, for pods of one GPU; what is removable is feasible, and one more is not.
func TestRemovalRaisesWaiting(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	several := 0
	for range 60 {
		a, broken := analysisOf(48, time.Hour), r.IntN(2)
		nodes := map[string][2]float64{}
		for i := range 2 + r.IntN(4) {
			nodes[fmt.Sprint("n", i)] = [2]float64{float64(1 + r.IntN(3)), 0}
		}
		f := fleetOf(a, h100, nodes)
		var runs []run
		for _, n := range f.sorted() {
			for g := range n.size {
				for at := r.IntN(20); at < 40; {
					to := at + 1 + r.IntN(20)
					runs = append(runs, ran(fmt.Sprint(n.key.node, g, at), n.key.node, 1, at, min(48, to)))
					at = to + r.IntN(30)
				}
			}
			n.unavailable = level(44, 48, float64(broken*r.IntN(2)))
		}
		g := a.byModel(f, []*finding{placedOn(h100, runs...)})[0]
		order, n, _ := g.Removable(0, 48, 0.05)
		last := -1.0
		for k := range len(order) + 1 {
			got := g.Without(order[:k], 0, 48, -1)
			var machines []replay.Node
			for _, m := range g.Nodes {
				if !slices.Contains(order[:k], m.ID) {
					machines = append(machines, m)
				}
			}
			want := replay.Run(machines, slices.DeleteFunc(slices.Clone(g.Pods), func(p replay.Pod) bool {
				return slices.Contains(order[:k], p.Node)
			}))
			if got != want {
				t.Fatalf("%d nodes less: %+v, want %+v", k, got, want)
			}
			if broken == 0 && got.Waited < last { // what is broken leaves with its node
				t.Errorf("%d nodes less: waited %v, before %v", k, got.Waited, last)
			}
			if last = got.Waited; k == n && n > 0 && !got.Feasible(0.05) || k == n+1 && got.Feasible(0.05) {
				t.Errorf("%d of %d are removable: %+v", n, len(order), got)
			}
		}
		if n > 1 {
			several++
		}
	}
	if several < 5 {
		t.Errorf("several nodes were removable in %d fleets", several)
	}
}

// Nodes are given back from 19/20 of the minimum observation on, of known models with several nodes that remain; the text has what the
// replay found.
func TestTextOfConsolidation(t *testing.T) {
	list, err := prices.Parse([]byte("{gpus: [{model: '*', per_hour: 2}]}"))
	must.OK(t, err)
	four := map[string][2]float64{"d": {8, 2}, "c": {8, 2}, "b": {4, 1}, "a": {8, 8}}
	runs := func(to int) []run {
		return []run{ran("w", "a", 8, 0, to), ran("x", "b", 1, 0, to), ran("y", "c", 2, 0, to), ran("z", "d", 2, 0, to)}
	}
	for _, tt := range []struct {
		name                          string
		steps                         int
		model                         string
		nodes                         map[string][2]float64
		runs                          []run
		title, evidence, alternatives string
		change                        string
		hours, gpus, cost             float64
		confidence                    string
		occupied                      float64
	}{
		// 1/4 of b, c and d, all of a: five GPUs of c to d fit on one of eight. A quarter more than 16 GPUs are 20.
		{"one of four", 504, h100, four, runs(504), "Give back 1 node of " + h100 + ": b",
			"4 pods of the period, placed on the other 3 nodes with 24 GPUs, would all have run: none would have waited. " +
				"13 GPUs were allocated at the busiest time.",
			"2 nodes would have sufficed, without a reserve; with one less, 3 would have waited, 21.0 days at the longest, and 3 would " +
				"not have run at all.",
			"kubectl drain --ignore-daemonsets b", 4 * 504, 4, 2 * 4 * 504, "medium", 13 * 504},
		{"nothing for a reserve", 479, h100, map[string][2]float64{"a": {1, 1}, "b": {1, 0}}, []run{ran("x", "a", 1, 0, 479)},
			"Give back 1 node of " + h100 + ": b",
			"1 pods of the period, placed on the other 1 node with 1 GPUs, would all have run: none would have waited. " +
				"1 GPUs were allocated at the busiest time. Confidence is low: no reserve is left.",
			"1 node would have sufficed, without a reserve; with one less, 1 would have waited, 20.0 days at the longest, and 1 would " +
				"not have run at all.",
			"kubectl drain --ignore-daemonsets b", 479, 1, 2 * 479, "low", 479},
		{"all of them", 479, h100, map[string][2]float64{"a": {8, 0}, "b": {8, 0}}, nil, "Give back 2 nodes of " + h100 + ": a, b",
			"None of them was allocated at any time of the period.", "No node of the model is left.",
			"kubectl drain --ignore-daemonsets a b", 16 * 479, 16, 2 * 16 * 479, "medium", 0},
		{"19/20 of three weeks, less half an hour", 478, h100, map[string][2]float64{"a": {8, 0}, "b": {8, 0}}, nil,
			"Give back 2 nodes of " + h100 + ": a, b",
			"None of them was allocated at any time of the period. Confidence is low: 19.9 days of history are less than three weeks.",
			"No node of the model is left.", "kubectl drain --ignore-daemonsets a b", 16 * 478, 16, 2 * 16 * 478, "low", 0},
		{"159 hours", 159, h100, four, runs(159), "", "", "", "", 0, 0, 0, "", 0},
		{"a model without a name", 168, "", four, runs(168), "", "", "", "", 0, 0, 0, "", 0},
		{"one node", 168, h100, map[string][2]float64{"a": {8, 0}}, nil, "", "", "", "", 0, 0, 0, "", 0},
		{"one node and one that has left", 168, h100, map[string][2]float64{"a": {8, 0}, "-b": {8, 0}}, nil,
			"", "", "", "", 0, 0, 0, "", 0},
		{"all are needed", 168, h100, map[string][2]float64{"a": {1, 1}, "b": {1, 1}},
			[]run{ran("x", "a", 1, 0, 168), ran("y", "b", 1, 0, 168)},
			"", "", "", "", 0, 0, 0, "", 0},
		// One of 1,001 GPU-hours would wait, which is within the budget, but its pod would never run.
		{"needed at the end", 1000, h100, map[string][2]float64{"a": {1, 0}, "b": {1, 0}},
			[]run{ran("x", "a", 1, 0, 1000), ran("y", "b", 1, 999, 1000)}, "", "", "", "", 0, 0, 0, "", 0},
	} {
		a := analysisOf(tt.steps, time.Hour)
		a.opt.Prices = list
		f := fleetOf(a, tt.model, tt.nodes)
		for _, n := range f.nodes {
			n.allocated = series.Track{}
			for _, r := range tt.runs {
				if r.node == n.key.node {
					more := level(r.From, r.To, float64(r.GPUs))
					n.allocated.Plus(&more)
				}
			}
		}
		got := a.consolidate(f, a.byModel(f, []*finding{placedOn(tt.model, tt.runs...)}), nil)
		if tt.title == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", tt.name, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Fatalf("%s: %+v", tt.name, got)
		}
		ad := got[0]
		if ad.Title != tt.title || ad.Evidence != tt.evidence || ad.Alternatives != tt.alternatives ||
			!strings.HasSuffix(ad.Change, tt.change) ||
			ad.SavedHours != tt.hours || ad.SavedGPUs != tt.gpus || *ad.SavedCost != tt.cost || ad.Confidence != tt.confidence ||
			ad.Saving != "nodes" || ad.Model != tt.model || ad.Replay.OccupiedHours != tt.occupied ||
			ad.Validation != nil && ad.Validation.Worst != 0 || ad.ChangeIn != "node pool" || ad.Risk == "" {
			t.Errorf("%s: %+v\n%+v", tt.name, ad, ad.Replay)
		}
	}
}

// always are pods that run all of the time, a GPU each.
func always(n, to int) (out []run) {
	for i := range n {
		out = append(out, ran(fmt.Sprint("x", i), "a", 1, 0, to))
	}
	return out
}

// singles are nodes a, b, c, ... with a GPU each.
func singles(n int) (order []string, nodes map[string][2]float64) {
	nodes = map[string][2]float64{}
	for i := range n {
		order = append(order, string(rune('a'+i)))
		nodes[order[i]] = [2]float64{1, 0}
	}
	return order, nodes
}

// Nodes that the time before a fold did not need, and the fold did: 80 steps, whose second half has four folds of ten. Of six nodes
// five are left where four were needed.
func TestValidationOfNodes(t *testing.T) {
	for _, tt := range []struct {
		name       string
		runs       []run
		folds      int
		worst, all float64
		size       string
		train      float64
	}{
		// The third fold is tested with five nodes: 40 and 10 are requested, 5 wait. Before the fourth all were needed.
		{"two pods of the third fold", append(always(4, 80), ran("y", "b", 1, 65, 75), ran("z", "b", 1, 65, 75)), 3, 5. / 50, 5. / 50 / 3,
			"5 nodes", 60},
		{"never", always(4, 80), 4, 0, 0, "5 nodes", 70},
		{"always", always(6, 80), 0, 0, 0, "", 0},
		{"no reserve", always(5, 80), 0, 0, 0, "", 0},
		{"nothing", nil, 4, 0, 0, "0 nodes", 70},
	} {
		a := analysisOf(80, time.Hour)
		order, nodes := singles(6)
		f := fleetOf(a, h100, nodes)
		g := a.byModel(f, []*finding{placedOn(h100, tt.runs...)})[0]
		v := a.validateNodes(g, g.Needs(order, 0, 80, a.opt.Advice.Budget))
		if tt.folds == 0 {
			if v != nil {
				t.Errorf("%s: %+v", tt.name, v)
			}
			continue
		}
		if v == nil || v.Folds != tt.folds || math.Abs(v.Worst-tt.worst) > 1e-12 || math.Abs(v.Exceeded-tt.all) > 1e-12 ||
			v.Size != tt.size ||
			v.TrainHours != tt.train || v.TestHours != float64(10*tt.folds) {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// What eighths of a history needed, and what has to be left after it: a quarter more, or as much more as any of the later four
// needed above all before it.
func TestReserveOfNodes(t *testing.T) {
	for _, tt := range []struct {
		parts          [8]float64
		grew, reserved float64
		back           int // of 20 nodes with a GPU each
	}{
		{[8]float64{}, 0, 0, 20},
		{[8]float64{8, 8, 8, 8, 8, 8, 8, 8}, 0, 10, 10},
		{[8]float64{1, 8, 2, 8, 8, 3, 7, 8}, 0, 10, 10}, // it grew in the first half
		{[8]float64{1, 4, 2, 1, 8, 3, 7, 8}, 4, 12, 8},
		{[8]float64{4, 1, 1, 5, 6, 7, 8, 6}, 1, 10, 10},
		{[8]float64{4, 1, 1, 2, 5, 5, 8, 6}, 3, 11, 9},
		{[8]float64{9, 1, 1, 2, 5, 5, 8, 6}, 0, 11.25, 8}, // 12 are left
		{[8]float64{9, 9, 9, 9, 9, 9, 9, 15}, 6, 21, 0},
	} {
		h := &replay.Needs{Parts: tt.parts}
		for i := range 21 {
			h.Left = append(h.Left, float64(20-i))
		}
		h.Order = make([]string, 20)
		most := slices.Max(tt.parts[:])
		if grew, reserved := h.Grew(8), h.Reserved(most, 1.25, 8); grew != tt.grew || reserved != tt.reserved ||
			h.Back(reserved) != tt.back {
			t.Errorf("%v: grew by %v, %v have to be left, %d are given back", tt.parts, grew, reserved, h.Back(reserved))
		}
	}
	// Before the fifth and the sixth eighth, the later half is that of the four and five before it.
	h := &replay.Needs{Parts: [8]float64{1, 2, 5, 4, 9}}
	if h.Grew(4) != 3 || h.Grew(5) != 4 || h.Reserved(5, 1.25, 4) != 8 {
		t.Errorf("%v %v %v", h.Grew(4), h.Grew(5), h.Reserved(5, 1.25, 4))
	}
}

// Advice whose validation shows more than the budget is a question; as much as the budget is within it.
func TestConfidenceOfConsolidation(t *testing.T) {
	for budget, want := range map[float64]string{5. / 410: "medium", 0.0123: "medium", 0.0121: "low"} {
		a := analysisOf(800, time.Hour)
		a.opt.Advice.Budget = budget
		_, nodes := singles(8)
		f := fleetOf(a, h100, nodes)
		// The third fold, from 600 to 700, requests 390 and 20, and five of them wait for the fourth of five nodes.
		runs := append(always(3, 800), ran("w", "a", 1, 0, 690), ran("y", "b", 1, 685, 695), ran("z", "b", 1, 685, 695))
		got := a.consolidate(f, a.byModel(f, []*finding{placedOn(h100, runs...)}), nil)
		if len(got) != 1 || got[0].Confidence != want || got[0].SavedGPUs != 1 || got[0].Replay.Waiting != 0 ||
			(want == "low") != strings.HasSuffix(got[0].Evidence, "needed more than those before it, with a reserve.") {
			t.Errorf("%v: %+v", budget, got)
		}
	}
}

// History that begins after the period counts from where it begins: three of five weeks are enough, the last two are not.
func TestKnownHistoryOfNodes(t *testing.T) {
	for first, want := range map[int]string{0: "medium", 361: "medium", 362: "low", 680: "low", 681: ""} {
		a := analysisOf(840, time.Hour)
		_, nodes := singles(8)
		f := fleetOf(a, h100, nodes)
		for k := first; k < 840; k++ {
			f.covered[k] = true
		}
		runs := always(4, 840)
		for i := range runs {
			runs[i].From = first
		}
		got := a.consolidate(f, a.byModel(f, []*finding{placedOn(h100, runs...)}), nil)
		if (want == "") != (len(got) == 0) || want != "" && (got[0].Confidence != want || got[0].SavedGPUs != 3) {
			t.Errorf("from %d: %+v", first, got)
		}
	}
}

// What a replay found, in words and figures: steps of 30 minutes.
func TestWordsOfAReplay(t *testing.T) {
	a := analysisOf(100, 30*time.Minute)
	for _, tt := range []struct {
		r    replay.Result
		text string
		want document.Replay
	}{
		{replay.Result{Placed: 3, Occupied: 8}, "none would have waited", document.Replay{Pods: 3, OccupiedHours: 4}},
		{replay.Result{Placed: 3, Waiting: 2, Waited: 10, LongestWait: 6, Shared: 8, Throttled: 2, Evicted: 1},
			"2 would have waited, 3.0 hours at the longest",
			document.Replay{Pods: 3, Waiting: 2, WaitedHours: 5, LongestWait: 3, Throttled: 0.25, Evicted: 1}},
		{replay.Result{Placed: 3, Waiting: 2, Unplaced: 1, Waited: 10, LongestWait: 7},
			"2 would have waited, 3.5 hours at the longest, and 1 would not have run at all",
			document.Replay{Pods: 4, Waiting: 2, WaitedHours: 5, LongestWait: 3.5}},
	} {
		if got := tt.r.Waits(a.p.Step); got != tt.text {
			t.Error(got)
		}
		if got := a.replayed(tt.r); *got != tt.want {
			t.Errorf("%+v", got)
		}
	}
}
