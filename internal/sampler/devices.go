package sampler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxFailures is how many fast reads in a row may fail for an unknown reason before the GPU counts as failed.
const maxFailures = 3

// do reads the poll groups, cheapest first. It stops at an error of the whole GPU or driver.
func (j job) do(watch func() time.Time) *reading {
	a := &reading{job: j}
	for i, read := range []func() error{
		func() (err error) { a.fast = new(gpu.Fast); *a.fast, err = j.from.Fast(j.samples); return err },
		func() (err error) { a.medium = new(gpu.Medium); *a.medium, err = j.from.Medium(); return err },
		func() (err error) { a.slow = new(gpu.Slow); *a.slow, err = j.from.Slow(); return err },
	} {
		if !j.pollGroups[i] {
			continue
		}
		started := watch()
		a.errs[i] = gpu.Recovered(read)
		a.durations[i], a.attempted[i] = watch().Sub(started), true
		if ends(a.errs[i]) {
			return a
		}
	}
	if a.attempted[pollSlow] {
		a.notOffered, a.renewed = j.from.NotOffered(), true
	}
	return a
}

// ends reports whether an error concerns the whole GPU or driver.
func ends(err error) bool {
	return lost(err) || sessionEnded(err)
}

// lost reports whether an error means that the GPU is lost.
func lost(err error) bool {
	return errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired)
}

// sessionEnded reports whether an error means that the session has ended.
func sessionEnded(err error) bool {
	return errors.Is(err, gpu.ErrUninitialized) || errors.Is(err, gpu.ErrVersionMismatch) ||
		errors.Is(err, gpu.ErrNoDriver)
}

// dispatch starts the reads that are due, one goroutine per GPU, none for a GPU whose last one is in progress, or was received
// in this poll: it is accounted for before the next one.
func (s *Sampler) dispatch() {
	if s.session.state != sessionOpen || s.session.intent != intentNone && !s.hangs() {
		return // NVML is shut down as soon as no call is in progress
	}
	slack := s.o.Fast / 2
	for _, t := range s.devs {
		if t.dev == nil || t.pending || t.lostErr != nil || t.freshFast {
			continue
		}
		j := job{dev: t, from: t.dev}
		j.pollGroups[pollFast] = true
		j.samples = t.fast.due || s.clock-t.sampledAt >= t.samplesEvery-slack || s.clock <= t.samplesSoon
		j.pollGroups[pollMedium] = t.medium.dueAt(s.clock, s.o.Medium-slack)
		j.pollGroups[pollSlow] = t.slow.dueAt(s.clock, s.o.Slow-slack)
		t.pending, t.started = true, s.o.Watch()
		go func() { s.readings <- j.do(s.o.Watch) }()
	}
}

func (l *pollGroup[T]) dueAt(clock, interval time.Duration) bool {
	return l.due || !l.tried || clock-l.read >= interval
}

// collect receives results until all GPUs that are not hung have delivered, or the limit is over.
func (s *Sampler) collect(limit *waitLimit) {
	for s.awaited() && !limit.over {
		select {
		case a := <-s.readings:
			s.accept(a)
		case <-limit.c():
			limit.end()
		case <-s.quit:
			limit.end()
		}
	}
	s.drain()
}

// awaited reports whether a result of some GPU is worth waiting for.
func (s *Sampler) awaited() bool {
	return slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.pending && !t.hung })
}

// drain receives the results that are available.
func (s *Sampler) drain() {
	for {
		select {
		case a := <-s.readings:
			s.accept(a)
		default:
			return
		}
	}
}

// settle receives the results of calls that hung and return, where a test knows which ones hang on.
func (s *Sampler) settle() {
	for s.o.Hung != nil && s.busy() {
		select {
		case a := <-s.readings:
			s.accept(a)
		case r := <-s.results:
			s.apply(r)
		case <-s.o.Hung(s.calls()):
			return
		}
	}
}

// busy reports whether a driver call is in progress.
func (s *Sampler) busy() bool { return s.calls() > 0 }

// hangs reports whether a driver call hangs, so that NVML cannot be shut down.
func (s *Sampler) hangs() bool {
	return s.session.op != "" && s.o.Watch().Sub(s.session.opStarted) >= s.o.Deadline ||
		slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.hung })
}

