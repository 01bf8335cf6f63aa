package sampler

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Driver opens the GPU driver.
type Driver interface {
	// Open returns a session, or an error that wraps gpu.ErrNoDriver, gpu.ErrNoModule, gpu.ErrNoLibrary,
	// gpu.ErrNotNVML or gpu.ErrVersionMismatch where one fits. There is one session at a time.
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
	// Bindings reports whether WaitEvents has received since the last call that a GPU is being unbound from the driver,
	// which waits for this session to be closed, and that one was bound to it.
	Bindings() (unbound, bound bool)
	Close() error
}

// GPU is one GPU of a session. Its poll groups are called by one goroutine at a time. Their errors wrap gpu.ErrLost and
// the like where one fits; a single reading that failed is only absent.
type GPU interface {
	Identity() gpu.Identity
	// Fast reads the driver's sample rings too where samples is set.
	Fast(samples bool) (gpu.Fast, error)
	Medium() (gpu.Medium, error)
	Slow() (gpu.Slow, error)
	// NotOffered lists the readings that GPU and driver do not offer.
	NotOffered() []string
}

// Resolver returns the allocations of an inventory's GPUs. It must not block.
type Resolver interface {
	Allocations(*gpu.Inventory) gpu.Allocations
}

// Users finds what a PID belonged to since the previous call for it: a container, or the reason why to none
// (gpu.UnattributedHost, Unresolved). It is called by one goroutine and should be quick.
type Users interface {
	// Expect precedes the calls for PIDs that are looked up together.
	Expect(pids []int)
	Find(pid int) account.User
}

// Cgroups returns GPU memory by cgroup, of the GPUs for which the kernel accounts it, and names the cgroups of gpu.Medium.
// It must not block.
type Cgroups interface {
	Memory() map[gpu.PCIAddress][]gpu.CgroupMemory
	Owner(path string) (gpu.Container, gpu.UnattributedReason)
}

// VisibleScanner returns the GPUs visible in containers. It must not block.
type VisibleScanner interface {
	Visible(*gpu.Inventory) []gpu.VisibleGPU
}

// Expecter lists the GPUs of the PCI bus, without the driver.
type Expecter interface {
	Expected() ([]Expected, error)
}

// Expected is a GPU of the PCI bus. Detached: it is bound to another driver; Unbound: to none.
type Expected struct {
	PCI               gpu.PCIAddress
	Detached, Unbound bool
}

// Options configure a Sampler. Only Driver is required.
type Options struct {
	Node   string
	Build  gpu.Build // of this exporter
	Driver Driver

	Resolver Resolver // nil: allocations are unknown
	Host     bool     // nothing allocates GPUs here: the host has them
	// nil: processes cannot be resolved (no host PID namespace); process lists are dropped
	Users          Users
	VisibleScanner VisibleScanner // nil: containers are not scanned
	Cgroups        Cgroups        // nil: memory by cgroup is not read
	Expecter       Expecter       // nil: a GPU that NVML does not list cannot be missing
	// Suspend reports, from the last view and the time of this poll, for which GPUs NVML is to be shut down, or stay so, to let
	// them suspend, and whether any may at all. It must not block. nil: none does.
	Suspend func(*gpu.View, time.Time) (closed string, possible bool)
	// GPUs is the expected number of GPUs; 0 if unknown.
	GPUs int
	// Accounts is the maximum number of accounts (container, GPU); account.DefaultAccounts if 0.
	Accounts int
	// Processes is the maximum number of processes of a GPU that are published; 0: none.
	Processes int
	// Command returns the command of a PID that Users found, empty if unknown. It is called like Users.
	Command func(pid int) string

	// Restart is called when only a new process can load the driver's library, never while a call is in progress. The
	// reason wraps gpu.ErrVersionMismatch, or gpu.ErrNoLibrary: then a container has to be recreated. It may be called
	// again with every retry.
	Restart func(reason error)

	// Sources, Calls and Features complete the view. They must be quick and safe to call from the loop. Sources is called
	// once in each poll, after all calls to Users: it may report what happened since the last call.
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

	// Clock is the time of Run's polls, Watch that of driver calls; nil: time.Now.
	Clock func() time.Time
	Watch func() time.Time
	// Hung, where a test sets it, ends the waits of a poll and of the shutdown instead of real time: it is called with the
	// number of driver calls in progress, none of which starts during the wait, and returns a channel that is closed when
	// all of them hang.
	Hung func(calls int) <-chan time.Time

	Logger *slog.Logger // nil: discarded
}

