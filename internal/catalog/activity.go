package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

const hopper = "Hopper and newer"

func activity() Group {
	seconds := func(name, help, source, offered string, field func(*gpu.Activity) gpu.Opt[gpu.Seconds]) Family {
		return Family{Name: name, Scope: ScopeGPU,
			Help: help, Source: source, Offered: offered, Read: activityValue(field),
			Created: availableGPUs(func(c *gpu.GPU, emit gpuEmit) { emitCreated(emit, c.Created) })}
	}
	const notMIG = "in MIG mode Hopper and newer"
	return Group{
		Name:  "activity",
		Title: "Activity",
		Rows: []Family{
			seconds("gpu_busy_seconds_total", "Time during which at least one kernel was running.",
				"nvmlDeviceGetSamples (GPU utilization), else nvmlDeviceGetUtilizationRates; in MIG mode GPM metric "+
					"1 of each instance, weighted by gpu_mig_share_ratio, or of its compute instances", notMIG,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Busy }),
			seconds("gpu_observed_seconds_total", "Time covered by gpu_busy_seconds_total.",
				"as gpu_busy_seconds_total", notMIG, func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Observed }),
			seconds("gpu_memory_busy_seconds_total",
				"Time during which device memory was read or written.",
				"nvmlDeviceGetSamples (memory utilization), else nvmlDeviceGetUtilizationRates", "not in MIG mode",
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.MemoryBusy }),
			{Name: "gpu_utilization_ratio", Scope: ScopeGPU,
				Help:   "Mean of the driver's utilization samples over the last 60 s.",
				Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: activityValue(func(a *gpu.Activity) gpu.Opt[gpu.Ratio] { return a.Mean })},
			{Name: "gpu_utilization_peak_ratio", Scope: ScopeGPU,
				Help:   "Maximum of the driver's utilization samples over the last 60 s.",
				Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: activityValue(func(a *gpu.Activity) gpu.Opt[gpu.Ratio] { return a.Peak })},
			{Name: "gpu_last_busy_timestamp_seconds", Scope: ScopeGPU,
				Help:   "Unix time at which the GPU was last busy, or observation started if it has not been since.",
				Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) { timestamp(emit, c.Activity.LastBusy) })},
			{Name: "gpu_sampling_info", Scope: ScopeGPU,
				Help: "Method by which the busy counters are measured. ring: all of the driver's samples. rate: " +
					"nvmlDeviceGetUtilizationRates at each poll. gpm: GPM counters of the MIG instances.",
				Labels: []string{"method"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					if m, ok := c.Activity.Method.Get(); ok {
						emit(1, string(m))
					}
				})},
			{Name: "gpu_unmeasured_info", Scope: ScopeGPU,
				Help: "Readings that are not exported because their values would be wrong. pcie_bytes: 32-bit counters overflow " +
					"between polls; counter_overflow, without GPM metrics to resolve that; gpm_mismatch, with GPM metrics that " +
					"do not agree with the counters. memory_busy: the driver of an integrated GPU always " +
					"reports 0. memory: what NVML reports is not the GPU's: own_limit, the exporter's cgroup has a memory limit; " +
					"wrapped_library, another library intercepts NVML; total_too_small, it contradicts an earlier total, or " +
					"both the product name and the size of BAR1. sensors: power, temperatures, clocks and utilization are frozen: " +
					"the driver has reported the same values, and the same energy used or a constant power of a busy GPU, for 2 min.",
				Labels: []string{"reading", "reason"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, u := range c.Activity.Unmeasured {
						emit(1, u.Reading, u.Reason)
					}
				})},
			{Name: "gpu_engine_utilization_ratio", Scope: ScopeGPU,
				Help: "Utilization of a fixed-function engine over the driver's last sampling period (1/6 s to 1 " +
					"s).",
				Source:  "nvmlDeviceGetEncoderUtilization, GetDecoderUtilization, GetJpgUtilization, GetOfaUtilization",
				Offered: "not in MIG mode",
				Labels:  []string{"engine"},
				Read: fastGPU(func(f *gpu.Fast, emit gpuEmit) {
					for _, e := range gpu.Engines {
						if r, ok := f.Engines[e]; ok {
							emit(float64(r), string(e))
						}
					}
				})},
			sessions("encoder", "Video encoding", "nvmlDeviceGetEncoderStats", 0,
				func(m *gpu.Slow) gpu.Opt[gpu.Sessions] { return m.Encoder }),
			sessions("encoder", "Video encoding", "nvmlDeviceGetEncoderStats", 1,
				func(m *gpu.Slow) gpu.Opt[gpu.Sessions] { return m.Encoder }),
			sessions("encoder", "Video encoding", "nvmlDeviceGetEncoderStats", 2,
				func(m *gpu.Slow) gpu.Opt[gpu.Sessions] { return m.Encoder }),
			sessions("capture", "Frame buffer capture", "nvmlDeviceGetFBCStats", 0,
				func(m *gpu.Slow) gpu.Opt[gpu.Sessions] { return m.Capture }),
			seconds("gpu_sm_active_seconds_total",
				"Time during which an SM had a resident warp, averaged over the SMs.",
				"GPM metric 2", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMActive }),
			seconds("gpu_sm_occupancy_seconds_total", "Resident warps divided by the maximum, integrated over time.",
				"GPM metric 3", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMOccupancy }),
			seconds("gpu_tensor_active_seconds_total",
				"Time during which tensor cores were active, averaged over the SMs.", "GPM metric 5", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.TensorActive }),
			seconds("gpu_dram_active_seconds_total",
				"Memory bandwidth used divided by the maximum, integrated over time.", "GPM metric 10", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.DRAMActive }),
			seconds("gpu_profiled_seconds_total",
				"Time covered by the SM, tensor, DRAM and pipe counters of the GPU: their denominator.", "GPM sample pairs", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Profiled }),
			{Name: "gpu_pipe_active_seconds_total", Scope: ScopeGPU,
				Help:   "Time during which an arithmetic pipe was active, averaged over the SMs.",
				Source: "GPM metrics 4, 11, 12 and 13", Offered: hopper, Labels: []string{"pipe"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, p := range gpu.Pipes {
						if s, ok := c.Activity.Pipes[p]; ok {
							emit(float64(s), string(p))
						}
					}
				})},
		},
	}
}

// sessions is one of the families of video encoding or capture: the sessions, their mean frames per second, latency.
func sessions(engine, what, source string, which int, of func(*gpu.Slow) gpu.Opt[gpu.Sessions]) Family {
	kind := []struct{ name, help string }{{"sessions", " sessions."},
		{"frames_per_second", ": mean frames per second of the sessions."},
		{"latency_seconds", ": mean latency of the sessions."}}[which]
	return Family{Name: "gpu_" + engine + "_" + kind.name, Scope: ScopeGPU, Help: what + kind.help, Source: source,
		Readings: []string{engine + "_sessions"},
		Read: slowGPU(func(m *gpu.Slow, emit gpuEmit) {
			// Without a session, NVML returns 0 for the means of nothing.
			if s, ok := of(m).Get(); ok && (which == 0 || s.Count > 0) {
				emit([]float64{float64(s.Count), s.FPS, float64(s.Latency)}[which])
			}
		})}
}
