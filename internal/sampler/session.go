package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// minRetry and maxRetry bound the wait between two attempts to initialize NVML; it doubles.
	minRetry = time.Second
	maxRetry = 30 * time.Second
	// libraryPolls is how many slow poll intervals a library may come later than the kernel module.
	libraryPolls = 2
	// minRescan and rescanFailing bound the wait between GPU scans while a GPU fails, which doubles: one that was lost for
	// seconds is found at once. rescanHealthy is the interval otherwise.
	minRescan     = 3 * time.Second
	rescanFailing = 30 * time.Second
	rescanHealthy = 10 * time.Minute
	// pauseDelay is the time between the first MIG change that is seen and the pause.
	pauseDelay = 4 * time.Second
	// pauseDuration is how long NVML is shut down for a MIG change.
	pauseDuration = 30 * time.Second
	// maxBinding is how long NVML is shut down at most for a GPU that is being unbound, bindingSettles how long after the
	// last change.
	maxBinding     = 5 * time.Minute
	bindingSettles = time.Second
	// suspendPause is how long NVML stays shut down if no poll extends that.
	suspendPause = time.Minute
	// reopenEvery is the minimum interval between new sessions because every GPU fails.
	reopenEvery = 5 * time.Minute
	// minSeek and maxSeek bound the wait until a new session is opened because a GPU of the PCI bus is unknown to the
	// driver; it doubles.
	minSeek = time.Minute
	maxSeek = time.Hour
)

// resetForMIG is the architecture whose MIG mode changes with a reset of the GPU. "Starting with the Hopper generation of
// GPUs, enabling MIG mode no longer requires a GPU reset to take effect" (NVIDIA Multi-Instance GPU User Guide).
const resetForMIG = "Ampere"

// start runs an operation in a goroutine of its own.
func (s *Sampler) start(op operation, do func() result) {
	s.session.op, s.session.opStarted = op, s.o.Watch()
	go func() {
		var r result
		if err := gpu.Recovered(func() error { r = do(); return nil }); err != nil {
			s.panics.Add(1)
			r = result{err: err}
		}
		r.op = op
		s.results <- r
	}()
}

// await waits for the operation in progress and applies its result. It returns false when the limit is over.
func (s *Sampler) await(limit *waitLimit) bool {
	if s.session.op == "" {
		return true
	}
	select {
	case r := <-s.results:
		s.apply(r)
		return true
	default:
	}
	if limit.over || s.o.Watch().Sub(s.session.opStarted) >= s.o.Deadline {
		return false // no poll waits for a hung operation
	}
	select {
	case r := <-s.results:
		s.apply(r)
		return true
	case <-limit.c():
	case <-s.quit:
	}
	limit.end()
	return false
}

