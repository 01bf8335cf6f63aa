package dashboards

// capacityBoard answers: do we have enough GPUs, and what happens to those that we have?
func capacityDashboard() Dashboard {
	const m = "<model>"
	seconds := func(matchers ...string) string { return records("model:gpu_time_seconds:rate5m", m, matchers...) }
	whole := records("node:gpu_unallocated_whole:sum", m)
	workload := "cluster, namespace, workload_type, workload"
	pendingPods := `max by (cluster, namespace, pod) (kube_pod_status_phase{<cluster>, phase="Pending"} == 1)`
	return Dashboard{
		UID: "gpu-capacity", Title: "GPU / Capacity and waste",
		Question: "Do we have enough GPUs, and what happens to those that we have?",
		Vars:     []Variable{datasourceVariable(), clusterVariable("model:gpu_device_up:count"), modelVariable(), priceVariable()},
		From:     "now-7d",
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "Cards", Number, total("", records("model:gpu_device_up:sum", m)), "GPUs that can be read."),
				stat(3, "Held", Number, total("", records("model:gpu_allocation:sum", m)), "GPUs that pods hold, parts included.").digits(1),
				stat(3, "Doing work", Number, total("", seconds(`state="busy"`)), "GPUs' worth of work now.").digits(1).at(base(Green)),
				stat(3, "Held, not used", Number, total("", seconds(`state=~"idle|gap"`)), "GPUs' worth of held time in which no work runs.").digits(1).at(base(Amber)),
				stat(3, "Free", Number, total("", records("model:gpu_unallocated:sum", m)), "GPUs known to be free, free parts included.").digits(1),
				stat(3, "Largest free block", Number, "max("+total("cluster, node", whole)+")", "Most whole free GPUs on one node: a pod that asks for more cannot start."),
				stat(3, "Devices waited for", Number, orZero(total("", records("cluster:gpu_requests_pending:sum", "<cluster>")), "cluster:gpu_requests:sum{<cluster>}"), "Devices that waiting pods ask for; needs kube-state-metrics, empty without it.").at(warnIfAny()...),
				stat(3, "Held in 14 days", Number, "sum(clamp_min(predict_linear(cluster:gpu_allocation:sum{<cluster>}[7d], 1209600), 0) and on (cluster) cluster:gpu_allocation:sum{<cluster>} offset 1d)", "GPUs that will be held in 14 days if the last 7 days go on as they went; empty until there is a day of them. A straight line knows no holidays.").digits(0).over("A trend is that of a week, whatever the zoom."))}},
			{Title: "Waste", Lines: []Line{
				line(4,
					stat(6, "Cost of all GPU time, at $price per hour", Number, "$price * "+total("", hours(seconds())), "GPU-hours of the range that is shown, at the price that is typed in above.").digits(0),
					stat(6, "Cost of work", Number, "$price * "+total("", hours(seconds(`state="busy"`))), "GPU-hours in which work ran, at that price.").digits(0).at(base(Green)),
					stat(6, "Cost of what was held and not used", Number, "$price * "+total("", hours(seconds(`state=~"idle|gap"`))), "GPU-hours that were held and in which no work ran, at that price.").digits(0).at(base(Amber)),
					stat(6, "Cost of what was held by nobody, or lost", Number, "$price * "+total("", hours(seconds(`state=~"unallocated|unavailable"`))), "GPU-hours of free GPUs and of GPUs that could not be read, at that price.").digits(0).at(base(Grey))),
				line(9,
					series(16, "Where GPUs go", Number, "GPUs by what their time goes into; the bands add up to all GPUs.", q("{{state}}", total("state", seconds()))).stacked().from(0).colored(timeStateColors()),
					table(8, "GPU-hours by use", "-Hours", "GPU time of the range that is shown, by what it went into: useful, held and underused, held and idle, held by nobody, lost, and not known. They add up to all GPU time.", label("state", "Use").mapped(
						Mapping{"busy", "useful: work ran", Green}, Mapping{"gap", "held, between work", Yellow}, Mapping{"idle", "held and idle", Amber}, Mapping{"unallocated", "held by nobody", Grey}, Mapping{"unavailable", "lost: cannot be read", Red}, Mapping{"unknown", "not known", Purple}),
						value("Hours", Hours, total("state", hours(seconds()))), value("Part", Ratio, total("state", hours(seconds()))+" / on () group_left () "+total("", hours(seconds()))).gauge(plainSteps()...))),
				line(9, table(24, "Workloads that hold and do not use", "-GPU-hours not used", "The 50 workloads that held most GPU time without using it, over the range that is shown. Sums grow every half hour.", label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()), label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()),
					value("GPU-hours not used", Hours, total(workload, kept(records("workload:gpu_unused_seconds:increase30m", m)))),
					value("GPU-hours held", Hours, total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", m)))),
					value("Used", Ratio, total(workload, kept(records("workload:gpu_busy_seconds:increase30m", m)))+" / "+total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", m)))).gauge(usedSteps()...),
					value("Holds now", Number, total(workload, records("workload:gpu_allocation:sum", m))),
					value("Idle now", Number, total(workload, records("workload:gpu_unused_seconds:rate5m", m, `state="idle"`))).at(warnIfAny()...),
					value("Last busy", When, "1000 * "+maximum(workload, records("workload:gpu_last_busy_timestamp_seconds:max", m)))).
					among(workload, "topk(50, "+total(workload, kept(records("workload:gpu_unused_seconds:increase30m", m)))+")")),
				line(9, table(24, "Workloads that would fit on less", "Busiest", "Workloads whose busiest container was below 30 % busy for 95 % of the range that is shown, half hour by half hour, and is still there. The peak of memory says whether a smaller GPU, a share or a MIG profile would do. Look at more than a week.", label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()), label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()), label("model", "Model"),
					value("Busiest", Ratio, "max by ("+workload+", model) (quantile_over_time(0.95, "+records("workload:gpu_busy:ratio_p95_30m", m)+"[$__range]))").gauge(usedSteps()...),
					value("Peak memory on a GPU", Bytes, "max by ("+workload+", model) (max_over_time("+records("workload:gpu_memory_used_bytes:max30m", m)+"[$__range]))"),
					value("GPUs held", Number, total(workload+", model", records("workload:gpu_allocation:sum", m))),
					value("Power drawn", Watts, total(workload+", model", records("workload:gpu_power_watts:sum", m)))).
					among(workload+", model", "max by ("+workload+", model) (quantile_over_time(0.95, "+records("workload:gpu_busy:ratio_p95_30m", m)+"[$__range])) < 0.3 and on ("+workload+", model) "+total(workload+", model", records("workload:gpu_allocation:sum", m)))),
			}},
			{Title: "Fragmentation and queue", Lines: []Line{
				line(9,
					table(12, "Free GPUs by node", "-Whole GPUs free", "Where the free GPUs are. Many nodes with one free GPU each do not help a pod that asks for eight.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("model", "Model"),
						value("Whole GPUs free", Number, total("cluster, node, model", whole)), value("Free, with parts", Number, total("cluster, node, model", records("node:gpu_unallocated:sum", m))),
						value("Held", Number, total("cluster, node, model", records("node:gpu_allocation:sum", m))), value("Cards", Number, total("cluster, node, model", records("node:gpu_device_up:count", m)))),
					table(12, "Pods that wait for devices", "-Devices", "Pods that ask for GPUs and do not run; needs kube-state-metrics, empty without it.", label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod"), label("resource", "Resource"),
						value("Devices", Number, `sum by (cluster, namespace, pod, resource) ((kube_pod_container_resource_requests{<cluster>, resource=~"nvidia_com_.+"}) * on (cluster, namespace, pod) group_left () `+pendingPods+")"),
						value("Cannot be placed", Plain, `max by (cluster, namespace, pod, resource) ((kube_pod_container_resource_requests{<cluster>, resource=~"nvidia_com_.+"} > bool 0) * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_unschedulable{<cluster>}))`).mapped(yesNo("no node fits", Red, "no", Grey)...),
						value("Waits since", When, `1000 * max by (cluster, namespace, pod, resource) ((kube_pod_container_resource_requests{<cluster>, resource=~"nvidia_com_.+"} > bool 0) * on (cluster, namespace, pod) group_left () (max by (cluster, namespace, pod) (kube_pod_created{<cluster>}) * on (cluster, namespace, pod) `+pendingPods+"))"))),
				line(8,
					series(12, "Asked for, held, used", Number, "Devices that pods ask for (needs kube-state-metrics), GPUs that they hold, and GPUs' worth of work.",
						q("asked for", total("", "cluster:gpu_requests:sum{<cluster>}")), q("held", total("", records("model:gpu_allocation:sum", m))), q("work", total("", seconds(`state="busy"`))), q("gpus", total("", records("model:gpu_device_up:sum", m)))).from(0),
					series(12, "Devices left by resource", Number, "Devices that kubelets have left to give, by resource, and those that waiting pods ask for.", q("{{resource}} left", total("resource", records("node:gpu_unallocated_devices:sum", "<cluster>"))), q("{{resource}} waited for", total("resource", "cluster:gpu_requests_pending:sum{<cluster>}"))).from(0)),
				line(8,
					table(12, "Devices by resource", "Resource", "What kubelets can give out and have given.", label("cluster", "Cluster"), label("resource", "Resource"),
						value("Allocatable", Number, total("cluster, resource", records("cluster:gpu_allocatable_devices:sum", "<cluster>"))), value("Held", Number, total("cluster, resource", records("cluster:gpu_allocated_devices:sum", "<cluster>"))),
						value("Waited for", Number, total("cluster, resource", records("cluster:gpu_requests_pending:sum", "<cluster>")))),
					table(12, "Quotas", "-Used of quota", "Quotas for GPU requests; needs kube-state-metrics, empty without it or without quotas.", label("cluster", "Cluster"), label("namespace", "Namespace").to(toNamespace()), label("resource", "Resource"),
						value("Quota", Number, `sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="hard", resource=~".*nvidia.com/.+"})`), value("Used", Number, `sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="used", resource=~".*nvidia.com/.+"})`),
						value("Used of quota", Ratio, `sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="used", resource=~".*nvidia.com/.+"}) / (sum by (cluster, namespace, resource) (kube_resourcequota{<cluster>, type="hard", resource=~".*nvidia.com/.+"}) > 0)`).gauge(fullSteps()...))),
			}},
			{Title: "Nodes", Collapsed: true, Lines: []Line{line(10, table(24, "Nodes by use", "Busy", "Nodes and how well their GPUs are used.", label("cluster", "Cluster"), label("node", "Node").to(toNode()), label("model", "Model"),
				value("Cards", Number, total("cluster, node, model", records("node:gpu_device_up:count", m))),
				value("Held", Ratio, over("cluster, node, model", records("node:gpu_allocation:sum", m), records("node:gpu_device_up:count", m))).gauge(plainSteps()...),
				value("Busy", Ratio, over("cluster, node, model", records("node:gpu_busy_seconds:rate5m", m), records("node:gpu_observed_seconds:rate5m", m))).gauge(usedSteps()...),
				value("SM active", Ratio, over("cluster, node, model", records("node:gpu_sm_active_seconds:rate5m", m), records("node:gpu_profiled_seconds:rate5m", m))).gauge(usedSteps()...),
				value("Memory used", Ratio, over("cluster, node, model", records("node:gpu_memory_used_bytes:sum", m), records("node:gpu_memory_total_bytes:sum", m))).gauge(plainSteps()...),
				value("Power", Watts, total("cluster, node, model", records("node:gpu_power_watts:sum", m)))))}},
		},
	}
}
