package account

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The accounts of a node are in the order of container and GPU, and complete: what a row has beside its counters.
func TestPublishedAccount(t *testing.T) {
	since := epoch.Add(-time.Hour)
	w := newWorld(t, "B", "A")
	w.users = testUsers
	h := allocate("p", "A", .5)
	h.Since = gpu.Some(since)
	w.allocs.List = []gpu.Allocation{allocate("q", "A", .25), allocate("p", "B", 1), h}
	a := w.devices[1]
	a.medium, a.hasWeights, a.weights, a.util, a.watts = medium(6, 1, 2, 2, 1, 3, 1), true, weights(1, 30, 3, 10), .5, 100
	w.steps(3, 2)
	var order []string
	for _, c := range w.Containers() {
		order = append(order, c.Pod+string(c.GPU))
	}
	if fmt.Sprint(order) != "[pA pB qA]" {
		t.Errorf("%v", order)
	}
	p := w.container("p", "A")
	if p.Index != 1 || p.Ended || p.Since != gpu.Some(since) || p.Source != gpu.SourcePodResources || p.Created != epoch ||
		p.Attribution != attributionProcess || p.MemorySource != memoryOfProcesses || len(p.Mismatch) > 0 {
		t.Errorf("%+v", p)
	}
	value(t, "processes", p.Processes, 2)
	value(t, "memory", p.Memory, 3<<30)
	if p.LastBusy != gpu.Some(epoch.Add(6*time.Second)) {
		t.Errorf("last busy %v", p.LastBusy)
	}
	if q := w.container("q", "A"); q.Since.Present() {
		t.Errorf("%+v", q)
	}
	if b := w.container("p", "B"); b.MemorySource != "" || b.Memory.Present() || b.Processes.Present() || b.Energy.Present() {
		t.Errorf("%+v", b)
	}
	// A GPU that is unavailable has neither activity nor energy; what is allocated goes on.
	a.availability = Unavailable
	w.steps(2, 2)
	p = w.container("p", "A")
	if p.Busy.Present() || p.Observed.Present() || p.Energy.Present() || p.Attribution != "" || p.Memory.Present() {
		t.Errorf("%+v", p)
	}
	value(t, "allocated", p.Allocated, .5*8)
	// A GPU that turned out to be another has no rows.
	w.Forget("A")
	for _, c := range w.Containers() {
		if c.GPU == "A" {
			t.Errorf("%+v", c)
		}
	}
	if n := w.Accounts().Own; n != 1 {
		t.Errorf("%d accounts", n)
	}
}

// A counter begins with the period that its first value is of: created is the poll before.
func TestCountersBeginWithThePollBefore(t *testing.T) {
	l := New(Options{})
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	advance := func(s int, elapsed time.Duration, list ...gpu.Allocation) {
		l.Advance(Poll{Now: at(s), Elapsed: elapsed, GPUs: []Reading{{Identity: gpu.Identity{UUID: "A", Index: 3}}},
			Allocations: gpu.Allocations{Known: true, Configured: true, List: list}})
	}
	advance(0, 0)
	advance(2, 2*time.Second, allocate("p", "A", 1))
	advance(3, -time.Second) // a clock that went back: no time passed
	g := gpu.GPU{Identity: gpu.Identity{UUID: "A"}}
	if l.Fill(&g); g.Created != at(0) {
		t.Errorf("the GPU's counters begin at %v", g.Created)
	}
	if c := l.Containers(); len(c) != 1 || c[0].Created != at(0) || c[0].Index != 3 {
		t.Errorf("%+v", c)
	}
	sum := 0.0
	for _, v := range g.GPUSeconds {
		sum += float64(v)
	}
	near(t, "time", sum, 2)
	near(t, "clock", l.clock, 2)
	advance(3, time.Second, allocate("q", "A", 1))
	for _, c := range l.Containers() {
		if want := map[string]int{"p": 0, "q": 2}[c.Pod]; c.Created != at(want) {
			t.Errorf("%s begins at %v", c.Pod, c.Created)
		}
	}
}

