package alerts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Record is one recording rule. Its name is level:metric:operation. Dashboards above node level, the capacity report
// and alerts read records, never raw series.
type Record struct {
	Name string
	// Labels are the labels of the result, beside the cluster's, which every record keeps where there is one.
	Labels []string
	// Help is the meaning of one series, with its unit.
	Help string
	// Needs names what has to be scraped beside the exporter; empty: nothing.
	Needs string
	// Expr is PromQL of Prometheus 2.42, with the cluster's label spelled cluster.
	Expr string
}

// Group is a rule group: its records are evaluated in their order, so that one may read those before it. A record
// may read those of an earlier group too, as they were at that group's last evaluation.
type Group struct {
	Name    string
	Records []Record
	// Interval is how often the group is evaluated; 0: as often as the server does by default.
	Interval time.Duration
}

// What Needs says of rules that read kube_* series: for their value, or only to leave out nodes in maintenance.
const (
	kubeStateMetrics = "kube-state-metrics"
	kubeOptional     = "kube-state-metrics to leave out nodes that are cordoned or not Ready"
)

// onGPU and friends are the labels on which series are joined.
const (
	onGPU = "cluster, node, uuid"
	onPod = "cluster, node, namespace, pod"
	// onContainer are those of a pod on a GPU.
	onContainer = onPod + ", uuid"
)

// Groups returns the recording rules in the order of evaluation.
func Groups() []Group {
	return []Group{
		{Name: "gpu-exporter-models", Records: models(), Interval: seldom},
		{Name: "gpu-exporter-problems", Records: problemGPUs()},
		{Name: "gpu-exporter-activity", Records: append(nodeLevels(activity()), busyPercent(), unattributed()),
			Interval: seldom},
		{Name: "gpu-exporter-memory-power", Records: nodeLevels(memoryAndPower()), Interval: seldom},
		{Name: "gpu-exporter-allocation", Records: slices.Concat(nodeLevels(allocation()), []Record{schedulable()}, devices(), placement()),
			Interval: seldom},
		{Name: "gpu-exporter-events", Records: events()},
		{Name: "gpu-exporter-workloads", Records: workloads(), Interval: seldom},
		{Name: "gpu-exporter-workload-allocation", Records: append(workloadLevels(workloadAllocation()), teams()...),
			Interval: seldom},
		{Name: "gpu-exporter-workload-time", Records: workloadLevels(workloadTime()), Interval: seldom},
		{Name: "gpu-exporter-workload-gauges", Records: workloadLevels(workloadGauges()), Interval: seldom},
		{Name: "gpu-exporter-workload-activity", Records: append(gpuActivity(), workloadLevels(workloadActivity())...),
			Interval: seldom},
		{Name: "gpu-exporter-sharing", Records: append(shared(), useAboveRequest()), Interval: seldom},
		{Name: "gpu-exporter-worst", Records: worst(), Interval: seldom},
		{Name: "gpu-exporter-halfhours", Records: halfHours(), Interval: 30 * minute},
		{Name: "gpu-exporter-maxima", Records: maxima(), Interval: 30 * minute},
		{Name: "gpu-exporter-requests", Records: requests(), Interval: seldom},
		{Name: "gpu-exporter-readings", Records: readings(), Interval: seldom},
		{Name: "gpu-exporter-self", Records: self()},
	}
}

// Records returns the recording rules of all groups.
func Records() []Record {
	var all []Record
	for _, g := range Groups() {
		all = append(all, g.Records...)
	}
	return all
}

// modelRecord has the model of every GPU, once, since a join with the many labels of gpu_info is expensive.
const modelRecord = "gpu:gpu_model:info"

// The records of faults by GPU, and what most of them select.
const (
	problemRecord = "gpu:gpu_problems:info"
	limitedRecord = "gpu:gpu_clock_limited_seconds:rate5m"
	healthRecord  = "gpu:gpu_health:info"
	verdictRecord = "gpu:gpu_verdicts:info"
	xidRecord     = "gpu:gpu_xid_events:sum"
	eccRecord     = "gpu:gpu_ecc_errors:sum"
	overRequest   = "container:gpu_use_over_request:ratio"
	uncorrected   = eccRecord + `{severity="uncorrected"}`
)

// closedNodes leaves out the nodes on which no pod is placed now, where kube-state-metrics is scraped.
const closedNodes = " unless on (cluster, node) (max by (cluster, node) (kube_node_spec_unschedulable) == 1)" +
	` unless on (cluster, node) (max by (cluster, node) (kube_node_status_condition{condition="Ready",status="true"}) == 0)`

// withModel joins the GPU's model to a vector of GPUs.
func withModel(devs string) string {
	return "(" + devs + ") * on (" + onGPU + ") group_left (model) " + modelRecord
}

// workloadRecord has the workload of every pod.
const workloadRecord = "pod:gpu_workload:info"

// withWorkload joins the workload of pods to a vector.
func withWorkload(vector string) string {
	return "(" + vector + ") * on (" + onPod + ") group_left (workload_type, workload) " + ownerFirst(onPod, workloadRecord)
}

// ownerFirst has one row for each pod of a record. Backfilled series have no staleness markers: the pod's own name and that of its
// owner overlap for some minutes, and two rows are an error of the whole group.
func ownerFirst(by, record string) string {
	return "(topk by (" + by + ") (1, " + record + `{workload_type!="pod"}) or on (` + by + ") " + record + `{workload_type="pod"})`
}

// podRecord has the workload and the model of every pod on every GPU: the join of all quantities of containers.
const podRecord = "pod:gpu_device_workload:info"

