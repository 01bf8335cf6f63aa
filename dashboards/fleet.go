package dashboards

// fleetBoard answers: is anything wrong, and where does the card time go?
func fleetBoard() Board {
	const m = "<model>"
	present := records("model:gpu_device_up:count", m)
	seconds := func(matchers ...string) string { return records("model:gpu_card_seconds:rate5m", m, matchers...) }
	part := func(use string) string { return total("", seconds(`use="`+use+`"`)) + " / " + total("", seconds()) }
	return Board{
		UID: "gpu-fleet", Title: "GPU / Fleet",
		Question: "Is anything wrong, and where does the card time go?",
		Vars:     []Variable{datasourceVariable(), clusterVariable("model:gpu_device_up:count"), modelVariable()},
		Marks:    []Mark{xidRecordMark()},
		Rows: []Row{
			{Lines: []Line{
				line(4,
					stat(3, "Cards", Number, total("", present), "Cards that are known by name, readable or not.").to(toCapacity()),
					stat(3, "Readable", Ratio, over("", records("model:gpu_device_up:sum", m), present), "Cards that can be read, over all.").between(0, 1).at(base(Red), step(0.95, Amber), step(0.9999, Green)).to(toHealth()),
					stat(3, "Held", Ratio, over("", records("model:gpu_allocation:sum", m), present), "Cards that pods hold, parts included, over all cards. Cards of which nobody can tell count as not held.").between(0, 1).to(toCapacity()),
					stat(3, "Busy", Ratio, part("busy"), "Part of all card time in which work ran.").between(0, 1).at(usedSteps()...).to(toCapacity()),
					stat(3, "Held and idle", Ratio, total("", seconds(`use=~"idle|underused"`))+" / "+total("", seconds()), "Part of all card time that was held and not used.").between(0, 1).at(badAbove(0.2, 0.4)...).to(toCapacity()),
					stat(3, "Free", Number, total("", records("model:gpu_free:sum", m)), "Cards known to be free, free parts included.").digits(1).to(toCapacity()),
					stat(3, "Cards with a problem", Number, orZero("sum("+records("cluster:gpu_problems:count", "<cluster>")+")", present), "Cards in a state about which somebody should do something; a card in two such states counts twice.").at(badIfAny()...).to(toHealth()),
					stat(3, "Alerts firing", Number, orZero(firing("", `cluster=~"$cluster"`), present), "Alerts of the shipped rules that fire.").at(badIfAny()...).to(toHealth())),
				line(9,
					series(16, "Where card time goes", Ratio, "Each second of each card once. Busy: work ran. Underused: held, between work. Idle: held and no work for 60 s. Unallocated: held by nobody. Unavailable: cannot be read. Unknown: nobody can tell who holds it.",
						q("{{use}}", total("use", seconds())+" / on () group_left () "+total("", seconds()))).percent().between(0, 1).coloured(uses()),
					bars(8, "Card-hours not used, by namespace", Hours, "The ten namespaces that held most card time without using it, over the range that is shown. Idle and underused time together.",
						q("{{namespace}}", "topk(10, "+total("namespace", hours(records("namespace:gpu_unused_seconds:rate5m", m)))+")")).at(base(Amber)).from(0).to(toNamespace())),
			}},
			{Title: "Over the range that is shown", Lines: []Line{line(4,
				stat(4, "Card-hours", Hours, total("", hours(seconds())), "All card time of the range.").digits(0),
				stat(4, "Card-hours used", Hours, total("", hours(seconds(`use="busy"`))), "Card time in which work ran.").at(base(Green)).digits(0),
				stat(4, "Card-hours held and not used", Hours, total("", hours(seconds(`use=~"idle|underused"`))), "Card time that was held and in which no work ran: idle and underused together.").at(base(Amber)).digits(0).to(toCapacity()),
				stat(4, "Card-hours held by nobody", Hours, total("", hours(seconds(`use="unallocated"`))), "Card time of cards that were known to be free.").at(base(Grey)).digits(0).to(toCapacity()),
				stat(4, "Card-hours lost", Hours, total("", hours(seconds(`use="unavailable"`))), "Card time of cards that could not be read.").at(badIfAny()...).digits(1).to(toHealth()),
				stat(4, "Energy", KWh, total("", hours(records("model:gpu_power_watts:sum", m)))+" / 1000", "Energy of all cards.").digits(0)),
			}},
			{Title: "Models and clusters", Lines: []Line{
				line(8, table(24, "Models", "-Cards", "Cards by cluster and model.", label("cluster", "Cluster"), label("model", "Model").to(link("gpu-capacity", "Open capacity and waste", pick(varModel))),
					value("Cards", Number, total("cluster, model", present)),
					value("Readable", Ratio, over("cluster, model", records("model:gpu_device_up:sum", m), present)).at(base(Red), step(0.95, Amber), step(0.9999, Green)),
					value("Held", Ratio, over("cluster, model", records("model:gpu_allocation:sum", m), present)).gauge(plainSteps()...),
					value("Busy", Ratio, over("cluster, model", records("model:gpu_busy_seconds:rate5m", m), records("model:gpu_observed_seconds:rate5m", m))).gauge(usedSteps()...),
					value("SM active", Ratio, over("cluster, model", records("model:gpu_sm_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m))).gauge(usedSteps()...),
					value("Tensor active", Ratio, over("cluster, model", records("model:gpu_tensor_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m))).gauge(plainSteps()...),
					value("Memory used", Ratio, over("cluster, model", records("model:gpu_memory_used_bytes:sum", m), records("model:gpu_memory_total_bytes:sum", m))).gauge(plainSteps()...),
					value("Power", Watts, total("cluster, model", records("model:gpu_power_watts:sum", m))),
					value("Free", Number, total("cluster, model", records("model:gpu_free:sum", m))),
					value("Held and idle", Number, total("cluster, model", seconds(`use=~"idle|underused"`))).at(warnIfAny()...))),
				line(8,
					series(12, "Utilisation by model", Ratio, "Mean utilisation of the cards whose activity can be told.", q("{{model}}", over("model", records("model:gpu_busy_seconds:rate5m", m), records("model:gpu_observed_seconds:rate5m", m)))).between(0, 1),
					heatmap(12, "Cards by utilisation", "How many cards are how busy: 30 is from 30 % to below 40 %. A mean of 50 % may be half of the cards at work and half idle; here one sees which.",
						q("{{busy_percent}}", total("busy_percent", records("cluster:gpu_busy_percent:count", m))))),
				line(8,
					series(8, "SM activity by model", Ratio, "Mean SM activity: how much of the cards the kernels used. Hopper and newer.", q("{{model}}", over("model", records("model:gpu_sm_active_seconds:rate5m", m), records("model:gpu_profiled_seconds:rate5m", m)))).between(0, 1),
					series(8, "Memory in use by model", Ratio, "Device memory in use over all.", q("{{model}}", over("model", records("model:gpu_memory_used_bytes:sum", m), records("model:gpu_memory_total_bytes:sum", m)))).between(0, 1),
					series(8, "Power and what the limits allow", Watts, "Power of all cards, and the sum of their enforced limits.", q("power", total("", records("model:gpu_power_watts:sum", m))), q("limit", total("", records("model:gpu_power_limit_watts:sum", m)))).from(0)),
			}},
			{Title: "What is wrong", Lines: []Line{line(8,
				series(8, "Cards by problem", Number, "Cards in a state about which somebody should do something.", q("{{problem}}", total("problem", records("cluster:gpu_problems:count", "<cluster>")))).stacked().from(0).to(toHealth()),
				table(16, "Nodes by alerts", "-Firing", "Nodes for which alerts of the shipped rules fire.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("severity", "Severity").mapped(Mapping{"critical", "critical", Red}, Mapping{"warning", "warning", Amber}, Mapping{"info", "info", Blue}),
					value("Firing", Number, firing("cluster, node, severity", `cluster=~"$cluster"`, `node!=""`)))),
				line(7, alertTable(24, `cluster=~"$cluster"`)),
			}},
		},
	}
}
