package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// KubeFamily is a metric family of kube-state-metrics, with its real name and labels.
type KubeFamily struct {
	Name, Help string
	read       func(*kube, KubeEmit)
}

// KubeEmit receives one series: its value, then names and values of its labels in turn. The slice is reused.
type KubeEmit func(value float64, labels ...string)

// kube is a cluster at one time.
type kube struct {
	at         stamp
	nodes      []kubeNode
	pods       []kubePod
	namespaces []string
	requested  map[string]float64 // by namespace
}

type kubeNode struct {
	*node
	plan *nodePlan
	// cordoned: it is going into maintenance.
	cordoned bool
}

type kubePod struct {
	*pod
	node, phase string
}

// finishedFor is how long the object of a finished pod exists.
const finishedFor = 30 * minute

// KubeState calls do for every family of a cluster, sorted by name, with a function that emits its series. An empty
// cluster means all.
func (f *Fleet) KubeState(cluster string, at time.Time, do func(KubeFamily, func(KubeEmit))) {
	k := f.kube(cluster, f.stamp(at))
	for _, family := range KubeFamilies() {
		do(family, func(emit KubeEmit) { family.read(k, emit) })
	}
}

func (f *Fleet) kube(cluster string, t stamp) *kube {
	k := &kube{at: t, requested: map[string]float64{}}
	for _, r := range f.racks {
		if cluster != "" && r.pool.Cluster != cluster {
			continue
		}
		p := r.plan(r.cycleAt(t))
		for n := range p.nodes {
			k.nodes = append(k.nodes, kubeNode{f.nodes[r.first+n], &p.nodes[n], t >= p.to-maintenance-hour})
		}
		for _, pod := range p.pods {
			if t < pod.created {
				break
			}
			kp := kubePod{pod: pod, phase: "Running"}
			switch {
			case pod.node < 0:
				kp.phase = "Pending"
				if t >= pod.ended {
					continue
				}
			case t < pod.started:
				kp.phase = "Pending"
			case t >= pod.ended && !pod.completes:
				continue
			case t >= pod.ended:
				kp.phase = "Succeeded"
				if t >= pod.ended+finishedFor {
					continue
				}
			}
			if pod.node >= 0 {
				kp.node = f.nodes[r.first+pod.node].name
			}
			k.pods = append(k.pods, kp)
			if kp.phase != "Succeeded" {
				k.requested[pod.of.namespace] += float64(pod.count)
			}
		}
	}
	for _, b := range behaviors() {
		k.namespaces = append(k.namespaces, b.namespaces...)
	}
	slices.Sort(k.namespaces)
	k.namespaces = slices.Compact(k.namespaces)
	return k
}

// resourceLabel formats a resource name as kube-state-metrics does.
func resourceLabel(r string) string {
	return strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(r)
}

// owner returns kind and name of the object that created a pod.
func (p *pod) owner() (kind, name string) {
	if p.of.kind == "Deployment" {
		return "ReplicaSet", p.of.name + "-" + suffix(p.of.id>>8, 9)
	}
	return p.of.kind, p.of.name
}

// offered counts the devices of a node by resource; lost GPUs are not allocatable.
func (n kubeNode) offered(t stamp) (capacity, allocatable map[string]int) {
	capacity, allocatable = map[string]int{}, map[string]int{}
	for i := range n.gpus {
		pl := n.place(n.plan, i)
		for slot := range pl.shares {
			r := n.rack.resource(slot)
			if pl.faultOf(FaultNoDevice, t) != nil {
				capacity[r] += 0
				allocatable[r] += 0
				continue
			}
			capacity[r]++
			allocatable[r] += b2i(pl.faultOf(FaultLost, t) == nil)
		}
	}
	return capacity, allocatable
}

