package alerts

// waiting is what pods request that are not scheduled yet. A pod that pulls its image is pending too, but has its
// devices.
const waiting = requested + `
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Pending"} == 1)
    unless on (cluster, namespace, pod) kube_pod_status_scheduled{condition="true"} == 1`

const (
	requested = `sum by (cluster, namespace, pod, resource) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `"})`
	// fitting are pods that have room on a node, where all that wait in their namespace have room together: ranks of a program
	// start together, or not at all.
	fitting = "(" + requested + "\n    <=" + onOffer + "max by (cluster, resource) (node:gpu_schedulable_devices:sum)" +
		"\n    and on (cluster, namespace, resource) sum by (cluster, namespace, resource) (" + waiting + ")\n    <=" + onOffer +
		"sum by (cluster, resource) (node:gpu_schedulable_devices:sum))"
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
			Expr:    pods + "(\n  " + waiting + "\n  and on (cluster, namespace, pod, resource) " + fitting + "\n)",
			Summary: "Pods are pending although a node has enough schedulable GPUs.",
			Description: value3 + " pods of {{ $labels.namespace }} are pending although a node that is Ready and " +
				"not cordoned has enough {{ $labels.resource }} unallocated. Check the events of the pods for " +
				"taints, node selectors (another model), affinity, CPU, memory or a quota."},
		{Name: "GPUCapacityExhausted", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"resource"},
			For: minutes15, Keep: minutes15, Dashboard: dashboard,
			Expr: "count by (cluster, resource) (\n  " + waiting + "\n  unless on (cluster, namespace, pod, resource) " + fitting +
				"\n) and on (cluster, resource) cluster:gpu_allocatable_devices:sum > 0",
			Summary: "Pods are pending and no node has enough schedulable GPUs.",
			Description: value3 + " pods are pending for {{ $labels.resource }}, and no node that is Ready and not " +
				"cordoned has enough. Look for idle GPUs first (GPUAllocatedIdle) and for cordoned nodes; if many " +
				"nodes have a few unallocated each, pack small pods (MostAllocated scoring); then add nodes or " +
				"preempt low priorities."},
		{Name: "GPUNotOffered", Severity: Warning, Labels: []string{"node"}, For: minutes15, Keep: minutes5,
			Dashboard: nodeDashboard,
			// Of shared GPUs there are more devices than GPUs, a DRA driver may have some, and MIG changes the resources.
			Expr: "sum by (cluster, node) (" + offered("gpu_node_allocatable_devices", "") + "\n  < " +
				offered("max_over_time(gpu_node_allocatable_devices", "[$period])") + ")\n" +
				"  unless on (cluster, node) gpu_mig_mode == 1" +
				"\n  unless on (cluster, node) min by (cluster, node) (gpu_device_up) == 0",
			Parameters: []Parameter{period(day, "lookback for devices that the kubelet offered")},
			Summary:    "The kubelet offers fewer GPUs than before.",
			Description: "The kubelet of {{ $labels.node }} offers only " + value3 +
				" devices of a resource, fewer than within $period: pods cannot get the others. Check the device " +
				"plugin's pod and log on that node: it stopped, or marked GPUs as unhealthy; restart it."},
		{Name: "GPUResourceNotOffered", Severity: Warning, Needs: kubeStateMetrics, Labels: labels, For: minutes30,
			Keep: minutes5, Dashboard: dashboard,
			Expr: pods + "(\n  " + waiting + "\n) unless on (cluster, resource) " +
				"cluster:gpu_allocatable_devices:sum > 0",
			Summary: "Pods request a GPU resource that no node offers.",
			Description: value3 + " pods of {{ $labels.namespace }} request {{ $labels.resource }}, which no node " +
				"offers. Check the spelling and the MIG layout, and whether the device plugin runs on the nodes that " +
				"should offer it."},
	}
}
