package alerts

// seldom and rarely are the intervals of groups whose alerts wait for many minutes anyway and are not critical, and of the records of
// workloads. An instant query finds what is five minutes old.
const (
	seldom = 2 * minute
	rarely = 4 * minute
)

// AlertGroups returns the alerts by subject.
func AlertGroups() []AlertGroup {
	return []AlertGroup{
		{"gpu-exporter-alerts-gpus", "GPUs that are lost or need recovery", 0, append(lost(), lostLinks()...)},
		{"gpu-exporter-alerts-errors", "Errors", 0, reported()},
		{"gpu-exporter-alerts-repairs", "GPUs that are missing, and memory", seldom, append(patient(), memory()...)},
		{"gpu-exporter-alerts-links", "PCIe, NVLink and fabric", rarely, links()},
		{"gpu-exporter-alerts-throttling", "Temperature and power", seldom, throttling()},
		{"gpu-exporter-alerts-waste", "Waste", rarely, waste()},
		{"gpu-exporter-alerts-sharing", "Sharing", seldom, sharing()},
		{"gpu-exporter-alerts-capacity", "Capacity", seldom, capacity()},
		{"gpu-exporter-alerts-exporter", "Exporter", 0, exporter()},
		{"gpu-exporter-alerts-exporter-state", "State of the exporter", seldom, exporterState()},
	}
}

// Alerts returns the alerts of all groups.
func Alerts() []Alert {
	var all []Alert
	for _, g := range AlertGroups() {
		all = append(all, g.Alerts...)
	}
	return all
}
