package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func power() Group {
	now := func(name, help, source, offered string, field func(*gpu.Fast) gpu.Opt[gpu.Watts]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Offered: offered, Read: fast(field)}
	}
	limit := func(name, help, source string, field func(*gpu.Slow) gpu.Opt[gpu.Watts]) Family {
		return Family{Name: name, Scope: ScopeGPU, Help: help, Source: source, Read: slow(field)}
	}
	return Group{
		Name:  "power",
		Title: "Power and energy",
		Rows: []Family{
			now("gpu_power_watts", "Power draw of the GPU, averaged by the driver (over 1 s on most GPUs).",
				"NVML field 185 (scope GPU), else nvmlDeviceGetPowerUsage", "GPUs with a power sensor",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.Power }),
			now("gpu_power_instant_watts", "Power draw of the GPU at the last sensor sample.",
				"NVML field 186 (scope GPU)", "Ampere and newer",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerInstant }),
			now("gpu_power_module_watts", "Power draw of the module, including its CPU, averaged by the driver.",
				"NVML field 185 (scope module)", "modules such as GB200",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerModule }),
			now("gpu_power_memory_watts", "Power draw of the memory, averaged by the driver.",
				"NVML field 185 (scope memory)", hopper,
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerMemory }),
			now("gpu_power_module_instant_watts", "Power draw of the module at the last sensor sample.",
				"NVML field 186 (scope module)", "modules such as GB200",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerModuleInstant }),
			limit("gpu_power_limit_watts", "Enforced power limit: the minimum of all limits.",
				"nvmlDeviceGetEnforcedPowerLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimit }),
			limit("gpu_power_limit_requested_watts", "Requested power limit.", "nvmlDeviceGetPowerManagementLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitRequested }).reads("power_limit_requested"),
			limit("gpu_power_limit_default_watts", "Default power limit.", "nvmlDeviceGetPowerManagementDefaultLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitDefault }).reads("power_limit_default"),
			limit("gpu_power_limit_min_watts", "Minimum settable power limit.",
				"nvmlDeviceGetPowerManagementLimitConstraints",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitMin }).reads("power_limit_range"),
			limit("gpu_power_limit_max_watts", "Maximum settable power limit.",
				"nvmlDeviceGetPowerManagementLimitConstraints",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitMax }).reads("power_limit_range"),
			{Name: "gpu_power_scope_limit_watts", Scope: ScopeGPU,
				Help:   "Power limits of the module and of the GPU base, by kind of limit.",
				Source: "NVML fields 187 to 192 (scopes module and GPU base)", Offered: "modules such as GB200",
				Labels: []string{"scope", "limit"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					for _, scope := range []string{"module", "gpu_base"} {
						for _, limit := range []string{"enforced", "requested", "default", "min", "max"} {
							if w, ok := s.ScopeLimits[scope+" "+limit]; ok {
								emit(float64(w), scope, limit)
							}
						}
					}
				})},
			{Name: "gpu_edpp_multiplier_ratio", Scope: ScopeGPU, Help: "Multiplier of the peak power limit (EDPp).",
				Source: "NVML field 274", Offered: "Blackwell and newer",
				Read: slow(func(s *gpu.Slow) gpu.Opt[gpu.Ratio] { return s.EDPPMultiplier })},
			{Name: "gpu_energy_joules_total", Scope: ScopeGPU,
				Help:   "Energy consumed by the GPU since the driver was loaded. A reload does not reset it while the exporter runs.",
				Source: "NVML field 83, nvmlDeviceGetTotalEnergyConsumption", Offered: "Volta and newer",
				Read: activityValue(func(a *gpu.Activity) gpu.Opt[gpu.Joules] { return a.Energy })},
		},
	}
}
