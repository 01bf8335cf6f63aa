package account

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// world drives a ledger: every GPU is a function from the window to a reading.
type world struct {
	*Ledger
	t       *testing.T
	now     float64
	allocs  gpu.Allocations
	users   Users
	command func(pid int) string
	devices []*fakeGPU
}

// fakeGPU is one GPU of a world. Its fields may be changed between steps.
type fakeGPU struct {
	id           gpu.Identity
	availability Availability
	silent       bool // no fast reading
	util         float64
	noRing       bool
	emptyRing    bool
	slots        bool    // the samples of the ring are in the order of its memory: it wrapped within them
	depth        float64 // of the ring, in seconds; 0: all since the previous reading
	watts        float64
	joules       float64
	weights      []gpu.ProcessSample
	hasWeights   bool
	medium       *gpu.Medium
	slow         *gpu.Slow
	gpm          map[gpu.UUID]float64
	compute      map[gpu.UUID]map[gpu.UUID]float64 // of the compute instances of an instance
}

func newWorld(t *testing.T, uuids ...gpu.UUID) *world { return newWorldOf(t, Options{}, uuids...) }

func newWorldOf(t *testing.T, o Options, uuids ...gpu.UUID) *world {
	w := &world{Ledger: New(o), t: t, allocs: gpu.Allocations{Known: true, Configured: true}}
	for i, u := range uuids {
		w.devices = append(w.devices, &fakeGPU{id: gpu.Identity{UUID: u, Index: i,
			PCI: gpu.PCIAddress(fmt.Sprintf("0000:%02x:00.0", i+1))}})
	}
	w.step(0)
	return w
}

// step lets e seconds go by.
func (w *world) step(e float64) {
	w.t.Helper()
	from := w.now
	w.now += e
	r := Poll{Now: epoch.Add(time.Duration(w.now * float64(time.Second))), Elapsed: time.Duration(e * float64(time.Second)),
		Allocations: w.allocs, Users: w.users, Command: w.command}
	for _, c := range w.devices {
		c.joules += c.watts * e
		reading := Reading{Identity: c.id, Availability: c.availability, Medium: c.medium, Slow: c.slow}
		if c.availability == Readable && !c.silent {
			reading.Fast = c.fast(from, w.now)
		}
		r.GPUs = append(r.GPUs, reading)
	}
	w.Advance(r)
}

func (c *fakeGPU) fast(from, to float64) *gpu.Fast {
	f := &gpu.Fast{}
	if c.watts > 0 {
		f.Energy = gpu.Some(gpu.Joules(c.joules))
	}
	if c.hasWeights {
		f.Processes = gpu.Some(c.weights)
	}
	if c.gpm != nil {
		for u, v := range c.gpm {
			sample := func(v float64) gpu.Opt[gpu.GPM] {
				return gpu.Some(gpu.GPM{Window: time.Duration((to - from) * float64(time.Second)), GraphicsActive: gpu.Some(gpu.Ratio(v))})
			}
			in := gpu.InstanceFast{UUID: u, GPM: sample(v)}
			for ci, v := range c.compute[u] {
				in.Compute = append(in.Compute, gpu.ComputeFast{UUID: ci, GPM: sample(v)})
			}
			f.Instances = append(f.Instances, in)
		}
		return f
	}
	f.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(c.util), Memory: gpu.Ratio(c.util / 2)})
	if c.emptyRing {
		f.Busy = gpu.Some(gpu.Ring{})
	} else if !c.noRing {
		begin := from
		if c.depth > 0 {
			begin = max(from, to-c.depth)
		}
		f.Busy = gpu.Some(regular(1000+begin, 1000+to, .1, c.util*100))
		if from == to {
			f.Busy = gpu.Some(regular(990+from, 1000+to, .1, c.util*100))
		}
		if ring := f.Busy.Or(nil); c.slots {
			f.Busy = gpu.Some(slices.Concat(ring[len(ring)/3:], ring[:len(ring)/3]))
		}
	}
	return f
}

func (w *world) steps(n int, e float64) {
	w.t.Helper()
	for range n {
		w.step(e)
	}
}

func (w *world) device(u gpu.UUID) gpu.GPU {
	var c gpu.GPU
	c.UUID = u
	w.Fill(&c)
	return c
}

func (w *world) container(pod string, device gpu.UUID) gpu.ContainerGPU {
	w.t.Helper()
	c, ok := w.find(pod, device)
	if !ok {
		w.t.Fatalf("no row of %s on %s", pod, device)
	}
	return c
}

func (w *world) find(pod string, device gpu.UUID) (gpu.ContainerGPU, bool) {
	for _, c := range w.Containers() {
		if c.Pod == pod && c.GPU == device {
			return c, true
		}
	}
	return gpu.ContainerGPU{}, false
}

func pod(name string) gpu.Container { return gpu.Container{Namespace: "t", Pod: name, Name: "c"} }

func allocate(name string, device gpu.UUID, share float64) gpu.Allocation {
	return gpu.Allocation{Container: pod(name), Resource: "nvidia.com/gpu", GPU: device, Share: gpu.Some(gpu.Ratio(share)),
		Shared: share < 1,
		Source: gpu.SourcePodResources}
}

func holdInstance(name string, device, instance gpu.UUID, share float64) gpu.Allocation {
	h := allocate(name, device, share)
	h.Instance = instance
	return h
}

