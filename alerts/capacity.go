package alerts

// waiting is what each pod asks for that no node has taken yet. A pod that only pulls its image is pending too, but
// has its devices.
const waiting = `sum by (cluster, namespace, pod, resource) (kube_pod_container_resource_requests{resource=~"` + resourceRE + `"}
    * on (cluster, namespace, pod) group_left () max by (cluster, namespace, pod) (kube_pod_status_phase{phase="Pending"} == 1)
    unless on (cluster, namespace, pod) kube_pod_status_scheduled{condition="true"} == 1)`

// freeMost and freeTotal are the devices that are left: on the node that has the most, and on all.
const (
	freeMaximum = "max by (cluster, resource) (node:gpu_unallocated_devices:sum)"
	freeTotal   = "sum by (cluster, resource) (node:gpu_unallocated_devices:sum)"
	onOffer     = " on (cluster, resource) group_left () "
)

func capacity() []Alert {
	labels := []string{"namespace", "resource"}
	dashboard := Dashboard{dashboardCapacity, nil}
	pods := "count by (cluster, namespace, resource) "
	return []Alert{
		{Name: "GPUUnallocatedWhilePodsWait", Severity: Warning, Needs: kubeStateMetrics, Labels: labels, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(\n  " + waiting + "\n  <=" + onOffer + freeMaximum + "\n)",
			Summary: "Pods wait for GPUs though a node has enough of them free.",
			Description: value3 + " pods of {{ $labels.namespace }} wait for {{ $labels.resource }} that a node has free. " +
				"Something else keeps them off it: read the events of the pod for taints, node selectors, affinity, CPU, memory or a quota, and see whether the node is cordoned."},
		{Name: "GPUFragmented", Severity: Info, Needs: kubeStateMetrics, Labels: labels, For: minutes15, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(\n  " + waiting + "\n  >" + onOffer + freeMaximum + "\n  <=" + onOffer + freeTotal + "\n)",
			Summary: "There are enough free GPUs, but not on one node.",
			Description: value3 + " pods of {{ $labels.namespace }} ask for more {{ $labels.resource }} than any single node has free, though all nodes together have enough. " +
				"Move small pods together (bin packing, MostAllocated scoring), or drain the node that is nearly free."},
		{Name: "GPUCapacityExhausted", Severity: Warning, Needs: kubeStateMetrics, Labels: []string{"resource"}, For: minutes15, Keep: minutes15, Dashboard: dashboard,
			Expr:    "count by (cluster, resource) (\n  " + waiting + "\n) and on (cluster, resource) " + freeTotal + " == 0",
			Summary: "Pods wait and no GPU is free.",
			Description: value3 + " pods wait for {{ $labels.resource }}, and none is left. " +
				"Look for idle holders first (GPUAllocatedIdle), then add nodes or let low priorities give way."},
		{Name: "GPUResourceNotOffered", Severity: Warning, Needs: kubeStateMetrics, Labels: labels, For: minutes30, Keep: minutes5, Dashboard: dashboard,
			Expr:    pods + "(\n  " + waiting + "\n) unless on (cluster, resource) cluster:gpu_allocatable_devices:sum > 0",
			Summary: "Pods wait for a GPU resource that no node offers.",
			Description: value3 + " pods of {{ $labels.namespace }} ask for {{ $labels.resource }}, which no node offers. " +
				"Check the spelling and the MIG layout, or whether the device plugin runs on the nodes that should offer it."},
		{Name: "GPURequestsOvercommitted", Severity: Info, Needs: kubeStateMetrics, Labels: []string{"resource"}, For: hour, Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1.5, 0.1, 100, "requested devices over those that nodes offer")},
			Expr:       "cluster:gpu_requests:sum / (cluster:gpu_allocatable_devices:sum > 0) > $ratio",
			Summary:    "Pods ask for far more GPUs than there are.",
			Description: "Pods ask for " + asPercent + " of the {{ $labels.resource }} that nodes offer. " +
				"The queue will not empty by itself: admit work by a queue (Kueue, Volcano), add nodes, or ask who can wait."},
		{Name: "GPUQuotaOvercommitted", Severity: Info, Needs: kubeStateMetrics, Labels: nil, For: hour, Keep: minutes15, Dashboard: dashboard,
			Parameters: []Parameter{number("ratio", 1.5, 0.1, 100, "quotas for whole GPUs over those that nodes offer")},
			Expr: `sum by (cluster) (kube_resourcequota{type="hard",resource="requests.nvidia.com/gpu"})
  / on (cluster) sum by (cluster) (cluster:gpu_allocatable_devices:sum{resource=~"nvidia_com_gpu(_shared)?"}) > $ratio`,
			Summary: "Quotas promise far more GPUs than there are.",
			Description: "Quotas of all namespaces add up to " + asPercent + " of the GPUs that nodes offer. " +
				"Whoever comes late goes empty-handed in spite of a quota: lower quotas, or say openly that they are limits and not promises."},
	}
}
