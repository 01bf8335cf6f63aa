package dashboards

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// nodeDashboard: is this node healthy, which pods are its GPUs allocated to, and are they used?
func nodeDashboard() Dashboard {
	const n = "<node>"
	gpuInfo := "cluster, node, uuid, gpu, model"
	return Dashboard{
		UID: "gpu-node", Title: "GPU / Node", Raw: true,
		Question: "Is this node healthy, which pods are its GPUs allocated to, and are they used?",
		Vars: []Variable{datasourceVariable(), clusterVariable("gpu_exporter_build_info"), nodeVariable(false),
			jobVariable()},
		Annotations: []Annotation{xidAnnotation("node"), restartAnnotation("node"), driverAnnotation("node"),
			cordonAnnotation("node"), podAnnotation("node")},
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "Available", Number, total("", "gpu_device_up{"+n+"}"),
					"Available GPUs. Lower than expected: a GPU is lost, hung or needs a reset.").at(plainSteps()...).called(
					"the exporter is not scraped"),
				stat(3, "Unavailable", Number, total("", `gpu_node_devices{`+n+`, state=~"failed|missing"}`),
					"GPUs that are in NVML but not readable (failed), or on the PCI bus but not in NVML (missing).").at(
					badIfAny()...),
				stat(3, "Allocated", Number, total("", "gpu_allocation_ratio{"+n+"}"),
					"Allocated GPUs, including fractions. GPUs whose allocation is unknown are not counted.").digits(2),
				stat(3, "Utilization", Ratio, rawBusy("", n),
					"Mean utilization of the node's GPUs: share of time in which at least one kernel was "+
						"running.").between(0, 1).at(usedSteps()...),
				stat(3, "Memory", Ratio, over("", "gpu_memory_used_bytes{"+n+"}", "gpu_memory_total_bytes{"+n+"}"),
					"Used device memory over total device memory.").between(0,
					1).at(fullSteps()...).ifUp("gpu_device_up{"+n+"}"),
				stat(3, "Power", Watts, total("", "gpu_power_watts{"+n+"}"),
					"Power draw of all GPUs of the node, averaged by the driver.").ifUp("gpu_device_up{"+n+"}"),
				stat(3, "Temperature margin", Celsius,
					`min(max by (cluster, node, uuid, sensor) (gpu_temperature_limit_celsius{`+n+
						`, limit="max_operating"}) - max by (cluster, node, uuid, sensor) (gpu_temperature_celsius{`+n+
						`}))`,
					"Minimum difference between a sensor and its maximum operating temperature; empty if no GPU "+
						"reports one.").at(base(Red), step(0, Amber), step(5, Green)),
				alertCounts(3, "gpu_exporter_build_info{"+n+"}", `cluster=~"$cluster"`, `node=~"$node"`),
			), line(6, alertTable(24, `cluster=~"$cluster"`, `node=~"$node"`))}},
			{Title: "GPUs", Lines: []Line{
				line(11, table(24, "GPUs of the node", "GPU",
					"All GPUs of the node, available or not. Click a GPU for its dashboard.",
					label("gpu", "GPU").to(toGPUOfNode()).wide(60), label("model", "Model"),
					value("Health", Plain, maximum(gpuInfo,
						"gpu_info{"+n+"} * on (cluster, node, uuid) group_left () "+maximum("cluster, node, uuid",
							rankedVerdicts(n)))).mapped(rankMappings()...).wide(110),
					value("Allocated", Ratio, maximum(perGPU, "gpu_allocation_ratio{"+n+"}")).wide(80),
					value("Pods", Number, "count by ("+perGPU+
						") (group by (cluster, node, uuid, gpu, namespace, pod) (gpu_container_allocation_ratio{"+n+
						"} > 0))").wide(80),
					value("Utilization", Ratio, rawBusy(perGPU, n)).gauge(usedSteps()...),
					value("SM active", Ratio, profiled(perGPU, "sm_active", n)).gauge(usedSteps()...),
					value("Memory used", Ratio, over(perGPU, "gpu_memory_used_bytes{"+n+"}",
						"gpu_memory_total_bytes{"+n+"}")).gauge(fullSteps()...),
					value("Power / limit", Ratio,
						over(perGPU, "gpu_power_watts{"+n+"}", "gpu_power_limit_watts{"+n+"}")).gauge(plainSteps()...),
					value("Temperature", Celsius,
						maximum(perGPU, `gpu_temperature_celsius{`+n+`, sensor="gpu"}`)).wide(100),
					value("Clock limit time", Ratio,
						"max by ("+perGPU+`) (rate(gpu_clock_limited_seconds_total{`+n+
							`, reason!="power_cap"}[$__rate_interval]))`).at(base(Green), step(0.01, Amber),
						step(0.2, Red)).wide(100),
					value("XIDs in range", Number, orZeroBy(perGPU, total(perGPU, xids(n, "$__range")), "gpu_device_up{"+n+"}")).at(
						badIfAny()...).wide(110),
					value("Last busy", When, "1000 * "+maximum(perGPU,
						"gpu_last_busy_timestamp_seconds{"+n+"}")).wide(150),
					label("uuid", "UUID").hide())),
				line(7,
					timeline(24, "GPU states", "State of each GPU, from its utilization of the last 60 s. "+
						catalog.Define(catalog.Busy, catalog.Idle, catalog.Unallocated, catalog.Unavailable,
							catalog.Unknown),
						[]Mapping{{"0", "unavailable", Red}, {"1", "unallocated", Gray}, {"2", "idle", Amber},
							{"3", "busy", Green}, {"4", "unknown", Purple}},
						q("GPU {{gpu}}", "0 * "+maximum(perGPU, "gpu_device_up{"+n+"} == 0")+
							" or 3 + 0 * "+maximum(perGPU, "gpu_utilization_ratio{"+n+"} > 0.01")+
							" or 1 + 0 * "+maximum(perGPU, "gpu_allocation_ratio{"+n+"} == 0")+
							" or 2 + 0 * "+maximum(perGPU, "gpu_allocation_ratio{"+n+"} > 0")+
							" or 4 + 0 * "+maximum(perGPU, "gpu_device_up{"+n+"}"))).to(toGPU())),
			}},
			{Title: "Utilization and memory", Lines: []Line{
				line(8,
					series(12, "Utilization by GPU", Ratio,
						"Share of time in which at least one kernel was running. For how much of the GPU it used, "+
							"see SM activity.", q("GPU {{gpu}}", rawBusy(perGPU, n))).between(0, 1).to(toGPU()),
					series(12, "SM activity", Ratio,
						"Share of time in which an SM had a resident warp, averaged over the SMs. Hopper and newer.",
						q("GPU {{gpu}}", profiled(perGPU, "sm_active", n))).between(0, 1).to(toGPU())),
				line(8,
					series(12, "Memory used by GPU", Bytes, "Device memory allocated by processes.",
						q("GPU {{gpu}}", maximum(perGPU, "gpu_memory_used_bytes{"+n+"}"))).from(0).to(toGPU()),
					series(12, "Tensor core activity", Ratio,
						"Share of time in which tensor cores were active. Hopper and newer.",
						q("GPU {{gpu}}", profiled(perGPU, "tensor_active", n))).between(0, 1).to(toGPU())),
				line(8,
					series(12, "Allocated GPUs by pod", Number, "GPUs allocated to each pod, including fractions.",
						q("{{namespace}}/{{pod}}",
							total("cluster, node, namespace, pod",
								"gpu_container_allocation_ratio{"+n+"}"))).stacked().from(0),
					series(12, "GPU-time by state", Number,
						"GPU equivalents by state; they add up to the GPUs of the node. "+
							catalog.Define(catalog.TimeStates()...),
						stateQueries(func(state string) string {
							return perSecond("", "gpu_time_seconds_total{"+n+", "+state+"}")
						})...).stacked().from(0).colored(
						timeStateColors())),
			}},
			{Title: "Power, temperature and clocks", Lines: []Line{
				line(8,
					series(8, "Power by GPU", Watts, "Mean power draw, from the energy counter if there is one.",
						q("GPU {{gpu}}", perSecond(perGPU, "gpu_energy_joules_total{"+n+"}")+" or "+maximum(perGPU,
							"gpu_power_watts{"+n+"}"))).from(0).to(toGPU()),
					series(8, "Temperature", Celsius, "Temperature of the GPU, and of its memory if there is a sensor.",
						q("GPU {{gpu}} {{sensor}}",
							maximum(perGPU+", sensor", "gpu_temperature_celsius{"+n+"}"))).to(toGPU()),
					series(8, "SM clock", Hertz, "Current SM clock.",
						q("GPU {{gpu}}", maximum(perGPU, `gpu_clock_hertz{`+n+`, clock="sm"}`))).from(0).to(toGPU())),
				line(8,
					series(12, "Clock limit time", Ratio,
						"Share of time in which clocks were limited, by GPU and reason. Power cap is normal under "+
							"load; thermal reasons and the power brake are not.",
						q("GPU {{gpu}} {{reason}}",
							perSecond(perGPU+", reason", "gpu_clock_limited_seconds_total{"+n+"}")+" > 0.001")).between(
						0, 1).to(toGPU()).called("No clocks are limited, or this is not supported or not reported."),
					series(12, "Energy of the node", KWh, "Energy of all GPUs in the last hour, at each point in time.",
						q("{{node}}", total("node", "increase(gpu_energy_joules_total{"+n+"}[1h])")+" / 3.6e6")).from(
						0)),
			}},
			{Title: "Links", Lines: []Line{
				line(8,
					series(12, "PCIe", BytesPS, "Bytes per second received from the host (positive) and sent to it "+
						"(negative).",
						q("GPU {{gpu}} received", perSecond(perGPU, "gpu_pcie_receive_bytes_total{"+n+"}")),
						q("GPU {{gpu}} sent", "-"+perSecond(perGPU, "gpu_pcie_transmit_bytes_total{"+n+"}"))).to(toGPU()),
					series(12, "NVLink", BytesPS,
						"Bytes per second received over all NVLinks (positive) and sent (negative). Empty: no GPU "+
							"has NVLink.",
						q("GPU {{gpu}} received", perSecond(perGPU, "gpu_nvlink_receive_bytes_total{"+n+"}")),
						q("GPU {{gpu}} sent", "-"+perSecond(perGPU, "gpu_nvlink_transmit_bytes_total{"+n+"}"))).to(
						toGPU())),
			}},
			{Title: "Node", Collapsed: true, Lines: []Line{
				line(7,
					table(12, "Software", "Node", "Driver, CUDA and exporter of the node.", label("node", "Node"),
						label("driver_version", "Driver"), label("cuda_version", "CUDA"), label("version", "Exporter"),
						value("GPUs available", Number,
							"(max by (cluster, node, driver_version, cuda_version) (gpu_driver_info{"+n+
								"}) * on (cluster, node) group_left (version) max by (cluster, node, version) "+
								"(gpu_exporter_build_info{"+n+
								"})) * on (cluster, node) group_left () sum by (cluster, node) (gpu_device_up{"+n+
								"})")),
					table(12, "Devices by resource", "Resource",
						"Allocatable and allocated devices, as reported by the kubelet.", label("resource", "Resource"),
						value("Allocatable", Number,
							maximum("cluster, node, resource", "gpu_node_allocatable_devices{"+n+"}")),
						value("Allocated", Number,
							maximum("cluster, node, resource", "gpu_node_allocated_devices{"+n+"}")))),
				line(7,
					table(12, "GPU topology", "GPU", "NUMA node, PCI address and PCIe link width of each GPU.",
						label("gpu", "GPU"), label("numa_node", "NUMA node"), label("pci_bus_id", "PCI"),
						value("PCIe lanes", Plain,
							"max by (cluster, node, uuid, gpu, numa_node, pci_bus_id) (gpu_info{"+n+
								"}) * on (cluster, node, uuid) group_left () max by (cluster, node, uuid) "+
								"(gpu_pcie_link_width{"+n+"})")),
					stat(4, "Schedulable", Plain, "1 - max(kube_node_spec_unschedulable{"+n+"})",
						"Whether the node is not cordoned; needs kube-state-metrics.").mapped(yesNo("yes", Green,
						"cordoned", Amber)...),
					stat(8, "Data sources", Plain, maximum("source", "gpu_exporter_source_up{"+n+"}"),
						"Whether the exporter's data sources are up.").withNames("{{source}}").mapped(yesNo("up", Green,
						"down", Red)...)),
				line(8,
					series(8, "Host CPU", Ratio,
						"CPU utilization of the node; needs node_exporter with the label node.",
						q("{{node}}", `1 - avg by (cluster, node) (rate(node_cpu_seconds_total{`+n+
							`, mode="idle"}[$__rate_interval]))`)).between(0, 1),
					series(8, "Host memory", Ratio, "Used memory of the node; needs node_exporter with the label node.",
						q("{{node}}", "1 - "+over("cluster, node", "node_memory_MemAvailable_bytes{"+n+"}",
							"node_memory_MemTotal_bytes{"+n+"}"))).between(0, 1),
					series(8, "Host network", BytesPS,
						"Bytes per second received (positive) and sent (negative); needs node_exporter with the "+
							"label node.",
						q("received", perSecond("cluster, node",
							`node_network_receive_bytes_total{`+n+`, device!~"lo|veth.*|cali.*|cni.*"}`)),
						q("sent", "-"+perSecond("cluster, node",
							`node_network_transmit_bytes_total{`+n+`, device!~"lo|veth.*|cali.*|cni.*"}`)))),
			}},
		},
	}
}