// value asserts a present optional number.
func value[T ~float64 | ~uint64 | ~int](t *testing.T, what string, o gpu.Opt[T], want float64) {
	t.Helper()
	v, ok := o.Get()
	if !ok {
		t.Errorf("%s is absent, want %v", what, want)
		return
	}
	near(t, what, float64(v), want)
}

func absent[T any](t *testing.T, what string, o gpu.Opt[T]) {
	t.Helper()
	if v, ok := o.Get(); ok {
		t.Errorf("%s is %v, want absent", what, v)
	}
}

func spent(t *testing.T, c gpu.GPU, want map[gpu.TimeState]float64) {
	t.Helper()
	for _, use := range gpu.TimeStates {
		if v := float64(c.GPUSeconds[use]); v-want[use] > 1e-6 || want[use]-v > 1e-6 {
			t.Errorf("%s: %s is %v, want %v", c.UUID, use, v, want[use])
		}
	}
}

func unattributedBy(t *testing.T, c gpu.GPU, reason gpu.UnattributedReason) gpu.Unattributed {
	t.Helper()
	for _, u := range c.Unattributed {
		if u.Reason == reason {
			return u
		}
	}
	t.Errorf("%s: nothing is unattributed because of %s", c.UUID, reason)
	return gpu.Unattributed{}
}

// migSlow is a layout of instances of one slice each on a GPU of seven.
func migSlow(n int) *gpu.Slow {
	s := &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{Current: true, Pending: true})}
	for i := range n {
		s.Instances = append(s.Instances, gpu.Instance{UUID: gpu.UUID(fmt.Sprintf("MIG-%d", i+1)), GI: i + 1, Profile: "1g.10gb",
			Slices: 1, Share: gpu.Some(gpu.Ratio(1. / 7))})
	}
	return s
}

// The meaning of GPU seconds and of the container families, as the queries of the metric contract have it:
// one GPU allocated entirely and half busy, one free, one shared by two of which one works, one under MIG, one lost,
// and one of which it is unknown who holds it.
func TestContractScenario(t *testing.T) {
	w := newWorld(t, "A", "B", "C", "D", "E")
	a, c, d, e := w.devices[0], w.devices[2], w.devices[3], w.devices[4]
	a.util, a.watts = .5, 500
	c.util, c.hasWeights, c.weights = .6, true, []gpu.ProcessSample{{PID: 11, SM: 60}}
	c.medium = &gpu.Medium{Processes: gpu.Some([]gpu.Process{{PID: 11, Memory: gpu.Some(gpu.Bytes(1 << 30))}}),
		Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 3 << 29})}
	d.slow, d.gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": .5, "MIG-2": 0}
	e.availability = Unavailable
	w.users = Users{11: {Container: pod("p1")}}
	w.allocs.List = []gpu.Allocation{allocate("train", "A", 1), allocate("p1", "C", .25), allocate("p2", "C", .25),
		holdInstance("mig", "D", "MIG-1", 1), allocate("train", "E", 1)}
	w.step(0)
	w.steps(15, 2) // the first window of the ring comes with the first step; idleness needs a minute

	spent(t, w.device("A"), map[gpu.TimeState]float64{gpu.TimeBusy: 15, gpu.TimeGap: 15})
	spent(t, w.device("B"), map[gpu.TimeState]float64{gpu.TimeUnallocated: 30})
	spent(t, w.device("C"), map[gpu.TimeState]float64{gpu.TimeBusy: 18, gpu.TimeGap: 6, gpu.TimeUnallocated: 6})
	spent(t, w.device("D"), map[gpu.TimeState]float64{gpu.TimeBusy: 30. / 14, gpu.TimeGap: 30. / 14, gpu.TimeUnallocated: 30 * 6. / 7})
	spent(t, w.device("E"), map[gpu.TimeState]float64{gpu.TimeUnavailable: 30})

	w.steps(15, 2)
	before := w.container("p2", "C")
	w.steps(15, 2)
	spent(t, w.device("C"), map[gpu.TimeState]float64{gpu.TimeBusy: 54, gpu.TimeGap: 9 + 6, gpu.TimeIdle: 3, gpu.TimeUnallocated: 18})
	p2 := w.container("p2", "C")
	near(t, "p2 idle", float64(p2.Idle.Or(0)-before.Idle.Or(0)), 3)
	near(t, "p2 underused", float64(p2.Gap.Or(0)-before.Gap.Or(0)), 0)
	value(t, "p2 busy", p2.Busy, 0)
	value(t, "p2 observed", p2.Observed, 90)
	value(t, "p2 allocated", p2.Allocated, 22.5)
	value(t, "p2 memory", p2.Memory, 0)
	value(t, "p2 processes", p2.Processes, 0)
	p1 := w.container("p1", "C")
	value(t, "p1 busy", p1.Busy, 54)
	value(t, "p1 underused", p1.Gap, 9)
	value(t, "p1 idle", p1.Idle, 0)
	value(t, "p1 memory", p1.Memory, 1<<30)
	if p1.Attribution != "process" || p1.Source != gpu.SourcePodResources {
		t.Errorf("p1: %+v", p1)
	}
	train := w.container("train", "A")
	value(t, "train allocated", train.Allocated, 90)
	value(t, "train busy", train.Busy, 45)
	value(t, "train observed", train.Observed, 90)
	value(t, "train energy", train.Energy, 45000-0)
	value(t, "train underused", train.Gap, 45)
	if train.Attribution != "exclusive" {
		t.Errorf("train: %+v", train)
	}
	mig := w.container("mig", "D")
	value(t, "mig allocated", mig.Allocated, 90./7)
	value(t, "mig busy", mig.Busy, 45./7)
	value(t, "mig observed", mig.Observed, 90./7)
	value(t, "mig underused", mig.Gap, 45./7)
	if mig.Attribution != "mig" {
		t.Errorf("mig: %+v", mig)
	}
	lost := w.container("train", "E")
	value(t, "allocated of a lost GPU", lost.Allocated, 90)
	absent(t, "busy on a lost GPU", lost.Busy)

	GPUD := w.device("D")
	value(t, "D observed", GPUD.Activity.Observed, 90)
	value(t, "D busy", GPUD.Activity.Busy, 45./7)
	value(t, "D allocation", GPUD.AllocationRatio, 1./7)
	if GPUD.Activity.Method != gpu.Some(gpu.MethodGPM) || len(GPUD.Instances) != 2 {
		t.Errorf("D: %+v", GPUD)
	}
	value(t, "M1 allocation", GPUD.Instances[0].AllocationRatio, 1)
	value(t, "M2 allocation", GPUD.Instances[1].AllocationRatio, 0)
	value(t, "M1 busy", GPUD.Instances[0].Activity.Busy, 45)
	value(t, "E allocation", w.device("E").AllocationRatio, 1)
	absent(t, "E busy", w.device("E").Activity.Busy)
	value(t, "B allocation", w.device("B").AllocationRatio, 0)
	value(t, "C allocation", w.device("C").AllocationRatio, .5)
	if m := w.device("A").Activity.Method; m != gpu.Some(gpu.MethodRing) {
		t.Errorf("A is measured by %v", m)
	}
	for _, h := range w.Allocations() {
		if h.Container == pod("mig") {
			value(t, "share of the physical GPU", h.AllocationRatio, 1./7)
		}
	}
}

