package compat

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// dcgm-exporter has gauges where the catalog has counters: means of some recent period. Here it is the last minute, as
// for gpu_utilization_ratio, at any scrape interval.
const (
	minute      = time.Minute
	fiveMinutes = 5 * time.Minute // of the families DCGM_EXP_*, without a setting
	// resolution is the distance of the views in the history: a period is at most that much longer.
	resolution = 10 * time.Second
	// maxStep is how far apart two consecutive views may be before the clock must have been set, or the machine
	// suspended: then the history is discarded.
	maxStep = fiveMinutes
)

// Published keeps a view for the history. One goroutine calls it, with every view or with some, in order.
func (p *Page) Published(v *gpu.View) {
	old := p.history.Load()
	if old == nil {
		old = &history{}
	}
	if n := len(old.sums); n > 0 {
		switch since := v.At.Sub(old.sums[n-1].At); {
		case since < 0 || since > maxStep:
			old = &history{}
		case since < resolution:
			return
		}
	}
	p.history.Store(&history{
		sums: remember(old.sums, v, minute, func(c *gpu.GPU) gpu.GPU {
			return gpu.GPU{Identity: c.Identity, State: c.State, LastRead: c.LastRead, Activity: c.Activity,
				Instances: c.Instances}
		}, true),
		xids: remember(old.xids, v, max(fiveMinutes, p.XIDWindow, p.ClockWindow), func(c *gpu.GPU) gpu.GPU {
			kept := gpu.GPU{Identity: c.Identity, State: c.State, XIDs: c.XIDs}
			if m, ok := c.Medium.Get(); ok {
				kept.Medium = gpu.Some(&gpu.Medium{ClockEvents: m.ClockEvents})
			}
			return kept
		}, false),
	})
}

// remember returns the list with what is kept of v appended, and without views that are too old.
func remember(list []*gpu.View, v *gpu.View, span time.Duration, keep func(*gpu.GPU) gpu.GPU, containers bool) []*gpu.View {
	first := 0
	for first+1 < len(list) && !list[first+1].At.After(v.At.Add(-span)) {
		first++
	}
	kept := &gpu.View{At: v.At, Node: v.Node, GPUs: make([]gpu.GPU, len(v.GPUs))}
	for i := range v.GPUs {
		kept.GPUs[i] = keep(&v.GPUs[i])
	}
	if containers {
		kept.Containers = v.Containers
	}
	return append(slices.Clone(list[first:]), kept)
}

// lastMinute returns the views of the minute before v, oldest first.
func (p *Page) lastMinute(v *gpu.View) []*gpu.View {
	if h := p.history.Load(); h != nil {
		return within(h.sums, v, minute)
	}
	return nil
}

// recent returns the views of a window before v, which have the XIDs and clock events, and the label of the window.
func (p *Page) recent(v *gpu.View, window time.Duration) (views []*gpu.View, label string) {
	window = cmp.Or(window, fiveMinutes)
	if h := p.history.Load(); h != nil {
		views = within(h.xids, v, window)
	}
	return views, strconv.FormatInt(window.Milliseconds(), 10)
}

// within returns the views of a list that are older than v, beginning with the newest that is at least span older, or
// with the first.
func within(list []*gpu.View, v *gpu.View, span time.Duration) []*gpu.View {
	first, end := 0, 0
	for end < len(list) && list[end].At.Before(v.At) {
		if !list[end].At.After(v.At.Add(-span)) {
			first = end
		}
		end++
	}
	if end == 0 {
		return nil
	}
	return list[first:end]
}
