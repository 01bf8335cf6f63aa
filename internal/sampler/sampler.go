package sampler

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// New returns a Sampler that is not running.
func New(o Options) *Sampler {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&o.Fast, 2*time.Second)
	def(&o.Medium, 10*time.Second)
	def(&o.Slow, time.Minute)
	def(&o.Deadline, 5*time.Second)
	def(&o.Bound, min(time.Second, o.Fast/2))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Watch == nil {
		o.Watch = time.Now
	}
	s := &Sampler{o: o, log: o.Logger, fast: o.Fast,
		ledger: account.New(account.Options{MaxLag: max(5*time.Second, o.Fast*5/2), Accounts: o.Accounts, Processes: o.Processes,
			Host: o.Host}),
		users: account.Users{}, usersBefore: account.Users{}, resolved: map[int]bool{}, unsettled: map[int]time.Duration{},
		readings: make(chan *reading, 256), results: make(chan result, 1), changed: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.view.Store(&gpu.View{At: o.Clock(), Node: o.Node, Build: o.Build,
		Sources: []gpu.Source{{Name: gpu.SourceNVML, Message: "the first poll has not finished"}},
		Notes:   []string{"The first poll has not finished yet."}})
	return s
}

// Run polls until ctx ends, then shuts down NVML unless a call hangs. It returns within a second of the end.
func (s *Sampler) Run(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quit = ctx.Done()
	defer func() { s.quit = nil }()

	s.listening.Store(true)
	listener := make(chan struct{})
	go func() {
		defer close(listener)
		s.listen(ctx)
	}()
	for ctx.Err() == nil {
		started := s.o.Watch()
		s.poll(s.o.Clock())
		interval := s.fast
		if s.pausedFor(reasonBinding) {
			interval = min(interval, 2*time.Second) // it ends soon after the GPU is bound
		}
		s.rest(ctx, max(interval-s.o.Watch().Sub(started), interval/10))
	}
	s.shutdown(listener)
	s.listening.Store(false)
}

// AllocationsChanged makes Run poll at once if the allocations of a GPU have changed, so that what is counted before and
// after belongs to different containers. It does not block.
func (s *Sampler) AllocationsChanged() { s.wake() }

// rest waits until the next poll.
func (s *Sampler) rest(ctx context.Context, d time.Duration) {
	next := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
			return
		case <-s.changed:
			if s.requested() || s.inventory != nil && s.o.Resolver != nil &&
				!slices.Equal(s.o.Resolver.Allocations(s.inventory).List, s.allocations.List) {
				return
			}
		}
	}
}

// Step does one poll at the time of the caller's clock: it polls events, reads what is due, accounts for the time since
// the previous step, and publishes. It waits for hung calls no longer than Options.Bound.
func (s *Sampler) Step(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poll(now)
}

// Close shuts down NVML after the last Step, under the same conditions as Run at its end.
func (s *Sampler) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutdown(nil)
}

// poll is one iteration of the loop.
func (s *Sampler) poll(now time.Time) {
	elapsed := s.advance(now)
	limit := s.limit(s.o.Bound)
	s.durations = [3]gpu.Opt[time.Duration]{}

	s.drain()
	s.settle()
	s.scanBus()
	s.letSuspend()
	s.stepSession(limit)
	if !s.listening.Load() {
		s.pollEvents(limit)
	}
	s.allocate()
	s.dispatch()
	s.collect(limit)
	s.updateStates()
	s.takeEvents()
	s.account(elapsed)
	s.publish()
}

// advance moves the clocks and returns the time since the previous poll, however long: times of Options.Clock have the
// monotonic clock in them, which neither a suspended machine nor an administrator moves.
func (s *Sampler) advance(now time.Time) time.Duration {
	elapsed := time.Duration(0)
	if s.started {
		elapsed = max(now.Sub(s.last), 0)
	}
	s.started, s.last, s.now = true, now, now
	s.clock += elapsed
	return elapsed
}

