package replay

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func nodes(gpus ...int) (out []Node) {
	for i, n := range gpus {
		out = append(out, Node{ID: fmt.Sprint("n", i), GPUs: n, To: 100})
	}
	return out
}

func whole(id string, gpus, from, to int) Pod { return Pod{ID: id, GPUs: gpus, From: from, To: to} }

func mig(id string, size, places int) Pod {
	return Pod{ID: id, From: 0, To: 10, Shape: Shape{Size: size, Places: places}}
}

func slice(id string, fraction, demand, memory float64, from, to int) Pod {
	of := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	return Pod{ID: id, From: from, To: to, Shape: Shape{Fraction: fraction}, Demand: of(demand), Memory: of(memory)}
}

// TestRun compares every figure of a replay with what was computed by hand.
func TestRun(t *testing.T) {
	gang := func(p Pod, name string) Pod { p.Gang = name; return p }
	bound := func(p Pod, node string) Pod { p.Node = node; return p }
	until := func(p Pod, to int) Pod { p.To = to; return p }
	from := func(p Pod, from int) Pod { p.From = from; return p }
	queued := func(p Pod) Pod { p.Queued = true; return p }
	class := func(p Pod, name string) Pod { p.Class = name; return p }
	for _, tt := range []struct {
		name  string
		nodes []Node
		pods  []Pod
		want  Result
	}{
		{"five of eight GPUs three times need three nodes", nodes(8, 8),
			[]Pod{whole("a", 5, 0, 10), whole("b", 5, 0, 10), whole("c", 5, 0, 10)},
			Result{Placed: 2, Waiting: 1, Unplaced: 1, Waited: 50, LongestWait: 10, Occupied: 100, Requested: 150}},
		{"three nodes", nodes(8, 8, 8), []Pod{whole("a", 5, 0, 10), whole("b", 5, 0, 10), whole("c", 5, 0, 10)},
			Result{Placed: 3, Occupied: 150, Requested: 150}},
		{"a pod never spans nodes", nodes(2, 2), []Pod{whole("a", 4, 0, 10)},
			Result{Waiting: 1, Unplaced: 1, Waited: 40, LongestWait: 10, Requested: 40}},
		{"waits for the end of another", nodes(8), []Pod{whole("a", 8, 0, 4), whole("b", 2, 1, 10)},
			Result{Placed: 2, Waiting: 1, Waited: 6, LongestWait: 3, Occupied: 44, Requested: 50}},
		{"ends while it waits", nodes(8), []Pod{whole("a", 8, 0, 9), whole("b", 2, 1, 5), whole("c", 1, 9, 10)},
			Result{Placed: 2, Waiting: 1, Unplaced: 1, Waited: 8, LongestWait: 4, Occupied: 73, Requested: 81}},
		{"fills the fullest node", nodes(8, 4), []Pod{whole("a", 3, 0, 10), whole("b", 8, 1, 10)},
			Result{Placed: 2, Occupied: 102, Requested: 102}},
		{"a gang starts together", nodes(4, 4), []Pod{whole("x", 2, 0, 5), gang(whole("g0", 4, 1, 10), "g"),
			gang(whole("g1", 4, 1, 10), "g")},
			Result{Placed: 3, Waiting: 2, Waited: 32, LongestWait: 4, Occupied: 50, Requested: 82}},
		{"without a gang one starts", nodes(4, 4), []Pod{whole("x", 2, 0, 5), whole("g0", 4, 1, 10), whole("g1", 4, 1, 10)},
			Result{Placed: 3, Waiting: 1, Waited: 16, LongestWait: 4, Occupied: 66, Requested: 82}},
		{"bound to a node", nodes(4, 4), []Pod{bound(whole("a", 4, 0, 10), "n1"), whole("b", 4, 0, 10),
			bound(whole("c", 1, 0, 10), "n1")},
			Result{Placed: 2, Waiting: 1, Unplaced: 1, Waited: 10, LongestWait: 10, Occupied: 80, Requested: 90}},
		{"another class", nodes(4), []Pod{class(whole("a", 1, 0, 10), "a100")},
			Result{Waiting: 1, Unplaced: 1, Waited: 10, LongestWait: 10, Requested: 10}},
		{"a node that leaves", []Node{{ID: "n", GPUs: 8, From: 2, To: 6}},
			[]Pod{whole("a", 1, 0, 3), whole("b", 1, 2, 6), whole("c", 1, 3, 7)},
			Result{Placed: 1, Waiting: 2, Unplaced: 2, Waited: 7, LongestWait: 4, Occupied: 4, Requested: 11}},
		// Two of four slots leave none for a third device.
		{"MIG geometry", nodes(1), []Pod{mig("a", 4, 2), mig("b", 4, 2), mig("c", 1, 7)},
			Result{Placed: 2, Waiting: 1, Unplaced: 1, Waited: 1.25, LongestWait: 10, Occupied: 10, Shared: 10, Requested: 11.25}},
		{"an eighth small MIG device has no place", nodes(1), []Pod{mig("a", 1, 7), mig("b", 1, 7), mig("c", 1, 7), mig("d", 1, 7),
			mig("e", 1, 7), mig("f", 1, 7), mig("g", 1, 7), mig("h", 1, 7)},
			Result{Placed: 7, Waiting: 1, Unplaced: 1, Waited: 1.25, LongestWait: 10, Occupied: 10, Shared: 10, Requested: 10}},
		{"a whole GPU needs one without MIG devices", nodes(2), []Pod{mig("a", 1, 7), whole("b", 2, 0, 10)},
			Result{Placed: 1, Waiting: 1, Unplaced: 1, Waited: 1.25, LongestWait: 10, Occupied: 20, Requested: 21.25}},
		{"a whole GPU is not free while one of two shares is on it", nodes(1),
			[]Pod{slice("a", 0.5, 0, 0, 0, 4), slice("b", 0.5, 0, 0, 0, 8), whole("c", 1, 5, 10)},
			Result{Placed: 3, Waiting: 1, Waited: 3, LongestWait: 3, Occupied: 10, Shared: 4, Requested: 11}},
		{"a share takes the place of another", nodes(1),
			[]Pod{slice("a", 0.5, 0, 0, 0, 4), slice("b", 0.5, 0, 0, 0, 8), slice("c", 0.5, 0, 0, 4, 8)},
			Result{Placed: 3, Occupied: 8, Shared: 8, Requested: 8}},
		{"MIG devices take the slots that others leave", nodes(1),
			[]Pod{until(mig("a", 4, 2), 4), mig("b", 4, 2), from(mig("c", 4, 2), 2)},
			Result{Placed: 3, Waiting: 1, Waited: 1, LongestWait: 2, Occupied: 10, Shared: 10, Requested: 11}},
		{"a queued pod leaves what others need", nodes(2),
			[]Pod{queued(whole("q", 2, 0, 10)), whole("a", 1, 0, 4), queued(whole("r", 1, 2, 9))},
			Result{Placed: 1, Occupied: 4 + 7 + 2, Requested: 4, Served: 7 + 2}},
		{"three shares of a third", nodes(2), []Pod{slice("a", 1./3, 0.5, 0.3, 0, 10), slice("b", 1./3, 0.4, 0.3, 0, 10),
			slice("c", 1./3, 0.2, 0.3, 4, 8)},
			Result{Placed: 3, Occupied: 10, Shared: 10, Throttled: 4, Excess: 0.4, Requested: 20./3 + 4./3}},
		{"halves fill the GPUs of one node before the next", nodes(2, 2), []Pod{slice("a", 0.5, 0, 0, 0, 10),
			slice("b", 0.5, 0, 0, 1, 10), slice("c", 0.5, 0, 0, 2, 10), slice("d", 0.5, 0, 0, 3, 10), whole("e", 2, 4, 10)},
			Result{Placed: 5, Occupied: 10 + 8 + 12, Shared: 9 + 7, Requested: 5 + 4.5 + 4 + 3.5 + 12}},
		// Two of a gang of two wait together behind two that are alone.
		{"a gang waits between others", nodes(2), []Pod{whole("x", 2, 0, 4), whole("a", 1, 1, 10), gang(whole("g0", 1, 1, 10), "g"),
			gang(whole("g1", 1, 1, 10), "g"), whole("b", 1, 1, 10)},
			Result{Placed: 3, Waiting: 4, Unplaced: 2, Waited: 3 + 3 + 9 + 9, LongestWait: 9, Occupied: 8 + 6 + 6, Requested: 8 + 36}},
		{"a part goes to the fuller of two shared nodes", nodes(2, 2), []Pod{whole("w", 1, 0, 10), slice("a", 0.5, 0, 0, 1, 10),
			slice("b", 1, 0, 0, 2, 10), slice("c", 0.5, 0, 0, 3, 10), whole("d", 1, 4, 10)},
			Result{Placed: 5, Occupied: 10 + 9 + 8 + 6, Shared: 7, Requested: 10 + 4.5 + 8 + 3.5 + 6}},
		{"memory does not suffice", nodes(1), []Pod{slice("a", 0.5, 0.1, 0.6, 0, 10), slice("b", 0.5, 0.1, 0.6, 5, 10)},
			Result{Placed: 2, Occupied: 10, Shared: 5, Evicted: 1, Requested: 7.5}},
		{"a share and a MIG device need two GPUs", nodes(1), []Pod{slice("a", 0.5, 0, 0, 0, 10), mig("b", 1, 7)},
			Result{Placed: 1, Waiting: 1, Unplaced: 1, Waited: 1.25, LongestWait: 10, Occupied: 10, Requested: 6.25}},
		{"a share leaves its GPU", nodes(1), []Pod{slice("a", 0.5, 0.9, 0, 0, 4), slice("b", 0.5, 0.9, 0, 0, 10), whole("c", 1, 10, 12)},
			Result{Placed: 3, Occupied: 12, Shared: 4, Throttled: 4, Excess: 3.2, Requested: 9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Run(tt.nodes, tt.pods)
			near := func(x *float64, y float64) {
				if math.Abs(*x-y) < 1e-9 {
					*x = y
				}
			}
			near(&got.Excess, tt.want.Excess)
			near(&got.Requested, tt.want.Requested)
			if got != tt.want {
				t.Errorf("%+v, want\n%+v", got, tt.want)
			}
			// What ends early is not feasible, and nothing else is.
			for _, budget := range []float64{0, 0.01, 0.1, 0.2, 0.5, 0.9} {
				if is := Within(tt.nodes, tt.pods, budget); is.Feasible(budget) != got.Feasible(budget) || is.Feasible(budget) &&
					is.Placed != got.Placed {
					t.Errorf("within %g: %+v", budget, is)
				}
			}
			sorted := slices.Clone(tt.pods)
			if Sort(sorted); Run(tt.nodes, sorted).Waited != got.Waited {
				t.Error("the order of pods counts")
			}
		})
	}
}

