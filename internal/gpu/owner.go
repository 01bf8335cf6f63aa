package gpu

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Container identifies a container that a GPU is allocated to or that uses one. Outside Kubernetes, Namespace and Name
// are empty and Pod is docker/NAME, slurm/JOB, systemd/UNIT or user/NAME. It is comparable and serves as a map key.
type Container struct{ Namespace, Pod, Name string }

// OtherContainers stands for the containers above the exporter's limit, which share one account. No real container has
// this name: a pod has a namespace, and outside Kubernetes Pod contains a slash.
var OtherContainers = Container{Pod: "other"}

// UnitPrefix and UserPrefix begin the Pod of what belongs to the host itself: a unit of systemd and a user's session.
const (
	UnitPrefix = "systemd/"
	UserPrefix = "user/"
)

// OfHost reports whether the container is a unit or a user of the host.
func (c Container) OfHost() bool {
	return strings.HasPrefix(c.Pod, UnitPrefix) || strings.HasPrefix(c.Pod, UserPrefix)
}

// Compare orders containers by namespace, pod and name.
func (c Container) Compare(d Container) int {
	return cmp.Or(strings.Compare(c.Namespace, d.Namespace), strings.Compare(c.Pod, d.Pod), strings.Compare(c.Name, d.Name))
}

// PodName returns the container's pod.
func (c Container) PodName() PodName { return PodName{c.Namespace, c.Pod} }

// PodName identifies a pod of this node. It is comparable: a map key.
type PodName struct{ Namespace, Pod string }

// Compare orders pods by namespace and name.
func (p PodName) Compare(q PodName) int {
	return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Pod, q.Pod))
}

// Allocation is a GPU, a MIG instance, or a share of either, that is allocated to a container. There is one per
// (container, resource, GPU, instance): several replicas of one GPU are one allocation of a larger share.
type Allocation struct {
	Container Container
	Resource  string // "nvidia.com/gpu"
	GPU       UUID
	Instance  UUID // the MIG instance's UUID; empty: the GPU itself
	// ComputeInstance is the UUID of the one that is allocated where the MIG instance has several; empty: all of them.
	ComputeInstance UUID
	// Share is the allocated fraction of the instance, else of the GPU: 1 for the whole. Absent until it is known (the
	// replicas of a GPU have not been listed yet).
	Share Opt[Ratio]
	// Shared is true where the scheme allocates the same GPU or instance to several containers.
	Shared bool
	// Source is the data source that identified the GPU: SourcePodResources, SourceCheckpoint, …
	Source string
	// Since is the start time of the container where a data source reports it, else when the allocation was first
	// observed; absent for what started before the exporter.
	Since Opt[time.Time]
	// MemoryLimit and ComputeLimit are the limits that the sharing scheme records, if any.
	MemoryLimit  Opt[Bytes]
	ComputeLimit Opt[Ratio]
	// MemoryGuaranteed is the amount of memory that the driver guarantees to the container; absent without one.
	MemoryGuaranteed Opt[Bytes]
	// Replica is the number of the first allocated replica of a time-sliced GPU, as in its device ID; empty without.
	Replica string
	// Claim is the DRA device that was allocated; zero for device plugins.
	Claim ClaimDevice
}

// UnattributedReason is why busy time, energy or memory of a GPU is attributed to no container.
type UnattributedReason string

// The reasons.
const (
	UnattributedHost       UnattributedReason = "host"
	UnattributedHidden     UnattributedReason = "hidden"
	UnattributedUnresolved UnattributedReason = "unresolved"
	UnattributedUnmeasured UnattributedReason = "unmeasured"
	UnattributedDriver     UnattributedReason = "driver"
	UnattributedIdle       UnattributedReason = "idle"
	// UnattributedMPS: MPS clients whose shares the driver does not report.
	UnattributedMPS UnattributedReason = "mps"
)

// CgroupMemory is memory of one GPU that the kernel, or the driver, charges to a cgroup: that of a container, or of none
// for a reason.
type CgroupMemory struct {
	// Path is that of the cgroup where the driver reported it; empty for the kernel's files.
	Path      string
	Container Container
	Reason    UnattributedReason // empty for a container
	Used      Bytes
	// Limit (dmem.max, of the cgroup and those above it; the driver's hardLimit) and Guaranteed (dmem.min, softLimit) are
	// absent where none is set.
	Limit, Guaranteed Opt[Bytes]
}

// ClaimDevice names a device of a ResourceClaim as the kubelet does.
type ClaimDevice struct{ Namespace, Name, Driver, Pool, Device string }

// VisibleGPU is a GPU that is visible in a container: its device node exists there, or the environment of the
// container's first process names it. It is an upper bound and independent of allocation and use: a privileged
// container has every GPU.
type VisibleGPU struct {
	Container
	GPU   UUID
	Index int
}

// Unresolved counts the device IDs allocated to a container that could not be resolved to a GPU.
type Unresolved struct {
	Container Container
	Resource  string
	Devices   int
}

// ResourceCount is the kubelet's own count of one resource.
type ResourceCount struct {
	Resource    string
	Allocatable Opt[int]
	Allocated   int
}

// Taint is a taint of a device in a ResourceSlice: pods are not placed on it (effect NoSchedule), or evicted (NoExecute).
type Taint struct{ Key, Value, Effect string }

