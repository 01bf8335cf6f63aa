package gpu

import "time"

// View is everything that one publish shows: it is built once, stored with one atomic store, and never
// changed again. Whoever reads it, on however many goroutines, sees one moment.
type View struct {
	At   time.Time // the exporter's clock at the publish
	Node string
	// Build is the exporter that made the view.
	Build Build

	System Opt[System] // absent while no driver answers
	GPUs   []GPU       // by index, then PCI address
	// Devices counts the expected GPUs by state; absent while neither NVML nor the PCI bus could be read.
	Devices map[DeviceState]int

	// Ownership is true while holdings are known. Then, and only then, a GPU may be known to be free.
	Ownership   bool
	Containers  []ContainerGPU // by container, then GPU
	Allocations []ContainerAllocation
	Unresolved  []Unresolved
	Resources   []ResourceCount
	Pods        []PodRef
	// Accounts says how near the ceiling the series of containers are; absent before the first round.
	Accounts Opt[Accounts]
	// Visible are the GPUs that can be seen in containers, by container, then GPU: an upper bound. Empty too
	// where nobody looks.
	Visible []VisibleGPU

	Sources    []Source
	PollGroups []PollHealth
	Calls      []CallStats
	Rejected   []RejectedCount
	Features   []Feature
	Paused     []Pause
	// NotOffered lists, once per GPU, the readings that its hardware or driver does not offer. For the page.
	NotOffered []NotOffered
	// Notes are the plain sentences for a person who looks at the page: no driver yet, and what to do.
	Notes []string
}

// Build names a release of the exporter.
type Build struct{ Version, Revision, GoVersion string }

// GPU is one GPU in a View: who it is, what was read of it, and what was summed.
type GPU struct {
	Identity
	State DeviceState
	// Why says in words why a GPU is failed, for the page.
	Why string
	// LastRead is when each poll group last succeeded.
	LastRead map[PollGroup]time.Time

	// The last readings of each poll group. A poll group that failed is absent, so stale values never pass for live.
	Fast   Opt[*Fast]
	Medium Opt[*Medium]
	Slow   Opt[*Slow]
	// Recovery outlives the GPU: it is the last that was read.
	Recovery Opt[RecoveryAction]
	XIDs     []XIDCount // by code; the critical ones from 0

	Activity  Activity
	Instances []InstanceActivity
	// CardSeconds gives each second of the GPU once; absent keys are 0.
	GPUSeconds map[TimeState]Seconds
	// Allocation is the held part of the GPU; absent while nobody can tell.
	AllocationRatio Opt[Ratio]
	Unattributed    []Unattributed
	Closing         []ClosingError
	// History is the last minutes of this GPU, for the page.
	History []HistoryPoint
}

// Activity is what was summed since the exporter started, for a GPU or an instance.
type Activity struct {
	Method     Opt[Method]
	Busy       Opt[Seconds] // any kernel ran
	Observed   Opt[Seconds] // time of which Busy speaks
	MemoryBusy Opt[Seconds]
	// Mean and Peak are over the last 60 s of samples.
	Mean, Peak Opt[Ratio]
	// LastBusy is the last work seen; until then, when watching began.
	LastBusy Opt[time.Time]

	// GPM sums: seconds of activity, and the seconds that were profiled.
	Profiled, SMActive, SMOccupancy, TensorActive, DRAMActive Opt[Seconds]
	Pipes                                                     map[Pipe]Seconds
	// Energy, links and limits: monotonic over the life of the exporter, wraps undone.
	Energy                        Opt[Joules]
	Limited                       map[LimitReason]Seconds
	PCIeTransmit, PCIeReceive     Opt[float64] // bytes
	NVLinkTransmit, NVLinkReceive Opt[float64]
}

// InstanceActivity is one MIG GPU instance in a View.
type InstanceActivity struct {
	Instance
	Memory          Opt[Memory]
	Activity        Activity
	AllocationRatio Opt[Ratio] // of the instance
}

// ContainerCard is one container on one GPU: what was summed for it.
type ContainerGPU struct {
	Container
	GPU   UUID
	Index int
	// Held is the integral of its allocation. Present for holders.
	Held     Opt[Seconds]
	Busy     Opt[Seconds]
	Observed Opt[Seconds]
	Idle     Opt[Seconds]
	// Underused is held time in which others, or nobody, worked, less Idle.
	Gap         Opt[Seconds]
	Energy      Opt[Joules]
	Memory      Opt[Bytes]
	Processes   Opt[int]
	LastBusy    Opt[time.Time]
	Since       Opt[time.Time]
	Attribution string // exclusive, process, mig, none; empty: not told
	Source      string
	// Gone marks a container that no longer holds: its counters stand still for a while, its gauges have ended.
	Gone     bool
	Mismatch []string
}

// Accounts counts the accounts of containers on GPUs.
type Accounts struct {
	// Own have a name, with those that ended less than five minutes ago; Limit is the most there may be.
	Own, Limit int
	// Folded are shown together as OtherContainers now; Folds counts how often one came to be.
	Folded int
	Folds  uint64
}

// ContainerHolding is one holding as it is published: Allocation is the share of the physical GPU, so
// that sums count GPUs.
type ContainerAllocation struct {
	Allocation
	Index           int
	AllocationRatio Opt[Ratio]
}

// UnattributedReason says why work of a GPU belongs to no container.
type UnattributedReason string

// The reasons.
const (
	UnattributedHost       UnattributedReason = "host"
	UnattributedHidden     UnattributedReason = "hidden"
	UnattributedUnresolved UnattributedReason = "unresolved"
	UnattributedUnmeasured UnattributedReason = "unmeasured"
	UnattributedDriver     UnattributedReason = "driver"
	UnattributedIdle       UnattributedReason = "idle"
	// UnattributedMPS is the work of MPS clients whose parts nobody can tell.
	UnattributedMPS UnattributedReason = "mps"
)

// Unattributed is what closes the sum of one GPU for one reason.
type Unattributed struct {
	Reason UnattributedReason
	Busy   Opt[Seconds]
	Energy Opt[Joules]
	Memory Opt[Bytes]
}

// ClosingError is by how much a sum fails to close, over the device's figure. 0 when it closes.
type ClosingError struct {
	Quantity string // busy, memory, energy
	Ratio    Ratio
}

// HistoryPoint is one point of a GPU's recent past.
type HistoryPoint struct {
	At          time.Time
	Utilization Opt[Ratio]
	Memory      Opt[Ratio]
	Power       Opt[Watts]
}
