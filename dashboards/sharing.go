package dashboards

// sharingDashboard: which GPUs are shared, by which containers, and do they slow each other down?
func sharingDashboard() Dashboard {
	const n = "<node>"
	const overRequest = "container:gpu_use_over_request:ratio"
	const sharingPods = "gpu:gpu_pods:count{" + n + "}"
	const recorded = "node:gpu_allocation:sum{" + n + "}" // where the allocation is unknown, the number of shared GPUs is not 0
	const noSharing = "No GPU is allocated to several pods, or allocations are unknown, or the rules are not loaded."
	return Dashboard{
		UID: "gpu-sharing", Title: "GPU / Sharing", Raw: true,
		Question: "Which GPUs are shared, by which containers, and do they slow each other down?",
		Vars: []Variable{datasourceVariable(), clusterVariable("gpu_exporter_build_info"), nodeVariable(true),
			jobVariable()},
		Annotations: []Annotation{xidAnnotation("node").off(), restartAnnotation("node")},
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(4, "Shared GPUs", Number, orZero("count("+sharingPods+" > 1)", recorded),
					"GPUs allocated to more than one pod."),
				stat(4, "Exclusive GPUs", Number, orZero("count("+sharingPods+" == 1)", recorded),
					"GPUs allocated to a single pod, wholly or in part."),
				stat(4, "GPUs in MIG mode", Number, orZero("sum(gpu_mig_mode{"+n+"})", "gpu_device_up{"+n+"}"),
					"GPUs with MIG mode enabled."),
				stat(4, "Overcommitted", Number,
					orZero("count(gpu_allocation_ratio{"+n+"} > 1.001)", "gpu_allocation_ratio{"+n+"}"),
					"GPUs with allocations of more than the whole GPU.").at(warnIfAny()...),
				stat(4, "Contended", Number,
					orZero("count("+sharingPods+" > 1 and on (cluster, node, uuid) "+rawBusy("cluster, node, uuid", n)+
						" > 0.9)", recorded),
					"Shared GPUs with a utilization above 90 %: their containers slow each other down.").at(
					warnIfAny()...),
				stat(4, "Nearly full", Number,
					orZero("count("+sharingPods+" > 1 and on (cluster, node, uuid) "+over("cluster, node, uuid",
						"gpu_memory_used_bytes{"+n+"}", "gpu_memory_total_bytes{"+n+"}")+" > 0.95)", recorded),
					"Shared GPUs with less than 5 % of free memory: the next allocation may fail.").at(badIfAny()...)),
			}},
			{Title: "GPUs", Lines: []Line{
				line(9, table(24, "GPUs with more than one pod", "-Pods", "Only GPUs allocated to more than one pod.",
					label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
					value("Pods", Number, maximum(perGPU, sharingPods)).wide(80),
					value("Allocated", Ratio, maximum(perGPU, "gpu_allocation_ratio{"+n+"}")).gauge(base(Blue),
						step(1.001, Amber)),
					value("Busy", Ratio, rawBusy(perGPU, n)).gauge(badAbove(0.9, 0.98)...),
					value("Memory used", Ratio, over(perGPU, "gpu_memory_used_bytes{"+n+"}",
						"gpu_memory_total_bytes{"+n+"}")).gauge(fullSteps()...),
					value("Memory limit", Ratio,
						total(perGPU, "gpu_container_memory_limit_bytes{"+n+"}")+" / "+total(perGPU,
							"gpu_memory_total_bytes{"+n+"}")).gauge(base(Blue), step(1.001, Amber)),
					label("uuid", "UUID")).among("cluster, node, uuid", sharingPods+" > 1").called(
					noSharing)),
				line(8,
					series(12, "GPUs by number of pods", Number,
						"Number of GPUs by the number of pods they are allocated to.",
						q("{{pods}} pods", total("pods", "node:gpu_by_pods:count{"+n+"}"))).stacked().from(0).coarse(sixHours),
					series(12, "Allocated GPUs by resource", Number,
						"Allocated GPUs by requested resource: whole GPUs, shared GPUs, MIG profiles.",
						q("{{resource}}", total("resource", "node:gpu_allocation_ratio_by_resource:sum{"+n+"}"))).stacked().from(
						0).coarse(sixHours)),
			}},
			{Title: "Containers", Lines: []Line{
				line(8,
					series(12, "Busy shared GPUs by namespace", Number,
						"Busy GPU equivalents on shared GPUs, by namespace. Activity that cannot be attributed to a "+
							"container is unattributed.",
						q("{{namespace}}", total("namespace", "namespace:gpu_shared_busy_seconds:rate5m{"+n+
							"}"))).stacked().from(0).coarse(sixHours).called(
						"No measured activity on GPUs of several pods, or the rules are not loaded."),
					series(12, "Memory on shared GPUs by namespace", Bytes,
						"Used device memory on shared GPUs, by namespace.",
						q("{{namespace}}", total("namespace", "namespace:gpu_shared_memory_used_bytes:sum{"+n+
							"}"))).stacked().from(0).coarse(sixHours).called(noSharing)),
				line(9, table(24, "Containers on shared GPUs", "-Busy",
					"Allocation, limits and usage of the containers on shared GPUs.",
					label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod").to(toPod()),
					label("container", "Container"), label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
					label("uuid", "UUID").hide(),
					value("Allocated", Ratio, total(perContainer,
						"gpu_container_allocation_ratio{"+n+"}")).gauge(plainSteps()...),
					value("Busy", Ratio, share(perContainer, "gpu_container_busy_seconds_total{"+n+"}",
						"gpu_container_observed_seconds_total{"+n+"}")).gauge(plainSteps()...),
					value("Compute limit", Ratio, maximum(perContainer, "gpu_container_compute_limit_ratio{"+n+"}")),
					value("Memory", Bytes, total(perContainer, "gpu_container_memory_used_bytes{"+n+"}")),
					value("Memory limit", Bytes, maximum(perContainer, "gpu_container_memory_limit_bytes{"+n+"}")),
					value("Over its limit", Ratio,
						maximum(perContainer, "gpu_container_memory_used_bytes{"+n+"}")+" / "+maximum(perContainer,
							"gpu_container_memory_limit_bytes{"+n+"}")+" - 1 > 0").at(warnIfAny()...)).among(
					"cluster, node, uuid", sharingPods+" > 1").called(noSharing)),
				line(7,
					series(8, "Unattributed busy time", Number,
						"Busy GPU equivalents not attributed to any container, by reason.",
						q("{{reason}}", total("reason",
							"node:gpu_unattributed_busy_seconds:rate5m{"+n+"}"))).stacked().from(0).coarse(sixHours),
					series(8, "Unattributed memory", Bytes, "Used memory not attributed to any container, by reason.",
						q("{{reason}}", total("reason", "node:gpu_unattributed_memory_used_bytes:sum{"+n+"}"))).stacked().from(
						0).coarse(sixHours),
					table(8, "Compute modes", "Mode",
						"GPUs by compute mode. Exclusive process: one process at a time, or MPS.",
						label("mode", "Mode"), value("GPUs", Number, "sum by (mode) (gpu_compute_mode{"+n+"}) > 0"))),
			}},
			{Title: "Use above the request", Lines: []Line{line(8,
				table(24, "Containers that use more than they requested", "-Memory, of request",
					"Containers that share a GPU and use more of its memory than they requested, or more of its time while it is "+
						"busy to 90 %: the guaranteed amount, else the limit, else the share of the GPU. Nothing enforces it.",
					label("namespace", "Namespace").to(toNamespace()), label("pod", "Pod").to(toPod()),
					label("container", "Container"), label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60),
					label("uuid", "UUID").hide(),
					value("Memory requested", Bytes, total(perContainer, "gpu_container_memory_used_bytes{"+n+"}")+" / "+
						maximum(perContainer, overRequest+`{quantity="memory",`+n+"}")),
					value("Memory", Bytes, total(perContainer, "gpu_container_memory_used_bytes{"+n+"}")),
					value("Memory, of request", Ratio, maximum(perContainer, overRequest+`{quantity="memory",`+n+"}")),
					value("Busy requested", Ratio, perSecond(perContainer, "gpu_container_busy_seconds_total{"+n+"}")+" / "+
						maximum(perContainer, overRequest+`{quantity="busy",`+n+"}")),
					value("Busy", Ratio, perSecond(perContainer, "gpu_container_busy_seconds_total{"+n+"}")),
					value("Busy, of request", Ratio, maximum(perContainer, overRequest+`{quantity="busy",`+n+"}"))).among(
					"cluster, node, uuid, namespace, pod, container", overRequest+"{"+n+"}").called(
					"No container uses more than it requested, or the rules are not loaded."))}},
			{Title: "Devices", Lines: []Line{line(8,
				table(12, "Devices by resource", "Resource",
					"Allocatable and allocated devices by resource: more devices than GPUs means shared or "+
						"partitioned GPUs.", label("resource", "Resource"),
					value("Allocatable", Number, total("resource", "gpu_node_allocatable_devices{"+n+"}")),
					value("Allocated", Number, total("resource", "gpu_node_allocated_devices{"+n+"}")),
					value("Allocated fraction", Ratio,
						over("resource", "gpu_node_allocated_devices{"+n+"}",
							"gpu_node_allocatable_devices{"+n+"}")).gauge(plainSteps()...)),
				series(12, "Unallocated devices by resource", Number,
					"Unallocated devices as reported by the kubelet, by resource.",
					q("{{resource}}", total("resource", "gpu_node_allocatable_devices{"+n+"}")+" - "+total("resource",
						"gpu_node_allocated_devices{"+n+"}"))).from(0)),
			}},
			{Title: "MIG", Lines: []Line{line(8,
				table(8, "Instances by profile", "Profile", "Allocated and unallocated instances by profile.",
					label("profile", "Profile"), value("Instances", Number, "count by (profile) (gpu_mig_info{"+n+"})"),
					value("Allocated", Number, "count by (profile) (gpu_mig_allocation_ratio{"+n+"} > 0)"),
					value("Unallocated", Number, "count by (profile) (gpu_mig_allocation_ratio{"+n+"} == 0)")),
				table(16, "MIG instances", "Node", "All instances with their allocation and utilization.",
					label("node", "Node").to(toNode()), label("gpu", "GPU").to(toGPU()).wide(60), label("gi", "GI").wide(56),
					label("profile", "Profile"),
					value("Allocated", Ratio, maximum(perInstance,
						"gpu_mig_allocation_ratio{"+n+"}")).gauge(plainSteps()...).wide(85),
					value("Busy", Ratio, share(perInstance, "gpu_mig_busy_seconds_total{"+n+"}",
						"gpu_mig_observed_seconds_total{"+n+"}")).gauge(usedSteps()...),
					value("Memory used", Ratio, over(perInstance, "gpu_mig_memory_used_bytes{"+n+"}",
						"gpu_mig_memory_total_bytes{"+n+"}")).gauge(fullSteps()...), label("uuid", "UUID"))),
				line(7, series(24, "Busy by MIG profile", Ratio,
					"Mean utilization of the instances of a profile. Hopper and newer.",
					q("{{profile}}", share("profile", "gpu_mig_busy_seconds_total{"+n+"}",
						"gpu_mig_observed_seconds_total{"+n+"}"))).between(0, 1)),
			}},
		},
	}
}
