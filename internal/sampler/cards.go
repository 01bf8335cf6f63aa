package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// tolerated is how many fast reads in a row may fail, for no reason that is known, before the card counts
// as failed.
const tolerated = 3

// The positions of the lanes in arrays.
const (
	laneFast = iota
	laneMedium
	laneSlow
)

// lane is what one lane of one card has given.
type lane[T any] struct {
	value gpu.Opt[*T]   // absent after a failure, or when it is too old
	read  time.Duration // the sampler's clock at the last attempt
	good  time.Duration // at the last success
	tried bool
	at    time.Time // exporter's clock at the last success; zero: never
	due   bool      // to be read in the next round, whatever the interval
	bad   int       // failures in a row
}

// tracked is what the sampler knows of one card.
type tracked struct {
	id    gpu.Identity // with the index under which it was first seen
	index int          // NVML's index now
	card  Card         // nil while NVML does not show it

	// pending is set while a job is under way; began is when, by the real clock.
	pending bool
	began   time.Time
	stuck   bool

	given error         // why it is not asked any more until the next scan
	ill   error         // why it counts as failed although it is asked
	told  gpu.CardState // the state that the log has
	known bool          // some lane was read at some time

	state gpu.CardState
	why   string

	fast                   lane[gpu.Fast]
	medium                 lane[gpu.Medium]
	slow                   lane[gpu.Slow]
	freshFast, freshMedium bool
	layout                 *gpu.Slow // the last slow reading, for the MIG layout of a card that is not read
	recovery               gpu.Opt[gpu.RecoveryAction]
	memory                 gpu.Opt[gpu.Bytes] // total, as last read
	notOffered             []string
	measured               bool // the depth of its ring was looked at
	migAnnounced           bool // a pending MIG change was answered already
	past                   past
}

// job is what is to be read of one card.
type job struct {
	card  *tracked
	from  Card
	lanes [3]bool
}

// answer is what came of a job.
type answer struct {
	job
	fast       gpu.Fast
	medium     gpu.Medium
	slow       gpu.Slow
	errs       [3]error
	asked      [3]bool
	took       [3]time.Duration
	notOffered []string
	renewed    bool // notOffered was asked for
}

// do reads the lanes, cheapest first. What fails as a whole is not asked further.
func (j job) do(watch func() time.Time) answer {
	a := answer{job: j}
	for i, read := range []func() error{
		func() (err error) { a.fast, err = j.from.Fast(); return err },
		func() (err error) { a.medium, err = j.from.Medium(); return err },
		func() (err error) { a.slow, err = j.from.Slow(); return err },
	} {
		if !j.lanes[i] {
			continue
		}
		began := watch()
		a.errs[i] = read()
		a.took[i], a.asked[i] = watch().Sub(began), true
		if ends(a.errs[i]) {
			return a
		}
	}
	if a.asked[laneSlow] {
		a.notOffered, a.renewed = j.from.NotOffered(), true
	}
	return a
}

// ends reports whether an error speaks of the whole card or driver.
func ends(err error) bool {
	return lost(err) || over(err)
}

// lost reports whether an error says that a card is gone.
func lost(err error) bool {
	return errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired)
}

// over reports whether an error says that the session is.
func over(err error) bool {
	return errors.Is(err, gpu.ErrUninitialized) || errors.Is(err, gpu.ErrVersionMismatch) || errors.Is(err, gpu.ErrNoDriver)
}

// dispatch starts the reads that are due, one goroutine per card, none for a card whose last one is still
// under way.
func (s *Sampler) dispatch() {
	if s.session.state != sessionOpen || s.session.want != wantNothing && !s.hangs() {
		return // the driver is let go as soon as nothing is under way
	}
	slack := s.o.Fast / 2
	for _, t := range s.cards {
		if t.card == nil || t.pending || t.given != nil {
			continue
		}
		j := job{card: t, from: t.card}
		j.lanes[laneFast] = true
		j.lanes[laneMedium] = t.medium.dueAt(s.clock, s.o.Medium-slack)
		j.lanes[laneSlow] = t.slow.dueAt(s.clock, s.o.Slow-slack)
		t.pending, t.began = true, s.o.Watch()
		go func() { s.answers <- j.do(s.o.Watch) }()
	}
}

