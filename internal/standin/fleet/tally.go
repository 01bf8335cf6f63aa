package fleet

import (
	"slices"
	"sort"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	endedFor = 5 * minute // how long a stopped container is exported
)

// sums is the work of a GPU or an instance, in seconds.
type sums struct {
	busy, observed, memoryBusy float64
	heavy                      float64 // busy, weighted by the intensity of the workload
	lastBusy                   stamp   // 0: none yet
}

// row is one container on one GPU since the exporter started.
type row struct {
	of                                           *allocation
	slot                                         int
	allocated, busy, observed, idle, gap, energy float64
	lastBusy                                     stamp
}

// charge is what is attributed to no container, for one reason.
type charge struct{ busy, energy float64 }

// Indexes of charges: the reasons that occur here.
const (
	chargeHidden = iota
	chargeHost
	chargeIdle
	chargeUnmeasured
	chargeUnresolved
	charges
)

// Indexes of charges: the reasons that occur here.
const (
	stateBusy = iota
	stateGap
	stateIdle
	stateUnallocated
	stateUnavailable
	stateUnknown
	states
)

// counters are those of one GPU since its exporter started.
type counters struct {
	at        stamp
	started   stamp
	states    [states]float64
	dev       sums
	instances []sums
	rows      []row
	charges   [charges]charge
	energy    float64
	// seconds of reduced clocks by reason
	powerCap, swThermal, hwThermal, powerBrake float64
	peak                                       float64
}

func (t *counters) clone() *counters {
	c := *t
	c.instances = slices.Clone(t.instances)
	c.rows = slices.Clone(t.rows)
	return &c
}

// place is one GPU with its plan.
type place struct {
	rack *rack
	node *nodePlan
	dev  *gpuPlan
	// shares are the poll groups' parts of the GPU.
	shares []float64
	spare  float64 // slices without instance
	// all: return the truth, not what an exporter could measure.
	all bool
}

func (p *place) mig() bool { return len(p.rack.pool.MIG) > 0 }

// measured reports whether the activity of the GPU can be measured and attributed.
func (p *place) measured() bool { return p.all || !p.mig() || p.rack.board.profiled }

// shared reports whether several containers can share the GPU without MIG.
func (p *place) shared() bool { return !p.mig() && len(p.shares) > 1 }

// hidden reports whether the shares of the containers cannot be measured.
func (p *place) hidden() bool { return !p.all && p.shared() && p.rack.pool.Hidden }

// current returns the allocation of a slot at a time, nil if there is none.
func (p *place) current(slot int, t stamp) *allocation {
	list := p.dev.slots[slot]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > t })
	if i < len(list) && list[i].from <= t {
		return list[i]
	}
	return nil
}

// faultOf returns the fault of a kind that is present at a time.
func (p *place) faultOf(kind FaultKind, t stamp) *fault {
	for i := range p.dev.faults {
		if f := &p.dev.faults[i]; f.kind == kind && f.contains(t) {
			return f
		}
	}
	return nil
}

// cuts appends the times between a and b at which anything about the GPU changes. a and b lie in one hour.
func (p *place) cuts(out []stamp, a, b stamp) []stamp {
	add := func(t stamp) {
		if a < t && t < b {
			out = append(out, t)
		}
	}
	for _, list := range p.dev.slots {
		for i := sort.Search(len(list), func(i int) bool { return list[i].to > a }); i < len(list) &&
			list[i].from < b; i++ {
			w := list[i]
			add(w.from)
			add(w.to)
			add(w.busyFrom)
			add(w.busyUntil)
			if w.scale > 0 && w.busyUntil > a {
				begin := a.floor(hour)
				for _, s := range w.of.pattern.steps {
					add(begin + s.at)
				}
			}
		}
	}
	for _, f := range p.dev.faults {
		add(f.from)
		add(f.to)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// usage is what one container did between two changes, in GPU-seconds. Lost is allocated time on a GPU that could not
// be read.
type usage struct {
	of                                       *allocation
	from, to                                 stamp
	allocated, busy, idle, gap, lost, energy float64
}

// observer is called with every usage.
type observer func(usage)

// advance counts up to a time. observe may be nil.
func (p *place) advance(t *counters, to stamp, observe observer) {
	var scratch [64]stamp
	for t.at < to {
		end := min(to, t.at.floor(hour)+hour)
		cuts := append(p.cuts(append(scratch[:0], t.at), t.at, end), end)
		for i := 1; i < len(cuts); i++ {
			p.piece(t, cuts[i-1], cuts[i], observe)
		}
		t.at = end
		t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return r.of.to+endedFor <= t.at })
	}
}

// row returns the row of an allocation.
func (t *counters) row(w *allocation, slot int) *row {
	for i := range t.rows {
		if t.rows[i].of == w {
			return &t.rows[i]
		}
	}
	t.rows = append(t.rows, row{of: w, slot: slot})
	return &t.rows[len(t.rows)-1]
}

// period is a time without changes, and what the GPU did in it.
type period struct {
	from, to           stamp
	dt                 float64 // its length in seconds
	total              float64 // the busy share of the GPU
	joules, idleJoules float64
}

