// Package series has quantities over the steps of a period.
package series

import "time"

// Period is the time that a report covers, in equal steps. Step k is the time after From + k·Step and up to
// From + (k+1)·Step; a mean over it is read at its end.
type Period struct {
	From, To time.Time
	Step     time.Duration
	steps    int
	from     int64 // milliseconds
}

// NewPeriod aligns a period to multiples of the step since 1970, which all readers of the same history share.
func NewPeriod(from, to time.Time, step time.Duration) Period {
	p := Period{From: from.Truncate(step).UTC(), To: to.Truncate(step).UTC(), Step: step}
	p.steps, p.from = int(p.To.Sub(p.From)/step), p.From.UnixMilli()
	return p
}

// Steps is the number of steps.
func (p Period) Steps() int { return p.steps }

// Index returns the step whose end is at a Unix time in milliseconds; ok is false outside the period.
func (p Period) Index(ms int64) (k int, ok bool) {
	since, step := ms-p.from, p.Step.Milliseconds()
	k = int((since+step-1)/step) - 1
	return k, since > 0 && k >= 0 && k < p.Steps()
}

// StepHours is the length of one step.
func (p Period) StepHours() float64 { return p.Step.Hours() }

// Hours is the length of the period.
func (p Period) Hours() float64 { return p.To.Sub(p.From).Hours() }

// PerHour is the number of steps of an hour, at least 1.
func (p Period) PerHour() int { return max(1, int(time.Hour/p.Step)) }

// Duration is the length of a number of steps.
func (p Period) Duration(steps int) time.Duration { return time.Duration(steps) * p.Step }

// End is the time at which step k ends, Begin that at which it begins.
func (p Period) End(k int) time.Time   { return p.Begin(k + 1) }
func (p Period) Begin(k int) time.Time { return p.From.Add(p.Duration(k)) }

// Span is a part of the period: steps from up to but without to.
type Span struct{ From, To int }

func (s Span) Len() int { return s.To - s.From }

// Steps is the number of steps in all of the spans.
func Steps(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += s.Len()
	}
	return n
}

// WorkingTime is the part of a time that is on Monday to Friday, in a zone.
func (p Period) WorkingTime(from, to int, zone *time.Location) time.Duration {
	n := 0
	for k := from; k < to; k++ {
		if d := p.Begin(k).In(zone).Weekday(); d != time.Saturday && d != time.Sunday {
			n++
		}
	}
	return p.Duration(n)
}