// ofWorkload joins them to a vector of containers.
func ofWorkload(vector string) string {
	return "(" + vector + ") * on (" + onContainer + ") group_left (workload_type, workload, model) " +
		ownerFirst(onContainer, podRecord)
}

// ofOwners joins those of pods that have an owner.
func ofOwners(vector string) string {
	return "(" + vector + ") * on (" + onContainer + ") group_left (workload_type, workload, model) topk by (" + onContainer + ") (1, " +
		podRecord + `{workload_type!="pod"})`
}

func by(op string, labels []string, expr string) string {
	return op + " by (" + strings.Join(append([]string{"cluster"}, labels...), ", ") + ") (" + expr + ")"
}

// perNode is a quantity that is summed up by node and model, and from there by model where dashboards read each minute of weeks.
type perNode struct {
	metric, operation string
	own               []string // labels of the quantity itself, kept at every level
	help              string   // what the sum over GPUs means
	devs              string   // one element per GPU (and own labels)
	models            bool     // whether the sum by model is a record too
}

// activity is GPU-time by state, and utilization.
func activity() []perNode {
	return []perNode{
		{"gpu_time_seconds", "rate5m", []string{"state"},
			"GPUs by state; the sum over all states is the number of GPUs.",
			"rate(gpu_time_seconds_total[5m])", true},
		{"gpu_busy_seconds", "rate5m", nil, "Busy GPUs (GPU equivalents); divided by gpu_observed_seconds:rate5m, the utilization.",
			"rate(gpu_busy_seconds_total[5m])", false},
		{"gpu_observed_seconds", "rate5m", nil, "GPUs whose activity was observed.",
			"rate(gpu_observed_seconds_total[5m])", false},
		{"gpu_sm_active_seconds", "rate5m", nil,
			"GPU equivalents of active SMs (Hopper and newer); divided by gpu_profiled_seconds:rate5m, their activity.",
			"rate(gpu_sm_active_seconds_total[5m])", false},
		{"gpu_tensor_active_seconds", "rate5m", nil,
			"GPU equivalents of active tensor cores, likewise.",
			"rate(gpu_tensor_active_seconds_total[5m])", false},
		{"gpu_profiled_seconds", "rate5m", nil, "GPUs covered by the GPM counters.",
			"rate(gpu_profiled_seconds_total[5m])", false},
	}
}

// memoryAndPower are memory, power, and the time with limited clocks.
func memoryAndPower() []perNode {
	return []perNode{
		{"gpu_memory_used_bytes", "sum", nil, "Used device memory.", "gpu_memory_used_bytes", false},
		{"gpu_memory_total_bytes", "sum", nil, "Device memory.", "gpu_memory_total_bytes", false},
		{"gpu_power_watts", "sum", nil, "Power draw; without an energy counter the driver's average.",
			"rate(gpu_energy_joules_total[5m]) or on (" + onGPU + ") gpu_power_watts", true},
		{"gpu_power_limit_watts", "sum", nil, "Sum of the enforced power limits.", "gpu_power_limit_watts", false},
		{"gpu_clock_limited_seconds", "rate5m", []string{"reason"},
			"GPU equivalents with limited clocks; reasons overlap. No series while none is limited.",
			limitedRecord, false},
	}
}

// allocation is the number of GPUs, and what is allocated of them.
func allocation() []perNode {
	return []perNode{
		{"gpu_device_up", "count", nil, "GPUs with a known UUID, available or not.",
			"group by (" + onGPU + ") (gpu_device_up)", false},
		{"gpu_device_up", "sum", nil, "Available GPUs.", "gpu_device_up", false},
		{"gpu_allocation", "sum", nil, "Allocated GPUs, including fractions, where the allocation is known.",
			"gpu_allocation_ratio", true},
		{"gpu_unallocated", "sum", nil, "Unallocated GPUs, including fractions, of those that are available.",
			"min by (" + onGPU + ") (gpu_device_up) * on (" + onGPU + ") (1 - max by (" + onGPU +
				") (gpu_allocation_ratio))", false},
	}
}

// unhealthy are the GPUs of which the kubelet allocates no device, tainted those on which a DRA driver lets no pod be placed.
const (
	unhealthy = "(gpu_kubelet_healthy == 0)"
	tainted   = `gpu_taint_info{effect=~"NoSchedule|NoExecute"}`
)

// schedulable is the number of GPUs on which a pod can be placed, 0 included where the allocation is known.
func schedulable() Record {
	// Without a kubelet (Docker, Slurm) there is no number of allocatable devices, and nothing is left out.
	record := perNode{"gpu_schedulable", "sum", nil, "Schedulable GPUs: wholly unallocated, available and without a problem that " +
		"requires a repair, not in MIG mode, offered by the kubelet and healthy to it, on a node that is Ready and not cordoned " +
		"(the last two where kube-state-metrics is scraped). No series where the allocation is unknown.",
		"min by (" + onGPU + ") (gpu_device_up) and on (" + onGPU + ") max by (" + onGPU +
			") (gpu_allocation_ratio) == 0 unless on (" + onGPU + ") (max by (" + onGPU +
			") (gpu_mig_mode) == 1) unless on (" + onGPU + ") " + unhealthy + " unless on (" + onGPU +
			") (" + healthRecord + `{state!~"degraded|unknown"} or ` + problemRecord + `{problem=~"fabric_.+"})` +
			" unless on (cluster, node) (" + by("sum", []string{"node"}, "gpu_node_allocatable_devices") +
			" == 0)" + closedNodes, false}.levels()[0]
	record.Expr += "\n  or 0 * node:gpu_allocation:sum"
	return record
}

