package dashboards

import (
	"fmt"
	"strconv"
	"strings"
)

// healthDashboard: which GPUs need attention, and what should be done?
func healthDashboard() Dashboard {
	const c = "<cluster>"
	alive := "cluster:gpu_nodes:count{" + c + "}"
	problem := records("gpu:gpu_problems:info", c)
	verdict := func(matchers ...string) string {
		return orZero("count(group by (cluster, node, uuid) ("+records("gpu:gpu_health:info", c, matchers...)+"))", alive)
	}
	tiles := []Panel{stat(3, "Unhealthy", Number, verdict(), "GPUs that are not healthy, each counted once: the sum "+
		"of the next six.").at(badIfAny()...)}
	for _, v := range verdicts() {
		tiles = append(tiles, stat(3, v.Text, Number, verdict(`state="`+v.Value+`"`), v.help).at(base(Green),
			step(1e-9, v.Color)))
	}
	return Dashboard{
		UID: "gpu-health", Title: "GPU / Health and errors",
		Question:    "Which GPUs need attention, and what should be done?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("cluster:gpu_nodes:count")},
		Annotations: []Annotation{xidRecordAnnotation(), driverAnnotation("cluster"), cordonAnnotation("cluster")},
		From:        "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4, append(tiles,
				stat(3, "XID events", Number, orZero(total("", events(records("node:gpu_xid_events:increase5m", c))),
					alive), "XID errors in the selected time range.").at(warnIfAny()...))...),
				line(9, table(24, "GPUs with a problem", "-Urgency",
					"One row for each problem of a GPU, the gravest first, with what the problem alone requires. The verdict on the "+
						"GPU is that of its gravest problem. Click a problem for its explanation.",
					label("state", "Verdict").mapped(verdictMappings()...).wide(130), label("node", "Node").to(toNode()),
					label("gpu", "GPU").to(toGPU()).wide(60),
					label("problem", "Problem").to(Link{UID: verdictDoc, Title: "Explain the problems"}),
					value("Urgency", Number, "max by (cluster, node, uuid, gpu, problem, state) ("+verdictRanks(problem)+")").wide(100),
					label("uuid", "UUID")).called("No GPU has a problem, or the recording rules are not loaded.")),
				line(7, verdictsTable())}},
			{Title: "Nodes", Lines: []Line{
				line(8, alertTable(24, `cluster=~"$cluster"`)),
				line(8,
					series(24, "GPUs by problem", Number, "GPUs that need attention, by problem.",
						q("{{problem}}", total("problem", records("node:gpu_problems:count", c)))).stacked().from(0)),
				line(9,
					table(12, "XIDs by node", "-Events",
						"XID errors in the selected time range. Red: the GPU needs an operator. Blue: fix the "+
							"application.", label("cluster", "Cluster"), label("node", "Node").to(toNode()),
						label("xid", "Code").mapped(xidMappings()...),
						value("Events", Number, total("cluster, node, xid",
							events(records("node:gpu_xid_events:increase5m",
								c)))+" > 0")).called("No XID errors, or the rules are not loaded."),
					series(12, "XIDs over time", Number, "XID errors per five minutes, by code.",
						q("XID {{xid}}", total("xid", records("node:gpu_xid_events:increase5m", c))+
							" > 0")).events().from(
						0).called("No XID errors, or the rules are not loaded.")),
				line(8,
					timeline(24, "Alerts over time", "Periods in which alerts of the shipped rules were firing.",
						[]Mapping{{"1", "firing", Red}},
						q("{{alertname}}", `max by (alertname) (ALERTS{<cluster>, alertname=~"GPU.*", alertstate="firing"})`)).called(
						"No alert was firing, or the alert rules are not loaded.")),
			}},
			{Title: "Memory, temperature and power", Lines: []Line{
				line(8,
					series(12, "Memory errors", Number,
						"ECC errors per five minutes, by severity. An increase of corrected errors often precedes "+
							"uncorrected ones.",
						q("{{severity}}", total("severity", records("node:gpu_ecc_errors:increase5m", c)))).from(
						0).colored(map[string]string{"corrected": Blue, "uncorrected": Red}).called(
						"No memory errors, no ECC, or the rules are not loaded."),
					table(12, "Memory errors by node", "-Errors", "ECC errors in the selected time range.",
						label("cluster", "Cluster"), label("node", "Node").to(toNode()),
						label("severity", "Severity").mapped(Mapping{"corrected", "corrected", Blue},
							Mapping{"uncorrected", "uncorrected", Red}),
						value("Errors", Number, total("cluster, node, severity",
							events(records("node:gpu_ecc_errors:increase5m",
								c)))+" > 0")).called("No memory errors, or the rules are not loaded.")),
				line(8,
					series(12, "Clock limit time", Number,
						"GPUs with limited clocks (GPU equivalents), by reason; reasons overlap. Power cap is normal "+
							"under load.", q("{{reason}}",
							total("reason", records("node:gpu_clock_limited_seconds:rate5m", c)))).from(0).called(
						"No clocks are limited, or the rules are not loaded."),
					table(12, "Nodes with limited clocks", "-Limited GPUs",
						"Nodes with clocks limited by temperature, power brake or board limit.",
						label("cluster", "Cluster"),
						label("node", "Node").to(toNode()), label("reason", "Reason"),
						value("Limited GPUs", Number,
							total("cluster, node, reason", records("node:gpu_clock_limited_seconds:rate5m", c, `reason!="power_cap"`))+
								" > 0.01")).called("No clocks are limited for these reasons, or the rules are not loaded.")),
			}},
			{Title: "Inventory", Lines: []Line{line(8,
				series(8, "GPUs by state", Number,
					"GPUs by state. missing: on the PCI bus but not in NVML. detached: bound to another driver.",
					q("{{state}}", total("state", records("cluster:gpu_node_devices:sum", c)))).stacked().from(
					0).colored(map[string]string{"up": Green, "failed": Red, "missing": Red, "detached": Gray}),
				table(8, "Driver versions", "-Nodes", "Nodes by driver version.", label("cluster", "Cluster"),
					label("driver_version", "Driver"),
					value("Nodes", Number, total("cluster, driver_version",
						records("cluster:gpu_nodes:count", c)))),
				table(8, "Exporter versions", "-Nodes", "Nodes by exporter version.", label("cluster", "Cluster"),
					label("version", "Exporter"),
					value("Nodes", Number, total("cluster, version",
						records("cluster:gpu_nodes:count", c))))),
				line(7,
					series(12, "Scraped nodes", Number,
						"Nodes whose exporter is scraped. A decrease: nodes, exporters or scrapes were lost, and all "+
							"other panels lack them.", q("{{cluster}} nodes", total("cluster", alive))).from(0),
					series(12, "Data sources down", Number,
						"Exporters with a data source that is down, by data source.",
						q("{{source}}", total("source", records("cluster:gpu_exporter_sources_down:sum", c)))).stacked().from(0).to(
						link("gpu-exporter", "Open the exporters"))),
			}},
		},
	}
}

