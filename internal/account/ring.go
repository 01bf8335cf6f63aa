package account

import (
	"cmp"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// microsecond is the unit of the driver's sample timestamps, in seconds.
	microsecond = 1e-6
	// ringDepth is the depth of the driver's ring: samples older than that come from another clock.
	ringDepth = 10e6 // microseconds
	// keptPeriods is the number of sampling periods for the median.
	keptPeriods = 63
	// longestWindow is the maximum period of one sample while too few periods are known: NVML's are between 1/6 s and 1
	// s.
	longestWindow = 2.0
)

// ring integrates one driver ring. A sample covers the period that ends at its timestamp, so its length is the distance
// to the previous sample. The driver's clock is opaque and compared only with itself.
type ring struct {
	seeded bool
	last   int64 // timestamp of the newest sample used; 0: none yet
	// periods are the latest distances between samples, in seconds, oldest first.
	periods []float64
	// credit is the time after last that was already counted as observed and not busy because the ring was stopped;
	// stopped is its state at the latest read.
	credit  float64
	stopped bool
	// debt is observed time that was counted too early and is subtracted from the next.
	debt float64

	scratch  []gpu.Sample
	rejected []int64
	sorted   []float64
}

// increment is what one read adds, in seconds.
type increment struct {
	busy, observed float64
	// lost is time covered by no sample.
	lost float64
	// peak is the highest sample, 0 to 1. Valid if sampled.
	peak    float64
	sampled bool
	// wasBusy is set if some sample was above 0, the last of them sinceBusy seconds before the newest.
	wasBusy   bool
	sinceBusy float64
	// memory is the busy time of the memory ring.
	memory float64
	// unsampled is the part of busy that no sample of a process covers, unsampledTime that of observed.
	unsampled, unsampledTime float64
}

// addEarlier adds busy time before the recent seconds that the ring covers.
func (in *increment) addEarlier(busy, recent float64) {
	if in.busy += busy; busy > 0 && !in.wasBusy {
		in.wasBusy, in.sinceBusy = true, recent
	}
}

// reseed forgets the position in the ring, as after a new session: the next read only seeds.
func (r *ring) reseed() {
	r.seeded, r.last, r.credit, r.debt, r.stopped = false, 0, 0, 0, false
}

// add integrates the samples of one read, elapsed seconds after the previous read. idle is set if
// nvmlDeviceGetUtilizationRates reported 0 at the same time. reject is called for each implausible sample.
func (r *ring) add(samples gpu.Ring, idle bool, elapsed float64, reject func()) increment {
	r.sort(samples, reject)
	if n := len(r.scratch); n > 0 && r.last != 0 && r.scratch[n-1].Time < r.last-ringDepth {
		// The clock went back by more than the depth of the ring: it is another clock.
		r.reseed()
	}
	if !r.seeded {
		r.seed()
		return increment{}
	}
	fresh := r.scratch
	for len(fresh) > 0 && fresh[0].Time <= r.last {
		fresh = fresh[1:]
	}
	var in increment
	if len(fresh) == 0 {
		if slices.ContainsFunc(r.rejected, func(t int64) bool { return t > r.last }) {
			// The ring is running, but its samples are implausible: it is not stopped.
			r.stopped = false
			return in
		}
		r.stopped = idle
		if idle {
			r.credit += elapsed
			in.observed = r.repay(elapsed)
		}
		return in
	}
	limit := r.limit(r.learn(fresh))
	if r.last == 0 {
		// The ring was empty until now: the start of the first period is unknown.
		r.last = fresh[0].Time - int64(limit/2/microsecond)
		if r.stopped {
			r.last -= int64(min(r.credit, 1e9) / microsecond)
		}
	}
	in.sampled = true
	var lastBusy int64
	for i, s := range fresh {
		gap := float64(s.Time-r.last) * microsecond
		// The period of a rejected sample is unknown: this one's starts after it.
		reach := gap
		for _, t := range r.rejected {
			if t > r.last && t < s.Time {
				reach = min(reach, float64(s.Time-t)*microsecond)
			}
		}
		window := reach
		if window > limit {
			window = limit / 2 // after a gap, a sample covers its own period only
		}
		known := window
		if i == 0 && (r.credit > 0 || r.stopped) {
			known = min(gap, r.credit+window)
			if r.stopped {
				known = gap // the ring stopped because the GPU was not busy
			}
			r.debt += max(0, r.credit-known)
			in.observed += r.repay(max(0, known-r.credit))
			r.credit = 0
		} else {
			in.observed += r.repay(known)
		}
		in.lost += gap - known
		v := s.Value / 100
		in.busy += v * window
		in.peak = max(in.peak, v)
		if v > 0 {
			in.wasBusy, lastBusy = true, s.Time
		}
		r.last = s.Time
	}
	if in.wasBusy {
		in.sinceBusy = float64(r.last-lastBusy) * microsecond
	}
	r.stopped = false
	return in
}