// Nobody can tell who holds: what is not busy is unknown, never idle and never free.
func TestUnknownAllocs(t *testing.T) {
	w := newWorld(t, "G")
	w.devices[0].util = .3
	w.allocs = gpu.Allocations{Configured: true}
	w.step(0)
	w.steps(15, 2)
	spent(t, w.device("G"), map[gpu.TimeState]float64{gpu.TimeBusy: 9, gpu.TimeUnknown: 21})
	absent(t, "allocation", w.device("G").AllocationRatio)
	value(t, "unattributed", unattributedBy(t, w.device("G"), gpu.UnattributedUnresolved).Busy, 9)

	// An id that may lie on any GPU: what is not allocated is unknown, what is allocated is allocated.
	w = newWorld(t, "G", "H")
	w.allocs = gpu.Allocations{Known: true, Configured: true, Uncertain: true, List: []gpu.Allocation{allocate("p", "H", 1)}}
	w.step(0)
	w.steps(5, 2)
	spent(t, w.device("G"), map[gpu.TimeState]float64{gpu.TimeUnknown: 10})
	spent(t, w.device("H"), map[gpu.TimeState]float64{gpu.TimeGap: 10})
	absent(t, "allocation of a GPU that may be allocated", w.device("G").AllocationRatio)
	value(t, "allocation of a GPU that is allocated entirely", w.device("H").AllocationRatio, 1)
}

// Two share a GPU and their processes are hidden: neither gets a busy series, the work is hidden, and a
// GPU that did nothing for a minute proves both idle.
func TestHiddenSharing(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.util, a.watts = .4, 200
	a.medium = &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 2 << 30}), Processes: gpu.Some([]gpu.Process{})}
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	w.step(0)
	w.steps(5, 2)
	p := w.container("p", "A")
	absent(t, "busy", p.Busy)
	absent(t, "observed", p.Observed)
	absent(t, "memory", p.Memory)
	absent(t, "energy", p.Energy)
	absent(t, "processes", p.Processes)
	absent(t, "last busy", p.LastBusy)
	value(t, "held", p.Allocated, 5)
	value(t, "gap", p.Gap, 3)
	if p.Attribution != "none" {
		t.Errorf("attribution %q", p.Attribution)
	}
	u := unattributedBy(t, w.device("A"), gpu.UnattributedHidden)
	value(t, "hidden busy", u.Busy, 4)
	value(t, "hidden memory", u.Memory, 2<<30)
	value(t, "hidden energy", u.Energy, 2000)

	a.util = 0
	w.steps(40, 2)
	before := w.container("p", "A")
	w.steps(5, 2)
	near(t, "idle", float64(w.container("p", "A").Idle.Or(0)-before.Idle.Or(0)), 5)
}

