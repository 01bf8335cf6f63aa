package fleet_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

func newFleet(t testing.TB, c fleet.Config) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(c)
	must.OK(t, err)
	return f
}

var someDay = time.Date(2026, 11, 18, 14, 3, 7, 0, time.UTC)

// near says whether two sums agree as far as adding in another order lets them.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// Whatever was asked before, and in whatever order: the same moment gives the same view.
func TestViewDependsOnTheMomentAlone(t *testing.T) {
	moments := []time.Duration{0, 30 * time.Second, 61 * time.Minute, -5 * time.Hour, 26 * time.Hour, 26*time.Hour + 30*time.Second,
		-40 * time.Hour, 0}
	walked := newFleet(t, fleet.Demo(1))
	for _, d := range moments {
		fresh := newFleet(t, fleet.Demo(1))
		for i := range fresh.Len() {
			at := someDay.Add(d)
			if a, b := walked.View(i, at), fresh.View(i, at); !reflect.DeepEqual(a, b) {
				t.Fatalf("node %s at %v differs by what was asked before", fresh.Node(i).Name, at)
			}
		}
	}
}

// closes holds the laws of one view: each second of a GPU goes somewhere, and what containers and reasons
// got adds up to what the GPU did.
func closes(t *testing.T, v *gpu.View) {
	t.Helper()
	for i := range v.GPUs {
		c := &v.GPUs[i]
		for _, e := range c.AttributionErrors {
			if e.Ratio != 0 {
				t.Errorf("%s gpu %d: %s fails to close by %v", v.Node, c.Index, e.Quantity, e.Ratio)
			}
		}
		m, ok := c.Medium.Get()
		if !ok {
			continue
		}
		memory := m.Memory.Or(gpu.Memory{})
		if memory.Used > memory.Total || memory.Free > memory.Total || memory.Used+memory.Free+memory.Reserved.Or(0) != memory.Total {
			t.Errorf("%s gpu %d: memory does not add up: %+v", v.Node, c.Index, memory)
		}
		var used gpu.Bytes
		for _, cc := range v.Containers {
			if cc.GPU == c.UUID {
				used += cc.Memory.Or(0)
			}
		}
		for _, u := range c.Unattributed {
			used += u.Memory.Or(0)
		}
		if used != memory.Used {
			t.Errorf("%s gpu %d: %d bytes given out of %d used", v.Node, c.Index, used, memory.Used)
		}
		allocated := 0.0
		for _, h := range v.Allocations {
			if h.GPU == c.UUID {
				allocated += float64(h.AllocationRatio.Or(0))
			}
		}
		if !near(allocated, float64(c.AllocationRatio.Or(-1))) {
			t.Errorf("%s gpu %d: containers have %v, %v allocated", v.Node, c.Index, allocated, c.AllocationRatio)
		}
	}
}

// account is what the increases of a day come to for one GPU.
type account struct{ seconds, busy, energy float64 }

// Over simulated days every GPU's seconds add up to the time that went by, and what containers and reasons got
// of busy time and energy adds up to the GPU's own.
func TestSumsCloseOverDays(t *testing.T) {
	for _, c := range []struct {
		name   string
		config fleet.Config
		length time.Duration
	}{{"demo", fleet.Demo(3), 30 * time.Hour}, {"big", fleet.Big(6, 60, 4), 6 * time.Hour}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sumsClose(t, newFleet(t, c.config), c.length)
		})
	}
}