// seed takes the position from the first read, and the periods from the samples in the ring.
func (r *ring) seed() {
	r.seeded = true
	r.learn(r.scratch)
	if n := len(r.scratch); n > 0 {
		r.last = r.scratch[n-1].Time
	}
}

// repay subtracts what was observed too early.
func (r *ring) repay(observed float64) float64 {
	paid := min(r.debt, observed)
	r.debt -= paid
	return observed - paid
}

// learn adds the distances between samples, the first of them to r.last if there is one, and returns their number.
func (r *ring) learn(samples []gpu.Sample) (added int) {
	last := r.last
	for _, s := range samples {
		if last != 0 && s.Time > last {
			r.periods = append(r.periods, float64(s.Time-last)*microsecond)
			added++
		}
		last = s.Time
	}
	if n := len(r.periods); n > keptPeriods {
		r.periods = append(r.periods[:0], r.periods[n-keptPeriods:]...)
	}
	return min(added, keptPeriods)
}

// limit is the maximum distance that is not a gap: twice the median period, of all known ones or of the newest alone,
// so that a longer sampling period is followed at once. A single long distance is a gap.
func (r *ring) limit(newest int) float64 {
	if len(r.periods) < 3 {
		return longestWindow
	}
	m := r.median(r.periods)
	if newest > 1 {
		m = max(m, r.median(r.periods[len(r.periods)-newest:]))
	}
	return min(2*m, 2*longestWindow)
}

// median returns the middle element, the lower of two.
func (r *ring) median(of []float64) float64 {
	r.sorted = append(r.sorted[:0], of...)
	slices.Sort(r.sorted)
	return r.sorted[(len(r.sorted)-1)/2]
}

// sort fills scratch with the plausible samples in the order of time, each time once, and rejected with the timestamps
// of the others.
func (r *ring) sort(samples gpu.Ring, reject func()) {
	r.scratch, r.rejected = r.scratch[:0], r.rejected[:0]
	for _, s := range samples {
		switch {
		case s.Time == 0: // an entry that the driver did not fill
		case s.Time < 0:
			reject()
		case !(s.Value >= 0 && s.Value <= 100):
			// A read without a start time returns the same sample again: count it once.
			if s.Time > r.last || !r.seeded {
				reject()
			}
			r.rejected = append(r.rejected, s.Time)
		default:
			r.scratch = append(r.scratch, s)
		}
	}
	slices.SortStableFunc(r.scratch, func(a, b gpu.Sample) int { return cmp.Compare(a.Time, b.Time) })
	r.scratch = slices.CompactFunc(r.scratch, func(a, b gpu.Sample) bool { return a.Time == b.Time })
}

// RingSpan returns the depth of a full ring in seconds. It may have stopped in between.
func RingSpan(samples gpu.Ring) float64 {
	var r ring
	r.sort(samples, func() {})
	if r.seed(); len(r.periods) == 0 {
		return 0
	}
	return r.median(r.periods) * float64(len(r.scratch)-1)
}