// A container that goes away: its gauges end at once, its counters stand still for five minutes; a successor
// of the same name goes on from there.
func TestGrace(t *testing.T) {
	w := newWorld(t, "A")
	w.devices[0].util = .5
	w.devices[0].medium = &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 2 << 30})}
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	w.step(2)
	p := w.container("p", "A")
	value(t, "allocated at first", p.Allocated, 0)
	value(t, "busy at first", p.Busy, 0)
	value(t, "memory at first", p.Memory, 2<<30)
	w.steps(5, 2)
	w.allocs.List = nil
	w.step(2) // it allocated during this window
	p = w.container("p", "A")
	if !p.Ended {
		t.Fatal("not ended")
	}
	value(t, "held", p.Allocated, 12)
	value(t, "busy", p.Busy, 6)
	absent(t, "memory", p.Memory)
	absent(t, "last busy", p.LastBusy)
	value(t, "allocation", w.device("A").AllocationRatio, 0)
	w.steps(140, 2)
	p = w.container("p", "A")
	value(t, "allocated stands still", p.Allocated, 12)

	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	w.steps(2, 2)
	p = w.container("p", "A")
	value(t, "allocated goes on", p.Allocated, 14)
	value(t, "busy goes on", p.Busy, 7)
	if p.Ended {
		t.Error("ended while it holds")
	}
	w.allocs.List = nil
	w.step(2)
	w.steps(151, 2)
	if _, ok := w.find("p", "A"); ok {
		t.Error("still there after five minutes")
	}
}

func TestRateAndMethods(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.noRing = true
	w.step(2)
	w = newWorld(t)
	a = &fakeGPU{id: gpu.Identity{UUID: "A"}, noRing: true, util: .25}
	w.devices = []*fakeGPU{a}
	w.step(2)
	w.steps(4, 2)
	c := w.device("A")
	if c.Activity.Method != gpu.Some(gpu.MethodRate) {
		t.Errorf("method %v", c.Activity.Method)
	}
	value(t, "busy", c.Activity.Busy, 2)
	value(t, "observed", c.Activity.Observed, 8)
	value(t, "memory busy", c.Activity.MemoryBusy, 1)
	value(t, "mean", c.Activity.Mean, .25)
	a.silent = true
	w.step(60)
	a.silent = false
	w.step(2)
	value(t, "a gauge covers 5 s at most", w.device("A").Activity.Observed, 13)
	spent(t, w.device("A"), map[gpu.TimeState]float64{gpu.TimeBusy: 2 + 1.25, gpu.TimeUnallocated: 70 - 3.25})
	value(t, "mean of the last minute", w.device("A").Activity.Mean, .25)

	// After a pause, the gauge says nothing about it.
	before := w.device("A").Activity.Observed
	a.availability = Unread
	w.steps(10, 2)
	a.availability = Readable
	w.step(2)
	value(t, "observed over a pause", w.device("A").Activity.Observed, float64(before.Or(0)))

	// A ring that stays empty while the GPU is busy is no ring; it is one again when it has samples.
	w = newWorld(t, "A")
	a = w.devices[0]
	a.util = .5
	w.steps(3, 2)
	a.emptyRing = true
	for i, want := range []gpu.Method{gpu.MethodRing, gpu.MethodRing, gpu.MethodRing, gpu.MethodRing, gpu.MethodRate, gpu.MethodRate} {
		w.step(2)
		if m := w.device("A").Activity.Method; m != gpu.Some(want) {
			t.Errorf("empty for %d s under load: method %v", 2*i+2, m)
		}
	}
	empty := w.device("A").Activity
	w.steps(10, 2)
	value(t, "observed by the gauge", w.device("A").Activity.Observed, float64(empty.Observed.Or(0))+20)
	value(t, "busy by the gauge", w.device("A").Activity.Busy, float64(empty.Busy.Or(0))+10)
	a.emptyRing = false
	if w.step(2); w.device("A").Activity.Method != gpu.Some(gpu.MethodRing) {
		t.Error("the ring is not used again")
	}
	a.emptyRing, a.util = true, 0 // a ring that stopped because nothing runs
	if w.steps(30, 2); w.device("A").Activity.Method != gpu.Some(gpu.MethodRing) {
		t.Error("an idle ring is not used any more")
	}

	// A ring that fails for a while is waited for; one that is ended is replaced by the gauge.
	w = newWorld(t, "A")
	a = w.devices[0]
	a.util = 1
	w.step(2)
	a.noRing = true
	w.steps(10, 2)
	c = w.device("A")
	value(t, "busy", c.Activity.Busy, 2)
	w.steps(10, 2)
	if m := w.device("A").Activity.Method; m != gpu.Some(gpu.MethodRate) {
		t.Errorf("method %v", m)
	}
}

// What was busy at the start of a poll was last busy then, and a later poll does not move that back.
func TestLastBusyWithinAPoll(t *testing.T) {
	var a activity
	for _, c := range []struct {
		clock float64
		in    increment
		at    float64
	}{{100, increment{observed: 10, busy: 1, wasBusy: true, sinceBusy: 7}, 93}, {110, increment{observed: 10}, 93},
		{112, increment{observed: 2, busy: 1, wasBusy: true, sinceBusy: 20}, 93},
		{120, increment{observed: 8, busy: 1, wasBusy: true}, 120}} {
		a.sum(c.in, c.clock, epoch.Add(time.Duration(c.clock)*time.Second))
		if a.lastBusyAt != c.at {
			t.Errorf("at %v: last busy at %v, want %v", c.clock, a.lastBusyAt, c.at)
		}
	}
}

