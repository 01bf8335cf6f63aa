package dashboards

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// workloadDashboard: does this workload use its GPUs, and are its pods equally busy?
func workloadDashboard() Dashboard {
	const p = "<pod>"
	const onNodes = `<cluster>, node=~"$podnodes"`
	// The pods of the chosen workloads; the variable pod alone, at All, would match every pod.
	of := func(expr string) string {
		return "(" + expr + ") and on (cluster, node, namespace, pod) pod:gpu_workload:info{<workload>}"
	}
	container := func(metric string) string { return metric + "{" + p + "}" }
	rate := func(by, metric string) string {
		return "sum by (" + by + ") (" + of("rate("+container(metric)+"[$__rate_interval])") + ")"
	}
	gauge := func(op, by, metric string) string { return op + " by (" + by + ") (" + of(container(metric)) + ")" }
	once := func(op, metric string) string { return op + "(" + of(container(metric)) + ")" }
	increase := func(metric string) string {
		return "sum(" + of("increase("+container(metric)+"[$__range])") + ")"
	}
	const pods = "cluster, node, namespace, pod"
	busyOfParts := func(by string) string { // of containers, or of several together
		part, whole := rate(by, "gpu_container_busy_seconds_total"), "sum by ("+by+") ("+
			of(catalog.MeasuredTime("rate", "$__rate_interval", p))+")"
		return part + " / (" + whole + " > 0)"
	}
	busyOfPods := busyOfParts(pods)
	name := "{{namespace}}/{{pod}} {{container}} on {{node}} GPU {{gpu}}"
	alive := "(" + of(container("gpu_container_allocation_ratio")) + ")"
	return Dashboard{
		UID: "gpu-workload", Title: "GPU / Workload and pod", Raw: true,
		Question: "Does this workload use its GPUs, and are its pods equally busy?",
		Vars: []Variable{datasourceVariable(), clusterVariable("gpu_exporter_build_info"),
			namespaceVariable("pod:gpu_workload:info", true), workloadVariable(), podVariable(), podNodesVariable()},
		Annotations: []Annotation{xidRecordAnnotation(), cordonAnnotation("cluster")},
		Rows: []Row{
			{Lines: []Line{
				line(4,
					stat(3, "Allocated", Number, once("sum", "gpu_container_allocation_ratio"),
						"GPUs allocated to the pods, including fractions.").digits(2),
					stat(3, "Pods", Number, "count(group by ("+pods+") ("+alive+"))", "Pods with allocated GPUs."),
					stat(3, catalog.BusyOfMeasured.Word, Ratio,
						increase("gpu_container_busy_seconds_total")+" / (sum("+
							of(catalog.MeasuredTime("increase", "$__range", p))+") > 0)",
						"In the selected time range. "+catalog.BusyOfMeasured.Sentence()+" N/A: activity is not measured for these "+
							"pods.").between(0, 1).at(usedSteps()...).ifUp(alive),
					stat(3, "Memory", Bytes, once("sum", "gpu_container_memory_used_bytes"),
						"Used device memory of the pods. N/A: it is not measured for these pods.").ifUp(alive),
					stat(3, "Power", Watts, "sum("+
						of("rate("+container("gpu_container_energy_joules_total")+"[$__rate_interval])")+")",
						"Power attributed to the pods. N/A: their GPUs have no energy counter.").ifUp(alive),
					stat(3, "Energy", KWh, increase("gpu_container_energy_joules_total")+" / 3.6e6",
						"Energy attributed to the pods in the selected time range.").ifUp(alive),
					stat(3, "Busy, no work", Number, "count("+ofTheirGPUs("gpu:gpu_spinning:ratio5m{"+onNodes+"}", alive)+") or 0 * count("+
						ofTheirGPUs("gpu_energy_joules_total{"+onNodes+"} and on (cluster, node, uuid) gpu_busy_seconds_total{"+onNodes+"}",
							alive)+")",
						"Their GPUs that run kernels all the time at less than 40 % of the power limit, without tensor cores or memory "+
							"active where that is measured: a kernel waits for other GPUs. All GPUs of a job: it hangs. N/A: no energy "+
							"or busy time is measured.").at(base(Green), step(1, Amber)).ifUp(alive),
					stat(3, "Last busy", When, "1000 * "+once("max", "gpu_container_last_busy_timestamp_seconds"),
						"Time at which any of the pods was last busy.").ifUp(alive)),
			}},
			{Title: "Activity", Lines: []Line{
				line(9,
					series(16, catalog.BusyOfMeasured.Word+" by container and GPU", Ratio, catalog.BusyOfMeasured.Sentence(),
						q(name, busyOfParts(perContainer))).share().to(toGPU()),
					series(8, "Busiest and least busy pod", Ratio,
						"Busy of measured of the pods. In training, ranks wait for each other: a large difference "+
							"indicates a straggler, or unused GPUs.",
						q("busiest", "max("+busyOfPods+")"), q("mean", "avg("+busyOfPods+")"), q("least busy", "min("+busyOfPods+")"),
						q("standard deviation", "stddev("+busyOfPods+")")).share()),
				line(8,
					series(12, "Unused GPU-time by pod", Number, "Unused GPU equivalents by pod and state (gap, idle).",
						q("{{namespace}}/{{pod}} {{state}}",
							rate(pods+", state", "gpu_container_unused_seconds_total"))).stacked().from(0),
					series(12, "SM activity of the allocated GPUs", Ratio,
						"SM activity of the GPUs allocated to the pods, including other containers that share them. "+
							"Hopper and newer.",
						q(gpuName, ofTheirGPUs(profiled(perGPU, "sm_active", onNodes), alive))).between(0, 1).to(toGPU())),
			}},
			slowRow(onNodes, alive),
			{Title: "Memory", Lines: []Line{line(8,
				series(12, "Memory by container and GPU", Bytes, "Used device memory of each container on each GPU.",
					q(name, gauge("sum", perContainer, "gpu_container_memory_used_bytes"))).from(0).to(toGPU()),
				series(12, "Free memory of the GPUs", Ratio,
					"Free over total memory of the GPUs allocated to the pods. Below 5 % the next allocation may fail.",
					q(gpuName, ofTheirGPUs(over(perGPU, "gpu_memory_free_bytes{"+onNodes+"}",
						"gpu_memory_total_bytes{"+onNodes+"}"), alive))).between(0,
					1).at(base(Red), step(0.05, Amber), step(0.15, Green)).to(toGPU())),
			}},
			{Title: "Pods", Lines: []Line{
				line(10, table(24, "Containers and GPUs", "-Unused",
					"Containers of the pods, and the GPUs that they use or that are allocated to them.",
					label("namespace", "Namespace").to(toNamespace()).wide(120), label("pod", "Pod").to(toPod()).wide(220),
					label("container", "Container").wide(115), label("node", "Node").to(toNode()).wide(150),
					label("gpu", "GPU").to(toGPU()).wide(55),
					value("Allocated", Ratio, gauge("sum", perContainer,
						"gpu_container_allocation_ratio")).wide(85),
					value(catalog.BusyOfMeasured.Word, Ratio, busyOfParts(perContainer)).gauge(usedSteps()...).wide(105),
					value("Unused", Ratio, rate(perContainer, "gpu_container_unused_seconds_total")+" / ("+
						rate(perContainer, "gpu_container_allocated_seconds_total")+" > 0)"),
					value("Memory", Bytes, gauge("sum", perContainer, "gpu_container_memory_used_bytes")),
					value("Memory limit", Bytes, gauge("sum", perContainer, "gpu_container_memory_limit_bytes")).wide(85),
					value("Power", Watts, rate(perContainer, "gpu_container_energy_joules_total")).wide(80),
					value("Processes", Number, gauge("sum", perContainer, "gpu_container_processes")).wide(85),
					value("Allocated since", When,
						"1000 * "+gauge("min", perContainer, "gpu_container_allocated_since_timestamp_seconds")).wide(130),
					value("Last busy", When, "1000 * "+gauge("max", perContainer,
						"gpu_container_last_busy_timestamp_seconds")).wide(145),
					label("uuid", "UUID").hide())),
				line(8,
					table(12, "Attribution", "Pod",
						"Method by which the busy time of each container is measured. none: not measured.",
						label("namespace", "Namespace"), label("pod", "Pod"), label("container", "Container").wide(120),
						label("method", "Method").wide(80), label("source", "Data source").wide(110),
						value("GPUs", Number, "count by (namespace, pod, container, method, source) ("+
							of(container("gpu_container_attribution_info"))+")").wide(60)),
					series(12, "Power by container and GPU", Watts,
						"Power attributed to each container: idle power by allocation, the rest by busy time.",
						q(name, rate(perContainer, "gpu_container_energy_joules_total"))).stacked().from(0)),
			}},
			{Title: "Kubernetes", Lines: []Line{line(8,
				timeline(7, "Phases", "Phases of the pods; needs kube-state-metrics.",
					[]Mapping{{"1", "Pending", Amber}, {"2", "Running", Green}, {"3", "Succeeded", Blue},
						{"4", "Failed", Red}, {"5", "Unknown", Purple}},
					q("{{namespace}}/{{pod}}",
						"max by (cluster, namespace, pod) ("+phases("Pending", "Running", "Succeeded", "Failed")+
							") and on (cluster, namespace, pod) pod:gpu_workload:info{<workload>}")),
				series(7, "Restarts", Number, "Restarts of the pods' containers; needs kube-state-metrics.",
					q("{{namespace}}/{{pod}} {{container}}",
						"sum by (cluster, namespace, pod, container) "+
							"(increase(kube_pod_container_status_restarts_total{<pod>}[$__rate_interval]) and on "+
							"(cluster, namespace, pod) pod:gpu_workload:info{<workload>}) > 0")).from(0).called(
					"No container was restarted, or no kube-state-metrics, or rules not loaded."),
				table(10, "Last termination reason", "Pod",
					"Last termination reason of the containers; OOMKilled refers to host memory, not device memory. "+
						"Needs kube-state-metrics.", label("namespace", "Namespace").wide(110),
					label("pod", "Pod").wide(220), label("container", "Container").wide(120),
					label("reason", "Reason").wide(100).mapped(Mapping{"OOMKilled", "OOMKilled", Red},
						Mapping{"Error", "Error", Red}, Mapping{"Completed", "Completed", Green}),
					value("Times", Number, "sum by (namespace, pod, container, reason) "+
						"(kube_pod_container_status_last_terminated_reason{<pod>} and on (cluster, namespace, pod) "+
						"pod:gpu_workload:info{<workload>}) > 0")).called(
					"No container was terminated, or no kube-state-metrics, or rules not loaded.")),
				line(6, alertTable(24, `cluster=~"$cluster"`, `namespace=~"$namespace"`).among("cluster, namespace, pod, workload",
					`group by (cluster, namespace, pod) (pod:gpu_workload:info{<workload>, pod=~"$pod"}) or `+
						`group by (cluster, namespace, workload) (pod:gpu_workload:info{<workload>})`)),
			}},
		},
	}
}

