package account

import (
	"fmt"
	"math"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The life of the instances of one GPU, step by step: an instance has its counters while it exists, a recreated one
// starts at 0, and what is not read stands still. The GPU's total is the sum of its instances by their share.
func TestLifeOfInstances(t *testing.T) {
	in := func(uuid gpu.UUID, gi, slices int, compute ...gpu.UUID) gpu.Instance {
		i := gpu.Instance{UUID: uuid, GI: gi, Profile: fmt.Sprintf("%dg", slices), Slices: slices,
			Share: gpu.Some(gpu.Ratio(slices) / 7), Compute: []gpu.ComputeInstance{{UUID: uuid}}}
		for n, u := range compute {
			i.Compute = append(i.Compute, gpu.ComputeInstance{UUID: u, CI: n + 1})
		}
		return i
	}
	type counters map[gpu.UUID][2]float64 // busy and observed of each instance, in seconds
	const lost = -1                       // in place of a busy share: the GPU cannot be read
	steps := []struct {
		name   string
		layout []gpu.Instance
		busy   map[gpu.UUID]float64 // for 10 s; of an instance that is missing, no sample
		want   counters
		total  float64 // busy GPU-seconds since the start
	}{
		{name: "two instances", layout: []gpu.Instance{in("a", 1, 2), in("b", 2, 1)}, busy: map[gpu.UUID]float64{"a": .5, "b": 1},
			want: counters{"a": {5, 10}, "b": {10, 10}}, total: 5*2./7 + 10./7},
		{name: "the last is removed", layout: []gpu.Instance{in("a", 1, 2)}, busy: map[gpu.UUID]float64{"a": .5},
			want: counters{"a": {10, 20}}, total: 10*2./7 + 10./7},
		{name: "one of the same size is created", layout: []gpu.Instance{in("a", 1, 2), in("c", 3, 1)},
			busy: map[gpu.UUID]float64{"a": 0, "c": 1}, want: counters{"a": {10, 30}, "c": {10, 10}}, total: 10*2./7 + 20./7},
		{name: "another takes its place", layout: []gpu.Instance{in("a", 1, 2), in("d", 3, 1)},
			busy: map[gpu.UUID]float64{"a": 0, "d": .2}, want: counters{"a": {10, 40}, "d": {2, 10}}, total: 10*2./7 + 22./7},
		{name: "its compute instances change", layout: []gpu.Instance{in("a", 1, 2), in("d", 3, 1, "d1")},
			busy: map[gpu.UUID]float64{"a": 0, "d": .2}, want: counters{"a": {10, 50}, "d": {4, 20}}, total: 10*2./7 + 24./7},
		{name: "the first is resized under its name", layout: []gpu.Instance{in("a", 1, 4), in("d", 3, 1)},
			busy: map[gpu.UUID]float64{"a": .5, "d": 0}, want: counters{"a": {5, 10}, "d": {4, 30}}, total: 10*2./7 + 5*4./7 + 24./7},
		{name: "one has no sample", layout: []gpu.Instance{in("a", 1, 4), in("d", 3, 1)}, busy: map[gpu.UUID]float64{"d": 1},
			want: counters{"a": {5, 10}, "d": {14, 40}}, total: 10*2./7 + 5*4./7 + 34./7},
		{name: "the GPU hangs", layout: []gpu.Instance{in("a", 1, 4), in("d", 3, 1)}, busy: map[gpu.UUID]float64{"a": lost}},
		{name: "and returns", layout: []gpu.Instance{in("a", 1, 4), in("d", 3, 1)}, busy: map[gpu.UUID]float64{"a": 1, "d": 0},
			want: counters{"a": {15, 20}, "d": {14, 50}}, total: 10*2./7 + 15*4./7 + 34./7},
		{name: "all are removed", want: counters{}, total: 10*2./7 + 15*4./7 + 34./7},
	}
	w := newWorld(t, "A")
	a := w.devices[0]
	clock, unavailable := 0.0, 0.0
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			a.slow = &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{Current: true}), Instances: s.layout}
			a.gpm, a.availability = s.busy, Readable
			if a.gpm == nil {
				a.gpm = map[gpu.UUID]float64{}
			}
			if s.busy["a"] == lost {
				a.availability, unavailable = Unavailable, unavailable+10
			}
			w.allocs.List = nil
			if len(s.layout) > 0 {
				w.allocs.List = []gpu.Allocation{holdInstance("p", "A", s.layout[0].UUID, 1)}
			}
			w.steps(5, 2)
			clock += 10
			got := w.device("A")
			if len(got.Instances) != len(s.layout) {
				t.Fatalf("%d instances, want %d", len(got.Instances), len(s.layout))
			}
			for _, i := range got.Instances {
				if a.availability != Readable {
					absent(t, string(i.UUID)+" busy", i.Activity.Busy)
					continue
				}
				value(t, string(i.UUID)+" busy", i.Activity.Busy, s.want[i.UUID][0])
				value(t, string(i.UUID)+" observed", i.Activity.Observed, s.want[i.UUID][1])
			}
			if a.availability == Readable {
				value(t, "the GPU's busy", got.Activity.Busy, s.total)
			}
			sum := 0.0
			for _, v := range got.GPUSeconds {
				sum += float64(v)
			}
			near(t, "all seconds", sum, clock)
			near(t, "unavailable", float64(got.GPUSeconds[gpu.TimeUnavailable]), unavailable)
			for _, e := range got.AttributionErrors {
				if math.Abs(float64(e.Ratio)) > 1e-9 {
					t.Errorf("%s: attribution error %v", e.Quantity, e.Ratio)
				}
			}
		})
	}
}