const (
	// minFast is the shortest interval to which the fast poll group adapts for a shallow sample ring.
	minFast = 500 * time.Millisecond
	// maxSpacing is in how many polls a deep sample ring is read once, and churn how long it is read in every poll after
	// a process began or ended.
	maxSpacing = 3
	churn      = 10 * time.Second
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
		pause  gpu.Opt[pause] // the last request
	}
	changed      chan struct{}              // allocations may have changed, or a pause is requested; holds one
	listening    atomic.Bool                // Run's listener receives the events
	panics       atomic.Uint64              // recovered in workers
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
	readings    chan *reading
	results     chan result
	expected    expectation
	suspendable bool // some GPU may suspend
	inventory   *gpu.Inventory
	allocations gpu.Allocations
	pending     gpu.Opt[gpu.Allocations] // as of the beginning of this poll, for the inventory of that time
	others      []gpu.Source             // of Options.Sources in this poll
	users       account.Users
	usersBefore account.Users         // of the poll before: its memory is used again
	due         []int                 // the PIDs that are looked up in this poll
	resolved    map[int]bool          // PIDs that were resolved in this poll
	unsettled   map[int]time.Duration // PIDs that changed hands, and the sampler's clock when they did
	durations   [3]gpu.Opt[time.Duration]
	success     gpu.Opt[time.Time]
	errors      uint64
}

// calls is the number of driver calls in progress: at most one on each GPU, and one on the session.
func (s *Sampler) calls() (n int) {
	for _, t := range s.devs {
		if t.pending {
			n++
		}
	}
	if s.session.op != "" {
		n++
	}
	return n
}

// waitLimit bounds the waiting of one poll; once it is over it stays so.
type waitLimit struct {
	s     *Sampler
	timer <-chan time.Time
	over  bool
}

func (s *Sampler) limit(d time.Duration) *waitLimit {
	if s.o.Hung != nil {
		return &waitLimit{s: s}
	}
	return &waitLimit{s: s, timer: time.After(d)}
}

// c returns the channel that ends the wait that begins now.
func (p *waitLimit) c() <-chan time.Time {
	if p.s.o.Hung != nil {
		return p.s.o.Hung(p.s.calls())
	}
	return p.timer
}

// end is called by the receiver from c.
func (p *waitLimit) end() { p.over = true }

// Indices of the poll groups in arrays.
const (
	pollFast = iota
	pollMedium
	pollSlow
)

// pollGroup is the state of one poll group of one GPU.
type pollGroup[T any] struct {
	value     gpu.Opt[*T]   // absent after a failure, or when it is too old
	read      time.Duration // the sampler's clock at the last attempt
	succeeded time.Duration // at the last success
	tried     bool
	at        time.Time // exporter's clock at the last success; zero: never
	due       bool      // to be read in the next poll, whatever the interval
	failures  int       // failures in a row
}

// tracked is the state of one GPU.
type tracked struct {
	id    gpu.Identity // with the index when first seen
	index int          // NVML's index now
	dev   GPU          // nil while NVML does not list it

	// pending is set while a job is in progress, since started on the real clock.
	pending bool
	started time.Time
	hung    bool

	lostErr     error           // why it is not read until the next scan
	failErr     error           // why it counts as failed although it is read
	panicked    [3]error        // the panic of each poll group's last read
	loggedState gpu.DeviceState // last state written to the log
	known       bool            // some poll group succeeded at some time

	state   gpu.DeviceState
	message string

	fast                   pollGroup[gpu.Fast]
	medium                 pollGroup[gpu.Medium]
	slow                   pollGroup[gpu.Slow]
	freshFast, freshMedium bool
	layout                 *gpu.Slow // last slow reading, for the MIG layout of a GPU that is not read
	recovery               gpu.Opt[gpu.RecoveryAction]
	linksUp                int                // maximum number of NVLinks that were up
	memory                 gpu.Opt[gpu.Bytes] // total, as last read
	guard                  account.MemoryGuard
	frozen                 frozen
	notOffered             []string
	// samplesEvery is how often its rings are read, 0 for in every poll; sampledAt is the sampler's clock at the last
	// read. Until samplesSoon they are read in every poll: processes begin and end.
	samplesEvery, sampledAt, samplesSoon time.Duration
	sampled                              []int // processes with samples or accounts of the last read
	freshSamples                         bool
	migSeen                              bool // its MIG mode was read
	migAnnounced                         bool // the pending MIG change was handled
	history                              history
}

// job is one read of one GPU.
type job struct {
	dev        *tracked
	from       GPU
	pollGroups [3]bool
	samples    bool // the fast poll group with the sample rings
}

// reading is the result of a job.
type reading struct {
	job
	fast       *gpu.Fast // of the poll groups that were attempted
	medium     *gpu.Medium
	slow       *gpu.Slow
	errs       [3]error
	attempted  [3]bool
	durations  [3]time.Duration
	notOffered []string
	renewed    bool // notOffered was read
}

type sessionPhase int

