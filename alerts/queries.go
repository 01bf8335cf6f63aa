package alerts

import (
	"regexp"
	"slices"
	"strings"
)

// Query is a query of a runbook: while its alert fires it returns the faulty object and little else.
type Query struct {
	Shows string
	// Expr is PromQL in which $label stands for the matcher of a label of the alert, $gpu for those of node and uuid, $pod for those
	// of namespace and pod, and $workload for those of namespace, workload_type and workload.
	Expr string
}

var matcher = regexp.MustCompile(`\$[a-z_]+`)

// With returns the query for the values of an alert's labels.
func (q Query) With(value func(label string) string) string {
	return matcher.ReplaceAllStringFunc(q.Expr, func(name string) string {
		labels := []string{name[1:]}
		switch name {
		case "$gpu":
			labels = []string{"node", "uuid"}
		case "$pod":
			labels = []string{"namespace", "pod"}
		case "$workload":
			labels = []string{"namespace", "workload_type", "workload"}
		}
		for i, l := range labels {
			labels[i] = l + `="` + value(l) + `"`
		}
		return strings.Join(labels, ",")
	})
}

// beyondDefaults are the metrics of queries that an installation with default settings lacks, at least in part. XIDs that
// need the kernel log are named in the page's introduction.
var beyondDefaults = []struct{ metric, needs string }{
	{"gpu_container_memory_used_bytes", "on shared GPUs `features.processes` or `features.containerMemory`"},
	{"gpu_container_mismatch", "`features.processes`"},
	{"gpu_nvlink_link_errors_total", "`exporter.linkDetails`"},
	{"gpu_taint_info", "`features.resourceSlices`"},
	{"gpu_unattributed_memory_used_bytes", "`features.processes`"},
	{"gpu_xid_last_event_info", "`features.processes` for the container"},
	{"kube_", kubeStateMetrics},
	{"_requests_pending:sum", kubeStateMetrics},
}