func sumsClose(t *testing.T, f *fleet.Fleet, length time.Duration) {
	const step = 5 * time.Minute
	for i := range f.Len() {
		device, attributed := map[gpu.UUID]account{}, map[gpu.UUID]account{}
		last := map[[4]string]float64{}
		var before *gpu.View
		// grow returns how much a counter grew since the view before; one that is new began at 0.
		grow := func(now map[[4]string]float64, key [4]string, value float64) float64 {
			now[key] = value
			if d := value - last[key]; d >= 0 {
				return d
			}
			t.Errorf("%s: %v fell", f.Node(i).Name, key)
			return 0
		}
		for at := someDay; at.Before(someDay.Add(length)); at = at.Add(step) {
			v := f.View(i, at)
			if v == nil {
				continue
			}
			closes(t, v)
			sum := 0.0
			for _, s := range v.GPUs[0].GPUSeconds {
				sum += float64(s)
			}
			now := map[[4]string]float64{}
			restarted := before != nil && sum < last[[4]string{"all"}]
			if before == nil || restarted {
				last = map[[4]string]float64{}
			}
			now[[4]string{"all"}] = sum
			for k := range v.GPUs {
				c := &v.GPUs[k]
				d, g := device[c.UUID], attributed[c.UUID]
				elapsed := 0.0
				for state, s := range c.GPUSeconds {
					elapsed += grow(now, [4]string{string(c.UUID), "state", string(state)}, float64(s))
				}
				d.seconds += elapsed
				if before != nil && !restarted && !near(elapsed, v.At.Sub(before.At).Seconds()) {
					t.Errorf("%s gpu %d: %v seconds given in %v", v.Node, c.Index, elapsed, v.At.Sub(before.At))
				}
				if c.State == gpu.DeviceUp {
					d.busy += grow(now, [4]string{string(c.UUID), "busy"}, float64(c.Activity.Busy.Or(0)))
					d.energy += grow(now, [4]string{string(c.UUID), "energy"}, float64(c.Activity.Energy.Or(0)))
					for _, u := range c.Unattributed {
						g.busy += grow(now, [4]string{string(c.UUID), "no busy", string(u.Reason)}, float64(u.Busy.Or(0)))
						g.energy += grow(now, [4]string{string(c.UUID), "no energy", string(u.Reason)}, float64(u.Energy.Or(0)))
					}
				}
				device[c.UUID], attributed[c.UUID] = d, g
			}
			for _, cc := range v.Containers {
				g := attributed[cc.GPU]
				who := cc.Namespace + "/" + cc.Pod
				g.busy += grow(now, [4]string{string(cc.GPU), "container busy", who}, float64(cc.Busy.Or(0)))
				g.energy += grow(now, [4]string{string(cc.GPU), "container energy", who}, float64(cc.Energy.Or(0)))
				attributed[cc.GPU] = g
			}
			if before == nil || v.At.Sub(before.At) > step {
				// The increase since the view before is not known in full: start from here.
				device, attributed = map[gpu.UUID]account{}, map[gpu.UUID]account{}
			}
			last, before = now, v
		}
		for u, d := range device {
			// A container that came and went between two views is not in them: short jobs last longer than a step.
			if g := attributed[u]; !near(d.busy, g.busy) || !near(d.energy, g.energy) {
				t.Errorf("%s %s: device %+v, given %+v", f.Node(i).Name, u, d, g)
			}
		}
	}
}

// In any six hours the demo shows every class of workload and every kind of trouble.
func TestDemoHasEverything(t *testing.T) {
	f := newFleet(t, fleet.Demo(1))
	for _, from := range []time.Time{someDay, someDay.Add(9 * 24 * time.Hour), someDay.Add(200 * 24 * time.Hour)} {
		seen := map[string]bool{}
		for _, w := range f.Truth(from, from.Add(6*time.Hour)).Workloads {
			seen["class "+string(w.Class)] = true
			seen["a workload on a lost gpu"] = seen["a workload on a lost gpu"] || w.Lost > 0
			seen["a workload on two nodes"] = seen["a workload on two nodes"] || w.Devices == 16
		}
		for i := range f.Len() {
			var first *gpu.View
			for at := from; at.Before(from.Add(6 * time.Hour)); at = at.Add(5 * time.Minute) {
				v := f.View(i, at)
				if v == nil {
					seen["gap"] = true
					continue
				}
				if first == nil {
					first = v
				}
				look(seen, first, v)
			}
		}
		for _, c := range fleet.Classes {
			if c != fleet.Free && !seen["class "+string(c)] {
				t.Errorf("from %v: no workload is %s", from, c)
			}
		}
		for _, what := range []string{"gap", "a workload on a lost gpu", "a workload on two nodes", "gpu up", "gpu failed", "gpu missing",
			"free gpu", "driver 580.105.08", "driver 570.195.03",
			"driver 535.183.01", "kubelet down", "xid", "uncorrected", "corrected", "remap pending", "remap failed", "retire pending",
			"power capped", "narrow", "link down", "heat", "brake",
			"recovery reset", "recovery drain_and_reset", "exclusive", "process", "none", "container gone"} {
			if !seen[what] {
				t.Errorf("from %v: never %s", from, what)
			}
		}
	}
}

