package account

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// sameEvent is how far apart two sources may tell of one XID.
const sameEvent = 2 * time.Second

// mostPending bounds the memory of a storm: what was told longer ago cannot be told again.
const mostPending = 1024

// xidBook counts XIDs. The same event arrives from several sources: each report is matched with the oldest
// event of its code that its source has not told yet, within sameEvent; only a report without a match is a
// new event. So the count of any two seconds is the larger of the sources' counts: no storm is merged, no
// event is doubled.
type xidBook struct {
	codes map[int]*xidCode
}

type xidCode struct {
	count   uint64
	last    time.Time
	pending []xidReport
}

// xidReport is one event, and who told of it.
type xidReport struct {
	at      time.Time
	sources []string
}

// newXIDBook returns a book in which the critical codes exist from 0.
func newXIDBook() *xidBook {
	b := &xidBook{codes: map[int]*xidCode{}}
	for _, x := range gpu.CriticalXIDs() {
		b.codes[x] = &xidCode{}
	}
	return b
}

// add takes one report.
func (b *xidBook) add(e gpu.XIDEvent) {
	if e.XID <= 0 {
		return // clock events have surfaced as XID 0
	}
	c := b.codes[e.XID]
	if c == nil {
		c = &xidCode{}
		b.codes[e.XID] = c
	}
	if e.Time.After(c.last) {
		c.last = e.Time
	}
	if e.Old {
		return
	}
	c.pending = slices.DeleteFunc(c.pending, func(r xidReport) bool { return e.Time.Sub(r.at) > 2*sameEvent })
	for i := range c.pending {
		r := &c.pending[i]
		if e.Time.Sub(r.at).Abs() <= sameEvent && !slices.Contains(r.sources, e.Source) {
			r.sources = append(r.sources, e.Source)
			return
		}
	}
	c.count++
	if len(c.pending) >= mostPending {
		c.pending = slices.Delete(c.pending, 0, 1)
	}
	c.pending = append(c.pending, xidReport{at: e.Time, sources: []string{e.Source}})
}

// merge takes what was counted under another name of the same GPU.
func (b *xidBook) merge(o *xidBook) {
	for code, from := range o.codes {
		c := b.codes[code]
		if c == nil {
			b.codes[code] = from
			continue
		}
		c.count += from.count
		c.pending = append(c.pending, from.pending...)
		if from.last.After(c.last) {
			c.last = from.last
		}
	}
}

// publish returns the counts in the order of the codes.
func (b *xidBook) publish() []gpu.XIDCount {
	out := make([]gpu.XIDCount, 0, len(b.codes))
	for code, c := range b.codes {
		x := gpu.XIDCount{XID: code, Count: c.count}
		if !c.last.IsZero() {
			x.Last = gpu.Some(c.last)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b gpu.XIDCount) int { return a.XID - b.XID })
	return out
}
