package alerts

import "time"

// held is the part of each GPU that each pod holds. An exporter that starts anew is away for a moment, and
// may come back under other target labels: neither may end an alert or count a GPU twice.
const held = "sum by (" + onAlloc + ") (max by (" + onAlloc + ", container, resource, mig_uuid) (last_over_time(gpu_container_allocation_ratio[10m])))"

// idle finds the pods that held GPUs at the beginning of the window, hold them still, and made nothing of
// them in between. It speaks by exact counters: what cannot be measured has no busy counter and is not
// called idle; an exporter's start costs only the time in which nobody watched. The value is in GPUs.
const idle = "sum" + byPod + `(
  ` + held + `
  and on (` + onAlloc + `) sum by (` + onAlloc + `) (increase(gpu_container_unused_seconds_total{state="idle"}[$period])) > $observed * $period_seconds * ` + held + `
  and on (` + onAlloc + `) sum by (` + onAlloc + `) (increase(gpu_container_busy_seconds_total[$period])) <= $busy * sum by (` + onAlloc + `) (increase(gpu_container_observed_seconds_total[$period]))
  and on (` + onAlloc + `) group by (` + onAlloc + `) (last_over_time(gpu_container_allocation_ratio[10m] offset $period))
)`

func idleParameters() []Parameter {
	return []Parameter{
		period(minutes30, "time without work; a pod younger than this is left alone"),
		number("busy", 0.01, 0, 0.5, "utilization up to which a pod counts as idle"),
		number("observed", 0.5, 0.01, 0.95, "part of the window that must have been seen as idle; the rest forgives restarts of the exporter"),
	}
}

