package nvml

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// Options are what a Library needs to know.
type Options struct {
	// Path is the library: a file, or a name for the dynamic linker. Empty: DefaultPath.
	Path string
	// Logger gets what happens seldom: a driver that comes, a reading that needs a right. Nil: discarded.
	Logger *slog.Logger
	// Clock is the exporter's clock; it stamps readings and measures the windows of profiling samples. Nil: time.Now.
	Clock func() time.Time
	// SysfsRoot is where sysfs is mounted. Empty: /sys.
	SysfsRoot string
	// FastInterval is the intended time between two reads of the fast poll group. A pair of profiling samples that
	// lie more than three of it apart is thrown away. 0: 2 s.
	FastInterval time.Duration
	// Journal, if set, gets every call: see Session.Record.
	Journal *journal.Writer
}

// Library is a driver library that may or may not be there, and what is remembered of it across sessions:
// the statistics of calls and the identity of every GPU ever seen. Its methods are safe for concurrent use.
type Library struct {
	options Options
	log     *slog.Logger
	stats   [callKinds]callStats

	mu      sync.Mutex // guards what follows
	session *Session   // the open one, or one that could not be closed
	known   map[gpu.PCIAddress]gpu.Identity
	hinted  map[string]bool // readings of which the log has said that they need a right
}

// New returns a Library. It touches nothing.
func New(o Options) *Library {
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.SysfsRoot == "" {
		o.SysfsRoot = "/sys"
	}
	if o.FastInterval <= 0 {
		o.FastInterval = 2 * time.Second
	}
	return &Library{options: o, log: o.Logger, known: map[gpu.PCIAddress]gpu.Identity{}, hinted: map[string]bool{}}
}

// Path returns the library that Open loads.
func (l *Library) Path() string { return l.options.Path }

// Expected lists the GPUs that the PCI bus has; see the function Expected.
func (l *Library) Expected() ([]ExpectedGPU, error) { return Expected(l.options.SysfsRoot) }

// ErrBusy is wrapped by the errors of Session.Close and Library.Open while a driver call of the session
// before has not returned. The driver cannot be let go under it; it may never return.
var ErrBusy = errors.New("a driver call is still running")

// DefaultPath is the name under which the dynamic linker finds NVML.
const DefaultPath = "libnvidia-ml.so.1"

// Session is a time in which the driver is held: from Open to Close. After Close every call is answered
// "not initialized" without touching the driver.
type Session struct {
	library *Library
	nvml    nvml.Interface
	offers  offers
	system  gpu.System

	scan sync.Mutex // one Scan at a time

	mu       sync.Mutex // guards what follows
	closed   bool
	down     bool // nvmlShutdown was called
	running  int  // calls that have not returned
	idle     chan struct{}
	byHandle map[nvml.Device]*device
	byIndex  map[int]*device
	samples  []nvml.GpmSample // allocated by the library, freed at Close
	pending  []*device        // not yet registered for events
	events   nvml.EventSet    // nil until somebody waits

	waiting sync.Mutex    // one WaitEvents at a time
	wake    chan struct{} // tells a waiter without GPUs that there may be some
}

// device is a GPU's handle and the lock under which it is called. It lives as long as the session; a GPU
// that is found again is a new GPU on the same device.
type device struct {
	session *Session
	handle  nvml.Device
	busy    sync.Mutex // held during every call on handle

	dev        *GPU // the newest; guarded by session.mu
	registered bool // for events, or not able to tell any; guarded by session.mu
	listening  bool // it is in the session's event set; guarded by session.mu
}

// GPU is one GPU of a session. Fast, Medium and Slow are called by one goroutine, the GPU's worker;
// different GPUs are read concurrently. Identity, Err, NotOffered and Locked may be called by anybody.
//
// A GPU that was lost, or needs a reset, stays so: its poll groups return the error without a call. Scan gives a
// new GPU once the driver answers for it again.
type GPU struct {
	dev      *device // nil for a GPU of which not even the handle could be had
	identity gpu.Identity

	mu     sync.Mutex // guards gone and tables
	gone   error
	tables pollStates

	// What follows belongs to the worker.
	probing bool // the row that is being read has never worked
	busy    cursor
	memory  cursor
	procs   cursor
	// procsSeen: the processes' buffer was read once.
	procsSeen bool
	gpm       gpmState
	mig       migState
	links     []int // NVLinks that answer; nil until asked
	kinds     [3]bool
	margin    marginState
}

// callStats is what was seen of one call since the Library was made.
type callStats struct {
	duration gpu.Observer

	mu     sync.Mutex // guards errors
	errors map[string]uint64
}

func (s *callStats) count(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errors == nil {
		s.errors = map[string]uint64{}
	}
	s.errors[code]++
}

// laneStates is what was learned of the rows of each table.
type pollStates struct {
	identity, fast, medium, slow []rowState
}

// gpmState is a GPU's profiling: the samples of the GPU and of each of its MIG GPU instances.
type gpmState struct {
	supported gpu.Opt[bool]
	dev       gpmPair
	instances map[gpu.UUID]*gpmPair
	spare     []nvml.GpmSample // of instances that are gone
	// request is what metrics are asked with, kept because it is large. go-nvml copies it twice more at
	// every call.
	request *nvml.GpmMetricsGetType
}

// gpmPair is two samples of one subject, used in turn.
type gpmPair struct {
	samples [2]nvml.GpmSample
	newest  int
	taken   time.Time // of the newest; zero: none is held
	dropped [16]bool  // metrics that the subject does not offer, by their place in gpmMetrics
}

