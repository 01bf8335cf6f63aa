package account

import (
	"fmt"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// One GPU, half of it allocated to p since the first second, step by step. Time without samples is unknown; what is measured
// late is counted in the seconds that follow, busy time first, and at most five seconds of it.
func TestSecondsOfAnIncrement(t *testing.T) {
	type seconds = map[gpu.TimeState]float64
	l := New(Options{})
	c := newGPU(gpu.Identity{UUID: "A"}, epoch)
	r := &row{attribution: attributionExclusive}
	p := c.parts[0]
	p.rows, p.unallocated, p.unallocatedKnown = []rowShare{{row: r, share: .5, allocated: .5}}, .5, true
	c.act.method, c.act.observed = gpu.MethodRing, 1
	was := seconds{}
	for i, s := range []struct {
		elapsed, busy, observed, spacing float64
		want                             seconds
	}{
		{2, 1, 2, 0, seconds{gpu.TimeBusy: 1, gpu.TimeGap: .5, gpu.TimeUnallocated: .5}},
		{2, 0, 0, 0, seconds{gpu.TimeUnknown: 1, gpu.TimeUnallocated: 1}}, // no sample of them yet
		{2, 3, 4, 0, seconds{gpu.TimeBusy: 2}},                            // 1 of busy time and 1 of the rest are kept
		{2, 0, 2, 0, seconds{gpu.TimeBusy: 1, gpu.TimeGap: .5, gpu.TimeUnallocated: .5}},
		{5, 0, 0, 0, seconds{gpu.TimeUnknown: 1.5, gpu.TimeGap: 1, gpu.TimeUnallocated: 2.5}}, // 2 were kept
		{1, 0, 0, 0, seconds{gpu.TimeUnknown: .5, gpu.TimeUnallocated: .5}},
		{1, 100, 7, 0, seconds{gpu.TimeBusy: 1}}, // 5 are kept
		{4, 0, 4, 0, seconds{gpu.TimeBusy: 4}},
		{4, 0, 4, 0, seconds{gpu.TimeBusy: 1, gpu.TimeGap: 1.5, gpu.TimeUnallocated: 1.5}},     // the last of them
		{10, 4, 20, 0, seconds{gpu.TimeBusy: 4, gpu.TimeGap: 3, gpu.TimeUnallocated: 3}},       // observed more than elapsed
		{10, 0, 0, 0, seconds{gpu.TimeUnknown: 2.5, gpu.TimeGap: 2.5, gpu.TimeUnallocated: 5}}, // 5 of 10
		{2, 8, 20, 1, seconds{gpu.TimeBusy: 2}},                                                // with a second between reads: 6
		{10, 0, 0, 1, seconds{gpu.TimeBusy: 6, gpu.TimeUnknown: 2, gpu.TimeUnallocated: 2}},
		{0, 0, 0, 0, seconds{}},
	} {
		l.clock += s.elapsed
		c.spacing, p.added = s.spacing, increment{busy: s.busy, observed: s.observed}
		if s.busy > 0 {
			r.lastBusyAt = l.clock
		}
		l.addTime(c, s.elapsed)
		for _, use := range gpu.TimeStates {
			near(t, fmt.Sprintf("step %d: %s", i, use), c.seconds[use]-was[use], s.want[use])
			was[use] = c.seconds[use]
		}
	}
	near(t, "gap of p", r.gap, was[gpu.TimeGap])
	near(t, "idle of p", r.idle, was[gpu.TimeIdle])
	// Of what is unread or lost no measured time is kept.
	for availability, use := range map[Availability]gpu.TimeState{Unavailable: gpu.TimeUnavailable, Unread: gpu.TimeUnknown} {
		c.availability, p.busy, p.rest = availability, 3, 3
		before := c.seconds[use]
		l.addTime(c, 7)
		if near(t, string(use), c.seconds[use]-before, 7); p.busy != 0 || p.rest != 0 {
			t.Errorf("%s: %+v", use, p)
		}
	}
}

// Time of a GPU whose instances have an unknown size is unknown in full, and a GPU whose activity was never measured has
// no idle time.
func TestSecondsThatAreUnknown(t *testing.T) {
	l := New(Options{})
	for name, c := range map[string]struct {
		change  func(c *device, p *part)
		unknown float64 // of 4 s, of which nothing is unallocated
	}{
		"measured":                     {func(c *device, p *part) { p.added.observed = 4 }, 0},
		"no method":                    {func(c *device, p *part) { c.act.method = "" }, 4},
		"never observed":               {func(c *device, p *part) { c.act.observed = 0 }, 4},
		"observed now":                 {func(c *device, p *part) { c.act.observed, p.added.observed = 0, 5 }, 0},
		"an unknown size":              {func(c *device, p *part) { p.shareKnown, p.share = false, 0 }, 4},
		"a quarter of an unknown size": {func(c *device, p *part) { p.share, p.added.observed = .75, 4 }, 1},
		"slices without an instance":   {func(c *device, p *part) { p.kind = spareSlices }, 0},
	} {
		d := newGPU(gpu.Identity{UUID: "A"}, epoch)
		d.act.method, d.act.observed = gpu.MethodRing, 1
		r := &row{attribution: attributionExclusive}
		d.parts[0].rows = []rowShare{{row: r, share: 1, allocated: 1}}
		l.clock = 100
		c.change(d, d.parts[0])
		l.addTime(d, 4)
		near(t, name, d.seconds[gpu.TimeUnknown], c.unknown)
		near(t, name+": idle", d.seconds[gpu.TimeIdle]+d.seconds[gpu.TimeGap], 4-c.unknown)
		if p := d.parts[0]; !p.shareKnown && (p.busy != 0 || p.rest != 0) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Whether a container is idle follows its own last activity where it is measured, else that of the part, and in either
// case its allocation: idle starts 60 s after the latest of them.
func TestIdleSinceTheLatestOf(t *testing.T) {
	for _, c := range []struct {
		attribution          string
		own, part, allocated float64
		idle                 float64 // of the 10 s until 200
	}{
		{attributionProcess, 100, 190, 0, 10}, {attributionProcess, 190, 100, 0, 0}, {attributionProcess, 134, 190, 0, 6},
		{attributionNone, 190, 100, 0, 10}, {attributionNone, 100, 190, 0, 0}, {"", 190, 134, 0, 6},
		{attributionProcess, 100, 100, 190, 0}, {attributionProcess, 100, 100, 134, 6},
	} {
		l := New(Options{})
		d := newGPU(gpu.Identity{UUID: "A"}, epoch)
		d.act.method, d.act.observed, d.act.lastBusyAt = gpu.MethodRing, 1, c.part
		r := &row{attribution: c.attribution, lastBusyAt: c.own, allocatedAt: c.allocated}
		p := d.parts[0]
		p.rows, p.added = []rowShare{{row: r, share: 1, allocated: 1}}, increment{observed: 10}
		l.clock = 200
		l.addTime(d, 10)
		near(t, fmt.Sprintf("%+v", c), r.idle, c.idle)
		near(t, fmt.Sprintf("%+v: gap", c), r.gap, 10-c.idle)
	}
}

// A poll that comes a minute and a half late, as after SIGSTOP: what the ring, 14 s deep, or the driver's last period do not
// cover is unknown at once, and no second is in no state.
func TestSecondsOfALatePoll(t *testing.T) {
	for name, c := range map[string]struct {
		noRing bool
		want   map[gpu.TimeState]float64 // of 92 s
	}{
		"ring": {false, map[gpu.TimeState]float64{gpu.TimeBusy: 4.2, gpu.TimeGap: 9.8, gpu.TimeUnknown: 78}},
		"rate": {true, map[gpu.TimeState]float64{gpu.TimeBusy: 1.5, gpu.TimeGap: 3.5, gpu.TimeUnknown: 87}},
	} {
		w := newWorld(t)
		g := &fakeGPU{id: gpu.Identity{UUID: "A"}, util: .3, depth: 14, noRing: c.noRing}
		w.devices = append(w.devices, g)
		w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
		w.steps(6, 2)
		before, allocated := w.device("A").GPUSeconds, w.container("p", "A").Allocated.Or(0)
		w.step(92)
		after := w.device("A")
		for _, use := range gpu.TimeStates {
			near(t, name+": "+string(use), float64(after.GPUSeconds[use]-before[use]), c.want[use])
		}
		near(t, name+": allocated", float64(w.container("p", "A").Allocated.Or(0)-allocated), 92)
		for _, e := range after.AttributionErrors {
			if e.Ratio != 0 {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// Time that is in no state, or in two, is an error that is exported: the states are compared with the clock, not with what
// they were made from.
func TestSecondsThatAreMissing(t *testing.T) {
	w := newWorld(t, "A")
	errors := func() (ratio gpu.Ratio) {
		for _, e := range w.device("A").AttributionErrors {
			if e.Quantity == "time" {
				ratio = e.Ratio
			}
		}
		return ratio
	}
	w.steps(5, 2)
	near(t, "error", float64(errors()), 0)
	w.now += 30 // of which the ledger is told nothing
	w.step(10)
	near(t, "error after 50 s of which 20 are in a state", float64(errors()), .6)
	w.Ledger.devices["A"].seconds[gpu.TimeBusy] += 40
	near(t, "error of 10 s too many", float64(errors()), .2)
}

// The time until the first sample of a GPU that has returned is unknown, however long its rings are not read; what was worked
// from then on is busy.
func TestSecondsAfterAReturn(t *testing.T) {
	for name, back := range map[string]func(*world, *fakeGPU){
		"lost":      func(w *world, c *fakeGPU) { c.availability = Unavailable; w.step(20); c.availability = Readable },
		"suspended": func(w *world, c *fakeGPU) { c.availability = Unread; w.step(20); c.availability = Readable },
		"session":   func(w *world, c *fakeGPU) { w.Reopened() },
	} {
		w := newWorld(t, "A")
		c := w.devices[0]
		c.util = .5
		w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
		w.steps(5, 2)
		back(w, c)
		before := w.device("A").GPUSeconds
		c.silent = true
		w.steps(3, 2)
		c.silent = false
		w.steps(6, 2) // the first finds where the ring is
		after := w.device("A").GPUSeconds
		for use, want := range map[gpu.TimeState]float64{gpu.TimeUnknown: 8, gpu.TimeBusy: 5, gpu.TimeGap: 5} {
			near(t, name+": "+string(use), float64(after[use]-before[use]), want)
		}
	}
}