// busyPercent are GPUs by utilization.
func busyPercent() Record {
	return Record{Name: "cluster:gpu_busy_percent:count", Labels: []string{"model", "busy_percent"},
		Help: "GPUs by utilization: busy_percent 30 counts those from 30 % to below 40 %, 90 those up to 100 %.",
		Expr: `count_values by (cluster, model) ("busy_percent", clamp_max(floor(10 * (` +
			withModel("sum by ("+onGPU+") (rate(gpu_busy_seconds_total[5m])) / (sum by ("+onGPU+
				") (rate(gpu_observed_seconds_total[5m])) > 0)") + `)), 9) * 10)`}
}

// unattributed is the activity of no container.
func unattributed() Record {
	return Record{Name: "node:gpu_unattributed_busy_seconds:rate5m", Labels: []string{"node", "reason"},
		Help: "Busy GPUs (GPU equivalents) not attributed to any container, by reason.",
		Expr: by("sum", []string{"node", "reason"}, "rate(gpu_unattributed_busy_seconds_total[5m])")}
}

// devices are the pods of GPUs, and devices as the kubelet counts them.
func devices() []Record {
	return []Record{
		{Name: "gpu:gpu_pods:count", Labels: []string{"node", "uuid", "gpu"},
			Help: "Pods to which each GPU or a part of it is allocated; no series for an unallocated GPU.",
			Expr: by("count", []string{"node", "uuid", "gpu"}, "group by ("+onGPU+
				", gpu, namespace, pod) (gpu_container_allocation_ratio > 0)")},
		{Name: "node:gpu_unallocated_devices:sum", Labels: []string{"node", "resource"},
			Help: "Unallocated devices as reported by the kubelet.",
			Expr: by("sum", []string{"node", "resource"},
				"max by (cluster, node, resource) (gpu_node_allocatable_devices) - max by (cluster, node, resource) "+
					"(gpu_node_allocated_devices)")},
		{Name: "node:gpu_schedulable_devices:sum", Labels: []string{"node", "resource"},
			Help: "Those on nodes that are Ready and not cordoned (where kube-state-metrics is scraped).",
			Expr: "node:gpu_unallocated_devices:sum" + closedNodes},
		{Name: "cluster:gpu_allocated_devices:sum", Labels: []string{"resource"},
			Help: "Devices allocated to containers.",
			Expr: by("sum", []string{"resource"}, "gpu_node_allocated_devices")},
		{Name: "cluster:gpu_node_devices:sum", Labels: []string{"state"},
			Help: "GPUs by state: up, failed, missing, detached.",
			Expr: by("sum", []string{"state"}, "gpu_node_devices")},
	}
}

// nodeLevels returns the records by node and model, and sums by model.
func nodeLevels(quantities []perNode) []Record {
	var out []Record
	for _, q := range quantities {
		out = append(out, q.levels()...)
	}
	return out
}

func (q perNode) levels() []Record {
	name := func(level string) string { return level + ":" + q.metric + ":" + q.operation }
	labels := func(l ...string) []string { return append(l, q.own...) }
	records := []Record{
		{Name: name("node"), Labels: labels("node", "model"), Help: q.help,
			Expr: by("sum", labels("node", "model"), withModel(q.devs))},
		{Name: name("model"), Labels: labels("model"), Help: q.help, Expr: by("sum", labels("model"), name("node"))},
	}
	if q.models {
		return records
	}
	return records[:1]
}

// problem is a state of a GPU that needs attention.
type problem struct{ name, devs string }

// problems lists those that the exporter cannot see, because they are relative to other GPUs or to time; the GPU is
// degraded by them. The expression has one element, of any value, for each GPU in the state.
func problems() []problem {
	return []problem{
		// A GPU without an NVLink bridge has all links down: only links that its neighbors have are missing.
		{"nvlink_down",
			`gpu_nvlink_links{state="up"} < on (cluster, node) group_left () max by (cluster, node) (gpu_nvlink_links{state="up"})`},
		// Slots with half the lanes are common, especially in clouds: a link is narrow compared with its neighbors.
		{"pcie_narrow", "gpu_pcie_link_width < on (cluster, node) group_left () max by (cluster, node) " +
			"(gpu_pcie_link_width)"},
		{"thermal_slowdown",
			hardwareThermal + " > 0.05"},
		{"power_brake", powerBrake + " > 0.05"},
	}
}

// models are the model and the limited clocks of each GPU, which other records read.
func models() []Record {
	return []Record{
		// A rate covers five minutes of a GPU that has just disappeared; so must its model. A GPU without gpu_info (lost
		// before it was ever read) has an empty model, so that it is part of every sum.
		{Name: modelRecord, Labels: []string{"node", "uuid", "model"}, Help: "Model of each GPU.",
			Expr: "group by (" + onGPU + ", model) (last_over_time(gpu_info[10m])) or on (" + onGPU + ") group by (" +
				onGPU + ") (last_over_time(gpu_device_up[10m]))"},
		{Name: limitedRecord, Labels: []string{"node", "uuid", "gpu", "reason"},
			Help: "Share of time with limited clocks; no series while they are not.",
			Expr: "max by (cluster, node, uuid, gpu, reason) (rate(gpu_clock_limited_seconds_total[5m]) > 0)"},
	}
}

