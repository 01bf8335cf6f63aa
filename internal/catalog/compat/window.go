package compat

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The old exporter has gauges where the catalog has counters: a mean over some time that ends now. That time is
// the last minute here, as it is for gpu_utilization_ratio, whatever the interval of the scrapes.
const (
	minute      = time.Minute
	fiveMinutes = 5 * time.Minute
	// apart is how far the views that are remembered lie apart: a window is at most that much longer.
	apart = 10 * time.Second
	// astray is by how much two views that follow each other may differ before the clock must have been set, or
	// the machine have slept: then what was remembered says nothing any more.
	astray = fiveMinutes
)

// past is what is remembered of earlier views, oldest first. It is replaced, never changed.
type past struct {
	sums []*gpu.View // of a good minute: the sums alone, no readings
	xids []*gpu.View // of five minutes: the XIDs alone
}

// Published remembers a view. One goroutine calls it, with every view or with some, in their order.
func (p *Page) Published(v *gpu.View) {
	old := p.past.Load()
	if old == nil {
		old = &past{}
	}
	if n := len(old.sums); n > 0 {
		switch since := v.At.Sub(old.sums[n-1].At); {
		case since < 0 || since > astray:
			old = &past{}
		case since < apart:
			return
		}
	}
	p.past.Store(&past{
		sums: remember(old.sums, v, minute, func(c *gpu.GPU) gpu.GPU {
			return gpu.GPU{Identity: c.Identity, State: c.State, LastRead: c.LastRead, Activity: c.Activity, Instances: c.Instances}
		}, true),
		xids: remember(old.xids, v, fiveMinutes, func(c *gpu.GPU) gpu.GPU {
			return gpu.GPU{Identity: c.Identity, State: c.State, XIDs: c.XIDs}
		}, false),
	})
}

// remember returns the list with what is kept of v at its end, and without what no window reaches back to.
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

// lastMinute returns what is remembered from the minute before v, oldest first; nothing before the first.
func (p *Page) lastMinute(v *gpu.View) []*gpu.View {
	if past := p.past.Load(); past != nil {
		return within(past.sums, v, minute)
	}
	return nil
}

// lastFiveMinutes is likewise for XIDs.
func (p *Page) lastFiveMinutes(v *gpu.View) []*gpu.View {
	if past := p.past.Load(); past != nil {
		return within(past.xids, v, fiveMinutes)
	}
	return nil
}

// within returns those of a list that are older than v: from the newest that is at least span older on, or from the
// first.
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

// secondsBetween is the time between the fast readings of a GPU in two views, 0 where it is not known.
func (p *Page) secondsBetween(before, now *gpu.View, dev string) float64 {
	fast := level("gpu_last_read_timestamp_seconds", "poll", string(gpu.PollFast))
	a, was := p.sums(before, fast.of[0], fast)[key{dev: dev}][""]
	b, is := p.sums(now, fast.of[0], fast)[key{dev: dev}][""]
	if !was || !is {
		return 0
	}
	return b - a
}