func (l *lane[T]) dueAt(clock, interval time.Duration) bool {
	return l.due || !l.tried || clock-l.read >= interval
}

// collect takes answers until all cards that are not stuck have given one, or the round's time is over.
func (s *Sampler) collect(limit *patience) {
	for s.awaited() && !limit.over {
		select {
		case a := <-s.answers:
			s.accept(a)
		case <-limit.c:
			limit.end()
		case <-s.quit:
			limit.end()
		}
	}
	s.drain()
}

// awaited reports whether some card's answer is worth waiting for.
func (s *Sampler) awaited() bool {
	return slices.ContainsFunc(s.cards, func(t *tracked) bool { return t.pending && !t.stuck })
}

// drain takes the answers that are there.
func (s *Sampler) drain() {
	for {
		select {
		case a := <-s.answers:
			s.accept(a)
		default:
			return
		}
	}
}

// busy reports whether a call to the driver is under way.
func (s *Sampler) busy() bool {
	return s.session.op != "" || slices.ContainsFunc(s.cards, func(t *tracked) bool { return t.pending })
}

// hangs reports whether a call to the driver does not return, so that the driver cannot be let go.
func (s *Sampler) hangs() bool {
	return s.session.op != "" && s.o.Watch().Sub(s.session.opBegan) >= s.o.Deadline ||
		slices.ContainsFunc(s.cards, func(t *tracked) bool { return t.stuck })
}

// accept takes what came of a job, however late.
func (s *Sampler) accept(a answer) {
	t := a.card
	if t.stuck {
		s.log.Info("a card that was stuck answers again", "card", t.id.UUID, "after", s.o.Watch().Sub(t.began).Round(time.Second))
	}
	if t.stuck {
		t.medium.due, t.slow.due = true, true // their values ended meanwhile
		for i, err := range a.errs {
			if a.asked[i] && err == nil {
				a.asked[i] = false // it may have been read before the call that hung: too old to pass for live
			}
		}
	}
	t.pending, t.stuck = false, false
	sieve := s.ledger.Sieve()
	ok := false
	if a.asked[laneFast] && settle(s, t, &t.fast, &a.fast, a.errs[laneFast], sieve.Fast) {
		ok, t.freshFast = true, true
		s.measureRing(t, &a.fast)
	}
	if a.asked[laneMedium] {
		if s.o.Users == nil {
			// Without the host's PID namespace the driver shows a part of the processes, and which is unknown.
			a.medium.Processes = gpu.None[[]gpu.Process]()
		}
		if settle(s, t, &t.medium, &a.medium, a.errs[laneMedium], sieve.Medium) {
			ok, t.freshMedium = true, true
			if m, told := a.medium.Memory.Get(); told {
				t.memory = gpu.Some(m.Total)
			}
			if action, told := a.medium.Recovery.Get(); told {
				if before, had := t.recovery.Get(); had && before != action {
					t.slow.due = true
				}
				t.recovery = gpu.Some(action)
			}
		}
	}
	if a.asked[laneSlow] && settle(s, t, &t.slow, &a.slow, a.errs[laneSlow], sieve.Slow) {
		ok = true
		t.layout = &a.slow
		s.watchMIG(t, &a.slow)
	}
	if a.renewed {
		t.notOffered = a.notOffered
	}
	for i, took := range a.took {
		if a.asked[i] && took >= s.took[i].Or(0) {
			s.took[i] = gpu.Some(took)
		}
	}
	for _, err := range a.errs {
		switch {
		case err == nil:
			continue
		case over(err):
			s.sessionOver(err)
		case lost(err):
			t.given = err
		}
		s.errors++
	}
	if ok {
		t.known = true
		s.success = gpu.Some(s.now)
	}
	switch {
	case t.fast.bad >= tolerated:
		t.ill = a.errs[laneFast]
	case t.ill != nil:
		t.ill, t.medium.due, t.slow.due = nil, true, true // what is shown again is shown whole
	}
	s.checkLayout(t)
}