// problemGPUs are the GPUs with problems, XID events and memory errors. Faults are recorded by GPU, which is cheap: most
// GPUs have none.
func problemGPUs() []Record {
	const gpuOf = "cluster, node, uuid, gpu"
	parts := []string{"group by (" + gpuOf +
		`, state, problem) (label_replace(gpu_health_reason_info, "problem", "$1", "reason", "(.+)"))`}
	for _, p := range problems() {
		parts = append(parts, fmt.Sprintf(`label_replace(label_replace(group by (%s) (%s), "problem", "%s", "", ""), `+
			`"state", "degraded", "", "")`, gpuOf, p.devs, p.name))
	}
	return []Record{
		{Name: xidRecord, Labels: []string{"node", "uuid", "gpu", "xid"},
			Help: "XIDs since the exporter started; no series before the first.",
			Expr: "max by (" + gpuOf + ", xid) (gpu_xid_events_total > 0)"},
		{Name: eccRecord, Labels: []string{"node", "uuid", "gpu", "severity"},
			Help: "Memory errors since the driver was loaded; no series before the first.",
			Expr: by("sum", []string{"node", "uuid", "gpu", "severity"}, "max by ("+gpuOf+
				", severity, memory) (gpu_ecc_errors_total > 0)")},
		{Name: problemRecord, Labels: []string{"node", "uuid", "gpu", "problem", "state"},
			Help: "Problems of GPUs, each with the verdict it leads to: the reasons of gpu_health, and states relative to other " +
				"GPUs or to time.", Expr: strings.Join(parts, "\n  or ")},
		{Name: healthRecord, Labels: []string{"node", "uuid", "gpu", "state"},
			Help: "Verdict on each GPU that is not healthy: the exporter's, or degraded by the problems of the rules.",
			Expr: "group by (" + gpuOf + `, state) (gpu_health{state!="healthy"} == 1)` + "\n  or on (" + onGPU +
				") group by (" + gpuOf + ", state) (" + problemRecord + `{state="degraded"})`},
		{Name: verdictRecord, Labels: []string{"node", "uuid", "gpu", "by", "state"},
			Help: "Verdicts of other programs on GPUs that any of them or the exporter finds not healthy. " +
				"by=dra_driver: the effect of a taint, or untainted. by=kubelet: healthy or unhealthy.",
			Expr: `label_replace(group by (` + gpuOf + `, state) (label_replace(gpu_taint_info, "state", "$1", "effect", "(.+)"))` +
				"\n  or label_replace(group by (" + gpuOf + ") (" + healthRecord + " or on (" + onGPU + ") " + unhealthy +
				`), "state", "untainted", "", "") and on (cluster, node) (gpu_exporter_source_up{source="resource_slices"} == 1)` +
				" unless on (" + onGPU + `) gpu_taint_info, "by", "dra_driver", "", "")` +
				"\n  or label_replace(label_replace(group by (" + gpuOf + ") (" + unhealthy + `), "state", "unhealthy", "", "")` +
				"\n    or label_replace(group by (" + gpuOf + ") (gpu_kubelet_healthy == 1 and on (" + onGPU + ") (" + healthRecord +
				" or on (" + onGPU + `) gpu_taint_info)), "state", "healthy", "", ""), "by", "kubelet", "", "")`},
	}
}

// events are the problems by node, and what the counters of events gained.
func events() []Record {
	// What a counter gained in five minutes, from its values at both ends: over steps of five minutes the gains add up
	// to the counter's own increase, whatever the scrape interval. After a restart all of a counter is new, beside what
	// it gained before. The first event of a code is no increase, since its series begins at 1; it counts where something
	// was scraped before.
	gained := func(record, known string) string {
		begin, highest := "last_over_time("+record+"[10m] offset 5m)", "max_over_time("+record+"[5m])"
		gain := "clamp_min(" + highest + " - " + begin + ", 0)"
		end := "(" + record + " or 0 * " + highest + ")"
		return gain + " + " + end + " * (" + end + " < bool (" + begin + " + " + gain + "))\n  or (" + record +
			" and on (" + known + ")"
	}
	return []Record{
		{Name: "node:gpu_problems:count", Labels: []string{"node", "model", "problem"},
			Help: "GPUs of the node by problem; a GPU with two problems is counted under both.",
			Expr: by("count", []string{"node", "model", "problem"}, withModel(problemRecord))},
		{Name: "node:gpu_with_problem:count", Labels: []string{"node", "model"},
			Help: "GPUs of the node with at least one problem, each counted once.",
			Expr: by("count", []string{"node", "model"}, withModel(by("group", []string{"node", "uuid"}, healthRecord)))},
		{Name: "node:gpu_xid_events:increase5m", Labels: []string{"node", "xid"},
			Help: "XIDs of the last 5 minutes, from the counters; add them up over steps of 5 minutes.",
			Expr: by("sum", []string{"node", "xid"}, gained(xidRecord,
				"cluster, node) last_over_time(node:gpu_device_up:count[10m] offset 5m)"))},
		{Name: "node:gpu_ecc_errors:increase5m", Labels: []string{"node", "severity"},
			Help: "Memory errors, likewise.",
			Expr: by("sum", []string{"node", "severity"}, gained(eccRecord, onGPU+") (gpu_device_up offset 5m == 1)"))},
	}
}

// noLabel is the value of a dimension that an object has no label for, or kube-state-metrics does not export.
const noLabel = "(no label)"

// placement and teams have the dimensions of catalog.Dimensions. Each node and namespace has one row at all times, so that
// sums by a dimension are those of the fleet.
func placement() []Record {
	return []Record{byLabels("node:gpu_placement:info", "node", "group by (cluster, node) (node:gpu_device_up:count)",
		"Node pool, zone and rack of each node with GPUs")}
}

