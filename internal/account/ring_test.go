package account

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// samples builds a ring: pairs of seconds and percent.
func samples(pairs ...float64) gpu.Ring {
	var r gpu.Ring
	for i := 0; i < len(pairs); i += 2 {
		r = append(r, gpu.Sample{Time: int64(math.Round(pairs[i] * 1e6)), Value: pairs[i+1]})
	}
	return r
}

// regular returns a ring of one value from after begin to end.
func regular(begin, end, period, value float64) gpu.Ring {
	var pairs []float64
	for i := 1; begin+float64(i)*period <= end+1e-9; i++ {
		pairs = append(pairs, begin+float64(i)*period, value)
	}
	return samples(pairs...)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestRing(t *testing.T) {
	type read struct {
		ring    gpu.Ring
		idle    bool
		elapsed float64
	}
	for _, tt := range []struct {
		name                 string
		reads                []read
		busy, observed, lost float64
		peak                 float64
		rejected             int
	}{
		{name: "the first read only seeds", reads: []read{{ring: regular(100, 110, .1, 100)}}},
		{name: "a sample describes the window that ends at it",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(11, 100, 12, 50), elapsed: 2}},
			busy:  1.5, observed: 2, peak: 1},
		{name: "unsorted, doubled, unfilled and old entries",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(12, 50, 0, 70, 11, 100, 12, 90, 10, 100, 0, 0), elapsed: 2}},
			busy:  1.5, observed: 2, peak: 1},
		{name: "samples that cannot be true are no rest",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(11, 8e8, 12, 8e8), idle: true, elapsed: 2},
				{ring: samples(13, 8e8, 14, 8e8), idle: true, elapsed: 2},
				{ring: samples(15, 50, 16, 50), elapsed: 2}},
			busy: 1, observed: 2, lost: 4, peak: .5, rejected: 4},
		{name: "the same answer twice counts once",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(11, 100), elapsed: 1}, {ring: samples(11, 100), elapsed: 1}},
			busy:  1, observed: 1, peak: 1},
		{name: "implausible values are rejected, and their windows not observed",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(11, 100, 12, 808334905, 13, 100), elapsed: 3}},
			busy:  2, observed: 2, lost: 1, peak: 1, rejected: 1},
		{name: "no number is rejected", reads: []read{{ring: samples(1, 50)}, {ring: samples(2, math.NaN(), 3, -1), elapsed: 2}},
			rejected: 2},
		{name: "a gap beyond two periods is not observed",
			reads: []read{{ring: regular(0, 10, .1, 0)}, {ring: append(samples(15, 100), regular(15, 16, .1, 100)...), elapsed: 6}},
			busy:  1.1, observed: 1.1, lost: 4.9, peak: 1},
		{name: "a ring that stands still while idle is observed",
			reads: []read{{ring: regular(0, 10, .1, 0)}, {idle: true, elapsed: 2}, {idle: true, elapsed: 2}},
			busy:  0, observed: 4},
		{name: "and not again when samples come",
			reads: []read{{ring: regular(0, 10, .1, 0)}, {idle: true, elapsed: 2}, {idle: true, elapsed: 2},
				{ring: regular(15, 16, .1, 100), elapsed: 2}},
			busy: 1, observed: 6, peak: 1},
		{name: "nor when it had been counted too early",
			reads: []read{{ring: regular(0, 10, .1, 0)}, {idle: true, elapsed: 2}, {ring: regular(11.8, 13.8, .1, 100), elapsed: 2}},
			busy:  2, observed: 3.8, peak: 1},
		{name: "a ring that stands still while busy is not observed", reads: []read{{ring: regular(0, 10, .1, 0)}, {elapsed: 2}}},
		{name: "another clock restarts",
			reads: []read{{ring: regular(1e6, 1e6+10, .1, 0)}, {ring: regular(0, 2, .1, 100), elapsed: 2},
				{ring: regular(2, 3, .1, 100), elapsed: 1}},
			busy: 1, observed: 1, peak: 1},
		{name: "a clock that goes back a little waits",
			reads: []read{{ring: regular(0, 10, .1, 0)}, {ring: regular(7, 9, .1, 100), elapsed: 2},
				{ring: regular(9, 11, .1, 100), elapsed: 2}},
			busy: 1, observed: 1, peak: 1},
		{name: "the newest sample again, alone",
			reads: []read{{ring: regular(0, 10, 1, 0)}, {ring: samples(10, 100), elapsed: 1}, {ring: samples(11, 50), elapsed: 1}},
			busy:  .5, observed: 1, peak: .5},
		{name: "a slower rhythm is followed at once",
			reads: []read{{ring: regular(0, 7, .1, 0)}, {ring: samples(8, 100, 9, 100, 10, 100), elapsed: 3}},
			busy:  3, observed: 3, peak: 1},
		{name: "a ring that was empty begins with its first sample",
			reads: []read{{idle: true}, {idle: true, elapsed: 2}, {ring: regular(100, 101, .1, 100), elapsed: 2}},
			busy:  1, observed: 3, peak: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r ring
			var got increment
			rejected := 0
			for _, rd := range tt.reads {
				in := r.add(rd.ring, rd.idle, rd.elapsed, func() { rejected++ })
				got.busy += in.busy
				got.observed += in.observed
				got.lost += in.lost
				got.peak = max(got.peak, in.peak)
			}
			near(t, "busy", got.busy, tt.busy)
			near(t, "observed", got.observed, tt.observed)
			near(t, "lost", got.lost, tt.lost)
			near(t, "peak", got.peak, tt.peak)
			if rejected != tt.rejected {
				t.Errorf("rejected %d, want %d", rejected, tt.rejected)
			}
		})
	}
}

