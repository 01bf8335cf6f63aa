package account

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account/counters"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Options configure a Ledger; the zero value selects the defaults.
type Options struct {
	// MaxLag is how far the states of a GPU's time may lag behind its samples; 5 s if 0. It should exceed two polls.
	MaxLag time.Duration
	// Accounts is the maximum number of accounts (container, GPU); DefaultAccounts if 0.
	Accounts int
	// Processes is the maximum number of processes of a GPU that are published; 0: none.
	Processes int
	// Host: nothing allocates GPUs, the host has them.
	Host bool
}

// Ledger holds every counter of one node. It is not safe for concurrent use; the goroutine that owns it may publish
// what it returns.
type Ledger struct {
	maxLag       float64
	processLimit int
	host         bool    // Options.Host, false once a container or a job is found to use a GPU
	clock        float64 // seconds since the first poll
	// before and now are the exporter's clock at the previous poll and at this one, elapsed is the time between them.
	before, now time.Time
	elapsed     time.Duration

	devices map[gpu.UUID]*device
	rows    map[rowKey]*row
	order   []*row              // rows by container, then GPU; nil until it is needed after a change
	alive   map[gpu.UUID][]*row // rows of each GPU that is allocated to or used by the container

	// allocs apply to the period that starts at clock.
	allocs      gpu.Allocations
	next        gpu.Allocations // of the current poll, in force from its end
	byGPU       map[gpu.UUID][]*gpu.Allocation
	cgroups     map[gpu.PCIAddress][]gpu.CgroupMemory
	allocatedTo map[gpu.Container]bool
	generation  uint64
	placed      bool                      // allocs apply to every GPU
	published   []gpu.ContainerAllocation // nil once they may be different. Views share it

	events, kernelLog bool // data sources of XIDs
	// xids and pci also cover GPUs that fell off the bus.
	xids map[gpu.UUID]*xidCounts
	pci  map[gpu.PCIAddress]gpu.UUID

	filter      Filter
	aggregation aggregation
	complete    map[string]bool // models of which the driver's samples were found to leave out no process
}

// Reading is what one poll read from one GPU. The ledger keeps the pointers and modifies nothing.
type Reading struct {
	Identity     gpu.Identity
	Availability Availability
	Fast         *gpu.Fast // read in this poll, nil if nothing was
	// Spacing is how long the sample rings are not read where that is longer than a poll.
	Spacing time.Duration
	Medium  *gpu.Medium // the newest valid one, nil if there is none
	Slow    *gpu.Slow   // likewise; without one the last layout applies
}

// Poll is the input of one step: the elapsed time and the state at its end.
type Poll struct {
	Now     time.Time     // exporter's clock, for timestamps only
	Elapsed time.Duration // since the previous poll, monotonic
	GPUs    []Reading
	// Allocations apply from now on: the period that ends now belongs to those of the previous poll.
	Allocations gpu.Allocations
	Users       Users
	// Command returns the command of a process, empty if unknown; nil: unknown of all.
	Command func(pid int) string
	// Cgroups is the memory by cgroup, of the GPUs for which the kernel accounts it.
	Cgroups map[gpu.PCIAddress][]gpu.CgroupMemory
	// Events and KernelLog report whether XIDs are read from NVML and from the kernel log.
	Events, KernelLog bool
}

// Availability is whether a GPU could be read in a poll.
type Availability int

// Readable GPUs were read or wait for their poll group. Unavailable GPUs are lost, hung or missing. Unread GPUs are
// suspended intentionally: their activity is unknown.
const (
	Readable Availability = iota
	Unavailable
	Unread
)

