package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	pastEvery = 10 * time.Second
	pastKept  = 60
)

// past is the last minutes of a GPU, for the page. points is replaced, never changed: views share it.
type past struct {
	points         []gpu.HistoryPoint
	next           time.Duration
	busy, observed gpu.Seconds
}

// add appends a point where one is due.
func (p *past) add(clock time.Duration, now time.Time, c *gpu.GPU) {
	if p.next != 0 && clock < p.next {
		return
	}
	p.next = clock + pastEvery
	point := gpu.HistoryPoint{At: now}
	busy, measured := c.Activity.Busy.Get()
	observed := c.Activity.Observed.Or(0)
	if measured {
		if d := observed - p.observed; d > 0 {
			point.Utilization = gpu.Some(gpu.Ratio(min(1, max(0, (busy-p.busy)/d))))
		}
		p.busy, p.observed = busy, observed
	}
	if m, ok := c.Medium.Get(); ok {
		if memory, ok := m.Memory.Get(); ok && memory.Total > 0 {
			point.Memory = gpu.Some(gpu.Ratio(float64(memory.Used) / float64(memory.Total)))
		}
	}
	if f, ok := c.Fast.Get(); ok {
		point.Power = f.Power
	}
	old := max(0, len(p.points)+1-pastKept)
	p.points = append(slices.Clone(p.points[old:]), point)
}

// publish builds a view and stores it.
func (s *Sampler) publish() {
	s.checkAllRefuse()
	s.seekMissing()
	s.hurryScan()
	inForce := s.ledger.InForce()
	v := &gpu.View{
		At: s.now, Node: s.o.Node,
		Build: s.o.Build, System: s.session.system, Devices: s.devices(),
		Ownership: s.allocs.Known, Containers: s.ledger.Containers(), Allocations: s.ledger.Allocations(),
		Unresolved: inForce.Unresolved, Resources: inForce.Resources, Pods: inForce.Pods, Accounts: gpu.Some(s.ledger.Accounts()),
		Rejected: s.ledger.Rejected(),
		Paused:   []gpu.Pause{{Reason: reasonMIG, Active: s.paused()}},
		Notes:    s.notes(),
	}
	v.GPUs = make([]gpu.GPU, len(s.devs))
	for i, t := range s.devs {
		s.fill(&v.GPUs[i], t)
		if len(t.notOffered) > 0 {
			v.NotOffered = append(v.NotOffered, gpu.NotOffered{GPU: t.id.UUID, Readings: t.notOffered})
		}
	}
	v.Visible = s.visible()
	v.Sources = s.sources()
	v.PollGroups = s.pollGroups()
	if s.o.Calls != nil {
		v.Calls = s.o.Calls()
	}
	if s.o.Features != nil {
		v.Features = s.o.Features()
	}
	s.view.Store(v)
	if s.o.Published != nil {
		s.o.Published(v)
	}
}

// fill completes one GPU of a view.
func (s *Sampler) fill(c *gpu.GPU, t *tracked) {
	c.Identity, c.State, c.Message = t.id, t.state, t.why
	c.LastRead = map[gpu.PollGroup]time.Time{}
	for _, l := range []struct {
		pollGroup gpu.PollGroup
		at        time.Time
	}{{gpu.PollFast, t.fast.at}, {gpu.PollMedium, t.medium.at}, {gpu.PollSlow, t.slow.at}} {
		if !l.at.IsZero() {
			c.LastRead[l.pollGroup] = l.at
		}
	}
	if !s.paused() {
		c.Fast, c.Medium, c.Slow = t.fast.value, t.medium.value, t.slow.value
	}
	c.Recovery = t.recovery
	s.ledger.Fill(c)
	if t.state == gpu.DeviceDetached {
		return
	}
	t.past.add(s.clock, s.now, c)
	c.History = t.past.points
}

// visible is what containers see, with the indices under which the GPUs are known here.
func (s *Sampler) visible() []gpu.VisibleGPU {
	if s.o.Looker == nil {
		return nil
	}
	out := slices.Clone(s.o.Looker.Visible(s.inventory))
	for i := range out {
		for _, t := range s.devs {
			if t.id.UUID == out[i].GPU {
				out[i].Index = t.id.Index
			}
		}
	}
	return out
}

func (s *Sampler) pollGroups() []gpu.PollHealth {
	out := []gpu.PollHealth{
		{PollGroup: gpu.PollFast, Interval: s.fast, Duration: s.took[pollFast]},
		{PollGroup: gpu.PollMedium, Interval: s.o.Medium, Duration: s.took[pollMedium]},
		{PollGroup: gpu.PollSlow, Interval: s.o.Slow, Duration: s.took[pollSlow]},
	}
	for i, l := range out {
		// A poll group that did not run in this round keeps the duration of its last run.
		if !l.Duration.Present() {
			for _, before := range s.Latest().PollGroups {
				if before.PollGroup == l.PollGroup {
					out[i].Duration = before.Duration
				}
			}
		}
	}
	return append(out, s.allocs.PollGroups...)
}

func (s *Sampler) sources() []gpu.Source {
	message := s.trouble()
	out := []gpu.Source{{Name: gpu.SourceNVML, Up: message == "", LastSuccess: s.success, Errors: s.errors,
		Duration: s.took[pollFast], Message: message}}
	if s.session.state == sessionOpen {
		s.hearing.Lock()
		heard := gpu.Source{Name: gpu.SourceEvents, Up: s.hearing.err == nil && !s.hearing.at.IsZero(), Errors: s.hearing.errors}
		if !s.hearing.at.IsZero() {
			heard.LastSuccess = gpu.Some(s.hearing.at)
		}
		if s.hearing.err != nil {
			heard.Message = s.hearing.err.Error()
		}
		s.hearing.Unlock()
		out = append(out, heard)
	}
	if s.o.Sources != nil {
		out = append(out, s.o.Sources()...)
	}
	return append(out, s.allocs.Sources...)
}

// notes are the sentences for a person.
func (s *Sampler) notes() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	st := &s.session
	trouble := s.trouble()
	switch {
	case s.paused():
		add("The driver was let go because a MIG change is pending; readings return in %s at the latest.", (st.pausedUntil - s.clock).Round(time.Second))
	case st.op != "" && s.o.Watch().Sub(st.opBegan) >= s.o.Deadline:
		add("The driver hangs: %s. Look for XIDs and hung tasks in the kernel log; a restart of this exporter will not help.", trouble)
	case st.mismatch:
		add("The driver was replaced while this program had its library loaded: %s", st.problem)
	case st.state != sessionOpen && errors.Is(st.hint, gpu.ErrNoDriver):
		add("No NVIDIA driver answers yet: %s. It is tried again by itself; nothing else need be done once the driver is there.", st.problem)
	case st.state != sessionOpen && st.problem != "":
		add("The driver cannot be opened: %s. It is tried again by itself.", st.problem)
	case trouble != "":
		add("The driver answers, but %s.", trouble)
	case len(s.devs) == 0:
		add("The driver answers and knows no GPU.")
	}
	for _, t := range s.devs {
		if t.stuck {
			add("GPU %s is %s. The others are read; it is tried again when the call returns.", t.id.UUID, t.why)
		}
	}
	if a := s.ledger.Accounts(); a.Aggregated > 0 {
		add("%d accounts of containers are shown together as %q, because %d have their own and no more may: --container-limit.", a.Aggregated, gpu.OtherContainers.Pod, a.Limit)
	}
	if s.allocs.Uncertain {
		add("Some containers hold device ids whose GPU cannot be told: no GPU is known to be free.")
	}
	return out
}
