package dashboards

// healthDashboard: which GPUs need attention, and what should be done?
func healthDashboard() Dashboard {
	const c = "<cluster>"
	alive := "cluster:gpu_nodes:count{" + c + "}"
	problem := func(matchers ...string) string { return records("gpu:gpu_problems:info", c, matchers...) }
	count := func(width int, title, help, names string, steps []Step) Panel {
		return stat(width, title, Number, orZero("count(group by (cluster, node, uuid) ("+
			problem(`problem=~"`+names+`"`)+"))", alive), help).at(steps...)
	}
	return Dashboard{
		UID: "gpu-health", Title: "GPU / Health and errors",
		Question:    "Which GPUs need attention, and what should be done?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("cluster:gpu_nodes:count")},
		Annotations: []Annotation{xidRecordAnnotation(), driverAnnotation("cluster"), cordonAnnotation("cluster")},
		From:        "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4,
				count(3, "Unavailable", "GPUs that are lost, hung, need a reset, or are on the PCI bus but not in "+
					"NVML.", "unreadable", badIfAny()),
				count(3, "Recovery action", "GPUs for which the driver recommends a reset, a drain or a reboot.",
					"recovery_action", badIfAny()),
				count(3, "To be replaced", "GPUs with a failed row remapping.", "row_remap_failed", badIfAny()),
				count(3, "Reset pending", "GPUs with a row remapping or page retirement pending until the next reset.",
					"row_remap_pending|retired_pages_pending", warnIfAny()),
				count(3, "Uncorrected memory errors", "GPUs with uncorrected memory errors in the last hour.",
					"uncorrected_ecc", badIfAny()),
				count(3, "Degraded links", "GPUs with an NVLink down, a fabric fault, or fewer PCIe lanes than their "+
					"neighbors on the node.", "nvlink_down|pcie_narrow|fabric_fault", warnIfAny()),
				count(3, "Thermal or power slowdown",
					"GPUs with thermal slowdown or power brake for more than 5 % of the last 5 minutes.",
					"thermal_slowdown|power_brake", warnIfAny()),
				stat(3, "XID events", Number, orZero(total("", events(records("node:gpu_xid_events:increase5m", c))),
					alive), "XID errors in the selected time range.").at(warnIfAny()...))}},
			{Title: "Nodes", Lines: []Line{
				line(9,
					table(12, "GPUs with a problem", "-Problems", "One row for each problem of a GPU.",
						label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
						label("problem", "Problem").mapped(problemWords()...),
						value("Problems", Number,
							"max by (cluster, node, uuid, gpu, problem) ("+problem()+") * on (cluster, node, "+
								"uuid) group_left () count by (cluster, node, uuid) ("+problem()+")").wide(90),
						label("uuid", "UUID")).called("No GPU has a problem, or the recording rules are not loaded."),
					series(12, "GPUs by problem", Number, "GPUs that need attention, by problem.",
						q("{{problem}}", total("problem", records("node:gpu_problems:count", c)))).stacked().from(0)),
				line(9,
					table(12, "XIDs by node", "-Events",
						"XID errors in the selected time range. Red: the GPU needs an operator. Blue: fix the "+
							"application.", label("cluster", "Cluster"), label("node", "Node").to(toNode()),
						label("xid", "Code").mapped(xidMappings()...),
						value("Events", Number, total("cluster, node, xid",
							events(records("node:gpu_xid_events:increase5m", c)))+" > 0")).called("No XID errors."),
					series(12, "XIDs over time", Number, "XID errors per five minutes, by code.",
						q("XID {{xid}}", total("xid", records("node:gpu_xid_events:increase5m", c))+
							" > 0")).stacked().from(
						0).called("No XID errors.")),
				line(8, alertTable(14, `cluster=~"$cluster"`),
					timeline(10, "Alerts over time", "Periods in which alerts of the shipped rules were firing.",
						[]Mapping{{"1", "firing", Red}},
						q("{{alertname}}",
							`max by (alertname) (ALERTS{<cluster>, alertname=~"GPU.*", alertstate="firing"})`))),
			}},
			{Title: "Memory, temperature and power", Lines: []Line{
				line(8,
					series(12, "Memory errors", Number,
						"ECC errors per five minutes, by severity. An increase of corrected errors often precedes "+
							"uncorrected ones.",
						q("{{severity}}", total("severity", records("node:gpu_ecc_errors:increase5m", c)))).from(
						0).colored(map[string]string{"corrected": Blue, "uncorrected": Red}),
					table(12, "Memory errors by node", "-Errors", "ECC errors in the selected time range.",
						label("cluster", "Cluster"), label("node", "Node").to(toNode()),
						label("severity", "Severity").mapped(Mapping{"corrected", "corrected", Blue},
							Mapping{"uncorrected", "uncorrected", Red}),
						value("Errors", Number, total("cluster, node, severity",
							events(records("node:gpu_ecc_errors:increase5m", c)))+" > 0"))),
				line(8,
					series(12, "Clock limit time", Number,
						"GPUs with limited clocks (GPU equivalents), by reason; reasons overlap. Power cap is normal "+
							"under load.", q("{{reason}}",
							total("reason", records("model:gpu_clock_limited_seconds:rate5m", c)))).from(0),
					table(12, "Nodes with limited clocks", "-Limited GPUs",
						"Nodes with clocks limited by temperature, power brake or board limit.",
						label("cluster", "Cluster"),
						label("node", "Node").to(toNode()), label("reason", "Reason"),
						value("Limited GPUs", Number,
							total("cluster, node, reason",
								records("node:gpu_clock_limited_seconds:rate5m", c, `reason!="power_cap"`))+
								" > 0.01"))),
			}},
			{Title: "Inventory", Lines: []Line{line(8,
				series(8, "GPUs by state", Number,
					"GPUs by state. missing: on the PCI bus but not in NVML. detached: bound to another driver.",
					q("{{state}}", total("state", records("cluster:gpu_node_devices:sum", c)))).stacked().from(
					0).colored(map[string]string{"up": Green, "failed": Red, "missing": Red, "detached": Gray}),
				table(8, "Driver versions", "-Nodes", "Nodes by driver version.", label("cluster", "Cluster"),
					label("driver_version", "Driver"),
					value("Nodes", Number, total("cluster, driver_version",
						records("cluster:gpu_driver_version:count", c)))),
				table(8, "Exporter versions", "-Nodes", "Nodes by exporter version.", label("cluster", "Cluster"),
					label("version", "Exporter"),
					value("Nodes", Number, total("cluster, version",
						records("cluster:gpu_exporter_version:count", c))))),
				line(7,
					series(12, "Scraped nodes", Number,
						"Nodes whose exporter is scraped. A decrease: nodes, exporters or scrapes were lost, and all "+
							"other panels lack them.", q("{{cluster}} nodes", total("cluster", alive))).from(0),
					series(12, "Data sources down", Number,
						"Exporters with a data source that is down, by data source.",
						q("{{source}}", total("source",
							records("cluster:gpu_exporter_sources_down:sum", c)))).stacked().from(0).to(
						link("gpu-exporter", "Open the exporters"))),
			}},
		},
	}
}

// problemWords name the problems of the recording rule, and color them by what they ask for.
func problemWords() []Mapping {
	return []Mapping{
		{"unreadable", "unavailable", Red},
		{"recovery_action", "recovery action", Red},
		{"row_remap_failed", "row remapping failed: replace", Red},
		{"row_remap_pending", "row remapping pending", Amber},
		{"retired_pages_pending", "page retirement pending", Amber},
		{"uncorrected_ecc", "uncorrected memory errors", Red}, {"nvlink_down", "NVLink down", Red},
		{"pcie_narrow", "PCIe link narrow", Amber},
		{"fabric_fault", "fabric fault", Red}, {"thermal_slowdown", "thermal slowdown", Amber},
		{"power_brake", "power brake", Amber},
	}
}