// Under any pattern of polls of up to 5 s the integral is the truth: what the driver measured between the
// first and the last sample that was read.
func TestRingIntegralIsTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for generation := range 300 {
		period := []float64{.1, 1. / 7, 1. / 6, .5, 1}[rng.IntN(5)]
		base := rng.Float64() * 1e9
		var all gpu.Ring
		clock := base
		for clock < base+200 {
			step := period * (0.8 + 0.4*rng.Float64())
			clock += step
			all = append(all, gpu.Sample{Time: int64(clock * 1e6), Value: float64(rng.IntN(101))})
		}
		var r ring
		var busy, observed float64
		next, read := base+12, 0
		first := -1
		for next < base+195 {
			// The ring holds 10 s; a driver may or may not leave out what was read before.
			var view gpu.Ring
			for i, s := range all {
				at := float64(s.Time) * 1e-6
				if at <= next && at > next-10 && (generation%2 == 0 || i >= read) {
					view = append(view, s)
				}
			}
			for i, s := range all {
				if float64(s.Time)*1e-6 <= next {
					read = i + 1
				}
			}
			if first < 0 {
				first = read
			}
			rng.Shuffle(len(view), func(i, j int) { view[i], view[j] = view[j], view[i] })
			view = append(view, make(gpu.Ring, rng.IntN(3))...)
			in := r.add(view, rng.IntN(2) == 0, 0, func() { t.Fatal("rejected") })
			busy += in.busy
			observed += in.observed
			next += rng.Float64() * 5
		}
		var want float64
		for i := first; i < read; i++ {
			want += all[i].Value / 100 * float64(all[i].Time-all[i-1].Time) * 1e-6
		}
		length := float64(all[read-1].Time-all[first-1].Time) * 1e-6
		if math.Abs(busy-want) > 1e-6 || math.Abs(observed-length) > 1e-6 {
			t.Fatalf("period %v: busy %v of %v, truth %v of %v", period, busy, observed, want, length)
		}
	}
}

