package dashboards

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// namespaceDashboard: which GPUs are allocated to this team, how are they used, and what should it do?
func namespaceDashboard() Dashboard {
	const s = "<namespace>"
	allocated := records("namespace:gpu_allocated_seconds:rate5m", s)
	busy := records("namespace:gpu_busy_seconds:rate5m", s)
	unused := func(matchers ...string) string {
		return records("namespace:gpu_unused_seconds:rate5m", s, matchers...)
	}
	workload := "cluster, namespace, workload_type, workload"
	// Allocated and neither busy nor unused: activity that could not be measured.
	unknown := func(wrap func(string) string) string {
		all := total("", wrap(allocated))
		return "clamp_min(" + all + " - (" + total("", wrap(busy)) + " or 0 * " + all + ") - (" + total("", wrap(unused())) +
			" or 0 * " + all + "), 0)"
	}
	same := func(expr string) string { return expr }
	return Dashboard{
		UID: "gpu-namespace", Title: "GPU / Namespace",
		Question: "Which GPUs are allocated to this team, how are they used, and what should it do?",
		Vars: []Variable{datasourceVariable(), clusterVariable("namespace:gpu_allocated_seconds:rate5m"),
			namespaceVariable("namespace:gpu_allocated_seconds:rate5m", true)},
		From: "now-24h",
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "Allocated", Number, total("", records("namespace:gpu_allocation:sum", s)),
					"GPUs allocated to the namespaces, including fractions.").digits(2),
				stat(3, "Busy GPUs", Number, total("", busy),
					"Busy GPU equivalents: 2.5 is the busy time of two and a half GPUs.").digits(2).at(base(Green)),
				stat(4, catalog.BusyOfMeasured.Word, Ratio, busyOfMeasured("namespace", "", func(metric string) string {
					return hours(records(metric+":rate5m", s))
				}), "In the selected time range. "+catalog.BusyOfMeasured.Sentence()).between(0, 1).at(usedSteps()...),
				stat(4, "Cost of unused", Number, priced("", hours(unused())),
					"Unused GPU-hours in the selected time range, at the prices of the models.").digits(0).at(
					base(Amber)),
				stat(3, "Energy", KWh, total("", hours(records("namespace:gpu_power_watts:sum", s)))+" / 1000",
					"Energy attributed to the namespaces in the selected time range.").digits(1),
				stat(4, "Used of quota", Ratio,
					`sum(kube_resourcequota{<namespace>, type="used", resource=~".*nvidia.com/.+"}) / `+
						`(sum(kube_resourcequota{<namespace>, type="hard", resource=~".*nvidia.com/.+"}) > `+
						`0)`, "GPU requests over the quota; needs kube-state-metrics.").between(0,
					1).at(fullSteps()...),
				stat(3, "Pending", Number,
					orZero(total("", records("namespace:gpu_requests_pending:sum", s)),
						"pod:gpu_requests:sum{<namespace>}"),
					"Devices requested by pending pods; needs kube-state-metrics.").at(warnIfAny()...))}},
			{Title: "Allocated GPU-hours in the selected time range", Lines: []Line{line(4,
				stat(4, "All", Hours, total("", hours(allocated)),
					"Allocated GPU-hours: the sum of the others.").digits(1),
				stat(5, "Busy", Hours, total("", hours(busy)),
					catalog.Busy.Sentence()).digits(1).at(base(catalog.Busy.Color)),
				stat(5, "Gap", Hours, total("", hours(unused(`state="gap"`))), catalog.Gap.Sentence()).digits(1).at(
					base(catalog.Gap.Color)),
				stat(5, "Idle", Hours, total("", hours(unused(`state="idle"`))),
					catalog.Idle.Sentence()).digits(1).at(
					base(catalog.Idle.Color)),
				stat(5, "Unknown", Hours, unknown(hours),
					"Allocated, and activity could not be measured.").digits(1).at(
					base(catalog.Unknown.Color)))}},
			{Title: "Allocation and use", Lines: []Line{
				line(8,
					series(12, "Allocated GPU-time by state", Number,
						"Allocated GPU equivalents by state; they add up to the allocated GPUs.",
						q("busy", total("", busy)), q("gap", total("", unused(`state="gap"`))),
						q("idle", total("", unused(`state="idle"`))),
						q("unknown", unknown(same))).stacked().from(0).colored(timeStateColors()),
					series(12, catalog.BusyOfMeasured.Word+" over time", Ratio, "By namespace. "+catalog.BusyOfMeasured.Sentence(),
						q("{{cluster}} {{namespace}}", busyNow("namespace", "cluster, namespace", s))).share().at(usedSteps()...)),
				line(8,
					topSeries(12, "Allocated GPUs by workload", Number, "cluster, namespace, workload",
						records("workload:gpu_allocation:sum", s),
						"GPUs allocated to each workload.").to(toWorkload()),
					topSeries(12, "Busy GPUs by workload", Number, "cluster, namespace, workload",
						records("workload:gpu_busy_seconds:rate5m", s),
						"Busy GPU equivalents of each workload.").to(toWorkload())),
			}},
			{Title: "Workloads", Lines: []Line{
				line(10, table(24, "Workloads", "-Unused GPU-hours",
					"Workloads with allocated GPUs in the selected time range. Sums are updated every half hour.",
					label("cluster", "Cluster"), label("namespace", "Namespace").wide(125), label("workload_type", "Kind"),
					label("workload", "Workload").to(toWorkload()),
					value("Pods", Number, total(workload, records("workload:gpu_pods:count", s))).wide(56),
					value("GPUs now", Number, total(workload, records("workload:gpu_allocation:sum", s))).wide(60),
					value("Allocated GPU-hours", Hours,
						total(workload, kept(records("workload:gpu_allocated_seconds:increase30m", s)))),
					value("Unused GPU-hours", Hours,
						total(workload, kept(records("workload:gpu_unused_seconds:increase30m", s)))),
					value("Unknown GPU-hours", Hours, unmeasured(workload, s)),
					value("Cost of unused", Number,
						priced(workload, kept(records("workload:gpu_unused_seconds:increase30m", s)))).wide(80),
					value(catalog.BusyOfMeasured.Word, Ratio, measured(workload, s)).gauge(usedSteps()...),
					value("Busiest container, p95", Ratio,
						"max by ("+workload+") (quantile_over_time(0.95, "+records("workload:gpu_busy:ratio_p95_30m",
							s)+"[$__range]))").gauge(usedSteps()...).wide(98),
					value("Peak memory on a GPU", Bytes,
						"max by ("+workload+") (max_over_time("+records("workload:gpu_memory_used_bytes:max30m", s)+
							"[$__range]))"),
					value("Last busy", When, "1000 * "+maximum(workload,
						records("workload:gpu_last_busy_timestamp_seconds:max", s))),
					value("Alerts", Number, "count by ("+workload+") ("+firingAlerts("<namespace>", `workload!=""`)+" or "+
						firingAlerts("<namespace>", `pod!=""`)+" * on (cluster, namespace, pod) group_left (workload_type, workload) "+
						maximum("cluster, namespace, pod, workload_type, workload", "pod:gpu_workload:info{<namespace>}")+
						") or 0 * "+total(workload, records("workload:gpu_allocation:sum", s))).wide(64))),
				line(8,
					topSeries(12, "Memory used by workload", Bytes, "cluster, namespace, workload",
						records("workload:gpu_memory_used_bytes:sum", s),
						"Used device memory of the workloads.").to(toWorkload()),
					topSeries(12, "Power by workload", Watts, "cluster, namespace, workload",
						records("workload:gpu_power_watts:sum", s),
						"Power attributed to the workloads.").to(toWorkload())),
			}},
			{Title: "What to do", Lines: []Line{line(9,
				note(12, "Advice", "What to do about the values of this dashboard.", namespaceAdvice),
				table(12, "Idle now", "-Idle GPUs", "Workloads with idle GPUs, but for those above 80 % busy of measured.",
					label("namespace", "Namespace"),
					label("workload_type", "Kind"), label("workload", "Workload").to(toWorkload()),
					value("Idle GPUs", Number, total(workload,
						records("workload:gpu_unused_seconds:rate5m", s, `state="idle"`))),
					value("Last busy", When, "1000 * "+maximum(workload, records("workload:gpu_last_busy_timestamp_seconds:max", s)))).
					among(workload, total(workload, records("workload:gpu_unused_seconds:rate5m", s, `state="idle"`))+
						" > 0.05"+notWellUsed(workload, busyNow("workload", workload, s))).called(
					"No idle workload, or the recording rules are not loaded.")),
				line(7,
					series(12, "Models", Number, "Allocated GPUs by model.",
						q("{{model}}", total("model", records("namespace:gpu_allocation:sum", s)))).stacked().from(0),
					table(12, "Quota", "Resource", "Quotas for GPU requests; needs kube-state-metrics.",
						label("namespace", "Namespace"), label("resource", "Resource"),
						value("Quota", Number,
							`sum by (cluster, namespace, resource) (kube_resourcequota{<namespace>, type="hard", `+
								`resource=~".*nvidia.com/.+"})`),
						value("Used", Number, `sum by (cluster, namespace, resource) `+
							`(kube_resourcequota{<namespace>, type="used", resource=~".*nvidia.com/.+"})`))),
			}},
		},
	}
}

// namespaceAdvice is Markdown.
const namespaceAdvice = `| value | action |
|---|---|
| **Last busy** is hours ago | Delete the workload, or scale it to zero. |
| **Busy of measured** and **busiest container** are below 20 % | Use a share, a MIG profile or a smaller GPU, if **peak memory** fits. |
| **Busy of measured** is low, **busiest container** is high | Some GPUs of the workload wait for others: open it and compare its pods. |
| Memory near the GPU's, low utilization | Frameworks reserve memory without using it. Try a limit before choosing a profile. |
| **Busy of measured** is above 95 % for days | The workload could use more or larger GPUs. |
`
