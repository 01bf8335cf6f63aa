package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// soonest and latest bound the wait between two attempts to open the driver; it doubles.
	soonest = time.Second
	latest  = 30 * time.Second
	// rescanTroubled is how often the GPUs are listed while one of them fails, rescanCalm otherwise.
	rescanTroubled = 30 * time.Second
	rescanCalm     = 10 * time.Minute
	// pauseFor is for how long the driver is let go for a MIG change.
	pauseFor = 30 * time.Second
	// reopenEvery is how often the session is made anew because every GPU refuses to answer.
	reopenEvery = 5 * time.Minute
	// seekSoonest and seekLatest bound the wait until the session is made anew because of a GPU that the PCI bus
	// has and the driver does not know; it doubles.
	seekSoonest = time.Minute
	seekLatest  = time.Hour
)

// reasonMIG is the reason of a pause.
const reasonMIG = "mig_change"

type sessionPhase int

const (
	sessionClosed sessionPhase = iota
	sessionOpen
)

// want is why the session has to end.
type want int

const (
	wantNothing want = iota
	wantReopen
	wantReplace
	wantPause
)

// operation is a call on the session that is under way; empty: none.
type operation string

const (
	opOpen  operation = "open the driver"
	opScan  operation = "list the GPUs"
	opClose operation = "let the driver go"
	opPoll  operation = "poll events"
)

// sessionState is the session and what is to become of it.
type sessionState struct {
	state   sessionPhase
	live    Session
	system  gpu.Opt[gpu.System]
	want    want
	problem string // why it is not open, one line
	hint    error

	op      operation
	opBegan time.Time

	tryAt       time.Duration // when to open next
	wait        time.Duration // how long it was waited for that
	openAt      time.Duration // when it was opened
	scanAt      time.Duration // when to list the GPUs next
	pausedUntil time.Duration
	reopened    time.Duration
	hasReopened bool
	seekAt      time.Duration // when the session is made anew for a missing GPU; 0: none is missing
	seekWait    time.Duration
	mismatch    bool // only a new process helps
}

// result is what came of an operation.
type result struct {
	op     operation
	live   Session
	devs   []GPU
	events []gpu.XIDEvent
	err    error
}

// start begins an operation in a goroutine of its own.
func (s *Sampler) start(op operation, do func() result) {
	s.session.op, s.session.opBegan = op, s.o.Watch()
	go func() {
		r := do()
		r.op = op
		s.results <- r
	}()
}

// finish waits for the operation under way and takes its result. It reports false when the time is over.
func (s *Sampler) finish(limit *patience) bool {
	if s.session.op == "" {
		return true
	}
	select {
	case r := <-s.results:
		s.take(r)
		return true
	default:
	}
	if limit.over || s.o.Watch().Sub(s.session.opBegan) >= s.o.Deadline {
		return false // where it hangs no round waits for it any more
	}
	select {
	case r := <-s.results:
		s.take(r)
		return true
	case <-limit.c:
	case <-s.quit:
	}
	limit.end()
	return false
}

// tend keeps the session: it opens it, lists the GPUs, lets it go, one operation after the other, as far as
// the time of the round goes.
func (s *Sampler) tend(limit *patience) {
	for range 4 { // close, open, and what comes of that; never for ever
		if !s.finish(limit) {
			return
		}
		switch {
		case s.session.state == sessionOpen && s.session.want != wantNothing:
			if s.busy() {
				return // never let the driver go under a call
			}
			live := s.session.live
			s.heard.Store(nil)
			s.start(opClose, func() result { return result{err: live.Close()} })
		case s.session.state == sessionOpen && s.clock >= s.session.scanAt:
			live := s.session.live
			s.start(opScan, func() result {
				devs, err := live.Scan()
				return result{devs: devs, err: err}
			})
		case s.session.state == sessionClosed && !s.paused() && s.clock >= s.session.tryAt && !s.busy():
			s.start(opOpen, func() result { return open(s.o.Driver) })
		default:
			return
		}
	}
	s.finish(limit)
}

// open opens the driver and lists its GPUs.
func open(d Driver) result {
	live, err := d.Open()
	if err != nil {
		return result{err: err}
	}
	devs, err := live.Scan()
	if err != nil {
		return result{err: errors.Join(err, live.Close())}
	}
	return result{live: live, devs: devs}
}

