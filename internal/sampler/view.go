package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// add appends a point if one is due.
func (p *history) add(clock time.Duration, now time.Time, c *gpu.GPU) {
	if p.next != 0 && clock < p.next {
		return
	}
	p.next = clock + historyEvery
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
	old := max(0, len(p.points)+1-historyPoints)
	p.points = append(p.points[old:], point)
}

// publish builds a view and stores it.
func (s *Sampler) publish() {
	s.checkAllRefuse()
	s.reopenForMissing()
	s.scanSooner()
	inForce := s.ledger.InForce()
	v := &gpu.View{
		At: s.now, Node: s.o.Node,
		Build: s.o.Build, System: s.session.system, Devices: s.devices(),
		Ownership: s.allocations.Known, Host: s.ledger.Host(), Containers: s.ledger.Containers(), Allocations: s.ledger.Allocations(),
		Unresolved: inForce.Unresolved, Resources: inForce.Resources, Pods: inForce.Pods,
		Accounts: gpu.Some(s.ledger.Accounts()),
		Rejected: s.ledger.Rejected(), Panics: gpu.Some(s.panics.Load()),
		Paused: []gpu.Pause{{Reason: reasonMIG, Active: s.pausedFor(reasonMIG)},
			{Reason: reasonRequest, Active: s.pausedFor(reasonRequest)},
			{Reason: reasonBinding, Active: s.pausedFor(reasonBinding)}},
		Notes: s.notes(),
	}
	if s.suspendable {
		v.Paused = append(v.Paused, gpu.Pause{Reason: reasonSuspend, Active: s.pausedFor(reasonSuspend)})
	}
	v.GPUs = make([]gpu.GPU, len(s.devs))
	for i, t := range s.devs {
		s.fill(&v.GPUs[i], t)
		v.GPUs[i].Taints = inForce.Taints[t.id.UUID]
		if healthy, ok := inForce.KubeletHealth[t.id.UUID]; ok {
			v.GPUs[i].KubeletHealthy = gpu.Some(healthy)
		}
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
	c.Identity, c.State, c.Message = t.id, t.state, t.message
	c.LastRead = map[gpu.PollGroup]time.Time{}
	if t.state == gpu.DeviceFailed {
		c.Failure = t.failure()
	}
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
	for _, other := range s.devs {
		if other == t || other.id.Model == t.id.Model {
			c.LinksExpected = max(c.LinksExpected, other.linksUp)
		}
	}
	s.ledger.Fill(c)
	if t.state == gpu.DeviceDetached {
		return
	}
	t.history.add(s.clock, s.now, c)
	c.History = t.history.points
}

// visible returns the GPUs visible in containers, with their index.
func (s *Sampler) visible() []gpu.VisibleGPU {
	if s.o.VisibleScanner == nil {
		return nil
	}
	out := slices.Clone(s.o.VisibleScanner.Visible(s.inventory))
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
		{PollGroup: gpu.PollFast, Interval: s.fast, Duration: s.durations[pollFast]},
		{PollGroup: gpu.PollMedium, Interval: s.o.Medium, Duration: s.durations[pollMedium]},
		{PollGroup: gpu.PollSlow, Interval: s.o.Slow, Duration: s.durations[pollSlow]},
	}
	for i, l := range out {
		// A poll group that did not run keeps the duration of its last run.
		if !l.Duration.Present() {
			for _, before := range s.Latest().PollGroups {
				if before.PollGroup == l.PollGroup {
					out[i].Duration = before.Duration
				}
			}
		}
	}
	return append(out, s.allocations.PollGroups...)
}

func (s *Sampler) sources() []gpu.Source {
	message := s.driverError()
	out := []gpu.Source{{Name: gpu.SourceNVML, Up: message == "", LastSuccess: s.success, Errors: s.errors,
		Duration: s.durations[pollFast], Message: message}}
	if s.session.state == sessionOpen {
		s.eventWatch.Lock()
		events := gpu.Source{Name: gpu.SourceEvents, Up: s.eventWatch.err == nil && !s.eventWatch.at.IsZero(),
			Errors: s.eventWatch.errors}
		if !s.eventWatch.at.IsZero() {
			events.LastSuccess = gpu.Some(s.eventWatch.at)
		}
		if s.eventWatch.err != nil {
			events.Message = s.eventWatch.err.Error()
		}
		s.eventWatch.Unlock()
		out = append(out, events)
	}
	return slices.Concat(out, s.others, s.allocations.Sources)
}

// notes are the sentences of the node page.
func (s *Sampler) notes() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	st := &s.session
	failure := s.driverError()
	switch {
	case s.pausedFor(reasonSuspend):
		add("%s; readings resume once all GPUs are active.", st.message)
	case s.paused():
		add("%s; readings resume in at most %s.", st.message, (st.pausedUntil - s.clock).Round(time.Second))
	case st.op != "" && s.o.Watch().Sub(st.opStarted) >= s.o.Deadline:
		add("The driver hangs: %s. Check the kernel log for XIDs and hung tasks; restarting the exporter does not "+
			"help.", failure)
	case st.mismatch:
		add("The driver was upgraded while the exporter had its library loaded: %s", st.message)
	case st.state != sessionOpen && errors.Is(st.hint, gpu.ErrNoLibrary):
		add("The driver's files are missing: %s. The exporter retries.", st.message)
		if since, ok := st.moduleSince.Get(); ok {
			add("The kernel module was loaded after the exporter started: if the library is still missing in %s, the exporter "+
				"exits, so that its container is recreated with the driver's files.",
				max(since+libraryPolls*s.o.Slow-s.clock, 0).Round(time.Second))
		}
	case st.state != sessionOpen && errors.Is(st.hint, gpu.ErrNoDriver):
		add("No NVIDIA driver yet: %s. The exporter retries; no restart is needed once the driver is installed.", st.message)
	case st.state != sessionOpen && st.message != "":
		add("NVML cannot be initialized: %s. The exporter retries.", st.message)
	case st.state != sessionOpen:
		add("%s.", failure)
	case failure != "":
		add("NVML is initialized, but %s.", failure)
	case len(s.devs) == 0:
		add("The driver lists no GPU.")
	}
	for _, t := range s.devs {
		if t.hung {
			add("GPU %s is %s. Other GPUs are not affected; polling resumes when the call returns.", t.id.UUID, t.message)
		}
	}
	if a := s.ledger.Accounts(); a.Aggregated > 0 {
		add("%d containers are aggregated into pod=%q: the limit is %d (--container-limit).", a.Aggregated,
			gpu.OtherContainers.Pod, a.Limit)
	}
	if s.allocations.Uncertain {
		add("Some allocated device IDs could not be resolved to GPUs: no GPU is known to be unallocated.")
	} else if n := len(s.allocations.Possible); n > 0 {
		add("%d GPUs may be devices of a resource that is not read: whether they are unallocated is unknown.", n)
	}
	return out
}