// needs says what the queries need that is off by default.
func needs(queries []Query) string {
	var out []string
	for _, m := range beyondDefaults {
		if !slices.ContainsFunc(queries, func(q Query) bool { return strings.Contains(q.Expr, m.metric) }) {
			continue
		}
		text := "`" + m.metric + "` needs " + m.needs
		if m.needs == kubeStateMetrics {
			text = "`kube_*` needs " + m.needs
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// The queries of most alerts about GPUs, which the page has once.
var (
	verdict = Query{"verdict", "gpu_health{$gpu} == 1"}
	reasons = Query{"its reasons", "gpu_health_reason_info{$gpu}"}
	pods    = Query{"pods that the GPU is allocated to", "group by (namespace, pod) (gpu_container_allocation_ratio{$gpu})"}
	address = Query{"PCI address, model and minor number", "gpu_info{$gpu}"}
)

func gpuQueries() []Query { return []Query{verdict, reasons, pods, address} }

// Queries returns what to query first when the alert fires.
func (a Alert) Queries() []Query {
	var (
		xids     = Query{"XIDs since the exporter started", "gpu_xid_events_total{$gpu} > 0"}
		age      = Query{"seconds since the last one", "time() - gpu_xid_last_timestamp_seconds{$gpu,$xid}"}
		limits   = Query{"share of time with limited clocks, by reason", limitedRecord + "{$gpu}"}
		heat     = Query{"temperatures", "gpu_temperature_celsius{$gpu}"}
		requests = "sum by (namespace, pod) (kube_pod_container_resource_requests{$namespace,$resource}) * on (namespace, pod) " +
			`group_left () max by (namespace, pod) (kube_pod_status_phase{$namespace,phase="Pending"} == 1)`
		pending = Query{"devices that pending pods request", requests}
		ready   = Query{"conditions of the node", `kube_node_status_condition{$node,status="true"} == 1`}
		scraped = Query{"exporters that are scraped, by job", "count by (job) (gpu_exporter_build_info)"}
	)
	return map[string][]Query{
		"GPUUnavailable": {reasons, xids, pods},
		"GPUMissing": {{"GPUs by state", "gpu_node_devices{$node} > 0"},
			{"GPUs that the node had", "max_over_time(" + gpusRecord + "{$node}[30d])"}},
		"GPUVerdictsDisagree": {verdict, {"taints of the DRA driver", "gpu_taint_info{$gpu}"},
			{"the kubelet's verdict", "gpu_kubelet_healthy{$gpu}"}},
		"GPURepairRequired": {reasons, {"recommended action (R570 and newer)", `gpu_recovery_action{$gpu,action!="none"} == 1`}, pods,
			address},
		"GPUXIDFatal":       {age, verdict, pods},
		"GPUXIDWarning":     {age, pods},
		"GPUXIDApplication": {{"container of the error, for five minutes", "gpu_xid_last_event_info{$gpu,$xid}"}, age, pods},
		"GPUUncorrectedECC": {{"errors since the driver was loaded", `gpu_ecc_errors_total{$gpu,severity="uncorrected"} > 0`}, verdict,
			pods},
		"GPURepairPending": {{"what is pending", `gpu_health_reason_info{$gpu,reason=~".+_pending"}`}, pods},
		"GPUMemorySparesLow": {{"banks with few spare rows, or retired pages",
			`gpu_row_remap_banks{$gpu,availability=~"none|low"} > 0 or gpu_retired_pages_total{$gpu}`}},
		"GPUNVLinkDown": {{"GPUs with the problem", "gpu_health_reason_info{$node,reason=~\"nvlink_down|fabric_.+\"}"},
			{"state and faults of the fabric", "(gpu_fabric_state{$node} or gpu_fabric_fault{$node} or gpu_fabric_health{$node}) == 1"},
			{"pods on them", "group by (namespace, pod) (gpu_container_allocation_ratio{$node} and on (node, uuid) " +
				"gpu_health_reason_info{reason=~\"nvlink_down|fabric_.+\"})"}},
		"GPUNVLinkErrors": {{"errors of an hour", "increase(gpu_nvlink_errors_total{$node}[1h]) > 0"},
			{"the same by link", "increase(gpu_nvlink_link_errors_total{$node}[1h]) > 0"}},
		"GPUPCIeDegraded": {{"lanes over those of the slot", "gpu_pcie_link_width{$gpu} / gpu_pcie_link_width_max{$gpu}"},
			{"generation over that of the slot", "gpu_pcie_link_generation{$gpu} / gpu_pcie_link_generation_max{$gpu}"},
			{"replays per minute", "rate(gpu_pcie_replays_total{$gpu}[15m]) * 60"}, address},
		"GPUHardwareSlowdown": {limits, heat, {"GPUs of the node with the same, and how often", limitedRecord +
			`{$node,reason=~"hw_.+|thermal"}`}, {"power draw", "gpu_power_watts{$gpu}"}},
		"GPUTemperatureHigh": {heat, {"limits", "gpu_temperature_limit_celsius{$gpu,$sensor}"}, limits},
		"GPUSlowWithoutReason": {{"SM clock over its maximum", `gpu_clock_hertz{$gpu,clock="sm"} / gpu_clock_max_hertz{$gpu,clock="sm"}`},
			{"performance state", "gpu_performance_state{$gpu}"}},
		"GPUAllocatedIdle": {{"seconds since it was busy",
			"time() - max by (namespace, pod) (gpu_container_last_busy_timestamp_seconds{$pod})"},
			{"memory in use", "sum by (namespace, pod) (gpu_container_memory_used_bytes{$pod})"},
			{"idle GPU-hours of a day",
				`sum by (namespace, pod) (increase(gpu_container_unused_seconds_total{$pod,state="idle"}[1d])) / 3600`}},
		"GPUNamespaceIdle": {{"idle GPUs by workload",
			`topk(10, sum by (namespace, workload_type, workload) (workload:gpu_unused_seconds:rate5m{$namespace,state="idle"}))`}},
		"GPUAllocatedPodNotRunning": {{"what its containers wait for", "kube_pod_container_status_waiting_reason{$pod} == 1"},
			{"its GPUs", "sum by (node, uuid) (gpu_container_allocation_ratio{$pod})"}},
		"GPUJobHung": {{"activity of its GPUs", podRecord + "{$workload} * on (node, uuid) group_left () max by (node, uuid) (" +
			activityRecord + ")"},
			{"median of its activity, by half hours", medianRecord + "{$workload}"}},
		"GPUWorkloadStraggler": {{"the five least active GPUs", "bottomk(5, " + activityRecord +
			" * on (node, uuid) group_left (namespace, pod) " +
			"(group by (node, uuid, namespace, pod) (gpu_container_allocation_ratio{$namespace} > 0.99) and on (namespace, pod) " +
			"pod:gpu_workload:info{$workload}))"}},
		"GPUSharedMemoryPressure": {{"the largest containers",
			"topk(5, sum by (namespace, pod, container) (gpu_container_memory_used_bytes{$gpu}))"}},
		"GPUContainerUsesMoreThanRequested": {{"use over request", overRequest + "{$gpu,$pod}"},
			{"share of the GPU", "gpu_container_allocation_ratio{$gpu,$pod}"},
			{"memory in use", "gpu_container_memory_used_bytes{$gpu,$pod}"}},
		"GPUMemoryUsedUnallocated": {{"memory of no container, by reason", "gpu_unattributed_memory_used_bytes{$gpu} > 0"},
			{"used memory", "gpu_memory_used_bytes{$gpu}"}},
		"GPUUsedWithoutAllocation": {{"mismatches of the pod", "gpu_container_mismatch{$pod}"},
			{"its memory on the GPU", "gpu_container_memory_used_bytes{$gpu,$pod}"}},
		"GPUSchedulableWhilePodsWait": {pending, {"nodes with schedulable devices",
			"topk(10, node:gpu_schedulable_devices:sum{$resource} > 0)"}},
		"GPUCapacityExhausted": {{"requests that wait", "topk(10, namespace:gpu_requests_pending:sum{$resource} > 0)"},
			{"schedulable devices", "sum(node:gpu_schedulable_devices:sum{$resource})"},
			{"what is offered", "sum by (resource) (gpu_node_allocatable_devices) > 0"},
			{"idle GPUs", `topk(10, sum by (namespace) (namespace:gpu_unused_seconds:rate5m{state="idle"}) > 0)`}},
		"GPUNotOffered": {{"offered", "gpu_node_allocatable_devices{$node}"},
			{"allocated", "gpu_node_allocated_devices{$node}"}},
		"GPUExporterDown":          {{"target", "up{$job,$instance}"}, ready},
		"GPUExporterAbsent":        {scraped},
		"GPUExporterMissingOnNode": {{"its GPUs", `kube_node_status_capacity{$node,resource=~"nvidia_com_.+"}`}, ready},
		"GPUDriverDown": {{"last driver version", "last_over_time(gpu_driver_info{$node}[1d])"},
			{"failed attempts of an hour", `increase(gpu_exporter_source_errors_total{$node,source="nvml"}[1h])`}},
		"GPUExporterSourceDown": {{"seconds since its last success",
			"timestamp(gpu_exporter_source_last_success_timestamp_seconds{$node,$source}) - " +
				"gpu_exporter_source_last_success_timestamp_seconds{$node,$source}"},
			{"failed attempts of an hour", "increase(gpu_exporter_source_errors_total{$node,$source}[1h])"}},
		"GPUExporterPollStuck": {{"seconds since the last reading, by poll group", "timestamp(gpu_last_read_timestamp_seconds{$gpu}) - " +
			"gpu_last_read_timestamp_seconds{$gpu}"},
			{"interval of the poll group", "gpu_exporter_poll_interval_seconds{$node}"}},
		"GPUExporterNVMLErrors": {{"failed calls and panics",
			"increase(gpu_exporter_call_errors_total{$node}[15m]) > 0 or increase(gpu_exporter_panics_total{$node}[1h]) > 0"}},
		"GPUAllocationUnknown": {{"pods with unknown GPUs", "gpu_container_unresolved_devices{$node} > 0"},
			{"data sources", "gpu_exporter_source_up{$node}"}},
		"GPUAttributionError": {{"errors by quantity", "gpu_attribution_error_ratio{$gpu}"},
			{"how containers are measured", "count by (method, source, memory) (gpu_container_attribution_info{$gpu})"}},
		"GPUExporterPaused":      {{"GPUs whose MIG mode is about to change", "gpu_mig_mode_pending{$node} != gpu_mig_mode{$node}"}},
		"GPUScrapeMisconfigured": {{"targets with GPUs of the node", "count by (job, instance) (gpu_device_up{$node})"}},
		"GPURecordsAbsent": {scraped, {"failed evaluations",
			`increase(prometheus_rule_evaluation_failures_total{rule_group=~".+gpu-exporter-.+"}[1h]) > 0`}},
	}[a.Name]
}
