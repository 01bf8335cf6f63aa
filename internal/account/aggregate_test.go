package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Who comes when there is no room is one of the others; who is there stays, and a place that is free is given again.
func TestFirstComeFirstNamed(t *testing.T) {
	w := newWorldOf(t, Options{Accounts: 2}, "A")
	w.devices[0].util, w.devices[0].watts = .5, 100
	w.allocs.List = []gpu.Allocation{allocate("m", "A", .25), allocate("n", "A", .25)}
	w.steps(2, 2)
	w.allocs.List = []gpu.Allocation{allocate("a", "A", .25), allocate("b", "A", .25), allocate("m", "A", .25), allocate("n", "A", .25)}
	w.steps(5, 2)
	for _, name := range []string{"m", "n", "other"} {
		w.container(name, "A")
	}
	if c, ok := w.find("a", "A"); ok {
		t.Errorf("no room, and still %+v", c)
	}
	allocated, _ := w.container("other", "A").Allocated.Get()
	if allocated < 3.9 || allocated > 5.1 { // two quarters of some ten seconds
		t.Errorf("the others allocated %v", allocated)
	}
	if a := w.Accounts(); a != (gpu.Accounts{Own: 2, Limit: 2, Aggregated: 2, Aggregations: 2}) {
		t.Errorf("%+v", a)
	}
	// m goes; its counters stand for a minute at least, then they make room.
	w.allocs.List = []gpu.Allocation{allocate("a", "A", .25), allocate("b", "A", .25), allocate("n", "A", .25)}
	w.steps(29, 2)
	if c := w.container("m", "A"); !c.Ended {
		t.Errorf("%+v", c)
	}
	w.steps(3, 2)
	w.container("a", "A")
	if _, ok := w.find("m", "A"); ok {
		t.Error("m is still there")
	}
	if a := w.Accounts(); a.Own != 2 || a.Aggregated != 1 || a.Aggregations != 2 {
		t.Errorf("%+v", a)
	}
}

// Of accounts that ended together, the first by name makes room.
func TestAccountsThatEndTogether(t *testing.T) {
	for range 8 { // the rows are in a map
		w := newWorldOf(t, Options{Accounts: 3}, "A")
		w.allocs.List = []gpu.Allocation{allocate("l", "A", .25), allocate("m", "A", .25), allocate("n", "A", .25)}
		w.steps(2, 2)
		w.allocs.List = nil
		w.steps(40, 2)
		w.allocs.List = []gpu.Allocation{allocate("a", "A", .25)}
		w.step(2)
		for name, want := range map[string]bool{"a": true, "l": false, "m": true, "n": true} {
			if _, ok := w.find(name, "A"); ok != want {
				t.Fatalf("%s has an account: %v", name, ok)
			}
		}
	}
}

// A container of one GPU that works on another is no other process because its account could not be made.
func TestAggregatedContainersKeepTheirAllocation(t *testing.T) {
	w := newWorldOf(t, Options{Accounts: 1}, "A", "B")
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1), allocate("q", "B", 1)}
	w.users = Users{1: {Container: pod("q")}}
	w.devices[0].medium = &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80, Used: 10}),
		Processes: gpu.Some([]gpu.Process{{PID: 1, Memory: gpu.Some(gpu.Bytes(7))}})}
	w.steps(30, 2)
	if c := w.container("other", "A"); len(c.Mismatch) != 1 || c.Mismatch[0] != "used_other_gpu" || c.Memory.Or(0) != 7 {
		t.Errorf("%+v", c)
	}
	if c := w.container("other", "B"); c.Allocated.Or(0) < 50 {
		t.Errorf("%+v", c)
	}
}

// What a node publishes of containers stays bounded whatever comes and goes, and each second of a GPU has its use.
func TestPublishedChurnIsBounded(t *testing.T) {
	const limit = 20
	w := newWorldOf(t, Options{Accounts: limit}, "A", "B")
	w.devices[0].util, w.devices[1].util = .5, .9
	maxRate := 0
	for i := range 400 {
		w.allocs.List = nil
		for j := range 10 {
			w.allocs.List = append(w.allocs.List, allocate(fmt.Sprintf("job-%05d", i*5+j), gpu.UUID("AB"[j%2:j%2+1]), .2))
		}
		w.allocs.Unresolved = nil
		for j := range 3 * limit {
			w.allocs.Unresolved = append(w.allocs.Unresolved,
				gpu.Unresolved{Container: pod(fmt.Sprintf("blind-%d-%d", i, j)), Resource: fmt.Sprint("r", j%2), Devices: 1})
		}
		w.step(2)
		checkCeiling(t, w, i)
		maxRate = max(maxRate, len(w.Containers()))
		devices := 0
		for _, u := range w.InForce().Unresolved {
			devices += u.Devices
		}
		if devices != 3*limit || len(w.InForce().Unresolved) > limit+2 {
			t.Fatalf("%d devices in %d rows", devices, len(w.InForce().Unresolved))
		}
	}
	if maxRate != limit+2 {
		t.Errorf("at most %d accounts were published", maxRate)
	}
	if f := &w.Ledger.aggregation; len(f.now)+len(f.before)+len(f.evicted)+len(f.unplaced) > 10*limit { // of thousands
		t.Error("the aggregated are remembered for ever")
	}
	for _, c := range []gpu.UUID{"A", "B"} {
		for _, e := range w.device(c).AttributionErrors {
			if e.Ratio != 0 {
				t.Errorf("%s: %s does not close", c, e.Quantity)
			}
		}
	}
}

