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
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/direct"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/gpm"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// Options configure a Library.
type Options struct {
	// Path is the library: a file, or a name for the dynamic linker. Empty: DefaultPath.
	Path string
	// Logger gets rare events: an opened session, a reading without permission. Nil: discarded.
	Logger *slog.Logger
	// Clock is the exporter's clock; it stamps readings and measures the periods between profiling samples. Nil:
	// time.Now.
	Clock func() time.Time
	// SysfsRoot is where sysfs is mounted. Empty: /sys.
	SysfsRoot string
	// FastInterval is the interval of the fast poll group. Two profiling samples more than three of it apart are
	// dropped. 0: 2 s.
	FastInterval time.Duration
	// Journal, if set, gets every call: see Session.Record.
	Journal *journal.Writer
	// Links enables the readings of single links.
	Links bool
	// Unread are the readings whose calls are not made.
	Unread []string
	// Cgroups returns the paths of the cgroups whose memory is read where the driver reports it; nil: none is read. It must
	// not block.
	Cgroups func() []string
	// Accounts reports whether the accounts of processes are read; nil: they are. It must not block.
	Accounts func() bool
	// Intercept, if set, makes the calls of a session in place of the library: it calls run, or returns another code.
	// gpu is -1 for calls that concern no GPU, args are those beside the handle; value points to what run sets, nil where
	// there is nothing. For tests.
	Intercept func(gpu int, call string, args []int, value any, run func() int32) int32
}

// Library is a driver library, installed or not yet, and what is kept across its sessions: the statistics of calls
// and the identity of every GPU. Its methods are safe for concurrent use.
type Library struct {
	options Options
	log     *slog.Logger
	stats   [callKinds]callStats

	mu      sync.Mutex // guards what follows
	session *Session   // the open one, or one that could not be closed
	known   map[gpu.PCIAddress]gpu.Identity
	hinted  map[string]bool // readings for which the missing permission was logged
}

// New returns a Library, without loading it.
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

// Expected lists the GPUs on the PCI bus; see bus.Expected.
func (l *Library) Expected() ([]bus.GPU, error) { return bus.Expected(l.options.SysfsRoot) }

// ErrBusy is wrapped by the errors of Session.Close and Library.Open while a driver call of the previous session has
// not returned: NVML is not shut down under it. It may never return.
var ErrBusy = errors.New("a driver call is still running")

// DefaultPath is the name under which the dynamic linker finds NVML.
const DefaultPath = "libnvidia-ml.so.1"

// Session is an initialized NVML, from Open to Close. After Close every call returns "uninitialized" without reaching
// the driver.
type Session struct {
	library *Library
	nvml    nvml.Interface
	offers  offers
	system  gpu.System
	cgroup  string // of this process, as NVML expects it

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
	events   nvml.EventSet    // nil until the first WaitEvents
	unbound  bool             // since the last Bindings
	bound    bool

	bindings *nvml.SystemEventSetFreeRequest // of the set of system events, set by Open; nil: none
	watching bool                            // its events are waited for; guarded by waiting

	waiting sync.Mutex    // one WaitEvents at a time
	wake    chan struct{} // wakes a WaitEvents without GPUs when there may be some
}

// device is a GPU's handle and the lock under which it is called. It lives as long as the session; a GPU that is found
// again is a new GPU on the same device.
type device struct {
	session *Session
	handle  nvml.Device
	busy    sync.Mutex // locked during every call on handle

	dev        *GPU // the newest with an identity; guarded by session.mu
	reading    *GPU // one whose identity is being read, or nil; guarded by session.mu
	registered bool // for events, or without events; guarded by session.mu
	listening  bool // it is in the session's event set; guarded by session.mu
}

// GPU is one GPU of a session. Fast, Medium and Slow are called by one goroutine, the GPU's worker;
// different GPUs are read concurrently. Identity, Err, NotOffered and Denied are safe for concurrent use.
//
// A GPU that is lost, or needs a reset, stays so: its poll groups return the error without a call. Scan returns a new
// GPU once it can be read again.
type GPU struct {
	dev      *device // nil for a GPU without a handle; it has an error then
	identity gpu.Identity
	ready    chan struct{} // closed when the identity was read; nil without a handle
	placed   bool          // Scan has tried to derive the address; belongs to Scan

	mu     sync.Mutex // guards lost and tables
	lost   error
	tables pollStates

	// What follows belongs to the worker.
	probing  bool            // the row that is being read has never worked
	sampling bool            // this read includes the rows that are sampled
	reasons  gpu.Opt[uint64] // for the clocks, of the last fast read, which has them where the driver counts no time
	busy     cursor
	memory   cursor
	// ringFillsAt is when the ring of the GPU's utilization is read in full once more, ringFull whether it was read so.
	ringFillsAt time.Time
	ringFull    bool
	procs       cursor
	// ringBuffer and processBuffer are reused from read to read.
	ringBuffer    []nvml.Sample
	processBuffer []nvml.ProcessUtilizationSample
	// procsSeen: the processes' buffer was read once.
	procsSeen bool
	// accounts are the processes of the last read, true for those that had ended; nil before the first.
	accounts      map[uint32]bool
	accountBuffer []uint32
	gpm           gpmState
	mig           migState
	retried       time.Time // last time that dropped rows were tried again
	links         []int     // NVLinks that exist; nil until read
	// linkEntries are the values of single links that are offered; nil until read.
	linkEntries []linkEntry
	// cgroups are those of which the driver had no account.
	cgroups map[string]cgroupRetry
	kinds   [3]bool
	margin  marginState
}