// account passes the readings to the ledger.
func (s *Sampler) account(elapsed time.Duration) {
	r := account.Poll{Now: s.now, Elapsed: elapsed, GPUs: make([]account.Reading, 0, len(s.devs))}
	for _, t := range s.devs {
		if t.state == gpu.DeviceDetached {
			continue
		}
		reading := account.Reading{Identity: t.id, Availability: t.availability(s), Slow: t.layout, Spacing: t.samplesEvery}
		if reading.Availability == account.Readable {
			if t.freshFast {
				reading.Fast, _ = t.fast.value.Get()
			}
			reading.Medium = t.medium.value.Or(nil)
		}
		r.GPUs = append(r.GPUs, reading)
	}
	before := s.inventory
	s.updateInventory()
	if pending, ok := s.pending.Get(); ok && s.inventory == before {
		s.allocations = pending
	} else if s.o.Resolver != nil {
		s.allocations = s.o.Resolver.Allocations(s.inventory)
	}
	r.Allocations = s.allocations
	if s.o.Users != nil {
		r.Users, r.Command = s.findUsers(), s.o.Command
	}
	if s.o.Cgroups != nil {
		r.Cgroups = s.o.Cgroups.Memory()
	}
	if s.o.Sources != nil {
		s.others = s.o.Sources()
	}
	r.Events, r.KernelLog = s.up(gpu.SourceEvents), s.up(gpu.SourceKmsg)
	s.ledger.Advance(r)
	for _, t := range s.devs {
		t.freshFast, t.freshMedium, t.freshSamples = false, false, false
	}
}

// allocate gets the allocations before the GPUs are read: the samples of a GPU whose allocations changed are due, since
// they belong to the previous ones.
func (s *Sampler) allocate() {
	s.pending = gpu.None[gpu.Allocations]()
	if s.o.Resolver == nil || s.inventory == nil {
		return
	}
	now := s.o.Resolver.Allocations(s.inventory)
	s.pending = gpu.Some(now)
	news := len(now.Unresolved) > 0 && !slices.Equal(now.Unresolved, s.allocations.Unresolved)
	for _, t := range s.devs { // it may be an instance that was created since
		t.slow.due = t.slow.due || news && t.layout != nil && t.layout.MIGMode.Or(gpu.ModePair{}).Current
	}
	if slices.Equal(now.List, s.allocations.List) { // as in most polls
		return
	}
	for _, t := range s.devs {
		of := func(a gpu.Allocations) []gpu.Allocation {
			return slices.DeleteFunc(slices.Clone(a.List), func(h gpu.Allocation) bool { return h.GPU != t.id.UUID })
		}
		if t.samplesEvery > 0 && !slices.Equal(of(now), of(s.allocations)) {
			t.samplesSoon = s.clock + churn
		}
	}
}

// findUsers resolves every process that was listed or sampled, in this poll if it is new, or was listed or sampled
// again: its PID may have been reused.
func (s *Sampler) findUsers() account.Users {
	users, resolved := s.usersBefore, s.resolved
	clear(users)
	clear(resolved)
	s.due = s.due[:0]
	find := func(pid int, again bool) {
		if resolved[pid] {
			return
		}
		who, known := s.users[pid]
		if !known || again {
			resolved[pid] = true
			s.due = append(s.due, pid)
			return
		}
		users[pid] = who
	}
	for _, t := range s.devs {
		if m, ok := t.medium.value.Get(); ok {
			list := m.Processes.Or(nil)
			for i := range list {
				find(list[i].PID, t.freshMedium)
			}
		}
		if !t.fast.value.Present() {
			continue
		}
		for _, p := range t.sampled {
			if _, known := s.users[p]; !known {
				t.samplesSoon = s.clock + churn
			}
			find(p, t.freshSamples)
		}
	}
	s.o.Users.Expect(s.due)
	for _, pid := range s.due {
		users[pid] = s.o.Users.Find(pid)
		if was, known := s.users[pid]; known && users[pid] != was && users[pid].Reason == gpu.UnattributedUnresolved {
			s.unsettled[pid] = s.clock
		}
	}
	s.keepUnsettled(users)
	s.users, s.usersBefore = users, s.users
	return users
}

// keepUnsettled keeps a PID that changed hands unresolved until the rings of every GPU have been read since: their next samples are
// of both owners.
func (s *Sampler) keepUnsettled(users account.Users) {
	for pid, since := range s.unsettled {
		if _, ok := users[pid]; !ok {
			delete(s.unsettled, pid)
			continue
		}
		if since < s.clock {
			users[pid] = account.User{Reason: gpu.UnattributedUnresolved}
		}
		if !slices.ContainsFunc(s.devs, func(t *tracked) bool {
			return t.fast.value.Present() && t.samplesEvery > 0 && t.sampledAt < since
		}) || s.clock-since > churn {
			delete(s.unsettled, pid)
			continue
		}
		for _, t := range s.devs {
			t.samplesSoon = max(t.samplesSoon, s.clock+s.fast)
		}
	}
}
