package page

import (
	"math"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

var start = time.Unix(1_800_000_000, 0)

// points are values a minute apart; NaN is a gap.
func points(values ...float64) []board.Point {
	var out []board.Point
	for i, v := range values {
		if !math.IsNaN(v) {
			out = append(out, board.Point{At: start.Add(time.Duration(i) * time.Minute), Value: v})
		}
	}
	return out
}

func TestStack(t *testing.T) {
	gap := math.NaN()
	all := [][]board.Point{points(1, 2, gap), points(3, gap, 5), points(-1, -2, -3), points(-1, 2, -1)}
	type lowHigh struct{ low, high float64 }
	for mode, want := range map[string][][]lowHigh{
		"none":    {{{1, 1}, {2, 2}}, {{3, 3}, {5, 5}}, {{-1, -1}, {-2, -2}, {-3, -3}}, {{-1, -1}, {2, 2}, {-1, -1}}},
		"normal":  {{{0, 1}, {0, 2}}, {{1, 4}, {0, 5}}, {{0, -1}, {0, -2}, {0, -3}}, {{-1, -2}, {2, 4}, {-3, -4}}},
		"percent": {{{0, 1. / 6}, {0, 2. / 6}}, {{1. / 6, 4. / 6}, {0, 5. / 9}}, {{0, -1. / 6}, {0, -2. / 6}, {0, -3. / 9}}, {{-1. / 6, -2. / 6}, {2. / 6, 4. / 6}, {-3. / 9, -4. / 9}}},
	} {
		got := stack(mode, all)
		for i := range want {
			if len(got[i]) != len(want[i]) {
				t.Fatalf("%s: series %d has %d points, want %d", mode, i, len(got[i]), len(want[i]))
			}
			for j, w := range want[i] {
				if g := got[i][j]; math.Abs(g.low-w.low) > 1e-12 || math.Abs(g.high-w.high) > 1e-12 {
					t.Errorf("%s: series %d at %d: %v to %v, want %v to %v", mode, i, j, g.low, g.high, w.low, w.high)
				}
			}
		}
	}
}

func TestPercentOfNothingIsNothing(t *testing.T) {
	got := stack("percent", [][]board.Point{points(0), points(0)})
	if got[0][0].high != 0 || got[1][0].high != 0 {
		t.Errorf("%v", got)
	}
}

func TestRuns(t *testing.T) {
	gap := math.NaN()
	bands := stack("", [][]board.Point{points(1, 2, gap, 4, gap, gap, 7, 8)})[0]
	for _, c := range []struct {
		nulls any
		want  []int
	}{{false, []int{2, 1, 2}}, {true, []int{5}}, {nil, []int{2, 1, 2}}, {120_000.0, []int{3, 2}}} {
		got := runs(bands, time.Minute, c.nulls)
		var lengths []int
		for _, r := range got {
			lengths = append(lengths, len(r))
		}
		if len(lengths) != len(c.want) {
			t.Errorf("spanNulls %v: runs of %v, want %v", c.nulls, lengths, c.want)
			continue
		}
		for i := range lengths {
			if lengths[i] != c.want[i] {
				t.Errorf("spanNulls %v: runs of %v, want %v", c.nulls, lengths, c.want)
			}
		}
	}
}

func TestReduce(t *testing.T) {
	for calc, want := range map[string]float64{"lastNotNull": 4, "first": 2, "mean": 4, "max": 6, "min": 2, "sum": 12, "count": 3, "range": 4, "diff": 2} {
		got, err := reduce(calc, points(2, 6, 4))
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", calc, got, err, want)
		}
	}
	if _, err := reduce("p99", points(1)); err == nil {
		t.Error("p99 is no error")
	}
	if v, err := reduce("mean", nil); err != nil || !math.IsNaN(v) {
		t.Errorf("the mean of nothing: %v, %v", v, err)
	}
}
