package counters

import (
	"math"
	"testing"
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
		kind   Kind
		values []value
		total  float64
	}{
		{"first value is taken as it is", Energy, []value{{v: 5e9, step: 0, ok: true}}, 5e9},
		{"a first value of centuries is garbage", Energy,
			[]value{{v: 1 << 63 / 1e3}, {v: 1000, ok: true}, {v: 1100, elapsed: 2, step: 100, ok: true}}, 1100},
		{"differences are added", Energy, []value{{v: 100, ok: true}, {v: 900, elapsed: 2, step: 800, ok: true}}, 900},
		{"energy never wraps: it restarted", Energy,
			[]value{{v: wrap32 - 10, ok: true}, {v: 500, elapsed: 2, step: 500, ok: true}}, wrap32 - 10 + 500},
		{"a lost link takes its count with it, and the others go on", NVLink,
			[]value{{v: 1800e9, ok: true}, {v: 1701e9, elapsed: 2, ok: true}, {v: 1702e9, elapsed: 2, step: 1e9, ok: true}}, 1801e9},
		{"a low counter that goes back restarted", PCIe, []value{{v: 1000, ok: true}, {v: 400, elapsed: 2, step: 400, ok: true}}, 1400},
		{"a small step back is rounding", Energy,
			[]value{{v: 1000, ok: true}, {v: 999, elapsed: 2, ok: true}, {v: 1010, elapsed: 2, step: 10, ok: true}}, 1010},
		{"an impossible jump is left out", Energy,
			[]value{{v: 1000, ok: true}, {v: 1e15, elapsed: 2}, {v: 1100, elapsed: 2, step: 100, ok: true}}, 1100},
		{"two agreeing impossible values are a new beginning", Energy,
			[]value{{v: 1000, ok: true}, {v: 1e15, elapsed: 2}, {v: 1e15 + 5, elapsed: 2, ok: true},
				{v: 1e15 + 25, elapsed: 2, step: 20, ok: true}}, 1020},
		{"garbage that stands for a while is no beginning, nor is its end", Energy,
			[]value{{v: 1000, ok: true}, {v: 9e15, elapsed: 2}, {v: 9e15, elapsed: 2, ok: true}, {v: 9e15, elapsed: 2, ok: true},
				{v: 1800, elapsed: 2, ok: true}, {v: 2000, elapsed: 2, step: 200, ok: true}}, 1200},
		{"garbage until the session is a new one", Energy,
			[]value{{v: 1000, ok: true}, {v: 9e15, elapsed: 2}, {v: 9e15, elapsed: 2, ok: true},
				{v: 1800, elapsed: 2, fresh: true, ok: true}, {v: 2000, elapsed: 2, step: 200, ok: true}}, 1200},
		{"restarted with more than can be: from there", Energy,
			[]value{{v: 1e12, ok: true}, {v: 1e9, elapsed: 2}, {v: 1e9 + 10, elapsed: 2, ok: true},
				{v: 1e9 + 20, elapsed: 2, step: 10, ok: true}}, 1e12 + 10},
		{"a new session that began with more than can be, and is near to where the old one was", Energy,
			[]value{{v: 1e6, ok: true}, {v: 7e5, elapsed: 2, fresh: true}, {v: 7e5 + 100, elapsed: 2, ok: true},
				{v: 7e5 + 300, elapsed: 2, step: 200, ok: true}}, 1e6 + 200},
		{"no number", Energy, []value{{v: math.NaN()}, {v: -1}, {v: math.Inf(1)}, {v: 3, ok: true}}, 3},
		{"time runs no faster than time", LimitedTime, []value{{v: 1, ok: true}, {v: 500, elapsed: 2}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Counter
			for i, v := range tt.values {
				step, ok := c.Add(tt.kind, v.v, v.elapsed, v.fresh)
				if step != v.step || ok != v.ok {
					t.Fatalf("value %d (%v): step %v, %v; want %v, %v", i, v.v, step, ok, v.step, v.ok)
				}
			}
			if c.Total != tt.total {
				t.Errorf("total %v, want %v", c.Total, tt.total)
			}
		})
	}
}
