package alerts

const (
	// requested are devices by pod and resource. Of claims kube-state-metrics (from 2.20) reports the pods, and not for what they are:
	// each counts as a GPU where a DRA driver has allocated some.
	requested = `(sum by (cluster, namespace, pod, resource) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `"})` +
		"\n    or " + claimed + ")"
	claimed = `count by (cluster, namespace, pod, resource) (label_replace(kube_pod_resourceclaim_info, "resource", "` + draResource +
		`", "", "")` + "\n      and on (cluster) gpu_container_allocation_ratio{resource=\"" + draResource + "\"})"
	draResource = "gpu_nvidia_com"
	// places are schedulable devices: of a DRA driver there are whole GPUs alone.
	places = "(node:gpu_schedulable_devices:sum or label_replace(sum by (cluster, node) (node:gpu_schedulable:sum), \"resource\", \"" +
		draResource + "\", \"\", \"\"))"
	// fits are pods that have room on a node, where all that wait in their namespace have room together: ranks of a program
	// start together, or not at all.
	fits = "(" + waitingRecord + "\n    <=" + onOffer + "max by (cluster, resource) (" + places + ")" +
		"\n    and on (cluster, namespace, resource) sum by (cluster, namespace, resource) (" + waitingRecord + ")\n    <=" + onOffer +
		"sum by (cluster, resource) (" + places + "))"
	onOffer = " on (cluster, resource) group_left () "
)

// offered is a number of devices by resource.
func offered(metric, of string) string {
	return "max by (cluster, node, resource) (" + metric + `{resource=~"` + resourceRE + `"}` + of + ")"
}

func capacity() []Alert {
	labels := []string{"namespace", "resource"}
	dashboard := Dashboard{dashboardCapacity, nil}
	pods := "count by (cluster, namespace, resource) "
	return []Alert{
		{Name: "GPUSchedulableWhilePodsWait", Severity: Warning, Needs: kubeStateMetrics, Labels: labels,
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(" + fits + ")",
			Summary: "Pods are pending although a node has enough schedulable GPUs.",
			Description: value3 + " pods of {{ $labels.namespace }} are pending although a node that is Ready and " +
				"not cordoned has enough {{ $labels.resource }} unallocated. Check the events of the pods for " +
				"taints, node selectors (another model), affinity, CPU, memory or a quota."},
		{Name: "GPUCapacityExhausted", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"resource"},
			For: minutes15, Keep: minutes15, Dashboard: dashboard,
			Expr:    "count by (cluster, resource) (" + waitingRecord + " unless " + fits + ")",
			Summary: "Pods are pending and no node has enough schedulable GPUs.",
			Description: value3 + " pods are pending for {{ $labels.resource }}, and no node that is Ready and not " +
				"cordoned has enough. If no node offers it at all, check its spelling, the MIG layout and the device plugin. " +
				"Look for idle GPUs first (GPUAllocatedIdle) and for cordoned nodes; if many " +
				"nodes have a few unallocated each, pack small pods (MostAllocated scoring); then add nodes or " +
				"preempt low priorities."},
		{Name: "GPUNotOffered", Severity: Warning, Labels: []string{"node"}, For: minutes15, Keep: minutes5,
			Dashboard: nodeDashboard,
			// Of shared GPUs there are more devices than GPUs, a DRA driver may have some, and MIG changes the resources. GPUs that are
			// lost, missing or unhealthy to the kubelet have alerts of their own.
			Expr: "sum by (cluster, node) (" + offered("gpu_node_allocatable_devices", "") + "\n  < " +
				offered("max_over_time(gpu_node_allocatable_devices", "[$period])") + ")\n" +
				"  unless on (cluster, node) gpu_mig_mode == 1" +
				"\n  unless on (cluster, node) min by (cluster, node) (gpu_device_up) == 0" +
				"\n  unless on (cluster, node) " + unhealthy +
				"\n  unless on (cluster, node) (" + gpusOf + " < " + gpusBefore + ")",
			Parameters: []Parameter{period(day, "lookback for devices that the kubelet offered")},
			Summary:    "The kubelet offers fewer GPUs than before.",
			Description: "The kubelet of {{ $labels.node }} offers only " + value3 +
				" devices of a resource, fewer than within $period: pods cannot get the others. Check the device " +
				"plugin's pod and log on that node: it stopped, or marked GPUs as unhealthy; restart it."},
	}
}
