package alerts

// waiting is what pods request that are not scheduled yet. A pod that pulls its image is pending too, but has its
// devices.
const waiting = `sum by (cluster, namespace, pod, resource) (kube_pod_container_resource_requests{resource=~"` +
	resourceRE + `"}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Pending"} == 1)
    unless on (cluster, namespace, pod) kube_pod_status_scheduled{condition="true"} == 1)`

// unallocatedMax and unallocatedTotal are the unallocated devices: of the node with the most, and of all nodes.
const (
	freeMaximum      = "max by (cluster, resource) (node:gpu_unallocated_devices:sum)"
	unallocatedTotal = "sum by (cluster, resource) (node:gpu_unallocated_devices:sum)"
	onOffer          = " on (cluster, resource) group_left () "
)

func capacity() []Alert {
	labels := []string{"namespace", "resource"}
	dashboard := Dashboard{dashboardCapacity, nil}
	pods := "count by (cluster, namespace, resource) "
	return []Alert{
		{Name: "GPUUnallocatedWhilePodsWait", Severity: Warning, Needs: kubeStateMetrics, Labels: labels,
			For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(\n  " + waiting + "\n  <=" + onOffer + freeMaximum + "\n)",
			Summary: "Pods are pending although a node has enough unallocated GPUs.",
			Description: value3 + " pods of {{ $labels.namespace }} are pending although a node has enough {{ " +
				"$labels.resource }} unallocated. " +
				"Check the events of the pods for taints, node selectors, affinity, CPU, memory or a quota, and " +
				"whether the node is cordoned."},
		{Name: "GPUFragmented", Severity: Info, Needs: kubeStateMetrics, Labels: labels, For: minutes15, Keep: minutes5,
			Dashboard: dashboard,
			Expr: pods + "(\n  " + waiting + "\n  >" + onOffer + freeMaximum + "\n  <=" + onOffer +
				unallocatedTotal + "\n)",
			Summary: "There are enough unallocated GPUs, but not on one node.",
			Description: value3 + " pods of {{ $labels.namespace }} request more {{ $labels.resource }} than any " +
				"single node has unallocated, although all nodes together have enough. " +
				"Pack small pods together (MostAllocated scoring), or drain a node with few allocated GPUs."},
		{Name: "GPUCapacityExhausted", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"resource"},
			For: minutes15, Keep: minutes15, Dashboard: dashboard,
			Expr: "count by (cluster, resource) (\n  " + waiting + "\n) and on (cluster, resource) " +
				unallocatedTotal + " == 0",
			Summary: "Pods are pending and no GPU is unallocated.",
			Description: value3 + " pods are pending for {{ $labels.resource }}, and none is unallocated. " +
				"Look for idle GPUs first (GPUAllocatedIdle), then add nodes or preempt low priorities."},
		{Name: "GPUResourceNotOffered", Severity: Warning, Needs: kubeStateMetrics, Labels: labels, For: minutes30,
			Keep: minutes5, Dashboard: dashboard,
			Expr: pods + "(\n  " + waiting + "\n) unless on (cluster, resource) " +
				"cluster:gpu_allocatable_devices:sum > 0",
			Summary: "Pods request a GPU resource that no node offers.",
			Description: value3 + " pods of {{ $labels.namespace }} request {{ $labels.resource }}, which no node " +
				"offers. " +
				"Check the spelling and the MIG layout, and whether the device plugin runs on the nodes that should " +
				"offer it."},
		{Name: "GPURequestsOvercommitted", Severity: Info, Needs: kubeStateMetrics, Labels: []string{"resource"},
			For: hour, Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1.5, 0.1, 100, "requested over allocatable devices")},
			Expr:       "cluster:gpu_requests:sum / (cluster:gpu_allocatable_devices:sum > 0) > $ratio",
			Summary:    "Pods request far more GPUs than there are.",
			Description: "Pods request " + asPercent + " of the allocatable {{ $labels.resource }}. " +
				"Admit workloads through a queue (Kueue, Volcano), or add nodes."},
		{Name: "GPUQuotaOvercommitted", Severity: Info, Needs: kubeStateMetrics, Labels: nil, For: hour,
			Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1.5, 0.1, 100, "quotas for whole GPUs over allocatable ones")},
			Expr: `sum by (cluster) (kube_resourcequota{type="hard",resource="requests.nvidia.com/gpu"})
  / on (cluster) sum by (cluster) (cluster:gpu_allocatable_devices:sum{resource=~"nvidia_com_gpu(_shared)?"}) > $ratio`,
			Summary: "Quotas exceed the number of GPUs by far.",
			Description: "Quotas of all namespaces add up to " + asPercent + " of the allocatable GPUs. " +
				"Pods may be pending although their namespace is within its quota: lower the quotas, or document " +
				"that they are limits only."},
	}
}