func teams() []Record {
	return []Record{byLabels("namespace:gpu_team:info", "namespace",
		"group by (cluster, namespace) (last_over_time(namespace:gpu_allocated_seconds:rate5m[10m]))",
		"Team of each namespace with allocated GPUs")}
}

// byLabels has the values of the dimensions of objects, of which all has one element each.
func byLabels(name, object, all, help string) Record {
	one, labels := "cluster, "+object, []string{object}
	expr := "kube_" + object + "_labels and on (" + one + ") " + all + " or on (" + one + ") " + all
	for _, d := range catalog.Dimensions() {
		if d.Object != object {
			continue
		}
		labels = append(labels, d.Name)
		var of []string
		for _, l := range d.Labels {
			of = append(of, `"`+catalog.KubeStateLabel(l)+`"`)
		}
		// The first label that is not empty; Kubernetes allows no semicolon in one.
		expr = fmt.Sprintf(`label_replace(label_replace(label_join(%[1]s, "%[2]s", ";", %[3]s), "%[2]s", "$1", "%[2]s", `+
			`";*([^;]+).*"), "%[2]s", "%[4]s", "%[2]s", ";*")`, expr, d.Name, strings.Join(of, ", "), noLabel)
	}
	return Record{Name: name, Labels: labels, Help: help + ", from the labels that kube-state-metrics exports; " +
		noLabel + ": none.", Expr: "topk by (" + one + ") (1, " + by("group", labels, expr) + ")"}
}

// worst are the extremes of each cluster: reading them costs nothing, however many GPUs there are.
func worst() []Record {
	return []Record{
		{Name: "gpu:gpu_temperature_celsius:top20", Labels: []string{"node", "uuid", "gpu"},
			Help: "Temperature of the twenty hottest GPUs of the cluster.",
			Expr: "topk by (cluster) (20, max by (cluster, node, uuid, gpu) (gpu_temperature_celsius{sensor=\"gpu\"}))"},
		{Name: "pod:gpu_unused_seconds:top20", Labels: []string{"node", "namespace", "pod"},
			Help: "Unused allocated GPUs (gap or idle) of the twenty pods of the cluster that have the most, mean of the last " +
				"half hour; pods that are well used are left out.",
			Expr: "topk by (cluster) (20, sum by (" + onPod + ") (rate(gpu_container_unused_seconds_total[30m])) > 0" +
				wellUsedPods("rate", "30m") + ")"},
	}
}

// wellUsedPods leaves out the pods that are no waste, whatever part of their GPUs pauses.
func wellUsedPods(function, window string) string {
	return fmt.Sprintf(" unless on (%[1]s) sum by (%[1]s) (%[2]s(gpu_container_busy_seconds_total[%[3]s])) > %[4]g * "+
		"sum by (%[1]s) (%[5]s)",
		onPod, function, window, catalog.WellUsed, catalog.MeasuredTime(function, window, ""))
}

// perWorkload is a quantity of containers that is summed up by workload and model, and from there by namespace.
type perWorkload struct {
	metric, operation string
	own               []string
	help              string
	containers        string // one element per container and GPU
	aggregate         string // sum, max or min
	namespaces        bool   // whether the sum by namespace is a record too
}

// workloads are allocation and usage by workload and by namespace.
func workloads() []Record {
	// Counters are exported for five minutes after their container has stopped, and rates last five more.
	pods := "group by (" + onPod + ") (last_over_time(gpu_pod_info[10m]) or on (" + onPod +
		") last_over_time(gpu_container_allocated_seconds_total[10m]))"
	out := []Record{{
		Name: workloadRecord, Labels: []string{"node", "namespace", "pod", "workload_type", "workload"},
		Help: "Workload of each pod: from the exporter if it may query the API server, else from the " +
			"kube-prometheus rules for kube-state-metrics, else the pod itself.",
		Expr: "topk by (" + onPod + ") (1, max by (" + onPod +
			`, workload_type, workload) (last_over_time(gpu_pod_info{workload!=""}[10m])))` +
			" or on (" + onPod + ") (" + pods + " * on (cluster, namespace, pod) group_left (workload_type, workload)" +
			" topk by (cluster, namespace, pod) (1, max by (cluster, namespace, pod, workload_type, workload) " +
			"(last_over_time(namespace_workload_pod:kube_pod_owner:relabel[10m]))))" +
			" or on (" + onPod + ") label_replace(label_replace(" + pods +
			`, "workload", "$1", "pod", "(.+)"), "workload_type", "pod", "", "")`,
	}}
	return append(out, Record{Name: podRecord, Labels: []string{"node", "uuid", "namespace", "pod", "workload_type", "workload", "model"},
		Help: "Workload of each pod, and model of each GPU that it has or uses.",
		Expr: withWorkload(withModel("group by (" + onContainer + ") (last_over_time(gpu_container_allocated_seconds_total[10m]) or " +
			"last_over_time(gpu_container_busy_seconds_total[10m]) or gpu_container_memory_used_bytes or " +
			"gpu_container_allocation_ratio)"))},
		Record{Name: "workload:gpu_pods:count",
			Labels: []string{"namespace", "workload_type", "workload"}, Help: "Pods to which GPUs are allocated.",
			Expr: by("count", []string{"namespace", "workload_type", "workload"},
				withWorkload("group by ("+onPod+") (gpu_container_allocation_ratio)"))})
}