// PodRef identifies a pod of this node, with its UID where a data source reports it. Meta is nil if unknown.
type PodRef struct {
	Namespace, Pod, UID string
	Meta                *PodMeta
}

// PodMeta is what the API server reports about a pod. It is immutable.
type PodMeta struct {
	// WorkloadType and Workload are the top-level owner of the pod: "Deployment" and "web".
	WorkloadType, Workload string
	// Labels are the pod's labels that the configuration selects.
	Labels map[string]string
}

// Allocations is what is allocated to whom on one node at one time. It is immutable.
type Allocations struct {
	// Known is false until a data source has responded, and once its last response is too old. List is then void and
	// no GPU is known to be unallocated. Configured is false if no data source is enabled.
	Known, Configured bool
	List              []Allocation
	Unresolved        []Unresolved
	Resources         []ResourceCount // in the order of their names
	Pods              []PodRef
	// Listed are the containers of every pod that the kubelet lists, with devices or without: ordinary containers and
	// sidecars, but no other init containers and no ephemeral ones. It is shared and read-only; nil without a kubelet.
	Listed map[PodName][]string
	// Taints are those of the GPUs and their MIG devices, sorted.
	Taints map[UUID][]Taint
	// KubeletHealth is whether the kubelet finds the devices of a GPU healthy; without an entry it has none of a device plugin.
	KubeletHealth map[UUID]bool
	// Uncertain is true while an unresolved device may be any GPU: no GPU is then known to be unallocated. Possible are
	// the GPUs that a device may be which is none of the others.
	Uncertain  bool
	Possible   map[UUID]bool
	Sources    []Source
	PollGroups []PollHealth
}

// Same reports whether the same is allocated.
func (a *Allocations) Same(b *Allocations) bool {
	return a.Known == b.Known && a.Uncertain == b.Uncertain && slices.Equal(a.List, b.List) &&
		slices.Equal(a.Unresolved, b.Unresolved) && maps.Equal(a.Possible, b.Possible)
}

// Unallocated reports whether a GPU is known to be unallocated as far as it is not in the list.
func (a *Allocations) Unallocated(u UUID) bool { return a.Known && !a.Uncertain && !a.Possible[u] }

// Sort brings the lists into their order: by container, then resource, then GPU.
func (a *Allocations) Sort() {
	Sort(a.List, func(x, y Allocation) int {
		return cmp.Or(x.Container.Compare(y.Container), cmp.Compare(x.Resource, y.Resource),
			cmp.Compare(x.GPU, y.GPU), cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.ComputeInstance, y.ComputeInstance))
	})
	Sort(a.Unresolved, func(x, y Unresolved) int {
		return cmp.Or(x.Container.Compare(y.Container), cmp.Compare(x.Resource, y.Resource))
	})
	Sort(a.Pods, func(x, y PodRef) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Pod, y.Pod))
	})
	Sort(a.Resources, func(x, y ResourceCount) int { return cmp.Compare(x.Resource, y.Resource) })
}

// Inventory lists the names of a node's GPUs, against which device IDs are resolved. It is immutable.
type Inventory struct {
	GPUs []InventoryGPU
	// Detached are those that are bound to another driver, for a virtual machine: only their addresses are known.
	Detached []InventoryGPU
}

// InventoryGPU is one row of an Inventory.
type InventoryGPU struct {
	UUID  UUID
	Index int // NVML index now
	Minor Opt[int]
	PCI   PCIAddress
	MIG   bool // MIG mode is on
	// Memory is the total device memory, where known. It turns a memory limit into a share.
	Memory    Opt[Bytes]
	Instances []Instance
}

func (inv *Inventory) gpus() []InventoryGPU {
	if inv == nil {
		return nil
	}
	return inv.GPUs
}

// ByUUID returns the GPU of that UUID.
func (inv *Inventory) ByUUID(u UUID) (*InventoryGPU, bool) {
	return inv.find(func(c *InventoryGPU) bool { return c.UUID == u })
}

// ByMinor returns the GPU whose device node is /dev/nvidia<minor>.
func (inv *Inventory) ByMinor(minor int) (*InventoryGPU, bool) {
	return inv.find(func(c *InventoryGPU) bool { m, ok := c.Minor.Get(); return ok && m == minor })
}

// ByIndex returns the GPU of that NVML index. While two GPUs claim an index, it identifies neither.
func (inv *Inventory) ByIndex(index int) (*InventoryGPU, bool) {
	var found *InventoryGPU
	for i := range inv.gpus() {
		if inv.GPUs[i].Index == index {
			if found != nil {
				return nil, false
			}
			found = &inv.GPUs[i]
		}
	}
	return found, found != nil
}

// ByInstance returns the GPU and the instance to which a MIG device UUID belongs.
func (inv *Inventory) ByInstance(u UUID) (*InventoryGPU, *Instance, bool) {
	for i := range inv.gpus() {
		c := &inv.GPUs[i]
		for j := range c.Instances {
			in := &c.Instances[j]
			if in.UUID == u || slices.ContainsFunc(in.Compute, func(ci ComputeInstance) bool { return ci.UUID == u }) {
				return c, in, true
			}
		}
	}
	return nil, nil, false
}

func (inv *Inventory) find(match func(*InventoryGPU) bool) (*InventoryGPU, bool) {
	for i := range inv.gpus() {
		if match(&inv.GPUs[i]) {
			return &inv.GPUs[i], true
		}
	}
	return nil, false
}
