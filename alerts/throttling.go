package alerts

func throttling() []Alert {
	limited := func(reason string) string {
		return "max" + byGPU + `(rate(gpu_clock_limited_seconds_total{reason="` + reason + `"}[5m]))`
	}
	part := func(v float64, what string) []Parameter { return []Parameter{number("fraction", v, 0.001, 0.99, what)} }
	return []Alert{
		{Name: "GPUThermalSlowdown", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes10,
			Dashboard:  gpuDashboard,
			Parameters: part(0.05, "fraction of time in which the hardware limited clocks"),
			// Some drivers report one thermal reason for hardware and software.
			Expr: limited("hw_thermal") + " > $fraction\n  or (" + limited("thermal") + " > $fraction unless on (" +
				onGPU + `) gpu_clock_limited_seconds_total{reason="hw_thermal"})`,
			Summary: "Thermal slowdown of a GPU by its hardware.",
			Description: atGPU + " was in thermal slowdown for " + asPercent + " of the time. " +
				"Check fans, airflow, filters and inlet temperature first, then the GPU's heat sink; drain the node " +
				"until it has cooled down."},
		{Name: "GPUThermalSlowdownSoftware", Severity: Warning, Off: true, Labels: gpuLabels, For: minutes30,
			Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: part(0.2, "fraction of time in which the driver limited clocks"),
			Expr:       limited("sw_thermal") + " > $fraction",
			Summary:    "Thermal slowdown of a GPU by the driver.",
			Description: "The driver limited the clocks of " + atGPU + " because of temperature for " + asPercent +
				" of the time. " +
				"A little is normal for passively cooled GPUs; much indicates insufficient airflow."},
		{Name: "GPUPowerBrake", Severity: Warning, Labels: gpuLabels, For: minutes5, Keep: minutes10,
			Dashboard:  gpuDashboard,
			Parameters: part(0.05, "fraction of time in which the power brake was active"),
			Expr:       limited("hw_power_brake") + " > $fraction",
			Summary:    "External power brake on a GPU.",
			Description: "The external power brake limited " + atGPU + " for " + asPercent + " of the time. " +
				"The power supply of node or rack is at its limit or lost a unit: check the BMC's power readings and " +
				"redundancy."},
		{Name: "GPUTemperatureNearLimit", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes10,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{number("margin", 2, 0, 40, "degrees below the GPU's slowdown temperature")},
			Expr: `max` + byGPU + `(gpu_temperature_celsius{sensor="gpu"})
  > on (` + onGPU + `, gpu) max` + byGPU + `(gpu_temperature_limit_celsius{sensor="gpu",limit="slowdown"}) - $margin`,
			Summary: "A GPU is close to its slowdown temperature.",
			Description: atGPU + " is at " + value3 + " °C, within $margin degrees of its slowdown temperature. " +
				"Check fans, airflow and inlet temperature."},
		{Name: "GPUMemoryTemperatureHigh", Severity: Warning, Labels: gpuLabels, For: minutes10, Keep: minutes10,
			Dashboard:  gpuDashboard,
			Parameters: []Parameter{number("margin", 2, 0, 40, "degrees below the maximum operating temperature")},
			Expr: `max` + byGPU + `(gpu_temperature_celsius{sensor="memory"})
  > on (` + onGPU + `, gpu) max` + byGPU +
				`(gpu_temperature_limit_celsius{sensor="memory",limit="max_operating"}) - $margin`,
			Summary: "The memory of a GPU is close to its maximum temperature.",
			Description: "The memory of " + atGPU + " is at " + value3 +
				" °C, within $margin degrees of its limit. Memory errors increase with temperature. " +
				"Check airflow; memory-bound applications raise the memory temperature more than the GPU temperature."},
		{Name: "GPUPowerCapped", Severity: Info, Labels: gpuLabels, For: hour, Keep: minutes15, Dashboard: gpuDashboard,
			Parameters: []Parameter{
				number("fraction", 0.5, 0.01, 0.99, "fraction of time at the power limit"),
				number("clock", 0.8, 0.1, 0.99, "SM clock over the maximum, below which the limit costs too much"),
			},
			Expr: `max` + byGPU + `(rate(gpu_clock_limited_seconds_total{reason="power_cap"}[15m])) > $fraction
  and max` + byGPU + `(avg_over_time(gpu_clock_hertz{clock="sm"}[15m])) < $clock * max` + byGPU +
				`(gpu_clock_max_hertz{clock="sm"})`,
			Summary: "A power limit slows a GPU down considerably.",
			Description: atGPU + " was at its power limit for " + asPercent + " of the time, with low clocks. " +
				"Check whether the limit was lowered (nvidia-smi -q -d POWER) and whether that is still intended."},
	}
}