// verdictsTable has the verdicts on a GPU beside each other: each is another program's, for another purpose.
func verdictsTable() Panel {
	health, others := records("gpu:gpu_health:info", "<cluster>"), records("gpu:gpu_verdicts:info", "<cluster>")
	columns := []Column{label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
		value("Exporter", Plain, maximum(perGPU, verdictRanks(health))+" or 0 * "+maximum(perGPU, others)).
			mapped(rankMappings()...).atLeast(160)}
	for _, j := range judges() {
		columns = append(columns, value(j.title, Plain, maximum(perGPU, ranks(records("gpu:gpu_verdicts:info", "<cluster>",
			`by="`+j.by+`"`), j.states, 0))).mapped(numbered(j.states, 0)...).atLeast(190))
	}
	return table(24, "Verdicts on a GPU", "-Exporter",
		"GPUs that the exporter, or another program that judges GPUs, finds not healthy; an empty cell: its verdict is not "+
			"collected. Exporter: gpu_health, for repairs. DRA driver: its taints, for placing pods (features.resourceSlices). "+
			"Kubelet: gpu_kubelet_healthy, for placing pods on the GPUs of device plugins.",
		append(columns, label("uuid", "UUID"))...).called("No GPU is other than healthy, or the recording rules are not loaded.")
}

