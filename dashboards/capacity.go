package dashboards

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// capacityDashboard: are there enough GPUs, and how are they used?
func capacityDashboard() Dashboard {
	const m = "<model>"
	seconds := func(matchers ...string) string { return records("model:gpu_time_seconds:rate5m", m, matchers...) }
	schedulable := records("node:gpu_schedulable:sum", m)
	workload := "cluster, namespace, workload_type, workload"
	requested := `pod:gpu_requests:sum{<cluster>, phase="Pending"}`
	pendingPods := `max by (cluster, namespace, pod) (kube_pod_status_phase{<cluster>, phase="Pending"} == 1)`
	return Dashboard{
		UID: "gpu-capacity", Title: "GPU / Capacity and waste",
		Question: "Are there enough GPUs, and how are they used?",
		Vars:     []Variable{datasourceVariable(), clusterVariable("node:gpu_device_up:count"), modelVariable()},
		From:     "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "GPUs", Number, total("", records("node:gpu_device_up:count", m)),
					"All GPUs that were reported, available or not."),
				stat(3, "Available", Number, total("", records("node:gpu_device_up:sum", m)), "Available GPUs."),
				stat(3, "Allocated", Number, total("", records("model:gpu_allocation:sum", m)),
					"Allocated GPUs, including fractions.").digits(1),
				stat(3, "Utilization", Ratio, over("", records("node:gpu_busy_seconds:rate5m", m),
					records("node:gpu_observed_seconds:rate5m", m)),
					"Mean utilization of the GPUs whose activity is observed, the last 5 minutes.").between(0,
					1).at(usedSteps()...),
				stat(3, "Schedulable", Number, total("", schedulable), catalog.Schedulable.Sentence()+" Whole GPUs."),
				stat(3, "Most on one node", Number, "max("+total("cluster, node", schedulable)+")",
					"Maximum of schedulable GPUs on one node: a pod that requests more cannot be placed."),
				stat(3, "Pending", Number, orZero("count(sum by (cluster, namespace, pod) "+
					"("+requested+"))", "pod:gpu_requests:sum{<cluster>}"),
					"Pending pods that request GPUs; needs kube-state-metrics.").at(warnIfAny()...),
				stat(3, "Allocated in 14 days", Number,
					"sum(clamp_min(predict_linear(model:gpu_allocation:sum{<model>}[7d], 1209600), 0) and on "+
						"(cluster, model) model:gpu_allocation:sum{<model>} offset 1d)",
					"Allocated GPUs: linear extrapolation of the last 7 days; ignores weekly patterns.").digits(0).called(
					"No trend: needs a day of records."))}},
			{Title: "Waste", Lines: []Line{
				line(4, append([]Panel{stat(6, "All GPU-hours", Hours, total("", hours(seconds())),
					"All reported GPU-time in the selected time range.").digits(0)},
					stateTiles(3, Hours, 0, "GPU-hours.", func(state string) string { return total("", hours(seconds(state))) })...)...),
				line(9,
					series(16, "GPUs by state", Number,
						"GPU equivalents by state; they add up to all reported GPUs. "+
							catalog.Define(catalog.TimeStates()...),
						stateQueries(func(state string) string { return total("", seconds(state)) })...).stacked().from(0).colored(
						timeStateColors()),
					table(8, "GPU-hours by state", "-Hours",
						"GPU-hours in the selected time range, by state, and their cost at the prices of the models "+
							"(rules.prices of the chart; models without a price are not part of it). The hours add up to all "+
							"reported GPU-time.",
						label("state", "State").mapped(timeStateMappings()...),
						value("Hours", Hours, total("state", hours(seconds()))),
						value("Share", Ratio, total("state", hours(seconds()))+" / on () group_left () "+total("",
							hours(seconds()))).gauge(plainSteps()...),
						value("Cost", Number, priced("state", hours(seconds()))))),
				line(9, table(24, "Workloads with unused GPUs", "-Unused GPU-hours",
					"The 50 workloads with the most unused GPU-time in the selected time range. Updated every half "+
						"hour. Workloads above 80 % busy of measured are left out. "+catalog.BusyOfMeasured.Sentence(),
					label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()),
					label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()),
					value("Unused GPU-hours", Hours,
						total(workload, kept(records("workload:gpu_unused_seconds:increase30m", m)))),
					value("Allocated GPU-hours", Hours,
						total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", m)))),
					value(catalog.BusyOfMeasured.Word, Ratio, measured(workload, m)).gauge(usedSteps()...),
					value("Unknown GPU-hours", Hours, unmeasured(workload, m)),
					value("Cost of unused", Number, priced(workload, kept(records("workload:gpu_unused_seconds:increase30m", m)))),
					value("Allocated now", Number, total(workload, records("workload:gpu_allocation:sum", m))),
					value("Idle now", Number, total(workload,
						records("workload:gpu_unused_seconds:rate5m", m, `state="idle"`))).at(warnIfAny()...),
					value("Last busy", When, "1000 * "+maximum(workload, records("workload:gpu_last_busy_timestamp_seconds:max", m)))).
					among(workload, "topk(50, "+total(workload,
						kept(records("workload:gpu_unused_seconds:increase30m", m)))+
						notWellUsed(workload, measured(workload, m))+")").called(
					"No workload has unused GPUs, or the rules are not loaded.")),
				line(9, table(24, "Underused workloads", "Busiest container",
					"Running workloads whose busiest container was below 30 % busy of measured for 95 % of the selected "+
						"time range, by half hours. "+catalog.BusyOfMeasured.Sentence()+" Peak memory shows whether a smaller "+
						"GPU, a share or a MIG profile would suffice. Select more than a week.", label("cluster", "Cluster"),
					label("namespace", "Namespace").to(toNamespace()), label("workload_type", "Kind"),
					label("workload", "Workload").to(toWorkload()), label("model", "Model"),
					value("Busiest container", Ratio,
						"max by ("+workload+", model) (quantile_over_time(0.95, "+
							records("workload:gpu_busy:ratio_p95_30m", m)+"[$__range]))").gauge(usedSteps()...),
					value("Peak memory on a GPU", Bytes,
						"max by ("+workload+", model) (max_over_time("+records("workload:gpu_memory_used_bytes:max30m",
							m)+"[$__range]))"),
					value("Allocated GPUs", Number,
						total(workload+", model", records("workload:gpu_allocation:sum", m))),
					value("Power", Watts, total(workload+", model", records("workload:gpu_power_watts:sum", m)))).
					among(workload+", model", "max by ("+workload+", model) (quantile_over_time(0.95, "+
						records("workload:gpu_busy:ratio_p95_30m", m)+"[$__range])) < 0.3 and on ("+workload+
						", model) "+total(workload+", model", records("workload:gpu_allocation:sum", m))).called(
					"No workload is underused, or its activity is not measured, or the rules are not loaded.")),
			}},
			{Title: "Fragmentation and queue", Lines: []Line{
				line(8,
					table(24, "Unallocated GPUs by node", "-Schedulable",
						"Unallocated GPUs by node. Many nodes with one schedulable GPU each do not help a pod that "+
							"requests eight. Unallocated and not schedulable: cordoned, not Ready, not offered, MIG, or "+
							"with a problem.", label("cluster", "Cluster"), label("node", "Node").to(toNode()),
						label("model", "Model"),
						value("Schedulable", Number, total("cluster, node, model", schedulable)),
						value("Unallocated", Number,
							total("cluster, node, model", records("node:gpu_unallocated:sum", m))),
						value("Allocated", Number,
							total("cluster, node, model", records("node:gpu_allocation:sum", m))),
						value("GPUs", Number, total("cluster, node, model", records("node:gpu_device_up:count", m))))),
				line(7,
					table(24, "Pods pending for devices", "-Devices",
						"Pending pods that request GPUs; needs kube-state-metrics.", label("cluster", "Cluster"),
						label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod"),
						label("resource", "Resource"),
						value("Devices", Number,
							"sum by (cluster, namespace, pod, resource) ("+requested+")"),
						value("Unschedulable", Plain,
							`max by (cluster, namespace, pod, resource) `+
								`((`+requested+` > bool 0) * on (cluster, namespace, pod) group_left () max by (cluster, `+
								`namespace, pod) (kube_pod_status_unschedulable{<cluster>}))`).mapped(yesNo("yes", Red, "no", Gray)...),
						value("Pending since", When,
							`1000 * max by (cluster, namespace, pod, resource) `+
								`((`+requested+` > bool 0) * on (cluster, namespace, pod) group_left () (max by (cluster, `+
								`namespace, pod) (kube_pod_created{<cluster>}) * on (cluster, namespace, `+
								`pod) `+pendingPods+"))")).called(
						"No pod that requests GPUs is pending, or the rules are not loaded, or kube-state-metrics is not scraped.")),
				line(8,
					series(12, "Allocated and busy GPUs", Number,
						"Allocated, busy and available GPUs, and those of the same time a week before. Requests are in devices "+
							"of a resource, which need not be GPUs: "+
							"they are beside it.",
						q("allocated", total("", records("model:gpu_allocation:sum", m))),
						q("busy", total("", seconds(`state="busy"`))),
						q("available", total("", records("node:gpu_device_up:sum", m))),
						q("allocated a week before", total("", records("model:gpu_allocation:sum", m)+" offset 1w")),
						q("busy a week before", total("", seconds(`state="busy"`)+" offset 1w"))).from(0),
					series(12, "Devices by resource over time", Number,
						"Schedulable devices by resource, and those requested by pending pods.",
						q("{{resource}} schedulable",
							total("resource", records("node:gpu_schedulable_devices:sum", "<cluster>"))),
						q("{{resource}} pending",
							total("resource", "namespace:gpu_requests_pending:sum{<cluster>}"))).from(0)),
				line(9,
					table(24, "Devices by resource", "Resource",
						"Allocatable and allocated devices, as reported by the kubelet.", label("cluster", "Cluster"),
						label("resource", "Resource"),
						value("Allocatable", Number,
							total("cluster, resource", records("cluster:gpu_allocated_devices:sum", "<cluster>"))+" + "+
								total("cluster, resource", records("node:gpu_unallocated_devices:sum", "<cluster>"))),
						value("Allocated", Number,
							total("cluster, resource", records("cluster:gpu_allocated_devices:sum", "<cluster>"))),
						value("Unallocated", Number,
							total("cluster, resource", records("node:gpu_unallocated_devices:sum", "<cluster>"))),
						value("Schedulable", Number,
							total("cluster, resource", records("node:gpu_schedulable_devices:sum", "<cluster>"))),
						value("Pending", Number,
							total("cluster, resource", records("namespace:gpu_requests_pending:sum", "<cluster>"))))),
				line(8,
					table(24, "Quotas", "-Used of quota", "Quotas for GPU requests; needs kube-state-metrics.",
						label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()),
						label("resource", "Resource"),
						value("Quota", Number,
							`sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="hard", `+
								`resource=~".*nvidia.com/.+"})`),
						value("Used", Number, `sum by (cluster, namespace, resource) `+
							`(kube_resourcequota{<cluster>, type="used", resource=~".*nvidia.com/.+"})`),
						value("Used of quota", Ratio,
							`sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="used", `+
								`resource=~".*nvidia.com/.+"}) / (sum by (cluster, namespace, resource) `+
								`(kube_resourcequota{<cluster>, type="hard", resource=~".*nvidia.com/.+"}) > `+
								`0)`).gauge(fullSteps()...))),
			}},
			{Title: "Nodes", Collapsed: true, Lines: []Line{line(10,
				table(24, "Nodes by utilization", "-Not busy", "Allocation and utilization of the nodes' GPUs; not busy are the "+
					"gap, idle and unallocated ones.",
					label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("model", "Model"),
					value("GPUs", Number, total("cluster, node, model", records("node:gpu_device_up:count", m))),
					value("Allocated", Ratio, over("cluster, node, model", records("node:gpu_allocation:sum", m),
						records("node:gpu_device_up:count", m))).gauge(plainSteps()...),
					value("Not busy", Number, total("cluster, node, model",
						records("node:gpu_time_seconds:rate5m", m, `state=~"gap|idle|unallocated"`))),
					value("Utilization", Ratio, over("cluster, node, model", records("node:gpu_busy_seconds:rate5m", m),
						records("node:gpu_observed_seconds:rate5m", m))).gauge(usedSteps()...),
					value("SM active", Ratio, over("cluster, node, model",
						records("node:gpu_sm_active_seconds:rate5m", m),
						records("node:gpu_profiled_seconds:rate5m", m))).gauge(usedSteps()...),
					value("Memory used", Ratio, over("cluster, node, model",
						records("node:gpu_memory_used_bytes:sum", m),
						records("node:gpu_memory_total_bytes:sum", m))).gauge(plainSteps()...),
					value("Power", Watts, total("cluster, node, model", records("node:gpu_power_watts:sum", m)))))}},
		},
	}
}
