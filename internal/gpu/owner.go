package gpu

import (
	"slices"
	"time"
)

// Container names who holds or uses a GPU. Outside Kubernetes Namespace and Name are empty and Pod is
// docker/NAME, slurm/JOB, systemd/UNIT or user/NAME. It is comparable: a map key.
type Container struct{ Namespace, Pod, Name string }

// OtherContainers is the name of those together that have no account of their own, because there are more than the
// exporter may publish. No container has it: a pod has a namespace, and outside Kubernetes Pod has a slash.
var OtherContainers = Container{Pod: "other"}

// Compare orders containers by namespace, pod and name.
func (c Container) Compare(d Container) int {
	switch {
	case c.Namespace != d.Namespace:
		if c.Namespace < d.Namespace {
			return -1
		}
		return 1
	case c.Pod != d.Pod:
		if c.Pod < d.Pod {
			return -1
		}
		return 1
	case c.Name < d.Name:
		return -1
	case c.Name > d.Name:
		return 1
	}
	return 0
}

// Holding says that a container holds a GPU, or a MIG instance of it, or a share of either. One holding
// per (container, resource, GPU, instance): several replicas of one GPU are one holding of a larger share.
type Allocation struct {
	Container Container
	Resource  string // "nvidia.com/gpu"
	GPU       UUID
	Instance  UUID // the MIG instance's UUID; empty: the GPU itself
	// Share is the held part of the instance, else of the GPU: 1 for the whole. Absent until it is known
	// (the replicas of a GPU are not listed yet).
	Share Opt[Ratio]
	// Shared is true where the scheme lets others hold the same GPU or instance.
	Shared bool
	// Source is where the holding was read: SourcePodResources.
	Source string
	// Since is the start of the container where a source tells, else when the holding was first seen;
	// absent for what began before the exporter.
	Since Opt[time.Time]
	// What the scheme grants, where it records it.
	GrantedMemory  Opt[Bytes]
	GrantedCompute Opt[Ratio]
}

// VisibleGPU says that a GPU can be seen in a container: its device node is there, or the container's first
// process was told of it. It says nothing of holding or using, and never too little: a privileged container
// shows every GPU.
type VisibleGPU struct {
	Container
	GPU   UUID
	Index int
}

// Unresolved counts the ids that a container holds and whose GPU cannot be told.
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

// PodRef names a pod of this node, with its UID where a source tells. Meta is nil where nothing more is known.
type PodRef struct {
	Namespace, Pod, UID string
	Meta                *PodMeta
}

// PodMeta is what the API server tells of a pod. It is not changed once it was handed out.
type PodMeta struct {
	// WorkloadType and Workload are what a user made that the pod is of: "Deployment" and "web".
	WorkloadType, Workload string
	// Labels are the pod's labels that somebody asked for.
	Labels map[string]string
}

// Holdings is who holds what, on one node, at one moment. It is immutable.
type Allocations struct {
	// Known is false while nobody can tell: there was no answer yet, or the last is too old. Then List says
	// nothing, and no GPU is known to be free. Configured is false where no source was asked for at all.
	Known, Configured bool
	List              []Allocation
	Unresolved        []Unresolved
	Resources         []ResourceCount // in the order of their names
	Pods              []PodRef
	// Untruthful is true while an unresolved device may lie on any GPU: no GPU is then known free.
	Untruthful bool
	Sources    []Source
	PollGroups []PollHealth
}

// Inventory is the naming table of a node's GPUs, against which device ids are resolved. It is immutable.
type Inventory struct {
	GPUs []InventoryGPU
}

// InventoryGPU is one row of an Inventory.
type InventoryGPU struct {
	UUID  UUID
	Index int // NVML index now
	Minor Opt[int]
	PCI   PCIAddress
	MIG   bool // MIG mode is on
	// Memory is the total device memory, where known. It turns a granted amount into a share.
	Memory    Opt[Bytes]
	Instances []Instance
}

// ByUUID returns the GPU of that UUID.
func (inv *Inventory) ByUUID(u UUID) (*InventoryGPU, bool) {
	return inv.find(func(c *InventoryGPU) bool { return c.UUID == u })
}

// ByMinor returns the GPU whose device node is /dev/nvidia<minor>.
func (inv *Inventory) ByMinor(minor int) (*InventoryGPU, bool) {
	return inv.find(func(c *InventoryGPU) bool { m, ok := c.Minor.Get(); return ok && m == minor })
}

// ByInstance returns the GPU and the instance to which a MIG device UUID belongs.
func (inv *Inventory) ByInstance(u UUID) (*InventoryGPU, *Instance, bool) {
	if inv == nil {
		return nil, nil, false
	}
	for i := range inv.GPUs {
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
	if inv == nil {
		return nil, false
	}
	for i := range inv.GPUs {
		if match(&inv.GPUs[i]) {
			return &inv.GPUs[i], true
		}
	}
	return nil, false
}
