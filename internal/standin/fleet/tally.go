package fleet

import (
	"slices"
	"sort"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	quietAfter = minute     // a holder is idle once it was quiet for so long
	endedFor    = 5 * minute // counters of a container that has gone stand still for so long
)

// sums is the work of a GPU or an instance, in seconds.
type sums struct {
	busy, observed, memoryBusy float64
	heavy                      float64 // busy, weighed by how hard the workload works
	lastBusy                   stamp   // 0: none yet
}

// row is one container on one GPU since the exporter started.
type row struct {
	of                                            *allocation
	slot                                     int
	allocated, busy, observed, idle, gap, energy float64
	lastBusy                                      stamp
}

// charge is what belongs to no container, for one reason.
type charge struct{ busy, energy float64 }

// The places of the bills: those reasons that occur here.
const (
	chargeHidden = iota
	chargeHost
	chargeIdle
	chargeUnmeasured
	chargeUnresolved
	charges
)

// The places of uses, in the order of gpu.Uses.
const (
	stateBusy = iota
	stateGap
	stateIdle
	stateUnallocated
	stateUnavailable
	stateUnknown
	states
)

// counters is every counter of one GPU since its exporter started. It is a plain value but for its slices.
type counters struct {
	at                                 stamp
	started                              stamp
	states                               [states]float64
	dev                                sums
	instances                          []sums
	rows                               []row
	charges                              [charges]charge
	energy                             float64
	powerCap, swThermal, hwThermal, powerBrake float64 // seconds limited by the power limit, heat as software and hardware see it, the power supply
	attributed                              charge    // all that was given to somebody, or a reason; kept apart to prove the sums
	peak                               float64
}

func (t *counters) clone() *counters {
	c := *t
	c.instances = slices.Clone(t.instances)
	c.rows = slices.Clone(t.rows)
	return &c
}

// place is what a replay needs to know of a GPU.
type place struct {
	rack *rack
	node *nodePlan
	dev  *gpuPlan
	// shares are the poll groups' parts of the GPU.
	shares []float64
	spare  float64 // slices without instance
	// all is set where the truth is wanted, not what an exporter could tell of it.
	all bool
}

func (p *place) mig() bool { return len(p.rack.pool.MIG) > 0 }

// measured says whether the work of the GPU can be measured, and told, at all.
func (p *place) measured() bool { return p.all || !p.mig() || p.rack.board.profiled }

// shared says whether several may hold the GPU without instances of their own.
func (p *place) shared() bool { return !p.mig() && len(p.shares) > 1 }

// hidden says whether the parts of holders cannot be told apart.
func (p *place) hidden() bool { return !p.all && p.shared() && p.rack.pool.Hidden }

// current returns the tenancy of a poll group at a moment.
func (p *place) current(slot int, t stamp) *allocation {
	list := p.dev.slots[slot]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > t })
	if i < len(list) && list[i].from <= t {
		return list[i]
	}
	return nil
}

// faultOf returns the fault of a kind that is on at a moment.
func (p *place) faultOf(kind FaultKind, t stamp) *fault {
	for i := range p.dev.faults {
		if f := &p.dev.faults[i]; f.kind == kind && f.contains(t) {
			return f
		}
	}
	return nil
}

