package dashboards

// fleetBoard answers: is anything wrong, and where does the GPU time go?
func fleetDashboard() Dashboard {
	const m = "<model>"
	present := records("model:gpu_device_up:count", m)
	seconds := func(matchers ...string) string { return records("model:gpu_time_seconds:rate5m", m, matchers...) }
	part := func(use string) string { return total("", seconds(`state="`+use+`"`)) + " / " + total("", seconds()) }
	return Dashboard{
		UID: "gpu-fleet", Title: "GPU / Fleet",
		Question:    "Is anything wrong, and where does the GPU time go?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("model:gpu_device_up:count"), modelVariable()},
		Annotations: []Annotation{xidRecordAnnotation()},
		Rows: []Row{
			{Lines: []Line{
				line(4,
					stat(3, "Cards", Number, total("", present), "GPUs that are known by name, readable or not.").to(toCapacity()),
					stat(3, "Readable", Ratio, over("", records("model:gpu_device_up:sum", m), present), "GPUs that can be read, over all.").between(0, 1).at(base(Red), step(0.95, Amber), step(0.9999, Green)).to(toHealth()),
					stat(3, "Held", Ratio, over("", records("model:gpu_allocation:sum", m), present), "GPUs that pods hold, parts included, over all GPUs. GPUs of which nobody can tell count as not held.").between(0, 1).to(toCapacity()),
					stat(3, "Busy", Ratio, part("busy"), "Part of all GPU time in which work ran.").between(0, 1).at(usedSteps()...).to(toCapacity()),
					stat(3, "Held and idle", Ratio, total("", seconds(`state=~"idle|gap"`))+" / "+total("", seconds()), "Part of all GPU time that was held and not used.").between(0, 1).at(badAbove(0.2, 0.4)...).to(toCapacity()),
					stat(3, "Free", Number, total("", records("model:gpu_unallocated:sum", m)), "GPUs known to be free, free parts included.").digits(1).to(toCapacity()),
					stat(3, "GPUs with a problem", Number, orZero("sum("+records("cluster:gpu_problems:count", "<cluster>")+")", present), "GPUs in a state about which somebody should do something; a GPU in two such states counts twice.").at(badIfAny()...).to(toHealth()),
					stat(3, "Alerts firing", Number, orZero(firing("", `cluster=~"$cluster"`), present), "Alerts of the shipped rules that fire.").at(badIfAny()...).to(toHealth())),
				line(9,
					series(16, "Where GPU time goes", Ratio, "Each second of each GPU once. Busy: work ran. Underused: held, between work. Idle: held and no work for 60 s. Unallocated: held by nobody. Unavailable: cannot be read. Unknown: nobody can tell who holds it.",
						q("{{state}}", total("state", seconds())+" / on () group_left () "+total("", seconds()))).percent().between(0, 1).colored(timeStateColors()),
					bars(8, "GPU-hours not used, by namespace", Hours, "The ten namespaces that held most GPU time without using it, over the range that is shown. Idle and underused time together.",
						q("{{namespace}}", "topk(10, "+total("namespace", hours(records("namespace:gpu_unused_seconds:rate5m", m)))+")")).at(base(Amber)).from(0).to(toNamespace())),
			}},
			{Title: "Over the range that is shown", Lines: []Line{line(4,
				stat(4, "Card-hours", Hours, total("", hours(seconds())), "All GPU time of the range.").digits(0),
				stat(4, "GPU-hours used", Hours, total("", hours(seconds(`state="busy"`))), "GPU time in which work ran.").at(base(Green)).digits(0),
				stat(4, "GPU-hours held and not used", Hours, total("", hours(seconds(`state=~"idle|gap"`))), "GPU time that was held and in which no work ran: idle and underused together.").at(base(Amber)).digits(0).to(toCapacity()),
				stat(4, "GPU-hours held by nobody", Hours, total("", hours(seconds(`state="unallocated"`))), "GPU time of GPUs that were known to be free.").at(base(Grey)).digits(0).to(toCapacity()),
				stat(4, "GPU-hours lost", Hours, total("", hours(seconds(`state="unavailable"`))), "GPU time of GPUs that could not be read.").at(badIfAny()...).digits(1).to(toHealth()),
				stat(4, "Energy", KWh, total("", hours(records("model:gpu_power_watts:sum", m)))+" / 1000", "Energy of all GPUs.").digits(0)),
			}},
			{Title: "Models and clusters", Lines: []Line{
				line(8, table(24, "Models", "-Cards", "GPUs by cluster and model.", label("cluster", "Cluster"), label("model", "Model").to(link("gpu-capacity", "Open capacity and waste", pick(varModel))),
					value("Cards", Number, total("cluster, model", present)),
					value("Readable", Ratio, over("cluster, model", records("model:gpu_device_up:sum", m), present)).at(base(Red), step(0.95, Amber), step(0.9999, Green)),
					value("Held", Ratio, over("cluster, model", records("model:gpu_allocation:sum", m), present)).gauge(plainSteps()...),
					value("Busy", Ratio, over("cluster, model", records("model:gpu_busy_seconds:rate5m", m), records("model:gpu_observed_seconds:rate5m", m))).gauge(usedSteps()...),
					value("SM active", Ratio, over("cluster, model", records("model:gpu_sm_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m))).gauge(usedSteps()...),
					value("Tensor active", Ratio, over("cluster, model", records("model:gpu_tensor_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m))).gauge(plainSteps()...),
					value("Memory used", Ratio, over("cluster, model", records("model:gpu_memory_used_bytes:sum", m), records("model:gpu_memory_total_bytes:sum", m))).gauge(plainSteps()...),
					value("Power", Watts, total("cluster, model", records("model:gpu_power_watts:sum", m))),
					value("Free", Number, total("cluster, model", records("model:gpu_unallocated:sum", m))),
					value("Held and idle", Number, total("cluster, model", seconds(`state=~"idle|gap"`))).at(warnIfAny()...))),
				line(8,
					series(12, "Utilization by model", Ratio, "Mean utilization of the GPUs whose activity can be told.", q("{{model}}", over("model", records("model:gpu_busy_seconds:rate5m", m), records("model:gpu_observed_seconds:rate5m", m)))).between(0, 1),
					heatmap(12, "GPUs by utilization", "How many GPUs are how busy: 30 is from 30 % to below 40 %. A mean of 50 % may be half of the GPUs at work and half idle; here one sees which.",
						q("{{busy_percent}}", total("busy_percent", records("cluster:gpu_busy_percent:count", m))))),
				line(8,
					series(8, "SM activity by model", Ratio, "Mean SM activity: how much of the GPUs the kernels used. Hopper and newer.", q("{{model}}", over("model", records("model:gpu_sm_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m)))).between(0, 1),
					series(8, "Memory in use by model", Ratio, "Device memory in use over all.", q("{{model}}", over("model", records("model:gpu_memory_used_bytes:sum", m), records("model:gpu_memory_total_bytes:sum", m)))).between(0, 1),
					series(8, "Power and what the limits allow", Watts, "Power of all GPUs, and the sum of their enforced limits.", q("power", total("", records("model:gpu_power_watts:sum", m))), q("limit", total("", records("model:gpu_power_limit_watts:sum", m)))).from(0)),
			}},
			{Title: "What is wrong", Lines: []Line{line(8,
				series(8, "GPUs by problem", Number, "GPUs in a state about which somebody should do something.", q("{{problem}}", total("problem", records("cluster:gpu_problems:count", "<cluster>")))).stacked().from(0).to(toHealth()),
				table(16, "Nodes by alerts", "-Firing", "Nodes for which alerts of the shipped rules fire.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("severity", "Severity").mapped(Mapping{"critical", "critical", Red}, Mapping{"warning", "warning", Amber}, Mapping{"info", "info", Blue}),
					value("Firing", Number, firing("cluster, node, severity", `cluster=~"$cluster"`, `node!=""`)))),
				line(7, alertTable(24, `cluster=~"$cluster"`)),
			}},
		},
	}
}
