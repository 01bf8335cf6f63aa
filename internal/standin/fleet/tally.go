package fleet

import (
	"slices"
	"sort"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	quietAfter = minute     // a holder is idle once it was quiet for so long
	lingers    = 5 * minute // counters of a container that has gone stand still for so long
)

// sums is the work of a GPU or an instance, in seconds.
type sums struct {
	busy, observed, memoryBusy float64
	heavy                      float64 // busy, weighed by how hard the workload works
	lastBusy                   stamp   // 0: none yet
}

// row is one container on one GPU since the exporter started.
type row struct {
	of                                            *tenancy
	pollGroup                                     int
	held, busy, observed, idle, underused, energy float64
	lastBusy                                      stamp
}

// bill is what belongs to no container, for one reason.
type bill struct{ busy, energy float64 }

// The places of the bills: those reasons that occur here.
const (
	billHidden = iota
	billHost
	billIdle
	billUnmeasured
	billUnresolved
	bills
)

// The places of uses, in the order of gpu.Uses.
const (
	useBusy = iota
	useUnderused
	useIdle
	useUnallocated
	useUnavailable
	useUnknown
	uses
)

// tally is every counter of one GPU since its exporter started. It is a plain value but for its slices.
type tally struct {
	at                                 stamp
	began                              stamp
	uses                               [uses]float64
	dev                                sums
	instances                          []sums
	rows                               []row
	bills                              [bills]bill
	energy                             float64
	capped, heated, hardHeated, braked float64 // seconds limited by the power limit, heat as software and hardware see it, the power supply
	given                              bill    // all that was given to somebody, or a reason; kept apart to prove the sums
	peak                               float64
}

func (t *tally) clone() *tally {
	c := *t
	c.instances = slices.Clone(t.instances)
	c.rows = slices.Clone(t.rows)
	return &c
}

// place is what a replay needs to know of a GPU.
type place struct {
	rack *rack
	node *nodePlan
	dev  *GPUPlan
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

// blind says whether the parts of holders cannot be told apart.
func (p *place) blind() bool { return !p.all && p.shared() && p.rack.pool.Hidden }

// current returns the tenancy of a poll group at a moment.
func (p *place) current(pollGroup int, t stamp) *tenancy {
	list := p.dev.pollGroups[pollGroup]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > t })
	if i < len(list) && list[i].from <= t {
		return list[i]
	}
	return nil
}

