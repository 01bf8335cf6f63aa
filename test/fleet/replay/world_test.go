package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xid is an error of a GPU: how often the running exporter counted it, and when it was last.
type xid struct {
	count uint64
	last  time.Time
}

// device is a GPU and what is wrong with it.
type device struct {
	lost, removed bool
	model         string
	// reasons are those of a verdict, with the state that each leads to.
	reasons map[string]string
	// recovery is the recommended action; empty: a driver before R570.
	recovery string
	xids     map[string]xid
	// kubelet is the kubelet's verdict: 0 or 1; -1: none.
	kubelet           int
	taint             string
	ecc               map[string]float64 // by severity
	links             int
	linkErrors        float64 // per second, of four kinds
	fabricFault       string
	width             int
	limited           map[string]float64 // share of time by reason
	celsius, slowdown float64
	hertz             float64
	mig               bool
	// unread is how long it has not been polled, and used the share of its memory beside that of its pods.
	unread time.Duration
	used   float64
}

// pod is a pod that requests GPUs, and has them where it has a node.
type pod struct {
	name, kind, workload, resource string
	node                           int // -1: it waits
	gpus                           []int
	requests                       int
	share                          float64 // of each of its GPUs
	// busy is its share of time, and power the share of the limit that its GPUs draw; 0: as busy as it is.
	busy, power, sm, tensor, dram float64
	// gap is idle time that is shorter than a minute.
	gap           float64
	phase         string
	crashing, mig bool
}

// node is a node with an exporter.
type node struct {
	down, exporterDown, driverless, cordoned, notReady, absent bool
	// remains is an absent exporter whose node is there.
	remains bool
	// detached are GPUs of another driver.
	detached   int
	instance   string
	sourceDown string
	devices    []*device
	// offered and allocatedDevices are by resource.
	offered map[string]int
	mode    string // why NVML is shut down
	// capacity is what the kubelet registered.
	capacity int
}

// world is a cluster of a story at a time, with all that its targets expose.
type world struct {
	name  string
	nodes []*node
	pods  []*pod
	// kubeLabel is the cluster's label of kube-state-metrics; noKube is a cluster without it.
	kubeLabel string
	noKube    bool
	job       string // empty: the default
	// twice is a second scrape of the exporters, honorless one without honor_labels.
	twice, honorless bool
	begin, now       time.Time // the beginning of the story and the present, by the nodes' clocks
	counters         map[string]*counter
}

type counter struct {
	value float64
	at    time.Time
}

// faulty is the GPU of the first node that something happens to.
const faulty = 2

func newWorld(name string, nodes, gpus int) *world {
	w := &world{name: name, kubeLabel: name}
	for range nodes {
		n := &node{offered: map[string]int{"nvidia_com_gpu": gpus}, capacity: gpus}
		for range gpus {
			n.devices = append(n.devices, &device{model: "H100", recovery: "none", kubelet: -1, links: 18, width: 16, celsius: 60,
				slowdown: 90, hertz: 1.9e9, reasons: map[string]string{}, xids: map[string]xid{}, ecc: map[string]float64{},
				limited: map[string]float64{}})
		}
		w.nodes = append(w.nodes, n)
	}
	for i := range nodes {
		w.pods = append(w.pods, &pod{name: fmt.Sprintf("train-%d", i), kind: "Job", workload: "train", node: i, gpus: []int{0, 1},
			busy: 0.95, sm: 0.6, tensor: 0.3, dram: 0.3})
	}
	if gpus > faulty {
		w.pods = append(w.pods, &pod{name: "serve", kind: "Deployment", workload: "serve", gpus: []int{faulty}, busy: 0.6, sm: 0.3,
			tensor: 0.1, dram: 0.2})
	}
	return w
}

func (w *world) nodeName(i int) string { return fmt.Sprintf("%s-%d", w.name, i+1) }

// gpu is the one that something happens to.
func (w *world) gpu() *device { return w.nodes[0].devices[faulty] }

// xid is an error of it that was counted so often, the last time so long after the beginning.
func (w *world) xid(code string, count uint64, last time.Duration) {
	w.gpu().xids[code] = xid{count, w.begin.Add(last)}
}

// pod finds a pod.
func (w *world) pod(name string) *pod {
	return w.pods[slices.IndexFunc(w.pods, func(p *pod) bool { return p.name == name })]
}

func (w *world) drop(name string) {
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.name == name })
}

