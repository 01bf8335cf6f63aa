package alerts

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// nodeOfTarget is whether targets are up, with the node that each reported last; the shipped scrape objects set instance to its
// name, which is used of a target that was never up.
func nodeOfTarget(up string) string {
	const target = "cluster, job, instance"
	all := "max by (" + target + ") (" + up + ")"
	return "(" + all + " * on (" + target + ") group_left (node) topk by (" + target + ") (1, last_over_time(" + targetRecord +
		"[2d]))\n  or on (" + target + ") label_replace(" + all + `, "node", "$1", "instance", "([^:]+).*"))`
}

const targets = `up{job=~"` + jobRE + `"}`

// mostDown are the jobs whose targets are down for the most part; otherCluster are nodes whose exporter has another cluster's
// name than kube-state-metrics has for the node.
const (
	mostDown = "((count by (cluster, job) (avg_over_time(" + targets + "[15m]) < 0.5) > 4) / count by (cluster, job) (" + targets +
		") > 0.5)"
	otherCluster = "(group by (cluster, node) (gpu_exporter_build_info) and on (node) kube_node_status_capacity{resource=~\"" +
		resourceRE + "\"}\n    unless on (cluster, node) kube_node_status_capacity)"
	// otherNamespace are pods that kube-state-metrics has in another namespace alone.
	otherNamespace = "group by (cluster, namespace, pod) (gpu_container_allocation_ratio)\n      unless on (cluster, namespace, pod) " +
		"kube_pod_status_phase and on (cluster, pod) kube_pod_status_phase"
)

func exporter() []Alert {
	return []Alert{
		{Name: "GPUExporterDown", Severity: Critical, Needs: kubeOptional, Labels: []string{"job", "instance", "node"},
			For: minutes10, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			// An exporter that crashes again and again is up now and then. A bad rollout is one page.
			Expr: nodeOfTarget("avg_over_time("+targets+"[15m])") + " < 0.5" + closedNodes +
				"\n  unless on (cluster, job) " + mostDown,
			Summary: "An exporter cannot be scraped.",
			Description: "{{ $labels.instance }} of {{ $labels.job }} cannot be scraped: its GPUs are not monitored. " +
				"Check its pod and log on that node; if the pod is running, check the network policy and the port."},
		{Name: "GPUExporterAbsent", Severity: Critical, For: minutes15, Keep: minutes5,
			Dashboard: Dashboard{dashboardExporter, nil},
			Needs:     "kube-state-metrics to find one of several clusters without exporters",
			Expr: `absent(up{job=~"` + jobRE + `"})
  or group by (cluster) (` + withoutRecord + `) unless on (cluster) ` + targets + ` and on () ` + targets + `
  or group by (cluster) (` + mostDown + ")",
			Summary: "No exporter is scraped, or most of a cluster's are down.",
			Description: "Prometheus has no target of the exporter, or none of a cluster, or most of " +
				"its targets, at least five, are down. " +
				"Check that the DaemonSet exists and that the PodMonitor or scrape configuration selects it; set the " +
				"job selector of these rules if the job has another name."},
		{Name: "GPUExporterMissingOnNode", Severity: Critical, Needs: kubeStateMetrics, Labels: []string{"node"},
			For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			// A cluster without any exporter is one page.
			Expr:    withoutRecord + " and on (cluster) " + targets,
			Summary: "A GPU node has no exporter.",
			Description: "{{ $labels.node }} offers " + value3 + " GPUs, but no exporter reports them. " +
				"Check the DaemonSet's node selector and tolerations, and whether its pod starts there."},
		{Name: "GPUDriverDown", Severity: Critical, Needs: kubeOptional, Labels: []string{"node"}, For: minutes5,
			Keep: minutes5, Dashboard: nodeDashboard,
			Parameters: []Parameter{period(30*minute, "time that the driver of a new node has to be installed")},
			Expr: `(max by (cluster, node) (gpu_exporter_source_up{source="nvml"}) == 0 and on (cluster, node) ` +
				`max by (cluster, node) (max_over_time(gpu_exporter_source_up{source="nvml"}[6h:10m])) == 1
  or max by (cluster, node) (max_over_time(gpu_exporter_source_up{source="nvml"}[$period])) == 0 and on (cluster, node) ` +
				`gpu_exporter_source_up{source="nvml"} offset $period)` + closedNodes,
			Summary: "The GPU driver of a node does not respond.",
			Description: "NVML is unavailable on {{ $labels.node }}: the driver is not loaded, does not match its " +
				"library, or is hung. Run nvidia-smi there; after a driver upgrade restart the node or the driver " +
				"pod."},
	}
}

