package alerts

func throttling() []Alert {
	limited := func(reason string) string {
		return "max" + byGPU + `(rate(gpu_clock_limited_seconds_total{reason="` + reason + `"}[5m]))`
	}
	part := func(v float64, what string) []Parameter { return []Parameter{number("fraction", v, 0.001, 0.99, what)} }
	return []Alert{
		{Name: "GPUThermalSlowdown", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: part(0.05, "part of the time in which the hardware held clocks down"),
			// Drivers that do not tell hardware from software have the one reason alone.
			Expr:    limited("hw_thermal") + " > $fraction\n  or (" + limited("thermal") + " > $fraction unless on (" + onGPU + `) gpu_clock_limited_seconds_total{reason="hw_thermal"})`,
			Summary: "A GPU's hardware slows it down because it is too hot.",
			Description: atGPU + " was slowed down by heat for " + asPercent + " of the time. " +
				"Check fans, airflow, filters and the room first, then the GPU's heat sink; take work off the node until it is cooler."},
		{Name: "GPUThermalSlowdownSoftware", Severity: Warning, Off: true, Labels: gpuLabels, For: minutes30, Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: part(0.2, "part of the time in which the driver held clocks down"),
			Expr:       limited("sw_thermal") + " > $fraction",
			Summary:    "The driver slows a GPU down to keep it cool.",
			Description: "The driver held the clocks of " + atGPU + " down for " + asPercent + " of the time. " +
				"Passively cooled GPUs live with a little of it; much means too little air."},
		{Name: "GPUPowerBrake", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: part(0.05, "part of the time in which the brake was on"),
			Expr:       limited("hw_power_brake") + " > $fraction",
			Summary:    "The power supply makes a GPU slow down.",
			Description: "The external power brake held " + atGPU + " down for " + asPercent + " of the time. " +
				"The supply of node or rack is at its limit or lost a unit: check the BMC's power readings and redundancy."},
		{Name: "GPUTemperatureNearLimit", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: []Parameter{number("margin", 2, 0, 40, "degrees below the GPU's own slowdown temperature")},
			Expr: `max` + byGPU + `(gpu_temperature_celsius{sensor="gpu"})
  > on (` + onGPU + `, gpu) max` + byGPU + `(gpu_temperature_limit_celsius{sensor="gpu",limit="slowdown"}) - $margin`,
			Summary: "A GPU is about to slow down for heat.",
			Description: atGPU + " is at " + value3 + " °C, within $margin degrees of the temperature at which it slows down. " +
				"Check fans, airflow and room before it does."},
		{Name: "GPUMemoryTemperatureHigh", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: []Parameter{number("margin", 2, 0, 40, "degrees below the highest temperature of normal operation")},
			Expr: `max` + byGPU + `(gpu_temperature_celsius{sensor="memory"})
  > on (` + onGPU + `, gpu) max` + byGPU + `(gpu_temperature_limit_celsius{sensor="memory",limit="max_operating"}) - $margin`,
			Summary: "A GPU's memory is nearly too hot.",
			Description: "The memory of " + atGPU + " is at " + value3 + " °C, within $margin degrees of its limit. Hot memory makes more errors. " +
				"Check airflow; work that moves much data heats memory more than the chip."},
		{Name: "GPUPowerCapped", Severity: Info, Labels: gpuLabels, For: hour, Keep: minutes15, Dashboard: gpuDashboard,
			Parameters: []Parameter{
				number("fraction", 0.5, 0.01, 0.99, "part of the time at the power limit"),
				number("clock", 0.8, 0.1, 0.99, "SM clock over the highest, below which the limit costs too much"),
			},
			Expr: `max` + byGPU + `(rate(gpu_clock_limited_seconds_total{reason="power_cap"}[15m])) > $fraction
  and max` + byGPU + `(avg_over_time(gpu_clock_hertz{clock="sm"}[15m])) < $clock * max` + byGPU + `(gpu_clock_max_hertz{clock="sm"})`,
			Summary: "A power limit costs a GPU much of its speed.",
			Description: atGPU + " was at its power limit for " + asPercent + " of the time, with low clocks. " +
				"See whether somebody lowered the limit (nvidia-smi -q -d POWER) and whether it is still wanted."},
	}
}