// part is the unit of allocation and activity: the GPU itself, or under MIG an instance of it, or the slices that
// belong to no instance. Where an instance has several compute instances, each is a part as well.
type part struct {
	instance gpu.Instance // zero for the GPU and for the slices without instance
	compute  gpu.ComputeInstance
	kind     partKind
	// share is the part's fraction of the GPU; 0 and not known where NVML does not report it.
	share      float64
	shareKnown bool
	act        *activity

	// busy and rest are measured time that is not yet assigned to a second. See seconds.go.
	busy, rest float64
	// added is what this poll measured.
	added increment

	rows             []rowShare
	unallocated      float64 // fraction of the part that is not known to be allocated
	unallocatedKnown bool    // whether that fraction is known to be unallocated
	unplaced         bool    // an allocation of unknown size takes some of it
	allocation       gpu.Opt[gpu.Ratio]
	mode             mode
	memory           gpu.Opt[gpu.Memory]
	// within are the compute instances of an instance that has several. Their time counts in place of the instance's
	// while divided is true.
	within  []*part
	divided bool
}

type partKind int

const (
	wholeGPU partKind = iota
	migInstance
	spareSlices
	computeInstance
)

// rowShare is a container that a share of a part is allocated to.
type rowShare struct {
	row       *row
	share     float64 // of the part; normalized so that the sum is at most 1
	allocated float64 // as allocated
}

// unattributed is the part of one GPU's totals that is attributed to no container, for one reason.
type unattributed struct {
	busy, energy       float64
	memory             gpu.Bytes
	hasBusy, hasEnergy bool
	hasMemory          bool
}

// device is the account of one GPU.
type device struct {
	id           gpu.Identity
	created      time.Time // when its counters began at 0
	seen         bool
	watched      float64 // seconds between its polls by the exporter's clock, since the first
	availability Availability
	clock        float64 // ledger's clock at the last fast reading
	read         bool    // at least one fast reading
	sampledAt    float64 // ledger's clock at the last reading with samples
	spacing      float64 // Reading.Spacing in seconds
	session      int     // counts the driver's sessions

	mig   bool
	parts []*part
	act   activity // of the whole GPU, under MIG the sum over its instances
	// distinct is true once samples of compute instances proved to be of each alone.
	distinct bool

	energy                           counters.Counter
	pcieOut, pcieIn                  counters.Wrapping
	nvlinkOut, nvlinkIn              counters.Counter
	limited                          map[gpu.LimitReason]*counters.Counter
	sampled                          map[gpu.LimitReason]float64 // limits that the driver does not count
	seconds                          map[gpu.TimeState]float64
	idleWatts                        float64
	idleKnown                        bool
	quiet                            bool // the previous reading showed no activity either
	allocation                       gpu.Opt[gpu.Ratio]
	unplaced                         bool // an allocation on it could not be placed on an instance
	medium                           *gpu.Medium
	integrated                       bool    // it has no memory of its own
	mediumAt                         float64 // ledger's clock when medium was read
	weighable                        bool    // the driver reports process utilization
	weights                          []processWeight
	accounts                         accounts
	profiled                         profiled
	weightsAge                       int // readings since a process had a sample
	weighed                          []weighed
	explained                        explained
	hiddenUntil                      float64  // ledger's clock until which hidden work is expected beside a sole container
	servers                          []server // MPS servers in the last process list
	everMPS                          bool
	visible, everVisible             bool
	processes                        processTable
	unattributed                     map[gpu.UnattributedReason]*unattributed
	credits                          []credit // who was busy in this poll
	attributedBusy, attributedEnergy float64  // everything ever attributed to a container or a reason
	totalEnergy                      float64  // total energy since the first reading
	memoryError                      float64
}

// rowKey identifies the account of one container on one GPU.
type rowKey struct {
	device    gpu.UUID
	container gpu.Container
}

// never precedes every clock value.
const never = -1e18

// row is the account of one container on one GPU.
type row struct {
	key rowKey
	// isAllocated and uses are why it is alive; ended is set when neither is true, since endedAt.
	isAllocated, uses, ended bool
	endedAt                  float64
	generation               uint64 // of the allocations that last contained it
	placed                   bool   // the size of its allocation was known at some time
	// Clock values: start and end of the allocation, first use without an allocation, last activity of its processes.
	allocatedAt, releasedAt, usedFrom, usedAt float64
	since                                     gpu.Opt[time.Time]
	source                                    string

	allocated, busy, observed, idle, gap, energy float64
	lastBusy                                     time.Time
	lastBusyAt                                   float64

	attribution   string // exclusive, process, mig, none; empty if unknown
	wasMeasured   bool   // in the previous poll
	memory        gpu.Bytes
	hasMemory     bool
	memoryPartial bool // the memory of some process is unknown
	memorySource  string
	created       time.Time // when its counters began at 0
	processes     int
	counted       bool // processes is known
	used          bool // it used the GPU at the previous reading
	mismatch      []string
}

