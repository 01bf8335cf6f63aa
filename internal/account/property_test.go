package account

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// chooser responds each question of a random walk with a number below n.
type chooser func(n int) int

// walk drives a ledger through anything that can happen, in any order, and asserts after each step what must
// always hold.
func walk(t *testing.T, choose chooser, steps int) {
	t.Helper()
	w := newWorldOf(t, Options{Accounts: []int{0, 0, 1, 2, 5}[choose(5)]}, "A", "B", "C")
	pods := []string{"p", "q", "r", "s"}
	elapsed := 0.0
	was := snapshotOf(w)
	w.users = Users{1: {Container: pod("p")}, 2: {Container: pod("q")}, 3: {Container: pod("r")}, 4: {Reason: gpu.UnattributedHost},
		5: {Reason: gpu.UnattributedDriver}, 6: {Container: pod("s"), MPS: true}, 7: {Reason: gpu.UnattributedHost, MPS: true}}
	w.devices[1].id.ComputeCapability = "6.0"
	users := w.users
	for step := range steps {
		c := w.devices[choose(len(w.devices))]
		switch choose(16) {
		case 0:
			c.util = float64(choose(101)) / 100
		case 1:
			c.availability = Availability(choose(3))
		case 2:
			c.silent = choose(2) == 0
		case 3:
			c.noRing = choose(3) == 0
		case 4:
			c.watts = float64(choose(700))
			if choose(4) == 0 {
				c.joules = 0 // the driver was loaded again
			}
		case 5:
			c.hasWeights = choose(3) > 0
			c.weights = nil
			for range choose(4) {
				c.weights = append(c.weights, gpu.ProcessSample{PID: 1 + choose(8), SM: float64(choose(101))})
			}
		case 6:
			m := &gpu.Medium{}
			if choose(4) > 0 {
				m.Memory = gpu.Some(gpu.Memory{Total: 80 << 30, Used: gpu.Bytes(choose(80)) << 30})
			}
			if choose(4) > 0 {
				list := []gpu.Process{}
				for range choose(4) {
					p := gpu.Process{PID: 1 + choose(8)}
					if choose(3) == 0 {
						p.Kinds = []gpu.ProcessKind{gpu.ProcessCompute, gpu.ProcessMPS}
					}
					if choose(3) > 0 {
						p.Memory = gpu.Some(gpu.Bytes(choose(20)) << 30)
					}
					if choose(2) > 0 {
						p.GI = gpu.Some(1 + choose(3))
					}
					list = append(list, p)
				}
				m.Processes = gpu.Some(list)
			}
			c.medium = m
		case 7:
			c.slow, c.gpm = nil, nil
			switch choose(3) {
			case 0:
				c.slow = &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{})}
			case 1:
				n := choose(8)
				c.slow, c.gpm = migSlow(n), map[gpu.UUID]float64{}
				if n > 0 && choose(4) == 0 {
					c.slow.Instances[0].Share = gpu.None[gpu.Ratio]()
				}
				for i := range n {
					if choose(4) > 0 {
						c.gpm[gpu.UUID(fmt.Sprintf("MIG-%d", i+1))] = float64(choose(101)) / 100
					}
				}
			}
		case 8, 9, 10:
			w.allocs.List = nil
			for range choose(6) {
				h := allocate(pods[choose(len(pods))], w.devices[choose(len(w.devices))].id.UUID, []float64{1, .5, .25, 1. / 3}[choose(4)])
				if choose(3) == 0 {
					h.Instance = gpu.UUID(fmt.Sprintf("MIG-%d", 1+choose(8)))
				}
				if choose(8) == 0 {
					h.Share = gpu.None[gpu.Ratio]()
				}
				w.allocs.List = append(w.allocs.List, h)
			}
		case 11:
			w.allocs.Uncertain = choose(3) == 0
			if w.allocs.Known = choose(4) > 0; !w.allocs.Known {
				w.allocs.List = nil
			}
		case 12:
			w.users = nil
			if choose(2) == 0 {
				w.users = users
			}
		case 13:
			w.Reopened()
		}
		e := []float64{0, .1, 2, 2, 2, 2, 5, 30}[choose(8)]
		if choose(50) == 0 {
			e = 400
		}
		elapsed += e
		w.step(e)
		now := snapshotOf(w)
		checkCeiling(t, w, step)
		was.check(t, w, now, elapsed, step)
		if t.Failed() {
			return
		}
		was = now
	}
}