// ofTheirGPUs keeps of an expression by GPU the GPUs of containers.
func ofTheirGPUs(expr, containers string) string {
	return "(" + expr + ") and on (cluster, node, uuid) " + containers
}

// slowRow is what slows a workload down, on the GPUs that its pods have: nodes selects their nodes, alive are their containers.
func slowRow(nodes, alive string) Row {
	onTheirs := func(expr string) string { return ofTheirGPUs(expr, alive) }
	rate := func(metric string) string { return perSecond(perGPU, metric+"{"+nodes+"}") }
	bytes := func(link string) string {
		return onTheirs(rate("gpu_"+link+"_receive_bytes_total") + " + " + rate("gpu_"+link+"_transmit_bytes_total"))
	}
	return Row{Title: "Why is it slow?", Lines: []Line{
		line(8,
			series(8, "Limited clocks", Ratio, "Share of time in which clocks were limited, by GPU and reason; reasons overlap. Power "+
				"cap is normal under load, the others are not.",
				q(gpuName+" {{reason}}", onTheirs(perSecond(perGPU+", reason", "gpu_clock_limited_seconds_total{"+nodes+"}")+" > 0.01"))).
				between(0, 1).to(toGPU()).called("No clocks are limited, or the rules are not loaded."),
			series(8, "Tensor cores and memory bandwidth", Ratio, "Activity of the tensor cores and use of the memory bandwidth. Both low "+
				"on busy GPUs: they wait for each other, for the host or for data. Hopper and newer.",
				q(gpuName+" tensor", onTheirs(profiled(perGPU, "tensor_active", nodes))),
				q(gpuName+" memory", onTheirs(profiled(perGPU, "dram_active", nodes)))).between(0, 1).to(toGPU()),
			series(8, "PCIe and NVLink traffic", BytesPS, "Bytes per second in both directions together. Much PCIe beside low "+
				"utilization: the host feeds the GPU too slowly.",
				q(gpuName+" PCIe", bytes("pcie")), q(gpuName+" NVLink", bytes("nvlink"))).from(0).to(toGPU()).called(
				"No counters: no NVLink, PCIe before Hopper, --metrics=core, or the rules are not loaded.")),
		line(8,
			table(9, "XIDs of their GPUs", "-In range", "XID errors in the selected time range.",
				label("node", "Node").to(toNode()).wide(140), label("gpu", "GPU").to(toGPU()).wide(55),
				label("xid", "Code").mapped(xidMappings()...),
				value("In range", Number, onTheirs(total(perGPU+", xid", xids(nodes, "$__range")))).at(badIfAny()...).wide(80),
				label("cluster", "Cluster").hide(), label("uuid", "UUID").hide()).
				called("No XID errors, or the rules are not loaded."),
			table(15, "Others on their GPUs", "-Busy", "Containers of other workloads on the same GPUs: what they use is missing here.",
				label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod").to(toPod()), label("container", "Container"),
				label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
				value("Busy", Ratio, onTheirs(perSecond(perContainer, "gpu_container_busy_seconds_total{"+nodes+"}"))+
					" unless on (cluster, node, namespace, pod) pod:gpu_workload:info{<workload>}").at(base(Green), step(0.1, Amber)),
				label("cluster", "Cluster").hide(), label("uuid", "UUID").hide()).
				called("No other container is on their GPUs, or the rules are not loaded.")),
	}}
}

// phases is the number of each pod's phase, from 1.
func phases(names ...string) string {
	var out []string
	for i, name := range names {
		out = append(out, fmt.Sprintf(`%d * (kube_pod_status_phase{<pod>, phase="%s"} == 1)`, i+1, name))
	}
	return strings.Join(out, " or ")
}