// shared are the GPUs by how many pods they are allocated to, and what is used of shared ones: over hours, each GPU and
// container would be too much to read.
func shared() []Record {
	const on = " and on (" + onGPU + ") gpu:gpu_pods:count > 1"
	return []Record{
		{Name: "node:gpu_by_pods:count", Labels: []string{"node", "pods"},
			Help: "Allocated GPUs by the number of pods to which they or parts of them are allocated.",
			Expr: `count_values by (cluster, node) ("pods", gpu:gpu_pods:count)`},
		{Name: "namespace:gpu_shared_busy_seconds:rate5m", Labels: []string{"node", "namespace"},
			Help: "Busy GPUs (GPU equivalents) of containers on GPUs that are allocated to more than one pod.",
			Expr: by("sum", []string{"node", "namespace"}, "rate(gpu_container_busy_seconds_total[5m])"+on)},
		{Name: "namespace:gpu_shared_memory_used_bytes:sum", Labels: []string{"node", "namespace"},
			Help: "Device memory used by containers on these GPUs.",
			Expr: by("sum", []string{"node", "namespace"}, "gpu_container_memory_used_bytes"+on)},
	}
}

// useAboveRequest finds the containers of schemes that enforce nothing. A request is a guaranteed amount, a limit, or else
// the share of the GPU.
func useAboveRequest() Record {
	const (
		each  = " by (cluster, node, uuid, gpu, namespace, pod, container) "
		share = "sum" + each + `(gpu_container_allocation_ratio{mig_uuid=""} < 0.999)`
	)
	over := func(quantity, used, requested, where string) string {
		return `label_replace(` + used + " / ((" + requested + ") > 0) > 1" + where + `, "quantity", "` + quantity + `", "", "")`
	}
	return Record{Name: overRequest, Labels: []string{"node", "uuid", "gpu", "namespace", "pod", "container", "quantity"},
		Help: "Use divided by request, of containers that share a GPU and use more than they requested: of its memory, or of " +
			"its time (quantity busy, mean of 5 minutes, only while the GPU is busy to 90 %, and others use it). The request " +
			"is the guaranteed amount, else the limit, else the share of the GPU.",
		Expr: over("memory", "sum"+each+"(gpu_container_memory_used_bytes)",
			"max"+each+"(gpu_container_memory_guaranteed_bytes) or max"+
				each+"(gpu_container_memory_limit_bytes) or "+share+" * on ("+onGPU+") group_left () max by ("+onGPU+
				") (gpu_memory_total_bytes)", " and on (cluster, node, uuid, gpu) "+sharingContainers+" > 1") + "\n  or " +
			over("busy", "sum"+each+"(rate(gpu_container_busy_seconds_total[5m]))",
				"max"+each+"(gpu_container_compute_limit_ratio) or "+share,
				" and on (cluster, node, uuid, gpu) sum"+byGPU+"(rate(gpu_busy_seconds_total[5m])) > 0.9 unless sum"+each+
					"(rate(gpu_container_busy_seconds_total[5m])) > on ("+onGPU+") group_left () (0.9 * sum by ("+onGPU+
					") (rate(gpu_container_busy_seconds_total[5m])))")}
}

// workloadAllocation is what is allocated to containers, and the power that they take.
func workloadAllocation() []perWorkload {
	return []perWorkload{
		{"gpu_allocation", "sum", nil, "Allocated GPUs, including fractions.",
			"sum by (" + onContainer + ") (gpu_container_allocation_ratio)", "sum", true},
		{"gpu_allocated_seconds", "rate5m", nil, "Allocated GPUs, mean of 5 minutes.",
			"rate(gpu_container_allocated_seconds_total[5m])", "sum", true},
		{"gpu_power_watts", "sum", nil, "Power attributed to the containers.",
			"rate(gpu_container_energy_joules_total[5m])", "sum", true},
	}
}

// workloadTime is how the containers spend their time on GPUs.
func workloadTime() []perWorkload {
	return []perWorkload{
		{"gpu_busy_seconds", "rate5m", nil, "Busy GPUs (GPU equivalents), including GPUs that are not allocated to " +
			"the container.", "rate(gpu_container_busy_seconds_total[5m])", "sum", true},
		{"gpu_observed_seconds", "rate5m", nil, "GPUs on which the container's activity was observed.",
			"rate(gpu_container_observed_seconds_total[5m])", "sum", false},
		{"gpu_measured_seconds", "rate5m", nil, "Allocated GPUs whose activity was measured; gpu_busy_seconds:rate5m divided by " +
			"it is busy of measured.", catalog.MeasuredTime("rate", "5m", ""), "sum", true},
		{"gpu_unused_seconds", "rate5m", []string{"state"}, "Unused allocated GPUs: gap or idle.",
			"rate(gpu_container_unused_seconds_total[5m])", "sum", true},
	}
}

// activityOfWhole is the activity of the GPUs that are wholly allocated to one pod. A rank that waits for others in NCCL
// is busy, but its SMs are not active, and it draws less power.
const (
	activityRecord  = "gpu:gpu_activity:ratio5m"
	activityOfWhole = "(group by (" + onContainer + ") (gpu_container_allocation_ratio > 0.99)) * on (" + onGPU +
		") group_left () " + activityRecord
)

