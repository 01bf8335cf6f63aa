package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The idle power is learned from the second of two periods that are proven idle: no activity in at least half of the
// period. The first is taken as it is, each later one changes it by a tenth.
func TestIdlePowerIsLearned(t *testing.T) {
	l := New(Options{})
	c := newGPU(gpu.Identity{UUID: "A"}, epoch)
	c.parts[0].mode = modeUnknown
	for i, s := range []struct {
		joules, busy, observed, elapsed float64
		want                            float64 // W; -1: not known
	}{
		{200, 0, 2, 2, -1}, {100, 0, 1, 2, 50}, // the second of two
		{200, 0, .9, 2, 50},                                         // too little was observed
		{200, 0, 2, 2, 50},                                          // the first of two again
		{200, 0, 2, 2, 55}, {200, .1, 2, 2, 55}, {200, 0, 2, 2, 55}, // active between
		{0, 0, 2, 2, 49.5}, {10, 0, 2, 0, 49.5}, {10, 0, 0, 0, 49.5},
		{99, 0, 2, 2, 49.5}, {99, 0, 2, 2, 49.5},
	} {
		l.splitEnergy(c, s.joules, s.busy, s.observed, s.elapsed)
		if watts := c.idleWatts; c.idleKnown != (s.want >= 0) || s.want >= 0 && (watts-s.want > 1e-9 || s.want-watts > 1e-9) {
			t.Errorf("period %d: %v W, known %v, want %v", i, watts, c.idleKnown, s.want)
		}
	}
	near(t, "all", c.totalEnergy, 200+100+200+200+200+200+200+10+10+99+99)
	near(t, "attributed", c.attributedEnergy, c.totalEnergy)
}

// 1000 J of 10 s at an idle power of 20 W, on a GPU of which p has a half and q a quarter.
func TestEnergyOfAPeriod(t *testing.T) {
	type reasons = map[gpu.UnattributedReason]float64
	for _, c := range []struct {
		name           string
		busy, observed float64
		joules         float64
		pBusy, qBusy   float64 // credits
		measured, sole bool
		known          bool // that the rest is unallocated
		configured     bool
		p, q           float64
		unattributed   reasons
	}{
		{"idle", 0, 10, 1000, 0, 0, true, false, true, true, 500, 250, reasons{gpu.UnattributedIdle: 250}},
		{"idle, the rest unknown", 0, 10, 1000, 0, 0, true, false, false, true, 500, 250, reasons{gpu.UnattributedUnresolved: 250}},
		{"idle, no source of allocations", 0, 10, 1000, 0, 0, true, false, false, false, 500, 250, reasons{gpu.UnattributedIdle: 250}},
		{"idle, containers without a method", 0, 10, 1000, 0, 0, false, false, true, true, 0, 0,
			reasons{gpu.UnattributedHidden: 750, gpu.UnattributedIdle: 250}},
		{"idle for less than half of the time", 0, 4.9, 1000, 0, 0, true, false, true, true, 0, 0,
			reasons{gpu.UnattributedUnmeasured: 1000}},
		{"busy", 5, 10, 1000, 4, 1, true, false, true, true, 100 + 640, 50 + 160, reasons{gpu.UnattributedIdle: 50}},
		{"busy, less than the idle power", 5, 10, 100, 4, 1, true, false, true, true, 50, 25, reasons{gpu.UnattributedIdle: 25}},
		{"busy, and nothing of it attributed", 5, 10, 1000, 0, 0, true, false, true, true, 100, 50,
			reasons{gpu.UnattributedIdle: 50, gpu.UnattributedUnmeasured: 800}},
		{"busy beyond what was counted", 5, 10, 1000, 8, 2, true, false, true, true, 100 + 800, 50, reasons{gpu.UnattributedIdle: 50}},
		{"one container", 5, 10, 1000, 1, 0, true, true, true, true, 1000, 0, reasons{}},
		{"no energy", 5, 10, 0, 4, 1, true, false, true, true, 0, 0, reasons{}},
	} {
		l := New(Options{})
		l.allocs.Configured = c.configured
		d := newGPU(gpu.Identity{UUID: "A"}, epoch)
		d.idleWatts, d.idleKnown, d.act.method = 20, true, gpu.MethodRing
		p, q := &row{}, &row{}
		if c.measured {
			p.attribution, q.attribution = attributionProcess, attributionProcess
		}
		part := d.parts[0]
		part.mode = modeProcess
		part.rows = []rowShare{{row: p, share: .5}, {row: q, share: .25}}
		part.unallocated, part.unallocatedKnown = .25, c.known
		if c.sole {
			part.mode, part.rows = modeSole, part.rows[:1]
		}
		for _, x := range []credit{{target{row: p}, c.pBusy}, {target{row: q}, c.qBusy}} {
			if x.busy > 0 {
				d.credits = append(d.credits, x)
			}
		}
		l.splitEnergy(d, c.joules, c.busy, c.observed, 10)
		near(t, c.name+": p", p.energy, c.p)
		near(t, c.name+": q", q.energy, c.q)
		sum := p.energy + q.energy
		for reason, u := range d.unattributed {
			near(t, c.name+": "+string(reason), u.energy, c.unattributed[reason])
			if sum += u.energy; !u.hasEnergy || u.hasBusy {
				t.Errorf("%s: %s %+v", c.name, reason, u)
			}
		}
		if len(d.unattributed) != len(c.unattributed) {
			t.Errorf("%s: %d reasons", c.name, len(d.unattributed))
		}
		near(t, c.name+": sum", sum, c.joules)
		near(t, c.name+": attributed", d.attributedEnergy, c.joules)
	}
}

// Of MIG instances whose size is unknown no share of the idle energy is known: it is unresolved, with its reason.
func TestEnergyOfUnknownInstances(t *testing.T) {
	l := New(Options{})
	d := newGPU(gpu.Identity{UUID: "A"}, epoch)
	share := gpu.Some(gpu.Ratio(3. / 8))
	d.layout(&gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{Current: true}), Instances: []gpu.Instance{{UUID: "1", GI: 1, Share: share},
		{UUID: "2", GI: 2}}})
	d.parts[0].unallocated, d.parts[0].unallocatedKnown = 1, true
	l.splitEnergy(d, 800, 0, 10, 10)
	got := map[gpu.UnattributedReason]float64{}
	for reason, u := range d.unattributed {
		got[reason] = u.energy
	}
	near(t, "idle", got[gpu.UnattributedIdle], 300)
	near(t, "unresolved", got[gpu.UnattributedUnresolved], 500)
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
}