// stepSession advances the session: open, scan, close, one operation after the other, within the limit.
func (s *Sampler) stepSession(limit *waitLimit) {
	if at := s.session.pauseAt; at != 0 && s.clock >= at && s.session.intent == intentNone {
		s.session.pauseAt, s.session.intent = 0, intentPause
		s.session.pause = pause{reasonMIG, "while a MIG change is pending", pauseDuration, false}
	}
	for range 4 { // close, open, scan; bounded
		if !s.await(limit) {
			return
		}
		s.takeRequest()
		s.awaitBinding()
		switch {
		case s.session.state == sessionOpen && s.session.intent != intentNone:
			if s.busy() {
				return // never shut down NVML during a call
			}
			live := s.session.live
			s.eventSession.Store(nil)
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
	s.await(limit)
}

// open initializes NVML and lists its GPUs.
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

// apply applies the result of an operation.
func (s *Sampler) apply(r result) {
	st := &s.session
	st.op = ""
	switch r.op {
	case opOpen:
		if r.err != nil {
			s.openFailed(r.err)
			return
		}
		st.state, st.live, st.system = sessionOpen, r.live, gpu.Some(r.live.System())
		st.intent, st.message, st.hint, st.mismatch, st.openAt = intentNone, "", nil, false, s.clock
		st.tried, st.bare, st.moduleSince = true, false, gpu.None[time.Duration]()
		s.ledger.Reopened()
		for _, t := range s.devs {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		s.scanned(r.devs)
		s.eventSession.Store(&eventWatch{session: r.live})
		s.log.Info("NVML session opened", "version", r.live.System().DriverVersion, "gpus", len(r.devs))
	case opScan:
		if r.err != nil {
			s.errors++
			if sessionEnded(r.err) {
				s.endSession(r.err)
			}
			st.scanAt = s.clock + rescanFailing
			return
		}
		s.scanned(r.devs)
	case opClose:
		if r.err != nil {
			s.errors++
			s.log.Warn("failed to shut down NVML", "err", r.err)
		}
		s.closed()
	case opPoll:
		s.polled(r)
	}
}

// scanned applies a list of GPUs and schedules the next scan.
func (s *Sampler) scanned(devs []GPU) {
	s.adopt(devs)
	s.success = gpu.Some(s.now)
	s.expected.at = 0 // scan the PCI bus again
	s.scanBus()
	s.session.scanAt = s.clock + rescanHealthy
}

// scanSooner advances the next scan while a GPU fails.
func (s *Sampler) scanSooner() {
	failing := slices.ContainsFunc(s.devs, func(t *tracked) bool {
		return t.state == gpu.DeviceFailed && !t.hung || t.state == gpu.DeviceMissing || t.dev == nil &&
			t.state != gpu.DeviceDetached
	})
	st := &s.session
	switch {
	case !failing:
		st.scanWait = 0
	case st.scanWait == 0 || st.scanAt > s.clock+rescanFailing:
		st.scanWait = min(max(2*st.scanWait, minRescan), rescanFailing)
		if !slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.lostErr != nil }) {
			st.scanWait = rescanFailing
		}
		st.scanAt = min(st.scanAt, s.clock+st.scanWait)
	}
}

// openFailed records the error and schedules the next attempt.
func (s *Sampler) openFailed(err error) {
	st := &s.session
	s.errors++
	if st.message != err.Error() {
		s.log.Warn("cannot initialize NVML; retrying", "err", err)
	}
	st.state, st.live, st.message, st.hint = sessionClosed, nil, err.Error(), err
	st.postpone(s.clock)
	if st.mismatch = errors.Is(err, gpu.ErrVersionMismatch); st.mismatch {
		s.replace(err)
	}
	s.awaitLibrary(err)
}

// awaitLibrary ends a process that started without library and kernel module, once the module has been loaded for
// libraryPolls intervals of the slow poll group and the library is still missing: its container was created without the
// driver's files, which NVIDIA's runtime does not add later. The driver container loads the module first; then its
// files are mounted, and the runtime is configured. A new process finds the module loaded from the start, and stays.
func (s *Sampler) awaitLibrary(err error) {
	st := &s.session
	if !st.tried {
		st.bare = errors.Is(err, gpu.ErrNoModule)
	}
	st.tried = true
	if !st.bare || !errors.Is(err, gpu.ErrNoLibrary) {
		st.moduleSince = gpu.None[time.Duration]()
		return
	}
	since := st.moduleSince.Or(s.clock)
	st.moduleSince = gpu.Some(since)
	if end := since + libraryPolls*s.o.Slow; s.clock < end {
		st.tryAt = min(st.tryAt, end)
	} else if s.o.Restart != nil {
		s.o.Restart(err)
	}
}

// postpone schedules the next attempt to open; each wait is twice the previous one.
func (st *sessionState) postpone(clock time.Duration) {
	st.wait = min(max(2*st.wait, minRetry), maxRetry)
	st.tryAt = clock + st.wait
}

// replace requests a new process. No call is in progress.
func (s *Sampler) replace(reason error) {
	s.log.Warn("driver upgraded: the new library needs a new process")
	if s.o.Restart != nil {
		s.o.Restart(reason)
	}
}

// LetGo shuts down NVML for a time, so that a tool which waits for all users of a GPU can go on; 0 ends that early. It takes
// effect at once, or as soon as no driver call is in progress. It is safe for concurrent use.
func (s *Sampler) LetGo(length time.Duration) {
	s.request(pause{reasonRequest, "as requested", length, false})
}

// request requests a pause. A user's own is not replaced.
func (s *Sampler) request(p pause) {
	s.inbox.Lock()
	if before := s.inbox.pause.Or(p); before.reason == p.reason || p.reason == reasonRequest && p.length > 0 {
		s.inbox.pause = gpu.Some(p)
	}
	s.inbox.Unlock()
	s.wake()
}

func (s *Sampler) requested() bool {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	return s.inbox.pause.Present()
}

// takeRequest acts on the last request, once the session does not end for another reason. No operation is in progress.
func (s *Sampler) takeRequest() {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	p, asked := s.inbox.pause.Get()
	st := &s.session
	cancels := p.length == 0 && st.intent == intentPause && st.pause.reason == reasonRequest
	if !asked || st.state == sessionOpen && st.intent != intentNone && !cancels {
		return
	}
	s.inbox.pause = gpu.None[pause]()
	if p.reason == reasonBinding {
		s.expected.at = 0
		s.scanBus()
		st.bound, _ = s.expected.bound()
		st.boundSince = s.clock
	}
	switch {
	case cancels:
		st.intent = intentNone
	case p.length == 0 && !s.paused(), p.reason != reasonRequest && s.paused() && !(p.reason == reasonSuspend && s.pausedFor(p.reason)):
	case st.state == sessionClosed:
		s.beginPause(p)
	default:
		st.pauseAt, st.intent, st.pause = 0, intentPause, p
	}
}

// noteBindings requests a pause if a GPU is unbound from the driver or bound to it: the session is not to keep it from that,
// and has none of the GPUs that are bound after it began.
func (s *Sampler) noteBindings(session Session) bool {
	unbound, bound := session.Bindings()
	if unbound || bound {
		s.request(pause{reasonBinding, "while a GPU is unbound from the driver or bound to it", maxBinding, unbound})
	}
	return unbound || bound
}

// awaitBinding ends the pause for a GPU that is unbound from the driver or bound to it, once that happened and the GPUs
// that are bound stay the same. While none is bound there is nothing to initialize.
func (s *Sampler) awaitBinding() {
	st := &s.session
	if !s.paused() || st.pause.reason != reasonBinding {
		return
	}
	s.expected.at = 0
	s.scanBus()
	bound, _ := s.expected.bound()
	if !slices.Equal(bound, st.bound) {
		st.bound, st.boundSince, st.pause.unbinding = bound, s.clock, false
	}
	switch {
	case !s.expected.ok:
	case len(bound) == 0:
		st.pausedUntil = s.clock + st.pause.length
	case !st.pause.unbinding && s.clock-st.boundSince >= bindingSettles:
		s.beginPause(pause{reason: reasonBinding})
	}
}

// letSuspend requests a pause while GPUs are suspended or may suspend, and the end of it.
func (s *Sampler) letSuspend() {
	if s.o.Suspend == nil {
		return
	}
	p := pause{reason: reasonSuspend}
	var closed string
	if closed, s.suspendable = s.o.Suspend(s.Latest(), s.now); closed != "" {
		p.length, p.words = suspendPause, "for runtime power management ("+closed+")"
	}
	s.inbox.Lock()
	defer s.inbox.Unlock()
	if (p.length > 0 || s.pausedFor(reasonSuspend)) && !s.inbox.pause.Present() {
		s.inbox.pause = gpu.Some(p)
	}
}

// beginPause keeps NVML shut down.
func (s *Sampler) beginPause(p pause) {
	st := &s.session
	again := s.pausedFor(p.reason)
	st.pause, st.pausedUntil = p, s.clock+p.length
	if st.tryAt = st.pausedUntil; p.length == 0 {
		s.log.Info("NVML is initialized again", "reason", p.reason)
		return
	}
	if st.message = "NVML is shut down " + p.words; !again {
		s.log.Info("NVML shut down", "reason", p.reason, "for", p.length, "cause", p.words)
	}
}

// closed handles the end of a session.
func (s *Sampler) closed() {
	st := &s.session
	message := st.intent
	st.state, st.live, st.intent, st.tryAt = sessionClosed, nil, intentNone, s.clock
	if s.clock-st.openAt >= maxRetry {
		st.wait = 0 // the session lasted
	} else if message == intentReopen && st.wait > 0 {
		st.postpone(s.clock)
	}
	switch message {
	case intentPause:
		s.beginPause(st.pause)
		return
	case intentReplace:
		st.mismatch = true
		st.postpone(s.clock)
		s.replace(st.hint)
	case intentReopen:
		st.wait = max(st.wait, minRetry) // immediately, but not repeatedly
	}
	st.system = gpu.None[gpu.System]()
	for _, t := range s.devs {
		t.dev = nil // the handles are invalid after the session
	}
}

// checkAllRefuse opens a new session when every GPU fails: so it is after a container lost its devices, or the driver
// was reloaded.
func (s *Sampler) checkAllRefuse() {
	if s.allFailing() && s.session.intent == intentNone &&
		(!s.session.hasReopened || s.clock-s.session.reopened >= reopenEvery) {
		s.session.hasReopened, s.session.reopened = true, s.clock
		s.session.intent, s.session.message = intentReopen, "every GPU fails"
	}
}

// reopenForMissing opens a new session, at increasing intervals, while a GPU of the PCI bus is missing: the library
// enumerates GPUs when it is initialized, so no scan within the session would list one that came back. It costs the
// other GPUs one poll.
func (s *Sampler) reopenForMissing() {
	st := &s.session
	if st.state != sessionOpen {
		return
	}
	switch {
	case !slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.state == gpu.DeviceMissing }):
		st.seekAt = 0
	case st.seekAt == 0:
		st.seekWait = minSeek
		st.seekAt = s.clock + st.seekWait
	case s.clock >= st.seekAt && st.intent == intentNone:
		st.seekWait = min(2*st.seekWait, maxSeek)
		st.seekAt = s.clock + st.seekWait
		st.intent, st.message = intentReopen, "searching for a missing GPU"
	}
}