// Polls of less than a second; instances that are not measured, or whose share is unknown, say nothing of the GPU.
func TestInstancesInTheTotal(t *testing.T) {
	layout := func(share gpu.Opt[gpu.Ratio]) *gpu.Slow {
		s := migSlow(1)
		s.Instances[0].Share = share
		return s
	}
	seventh := gpu.Some(gpu.Ratio(1. / 7))
	for _, c := range []struct {
		name           string
		slow           *gpu.Slow
		gpm            map[gpu.UUID]float64
		busy, observed float64 // of 5 s; -1: absent
		peak           float64
	}{
		{"measured", layout(seventh), map[gpu.UUID]float64{"MIG-1": .7}, .5, 5, .1},
		{"not measured", layout(seventh), map[gpu.UUID]float64{}, -1, -1, -1},
		{"of an unknown share", layout(gpu.None[gpu.Ratio]()), map[gpu.UUID]float64{"MIG-1": .7}, -1, -1, -1},
	} {
		w := newWorld(t, "A")
		w.devices[0].slow, w.devices[0].gpm = c.slow, c.gpm
		w.step(0)
		w.steps(10, .5)
		g := gpu.GPU{Identity: gpu.Identity{UUID: "A"}, Instances: []gpu.InstanceActivity{{}, {}, {}}} // of the view before
		w.Fill(&g)
		if len(g.Instances) != 1 {
			t.Errorf("%s: %d instances", c.name, len(g.Instances))
		}
		if c.busy < 0 {
			absent(t, c.name+": busy", g.Activity.Busy)
			absent(t, c.name+": peak", g.Activity.Peak)
			continue
		}
		value(t, c.name+": busy", g.Activity.Busy, c.busy)
		value(t, c.name+": observed", g.Activity.Observed, c.observed)
		value(t, c.name+": peak", g.Activity.Peak, c.peak)
	}
}