// gpuActivity is the activity of each GPU, which the extremes of a workload read.
func gpuActivity() []Record {
	rate := func(counter string) string { return "sum by (" + onGPU + ") (rate(" + counter + "[5m]))" }
	return []Record{{Name: activityRecord, Labels: []string{"node", "uuid"},
		Help: "Activity of each GPU: SM activity, or power over its limit before Hopper.",
		Expr: rate("gpu_sm_active_seconds_total") + " / (" + rate("gpu_profiled_seconds_total") + " > 0) or on (" + onGPU +
			") " + rate("gpu_energy_joules_total") + " / max by (" + onGPU + ") (gpu_power_limit_watts)"},
		{Name: spinRecord, Labels: []string{"node", "uuid"},
			Help: "Power over its limit, below 0.4, of GPUs that are busy all the time and do nothing: tensor cores and memory are " +
				"active " +
				"for less than 2 %, where that is measured. A kernel that waits for other GPUs does this.",
			Expr: rate("gpu_energy_joules_total") + " / max by (" + onGPU + ") (gpu_power_limit_watts) < 0.4\n  and on (" + onGPU + ") " +
				rate("gpu_busy_seconds_total") + " > 0.95 * " + rate("gpu_observed_seconds_total") + "\n  unless on (" + onGPU + ") (" +
				rate("gpu_tensor_active_seconds_total") + " > 0.02 * " + rate("gpu_profiled_seconds_total") + "\n    or " +
				rate("gpu_dram_active_seconds_total") + " > 0.02 * " + rate("gpu_profiled_seconds_total") + ")"}}
}

// workloadGauges are the memory and the last activity of containers.
func workloadGauges() []perWorkload {
	return []perWorkload{
		{"gpu_memory_used_bytes", "sum", nil, "Used device memory.", "gpu_container_memory_used_bytes", "sum", false},
		{"gpu_memory_used_bytes", "max", nil, "Maximum device memory used by one container on one GPU.",
			"gpu_container_memory_used_bytes", "max", false},
		{"gpu_last_busy_timestamp_seconds", "max", nil, "Unix time at which any of the containers was last busy.",
			"gpu_container_last_busy_timestamp_seconds", "max", false},
	}
}

// workloadActivity are the extremes of utilization and activity.
func workloadActivity() []perWorkload {
	ratio := "sum by (" + onContainer + ", container) (rate(gpu_container_busy_seconds_total[5m])) / (sum by (" + onContainer +
		", container) (" + catalog.MeasuredTime("rate", "5m", "") + ") > 0)"
	return []perWorkload{
		{"gpu_busy", "ratio_max", nil, "Busy of measured of the busiest container on a GPU; above 1 where it uses more than its " +
			"share.", ratio, "max", false},
		{"gpu_activity", "ratio_max", nil, "Activity of the most active whole GPU of the workload.", activityOfWhole, "max", false},
		{"gpu_activity", "ratio_min", nil, "Activity of the least active whole GPU of the workload.", activityOfWhole, "min", false},
	}
}

// workloadLevels returns the records by workload and model, and by namespace and model.
func workloadLevels(quantities []perWorkload) []Record {
	var out []Record
	for _, q := range quantities {
		out = append(out, q.levels()...)
	}
	return out
}

func (q perWorkload) levels() []Record {
	workload := append([]string{"namespace", "workload_type", "workload", "model"}, q.own...)
	namespace := append([]string{"namespace", "model"}, q.own...)
	name := q.metric + ":" + q.operation
	records := []Record{
		{Name: "workload:" + name, Labels: workload, Help: q.help, Expr: by(q.aggregate, workload, ofWorkload(q.containers))},
		{Name: "namespace:" + name, Labels: namespace, Help: q.help, Expr: by(q.aggregate, namespace, "workload:"+name)},
	}
	if q.namespaces {
		return records
	}
	return records[:1]
}

// The records of half hours that alerts read.
const (
	nvlinksRecord  = "gpu:gpu_nvlink_links:max30m"
	widthRecord    = "gpu:gpu_pcie_link_width:max30m"
	gpusRecord     = "node:gpu_devices:min30m"
	spinRecord     = "gpu:gpu_spinning:ratio5m"
	requestsRecord = "pod:gpu_requests:sum"
	waitingRecord  = "pod:gpu_requests_waiting:sum"
	withoutRecord  = "node:gpu_without_exporter:count"
	targetRecord   = "node:gpu_exporter_target:info30m"
	medianRecord   = "workload:gpu_activity:ratio_p50_30m"
)

// halfHours keeps what boards add up and alerts look up over days: a sample every half hour instead of one a minute. Weeks of ten
// thousand workloads are then read in a fraction of a second. They are read over a range alone (sum_over_time and the
// like); between two samples an instant query finds nothing.
func halfHours() []Record {
	labels := []string{"namespace", "workload_type", "workload", "model"}
	seconds := func(metric, help string) Record {
		return Record{Name: "workload:" + metric + ":increase30m", Labels: labels, Help: help,
			Expr: "300 * " + by("sum", labels, "sum_over_time(workload:"+metric+":rate5m[30m:5m])")}
	}
	return []Record{
		seconds("gpu_allocated_seconds", "Allocated GPU-seconds."),
		seconds("gpu_busy_seconds", "Busy GPU-seconds."),
		seconds("gpu_measured_seconds", "Allocated GPU-seconds whose activity was measured."),
		seconds("gpu_unused_seconds", "Unused allocated GPU-seconds."),
		{Name: "workload:gpu_busy:ratio_p95_30m", Labels: labels,
			Help: "95th percentile of busy of measured of the busiest container.",
			Expr: by("max", labels, "quantile_over_time(0.95, workload:gpu_busy:ratio_max[30m])")},
		{Name: medianRecord, Labels: labels,
			Help: "Median of the activity of the most active whole GPU, of 30 minutes.",
			Expr: by("max", labels, "quantile_over_time(0.5, workload:gpu_activity:ratio_max[30m])")},
		{Name: "workload:gpu_memory_used_bytes:max30m", Labels: labels,
			Help: "Maximum device memory used by one container on one GPU, of 30 minutes.",
			Expr: by("max", labels, "max_over_time(workload:gpu_memory_used_bytes:max[30m])")},
	}
}

