package report

import (
	"math"
	"slices"
	"strings"
	"time"
)

// analyst turns what was read of workloads into rows, advice and items to pack.
type analyst struct {
	w      Window
	opt    *Options
	facts  *GPUFacts
	prices *Prices
}

const (
	// quietBelow is the activity of a step below which it counts as without work: less than a second of five minutes.
	quietBelow = 0.002
	// emptyBelow is the memory below which no process is on a GPU: contexts alone take more.
	emptyBelow = 64 << 20
	// stretchOf is how long an idle time must last to be reclaimable.
	stretchOf = 30 * time.Minute
	// plotPoints is the number of points of a workload's plot.
	plotPoints = 96
	// heldAtEnd is how far before the end of the window the last value of what is still held may lie.
	heldAtEnd = 15 * time.Minute
)

// finding is what is known of one workload when its series are no longer needed.
type finding struct {
	row    Workload
	advice []Advice
	items  []item
	// reclaimed and beyond are GPU-hours by node.
	reclaimed, beyond map[nodeKey]float64
	// shared are the holdings on GPUs that others hold, too.
	shared []sharedAlloc
}

// sharedHolding is what a holding did on a GPU that it shares.
type sharedAlloc struct {
	dev          GPUKey
	pod          podKey
	busy, memory track
	held         float64 // GPU-hours
}

// study makes the row of a workload.
func (a *analyst) study(l *load) *finding {
	h := a.w.Hours()
	f := &finding{reclaimed: map[nodeKey]float64{}, beyond: map[nodeKey]float64{}}
	r := &f.row
	k := l.key
	*r = Workload{ID: k.id(), Cluster: k.cluster, Namespace: k.namespace, Kind: k.kind, Name: k.name, OwnerFrom: l.from, Model: k.model,
		Held: l.heldSum * h, Useful: l.busySum * h, Gap: l.underusedSum * h, Idle: l.idleSum * h}
	a.place(l, r)
	r.Pods = max(len(l.pods), int(l.podsAtOnce+0.5))

	// The time in which it held something.
	held := &l.held
	steps, begin, end := 0, a.w.Steps(), 0
	for i, v := range held.v {
		if v > 0.001 {
			steps++
			begin, end = min(begin, held.from+i), held.from+i+1
		}
	}
	if steps == 0 { // it used GPUs without holding any
		begin, end = min(begin, first(&l.busy, a.w.Steps())), l.busy.end()
	}
	r.FirstSeen, r.LastSeen = a.w.Begin(min(begin, max(0, end-1))), a.w.Begin(end)
	r.GPUs = over(l.heldSum, float64(steps))
	if a.stillHeld(end) {
		r.GPUsNow = lastOf(held)
	}
	a.divide(l, r, f)
	a.activities(l, r)
	a.memories(l, r)
	a.quietness(l, r)
	if l.energy {
		v := l.joules / 3.6e6
		r.EnergyKWh = &v
	}
	r.Waste = r.Idle + r.Gap
	r.Cost, r.WasteCost = a.prices.cost(k.model, r.Held), a.prices.cost(k.model, r.Waste)
	if l.lastBusy > 0 && !math.IsInf(l.lastBusy, 0) && r.Useful > 0 {
		t := time.UnixMilli(int64(l.lastBusy * 1000)).UTC().Truncate(time.Second)
		r.LastBusy = &t
	}
	observed := time.Duration(steps) * a.w.Step
	switch {
	case observed >= 14*24*time.Hour && r.Coverage >= 0.99:
		r.Confidence = "high"
	case observed >= a.opt.Advice.Observed*19/20 && r.Coverage >= a.opt.Advice.Coverage:
		r.Confidence = "medium"
	default:
		r.Confidence = "low"
	}
	r.Plot = a.plot(l)
	f.advice = a.advise(l, r, steps)
	f.items = a.items(l)
	a.keepShared(l, f)
	return f
}

func lastOf(t *track) float64 {
	for i := len(t.v) - 1; i >= 0; i-- {
		if v := t.v[i]; v == v {
			return float64(v)
		}
	}
	return 0
}