// allFailing reports whether every GPU of the driver fails for an unknown reason.
func (s *Sampler) allFailing() bool {
	some := false
	for _, t := range s.devs {
		if t.dev == nil {
			continue
		}
		if t.failErr == nil {
			return false
		}
		some = true
	}
	return some && s.session.state == sessionOpen
}

// driverError returns what is wrong with the driver in one line, empty if nothing is.
func (s *Sampler) driverError() string {
	st := &s.session
	age := s.o.Watch().Sub(st.opStarted)
	switch {
	case st.op != "" && age >= s.o.Deadline:
		return fmt.Sprintf("%s: no response for %s", st.op, age.Round(time.Second))
	case s.paused() && st.pause.reason == reasonBinding && !s.pausedFor(reasonBinding):
		return "" // every GPU is bound to another driver
	case s.pausedFor(reasonSuspend):
		return ""
	case s.paused():
		return st.message
	case st.state != sessionOpen && st.message != "":
		return st.message
	case st.state != sessionOpen:
		return "NVML is not initialized yet"
	case s.allFailing():
		return "every GPU fails: if the container lost its devices (after systemctl daemon-reload), restart it"
	case len(s.devs) > 0 && !slices.ContainsFunc(s.devs,
		func(t *tracked) bool { return t.dev != nil && t.state == gpu.DeviceUp }):
		return "no GPU is available"
	}
	return ""
}