// maxima are what alerts compare with the past: days of each minute of ten thousand GPUs would cost seconds.
func maxima() []Record {
	gpu := []string{"node", "uuid", "gpu"}
	return []Record{
		{Name: nvlinksRecord, Labels: gpu,
			Help: "Maximum number of active NVLinks.",
			Expr: by("max", gpu, `max_over_time(gpu_nvlink_links{state="up"}[30m])`)},
		{Name: widthRecord, Labels: gpu,
			Help: "Maximum number of PCIe lanes.",
			Expr: by("max", gpu, "max_over_time(gpu_pcie_link_width[30m])")},
		{Name: targetRecord, Labels: []string{"node", "job", "instance"},
			Help: "Node that a target of the exporter reported.",
			Expr: by("group", []string{"node", "job", "instance"}, "last_over_time(gpu_exporter_build_info[30m])")},
		{Name: gpusRecord, Labels: []string{"node"},
			Help: "Minimum number of GPUs.",
			// Where a backend does not mark the end of series, GPUs that a driver names by their UUID stand beside their PCI
			// addresses for some minutes.
			Expr: "min_over_time(sum by (cluster, node) (node:gpu_device_up:count)[30m:5m])"},
	}
}

// requests are the devices that pods request, and their claims. kube-state-metrics keeps the requests of finished pods, so the phase
// decides.
func requests() []Record {
	labels := []string{"namespace", "resource"}
	return []Record{
		{Name: requestsRecord, Labels: append([]string{"pod", "phase"}, labels...), Needs: kubeStateMetrics,
			Help: "Devices requested by pods that are pending or running, and their claims.",
			Expr: requested + " * on (cluster, namespace, pod) group_left (phase)\n  " +
				`max by (cluster, namespace, pod, phase) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)`},
		{Name: waitingRecord, Labels: append([]string{"pod"}, labels...), Needs: kubeStateMetrics,
			Help: "Devices requested by pods that wait for a node; one that pulls its image has its devices.",
			Expr: "sum without (phase) (" + requestsRecord + `{phase="Pending"}) unless on (cluster, namespace, pod) ` +
				`kube_pod_status_scheduled{condition="true"} == 1`},
		{Name: "namespace:gpu_requests_pending:sum", Labels: labels, Needs: kubeStateMetrics,
			Help: "Devices requested by pending pods.",
			Expr: by("sum", labels, requestsRecord+`{phase="Pending"}`)},
	}
}

// readings are what dashboards show of the readings and allocations of all GPUs over hours.
func readings() []Record {
	return []Record{
		{Name: "node:gpu_last_read_age_seconds:max", Labels: []string{"node", "poll"},
			Help: "Time between the last poll of an available GPU and the scrape, by poll group, beside the difference of their clocks.",
			Expr: by("max", []string{"node", "poll"}, "timestamp(gpu_last_read_timestamp_seconds) - "+
				"gpu_last_read_timestamp_seconds and on ("+onGPU+") gpu_device_up == 1")},
		{Name: "node:gpu_attribution_error_ratio:max", Labels: []string{"node", "quantity"},
			Help: "Relative difference between a GPU's total and its parts, maximum of the GPUs.",
			Expr: by("max", []string{"node", "quantity"}, "gpu_attribution_error_ratio")},
		{Name: "node:gpu_unattributed_memory_used_bytes:sum", Labels: []string{"node", "reason"},
			Help: "Used device memory not attributed to any container, by reason.",
			Expr: by("sum", []string{"node", "reason"}, "gpu_unattributed_memory_used_bytes")},
		{Name: "node:gpu_allocation_ratio_by_resource:sum", Labels: []string{"node", "resource"},
			Help: "Allocated GPUs (GPU equivalents) by requested resource.",
			Expr: by("sum", []string{"node", "resource"}, "gpu_container_allocation_ratio")},
	}
}

// self is the state of the exporters.
func self() []Record {
	const exporters = "topk by (cluster, node) (1, group by (cluster, node, version) (gpu_exporter_build_info))"
	return []Record{
		{Name: "cluster:gpu_nodes:count", Labels: []string{"version", "driver_version"},
			Help: "Nodes whose exporter is scraped, by its version and the driver's; empty without a driver.",
			// For some minutes after an upgrade a node may have two versions, where a backend does not mark the end of series.
			Expr: by("count", []string{"version", "driver_version"}, "group by (cluster, node, driver_version) (gpu_driver_info) * on "+
				"(cluster, node) group_left (version) "+exporters+"\n    or on (cluster, node) "+exporters)},
		{Name: withoutRecord, Labels: []string{"node"}, Needs: kubeStateMetrics,
			Help: "GPUs of a node that is Ready and not cordoned, and whose exporter is not there: not with another " +
				"cluster's name, nor as " +
				"a target that is down.",
			Expr: `sum by (cluster, node) (kube_node_status_capacity{resource=~"` + resourceRE + `"}) > 0
  unless on (cluster, node) gpu_exporter_build_info
  unless on (cluster, node) ` + nodeOfTarget(targets) + `
  unless on (node) (gpu_exporter_build_info unless on (cluster, node) kube_node_status_capacity)` + closedNodes},
		{Name: "cluster:gpu_exporter_sources_down:sum", Labels: []string{"source"},
			Help: "Exporters whose data source is down, without kernel logs that were never readable.",
			Expr: by("sum", []string{"source"}, "1 - gpu_exporter_source_up unless on (cluster, node, source) "+catalog.NeverRead(""))},
	}
}