// measureRing makes the fast lane quicker where the driver's ring, full at the first read, is so shallow that
// samples would be lost.
func (s *Sampler) measureRing(t *tracked, f *gpu.Fast) {
	if t.measured {
		return
	}
	t.measured = true
	depth := time.Duration(account.RingSpan(f) * float64(time.Second))
	if interval := max(depth/2, min(shortestFast, s.o.Fast)); depth > 0 && interval < s.fast {
		s.fast = interval
		s.log.Info("the fast lane is quicker than asked for: the driver keeps its samples for a short time", "card", t.id.UUID,
			"ring", depth, "interval", interval)
	}
}

// settle books the outcome of one lane and reports whether it succeeded.
func settle[T any](s *Sampler, t *tracked, l *lane[T], value *T, err error, clean func(*T)) bool {
	l.tried, l.due, l.read = true, false, s.clock
	if err != nil {
		l.value = gpu.None[*T]()
		l.bad++
		if l.bad == 1 && !ends(err) {
			s.log.Warn("a lane of a card could not be read", "card", t.id.UUID, "error", err)
		}
		return false
	}
	clean(value)
	l.value, l.good, l.at, l.bad = gpu.Some(value), s.clock, s.now, 0
	return true
}

// expire drops a value that is too old to pass for live: its lane was not read for three intervals.
func (l *lane[T]) expire(clock, interval time.Duration) {
	if clock-l.good > 3*interval {
		l.value = gpu.None[*T]()
	}
}

// checkLayout wants a new MIG layout when the fast lane shows other instances than the last one.
func (s *Sampler) checkLayout(t *tracked) {
	f, ok := t.fast.value.Get()
	if !ok || t.layout == nil || t.slow.due || len(f.Instances) == 0 {
		return
	}
	for _, in := range f.Instances {
		if !slices.ContainsFunc(t.layout.Instances, func(l gpu.Instance) bool { return l.UUID == in.UUID }) {
			t.slow.due = true
		}
	}
}

// judge says which state every card is in.
func (s *Sampler) judge() {
	for _, t := range s.cards {
		if t.pending && !t.stuck && s.o.Watch().Sub(t.began) >= s.o.Deadline {
			t.stuck = true
			s.errors++
			s.log.Error("a driver call does not return; the card is left alone until it does", "card", t.id.UUID, "deadline", s.o.Deadline)
		}
		t.fast.expire(s.clock, max(s.o.Fast, s.o.Deadline))
		t.medium.expire(s.clock, s.o.Medium)
		t.slow.expire(s.clock, s.o.Slow)
		t.state, t.why = s.stateOf(t)
		up := t.state == gpu.CardUp
		if !up {
			t.fast.value, t.medium.value, t.slow.value = gpu.None[*gpu.Fast](), gpu.None[*gpu.Medium](), gpu.None[*gpu.Slow]()
		}
		switch {
		case t.state == t.told:
		case up && t.known:
			s.log.Info("a card can be read", "card", t.id.UUID, "pci", t.id.PCI)
		case !up && (t.told == gpu.CardUp || s.session.state == sessionOpen):
			s.log.Error("a card cannot be read", "card", t.id.UUID, "pci", t.id.PCI, "state", t.state, "why", t.why)
		}
		t.told = t.state
	}
}

// stateOf returns the state of a card, and why it is not up.
func (s *Sampler) stateOf(t *tracked) (gpu.CardState, string) {
	onBus, detached := s.expected.has(t.id.PCI)
	switch {
	case t.stuck:
		return gpu.CardFailed, fmt.Sprintf("stuck for %s: a driver call does not return", s.o.Watch().Sub(t.began).Round(time.Second))
	case t.card == nil && detached:
		return gpu.CardDetached, "bound to another driver on purpose"
	case s.paused() && t.card != nil && t.given == nil && t.ill == nil:
		return gpu.CardUp, "left alone while a MIG change is pending"
	case s.session.state != sessionOpen && t.known:
		return gpu.CardFailed, "the driver cannot be asked: " + s.session.problem
	case t.card == nil && onBus:
		return gpu.CardMissing, "on the PCI bus, and not known to the driver; look for its last XID and the kernel log"
	case t.card == nil:
		return gpu.CardFailed, "no longer known to the driver"
	case t.given != nil:
		return gpu.CardFailed, t.given.Error()
	case t.ill != nil:
		return gpu.CardFailed, t.ill.Error()
	}
	return gpu.CardUp, ""
}