// exporterState are alerts about exporters that are scraped, and about what is scraped beside them.
func exporterState() []Alert {
	dashboard := Dashboard{dashboardExporter, []string{"node"}}
	return []Alert{
		{Name: "GPUExporterSourceDown", Severity: Warning, Labels: []string{"node", "source"}, For: minutes10,
			Keep: minutes5, Dashboard: dashboard,
			Expr: `max by (cluster, node, source) (gpu_exporter_source_up{source!="nvml"}) == 0` +
				"\n  unless on (cluster, node, source) " +
				catalog.NeverRead(""),
			Summary: "A data source of an exporter is down.",
			Description: "Data source {{ $labels.source }} fails on {{ $labels.node }}; the metrics from it are " +
				"missing. podresources: check that the kubelet's socket is mounted and the exporter runs as root. " +
				"kmsg: check that it may still read /dev/kmsg. The exporter's log has the error."},
		{Name: "GPUExporterPollStuck", Severity: Warning, Labels: gpuLabels, For: minutes5,
			Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("intervals", 5, 2, 1000, "intervals of the poll group without a reading")},
			// A reading is as old as its sample, clocks differ, and evaluations come at any time: a reading that stays the same counts.
			Expr: `max by (cluster, node, uuid, gpu) (timestamp(gpu_last_read_timestamp_seconds) - gpu_last_read_timestamp_seconds
    > on (cluster, node, poll) group_left () ($intervals * max by (cluster, node, poll) (gpu_exporter_poll_interval_seconds) + 30)
  and gpu_last_read_timestamp_seconds == gpu_last_read_timestamp_seconds offset 5m)
  and on (` + onGPU + `) gpu_device_up == 1
  unless on (cluster, node) gpu_exporter_paused == 1`,
			Summary: "A GPU is no longer polled.",
			Description: "A poll group has not read " + atGPU +
				" for {{ $value | humanizeDuration }}. A driver call may be hung, which often precedes a GPU fault: " +
				"read dmesg on the node, and do not restart the exporter repeatedly."},
		{Name: "GPUExporterNVMLErrors", Severity: Warning, Labels: []string{"node", "call", "code"}, For: minutes15,
			Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("errors", 10, 0, 1e6, "failed calls within 15 minutes")},
			// A GPU that is lost has an alert of its own.
			Expr: `sum by (cluster, node, call, code) (increase(gpu_exporter_call_errors_total{code!~"GPU_IS_LOST|RESET_REQUIRED"}[15m]))` +
				" > $errors\n" +
				`  or label_replace(label_replace(sum by (cluster, node) (increase(gpu_exporter_panics_total[1h])), "code", "panic",` +
				` "", ""), "call", "any", "", "") > 0`,
			Summary: "Driver calls fail.",
			Description: `{{ if eq $labels.code "panic" }}The exporter of {{ $labels.node }} has panicked while it read the driver; the ` +
				"GPU counts as failed until its next successful poll. Please report it with the stack trace of its log.{{ else }}" +
				"{{ $labels.call }} failed " + value3 +
				" times in 15 minutes on {{ $labels.node }} with {{ $labels.code }}. Metrics are missing. The " +
				"exporter's log names the GPU; codes such as TIMEOUT indicate a GPU fault.{{ end }}"},
		{Name: "GPUAllocationUnknown", Severity: Warning,
			Needs:  "kube-state-metrics where the exporter reports no allocation at all",
			Labels: []string{"node"}, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			// Without the kubelet's socket or the driver nothing is known, which is an alert of its own.
			Expr: `(sum by (cluster, node) (gpu_container_unresolved_devices) > 0
  or sum by (cluster, node) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `",node!=""}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Running"} == 1)) > 0
    unless on (cluster, node) gpu_container_allocation_ratio
    and on (cluster, node) gpu_exporter_build_info)
  unless on (cluster, node) gpu_exporter_source_up{source=~"nvml|podresources"} == 0`,
			Summary: "The allocation of GPUs to pods is not known.",
			Description: value3 + " devices allocated on {{ $labels.node }} could not be resolved to GPUs: no GPU of " +
				"the node is reported as unallocated. The node page lists them. Check that " +
				"/var/lib/kubelet/pod-resources is mounted, and whether the sharing scheme needs the device " +
				"checkpoint or pod annotations as a data source."},
		{Name: "GPUAttributionError", Severity: Warning, Labels: append([]string{"quantity"}, gpuLabels...),
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 0.01, 0.0001, 1, "relative difference to the GPU's total")},
			Expr:       "max by (cluster, node, uuid, gpu, quantity) (gpu_attribution_error_ratio > $ratio)",
			Summary:    "The usage of containers does not add up to the GPU's total.",
			Description: "The {{ $labels.quantity }} of the containers on " + atGPU +
				" differs from the GPU's total by " + asPercent + ". " +
				"The metrics of those pods are wrong by that much. For memory, the driver's process lists may be " +
				"inconsistent; otherwise, also for time, which are the states of gpu_time_seconds_total, it is a bug: please " +
				"report it with a recording."},
		{Name: "GPUScrapeMisconfigured", Severity: Warning, Needs: "kube-state-metrics to compare cluster labels",
			Labels: []string{"node", "problem"}, For: minutes15, Keep: minutes5, Dashboard: Dashboard{dashboardExporter, nil},
			// Nodes whose cluster differs are one alert: topk would choose another of them at each evaluation.
			Expr: `label_replace(max by (cluster, node) (count by (` + onGPU +
				`, gpu) (gpu_device_up)) > 1, "problem", "scraped_twice", "", "")
  or label_replace(count by (cluster, node) (gpu_container_allocation_ratio{exported_pod!=""}), "problem", "labels_not_honored", "", "")
  or label_replace(label_replace(count by (cluster) ` + otherCluster + `, "problem", "cluster_differs", "", "")
    or label_replace(count by (cluster) (` + otherNamespace + `), "problem", "namespace_enforced", "", ""), "node", "any", "", "")`,
			Summary: "The exporter of a node is scraped in a way that makes sums wrong.",
			Description: `{{ if eq $labels.problem "scraped_twice" }}Each GPU of {{ $labels.node }} is scraped ` +
				value3 +
				` times: sums of GPUs are too high. Remove one of the scrape configurations, or query one replica of ` +
				`Prometheus.{{ else if eq $labels.problem "cluster_differs" }}kube-state-metrics reports ` + value3 +
				` nodes with exporters in another cluster: nothing of the two can be joined. Give both targets the same cluster ` +
				`label.{{ else if eq $labels.problem "namespace_enforced" }}` + value3 + ` pods with GPUs have a namespace in which ` +
				`kube-state-metrics has no such pod: all namespaces seem to be one. Exclude the exporter's PodMonitor from ` +
				`enforcedNamespaceLabel (excludedFromEnforcement of the Prometheus object).{{ else }}` +
				`The pod labels of {{ $labels.node }} are those of the exporter's own pod: all GPUs seem ` +
				`allocated to it. Set honor_labels: true.{{ end }}`},
		{Name: "GPURecordsAbsent", Severity: Warning, Labels: nil, For: minutes10, Keep: minutes5,
			Dashboard: Dashboard{dashboardExporter, nil},
			Expr: "count by (cluster) (group by (cluster, node) (gpu_exporter_build_info)) unless on (cluster) " +
				"cluster:gpu_nodes:count",
			Summary: "Exporters are scraped, but the recording rules are not evaluated.",
			Description: value3 + " nodes report GPUs, and there are no records of them: dashboards above node level " +
				"and some alerts are empty. Load the recording rules, and look for failed evaluations " +
				"(prometheus_rule_evaluation_failures_total)."},
		{Name: "GPUExporterPaused", Severity: Warning, Labels: []string{"node", "reason"}, For: minutes10,
			Keep: minutes5, Dashboard: dashboard,
			Expr:    `max by (cluster, node, reason) (gpu_exporter_paused{reason!="runtime_suspend"}) == 1`,
			Summary: "The exporter has kept NVML shut down for too long.",
			Description: "The exporter of {{ $labels.node }} has kept NVML shut down for {{ $labels.reason }} longer " +
				"than such a change should take. Check its log and the component that reconfigures the GPUs (MIG " +
				"manager, driver upgrade); restart the exporter's pod if there is none."},
	}
}
