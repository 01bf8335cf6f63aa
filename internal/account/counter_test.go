package account

import (
	"math"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestCounter(t *testing.T) {
	type value struct {
		v       float64
		elapsed float64
		fresh   bool
		step    float64
		ok      bool
	}
	for _, tt := range []struct {
		name   string
		kind   counterKind
		values []value
		total  float64
	}{
		{"first value is taken as it is", energyCounter, []value{{v: 5e9, step: 0, ok: true}}, 5e9},
		{"differences are added", energyCounter, []value{{v: 100, ok: true}, {v: 900, elapsed: 2, step: 800, ok: true}}, 900},
		{"energy never wraps: it restarted", energyCounter,
			[]value{{v: wrap32 - 10, ok: true}, {v: 500, elapsed: 2, step: 500, ok: true}}, wrap32 - 10 + 500},
		{"a lost link takes its count with it, and the others go on", nvlinkCounter,
			[]value{{v: 1800e9, ok: true}, {v: 1701e9, elapsed: 2, ok: true}, {v: 1702e9, elapsed: 2, step: 1e9, ok: true}}, 1801e9},
		{"a low counter that goes back restarted", pcieCounter, []value{{v: 1000, ok: true}, {v: 400, elapsed: 2, step: 400, ok: true}},
			1400},
		{"a small step back is rounding", energyCounter,
			[]value{{v: 1000, ok: true}, {v: 999, elapsed: 2, ok: true}, {v: 1010, elapsed: 2, step: 10, ok: true}}, 1010},
		{"an impossible jump is left out", energyCounter,
			[]value{{v: 1000, ok: true}, {v: 1e15, elapsed: 2}, {v: 1100, elapsed: 2, step: 100, ok: true}}, 1100},
		{"two agreeing impossible values are a new beginning", energyCounter,
			[]value{{v: 1000, ok: true}, {v: 1e15, elapsed: 2}, {v: 1e15 + 5, elapsed: 2, ok: true},
				{v: 1e15 + 25, elapsed: 2, step: 20, ok: true}}, 1020},
		{"garbage that stands for a while is no beginning, nor is its end", energyCounter,
			[]value{{v: 1000, ok: true}, {v: 9e15, elapsed: 2}, {v: 9e15, elapsed: 2, ok: true}, {v: 9e15, elapsed: 2, ok: true},
				{v: 1800, elapsed: 2, ok: true}, {v: 2000, elapsed: 2, step: 200, ok: true}}, 1200},
		{"garbage until the session is a new one", energyCounter,
			[]value{{v: 1000, ok: true}, {v: 9e15, elapsed: 2}, {v: 9e15, elapsed: 2, ok: true},
				{v: 1800, elapsed: 2, fresh: true, ok: true}, {v: 2000, elapsed: 2, step: 200, ok: true}}, 1200},
		{"restarted with more than can be: from there", energyCounter,
			[]value{{v: 1e12, ok: true}, {v: 1e9, elapsed: 2}, {v: 1e9 + 10, elapsed: 2, ok: true},
				{v: 1e9 + 20, elapsed: 2, step: 10, ok: true}}, 1e12 + 10},
		{"a new session that began with more than can be, and is near to where the old one was", energyCounter,
			[]value{{v: 1e6, ok: true}, {v: 7e5, elapsed: 2, fresh: true}, {v: 7e5 + 100, elapsed: 2, ok: true},
				{v: 7e5 + 300, elapsed: 2, step: 200, ok: true}}, 1e6 + 200},
		{"no number", energyCounter, []value{{v: math.NaN()}, {v: -1}, {v: math.Inf(1)}, {v: 3, ok: true}}, 3},
		{"time runs no faster than time", limitedCounter, []value{{v: 1, ok: true}, {v: 500, elapsed: 2}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c counter
			for i, v := range tt.values {
				step, ok := c.add(tt.kind, v.v, v.elapsed, v.fresh)
				if step != v.step || ok != v.ok {
					t.Fatalf("value %d (%v): step %v, %v; want %v, %v", i, v.v, step, ok, v.step, v.ok)
				}
			}
			if c.total != tt.total {
				t.Errorf("total %v, want %v", c.total, tt.total)
			}
		})
	}
}

// The whole of a 32-bit counter that overflows up to 28 times between two values, by an estimate that is 1 % off.
func TestWrapping(t *testing.T) {
	some, none := gpu.Some[float64], gpu.None[float64]()
	for _, rate := range []float64{0, 1e5, 1e9, 5e9, 26e9, 60e9} {
		for _, wrong := range []float64{0.99, 1, 1.01} {
			var w wrapping
			for i := range 100 {
				estimate := none
				if i > 0 {
					estimate = some(2 * rate * wrong)
				}
				if !w.add(math.Mod(7e9+2*rate*float64(i), wrap32), estimate, 2, false) {
					t.Fatal("rejected")
				}
			}
			if got, ok := w.get(); !ok || math.Abs(got-198*rate) > 1 {
				t.Errorf("at %g B/s with an estimate of %g: %v, %v", rate, wrong, got-198*rate, ok)
			}
		}
	}
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
		{"an estimate at the limit", []value{{v: 0}, {v: 5, estimate: some(pcieCounter.maxRate * (2 + counterLeeway))}},
			5 + wrap32*math.Round((pcieCounter.maxRate*(2+counterLeeway)-5)/wrap32), true},
		{"an estimate beyond it", []value{{v: 0}, {v: 5, estimate: some(1.01 * pcieCounter.maxRate * (2 + counterLeeway))}}, 0, false},
		{"64 bits need no estimate", []value{{v: 5e9}, {v: 6e9}, {v: 9e9}, {v: 1e10}}, 4e9, true},
	} {
		var w wrapping
		for _, v := range tt.values {
			if v.missing {
				w.miss(2, v.estimate.Present())
			} else {
				w.add(v.v, v.estimate, 2, v.fresh)
			}
		}
		if got, ok := w.get(); ok != tt.ok || ok && got != tt.total {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, ok, tt.total, tt.ok)
		}
	}
}
