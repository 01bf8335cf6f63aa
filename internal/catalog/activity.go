package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

const hopper = "Hopper and newer"

func activity() Group {
	seconds := func(name, help, source, offered string, field func(*gpu.Activity) gpu.Opt[gpu.Seconds]) Family {
		return Family{Name: name, Type: Counter, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
			Help: help, Source: source, Offered: offered, Read: summed(field)}
	}
	const notMIG = "every GPU that is not in MIG mode; MIG from Hopper on"
	return Group{
		Title: "Activity",
		Intro: "Counters first: the driver's own samples are integrated, so a ratio of two rates is the exact mean utilization over any window, whatever the scrape interval. The gauges are for a glance.",
		Examples: []Example{
			{"How busy was each GPU in the last ten minutes?", `rate(gpu_busy_seconds_total[10m]) / rate(gpu_observed_seconds_total[10m])`},
			{"How much of the time were tensor cores at work?", `rate(gpu_tensor_active_seconds_total[10m]) / rate(gpu_profiled_seconds_total[10m])`},
		},
		Rows: []Family{
			seconds("gpu_busy_seconds_total", "Time in which at least one kernel ran, since the exporter started.",
				"nvmlDeviceGetSamples (GPU utilization), else nvmlDeviceGetUtilizationRates; under MIG GPM metric 1 of the instances by their share", notMIG,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Busy }),
			seconds("gpu_observed_seconds_total", "Time of which gpu_busy_seconds_total speaks.",
				"as gpu_busy_seconds_total", notMIG, func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Observed }),
			seconds("gpu_memory_busy_seconds_total", "Time in which device memory was read or written.",
				"nvmlDeviceGetSamples (memory utilization), else nvmlDeviceGetUtilizationRates", "every GPU that is not in MIG mode",
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.MemoryBusy }),
			{Name: "gpu_utilization_ratio", Type: Gauge, Unit: "ratio", Scope: ScopeGPU, Stability: Stable,
				Help: "Mean of the driver's utilization samples of the last 60 s.", Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: summed(func(a *gpu.Activity) gpu.Opt[gpu.Ratio] { return a.Mean })},
			{Name: "gpu_utilization_peak_ratio", Type: Gauge, Unit: "ratio", Scope: ScopeGPU, Stability: Stable,
				Help: "Highest of the driver's utilization samples of the last 60 s.", Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: summed(func(a *gpu.Activity) gpu.Opt[gpu.Ratio] { return a.Peak })},
			{Name: "gpu_last_busy_timestamp_seconds", Type: Gauge, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
				Help: "When work was last seen on the GPU, Unix time; until some was, when watching began.", Source: "as gpu_busy_seconds_total", Offered: notMIG,
				Read: live(func(c *gpu.GPU, emit gpuEmit) { moment(emit, c.Activity.LastBusy) })},
			{Name: "gpu_sampling_info", Type: Info, Scope: ScopeGPU, Stability: Stable,
				Help:   "How the busy counters of the GPU are measured; 1. Ring: integral of the driver's samples. Rate: the driver's last window at each poll. GPM: profiling counters of the MIG instances.",
				Labels: []string{"method"},
				Read: live(func(c *gpu.GPU, emit gpuEmit) {
					if m, ok := c.Activity.Method.Get(); ok {
						emit(1, string(m))
					}
				})},
			{Name: "gpu_engine_utilization_ratio", Type: Gauge, Unit: "ratio", Scope: ScopeGPU, Stability: Stable,
				Help:   "Utilization of a fixed-function engine over the driver's last window (1/6 s to 1 s).",
				Source: "nvmlDeviceGetEncoderUtilization, GetDecoderUtilization, GetJpgUtilization, GetOfaUtilization", Offered: "every GPU that has the engine and is not in MIG mode",
				Labels: []string{"engine"},
				Read: fastGPU(func(f *gpu.Fast, emit gpuEmit) {
					for _, e := range gpu.Engines {
						if r, ok := f.Engines[e]; ok {
							emit(float64(r), string(e))
						}
					}
				})},
			seconds("gpu_sm_active_seconds_total", "Time in which an SM had a warp resident, mean over the SMs.", "GPM metric 2", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMActive }),
			seconds("gpu_sm_occupancy_seconds_total", "Resident warps over the most that fit, integrated.", "GPM metric 3", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.SMOccupancy }),
			seconds("gpu_tensor_active_seconds_total", "Time in which tensor cores were at work.", "GPM metric 5", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.TensorActive }),
			seconds("gpu_dram_active_seconds_total", "Memory bandwidth in use over the possible, integrated.", "GPM metric 10", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.DRAMActive }),
			seconds("gpu_profiled_seconds_total", "Time of which the GPM counters speak: divide them by it.", "GPM sample pairs", hopper,
				func(a *gpu.Activity) gpu.Opt[gpu.Seconds] { return a.Profiled }),
			{Name: "gpu_pipe_active_seconds_total", Type: Counter, Unit: "seconds", Scope: ScopeGPU, Stability: Stable,
				Help: "Time in which an arithmetic pipe was at work.", Source: "GPM metrics 4, 11, 12 and 13", Offered: hopper, Labels: []string{"pipe"},
				Read: live(func(c *gpu.GPU, emit gpuEmit) {
					for _, p := range gpu.Pipes {
						if s, ok := c.Activity.Pipes[p]; ok {
							emit(float64(s), string(p))
						}
					}
				})},
		},
	}
}
