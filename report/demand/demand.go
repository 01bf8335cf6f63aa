// Package demand finds what the demand of a workload will need, from its history: in which time it repeats, and what a
// future period will not exceed.
package demand

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// Periods are the independent parts of a demand.
type Periods struct {
	// Name is the time in which the demand repeats, day or week; empty if the history has fewer than three of either, or
	// if one of them has far higher peaks than the others.
	Name string
	// Peaks are what each period exceeds for a hundredth of it, in order of time.
	Peaks []float64
}

// minimum is the number of periods that show a rhythm.
const minimum = 3

// busyAbove is the activity of a step from which it counts as busy: less is below a second of five minutes.
const busyAbove = 0.002

// Split divides a demand into its periods. It repeats by day, if no day has a much higher peak than the others, or by week,
// if no week has.
func Split(t *series.Track, p series.Period) Periods {
	day := 24 * p.PerHour()
	for _, r := range []struct {
		name string
		size int
	}{{"day", day}, {"week", 7 * day}} {
		var peaks []float64
		for to := t.End(); to-r.size >= t.From-p.PerHour(); to -= r.size {
			peaks = append(peaks, t.Values(to-r.size, to).Quantile(0.99))
		}
		slices.Reverse(peaks)
		sorted := series.Sample(slices.Sorted(slices.Values(peaks)))
		// Lower peaks are weekends; a higher one may be what the period shows once. What is never above a few percent is
		// a constant, whatever its ratio.
		if top := sorted.Top(); len(peaks) >= minimum && top <= max(2*sorted.Quantile(0.5), 0.05) && top >= busyAbove {
			return Periods{r.name, peaks}
		}
	}
	return Periods{}
}

// student are the 99 % quantiles of Student's distribution for 1, 2, ... degrees of freedom; the last is that of all more.
var student = []float64{31.82, 6.96, 4.54, 3.75, 3.36, 3.14, 3.00, 2.90, 2.82, 2.76, 2.72, 2.68, 2.65, 2.62, 2.60, 2.58, 2.57,
	2.55, 2.54, 2.53, 2.52, 2.51, 2.50, 2.49, 2.49, 2.48, 2.47, 2.47, 2.46, 2.46}

// Upper is the demand that is exceeded for at most a fraction of the time, with 95 % confidence. Steps within a day are not
// independent: the time above a level is scaled by the upper bound of the number of days that had such steps.
func Upper(t *series.Track, p series.Period, budget float64) float64 {
	day := 24 * p.PerHour()
	values := t.Values(t.From, t.End())
	days := map[int]bool{}
	steps := make([]int, 0, len(values)/50)
	// From the highest value down, until the steps above it are too many.
	from := max(0, len(values)-1-int(budget*float64(len(values))))
	limit := values[from:]
	if len(limit) == 0 {
		return 0
	}
	for k, v := range t.All() {
		if v > limit[0] {
			steps = append(steps, k)
		}
	}
	slices.SortFunc(steps, func(x, y int) int { return cmp.Compare(t.Or(y, 0), t.Or(x, 0)) })
	for i, k := range steps {
		days[k/day] = true
		m := float64(len(days))
		if float64(i+1)/m*(m+1.645*math.Sqrt(m)+1.35) > budget*float64(len(values)) {
			return t.Or(k, 0)
		}
	}
	return limit[0]
}

// Later is what a demand exceeds for at most a fraction of a later time, as far as the history shows, as a multiple of
// what it exceeded for that fraction before.
func Later(t *series.Track, p series.Period, budget float64) float64 {
	now := t.Values(t.From, t.End()).Quantile(1 - budget)
	if now <= 0 {
		return unknown
	}
	return Upper(t, p, budget) / now * Split(t, p).Growth() * reserve
}

// reserve is for what grows without having announced it: with the headroom of a size, a quarter, twice the demand is covered.
const reserve = 1.6

// unknown is the factor of a demand that has no bound.
const unknown = 1e6

// Growth is the factor by which a later period may exceed the highest of the history: what its peak stays below with 99 %
// confidence, at the end of a time as long as the history. It is the upper prediction bound of the straight line through
// the peaks of the periods; each counts once, however many samples it has. Periods with little demand, such as weekends,
// are left out, and a line that falls counts as level. Without three periods there is no bound.
func (q Periods) Growth() float64 {
	var x, y []float64
	top := 0.0
	for _, v := range q.Peaks {
		top = max(top, v)
	}
	for i, v := range q.Peaks {
		if v >= top/2 {
			x, y = append(x, float64(i)), append(y, v)
		}
	}
	n := float64(len(y))
	if n < minimum {
		return unknown
	}
	mx, my := mean(x), mean(y)
	var sxx, sxy, syy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
		syy += (y[i] - my) * (y[i] - my)
	}
	quantile := func(degrees float64) float64 { return student[min(len(student), int(degrees))-1] }
	slope := sxy / sxx
	rest := math.Sqrt(max(0, syy-slope*sxy) / (n - 2))
	level := my + quantile(n-1)*math.Sqrt(syy/(n-1))*math.Sqrt(1+1/n)
	// A slope that is not above what chance gives is none.
	if !(slope > quantile(n-2)*rest/math.Sqrt(sxx)) || slope*n < 0.02*my {
		return max(top, level) / top
	}
	last := 2 * float64(len(q.Peaks))
	return max(top, level, my+slope*(last-mx)+quantile(n-2)*rest*math.Sqrt(1+1/n+(last-mx)*(last-mx)/sxx)) / top
}

func mean(v []float64) float64 { return series.Sample(v).Sum() / float64(len(v)) }

// Exceedance is the fraction of values above a limit.
func Exceedance(s series.Sample, limit float64) float64 {
	if len(s) == 0 {
		return 0
	}
	n, _ := slices.BinarySearch(s, limit*(1+1e-9))
	return float64(len(s)-n) / float64(len(s))
}
