package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func clocks() Group {
	hertz := func(emit gpuEmit, m map[gpu.Clock]gpu.Hertz) {
		for _, c := range gpu.Clocks {
			if h, ok := m[c]; ok {
				emit(float64(h), string(c))
			}
		}
	}
	return Group{
		Title: "Clocks and clock limits",
		Examples: []Example{
			{"In which share of the time was each GPU limited by temperature?",
				`rate(gpu_clock_limited_seconds_total{reason=~"sw_thermal|hw_thermal"}[10m])`},
		},
		Rows: []Family{
			{Name: "gpu_clock_hertz", Scope: ScopeGPU,
				Help: "Current clock frequency.", Source: "nvmlDeviceGetClockInfo", Labels: []string{"clock"},
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) { hertz(emit, m.Clocks) })},
			{Name: "gpu_clock_max_hertz", Scope: ScopeGPU,
				Help: "Maximum clock frequency.", Source: "nvmlDeviceGetMaxClockInfo", Labels: []string{"clock"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) { hertz(emit, s.MaxClocks) })},
			{Name: "gpu_performance_state", Scope: ScopeGPU,
				Help:   "Performance state, from 0 (P0, maximum performance) to 15 (P15, minimum).",
				Source: "nvmlDeviceGetPerformanceState",
				Read:   medium(func(m *gpu.Medium) gpu.Opt[int] { return m.PState })},
			{Name: "gpu_clock_event_reasons", Scope: ScopeGPU,
				Help: "Reasons that set the clocks at the last poll, as NVML's bit mask; " +
					"gpu_clock_limited_seconds_total misses no event.",
				Source: "nvmlDeviceGetCurrentClocksEventReasons",
				Read:   medium(func(m *gpu.Medium) gpu.Opt[int] { return m.ClockEvents })},
			{Name: "gpu_clock_limited_seconds_total", Scope: ScopeGPU,
				Help:   "Time during which clocks were limited, by reason. Reasons may overlap.",
				Source: "NVML fields 74 to 79 and 269 to 271", Labels: []string{"reason"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					for _, r := range gpu.LimitReasons {
						if s, ok := c.Activity.Limited[r]; ok {
							emit(float64(s), string(r))
						}
					}
				})},
		},
	}
}

func modes() Group {
	mode := func(name, help, source, offered string, field func(*gpu.Slow) gpu.Opt[bool]) Family {
		return Family{Name: name, Scope: ScopeGPU,
			Help: help, Source: source, Offered: offered, Read: slowFlag(field)}
	}
	half := func(pair func(*gpu.Slow) gpu.Opt[gpu.ModePair], of func(gpu.ModePair) bool) func(*gpu.Slow) gpu.Opt[bool] {
		return func(s *gpu.Slow) gpu.Opt[bool] {
			if p, ok := pair(s).Get(); ok {
				return gpu.Some(of(p))
			}
			return gpu.None[bool]()
		}
	}
	migPair := func(s *gpu.Slow) gpu.Opt[gpu.ModePair] { return s.MIGMode }
	eccPair := func(s *gpu.Slow) gpu.Opt[gpu.ModePair] { return s.ECCMode }
	current := func(p gpu.ModePair) bool { return p.Current }
	pending := func(p gpu.ModePair) bool { return p.Pending }
	return Group{
		Title: "Modes",
		Examples: []Example{
			{"Which GPUs need a reset for a mode change?",
				`gpu_mig_mode != gpu_mig_mode_pending or gpu_ecc_mode != gpu_ecc_mode_pending`},
		},
		Rows: []Family{
			mode("gpu_persistence_mode", "Whether persistence mode is enabled.", "nvmlDeviceGetPersistenceMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.PersistenceMode }),
			mode("gpu_accounting_mode", "Whether accounting mode is enabled.", "nvmlDeviceGetAccountingMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.AccountingMode }),
			mode("gpu_display_active", "Whether a display is initialized on the GPU.", "nvmlDeviceGetDisplayActive", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.DisplayActive }),
			mode("gpu_display_attached", "Whether a display is connected to the GPU.", "nvmlDeviceGetDisplayMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.DisplayAttached }),
			mode("gpu_mig_mode", "Whether MIG mode is enabled.", "nvmlDeviceGetMigMode", "GPUs with MIG",
				half(migPair, current)),
			mode("gpu_mig_mode_pending", "Whether MIG mode is enabled after the next GPU reset.",
				"nvmlDeviceGetMigMode", "GPUs with MIG", half(migPair, pending)),
			mode("gpu_ecc_mode", "Whether ECC is enabled.", "nvmlDeviceGetEccMode", "GPUs with ECC",
				half(eccPair, current)),
			mode("gpu_ecc_mode_pending", "Whether ECC is enabled after the next reboot.", "nvmlDeviceGetEccMode",
				"GPUs with ECC", half(eccPair, pending)),
			{Name: "gpu_compute_mode", Type: StateSet, Scope: ScopeGPU,
				Help: "Compute mode; 1 for the current mode.", Source: "nvmlDeviceGetComputeMode",
				Labels: []string{"mode"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if m, ok := s.ComputeMode.Get(); ok {
						states(emit, gpu.ComputeModes, m)
					}
				})},
		},
	}
}