func waste() []Alert {
	podDashboard := Dashboard{dashboardWorkload, []string{"namespace", "pod"}}
	const workload = "cluster, namespace, workload_type, workload"
	return []Alert{
		{Name: "GPUAllocatedIdle", Severity: Info, Labels: podLabels, For: minutes5, Keep: minutes10, Parameters: idleParameters(), Expr: idle, Dashboard: podDashboard,
			Summary: "A pod holds GPUs and does nothing with them.",
			Description: atPod + " holds " + value3 + " GPUs on which next to nothing ran in the last $period, as far as they were watched. " +
				"Ask its owner whether it waits for something; if not, scale it down or end it so that others can have the GPUs."},
		{Name: "GPUAllocatedIdleLong", Severity: Warning, Labels: podLabels, For: 6 * hour, Keep: minutes10, Parameters: idleParameters(), Expr: idle, Dashboard: podDashboard,
			Summary: "A pod has held idle GPUs for hours.",
			Description: atPod + " has held " + value3 + " GPUs for hours with next to no work on them. " +
				"End it or scale it to zero, and tell its owner: notebooks and debugging pods want a time limit."},
		{Name: "GPUNamespaceIdle", Severity: Warning, Labels: []string{"namespace"}, For: 2 * hour, Keep: minutes15,
			Parameters: []Parameter{number("gpus", 4, 0, 1e6, "idle GPUs that a namespace may have")},
			Expr:       `sum by (cluster, namespace) (avg_over_time(namespace:gpu_unused_seconds:rate5m{state="idle"}[1h])) > $gpus`,
			Dashboard:  Dashboard{dashboardNamespace, []string{"namespace"}}, Summary: "A namespace keeps many GPUs idle.",
			Description: "Pods of {{ $labels.namespace }} have held " + value3 + " idle GPUs on average over the last hour. " +
				"Go through its workloads, the idlest first, and lower its quota if nobody needs them."},
		{Name: "GPUAllocatedUnderused", Severity: Info, Labels: []string{"namespace", "workload_type", "workload", "model"}, For: hour, Keep: hour,
			Parameters: []Parameter{
				period(day, "time looked back over; a workload younger than this is left alone"),
				number("busy", 0.3, 0.01, 0.95, "95th percentile of the utilization of the busiest container, below which a workload counts as underused"),
				number("memory", 0.4, 0.01, 0.95, "peak of the memory of one container over that of its GPU"),
			},
			Expr: `quantile_over_time(0.95, workload:gpu_busy:ratio_max[$period]) < $busy
  and on (` + workload + `, model) max_over_time(workload:gpu_memory_used_bytes:max[$period])
    < on (cluster, model) group_left () ($memory * model:gpu_memory_total_bytes:sum / model:gpu_device_up:sum)
  and on (` + workload + `, model) (workload:gpu_allocation:sum offset $period)
  unless on (` + workload + `) group by (` + workload + `) (` + withWorkload(held+" < 0.99") + ")",
			Dashboard: Dashboard{dashboardWorkload, []string{"namespace", "workload"}}, Summary: "A workload holds whole GPUs and needs a part of them.",
			Description: "{{ $labels.workload_type }} {{ $labels.namespace }}/{{ $labels.workload }} kept even its busiest {{ $labels.model }} below " + asPercent +
				" for 95 % of the last $period, and its memory would fit a smaller share. Give it a MIG instance, a shared GPU or a smaller model."},
		{Name: "GPUAllocatedPodNotRunning", Severity: Warning, Needs: kubeStateMetrics, Labels: append([]string{"state"}, podLabels...), For: minutes30, Keep: minutes5,
			Expr: "sum" + byPod + `(gpu_container_allocation_ratio) * on (cluster, namespace, pod) group_left (state) (
  max by (cluster, namespace, pod, state) (label_replace(kube_pod_status_phase{phase!="Running"} == 1, "state", "$1", "phase", "(.+)"))
  or on (cluster, namespace, pod)
  max by (cluster, namespace, pod, state) (label_replace(max_over_time(kube_pod_container_status_waiting_reason{reason="CrashLoopBackOff"}[10m]) == 1, "state", "$1", "reason", "(.+)"))
)`,
			Dashboard: podDashboard, Summary: "A pod that does not run holds GPUs.",
			Description: atPod + " is {{ $labels.state }} and holds " + value3 + " GPUs. " +
				"Look at kubectl describe pod: an image that cannot be pulled, a crash loop or a pod stuck in termination keeps the GPUs from others; mend or delete it."},
		{Name: "GPUWorkloadStraggler", Severity: Info, Labels: []string{"namespace", "workload_type", "workload", "model"}, For: minutes30, Keep: minutes10,
			Parameters: []Parameter{number("spread", 0.5, 0.05, 0.99, "difference of utilization between the busiest and the least busy container")},
			Expr: `workload:gpu_busy:ratio_max{workload_type!~"(?i:deployment|replicaset|daemonset)"} - workload:gpu_busy:ratio_min > $spread
  and on (` + workload + `) workload:gpu_pods:count > 1`,
			Dashboard: Dashboard{dashboardWorkload, []string{"namespace", "workload"}}, Summary: "One rank of a workload lags behind the others.",
			Description: "The busiest and the least busy container of {{ $labels.workload_type }} {{ $labels.namespace }}/{{ $labels.workload }} are " + asPercent +
				" apart in utilization. A slow GPU, link or input pipeline holds the whole job back: compare its pods, and look for throttling and link errors on the GPU of the slowest."},
		{Name: "GPUMIGUnused", Severity: Info, Labels: gpuLabels, For: day, Keep: 30 * time.Minute,
			Parameters: []Parameter{number("unused", 0.5, 0.01, 0.99, "part of the GPU's MIG instances that nobody holds")},
			Expr:       "avg" + byGPU + "(gpu_mig_allocation_ratio == bool 0) > $unused",
			Dashboard:  Dashboard{dashboardSharing, []string{"node"}}, Summary: "Most MIG instances of a GPU are held by nobody.",
			Description: asPercent + " of the MIG instances of " + atGPU + " have been free for a day. " +
				"Choose a layout that matches what pods ask for, or take the GPU out of MIG mode."},
		{Name: "GPUCapacityUnderused", Severity: Info, Labels: []string{"model"}, For: hour, Keep: hour,
			Parameters: []Parameter{period(day, "time looked back over"), number("unallocated", 0.5, 0.01, 0.99, "part of the GPUs' time that nobody held")},
			Expr: `sum by (cluster, model) (avg_over_time(model:gpu_time_seconds:rate5m{state="unallocated"}[$period]))
  / sum by (cluster, model) (avg_over_time(model:gpu_time_seconds:rate5m[$period])) > $unallocated
  and on (cluster, model) group by (cluster, model) (model:gpu_time_seconds:rate5m offset $period)`,
			Dashboard: Dashboard{dashboardCapacity, []string{"model"}}, Summary: "Most GPUs of a model are held by nobody.",
			Description: asPercent + " of the time of all {{ $labels.model }} was unallocated over the last $period. " +
				"Move work there, shrink the node pool, or offer the GPUs to others."},
	}
}