// snapshot is what a walk compares from step to step.
type snapshot struct {
	devices        map[gpu.UUID]gpu.GPU
	rows           map[rowKey]row
	unattributedBy map[gpu.UUID]map[gpu.UnattributedReason]unattributed
	busy           map[gpu.UUID]float64
	spent          map[gpu.UUID]float64
	excess         map[gpu.UUID]float64 // time counted in a measured state, or waiting for it, beyond that observed
}

func snapshotOf(w *world) snapshot {
	s := snapshot{map[gpu.UUID]gpu.GPU{}, map[rowKey]row{}, map[gpu.UUID]map[gpu.UnattributedReason]unattributed{},
		map[gpu.UUID]float64{}, map[gpu.UUID]float64{}, map[gpu.UUID]float64{}}
	for _, c := range w.devices {
		s.devices[c.id.UUID] = w.device(c.id.UUID)
		own := w.Ledger.devices[c.id.UUID]
		s.busy[c.id.UUID], s.spent[c.id.UUID] = own.act.busy, own.totalEnergy
		for _, use := range []gpu.TimeState{gpu.TimeBusy, gpu.TimeGap, gpu.TimeIdle} {
			s.excess[c.id.UUID] += own.seconds[use]
		}
		if s.excess[c.id.UUID] += own.parts[0].busy + own.parts[0].rest - own.act.observed; own.mig {
			s.excess[c.id.UUID] = math.Inf(1) // instances are observed on their own
		}
		s.unattributedBy[c.id.UUID] = map[gpu.UnattributedReason]unattributed{}
		for reason, u := range own.unattributed {
			s.unattributedBy[c.id.UUID][reason] = *u
		}
	}
	for key, r := range w.Ledger.rows {
		s.rows[key] = *r
	}
	return s
}

