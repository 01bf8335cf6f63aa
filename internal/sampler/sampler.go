package sampler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Driver opens the GPU driver.
type Driver interface {
	// Open returns a session, or an error that wraps gpu.ErrNoDriver, gpu.ErrNotNVML or
	// gpu.ErrVersionMismatch where one fits. There is one session at a time.
	Open() (Session, error)
}

// Session is an initialized NVML session.
type Session interface {
	// System identifies the driver, as read by Open.
	System() gpu.System
	// Scan lists the GPUs. A GPU that failed and recovered is a new GPU.
	Scan() ([]GPU, error)
	// WaitEvents waits up to timeout and returns the XIDs received. It runs concurrently with everything else.
	WaitEvents(timeout time.Duration) ([]gpu.XIDEvent, error)
	Close() error
}

// GPU is one GPU of a session. Its poll groups are called by one goroutine at a time. Their errors wrap gpu.ErrLost and
// the like where one fits; a single reading that failed is only absent.
type GPU interface {
	Identity() gpu.Identity
	Fast() (gpu.Fast, error)
	Medium() (gpu.Medium, error)
	Slow() (gpu.Slow, error)
	// NotOffered lists the readings that GPU and driver do not offer.
	NotOffered() []string
}

// Resolver returns the allocations of an inventory's GPUs. It must not block.
type Resolver interface {
	Allocations(*gpu.Inventory) gpu.Allocations
}

// Users finds the owner of a process: a container, or the reason why it belongs to none (gpu.UnattributedHost,
// Unresolved). It is called by one goroutine and should be quick.
type Users interface {
	Find(pid int) account.User
}

// VisibleScanner returns the GPUs visible in containers. It must not block.
type VisibleScanner interface {
	Visible(*gpu.Inventory) []gpu.VisibleGPU
}

// Expecter lists the GPUs of the PCI bus, without the driver.
type Expecter interface {
	Expected() ([]Expected, error)
}

// Expected is a GPU of the PCI bus. Detached: it is bound to another driver.
type Expected struct {
	PCI      gpu.PCIAddress
	Detached bool
}

// Options configure a Sampler. Only Driver is required.
type Options struct {
	Node   string
	Build  gpu.Build // of this exporter
	Driver Driver

	Resolver Resolver // nil: allocations are unknown
	// nil: processes cannot be resolved (no host PID namespace); process lists are dropped
	Users          Users
	VisibleScanner VisibleScanner // nil: containers are not scanned
	Expecter       Expecter       // nil: a GPU that NVML does not list cannot be missing
	// GPUs is the expected number of GPUs; 0 if unknown.
	GPUs int
	// Accounts is the maximum number of accounts (container, GPU); account.DefaultAccounts if 0.
	Accounts int

	// Replaced is called when only a new process can load the driver's library, never while a call is in progress. It
	// may be called again with every retry.
	Replaced func()

	// Sources, Calls and Features complete the view. They must be quick and safe to call from the loop.
	Sources  func() []gpu.Source
	Calls    func() []gpu.CallStats
	Features func() []gpu.Feature

	// Published, if set, is called with every view after it was stored, in order and from one goroutine. It must be
	// quick and must not modify the view.
	Published func(*gpu.View)

	// Intervals of the poll groups: 2 s, 10 s and 60 s if 0.
	Fast, Medium, Slow time.Duration
	// Deadline is the timeout of a driver call, after which its GPU counts as hung: 5 s if 0. Bound is how long a poll
	// waits for results before it is published without them: half the fast interval, at most 1 s, if 0.
	Deadline, Bound time.Duration

	// Clock is the time of Run's polls; nil: time.Now. Watch and After measure the duration of driver calls
	// independently of a test clock; nil: time.Now and time.After.
	Clock func() time.Time
	Watch func() time.Time
	After func(time.Duration) <-chan time.Time

	Logger *slog.Logger // nil: discarded
}

const (
	// maxStep is the maximum time of one poll: more is a suspended machine or a clock that was set.
	maxStep = time.Minute
	// minFast is the shortest interval to which the fast poll group adapts for a shallow sample ring.
	minFast = 500 * time.Millisecond
	// eventWait is the duration of one wait for events. Shutdown waits for it.
	eventWait = 400 * time.Millisecond
	// shutdownWait is how long shutdown waits for calls in progress before it leaves NVML initialized, and closeWait
	// how long for nvmlShutdown after that: less than a second together.
	shutdownWait = 600 * time.Millisecond
	closeWait    = 300 * time.Millisecond
)