// A GPU that returns goes on where it stopped, and nothing of the time between is counted twice.
func TestGPUReturns(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.util, a.watts = 1, 100
	w.steps(5, 2)
	a.availability = Unavailable
	w.steps(20, 2)
	absent(t, "busy of a lost GPU", w.device("A").Activity.Busy)
	a.availability = Readable
	w.Reopened()
	w.steps(6, 2)
	c := w.device("A")
	value(t, "busy", c.Activity.Busy, 10+10)
	sum := 0.0
	for _, v := range c.GPUSeconds {
		sum += float64(v)
	}
	near(t, "seconds", sum, 62)
	value(t, "energy", c.Activity.Energy, 6200)
}

func TestShareThatIsNotKnown(t *testing.T) {
	w := newWorld(t, "A")
	h := allocate("p", "A", 1)
	h.Share = gpu.None[gpu.Ratio]()
	w.allocs.List = []gpu.Allocation{h}
	w.step(2)
	w.steps(5, 2)
	absent(t, "allocation", w.device("A").AllocationRatio)
	p := w.container("p", "A")
	absent(t, "held", p.Allocated)
	if p.Attribution != "none" {
		t.Errorf("attribution %q", p.Attribution)
	}
	spent(t, w.device("A"), map[gpu.TimeState]float64{gpu.TimeUnallocated: 2, gpu.TimeUnknown: 10})

	// An instance that the layout does not show.
	w = newWorld(t, "A")
	w.devices[0].slow, w.devices[0].gpm = migSlow(1), map[gpu.UUID]float64{"MIG-1": 0}
	w.allocs.List = []gpu.Allocation{holdInstance("p", "A", "MIG-9", 1)}
	w.step(2)
	w.steps(5, 2)
	spent(t, w.device("A"), map[gpu.TimeState]float64{gpu.TimeUnallocated: 2, gpu.TimeUnknown: 10})
	absent(t, "allocation", w.device("A").AllocationRatio)
	if h := w.Allocations()[0]; h.AllocationRatio.Present() {
		t.Errorf("allocation %v of an unknown instance", h.AllocationRatio)
	}
}

// Both PCIe counters may overflow unseen where nothing estimates them: one reading is not measured.
func TestUnresolvedCounters(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	for range 3 {
		l.Advance(Poll{Elapsed: time.Second, GPUs: []Reading{{Identity: id, Fast: &gpu.Fast{PCIeTransmit: gpu.Some(gpu.Bytes(100)),
			PCIeReceive: gpu.Some(gpu.Bytes(100))}}}})
	}
	c := gpu.GPU{Identity: id}
	l.Fill(&c)
	if got := c.Activity.Unmeasured; len(got) != 1 || got[0] != (gpu.Unmeasured{Reading: "pcie_bytes", Reason: "counter_overflow"}) {
		t.Errorf("%+v", got)
	}
	absent(t, "transmitted", c.Activity.PCIeTransmit)
}

// The limit of a container's cgroup is that of its first allocation on the GPU.
func TestLimitsOfCgroups(t *testing.T) {
	const pci = "0000:01:00.0"
	some, none := gpu.Some[gpu.Bytes], gpu.None[gpu.Bytes]()
	recorded := func(pod, resource string, device gpu.UUID) gpu.ContainerAllocation {
		h := gpu.ContainerAllocation{}
		h.Allocation = allocate(pod, device, .5)
		h.Resource, h.MemoryLimit, h.MemoryGuaranteed = resource, some(7), some(3)
		return h
	}
	l := New(Options{})
	l.Advance(Poll{GPUs: []Reading{{Identity: gpu.Identity{UUID: "A", PCI: pci}},
		{Identity: gpu.Identity{UUID: "B", PCI: "0000:02:00.0"}}}})
	l.cgroups = map[gpu.PCIAddress][]gpu.CgroupMemory{pci: {
		{Container: pod("p"), Used: 1, Limit: some(9), Guaranteed: some(4)}, {Container: pod("q"), Used: 1},
		{Container: pod("r"), Limit: some(9)}, {Container: pod("s"), Used: 1, Limit: some(9), Reason: gpu.UnattributedHost}}}
	list := []gpu.ContainerAllocation{recorded("p", "a", "A"), recorded("p", "b", "A"), recorded("p", "c", "B"),
		recorded("q", "a", "A"), recorded("r", "a", "A"), recorded("s", "a", "A"), recorded("t", "a", "X")}
	l.limitByCgroup(list)
	for i, want := range [][2]gpu.Opt[gpu.Bytes]{{some(9), some(4)}, {none, some(3)}, {some(7), some(3)}, {some(7), none},
		{some(9), none}, {some(7), some(3)}, {some(7), some(3)}} {
		if got := [2]gpu.Opt[gpu.Bytes]{list[i].MemoryLimit, list[i].MemoryGuaranteed}; got != want {
			t.Errorf("%s %s on %s: limit and guaranteed %v, want %v", list[i].Container.Pod, list[i].Resource, list[i].GPU, got, want)
		}
	}
}