// KubeFamilies lists the simulated families of kube-state-metrics, sorted by name.
func KubeFamilies() []KubeFamily {
	pods := func(read func(k *kube, p *kubePod, emit KubeEmit)) func(*kube, KubeEmit) {
		return func(k *kube, emit KubeEmit) {
			var labels []string
			for i := range k.pods {
				p := &k.pods[i]
				read(k, p, func(value float64, more ...string) {
					labels = append(labels[:0], "namespace", p.of.namespace, "pod", p.name, "uid", p.uid())
					emit(value, append(labels, more...)...)
				})
			}
		}
	}
	nodes := func(read func(k *kube, n kubeNode, emit KubeEmit)) func(*kube, KubeEmit) {
		return func(k *kube, emit KubeEmit) {
			for _, n := range k.nodes {
				read(k, n, emit)
			}
		}
	}
	devices := func(which func(capacity, allocatable map[string]int) map[string]int) func(*kube, KubeEmit) {
		return nodes(func(k *kube, n kubeNode, emit KubeEmit) {
			counts := which(n.offered(k.at))
			for _, r := range slices.Sorted(maps.Keys(counts)) {
				emit(float64(counts[r]), "node", n.name, "resource", resourceLabel(r), "unit", "integer")
			}
			emit(128, "node", n.name, "resource", "cpu", "unit", "core")
			emit(float64(1<<40), "node", n.name, "resource", "memory", "unit", "byte")
		})
	}
	limits := func(_ *kube, p *kubePod, emit KubeEmit) {
		emit(float64(p.count), "container", p.container, "node", p.node, "resource", resourceLabel(p.resource), "unit", "integer")
	}
	requests := func(k *kube, p *kubePod, emit KubeEmit) {
		limits(k, p, emit)
		emit(float64(4*p.count), "container", p.container, "node", p.node, "resource", "cpu", "unit", "core")
	}
	return []KubeFamily{
		{Name: "kube_job_owner", Help: "Information about the Job's owner.", read: owners("Job", "job_name", "CronJob")},
		{Name: "kube_namespace_labels", Help: "Kubernetes labels converted to Prometheus labels.",
			read: func(k *kube, emit KubeEmit) {
				for i, ns := range k.namespaces {
					emit(1, "namespace", ns, "label_kubernetes_io_metadata_name", ns, "label_team", ns,
						"label_cost_center",
						fmt.Sprintf("cc-%d", 100+i%4))
				}
			}},
		{Name: "kube_node_info", Help: "Information about a cluster node.",
			read: nodes(func(k *kube, n kubeNode, emit KubeEmit) {
				emit(1, "node", n.name, "kernel_version", "6.8.0-71-generic", "os_image", "Ubuntu 24.04.3 LTS",
					"container_runtime_version", "containerd://2.1.4", "kubelet_version", "v1.34.2",
					"kubeproxy_version", "deprecated", "provider_id", "standin://"+n.name, "pod_cidr",
					fmt.Sprintf("10.%d.%d.0/24", 64+n.index/256, n.index%256), "system_uuid",
					uid(mix(uint64(n.index), 8)), "internal_ip", n.address())
			})},
		{Name: "kube_node_labels", Help: "Kubernetes labels converted to Prometheus labels.",
			read: nodes(func(k *kube, n kubeNode, emit KubeEmit) {
				zone, rack := n.location()
				emit(1, "node", n.name, "label_node_pool", n.rack.pool.Name, "label_nvidia_com_gpu_product",
					strings.ReplaceAll(n.rack.board.model, " ", "-"), "label_topology_kubernetes_io_zone", zone,
					"label_topology_kubernetes_io_rack", rack)
			})},
		{Name: "kube_node_spec_unschedulable", Help: "Whether a node can schedule new pods.",
			read: nodes(func(k *kube, n kubeNode, emit KubeEmit) { emit(float64(b2i(n.cordoned)), "node", n.name) })},
		{Name: "kube_node_status_allocatable", Help: "The allocatable for different resources of a node that are " +
			"available for scheduling.",
			read: devices(func(_, allocatable map[string]int) map[string]int { return allocatable })},
		{Name: "kube_node_status_capacity", Help: "The capacity for different resources of a node.",
			read: devices(func(capacity, _ map[string]int) map[string]int { return capacity })},
		{Name: "kube_node_status_condition", Help: "The condition of a cluster node.",
			read: nodes(func(k *kube, n kubeNode, emit KubeEmit) {
				for _, status := range []string{"true", "false", "unknown"} {
					emit(float64(b2i(status == "true")), "node", n.name, "condition", "Ready", "status", status)
				}
			})},
		{Name: "kube_pod_container_resource_limits", Help: "The number of requested limit resource by a container.",
			read: pods(limits)},
		{Name: "kube_pod_container_resource_requests", Help: "The number of requested request resource by a container.",
			read: pods(requests)},
		{Name: "kube_pod_created", Help: "Unix creation timestamp",
			read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
				emit(float64(p.created / second))
			})},
		{Name: "kube_pod_info", Help: "Information about pod.", read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
			kind, name := p.owner()
			ip, host := "", ""
			if p.node != "" {
				ip, host = fmt.Sprintf("10.%d.%d.%d", 64+p.id>>16%64, p.id>>8%256, p.id%256),
					p.of.rack.fleet.nodes[p.of.rack.first+p.pod.node].address()
			}
			emit(1, "host_ip", host, "pod_ip", ip, "node", p.node, "created_by_kind", kind, "created_by_name", name,
				"priority_class", "", "host_network", "false")
		})},
		{Name: "kube_pod_owner", Help: "Information about the Pod's owner.",
			read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
				kind, name := p.owner()
				emit(1, "owner_kind", kind, "owner_name", name, "owner_is_controller", "true")
			})},
		{Name: "kube_pod_start_time", Help: "Start time in unix timestamp for a pod.",
			read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
				if p.phase != "Pending" {
					emit(float64(p.started / second))
				}
			})},
		{Name: "kube_pod_status_phase", Help: "The pods current phase.",
			read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
				for _, phase := range []string{"Pending", "Succeeded", "Failed", "Unknown", "Running"} {
					emit(float64(b2i(phase == p.phase)), "phase", phase)
				}
			})},
		{Name: "kube_pod_status_unschedulable", Help: "Describes the unschedulable status for the pod.",
			read: pods(func(k *kube, p *kubePod, emit KubeEmit) {
				if p.node == "" {
					emit(1)
				}
			})},
		{Name: "kube_replicaset_owner", Help: "Information about the ReplicaSet's owner.",
			read: owners("ReplicaSet", "replicaset", "Deployment")},
		{Name: "kube_resourcequota", Help: "Information about resource quota.", read: func(k *kube, emit KubeEmit) {
			for _, ns := range k.namespaces {
				used := k.requested[ns]
				for _, kind := range []string{"hard", "used"} {
					value := used
					if kind == "hard" {
						value = quota(ns, len(k.nodes))
					}
					emit(value, "resourcequota", "gpus", "namespace", ns, "resource", "requests.nvidia.com/gpu", "type", kind)
				}
			}
		}},
	}
}