// TestContainersOfComputeInstances: three containers have a compute instance of one MIG instance each. Once the samples
// differ, each gets the time of its own and no other's, idle time included, and the GPU's time is that of the compute
// instances. While the samples are all alike they may be those of the MIG instance, and without samples there are none:
// then nobody gets the time of an instance with processes of several containers.
func TestContainersOfComputeInstances(t *testing.T) {
	const first, second, third = "MIG-1", "MIG-1b", "MIG-1c"
	process := func(pid, ci int) gpu.Process {
		return gpu.Process{PID: pid, GI: gpu.Some(1), CI: gpu.Some(ci), Memory: gpu.Some[gpu.Bytes](1 << 30)}
	}
	start := func() (*world, *fakeGPU) {
		w := newWorld(t, "A")
		a := w.devices[0]
		a.slow, a.gpm = migSlow(1), map[gpu.UUID]float64{"MIG-1": 1}
		a.slow.Instances[0].Share = gpu.Some(gpu.Ratio(3. / 7))
		for i, uuid := range []gpu.UUID{first, second, third} {
			a.slow.Instances[0].Compute = append(a.slow.Instances[0].Compute,
				gpu.ComputeInstance{UUID: uuid, CI: i, Index: i, SMs: gpu.Some(16)})
			h := holdInstance(string(rune('p'+i)), "A", "MIG-1", 1./3)
			h.ComputeInstance, h.Shared = uuid, false
			w.allocs.List = append(w.allocs.List, h)
		}
		w.users = Users{11: {Container: pod("p")}, 12: {Container: pod("q")}}
		a.medium = &gpu.Medium{Processes: gpu.Some([]gpu.Process{process(11, 0), process(12, 1)})}
		return w, a
	}
	sampled := func(a *fakeGPU, busy ...float64) {
		a.compute = map[gpu.UUID]map[gpu.UUID]float64{"MIG-1": {first: busy[0], second: busy[1], third: busy[2]}}
	}
	errors := func(w *world) {
		t.Helper()
		for _, e := range w.device("A").AttributionErrors {
			near(t, "attribution error of "+e.Quantity, float64(e.Ratio), 0)
		}
	}

	w, a := start()
	sampled(a, .8, 0, 0)
	w.steps(3, 2) // the samples differ by more than a second
	before := w.container("p", "A").Busy.Or(0)
	was := w.device("A")
	w.steps(100, 2)
	for name, want := range map[string][3]float64{"p": {160, 0, 40}, "q": {0, 140, 60}, "r": {0, 140, 60}} {
		c := w.container(name, "A")
		if c.Attribution != attributionMIG {
			t.Errorf("%s: method %q", name, c.Attribution)
		}
		near(t, name+" busy", float64(c.Busy.Or(-1)-map[bool]gpu.Seconds{true: before}[name == "p"]), want[0]/7)
		if idle := float64(c.Idle.Or(-1)); math.Abs(idle-want[1]/7) > 1 {
			t.Errorf("%s was idle for %v s", name, idle)
		}
		value(t, name+" allocated", c.Allocated, 204./7)
	}
	got := w.device("A")
	near(t, "the GPU's busy time", float64(got.Activity.Busy.Or(-1)-was.Activity.Busy.Or(0)), 160./7)
	near(t, "the busy state", float64(got.GPUSeconds[gpu.TimeBusy]-was.GPUSeconds[gpu.TimeBusy]), 160./7)
	near(t, "the unallocated state", float64(got.GPUSeconds[gpu.TimeUnallocated]-was.GPUSeconds[gpu.TimeUnallocated]), 200*4./7)
	value(t, "allocated of the instance", got.Instances[0].AllocationRatio, 1)
	errors(w)

	// Another takes over, and the first is quiet.
	sampled(a, 0, .5, 0)
	p, q := w.container("p", "A").Busy.Or(-1), w.container("q", "A").Busy.Or(-1)
	w.steps(10, 2)
	near(t, "the quiet one", float64(w.container("p", "A").Busy.Or(-1)-p), 0)
	near(t, "the other", float64(w.container("q", "A").Busy.Or(-1)-q), 10./7)
	// The driver stops sampling: nobody gets what two may have done, and nobody is idle meanwhile.
	a.compute = nil
	p, q = w.container("p", "A").Busy.Or(-1), w.container("q", "A").Busy.Or(-1)
	w.steps(10, 2)
	near(t, "the first without samples", float64(w.container("p", "A").Busy.Or(-1)-p), 0)
	near(t, "the other without samples", float64(w.container("q", "A").Busy.Or(-1)-q), 0)
	for _, name := range []string{"p", "q", "r"} {
		if c := w.container(name, "A"); c.Attribution != attributionNone {
			t.Errorf("%s without samples: method %q", name, c.Attribution)
		}
	}
	value(t, "unmeasured", unattributedBy(t, w.device("A"), gpu.UnattributedUnmeasured).Busy, 20*3./7)
	errors(w)
	// A compute instance that the layout does not list yet: nothing of the instance is known to be unallocated.
	sampled(a, 0, .5, 0)
	w.allocs.List[2].ComputeInstance = "MIG-1d"
	w.steps(2, 2)
	unallocated := w.device("A").GPUSeconds[gpu.TimeUnallocated]
	w.steps(10, 2)
	near(t, "unallocated", float64(w.device("A").GPUSeconds[gpu.TimeUnallocated]-unallocated), 20*4./7)

	// A driver that returns the activity of the MIG instance for each of them.
	w, a = start()
	sampled(a, .6, .6, .6)
	a.gpm["MIG-1"] = .6
	w.steps(100, 2)
	for _, name := range []string{"p", "q", "r"} {
		if c := w.container(name, "A"); c.Attribution != attributionNone || c.Busy.Or(0) > 0 {
			t.Errorf("%s by samples that are all alike: %+v", name, c)
		}
	}
	errors(w)

	// Two of them are one container's, whose allocation has one series.
	w, a = start()
	w.allocs.List[1].Container, w.users[12] = pod("p"), w.users[11]
	sampled(a, .8, .4, 0)
	w.steps(20, 2)
	if list := w.Allocations(); len(list) != 2 || list[0].Shared || list[0].ComputeInstance != "" {
		t.Errorf("%+v", list)
	} else {
		value(t, "the ratio of two compute instances", list[0].AllocationRatio, 2./7)
	}
	if c := w.container("p", "A"); c.Attribution != attributionMIG || c.Busy.Or(0) < 36*1.2/7 {
		t.Errorf("two compute instances: %+v", c)
	}
}

// An instance that was recreated with another share of the GPU under its UUID is allocated and counted by the new one.
func TestShareOfARecreatedInstance(t *testing.T) {
	c := newGPU(gpu.Identity{UUID: "A"}, epoch)
	slow := migSlow(2)
	if !c.layout(slow) || c.layout(migSlow(2)) {
		t.Fatal("a new layout, and the same again")
	}
	slow = migSlow(2)
	slow.Instances[0].Share = gpu.Some(gpu.Ratio(2. / 7))
	if !c.layout(slow) || c.parts[0].share != 2./7 {
		t.Errorf("%+v", c.parts[0])
	}
}