// take applies the result of an operation.
func (s *Sampler) take(r result) {
	st := &s.session
	st.op = ""
	switch r.op {
	case opOpen:
		if r.err != nil {
			s.openFailed(r.err)
			return
		}
		st.state, st.live, st.system = sessionOpen, r.live, gpu.Some(r.live.System())
		st.want, st.problem, st.hint, st.mismatch, st.openAt = wantNothing, "", nil, false, s.clock
		s.ledger.Reopened()
		for _, t := range s.devs {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		s.scanned(r.devs)
		s.heard.Store(&hearing{session: r.live})
		s.log.Info("the driver is open", "version", r.live.System().DriverVersion, "gpus", len(r.devs))
	case opScan:
		if r.err != nil {
			s.errors++
			if over(r.err) {
				s.sessionOver(r.err)
			}
			st.scanAt = s.clock + rescanTroubled
			return
		}
		s.scanned(r.devs)
	case opClose:
		if r.err != nil {
			s.errors++
			s.log.Warn("the driver could not be let go", "error", r.err)
		}
		s.closed()
	case opPoll:
		s.polled(r)
	}
}

// scanned takes a list of GPUs and says when the next is due.
func (s *Sampler) scanned(devs []GPU) {
	s.adopt(devs)
	s.success = gpu.Some(s.now)
	s.expected.at = 0 // the bus is looked at again
	s.lookForGPUs()
	s.session.scanAt = s.clock + rescanCalm
}

// hurryScan lists the GPUs sooner while one of them fails.
func (s *Sampler) hurryScan() {
	troubled := slices.ContainsFunc(s.devs, func(t *tracked) bool {
		return t.state == gpu.DeviceFailed && !t.stuck || t.state == gpu.DeviceMissing || t.dev == nil && t.state != gpu.DeviceDetached
	})
	if at := s.clock + rescanTroubled; troubled && s.session.scanAt > at {
		s.session.scanAt = at
	}
}

// openFailed says what is wrong, and when the next attempt is due.
func (s *Sampler) openFailed(err error) {
	st := &s.session
	s.errors++
	if st.problem != err.Error() {
		s.log.Warn("the driver cannot be opened; it is tried again", "error", err)
	}
	st.state, st.live, st.problem, st.hint = sessionClosed, nil, err.Error(), err
	st.postpone(s.clock)
	if st.mismatch = errors.Is(err, gpu.ErrVersionMismatch); st.mismatch {
		s.replace()
	}
}

// postpone says when the next attempt to open is due; each wait is twice the one before.
func (st *sessionState) postpone(clock time.Duration) {
	st.wait = min(max(2*st.wait, soonest), latest)
	st.tryAt = clock + st.wait
}

// replace asks for a new process. No call is under way.
func (s *Sampler) replace() {
	s.log.Warn("the driver was replaced: its new library needs a new process")
	if s.o.Replaced != nil {
		s.o.Replaced()
	}
}

// sessionOver notes an error that ends the session.
func (s *Sampler) sessionOver(err error) {
	st := &s.session
	if st.state != sessionOpen || st.want == wantReplace {
		return
	}
	st.want, st.problem, st.hint = wantReopen, err.Error(), err
	if errors.Is(err, gpu.ErrVersionMismatch) {
		st.want = wantReplace
	}
}

// closed follows the end of a session.
func (s *Sampler) closed() {
	st := &s.session
	why := st.want
	st.state, st.live, st.want, st.tryAt = sessionClosed, nil, wantNothing, s.clock
	if s.clock-st.openAt >= latest {
		st.wait = 0 // it was a good session
	} else if why == wantReopen && st.wait > 0 {
		st.postpone(s.clock)
	}
	switch why {
	case wantPause:
		st.pausedUntil = s.clock + pauseFor
		st.tryAt = st.pausedUntil
		st.problem = "it was let go while a MIG change is pending"
		s.log.Info("the driver was let go for a pending MIG change", "for", pauseFor)
		return
	case wantReplace:
		st.mismatch = true
		st.postpone(s.clock)
		s.replace()
	case wantReopen:
		st.wait = max(st.wait, soonest) // at once, but not again and again
	}
	st.system = gpu.None[gpu.System]()
	for _, t := range s.devs {
		t.dev = nil // the handles died with the session
	}
}

// watchMIG lets the driver go, once per change, when a GPU wants to change its MIG mode: an open client is
// what it waits for.
func (s *Sampler) watchMIG(t *tracked, slow *gpu.Slow) {
	mode, ok := slow.MIGMode.Get()
	switch {
	case !ok:
	case mode.Current == mode.Pending:
		t.migAnnounced = false
	case !t.migAnnounced && s.session.want == wantNothing:
		t.migAnnounced = true
		s.session.want = wantPause
	}
}

// paused reports whether the driver is let go on purpose.
func (s *Sampler) paused() bool {
	st := &s.session
	return st.state == sessionClosed && s.clock < st.pausedUntil
}

// checkAllRefuse makes the session anew when no GPU answers at all: a container whose devices were taken
// away looks so, and so does a driver that was reloaded.
func (s *Sampler) checkAllRefuse() {
	if s.allIll() && s.session.want == wantNothing && (!s.session.hasReopened || s.clock-s.session.reopened >= reopenEvery) {
		s.session.hasReopened, s.session.reopened = true, s.clock
		s.session.want, s.session.problem = wantReopen, "every GPU refuses to be read"
	}
}

// seekMissing makes the session anew, ever more seldom, while a GPU of the PCI bus is missing: which GPUs there are the
// driver's library finds out when it is initialized, so that no list within the session would show one that came back.
// For the others it costs one tick.
func (s *Sampler) seekMissing() {
	st := &s.session
	if st.state != sessionOpen {
		return
	}
	switch {
	case !slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.state == gpu.DeviceMissing }):
		st.seekAt = 0
	case st.seekAt == 0:
		st.seekWait = seekSoonest
		st.seekAt = s.clock + st.seekWait
	case s.clock >= st.seekAt && st.want == wantNothing:
		st.seekWait = min(2*st.seekWait, seekLatest)
		st.seekAt = s.clock + st.seekWait
		st.want, st.problem = wantReopen, "a GPU of the PCI bus is looked for"
	}
}

