package account

import (
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// microsecond is the unit of the driver's sample clock, in seconds.
	microsecond = 1e-6
	// ringDepth is how far the driver's ring reaches back: samples that are older than that are not a
	// stale answer but another clock.
	ringDepth = 10e6 // microseconds
	// keptPeriods is how many distances between samples the median is taken over.
	keptPeriods = 63
	// longestWindow is the longest window of one sample while too few periods are known: NVML's windows
	// last between 1/6 s and 1 s.
	longestWindow = 2.0
)

// ring integrates one driver ring. A sample describes the window that ends at its time stamp, so that its
// length is the distance to the sample before. The driver's clock is opaque: it is compared with itself only.
type ring struct {
	seeded bool
	last   int64 // time stamp of the newest sample that was used; 0: none yet
	// periods are the latest distances between samples, in seconds, oldest first.
	periods []float64
	// credit is the time after last that was already counted as observed idle because the ring stood
	// still; stopped says that it did so at the latest read.
	credit  float64
	stopped bool
	// debt is observed time that was counted too early and is taken from what comes next.
	debt float64

	scratch []gpu.Sample
	bad     []int64
	sorted  []float64
}

// increment is what one read adds, in seconds.
type increment struct {
	busy, observed float64
	// lost is time of which no sample speaks.
	lost float64
	// peak is the highest sample, 0 to 1. Valid when sampled.
	peak    float64
	sampled bool
	// worked says that some sample was above 0, the last of them sinceWork seconds before the newest.
	worked    bool
	sinceWork float64
	// memory is the busy time of the memory ring.
	memory float64
}

// reseed forgets where the ring was read, as after a new session: the next read only seeds.
func (r *ring) reseed() {
	r.seeded, r.last, r.credit, r.debt, r.stopped = false, 0, 0, 0, false
}

// add integrates what one read returned, elapsed seconds after the read before. idle says that
// nvmlDeviceGetUtilizationRates spoke of no work at the same moment. reject is called for each sample that
// cannot be true.
func (r *ring) add(samples gpu.Ring, idle bool, elapsed float64, reject func()) increment {
	r.sort(samples, reject)
	if n := len(r.scratch); n > 0 && r.last != 0 && r.scratch[n-1].Time < r.last-ringDepth {
		// The clock went back by more than the ring is deep: it is another clock.
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
		if slices.ContainsFunc(r.bad, func(t int64) bool { return t > r.last }) {
			// It goes on, and what it says cannot be: that is no rest.
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
		// The ring was empty until now: nothing says where the first window began.
		r.last = fresh[0].Time - int64(limit/2/microsecond)
		if r.stopped {
			r.last -= int64(min(r.credit, 1e9) / microsecond)
		}
	}
	in.sampled = true
	var work int64
	for i, s := range fresh {
		gap := float64(s.Time-r.last) * microsecond
		// Where a sample was rejected its window is unknown: this one's begins after it.
		reach := gap
		for _, t := range r.bad {
			if t > r.last && t < s.Time {
				reach = min(reach, float64(s.Time-t)*microsecond)
			}
		}
		window := reach
		if window > limit {
			window = limit / 2 // after a gap, its own period is all that it speaks of
		}
		known := window
		if i == 0 && (r.credit > 0 || r.stopped) {
			known = min(gap, r.credit+window)
			if r.stopped {
				known = gap // it stood still because nothing ran
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
			in.worked, work = true, s.Time
		}
		r.last = s.Time
	}
	if in.worked {
		in.sinceWork = float64(r.last-work) * microsecond
	}
	r.stopped = false
	return in
}

// seed takes the position of the first read, and the rhythm from what the ring holds.
func (r *ring) seed() {
	r.seeded = true
	r.learn(r.scratch)
	if n := len(r.scratch); n > 0 {
		r.last = r.scratch[n-1].Time
	}
}

// repay takes what was observed too early from an observed time.
func (r *ring) repay(observed float64) float64 {
	paid := min(r.debt, observed)
	r.debt -= paid
	return observed - paid
}

// learn adds the distances between samples, the first of them to r.last where there is one, and returns how
// many they were.
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

// limit is the longest distance that is no gap: twice the median period, of all the known ones or of
// the newest alone, so that a rhythm that slows down is followed at once. A single long distance is a gap,
// not a rhythm.
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

// median returns the middle, and of two the lower.
func (r *ring) median(of []float64) float64 {
	r.sorted = append(r.sorted[:0], of...)
	slices.Sort(r.sorted)
	return r.sorted[(len(r.sorted)-1)/2]
}

// sort fills scratch with the believable samples in the order of time, each time once, and bad with the
// times of the others.
func (r *ring) sort(samples gpu.Ring, reject func()) {
	r.scratch, r.bad = r.scratch[:0], r.bad[:0]
	for _, s := range samples {
		switch {
		case s.Time == 0: // an entry that the driver did not fill
		case s.Time < 0:
			reject()
		case !(s.Value >= 0 && s.Value <= 100):
			// A read that does not filter returns the same sample again: count it once.
			if s.Time > r.last || !r.seeded {
				reject()
			}
			r.bad = append(r.bad, s.Time)
		default:
			r.scratch = append(r.scratch, s)
		}
	}
	slices.SortStableFunc(r.scratch, func(a, b gpu.Sample) int {
		switch {
		case a.Time < b.Time:
			return -1
		case a.Time > b.Time:
			return 1
		}
		return 0
	})
	r.scratch = slices.CompactFunc(r.scratch, func(a, b gpu.Sample) bool { return a.Time == b.Time })
}

// fullRing is the least number of samples that a ring is believed to be full with: a driver that was loaded a
// moment ago has a short past and not a shallow ring.
const fullRing = 60

// span returns for how many seconds back the samples of a first read reach: the depth of the ring. It is 0
// where too few say so.
func span(samples gpu.Ring) float64 {
	var first, last int64 = math.MaxInt64, 0
	n := 0
	for _, s := range samples {
		if s.Time > 0 {
			first, last, n = min(first, s.Time), max(last, s.Time), n+1
		}
	}
	if n < fullRing {
		return 0
	}
	return float64(last-first) * microsecond
}