// piece counts a period without changes.
func (p *place) piece(t *counters, from, to stamp, observe observer) {
	now := period{from: from, to: to, dt: (to - from).seconds()}
	lost := p.faultOf(FaultLost, from) != nil || p.faultOf(FaultNoDevice, from) != nil
	var allocations [16]*allocation
	var levels [16]float64
	slots := len(p.shares)
	power := 0.0
	for slot := range slots {
		w := p.current(slot, from)
		allocations[slot] = w
		if w == nil {
			continue
		}
		t.row(w, slot)
		if lost {
			continue
		}
		l := w.level(from)
		if p.mig() {
			l = min(1, l)
		}
		levels[slot] = l
		part := l
		if p.mig() {
			part *= p.shares[slot]
		}
		now.total += part
		power += part * w.of.intensity
	}
	if lost {
		t.states[stateUnavailable] += now.dt
		for slot := range slots {
			if w := allocations[slot]; w != nil {
				allocated := now.dt * p.shares[slot]
				t.row(w, slot).allocated += allocated
				if observe != nil {
					observe(usage{of: w, from: from, to: to, allocated: allocated, lost: allocated})
				}
			}
		}
		return
	}
	watts, idleWatts := p.power(from, power, slices.ContainsFunc(allocations[:slots],
		func(w *allocation) bool { return w != nil && w.process }))
	now.joules, now.idleJoules = watts*now.dt, idleWatts*now.dt
	t.energy += now.joules

	if p.measured() {
		t.dev.busy += now.total * now.dt
		t.dev.heavy += power * now.dt
		t.dev.observed += now.dt
		t.dev.memoryBusy += now.total * now.dt * 0.4
		if now.total > 0 {
			t.dev.lastBusy = to
		}
		t.peak = max(t.peak, min(1, now.total*1.08))
	}
	t.limit(p, from, now.dt, now.total)
	for slot := range slots {
		p.slot(t, slot, allocations[slot], levels[slot], now, observe)
	}
	if p.measured() {
		t.states[stateBusy] += now.total * now.dt
		t.charge(chargeIdle, 0, now.idleJoules*p.spare)
	} else {
		t.charge(chargeUnmeasured, 0, now.joules)
	}
	t.states[stateUnallocated] += p.spare * now.dt
}

// slot counts a period of a slot, which an allocation has, if any, and whose share of the GPU is busy to a level.
func (p *place) slot(t *counters, slot int, w *allocation, level float64, now period, observe observer) {
	share, measured, dt := p.shares[slot], p.measured(), now.dt
	own, rest := level, max(0, 1-now.total)*share // in seconds of the GPU, for each second
	if p.mig() {
		own, rest = level*share, max(0, 1-level)*share
		if measured {
			t.instances[slot].count(w, level, now)
		}
	}
	if w == nil {
		t.states[stateUnallocated] += rest * dt
		if measured {
			t.charge(chargeIdle, 0, now.idleJoules*share)
		}
		return
	}
	r := t.row(w, slot)
	r.allocated += dt * share
	if !measured {
		t.states[stateUnknown] += share * dt
		return
	}
	last, busy := r.lastBusy, level > 0
	if p.hidden() {
		last, busy = t.dev.lastBusy, now.total > 0
	}
	quiet := stamp(0)
	if !busy {
		quiet = now.to - max(last, w.from, t.started)
	}
	idle, gap := account.SplitUnused(rest*dt, dt, quiet.seconds())
	r.idle += idle
	r.gap += gap
	t.states[stateIdle] += idle
	t.states[stateGap] += gap
	energy := now.idleJoules * share
	if now.total > 0 {
		energy += (now.joules - now.idleJoules) * own / now.total
	}
	if p.hidden() {
		t.charge(chargeHidden, own*dt, energy)
	} else {
		r.busy += own * dt
		r.observed += dt * observedShare(p, share)
		r.energy += energy
		if level > 0 {
			r.lastBusy = now.to
		}
	}
	if observe != nil {
		observe(usage{of: w, from: now.from, to: now.to, allocated: dt * share, busy: own * dt, idle: idle, gap: gap, energy: energy})
	}
}

// count counts a period of an instance.
func (in *sums) count(w *allocation, level float64, now period) {
	in.busy += level * now.dt
	if w != nil {
		in.heavy += level * w.of.intensity * now.dt
	}
	in.observed += now.dt
	if level > 0 {
		in.lastBusy = now.to
	}
}

// power is what the GPU draws, and what it would draw idle: more if a process has it open.
func (p *place) power(at stamp, work float64, open bool) (watts, idle float64) {
	b := p.rack.board
	idle = b.idleWatts
	if open {
		idle *= openIdle
	}
	watts = idle + (b.busyWatts-idle)*work
	if p.faultOf(FaultPowerCap, at) != nil {
		watts = min(watts, capTo*float64(b.limit))
	}
	return watts, min(idle, watts)
}

// openIdle is the factor of idle power while a process has the GPU open: its clocks stay high.
const openIdle = 1.6

// observedShare is how much a second of a slot counts; a second of a shared GPU counts whole.
func observedShare(p *place, share float64) float64 {
	if p.mig() {
		return share
	}
	return 1
}

func (t *counters) charge(reason int, busy, energy float64) {
	t.charges[reason].busy += busy
	t.charges[reason].energy += energy
}

// capTo is the share of the default power limit of a capped GPU.
const capTo = 0.6

// limit counts the reasons for reduced clocks.
func (t *counters) limit(p *place, at stamp, dt, total float64) {
	switch {
	case p.faultOf(FaultPowerCap, at) != nil:
		t.powerCap += dt * min(1, total*0.9)
	default:
		t.powerCap += dt * total * 0.01
	}
	if p.faultOf(FaultBrake, at) != nil {
		t.powerBrake += dt * total * 0.2
	}
	if p.faultOf(FaultThermal, at) != nil {
		t.swThermal += dt * total * 0.7
		t.hwThermal += dt * total * 0.25
	}
}

// reasons are the charges in the order in which they are exported.
var reasons = [charges]gpu.UnattributedReason{gpu.UnattributedHidden, gpu.UnattributedHost, gpu.UnattributedIdle,
	gpu.UnattributedUnmeasured, gpu.UnattributedUnresolved}
