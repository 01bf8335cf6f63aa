package sampler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// tolerated is how many fast reads in a row may fail, for no reason that is known, before the GPU counts
// as failed.
const tolerated = 3

// The positions of the poll groups in arrays.
const (
	pollFast = iota
	pollMedium
	pollSlow
)

// poll group is what one poll group of one GPU has given.
type pollGroup[T any] struct {
	value gpu.Opt[*T]   // absent after a failure, or when it is too old
	read  time.Duration // the sampler's clock at the last attempt
	good  time.Duration // at the last success
	tried bool
	at    time.Time // exporter's clock at the last success; zero: never
	due   bool      // to be read in the next round, whatever the interval
	bad   int       // failures in a row
}

// tracked is what the sampler knows of one GPU.
type tracked struct {
	id    gpu.Identity // with the index under which it was first seen
	index int          // NVML's index now
	dev   GPU          // nil while NVML does not show it

	// pending is set while a job is under way; began is when, by the real clock.
	pending bool
	began   time.Time
	stuck   bool

	given error           // why it is not asked any more until the next scan
	ill   error           // why it counts as failed although it is asked
	told  gpu.DeviceState // the state that the log has
	known bool            // some poll group was read at some time

	state gpu.DeviceState
	why   string

	fast                   pollGroup[gpu.Fast]
	medium                 pollGroup[gpu.Medium]
	slow                   pollGroup[gpu.Slow]
	freshFast, freshMedium bool
	layout                 *gpu.Slow // the last slow reading, for the MIG layout of a GPU that is not read
	recovery               gpu.Opt[gpu.RecoveryAction]
	memory                 gpu.Opt[gpu.Bytes] // total, as last read
	notOffered             []string
	measured               bool // the depth of its ring was looked at
	migAnnounced           bool // a pending MIG change was answered already
	past                   past
}

// job is what is to be read of one GPU.
type job struct {
	dev        *tracked
	from       GPU
	pollGroups [3]bool
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

// do reads the poll groups, cheapest first. What fails as a whole is not asked further.
func (j job) do(watch func() time.Time) answer {
	a := answer{job: j}
	for i, read := range []func() error{
		func() (err error) { a.fast, err = j.from.Fast(); return err },
		func() (err error) { a.medium, err = j.from.Medium(); return err },
		func() (err error) { a.slow, err = j.from.Slow(); return err },
	} {
		if !j.pollGroups[i] {
			continue
		}
		began := watch()
		a.errs[i] = read()
		a.took[i], a.asked[i] = watch().Sub(began), true
		if ends(a.errs[i]) {
			return a
		}
	}
	if a.asked[pollSlow] {
		a.notOffered, a.renewed = j.from.NotOffered(), true
	}
	return a
}

// ends reports whether an error speaks of the whole GPU or driver.
func ends(err error) bool {
	return lost(err) || over(err)
}

// lost reports whether an error says that a GPU is gone.
func lost(err error) bool {
	return errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired)
}

// over reports whether an error says that the session is.
func over(err error) bool {
	return errors.Is(err, gpu.ErrUninitialized) || errors.Is(err, gpu.ErrVersionMismatch) || errors.Is(err, gpu.ErrNoDriver)
}

// dispatch starts the reads that are due, one goroutine per GPU, none for a GPU whose last one is still
// under way.
func (s *Sampler) dispatch() {
	if s.session.state != sessionOpen || s.session.want != wantNothing && !s.hangs() {
		return // the driver is let go as soon as nothing is under way
	}
	slack := s.o.Fast / 2
	for _, t := range s.devs {
		if t.dev == nil || t.pending || t.given != nil {
			continue
		}
		j := job{dev: t, from: t.dev}
		j.pollGroups[pollFast] = true
		j.pollGroups[pollMedium] = t.medium.dueAt(s.clock, s.o.Medium-slack)
		j.pollGroups[pollSlow] = t.slow.dueAt(s.clock, s.o.Slow-slack)
		t.pending, t.began = true, s.o.Watch()
		go func() { s.answers <- j.do(s.o.Watch) }()
	}
}

func (l *pollGroup[T]) dueAt(clock, interval time.Duration) bool {
	return l.due || !l.tried || clock-l.read >= interval
}

