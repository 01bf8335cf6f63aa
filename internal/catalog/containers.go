package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func containers() Group {
	seconds := func(name, help, source string, field func(*gpu.ContainerGPU) gpu.Opt[gpu.Seconds]) Family {
		return Family{Name: name, Scope: ScopeContainer, Help: help, Source: source,
			Read: containerCounter(field), Created: containerCreated()}
	}
	unattributed := func(read func(gpu.Unattributed) gpu.Opt[float64]) func(*gpu.View, Emit) {
		return availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
			for _, u := range c.Unattributed {
				opt(emit, read(u), string(u.Reason))
			}
		})
	}
	unattributedBegin := availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
		for _, u := range c.Unattributed {
			emitCreated(emit, c.Created, string(u.Reason))
		}
	})
	process := func(name, help, source string, field func(*gpu.ProcessActivity) gpu.Opt[float64]) Family {
		return Family{Name: name, Scope: ScopeContainer, Help: help, Source: source,
			Offered: "with --process-limit, in the host's PID namespace", Labels: []string{"pid", "command", "kind", "mig_uuid"},
			Stability: Experimental, Read: processes(field)}
	}
	return Group{
		Name:  "containers",
		Title: "Containers",
		Rows: []Family{
			seconds("gpu_container_busy_seconds_total",
				"GPU busy time attributed to the container, since its allocation began.",
				"gpu_busy_seconds_total, divided by allocation and nvmlDeviceGetProcessUtilization",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Busy }),
			seconds("gpu_container_observed_seconds_total", "Time covered by gpu_container_busy_seconds_total.",
				"as gpu_container_busy_seconds_total",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Observed }),
			seconds("gpu_container_allocated_seconds_total",
				"Allocated GPU-time: gpu_container_allocation_ratio integrated over time.", "kubelet PodResources",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Allocated }),
			{Name: "gpu_container_unused_seconds_total", Scope: ScopeContainer,
				Help: "Allocated GPU-time in which the container ran no kernel: its part of gpu_time_seconds_total, " +
					"by state.", Labels: []string{"state"}, Created: containerCreated(string(gpu.TimeGap), string(gpu.TimeIdle)),
				Read: containerGPUs(true, func(c *gpu.ContainerGPU, emit gpuEmit) {
					opt(emit, c.Gap, string(gpu.TimeGap))
					opt(emit, c.Idle, string(gpu.TimeIdle))
				})},
			{Name: "gpu_container_energy_joules_total", Scope: ScopeContainer,
				Help:   "GPU energy attributed to the container: idle energy by allocation, the rest by busy time.",
				Source: "gpu_energy_joules_total", Created: containerCreated(),
				Read: containerCounter(func(c *gpu.ContainerGPU) gpu.Opt[gpu.Joules] { return c.Energy })},
			{Name: "gpu_container_memory_used_bytes", Scope: ScopeContainer,
				Help: "Device memory used by the container's processes.",
				Source: "dmem.current of its cgroup, or nvmlDeviceGetMemoryLimits_v1; else NVML process lists; of the GPU or MIG " +
					"instance if allocated to one " +
					"container",
				Read: containerGauge(func(c *gpu.ContainerGPU) gpu.Opt[gpu.Bytes] { return c.Memory })},
			{Name: "gpu_container_processes", Scope: ScopeContainer,
				Help: "Processes of the container on the GPU.", Source: "NVML process lists",
				Read: containerGauge(func(c *gpu.ContainerGPU) gpu.Opt[int] { return c.Processes })},
			{Name: "gpu_container_last_busy_timestamp_seconds", Scope: ScopeContainer,
				Help: "Unix time at which the container was last busy on the GPU, or observation started if it has not been since.",
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { timestamp(emit, c.LastBusy) })},
			{Name: "gpu_container_allocated_since_timestamp_seconds", Scope: ScopeContainer,
				Help: "Unix time at which the GPU was allocated to the container; absent if that was before the exporter started " +
					"and no data source reports it.", Source: "kubelet PodResources",
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { timestamp(emit, c.Since) })},
			{Name: "gpu_container_attribution_info", Scope: ScopeContainer,
				Help: "How the container's busy time is measured (exclusive: the GPU is allocated to it alone; process: samples of its " +
					"processes; mig: its MIG device; none: not measured), and data sources of its allocation and memory (gpu: all of " +
					"the GPU or MIG instance; process: NVML process lists; cgroup, driver: account of its cgroup).",
				Labels: []string{"method", "source", "memory"},
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) {
					if c.Attribution != "" {
						emit(1, c.Attribution, c.Source, c.MemorySource)
					}
				})},
			{Name: "gpu_container_mismatch", Scope: ScopeContainer,
				Help:   "Whether the container uses a GPU that is not allocated to it; 1, else absent.",
				Labels: []string{"kind"},
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) {
					for _, kind := range c.Mismatch {
						emit(1, kind)
					}
				})},
			{Name: "gpu_unattributed_busy_seconds_total", Scope: ScopeGPU,
				Help: "GPU busy time not attributed to any container, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Busy) }), Created: unattributedBegin},
			{Name: "gpu_unattributed_energy_joules_total", Scope: ScopeGPU,
				Help: "GPU energy not attributed to any container, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Energy) }), Created: unattributedBegin},
			{Name: "gpu_unattributed_memory_used_bytes", Scope: ScopeGPU,
				Help: "Used GPU memory not attributed to any container, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Memory) })},
			{Name: "gpu_attribution_error_ratio", Scope: ScopeGPU,
				Help: "Relative difference between the GPU's total and the sum of containers and unattributed remainder. time, only " +
					"while it is not 0: between the time since the GPU's first poll and the sum of gpu_time_seconds_total.",
				Labels: []string{"quantity"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, e := range c.AttributionErrors {
						emit(float64(e.Ratio), e.Quantity)
					}
				})},
			process("gpu_process_busy_seconds_total", "Part of gpu_busy_seconds_total in which the process was running a kernel, "+
				"since it was first listed. command=\"other\", without pid: busy time of no process with series.",
				"nvmlDeviceGetProcessUtilization, not in MIG mode",
				func(p *gpu.ProcessActivity) gpu.Opt[float64] { return asFloat(p.Busy) }),
			process("gpu_process_memory_used_bytes", "Device memory used by the process. command=\"other\", without pid: the "+
				"rest of gpu_memory_used_bytes.", "process lists of NVML",
				func(p *gpu.ProcessActivity) gpu.Opt[float64] { return asFloat(p.Memory) }),
			{Name: "gpu_processes", Scope: ScopeGPU,
				Help: "Processes on the GPU, by NVML process list.",
				Source: "nvmlDeviceGetComputeRunningProcesses, GetGraphicsRunningProcesses, " +
					"GetMPSComputeRunningProcesses",
				Offered: "host PID namespace (hostPID)", Labels: []string{"kind"},
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
					procs, ok := m.Processes.Get()
					if !ok {
						return
					}
					count := map[gpu.ProcessKind]int{}
					for _, p := range procs {
						for _, k := range p.Kinds {
							count[k]++
						}
					}
					for _, k := range gpu.ProcessKinds {
						emit(float64(count[k]), string(k))
					}
				})},
		},
	}
}