// shutdown waits a moment for calls in progress and shuts down NVML, unless a call hangs.
func (s *Sampler) shutdown(listener <-chan struct{}) {
	s.quit = nil
	s.eventSession.Store(nil)
	limit := s.limit(shutdownWait)
	for !limit.over && (s.busy() || listener != nil) {
		select {
		case a := <-s.readings:
			s.accept(a)
		case r := <-s.results:
			s.apply(r)
			s.eventSession.Store(nil) // it may have been opened just now
		case <-listener:
			listener = nil
		case <-limit.c():
			limit.end()
		}
	}
	live := s.session.live
	switch {
	case live == nil:
		return
	case limit.over:
		s.log.Warn("driver call hangs: NVML is left initialized")
		return
	}
	s.session.intent = intentReopen
	s.start(opClose, func() result { return result{err: live.Close()} })
	select {
	case r := <-s.results:
		s.apply(r)
	case <-s.limit(closeWait).c():
		s.log.Warn("NVML shutdown timed out")
	}
}

// pollEvents receives the available events if no listener runs.
func (s *Sampler) pollEvents(limit *waitLimit) {
	if s.session.state != sessionOpen || s.session.op != "" || s.session.intent != intentNone {
		return
	}
	live := s.session.live
	s.start(opPoll, func() result {
		events, err := live.WaitEvents(0)
		s.noteBindings(live)
		return result{events: events, err: err}
	})
	s.await(limit)
}