// migState is what is known of a GPU's MIG layout.
type migState struct {
	read      bool // the layout was read once
	on        bool
	key       string // of the layout, to see that it changed
	instances []migInstance
	// slices is how many compute slices the GPU has; 0 until the driver told.
	slices int
	// perInstance: the process list of the GPU is closed to us or names no instances, so each instance is asked.
	perInstance bool
}

// migInstance is a GPU instance and the handle of its first MIG device. The handle dies with the layout.
type migInstance struct {
	gpu.Instance
	handle nvml.Device
}

// marginState is the temperature at which a GPU's margin is used up.
type marginState struct {
	fresh bool // asked in this read
	code  nvml.Return
	at    gpu.Opt[float64]
}

// cursor is the newest sample that was seen of a ring, by the driver's clock, in microseconds. 0: none yet.
// It is never set from a clock of ours: the driver's may be the epoch or the time since boot.
type cursor uint64

// pass moves the cursor on to a sample, unless its value shows that it is garbage: a garbage time would
// hide every later sample.
func (c *cursor) pass(at uint64, percent float64) {
	if percent >= 0 && percent <= 100 && cursor(at) > *c {
		*c = cursor(at)
	}
}

// row is one thing to read into a T: by a call of its own, or as a field of the batch that all field rows
// of the table share.
type row[T any] struct {
	// reading is the name under which the row is reported. Rows of one reading with a higher rank are
	// asked only where no row of a lower rank is offered: newer calls first, their elders after.
	reading string
	rank    int
	// instead names readings of which none may be offered for this row to be asked.
	instead []string
	doc     string

	// calls are what read may call.
	calls []callID
	// read makes the call and stores the value. It returns the code that says how the row fared.
	read func(c *GPU, to *T) nvml.Return

	// field is the NVML field id; scope its scope, or everyLink.
	field, scope uint32
	// set stores the value of the field: of everyLink, the sum.
	set func(to *T, v value)
}

// rowState is what a GPU's answers taught about a row. Dropped rows are not asked again until the next
// session or MIG layout.
type rowState struct {
	dropped bool
	locked  bool // dropped for want of a right
	worked  bool // it answered once
	last    nvml.Return
	// entries are the states of the row's entries in the batch, made when first asked.
	entries []entryState
}

// entryState is one entry of a field batch.
type entryState struct {
	dropped bool
	blanks  int // answers in a row that were no answer
}

// tally counts how the rows of one read fared.
type tally struct {
	answered, failed int
	last             nvml.Return
}

func (t *tally) add(ret nvml.Return) {
	if silent(ret) || ret == nvml.ERROR_NO_PERMISSION || ret == nvml.ERROR_INVALID_ARGUMENT {
		t.answered++
		return
	}
	t.failed++
	t.last = ret
}

// verdict is an error where everything that was asked failed: the GPU does not speak to us, as when the
// device cgroup took it away.
func (t *tally) verdict(c *GPU) error {
	if t.answered > 0 || t.failed == 0 {
		return nil
	}
	return fmt.Errorf("read %s: none of %d calls worked, the last said %s", c, t.failed, codeName(t.last))
}

// allLinks asks for the sum over a GPU's NVLinks in one answer. everyLink, which is never sent, stands for
// one entry per link, summed here.
const (
	allLinks  = math.MaxUint32
	everyLink = math.MaxUint32 - 1
)

// notAsked is what a read returns that found nothing to ask about, such as instances of a GPU that has none:
// nothing is learned from it. It is no code of NVML's.
const notAsked nvml.Return = -1

// value is what a field or a sample holds: eight bytes of a type that the driver names.
type value struct {
	kind nvml.ValueType
	raw  [8]byte
	sum  bool // raw is a sum made here, an unsigned number
}

// pair is the value of a call that returns two.
type pair[V, W any] struct {
	first  V
	second W
}

func (p *pair[V, W]) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{p.first, p.second}) }

// request is one call to the driver.
type request struct {
	id callID
	// args are the arguments beside the handle, for the journal: of a call on a MIG device, the device's index.
	args []int
	// value points to what run sets, for the journal. Nil for a call that returns a code alone.
	value any
	// run makes exactly the call that id names.
	run func() nvml.Return
	// probing marks a first try, of which an unknown argument is an answer and no error.
	probing bool
}

// caller makes calls: the session, and each GPU, which adds its lock.
type caller interface {
	do(r request) nvml.Return
}

// masked is a value that is written to the journal with what identifies something replaced.
type masked func(*journal.Mask) any

func (m masked) Masked(mask *journal.Mask) any { return m(mask) }

// offers is which calls the loaded library has, and what it lacks.
type offers struct {
	have    [callKinds]bool
	missing []string // symbols of which no version is there, in the order of the table
	fatal   []string // those of them that nothing works without
	symbols []string // what the library exports of the table
}

// guard says what must be in the library before a call may be made.
type guard struct {
	// name is what the call is called in metrics and in messages: the NVML function without the version
	// that go-nvml picks.
	name string
	// methods are the go-nvml methods that may be used under this guard, as "Type.Method".
	methods []string
	// anyOf are the symbols of which go-nvml calls whichever it found; one of them must be there. Nil: name itself.
	anyOf []string
	// required marks what nothing works without: a library that lacks one is not NVML.
	required bool
	// waits marks calls that sleep on purpose: their duration is no cost and is not observed.
	waits bool
}

// symbols returns the symbols of which one must exist.
func (g *guard) symbols() []string {
	if g.anyOf != nil {
		return g.anyOf
	}
	return []string{g.name}
}

// callID names one kind of driver call: an index into guards.
type callID int

// blankLimit is after how many empty answers in a row a field is taken as not offered.
const blankLimit = 3