// accept applies the result of a job, however late.
func (s *Sampler) accept(a *reading) {
	t := a.dev
	if t.hung {
		s.log.Info("hung driver call returned", "gpu", t.id.UUID, "after",
			s.o.Watch().Sub(t.started).Round(time.Second))
	}
	if t.hung {
		t.medium.due, t.slow.due = true, true // their values expired meanwhile
		for i, err := range a.errs {
			if a.attempted[i] && err == nil {
				a.attempted[i] = false // it may have been read before the call that hung: too old
			}
		}
	}
	t.pending, t.hung = false, false
	filter := s.ledger.Filter()
	ok := false
	if a.attempted[pollFast] && record(s, t, &t.fast, a.fast, a.errs[pollFast], filter.Fast) {
		ok, t.freshFast = true, true
		if a.samples {
			s.measureRing(t, a.fast)
			t.sampled, t.freshSamples = sampledProcesses(a.fast), true
			if a.fast.Busy.Present() {
				t.sampledAt = s.clock
			}
		}
	}
	if a.attempted[pollMedium] {
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
		if record(s, t, &t.medium, a.medium, a.errs[pollMedium], func(m *gpu.Medium) {
			if u, found := t.guard.Check(&t.id, s.session.system.Or(gpu.System{}).Wrapper, m); found {
				s.log.Warn("memory readings dropped", "gpu", t.id.UUID, "reason", u.Reason, "detail", u.Detail)
			}
			filter.Medium(m)
		}) {
			ok, t.freshMedium = true, true
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
		}
	}
	if a.attempted[pollSlow] && record(s, t, &t.slow, a.slow, a.errs[pollSlow], filter.Slow) {
		ok = true
		t.layout = a.slow
		t.linksUp = max(t.linksUp, a.slow.NVLinks.Or(gpu.NVLinkCount{}).Up)
		s.watchMIG(t, a.slow)
	}
	if a.renewed {
		t.notOffered = a.notOffered
	}
	for i, took := range a.durations {
		if a.attempted[i] && took >= s.durations[i].Or(0) {
			s.durations[i] = gpu.Some(took)
		}
	}
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
	if ok {
		t.known = true
		s.success = gpu.Some(s.now)
	}
	switch {
	case t.fast.failures >= maxFailures:
		t.failErr = a.errs[pollFast]
	case t.failErr != nil:
		t.failErr, t.medium.due, t.slow.due = nil, true, true // published again in full
	}
	s.checkLayout(t)
}