// TestOwners: what several owners have in common counts for each of them, once.
func TestOwners(t *testing.T) {
	owned := func(p Pod, owner string) Pod { p.Owner = owner; return p }
	for _, tt := range []struct {
		name  string
		nodes []Node
		pods  []Pod
		want  map[string]Result
	}{
		{"waits", nodes(2), []Pod{owned(whole("a", 2, 0, 4), "x"), owned(whole("b", 1, 1, 6), "y"), whole("c", 1, 1, 6)},
			map[string]Result{"x": {Placed: 1, Occupied: 8, Requested: 8},
				"y": {Placed: 1, Waiting: 1, Waited: 3, LongestWait: 3, Occupied: 2, Requested: 5}}},
		{"has no place", nodes(2), []Pod{owned(whole("a", 3, 0, 4), "x")},
			map[string]Result{"x": {Unplaced: 1, Waiting: 1, Waited: 12, LongestWait: 4, Requested: 12}}},
		{"two on a GPU", nodes(1), []Pod{owned(slice("a", 0.5, 0.6, 0.6, 0, 10), "x"), owned(slice("b", 0.5, 0.6, 0.6, 4, 8), "y")},
			map[string]Result{"x": {Placed: 1, Occupied: 10, Requested: 5, Shared: 4, Throttled: 4, Evicted: 1},
				"y": {Placed: 1, Requested: 2, Shared: 4, Throttled: 4, Evicted: 1}}},
		{"three of two owners", nodes(1), []Pod{owned(slice("a", 0.25, 0.5, 0, 0, 10), "x"), owned(slice("b", 0.25, 0.3, 0, 0, 10), "x"),
			owned(slice("c", 0.25, 0.3, 0, 2, 6), "y")},
			map[string]Result{"x": {Placed: 2, Occupied: 10, Requested: 5, Shared: 10, Throttled: 4},
				"y": {Placed: 1, Requested: 1, Shared: 4, Throttled: 4}}},
		{"nobody's", nodes(1), []Pod{slice("a", 0.5, 0.9, 0, 0, 10), slice("b", 0.5, 0.9, 0, 0, 10)}, map[string]Result{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			w.budget = -1
			got := w.run(tt.nodes, tt.pods)
			if len(got) != len(tt.want) {
				t.Errorf("%d owners", len(got))
			}
			for owner, want := range tt.want {
				if r := got[owner]; r == nil || *r != want {
					t.Errorf("%s: %+v, want\n%+v", owner, r, want)
				}
			}
		})
	}
}

