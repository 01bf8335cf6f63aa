package catalog

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

func power() Group {
	now := func(name, help, source, offered string, field func(*gpu.Fast) gpu.Opt[gpu.Watts]) Family {
		return Family{Name: name, Type: Gauge, Unit: "watts", Scope: ScopeGPU, Stability: Stable,
			Help: help, Source: source, Offered: offered, Read: fast(field)}
	}
	limit := func(name, help, source string, field func(*gpu.Slow) gpu.Opt[gpu.Watts]) Family {
		return Family{Name: name, Type: Gauge, Unit: "watts", Scope: ScopeGPU, Stability: Stable,
			Help: help, Source: source, Offered: "GPUs with power management", Read: slow(field)}
	}
	return Group{
		Title: "Power and energy",
		Intro: "Prefer the energy counter: its rate is the exact mean power over any window.",
		Examples: []Example{
			{"How many watts did each node's GPUs draw, on average?", `sum by (node) (rate(gpu_energy_joules_total[5m]))`},
			{"How near to its limit is each GPU?", `gpu_power_watts / gpu_power_limit_watts`},
		},
		Rows: []Family{
			now("gpu_power_watts", "Power of the GPU, the driver's average (1 s on most GPUs).", "NVML field 185 (scope GPU), else nvmlDeviceGetPowerUsage", "GPUs with a power sensor",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.Power }),
			now("gpu_power_instant_watts", "Power of the GPU at the last sensor sample.", "NVML field 186 (scope GPU)", "Ampere and newer",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerInstant }),
			now("gpu_power_module_watts", "Power of the whole module, its CPU included.", "NVML field 185 (scope module)", "modules such as GB200",
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerModule }),
			now("gpu_power_memory_watts", "Power of the memory.", "NVML field 185 (scope memory)", hopper,
				func(f *gpu.Fast) gpu.Opt[gpu.Watts] { return f.PowerMemory }),
			limit("gpu_power_limit_watts", "Power limit that is enforced: the lowest of all.", "nvmlDeviceGetEnforcedPowerLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimit }),
			limit("gpu_power_limit_requested_watts", "Power limit that was asked for.", "nvmlDeviceGetPowerManagementLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitRequested }),
			limit("gpu_power_limit_default_watts", "Power limit after the driver is loaded.", "nvmlDeviceGetPowerManagementDefaultLimit",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitDefault }),
			limit("gpu_power_limit_min_watts", "Lowest power limit that may be set.", "nvmlDeviceGetPowerManagementLimitConstraints",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitMin }),
			limit("gpu_power_limit_max_watts", "Highest power limit that may be set.", "nvmlDeviceGetPowerManagementLimitConstraints",
				func(s *gpu.Slow) gpu.Opt[gpu.Watts] { return s.PowerLimitMax }),
			{Name: "gpu_energy_joules_total", Type: Counter, Unit: "joules", Scope: ScopeGPU, Stability: Stable,
				Help: "Energy that the GPU used, from the driver's counter.", Source: "NVML field 83, nvmlDeviceGetTotalEnergyConsumption", Offered: "Volta and newer",
				Read: summed(func(a *gpu.Activity) gpu.Opt[gpu.Joules] { return a.Energy })},
		},
	}
}
