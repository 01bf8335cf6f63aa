package demand

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

const none = -1

// track makes a track; none is a step without a value.
func track(from int, values ...float64) *series.Track {
	t := &series.Track{From: from}
	for _, v := range values {
		if v == none {
			v = math.NaN()
		}
		t.V = append(t.V, float32(v))
	}
	return t
}

// TestOrder: peaks are in order of time, and the highest steps count first, wherever they are.
func TestOrder(t *testing.T) {
	got := Split(of(4, func(d, _ int) float64 { return 0.5 + 0.1*float64(d) }), period).Peaks
	for i, want := range []float64{0.5, 0.6, 0.7, 0.8} {
		near(t, "peak", got[i], want)
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
	for _, hours := range [][]float64{{0.7, 0.8, 0.9}, {0.9, 0.8, 0.7}, {0.8, 0.9, 0.7}} {
		x := of(28, func(d, h int) float64 {
			if d == 5 && h < 3 {
				return hours[h]
			}
			return 0.1
		})
		near(t, "upper", Upper(x, period, 0.01), 0.8)
	}
}

func TestFolds(t *testing.T) {
	if got := fmt.Sprint(Folds(80)); got != "[{40 50} {50 60} {60 70} {70 80}]" {
		t.Error(got)
	}
	var v Validation
	if r := v.Result(period); r != nil {
		t.Errorf("%+v", r)
	}
	v.Add("1/2", series.Span{From: 40, To: 50}, 0.1)
	v.Add("1/3", series.Span{From: 50, To: 80}, 0.02)
	want := document.Validation{Folds: 2, TrainHours: 50, TestHours: 40, Size: "1/3", Exceeded: 0.04, Worst: 0.1}
	if r := v.Result(period); math.Abs(r.Exceeded-0.04) > 1e-12 {
		t.Errorf("%+v", r)
	} else if r.Exceeded = 0.04; *r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// TestIdlePeriods: whole steps, and parts of steps at their ends.
func TestIdlePeriods(t *testing.T) {
	for _, tt := range []struct {
		name  string
		idle  *series.Track
		share float64
		want  string // to, idle and steps of each
	}{
		{"none", track(0, 0, 0, 0.001), 1, "[]"},
		{"no share", track(0, 1, 1), 0, "[]"},
		{"a start and an end within steps", track(5, 0.25, 1, 1, 0.5, 0), 1, "[{9 2.75 2.75}]"},
		{"half a GPU", track(0, 0.5, 0.5, 0.25, 0), 0.5, "[{3 1.25 2.5}]"},
		{"until the end", track(0, 0, 0.75, 1), 1, "[{3 1.75 1.75}]"},
		{"two", track(0, 1, 0, 1, 1), 1, "[{1 1 1} {4 2 2}]"},
		{"a step without a value", track(0, 1, none, 1), 1, "[{1 1 1} {3 1 1}]"},
		{"the end of one is not the start of the next", track(0, 1, 0.5, 1), 1, "[{2 1.5 1.5} {3 1 1}]"},
		{"rounded", track(0, 0.984375, 1, 0), 1, "[{2 1.984375 2}]"},
		{"a part between busy steps", track(0, 0, 0.5, 0), 1, "[]"},
		{"a part before another", track(0, 0.5, 0.5, 1), 1, "[{3 1.5 1.5}]"},
		{"barely", track(0, 0.00390625, 1), 1, "[{2 1.00390625 1.00390625}]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(IdlePeriods(tt.idle, func(int) float64 { return tt.share })); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestMemory: 100 is all memory of a GPU; the period has steps of an hour.
func TestMemory(t *testing.T) {
	steps := func(n int, at func(i int) float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = at(i)
		}
		return out
	}
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	usually := func(v float64, of int, other float64) func(int) float64 {
		return func(i int) float64 {
			if i%10 < of {
				return other
			}
			return v
		}
	}
	for _, tt := range []struct {
		name   string
		values []float64
		total  float64
		kind   string
		need   float64
	}{
		{"flat", steps(48, flat(50)), 100, Needed, 50},
		{"nine tenths", steps(48, flat(90)), 100, Preallocated, 0},
		{"85 %", steps(48, flat(85)), 100, Preallocated, 0},
		{"84.5 %", steps(48, flat(84.5)), 100, Needed, 84.5},
		{"three quarters", steps(48, flat(75)), 100, Preallocated, 0},
		{"74 %", steps(48, flat(74)), 100, Preallocated, 0},
		{"73 %", steps(48, flat(73)), 100, Needed, 73},
		{"76 %", steps(48, flat(76)), 100, Preallocated, 0},
		{"77 %", steps(48, flat(77)), 100, Needed, 77},
		{"of an unknown total", steps(48, flat(90)), 0, Needed, 90},
		{"a tenth of the time less", steps(50, usually(90, 1, 10)), 100, Preallocated, 0},
		{"a fifth of the time less", steps(50, usually(90, 2, 10)), 100, Needed, 90},
		{"a fifth of the time more", steps(50, usually(86, 2, 99)), 100, Needed, 99},
		// What is loaded in the first hour is no growth.
		{"grows", steps(48, func(i int) float64 { return 10 + float64(i) }), 100, Cache, 11},
		{"grows by less than a fifth", steps(48, func(i int) float64 { return 50 + float64(i)/5 }), 100, Needed, 59.4},
		{"grows for less than a day", steps(23, func(i int) float64 { return 10 + 2*float64(i) }), 100, Needed, 54},
		{"grows for a day", steps(24, func(i int) float64 { return 10 + 2*float64(i) }), 100, Cache, 12},
		{"another model after five hours", append(steps(5, flat(9)), steps(43, flat(40))...), 100, Needed, 40},
		{"grows in two steps", steps(48, func(i int) float64 { return 10 + 10*float64(i/16) }), 100, Needed, 30},
		{"grows in three steps", steps(48, func(i int) float64 { return 10 + 10*float64(i/12) }), 100, Cache, 10},
		{"falls once", steps(48, func(i int) float64 {
			if i == 30 {
				return 20
			}
			return 10 + float64(i)
		}), 100, Needed, 57},
		{"falls by a twentieth", steps(48, func(i int) float64 {
			if i == 30 {
				return 37.5
			}
			return 10 + float64(i)
		}), 100, Cache, 11},
		{"ends in its last hour", steps(48, func(i int) float64 {
			if i == 47 {
				return 5
			}
			return 10 + float64(i)
		}), 100, Cache, 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := track(3, tt.values...)
			kind, need := Memory([]*series.Track{x}, period, slices.Sorted(slices.Values(tt.values)), tt.total)
			if kind != tt.kind || math.Abs(need-tt.need) > 1e-4 {
				t.Errorf("%s %v, want %s %v", kind, need, tt.kind, tt.need)
			}
		})
	}
	// Of two pods the higher floor counts.
	both := []*series.Track{track(0, steps(48, func(i int) float64 { return 10 + float64(i) })...),
		track(0, steps(48, func(i int) float64 { return 20 + float64(i) })...)}
	if kind, need := Memory(both, period, both[1].Values(0, 48), 100); kind != Cache || need != 21 {
		t.Errorf("%s %v", kind, need)
	}
}
