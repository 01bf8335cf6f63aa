package sampler

import (
	"context"
	"errors"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// quietWait is how long the listener rests while there is no session, deafWait how long after an error.
	quietWait = 200 * time.Millisecond
	deafWait  = 10 * time.Second
)

// hearing is a session whose events are waited for.
type hearing struct{ session Session }

// listen waits for events until ctx ends.
func (s *Sampler) listen(ctx context.Context) {
	rest := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-s.o.After(d):
		}
	}
	var deaf *hearing // the session that has no events to give
	for ctx.Err() == nil {
		h := s.heard.Load()
		if h == nil {
			rest(quietWait)
			continue
		}
		began := s.o.Watch()
		events, err := h.session.WaitEvents(eventWait)
		s.note(err, h == deaf)
		for _, e := range events {
			s.Event(e)
		}
		switch {
		case errors.Is(err, gpu.ErrUninitialized):
			rest(quietWait)
		case err != nil:
			deaf = h
			rest(deafWait)
		case len(events) == 0 && s.o.Watch().Sub(began) < eventWait/2:
			rest(quietWait) // it returned at once: do not spin
		}
	}
}

// note keeps the outcome of a wait. The same session's refusal is one error, not one per wait.
func (s *Sampler) note(err error, again bool) {
	if errors.Is(err, gpu.ErrUninitialized) {
		return // the session was closed meanwhile
	}
	s.hearing.Lock()
	defer s.hearing.Unlock()
	s.hearing.err = err
	if err == nil {
		s.hearing.at = s.o.Clock()
	} else if !again {
		s.hearing.errors++
	}
}

// pollEvents takes the events that are there, where nobody listens.
func (s *Sampler) pollEvents(limit *patience) {
	if s.session.state != sessionOpen || s.session.op != "" || s.session.want != wantNothing {
		return
	}
	live := s.session.live
	s.start(opPoll, func() result {
		events, err := live.WaitEvents(0)
		return result{events: events, err: err}
	})
	s.finish(limit)
}

func (s *Sampler) polled(r result) {
	s.hearing.Lock()
	again := s.hearing.err != nil
	s.hearing.Unlock()
	s.note(r.err, again)
	for _, e := range r.events {
		s.Event(e)
	}
}

// takeEvents counts what came since the round before. An XID makes the slower poll groups of its GPU due: the
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
	reports := map[kind]int{} // a storm is one line per round
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