// look notes what a view shows.
func look(seen map[string]bool, first, v *gpu.View) {
	note := func(what string, is bool) { seen[what] = seen[what] || is }
	system, _ := v.System.Get()
	note("driver "+system.DriverVersion, true)
	for _, s := range v.Sources {
		note("kubelet down", s.Name == gpu.SourcePodResources && !s.Up)
	}
	for _, c := range v.Containers {
		note(c.Attribution, true)
		note("container gone", c.Ended)
	}
	for i := range v.GPUs {
		c := &v.GPUs[i]
		note("gpu "+string(c.State), true)
		note("free gpu", c.AllocationRatio.Or(1) == 0)
		note("recovery "+string(c.Recovery.Or("")), true)
		for k, x := range c.XIDs {
			note("xid", k < len(first.GPUs[i].XIDs) && x.Count > first.GPUs[i].XIDs[k].Count)
		}
		if m, ok := c.Medium.Get(); ok {
			for _, e := range m.ECC {
				note(string(e.Severity), e.Volatile.Or(0) > 0)
			}
			note("remap pending", m.RemapPending.Or(false))
			note("remap failed", m.RemapFailed.Or(false))
			note("retire pending", m.RetirePending.Or(false))
		}
		if s, ok := c.Slow.Get(); ok {
			note("power capped", s.PowerLimit.Or(0) < s.PowerLimitDefault.Or(0))
			note("narrow", s.PCIe.Width.Or(0) < s.PCIe.MaxWidth.Or(0))
			note("link down", s.NVLinks.Or(gpu.NVLinkCount{}).Down > 0)
		}
		note("brake", c.Activity.Limited[gpu.LimitHWPowerBrake] > first.GPUs[i].Activity.Limited[gpu.LimitHWPowerBrake])
		note("heat", c.Activity.Limited[gpu.LimitHWThermal] > first.GPUs[i].Activity.Limited[gpu.LimitHWThermal])
	}
}

func TestNewRefuses(t *testing.T) {
	good := fleet.Pool{Name: "p", Model: "t4", Nodes: 1, GPUs: 1}
	unknown, empty := good, good
	unknown.Model, empty.GPUs = "abacus", 0
	for _, pools := range [][]fleet.Pool{nil, {good, good}, {unknown}, {empty}} {
		if _, err := fleet.New(fleet.Config{Pools: pools}); err == nil {
			t.Errorf("taken: %+v", pools)
		}
	}
}

// Each moment may be asked for, also long before the epoch, and a rack's end is no exception.
func TestEdgesOfCycles(t *testing.T) {
	c := fleet.Demo(1)
	c.Cycle = 24 * time.Hour
	f := newFleet(t, c)
	for i := range f.Len() {
		away, back := 0, false
		for at := fleet.DefaultEpoch().Add(-36 * time.Hour); at.Before(fleet.DefaultEpoch().Add(12 * time.Hour)); at = at.Add(
			4 * time.Minute) {
			v := f.View(i, at)
			if v == nil {
				away += 4
				continue
			}
			back = back || away > 0
			for _, dev := range v.GPUs {
				sum := gpu.Seconds(0)
				for _, s := range dev.GPUSeconds {
					sum += s
				}
				if sum < 0 || sum > 24*3600+1 {
					t.Fatalf("%s at %v: a gpu has %v seconds", v.Node, at, sum)
				}
			}
		}
		if away < 8 || !back {
			t.Errorf("%s was away for %d minutes in two cycles", f.Node(i).Name, away)
		}
	}
}