func TestProfilingAndCounters(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	advance := func(e int, f gpu.Fast) {
		l.Filter().Fast(&f)
		l.Advance(Poll{Elapsed: time.Duration(e) * time.Second, GPUs: []Reading{{Identity: id, Fast: &f}}})
	}
	half := gpu.Some(gpu.Ratio(.5))
	advance(0, gpu.Fast{PCIeTransmit: gpu.Some(gpu.Bytes(1<<32 - 100)), Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitPowerCap: 7}})
	advance(2, gpu.Fast{PCIeTransmit: gpu.Some(gpu.Bytes(100)), NVLinkReceive: gpu.Some(gpu.Bytes(5)),
		Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitPowerCap: 8},
		GPM: gpu.Some(gpu.GPM{Window: 2 * time.Second, GraphicsActive: half, SMActive: half, TensorActive: half, FP16Active: half,
			PCIeTransmit: gpu.Some(150.)})})
	advance(2, gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: time.Hour, GraphicsActive: half, SMActive: half})})
	c := gpu.GPU{Identity: id}
	l.Fill(&c)
	value(t, "transmitted", c.Activity.PCIeTransmit, 200)
	absent(t, "received", c.Activity.PCIeReceive)
	if len(c.Activity.Unmeasured) > 0 {
		t.Errorf("%+v of counters that were never read", c.Activity.Unmeasured)
	}
	value(t, "nvlink", c.Activity.NVLinkReceive, 5)
	if v := c.Activity.Limited; len(v) != 1 || v[gpu.LimitPowerCap] != 8 {
		t.Errorf("limited %v", v)
	}
	value(t, "profiled", c.Activity.Profiled, 5)
	value(t, "SM active", c.Activity.SMActive, 2.5)
	value(t, "tensor", c.Activity.TensorActive, 1)
	absent(t, "occupancy", c.Activity.SMOccupancy)
	if v := c.Activity.Pipes; len(v) != 1 || v[gpu.PipeFP16] != 1 {
		t.Errorf("pipes %v", v)
	}
	if c.Activity.Method != gpu.Some(gpu.MethodGPM) {
		t.Errorf("method %v", c.Activity.Method)
	}
}

// Pods come and go for a day: nothing is kept of those that are long ended.
func TestChurnIsBounded(t *testing.T) {
	w := newWorld(t, "A", "B")
	w.devices[0].util = .5
	for i := range 2000 {
		w.allocs.List = []gpu.Allocation{allocate(fmt.Sprintf("p-%d", i), "A", 1), allocate(fmt.Sprintf("q-%d", i), "B", .5)}
		w.step(20)
	}
	if n := len(w.Ledger.rows); n > 2*(int(grace)/20+2) {
		t.Errorf("%d rows are kept", n)
	}
	if n := len(w.Ledger.devices["A"].act.recent); n > 40 {
		t.Errorf("%d stretches are kept", n)
	}
}

// Work that a container got stays in the sum of its GPU while no more of it can be told, and stands still.
// Time in which a container could not be measured is never idle: its last activity restarts when it can be again.
func TestUnmeasuredTimeIsNotIdle(t *testing.T) {
	half := []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	for name, unmeasured := range map[string]struct {
		blind  func(c *fakeGPU)
		allocs []gpu.Allocation
	}{
		"several users without samples": {func(c *fakeGPU) { c.medium = medium(3, 1, 1, 3, 1) }, half},
		"an unresolved process":         {func(c *fakeGPU) { c.medium = medium(3, 77, 1) }, half},
		"an unreadable GPU":             {func(c *fakeGPU) { c.availability = Unread }, half},
		"an unreadable GPU of one":      {func(c *fakeGPU) { c.availability = Unread }, half[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "A")
			w.users, w.allocs.List = testUsers, slices.Clone(unmeasured.allocs)
			if len(w.allocs.List) == 1 {
				w.allocs.List[0] = allocate("p", "A", 1)
			}
			c := w.devices[0]
			c.medium = medium(3)
			w.steps(60, 2)
			value(t, "idle to begin with", w.container("p", "A").Idle, 58/float64(len(w.allocs.List)))
			unmeasured.blind(c)
			w.step(2)
			if g := w.device("A"); c.availability == Unread && (g.Activity.Mean.Present() || !g.Activity.Busy.Present()) {
				t.Errorf("of a GPU that is not read: %+v", g.Activity)
			}
			w.steps(59, 2)
			c.availability, c.medium = Readable, medium(3)
			before, _ := w.find("p", "A")
			w.steps(1, 2)
			back := epoch.Add(time.Duration(w.now * float64(time.Second)))
			w.steps(20, 2)
			after := w.container("p", "A")
			value(t, "idle", after.Idle, float64(before.Idle.Or(0)))
			if at, ok := after.LastBusy.Get(); !ok || !at.Equal(back) {
				t.Errorf("last busy %v %v, measurable again at %v", at, ok, back)
			}
		})
	}
}

func TestWorkStaysInTheSum(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	a.medium, a.hasWeights, a.weights, a.util = medium(8, 1, 2, 3, 2), true, weights(1, 20, 3, 20), .5
	w.step(2)
	w.steps(5, 2)
	before := w.container("q", "A").Busy.Or(0)
	a.medium, a.weights = medium(8, 1, 2, 77, 2), weights(1, 20, 77, 20) // the process of q cannot be named any more
	w.steps(40, 2)
	q := w.container("q", "A")
	value(t, "busy of q", q.Busy, float64(before))
	if q.Attribution != "none" || q.Processes.Present() || q.LastBusy.Present() {
		t.Errorf("%+v", q)
	}
	closes(t, w, "A")
}