func (was snapshot) check(t *testing.T, w *world, now snapshot, elapsed float64, step int) {
	t.Helper()
	const tolerance = 1e-6
	published := map[rowKey]gpu.ContainerGPU{}
	for _, c := range w.Containers() {
		published[rowKey{c.GPU, c.Container}] = c
	}
	for u, c := range now.devices {
		before := was.devices[u]
		sum := 0.0
		for use, v := range c.GPUSeconds {
			sum += float64(v)
			if v < before.GPUSeconds[use] || math.IsNaN(float64(v)) {
				t.Errorf("step %d, %s: %s went from %v to %v", step, u, use, before.GPUSeconds[use], v)
			}
		}
		if math.Abs(sum-elapsed) > tolerance*max(1, elapsed) {
			t.Errorf("step %d, %s: uses sum to %v of %v s: %v", step, u, sum, elapsed, c.GPUSeconds)
		}
		if a, ok := c.AllocationRatio.Get(); ok && !(a >= 0 && a <= 1) {
			t.Errorf("step %d, %s: allocation %v", step, u, a)
		}
		for _, e := range c.AttributionErrors {
			if e.Quantity != "memory" && e.Ratio != 0 {
				t.Errorf("step %d, %s: %s does not close by %v", step, u, e.Quantity, e.Ratio)
			}
		}
		if busy, ok := c.Activity.Busy.Get(); ok && float64(busy) > float64(c.Activity.Observed.Or(0))*(1+1e-9)+tolerance {
			t.Errorf("step %d, %s: busy %v of observed %v", step, u, busy, c.Activity.Observed)
		}
		if more := now.excess[u] - was.excess[u]; more > tolerance && !math.IsInf(more, 1) {
			t.Errorf("step %d, %s: %v s are counted as busy, gap or idle, and were not observed", step, u, more)
		}
		var busy, energy, unused float64
		for reason, x := range now.unattributedBy[u] {
			b := was.unattributedBy[u][reason]
			if x.busy < b.busy || x.energy < b.energy {
				t.Errorf("step %d, %s: what is %s went back", step, u, reason)
			}
			busy += x.busy - b.busy
			energy += x.energy - b.energy
		}
		for key, r := range now.rows {
			if key.device != u {
				continue
			}
			b, known := was.rows[key]
			if !known {
				b = row{}
			}
			for _, v := range []struct {
				name     string
				old, new float64
			}{{"held", b.allocated, r.allocated}, {"busy", b.busy, r.busy}, {"observed", b.observed, r.observed}, {"idle", b.idle, r.idle},
				{"gap", b.gap, r.gap}, {"energy", b.energy, r.energy}} {
				if !(v.new >= v.old) || math.IsInf(v.new, 0) {
					t.Errorf("step %d, %v: %s went from %v to %v", step, key, v.name, v.old, v.new)
				}
			}
			busy += r.busy - b.busy
			energy += r.energy - b.energy
			unused += r.idle + r.gap - b.idle - b.gap
			p, ok := published[key]
			if !ok {
				t.Errorf("step %d: %v is not published", step, key)
			}
			// The last window of a method that ended with it may stay unsaid; no other.
			if r.busy > b.busy && !r.ended && !p.Busy.Present() && b.attribution == attributionNone &&
				w.Ledger.devices[u].act.method != "" {
				t.Errorf("step %d: %v worked, and its busy is not published: %+v", step, key, r)
			}
			if p.Ended && (p.Memory.Present() || p.Processes.Present() || p.LastBusy.Present() || p.Mismatch != nil) {
				t.Errorf("step %d: %v is ended and has gauges: %+v", step, key, p)
			}
		}
		if math.Abs(busy-(now.busy[u]-was.busy[u])) > tolerance {
			t.Errorf("step %d, %s: busy %v was given, %v measured", step, u, busy, now.busy[u]-was.busy[u])
		}
		if math.Abs(energy-(now.spent[u]-was.spent[u])) > tolerance*1000 {
			t.Errorf("step %d, %s: energy %v was given, %v measured", step, u, energy, now.spent[u]-was.spent[u])
		}
		allocated := float64(c.GPUSeconds[gpu.TimeIdle] +
			c.GPUSeconds[gpu.TimeGap] - before.GPUSeconds[gpu.TimeIdle] - before.GPUSeconds[gpu.TimeGap])
		if math.Abs(unused-allocated) > tolerance {
			t.Errorf("step %d, %s: containers left %v unused, the GPU %v", step, u, unused, allocated)
		}
	}
}

// checkCeiling asserts that what is published of containers is bounded and that aggregation loses unattributed part.
func checkCeiling(t *testing.T, w *world, step int) {
	t.Helper()
	a := w.Accounts()
	limit := a.Limit
	own := 0
	for _, c := range w.Containers() {
		if c.Container != gpu.OtherContainers {
			own++
		}
	}
	if own > limit || a.Own > limit || own > a.Own {
		t.Errorf("step %d: %d accounts are published, %d are counted; the limit is %d", step, own, a.Own, limit)
	}
	if n := len(w.Containers()); n > limit+len(w.devices) {
		t.Errorf("step %d: %d accounts of %d allowed and %d GPUs", step, n, limit, len(w.devices))
	}
	type aggregateKey struct {
		resource         string
		device, instance gpu.UUID
	}
	allocated, published := map[aggregateKey]float64{}, map[aggregateKey]float64{}
	add := func(to map[aggregateKey]float64, h gpu.Allocation) {
		to[aggregateKey{h.Resource, h.GPU, h.Instance}] += float64(h.Share.Or(gpu.Ratio(math.NaN())))
	}
	for _, h := range w.allocs.List {
		add(allocated, h)
	}
	own = 0
	seen := map[gpu.Allocation]bool{}
	for _, h := range w.InForce().List {
		add(published, h)
		if h.Container != gpu.OtherContainers {
			own++
			continue
		}
		place := gpu.Allocation{Resource: h.Resource, GPU: h.GPU, Instance: h.Instance}
		if seen[place] {
			t.Errorf("step %d: the others hold %v twice", step, place)
		}
		seen[place] = true
	}
	if own > limit {
		t.Errorf("step %d: %d allocations are published, the limit is %d", step, own, limit)
	}
	if len(allocated) != len(published) {
		t.Errorf("step %d: %d things are allocated, %d published", step, len(allocated), len(published))
	}
	for at, share := range allocated {
		if p := published[at]; math.Abs(p-share) > 1e-9 || math.IsNaN(p) != math.IsNaN(share) {
			t.Errorf("step %d: of %v %v is allocated, %v published", step, at, share, p)
		}
	}
	if a.Aggregated == 0 && len(seen) > 0 {
		t.Errorf("step %d: containers are aggregated and none is counted: %+v", step, a)
	}
	if len(w.allocs.List) > limit && a.Aggregations == 0 {
		t.Errorf("step %d: %d containers, a limit of %d, and no fold was counted", step, len(w.allocs.List), limit)
	}
}

