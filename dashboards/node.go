package dashboards

// nodeBoard answers: is this node well, who holds its GPUs, and are they used?
func nodeDashboard() Dashboard {
	const n = "<node>"
	GPUInfo := "cluster, node, uuid, gpu, model"
	return Dashboard{
		UID: "gpu-node", Title: "GPU / Node", Raw: true,
		Question:    "Is this node well, who holds its GPUs, and are they used?",
		Vars:        []Variable{datasourceVariable(), clusterVariable("gpu_exporter_build_info"), nodeVariable(false), jobVariable()},
		Annotations: []Annotation{xidAnnotation("node"), restartAnnotation("node"), driverAnnotation("node"), cordonAnnotation("node"), podAnnotation("node")},
		Rows: []Row{
			{Lines: []Line{line(4,
				stat(3, "GPUs readable", Number, total("", "gpu_device_up{"+n+"}"), "GPUs that can be read now. Lower than the expected: a GPU is lost, stuck or needs a reset.").at(plainSteps()...),
				stat(3, "GPUs not readable", Number, total("", `gpu_node_devices{`+n+`, state=~"failed|missing"}`), "GPUs that NVML knows and cannot read (failed), or that are on the PCI bus and not in NVML (missing).").at(badIfAny()...),
				stat(3, "GPUs held", Number, total("", "gpu_allocation_ratio{"+n+"}"), "GPUs that containers hold, parts of GPUs included. GPUs of which nobody can tell are not counted.").digits(2),
				stat(3, "Busy", Ratio, rawBusy("", n), "Mean utilization of the node's GPUs: time in which at least one kernel ran.").between(0, 1).at(usedSteps()...),
				stat(3, "Memory used", Ratio, over("", "gpu_memory_used_bytes{"+n+"}", "gpu_memory_total_bytes{"+n+"}"), "Device memory in use over device memory.").between(0, 1).at(fullSteps()...).ifUp("gpu_device_up{"+n+"}"),
				stat(3, "Power now", Watts, total("", "gpu_power_watts{"+n+"}"), "Power of all GPUs of the node, the driver's average.").ifUp("gpu_device_up{"+n+"}"),
				stat(3, "Margin of heat", Celsius, `min(max by (cluster, node, uuid, sensor) (gpu_temperature_limit_celsius{`+n+`, limit="max_operating"}) - max by (cluster, node, uuid, sensor) (gpu_temperature_celsius{`+n+`}))`,
					"Degrees between the hottest sensor and the end of normal operation that its GPU names; empty where no GPU names one.").at(base(Red), step(0, Amber), step(5, Green)),
				stat(3, "Alerts firing", Number, orZero(firing("", `cluster=~"$cluster"`, `node=~"$node"`), "gpu_exporter_build_info{"+n+"}"), "Alerts of the shipped rules that fire for this node.").at(badIfAny()...),
			)}},
			{Title: "Cards", Lines: []Line{
				line(9, table(24, "GPUs of the node", "GPU", "Every GPU of the node, readable or not. Click a GPU for its board.",
					label("gpu", "GPU").to(toGPUOfNode()).wide(60), label("model", "Model"),
					value("Readable", Plain, maximum(GPUInfo, "gpu_info{"+n+"} * on (cluster, node, uuid) group_left () max by (cluster, node, uuid) (gpu_device_up{"+n+"})")).mapped(yesNo("yes", Green, "no", Red)...).wide(80),
					value("Held", Ratio, maximum(perGPU, "gpu_allocation_ratio{"+n+"}")).wide(80),
					value("Holders", Number, "count by ("+perGPU+") (group by (cluster, node, uuid, gpu, namespace, pod) (gpu_container_allocation_ratio{"+n+"} > 0))").wide(80),
					value("Busy", Ratio, rawBusy(perGPU, n)).gauge(usedSteps()...),
					value("SM active", Ratio, profiled(perGPU, "sm_active", n)).gauge(usedSteps()...),
					value("Memory used", Ratio, over(perGPU, "gpu_memory_used_bytes{"+n+"}", "gpu_memory_total_bytes{"+n+"}")).gauge(fullSteps()...),
					value("Power of limit", Ratio, over(perGPU, "gpu_power_watts{"+n+"}", "gpu_power_limit_watts{"+n+"}")).gauge(plainSteps()...),
					value("Temperature", Celsius, maximum(perGPU, `gpu_temperature_celsius{`+n+`, sensor="gpu"}`)).wide(100),
					value("Slowed down", Ratio, "max by ("+perGPU+`) (rate(gpu_clock_limited_seconds_total{`+n+`, reason!="power_cap"}[$__rate_interval]))`).at(base(Green), step(0.01, Amber), step(0.2, Red)).wide(100),
					value("XIDs in range", Number, total(perGPU, xids(n, "$__range"))).at(badIfAny()...).wide(110),
					value("Last busy", When, "1000 * "+maximum(perGPU, "gpu_last_busy_timestamp_seconds{"+n+"}")).wide(130),
					label("uuid", "UUID"))),
				line(7,
					timeline(24, "What each GPU did", "Busy: work ran in the last 60 s. Held, idle: held and no work. Free: known to be held by nobody. Unknown: nobody can tell who holds it.",
						[]Mapping{{"0", "unreadable", Red}, {"1", "free", Grey}, {"2", "held, idle", Amber}, {"3", "busy", Green}, {"4", "unknown", Purple}},
						q(gpuName, "0 * "+maximum(perGPU, "gpu_device_up{"+n+"} == 0")+
							" or 3 + 0 * "+maximum(perGPU, "gpu_utilization_ratio{"+n+"} > 0.01")+
							" or 1 + 0 * "+maximum(perGPU, "gpu_allocation_ratio{"+n+"} == 0")+
							" or 2 + 0 * "+maximum(perGPU, "gpu_allocation_ratio{"+n+"} > 0")+
							" or 4 + 0 * "+maximum(perGPU, "gpu_device_up{"+n+"}"))).to(toGPU())),
			}},
			{Title: "Use", Lines: []Line{
				line(8,
					series(12, "Utilisation", Ratio, "Time in which at least one kernel ran. It does not say how much of the GPU the kernel used: see SM activity.", q(gpuName, rawBusy(perGPU, n))).between(0, 1).to(toGPU()),
					series(12, "SM activity", Ratio, "Time in which an SM had work, mean over the SMs. Hopper and newer; empty where no GPU has it.", q(gpuName, profiled(perGPU, "sm_active", n))).between(0, 1).to(toGPU())),
				line(8,
					series(12, "Memory in use", Bytes, "Device memory that processes allocated.", q(gpuName, maximum(perGPU, "gpu_memory_used_bytes{"+n+"}"))).from(0).to(toGPU()),
					series(12, "Tensor core activity", Ratio, "Time in which tensor cores were at work. Hopper and newer; empty where no GPU has it.", q(gpuName, profiled(perGPU, "tensor_active", n))).between(0, 1).to(toGPU())),
				line(8,
					series(12, "Who holds the node", Number, "GPUs held by each pod, parts of GPUs included.", q("{{namespace}}/{{pod}}", total("cluster, node, namespace, pod", "gpu_container_allocation_ratio{"+n+"}"))).stacked().from(0),
					series(12, "Where GPU time goes", Number, "GPUs by what their time went into. The bands add up to the GPUs of the node. Idle: held and not busy for 60 s. Underused: held, between work.", q("{{state}}", perSecond("state", "gpu_time_seconds_total{"+n+"}"))).stacked().from(0).colored(timeStateColors())),
			}},
			{Title: "Power, temperature and clocks", Lines: []Line{
				line(8,
					series(8, "Power", Watts, "Mean power, from the energy counter where there is one.", q(gpuName, perSecond(perGPU, "gpu_energy_joules_total{"+n+"}")+" or "+maximum(perGPU, "gpu_power_watts{"+n+"}"))).from(0).to(toGPU()),
					series(8, "Temperature", Celsius, "Temperature of the GPU, and of its memory where there is a sensor.", q(gpuName+" {{sensor}}", maximum(perGPU+", sensor", "gpu_temperature_celsius{"+n+"}"))).to(toGPU()),
					series(8, "SM clock", Hertz, "Clock of the SMs now.", q(gpuName, maximum(perGPU, `gpu_clock_hertz{`+n+`, clock="sm"}`))).from(0).to(toGPU())),
				line(8,
					series(12, "Time with clocks held down", Ratio, "Part of the time in which a reason held clocks down, by GPU. Power cap is normal under load; thermal reasons and the power brake are not.", q(gpuName+" {{reason}}", perSecond(perGPU+", reason", "gpu_clock_limited_seconds_total{"+n+"}")+" > 0.001")).between(0, 1).to(toGPU()),
					series(12, "Energy of the node", KWh, "Energy of all GPUs over the range that is shown, running sum per hour: a kilowatt drawn for an hour is 1 kWh.", q("{{node}}", total("node", "increase(gpu_energy_joules_total{"+n+"}[1h])")+" / 3.6e6")).from(0).over("A figure per hour is only that over an hour.")),
			}},
			{Title: "Links", Lines: []Line{
				line(8,
					series(12, "PCIe", BytesPS, "Bytes that GPUs received from the host (positive) and sent to it (negative).",
						q(gpuName+" received", perSecond(perGPU, "gpu_pcie_receive_bytes_total{"+n+"}")), q(gpuName+" sent", "-"+perSecond(perGPU, "gpu_pcie_transmit_bytes_total{"+n+"}"))).to(toGPU()),
					series(12, "NVLink", BytesPS, "Bytes that GPUs received over all their NVLinks (positive) and sent (negative). Empty: no GPU has NVLink.",
						q(gpuName+" received", perSecond(perGPU, "gpu_nvlink_receive_bytes_total{"+n+"}")), q(gpuName+" sent", "-"+perSecond(perGPU, "gpu_nvlink_transmit_bytes_total{"+n+"}"))).to(toGPU())),
			}},
			{Title: "The node around its GPUs", Collapsed: true, Lines: []Line{
				line(7,
					table(12, "Software", "Node", "Driver, CUDA and exporter of the node.", label("node", "Node"), label("driver_version", "Driver"), label("cuda_version", "CUDA"), label("version", "Exporter"),
						value("GPUs readable", Number, "(max by (cluster, node, driver_version, cuda_version) (gpu_driver_info{"+n+"}) * on (cluster, node) group_left (version) max by (cluster, node, version) (gpu_exporter_build_info{"+n+"})) * on (cluster, node) group_left () sum by (cluster, node) (gpu_device_up{"+n+"})")),
					table(12, "Devices by the kubelet's count", "Resource", "What the kubelet can give out, and has.", label("resource", "Resource"),
						value("Allocatable", Number, maximum("cluster, node, resource", "gpu_node_allocatable_devices{"+n+"}")), value("Held", Number, maximum("cluster, node, resource", "gpu_node_allocated_devices{"+n+"}")))),
				line(7,
					table(12, "Place of the GPUs", "GPU", "Where each GPU sits: NUMA node and PCI address, and the width of its link.", label("gpu", "GPU"), label("numa_node", "NUMA node"), label("pci_bus_id", "PCI"),
						value("PCIe lanes", Plain, "max by (cluster, node, uuid, gpu, numa_node, pci_bus_id) (gpu_info{"+n+"}) * on (cluster, node, uuid) group_left () max by (cluster, node, uuid) (gpu_pcie_link_width{"+n+"})")),
					stat(4, "Takes new pods", Plain, "1 - max(kube_node_spec_unschedulable{"+n+"})", "Whether the node is open for new pods; needs kube-state-metrics, empty without it.").mapped(yesNo("yes", Green, "cordoned", Amber)...),
					stat(8, "Sources that answer", Plain, maximum("source", "gpu_exporter_source_up{"+n+"}"), "Whether the exporter's sources of facts answer.").withNames("{{source}}").mapped(yesNo("up", Green, "down", Red)...)),
				line(8,
					series(8, "Host CPU", Ratio, "CPU of the node in use, from node-exporter; empty without it or where its series have no label node.", q("{{node}}", `1 - avg by (cluster, node) (rate(node_cpu_seconds_total{`+n+`, mode="idle"}[$__rate_interval]))`)).between(0, 1),
					series(8, "Host memory", Ratio, "Memory of the node in use, from node-exporter; empty without it or where its series have no label node.", q("{{node}}", "1 - "+over("cluster, node", "node_memory_MemAvailable_bytes{"+n+"}", "node_memory_MemTotal_bytes{"+n+"}"))).between(0, 1),
					series(8, "Host network", BytesPS, "Network of the node, received and sent, from node-exporter; empty without it or where its series have no label node.",
						q("received", perSecond("cluster, node", `node_network_receive_bytes_total{`+n+`, device!~"lo|veth.*|cali.*|cni.*"}`)), q("sent", "-"+perSecond("cluster, node", `node_network_transmit_bytes_total{`+n+`, device!~"lo|veth.*|cali.*|cni.*"}`)))),
				line(7, alertTable(24, `cluster=~"$cluster"`, `node=~"$node"`)),
			}},
		},
	}
}
