// Package metric has the names of the metrics that a report reads, and the queries of its figures.
package metric

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// The metrics that are read. A test compares them with the rules and the catalog.
const (
	RuleGPUs    = "node:gpu_time_seconds:rate5m"
	RuleCount   = "node:gpu_device_up:count"
	RulePower   = "node:gpu_power_watts:sum"
	RuleFaults  = "node:gpu_problems:count"
	RuleFree    = "node:gpu_unallocated_devices:sum"
	RuleXIDs    = "node:gpu_xid_events:increase5m"
	RulePending = "namespace:gpu_requests_pending:sum"

	RuleAllocated = "workload:gpu_allocated_seconds:rate5m"
	RuleBusy      = "workload:gpu_busy_seconds:rate5m"
	RuleObserved  = "workload:gpu_observed_seconds:rate5m"
	RuleUnused    = "workload:gpu_unused_seconds:rate5m"
	RuleWatts     = "workload:gpu_power_watts:sum"
	RuleMemory    = "workload:gpu_memory_used_bytes:max"
	RuleBusiest   = "workload:gpu_busy:ratio_max"
	RuleLastBusy  = "workload:gpu_last_busy_timestamp_seconds:max"
	RulePods      = "workload:gpu_pods:count"
	RuleOwners    = "pod:gpu_workload:info"

	// Alerts are those that Prometheus evaluates, HungJob the one about workloads that are busy and do no work.
	Alerts  = "ALERTS"
	HungJob = "GPUJobHung"

	RawGPUs         = "gpu_time_seconds_total"
	RawUp           = "gpu_device_up"
	RawEnergy       = "gpu_energy_joules_total"
	RawPower        = "gpu_power_watts"
	RawInfo         = "gpu_info"
	RawTotal        = "gpu_memory_total_bytes"
	RawUnattributed = "gpu_unattributed_busy_seconds_total"
	RawVersion      = "gpu_exporter_build_info"
	RawMinute       = "gpu_utilization_ratio"
	RawPeak         = "gpu_utilization_peak_ratio"
	RawSM           = "gpu_sm_active_seconds_total"
	RawProfiled     = "gpu_profiled_seconds_total"
	RawGPUBusy      = "gpu_busy_seconds_total"
	RawGPUObserved  = "gpu_observed_seconds_total"

	RawAllocated = "gpu_container_allocated_seconds_total"
	RawBusy      = "gpu_container_busy_seconds_total"
	RawObserved  = "gpu_container_observed_seconds_total"
	RawUnused    = "gpu_container_unused_seconds_total"
	RawJoules    = "gpu_container_energy_joules_total"
	RawMemory    = "gpu_container_memory_used_bytes"
	RawShare     = "gpu_container_allocation_ratio"
	RawLastBusy  = "gpu_container_last_busy_timestamp_seconds"
	RawSince     = "gpu_container_allocated_since_timestamp_seconds"
	RawPods      = "gpu_pod_info"

	KubeOwners      = "namespace_workload_pod:kube_pod_owner:relabel"
	KubeLabels      = "kube_node_labels"
	KubePods        = "kube_pod_labels"
	KubeCapacity    = "kube_node_status_capacity"
	KubeAllocatable = "kube_node_status_allocatable"
	KubeRequests    = "kube_pod_container_resource_requests"
	KubeSpaces      = "kube_namespace_labels"
)

// WithModel joins the GPU's model as the recording rules do; of one model its GPUs alone remain.
func WithModel(q prom.QL, gpus, model string) string {
	on, over := q.Cluster+", node, uuid", "[10m]"
	if q.Window > 10*time.Minute {
		over = q.Over()
	}
	if model != "" {
		return fmt.Sprintf("(%s) * on (%s) group_left (model) (max by (%[2]s, model) (last_over_time(%[3]s%[4]s)))", gpus, on,
			q.Select(RawInfo, "model="+prom.Quote(model)), over)
	}
	return fmt.Sprintf("(%s) * on (%s) group_left (model) (max by (%s, model) (last_over_time(%s%s)) "+
		"or on (%s) group by (%s) (last_over_time(%s%[5]s)))",
		gpus, on, on, q.Select(RawInfo), over, on, on, q.Select(RawGPUs, `state="busy"`))
}

// InNamespace matches a namespace.
func InNamespace(name string) string { return "namespace=" + prom.Quote(name) }

// The labels of one GPU and of a pod on a GPU.
var (
	PerGPU        = []string{"node", "uuid"}
	PerAllocation = []string{"node", "uuid", "namespace", "pod"}
)
