package counters

import (
	"math"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The whole of a 32-bit counter that overflows up to 28 times between two values, by an estimate that is 0.4 % off.
func TestWrapping(t *testing.T) {
	some := gpu.Some[float64]
	for _, rate := range []float64{0, 1e5, 1e9, 5e9, 26e9, 60e9} {
		for _, wrong := range []float64{0.996, 1, 1.004} {
			var w Wrapping
			for i := range 100 {
				by := Estimates{}
				if i > 0 {
					by.Step = some(2 * rate * wrong)
				}
				if !w.Add(math.Mod(7e9+2*rate*float64(i), wrap32), by, 2, false) {
					t.Fatal("rejected")
				}
			}
			if got, ok := w.Get(); !ok || math.Abs(got-198*rate) > 1 {
				t.Errorf("at %g B/s with an estimate of %g: %v, %v", rate, wrong, got-198*rate, ok)
			}
		}
	}
	const limit = 7e12 // the highest possible rate for 2 s and the leeway
	type value struct {
		v        float64
		estimate gpu.Opt[float64]
		missing  bool
		fresh    bool
	}
	for _, tt := range []struct {
		name   string
		values []value
		total  float64
		ok     bool
	}{
		{"no estimate, no counter", []value{{v: 10}, {v: 20}, {v: 30}}, 0, false},
		{"a step back is rounding", []value{{v: 1000}, {v: 990, estimate: some(0)}, {v: 1090, estimate: some(90)}}, 100, true},
		{"an unknown step is left out", []value{{v: 10}, {v: 20, estimate: some(9)}, {v: 500}, {v: 510, estimate: some(9)}}, 20, true},
		{"without a value in a period that was estimated", []value{{v: 10}, {v: 20, estimate: some(9)},
			{missing: true, estimate: some(9e9)}, {v: 90, estimate: some(9)}, {v: 100, estimate: some(9)}}, 20, true},
		{"a new session", []value{{v: 10}, {v: 20, estimate: some(9)}, {v: 5, estimate: some(9), fresh: true},
			{v: 7, estimate: some(2)}}, 12, true},
		{"garbage", []value{{v: 10}, {v: 9e15, estimate: some(9)}, {v: 20, estimate: some(math.NaN())}, {v: 30, estimate: some(9)}},
			10, true},
		{"an estimate at the limit", []value{{v: 0}, {v: math.Mod(limit, wrap32), estimate: some(limit)}}, limit, true},
		{"an estimate beyond it", []value{{v: 0}, {v: 5, estimate: some(1.01 * limit)}}, 0, false},
		{"64 bits need no estimate", []value{{v: 5e9}, {v: 6e9}, {v: 9e9}, {v: 1e10}}, 4e9, true},
	} {
		var w Wrapping
		for _, v := range tt.values {
			if v.missing {
				w.Miss(2, v.estimate.Present())
			} else {
				w.Add(v.v, Estimates{Step: v.estimate}, 2, v.fresh)
			}
		}
		if got, ok := w.Get(); ok != tt.ok || ok && got != tt.total {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, ok, tt.total, tt.ok)
		}
	}
}

// A GPM whose rates are off: what is exported is within half a percent, or nothing is and there is a reason. The sum since
// reboot decides where it agrees with the counter.
func TestWrappingWatchesItsEstimates(t *testing.T) {
	// Traffic that varies between none and the maximum of PCIe 5, and passes through the range below 1 GB/s.
	varied := func(max float64) func(i int) float64 {
		return func(i int) float64 { return max * math.Pow(math.Sin(float64(i)*0.37), 4) }
	}
	constant := func(rate float64) func(i int) float64 { return func(int) float64 { return rate } }
	exact := func(v float64) float64 { return v }
	times := func(k float64) func(float64) float64 { return func(v float64) float64 { return k * v } }
	const kibi = 1.0 / 1024
	steps, before := 0, 0.0 // at first, the rates are those of the period before
	late := func(v float64) float64 {
		if steps, v, before = steps+1, before, v; steps > 100 {
			return before
		}
		return v
	}
	for _, tt := range []struct {
		name      string
		rate      func(i int) float64
		rates     func(v float64) float64 // of GPM
		sums      func(v float64) float64 // of GPM; nil: it has none
		reason    string                  // empty: exported
		tolerance float64
	}{
		{"exact, varied", varied(60e9), exact, nil, "", 1e-9},
		{"+3 %, varied", varied(60e9), times(1.03), nil, "", 0.005},
		{"-10 %, varied", varied(60e9), times(0.9), nil, "", 0.005},
		{"half, varied", varied(60e9), times(0.5), nil, "gpm_mismatch", 0},
		{"0, varied", varied(60e9), times(0), nil, "gpm_mismatch", 0},
		{"double, varied", varied(60e9), times(2), nil, "gpm_mismatch", 0},
		{"+3 %, 60 GB/s", constant(60e9), times(1.03), nil, "gpm_mismatch", 0},
		{"-10 %, 60 GB/s", constant(60e9), times(0.9), nil, "gpm_mismatch", 0},
		{"+3 %, 26 GB/s", constant(26e9), times(1.03), nil, "gpm_mismatch", 0},
		{"-10 %, 5 GB/s", constant(5e9), times(0.9), nil, "gpm_mismatch", 0},
		{"half, 5 GB/s", constant(5e9), times(0.5), nil, "gpm_mismatch", 0},
		{"0, 5 GB/s", constant(5e9), times(0), nil, "gpm_mismatch", 0},
		{"1 % off, 60 GB/s", constant(60e9), times(1.003), nil, "", 1e-9},
		{"0, little traffic", constant(20e6), times(0), nil, "", 1e-9},
		{"late, then exact", func(i int) float64 {
			if i < 100 {
				return 0.3e9 * float64(1+i%2)
			}
			return 5e9
		}, late, nil, "", 1e-9},
		{"sums decide", constant(60e9), times(1.03), exact, "", 1e-9},
		{"sums decide, without rates", constant(60e9), nil, exact, "", 1e-9},
		{"sums in KiB, rates decide", varied(60e9), exact, times(kibi), "", 1e-9},
		{"sums 3 % off, rates decide", constant(60e9), exact, times(1.03), "", 1e-9},
		{"neither", constant(60e9), times(0.9), times(1.03), "gpm_mismatch", 0},
	} {
		var w Wrapping
		const learned = 150 // steps until the scale of the source is known
		truth, from, was := 3e12, 0.0, 0.0
		for i := range 500 {
			grown := 2 * tt.rate(i)
			by := Estimates{}
			if i > 0 {
				truth += grown
				if tt.rates != nil {
					by.Step = gpu.Some(tt.rates(grown))
				}
			}
			if tt.sums != nil {
				by.Sum = gpu.Some(tt.sums(truth))
			}
			w.Add(math.Mod(truth, wrap32), by, 2, false)
			got, ok := w.Get()
			if i == learned {
				from, was = truth, got
			}
			if i >= learned && ok != (tt.reason == "") {
				t.Fatalf("%s: step %d: %g, %v", tt.name, i, got, ok)
			}
		}
		if got := w.Reason(); got != tt.reason {
			t.Errorf("%s: reason %q, want %q", tt.name, got, tt.reason)
		}
		got, _ := w.Get()
		if got, want := got-was, truth-from; tt.reason == "" && math.Abs(got-want) > tt.tolerance*want {
			t.Errorf("%s: %g, want %g (%+.3f %%)", tt.name, got, want, 100*(got/want-1))
		}
	}
}
