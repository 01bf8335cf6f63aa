package alerts

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// allocated is the fraction of each GPU that is allocated to each pod. An exporter that restarts is absent for a moment
// and may return with other target labels: neither may resolve an alert or count a GPU twice.
const allocated = "sum by (" + onAlloc + ") (max by (" + onAlloc +
	", container, resource, mig_uuid) (last_over_time(gpu_container_allocation_ratio[10m])))"

// idle selects the pods with GPUs allocated at the beginning of the period and now, that were not busy in between. It
// uses counters: what cannot be measured has no busy counter and is not idle; a restart of the exporter costs only the
// time that was not observed. The value is in GPUs.
const idle = "sum" + byPod + `(
  ` + allocated + `
  < on (` + onAlloc + `) sum by (` + onAlloc +
	`) (increase(gpu_container_unused_seconds_total{state="idle"}[$period])) / ($observed * $period_seconds)
  and on (` + onAlloc + `) sum by (` + onAlloc +
	`) (increase(gpu_container_busy_seconds_total[$period])) <= $busy * sum by (` + onAlloc +
	`) (increase(gpu_container_observed_seconds_total[$period]))
  and on (` + onAlloc + `) group by (` + onAlloc +
	`) (last_over_time(gpu_container_allocation_ratio[10m] offset $period))
)`

// idlePods are those that do not use most of what is allocated to them: one idle GPU of eight is no reason to delete a pod.
var idlePods = idle + wellUsedPods("increase", "$period")

func idleParameters() []Parameter {
	return []Parameter{
		period(minutes30, "period without activity; younger pods are ignored"),
		number("busy", 0.001, 0, 0.5, "utilization up to which a pod is idle: 1.8 s in half an hour, so that rare requests count"),
		number("observed", 0.5, 0.01, 0.95, "fraction of the period that must have been observed idle"),
	}
}