func flag01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// exposer puts series of one target.
type exposer struct {
	w     *world
	at    time.Time
	clock time.Time
	id    []string
	put   func(labels.Labels, float64)
}

func (e exposer) gauge(metric string, v float64, more ...string) {
	all := append(append([]string{"__name__", metric}, e.id...), more...)
	for i := 0; i < len(all); i += 2 {
		if all[i] == "cluster" && all[i+1] == "" {
			all = slices.Delete(all, i, i+2)
			break
		}
	}
	e.put(labels.FromStrings(all...), v)
}

// rate adds what a counter gained since its last scrape, at a rate per second.
func (e exposer) rate(metric string, perSecond float64, more ...string) {
	key := metric + strings.Join(e.id, ",") + strings.Join(more, ",")
	c := e.w.counters[key]
	if c == nil {
		c = &counter{at: e.at}
		e.w.counters[key] = c
	}
	c.value += perSecond * e.at.Sub(c.at).Seconds()
	c.at = e.at
	e.gauge(metric, c.value, more...)
}

// exposeNode puts what the exporter of a node exposes, and whether it could be scraped.
func (w *world) exposeNode(i int, at, clock time.Time, put func(labels.Labels, float64)) {
	n := w.nodes[i]
	if n.absent {
		return
	}
	name := w.nodeName(i)
	instance := name
	if n.instance != "" {
		instance = n.instance
	}
	up := !n.down && !n.exporterDown
	job := "monitoring/gpu-exporter"
	if w.job != "" {
		job = w.job
	}
	e := exposer{w, at, clock, []string{"cluster", w.name, "job", job, "instance", instance}, put}
	e.gauge("up", flag01(up))
	e.id = append(e.id, "node", name)
	if !up {
		for key := range w.counters {
			if strings.Contains(key, ","+name) {
				delete(w.counters, key)
			}
		}
		return
	}
	polls := []string{"fast", "medium", "slow"}
	intervals := map[string]time.Duration{"fast": 2 * time.Second, "medium": 10 * time.Second, "slow": time.Minute}
	e.gauge("gpu_exporter_build_info", 1, "version", "1")
	e.gauge("gpu_exporter_source_up", flag01(!n.driverless), "source", "nvml")
	e.gauge("gpu_exporter_source_up", flag01(n.sourceDown != "podresources"), "source", "podresources")
	if n.mode != "" {
		e.gauge("gpu_exporter_paused", 1, "reason", n.mode)
	}
	known := n.sourceDown != "podresources"
	if known {
		for resource, offered := range n.offered {
			e.gauge("gpu_node_allocatable_devices", float64(offered), "resource", resource)
			allocated := 0
			for _, p := range w.pods {
				if p.node == i && p.resourceName() == resource {
					allocated += len(p.gpus)
				}
			}
			e.gauge("gpu_node_allocated_devices", float64(allocated), "resource", resource)
		}
	}
	for _, poll := range polls {
		e.gauge("gpu_exporter_poll_interval_seconds", intervals[poll].Seconds(), "poll", poll)
	}
	counted := 0
	for j, d := range n.devices {
		if d.removed {
			continue
		}
		counted++
		g := e
		g.id = append(slices.Clone(e.id), "uuid", fmt.Sprintf("GPU-%s-%d", name, j), "gpu", fmt.Sprint(j))
		if n.driverless {
			g.id = append(slices.Clone(e.id), "uuid", fmt.Sprintf("0000:%02d:00.0", j), "gpu", "")
		}
		w.exposeGPU(g, i, j, n, d, known)
		for _, poll := range polls {
			if !n.driverless {
				g.gauge("gpu_last_read_timestamp_seconds", float64(clock.Add(-d.unread).Truncate(intervals[poll]).Unix()), "poll", poll)
			}
		}
	}
	e.gauge("gpu_node_devices", float64(counted), "state", "up")
	e.gauge("gpu_node_devices", float64(n.detached), "state", "detached")
	if w.twice {
		put(labels.FromStrings("__name__", "gpu_device_up", "cluster", w.name, "job", "annotations", "instance", "x", "node", name,
			"uuid", fmt.Sprintf("GPU-%s-0", name), "gpu", "0"), 1)
	}
}

func (p *pod) resourceName() string {
	if p.resource == "" {
		return "nvidia_com_gpu"
	}
	return p.resource
}

func (p *pod) part() float64 {
	if p.share == 0 {
		return 1
	}
	return p.share
}