// measureRing adapts to the depth of the driver's sample ring, once that was read in full: half of it may pass between
// two reads. For a shallow ring the fast interval is shortened; a deep one is read in every second or third poll, since
// each read stops all GPUs of the node.
func (s *Sampler) measureRing(t *tracked, f *gpu.Fast) {
	depth := time.Duration(account.RingSpan(f) * float64(time.Second))
	if t.measured || depth == 0 {
		return
	}
	t.measured = true
	if every := min(depth/2, maxSpacing*s.o.Fast).Truncate(s.o.Fast); every > s.o.Fast {
		t.samplesEvery, t.samplesSoon = every, s.clock+churn
	}
	if interval := max(depth/2, min(minFast, s.o.Fast)); interval < s.fast {
		s.fast = interval
		s.log.Info("fast poll interval reduced: sample ring too short", "gpu", t.id.UUID,
			"ring", depth, "interval", interval)
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

// expire drops a value that is too old: its poll group has not succeeded for three intervals.
func (l *pollGroup[T]) expire(clock, interval time.Duration) {
	if clock-l.succeeded > 3*interval {
		l.value = gpu.None[*T]()
	}
}

// checkLayout makes the slow poll group due when the fast one lists other instances than the last MIG layout.
func (s *Sampler) checkLayout(t *tracked) {
	f, ok := t.fast.value.Get()
	if !ok || t.layout == nil {
		return
	}
	for _, in := range f.Instances {
		if !slices.ContainsFunc(t.layout.Instances, func(l gpu.Instance) bool { return l.UUID == in.UUID }) {
			t.slow.due = true
		}
	}
}

// updateStates sets the state of every GPU.
func (s *Sampler) updateStates() {
	for _, t := range s.devs {
		if t.pending && !t.hung && s.o.Watch().Sub(t.started) >= s.o.Deadline {
			t.hung = true
			s.errors++
			s.log.Error("driver call timed out; polling of this GPU suspended", "gpu", t.id.UUID, "deadline",
				s.o.Deadline)
		}
		t.fast.expire(s.clock, max(s.o.Fast, s.o.Deadline))
		t.medium.expire(s.clock, s.o.Medium)
		t.slow.expire(s.clock, s.o.Slow)
		t.state, t.message = s.stateOf(t)
		up := t.state == gpu.DeviceUp
		if !up {
			t.fast.value, t.medium.value, t.slow.value = gpu.None[*gpu.Fast](), gpu.None[*gpu.Medium](),
				gpu.None[*gpu.Slow]()
		}
		switch {
		case t.state == t.loggedState:
		case up && t.known:
			t.samplesSoon = s.clock + churn // until the first of them its time is unknown
			s.log.Info("GPU available", "gpu", t.id.UUID, "pci", t.id.PCI)
		case !up && (t.loggedState == gpu.DeviceUp || s.session.state == sessionOpen):
			s.log.Error("GPU unavailable", "gpu", t.id.UUID, "pci", t.id.PCI, "state", t.state, "err", t.message)
		}
		t.loggedState = t.state
	}
}

// stateOf returns the state of a GPU, and why it is not up.
func (s *Sampler) stateOf(t *tracked) (gpu.DeviceState, string) {
	onBus, detached := s.expected.has(t.id.PCI)
	switch {
	case t.hung:
		return gpu.DeviceFailed, fmt.Sprintf("hung for %s: a driver call timed out",
			s.o.Watch().Sub(t.started).Round(time.Second))
	case t.dev == nil && detached:
		return gpu.DeviceDetached, "bound to another driver"
	case s.paused() && t.dev != nil && t.lostErr == nil && t.failErr == nil:
		return gpu.DeviceUp, "suspended while a MIG change is pending"
	case s.session.state != sessionOpen && t.known:
		return gpu.DeviceFailed, "NVML is not available: " + s.session.message
	case t.dev == nil && onBus:
		return gpu.DeviceMissing, "on the PCI bus, but not listed by the driver; check its last XID and the kernel log"
	case t.dev == nil:
		return gpu.DeviceFailed, "no longer listed by the driver"
	case t.lostErr != nil:
		return gpu.DeviceFailed, t.lostErr.Error()
	case t.failErr != nil:
		return gpu.DeviceFailed, t.failErr.Error()
	case errors.Join(t.panicked[:]...) != nil:
		return gpu.DeviceFailed, errors.Join(t.panicked[:]...).Error()
	}
	return gpu.DeviceUp, ""
}

// failure classifies why a failed GPU cannot be read.
func (t *tracked) failure() gpu.Failure {
	switch {
	case t.hung:
		return gpu.FailureHung
	case errors.Is(t.lostErr, gpu.ErrLost):
		return gpu.FailureLost
	case errors.Is(t.lostErr, gpu.ErrResetRequired):
		return gpu.FailureReset
	}
	return gpu.FailureOther
}

// availability maps the state of a GPU to the ledger's.
func (t *tracked) availability(s *Sampler) account.Availability {
	switch {
	case t.state != gpu.DeviceUp:
		return account.Unavailable
	case s.paused():
		return account.Unread
	}
	return account.Readable
}

// adopt applies the GPU list of a scan.
func (s *Sampler) adopt(devs []GPU) {
	seen := map[*tracked]bool{}
	for _, dev := range devs {
		id := dev.Identity()
		i := slices.IndexFunc(s.devs, func(t *tracked) bool { return t.id.UUID == id.UUID })
		if i < 0 {
			// The previous GPU at that address was replaced, or had no UUID yet.
			s.devs = slices.DeleteFunc(s.devs, func(t *tracked) bool {
				old := id.PCI != "" && t.id.PCI == id.PCI && !t.pending
				if old {
					s.ledger.Forget(t.id.UUID)
				}
				return old
			})
			s.devs = append(s.devs, &tracked{id: id, index: id.Index, state: gpu.DeviceUp})
			i = len(s.devs) - 1
			s.log.Info("GPU discovered", "gpu", id.UUID, "pci", id.PCI, "model", id.Model)
		}
		t := s.devs[i]
		seen[t] = true
		t.index = id.Index
		if t.id.Index >= 0 {
			id.Index = t.id.Index
		}
		if id.Model == "" && t.id.Model != "" {
			id = t.id // it cannot be read now: keep its last identity
		}
		if t.dev == nil || t.dev != dev {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		t.id, t.dev, t.lostErr = id, dev, nil
	}
	s.devs = slices.DeleteFunc(s.devs, func(t *tracked) bool {
		if seen[t] || t.pending {
			return false
		}
		t.dev = nil
		if t.known {
			return false
		}
		if onBus, _ := s.expected.has(t.id.PCI); onBus {
			return false
		}
		s.ledger.Forget(t.id.UUID)
		return true
	})
	s.sortGPUs()
}

// sortGPUs sorts by index, then PCI address; GPUs that NVML never listed come last.
func (s *Sampler) sortGPUs() {
	gpu.Sort(s.devs, func(a, b *tracked) int {
		switch {
		case a.id.Index != b.id.Index && (a.id.Index < 0 || b.id.Index < 0):
			return b.id.Index - a.id.Index
		case a.id.Index != b.id.Index:
			return a.id.Index - b.id.Index
		}
		return cmp.Compare(a.id.PCI, b.id.PCI)
	})
}

// updateInventory replaces the inventory when it changed.
func (s *Sampler) updateInventory() {
	inv := &gpu.Inventory{}
	for _, t := range s.devs {
		if !t.known && t.dev == nil {
			continue
		}
		c := gpu.InventoryGPU{UUID: t.id.UUID, Index: t.index, Minor: t.id.Minor, PCI: t.id.PCI, Memory: t.memory}
		if t.layout != nil {
			mode, _ := t.layout.MIGMode.Get()
			c.MIG, c.Instances = mode.Current, t.layout.Instances
		}
		inv.GPUs = append(inv.GPUs, c)
	}
	if s.inventory == nil || !slices.EqualFunc(inv.GPUs, s.inventory.GPUs, sameGPU) {
		s.inventory = inv
	}
}

func sameGPU(a, b gpu.InventoryGPU) bool {
	return a.UUID == b.UUID && a.Index == b.Index && a.Minor == b.Minor && a.PCI == b.PCI && a.MIG == b.MIG &&
		a.Memory == b.Memory &&
		slices.EqualFunc(a.Instances, b.Instances, func(x, y gpu.Instance) bool {
			return x.UUID == y.UUID && x.GI == y.GI && x.Profile == y.Profile && x.Slices == y.Slices &&
				x.Share == y.Share &&
				x.PlacementStart == y.PlacementStart && x.PlacementSize == y.PlacementSize &&
				x.ProfileID == y.ProfileID &&
				slices.Equal(x.Compute, y.Compute)
		})
}

// watchMIG shuts down NVML when a change of the MIG mode is pending, which waits for open clients: once for everything
// that is pending on the node. A change that was pending when the exporter started does not count: it was not blocked by
// this process. On Ampere the mode changes with a reset of the GPU only, for which NVML has to be released anyway.
func (s *Sampler) watchMIG(t *tracked, slow *gpu.Slow) {
	mode, ok := slow.MIGMode.Get()
	first := !t.migSeen
	t.migSeen = true
	if ok && mode.Current == mode.Pending {
		t.migAnnounced = false
	}
	if !ok || mode.Current == mode.Pending || t.migAnnounced {
		return
	}
	t.migAnnounced = true
	if first || t.id.Architecture == resetForMIG {
		s.log.Info("MIG mode change pending", "gpu", t.id.UUID, "enabled", mode.Pending, "needs_reset", t.id.Architecture == resetForMIG)
		return
	}
	if s.session.pauseAt == 0 && s.session.intent == intentNone {
		// The other GPUs' changes are awaited: a tool sets one after the other.
		s.session.pauseAt = s.clock + pauseDelay
		for _, other := range s.devs {
			other.slow.due = true
		}
	}
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
