package demand

import (
	"math"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// quietHeadroom is that of hours with low demand: what grows a little there soon exceeds the few replicas that are left.
// Two remain, so that one may fail, or none if there never was any demand.
const quietHeadroom = 2

// Quiet finds the hours of the day, in a zone, in which fewer replicas of n, with GPUs each, are always enough, and what
// they would save. low may be 0: scale to zero.
func Quiet(p series.Period, zone *time.Location, busy, allocated *series.Track, gpus float64, n int, later float64) (low, from, to int,
	saved float64) {
	var highest, had [24]float64
	hourOfDay := func(k int) int { return p.Begin(k).In(zone).Hour() }
	for k, v := range busy.All() {
		h := hourOfDay(k)
		highest[h] = max(highest[h], v)
	}
	for k, v := range allocated.All() {
		had[hourOfDay(k)] += min(v, float64(n)*gpus) * p.StepHours()
	}
	for start := range 24 {
		top, hours := 0.0, 0.0
		for length := 1; length < 24; length++ {
			h := (start + length - 1) % 24
			top = max(top, highest[h])
			hours += had[h]
			need := 0
			if top > busyAbove {
				need = max(2, int(math.Ceil(quietHeadroom*later*top/gpus-1e-6)))
			}
			if x := hours * (1 - float64(need)/float64(n)); length >= 4 && need < n && x > saved+1e-9 {
				low, from, to, saved = need, start, (start+length)%24, x
			}
		}
	}
	return low, from, to, saved
}

// Missed is the fraction of a part in which a number of replicas is too small, or the lower one in the hours from one to another.
func Missed(p series.Period, zone *time.Location, busy *series.Track, part series.Span, gpus float64, n, low, from, to int) float64 {
	missed, steps := 0.0, 0.0
	for k, v := range busy.Within(part.From, part.To) {
		x := n
		if h := p.Begin(k).In(zone).Hour(); from < to && h >= from && h < to || from > to && (h >= from || h < to) {
			x = low
		}
		if steps++; v > max(busyAbove, float64(x)*gpus*(1+1e-9)) {
			missed++
		}
	}
	return missed / max(1, steps)
}