// exposeGPU puts a GPU, and what containers have of it.
func (w *world) exposeGPU(e exposer, i, j int, n *node, d *device, known bool) {
	up := !n.driverless && !d.lost
	e.gauge("gpu_device_up", flag01(up))
	if n.driverless {
		return
	}
	e.gauge("gpu_info", 1, "model", d.model)
	state := "healthy"
	if d.lost {
		state = "lost"
		e.gauge("gpu_health_reason_info", 1, "state", "lost", "reason", "lost")
	}
	for reason, s := range d.reasons {
		state = s
		e.gauge("gpu_health_reason_info", 1, "state", s, "reason", reason)
	}
	for _, s := range gpu.HealthStates {
		if string(s) == state {
			e.gauge("gpu_health", 1, "state", state)
		}
	}
	if d.recovery != "" {
		e.gauge("gpu_recovery_action", 1, "action", d.recovery)
	}
	for code, x := range d.xids {
		if x.count > 0 {
			e.gauge("gpu_xid_events_total", float64(x.count), "xid", code)
		}
		e.gauge("gpu_xid_last_timestamp_seconds", float64(x.last.Unix()), "xid", code)
	}
	if d.kubelet >= 0 {
		e.gauge("gpu_kubelet_healthy", float64(d.kubelet))
	}
	if d.taint != "" {
		e.gauge("gpu_taint_info", 1, "key", "gpu.nvidia.com/xid", "value", "79", "effect", d.taint)
	}
	allocated, busy, gap, used := 0.0, 0.0, 0.0, d.used
	power, sm, tensor, dram := 0.0, 0.0, 0.0, 0.0
	for _, p := range w.pods {
		if p.node != i || !slices.Contains(p.gpus, j) {
			continue
		}
		allocated += p.part()
		busy = min(1, busy+p.busy*p.part())
		gap += p.gap * p.part()
		if p.power > 0 {
			power = p.power
		} else {
			power = max(power, 0.12+0.7*p.busy)
		}
		sm, tensor, dram = max(sm, p.sm), max(tensor, p.tensor), max(dram, p.dram)
		used += 0.5 * p.part()
		w.exposeContainer(e, p, up, d.mig, known)
	}
	if known {
		e.gauge("gpu_allocation_ratio", min(1, allocated))
	}
	if !up {
		e.rate("gpu_time_seconds_total", 1, "state", "unavailable")
		return
	}
	times := map[string]float64{"busy": busy, "gap": gap, "idle": max(0, allocated-busy-gap), "unallocated": max(0, 1-max(allocated, busy)),
		"unavailable": 0, "unknown": 0}
	if d.mig || !known {
		times = map[string]float64{"unknown": 1}
	}
	for _, s := range gpu.TimeStates {
		e.rate("gpu_time_seconds_total", times[string(s)], "state", string(s))
	}
	e.gauge("gpu_mig_mode", flag01(d.mig))
	if !d.mig {
		e.rate("gpu_busy_seconds_total", busy)
		e.rate("gpu_observed_seconds_total", 1)
	}
	if power == 0 {
		power = 0.12
	}
	e.rate("gpu_energy_joules_total", 700*power)
	e.gauge("gpu_power_limit_watts", 700)
	if d.model == "H100" && !d.mig {
		e.rate("gpu_sm_active_seconds_total", sm)
		e.rate("gpu_tensor_active_seconds_total", tensor)
		e.rate("gpu_dram_active_seconds_total", dram)
		e.rate("gpu_profiled_seconds_total", 1)
	}
	e.gauge("gpu_memory_total_bytes", 80e9)
	e.gauge("gpu_memory_used_bytes", 80e9*min(used, 1))
	e.gauge("gpu_memory_free_bytes", 80e9*(1-min(used, 1)))
	e.gauge("gpu_temperature_celsius", d.celsius, "sensor", "gpu")
	e.gauge("gpu_temperature_limit_celsius", d.slowdown, "sensor", "gpu", "limit", "slowdown")
	e.gauge("gpu_clock_hertz", d.hertz, "clock", "sm")
	for _, reason := range []string{"hw_thermal", "sw_thermal", "hw_power_brake", "power_cap"} {
		e.rate("gpu_clock_limited_seconds_total", d.limited[reason], "reason", reason)
	}
	for _, severity := range []string{"corrected", "uncorrected"} {
		e.gauge("gpu_ecc_errors_total", d.ecc[severity], "severity", severity, "memory", "dram")
	}
	e.gauge("gpu_nvlink_links", float64(d.links), "state", "up")
	e.gauge("gpu_nvlink_links", float64(18-d.links), "state", "down")
	for _, kind := range []string{"replay", "recovery", "crc_flit", "crc_data"} {
		e.rate("gpu_nvlink_errors_total", d.linkErrors, "kind", kind)
	}
	e.gauge("gpu_fabric_state", 1, "state", "completed")
	if d.fabricFault != "" {
		e.gauge("gpu_fabric_fault", 1, "fault", d.fabricFault)
	}
	e.gauge("gpu_pcie_link_width", float64(d.width))
	e.gauge("gpu_pcie_link_width_max", 16)
}

