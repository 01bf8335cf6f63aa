package account

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Readings without samples count what needs none. Busy time and energy are those of the next reading with samples, over
// all of the time since the last one: 100 W and a half of the time, read every second or third poll.
func TestReadingsWithoutSamples(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	joules, now := 0.0, epoch
	advance := func(sampled bool, profiled float64) gpu.Activity {
		joules += 200
		now = now.Add(2 * time.Second)
		f := &gpu.Fast{Unsampled: !sampled, Energy: gpu.Some(gpu.Joules(joules)), Utilization: gpu.Some(gpu.Utilization{GPU: .5}),
			NVLinkReceive: gpu.Some(gpu.Bytes(joules)),
			Limited:       map[gpu.LimitReason]gpu.Seconds{gpu.LimitPowerCap: gpu.Seconds(joules / 200)},
			GPM:           gpu.Some(gpu.GPM{Window: 2 * time.Second, SMActive: gpu.Some(gpu.Ratio(profiled))})}
		l.Advance(Poll{Now: now, Elapsed: 2 * time.Second, Allocations: gpu.Allocations{Known: true, Configured: true,
			List: []gpu.Allocation{allocate("p", "A", 1)}},
			GPUs: []Reading{{Identity: id, Fast: f, Spacing: 6 * time.Second}}})
		g := gpu.GPU{Identity: id}
		l.Fill(&g)
		return g.Activity
	}
	for i, c := range []struct {
		sampled                        bool
		energy, busy, observed, nvlink float64
	}{
		{true, 200, 0, 0, 200}, {false, 200, 0, 0, 400}, {true, 600, 2, 4, 600}, {false, 600, 2, 4, 800}, {false, 600, 2, 4, 1000},
		{true, 1200, 4.5, 9, 1200}, // the driver's latest value is that of five seconds at most
		{true, 1400, 5.5, 11, 1400},
	} {
		a := advance(c.sampled, .5)
		value(t, "energy", a.Energy, c.energy)
		value(t, "busy", a.Busy, c.busy)
		value(t, "observed", a.Observed, c.observed)
		value(t, "NVLink", a.NVLinkReceive, c.nvlink)
		value(t, "limited", gpu.Some(a.Limited[gpu.LimitPowerCap]), float64(i+1))
		value(t, "profiled", a.Profiled, []float64{1, 3, 5, 7, 9, 11, 13}[i])
		if t.Failed() {
			t.Fatalf("reading %d", i)
		}
	}
	w := world{Ledger: l, t: t}
	value(t, "busy of p", w.container("p", "A").Busy, 5.5)
	value(t, "energy of p", w.container("p", "A").Energy, 1200)
	closes(t, &w, "A")
}

// Under MIG every reading has samples: those of the profiling metrics.
func TestReadingsWithoutSamplesUnderMIG(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	for range 4 {
		f := &gpu.Fast{Unsampled: true, Instances: []gpu.InstanceFast{{UUID: "MIG-1",
			GPM: gpu.Some(gpu.GPM{Window: 2 * time.Second, GraphicsActive: gpu.Some(gpu.Ratio(.5))})}}}
		l.Advance(Poll{Elapsed: 2 * time.Second, GPUs: []Reading{{Identity: id, Fast: f, Slow: migSlow(1)}}})
	}
	g := gpu.GPU{Identity: id}
	l.Fill(&g)
	value(t, "busy", g.Instances[0].Activity.Busy, .5+3)
	value(t, "observed", g.Instances[0].Activity.Observed, 1+6)
}

// The driver's counters of a new session start anew: what is lower is added as a whole, once.
func TestCountersOfANewSession(t *testing.T) {
	l := New(Options{})
	id := gpu.Identity{UUID: "A"}
	for i, c := range []struct {
		reopened     bool
		value, total float64
	}{{false, 1000, 1000}, {false, 1500, 1500}, {true, 900, 2400}, {false, 890, 2400}, {false, 950, 2450}, {true, 960, 2460}} {
		if c.reopened {
			l.Reopened()
		}
		f := &gpu.Fast{Energy: gpu.Some(gpu.Joules(c.value)), NVLinkTransmit: gpu.Some(gpu.Bytes(c.value)),
			Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitThermal: gpu.Seconds(c.value / 1000)}}
		l.Advance(Poll{Elapsed: 2 * time.Second, GPUs: []Reading{{Identity: id, Fast: f}}})
		g := gpu.GPU{Identity: id}
		l.Fill(&g)
		value(t, "energy", g.Activity.Energy, c.total)
		value(t, "limited", gpu.Some(g.Activity.Limited[gpu.LimitThermal]), c.total/1000)
		if i < 3 { // a sum of links that is lower in a session lost one of them
			value(t, "NVLink", g.Activity.NVLinkTransmit, c.total)
		}
	}
}
