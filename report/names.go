package report

import (
	"fmt"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// The metrics that are read. A test compares them with the rules and the catalog.
const (
	ruleGPUs    = "node:gpu_time_seconds:rate5m"
	ruleCount   = "node:gpu_device_up:count"
	rulePower   = "node:gpu_power_watts:sum"
	ruleFaults  = "node:gpu_problems:count"
	ruleFree    = "node:gpu_unallocated_devices:sum"
	ruleXIDs    = "node:gpu_xid_events:increase5m"
	rulePending = "namespace:gpu_requests_pending:sum"

	ruleAllocated = "workload:gpu_allocated_seconds:rate5m"
	ruleBusy      = "workload:gpu_busy_seconds:rate5m"
	ruleObserved  = "workload:gpu_observed_seconds:rate5m"
	ruleUnused    = "workload:gpu_unused_seconds:rate5m"
	ruleWatts     = "workload:gpu_power_watts:sum"
	ruleMemory    = "workload:gpu_memory_used_bytes:max"
	ruleBusiest   = "workload:gpu_busy:ratio_max"
	ruleLastBusy  = "workload:gpu_last_busy_timestamp_seconds:max"
	rulePods      = "workload:gpu_pods:count"
	ruleOwners    = "pod:gpu_workload:info"

	rawGPUs         = "gpu_time_seconds_total"
	rawUp           = "gpu_device_up"
	rawEnergy       = "gpu_energy_joules_total"
	rawPower        = "gpu_power_watts"
	rawInfo         = "gpu_info"
	rawTotal        = "gpu_memory_total_bytes"
	rawUnattributed = "gpu_unattributed_busy_seconds_total"
	rawVersion      = "gpu_exporter_build_info"
	rawMinute       = "gpu_utilization_ratio"
	rawPeak         = "gpu_utilization_peak_ratio"
	rawSM           = "gpu_sm_active_seconds_total"
	rawProfiled     = "gpu_profiled_seconds_total"
	rawGPUBusy      = "gpu_busy_seconds_total"
	rawGPUObserved  = "gpu_observed_seconds_total"

	rawAllocated = "gpu_container_allocated_seconds_total"
	rawBusy      = "gpu_container_busy_seconds_total"
	rawObserved  = "gpu_container_observed_seconds_total"
	rawUnused    = "gpu_container_unused_seconds_total"
	rawJoules    = "gpu_container_energy_joules_total"
	rawMemory    = "gpu_container_memory_used_bytes"
	rawShare     = "gpu_container_allocation_ratio"
	rawLastBusy  = "gpu_container_last_busy_timestamp_seconds"
	rawSince     = "gpu_container_allocated_since_timestamp_seconds"
	rawPods      = "gpu_pod_info"

	kubeOwners = "namespace_workload_pod:kube_pod_owner:relabel"
	kubeLabels = "kube_node_labels"
	kubePods   = "kube_pod_labels"
	kubeSpaces = "kube_namespace_labels"
)

// withModel joins the GPU's model as the recording rules do.
func withModel(q prom.QL, gpus string) string {
	on := q.Cluster + ", node, uuid"
	return fmt.Sprintf("(%s) * on (%s) group_left (model) (max by (%s, model) (last_over_time(%s[10m])) "+
		"or on (%s) group by (%s) (last_over_time(%s[10m])))",
		gpus, on, on, q.Select(rawInfo), on, on, q.Select(rawGPUs, `state="busy"`))
}

// inNamespace matches a namespace.
func inNamespace(name string) string { return "namespace=" + prom.Quote(name) }

// The labels of one GPU and of a pod on a GPU.
var (
	perGPU        = []string{"node", "uuid"}
	perAllocation = []string{"node", "uuid", "namespace", "pod"}
)
