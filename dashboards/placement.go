package dashboards

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// placementRow divides the fleet by the labels of nodes and namespaces, each table with the sums of the fleet.
func placementRow(m string) Row {
	return Row{Title: "Node pools, zones, racks and teams", Lines: []Line{
		line(7, nodesBy("Node pools", "pool", "Node pool", m)), line(5, nodesBy("Zones", "zone", "Zone", m)),
		line(7, nodesBy("Racks", "rack", "Rack", m)), line(7, teamsTable(m)),
	}}
}

const placementHelp = ` "(no label)": the objects have none of the labels, or kube-state-metrics does not export them ` +
	`(--metric-labels-allowlist); docs/dashboards.md has the list.`

// nodesBy is a table of the nodes' GPUs by a dimension of theirs.
func nodesBy(title, dimension, column, m string) Panel {
	joined := func(series string) string {
		return total(dimension, "("+series+") * on (cluster, node) group_left ("+dimension+") "+
			maximum("cluster, node, "+dimension, "node:gpu_placement:info{<cluster>}"))
	}
	rate := func(metric, modifier string, matchers ...string) string {
		return joined(records("node:"+metric+":rate5m", m, matchers...) + modifier)
	}
	gpus := joined(records("node:gpu_device_up:count", m))
	utilization := func(modifier string) string {
		return rate("gpu_busy_seconds", modifier) + " / (" + rate("gpu_observed_seconds", modifier) + " > 0)"
	}
	share := func(part string) string { return joined(part) + " / " + gpus }
	return table(24, title, "-GPUs", "GPUs by "+dimension+" label of their nodes, of all selected clusters. The utilization of the "+
		"same time a week before is of the nodes that exist now."+placementHelp,
		label(dimension, column).wide(190),
		value("GPUs", Number, gpus).wide(75),
		value("Available", Ratio, share(records("node:gpu_device_up:sum", m))).at(base(Red), step(0.95, Amber), step(0.9999, Green)),
		value("Allocated", Ratio, share(records("node:gpu_allocation:sum", m))).gauge(plainSteps()...),
		value("Utilization", Ratio, utilization("")).gauge(usedSteps()...),
		value("A week before", Ratio, utilization(" offset 1w")).at(plainSteps()...),
		value("Power", Watts, joined(records("node:gpu_power_watts:sum", m))).wide(95),
		value("Schedulable", Number, joined(records("node:gpu_schedulable:sum", m))),
		value("Unused", Number, rate("gpu_time_seconds", "", `state=~"idle|gap"`)).at(warnIfAny()...),
		value("Unknown", Number, rate("gpu_time_seconds", "", `state="unknown"`)),
		value("Unhealthy", Number, joined(records("node:gpu_with_problem:count", m))+" or 0 * "+gpus).at(badIfAny()...))
}

// teamsTable is what is allocated to namespaces by their team.
func teamsTable(m string) Panel {
	joined := func(series string) string {
		return total("team", "("+series+") * on (cluster, namespace) group_left (team) topk by (cluster, namespace) (1, "+
			maximum("cluster, namespace, team", "last_over_time(namespace:gpu_team:info{<cluster>}[$__range])")+")")
	}
	rate := func(metric, modifier string) string {
		return joined(records("namespace:"+metric+":rate5m", m) + modifier)
	}
	measured := func(modifier string) string {
		return rate("gpu_busy_seconds", modifier) + " / (" + rate("gpu_measured_seconds", modifier) + " > 0)"
	}
	return table(24, "Teams", "-Unused GPU-hours", "GPUs allocated to namespaces by their team label, of all selected clusters, now "+
		"and at the same time a week before, and the unused GPU-hours in the selected time range. "+
		catalog.BusyOfMeasured.Sentence()+placementHelp,
		label("team", "Team").wide(190),
		value("Allocated GPUs", Number, joined(records("namespace:gpu_allocation:sum", m))),
		value("A week before", Number, joined(records("namespace:gpu_allocation:sum", m)+" offset 1w")),
		value(catalog.BusyOfMeasured.Word, Ratio, measured("")).gauge(usedSteps()...),
		value("Busy a week before", Ratio, measured(" offset 1w")).at(plainSteps()...),
		value("Unused GPU-hours", Hours, joined(hours(records("namespace:gpu_unused_seconds:rate5m", m)))).at(warnIfAny()...))
}

// worst keeps the worst of what each of several Prometheus servers of a cluster recorded as its worst.
func worst(of string) string { return "topk by (cluster) (20, " + of + ")" }

// worstRow lists the GPUs and pods to look at first.
func worstRow() Row {
	hottest, unused := records("gpu:gpu_temperature_celsius:top20", "<cluster>"), records("pod:gpu_unused_seconds:top20", "<cluster>")
	gpus := func(columns ...Column) []Column {
		return slices.Concat([]Column{label("node", "Node").to(toNode()).atLeast(152), label("gpu", "GPU").to(toGPU()).wide(55)}, columns,
			[]Column{label("uuid", "UUID").hide()})
	}
	return Row{Title: "Worst GPUs and pods", Lines: []Line{line(9,
		table(7, "Hottest GPUs", "-Temperature", "The twenty GPUs of each cluster with the highest temperature.",
			gpus(value("Temperature", Celsius, worst(maximum(perGPU, hottest))).at(plainSteps()...).atLeast(116))...),
		table(7, "Unhealthy GPUs", "-Verdict", "Verdict on each GPU that is not healthy, the gravest first; Health and errors has "+
			"the reasons.", gpus(value("Verdict", Plain, maximum(perGPU,
			verdictRanks(records("gpu:gpu_health:info", "<cluster>")))).mapped(rankMappings()...).atLeast(110))...).called(
			"No GPU is unhealthy, or the recording rules are not loaded."),
		table(10, "Pods with unused GPUs", "-Unused GPUs", "The twenty pods of each cluster with the most unused (gap and idle) "+
			"allocated GPUs, mean of the last half hour; pods above 80 % busy of measured are left out.",
			label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod").to(toPod()).atLeast(240),
			value("Unused GPUs", Number, worst(total("cluster, namespace, pod", unused))).at(warnIfAny()...).wide(85)).called(
			"No pod has unused GPUs, or the recording rules are not loaded."))}}
}
