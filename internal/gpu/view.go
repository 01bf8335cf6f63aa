package gpu

import "time"

// View is everything that is published at one time: it is built once, stored atomically, and never modified again.
// Any number of goroutines may read it.
type View struct {
	At   time.Time // the exporter's clock at the publish
	Node string
	// Build identifies the exporter.
	Build Build

	System Opt[System] // absent while there is no driver
	GPUs   []GPU       // by index, then PCI address
	// Devices counts the expected GPUs by state; absent while neither NVML nor the PCI bus could be read.
	Devices map[DeviceState]int

	// Ownership is true while allocations are known. Only then can a GPU be known to be unallocated.
	Ownership   bool
	Host        bool           // nothing allocates GPUs: the host has them
	Containers  []ContainerGPU // by container, then GPU
	Allocations []ContainerAllocation
	Unresolved  []Unresolved
	Resources   []ResourceCount
	Pods        []PodRef
	// Accounts counts the containers that have series, and their limit; absent before the first poll.
	Accounts Opt[Accounts]
	// Visible are the GPUs visible in containers, by container, then GPU: an upper bound. Empty if the scan is
	// disabled.
	Visible []VisibleGPU

	Sources    []Source
	PollGroups []PollHealth
	Calls      []CallStats
	Rejected   []RejectedCount
	Panics     Opt[uint64] // recovered while the driver was read
	Features   []Feature
	Paused     []Pause
	// NotOffered lists, once per GPU, the readings that its hardware or driver does not offer. For the node page.
	NotOffered []NotOffered
	// Notes are sentences for the reader of the node page: no driver yet, and what to do.
	Notes []string
}

// Build identifies a release of the exporter.
type Build struct{ Version, Revision, GoVersion string }

// GPU is one GPU in a View: its identity, its last readings, and its counters.
type GPU struct {
	Identity
	State DeviceState
	// Message says why a GPU is not up. For the node page.
	Message string
	Failure Failure // of a failed GPU
	// LastRead is the time of each poll group's last success.
	LastRead map[PollGroup]time.Time

	// The last readings of each poll group. A poll group that failed is absent: stale values are not published.
	Fast   Opt[*Fast]
	Medium Opt[*Medium]
	Slow   Opt[*Slow]
	// Recovery is the last one read; it stays when the GPU is lost.
	Recovery Opt[RecoveryAction]
	// LinksExpected is the maximum number of NVLinks that were up on it, or on another GPU of its model on the node, since the
	// exporter started: drivers report links that a board does not have as down.
	LinksExpected int
	Taints        []Taint // by the DRA driver, in ResourceSlices
	// KubeletHealthy is the kubelet's verdict on the devices of the GPU; absent where no device plugin offers them.
	KubeletHealthy Opt[bool]
	XIDs           []XIDCount // by code; the critical ones that can be reported start at 0

	Activity  Activity
	Instances []InstanceActivity
	// Created is when the counters of GPUSeconds, and those of Activity in seconds, began at 0.
	Created time.Time
	// GPUSeconds counts each second of the GPU in exactly one state; absent keys are 0.
	GPUSeconds map[TimeState]Seconds
	// AllocationRatio is the allocated fraction of the GPU; absent if unknown.
	AllocationRatio Opt[Ratio]
	Unattributed    []Unattributed
	// Processes are those with series of their own, where they are published, and the others together.
	Processes         []ProcessActivity
	AttributionErrors []AttributionError
	// History covers the last minutes of this GPU. For the node page.
	History []HistoryPoint
}

