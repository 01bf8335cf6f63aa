package account

import (
	"math"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// A container whose idle processes are listed is measured, as 0, beside a process that cannot be resolved; one without a
// process is not: the process may be its.
func TestIdleBesideUnresolved(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.weights, a.util = medium(8, 1, 1, 77, 1), true, weights(77, 50), .5
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	w.steps(60, 2)
	p, q := w.container("p", "A"), w.container("q", "A")
	value(t, "busy of p", p.Busy, 0)
	value(t, "processes of p", p.Processes, 1)
	value(t, "memory of p", p.Memory, 1<<30)
	absent(t, "busy of q", q.Busy)
	absent(t, "processes of q", q.Processes)
	absent(t, "memory of q", q.Memory)
	if p.Attribution != attributionProcess || q.Attribution != attributionNone {
		t.Errorf("p %q, q %q", p.Attribution, q.Attribution)
	}
	closes(t, w, "A")
}

// A container that has all instances and slices of a GPU is attributed by its instances: slices without an instance
// cannot be busy.
func TestWholeGPUUnderMIG(t *testing.T) {
	w := newWorld(t, "A")
	w.devices[0].slow, w.devices[0].gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": .7, "MIG-2": 0}
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	w.steps(6, 2)
	p := w.container("p", "A")
	if p.Attribution != attributionMIG {
		t.Errorf("attribution %q", p.Attribution)
	}
	before := w.device("A").Activity.Peak
	value(t, "peak", before, .1)
	// A poll without samples changes neither mean nor peak.
	w.devices[0].gpm = map[gpu.UUID]float64{}
	w.step(2)
	if a := w.device("A").Activity; math.IsNaN(float64(a.Peak.Or(0))) || a.Peak != before || math.IsNaN(float64(a.Mean.Or(0))) {
		t.Errorf("mean %v, peak %v", a.Mean, a.Peak)
	}
	value(t, "observed", w.device("A").Activity.Observed, 12)
	closes(t, w, "A")
}

// The busy time of a GPU by process: in proportion to the samples, what has no sample of a listed process is the others',
// and so is hidden work.
func TestBusyTimeByProcess(t *testing.T) {
	w := newWorldOf(t, Options{Processes: 2}, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.util = medium(9, 1, 1, 2, 1, 3, 1), true, .8
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	is := func(want ...float64) {
		t.Helper()
		list := w.device("A").Processes
		if len(list) != len(want) {
			t.Fatalf("%+v", list)
		}
		for i, v := range want {
			value(t, "busy", list[i].Busy, v)
		}
	}
	at := func(sm ...float64) {
		list := weights(sm...)
		for i := range list {
			list[i].Time = int64((1000 + w.now + 2) * 1e6)
		}
		a.weights = list
		w.step(2)
	}
	at(1, 10, 2, 30, 3, 40)
	is(0, 0, 1.6) // the processes were listed after the poll: theirs are the others'
	w.Ledger.devices["A"].processes.other = 0
	at(1, 10, 2, 30, 3, 40)
	is(.2, .6, .8)
	at(1, 5, 2, 15, 3, 20) // half of it hidden
	is(.3, .9, 2)
	at(2, 80)
	is(.3, 2.5, 2)
	at(8, 80) // of a process that is not listed
	is(.3, 2.5, 3.6)
	// Without samples nothing is measured, under MIG neither.
	w = newWorldOf(t, Options{Processes: 2}, "A")
	w.users, w.devices[0].medium, w.devices[0].util = testUsers, medium(9, 1, 1), .8
	w.steps(3, 2)
	for _, p := range w.device("A").Processes {
		absent(t, "busy", p.Busy)
	}
}

// The memory ring adds its own busy time, and starts after the pause that the driver reports for the memory.
func TestMemoryRing(t *testing.T) {
	idle := func(memory float64) gpu.Opt[gpu.Utilization] {
		return gpu.Some(gpu.Utilization{GPU: .5, Memory: gpu.Ratio(memory)})
	}
	none, empty := gpu.None[gpu.Ring](), gpu.Some(gpu.Ring{})
	for _, c := range []struct {
		before gpu.Opt[gpu.Utilization]
		first  gpu.Opt[gpu.Ring]
		want   float64
	}{
		{idle(0), empty, 1.5}, // the longest period that is assumed, a second, and half a second of pause
		{idle(.1), empty, 1},
		{gpu.None[gpu.Utilization](), empty, 1},
	} {
		var a activity
		at := func(from float64) gpu.Opt[gpu.Ring] { return gpu.Some(regular(from, from+.5, .1, 50)) }
		a.read(&gpu.Fast{Busy: at(0), MemoryBusy: c.first}, 0, nil)
		a.read(&gpu.Fast{Busy: at(.5), MemoryBusy: c.first, Utilization: c.before}, .5, nil)
		in := a.read(&gpu.Fast{Busy: at(1), MemoryBusy: gpu.Some(samples(9, 100))}, .5, nil)
		near(t, "memory busy", in.memory, c.want)
		near(t, "busy", in.busy, .25)
		in = a.read(&gpu.Fast{Busy: at(1.5), MemoryBusy: none}, .5, nil)
		near(t, "memory busy without its ring", in.memory, 0)
		if !a.hasMemory {
			t.Error("memory busy time is not measured")
		}
		a.sum(increment{memory: 3}, 1, epoch)
		a.sum(increment{memory: 4}, 2, epoch)
		value(t, "sum", a.publish(2, false).MemoryBusy, 7)
	}
	// Without a memory ring it is not measured.
	var a activity
	a.read(&gpu.Fast{Busy: gpu.Some(regular(0, 1, .1, 50))}, 0, nil)
	absent(t, "memory busy", a.publish(0, true).MemoryBusy)
}

// Accounts are in samples, whose length is known from three periods on.
func TestAccountsNeedThePeriod(t *testing.T) {
	for n, want := range map[int]bool{3: false, 4: true} {
		l := New(Options{})
		for i, busy := range []float64{0, 5} {
			f := &gpu.Fast{Busy: gpu.Some(gpu.Ring{}), Accounts: gpu.Some([]gpu.ProcessAccount{{PID: 1, Start: 1, Busy: busy}})}
			if i == 0 {
				f.Busy = gpu.Some(regular(10, 10+float64(n)*.1, .1, 100))
			}
			l.Advance(Poll{Elapsed: time.Second, GPUs: []Reading{{Identity: gpu.Identity{UUID: "A"}, Fast: f}}})
		}
		if got := len(l.devices["A"].weights) > 0; got != want {
			t.Errorf("%d samples: by account %v", n, got)
		}
	}
}

// An implausible sample at the time of the newest good one was read before: it does not count.
func TestImplausibleSampleThatWasReadBefore(t *testing.T) {
	var r ring
	r.add(regular(0, 10, .1, 0), false, 0, nil)
	for at, want := range map[float64]int{10: 0, 9: 0, 10.1: 1} {
		n := 0
		if r.add(samples(at, 300), false, 1, func() { n++ }); n != want {
			t.Errorf("at %v s: %d are rejected", at, n)
		}
	}
}

// Samples of a container whose allocation has just ended do not extend the five minutes of its counters.
func TestGraceOfABusyContainer(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("q", "A", .5)}
	a.medium, a.hasWeights, a.weights, a.util = medium(0), true, weights(3, 50), .5
	w.steps(3, 2)
	w.allocs.List = nil
	w.step(2)
	end := w.now
	w.steps(5, 2)
	a.weights, a.util = nil, 0
	for w.now < end+grace-2 {
		w.step(2)
		if _, ok := w.find("q", "A"); !ok {
			t.Fatalf("dropped after %v s", w.now-end)
		}
	}
	if w.step(2); w.now-end != grace {
		t.Fatal(w.now)
	}
	if c, ok := w.find("q", "A"); ok {
		t.Errorf("%v s after its end: %+v", w.now-end, c)
	}
}

// A container that uses an instance that is not allocated to it is observed there, if it is alone on it.
func TestObservedOnAnInstanceOfNobody(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.slow, a.gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": 0, "MIG-2": 0}
	m := medium(9, 1, 1, 3, 1, 8, 1)
	for i, gi := range []int{1, 2, 2} {
		m.Processes.Or(nil)[i].GI = gpu.Some(gi)
	}
	a.medium = m
	w.steps(2, 2)
	p, q := w.container("p", "A").Observed.Or(0), w.container("q", "A").Observed.Or(0)
	w.steps(7, 2)
	value(t, "observed of p", w.container("p", "A").Observed, float64(p)+2)
	value(t, "observed of q, beside a process of the host", gpu.Some(w.container("q", "A").Observed.Or(0)), float64(q))
	closes(t, w, "A")
}

// Slices that may belong to an instance of unknown size are not unallocated.
func TestSlicesOfAnUnknownSize(t *testing.T) {
	w := newWorld(t, "A")
	w.devices[0].slow, w.devices[0].gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": 0, "MIG-2": 0}
	w.devices[0].slow.Instances[1].Share = gpu.None[gpu.Ratio]()
	w.step(0)
	w.steps(7, 2)
	spent(t, w.device("A"), map[gpu.TimeState]float64{gpu.TimeUnallocated: 2, gpu.TimeUnknown: 12})
}

// A period whose energy is unknown is not one of 0 W, and what was not measured of a GPU is published with its activity.
func TestUnknownEnergyIsNoIdlePower(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.watts = 100
	a.medium = &gpu.Medium{Unmeasured: []gpu.Unmeasured{{Reading: "x", Reason: "y"}}}
	w.steps(5, 2)
	a.watts = 0 // no reading of energy
	w.steps(5, 2)
	near(t, "idle power", w.Ledger.devices["A"].idleWatts, 100)
	if u := w.device("A").Activity.Unmeasured; len(u) != 1 || u[0] != a.medium.Unmeasured[0] {
		t.Errorf("%+v", u)
	}
	value(t, "energy", w.device("A").Activity.Energy, 1000)
}