// broken returns the fault of a kind that is on at a moment.
func (p *place) broken(kind FaultKind, t stamp) *fault {
	for i := range p.dev.faults {
		if f := &p.dev.faults[i]; f.kind == kind && f.holds(t) {
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
	for _, list := range p.dev.pollGroups {
		for i := sort.Search(len(list), func(i int) bool { return list[i].to > a }); i < len(list) && list[i].from < b; i++ {
			w := list[i]
			add(w.from)
			add(w.to)
			add(w.worksFrom)
			add(w.worksUntil)
			if w.scale > 0 && w.worksUntil > a {
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

// deed is what one container did in one piece of time, in seconds of the GPU. Lost is held time on a GPU that
// could not be read.
type deed struct {
	of                                        *tenancy
	from, to                                  stamp
	held, busy, idle, underused, lost, energy float64
}

// watcher is told of every deed.
type watcher func(deed)

// advance counts on to a moment. watch may be nil.
func (p *place) advance(t *tally, to stamp, watch watcher) {
	var scratch [64]stamp
	for t.at < to {
		end := min(to, t.at.floor(hour)+hour)
		cuts := append(p.cuts(append(scratch[:0], t.at), t.at, end), end)
		for i := 1; i < len(cuts); i++ {
			p.piece(t, cuts[i-1], cuts[i], watch)
		}
		t.at = end
		t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return r.of.to+lingers <= t.at })
	}
}

// row returns the row of a tenancy.
func (t *tally) row(w *tenancy, pollGroup int) *row {
	for i := range t.rows {
		if t.rows[i].of == w {
			return &t.rows[i]
		}
	}
	t.rows = append(t.rows, row{of: w, pollGroup: pollGroup})
	return &t.rows[len(t.rows)-1]
}

// piece counts a piece of time in which nothing changes.
func (p *place) piece(t *tally, from, to stamp, watch watcher) {
	dt := (to - from).seconds()
	lost := p.broken(FaultLost, from) != nil || p.broken(FaultNoDevice, from) != nil
	var tenants [16]*tenancy
	var levels [16]float64
	pollGroups := len(p.shares)
	total, power := 0.0, 0.0
	for pollGroup := range pollGroups {
		w := p.current(pollGroup, from)
		tenants[pollGroup] = w
		if w == nil {
			continue
		}
		t.row(w, pollGroup)
		if lost {
			continue
		}
		l := w.level(from)
		if p.mig() {
			l = min(1, l)
		}
		levels[pollGroup] = l
		part := l
		if p.mig() {
			part *= p.shares[pollGroup]
		}
		total += part
		power += part * w.of.intensity
	}
	if lost {
		t.uses[useUnavailable] += dt
		for pollGroup := range pollGroups {
			if w := tenants[pollGroup]; w != nil {
				r := t.row(w, pollGroup)
				r.held += dt * p.shares[pollGroup]
				if watch != nil {
					watch(deed{of: w, from: from, to: to, held: dt * p.shares[pollGroup], lost: dt * p.shares[pollGroup]})
				}
			}
		}
		return
	}
	watts, idleWatts := p.power(from, power, slices.ContainsFunc(tenants[:pollGroups], func(w *tenancy) bool { return w != nil && w.process }))
	joules, idleJoules := watts*dt, idleWatts*dt
	t.energy += joules

	measured, blind := p.measured(), p.blind()
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

	for pollGroup := range pollGroups {
		w, share, l := tenants[pollGroup], p.shares[pollGroup], levels[pollGroup]
		own := l // in seconds of the GPU, for each second
		if p.mig() {
			own *= share
			if measured {
				in := &t.instances[pollGroup]
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
			t.uses[useUnallocated] += rest * dt
			if measured {
				t.bill(billIdle, 0, idleJoules*share)
			}
			continue
		}
		r := t.row(w, pollGroup)
		r.held += dt * share
		if !measured {
			t.uses[useUnknown] += share * dt
			continue
		}
		last, working := r.lastBusy, l > 0
		if blind {
			last, working = t.dev.lastBusy, total > 0
		}
		idle, underused := 0.0, rest*dt
		if !working {
			quiet := max(last, w.from, t.began) + quietAfter
			idle = rest * max(0, to-max(from, quiet)).seconds()
			underused -= idle
		}
		r.idle += idle
		r.underused += underused
		t.uses[useIdle] += idle
		t.uses[useUnderused] += underused
		energy := idleJoules * share
		if total > 0 {
			energy += (joules - idleJoules) * own / total
		}
		if blind {
			t.bill(billHidden, own*dt, energy)
		} else {
			r.busy += own * dt
			r.observed += dt * observedShare(p, share)
			r.energy += energy
			t.given.busy += own * dt
			t.given.energy += energy
			if l > 0 {
				r.lastBusy = to
			}
		}
		if watch != nil {
			watch(deed{of: w, from: from, to: to, held: dt * share, busy: own * dt, idle: idle, underused: underused, energy: energy})
		}
	}
	if measured {
		t.uses[useBusy] += total * dt
		t.bill(billIdle, 0, idleJoules*p.spare)
	} else {
		t.bill(billUnmeasured, 0, joules)
	}
	t.uses[useUnallocated] += p.spare * dt
}

// power is what the GPU draws, and what it would draw without work: more where somebody has it open.
func (p *place) power(at stamp, work float64, open bool) (watts, idle float64) {
	b := p.rack.board
	idle = b.idleWatts
	if open {
		idle *= openIdle
	}
	watts = idle + (b.busyWatts-idle)*work
	if p.broken(FaultPowerCap, at) != nil {
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

func (t *tally) bill(reason int, busy, energy float64) {
	t.bills[reason].busy += busy
	t.bills[reason].energy += energy
	t.given.busy += busy
	t.given.energy += energy
}

// capTo is the part of the usual power limit to which a capped GPU was set.
const capTo = 0.6

// limit counts what held the clocks down.
func (t *tally) limit(p *place, at stamp, dt, total float64) {
	switch {
	case p.broken(FaultPowerCap, at) != nil:
		t.capped += dt * min(1, total*0.9)
	default:
		t.capped += dt * total * 0.01
	}
	if p.broken(FaultBrake, at) != nil {
		t.braked += dt * total * 0.2
	}
	if p.broken(FaultThermal, at) != nil {
		t.heated += dt * total * 0.7
		t.hardHeated += dt * total * 0.25
	}
}

// reasons are the bills in the order in which they are published.
var reasons = [bills]gpu.UnattributedReason{gpu.UnattributedHidden, gpu.UnattributedHost, gpu.UnattributedIdle, gpu.UnattributedUnmeasured, gpu.UnattributedUnresolved}