// allIll reports whether every GPU of the driver fails, and for no reason that is known.
func (s *Sampler) allIll() bool {
	some := false
	for _, t := range s.devs {
		if t.dev == nil {
			continue
		}
		if t.ill == nil {
			return false
		}
		some = true
	}
	return some && s.session.state == sessionOpen
}

// trouble says in one line what is wrong with the driver, empty if nothing is.
func (s *Sampler) trouble() string {
	st := &s.session
	age := s.o.Watch().Sub(st.opBegan)
	switch {
	case st.op != "" && age >= s.o.Deadline:
		return fmt.Sprintf("to %s takes %s already", st.op, age.Round(time.Second))
	case s.paused():
		return st.problem
	case st.state != sessionOpen && st.problem != "":
		return st.problem
	case st.state != sessionOpen:
		return "the driver is not open yet"
	case s.allIll():
		return "every GPU refuses to be read: if the container's devices were taken away (systemctl daemon-reload does so), restart it"
	case len(s.devs) > 0 && !slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.dev != nil && t.state == gpu.DeviceUp }):
		return "no GPU can be read"
	}
	return ""
}

// release is the end: it waits a moment for what is under way and lets the driver go. A call that does not
// return keeps it: to let the driver go under a call helps nobody.
func (s *Sampler) release(listener <-chan struct{}) {
	s.quit = nil
	s.heard.Store(nil)
	limit := &patience{c: s.o.After(farewell)}
	for !limit.over && (s.busy() || listener != nil) {
		select {
		case a := <-s.answers:
			s.accept(a)
		case r := <-s.results:
			s.take(r)
			s.heard.Store(nil) // it may have been opened at this moment
		case <-listener:
			listener = nil
		case <-limit.c:
			limit.end()
		}
	}
	live := s.session.live
	switch {
	case live == nil:
		return
	case limit.over:
		s.log.Warn("a driver call does not return: the driver is not let go")
		return
	}
	s.session.want = wantReopen
	s.start(opClose, func() result { return result{err: live.Close()} })
	select {
	case r := <-s.results:
		s.take(r)
	case <-s.o.After(goodbye):
		s.log.Warn("the driver does not let itself be closed")
	}
}
