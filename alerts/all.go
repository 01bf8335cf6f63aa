package alerts

// AlertGroups returns the alerts by subject.
func AlertGroups() []AlertGroup {
	return []AlertGroup{
		{"gpu-exporter-alerts-gpus", "GPUs that are lost or need recovery", lost()},
		{"gpu-exporter-alerts-errors", "Errors", reported()},
		{"gpu-exporter-alerts-links", "PCIe, NVLink and fabric", links()},
		{"gpu-exporter-alerts-throttling", "Temperature and power", throttling()},
		{"gpu-exporter-alerts-waste", "Waste", waste()},
		{"gpu-exporter-alerts-sharing", "Sharing", sharing()},
		{"gpu-exporter-alerts-capacity", "Capacity", capacity()},
		{"gpu-exporter-alerts-exporter", "Exporter", exporter()},
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
