package alerts

// sharingContainers is the number of containers that share a GPU; those of MIG instances are isolated.
const sharingContainers = "count" + byGPU +
	`(group by (cluster, node, uuid, gpu, namespace, pod, container) (gpu_container_allocation_ratio{mig_uuid=""}))`

func sharing() []Alert {
	dashboard := Dashboard{dashboardSharing, []string{"node"}}
	return []Alert{
		{Name: "GPUSharedMemoryPressure", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes5,
			Dashboard:  dashboard,
			Parameters: []Parameter{number("free", 0.05, 0.001, 0.5, "free fraction of the GPU's memory")},
			Expr: "min" + byGPU + "(gpu_memory_free_bytes / gpu_memory_total_bytes) < $free and " +
				sharingContainers + " > 1",
			Summary: "The memory of a shared GPU is nearly full.",
			Description: "Only " + asPercent + " of the memory of " + atGPU +
				" is free, and several containers share it without isolation. The next allocation may fail: find the " +
				"largest container and give it a memory limit or its own GPU."},
		{Name: "GPUContainerUsesMoreThanRequested", Severity: Info,
			Labels: append([]string{"container", "quantity"}, append(gpuLabels, podLabels[1:]...)...), For: minutes30,
			Keep: minutes10, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1.1, 1, 100, "use divided by the request")},
			Expr:       overRequest + " > $ratio",
			Summary:    "A container uses more of a shared GPU than it requested.",
			Description: "Container {{ $labels.container }} of {{ $labels.namespace }}/{{ $labels.pod }} uses " + value3 +
				" times the {{ $labels.quantity }} that it requested of " + atGPU + ", which other containers share. Nothing " +
				"enforces the request: raise it, lower the use, or enforce a limit (MPS, MIG)."},
		{Name: "GPUMemoryUsedUnallocated", Severity: Warning, Labels: gpuLabels, For: minutes30, Keep: minutes5,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{number("used", 0.1, 0.01, 0.99, "fraction of the memory that is used")},
			Expr: "max" + byGPU + "(gpu_memory_used_bytes) / max" + byGPU + "(gpu_memory_total_bytes) > $used\n  and max" +
				byGPU + "(gpu_allocation_ratio) == 0",
			Summary: "Memory of an unallocated GPU is used.",
			Description: asPercent + " of the memory of " + atGPU + " are used, although it is allocated to no container: the " +
				"next pod there will lack it. Find the process (nvidia-smi -i {{ $labels.uuid }}): one that survived " +
				"its pod, or one started on the host; end it. Without a process, reset the GPU."},
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
