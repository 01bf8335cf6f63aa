package dashboards

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// exporterDashboard: is the data on the other dashboards complete?
func exporterDashboard() Dashboard {
	const n = "<node>"
	self := "gpu_exporter_build_info{" + n + "}"
	// The targets that were an exporter within the last day: one that is down has no series of its own.
	known := "group by (cluster, job, instance) (last_over_time(" + self + "[1d]))"
	const gpuNodes = `kube_node_status_allocatable{<node>, resource=~"nvidia_com_.+"}`
	// The state of each node's exporter: 0 down, 1 missing, 2 up. The shipped scrape objects set instance to the node.
	state := `(0 * max by (cluster, node) (label_replace(up{<job>} == 0 and on (cluster, job, instance) ` + known +
		`, "node", "$1", "instance", "([^:]+).*")) or 2 * group by (cluster, node) (` + self + `) or group by (cluster, node) (` +
		gpuNodes + ` > 0))`
	joined := " * on (cluster, job, instance) group_left (node) max by (cluster, job, instance, node) (" + self + ")"
	return Dashboard{
		UID: "gpu-exporter", Title: "GPU / Exporter", Raw: true,
		Question: "Is the data on the other dashboards complete: are exporters and their data sources up, do sums " +
			"add up, what do the exporters cost?",
		Vars: []Variable{datasourceVariable(), clusterVariable("gpu_exporter_build_info"), nodeVariable(true),
			jobVariable()},
		Annotations: []Annotation{restartAnnotation("node"), driverAnnotation("node")},
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "Scraped", Number, "count(group by (cluster, node) ("+self+"))",
					"Nodes whose exporter was scraped.").called("no exporter is scraped"),
				stat(3, "Down", Number, "sum(1 - (up{<job>} and on (cluster, job, instance) "+known+"))",
					"Targets that were an exporter within the last day and are down. Empty: nothing was scraped for "+
						"a day.").at(badIfAny()...),
				stat(3, "Missing", Number,
					orZero("count("+state+" == 1)", gpuNodes),
					"Nodes with allocatable GPUs and without exporter, those with one that is down apart; needs "+
						"kube-state-metrics.").at(badIfAny()...),
				stat(4, "Data sources down", Number, "sum(1 - gpu_exporter_source_up{"+n+"} unless on (cluster, node, source) "+
					catalog.NeverRead(n)+")",
					"Data sources of the exporters (driver, kernel log, kubelet and others) that are down, over all "+
						"nodes: the same one on two nodes counts twice. A kernel log that was never readable does not count.").at(
					badIfAny()...),
				stat(3, "Allocation known", Ratio,
					"count(gpu_allocation_ratio{"+n+"}) / count(gpu_device_up{"+n+"})",
					"GPUs whose allocation is known, over all GPUs. Below 100 %: the kubelet does not respond, or "+
						"device IDs could not be resolved.").between(0, 1).at(base(Red), step(0.9, Amber),
					step(0.999, Green)),
				stat(4, "Unresolved devices", Number, orZero("sum(gpu_container_unresolved_devices{"+n+"})", self),
					"Allocated device IDs that could not be resolved to a GPU.").at(warnIfAny()...),
				stat(4, "Error of sums", Ratio, "max(gpu_attribution_error_ratio{"+n+"})",
					"Maximum relative difference between a GPU's total and the sum of its containers and the "+
						"unattributed remainder. Above 0: please report it.").between(0, 1).digits(3).at(base(Green),
					step(0.001, Amber), step(0.02, Red)),
			)}},
			{Title: "Data sources and poll groups", Lines: []Line{
				line(8,
					table(24, "Exporters", "State",
						"State, version and cost of the exporters, those that are down or missing first. Down: a target that was an "+
							"exporter within the last day; its node is the host of its instance label. Missing: a node with allocatable "+
							"GPUs and without exporter; needs kube-state-metrics.",
						value("State", Plain, state).mapped(Mapping{"0", "down", Red}, Mapping{"1", "missing", Red},
							Mapping{"2", "up", Green}).wide(72),
						label("node", "Node").to(toNode()), label("version", "Version").wide(100),
						label("revision", "Revision").wide(360),
						value("GPUs", Number, "max by (cluster, node, version, revision) ("+self+
							") * on (cluster, node) group_left () count by (cluster, node) (gpu_device_up{"+n+"})").wide(64),
						value("Scrape", Seconds, "max by (cluster, node) (scrape_duration_seconds{<job>}"+joined+")").at(
							badAbove(1, 5)...),
						value("Series", Number, "max by (cluster, node) (scrape_samples_scraped{<job>}"+joined+")"),
						value("Memory", Bytes, "max by (cluster, node) (process_resident_memory_bytes{<job>}"+joined+
							")"),
						value("CPU", Ratio, "max by (cluster, node) "+
							"((rate(process_cpu_seconds_total{<job>}[$__rate_interval]))"+joined+")").at(base(Green),
							step(0.05, Amber), step(0.5, Red)).wide(64),
						value("Up since", When, "1000 * max by (cluster, node) (process_start_time_seconds{<job>}"+
							joined+")"))),
				line(8,
					timeline(12, "Failed data sources",
						"Data sources that failed in the selected time range, by node; others are omitted.",
						yesNo("up", Green, "down", Red),
						q("{{node}} {{source}}",
							maximum("cluster, node, source", "gpu_exporter_source_up{"+n+"}")+
								" and on (cluster, node, source) "+
								"min by (cluster, node, source) (min_over_time(gpu_exporter_source_up{"+n+
								"}[$__range] @ end())) == 0 unless on (cluster, node, source) "+catalog.NeverRead(n))).called(
						"No data source has failed, or no exporter is scraped."),
					series(12, "Failed queries", PerSec, "Failed queries of data sources per second.",
						q("{{node}} {{source}}",
							perSecond("cluster, node, source", "gpu_exporter_source_errors_total{"+n+"}")+" > 0")).from(
						0).called("No query has failed, or the exporter is not scraped.")),
				line(8,
					series(12, "Age of the last success", Duration,
						"Time since the last successful query of each data source, maximum of the nodes.",
						q("{{source}}", "max by (source) (timestamp(gpu_exporter_source_last_success_timestamp_seconds{"+n+
							"}) - gpu_exporter_source_last_success_timestamp_seconds{"+n+"})")).from(0),
					series(12, "Query duration", Seconds,
						"Duration of the last query of each data source, maximum of the nodes.",
						q("{{source}}", maximum("source", "gpu_exporter_source_duration_seconds{"+n+"}"))).from(0)),
				line(8,
					series(8, "Poll duration / poll interval", Ratio,
						"Duration of the last poll over the poll interval, maximum of the nodes. At 100 % the "+
							"exporter cannot complete a poll within its interval.",
						q("{{poll}}", "max by (poll) ("+maximum("cluster, node, poll",
							"gpu_exporter_poll_duration_seconds{"+n+"}")+" / "+maximum("cluster, node, poll",
							"gpu_exporter_poll_interval_seconds{"+n+"}")+")")).from(0).at(badAbove(0.5, 1)...).coarse(sixHours),
					series(8, "Age of a GPU's last reading", Duration,
						"Time since the last poll of a GPU by each poll group, maximum of the available GPUs.",
						q("{{poll}}", maximum("poll", "node:gpu_last_read_age_seconds:max{"+n+"}"))).from(0).coarse(sixHours),
					timeline(8, "NVML shut down",
						"Periods in which an exporter had NVML shut down so as not to block a GPU reconfiguration, "+
							"by reason.", yesNo("shut down", Amber, "initialized", Green),
						q("{{reason}}", maximum("reason", "gpu_exporter_paused{"+n+"}")))),
			}},
			{Title: "Driver calls", Lines: []Line{line(8,
				series(4, "Call time", Ratio,
					"Share of time that an exporter spends in driver calls, mean of the exporters. Empty if only "+
						"native histograms are scraped.",
					q("mean of the exporters", perSecond("", "gpu_exporter_poll_call_duration_seconds_sum{"+n+"}")+
						" / count(group by (cluster, node) ("+self+"))")).from(0).coarse(sixHours),
				table(9, "Slowest calls", "-Mean",
					"The twelve calls with the longest mean duration. Requires --collector.calls on the exporters.",
					label("call", "Call"),
					value("Mean", Seconds, share("call", "gpu_exporter_call_duration_seconds_sum{"+n+"}",
						"gpu_exporter_call_duration_seconds_count{"+n+"}")),
					value("Calls per second", Number,
						perSecond("call", "gpu_exporter_call_duration_seconds_count{"+n+"}"))).
					among("call", "topk(12, "+share("call", "gpu_exporter_call_duration_seconds_sum{"+n+"}",
						"gpu_exporter_call_duration_seconds_count{"+n+"}")+")"),
				table(11, "Failed calls in range", "-Errors",
					"Failed NVML calls, and panics of the exporter; calls that the GPU does not support are not counted.",
					label("node", "Node").to(toNode()).wide(145), label("call", "Call"), label("code", "Code"),
					value("Errors", Number, "sum by (cluster, node, call, code) "+
						"(increase(gpu_exporter_call_errors_total{"+n+"}[$__range])) > 0 or label_replace(sum by (cluster, node) "+
						"(increase(gpu_exporter_panics_total{"+n+"}[$__range])) > 0, \"code\", \"panic\", \"\", \"\")")).
					called("No call has failed, and the exporter has not panicked.")),
				line(7,
					table(8, "Implausible values in range", "-Rejected",
						"Implausible driver values that were dropped.", label("node", "Node").to(toNode()),
						label("reading", "Reading"),
						value("Rejected", Number,
							"sum by (cluster, node, reading) (increase(gpu_exporter_rejected_values_total{"+n+
								"}[$__range])) > 0")).called("No value was dropped."),
					table(8, "Sampling method", "Method",
						"GPUs by the method of their busy counters. ring: all of the driver's samples. rate: the "+
							"driver's last sampling period at each poll. gpm: GPM counters of the MIG instances.",
						label("method", "Method"),
						value("GPUs", Number, "count by (method) (gpu_sampling_info{"+n+"})")),
					table(8, "Unmeasured readings", "-GPUs",
						"Readings that are not exported because their values would be wrong, with the reason.",
						label("reading", "Reading"), label("reason", "Reason"),
						value("GPUs", Number, "count by (reading, reason) (gpu_unmeasured_info{"+n+"})")).
						called("All supported readings are exported, or no exporter is scraped.")),
			}},
			{Title: "Attribution quality", Lines: []Line{line(8,
				table(8, "Allocations by data source", "-Containers",
					"Method by which busy time is measured, and data source of the allocation. none: not measured.",
					label("method", "Method"), label("source", "Source"),
					value("Containers", Number, "count by (method, source) (gpu_container_attribution_info{"+n+"})")),
				series(8, "Unattributed busy time", Number,
					"Busy GPU equivalents not attributed to any container, by reason.",
					q("{{reason}}", total("reason", "node:gpu_unattributed_busy_seconds:rate5m{"+n+"}"))).stacked().from(
					0).coarse(sixHours),
				series(8, "Attribution error", Ratio,
					"Relative difference between a GPU's total and its parts, maximum of the GPUs.",
					q("{{quantity}}", maximum("quantity", "node:gpu_attribution_error_ratio:max{"+n+"}"))).between(0, 1).coarse(sixHours)),
				line(7,
					table(12, "Features", "Feature",
						"Nodes by state of optional features; the node page shows how to enable them.",
						label("feature", "Feature"),
						label("state", "State").mapped(Mapping{"on", "on", Green},
							Mapping{"off", "off", Gray},
							Mapping{"missing_permission", "missing permission", Amber}),
						value("Nodes", Number, "sum by (feature, state) (gpu_exporter_feature{"+n+"}) > 0")),
					table(12, "Containers using unallocated GPUs", "Namespace",
						"Containers that use a GPU that is not allocated to them.", label("namespace", "Namespace"),
						label("pod", "Pod").to(toPod()), label("kind", "Kind"), label("node", "Node").to(toNode()),
						label("gpu", "GPU").to(toGPU()).wide(60), label("uuid", "UUID").hide(),
						value("Now", Number, "sum by (cluster, node, uuid, gpu, namespace, pod, kind) "+
							"(gpu_container_mismatch{"+n+"}) > 0")).called("No container uses a GPU that is not allocated to it.")),
			}},
			{Title: "Cost", Collapsed: true, Lines: []Line{line(8,
				series(6, "CPU", Ratio, "CPU usage of the exporters in cores: maximum and median.",
					spread("max by (cluster, node) ((rate(process_cpu_seconds_total{<job>}[$__rate_interval]))"+joined+
						")")...).from(0),
				series(6, "Memory", Bytes, "Resident memory of the exporters: maximum and median.",
					spread("max by (cluster, node) (process_resident_memory_bytes{<job>}"+joined+")")...).from(0),
				series(6, "Open files", Number, "Open file descriptors of the exporters: maximum and median.",
					spread("max by (cluster, node) (process_open_fds{<job>}"+joined+")")...).from(0),
				series(6, "Goroutines", Number, "Goroutines of the exporters: maximum and median. A steady increase "+
					"indicates a leak.", spread("max by (cluster, node) (go_goroutines{<job>}"+joined+")")...).from(0)),
				line(8,
					series(8, "Scrape duration", Seconds,
						"Duration of scrapes, measured by Prometheus: maximum and median.",
						spread("max by (cluster, node) (scrape_duration_seconds{<job>}"+joined+")")...).from(0),
					series(8, "Series per exporter", Number, "Samples per scrape: maximum and median.",
						spread("max by (cluster, node) (scrape_samples_scraped{<job>}"+joined+")")...).from(0),
					series(8, "Responses by HTTP status", PerSec,
						"Scrape responses per second, by status.",
						q("{{code}}", "sum by (code) "+
							"((rate(promhttp_metric_handler_requests_total{<job>}[$__rate_interval]))"+joined+
							")")).from(0)),
			}},
		},
	}
}
