package account

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// sameEvent is the maximum distance between the reports of one XID by two data sources.
const sameEvent = 2 * time.Second

// maxPending bounds the memory of a storm; older events cannot be matched again.
const maxPending = 1024

// xidCounts counts the XIDs of one GPU. The same event arrives from several data sources: each report is matched with
// the oldest event of its code that its source has not reported yet, within sameEvent; only a report without a match is
// a new event. So the count of any two seconds is the larger of the sources' counts: no storm is merged, no event is
// doubled.
type xidCounts struct {
	codes map[int]*xidCode
	// published is what publish returned last for these sources; nil once it may be different. Views share it.
	published []gpu.XIDCount
	sources   [2]bool
}

type xidCode struct {
	count   uint64
	last    time.Time
	pending []xidReport

	at        time.Time // of the last event that was counted
	gi        gpu.Opt[int]
	container gpu.Container
}

// xidReport is one event and the sources that reported it.
type xidReport struct {
	at      time.Time
	sources []string
}

// add counts one report.
func (b *xidCounts) add(e gpu.XIDEvent) {
	if e.XID <= 0 {
		return // clock events have been reported as XID 0
	}
	b.published = nil
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
			if e.GI.Present() {
				c.gi = e.GI
			}
			if e.Container != (gpu.Container{}) {
				c.container = e.Container
			}
			return
		}
	}
	c.count++
	c.at, c.gi, c.container = e.Time, e.GI, e.Container
	if len(c.pending) >= maxPending {
		c.pending = slices.Delete(c.pending, 0, 1)
	}
	c.pending = append(c.pending, xidReport{at: e.Time, sources: []string{e.Source}})
}

// merge adds the counts of the same GPU under another name.
func (b *xidCounts) merge(o *xidCounts) {
	b.published = nil
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
		if from.at.After(c.at) {
			c.at, c.gi, c.container = from.at, from.gi, from.container
		}
	}
}

// attributedFor is how long the container and the instance of the last event are published.
const attributedFor = 5 * time.Minute

// publish returns the counts by code, some from 0 on where a data source would report them: without one, a 0 would say
// that there was no such error.
func (b *xidCounts) publish(now time.Time, nvml, kernelLog bool) []gpu.XIDCount {
	sources := [2]bool{nvml, kernelLog}
	if b.published != nil && b.sources == sources {
		return b.published
	}
	out, lasting := make([]gpu.XIDCount, 0, len(b.codes)), true
	for code, c := range b.codes {
		x := gpu.XIDCount{XID: code, Count: c.count}
		if !c.last.IsZero() {
			x.Last = gpu.Some(c.last)
		}
		if now.Sub(c.at) < attributedFor {
			x.GI, x.Container = c.gi, c.container
			lasting = false
		}
		out = append(out, x)
	}
	for _, code := range gpu.XIDsFromZero() {
		if b.codes[code] == nil && (kernelLog || nvml && gpu.NVMLReportsXID(code)) {
			out = append(out, gpu.XIDCount{XID: code})
		}
	}
	gpu.Sort(out, func(a, b gpu.XIDCount) int { return a.XID - b.XID })
	if b.published, b.sources = nil, sources; lasting {
		b.published = out
	}
	return out
}