const (
	sessionClosed sessionPhase = iota
	sessionOpen
)

// intent is why the session has to end.
type intent int

const (
	intentNone intent = iota
	intentReopen
	intentReplace
	intentPause
)

// operation is a call on the session that is in progress; empty: none.
type operation string

const (
	opOpen  operation = "initialize NVML"
	opScan  operation = "list the GPUs"
	opClose operation = "shut down NVML"
	opPoll  operation = "poll events"
)

// sessionState is the session and its pending transitions.
type sessionState struct {
	state   sessionPhase
	live    Session
	system  gpu.Opt[gpu.System]
	intent  intent
	message string // why it is not open, one line
	hint    error

	op        operation
	opStarted time.Time

	tryAt       time.Duration // time of the next attempt to open
	wait        time.Duration // last wait between attempts
	openAt      time.Duration // time of the last successful open
	scanAt      time.Duration // time of the next scan
	scanWait    time.Duration // last wait between scans while a GPU fails; 0: none does
	pauseAt     time.Duration // time of the next pause for a MIG change; 0: none is pending
	pause       pause         // the present one, or the next
	pausedUntil time.Duration
	bound       []gpu.PCIAddress // the GPUs bound to the driver, and since when; during a pause for that
	boundSince  time.Duration
	reopened    time.Duration
	hasReopened bool
	seekAt      time.Duration // time of a new session for a missing GPU; 0: none is missing
	seekWait    time.Duration
	mismatch    bool // the library does not match the driver: only a new process helps
	tried       bool // to open
	bare        bool // when the process started there was neither a library nor a kernel module, and none since
	// moduleSince is since when a bare process has had a kernel module and no library.
	moduleSince gpu.Opt[time.Duration]
}

// The reasons of a pause.
const (
	reasonMIG     = "mig_change"
	reasonRequest = "request"
	reasonBinding = "driver_binding"
	reasonSuspend = "runtime_suspend"
)

// pause is an intended shutdown of NVML.
type pause struct {
	reason, words string // a label, and what follows "shut down"
	length        time.Duration
	unbinding     bool // a GPU is still to be unbound
}

// result is the outcome of an operation.
type result struct {
	op     operation
	live   Session
	devs   []GPU
	events []gpu.XIDEvent
	err    error
}

// eventWatch is a session whose events are waited for.
type eventWatch struct{ session Session }

const (
	historyEvery  = 10 * time.Second
	historyPoints = 60
)

// history is the last minutes of a GPU, for the node page. Views share points: elements are only added.
type history struct {
	points         []gpu.HistoryPoint
	next           time.Duration
	busy, observed gpu.Seconds
}

// expectation is the result of a PCI bus scan.
type expectation struct {
	list []Expected
	ok   bool // the bus could be read
	at   time.Duration
	err  string
}

// has reports whether a GPU is on the bus, and whether it is bound to another driver.
func (e *expectation) has(pci gpu.PCIAddress) (onBus, detached bool) {
	i := slices.IndexFunc(e.list, func(x Expected) bool { return x.PCI == pci })
	if i < 0 || pci == "" {
		return false, false
	}
	return true, e.list[i].Detached
}

// bound lists the GPUs that are bound to the driver; lent reports that there are GPUs, all bound to another.
func (e *expectation) bound() (list []gpu.PCIAddress, lent bool) {
	lent = len(e.list) > 0
	for _, x := range e.list {
		if lent = lent && x.Detached; !x.Detached && !x.Unbound {
			list = append(list, x.PCI)
		}
	}
	return list, lent
}

// Latest returns the newest view. It is never nil and never modified.
func (s *Sampler) Latest() *gpu.View { return s.view.Load() }

// Event takes an XID from another data source than the driver's own events, such as the kernel log.
func (s *Sampler) Event(e gpu.XIDEvent) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	s.inbox.events = append(s.inbox.events, e)
}

// paused reports whether NVML is shut down intentionally.
func (s *Sampler) paused() bool {
	st := &s.session
	return st.state == sessionClosed && s.clock < st.pausedUntil
}

// pausedFor reports whether it is for a reason. With every GPU bound to another driver there is nothing to read.
func (s *Sampler) pausedFor(reason string) bool {
	_, lent := s.expected.bound()
	return s.paused() && s.session.pause.reason == reason && (reason != reasonBinding || !lent)
}

// wake makes Run look whether there is a reason to poll at once. It does not block.
func (s *Sampler) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// endSession handles an error that ends the session.
func (s *Sampler) endSession(err error) {
	st := &s.session
	if st.state != sessionOpen || st.intent == intentReplace {
		return
	}
	st.intent, st.message, st.hint = intentReopen, err.Error(), err
	if errors.Is(err, gpu.ErrVersionMismatch) {
		st.intent = intentReplace
	}
}