// measured reports whether busy is measured.
func (r *row) measured() bool {
	return r.attribution != "" && r.attribution != attributionNone
}

// resetGauges clears the values of the previous list.
func (r *row) resetGauges() {
	r.used = r.uses
	r.memory, r.hasMemory, r.memoryPartial, r.memorySource = 0, false, false, ""
	r.processes, r.counted, r.uses = 0, false, false
}

// Attribution methods, values of gpu.ContainerGPU.Attribution.
const (
	attributionExclusive = "exclusive"
	attributionProcess   = "process"
	attributionMIG       = "mig"
	attributionNone      = "none"
)

// mode is how the activity of a part is attributed.
type mode int

const (
	// modeSole: the whole part is allocated to one container, no process of another was observed on it, and the samples
	// of its processes explain what the ring shows.
	modeSole mode = iota
	// modeProcess: by process samples.
	modeProcess
	// modeUnknown: it cannot be attributed.
	modeUnknown
)

// target is a container's row, or the reason why the time is attributed to no container.
type target struct {
	row    *row
	reason gpu.UnattributedReason
}

// credit is a target's part of the busy time of one poll, in seconds of the GPU.
type credit struct {
	target
	busy float64
}

// User is the owner of a process: a container, or the reason why it belongs to none (host, unresolved, driver).
type User struct {
	Container gpu.Container
	Reason    gpu.UnattributedReason
	// MPS is true for a process with the name of an MPS daemon, whoever started it.
	MPS bool
}

// Users maps the processes of the node to their owners. A nil map means that processes cannot be resolved at all; a
// process missing from the map is unresolved.
type Users map[int]User

// of returns the owner of a process.
func (u Users) of(pid int) User {
	if who, ok := u[pid]; ok {
		return who
	}
	return User{Reason: gpu.UnattributedUnresolved}
}

// server is an MPS server process on a GPU.
type server struct {
	pid   int
	entry *gpu.Process
	// trusted is true for a process outside containers; no container can pretend to be one.
	trusted bool
}

// processWeight is one utilization sample of a process.
type processWeight struct {
	pid    int
	weight float64
}

// explained compares the samples of the processes with the GPU's ring, which they are taken from: what the ring shows
// beyond them was done by processes that the driver does not list.
type explained struct {
	cells []gpu.Sample // of the ring, newer than the newest process sample
	until int64        // time of the newest process sample; 0: none yet
	// some is true where the samples do not explain all of the busy time, but only owed seconds, beside those that were
	// attributed already.
	some bool
	owed float64
	// missing is the time, in seconds, in which the ring should have had a process and the samples have none, since they
	// last explained a reading. proven is true where it is more than chance.
	missing excess
	proven  bool
	doubt   doubt
}

// weighed is a user with the sum of its samples.
type weighed struct {
	who    User
	weight float64
}

// aggregation tracks the containers without an account of their own.
type aggregation struct {
	limit int
	// accounts counts the rows, without those of OtherContainers.
	accounts int
	// unplaced are allocations on GPUs that were never read: they have no row, but are published.
	unplaced map[rowKey]struct{}
	// now and before are the containers aggregated in this poll and in the previous one; total counts how often one
	// became so.
	now, before map[rowKey]struct{}
	total       uint64
	// evicted were dropped in this poll and may not return in it: a counter may restart only between two views.
	evicted map[rowKey]struct{}
	// full is set once nothing more can be evicted in this poll.
	full bool
}

// aggregateKey identifies the allocations that OtherContainers merges.
type aggregateKey struct {
	resource         string
	device, instance gpu.UUID
	compute          gpu.UUID
}