// gangs matches the kinds whose pods are ranks of one program that ends.
func gangs() string {
	names := []string{"LeaderWorkerSet"}
	for _, k := range gpu.Kinds() {
		if k.Pods == gpu.Together && k.Ends && k.Name != "Workflow" {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, "|")
}

// hung are workloads of ranks that spin, without one that works, and not as always. Where activity is not measured, there must be a
// history.
func hung() string {
	const (
		workload = "cluster, namespace, workload_type, workload"
		whole    = "group by (" + onContainer + ") (gpu_container_allocation_ratio > 0.99)"
	)
	count := func(which string) string {
		return "count by (" + workload + ") (" + ofOwners(whole+which) + ")"
	}
	// What it reached in a tenth of the day: its median would soon be that of the hang.
	worked := "quantile_over_time(0.9, " + medianRecord + "[1d] offset 30m)"
	return count(" and on ("+onGPU+") "+spinRecord) + " > 1\n  unless on (" + workload + ") " +
		count(" and on ("+onGPU+") sum by ("+onGPU+") (rate(gpu_busy_seconds_total[5m])) > 0.05 unless on ("+onGPU+") "+spinRecord) +
		"\n  unless on (" + workload + ") workload:gpu_activity:ratio_max >= $before * " + worked +
		"\n  and on (" + workload + ") (" + count(" and on ("+onGPU+") gpu_profiled_seconds_total") + "\n    or on (" + workload + ") " +
		worked + ")\n  and on (" + workload + `) workload:gpu_pods:count{workload_type=~"(?i:` + gangs() + `)"}`
}

func waste() []Alert {
	podDashboard := Dashboard{dashboardWorkload, []string{"namespace", "pod"}}
	const workload = "cluster, namespace, workload_type, workload"
	return []Alert{
		{Name: "GPUAllocatedIdle", Severity: Info, Labels: podLabels, For: 6 * hour, Keep: minutes10,
			Parameters: idleParameters(), Expr: idlePods, Dashboard: podDashboard,
			Summary: "GPUs allocated to a pod have been idle for hours.",
			Description: atPod + ": " + value3 + " of its GPUs have been idle for hours. Ask its owner: where no other GPU of it " +
				"is busy, delete it or scale it to zero, and set a time limit for notebooks and debugging pods; else request " +
				"fewer GPUs."},
		{Name: "GPUNamespaceIdle", Severity: Warning, Labels: []string{"namespace"}, For: 2 * hour, Keep: minutes15,
			Parameters: []Parameter{number("gpus", 4, 0, 1e6, "tolerated idle GPUs of a namespace"),
				number("fraction", 0.1, 0, 0.99, "tolerated fraction of its allocated GPUs")},
			Expr: `sum by (cluster, namespace) (avg_over_time(namespace:gpu_unused_seconds:rate5m{state="idle"}[1h])) > $gpus
  > $fraction * sum by (cluster, namespace) (avg_over_time(namespace:gpu_allocation:sum[1h]))`,
			Dashboard: Dashboard{dashboardNamespace, []string{"namespace"}},
			Summary:   "Many GPUs allocated to a namespace are idle.",
			Description: "On average " + value3 +
				" GPUs allocated to {{ $labels.namespace }} were idle in the last hour. Check its workloads, " +
				"beginning with the most idle, and lower its quota if they are not needed."},
		{Name: "GPUAllocatedPodNotRunning", Severity: Warning, Needs: kubeStateMetrics,
			Labels: append([]string{"state"}, podLabels...), For: minutes30, Keep: minutes5,
			Expr: "sum" + byPod + `(gpu_container_allocation_ratio) * on (cluster, namespace, pod) group_left (state) (
  max by (cluster, namespace, pod, state) (label_replace(kube_pod_status_phase{phase!="Running"} == 1, "state", "$1", "phase", "(.+)"))
  or on (cluster, namespace, pod)
  max by (cluster, namespace, pod, state) (label_replace(
    max_over_time(kube_pod_container_status_waiting_reason{reason="CrashLoopBackOff"}[10m]) == 1, "state", "$1", "reason", "(.+)"))
)`,
			Dashboard: podDashboard, Summary: "GPUs are allocated to a pod that is not running.",
			Description: atPod + " is {{ $labels.state }} with " + value3 + " allocated GPUs. " +
				"Check kubectl describe pod for an image pull error, a crash loop or a pod that does not terminate; " +
				"fix or delete it."},
		{Name: "GPUJobHung", Severity: Warning, Labels: []string{"namespace", "workload_type", "workload"}, For: minutes15,
			Keep: minutes10, Expr: hung(), Dashboard: Dashboard{dashboardWorkload, []string{"namespace", "workload"}},
			Parameters: []Parameter{number("before", 0.45, 0.05, 0.95,
				"activity from which it works, over what it reached in a tenth of the day before")},
			Summary: "A job is busy and does no work.",
			Description: "The kernels of " + value3 + " GPUs of {{ $labels.workload_type }} " +
				"{{ $labels.namespace }}/{{ $labels.workload }} " +
				"run all the time at low power, and no other GPU of it works: its ranks wait for each other, most likely in a hung " +
				"collective. Ask its owner; look at the log of each rank for the one that stopped first (py-spy dump, NCCL's " +
				"flight recorder), check XIDs and links of its GPUs, then restart the job from its checkpoint."},
		{Name: "GPUWorkloadStraggler", Severity: Info,
			Labels: []string{"namespace", "workload_type", "workload", "model"}, For: minutes30, Keep: minutes10,
			Parameters: []Parameter{number("spread", 0.3, 0.05, 0.99,
				"difference in activity between the most and the least active GPU")},
			// Ranks of one program wait for each other; of other kinds, pods may have nothing to do.
			Expr: `workload:gpu_activity:ratio_max{workload_type=~"(?i:` + gangs() + `)"}
  - workload:gpu_activity:ratio_min > $spread
  and on (` + workload + `) workload:gpu_pods:count > 1`,
			Dashboard: Dashboard{dashboardWorkload, []string{"namespace", "workload"}},
			Summary:   "A GPU of a workload lags behind the others.",
			Description: "The most and the least active GPU of {{ $labels.workload_type }} {{ " +
				"$labels.namespace }}/{{ $labels.workload }} are " + asPercent +
				" apart in SM activity (before Hopper: in power). A slow GPU, link or input pipeline slows the whole " +
				"job down: compare its pods, and check for throttling and link errors on the GPU of the slowest."},
	}
}