func TestWalk(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		walk(t, rng.IntN, 150)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

var cases = flag.Int("cases", 5_000, "number of random cases of a property")

// TestBusyIsNeverMeasuredAsZero draws GPUs that containers share, whole or under MIG, each container busy or not, and
// what the driver and the host reveal of that: no processes at all, processes without samples, processes that cannot be
// resolved, an MPS server in place of its clients. A container that is busy has no measured busy time of 0.
func TestBusyIsNeverMeasuredAsZero(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 17))
	one := func(in int) bool { return random.IntN(in) == 0 }
	measured, unmeasured := 0, 0
	for i := range *cases {
		w := newWorld(t, "A")
		g := w.devices[0]
		g.id.ComputeCapability = []string{"", "6.0", "9.0"}[random.IntN(3)]
		n, mig, visible := 1+random.IntN(3), one(4), !one(3)
		listed, sampled := !one(4), !one(3)
		if mig {
			g.slow, g.gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": 0, "MIG-2": 0}
			if one(3) {
				g.gpm = map[gpu.UUID]float64{}
			}
		}
		divided := mig && one(2) // the first instance has two compute instances
		if divided {
			g.slow.Instances[0].Compute = []gpu.ComputeInstance{{UUID: "MIG-1"}, {UUID: "MIG-1b", CI: 1}}
			g.compute = map[gpu.UUID]map[gpu.UUID]float64{"MIG-1": {"MIG-1": 0, "MIG-1b": 0}}
		}
		if visible {
			w.users = Users{}
		}
		busy := map[gpu.Container]float64{}
		var list []gpu.Process
		mps := visible && one(4)
		for j := range n {
			who, pid := pod(fmt.Sprint("p", j)), 10+j
			h := allocate(who.Pod, "A", 1/float64(n))
			p := gpu.Process{PID: pid}
			if mig {
				part := 1 + random.IntN(2)
				h.Instance, p.GI = gpu.UUID(fmt.Sprint("MIG-", part)), gpu.Some(part)
			}
			if !one(3) {
				busy[who] = float64(10+random.IntN(20)) / 100
			}
			if divided && h.Instance == "MIG-1" {
				ci := random.IntN(2)
				h.ComputeInstance, p.CI = []gpu.UUID{"MIG-1", "MIG-1b"}[ci], gpu.Some(ci)
				h.Share = gpu.Some(gpu.Ratio(.5)) // all of it, or shared
				g.compute["MIG-1"][h.ComputeInstance] += busy[who]
			}
			w.allocs.List = append(w.allocs.List, h)
			g.util += busy[who]
			if _, ok := g.gpm[h.Instance]; ok {
				g.gpm[h.Instance] += busy[who]
			}
			if visible && !one(5) { // otherwise it cannot be resolved
				w.users[pid] = User{Container: who}
			}
			if mps {
				p.Kinds = []gpu.ProcessKind{gpu.ProcessCompute, gpu.ProcessMPS}
			}
			if !mps || g.id.ComputeCapability != "6.0" {
				list = append(list, p)
				if busy[who] > 0 {
					g.weights = append(g.weights, gpu.ProcessSample{PID: pid, SM: busy[who] * 100})
				}
			}
		}
		if mps {
			w.users[99] = User{Reason: gpu.UnattributedHost, MPS: true}
			for part := range 3 {
				if mig == (part > 0) {
					server := gpu.Process{PID: 99}
					if mig {
						server.GI = gpu.Some(part)
					}
					list = append(list, server)
				}
			}
		}
		if g.hasWeights = sampled && !mig; !g.hasWeights {
			g.weights = nil
		}
		if g.medium = (&gpu.Medium{}); listed {
			g.medium.Processes = gpu.Some(list)
		}
		w.steps(6, 2)
		for _, e := range w.device("A").AttributionErrors {
			if math.Abs(float64(e.Ratio)) > 1e-9 && e.Quantity == "busy" {
				t.Fatalf("case %d: attribution error %v: %+v", i, e.Ratio, *g)
			}
		}
		for _, r := range w.Containers() {
			zero := r.Busy.Present() && r.Busy.Or(0) == 0 && r.Attribution != attributionNone
			switch {
			case zero && busy[r.Container] > 0:
				t.Fatalf("case %d: %s is busy for %v of the time, and measured as 0 by %q: %+v, processes %+v, users %v", i,
					r.Container.Pod, busy[r.Container], r.Attribution, *g, list, w.users)
			case r.Attribution == attributionNone:
				unmeasured++
			default:
				measured++
			}
		}
	}
	t.Logf("%d cases: %d containers measured, %d not", *cases, measured, unmeasured)
}

