package alerts

// sharingContainers is the number of containers that share a GPU; those of MIG instances have walls between them.
const sharingContainers = "count" + byGPU + `(group by (cluster, node, uuid, gpu, namespace, pod, container) (gpu_container_allocation_ratio{mig_uuid=""}))`

func sharing() []Alert {
	dashboard := Dashboard{dashboardSharing, []string{"node"}}
	return []Alert{
		{Name: "GPUMemoryOvercommitted", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1, 0.5, 10, "granted memory over the GPU's memory")},
			Expr:       "sum" + byGPU + "(gpu_container_memory_limit_bytes) / max" + byGPU + "(gpu_memory_total_bytes) > $ratio",
			Summary:    "Containers were granted more memory than the GPU has.",
			Description: "Containers on " + atGPU + " were granted " + asPercent + " of its memory. " +
				"If all take what they were promised, one of them fails: lower the grants or the scheme's oversubscription factor."},
		{Name: "GPUSharedMemoryPressure", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("free", 0.05, 0.001, 0.5, "free part of the GPU's memory")},
			Expr:       "min" + byGPU + "(gpu_memory_free_bytes / gpu_memory_total_bytes) < $free and " + sharingContainers + " > 1",
			Summary:    "The memory of a shared GPU is nearly full.",
			Description: "Only " + asPercent + " of the memory of " + atGPU + " is free, and several containers share it without walls. " +
				"The next allocation of any of them fails: find the largest, give it a memory limit or a GPU of its own."},
		{Name: "GPUMemoryPeaksExceedGPU", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{period(6*hour, "time over which each container's peak is taken"), number("ratio", 1, 0.5, 10, "sum of the peaks over the GPU's memory")},
			Expr: "sum" + byGPU + "(max_over_time(gpu_container_memory_used_bytes[$period]) and on (cluster, node, uuid, namespace, pod, container) gpu_container_allocation_ratio{mig_uuid=\"\"})\n" +
				"  / max" + byGPU + "(gpu_memory_total_bytes) > $ratio and " + sharingContainers + " > 1",
			Summary: "The memory peaks of a GPU's sharingContainers do not fit together.",
			Description: "The memory peaks of the containers on " + atGPU + " add up to " + asPercent + " of it. " +
				"So far they did not meet. Put fewer containers on a GPU (fewer replicas), or limit their memory."},
		{Name: "GPUSharedContention", Severity: Warning, Labels: gpuLabels, For: minutes30, Keep: minutes10, Dashboard: dashboard,
			Parameters: []Parameter{
				number("busy", 0.95, 0.3, 0.999, "utilization of the GPU"),
				number("container", 0.1, 0.001, 0.9, "utilization from which a container counts as at work"),
			},
			Expr: "sum" + byGPU + "(rate(gpu_busy_seconds_total[10m])) / sum" + byGPU + "(rate(gpu_observed_seconds_total[10m])) > $busy and " + sharingContainers + " > 1\n" +
				"  unless on (" + onGPU + ") sum" + byGPU + "(rate(gpu_container_busy_seconds_total[10m]) / (rate(gpu_container_observed_seconds_total[10m]) > 0) > bool $container) < 2",
			Summary: "The sharingContainers of a shared GPU wait for each other.",
			Description: atGPU + " has been busy for " + asPercent + " of the time, with several containers that want it. " +
				"They slow each other down: move one to another GPU, or share the GPU by MIG or MPS with limits."},
		{Name: "GPUReplicasUnused", Severity: Info, Off: true, Labels: []string{"node", "resource"}, For: hour, Keep: hour, Dashboard: dashboard,
			Parameters: []Parameter{period(day, "time looked back over"), number("used", 0.5, 0.01, 0.99, "part of the replicas that was in use at the peak")},
			Expr: `max by (cluster, node, resource) (max_over_time(gpu_node_allocated_devices{resource=~"` + resourceRE + `"}[$period])) / max by (cluster, node, resource) (gpu_node_allocatable_devices) < $used
  and on (cluster, node, resource) (gpu_node_allocatable_devices offset $period)
  and on (cluster, node) (sum by (cluster, node) (gpu_node_allocatable_devices{resource=~"` + resourceRE + `",resource!~".*_mig_.*"}) > count by (cluster, node) (group` + byGPU + "(gpu_device_up)))",
			Summary: "GPUs are cut into more replicas than anybody uses.",
			Description: "At the peak of the last $period only " + asPercent + " of the {{ $labels.resource }} of {{ $labels.node }} were in use. " +
				"Fewer replicas give each container a larger share of its GPU."},
		{Name: "GPUUsedWithoutAllocation", Severity: Warning, Labels: append([]string{"container", "kind"}, append(gpuLabels, podLabels[1:]...)...), For: minutes15, Keep: minutes5,
			Expr:      "max by (cluster, node, uuid, gpu, namespace, pod, container, kind) (gpu_container_mismatch) == 1",
			Dashboard: gpuDashboard, Summary: "A container works on a GPU that it does not hold.",
			Description: "Container {{ $labels.container }} of " + "{{ $labels.namespace }}/{{ $labels.pod }}" + " uses " + atGPU + " ({{ $labels.kind }}). " +
				"It takes from those who hold the GPU: look for a privileged container, NVIDIA_VISIBLE_DEVICES=all in its image, or a hostPath to /dev."},
	}
}
