package fleet_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

func newFleet(t testing.TB, c fleet.Config) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var someDay = time.Date(2026, 11, 18, 14, 3, 7, 0, time.UTC)

// near says whether two sums agree as far as adding in another order lets them.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// Whatever was asked before, and in whatever order: the same moment gives the same view.
func TestViewDependsOnTheMomentAlone(t *testing.T) {
	moments := []time.Duration{0, 30 * time.Second, 61 * time.Minute, -5 * time.Hour, 26 * time.Hour, 26*time.Hour + 30*time.Second, -40 * time.Hour, 0}
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

// closes holds the laws of one view: each second of a card goes somewhere, and what containers and reasons
// got adds up to what the card did.
func closes(t *testing.T, v *gpu.View) {
	t.Helper()
	for i := range v.Cards {
		c := &v.Cards[i]
		for _, e := range c.Closing {
			if e.Ratio != 0 {
				t.Errorf("%s card %d: %s fails to close by %v", v.Node, c.Index, e.Quantity, e.Ratio)
			}
		}
		m, ok := c.Medium.Get()
		if !ok {
			continue
		}
		memory := m.Memory.Or(gpu.Memory{})
		if memory.Used > memory.Total || memory.Free > memory.Total || memory.Used+memory.Free+memory.Reserved.Or(0) != memory.Total {
			t.Errorf("%s card %d: memory does not add up: %+v", v.Node, c.Index, memory)
		}
		var used gpu.Bytes
		for _, cc := range v.Containers {
			if cc.Card == c.UUID {
				used += cc.Memory.Or(0)
			}
		}
		for _, u := range c.Unattributed {
			used += u.Memory.Or(0)
		}
		if used != memory.Used {
			t.Errorf("%s card %d: %d bytes given out of %d used", v.Node, c.Index, used, memory.Used)
		}
		held := 0.0
		for _, h := range v.Holdings {
			if h.Card == c.UUID {
				held += float64(h.Allocation.Or(0))
			}
		}
		if !near(held, float64(c.Allocation.Or(-1))) {
			t.Errorf("%s card %d: %v held, %v allocated", v.Node, c.Index, held, c.Allocation)
		}
	}
}

// account is what the increases of a day come to for one card.
type account struct{ seconds, busy, energy float64 }

// Over simulated days every card's seconds add up to the time that went by, and what containers and reasons got
// of busy time and energy adds up to the card's own.
func TestSumsCloseOverDays(t *testing.T) {
	for _, c := range []struct {
		name   string
		config fleet.Config
		length time.Duration
	}{{"demo", fleet.Demo(3), 3 * 24 * time.Hour}, {"big", fleet.Big(6, 60, 4), 12 * time.Hour}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sumsClose(t, newFleet(t, c.config), c.length)
		})
	}
}

func sumsClose(t *testing.T, f *fleet.Fleet, length time.Duration) {
	const step = 5 * time.Minute
	for i := range f.Len() {
		device, given := map[gpu.UUID]account{}, map[gpu.UUID]account{}
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
			for _, s := range v.Cards[0].CardSeconds {
				sum += float64(s)
			}
			now := map[[4]string]float64{}
			restarted := before != nil && sum < last[[4]string{"all"}]
			if before == nil || restarted {
				last = map[[4]string]float64{}
			}
			now[[4]string{"all"}] = sum
			for k := range v.Cards {
				c := &v.Cards[k]
				d, g := device[c.UUID], given[c.UUID]
				elapsed := 0.0
				for use, s := range c.CardSeconds {
					elapsed += grow(now, [4]string{string(c.UUID), "use", string(use)}, float64(s))
				}
				d.seconds += elapsed
				if before != nil && !restarted && !near(elapsed, v.At.Sub(before.At).Seconds()) {
					t.Errorf("%s card %d: %v seconds given in %v", v.Node, c.Index, elapsed, v.At.Sub(before.At))
				}
				if c.State == gpu.CardUp {
					d.busy += grow(now, [4]string{string(c.UUID), "busy"}, float64(c.Activity.Busy.Or(0)))
					d.energy += grow(now, [4]string{string(c.UUID), "energy"}, float64(c.Activity.Energy.Or(0)))
					for _, u := range c.Unattributed {
						g.busy += grow(now, [4]string{string(c.UUID), "no busy", string(u.Reason)}, float64(u.Busy.Or(0)))
						g.energy += grow(now, [4]string{string(c.UUID), "no energy", string(u.Reason)}, float64(u.Energy.Or(0)))
					}
				}
				device[c.UUID], given[c.UUID] = d, g
			}
			for _, cc := range v.Containers {
				g := given[cc.Card]
				who := cc.Namespace + "/" + cc.Pod
				g.busy += grow(now, [4]string{string(cc.Card), "container busy", who}, float64(cc.Busy.Or(0)))
				g.energy += grow(now, [4]string{string(cc.Card), "container energy", who}, float64(cc.Energy.Or(0)))
				given[cc.Card] = g
			}
			if before == nil || v.At.Sub(before.At) > step {
				// The increase since the view before is not known in full: start from here.
				device, given = map[gpu.UUID]account{}, map[gpu.UUID]account{}
			}
			last, before = now, v
		}
		for u, d := range device {
			// A container that came and went between two views is not in them: short jobs last longer than a step.
			if g := given[u]; !near(d.busy, g.busy) || !near(d.energy, g.energy) {
				t.Errorf("%s %s: device %+v, given %+v", f.Node(i).Name, u, d, g)
			}
		}
	}
}

func TestDemoHasEverything(t *testing.T) {
	f := newFleet(t, fleet.Demo(1))
	for _, at := range []time.Time{someDay, someDay.Add(31 * time.Hour), someDay.Add(9 * 24 * time.Hour)} {
		states := map[gpu.CardState]int{}
		attributions := map[string]int{}
		for i := range f.Len() {
			v := f.View(i, at)
			if v == nil {
				continue
			}
			for s, n := range v.Devices {
				states[s] += n
			}
			for _, c := range v.Containers {
				attributions[c.Attribution]++
			}
		}
		for _, s := range []gpu.CardState{gpu.CardUp, gpu.CardFailed, gpu.CardMissing} {
			if states[s] == 0 {
				t.Errorf("at %v no card is %s", at, s)
			}
		}
		for _, a := range []string{"exclusive", "process", "none"} {
			if attributions[a] == 0 {
				t.Errorf("at %v no container is attributed by %s", at, a)
			}
		}
	}
}
