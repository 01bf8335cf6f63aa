package alerts

// seldom is the interval of groups whose alerts wait for many minutes anyway and are not critical, and of the records of
// workloads. An instant query finds what is five minutes old.
const seldom = 2 * minute

// AlertGroups returns the alerts by subject.
func AlertGroups() []AlertGroup {
	return []AlertGroup{
		{"gpu-exporter-alerts-gpus", "GPUs that are lost or need recovery", 0, append(lost(), lostLinks()...)},
		{"gpu-exporter-alerts-errors", "Errors", 0, reported()},
		{"gpu-exporter-alerts-links", "PCIe, NVLink and fabric", seldom, links()},
		{"gpu-exporter-alerts-throttling", "Temperature and power", seldom, throttling()},
		{"gpu-exporter-alerts-waste", "Waste", seldom, waste()},
		{"gpu-exporter-alerts-sharing", "Sharing", seldom, sharing()},
		{"gpu-exporter-alerts-capacity", "Capacity", seldom, capacity()},
		{"gpu-exporter-alerts-exporter", "Exporter", 0, exporter()},
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
