package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// A distance up to twice the median period is one period; a longer one is a gap, of which the sample covers one period.
// Two distances that agree are a longer period, one is not. With fewer than three distances two seconds are one period,
// with long periods four.
func TestLongestPeriodOfASample(t *testing.T) {
	for _, c := range []struct {
		name           string
		seed, then     gpu.Ring
		busy, observed float64
		lost           float64
	}{
		{"twice the period", regular(0, 10, .1, 0), samples(10.2, 100), .2, .2, 0},
		{"more", regular(0, 10, .1, 0), samples(10.3, 100), .1, .1, .2},
		{"two longer periods", regular(0, 10, .1, 0), samples(10.3, 100, 10.6, 50), .45, .6, 0},
		{"one longer and one as before", regular(0, 10, .1, 0), samples(10.3, 100, 10.4, 50), .15, .2, .2},
		{"three, one of them long", regular(0, 10, .1, 0), samples(10.1, 100, 10.4, 100, 10.5, 100), .3, .3, .2},
		{"one sample: 2 s", samples(10, 0), samples(12, 100), 2, 2, 0},
		{"one sample: more", samples(10, 0), samples(12.1, 100), 1, 1, 1.1},
		{"two distances: 2 s", samples(10, 0, 10.1, 0), samples(12.1, 100), 2, 2, 0},
		{"three distances", samples(10, 0, 10.1, 0, 10.2, 0), samples(12.2, 100), .1, .1, 1.9},
		{"a period of 2 s: 4 s", regular(0, 20, 2, 0), samples(24, 100), 4, 4, 0},
		{"a period of 3 s: 4 s", regular(0, 30, 3, 0), samples(34, 100), 4, 4, 0},
		{"a period of 3 s: more", regular(0, 30, 3, 0), samples(34.5, 100), 2, 2, 2.5},
	} {
		var r ring
		r.add(c.seed, false, 0, nil)
		in := r.add(c.then, false, 2, nil)
		near(t, c.name+": busy", in.busy, c.busy)
		near(t, c.name+": observed", in.observed, c.observed)
		near(t, c.name+": lost", in.lost, c.lost)
	}
	// The median is that of the last 63 distances.
	for n, want := range map[int]float64{31: .2, 32: .6} {
		var r ring
		r.add(regular(0, 20, .1, 0), false, 0, nil)
		for i := range n {
			r.add(samples(20+.3*float64(i+1), 0), false, .3, nil)
		}
		if got := r.limit(0); got < want-1e-9 || got > want+1e-9 || len(r.periods) != keptPeriods {
			t.Errorf("after %d of 0.3 s a period is up to %v s, of %d", n, got, len(r.periods))
		}
	}
}

// A clock that goes back by more than the depth of the ring is another clock; by ten seconds it is not.
func TestClockThatGoesBack(t *testing.T) {
	for newest, want := range map[float64]int64{20: 30e6, 19.9: 19_900_000} {
		var r ring
		r.add(regular(20, 30, .1, 0), false, 0, nil)
		if in := r.add(samples(newest, 100), false, 2, nil); in != (increment{}) || r.last != want {
			t.Errorf("from 30 s to %v s: %+v, at %d", newest, in, r.last)
		}
	}
}

// When the GPU was last busy in a reading, and that a sample of 0 is not busy.
func TestLastBusySample(t *testing.T) {
	for _, c := range []struct {
		ring  gpu.Ring
		busy  bool
		since float64
	}{
		{samples(10.1, 0, 10.2, 0), false, 0}, {samples(10.1, 1, 10.2, 0, 10.3, 0), true, .2},
		{samples(10.1, 0, 10.2, 1), true, 0}, {samples(10.1, 1, 10.2, 1, 10.3, 0), true, .1},
	} {
		var r ring
		r.add(regular(0, 10, .1, 0), false, 0, nil)
		in := r.add(c.ring, false, .2, nil)
		if near(t, "since", in.sinceBusy, c.since); in.wasBusy != c.busy || !in.sampled {
			t.Errorf("%v: %+v", c.ring, in)
		}
	}
}

// A ring that stopped while the GPU was idle, in steps: time that was counted as observed is not counted again, and what
// was counted too early is paid back by the next.
func TestStoppedRingIsCountedOnce(t *testing.T) {
	type read struct {
		ring                 gpu.Ring
		idle                 bool
		elapsed              float64
		busy, observed, lost float64
	}
	for name, reads := range map[string][]read{
		"starts again exactly": {{nil, true, 5, 0, 5, 0}, {regular(15, 16, .1, 100), false, 1, 1, 1, 0}},
		"with time between":    {{nil, true, 5, 0, 5, 0}, {regular(17, 18, .1, 100), false, 3, 1, 3, 0}},
		"earlier than counted": {{nil, true, 5, 0, 5, 0}, {regular(12, 13, .1, 100), false, 1, 1, .9 - 2.9 + 2, 0},
			{regular(13, 16, .1, 0), false, 3, 0, 1, 0}, {regular(16, 17, .1, 0), false, 1, 0, 1, 0}},
		"not idle when it was read last": {{nil, true, 5, 0, 5, 0}, {nil, false, 2, 0, 0, 0},
			{regular(17, 18, .1, 100), false, 1, 1, 1, 2}},
		"not idle at all": {{nil, false, 5, 0, 0, 0}, {regular(15, 16, .1, 100), false, 1, 1, 1, 5}},
		"idle again after samples": {{nil, true, 5, 0, 5, 0}, {regular(15, 16, .1, 100), false, 1, 1, 1, 0}, {nil, true, 5, 0, 5, 0},
			{regular(21, 22, .1, 50), false, 1, .5, 1, 0}},
	} {
		var r ring
		r.add(regular(0, 10, .1, 0), false, 0, nil)
		for i, s := range reads {
			in := r.add(s.ring, s.idle, s.elapsed, nil)
			if d := in.observed - s.observed; in.busy-s.busy > 1e-6 || s.busy-in.busy > 1e-6 || d > 1e-6 || d < -1e-6 ||
				in.lost-s.lost > 1e-6 || s.lost-in.lost > 1e-6 {
				t.Errorf("%s, read %d: %+v, want busy %v, observed %v, lost %v", name, i, in, s.busy, s.observed, s.lost)
			}
		}
	}
}
