package dashboards

// healthBoard answers: which GPUs need somebody, and what should be done with them?
func healthDashboard() Dashboard {
	const c = "<cluster>"
	alive := "cluster:gpu_nodes:count{" + c + "}"
	problem := func(matchers ...string) string { return records("cluster:gpu_problems:count", c, matchers...) }
	count := func(width int, title, help, names string, steps []Step) Panel {
		return stat(width, title, Number, orZero(total("", problem(`problem=~"`+names+`"`)), alive), help).at(steps...)
	}
	return Dashboard{
		UID: "gpu-health", Title: "GPU / Health and errors",
		Question:    "Which GPUs need somebody, and what should be done with them?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("cluster:gpu_nodes:count")},
		Annotations: []Annotation{xidRecordAnnotation(), driverAnnotation("cluster"), cordonAnnotation("cluster")},
		From:        "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4,
				count(3, "Cannot be read", "GPUs that are lost, stuck, need a reset, or are on the PCI bus and not in NVML.", "unreadable|missing", badIfAny()),
				count(3, "Driver wants action", "GPUs for which the driver asks for a reset, a drain or a reboot.", "recovery_action", badIfAny()),
				count(3, "To be replaced", "GPUs on which the remapping of a memory row failed.", "row_remap_failed", badIfAny()),
				count(3, "Wait for a reset", "GPUs with a memory row or page that is taken out of use by the next reset.", "row_remap_pending|retired_pages_pending", warnIfAny()),
				count(3, "Uncorrected memory errors", "GPUs with uncorrected memory errors in the last hour.", "uncorrected_ecc", badIfAny()),
				count(3, "Links down or narrow", "GPUs with a lost NVLink, a fault of the fabric, or fewer PCIe lanes than its neighbors on the node.", "nvlink_down|pcie_narrow|fabric_fault", warnIfAny()),
				count(3, "Slowed by heat or power", "GPUs that heat or the power brake slowed down for more than 5 % of the last 5 minutes.", "thermal_slowdown|power_brake", warnIfAny()),
				stat(3, "XID events", Number, orZero(total("", events(records("cluster:gpu_xid_events:increase5m", c))), alive), "Errors that drivers reported over the range that is shown.").at(warnIfAny()...))}},
			{Title: "Where", Lines: []Line{
				line(9,
					table(12, "Nodes with a problem", "-Cards", "Nodes and what is wrong with their GPUs. Open the node to see which.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("problem", "Problem").mapped(problemWords()...),
						value("Cards", Number, total("cluster, node, problem", records("node:gpu_problems:count", c)))),
					series(12, "GPUs by problem", Number, "GPUs in a state about which somebody should do something, over time.", q("{{problem}}", total("problem", problem()))).stacked().from(0)),
				line(9,
					table(12, "XIDs by node", "-Events", "Errors that drivers reported over the range that is shown. Red: the GPU needs an operator. Blue: the program that ran has to be mended.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("xid", "Code").mapped(xidMappings()...),
						value("Events", Number, total("cluster, node, xid", events(records("node:gpu_xid_events:increase5m", c))))),
					series(12, "XIDs over time", Number, "Errors that drivers reported, by code, in five minutes each.", q("XID {{xid}}", total("xid", records("cluster:gpu_xid_events:increase5m", c)))).stacked().from(0)),
				line(8, alertTable(14, `cluster=~"$cluster"`),
					timeline(10, "Alerts over time", "When alerts of the shipped rules fired, by alert.", []Mapping{{"1", "firing", Red}}, q("{{alertname}}", `max by (alertname) (ALERTS{<cluster>, alertname=~"GPU.*", alertstate="firing"})`))),
			}},
			{Title: "Memory, heat and power", Lines: []Line{
				line(8,
					series(12, "Memory errors", Number, "Memory errors by severity, in five minutes each. Corrected ones did no harm; their rise announces harm.", q("{{severity}}", total("severity", records("cluster:gpu_ecc_errors:increase5m", c)))).from(0).colored(map[string]string{"corrected": Blue, "uncorrected": Red}),
					table(12, "Memory errors by node", "-Errors", "Memory errors over the range that is shown, where there were any.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("severity", "Severity").mapped(Mapping{"corrected", "corrected", Blue}, Mapping{"uncorrected", "uncorrected", Red}),
						value("Errors", Number, total("cluster, node, severity", events(records("node:gpu_ecc_errors:increase5m", c)))+" > 0"))),
				line(8,
					series(12, "Time with clocks held down", Number, "GPUs' worth of time in which a reason held clocks down; reasons overlap. Power cap is normal under load.", q("{{reason}}", total("reason", records("cluster:gpu_clock_limited_seconds:rate5m", c)))).from(0),
					table(12, "Nodes slowed down now", "-GPUs' worth", "Nodes where heat, the power brake or the board slow GPUs down.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("reason", "Reason"),
						value("GPUs' worth", Number, total("cluster, node, reason", records("node:gpu_clock_limited_seconds:rate5m", c, `reason!="power_cap"`))+" > 0.01"))),
			}},
			{Title: "Inventory", Lines: []Line{line(8,
				series(8, "GPUs by state", Number, "GPUs by state. Missing: on the PCI bus and not in NVML. Detached: given to another driver on purpose.", q("{{state}}", total("state", records("cluster:gpu_node_devices:sum", c)))).stacked().from(0).colored(map[string]string{"up": Green, "failed": Red, "missing": Red, "detached": Grey}),
				table(8, "Driver versions", "-Nodes", "Nodes by driver version. More than one per cluster: an upgrade is under way, or stuck.", label("cluster", "Cluster"), label("driver_version", "Driver"), value("Nodes", Number, total("cluster, driver_version", records("cluster:gpu_driver_version:count", c)))),
				table(8, "Exporter versions", "-Nodes", "Nodes by exporter version.", label("cluster", "Cluster"), label("version", "Exporter"), value("Nodes", Number, total("cluster, version", records("cluster:gpu_exporter_version:count", c))))),
				line(7,
					series(12, "Nodes that are scraped", Number, "Nodes whose exporter is scraped. A step down: nodes, exporters or scrapes were lost, and every other figure misses them.", q("{{cluster}} nodes", total("cluster", alive))).from(0),
					series(12, "Sources that do not answer", Number, "Exporters whose source of facts does not answer, by source.", q("{{source}}", total("source", records("cluster:gpu_exporter_sources_down:sum", c)))).stacked().from(0).to(link("gpu-exporter", "Open the exporters"))),
			}},
		},
	}
}

// problemWords name the problems of the recording rule, and color them by what they ask for.
func problemWords() []Mapping {
	return []Mapping{
		{"missing", "missing: on the bus, not in NVML", Red}, {"unreadable", "not readable", Red}, {"recovery_action", "driver wants action", Red},
		{"row_remap_failed", "row remapping failed: replace", Red}, {"row_remap_pending", "row waits for a reset", Amber}, {"retired_pages_pending", "page waits for a reboot", Amber},
		{"uncorrected_ecc", "uncorrected memory errors", Red}, {"nvlink_down", "NVLink down", Red}, {"pcie_narrow", "PCIe link is narrow", Amber},
		{"fabric_fault", "fabric fault", Red}, {"thermal_slowdown", "slowed by heat", Amber}, {"power_brake", "slowed by the power brake", Amber},
	}
}
