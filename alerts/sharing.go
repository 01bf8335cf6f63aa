package alerts

// sharingContainers is the number of containers that share a GPU; those of MIG instances are isolated.
const sharingContainers = "count" + byGPU +
	`(group by (cluster, node, uuid, gpu, namespace, pod, container) (gpu_container_allocation_ratio{mig_uuid=""}))`

func sharing() []Alert {
	dashboard := Dashboard{dashboardSharing, []string{"node"}}
	return []Alert{
		{Name: "GPUMemoryOvercommitted", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes5,
			Dashboard:  dashboard,
			Parameters: []Parameter{number("ratio", 1, 0.5, 10, "sum of the memory limits over the GPU's memory")},
			Expr: "sum" + byGPU + "(gpu_container_memory_limit_bytes) / max" + byGPU +
				"(gpu_memory_total_bytes) > $ratio",
			Summary: "GPU memory limits of containers exceed the GPU's memory.",
			Description: "Memory limits of the containers on " + atGPU + " add up to " + asPercent +
				" of its memory. " +
				"If all of them use their limit, allocations fail: lower the limits or the sharing scheme's " +
				"oversubscription factor."},
		{Name: "GPUSharedMemoryPressure", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes5,
			Dashboard:  dashboard,
			Parameters: []Parameter{number("free", 0.05, 0.001, 0.5, "free fraction of the GPU's memory")},
			Expr: "min" + byGPU + "(gpu_memory_free_bytes / gpu_memory_total_bytes) < $free and " +
				sharingContainers + " > 1",
			Summary: "The memory of a shared GPU is nearly full.",
			Description: "Only " + asPercent + " of the memory of " + atGPU +
				" is free, and several containers share it without isolation. " +
				"The next allocation may fail: find the largest container and give it a memory limit or its own GPU."},
		{Name: "GPUMemoryPeaksExceedGPU", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes15,
			Dashboard: dashboard,
			Parameters: []Parameter{period(6*hour, "lookback for each container's peak"),
				number("ratio", 1, 0.5, 10, "sum of the peaks over the GPU's memory")},
			Expr: "sum" + byGPU + "(max_over_time(gpu_container_memory_used_bytes[$period]) and on (cluster, node, " +
				"uuid, namespace, pod, container) gpu_container_allocation_ratio{mig_uuid=\"\"})\n" +
				"  / max" + byGPU + "(gpu_memory_total_bytes) > $ratio and " + sharingContainers + " > 1",
			Summary: "The memory peaks of containers that share a GPU exceed its memory.",
			Description: "The memory peaks of the containers on " + atGPU + " add up to " + asPercent +
				" of its memory. " +
				"So far they did not coincide. Use fewer replicas per GPU, or limit the containers' memory."},
		{Name: "GPUSharedContention", Severity: Warning, Labels: gpuLabels, For: minutes30, Keep: minutes10,
			Dashboard: dashboard,
			Parameters: []Parameter{
				number("busy", 0.95, 0.3, 0.999, "utilization of the GPU"),
				number("container", 0.1, 0.001, 0.9, "utilization from which a container counts as active"),
			},
			Expr: "sum" + byGPU + "(rate(gpu_busy_seconds_total[10m])) / sum" + byGPU +
				"(rate(gpu_observed_seconds_total[10m])) > $busy and " + sharingContainers + " > 1\n" +
				"  unless on (" + onGPU + ") sum" + byGPU +
				"(rate(gpu_container_busy_seconds_total[10m]) / (rate(gpu_container_observed_seconds_total[10m]) > " +
				"0) > bool $container) < 2",
			Summary: "Containers that share a GPU slow each other down.",
			Description: atGPU + " has been busy for " + asPercent + " of the time, with several active containers. " +
				"Move one to another GPU, or share the GPU by MIG or by MPS with limits."},
		{Name: "GPUReplicasUnused", Severity: Info, Off: true, Labels: []string{"node", "resource"}, For: hour,
			Keep: hour, Dashboard: dashboard,
			Parameters: []Parameter{period(day, "lookback"),
				number("used", 0.5, 0.01, 0.99, "fraction of the replicas allocated at the peak")},
			Expr: `max by (cluster, node, resource) (max_over_time(gpu_node_allocated_devices{resource=~"` +
				resourceRE + `"}[$period])) / max by (cluster, node, resource) (gpu_node_allocatable_devices) < $used
  and on (cluster, node, resource) (gpu_node_allocatable_devices offset $period)
  and on (cluster, node) (sum by (cluster, node) (gpu_node_allocatable_devices{resource=~"` + resourceRE +
				`",resource!~".*_mig_.*"}) > count by (cluster, node) (group` + byGPU + "(gpu_device_up)))",
			Summary: "GPUs have more replicas than are used.",
			Description: "In the last $period at most " + asPercent +
				" of the {{ $labels.resource }} of {{ $labels.node }} were allocated. " +
				"Fewer replicas give each container a larger share of its GPU."},
		{Name: "GPUUsedWithoutAllocation", Severity: Warning,
			Labels: append([]string{"container", "kind"}, append(gpuLabels, podLabels[1:]...)...), For: minutes15,
			Keep: minutes5,
			Expr: "max by (cluster, node, uuid, gpu, namespace, pod, container, kind) (gpu_container_mismatch) " +
				"== 1",
			Dashboard: gpuDashboard, Summary: "A container uses a GPU that is not allocated to it.",
			Description: "Container {{ $labels.container }} of " + "{{ $labels.namespace }}/{{ $labels.pod }}" +
				" uses " + atGPU + " ({{ $labels.kind }}). " +
				"It takes capacity from the containers that the GPU is allocated to: check for a privileged " +
				"container, NVIDIA_VISIBLE_DEVICES=all in its image, or a hostPath to /dev."},
	}
}