// Activity holds the counters of a GPU or an instance since the exporter started; Energy since the driver was loaded.
type Activity struct {
	Method     Opt[Method]
	Busy       Opt[Seconds] // any kernel ran
	Observed   Opt[Seconds] // time covered by Busy
	MemoryBusy Opt[Seconds]
	// Mean and Peak are over the last 60 s of samples.
	Mean, Peak Opt[Ratio]
	// LastBusy is when the last kernel was observed; until then, when the observation started.
	LastBusy Opt[time.Time]

	// GPM sums: seconds of activity, and the seconds that were profiled.
	Profiled, SMActive, SMOccupancy, TensorActive, DRAMActive Opt[Seconds]
	Pipes                                                     map[Pipe]Seconds
	// Energy, links and limits: monotonic over the life of the exporter, wraps resolved.
	Energy                        Opt[Joules]
	Limited                       map[LimitReason]Seconds
	PCIeTransmit, PCIeReceive     Opt[float64] // bytes
	NVLinkTransmit, NVLinkReceive Opt[float64]
	Unmeasured                    []Unmeasured
}

// Unmeasured is a reading that the driver has and that is not published, because its values would be wrong.
type Unmeasured struct {
	Reading, Reason string
	Detail          string // the figures that contradict each other, for a person
}

// InstanceActivity is one MIG GPU instance in a View.
type InstanceActivity struct {
	Instance
	Memory          Opt[Memory]
	Activity        Activity
	AllocationRatio Opt[Ratio] // of the instance
	// ComputeActivity is that of each compute instance, in the order of Compute, where there is more than one. It is zero
	// for one that is not sampled on its own.
	ComputeActivity []Activity
}

// ContainerGPU holds the counters and gauges of one container on one GPU.
type ContainerGPU struct {
	Container
	GPU   UUID
	Index int
	// Allocated is the integral of its allocation; absent for a container that only uses the GPU.
	Allocated Opt[Seconds]
	Busy      Opt[Seconds]
	Observed  Opt[Seconds]
	Idle      Opt[Seconds]
	// Gap is allocated time in which the container was not busy, less Idle.
	Gap    Opt[Seconds]
	Energy Opt[Joules]
	Memory Opt[Bytes]
	// MemorySource is the source of Memory: gpu (all of the GPU's or MIG instance's), process (NVML's process lists) or
	// cgroup, driver (accounts of its cgroup by the kernel, the driver); empty without it.
	MemorySource string
	Processes    Opt[int]
	LastBusy     Opt[time.Time]
	Since        Opt[time.Time]
	Attribution  string // exclusive, process, mig, none; empty if unknown
	Source       string
	// Ended marks a container that no longer has the GPU: its counters are kept for a while, its gauges are absent.
	Ended    bool
	Mismatch []string
	// Created is when the counters began at 0.
	Created time.Time
}

// Accounts counts the accounts of containers on GPUs.
type Accounts struct {
	// Own have series of their own, including those that ended less than five minutes ago; Limit is their maximum.
	Own, Limit int
	// Aggregated are published together as OtherContainers; Aggregations counts how often a container became so.
	Aggregated   int
	Aggregations uint64
}

// ContainerAllocation is one allocation as published: AllocationRatio is the share of the physical GPU, so that sums
// count GPUs.
type ContainerAllocation struct {
	Allocation
	Index           int
	AllocationRatio Opt[Ratio]
}

// Unattributed is the part of a GPU's totals that is attributed to no container, for one reason.
type Unattributed struct {
	Reason UnattributedReason
	Busy   Opt[Seconds]
	Energy Opt[Joules]
	Memory Opt[Bytes]
}

// ProcessActivity is a process on a GPU. The one with PID 0 is all the others together, and what NVML attributes to no
// process.
type ProcessActivity struct {
	PID       int
	Command   string // as the kernel has it, up to 15 bytes
	Kinds     []ProcessKind
	Container Container
	Instance  UUID         // MIG device; empty where the GPU is not partitioned
	Memory    Opt[Bytes]   // absent where NVML does not report it
	Busy      Opt[Seconds] // since its series began; absent where NVML has no samples by process
}

// AttributionError is the difference between the device's total and the sum of its attributed and unattributed parts,
// divided by the total. 0 when they add up.
type AttributionError struct {
	Quantity string // busy, memory, energy
	Ratio    Ratio
}

// HistoryPoint is one point of a GPU's history.
type HistoryPoint struct {
	At          time.Time
	Utilization Opt[Ratio]
	Memory      Opt[Ratio]
	Power       Opt[Watts]
}