// The attribution error is the difference between the GPU's total and what was attributed, relative to the total; one of
// rounding is none.
func TestAttributionErrorRatio(t *testing.T) {
	for _, c := range []struct{ total, attributed, want float64 }{
		{10, 10, 0}, {10, 9, .1}, {10, 12, .2}, {0, 0, 0}, {0, 1, 1e9}, {.5, .5 - .9e-9, 0}, {.5, .5 - 1.1e-9, 2.2e-9},
		{1e6, 1e6 - .9e-3, 0}, {1e6, 1e6 - 2e-3, 2e-9},
	} {
		d := newGPU(gpu.Identity{UUID: "A"}, epoch)
		d.act.method, d.act.busy, d.attributedBusy = gpu.MethodRing, c.total, c.attributed
		errors := d.publishErrors(false)
		if len(errors) != 1 || errors[0].Quantity != "busy" {
			t.Fatalf("%+v", errors)
		}
		if got := float64(errors[0].Ratio); got > c.want*1.0001 || got < c.want*.9999 {
			t.Errorf("%v of %v: %v, want %v", c.attributed, c.total, got, c.want)
		}
	}
	d := newGPU(gpu.Identity{UUID: "A"}, epoch)
	d.medium, d.memoryError = medium(3), .5
	if e := d.publishErrors(false); len(e) != 0 {
		t.Errorf("of a GPU that is not read: %+v", e)
	}
	if e := d.publishErrors(true); len(e) != 1 || e[0] != (gpu.AttributionError{Quantity: "memory", Ratio: .5}) {
		t.Errorf("%+v", e)
	}
}

// Memory that the driver reports as never busy is not measured on a GPU without memory of its own.
func TestMemoryBusyThatIsAlwaysZero(t *testing.T) {
	for _, c := range []struct {
		integrated bool
		busy       float64
		want       bool
	}{{true, 0, false}, {true, 1, true}, {false, 0, true}} {
		d := newGPU(gpu.Identity{UUID: "A"}, epoch)
		d.integrated, d.act.method, d.act.hasMemory, d.act.memoryBusy = c.integrated, gpu.MethodRing, true, c.busy
		a := d.publish(0, true)
		zero := gpu.Unmeasured{Reading: "memory_busy", Reason: "always_zero"}
		if a.MemoryBusy.Present() != c.want || slices.Contains(a.Unmeasured, zero) == c.want {
			t.Errorf("%+v: %+v", c, a)
		}
	}
}

// Reasons for lower clocks that the driver does not count are sampled: for at most five seconds each, and not beside a
// count.
func TestSampledReasons(t *testing.T) {
	l := New(Options{})
	bit := -1
	var name gpu.LimitReason
	for b, reason := range gpu.ClockReasons {
		if slices.Contains(gpu.LimitReasons, gpu.LimitReason(reason)) && (bit < 0 || b < bit) {
			bit, name = b, gpu.LimitReason(reason)
		}
	}
	id := gpu.Identity{UUID: "A"}
	limited := func(elapsed time.Duration, f gpu.Fast) map[gpu.LimitReason]gpu.Seconds {
		l.Advance(Poll{Elapsed: elapsed, GPUs: []Reading{{Identity: id, Fast: &f}}})
		g := gpu.GPU{Identity: id}
		l.Fill(&g)
		return g.Activity.Limited
	}
	set, clear := gpu.Some(uint64(1)<<bit), gpu.Some(uint64(0))
	limited(time.Second, gpu.Fast{SampledReasons: set})
	if v := limited(2*time.Second, gpu.Fast{SampledReasons: set}); v[name] != 2 {
		t.Errorf("%v, want 2 s of %s", v, name)
	}
	if v := limited(2*time.Second, gpu.Fast{SampledReasons: clear}); v[name] != 2 || len(v) != 7 {
		t.Errorf("%v", v)
	}
	if v := limited(9*time.Second, gpu.Fast{SampledReasons: set}); v[name] != 7 {
		t.Errorf("%v, want 7 s of %s", v, name)
	}
	if v := limited(time.Second, gpu.Fast{Limited: map[gpu.LimitReason]gpu.Seconds{name: 40}, SampledReasons: set}); v[name] != 40 {
		t.Errorf("%v, want the driver's 40 s", v)
	}
	if v := limited(time.Second, gpu.Fast{Limited: map[gpu.LimitReason]gpu.Seconds{name: 41}, SampledReasons: set}); v[name] != 41 ||
		l.devices["A"].sampled[name] != 7 {
		t.Errorf("%v, want the driver's 41 s", v)
	}
}

