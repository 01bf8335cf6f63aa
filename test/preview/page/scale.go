package page

import (
	"math"
	"time"
)

// The size for which a page is drawn. Wider and narrower windows stretch it; only the number of labels on an
// axis comes from here.
const (
	pageWidth = 1440.0
	gridGap   = 8.0
	rowHeight = 30.0
	pageEdge  = 16.0
)

// size is how wide and high a panel of so many columns and rows is, in pixels.
func size(w, h int) (wide, high float64) {
	column := (pageWidth - 2*pageEdge - 23*gridGap) / 24
	return float64(w)*(column+gridGap) - gridGap, float64(h)*(rowHeight+gridGap) - gridGap
}

// axis is a range of values with the places of its labels.
type axis struct {
	from, to float64
	ticks    []float64
}

// place is how far along the axis a value is, 0 to 1; it may be outside.
func (a axis) place(v float64) float64 {
	if a.to == a.from {
		return 0.5
	}
	return (v - a.from) / (a.to - a.from)
}

// newAxis makes an axis over values, with at most so many labels. Ends that are given stay; the others go to
// the next label. The unit decides what is a round number.
func newAxis(lowest, highest float64, fixedLow, fixedHigh *float64, unit string, most int) axis {
	if math.IsInf(lowest, 0) || math.IsInf(highest, 0) || math.IsNaN(lowest) || math.IsNaN(highest) {
		lowest, highest = 0, 1
	}
	if fixedLow != nil {
		lowest = *fixedLow
	}
	if fixedHigh != nil {
		highest = *fixedHigh
	}
	switch {
	case highest == lowest && highest == 0:
		highest = 1
	case highest <= lowest && fixedHigh == nil:
		// A flat line stands in the middle of what is around it, and zero is never passed.
		spread := math.Abs(lowest) * 0.1
		if fixedLow == nil {
			lowest -= spread
		}
		highest = max(lowest+spread, highest+spread)
	case highest <= lowest:
		lowest = highest - math.Max(math.Abs(highest), 1)
	}
	step := roundStep((highest-lowest)/float64(max(most, 1)), unit)
	a := axis{from: lowest, to: highest}
	if fixedLow == nil {
		a.from = math.Floor(lowest/step+1e-9) * step
	}
	if fixedHigh == nil {
		a.to = math.Ceil(highest/step-1e-9) * step
	}
	for i := math.Ceil(a.from/step - 1e-9); i*step <= a.to+step*1e-9; i++ {
		a.ticks = append(a.ticks, i*step)
	}
	return a
}

// roundStep is the next round number that is not below the step.
func roundStep(step float64, unit string) float64 {
	if step <= 0 || math.IsNaN(step) {
		return 1
	}
	if s, ok := scales()[unit]; ok && s.factor == 1024 {
		return math.Pow(2, math.Ceil(math.Log2(step)-1e-9))
	}
	second, ok := seconds(unit)
	if unit == "dtdurations" {
		second, ok = 1, true
	}
	if ok && step*second > 1 {
		for _, round := range []float64{2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400} {
			if round >= step*second*(1-1e-9) {
				return round / second
			}
		}
	}
	base := math.Pow(10, math.Floor(math.Log10(step)+1e-9))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if base*m >= step*(1-1e-9) {
			return base * m
		}
	}
	return base * 10
}

// timeTick is a label on the axis of time.
type timeTick struct {
	at   float64 // 0 to 1
	text string
}

// timeTicks are round moments in the window, at most so many. Times are UTC.
func timeTicks(from, to time.Time, most int) []timeTick {
	length := to.Sub(from)
	step, form := 24*time.Hour, "01/02"
	for _, s := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
		30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour} {
		step = s
		if length/s < time.Duration(max(most, 1)) {
			break
		}
	}
	switch {
	case step < time.Minute:
		form = "15:04:05"
	case length <= 24*time.Hour:
		form = "15:04"
	case step < 24*time.Hour:
		form = "01/02 15:04"
	}
	var out []timeTick
	for at := from.UTC().Truncate(step); !at.After(to); at = at.Add(step) {
		if at.Before(from) {
			continue
		}
		out = append(out, timeTick{at.Sub(from).Seconds() / length.Seconds(), at.Format(form)})
	}
	return out
}
