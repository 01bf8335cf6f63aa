package sampler

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxFailures is how many fast reads in a row may fail for an unknown reason before the GPU counts as failed.
const maxFailures = 3

// accept applies the result of a job, however late.
func (s *Sampler) accept(a *reading) {
	t := a.dev
	// A process that was stopped meanwhile has not seen it hang, and yet read memory and processes at different times.
	if t.hung || slices.Max(a.durations[:]) >= s.o.Deadline {
		s.log.Info("hung driver call returned", "gpu", t.id.UUID, "after", s.o.Watch().Sub(t.started).Round(time.Second))
		t.medium.due, t.slow.due = true, true // their values expired meanwhile
		for i, err := range a.errs {
			if a.attempted[i] && err == nil {
				a.attempted[i] = false // it may have been read before the call that hung: too old
			}
		}
	}
	t.pending, t.hung = false, false
	filter := s.ledger.Filter()
	fast := a.attempted[pollFast] && s.acceptFast(a, filter)
	medium := a.attempted[pollMedium] && s.acceptMedium(a, filter)
	slow := a.attempted[pollSlow] && s.acceptSlow(a, filter)
	if fast || medium || slow {
		t.known = true
		s.success = gpu.Some(s.now)
	}
	if a.renewed {
		t.notOffered = a.notOffered
	}
	for i, took := range a.durations {
		if a.attempted[i] && took >= s.durations[i].Or(0) {
			s.durations[i] = gpu.Some(took)
		}
	}
	s.acceptErrors(a)
	switch {
	case t.fast.failures >= maxFailures:
		t.failErr = a.errs[pollFast]
	case t.failErr != nil:
		t.failErr, t.medium.due, t.slow.due = nil, true, true // published again in full
	}
}

func (s *Sampler) acceptFast(a *reading, filter *account.Filter) bool {
	t := a.dev
	if !record(s, t, &t.fast, a.fast, a.errs[pollFast], func(f *gpu.Fast) {
		filter.Fast(f)
		t.frozen.fast(f, s.clock)
	}) {
		return false
	}
	t.freshFast = true
	t.slow.due = t.slow.due || a.fast.LayoutStale
	if a.samples {
		s.measureRing(t, a.fast)
		t.sampled, t.freshSamples = sampledProcesses(a.fast), true
		if a.fast.Busy.Present() {
			t.sampledAt = s.clock
		}
	}
	return true
}

func (s *Sampler) acceptMedium(a *reading, filter *account.Filter) bool {
	t := a.dev
	if s.o.Users == nil {
		// Without the host's PID namespace the driver lists an unknown part of the processes.
		a.medium.Processes = gpu.None[[]gpu.Process]()
	}
	for i := range a.medium.Cgroups {
		m := &a.medium.Cgroups[i]
		m.Reason = gpu.UnattributedUnresolved
		if s.o.Cgroups != nil {
			m.Container, m.Reason = s.o.Cgroups.Owner(m.Path)
		}
	}
	before := t.medium.value.Or(&gpu.Medium{}).Processes.Or(nil)
	if !record(s, t, &t.medium, a.medium, a.errs[pollMedium], func(m *gpu.Medium) {
		if u, found := t.guard.Check(&t.id, s.session.system.Or(gpu.System{}).Wrapper, m); found {
			s.log.Warn("memory readings dropped", "gpu", t.id.UUID, "reason", u.Reason, "detail", u.Detail)
		}
		filter.Medium(m)
		if u, found := t.frozen.medium(m, s.clock); found {
			s.log.Warn("sensor readings dropped", "gpu", t.id.UUID, "reason", u.Reason, "detail", u.Detail)
		}
	}) {
		return false
	}
	t.freshMedium = true
	t.slow.due = t.slow.due || a.medium.LayoutStale
	now := a.medium.Processes.Or(nil)
	if slices.ContainsFunc(before, func(p gpu.Process) bool {
		return !slices.ContainsFunc(now, func(n gpu.Process) bool { return n.PID == p.PID })
	}) {
		t.samplesSoon = s.clock + churn
	}
	if m, ok := a.medium.Memory.Get(); ok {
		t.memory = gpu.Some(m.Total)
	}
	if action, ok := a.medium.Recovery.Get(); ok {
		if before, had := t.recovery.Get(); had && before != action {
			t.slow.due = true
		}
		t.recovery = gpu.Some(action)
	}
	return true
}

func (s *Sampler) acceptSlow(a *reading, filter *account.Filter) bool {
	t := a.dev
	if !record(s, t, &t.slow, a.slow, a.errs[pollSlow], filter.Slow) {
		return false
	}
	t.layout = a.slow
	t.linksUp = max(t.linksUp, a.slow.NVLinks.Or(gpu.NVLinkCount{}).Up)
	s.watchMIG(t, a.slow)
	return true
}

// acceptErrors applies the errors of a job's poll groups.
func (s *Sampler) acceptErrors(a *reading) {
	t := a.dev
	for i, err := range a.errs {
		if a.attempted[i] {
			t.panicked[i] = nil
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, gpu.ErrPanic):
			t.panicked[i] = err
			s.panics.Add(1)
		case sessionEnded(err):
			s.endSession(err)
		case lost(err):
			t.lostErr = err
		}
		s.errors++
	}
}

// measureRing adapts to the depth of the driver's sample ring, once that was read in full: half of it may pass between
// two reads. For a shallow ring the fast interval is shortened; a deep one is read in every second or third poll, since
// each read stops all GPUs of the node.
func (s *Sampler) measureRing(t *tracked, f *gpu.Fast) {
	depth := time.Duration(account.RingSpan(f.Busy.Or(nil)) * float64(time.Second)).Round(time.Microsecond)
	if !f.RingFull || depth == 0 {
		return
	}
	if every := min(depth/2, maxSpacing*s.o.Fast).Truncate(s.o.Fast); every > s.o.Fast {
		t.samplesEvery, t.samplesSoon = every, s.clock+churn
	}
	if interval := max(depth/2, min(minFast, s.o.Fast)); interval < s.fast {
		s.fast = interval
		s.log.Info("fast poll interval reduced: sample ring too short", "gpu", t.id.UUID, "ring", depth, "interval", interval)
	}
}

// record stores the outcome of one poll group and reports whether it succeeded.
func record[T any](s *Sampler, t *tracked, l *pollGroup[T], value *T, err error, clean func(*T)) bool {
	l.tried, l.due, l.read = true, false, s.clock
	if err != nil {
		l.value = gpu.None[*T]()
		l.failures++
		if l.failures == 1 && !ends(err) {
			s.log.Warn("GPU poll failed", "gpu", t.id.UUID, "err", err)
		}
		return false
	}
	clean(value)
	l.value, l.succeeded, l.at, l.failures = gpu.Some(value), s.clock, s.now, 0
	return true
}

// sampledProcesses lists the processes that a reading attributes busy time to.
func sampledProcesses(f *gpu.Fast) []int {
	var pids []int
	for _, p := range f.Processes.Or(nil) {
		pids = append(pids, p.PID)
	}
	for _, p := range f.Accounts.Or(nil) {
		pids = append(pids, p.PID)
	}
	return pids
}