// A container that uses a GPU of others has a mismatch after 30 s; one that is allocated to it, or that nobody can
// tell, has none.
func TestMismatchAfterADelay(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	w.devices[0].medium = medium(4, 1, 3)
	w.step(0)
	for w.now < mismatchDelay {
		if m := w.container("p", "A").Mismatch; m != nil {
			t.Errorf("%v after %v s", m, w.now)
		}
		w.step(.5)
	}
	if m := w.container("p", "A").Mismatch; len(m) != 1 || m[0] != "used_not_allocated" {
		t.Errorf("%v after %v s", m, w.now)
	}
	w.allocs.Unresolved = []gpu.Unresolved{{Container: pod("p"), Resource: "r", Devices: 1}}
	w.step(2)
	if m := w.container("p", "A").Mismatch; len(m) != 1 || m[0] != "used_other_gpu" {
		t.Errorf("%v although something is allocated to it", m)
	}
	w.allocs.Known = false
	w.step(2)
	if m := w.container("p", "A").Mismatch; m != nil {
		t.Errorf("%v although allocations are unknown", m)
	}
	w.allocs = gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{allocate("p", "A", .5)}}
	w.steps(20, 2)
	if m := w.container("p", "A").Mismatch; m != nil {
		t.Errorf("%v although it is allocated", m)
	}
}

// Rejected steps of a counter count under its reading.
func TestRejectedStepsAreCounted(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	for _, v := range []float64{100, 1e30, 200} {
		f := &gpu.Fast{Energy: gpu.Some(gpu.Joules(v)), NVLinkReceive: gpu.Some(gpu.Bytes(min(v, 1e19))),
			Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitThermal: gpu.Seconds(v / 1000)}}
		l.Advance(Poll{Elapsed: time.Second, GPUs: []Reading{{Identity: id, Fast: f}}})
	}
	if got := fmt.Sprint(l.Rejected()); got != "[{energy 1} {limited_time 1} {nvlink_bytes 1}]" {
		t.Errorf("%s", got)
	}
}

// A GPU that leaves MIG mode has no method until it is measured again, and one without a limit of processes none of them.
func TestMethodAfterMIG(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	w.users, a.medium = testUsers, medium(3, 1, 1)
	a.slow, a.gpm = migSlow(1), map[gpu.UUID]float64{"MIG-1": .5}
	w.steps(3, 2)
	if g := w.device("A"); g.Activity.Method != gpu.Some(gpu.MethodGPM) || g.Processes != nil {
		t.Errorf("method %v, processes %v", g.Activity.Method, g.Processes)
	}
	a.slow, a.gpm, a.silent = &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{})}, nil, true
	w.step(2)
	if m := w.device("A").Activity.Method; m.Present() {
		t.Errorf("method %v", m)
	}
}

// Of two samples of one time the first counts.
func TestTwoSamplesOfOneTime(t *testing.T) {
	var r ring
	r.add(regular(0, 10, .1, 0), false, 0, nil)
	if in := r.add(samples(10.1, 10, 10.1, 90), false, .1, nil); in.peak != .1 {
		t.Errorf("%+v", in)
	}
}

// Power limits of each scope have the range of power.
func TestLimitsByScope(t *testing.T) {
	var s Filter
	l := gpu.Slow{ScopeLimits: map[string]gpu.Watts{"module max": 10000, "module min": 10001}}
	if s.Slow(&l); len(l.ScopeLimits) != 1 || fmt.Sprint(s.Counts()) != "[{power_limit 1}]" {
		t.Errorf("%v %v", l.ScopeLimits, s.Counts())
	}
}