// Holders of a GPU that was never met are published as containers, and so they are counted.
func TestAllocationsOfUnknownGPUsAreBounded(t *testing.T) {
	w := newWorldOf(t, Options{Accounts: 3}, "A")
	for i := range 10 {
		w.allocs.List = append(w.allocs.List, allocate(fmt.Sprint("p", i), "X", .1))
	}
	for i := range 10 {
		w.allocs.Pods = append(w.allocs.Pods, gpu.PodRef{Namespace: pod("").Namespace, Pod: fmt.Sprint("p", i)})
	}
	w.step(2)
	checkCeiling(t, w, 0)
	if n := len(w.Allocations()); n != 4 {
		t.Errorf("%d allocations", n)
	}
	if n := len(w.InForce().Pods); n != 3 {
		t.Errorf("%d pods", n)
	}
	if a := w.Accounts(); a != (gpu.Accounts{Own: 3, Limit: 3, Aggregated: 7, Aggregations: 7}) {
		t.Errorf("%+v", a)
	}
	// Those whose GPUs is unknown have their own count, and are counted when they are aggregated.
	w.allocs.List, w.allocs.Pods = nil, nil
	for i := range 10 {
		w.allocs.Unresolved = append(w.allocs.Unresolved, gpu.Unresolved{Container: pod(fmt.Sprint("u", i)), Resource: "r", Devices: 2})
		w.allocs.Pods = append(w.allocs.Pods, gpu.PodRef{Namespace: pod("").Namespace, Pod: fmt.Sprint("u", i)})
	}
	w.step(2)
	if h := w.InForce(); len(h.Unresolved) != 4 || h.Unresolved[3] != (gpu.Unresolved{Container: gpu.OtherContainers, Resource: "r",
		Devices: 14}) || len(h.Pods) != 3 {
		t.Errorf("%+v", h)
	}
	if a := w.Accounts(); a.Aggregated != 7 || a.Aggregations != 14 {
		t.Errorf("%+v", a)
	}
}

// What is kept from the polls before is what the ledger would compute now, whatever changes.
func TestNothingIsOutdated(t *testing.T) {
	w := newWorldOf(t, Options{Accounts: 3}, "A", "B")
	a, b := w.devices[0], w.devices[1]
	a.slow, b.id.Index = migSlow(2), -1
	w.allocs.List = []gpu.Allocation{holdInstance("p", "A", "MIG-1", 1), allocate("q", "B", .5), allocate("r", "X", 1)}
	limited := func(limit gpu.Bytes) {
		b.medium = &gpu.Medium{Cgroups: []gpu.CgroupMemory{{Container: pod("q"), Used: 1, Limit: gpu.Some(limit)}}}
	}
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"the first poll", func() {}}, {"nothing", func() {}},
		{"the size of an instance", func() { a.slow = migSlow(2); a.slow.Instances[0].Share = gpu.Some(gpu.Ratio(2. / 7)) }},
		{"an index", func() { b.id.Index = 1 }},
		{"a new GPU", func() { w.devices = append(w.devices, &fakeGPU{id: gpu.Identity{UUID: "X", Index: 2}}) }},
		{"a limit", func() { limited(5) }}, {"another limit", func() { limited(6) }}, {"no limit", func() { b.medium = nil }},
		{"unresolved devices", func() { w.allocs.Unresolved = []gpu.Unresolved{{Container: pod("s"), Resource: "x", Devices: 1}} }},
		{"a share", func() {
			w.allocs.List = []gpu.Allocation{w.allocs.List[0], allocate("q", "B", 1), allocate("r", "X", 1)}
		}},
		{"pods", func() { w.allocs.Pods = []gpu.PodRef{{Namespace: "t", Pod: "p"}} }},
		{"a forgotten GPU", func() { w.Forget("X"); w.devices = w.devices[:2] }},
		{"too many containers", func() { w.allocs.List = append(w.allocs.List, allocate("s", "A", 1)) }},
	} {
		poll := func() string {
			w.step(0)
			a := w.Accounts()
			a.Aggregations = 0
			return fmt.Sprintf("%+v %+v %+v %v", w.Allocations(), w.InForce(), a, w.device("B").AllocationRatio)
		}
		step.change()
		got := poll()
		w.placed, w.published = false, nil
		if want := poll(); got != want {
			t.Errorf("%s:\n%s, want\n%s", step.name, got, want)
		}
	}
}

func TestTogether(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	a := gpu.Allocation{Share: gpu.Some(gpu.Ratio(.5)), Source: "podresources", Since: gpu.Some(late), MemoryLimit: gpu.Some(gpu.Bytes(3))}
	b := gpu.Allocation{Share: gpu.Some(gpu.Ratio(.25)), Source: "podresources", Since: gpu.Some(early),
		ComputeLimit: gpu.Some(gpu.Ratio(.5))}
	want := gpu.Allocation{Share: gpu.Some(gpu.Ratio(.75)), Source: "podresources", Since: gpu.Some(early),
		MemoryLimit: gpu.Some(gpu.Bytes(3)), ComputeLimit: gpu.Some(gpu.Ratio(.5)), Shared: true}
	if got := merged(a, b); got != want {
		t.Errorf("%+v", got)
	}
	b = gpu.Allocation{Source: "annotation"}
	for _, got := range []gpu.Allocation{merged(a, b), merged(b, a)} {
		if got.Share.Present() || got.Since.Present() || got.Source != severalSources || got.MemoryLimit.Or(0) != 3 {
			t.Errorf("%+v", got)
		}
	}
}
