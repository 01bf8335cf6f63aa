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
	compute := names([]gpu.Clock{gpu.ClockSM, gpu.ClockMemory})
	applications := func(name, help, source string, of func(*gpu.Slow) map[gpu.Clock]gpu.Hertz) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: "drivers before R590",
			Labels: []string{"clock"}, Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) { hertz(emit, of(s)) })}
	}
	return Group{
		Name:  "clocks",
		Title: "Clocks and clock limits",
		Rows: []Family{
			{Name: "gpu_clock_hertz", Scope: ScopeGPU,
				Help: "Current clock frequency.", Source: "nvmlDeviceGetClockInfo", Labels: []string{"clock"}, Values: compute,
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) { hertz(emit, m.Clocks) })},
			{Name: "gpu_clock_max_hertz", Scope: ScopeGPU,
				Help: "Maximum clock frequency.", Source: "nvmlDeviceGetMaxClockInfo", Labels: []string{"clock"}, Values: compute,
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) { hertz(emit, s.MaxClocks) })},
			applications("gpu_clock_applications_hertz", "Applications clocks: the clocks requested for compute.",
				"nvmlDeviceGetApplicationsClock",
				func(s *gpu.Slow) map[gpu.Clock]gpu.Hertz { return s.ApplicationClocks }).reads("clock_applications_graphics",
				"clock_applications_memory"),
			applications("gpu_clock_default_applications_hertz", "Applications clocks after boot.",
				"nvmlDeviceGetDefaultApplicationsClock",
				func(s *gpu.Slow) map[gpu.Clock]gpu.Hertz { return s.DefaultClocks }).reads("clock_default_applications_graphics",
				"clock_default_applications_memory"),
			{Name: "gpu_clock_event_active", Type: StateSet, Scope: ScopeGPU,
				Help:   "Reasons that set the clocks at the last poll; 1 for each. idle and applications_clocks are no faults.",
				Source: "nvmlDeviceGetCurrentClocksEventReasons", Labels: []string{"reason"},
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
					if mask, ok := m.ClockEvents.Get(); ok {
						for bit, reason := range gpu.ClockReasons {
							if mask>>bit&1 == 1 {
								emit(1, reason)
							}
						}
					}
				})},
			{Name: "gpu_performance_state", Scope: ScopeGPU,
				Help:   "Performance state, from 0 (P0, maximum performance) to 15 (P15, minimum).",
				Source: "nvmlDeviceGetPerformanceState",
				Read:   medium(func(m *gpu.Medium) gpu.Opt[int] { return m.PState })},
			{Name: "gpu_clock_event_reasons", Scope: ScopeGPU,
				Help:   "The reasons of gpu_clock_event_active as NVML's bit mask.",
				Source: "nvmlDeviceGetCurrentClocksEventReasons",
				Read:   medium(func(m *gpu.Medium) gpu.Opt[int] { return m.ClockEvents })},
			{Name: "gpu_clock_limited_seconds_total", Scope: ScopeGPU,
				Help: "Time during which clocks were limited, by reason. Reasons may overlap. Those that the driver " +
					"does not count are sampled at each poll.",
				Source: "NVML fields 74 to 79 and 269 to 271, else nvmlDeviceGetCurrentClocksEventReasons",
				Labels: []string{"reason"},
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
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: offered, Read: slowFlag(field)}
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
	encryption := func(s *gpu.Slow) gpu.Opt[gpu.ModePair] { return s.DRAMEncryption }
	current := func(p gpu.ModePair) bool { return p.Current }
	pending := func(p gpu.ModePair) bool { return p.Pending }
	return Group{
		Name:  "modes",
		Title: "Modes",
		Rows: []Family{
			mode("gpu_persistence_mode", "Whether persistence mode is enabled.", "nvmlDeviceGetPersistenceMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.PersistenceMode }),
			mode("gpu_accounting_mode", "Whether accounting mode is enabled.", "nvmlDeviceGetAccountingMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.AccountingMode }),
			mode("gpu_display_active", "Whether a display is initialized on the GPU.", "nvmlDeviceGetDisplayActive", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.DisplayActive }).reads("display_active"),
			mode("gpu_display_attached", "Whether a display is connected to the GPU.", "nvmlDeviceGetDisplayMode", "",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.DisplayAttached }).reads("display_attached"),
			mode("gpu_mig_mode", "Whether MIG mode is enabled.", "nvmlDeviceGetMigMode", "GPUs with MIG", half(migPair, current)),
			mode("gpu_mig_mode_pending", "Whether MIG mode is enabled after the next GPU reset.",
				"nvmlDeviceGetMigMode", "GPUs with MIG", half(migPair, pending)),
			mode("gpu_ecc_mode", "Whether ECC is enabled.", "nvmlDeviceGetEccMode", "GPUs with ECC", half(eccPair, current)),
			mode("gpu_ecc_mode_pending", "Whether ECC is enabled after the next reboot.", "nvmlDeviceGetEccMode",
				"GPUs with ECC", half(eccPair, pending)),
			mode("gpu_gsp_mode", "Whether the driver runs on the GPU's system processor (GSP).",
				"nvmlDeviceGetGspFirmwareMode", "Turing and newer",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.GSPMode }).reads("gsp_mode"),
			mode("gpu_gsp_mode_default", "Whether the driver runs on the GSP by default.",
				"nvmlDeviceGetGspFirmwareMode", "Turing and newer",
				func(s *gpu.Slow) gpu.Opt[bool] { return s.GSPModeDefault }).reads("gsp_mode"),
			mode("gpu_c2c_mode", "Whether the NVLink-C2C connection to the CPU is enabled.", "nvmlDeviceGetC2cModeInfoV",
				"Grace Hopper and Grace Blackwell", func(s *gpu.Slow) gpu.Opt[bool] { return s.C2C }).reads("c2c_mode"),
			mode("gpu_dram_encryption_mode", "Whether memory encryption is enabled.", "nvmlDeviceGetDramEncryptionMode",
				"Blackwell and newer", half(encryption, current)).reads("dram_encryption"),
			mode("gpu_dram_encryption_mode_pending", "Whether memory encryption is enabled after the next GPU reset.",
				"nvmlDeviceGetDramEncryptionMode", "Blackwell and newer", half(encryption, pending)).reads("dram_encryption"),
			{Name: "gpu_compute_mode", Type: StateSet, Scope: ScopeGPU,
				Help: "Compute mode; 1 for the current mode.", Source: "nvmlDeviceGetComputeMode",
				Labels: []string{"mode"}, States: names(gpu.ComputeModes),
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					if m, ok := s.ComputeMode.Get(); ok {
						emit(1, string(m))
					}
				})},
		},
	}
}