// collect takes answers until all GPUs that are not stuck have given one, or the round's time is over.
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

// awaited reports whether some GPU's answer is worth waiting for.
func (s *Sampler) awaited() bool {
	return slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.pending && !t.stuck })
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
	return s.session.op != "" || slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.pending })
}

// hangs reports whether a call to the driver does not return, so that the driver cannot be let go.
func (s *Sampler) hangs() bool {
	return s.session.op != "" && s.o.Watch().Sub(s.session.opBegan) >= s.o.Deadline ||
		slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.stuck })
}

// accept takes what came of a job, however late.
func (s *Sampler) accept(a answer) {
	t := a.dev
	if t.stuck {
		s.log.Info("a GPU that was stuck answers again", "gpu", t.id.UUID, "after", s.o.Watch().Sub(t.began).Round(time.Second))
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
	sieve := s.ledger.Filter()
	ok := false
	if a.asked[pollFast] && settle(s, t, &t.fast, &a.fast, a.errs[pollFast], sieve.Fast) {
		ok, t.freshFast = true, true
		s.measureRing(t, &a.fast)
	}
	if a.asked[pollMedium] {
		if s.o.Users == nil {
			// Without the host's PID namespace the driver shows a part of the processes, and which is unknown.
			a.medium.Processes = gpu.None[[]gpu.Process]()
		}
		if settle(s, t, &t.medium, &a.medium, a.errs[pollMedium], sieve.Medium) {
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
	if a.asked[pollSlow] && settle(s, t, &t.slow, &a.slow, a.errs[pollSlow], sieve.Slow) {
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
		t.ill = a.errs[pollFast]
	case t.ill != nil:
		t.ill, t.medium.due, t.slow.due = nil, true, true // what is shown again is shown whole
	}
	s.checkLayout(t)
}

// measureRing makes the fast poll group quicker where the driver's ring, full at the first read, is so shallow that
// samples would be lost.
func (s *Sampler) measureRing(t *tracked, f *gpu.Fast) {
	if t.measured {
		return
	}
	t.measured = true
	depth := time.Duration(account.RingSpan(f) * float64(time.Second))
	if interval := max(depth/2, min(shortestFast, s.o.Fast)); depth > 0 && interval < s.fast {
		s.fast = interval
		s.log.Info("the fast poll group is quicker than asked for: the driver keeps its samples for a short time", "gpu", t.id.UUID,
			"ring", depth, "interval", interval)
	}
}

// settle books the outcome of one poll group and reports whether it succeeded.
func settle[T any](s *Sampler, t *tracked, l *pollGroup[T], value *T, err error, clean func(*T)) bool {
	l.tried, l.due, l.read = true, false, s.clock
	if err != nil {
		l.value = gpu.None[*T]()
		l.bad++
		if l.bad == 1 && !ends(err) {
			s.log.Warn("a poll group of a GPU could not be read", "gpu", t.id.UUID, "error", err)
		}
		return false
	}
	clean(value)
	l.value, l.good, l.at, l.bad = gpu.Some(value), s.clock, s.now, 0
	return true
}

// expire drops a value that is too old to pass for live: its poll group was not read for three intervals.
func (l *pollGroup[T]) expire(clock, interval time.Duration) {
	if clock-l.good > 3*interval {
		l.value = gpu.None[*T]()
	}
}

// checkLayout wants a new MIG layout when the fast poll group shows other instances than the last one.
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

// judge says which state every GPU is in.
func (s *Sampler) judge() {
	for _, t := range s.devs {
		if t.pending && !t.stuck && s.o.Watch().Sub(t.began) >= s.o.Deadline {
			t.stuck = true
			s.errors++
			s.log.Error("a driver call does not return; the GPU is left alone until it does", "gpu", t.id.UUID, "deadline", s.o.Deadline)
		}
		t.fast.expire(s.clock, max(s.o.Fast, s.o.Deadline))
		t.medium.expire(s.clock, s.o.Medium)
		t.slow.expire(s.clock, s.o.Slow)
		t.state, t.why = s.stateOf(t)
		up := t.state == gpu.DeviceUp
		if !up {
			t.fast.value, t.medium.value, t.slow.value = gpu.None[*gpu.Fast](), gpu.None[*gpu.Medium](), gpu.None[*gpu.Slow]()
		}
		switch {
		case t.state == t.told:
		case up && t.known:
			s.log.Info("a GPU can be read", "gpu", t.id.UUID, "pci", t.id.PCI)
		case !up && (t.told == gpu.DeviceUp || s.session.state == sessionOpen):
			s.log.Error("a GPU cannot be read", "gpu", t.id.UUID, "pci", t.id.PCI, "state", t.state, "why", t.why)
		}
		t.told = t.state
	}
}

// stateOf returns the state of a GPU, and why it is not up.
func (s *Sampler) stateOf(t *tracked) (gpu.DeviceState, string) {
	onBus, detached := s.expected.has(t.id.PCI)
	switch {
	case t.stuck:
		return gpu.DeviceFailed, fmt.Sprintf("stuck for %s: a driver call does not return", s.o.Watch().Sub(t.began).Round(time.Second))
	case t.dev == nil && detached:
		return gpu.DeviceDetached, "bound to another driver on purpose"
	case s.paused() && t.dev != nil && t.given == nil && t.ill == nil:
		return gpu.DeviceUp, "left alone while a MIG change is pending"
	case s.session.state != sessionOpen && t.known:
		return gpu.DeviceFailed, "the driver cannot be asked: " + s.session.problem
	case t.dev == nil && onBus:
		return gpu.DeviceMissing, "on the PCI bus, and not known to the driver; look for its last XID and the kernel log"
	case t.dev == nil:
		return gpu.DeviceFailed, "no longer known to the driver"
	case t.given != nil:
		return gpu.DeviceFailed, t.given.Error()
	case t.ill != nil:
		return gpu.DeviceFailed, t.ill.Error()
	}
	return gpu.DeviceUp, ""
}

// availability is the state of a GPU as the ledger wants to know it.
func (t *tracked) availability(s *Sampler) account.Availability {
	switch {
	case t.state != gpu.DeviceUp:
		return account.Unavailable
	case s.paused():
		return account.Unread
	}
	return account.Readable
}

// adopt takes the GPUs of a scan.
func (s *Sampler) adopt(devs []GPU) {
	seen := map[*tracked]bool{}
	for _, dev := range devs {
		id := dev.Identity()
		i := slices.IndexFunc(s.devs, func(t *tracked) bool { return t.id.UUID == id.UUID })
		if i < 0 {
			// Whoever else was at that address is there no more, or had no name yet.
			s.devs = slices.DeleteFunc(s.devs, func(t *tracked) bool {
				old := id.PCI != "" && t.id.PCI == id.PCI && !t.pending
				if old {
					s.ledger.Forget(t.id.UUID)
				}
				return old
			})
			s.devs = append(s.devs, &tracked{id: id, index: id.Index, state: gpu.DeviceUp})
			i = len(s.devs) - 1
			s.log.Info("a GPU was found", "gpu", id.UUID, "pci", id.PCI, "model", id.Model)
		}
		t := s.devs[i]
		seen[t] = true
		t.index = id.Index
		if t.id.Index >= 0 {
			id.Index = t.id.Index
		}
		if id.Model == "" && t.id.Model != "" {
			id = t.id // it cannot be asked now: what it said of itself stands
		}
		if t.dev == nil || t.dev != dev {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		t.id, t.dev, t.given = id, dev, nil
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

// sortGPUs orders by index, then PCI address; GPUs that NVML never showed come last.
func (s *Sampler) sortGPUs() {
	slices.SortStableFunc(s.devs, func(a, b *tracked) int {
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

// updateInventory renews the naming table of the GPUs when it changed.
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
	return a.UUID == b.UUID && a.Index == b.Index && a.Minor == b.Minor && a.PCI == b.PCI && a.MIG == b.MIG && a.Memory == b.Memory &&
		slices.EqualFunc(a.Instances, b.Instances, func(x, y gpu.Instance) bool {
			return x.UUID == y.UUID && x.GI == y.GI && x.Profile == y.Profile && x.Slices == y.Slices && x.Share == y.Share &&
				x.PlacementStart == y.PlacementStart && x.PlacementSize == y.PlacementSize && x.ProfileID == y.ProfileID &&
				slices.Equal(x.Compute, y.Compute)
		})
}
