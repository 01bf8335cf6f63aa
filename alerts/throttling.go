package alerts

// What limits clocks to protect the hardware; some drivers report one thermal reason for hardware and software. That the driver
// lowers clocks below the limit by itself is regulation.
const (
	hardwareThermal = "(" + limitedRecord + `{reason="hw_thermal"} or ` + limitedRecord + `{reason="thermal"} unless on (` + onGPU +
		`) gpu_clock_limited_seconds_total{reason="hw_thermal"})`
	powerBrake = limitedRecord + `{reason="hw_power_brake"}`
)

func throttling() []Alert {
	clocks := withModel("max" + byGPU + `(avg_over_time(gpu_clock_hertz{clock="sm"}[15m]))`)
	as := func(reason, limited string) string {
		return "label_replace(max" + byGPU + "(" + limited + `) > $fraction, "reason", "` + reason + `", "", "")`
	}
	return []Alert{
		{Name: "GPUHardwareSlowdown", Severity: Warning, Labels: append([]string{"reason"}, gpuLabels...), For: minutes5, Keep: minutes10,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{number("fraction", 0.05, 0.001, 0.99,
				"fraction of time in which the hardware limited clocks")},
			Expr:    as("thermal", hardwareThermal) + "\n  or " + as("power_brake", powerBrake),
			Summary: "The hardware limits the clocks of a GPU to protect it.",
			Description: atGPU + " was in {{ if eq $labels.reason \"thermal\" }}thermal slowdown for " + asPercent + " of the time. " +
				"Check fans, airflow, filters and inlet temperature first, then the GPU's heat sink; drain the node " +
				"until it has cooled down.{{ else }}power brake slowdown for " + asPercent + " of the time. " +
				"The power supply of node or rack is at its limit or lost a unit: check the BMC's power readings and " +
				"redundancy.{{ end }}"},
		{Name: "GPUTemperatureHigh", Severity: Warning, Labels: append([]string{"sensor"}, gpuLabels...), For: minutes10,
			Keep: minutes10, Dashboard: gpuDashboard,
			Parameters: []Parameter{number("margin", 2, 0, 40, "degrees below the limit")},
			Expr: `max` + byGPUAnd("sensor") + `(gpu_temperature_celsius)
  > on (` + onGPU + `, gpu, sensor) max` + byGPUAnd("sensor") + `(gpu_temperature_limit_celsius{sensor="gpu",limit="slowdown"}
    or gpu_temperature_limit_celsius{sensor="memory",limit="max_operating"}) - $margin
  unless on (` + onGPU + `) ` + problemRecord + `{problem="thermal_slowdown"}`,
			Summary: "A GPU or its memory is close to its temperature limit.",
			Description: "Sensor {{ $labels.sensor }} of " + atGPU + " is at " + value3 + " °C, within $margin degrees of its " +
				"limit: the slowdown temperature of the GPU, the maximum operating temperature of its memory. Check " +
				"fans, airflow and inlet temperature."},
		{Name: "GPUSlowWithoutReason", Severity: Warning, Labels: gpuLabels, For: minutes30, Keep: minutes15,
			Dashboard: gpuDashboard,
			Parameters: []Parameter{
				number("clock", 0.7, 0.1, 0.99, "SM clock over that of the fastest GPU of the model on the node"),
				number("busy", 0.8, 0.1, 0.99, "utilization from which the clock should be high"),
				number("limited", 0.05, 0.001, 0.9, "fraction of time with a reason for low clocks"),
			},
			Expr: "max" + byGPU + "(" + clocks + `
    < on (cluster, node, model) group_left () ($clock * max by (cluster, node, model) (` + clocks + `)))
  and max` + byGPU + `(rate(gpu_busy_seconds_total[15m]) / (rate(gpu_observed_seconds_total[15m]) > 0)) > $busy
  unless on (` + onGPU + ") " + limitedRecord + " > $limited",
			Summary: "A busy GPU has a low clock, and the driver gives no reason.",
			Description: "The SM clock of " + atGPU + ` is only {{ $value | humanize }}Hz while the GPU is busy, and no ` +
				"reason for limited clocks is active; another GPU of the model on the node runs faster. Compare with the other " +
				"GPUs of the node; look for locked clocks (nvidia-smi -q -d CLOCK), then reset the GPU."},
	}
}