// quota is the limit of a namespace in GPUs, from its name and the size of the cluster.
func quota(namespace string, nodes int) float64 {
	h := uint64(0)
	for _, c := range []byte(namespace) {
		h = mix(h, uint64(c))
	}
	return float64(nodes) * float64(3+h%3)
}

// owners emits one series for each object of a kind that created pods.
func owners(kind, label, above string) func(*kube, KubeEmit) {
	return func(k *kube, emit KubeEmit) {
		seen := map[[2]string]bool{}
		for i := range k.pods {
			p := &k.pods[i]
			have, name := p.owner()
			key := [2]string{p.of.namespace, name}
			if have != kind || seen[key] {
				continue
			}
			seen[key] = true
			if above == "CronJob" { // has no owner
				emit(1, "namespace", p.of.namespace, label, name, "owner_kind", "", "owner_name", "", "owner_is_controller", "")
				continue
			}
			emit(1, "namespace", p.of.namespace, label, name, "owner_kind", above, "owner_name", p.of.name, "owner_is_controller", "true")
		}
	}
}

// location is where a node stands. T4 nodes have no rack label, as nodes that nobody has labeled.
func (n *node) location() (zone, rack string) {
	zone = fmt.Sprintf("%s-%c", n.cluster, 'a'+n.rack.index%2)
	if n.rack.board.key == "t4" {
		return zone, ""
	}
	return zone, fmt.Sprintf("r%02d", n.rack.index+1)
}

func (n *node) address() string {
	return fmt.Sprintf("10.%d.%d.%d", n.index/65536, n.index/256%256, n.index%256)
}
