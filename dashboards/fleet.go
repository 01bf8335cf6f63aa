package dashboards

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// fleetDashboard: is anything wrong, and how is GPU-time spent?
func fleetDashboard() Dashboard {
	const m = "<model>"
	present := records("node:gpu_device_up:count", m)
	seconds := func(matchers ...string) string { return records("model:gpu_time_seconds:rate5m", m, matchers...) }
	const alerting = `cluster=~"$cluster", node!=""`
	alertsOf := func(severity string) Column { // 0 where the node has alerts of others
		return value(strings.ToUpper(severity[:1])+severity[1:], Number, orZeroBy("cluster, node",
			firing("cluster, node", alerting, `severity="`+severity+`"`), firingAlerts(alerting)))
	}
	return Dashboard{
		UID: "gpu-fleet", Title: "GPU / Fleet",
		Question:    "Is anything wrong, and how is GPU-time spent?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("node:gpu_device_up:count"), modelVariable()},
		Annotations: []Annotation{xidRecordAnnotation()},
		Rows: []Row{
			{Lines: []Line{
				line(4,
					stat(3, "GPUs", Number, total("", present),
						"All GPUs that were reported, available or not.").to(toCapacity()),
					stat(3, "Available", Ratio, over("", records("node:gpu_device_up:sum", m), present),
						"Available GPUs over all GPUs.").between(0, 1).at(base(Red), step(0.95, Amber),
						step(0.9999, Green)).to(toHealth()),
					stat(3, "Allocated", Ratio, over("", records("model:gpu_allocation:sum", m), present),
						"Allocated GPUs, including fractions, over all GPUs. GPUs whose allocation is unknown count "+
							"as not allocated.").between(0, 1).to(toCapacity()),
					stat(3, "Utilization", Ratio, over("", records("node:gpu_busy_seconds:rate5m", m),
						records("node:gpu_observed_seconds:rate5m", m)),
						"Mean utilization of the GPUs whose activity is observed, the last 5 minutes.").between(0,
						1).at(usedSteps()...).to(toCapacity()),
					stat(3, "Measured", Ratio, "("+orZero(total("", records("node:gpu_observed_seconds:rate5m", m)), present)+") / "+
						total("", present),
						"GPUs whose activity is observed, over all GPUs: the part that Utilization is about. MIG "+
							"before "+
							"Hopper has no activity.").between(0, 1).to(toCapacity()),
					stat(3, "Schedulable", Number, total("", records("node:gpu_schedulable:sum", m)),
						catalog.Schedulable.Sentence()+" Whole GPUs.").to(toCapacity()),
					stat(3, "Unhealthy", Number,
						orZero(total("", records("node:gpu_with_problem:count", m)), present),
						"GPUs that are not healthy, each counted once.").at(badIfAny()...).to(toHealth()),
					alertCounts(3, present, `cluster=~"$cluster"`).to(toHealth())),
				line(9,
					series(16, "GPU-time by state", Ratio,
						"Share of reported GPU-time. "+catalog.Define(catalog.TimeStates()...),
						stateQueries(func(state string) string {
							return total("", seconds(state)) + " / " + total("", seconds())
						})...).percent().colored(timeStateColors()),
					bars(8, "Unused GPU-hours by namespace", Hours,
						"The ten namespaces with the most unused (gap and idle) GPU-time in the selected time range.",
						q("{{namespace}}", "topk(10, "+total("namespace",
							hours(records("namespace:gpu_unused_seconds:rate5m", m)))+")")).at(base(Amber)).from(0).to(
						toNamespace())),
			}},
			{Title: "GPU-hours in the selected time range", Lines: []Line{line(4, slices.Concat(
				[]Panel{stat(3, "All", Hours, total("", hours(seconds())), "All reported GPU-time.").digits(0)},
				stateTiles(3, Hours, 0, "GPU-hours.",
					func(state string) string { return total("", hours(seconds(state))) }),
				[]Panel{stat(3, "Energy", KWh, total("", hours(records("model:gpu_power_watts:sum", m)))+" / 1000",
					"Energy of all GPUs.").digits(0)})...),
			}},
			{Title: "Models and clusters", Lines: []Line{
				line(9, table(24, "Models", "-GPUs", "GPUs by cluster and model.", label("cluster", "Cluster"),
					label("model", "Model").to(link("gpu-capacity", "Open capacity and waste", pick(varModel))),
					value("GPUs", Number, total("cluster, model", present)).wide(75),
					value("Available", Ratio, over("cluster, model", records("node:gpu_device_up:sum", m),
						present)).at(base(Red), step(0.95, Amber), step(0.9999, Green)),
					value("Allocated", Ratio, over("cluster, model", records("model:gpu_allocation:sum", m),
						present)).gauge(plainSteps()...),
					value("Utilization", Ratio, over("cluster, model", records("node:gpu_busy_seconds:rate5m", m),
						records("node:gpu_observed_seconds:rate5m", m))).gauge(usedSteps()...),
					value("SM active", Ratio, over("cluster, model", records("node:gpu_sm_active_seconds:rate5m", m),
						records("node:gpu_profiled_seconds:rate5m", m))).gauge(usedSteps()...),
					value("Tensor active", Ratio,
						over("cluster, model", records("node:gpu_tensor_active_seconds:rate5m", m),
							records("node:gpu_profiled_seconds:rate5m", m))).gauge(plainSteps()...),
					value("Memory used", Ratio, over("cluster, model", records("node:gpu_memory_used_bytes:sum", m),
						records("node:gpu_memory_total_bytes:sum", m))).gauge(plainSteps()...),
					value("Power", Watts, total("cluster, model", records("model:gpu_power_watts:sum", m))).wide(95),
					value("Schedulable", Number, total("cluster, model", records("node:gpu_schedulable:sum", m))),
					value("Unused", Number, total("cluster, model", seconds(`state=~"idle|gap"`))).at(warnIfAny()...).wide(85),
					value("Unknown", Number, total("cluster, model", seconds(`state="unknown"`))).wide(95))),
				line(8,
					series(12, "Utilization by model", Ratio,
						"Mean utilization of the GPUs whose activity is observed.",
						q("{{model}}", over("model", records("node:gpu_busy_seconds:rate5m", m),
							records("node:gpu_observed_seconds:rate5m", m)))).between(0, 1),
					heatmap(12, "GPUs by utilization",
						"Number of GPUs by utilization: 30 is from 30 % to below 40 %. Shows whether a mean of 50 % "+
							"is half of the GPUs busy and half idle.",
						q("{{busy_percent}}", total("busy_percent", records("cluster:gpu_busy_percent:count", m))))),
				line(8,
					series(8, "SM activity by model", Ratio, "Mean SM activity. Hopper and newer.",
						q("{{model}}", over("model", records("node:gpu_sm_active_seconds:rate5m", m),
							records("node:gpu_profiled_seconds:rate5m", m)))).between(0, 1),
					series(8, "Memory used by model", Ratio, "Used device memory over total device memory.",
						q("{{model}}", over("model", records("node:gpu_memory_used_bytes:sum", m),
							records("node:gpu_memory_total_bytes:sum", m)))).between(0, 1),
					series(8, "Power and power limits", Watts,
						"Power draw of all GPUs, and the sum of their enforced limits.",
						q("power", total("", records("model:gpu_power_watts:sum", m))),
						q("limit", total("", records("node:gpu_power_limit_watts:sum", m)))).from(0)),
			}},
			placementRow(m),
			worstRow(),
			{Title: "Problems", Lines: []Line{line(8,
				series(12, "GPUs by problem", Number, "GPUs that need attention, by problem.",
					q("{{problem}}", total("problem", records("node:gpu_problems:count", m)))).stacked().from(0).to(
					toHealth()),
				table(12, "Nodes by alerts", "-Score",
					"Nodes with firing alerts of the shipped rules, the worst first: "+
						"the score is 100 for a critical alert, 10 for a warning, 1 for an information.",
					label("cluster", "Cluster"), label("node", "Node").to(toNode()),
					alertsOf("critical").at(badIfAny()...), alertsOf("warning").at(warnIfAny()...), alertsOf("info"),
					value("Score", Number, "sum by (cluster, node) (100 * ALERTS{<cluster>, alertname=~\"GPU.*\", "+
						"alertstate=\"firing\", node!=\"\", severity=\"critical\"} or 10 * "+
						"ALERTS{<cluster>, alertname=~\"GPU.*\", alertstate=\"firing\", node!=\"\", "+
						"severity=\"warning\"} or ALERTS{<cluster>, alertname=~\"GPU.*\", alertstate=\"firing\", "+
						"node!=\"\", severity=\"info\"})")).called(
					"No alert about a node is firing, or the alert rules are not loaded.")),
				line(7, alertTable(24, `cluster=~"$cluster"`)),
			}},
		},
	}
}
