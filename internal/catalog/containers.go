package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func containers() Group {
	seconds := func(name, help, source string, field func(*gpu.ContainerGPU) gpu.Opt[gpu.Seconds]) Family {
		return Family{Name: name, Type: Counter, Unit: "seconds", Scope: ScopeContainer, Stability: Stable, Help: help, Source: source,
			Read: containerCounter(field)}
	}
	unattributed := func(read func(gpu.Unattributed) gpu.Opt[float64]) func(*gpu.View, Emit) {
		return live(func(c *gpu.GPU, emit gpuEmit) {
			for _, u := range c.Unattributed {
				opt(emit, read(u), string(u.Reason))
			}
		})
	}
	return Group{
		Title: "Containers",
		Intro: "What each container did with what it holds. For every GPU, the containers' parts and gpu_unattributed_* add up to the GPU's own figure; gpu_attribution_error_ratio says by how much they fail to. A container whose work cannot be measured has no series here, never a 0. Reasons for what is no container's: host (a process outside pods), hidden (nobody whose process is seen), unresolved (a process or holder that cannot be named), unmeasured (several users and no measure of each), mps (clients of MPS whose parts nobody tells), driver (contexts, and the MPS server's own), idle (held by nobody). A container's gauges end with it, its counters stand still for five minutes first.",
		Examples: []Example{
			{"Which pods have held GPUs for 20 minutes without using them?", `sum by (node, namespace, pod) (gpu_container_allocation_ratio) and on (node, namespace, pod) (time() - max by (node, namespace, pod) (gpu_container_last_busy_timestamp_seconds) > 1200)`},
			{"How much of what it holds does each namespace use?", `sum by (namespace) (increase(gpu_container_busy_seconds_total[1h])) / sum by (namespace) (increase(gpu_container_allocated_seconds_total[1h]))`},
			{"How many kilowatt-hours did each namespace use in the last hour?", `sum by (namespace) (increase(gpu_container_energy_joules_total[1h])) / 3.6e6`},
		},
		Rows: []Family{
			seconds("gpu_container_busy_seconds_total", "Part of gpu_busy_seconds_total that is the container's.", "gpu_busy_seconds_total, by holders and nvmlDeviceGetProcessUtilization",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Busy }),
			seconds("gpu_container_observed_seconds_total", "Time for which the container's work could be measured.", "as gpu_container_busy_seconds_total",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Observed }),
			seconds("gpu_container_allocated_seconds_total", "GPU-seconds that the container held: the integral of its allocation.", "kubelet PodResources",
				func(c *gpu.ContainerGPU) gpu.Opt[gpu.Seconds] { return c.Allocated }),
			{Name: "gpu_container_unused_seconds_total", Type: Counter, Unit: "seconds", Scope: ScopeContainer, Stability: Stable,
				Help: "GPU-seconds that the container held and did not use: its part of gpu_time_seconds_total.", Labels: []string{"state"},
				Read: containerGPUs(true, func(c *gpu.ContainerGPU, emit gpuEmit) {
					opt(emit, c.Gap, string(gpu.TimeGap))
					opt(emit, c.Idle, string(gpu.TimeIdle))
				})},
			{Name: "gpu_container_energy_joules_total", Type: Counter, Unit: "joules", Scope: ScopeContainer, Stability: Stable,
				Help: "Part of gpu_energy_joules_total that is the container's: the idle part by held share, the rest by busy share.", Source: "gpu_energy_joules_total",
				Read: containerCounter(func(c *gpu.ContainerGPU) gpu.Opt[gpu.Joules] { return c.Energy })},
			{Name: "gpu_container_memory_used_bytes", Type: Gauge, Unit: "bytes", Scope: ScopeContainer, Stability: Stable,
				Help: "Device memory that the container's processes use.", Source: "NVML process lists; for a sole holder the GPU or instance",
				Read: containerGauge(func(c *gpu.ContainerGPU) gpu.Opt[gpu.Bytes] { return c.Memory })},
			{Name: "gpu_container_processes", Type: Gauge, Scope: ScopeContainer, Stability: Stable,
				Help: "Processes of the container on the GPU.", Source: "NVML process lists",
				Read: containerGauge(func(c *gpu.ContainerGPU) gpu.Opt[int] { return c.Processes })},
			{Name: "gpu_container_last_busy_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeContainer, Stability: Stable,
				Help: "When the container was last seen at work on the GPU, Unix time; until it was, when watching began.",
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { moment(emit, c.LastBusy) })},
			{Name: "gpu_container_allocated_since_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeContainer, Stability: Stable,
				Help: "Since when the container holds the GPU, Unix time; absent for what began before the exporter until a source tells.", Source: "kubelet PodResources",
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) { moment(emit, c.Since) })},
			{Name: "gpu_container_attribution_info", Type: Info, Scope: ScopeContainer, Stability: Stable,
				Help:   "How the container's work is measured and where its holding was read; 1. Exclusive: sole holder. Process: by its processes' samples. None: not measured.",
				Labels: []string{"method", "source"},
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) {
					if c.Attribution != "" {
						emit(1, c.Attribution, c.Source)
					}
				})},
			{Name: "gpu_container_mismatch", Type: Gauge, Scope: ScopeContainer, Stability: Stable,
				Help: "1 while the container uses a GPU that it does not hold.", Labels: []string{"kind"},
				Read: containerGPUs(false, func(c *gpu.ContainerGPU, emit gpuEmit) {
					for _, kind := range c.Mismatch {
						emit(1, kind)
					}
				})},
			{Name: "gpu_unattributed_busy_seconds_total", Type: Counter, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
				Help: "Busy time of the GPU that is no container's, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Busy) })},
			{Name: "gpu_unattributed_energy_joules_total", Type: Counter, Unit: "joules", Scope: ScopeGPU, Stability: Stable,
				Help: "Energy of the GPU that is no container's, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Energy) })},
			{Name: "gpu_unattributed_memory_used_bytes", Type: Gauge, Unit: "bytes", Scope: ScopeGPU, Stability: Stable,
				Help: "Memory of the GPU that is no container's, by reason.", Labels: []string{"reason"},
				Read: unattributed(func(u gpu.Unattributed) gpu.Opt[float64] { return asFloat(u.Memory) })},
			{Name: "gpu_attribution_error_ratio", Type: Gauge, Unit: "ratio", Scope: ScopeGPU, Stability: Stable,
				Help: "By how much the containers' parts and the unattributed rest fail to add up to the GPU's figure, over that figure; 0 when they close.", Labels: []string{"quantity"},
				Read: live(func(c *gpu.GPU, emit gpuEmit) {
					for _, e := range c.AttributionErrors {
						emit(float64(e.Ratio), e.Quantity)
					}
				})},
			{Name: "gpu_processes", Type: Gauge, Scope: ScopeGPU, Stability: Stable,
				Help: "Processes on the GPU by the list in which NVML shows them.", Source: "nvmlDeviceGetComputeRunningProcesses, GetGraphicsRunningProcesses, GetMPSComputeRunningProcesses",
				Offered: "with the host's PID namespace", Labels: []string{"kind"},
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