// cuts appends the moments between a and b at which anything about the GPU changes. a and b lie in one hour.
func (p *place) cuts(out []stamp, a, b stamp) []stamp {
	add := func(t stamp) {
		if a < t && t < b {
			out = append(out, t)
		}
	}
	for _, list := range p.dev.slots {
		for i := sort.Search(len(list), func(i int) bool { return list[i].to > a }); i < len(list) && list[i].from < b; i++ {
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

// usage is what one container did in one piece of time, in seconds of the GPU. Lost is held time on a GPU that
// could not be read.
type usage struct {
	of                                        *allocation
	from, to                                  stamp
	allocated, busy, idle, gap, lost, energy float64
}

// observer is told of every deed.
type observer func(usage)

// advance counts on to a moment. watch may be nil.
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

// row returns the row of a tenancy.
func (t *counters) row(w *allocation, slot int) *row {
	for i := range t.rows {
		if t.rows[i].of == w {
			return &t.rows[i]
		}
	}
	t.rows = append(t.rows, row{of: w, slot: slot})
	return &t.rows[len(t.rows)-1]
}

// piece counts a piece of time in which nothing changes.
func (p *place) piece(t *counters, from, to stamp, observe observer) {
	dt := (to - from).seconds()
	lost := p.faultOf(FaultLost, from) != nil || p.faultOf(FaultNoDevice, from) != nil
	var allocations [16]*allocation
	var levels [16]float64
	slots := len(p.shares)
	total, power := 0.0, 0.0
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
		total += part
		power += part * w.of.intensity
	}
	if lost {
		t.states[stateUnavailable] += dt
		for slot := range slots {
			if w := allocations[slot]; w != nil {
				r := t.row(w, slot)
				r.allocated += dt * p.shares[slot]
				if observe != nil {
					observe(usage{of: w, from: from, to: to, allocated: dt * p.shares[slot], lost: dt * p.shares[slot]})
				}
			}
		}
		return
	}
	watts, idleWatts := p.power(from, power, slices.ContainsFunc(allocations[:slots], func(w *allocation) bool { return w != nil && w.process }))
	joules, idleJoules := watts*dt, idleWatts*dt
	t.energy += joules

	measured, hidden := p.measured(), p.hidden()
	if measured {
		t.dev.busy += total * dt
		t.dev.heavy += power * dt
		t.dev.observed += dt
		t.dev.memoryBusy += total * dt * 0.4
		if total > 0 {
			t.dev.lastBusy = to
		}
		t.peak = max(t.peak, min(1, total*1.08))
	}
	t.limit(p, from, dt, total)

	for slot := range slots {
		w, share, l := allocations[slot], p.shares[slot], levels[slot]
		own := l // in seconds of the GPU, for each second
		if p.mig() {
			own *= share
			if measured {
				in := &t.instances[slot]
				in.busy += l * dt
				if w != nil {
					in.heavy += l * w.of.intensity * dt
				}
				in.observed += dt
				if l > 0 {
					in.lastBusy = to
				}
			}
		}
		rest := max(0, 1-total) * share
		if p.mig() {
			rest = max(0, 1-l) * share
		}
		if w == nil {
			t.states[stateUnallocated] += rest * dt
			if measured {
				t.charge(chargeIdle, 0, idleJoules*share)
			}
			continue
		}
		r := t.row(w, slot)
		r.allocated += dt * share
		if !measured {
			t.states[stateUnknown] += share * dt
			continue
		}
		last, processes := r.lastBusy, l > 0
		if hidden {
			last, processes = t.dev.lastBusy, total > 0
		}
		idle, gap := 0.0, rest*dt
		if !processes {
			quiet := max(last, w.from, t.started) + quietAfter
			idle = rest * max(0, to-max(from, quiet)).seconds()
			gap -= idle
		}
		r.idle += idle
		r.gap += gap
		t.states[stateIdle] += idle
		t.states[stateGap] += gap
		energy := idleJoules * share
		if total > 0 {
			energy += (joules - idleJoules) * own / total
		}
		if hidden {
			t.charge(chargeHidden, own*dt, energy)
		} else {
			r.busy += own * dt
			r.observed += dt * observedShare(p, share)
			r.energy += energy
			t.attributed.busy += own * dt
			t.attributed.energy += energy
			if l > 0 {
				r.lastBusy = to
			}
		}
		if observe != nil {
			observe(usage{of: w, from: from, to: to, allocated: dt * share, busy: own * dt, idle: idle, gap: gap, energy: energy})
		}
	}
	if measured {
		t.states[stateBusy] += total * dt
		t.charge(chargeIdle, 0, idleJoules*p.spare)
	} else {
		t.charge(chargeUnmeasured, 0, joules)
	}
	t.states[stateUnallocated] += p.spare * dt
}

// power is what the GPU draws, and what it would draw without work: more where somebody has it open.
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

// openIdle is how much more an idle GPU draws while a process has it open: its clocks stay up.
const openIdle = 1.6

// observedShare is how much a second of an instance counts; a second of a shared GPU counts whole.
func observedShare(p *place, share float64) float64 {
	if p.mig() {
		return share
	}
	return 1
}

func (t *counters) charge(reason int, busy, energy float64) {
	t.charges[reason].busy += busy
	t.charges[reason].energy += energy
	t.attributed.busy += busy
	t.attributed.energy += energy
}

// capTo is the part of the usual power limit to which a capped GPU was set.
const capTo = 0.6

// limit counts what held the clocks down.
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

// reasons are the bills in the order in which they are published.
var reasons = [charges]gpu.UnattributedReason{gpu.UnattributedHidden, gpu.UnattributedHost, gpu.UnattributedIdle, gpu.UnattributedUnmeasured, gpu.UnattributedUnresolved}
