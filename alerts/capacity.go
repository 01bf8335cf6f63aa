package alerts

// waiting is what pods request that are not scheduled yet. A pod that pulls its image is pending too, but has its
// devices.
const waiting = `sum by (cluster, namespace, pod, resource) (kube_pod_container_resource_requests{resource=~"` +
	resourceRE + `"}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Pending"} == 1)
    unless on (cluster, namespace, pod) kube_pod_status_scheduled{condition="true"} == 1)`

// schedulableMaximum is the number of schedulable devices of the node with the most.
const (
	schedulableMaximum = "max by (cluster, resource) (node:gpu_schedulable_devices:sum)"
	onOffer            = " on (cluster, resource) group_left () "
)

func capacity() []Alert {
	labels := []string{"namespace", "resource"}
	dashboard := Dashboard{dashboardCapacity, nil}
	pods := "count by (cluster, namespace, resource) "
	return []Alert{
		{Name: "GPUSchedulableWhilePodsWait", Severity: Warning, Needs: kubeStateMetrics, Labels: labels,
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(\n  " + waiting + "\n  <=" + onOffer + schedulableMaximum + "\n)",
			Summary: "Pods are pending although a node has enough schedulable GPUs.",
			Description: value3 + " pods of {{ $labels.namespace }} are pending although a node that is Ready and " +
				"not cordoned has enough {{ $labels.resource }} unallocated. Check the events of the pods for " +
				"taints, node selectors (another model), affinity, CPU, memory or a quota."},
		{Name: "GPUCapacityExhausted", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"resource"},
			For: minutes15, Keep: minutes15, Dashboard: dashboard,
			Expr: "count by (cluster, resource) (\n  " + waiting + "\n  >" + onOffer + "(" + schedulableMaximum +
				" or on (cluster, resource) 0 * cluster:gpu_allocatable_devices:sum)\n) and on (cluster, resource) " +
				"cluster:gpu_allocatable_devices:sum > 0",
			Summary: "Pods are pending and no node has enough schedulable GPUs.",
			Description: value3 + " pods are pending for {{ $labels.resource }}, and no node that is Ready and not " +
				"cordoned has enough. Look for idle GPUs first (GPUAllocatedIdle) and for cordoned nodes; if many " +
				"nodes have a few unallocated each, pack small pods (MostAllocated scoring); then add nodes or " +
				"preempt low priorities."},
		{Name: "GPUNotOffered", Severity: Warning, Labels: []string{"node"}, For: minutes15, Keep: minutes5,
			Dashboard: nodeDashboard,
			Expr: `sum by (cluster, node) (max by (cluster, node, resource) (gpu_node_allocatable_devices{resource=~"` +
				resourceRE +
				`"}))` + "\n  < count by (cluster, node) (group by (" + onGPU + ") (gpu_device_up == 1))",
			Summary: "The kubelet offers fewer GPUs than the node has.",
			Description: "The kubelet of {{ $labels.node }} offers only " + value3 +
				" devices, fewer than there are available GPUs: pods cannot get the others. Check the device " +
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
