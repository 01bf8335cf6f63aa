package demand

import "github.com/gpu-exporter/gpu-exporter/report/series"

// IdlePeriod is a continuous idle time.
type IdlePeriod struct {
	to    int     // the step after it
	Idle  float64 // GPU-steps
	Steps float64 // duration; the first and the last step count by their idle part
}

// IdlePeriods finds the times in which an allocation was idle without a break. A step that was idle except for a
// hundredth is whole: the ends of means are rounded.
func IdlePeriods(t *series.Track, share func(step int) float64) []IdlePeriod {
	const whole = 0.98
	var out []IdlePeriod
	var now *IdlePeriod
	part := func(k int) float64 {
		v, _ := t.At(k)
		if of := share(k); of > 0 {
			return v / of
		}
		return 0
	}
	extend := func(k int, steps float64) {
		if now == nil {
			now = &IdlePeriod{}
		}
		now.Idle += t.Or(k, 0)
		now.Steps += steps
		now.to = k + 1
	}
	end := func() {
		if now != nil {
			out, now = append(out, *now), nil
		}
	}
	for k := t.From; k < t.End(); k++ {
		switch x := part(k); {
		case !(x > 0.001):
			end()
		case x >= whole:
			extend(k, 1)
		default: // the start, the end, or both, of idle periods
			if now != nil {
				extend(k, x)
				end()
			}
			// The idle time may also belong to the end of the step, where the next period begins.
			used := len(out) > 0 && out[len(out)-1].to == k+1
			if k+1 < t.End() && part(k+1) >= whole && !used {
				extend(k, x)
			}
		}
	}
	end()
	return out
}
