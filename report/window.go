package report

import "time"

// Window is the time of which a report speaks, in equal steps. Step k is the time after From + k·Step and up to
// From + (k+1)·Step; a mean over it is read at its end.
type Window struct {
	From, To time.Time
	Step     time.Duration
}

// NewWindow aligns a window to steps that all readers of the same history share: multiples since 1970.
func NewWindow(from, to time.Time, step time.Duration) Window {
	return Window{From: from.Truncate(step).UTC(), To: to.Truncate(step).UTC(), Step: step}
}

// Steps is the number of steps.
func (w Window) Steps() int { return int(w.To.Sub(w.From) / w.Step) }

// First is the moment of the first reading.
func (w Window) First() time.Time { return w.From.Add(w.Step) }

// Index returns the step whose end is at a Unix time in milliseconds; ok is false outside the window.
func (w Window) Index(ms int64) (k int, ok bool) {
	since := ms - w.From.UnixMilli()
	step := w.Step.Milliseconds()
	k = int((since+step-1)/step) - 1
	return k, since > 0 && k >= 0 && k < w.Steps()
}

// Hours is the length of one step.
func (w Window) Hours() float64 { return w.Step.Hours() }

// Total is the length of the window in hours.
func (w Window) Total() float64 { return w.To.Sub(w.From).Hours() }

// End is the moment at which step k ends.
func (w Window) End(k int) time.Time { return w.From.Add(time.Duration(k+1) * w.Step) }

// Begin is the moment at which step k begins.
func (w Window) Begin(k int) time.Time { return w.From.Add(time.Duration(k) * w.Step) }

// span is a part of the window: steps from up to but without to.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }
