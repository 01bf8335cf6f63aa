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

// Session is a time in which the driver is held.
type Session interface {
	// System is what the driver said of itself at Open.
	System() gpu.System
	// Scan lists the GPUs. A GPU that failed and answers again is a new GPU.
	Scan() ([]GPU, error)
	// WaitEvents waits up to timeout and returns the XIDs that came. It runs beside everything else.
	WaitEvents(timeout time.Duration) ([]gpu.XIDEvent, error)
	Close() error
}

// GPU is one GPU of a session. Its poll groups are called by one goroutine at a time. Their errors wrap
// gpu.ErrLost and its fellows where one fits; a reading that alone was refused is only absent.
type GPU interface {
	Identity() gpu.Identity
	Fast() (gpu.Fast, error)
	Medium() (gpu.Medium, error)
	Slow() (gpu.Slow, error)
	// NotOffered lists the readings that GPU and driver do not offer.
	NotOffered() []string
}

// Holders says who holds the GPUs of an inventory. It must not block.
type Holders interface {
	Allocations(*gpu.Inventory) gpu.Allocations
}

// Users finds whom a process belongs to: a container, or the reason why it belongs to none
// (gpu.UnattributedHost, Unresolved). It is called by one goroutine and should be quick.
type Users interface {
	Find(pid int) account.User
}

// Looker says which GPUs can be seen in which containers. It must not block.
type Looker interface {
	Visible(*gpu.Inventory) []gpu.VisibleGPU
}

// Expecter lists the GPUs of the PCI bus, without the driver.
type Expecter interface {
	Expected() ([]Expected, error)
}

// Expected is a GPU of the PCI bus. Detached means that another driver has it on purpose.
type Expected struct {
	PCI      gpu.PCIAddress
	Detached bool
}

// Options are what a Sampler is given. Only Driver is required.
type Options struct {
	Node   string
	Build  gpu.Build // of this exporter, for the view
	Driver Driver

	Holders  Holders  // nil: nobody can tell who holds a GPU
	Users    Users    // nil: processes cannot be told apart (no host PID namespace); lists of them are left out
	Looker   Looker   // nil: nobody looks into containers
	Expecter Expecter // nil: a GPU that NVML does not show cannot be missed
	// GPUs is how many GPUs the node should have, where that is known; 0 otherwise.
	GPUs int
	// Accounts is how many accounts of a container on a GPU there may be: account.DefaultAccounts where 0.
	Accounts int

	// Replaced is called when only a new process can load the driver's library, never while a call is under
	// way. It may be called again, at the pace of the retries, while that stays so.
	Replaced func()

	// Sources, Calls and Features complete the view. They must be quick and safe to call from the loop.
	Sources  func() []gpu.Source
	Calls    func() []gpu.CallStats
	Features func() []gpu.Feature

	// Published, where set, is shown every view right after it was stored, in order and from one goroutine.
	// It must be quick, and must not change the view.
	Published func(*gpu.View)

	// The poll groups' intervals: 2 s, 10 s and 60 s where 0.
	Fast, Medium, Slow time.Duration
	// Deadline is after how long a call makes its GPU stuck: 5 s where 0. Bound is how long a round waits
	// for answers before it is published without them: half the fast interval, 1 s at most, where 0.
	Deadline, Bound time.Duration

	// Clock gives Run the time of its rounds; nil: time.Now. Watch and After measure how long driver calls
	// take, which no test clock can bend; nil: time.Now and time.After.
	Clock func() time.Time
	Watch func() time.Time
	After func(time.Duration) <-chan time.Time

	Logger *slog.Logger // nil: discarded
}

const (
	// longestStep is the most time that one round may add: what is more is a suspended machine or a clock
	// that was set.
	longestStep = time.Minute
	// shortestFast is the least that the fast poll group adapts to a GPU with a shallow ring.
	shortestFast = 500 * time.Millisecond
	// eventWait is how long one wait for events lasts. The end of the program waits for it.
	eventWait = 400 * time.Millisecond
	// farewell is how long the end of the program waits for calls under way before it leaves without
	// letting the driver go, and goodbye how long for the driver after that: a second together.
	farewell = 600 * time.Millisecond
	goodbye  = 300 * time.Millisecond
)

// Sampler reads, accounts and publishes. Latest and Event are safe for concurrent use; Step and Close may
// not run at the same time as each other or as Run.
type Sampler struct {
	o    Options
	log  *slog.Logger
	view atomic.Pointer[gpu.View]

	inbox struct {
		sync.Mutex
		events []gpu.XIDEvent
	}
	listening atomic.Bool             // Run's listener takes the events
	heard     atomic.Pointer[hearing] // the session to listen to
	hearing   struct {
		sync.Mutex
		err    error
		at     time.Time
		errors uint64
	}

	stepping sync.Mutex // held by Step, Run and Close; guards what follows
	quit     <-chan struct{}
	ledger   *account.Ledger
	started  bool
	last     time.Time     // the time of the round before
	clock    time.Duration // time since the first round, which only goes forward
	now      time.Time     // the time of this round
	fast     time.Duration // the fast poll group's interval as adapted

	session   sessionState
	devs      []*tracked
	answers   chan answer
	results   chan result
	expected  expectation
	inventory *gpu.Inventory
	allocs    gpu.Allocations
	users     map[int]account.User
	took      [3]gpu.Opt[time.Duration]
	success   gpu.Opt[time.Time]
	errors    uint64
}

// New returns a Sampler that has not begun.
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
		ledger:  account.New(account.Options{MaxLag: max(5*time.Second, o.Fast*5/2), Accounts: o.Accounts}),
		answers: make(chan answer, 256), results: make(chan result, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.view.Store(&gpu.View{At: o.Clock(), Node: o.Node, Build: o.Build,
		Sources: []gpu.Source{{Name: gpu.SourceNVML, Message: "the first round has not ended"}},
		Notes:   []string{"Nothing has been read yet: the first round has not ended."}})
	return s
}

// Latest returns the newest view. It is never nil, and nobody changes it any more.
func (s *Sampler) Latest() *gpu.View { return s.view.Load() }

// Event takes an XID from another source than the driver's own events, such as the kernel log.
func (s *Sampler) Event(e gpu.XIDEvent) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	s.inbox.events = append(s.inbox.events, e)
}

// Run does rounds until ctx ends, then lets the driver go, unless a call is under way that does not return:
// it is back within a second. It returns nil.
func (s *Sampler) Run(ctx context.Context) error {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	s.quit = ctx.Done()
	defer func() { s.quit = nil }()

	s.listening.Store(true)
	listener := make(chan struct{})
	go func() {
		defer close(listener)
		s.listen(ctx)
	}()
	for ctx.Err() == nil {
		began := s.o.Watch()
		s.round(s.o.Clock())
		rest := max(s.fast-s.o.Watch().Sub(began), s.fast/10)
		select {
		case <-ctx.Done():
		case <-s.o.After(rest):
		}
	}
	s.release(listener)
	s.listening.Store(false)
	return nil
}

// Step does one round at a moment of the caller's clock: it polls events, reads what is due, accounts for
// the time since the step before, and publishes. It waits for hanging calls no longer than Options.Bound.
func (s *Sampler) Step(now time.Time) {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	s.round(now)
}

// Close lets the driver go after the last Step, under the same conditions as Run does at its end.
func (s *Sampler) Close() {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	s.release(nil)
}

// round is one turn of the loop.
func (s *Sampler) round(now time.Time) {
	elapsed := s.advance(now)
	limit := &patience{c: s.o.After(s.o.Bound)}
	s.took = [3]gpu.Opt[time.Duration]{}

	s.drain()
	s.lookForGPUs()
	s.tend(limit)
	if !s.listening.Load() {
		s.pollEvents(limit)
	}
	s.dispatch()
	s.collect(limit)
	s.judge()
	s.takeEvents()
	s.account(elapsed)
	s.publish()
}

// patience is how long something may be waited for. Once it is over it stays so, however many wait for it.
type patience struct {
	c    <-chan time.Time
	over bool
}

// end is called by whoever received from c.
func (p *patience) end() { p.over = true }

// advance moves the clocks and returns the time of this round's window.
func (s *Sampler) advance(now time.Time) time.Duration {
	elapsed := time.Duration(0)
	if s.started {
		elapsed = min(max(now.Sub(s.last), 0), longestStep)
	}
	s.started, s.last, s.now = true, now, now
	s.clock += elapsed
	return elapsed
}

// account gives the window to the ledger.
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
	if s.o.Holders != nil {
		s.allocs = s.o.Holders.Allocations(s.inventory)
	}
	r.Allocations = s.allocs
	if s.o.Users != nil {
		r.Users = s.findUsers()
	}
	s.ledger.Advance(r)
	for _, t := range s.devs {
		t.freshFast, t.freshMedium = false, false
	}
}

// findUsers looks every process up that was listed or sampled. One that is new in the samples is looked up at once, and
// so is one that was sampled again: its PID may be another's by now.
func (s *Sampler) findUsers() account.Users {
	users := make(account.Users, len(s.users))
	fresh := make(account.Users, len(s.users)) // what was found in this round
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
				// The samples are the old one's, the new one's or both's: in this round nobody's.
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
