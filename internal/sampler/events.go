package sampler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// idleWait is how long the listener waits while there is no session, errorWait how long after an error.
	idleWait  = 200 * time.Millisecond
	errorWait = 10 * time.Second
)

// listen waits for events until ctx ends.
func (s *Sampler) listen(ctx context.Context) {
	rest := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	var failed *eventWatch // the session that does not support events
	for ctx.Err() == nil {
		h := s.eventSession.Load()
		if h == nil {
			rest(idleWait)
			continue
		}
		started := s.o.Watch()
		var events []gpu.XIDEvent
		err := gpu.Recovered(func() (err error) { events, err = h.session.WaitEvents(eventWait); return err })
		if errors.Is(err, gpu.ErrPanic) {
			s.panics.Add(1)
		}
		s.noteEvents(err, h == failed)
		rebound := s.noteBindings(h.session)
		for _, e := range events {
			s.Event(e)
		}
		switch {
		case errors.Is(err, gpu.ErrUninitialized), rebound: // the session ends
			rest(idleWait)
		case err != nil:
			failed = h
			rest(errorWait)
		case len(events) == 0 && s.o.Watch().Sub(started) < eventWait/2:
			rest(idleWait) // it returned immediately: do not spin
		}
	}
}

// noteEvents records the outcome of a wait. A repeated failure of the same session counts once.
func (s *Sampler) noteEvents(err error, again bool) {
	if errors.Is(err, gpu.ErrUninitialized) {
		return // the session was closed meanwhile
	}
	s.eventWatch.Lock()
	defer s.eventWatch.Unlock()
	s.eventWatch.err = err
	if err == nil {
		s.eventWatch.at = s.o.Clock()
	} else if !again {
		s.eventWatch.errors++
	}
}

func (s *Sampler) polled(r result) {
	s.eventWatch.Lock()
	again := s.eventWatch.err != nil
	s.eventWatch.Unlock()
	s.noteEvents(r.err, again)
	for _, e := range r.events {
		s.Event(e)
	}
}

// takeEvents counts the events since the previous poll. An XID makes the slower poll groups of its GPU due: the
// recovery action and the modes may have changed.
func (s *Sampler) takeEvents() {
	s.inbox.Lock()
	events := s.inbox.events
	s.inbox.events = nil
	s.inbox.Unlock()
	type kind struct {
		dev       gpu.UUID
		pci       gpu.PCIAddress
		xid       int
		gi        gpu.Opt[int]
		container gpu.Container
	}
	reports := map[kind]int{} // a storm is one line per poll
	for _, e := range events {
		if e.Old {
			s.ledger.Event(e)
			continue
		}
		for _, t := range s.devs {
			// By address only without a UUID: by now another one may have it.
			if t.id.UUID == e.GPU || t.id.PCI == e.PCI && e.PCI != "" && (e.GPU == "" || string(e.GPU) == string(e.PCI)) {
				t.medium.due, t.slow.due = true, true
				e.GPU, e.Container = t.id.UUID, s.containerOf(e, t)
			}
		}
		s.ledger.Event(e)
		reports[kind{e.GPU, e.PCI, e.XID, e.GI, e.Container}]++
	}
	for k, n := range reports {
		log := s.log.With("xid", k.xid, "tier", gpu.XIDTierOf(k.xid), "gpu", k.dev, "pci", k.pci, "reports", n)
		if gi, ok := k.gi.Get(); ok {
			log = log.With("gi", gi)
		}
		if c := k.container; c != (gpu.Container{}) {
			log = log.With("namespace", c.Namespace, "pod", c.Pod, "container", c.Name)
		}
		log.Warn("XID")
	}
}

// containerOf returns the container of an event on a GPU, zero if it is unknown: that of its process if the process uses
// the GPU, else the only one that its MIG device or instance, or the GPU, is allocated to. The process of a kernel log line may be
// any that was running, such as a monitor.
func (s *Sampler) containerOf(e gpu.XIDEvent, t *tracked) gpu.Container {
	allocated := slices.DeleteFunc(slices.Clone(s.allocations.List), func(a gpu.Allocation) bool { return a.GPU != t.id.UUID })
	if e.PID > 0 && s.o.Users != nil {
		before, uses := s.users[e.PID]
		who := s.o.Users.Find(e.PID)
		switch {
		case uses && who.Reason == gpu.UnattributedUnresolved:
			who = before // it ended
		case uses && who != before:
			return gpu.Container{} // the PID was reused
		case !uses && !slices.ContainsFunc(allocated, func(a gpu.Allocation) bool { return a.Container == who.Container }):
			who.Reason = gpu.UnattributedUnresolved
		}
		if who.Reason == "" {
			return who.Container
		}
	}
	if !s.allocations.Unallocated(t.id.UUID) {
		return gpu.Container{}
	}
	if gi, ok := e.GI.Get(); ok && t.layout != nil {
		allocated = slices.DeleteFunc(allocated, func(a gpu.Allocation) bool {
			return !slices.ContainsFunc(t.layout.Instances, func(in gpu.Instance) bool {
				return in.GI == gi && in.UUID == a.Instance && (a.ComputeInstance == "" || !e.CI.Present() ||
					slices.ContainsFunc(in.Compute, func(c gpu.ComputeInstance) bool {
						return c.UUID == a.ComputeInstance && e.CI == gpu.Some(c.CI)
					}))
			})
		})
	}
	if len(allocated) == 0 || slices.ContainsFunc(allocated, func(a gpu.Allocation) bool {
		return a.Shared || a.Container != allocated[0].Container
	}) {
		return gpu.Container{}
	}
	return allocated[0].Container
}

// up reports whether a data source is up.
func (s *Sampler) up(name string) bool {
	return slices.ContainsFunc(s.sources(), func(x gpu.Source) bool { return x.Name == name && x.Up })
}