// exposeContainer puts what the container of a pod has of a GPU.
func (w *world) exposeContainer(e exposer, p *pod, up, mig, known bool) {
	if !known {
		return
	}
	part, c := p.part(), e
	c.id = append(slices.Clone(e.id), "namespace", "team", "pod", p.name, "container", "c")
	resource, uuid := p.resourceName(), ""
	if p.mig {
		uuid = "MIG-" + p.name
	}
	if w.honorless {
		c.id = append(slices.Clone(e.id), "namespace", "monitoring", "pod", "exporter", "container", "c", "exported_pod", p.name)
	}
	c.gauge("gpu_container_allocation_ratio", part, "resource", resource, "mig_uuid", uuid)
	pods := e
	pods.id = dropLabels(c.id, "container", "uuid", "gpu")
	if p.gpus[0] == deviceOf(e.id) {
		pods.gauge("gpu_pod_info", 1, "pod_uid", "u-"+p.name, "workload_type", p.kind, "workload", p.workload)
	}
	if !up {
		return
	}
	c.rate("gpu_container_allocated_seconds_total", part)
	c.gauge("gpu_container_memory_used_bytes", 40e9*part)
	c.rate("gpu_container_energy_joules_total", 700*part*max(p.power, 0.1))
	if mig {
		return
	}
	c.rate("gpu_container_busy_seconds_total", p.busy*part)
	c.rate("gpu_container_observed_seconds_total", 1)
	c.rate("gpu_container_unused_seconds_total", p.gap*part, "state", "gap")
	c.rate("gpu_container_unused_seconds_total", max(0, 1-p.busy-p.gap)*part, "state", "idle")
}

func deviceOf(id []string) (j int) {
	for k := 0; k < len(id); k += 2 {
		if id[k] == "gpu" {
			_, _ = fmt.Sscan(id[k+1], &j)
		}
	}
	return j
}

func dropLabels(id []string, names ...string) (out []string) {
	for k := 0; k < len(id); k += 2 {
		if !slices.Contains(names, id[k]) {
			out = append(out, id[k], id[k+1])
		}
	}
	return out
}

// exposeKube puts what kube-state-metrics reports of the cluster.
func (w *world) exposeKube(at, clock time.Time, put func(labels.Labels, float64)) {
	if w.noKube {
		return
	}
	e := exposer{w, at, clock, []string{"cluster", w.kubeLabel, "job", "kube-state-metrics", "instance", "ksm"}, put}
	for i, n := range w.nodes {
		if n.absent && !n.remains {
			continue
		}
		name := w.nodeName(i)
		e.gauge("kube_node_spec_unschedulable", flag01(n.cordoned), "node", name)
		e.gauge("kube_node_status_condition", flag01(!n.notReady), "node", name, "condition", "Ready", "status", "true")
		e.gauge("kube_node_status_capacity", float64(n.capacity), "node", name, "resource", "nvidia_com_gpu", "unit", "integer")
	}
	for _, p := range w.pods {
		id := []string{"namespace", "team", "pod", p.name}
		phase := p.phase
		if phase == "" {
			phase = map[bool]string{true: "Running", false: "Pending"}[p.node >= 0]
		}
		for _, known := range []string{"Pending", "Running", "Succeeded"} {
			e.gauge("kube_pod_status_phase", flag01(known == phase), append(id, "phase", known)...)
		}
		e.gauge("kube_pod_status_scheduled", flag01(p.node >= 0), append(id, "condition", "true")...)
		if p.crashing {
			e.gauge("kube_pod_container_status_waiting_reason", 1, append(id, "container", "c", "reason", "CrashLoopBackOff")...)
		}
		at := ""
		if p.node >= 0 {
			at = w.nodeName(p.node)
		}
		e.gauge("kube_pod_container_resource_requests", float64(max(p.requests, len(p.gpus))), append(id, "container", "c",
			"resource", p.resourceName(), "unit", "integer", "node", at)...)
	}
}
