package fleet

import "math/rand/v2"

// pattern is the load of a workload over time: an hour of steps that repeats, times a factor for each hour of the
// week. It is immutable and shared.
type pattern struct {
	steps []step // in order; the first at 0
	week  *[168]float64
}

// step is a busy share from a time of the hour on.
type step struct {
	at    stamp
	level float64
}

// level returns the busy share at a time; it is constant between steps.
func (p *pattern) level(t stamp) float64 {
	in := t - t.floor(hour)
	i := len(p.steps) - 1
	for i > 0 && p.steps[i].at > in {
		i--
	}
	l := p.steps[i].level
	if p.week != nil {
		l *= p.week[hourOfWeek(t)]
	}
	return l
}

// hourOfWeek counts from Monday 00:00 UTC; the epoch was a Thursday.
func hourOfWeek(t stamp) int { return int((t + 3*day).floor(hour) / hour % 168) }

// steady is busy all the time, with a short pause for a checkpoint.
func steady(r *rand.Rand, level float64) *pattern {
	at := stamp(r.IntN(50)) * minute
	return &pattern{steps: []step{{0, level}, {at + minute, level * 0.3}, {at + 3*minute, level}}}
}

// flat is constant.
func flat(_ *rand.Rand, level float64) *pattern { return &pattern{steps: []step{{0, level}}} }

// bursty is busy in bursts; level is that of the bursts.
func bursty(r *rand.Rand, level float64) *pattern {
	p := &pattern{week: office(r, 0.25)}
	on := true
	for at := stamp(0); at < hour; {
		l := 0.0
		if on {
			l = level * (0.5 + 0.5*r.Float64())
		}
		p.steps = append(p.steps, step{at, l})
		at += stamp(60+r.IntN(420)) * second
		on = !on
	}
	return p
}

// sparse is busy for a few minutes of the hour.
func sparse(r *rand.Rand, level float64) *pattern {
	at := stamp(r.IntN(40)) * minute
	return &pattern{steps: []step{{0, 0}, {at + minute, level}, {at + stamp(3+r.IntN(8))*minute, 0}}}
}

// weekly is busy on working days and quiet at night and on weekends.
func weekly(r *rand.Rand, level float64) *pattern {
	p := steady(r, level)
	p.week = office(r, 0)
	return p
}

// office is a week with working days; night is the factor outside working hours.
func office(r *rand.Rand, night float64) *[168]float64 {
	begin := 6 + r.IntN(4)
	var w [168]float64
	for h := range w {
		w[h] = night
		if in := h % 24; h/24 < 5 && in >= begin && in < begin+10 {
			w[h] = 1
		}
	}
	return &w
}