func TestFeasible(t *testing.T) {
	for _, tt := range []struct {
		r    Result
		want bool
	}{
		{Result{Requested: 1000, Waited: 1, Shared: 1000, Throttled: 1}, true},
		{Result{Requested: 1000, Waited: 1.1}, false},
		{Result{Shared: 1000, Throttled: 2}, false},
		{Result{Requested: 1000, Unplaced: 1}, false},
		{Result{Evicted: 1}, false},
	} {
		if got := tt.r.Feasible(0.001); got != tt.want {
			t.Errorf("%+v: %v", tt.r, got)
		}
	}
}

func TestLevels(t *testing.T) {
	of := []float64{0, 0.3, 0.31, 2, 2.3, 1.5, 0, 1}
	got := fmt.Sprint(func() (out []string) {
		for _, p := range Levels(len(of), Pod{ID: "x"}, func(k int) float64 { return of[k] }) {
			out = append(out, fmt.Sprintf("%s %d: %d-%d", p.ID, p.GPUs, p.From, p.To))
		}
		return out
	}())
	if got != "[x 1: 2-3 x 2: 3-6 x 1: 7-8]" {
		t.Error(got)
	}
}

// Nodes are set aside for parts only where those that are time-sliced have no free part as large, and none that is bound to a whole GPU.
func TestSetAside(t *testing.T) {
	half, quarter := slice("half", 0.5, 0, 0, 0, 10), slice("quarter", 0.25, 0, 0, 0, 10)
	three := []Pod{slice("1", 0.25, 0, 0, 0, 10), slice("2", 0.25, 0, 0, 0, 10), slice("3", 0.25, 0, 0, 0, 10)}
	apart := func(p Pod) Pod { p.ID, p.Apart = p.ID+"'", "x/y"; return p }
	daemon := whole("d", 1, 0, 10)
	daemon.Node = "n1"
	for _, tt := range []struct {
		name         string
		there, sized []Pod
		want         string // what n0, n1 and n2 offer
	}{
		{"a free part", three, []Pod{quarter}, "1/4 whole whole"},
		{"none free", append(slices.Clone(three), slice("4", 0.25, 0, 0, 0, 10)), []Pod{quarter}, "1/4 1/4 whole"},
		{"free once another ends", append(slices.Clone(three), slice("4", 0.25, 0, 0, 0, 10)),
			[]Pod{slice("later", 0.25, 0, 0, 10, 20)}, "1/4 whole whole"},
		{"free parts are too small", nil, []Pod{half}, "1/4 1/2 whole"},
		{"a larger part is enough", three, []Pod{half, quarter, slice("q", 0.25, 0, 0, 0, 10)}, "1/4 1/2 whole"},
		{"replicas of which no two are on one node", three, []Pod{apart(half), apart(slice("h", 0.5, 0, 0, 0, 10))}, "1/4 1/2 1/2"},
		{"a node with what is bound to it", []Pod{daemon}, []Pod{half}, "1/4 whole 1/2"},
		{"whole GPUs", nil, []Pod{whole("w", 1, 0, 10)}, "1/4 whole whole"},
	} {
		list := nodes(1, 1, 1)
		list[0].Offers, list[0].Part, list[1].Offers, list[2].Offers = Sliced, 0.25, Whole, Whole
		(&Fleet{}).setAside(list, slices.Concat(tt.there, tt.sized), tt.sized)
		got := ""
		for _, n := range list {
			if got += " whole"; n.Offers == Sliced {
				got = fmt.Sprintf("%s 1/%g", strings.TrimSuffix(got, " whole"), 1/n.Part)
			}
		}
		if got != " "+tt.want {
			t.Errorf("%s:%s, want %s", tt.name, got, tt.want)
		}
	}
}
