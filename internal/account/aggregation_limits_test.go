package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The account of an ended container makes room after a minute, not before, and the one that ended first does.
func TestEvictionAfterAMinute(t *testing.T) {
	w := newWorldOf(t, Options{Accounts: 2}, "A")
	w.allocs.List = []gpu.Allocation{allocate("x", "A", .25), allocate("y", "A", .25)}
	w.step(2)
	w.allocs.List = w.allocs.List[:1]
	w.step(2) // y ended at 4 s
	w.allocs.List = nil
	w.step(2) // x ended at 6 s
	w.allocs.List = []gpu.Allocation{allocate("a", "A", .25)}
	for w.now < 4+evictAfter-2 {
		w.step(2)
		if _, ok := w.find("a", "A"); ok {
			t.Fatalf("an account makes room at %v s", w.now)
		}
	}
	if w.container("other", "A").Ended {
		t.Error("the others have ended")
	}
	w.step(2)
	if _, ok := w.find("y", "A"); ok {
		t.Error("the account that ended first is still there")
	}
	w.container("a", "A")
	w.container("x", "A")
	if a := w.Accounts(); a != (gpu.Accounts{Own: 2, Limit: 2, Aggregated: 0, Aggregations: 1}) {
		t.Errorf("%+v", a)
	}
	// An account that was evicted does not return in the same poll.
	w.allocs.List = append(w.allocs.List, allocate("b", "A", .25), allocate("x", "A", .25))
	w.step(10)
	if _, ok := w.find("x", "A"); !ok {
		if _, ok := w.find("b", "A"); !ok {
			t.Error("neither the new container nor the old one has an account")
		}
	}
	if n := w.Accounts().Own; n != 2 {
		t.Errorf("%d accounts", n)
	}
}

// The default limit, and that a negative one is none.
func TestDefaultLimitOfAccounts(t *testing.T) {
	for given, want := range map[int]int{0: DefaultAccounts, -1: DefaultAccounts, 7: 7} {
		if got := New(Options{Accounts: given}).Accounts().Limit; got != want {
			t.Errorf("%d: %d, want %d", given, got, want)
		}
	}
}

// Containers above the limit that have one resource of one GPU are one allocation; of several resources or GPUs, several.
// Those of unknown GPUs are kept up to the limit, the rest adds up by resource; pods without an account are left out.
func TestAggregatedAllocations(t *testing.T) {
	other := func(h gpu.Allocation, resource string) gpu.Allocation { h.Resource = resource; return h }
	w := newWorldOf(t, Options{Accounts: 1}, "A", "B")
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .125), other(allocate("q", "A", .25), "r"),
		allocate("r", "A", .125), allocate("r", "B", .5), allocate("s", "B", .25)}
	w.allocs.Unresolved = []gpu.Unresolved{{Container: pod("u"), Resource: "r", Devices: 1},
		{Container: pod("v"), Resource: "r", Devices: 2},
		{Container: pod("w"), Resource: "r", Devices: 4}, {Container: pod("w"), Resource: "s", Devices: 8}}
	for _, name := range []string{"p", "q", "r", "s", "u", "v", "w"} {
		w.allocs.Pods = append(w.allocs.Pods, gpu.PodRef{Namespace: "t", Pod: name})
	}
	given := len(w.allocs.Pods)
	w.step(2)
	h := w.InForce()
	type merged struct {
		pod, resource string
		gpu           gpu.UUID
	}
	got := map[merged]float64{}
	for _, a := range h.List {
		got[merged{a.Container.Pod, a.Resource, a.GPU}] += float64(a.Share.Or(0))
	}
	want := map[merged]float64{{"p", "nvidia.com/gpu", "A"}: .5, {"other", "nvidia.com/gpu", "A"}: .25, {"other", "r", "A"}: .25,
		{"other", "nvidia.com/gpu", "B"}: .75}
	if len(got) != len(want) || len(h.List) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for at, share := range want {
		near(t, at.pod+" "+at.resource+" "+string(at.gpu), got[at], share)
	}
	unresolved := map[string]int{}
	for _, u := range h.Unresolved {
		unresolved[u.Container.Pod+" "+u.Resource] = u.Devices
	}
	if len(unresolved) != 3 || unresolved["u r"] != 1 || unresolved["other r"] != 6 || unresolved["other s"] != 8 {
		t.Errorf("%v", unresolved)
	}
	var pods []string
	for _, p := range h.Pods {
		pods = append(pods, p.Pod)
	}
	if len(pods) != 2 || pods[0] != "p" || pods[1] != "u" || len(w.allocs.Pods) != given || w.allocs.List[1].Container != pod("q") {
		t.Errorf("pods %v; what was given changed: %v", pods, w.allocs.List[1])
	}
	// At the limit nothing changes.
	w = newWorldOf(t, Options{Accounts: 1}, "A")
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5)}
	w.allocs.Unresolved = []gpu.Unresolved{{Container: pod("u"), Resource: "r", Devices: 1}}
	w.allocs.Pods = []gpu.PodRef{{Namespace: "t", Pod: "p"}, {Namespace: "t", Pod: "u"}, {Namespace: "t", Pod: "without a GPU"}}
	w.step(2)
	if h := w.InForce(); len(h.Pods) != 3 || len(h.Unresolved) != 1 || w.Accounts().Aggregated != 0 {
		t.Errorf("%+v", h)
	}
}