// An idle GPU's ring may stop; what is observed stays close to the time that went by, and work is not lost.
func TestRingThatStopsWhileIdle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		const period = .125
		clock, busyUntil, idleUntil := 1000.0, 1005.0, 0.0
		var all gpu.Ring
		truth := 0.0
		for clock < 1300 {
			clock += period
			switch {
			case clock < busyUntil:
				v := float64(1 + rng.IntN(100))
				all = append(all, gpu.Sample{Time: int64(clock * 1e6), Value: v})
				idleUntil = busyUntil + rng.Float64()*30
			case clock < idleUntil: // no sample
			default:
				busyUntil = clock + rng.Float64()*30
			}
		}
		var r ring
		var busy, observed, begin float64
		now, before := 1003.0, 0.0
		seen := 0
		for now < 1290 {
			var view gpu.Ring
			for _, s := range all[seen:] {
				if at := float64(s.Time) * 1e-6; at <= now {
					seen++
					view = append(view, s)
					if begin != 0 {
						truth += s.Value / 100 * period
					}
				}
			}
			idle := len(view) == 0
			elapsed := 0.0
			if before != 0 {
				elapsed = now - before
			}
			in := r.add(view, idle, elapsed, func() { t.Fatal("rejected") })
			if begin == 0 {
				begin = now
			}
			busy += in.busy
			observed += in.observed
			before = now
			now += .5 + rng.Float64()*2
		}
		if observed > before-begin+2*period+1e-6 {
			t.Fatalf("observed %v of %v", observed, before-begin)
		}
		// A stop that begins and ends between two polls is not seen to be one, so that some of it is lost.
		if observed < 0.7*(before-begin) {
			t.Fatalf("observed only %v of %v", observed, before-begin)
		}
		if busy < truth-1e-6 || busy > truth*1.02+period*10 {
			t.Fatalf("busy %v, truth %v", busy, truth)
		}
		if busy > observed+1e-6 {
			t.Fatalf("busy %v of observed %v", busy, observed)
		}
	}
}

// FuzzRing asserts what holds for any answer of any driver.
func FuzzRing(f *testing.F) {
	seed := func(rings ...gpu.Ring) {
		var b []byte
		for _, r := range rings {
			for _, s := range r {
				b = binary.LittleEndian.AppendUint64(b, uint64(s.Time))
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Value))
			}
			b = binary.LittleEndian.AppendUint64(b, math.MaxUint64)
			b = binary.LittleEndian.AppendUint64(b, 1)
		}
		f.Add(b)
	}
	seed(regular(0, 10, .1, 50), regular(10, 12, .1, 100))
	seed(samples(1, 2, 3, 4), nil, nil, samples(9, 5), samples(1e9, 100), samples(2, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r ring
		var ring gpu.Ring
		var busy, observed float64
		for len(data) >= 16 {
			at, v := int64(binary.LittleEndian.Uint64(data)), binary.LittleEndian.Uint64(data[8:])
			data = data[16:]
			if at != -1 {
				ring = append(ring, gpu.Sample{Time: at, Value: math.Float64frombits(v)})
				continue
			}
			kept := slices.Clone(ring)
			elapsed := float64(v%8) / 2
			in := r.add(ring, v%3 == 0, elapsed, func() {})
			if !slices.EqualFunc(kept, ring, func(a, b gpu.Sample) bool {
				return a.Time == b.Time && math.Float64bits(a.Value) == math.Float64bits(b.Value)
			}) {
				t.Fatal("the reading was changed")
			}
			if !(in.busy >= 0) || !(in.observed >= 0) || !(in.lost >= -1e-6) || !(in.peak >= 0 && in.peak <= 1) || !(in.sinceBusy >= 0) {
				t.Fatalf("%+v", in)
			}
			if maxRate := 2*longestWindow*float64(len(ring)) + elapsed; in.busy > maxRate+1e-6 {
				t.Fatalf("%d samples made %v busy seconds", len(ring), in.busy)
			}
			busy += in.busy
			observed += in.observed
			if busy > observed*(1+1e-9)+1e-3 {
				t.Fatalf("busy %v of observed %v", busy, observed)
			}
			ring = ring[:0]
		}
	})
}