func FuzzWalk(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 8))
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		walk(t, func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		}, min(60, len(data)/4)) // short: TestWalk walks far, this looks for odd turns
	})
}

// BenchmarkAdvance is one poll of the largest node: 8 GPUs, each shared by 10 of 80 pods, 400 processes.
func BenchmarkAdvance(b *testing.B) {
	l := New(Options{})
	users := Users{}
	h := gpu.Allocations{Known: true, Configured: true}
	var mediums []*gpu.Medium
	for c := range 8 {
		u := gpu.UUID(fmt.Sprintf("GPU-%d", c))
		list := []gpu.Process{}
		for p := range 10 {
			name := fmt.Sprintf("pod-%d-%d", c, p)
			h.List = append(h.List, allocate(name, u, .1))
			for k := range 5 {
				pid := 1 + c*50 + p*5 + k
				users[pid] = User{Container: pod(name)}
				list = append(list, gpu.Process{PID: pid, Memory: gpu.Some(gpu.Bytes(1 << 28))})
			}
		}
		mediums = append(mediums, &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: 20 << 30}), Processes: gpu.Some(list)})
	}
	at := 0.0
	b.ReportAllocs()
	for b.Loop() {
		at += 2
		r := Poll{Now: epoch, Elapsed: 2 * time.Second, Allocations: h, Users: users}
		for c := range 8 {
			f := &gpu.Fast{Energy: gpu.Some(gpu.Joules(at * 300)), Busy: gpu.Some(regular(at-2, at, .15, 50)),
				Utilization: gpu.Some(gpu.Utilization{GPU: .5})}
			var w []gpu.ProcessSample
			for k := range 50 {
				w = append(w, gpu.ProcessSample{PID: 1 + c*50 + k, SM: float64(k)})
			}
			f.Processes = gpu.Some(w)
			r.GPUs = append(r.GPUs, Reading{Identity: gpu.Identity{UUID: gpu.UUID(fmt.Sprintf("GPU-%d", c)), Index: c}, Fast: f,
				Medium: mediums[c]})
		}
		l.Advance(r)
		for c := range r.GPUs {
			out := gpu.GPU{Identity: r.GPUs[c].Identity}
			l.Fill(&out)
		}
		l.Containers()
		l.Allocations()
	}
}
