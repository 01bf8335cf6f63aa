package catalog

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func ownership() Group {
	return Group{
		Name:  "allocation",
		Title: "Allocation",
		Rows: []Family{
			{Name: "gpu_allocation_ratio", Scope: ScopeGPU,
				Help:   "Fraction of the GPU that is allocated; 0 if unallocated, absent if unknown.",
				Source: "kubelet PodResources",
				Read:   allGPUs(func(c *gpu.GPU, emit gpuEmit) { opt(emit, c.AllocationRatio) })},
			{Name: "gpu_container_allocation_ratio", Scope: ScopeContainer,
				Help: "Fraction of the physical GPU that is allocated to the container, so that sums count GPUs. " +
					"Exported while allocated, even if idle.", Source: "kubelet PodResources",
				Labels: []string{"resource", "mig_uuid"},
				Read: func(v *gpu.View, emit Emit) {
					for _, h := range v.Allocations {
						if share, ok := h.AllocationRatio.Get(); ok {
							emit(float64(share), v.Node, string(h.GPU), indexLabel(h.Index), h.Container.Namespace,
								h.Container.Pod,
								h.Container.Name, ResourceLabel(h.Resource), string(h.Instance))
						}
					}
				}},
			{Name: "gpu_container_visible", Scope: ScopeContainer, Stability: Experimental,
				Help: "GPUs visible in the container. Independent of allocation and use: in a privileged " +
					"container every GPU is visible.",
				Source: "device nodes under /proc/PID/root/dev, else NVIDIA_VISIBLE_DEVICES of the container's first " +
					"process", Offered: "with --containers.visible",
				Read: func(v *gpu.View, emit Emit) {
					for _, s := range v.Visible {
						emit(1, v.Node, string(s.GPU), indexLabel(s.Index), s.Namespace, s.Pod, s.Name)
					}
				}},
			{Name: "gpu_container_unresolved_devices", Scope: ScopePod,
				Help: "Allocated device IDs that could not be resolved to a GPU.", Source: "kubelet PodResources",
				Labels: []string{"container", "resource"},
				Read: func(v *gpu.View, emit Emit) {
					for _, u := range v.Unresolved {
						emit(float64(u.Devices), v.Node, u.Container.Namespace, u.Container.Pod, u.Container.Name,
							ResourceLabel(u.Resource))
					}
				}},
			{Name: "gpu_container_memory_limit_bytes", Scope: ScopeContainer,
				Help: "Device memory limit of the container: the one that the driver enforces on its cgroup, else that of " +
					"its GPU sharing scheme.",
				Source:  "dmem.max or nvmlDeviceGetMemoryLimits_v1; device IDs, annotations or files of the sharing scheme",
				Offered: "schemes with such a limit",
				Read:    limitSum(func(h *gpu.ContainerAllocation) gpu.Opt[float64] { return asFloat(h.MemoryLimit) })},
			{Name: "gpu_container_memory_guaranteed_bytes", Scope: ScopeContainer, Stability: Experimental,
				Help:    "Device memory that the driver guarantees to the container (soft limit of its cgroup).",
				Source:  "dmem.min or nvmlDeviceGetMemoryLimits_v1",
				Offered: "R615 and newer drivers, for cgroups with such a limit",
				Read:    limitSum(func(h *gpu.ContainerAllocation) gpu.Opt[float64] { return asFloat(h.MemoryGuaranteed) })},
			{Name: "gpu_container_compute_limit_ratio", Scope: ScopeContainer,
				Help:   "Compute limit of the container under its GPU sharing scheme, as a fraction of the GPU.",
				Source: "device IDs, annotations or files of the sharing scheme", Offered: "schemes with such a limit",
				Read: limitSum(func(h *gpu.ContainerAllocation) gpu.Opt[float64] { return asFloat(h.ComputeLimit) })},
			{Name: "gpu_pod_info", Scope: ScopePod,
				Help:   "Pods with an allocated or used GPU. Labels whose data source is disabled are empty.",
				Source: "kubelet PodResources",
				Labels: []string{"pod_uid", "workload_type", "workload"},
				Read: func(v *gpu.View, emit Emit) {
					for _, p := range v.Pods {
						m := podMeta(p)
						emit(1, v.Node, p.Namespace, p.Pod, p.UID, m.WorkloadType, m.Workload)
					}
				}},
			{Name: "gpu_node_allocatable_devices", Scope: ScopeNode,
				Help:   "Allocatable devices of the node, by resource.",
				Source: "kubelet PodResources, GetAllocatableResources", Labels: []string{"resource"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, r := range v.Resources {
						opt(emit, r.Allocatable, ResourceLabel(r.Resource))
					}
				})},
			{Name: "gpu_node_allocated_devices", Scope: ScopeNode,
				Help: "Devices of the node allocated to containers, by resource.", Source: "kubelet PodResources, List",
				Labels: []string{"resource"},
				Read: node(func(v *gpu.View, emit gpuEmit) {
					for _, r := range v.Resources {
						emit(float64(r.Allocated), ResourceLabel(r.Resource))
					}
				})},
		},
	}
}

func asFloat[T number](o gpu.Opt[T]) gpu.Opt[float64] {
	if v, ok := o.Get(); ok {
		return gpu.Some(float64(v))
	}
	return gpu.None[float64]()
}

// limitSum adds up a limit over the allocations of a container on one GPU, which the family has no label to distinguish.
// View.Allocations is ordered by container and GPU.
func limitSum(field func(*gpu.ContainerAllocation) gpu.Opt[float64]) func(*gpu.View, Emit) {
	type place struct {
		gpu.Container
		dev gpu.UUID
	}
	return func(v *gpu.View, emit Emit) {
		var order []place
		var sums map[place]float64
		var index map[place]int
		for i := range v.Allocations {
			h := &v.Allocations[i]
			if g, ok := field(h).Get(); ok {
				p := place{h.Container, h.GPU}
				if sums == nil { // most nodes have no limits
					sums, index = map[place]float64{}, map[place]int{}
				}
				if _, known := sums[p]; !known {
					order = append(order, p)
				}
				sums[p] += g
				index[p] = h.Index
			}
		}
		for _, p := range order {
			emit(sums[p], v.Node, string(p.dev), indexLabel(index[p]), p.Namespace, p.Pod, p.Name)
		}
	}
}

// podMeta is the metadata of a pod; empty if unknown.
func podMeta(p gpu.PodRef) gpu.PodMeta {
	if p.Meta == nil {
		return gpu.PodMeta{}
	}
	return *p.Meta
}

// WithPodLabels returns the rows with labels of pods added to gpu_pod_info, in their order. The labels of different names must differ (see
// PodLabel); Validate finds it if they do not.
func WithPodLabels(rows []Family, labels []string) []Family {
	out := slices.Clone(rows)
	for i := range out {
		if out[i].Name != "gpu_pod_info" || len(labels) == 0 {
			continue
		}
		out[i].Labels = slices.Clone(out[i].Labels)
		for _, l := range labels {
			out[i].Labels = append(out[i].Labels, KubeStateLabel(l))
		}
		out[i].Read = func(v *gpu.View, emit Emit) {
			for _, p := range v.Pods {
				m := podMeta(p)
				values := []string{v.Node, p.Namespace, p.Pod, p.UID, m.WorkloadType, m.Workload}
				for _, l := range labels {
					values = append(values, m.Labels[l])
				}
				emit(1, values...)
			}
		}
	}
	return out
}