// A GPU that leaves MIG mode is one part again, with the memory and activity of the whole.
func TestMIGModeEnds(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.slow, a.gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": .5, "MIG-2": 0}
	a.medium = &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 9 << 30}), Instances: []gpu.InstanceMedium{
		{UUID: "MIG-1", Memory: gpu.Some(gpu.Memory{Total: 40 << 30, Used: 5 << 30})},
		{UUID: "MIG-2", Memory: gpu.Some(gpu.Memory{Total: 40 << 30, Used: 3 << 30})}}}
	w.allocs.List = []gpu.Allocation{holdInstance("p", "A", "MIG-1", 1), holdInstance("q", "A", "MIG-2", 1)}
	w.steps(3, 2)
	value(t, "memory of an instance", w.container("p", "A").Memory, 5<<30)
	value(t, "memory of the other", w.container("q", "A").Memory, 3<<30)
	if list := w.Allocations(); len(list) != 2 || list[0].Container.Pod != "p" || list[1].Container.Pod != "q" {
		t.Errorf("%+v", list)
	}
	if n := len(w.device("A").Instances); n != 2 {
		t.Errorf("%d instances", n)
	}
	a.slow, a.gpm, a.util = &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{})}, nil, .5
	w.allocs.List = []gpu.Allocation{allocate("r", "A", 1)}
	w.steps(3, 2)
	before := w.container("r", "A").Busy.Or(0)
	w.steps(5, 2)
	value(t, "busy of the whole", w.container("r", "A").Busy, float64(before)+5)
	value(t, "memory of the whole", w.container("r", "A").Memory, 9<<30)
	if n := len(w.device("A").Instances); n != 0 {
		t.Errorf("%d instances without MIG", n)
	}
}

// Every quantity of a GPU has its attribution error.
func TestAttributionErrors(t *testing.T) {
	w := newWorld(t, "A")
	w.devices[0].watts, w.devices[0].medium = 100, medium(3)
	w.steps(3, 2)
	var got []string
	for _, e := range w.device("A").AttributionErrors {
		got = append(got, e.Quantity)
	}
	if fmt.Sprint(got) != "[busy energy memory]" {
		t.Errorf("%q", got)
	}
}

func TestRingSpan(t *testing.T) {
	whole := regular(1000, 1010, .1, 50)
	for name, c := range map[string]struct {
		ring gpu.Ring
		want float64
	}{"in order": {whole, 9.9}, "turned": {slices.Concat(whole[40:], whole[:40]), 9.9}, "of a second": {whole[:10], .9},
		"it stopped for an hour": {slices.Concat(regular(1000, 1001, .1, 0), regular(4600, 4601, .1, 50)), 1.9},
		"one":                    {whole[:1], 0}, "none": {nil, 0}} {
		near(t, name, RingSpan(c.ring), c.want)
	}
}

// One container on several GPUs and several times on one; what it uses without allocation.
func TestContainersOfSeveralAllocations(t *testing.T) {
	w := newWorld(t, "A", "B")
	w.users = testUsers
	w.allocs.List = []gpu.Allocation{allocate("q", "A", .5), allocate("p", "B", .5), allocate("p", "B", .5), allocate("p", "A", .5)}
	a, b := w.devices[0], w.devices[1]
	a.medium, a.hasWeights, b.medium, b.util = medium(3, 1, 1), true, medium(3), .5
	w.steps(40, 2)
	var order []string
	for _, x := range w.Allocations() {
		order = append(order, x.Container.Pod+string(x.GPU))
	}
	if fmt.Sprint(order) != "[pA pB pB qA]" {
		t.Errorf("%q", order)
	}
	if p := w.container("p", "B"); p.Attribution != attributionExclusive || len(p.Mismatch) > 0 {
		t.Errorf("two halves of a GPU: %+v", p)
	}
	if p := w.container("p", "A"); len(p.Mismatch) > 0 || p.Attribution != attributionProcess {
		t.Errorf("what it uses is allocated to it: %+v", p)
	}
	w.allocs.List = w.allocs.List[:3]
	w.step(2)
	a.medium = medium(3, 1, 1) // a newer list
	w.steps(40, 2)
	if p := w.container("p", "A"); fmt.Sprint(p.Mismatch) != "[used_other_gpu]" {
		t.Errorf("%q", p.Mismatch)
	}
	w.allocs.List = w.allocs.List[:1]
	w.step(2)
	a.medium = medium(3, 1, 1) // a newer list
	w.steps(40, 2)
	if p := w.container("p", "A"); fmt.Sprint(p.Mismatch) != "[used_not_allocated]" {
		t.Errorf("%q", p.Mismatch)
	}
	// Alone on the GPU again, a container has all of it at once.
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	a.medium, a.util, a.weights = medium(3, 1, 1, 8, 1), .5, weights(1, 25, 8, 25)
	w.steps(3, 2)
	a.medium, a.weights = medium(3, 1, 1), weights(1, 50)
	w.steps(2, 2)
	if p := w.container("p", "A"); p.Attribution != attributionExclusive {
		t.Errorf("%+v", p)
	}
}

// The last sampling period stands in for a ring that is missing for long, not for one that is missing again and again.
func TestRingThatIsMissing(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.util = .5
	for range 3 {
		w.steps(2, 2)
		a.noRing = true
		w.steps(10, 2)
		if m := w.device("A").Activity.Method.Or(""); m != gpu.MethodRing {
			t.Errorf("method %s", m)
		}
		a.noRing = false
	}
	a.noRing = true
	w.steps(20, 2)
	busy := w.now
	a.util = 0
	w.steps(20, 2)
	c := w.device("A").Activity
	if at, ok := c.LastBusy.Get(); c.Method.Or("") != gpu.MethodRate || !ok || !at.Equal(epoch.Add(time.Duration(busy)*time.Second)) {
		t.Errorf("method %v, last busy %v, want %v s", c.Method, at.Sub(epoch), busy)
	}
}

