package alerts

func exporter() []Alert {
	dashboard := Dashboard{dashboardExporter, []string{"node"}}
	return []Alert{
		{Name: "GPUExporterDown", Severity: Critical, Labels: []string{"job", "instance"}, For: minutes5, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Expr:    `max by (cluster, job, instance) (up{job=~"` + jobRE + `"}) == 0`,
			Summary: "An exporter cannot be scraped.",
			Description: "{{ $labels.instance }} of {{ $labels.job }} cannot be scraped: nobody watches the GPUs there. " +
				"Look at its pod and log on that node; if the pod runs, check the network policy and the port."},
		{Name: "GPUExporterAbsent", Severity: Critical, For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Expr:    `absent(up{job=~"` + jobRE + `"})`,
			Summary: "No exporter is scraped at all.",
			Description: "Prometheus has no target whose job matches " + jobRE + ". " +
				"Check that the DaemonSet exists and that PodMonitor or scrape configuration select it; set the job selector of these rules if the job has another name."},
		{Name: "GPUExporterMissingOnNode", Severity: Critical, Needs: kubeStateMetrics, Labels: []string{"node"}, For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Expr: `sum by (cluster, node) (kube_node_status_capacity{resource=~"` + resourceRE + `"}) > 0
  unless on (cluster, node) gpu_exporter_build_info
  unless on (cluster, node) (kube_node_status_condition{condition="Ready",status="true"} == 0)`,
			Summary: "A node with GPUs has no exporter.",
			Description: "{{ $labels.node }} offers " + value3 + " GPUs, and no exporter tells of them. " +
				"Check the DaemonSet's node selector and tolerations, and whether its pod starts there."},
		{Name: "GPUDriverDown", Severity: Critical, Labels: []string{"node"}, For: minutes5, Keep: minutes5, Dashboard: nodeDashboard,
			Expr:    `max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 0`,
			Summary: "The GPU driver of a node does not answer.",
			Description: "NVML cannot be used on {{ $labels.node }}: the driver is not loaded, does not match its library, or hangs. " +
				"Run nvidia-smi there; after a driver upgrade restart the node or the driver pod."},
		{Name: "GPUExporterSourceDown", Severity: Warning, Labels: []string{"node", "source"}, For: minutes10, Keep: minutes5, Dashboard: dashboard,
			Expr:    `max by (cluster, node, source) (gpu_exporter_source_up{source!="nvml"}) == 0`,
			Summary: "An exporter lacks one of its sources of facts.",
			Description: "Source {{ $labels.source }} does not answer on {{ $labels.node }}; what it tells is missing there. " +
				"podresources: is the kubelet's socket mounted and the exporter root? kmsg: may it read /dev/kmsg? The exporter's log names the error."},
		{Name: "GPUExporterPollStuck", Severity: Warning, Labels: append([]string{"poll"}, gpuLabels...), For: minutes5, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("intervals", 5, 2, 1000, "intervals of the poll group without a reading")},
			Expr: `(time() - max by (cluster, node, uuid, gpu, poll) (gpu_last_read_timestamp_seconds)
    > on (cluster, node, poll) group_left () ($intervals * max by (cluster, node, poll) (gpu_exporter_poll_interval_seconds) + 30))
  and on (` + onGPU + `) gpu_device_up == 1
  unless on (cluster, node) gpu_exporter_paused == 1`,
			Summary: "Readings of a GPU have stopped.",
			Description: "The {{ $labels.poll }} poll group has not read " + atGPU + " for {{ $value | humanizeDuration }}. " +
				"A driver call may hang, which often comes before a fault of the GPU: read dmesg on the node, and do not restart the exporter in a loop."},
		{Name: "GPUExporterSlow", Severity: Warning, Labels: []string{"node", "poll"}, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    "max by (cluster, node, poll) (gpu_exporter_poll_duration_seconds / on (cluster, node, poll) gpu_exporter_poll_interval_seconds) > 1",
			Summary: "An exporter does not keep up with its own rhythm.",
			Description: "A round of the {{ $labels.poll }} poll group on {{ $labels.node }} takes {{ printf \"%.1f\" $value }} times its interval. " +
				"The driver answers slowly: see which call on the exporter's dashboard, turn on persistence mode, or lengthen the interval of the poll group."},
		{Name: "GPUExporterScrapeSlow", Severity: Warning, Labels: []string{"job", "instance"}, For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Parameters: []Parameter{number("seconds", 5, 0.01, 600, "duration of a scrape")},
			Expr:       `max by (cluster, job, instance) (scrape_duration_seconds{job=~"` + jobRE + `"}) > $seconds`,
			Summary:    "Scrapes of an exporter take long.",
			Description: "A scrape of {{ $labels.instance }} takes {{ $value | humanizeDuration }}. The exporter renders from memory, so the network or a starved CPU is to blame. " +
				"Look for CPU throttling of its container and load of the node."},
		{Name: "GPUExporterNVMLErrors", Severity: Warning, Labels: []string{"node", "call", "code"}, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("errors", 10, 0, 1e6, "failed calls within 15 minutes")},
			Expr:       "sum by (cluster, node, call, code) (increase(gpu_exporter_call_errors_total[15m])) > $errors",
			Summary:    "Driver calls fail.",
			Description: "{{ $labels.call }} failed " + value3 + " times in 15 minutes on {{ $labels.node }} with {{ $labels.code }}. Readings are missing. " +
				"The exporter's log names the GPU; a code such as GPU_IS_LOST or TIMEOUT means that the GPU needs care."},
		{Name: "GPUExporterRejectedValues", Severity: Info, Labels: []string{"node", "reading"}, Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{period(hour, "time over which values are counted"), number("values", 3, 0, 1e6, "impossible values within the window")},
			Expr:       "sum by (cluster, node, reading) (increase(gpu_exporter_rejected_values_total[$period])) > $values",
			Summary:    "The driver gives values that cannot be true.",
			Description: "{{ $labels.reading }} on {{ $labels.node }} was impossible " + value3 + " times within $period and was left out. " +
				"Compare with nvidia-smi; a newer driver usually mends it."},
		{Name: "GPUExporterJoinBroken", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"node"}, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr: `sum by (cluster, node) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `",node!=""}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Running"} == 1)) > 0
  unless on (cluster, node) gpu_container_allocation_ratio
  and on (cluster, node) gpu_exporter_build_info`,
			Summary: "An exporter does not see which pods hold GPUs.",
			Description: "Pods that run on {{ $labels.node }} hold " + value3 + " GPUs, and the exporter knows of none. " +
				"Check that /var/lib/kubelet/pod-resources is mounted, that it is the kubelet's true root, and gpu_exporter_source_up of podresources."},
		{Name: "GPUExporterJoinPartial", Severity: Warning, Labels: []string{"node", "resource"}, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    "sum by (cluster, node, resource) (gpu_container_unresolved_devices) > 0",
			Summary: "The GPUs of some pods cannot be told.",
			Description: value3 + " devices of {{ $labels.resource }} on {{ $labels.node }} have ids from which no GPU can be told, so no GPU of the node counts as free. " +
				"The landing page names them; a sharing scheme of that kind may need the device checkpoint or the pod annotations as a source."},
		{Name: "GPUAttributionError", Severity: Warning, Labels: append([]string{"quantity"}, gpuLabels...), For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 0.01, 0.0001, 1, "part of the GPU's figure that is missing or too much")},
			Expr:       "max by (cluster, node, uuid, gpu, quantity) (gpu_attribution_error_ratio) > $ratio",
			Summary:    "What pods used does not add up to what the GPU did.",
			Description: "The {{ $labels.quantity }} of the containers on " + atGPU + " misses the GPU's own figure by " + asPercent + ". " +
				"Figures of those pods are wrong by as much. For memory the driver's lists may disagree; for the rest it is a bug: please report it with a recording."},
		{Name: "GPUExporterPaused", Severity: Warning, Labels: []string{"node", "reason"}, For: minutes10, Keep: minutes5, Dashboard: dashboard,
			Expr:    "max by (cluster, node, reason) (gpu_exporter_paused) == 1",
			Summary: "An exporter has let go of the driver and does not come back.",
			Description: "The exporter of {{ $labels.node }} has let go of NVML for {{ $labels.reason }} for longer than any change should take. " +
				"Look at its log and at whoever changes the GPUs (MIG manager, driver upgrade); restart the exporter's pod if nobody does."},
		{Name: "GPUDriverVersionSkew", Severity: Info, Labels: []string{"model"}, For: 6 * hour, Keep: hour, Dashboard: Dashboard{dashboardHealth, nil},
			Expr: `count by (cluster, model) (group by (cluster, model, driver_version) (
  group by (cluster, node, model) (gpu_info) * on (cluster, node) group_left (driver_version) group by (cluster, node, driver_version) (gpu_driver_info)
)) > 1`,
			Summary: "Nodes with the same GPUs run different drivers.",
			Description: "{{ $labels.model }} runs under " + value3 + " driver versions. A half-finished upgrade leaves work that behaves differently from node to node. " +
				"Finish or undo it; the health dashboard lists nodes by version."},
	}
}