// stillHeld says whether what ended at a step is held at the end of the window.
func (a *analyst) stillHeld(end int) bool {
	return time.Duration(a.w.Steps()-end)*a.w.Step <= heldAtEnd
}

// place says how the workload holds its GPUs.
func (a *analyst) place(l *load, r *Workload) {
	r.Sharing = "whole"
	profiles := map[string]float64{}
	sums := map[string]float64{}
	for _, h := range l.allocs {
		hours := float64(h.busy.count()) * max(h.typical, 0.01)
		switch {
		case h.mig():
			sums["mig"] += hours
			profiles[h.resource] += hours
		case h.typical > 0 && h.typical < 0.999:
			sums["shared"] += hours
		default:
			sums["whole"] += hours
		}
	}
	for _, s := range []string{"mig", "shared"} {
		if sums[s] > sums[r.Sharing] {
			r.Sharing = s
		}
	}
	if r.Sharing == "mig" {
		if dev, ok := a.migGPU(l.key.model); ok {
			best := 0.0
			for _, res := range sortedKeys(profiles) {
				if p, ok := dev.FromResource(res); ok && profiles[res] > best {
					r.Profile, best = p.Name, profiles[res]
				}
			}
		}
	}
}

// divide finds what part of the held time is not known, was lent to others, and what was used beyond it.
func (a *analyst) divide(l *load, r *Workload, f *finding) {
	h := a.w.Hours()
	typical, weight := 0.0, 0.0
	for _, hold := range l.allocs {
		node := nodeKey{hold.key.cluster, hold.key.node, hold.model}
		if !hold.mig() && hold.typical < 0.999 {
			n := float64(hold.busy.count())
			typical += hold.typical * n
			weight += n
			for i, v := range hold.busy.v {
				if more := float64(v) - hold.shareAt(hold.busy.from+i); more > 0 {
					r.Beyond += more * h
					f.beyond[node] += more * h
				}
			}
		}
		for _, s := range hold.stretches() {
			if time.Duration(s.steps*float64(a.w.Step)) >= stretchOf {
				r.Reclaimable += s.idle * h
				f.reclaimed[node] += s.idle * h
			}
			r.LongestIdle = max(r.LongestIdle, s.steps*h)
		}
		if r.LongestIdle == 0 { // pauses shorter than a step
			r.LongestIdle = max(r.LongestIdle, hold.longestPause()*h)
		}
	}
	if len(l.allocs) == 0 {
		open := opening(&l.idle, int(stretchOf/a.w.Step))
		r.Reclaimable = open.sum() * h
		f.reclaimed[nodeKey{l.key.cluster, "", l.key.model}] += r.Reclaimable
		run := 0.0
		for _, v := range open.v {
			if v > 0.01 {
				run++
			} else {
				run = 0
			}
			r.LongestIdle = max(r.LongestIdle, run*h)
		}
		if l.heldSum == 0 {
			r.Beyond = r.Useful
		}
	}
	// A holder of a share is observed for the whole time, whatever its share.
	of := 1.0
	if r.Sharing == "shared" && weight > 0 && typical > 0 {
		of = typical / weight
	}
	if r.Held > 0 {
		r.Coverage = max(0, min(1, l.observedSum*of*h/r.Held))
		if r.Coverage > 0.999 {
			r.Coverage = 1
		}
	}
	// What was not used is known of some whose work is not.
	left := r.Held - (r.Useful - r.Beyond) - r.Gap - r.Idle
	if r.Sharing == "shared" && left < 0 {
		// Within one step it may have used more than its share and less, one after the other.
		r.Beyond, left = r.Beyond-left, 0
	}
	r.Unobserved = max(0, min(left, r.Held*(1-r.Coverage)))
	r.Lent = max(0, r.Held-(r.Useful-r.Beyond)-r.Gap-r.Idle-r.Unobserved)
	if r.Sharing != "shared" && r.Lent < 0.01*r.Held {
		r.Lent = 0 // what means over steps differ by
	}
}