// callStats are the statistics of one call since the Library was made.
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

// pollStates are the states of the rows of each table.
type pollStates struct {
	identity, fast, medium, slow []rowState
}

// gpmState is a GPU's profiling: the samples of the GPU, of its MIG GPU instances and of MIG devices.
type gpmState struct {
	supported gpu.Opt[bool]
	dev       gpm.Pair
	instances map[gpu.UUID]*gpm.Pair
	// devices are the pairs of MIG devices. One that is recreated under its UUID has another handle.
	devices map[nvml.Device]*gpm.Pair
	spare   []nvml.GpmSample      // of instances that no longer exist
	pcie    [2]gpu.Opt[gpu.Bytes] // the PCIe counters at the newest sample of the GPU
	request gpm.Request
	buffer  *direct.GPMRequest // nil until the GPU is profiled
}

// migState is a GPU's MIG layout.
type migState struct {
	read      bool // the layout was read once
	on        bool
	key       string // of the layout, to see that it changed
	instances []gpu.Instance
	handles   map[int]nvml.Device // of the MIG devices, by index; valid as long as the layout
	// slices are the GPU's compute slices; 0: not read yet.
	slices int
	// perInstance: the GPU's process list is denied or without instances, so that each instance's is read.
	perInstance bool
	// suspected are the GPU instances whose readings contradict the layout, stale that one did since the last poll group.
	suspected []int
	stale     bool
}

// marginState is the temperature at which a GPU's margin is used up.
type marginState struct {
	fresh bool // read in this poll
	code  nvml.Return
	at    gpu.Opt[float64]
}

// cursor is the time of the newest sample of a ring, by the driver's clock, in microseconds. 0: none yet. It is never
// set from another clock: the driver's may count from the epoch or from boot.
type cursor uint64

// pass moves the cursor to a sample, unless its value is implausible: a wrong time would hide all later samples.
func (c *cursor) pass(at uint64, percent float64) {
	if percent >= 0 && percent <= 100 && cursor(at) > *c {
		*c = cursor(at)
	}
}

// row is one reading of a T: by a call of its own, or as a field of the batch that all field rows of the table share.
type row[T any] struct {
	// reading is the name under which the row is reported. Rows of one reading with a higher rank are read only where
	// no row of a lower rank is offered: newer calls first, older ones after.
	reading string
	rank    int
	// instead are readings of this or the fast poll group none of which may be offered for this row to be read.
	instead []string

	// sampled rows are those of the driver's rings: they are read when the rings are due.
	sampled bool

	// read makes the call and stores the value. It returns the code of the row as a whole.
	read func(c *GPU, to *T) nvml.Return

	// field is the NVML field id; scope its scope, or everyLink.
	field, scope uint32
	// set stores the value of the field: of everyLink, the sum.
	set func(to *T, v value)
}

// rowState is what the return codes of a GPU showed about a row. Dropped rows are not read again until the next
// session or MIG layout, except once in retryDropped.
type rowState struct {
	dropped bool
	retry   bool // it is dropped, and read once more
	denied  bool // dropped: permission missing
	worked  bool // it succeeded once
	unread  bool // no exported family needs it; for as long as the session
	last    nvml.Return
	// entries are the states of the row's entries in the batch, made at the first read.
	entries []entryState
}

// entryState is one entry of a field batch.
type entryState struct {
	dropped bool
	blanks  int // consecutive answers without a value
	// count is the last value of one link's counter: it stays in the sum when the link is lost.
	count gpu.Opt[uint64]
}

// tally counts the results of one read.
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

// verdict is an error where every call failed, as when the device cgroup denies the GPU.
func (t *tally) verdict(c *GPU) error {
	if t.answered > 0 || t.failed == 0 {
		return nil
	}
	return fmt.Errorf("read %s: all %d calls failed, the last with %s", c, t.failed, codeName(t.last))
}

// allLinks is the scope of the sum over a GPU's NVLinks. everyLink, which is never sent, stands for one entry per link,
// which are summed here.
const (
	allLinks  = math.MaxUint32
	everyLink = math.MaxUint32 - 1
)

// nothingToRead is returned by a read without a subject, such as that of the instances of a GPU without any: the row's
// state does not change. It is no code of NVML.
const nothingToRead nvml.Return = -1

// value is that of a field or a sample: eight bytes of a type that the driver names.
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

func (p *pair[V, W]) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[2]any{&p.first, &p.second})
}

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

// offers are the calls that the loaded library has, and what it lacks.
type offers struct {
	have    [callKinds]bool
	missing []string // functions without any version, in the order of the table
	fatal   []string // those of them that are required
	symbols []string // the functions of the table that the library exports
}

// guard is what the library must have for a call.
type guard struct {
	// name is the call's name in metrics and messages: the NVML function without the version that go-nvml picks.
	name string
	// newest is the newest version that go-nvml calls where the library has it (nvmlInit_v2: 2). 0: there are no versions.
	newest int
	// required: a library that lacks it is not NVML.
	required bool
	// waits: the call sleeps on purpose; its duration is not observed.
	waits bool
	// group is the poll group that makes the call; empty for those of a session.
	group gpu.PollGroup
}

// symbols returns the symbols of which one must exist. go-nvml calls the first that does.
func (g *guard) symbols() []string {
	var list []string
	for v := g.newest; v > 1; v-- {
		list = append(list, fmt.Sprintf("%s_v%d", g.name, v))
	}
	return append(list, g.name)
}

// callID names one kind of driver call: an index into guards.
type callID int

// blankLimit is the number of consecutive answers without a value after which a field counts as not offered.
const blankLimit = 3
