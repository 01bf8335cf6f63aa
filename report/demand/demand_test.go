package demand

import (
	"math"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/series"
)

var period = series.NewPeriod(time.Unix(0, 0), time.Unix(0, 0).AddDate(0, 0, 28), time.Hour)

// of makes a demand of days with 24 steps each.
func of(days int, at func(day, hour int) float64) *series.Track {
	var t series.Track
	for d := range days {
		for h := range 24 {
			t.Add(24*d+h, at(d, h))
		}
	}
	return &t
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-3*math.Abs(want)+1e-6 {
		t.Errorf("%s is %.5f, want %.5f", what, got, want)
	}
}

// TestSplit: periods, and the bound of a later one, computed by hand.
func TestSplit(t *testing.T) {
	peaks := func(list ...float64) *series.Track {
		return of(len(list), func(d, h int) float64 {
			if h == 12 {
				return list[d]
			}
			return 0
		})
	}
	for _, tt := range []struct {
		name   string
		track  *series.Track
		period string
		growth float64
	}{
		{"constant", of(3, func(int, int) float64 { return 0.5 }), "day", 1},
		{"two days", of(2, func(int, int) float64 { return 0.5 }), "", unknown},
		{"never busy", of(28, func(int, int) float64 { return 0.001 }), "", unknown},
		{"barely busy", of(3, func(int, int) float64 { return 0.002 }), "day", 1},
		// Mean 0.4, deviation 0.1, Student's 99 % of 2 degrees 6.96: 0.4 + 0.1 * 6.96 * sqrt(4/3) = 1.20367, over 0.5.
		{"three peaks", peaks(0.5, 0.3, 0.4), "day", 1.20367 / 0.5},
		{"a fall is level", peaks(0.5, 0.4, 0.3), "day", 1.20367 / 0.5},
		// Mean 0.26667, deviation 0.11547.
		{"twice the median", peaks(0.2, 0.2, 0.4), "day", 1.19464 / 0.4},
		{"more than twice", peaks(0.2, 0.2, 0.41), "", unknown},
		{"little, whatever the ratio", peaks(0.01, 0.01, 0.049), "day", unknown},
		{"every Wednesday", of(28, func(d, _ int) float64 {
			if d%7 == 2 {
				return 0.6
			}
			return 0
		}), "week", 1},
		{"one Wednesday of three", of(21, func(d, _ int) float64 {
			if d == 9 {
				return 0.6
			}
			return 0
		}), "", unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Split(tt.track, period)
			if q.Name != tt.period {
				t.Errorf("%q, want %q", q.Name, tt.period)
			}
			near(t, "growth", q.Growth(), tt.growth)
		})
	}
	for _, tt := range []struct {
		peaks []float64
		want  float64
	}{
		// Peaks 1 and 2 are below half of the highest. The others have mean 0.4 and deviation 0.1, which is more than the line.
		{[]float64{0.1, 0.2, 0.3, 0.4, 0.5}, 1.20367 / 0.5},
		// A line without residue, at twice the history: 0.5 + 20 * 0.05.
		{[]float64{0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95}, 1.5 / 0.95},
		// The same line with a residue of +-0.01: slope 0.049697, intercept 0.501364, at 20 with 2.90 times the deviation
		// 0.010445 * sqrt(1 + 1/10 + 15.5^2 / 82.5).
		{[]float64{0.51, 0.54, 0.61, 0.64, 0.71, 0.74, 0.81, 0.84, 0.91, 0.94},
			(0.501364 + 20*0.0496970 + 2.90*0.0104447*math.Sqrt(1.1+15.5*15.5/82.5)) / 0.94},
		// Less than two hundredths of the mean over the history is no trend: 0.5005, deviation 0.0005.
		{[]float64{0.5, 0.5005, 0.501}, (0.5005 + 0.0005*6.96*math.Sqrt(4./3)) / 0.501},
		{[]float64{0.4, 0.4, 0.1}, unknown},
		// Slope 0.1, residue sqrt(0.01/6): 0.1 <= 31.82 * 0.0408 / sqrt(2) is chance; mean 0.4333, deviation 0.10408.
		{[]float64{0.35, 0.4, 0.55}, (0.433333 + 0.104083*6.96*math.Sqrt(4./3)) / 0.55},
	} {
		near(t, "growth", Periods{Peaks: tt.peaks}.Growth(), tt.want)
	}
}

// TestUpper: of 672 steps at a budget of 1 %, 6.7 may be higher. One day with n such steps counts as 4 n, two days with n
// in all as 2.838 n.
func TestUpper(t *testing.T) {
	for _, tt := range []struct {
		name string
		high map[[2]int]float64
		want float64
	}{
		{"constant", nil, 0.1},
		{"one step of one day", map[[2]int]float64{{3, 1}: 0.9}, 0.1},
		{"two steps of one day", map[[2]int]float64{{3, 1}: 0.9, {3, 2}: 0.8}, 0.8},
		{"one step of each of two days", map[[2]int]float64{{3, 1}: 0.9, {9, 2}: 0.8}, 0.1},
		{"one step of each of three days", map[[2]int]float64{{3, 1}: 0.9, {9, 2}: 0.8, {20, 2}: 0.7}, 0.7},
		{"many steps", map[[2]int]float64{{3, 1}: 0.9, {3, 2}: 0.85, {3, 3}: 0.8, {3, 4}: 0.75, {3, 5}: 0.7, {3, 6}: 0.6, {3, 7}: 0.5,
			{3, 8}: 0.4}, 0.85},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := of(28, func(d, h int) float64 {
				if v, ok := tt.high[[2]int{d, h}]; ok {
					return v
				}
				return 0.1
			})
			near(t, "upper", Upper(x, period, 0.01), tt.want)
		})
	}
	if got := Upper(&series.Track{}, period, 0.01); got != 0 {
		t.Errorf("%v of nothing", got)
	}
	if got := Later(of(28, func(int, int) float64 { return 0 }), period, 0.01); got != unknown {
		t.Errorf("%v of no demand", got)
	}
	near(t, "later", Later(of(28, func(int, int) float64 { return 0.3 }), period, 0.01), reserve)
}

func TestExceedance(t *testing.T) {
	s := series.Sample{0.1, 0.2, 0.3, 0.4}
	for limit, want := range map[float64]float64{0: 1, 0.1: 0.75, 0.25: 0.5, 0.4: 0, 1: 0} {
		near(t, "exceedance", Exceedance(s, limit), want)
	}
	near(t, "of nothing", Exceedance(nil, 1), 0)
}