// availability is the state of a card as the ledger wants to know it.
func (t *tracked) availability(s *Sampler) account.Availability {
	switch {
	case t.state != gpu.CardUp:
		return account.Unavailable
	case s.paused():
		return account.Unread
	}
	return account.Readable
}

// adopt takes the cards of a scan.
func (s *Sampler) adopt(cards []Card) {
	seen := map[*tracked]bool{}
	for _, card := range cards {
		id := card.Identity()
		i := slices.IndexFunc(s.cards, func(t *tracked) bool { return t.id.UUID == id.UUID })
		if i < 0 {
			// Whoever else was at that address is there no more, or had no name yet.
			s.cards = slices.DeleteFunc(s.cards, func(t *tracked) bool {
				old := id.PCI != "" && t.id.PCI == id.PCI && !t.pending
				if old {
					s.ledger.Forget(t.id.UUID)
				}
				return old
			})
			s.cards = append(s.cards, &tracked{id: id, index: id.Index, state: gpu.CardUp})
			i = len(s.cards) - 1
			s.log.Info("a card was found", "card", id.UUID, "pci", id.PCI, "model", id.Model)
		}
		t := s.cards[i]
		seen[t] = true
		t.index = id.Index
		if t.id.Index >= 0 {
			id.Index = t.id.Index
		}
		if id.Model == "" && t.id.Model != "" {
			id = t.id // it cannot be asked now: what it said of itself stands
		}
		if t.card == nil || t.card != card {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		t.id, t.card, t.given = id, card, nil
	}
	s.cards = slices.DeleteFunc(s.cards, func(t *tracked) bool {
		if seen[t] || t.pending {
			return false
		}
		t.card = nil
		if t.known {
			return false
		}
		if onBus, _ := s.expected.has(t.id.PCI); onBus {
			return false
		}
		s.ledger.Forget(t.id.UUID)
		return true
	})
	s.sortCards()
}

// sortCards orders by index, then PCI address; cards that NVML never showed come last.
func (s *Sampler) sortCards() {
	slices.SortStableFunc(s.cards, func(a, b *tracked) int {
		switch {
		case a.id.Index != b.id.Index && (a.id.Index < 0 || b.id.Index < 0):
			return b.id.Index - a.id.Index
		case a.id.Index != b.id.Index:
			return a.id.Index - b.id.Index
		case a.id.PCI < b.id.PCI:
			return -1
		case a.id.PCI > b.id.PCI:
			return 1
		}
		return 0
	})
}

// updateInventory renews the naming table of the cards when it changed.
func (s *Sampler) updateInventory() {
	inv := &gpu.Inventory{}
	for _, t := range s.cards {
		if !t.known && t.card == nil {
			continue
		}
		c := gpu.InventoryCard{UUID: t.id.UUID, Index: t.index, Minor: t.id.Minor, PCI: t.id.PCI, Memory: t.memory}
		if t.layout != nil {
			mode, _ := t.layout.MIGMode.Get()
			c.MIG, c.Instances = mode.Current, t.layout.Instances
		}
		inv.Cards = append(inv.Cards, c)
	}
	if s.inventory == nil || !slices.EqualFunc(inv.Cards, s.inventory.Cards, sameCard) {
		s.inventory = inv
	}
}

func sameCard(a, b gpu.InventoryCard) bool {
	return a.UUID == b.UUID && a.Index == b.Index && a.Minor == b.Minor && a.PCI == b.PCI && a.MIG == b.MIG && a.Memory == b.Memory &&
		slices.EqualFunc(a.Instances, b.Instances, func(x, y gpu.Instance) bool {
			return x.UUID == y.UUID && x.GI == y.GI && x.Profile == y.Profile && x.Slices == y.Slices && x.Share == y.Share &&
				x.PlacementStart == y.PlacementStart && x.PlacementSize == y.PlacementSize && x.ProfileID == y.ProfileID &&
				slices.Equal(x.Compute, y.Compute)
		})
}
