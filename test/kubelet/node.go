package main

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// state is the state of a kubelet's managers, one line of standard input.
type state struct {
	// Pods are in the words of the API: what was admitted, whatever has become of it.
	Pods    []*v1.Pod `json:"pods"`
	Devices []device  `json:"devices"`
	Claims  []claim   `json:"claims"`
	// Allocatable are the ids of the plugins that are connected, by resource.
	Allocatable map[string][]string `json:"allocatable"`
}

// device is an allocation of the device manager: one container and resource.
type device struct {
	Pod       string   `json:"pod"` // UID
	Container string   `json:"container"`
	Resource  string   `json:"resource"`
	IDs       []string `json:"ids"`
	NUMA      []int64  `json:"numa,omitempty"`
	// Answer is the plugin's answer to Allocate, as it was on the wire.
	Answer []byte `json:"answer,omitempty"`
}

// claim is a device that a container has by a resource claim.
type claim struct {
	Pod       string   `json:"pod"` // UID
	Container string   `json:"container"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Driver    string   `json:"driver"`
	Pool      string   `json:"pool"`
	Device    string   `json:"device"`
	CDI       []string `json:"cdi,omitempty"`
}

// numa lists the NUMA nodes of the devices; -1 is the key of those without one.
func (d device) numa() []int64 {
	if len(d.NUMA) == 0 {
		return []int64{-1}
	}
	return d.NUMA
}

// node implements the providers of Kubernetes' servers.
type node struct {
	mu sync.Mutex
	s  state
}

func (n *node) set(s state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.s = s
}

// active is the kubelet's rule: a pod that has ended is not, unless it is still being taken down.
func active(p *v1.Pod) bool {
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	return !ended || p.DeletionTimestamp != nil
}

// GetActivePods implements podresources.PodsProvider.
func (n *node) GetActivePods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*v1.Pod
	for _, p := range n.s.Pods {
		if active(p) {
			out = append(out, p)
		}
	}
	return out
}

// GetPods implements podresources.PodsProvider.
func (n *node) GetPods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.s.Pods
}

// GetPodByName implements podresources.PodsProvider.
func (n *node) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, p := range n.GetPods() {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// update releases the devices of pods that are no longer active.
func (n *node) update() {
	live := map[string]bool{}
	for _, p := range n.GetActivePods() {
		live[string(p.UID)] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.s.Devices = slices.DeleteFunc(slices.Clone(n.s.Devices), func(d device) bool { return !live[d.Pod] })
}

// GetDevices implements podresources.DevicesProvider. As in the kubelet, each device is an entry of its own, and
// one that lies on several NUMA nodes is an entry for each.
func (n *node) GetDevices(podUID, container string) []*podresourcesv1.ContainerDevices {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*podresourcesv1.ContainerDevices
	for _, d := range n.s.Devices {
		if d.Pod != podUID || d.Container != container {
			continue
		}
		for _, id := range d.IDs {
			out = append(out, entries(d.Resource, id, d.NUMA)...)
		}
	}
	return out
}

func entries(resource, id string, numa []int64) []*podresourcesv1.ContainerDevices {
	if len(numa) == 0 {
		return []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}
	}
	var out []*podresourcesv1.ContainerDevices
	for _, at := range numa {
		out = append(out, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id},
			Topology: &podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: at}}}})
	}
	return out
}

// allocatable are the devices of the plugins that are connected.
func (n *node) allocatable() []*podresourcesv1.ContainerDevices {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*podresourcesv1.ContainerDevices
	for resource, ids := range n.s.Allocatable {
		for _, id := range ids {
			out = append(out, entries(resource, id, nil)...)
		}
	}
	return out
}

// claims are the claims of a container. As in the kubelet, the CDI names of a claim's devices grow from device to device.
func (n *node) claims(pod *v1.Pod, container *v1.Container) []*podresourcesv1.DynamicResource {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*podresourcesv1.DynamicResource
	var cdi []*podresourcesv1.CDIDevice
	for _, c := range n.s.Claims {
		if c.Pod != string(pod.UID) || c.Container != container.Name {
			continue
		}
		last := len(out) - 1
		if last < 0 || out[last].ClaimName != c.Name || out[last].ClaimNamespace != c.Namespace {
			out = append(out, &podresourcesv1.DynamicResource{ClaimName: c.Name, ClaimNamespace: c.Namespace})
			last, cdi = len(out)-1, nil
		}
		for _, name := range c.CDI {
			cdi = append(cdi, &podresourcesv1.CDIDevice{Name: name})
		}
		out[last].ClaimResources = append(out[last].ClaimResources, &podresourcesv1.ClaimResource{DriverName: c.Driver, PoolName: c.Pool,
			DeviceName: c.Device, CdiDevices: slices.Clone(cdi)})
	}
	return out
}

// GetAllocatableCPUs implements podresources.CPUsProvider.
func (n *node) GetAllocatableCPUs() []int64 { return []int64{0, 1, 2, 3} }

// cpus and memory are those of a container: every one has some of its own, so that responses contain more than devices.
func cpus() []int64 { return []int64{1} }

func memory(size uint64) []*podresourcesv1.ContainerMemory {
	return []*podresourcesv1.ContainerMemory{{MemoryType: "memory", Size: size}}
}
