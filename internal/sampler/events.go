package sampler

import (
	"context"
	"errors"
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
		case <-s.o.After(d):
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
		for _, e := range events {
			s.Event(e)
		}
		switch {
		case errors.Is(err, gpu.ErrUninitialized):
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
		dev gpu.UUID
		pci gpu.PCIAddress
		xid int
	}
	reports := map[kind]int{} // a storm is one line per poll
	for _, e := range events {
		s.ledger.Event(e)
		if e.Old {
			continue
		}
		reports[kind{e.GPU, e.PCI, e.XID}]++
		for _, t := range s.devs {
			if t.id.UUID == e.GPU || t.id.PCI == e.PCI && e.PCI != "" {
				t.medium.due, t.slow.due = true, true
			}
		}
	}
	for k, n := range reports {
		s.log.Warn("XID", "xid", k.xid, "tier", gpu.XIDTierOf(k.xid), "gpu", k.dev, "pci", k.pci, "reports", n)
	}
}