// A compute instance that was created anew is on the same part.
func TestComputeInstanceIsReplaced(t *testing.T) {
	w := newWorld(t, "A")
	for _, ci := range []gpu.UUID{"MIG-x", "MIG-y"} {
		s := migSlow(1)
		s.Instances[0].Compute = []gpu.ComputeInstance{{UUID: ci}}
		w.devices[0].slow = s
		w.allocs.List = []gpu.Allocation{holdInstance("p", "A", ci, 1)}
		w.steps(2, 2)
		value(t, string(ci), w.device("A").AllocationRatio, 1./7)
	}
}

// A GPU that is known by its PCI address alone keeps its XIDs, and a second report without a container the container.
func TestXIDsByAddress(t *testing.T) {
	const address = "0000:01:00.0"
	l, at := New(Options{}), epoch.Add(time.Minute)
	for _, e := range []gpu.XIDEvent{{XID: 79, Source: gpu.SourceKmsg, Container: pod("p")}, {XID: 79, Source: "nvml"}} {
		e.GPU, e.PCI, e.Time = address, address, at
		l.Event(e)
		l.Advance(Poll{Now: at, Elapsed: time.Second, GPUs: []Reading{{Identity: gpu.Identity{UUID: address, PCI: address}}}})
	}
	found := gpu.GPU{Identity: gpu.Identity{UUID: address}}
	l.Fill(&found)
	if x := found.XIDs; len(x) != 1 || x[0].Count != 1 || x[0].Container != pod("p") {
		t.Errorf("%+v", x)
	}
}

func TestSplitUnused(t *testing.T) {
	for _, c := range []struct{ unused, elapsed, quiet, idle float64 }{
		{2, 2, 10, 0}, {2, 2, 60, 0}, {2, 2, 61, 1}, {2, 2, 62, 2}, {2, 2, 500, 2}, {.5, .5, 60.2, .2}, {1, 0, 3, 1}, {1, 2, 61, .5},
	} {
		idle, gap := SplitUnused(c.unused, c.elapsed, c.quiet)
		near(t, fmt.Sprintf("idle of %+v", c), idle, c.idle)
		near(t, fmt.Sprintf("gap of %+v", c), gap, c.unused-c.idle)
	}
}

// Every plain value of a reading has its limits.
func TestPlainValues(t *testing.T) {
	var s Filter
	bad, link := gpu.Some(gpu.Watts(-1)), gpu.Some(99)
	w := gpu.Slow{PowerLimit: bad, PowerLimitRequested: bad, PowerLimitDefault: bad, PowerLimitMin: bad, PowerLimitMax: bad,
		PCIe: gpu.PCIeLink{Generation: link, Width: link, MaxGeneration: link, MaxWidth: link, GPUMaxGeneration: link}}
	if s.Slow(&w); !reflect.DeepEqual(w, gpu.Slow{}) {
		t.Errorf("%+v", w)
	}
	n := uint64(0)
	for _, c := range s.Counts() {
		n += c.Count
	}
	if n != 10 {
		t.Errorf("%d values are counted", n)
	}
}

// The states of the time may lag behind the samples by MaxLag: so much of a late reading covers time without readings.
func TestMaxLag(t *testing.T) {
	for lag, unknown := range map[time.Duration]float64{0: 15, 12 * time.Second: 8, time.Minute: 0} {
		w := newWorldOf(t, Options{MaxLag: lag}, "A")
		w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
		w.steps(5, 2)
		w.Ledger.devices["A"].parts[0].rest = 20
		w.step(2)
		w.devices[0].silent = true
		w.steps(10, 2)
		near(t, fmt.Sprintf("unknown with %s", lag), float64(w.device("A").GPUSeconds[gpu.TimeUnknown]), unknown)
	}
}

// A counter that the driver restarts with a new session, and reports some time later only, restarts there: it stood still until
// the driver had caught up.
func TestCounterAfterALateStart(t *testing.T) {
	l := New(Options{})
	read := func(joules gpu.Opt[gpu.Joules]) float64 {
		l.Advance(Poll{Now: epoch, Elapsed: 2 * time.Second, GPUs: []Reading{{Identity: gpu.Identity{UUID: "A"},
			Fast: &gpu.Fast{Energy: joules, Utilization: gpu.Some(gpu.Utilization{})}}}})
		out := gpu.GPU{Identity: gpu.Identity{UUID: "A"}}
		l.Fill(&out)
		return float64(out.Activity.Energy.Or(-1))
	}
	near(t, "first", read(gpu.Some(gpu.Joules(1000))), 1000)
	near(t, "second", read(gpu.Some(gpu.Joules(1100))), 1100)
	l.Reopened()
	near(t, "refused", read(gpu.None[gpu.Joules]()), 1100)
	near(t, "restarted", read(gpu.Some(gpu.Joules(900))), 2000)
	near(t, "on", read(gpu.Some(gpu.Joules(950))), 2050)
}
