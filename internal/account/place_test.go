package account

import (
	"fmt"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What is allocated of a GPU, and what is known to be unallocated: shares add up to the whole from 0.9995 on, above it
// they are scaled down, and one of unknown size leaves the rest unknown.
func TestAllocationOfAGPU(t *testing.T) {
	unknown := allocate("u", "A", 0)
	unknown.Share = gpu.None[gpu.Ratio]()
	negative := allocate("n", "A", -.5)
	for _, c := range []struct {
		list             []gpu.Allocation
		known, uncertain bool
		allocation       float64 // -1: absent
		shares           []float64
		rest             float64
		restKnown, sole  bool
	}{
		{nil, true, false, 0, nil, 1, true, false},
		{nil, true, true, -1, nil, 1, false, false},
		{nil, false, false, -1, nil, 1, false, false},
		{[]gpu.Allocation{allocate("p", "A", 1)}, true, false, 1, []float64{1}, 0, true, true},
		{[]gpu.Allocation{allocate("p", "A", 1)}, true, true, 1, []float64{1}, 0, false, true},
		{[]gpu.Allocation{allocate("p", "A", 1)}, false, false, -1, []float64{1}, 0, false, true},
		{[]gpu.Allocation{allocate("p", "A", .9995)}, true, false, 1, []float64{1}, 0, true, true},
		{[]gpu.Allocation{allocate("p", "A", .999)}, true, false, .999, []float64{.999}, .001, true, false},
		{[]gpu.Allocation{allocate("p", "A", .75), allocate("p", "A", .25)}, true, false, 1, []float64{1}, 0, true, true},
		{[]gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}, true, false, 1, []float64{.5, .5}, 0, true, false},
		{[]gpu.Allocation{allocate("p", "A", 1), allocate("q", "A", 3)}, true, false, 1, []float64{.25, .75}, 0, true, false},
		{[]gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .25)}, true, false, .75, []float64{.5, .25}, .25, true, false},
		{[]gpu.Allocation{allocate("p", "A", .5), unknown}, true, false, -1, []float64{.5}, .5, false, false},
		{[]gpu.Allocation{allocate("p", "A", 1), unknown}, true, false, 1, []float64{1}, 0, false, false},
		{[]gpu.Allocation{negative}, true, false, -1, nil, 1, false, false},
		{[]gpu.Allocation{allocate("p", "A", 0)}, true, false, 0, []float64{0}, 1, true, false},
		{[]gpu.Allocation{allocate("p", "B", 1)}, true, false, 0, nil, 1, true, false},
	} {
		w := newWorld(t, "A")
		w.allocs = gpu.Allocations{Configured: true, Known: c.known, Uncertain: c.uncertain, List: c.list}
		w.step(0)
		p := w.Ledger.devices["A"].parts[0]
		name := fmt.Sprintf("%v, known %v, uncertain %v", c.list, c.known, c.uncertain)
		if c.allocation < 0 {
			absent(t, name, w.device("A").AllocationRatio)
		} else {
			value(t, name, w.device("A").AllocationRatio, c.allocation)
		}
		var shares []float64
		for _, r := range p.rows {
			shares = append(shares, r.share)
		}
		if len(shares) != len(c.shares) {
			t.Fatalf("%s: shares %v", name, shares)
		}
		for i, v := range c.shares {
			near(t, name+": share", shares[i], v)
		}
		near(t, name+": unallocated", p.unallocated, c.rest)
		if p.unallocatedKnown != c.restKnown || (p.sole() != nil) != c.sole {
			t.Errorf("%s: known %v, sole %v", name, p.unallocatedKnown, p.sole())
		}
	}
}

// Under MIG an allocation is of an instance, by its UUID or that of one of its compute instances, or of the whole GPU;
// its fraction of the physical GPU is that of the instance. Three instances of a seventh, the last of unknown size.
func TestAllocationOfInstances(t *testing.T) {
	slow := migSlow(3)
	slow.Instances[1].Compute = []gpu.ComputeInstance{{UUID: "MIG-2-0"}, {UUID: "MIG-2-1"}}
	slow.Instances[2].Share = gpu.None[gpu.Ratio]()
	for _, c := range []struct {
		instance   gpu.UUID
		share      float64
		physical   float64 // -1: absent
		allocation float64 // of the GPU
		instances  [3]float64
	}{
		{"MIG-1", 1, 1. / 7, 1. / 7, [3]float64{1, 0, 0}}, {"MIG-1", .5, .5 / 7, .5 / 7, [3]float64{.5, 0, 0}},
		{"MIG-2-1", 1, 1. / 7, 1. / 7, [3]float64{0, 1, 0}}, {"MIG-3", 1, -1, -1, [3]float64{0, 0, -1}},
		{"MIG-9", 1, -1, -1, [3]float64{-1, -1, -1}}, {"", 1, 1, -1, [3]float64{1, 1, -1}}, {"", .5, .5, -1, [3]float64{.5, .5, -1}},
	} {
		w := newWorld(t, "A")
		w.devices[0].slow = slow
		w.allocs.List = []gpu.Allocation{holdInstance("p", "A", c.instance, c.share)}
		w.step(0)
		name := fmt.Sprintf("%v of %q", c.share, c.instance)
		g := w.device("A")
		for what, x := range map[string]struct {
			got  gpu.Opt[gpu.Ratio]
			want float64
		}{": physical": {w.Allocations()[0].AllocationRatio, c.physical}, ": GPU": {g.AllocationRatio, c.allocation},
			": first": {g.Instances[0].AllocationRatio, c.instances[0]}, ": second": {g.Instances[1].AllocationRatio, c.instances[1]},
			": third": {g.Instances[2].AllocationRatio, c.instances[2]}} {
			if x.want < 0 {
				absent(t, name+what, x.got)
			} else {
				value(t, name+what, x.got, x.want)
			}
		}
	}
	w := newWorld(t, "A")
	unknown := allocate("p", "A", 1)
	unknown.Share = gpu.None[gpu.Ratio]()
	w.allocs.List = []gpu.Allocation{allocate("p", "X", .5), unknown, holdInstance("q", "X", "MIG-1", 1)}
	w.step(0)
	list := w.Allocations()
	value(t, "of a GPU that was never read", list[1].AllocationRatio, .5)
	absent(t, "of an unknown size", list[0].AllocationRatio)
	absent(t, "of an instance that was never read", list[2].AllocationRatio)
	if list[0].Index != 0 || list[1].Index != -1 {
		t.Errorf("indices %d, %d", list[0].Index, list[1].Index)
	}
}

// Slices that exceed the GPU are scaled down: two halves and three quarters.
func TestSlicesThatExceedTheGPU(t *testing.T) {
	w := newWorld(t, "A")
	s := migSlow(3)
	for i, share := range []gpu.Ratio{.5, .5, .75} {
		s.Instances[i].Share = gpu.Some(share)
	}
	w.devices[0].slow = s
	w.step(0)
	sum := 0.0
	for i, want := range []float64{.5 / 1.75, .5 / 1.75, .75 / 1.75, 0} {
		p := w.Ledger.devices["A"].parts[i]
		near(t, "share", p.share, want)
		sum += p.share
	}
	near(t, "sum", sum, 1)
}
