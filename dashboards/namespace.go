package dashboards

// namespaceBoard answers: what does this team hold, what does it make of it, and what should it do?
func namespaceDashboard() Dashboard {
	const s = "<namespace>"
	held := records("namespace:gpu_allocated_seconds:rate5m", s)
	busy := records("namespace:gpu_busy_seconds:rate5m", s)
	unused := func(matchers ...string) string {
		return records("namespace:gpu_unused_seconds:rate5m", s, matchers...)
	}
	workload := "cluster, namespace, workload_type, workload"
	return Dashboard{
		UID: "gpu-namespace", Title: "GPU / Namespace",
		Question: "What does this team hold, what does it make of it, and what should it do?",
		Vars:     []Variable{datasourceVariable(), clusterVariable("namespace:gpu_allocated_seconds:rate5m"), namespaceVariable("namespace:gpu_allocated_seconds:rate5m", true), priceVariable()},
		From:     "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "GPUs held", Number, total("", records("namespace:gpu_allocation:sum", s)), "GPUs that pods of the namespaces hold, parts included.").digits(2),
				stat(3, "GPUs' worth of work", Number, total("", busy), "Busy time per second: 2.5 is the work of two and a half GPUs.").digits(2).at(base(Green)),
				stat(3, "Used of held", Ratio, total("", hours(busy))+" / ("+total("", hours(held))+" > 0)", "Work over what was held, over the range that is shown.").between(0, 1).at(usedSteps()...),
				stat(3, "GPU-hours not used", Hours, total("", hours(unused())), "Held GPU time without work, over the range that is shown.").digits(1).at(base(Amber)),
				stat(3, "Of these idle", Hours, total("", hours(unused(`state="idle"`))), "Held GPU time in which no work had run for 60 s. The rest lies between work.").digits(1).at(base(Amber)),
				stat(3, "Energy", KWh, total("", hours(records("namespace:gpu_power_watts:sum", s)))+" / 1000", "Energy that is put down to the namespaces, over the range that is shown.").digits(1),
				stat(3, "Used of quota", Ratio, `sum(kube_resourcequota{<namespace>, type="used", resource=~".*nvidia.com/.+"}) / (sum(kube_resourcequota{<namespace>, type="hard", resource=~".*nvidia.com/.+"}) > 0)`, "GPU requests over the quota; needs kube-state-metrics, empty without it or without a quota.").between(0, 1).at(fullSteps()...),
				stat(3, "Devices waited for", Number, orZero(total("", records("namespace:gpu_requests_pending:sum", s)), "namespace:gpu_requests:sum{<namespace>}"), "Devices that waiting pods ask for; needs kube-state-metrics, empty without it.").at(warnIfAny()...))}},
			{Title: "Held and used", Lines: []Line{
				line(8,
					series(12, "What was held went into", Number, "Held GPUs by what their time went into: work, time between work, idle time.",
						q("busy", total("", busy)), q("{{state}}", total("state", unused()))).stacked().from(0).colored(timeStateColors()),
					series(12, "Used of held over time", Ratio, "Work over what is held, by namespace. Above 100 %: work on GPUs that are not held.", q("{{namespace}}", total("cluster, namespace", busy)+" / ("+total("cluster, namespace", held)+" > 0)")).from(0).at(usedSteps()...)),
				line(8,
					series(12, "GPUs held by workload", Number, "GPUs that each workload holds.", q("{{namespace}}/{{workload}}", total("cluster, namespace, workload", records("workload:gpu_allocation:sum", s)))).stacked().from(0).to(toWorkload()),
					series(12, "Work by workload", Number, "GPUs' worth of work of each workload.", q("{{namespace}}/{{workload}}", total("cluster, namespace, workload", records("workload:gpu_busy_seconds:rate5m", s)))).stacked().from(0).to(toWorkload())),
			}},
			{Title: "Workloads", Lines: []Line{
				line(10, table(24, "Workloads", "-GPU-hours not used", "Every workload that holds or held GPUs, over the range that is shown. Sums grow every half hour.", label("cluster", "Cluster"), label("namespace", "Namespace"), label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()),
					value("Pods", Number, total(workload, records("workload:gpu_pods:count", s))),
					value("GPUs now", Number, total(workload, records("workload:gpu_allocation:sum", s))),
					value("GPU-hours held", Hours, total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", s)))),
					value("GPU-hours not used", Hours, total(workload, kept(records("workload:gpu_unused_seconds:increase30m", s)))),
					value("Cost of these", Number, "$price * "+total(workload, kept(records("workload:gpu_unused_seconds:increase30m", s)))),
					value("Used", Ratio, total(workload, kept(records("workload:gpu_busy_seconds:increase30m", s)))+" / "+total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", s)))).gauge(usedSteps()...),
					value("Busiest, 95 % of the time below", Ratio, "max by ("+workload+") (quantile_over_time(0.95, "+records("workload:gpu_busy:ratio_p95_30m", s)+"[$__range]))").gauge(usedSteps()...),
					value("Peak memory on a GPU", Bytes, "max by ("+workload+") (max_over_time("+records("workload:gpu_memory_used_bytes:max30m", s)+"[$__range]))"),
					value("Last busy", When, "1000 * "+maximum(workload, records("workload:gpu_last_busy_timestamp_seconds:max", s))),
					value("Alerts of the workload", Number, firing(workload, `cluster=~"$cluster"`, `namespace=~"$namespace"`, `workload!=""`)))),
				line(8,
					series(12, "Memory in use", Bytes, "Device memory of the workloads.", q("{{namespace}}/{{workload}}", total("cluster, namespace, workload", records("workload:gpu_memory_used_bytes:sum", s)))).stacked().from(0).to(toWorkload()),
					series(12, "Power by workload", Watts, "Power that is put down to the workloads.", q("{{namespace}}/{{workload}}", total("cluster, namespace, workload", records("workload:gpu_power_watts:sum", s)))).stacked().from(0).to(toWorkload())),
			}},
			{Title: "What to do", Lines: []Line{line(9,
				note(12, "How to read this", "What the figures ask for.", namespaceAdvice),
				table(12, "Idle now", "-GPUs idle", "Workloads that hold GPUs and do not work on them, now.", label("namespace", "Namespace"), label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()),
					value("GPUs idle", Number, total(workload, records("workload:gpu_unused_seconds:rate5m", s, `state="idle"`))),
					value("Last work", When, "1000 * "+maximum(workload, records("workload:gpu_last_busy_timestamp_seconds:max", s)))).
					among(workload, total(workload, records("workload:gpu_unused_seconds:rate5m", s, `state="idle"`))+" > 0.05")),
				line(7,
					series(12, "Models", Number, "GPUs held by model.", q("{{model}}", total("model", records("namespace:gpu_allocation:sum", s)))).stacked().from(0),
					table(12, "Quota", "Resource", "Quotas for GPU requests; needs kube-state-metrics, empty without it or without quotas.", label("namespace", "Namespace"), label("resource", "Resource"),
						value("Quota", Number, `sum by (cluster, namespace, resource) (kube_resourcequota{<namespace>, type="hard", resource=~".*nvidia.com/.+"})`), value("Used", Number, `sum by (cluster, namespace, resource) (kube_resourcequota{<namespace>, type="used", resource=~".*nvidia.com/.+"})`))),
			}},
		},
	}
}

// namespaceAdvice says what the numbers of the board ask for. Markdown.
const namespaceAdvice = `| what you see | what to do |
|---|---|
| **Last busy** is hours ago | Stop the workload, or scale it to none: it holds GPUs for nothing. |
| **Used** is below 20 %, **busiest** too | The work fits on a share, a MIG profile or a smaller GPU, if the **peak memory** does. |
| **Used** is low, **busiest** is high | Some GPUs of the workload wait for others: open it and compare its pods. |
| Memory near the GPU's, little work | Frameworks reserve memory; it proves no need. Try a cap before choosing a profile. |
| **Used** is above 95 % for days | More GPUs, or larger ones, would be used. |
`
