package alerts

func exporter() []Alert {
	dashboard := Dashboard{dashboardExporter, []string{"node"}}
	return []Alert{
		{Name: "GPUExporterDown", Severity: Critical, Labels: []string{"job", "instance"}, For: minutes5,
			Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Expr:    `max by (cluster, job, instance) (up{job=~"` + jobRE + `"}) == 0`,
			Summary: "An exporter cannot be scraped.",
			Description: "{{ $labels.instance }} of {{ $labels.job }} cannot be scraped: its GPUs are not monitored. " +
				"Check its pod and log on that node; if the pod is running, check the network policy and the port."},
		{Name: "GPUExporterAbsent", Severity: Critical, For: minutes15, Keep: minutes5,
			Dashboard: Dashboard{dashboardExporter, nil},
			Expr:      `absent(up{job=~"` + jobRE + `"})`,
			Summary:   "No exporter is scraped.",
			Description: "Prometheus has no target whose job matches " + jobRE + ". " +
				"Check that the DaemonSet exists and that the PodMonitor or scrape configuration selects it; set the " +
				"job selector of these rules if the job has another name."},
		{Name: "GPUExporterMissingOnNode", Severity: Critical, Needs: kubeStateMetrics, Labels: []string{"node"},
			For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Expr: `sum by (cluster, node) (kube_node_status_capacity{resource=~"` + resourceRE + `"}) > 0
  unless on (cluster, node) gpu_exporter_build_info
  unless on (cluster, node) (kube_node_status_condition{condition="Ready",status="true"} == 0)`,
			Summary: "A GPU node has no exporter.",
			Description: "{{ $labels.node }} offers " + value3 + " GPUs, but no exporter reports them. " +
				"Check the DaemonSet's node selector and tolerations, and whether its pod starts there."},
		{Name: "GPUDriverDown", Severity: Critical, Labels: []string{"node"}, For: minutes5, Keep: minutes5,
			Dashboard: nodeDashboard,
			Expr:      `max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 0`,
			Summary:   "The GPU driver of a node does not respond.",
			Description: "NVML is unavailable on {{ $labels.node }}: the driver is not loaded, does not match its " +
				"library, or is hung. " +
				"Run nvidia-smi there; after a driver upgrade restart the node or the driver pod."},
		{Name: "GPUExporterSourceDown", Severity: Warning, Labels: []string{"node", "source"}, For: minutes10,
			Keep: minutes5, Dashboard: dashboard,
			Expr:    `max by (cluster, node, source) (gpu_exporter_source_up{source!="nvml"}) == 0`,
			Summary: "A data source of an exporter is down.",
			Description: "Data source {{ $labels.source }} fails on {{ $labels.node }}; the metrics from it are " +
				"missing. " +
				"podresources: check that the kubelet's socket is mounted and the exporter runs as root. kmsg: check " +
				"that it may read /dev/kmsg. The exporter's log has the error."},
		{Name: "GPUExporterPollStuck", Severity: Warning, Labels: append([]string{"poll"}, gpuLabels...), For: minutes5,
			Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("intervals", 5, 2, 1000, "intervals of the poll group without a reading")},
			Expr: `(time() - max by (cluster, node, uuid, gpu, poll) (gpu_last_read_timestamp_seconds)
    > on (cluster, node, poll) group_left () ($intervals * max by (cluster, node, poll) (gpu_exporter_poll_interval_seconds) + 30))
  and on (` + onGPU + `) gpu_device_up == 1
  unless on (cluster, node) gpu_exporter_paused == 1`,
			Summary: "A GPU is no longer polled.",
			Description: "The {{ $labels.poll }} poll group has not read " + atGPU +
				" for {{ $value | humanizeDuration }}. " +
				"A driver call may be hung, which often precedes a GPU fault: read dmesg on the node, and do not " +
				"restart the exporter repeatedly."},
		{Name: "GPUExporterSlow", Severity: Warning, Labels: []string{"node", "poll"}, For: minutes15, Keep: minutes5,
			Dashboard: dashboard,
			Expr: "max by (cluster, node, poll) (gpu_exporter_poll_duration_seconds / on (cluster, node, poll) " +
				"gpu_exporter_poll_interval_seconds) > 1",
			Summary: "The exporter cannot complete a poll within its interval.",
			Description: "A poll of the {{ $labels.poll }} poll group on {{ $labels.node }} takes {{ printf \"%.1f\" " +
				"$value }} times its interval. " +
				"The driver responds slowly: find the call on the exporter's dashboard, enable persistence mode, or " +
				"increase the poll interval."},
		{Name: "GPUExporterScrapeSlow", Severity: Warning, Labels: []string{"job", "instance"}, For: minutes15,
			Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			Parameters: []Parameter{number("seconds", 5, 0.01, 600, "duration of a scrape")},
			Expr:       `max by (cluster, job, instance) (scrape_duration_seconds{job=~"` + jobRE + `"}) > $seconds`,
			Summary:    "Scrapes of an exporter are slow.",
			Description: "A scrape of {{ $labels.instance }} takes {{ $value | humanizeDuration }}. The exporter " +
				"renders from memory, so the cause is the network or a lack of CPU. " +
				"Check for CPU throttling of its container and the load of the node."},
		{Name: "GPUExporterNVMLErrors", Severity: Warning, Labels: []string{"node", "call", "code"}, For: minutes15,
			Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("errors", 10, 0, 1e6, "failed calls within 15 minutes")},
			Expr:       "sum by (cluster, node, call, code) (increase(gpu_exporter_call_errors_total[15m])) > $errors",
			Summary:    "Driver calls fail.",
			Description: "{{ $labels.call }} failed " + value3 +
				" times in 15 minutes on {{ $labels.node }} with {{ $labels.code }}. Metrics are missing. " +
				"The exporter's log names the GPU; codes such as GPU_IS_LOST or TIMEOUT indicate a GPU fault."},
		{Name: "GPUExporterRejectedValues", Severity: Info, Labels: []string{"node", "reading"}, Keep: minutes15,
			Dashboard: dashboard,
			Parameters: []Parameter{period(hour, "period in which values are counted"),
				number("values", 3, 0, 1e6, "implausible values in the period")},
			Expr: "sum by (cluster, node, reading) (increase(gpu_exporter_rejected_values_total[$period])) > " +
				"$values",
			Summary: "The driver reports implausible values.",
			Description: "{{ $labels.reading }} on {{ $labels.node }} was implausible " + value3 +
				" times within $period and was dropped. " +
				"Compare with nvidia-smi; a newer driver usually fixes it."},
		{Name: "GPUExporterJoinBroken", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"node"},
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr: `sum by (cluster, node) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `",node!=""}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Running"} == 1)) > 0
  unless on (cluster, node) gpu_container_allocation_ratio
  and on (cluster, node) gpu_exporter_build_info`,
			Summary: "An exporter does not report the GPU allocations of pods.",
			Description: "" + value3 + " GPUs are allocated to running pods on {{ $labels.node }}, but the exporter " +
				"reports none. " +
				"Check that /var/lib/kubelet/pod-resources is mounted, that it is below the kubelet's root " +
				"directory, and gpu_exporter_source_up of podresources."},
		{Name: "GPUExporterJoinPartial", Severity: Warning, Labels: []string{"node", "resource"}, For: minutes15,
			Keep: minutes5, Dashboard: dashboard,
			Expr:    "sum by (cluster, node, resource) (gpu_container_unresolved_devices) > 0",
			Summary: "Device IDs of some pods could not be resolved to GPUs.",
			Description: value3 + " devices of {{ $labels.resource }} on {{ $labels.node }} could not be resolved to " +
				"GPUs, so that no GPU of the node is reported as unallocated. " +
				"The landing page lists them; the sharing scheme may need the device checkpoint or pod annotations " +
				"as a data source."},
		{Name: "GPUAttributionError", Severity: Warning, Labels: append([]string{"quantity"}, gpuLabels...),
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 0.01, 0.0001, 1, "relative difference to the GPU's total")},
			Expr:       "max by (cluster, node, uuid, gpu, quantity) (gpu_attribution_error_ratio) > $ratio",
			Summary:    "The usage of containers does not add up to the GPU's total.",
			Description: "The {{ $labels.quantity }} of the containers on " + atGPU +
				" differs from the GPU's total by " + asPercent + ". " +
				"The metrics of those pods are wrong by that much. For memory, the driver's process lists may be " +
				"inconsistent; otherwise it is a bug: please report it with a recording."},
		{Name: "GPUExporterPaused", Severity: Warning, Labels: []string{"node", "reason"}, For: minutes10,
			Keep: minutes5, Dashboard: dashboard,
			Expr:    "max by (cluster, node, reason) (gpu_exporter_paused) == 1",
			Summary: "The exporter has kept NVML shut down for too long.",
			Description: "The exporter of {{ $labels.node }} has kept NVML shut down for {{ $labels.reason }} longer " +
				"than such a change should take. " +
				"Check its log and the component that reconfigures the GPUs (MIG manager, driver upgrade); restart " +
				"the exporter's pod if there is none."},
		{Name: "GPUDriverVersionSkew", Severity: Info, Labels: []string{"model"}, For: 6 * hour, Keep: hour,
			Dashboard: Dashboard{dashboardHealth, nil},
			Expr: `count by (cluster, model) (group by (cluster, model, driver_version) (
  group by (cluster, node, model) (gpu_info)
    * on (cluster, node) group_left (driver_version) group by (cluster, node, driver_version) (gpu_driver_info)
)) > 1`,
			Summary: "Nodes with the same GPU model run different driver versions.",
			Description: "{{ $labels.model }} runs with " + value3 +
				" driver versions. During an incomplete upgrade, applications may behave differently from node to " +
				"node. " +
				"Complete or roll back the upgrade; the health dashboard lists nodes by version."},
	}
}