// judge is another program that judges GPUs, with its verdicts, the gravest first.
type judge struct {
	title, by string
	states    []Mapping
}

func judges() []judge {
	return []judge{{"DRA driver", "dra_driver", []Mapping{{"NoExecute", "NoExecute: pods evicted", Red},
		{"NoSchedule", "NoSchedule: no new pods", Amber}, {"None", "taint without effect", Blue}, {"untainted", "no taint", Green}}},
		{"Kubelet", "kubelet", []Mapping{{"unhealthy", "unhealthy: no new pods", Amber}, {"healthy", "healthy", Green}}}}
}

// verdict is a state of gpu_health, with its tile.
type verdict struct {
	Mapping
	help string
}

// verdicts are the states that are not healthy, the gravest first.
func verdicts() []verdict {
	return []verdict{
		{Mapping{"lost", "Lost", Red}, "GPUs that fell off the bus, or are on the PCI bus but not in NVML."},
		{Mapping{"replace", "Replace", Red}, "GPUs that have to be replaced: a row remapping failed, or an error threshold is " +
			"exceeded."},
		{Mapping{"needs_reboot", "Reboot", Red}, "GPUs whose node has to be rebooted."},
		{Mapping{"needs_reset", "Reset", Amber}, "GPUs that have to be reset: the driver recommends it, or a repair is " +
			"pending until then."},
		{Mapping{"unknown", "Unknown", Purple}, "GPUs that could not be judged: hung, or not readable."},
		{Mapping{"degraded", "Degraded", Amber}, "GPUs that work, but worse than they should: memory errors, NVLink, fabric, " +
			"PCIe lanes fewer than their neighbors', thermal slowdown or power brake for more than 5 % of the last 5 minutes."},
	}
}

// verdictMappings name and color them.
func verdictMappings() (out []Mapping) {
	for _, v := range verdicts() {
		out = append(out, Mapping{v.Value, strings.ReplaceAll(v.Value, "_", " "), v.Color})
	}
	return out
}

// rankMappings name the ranks of the verdicts.
func rankMappings() []Mapping {
	return append([]Mapping{{"0", "healthy", Green}}, numbered(verdictMappings(), 1)...)
}

// numbered are the states by rank: the last has the lowest, the first the highest.
func numbered(states []Mapping, lowest int) (out []Mapping) {
	for i, v := range states {
		out = append(out, Mapping{strconv.Itoa(lowest + len(states) - 1 - i), v.Text, v.Color})
	}
	return out
}

// verdictRanks replaces the value of each series by the rank of its state, the gravest highest.
func verdictRanks(series string) string { return ranks(series, verdictMappings(), 1) }

// rankedVerdicts are the ranks of the exporter's verdicts on GPUs, and of degraded where the rules find a problem: the same
// verdict as on Health and errors.
func rankedVerdicts(selector string) string {
	return verdictRanks("gpu_health{"+selector+"}") + " or 0 * gpu_health{" + selector + `, state="healthy"} or ` +
		records("gpu:gpu_health:info", selector, `state="degraded"`)
}

func ranks(series string, states []Mapping, lowest int) string {
	var out []string
	for i, v := range states {
		out = append(out, fmt.Sprintf("%d * %s", lowest+len(states)-1-i, strings.Replace(series, "}", `, state="`+v.Value+`"}`, 1)))
	}
	return strings.Join(out, " or ")
}