// activities are the quantiles of the busiest GPU.
func (a *analyst) activities(l *load, r *Workload) {
	if l.observedSum <= 0 {
		return
	}
	mean := min(1, l.busySum/l.observedSum)
	r.Activity = &mean
	v := make([]float64, 0, l.most.len())
	for _, x := range l.most.v {
		if x == x {
			v = append(v, float64(x))
		}
	}
	if len(v) == 0 {
		return
	}
	s := newSample(v)
	p95, p99, top := s.quantile(0.95), s.quantile(0.99), s.top()
	r.P95, r.P99, r.Peak = &p95, &p99, &top
}

// memories tell how much memory one container has on one GPU, and whether that says anything.
func (a *analyst) memories(l *load, r *Workload) {
	var v []float64
	for _, x := range l.memory.v {
		if x == x {
			v = append(v, float64(x))
		}
	}
	total := a.facts.byName[l.key.model]
	if total > 0 {
		r.MemoryTotal = &total
	}
	if len(v) == 0 {
		return
	}
	s := newSample(v)
	peak, plateau := s.top(), s.quantile(0.5)
	// The moments of loading say nothing about the floor: a hundredth of the time is left out.
	floor := s.quantile(0.01)
	r.MemoryPeak, r.MemoryPlateau, r.MemoryFloor = &peak, &plateau, &floor
	room := total
	if dev, ok := a.migGPU(l.key.model); ok && r.Profile != "" {
		if p, ok := dev.Profile(r.Profile); ok {
			room = p.Bytes
		}
	}
	if room > 0 && r.Sharing != "shared" {
		// Nearly everything, and always the same.
		within := 0
		for _, x := range v {
			if x >= 0.98*plateau && x <= 1.02*plateau {
				within++
			}
		}
		r.Preallocated = plateau >= 0.85*room && float64(within) >= 0.9*float64(len(v))
	}
}

// quietness divides the idle hours by whether there was a process.
func (a *analyst) quietness(l *load, r *Workload) {
	if l.memory.count() == 0 || l.idle.count() == 0 {
		return
	}
	var quiet, empty float64
	for i, v := range l.idle.v {
		if v != v {
			continue
		}
		if m, ok := l.memory.at(l.idle.from + i); ok && m >= emptyBelow {
			quiet += float64(v) * a.w.Hours()
		} else {
			empty += float64(v) * a.w.Hours()
		}
	}
	r.Quiet, r.Empty = &quiet, &empty
}

// plot thins the workload out to few points.
func (a *analyst) plot(l *load) *Plot {
	n := min(plotPoints, a.w.Steps())
	p := &Plot{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	at := func(i int) (from, to int) { return i * a.w.Steps() / n, (i + 1) * a.w.Steps() / n }
	for i := range n {
		from, to := at(i)
		var busy, observed, held, devs float64
		peak, memory := -1.0, -1.0
		for k := from; k < to; k++ {
			if v, ok := l.observed.at(k); ok && v > 0 {
				observed += v
				busy += l.busy.or(k, 0)
			}
			if v, ok := l.held.at(k); ok && v > 0 {
				held++
				devs += v
			}
			if v, ok := l.most.at(k); ok {
				peak = max(peak, v)
			}
			if v, ok := l.memory.at(k); ok {
				memory = max(memory, v)
			}
		}
		p.Activity[i], p.Peak[i], p.Memory[i], p.GPUs[i] = -1, -1, -1, 0
		if observed > 0 {
			p.Activity[i] = round(min(1, busy/observed), 3)
		}
		if peak >= 0 {
			p.Peak[i] = round(peak, 3)
		}
		if memory >= 0 {
			p.Memory[i] = math.Round(memory)
		}
		p.GPUs[i] = round(devs/float64(to-from), 3)
	}
	return p
}

func round(x float64, digits int) float64 {
	s := math.Pow10(digits)
	return math.Round(x*s) / s
}

// keepShared keeps what is needed to see which GPUs are asked for more than they have.
func (a *analyst) keepShared(l *load, f *finding) {
	for _, h := range l.allocs {
		if h.mig() || h.typical >= 0.999 || h.typical == 0 {
			continue
		}
		k := h.key
		f.shared = append(f.shared, sharedAlloc{dev: GPUKey{k.cluster, k.node, k.uuid}, pod: podKey{k.cluster, k.namespace, k.pod},
			busy: h.busy, memory: h.memory, held: float64(h.busy.count()) * h.typical * a.w.Hours()})
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