// Sampler reads, accounts and publishes. Latest and Event are safe for concurrent use; Step and Close must not run
// concurrently with each other or with Run.
type Sampler struct {
	o    Options
	log  *slog.Logger
	view atomic.Pointer[gpu.View]

	inbox struct {
		sync.Mutex
		events []gpu.XIDEvent
	}
	listening    atomic.Bool                // Run's listener receives the events
	eventSession atomic.Pointer[eventWatch] // the session to wait on
	eventWatch   struct {
		sync.Mutex
		err    error
		at     time.Time
		errors uint64
	}

	mu      sync.Mutex // guards what follows; locked by Step, Run and Close
	quit    <-chan struct{}
	ledger  *account.Ledger
	started bool
	last    time.Time     // time of the previous poll
	clock   time.Duration // monotonic time since the first poll
	now     time.Time     // time of this poll
	fast    time.Duration // the fast poll group's interval, adapted to the sample rings

	session     sessionState
	devs        []*tracked
	readings    chan reading
	results     chan result
	expected    expectation
	inventory   *gpu.Inventory
	allocations gpu.Allocations
	users       map[int]account.User
	durations   [3]gpu.Opt[time.Duration]
	success     gpu.Opt[time.Time]
	errors      uint64
}

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
	if o.After == nil {
		o.After = time.After
	}
	s := &Sampler{o: o, log: o.Logger, fast: o.Fast,
		ledger:   account.New(account.Options{MaxLag: max(5*time.Second, o.Fast*5/2), Accounts: o.Accounts}),
		readings: make(chan reading, 256), results: make(chan result, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.view.Store(&gpu.View{At: o.Clock(), Node: o.Node, Build: o.Build,
		Sources: []gpu.Source{{Name: gpu.SourceNVML, Message: "the first poll has not finished"}},
		Notes:   []string{"The first poll has not finished yet."}})
	return s
}

// Latest returns the newest view. It is never nil and never modified.
func (s *Sampler) Latest() *gpu.View { return s.view.Load() }

// Event takes an XID from another data source than the driver's own events, such as the kernel log.
func (s *Sampler) Event(e gpu.XIDEvent) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	s.inbox.events = append(s.inbox.events, e)
}

// Run polls until ctx ends, then shuts down NVML unless a call hangs. It returns nil within a second of the end.
func (s *Sampler) Run(ctx context.Context) error {
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
		rest := max(s.fast-s.o.Watch().Sub(started), s.fast/10)
		select {
		case <-ctx.Done():
		case <-s.o.After(rest):
		}
	}
	s.shutdown(listener)
	s.listening.Store(false)
	return nil
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
	limit := &waitLimit{c: s.o.After(s.o.Bound)}
	s.durations = [3]gpu.Opt[time.Duration]{}

	s.drain()
	s.scanBus()
	s.stepSession(limit)
	if !s.listening.Load() {
		s.pollEvents(limit)
	}
	s.dispatch()
	s.collect(limit)
	s.updateStates()
	s.takeEvents()
	s.account(elapsed)
	s.publish()
}

// waitLimit bounds the waiting of one poll; once it is over it stays so.
type waitLimit struct {
	c            <-chan time.Time
	sessionEnded bool
}

// end is called by the receiver from c.
func (p *waitLimit) end() { p.sessionEnded = true }

// advance moves the clocks and returns the time since the previous poll.
func (s *Sampler) advance(now time.Time) time.Duration {
	elapsed := time.Duration(0)
	if s.started {
		elapsed = min(max(now.Sub(s.last), 0), maxStep)
	}
	s.started, s.last, s.now = true, now, now
	s.clock += elapsed
	return elapsed
}

// account passes the readings to the ledger.
func (s *Sampler) account(elapsed time.Duration) {
	r := account.Poll{Now: s.now, Elapsed: elapsed}
	for _, t := range s.devs {
		if t.state == gpu.DeviceDetached {
			continue
		}
		reading := account.Reading{Identity: t.id, Availability: t.availability(s), Slow: t.layout}
		if reading.Availability == account.Readable {
			if t.freshFast {
				reading.Fast, _ = t.fast.value.Get()
			}
			reading.Medium = t.medium.value.Or(nil)
		}
		r.GPUs = append(r.GPUs, reading)
	}
	s.updateInventory()
	if s.o.Resolver != nil {
		s.allocations = s.o.Resolver.Allocations(s.inventory)
	}
	r.Allocations = s.allocations
	if s.o.Users != nil {
		r.Users = s.findUsers()
	}
	s.ledger.Advance(r)
	for _, t := range s.devs {
		t.freshFast, t.freshMedium = false, false
	}
}

// findUsers resolves every process that was listed or sampled. A process that is new in the samples is resolved at
// once, and so is one that was sampled again: its PID may have been reused.
func (s *Sampler) findUsers() account.Users {
	users := make(account.Users, len(s.users))
	fresh := make(account.Users, len(s.users)) // resolved in this poll
	find := func(pid int, again, sampled bool) {
		who, known := s.users[pid]
		switch now, done := fresh[pid]; {
		case done:
			who = now
		case !known || again || sampled:
			found := s.o.Users.Find(pid)
			fresh[pid] = found
			switch {
			case !known || again || found == who || who.Reason == gpu.UnattributedUnresolved:
				who = found
			case found.Reason == gpu.UnattributedUnresolved:
				fresh[pid] = who // it ended, and its last samples are its own
			default:
				// The samples may be the old process's, the new one's or both's: they are unresolved in this poll.
				who = account.User{Reason: gpu.UnattributedUnresolved}
				fresh[pid] = who
			}
		}
		users[pid] = who
	}
	for _, t := range s.devs {
		if m, ok := t.medium.value.Get(); ok {
			list := m.Processes.Or(nil)
			for i := range list {
				find(list[i].PID, t.freshMedium, false)
			}
		}
		if f, ok := t.fast.value.Get(); ok {
			for _, p := range f.Processes.Or(nil) {
				find(p.PID, false, t.freshFast)
			}
		}
	}
	s.users = users
	return users
}
