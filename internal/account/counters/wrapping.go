package counters

import (
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Wrapping is a counter of which the driver keeps the lowest 32 bits. An estimate of each step gives how often it
// overflowed: the sum is exact as long as the estimate is within 2 GiB. It starts at 0, since the first value has no
// meaning, and ends where the steps can no longer be resolved.
type Wrapping struct {
	Counter
	resolved   bool
	unresolved float64 // seconds since the last resolved step
	wide       int     // consecutive values above 32 bits: from the second one on, it is no 32-bit counter
	doubtful   bool    // the last step had Estimates, and none that agrees with the counter
	sum        gpu.Opt[float64]
	bySum      estimate
	byRate     estimate
}

// resolvedFor is for how many seconds a counter without a resolved step is published.
const resolvedFor = 30.0

// Estimates are what GPM has of a step: the driver's sum since reboot, and what the mean rate makes of the period.
type Estimates struct{ Sum, Step gpu.Opt[float64] }

// Add applies a value, elapsed seconds after the previous one, and the estimates of what was added since. ok is false if
// the value is implausible.
func (w *Wrapping) Add(v float64, by Estimates, elapsed float64, fresh bool) (ok bool) {
	if v >= wrap32 {
		w.wide++
	}
	switch {
	case w.wide >= 2:
		if !w.resolved || w.doubtful {
			w.Counter, w.resolved, w.doubtful = Counter{Seen: true, last: v, Total: w.Total, session: w.session}, true, false
		}
		w.unresolved = 0
		_, ok = w.Counter.Add(PCIe, v, elapsed, fresh)
		return ok
	case !(v >= 0 && v < wrap32):
		return v >= wrap32 && w.wide == 1
	}
	w.wide = 0
	step := math.Mod(v-w.last+wrap32, wrap32)
	known := w.Seen && !fresh
	grown := gpu.None[float64]()
	if was, ok := w.sum.Get(); ok && known && by.Sum.Present() {
		grown = gpu.Some(by.Sum.Or(0) - was)
	}
	w.Seen, w.last, w.sum = true, v, by.Sum
	if !known {
		return true
	}
	possible := func(e float64) bool { return e >= 0 && e <= PCIe.MaxRate*(elapsed+leeway) }
	added, certain, estimated := 0.0, false, false
	// The sums decide where they agree with the counter: they have no rate and no period that could be off.
	for _, o := range []struct {
		watch *estimate
		value gpu.Opt[float64]
	}{{&w.byRate, by.Step}, {&w.bySum, grown}} {
		e, ok := o.value.Get()
		switch {
		case !ok:
		case possible(e):
			estimated = true
			if a, ok := o.watch.resolve(step, e); ok {
				added, certain = a, true
			}
		case o.watch == &w.byRate:
			return false
		}
	}
	if !certain {
		w.unresolved, w.doubtful = w.unresolved+elapsed, estimated
		return true
	}
	w.Total += added
	w.resolved, w.unresolved, w.doubtful = true, 0, false
	return true
}

// Miss is called when there is no value. If its period was estimated, the next step would cover more than its estimate.
func (w *Wrapping) Miss(elapsed float64, estimated bool) {
	w.Seen = w.Seen && (w.wide >= 2 || !estimated)
	w.unresolved += elapsed
}

// Get returns the counter while its steps can be resolved.
func (w *Wrapping) Get() (float64, bool) {
	return w.Total, w.resolved && !w.doubtful && w.unresolved < resolvedFor
}

// Reason is why the counter is withheld; empty if it is not, or while there is nothing to withhold.
func (w *Wrapping) Reason() string {
	_, ok := w.Get()
	switch {
	case ok || !w.Seen || w.unresolved == 0:
		return ""
	case w.doubtful:
		return "gpm_mismatch"
	}
	return "counter_overflow"
}

// estimate watches how well one source estimates the steps of a wrapping counter. The counter itself shows that: what a
// step leaves of an estimate is close to 0 for a good one, and any value up to 2 GiB for a bad one. A constant rate can
// hide an error that makes whole overflows. Steps of less than one overflow cannot: they show the source's scale.
type estimate struct {
	residuals recent // distances from the counter, in overflows
	scales    recent // counted bytes by estimated bytes, of steps that need no estimate
	// trusted is set while the median distance is small. To become so, all recent ones have to be: of distances at random
	// nine in a row are small once in 260,000 times, their median once in twenty.
	trusted bool
}

const (
	// maxResidual is the distance, in overflows, beyond which an estimate is not sufficient: half of the mean of values at
	// random.
	maxResidual = 0.125
	// maxScale is by how much a source may be off to be corrected: beyond it counts something else.
	maxScale = 0.25
	// sameScale is the precision of a scale that is measured by steps of at least minScaled bytes, in which the driver's
	// rounding to MiB/s is half a percent.
	sameScale, minScaled = 0.01, 1 << 29
)

// resolve returns by how much the counter grew, of which the lowest 32 bits and an estimate are known. ok is false while
// the source's estimates do not agree with the counter.
func (s *estimate) resolve(step, e float64) (added float64, ok bool) {
	nearest := func(e float64) float64 { return step + wrap32*math.Round((e-step)/wrap32) }
	if n := nearest(e); e < wrap32/2 && max(e, math.Abs(n)) >= minScaled {
		s.scales.push(n / e)
	}
	scale := 1.0
	if s.scales.n >= len(s.scales.values)/2 {
		// A source that counts something else has one scale, periods that do not match have any.
		if m := s.scales.quantile(0.5); !(math.Abs(m-1) <= sameScale) && s.scales.quantile(0.8) <= 1.1*s.scales.quantile(0.2) {
			scale = m
		}
	}
	if !(math.Abs(scale-1) <= maxScale) {
		s.trusted = false
		return 0, false
	}
	e *= scale
	added = nearest(e)
	s.residuals.push(math.Abs(e-added) / wrap32)
	quantile := 1.0
	if s.trusted {
		quantile = 0.5
	}
	s.trusted = s.residuals.quantile(quantile) <= maxResidual
	return max(0, added), s.trusted
}

// recent are the last values of a reading.
type recent struct {
	values [9]float64
	n      int // how many were pushed
}

func (r *recent) push(v float64) {
	r.values[r.n%len(r.values)] = v
	r.n++
}

// quantile returns the value below which a share of the values is; 1: the largest.
func (r *recent) quantile(share float64) float64 {
	sorted := r.values
	known := sorted[:min(r.n, len(sorted))]
	slices.Sort(known)
	return known[int(share*float64(len(known)-1)+0.5)]
}
