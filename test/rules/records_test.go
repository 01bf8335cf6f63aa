package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// A recording is a history of some series, and what records say at some moments of it.
type recording struct {
	name, series string
	// asks has a moment, a query and its answers: "10m | node:gpu_x:sum | {node="n1"} 2 & {node="n2"} 3"; "-" is no
	// answer.
	asks []string
}

// GPU is a GPU's info and its seconds, all of one use.
func dev(labels, model, use string) string {
	text := ""
	if model != "" {
		text = `gpu_info{` + labels + `,model="` + model + `"} 1x60` + "\n"
	}
	for _, u := range []string{"busy", "gap", "idle", "unallocated", "unavailable", "unknown"} {
		v := "0x60"
		if u == use {
			v = "0+60x60"
		}
		text += `gpu_time_seconds_total{` + labels + `,state="` + u + `"} ` + v + "\n"
	}
	return text
}

// podOn is a container that is at work on a GPU all the time.
func podOn(labels, pod, values, alloc string) string {
	c := labels + `,namespace="team",pod="` + pod + `",container="c"`
	return `gpu_container_busy_seconds_total{` + c + `} ` + values + `
		gpu_container_observed_seconds_total{` + c + `} ` + values + `
		gpu_container_allocated_seconds_total{` + c + `} ` + values + `
		gpu_container_allocation_ratio{` + c + `,resource="nvidia_com_gpu",mig_uuid=""} ` + alloc + "\n"
}

func podInfo(node, pod, kind, workload, values string) string {
	return `gpu_pod_info{node="` + node + `",namespace="team",pod="` + pod + `",pod_uid="u-` + pod + `",workload_type="` + kind +
		`",workload="` + workload + `"} ` + values + "\n"
}

// nodes have eight GPUs each.
func nodes(names ...string) (text string) {
	for _, n := range names {
		text += `kube_node_status_capacity{node="` + n + `",resource="nvidia_com_gpu"} 8x60` + "\n"
	}
	return text
}

func recordings() []recording {
	const owner = `namespace_workload_pod:kube_pod_owner:relabel{namespace="team",pod="`
	requests := func(pod, phase string) string {
		text := `kube_pod_container_resource_requests{namespace="team",pod="` + pod +
			`",container="c",node="n1",resource="nvidia_com_gpu",unit="integer"} 2x20` + "\n"
		for _, p := range []string{"Pending", "Running", "Succeeded", "Failed"} {
			v := "0x20"
			if p == phase {
				v = "1x20"
			}
			text += `kube_pod_status_phase{namespace="team",pod="` + pod + `",phase="` + p + `"} ` + v + "\n"
		}
		return text
	}
	const old = `node="n3",uuid="GPU-E",gpu="0"`
	return []recording{
		{name: "the first label of each dimension, of what has GPUs",
			series: dev("$A", "a", "busy") + dev("$C", "b", "idle") +
				"gpu_device_up{$A} 1x60\ngpu_device_up{$C} 1x60\n" + podOn("$A", "p", "0+60x60", "1x60") +
				`gpu_container_allocated_seconds_total{$C,namespace="other",pod="q",container="c"} 0+60x60
				kube_node_labels{node="n1",label_node_pool="x",label_eks_amazonaws_com_nodegroup="big",` +
				`label_topology_kubernetes_io_zone="z"} 1x60
				kube_node_labels{node="n9",label_node_pool="cpu"} 1x60
				kube_namespace_labels{namespace="team",label_owner="ml"} 1x60
				kube_namespace_labels{namespace="web",label_team="web"} 1x60` + "\n",
			asks: []string{`20m | node:gpu_placement:info | node:gpu_placement:info{node="n1",pool="big",zone="z",rack="(no label)"} 1 & ` +
				`node:gpu_placement:info{node="n2",pool="(no label)",zone="(no label)",rack="(no label)"} 1`,
				`20m | namespace:gpu_team:info | namespace:gpu_team:info{namespace="team",team="ml"} 1 & ` +
					`namespace:gpu_team:info{namespace="other",team="(no label)"} 1`}},
		{name: "the worst GPUs and pods",
			series: `gpu_temperature_celsius{$A,sensor="gpu"} 70x60
				gpu_temperature_celsius{$A,sensor="memory"} 90x60
				gpu_container_unused_seconds_total{$A,namespace="team",pod="p",container="c",state="idle"} 0+30x60
				gpu_container_unused_seconds_total{$A,namespace="team",pod="q",container="c",state="idle"} 0x60` + "\n",
			asks: []string{"40m | gpu:gpu_temperature_celsius:top20 | gpu:gpu_temperature_celsius:top20{$A} 70",
				`40m | round(pod:gpu_unused_seconds:top20, 0.001) | {node="n1",namespace="team",pod="p"} 0.5`}},
		{name: "each second of each GPU once, whatever the GPU",
			series: dev("$A", "a", "busy") + dev("$B", "a", "idle") + dev("$C", "b", "unallocated") +
				dev("$D", "", "unavailable") + // lost before it was ever read: no gpu_info
				`gpu_device_up{$A} 1x60
				gpu_device_up{$B} 1x60
				gpu_device_up{$C} 1x60
				gpu_device_up{$D} 0x60`,
			asks: []string{
				`10m | round(sum(model:gpu_time_seconds:rate5m), 0.001) | {} 4`,
				`10m | round(sum by (node) (node:gpu_time_seconds:rate5m), 0.001) | {node="n1"} 2 & {node="n2"} 2`,
				`10m | round(model:gpu_time_seconds:rate5m{state="unavailable"}, 0.001) | {model="a",state="unavailable"} 0 & ` +
					`{model="b",state="unavailable"} 0 & {state="unavailable"} 1`,
				`10m | round(sum by (state) (model:gpu_time_seconds:rate5m{state="idle"}), 0.001) | {state="idle"} 1`,
				`10m | sum(node:gpu_device_up:count) | {} 4`,
				`10m | sum(node:gpu_device_up:sum) | {} 3`,
				`10m | node:gpu_schedulable:sum | -`, // the allocation is unknown
				`10m | node:gpu_device_up:count{node="n2"} | node:gpu_device_up:count{node="n2",model="b"} 1 & ` +
					`node:gpu_device_up:count{node="n2"} 1`,
			}},
		{name: "a GPU in MIG mode, before Hopper: no activity, and still a GPU",
			series: dev("$A", "a", "unknown") + `gpu_device_up{$A} 1x60
				gpu_allocation_ratio{$A} 0.5x60
				gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_mig_3g_20gb",mig_uuid="MIG-1"} 0.5x60
				gpu_container_allocation_ratio{$A,$Q,container="c"} 0x60
				gpu_container_allocation_ratio{$A,namespace="team",pod="r-0",container="c"} 0x60
				gpu_container_allocated_seconds_total{$A,$P,container="c"} 0+30x60`,
			asks: []string{
				`10m | gpu:gpu_pods:count | gpu:gpu_pods:count{$A} 1`,
				`10m | round(sum(model:gpu_time_seconds:rate5m), 0.001) | {} 1`,
				`10m | node:gpu_busy_seconds:rate5m | -`,
				`10m | cluster:gpu_busy_percent:count | -`,
				`10m | round(workload:gpu_allocated_seconds:rate5m, 0.001) | {namespace="team",workload_type="pod",workload="p-0",` +
					`model="a"} 0.5`,
				`10m | workload:gpu_busy:ratio_max | -`,
				`10m | sum(node:gpu_unallocated:sum) | {} 0.5`,
				`10m | sum(node:gpu_schedulable:sum) | {} 0`,
			}},
		{name: "a pod of which nothing is known is its own workload",
			series: dev("$A", "a", "busy") + podOn("$A", "p-0", "0+60x60", "1x60") + podInfo("n1", "p-0", "", "", "1x60") +
				"gpu_energy_joules_total{$A} 0+6000x60\ngpu_power_limit_watts{$A} 400x60\n",
			asks: []string{
				`10m | round(workload:gpu_allocated_seconds:rate5m, 0.001) | {namespace="team",workload_type="pod",workload="p-0",` +
					`model="a"} 1`,
				`10m | workload:gpu_pods:count | workload:gpu_pods:count{namespace="team",workload_type="pod",workload="p-0"} 1`,
				`10m | round(workload:gpu_busy:ratio_max, 0.001) | {namespace="team",workload_type="pod",workload="p-0",model="a"} 1`,
				`10m | workload:gpu_activity:ratio_max | workload:gpu_activity:ratio_max{namespace="team",workload_type="pod",` +
					`workload="p-0",model="a"} 0.25`,
				`10m | workload:gpu_activity:ratio_min | workload:gpu_activity:ratio_min{namespace="team",workload_type="pod",` +
					`workload="p-0",model="a"} 0.25`,
			}},
		// q-0 has limits of its own, GPU B is not busy; of node n2's GPUs C has one container, and D one that is at work.
		{name: "containers that use more of a shared GPU than they requested",
			series: podOn("$A", "p-0", "0+42x60", "0.5x60") + podOn("$A", "q-0", "0+15x60", "0.5x60") +
				podOn("$B", "s-0", "0+36x60", "0.5x60") +
				podOn("$B", "t-0", "0+6x60", "0.5x60") + podOn("$C", "u-0", "0+60x60", "0.5x60") +
				podOn("$D", "v-0", "0+57x60", "0.5x60") + podOn("$D", "w-0", "0+3x60", "0.5x60") +
				`gpu_busy_seconds_total{$A} 0+57x60
				gpu_busy_seconds_total{$B} 0+42x60
				gpu_busy_seconds_total{$C} 0+60x60
				gpu_busy_seconds_total{$D} 0+60x60
				gpu_memory_total_bytes{$A} 80e9x60
				gpu_memory_total_bytes{$B} 80e9x60
				gpu_memory_total_bytes{$C} 80e9x60
				gpu_container_memory_used_bytes{$A,$P,container="c"} 50e9x60
				gpu_container_memory_used_bytes{$A,$Q,container="c"} 20e9x60
				gpu_container_memory_guaranteed_bytes{$A,$Q,container="c"} 10e9x60
				gpu_container_compute_limit_ratio{$A,$Q,container="c"} 0.1x60
				gpu_container_memory_used_bytes{$B,namespace="team",pod="s-0",container="c"} 20e9x60
				gpu_container_memory_limit_bytes{$B,namespace="team",pod="s-0",container="c"} 16e9x60
				gpu_container_memory_used_bytes{$C,namespace="team",pod="u-0",container="c"} 79e9x60
				gpu_unattributed_busy_seconds_total{$A,reason="unresolved"} 0+6x60
				gpu_unattributed_busy_seconds_total{$B,reason="unresolved"} 0+3x60
				gpu_unattributed_busy_seconds_total{$B,reason="mps"} 0+12x60
				gpu_unattributed_memory_used_bytes{$A,reason="host"} 1e9x60
				gpu_unattributed_memory_used_bytes{$B,reason="host"} 2e9x60
				gpu_unattributed_memory_used_bytes{$B,reason="mps"} 3e9x60`,
			asks: []string{`10m | node:gpu_by_pods:count | node:gpu_by_pods:count{node="n1",pods="2"} 2 & ` +
				`node:gpu_by_pods:count{node="n2",pods="1"} 1 & node:gpu_by_pods:count{node="n2",pods="2"} 1`,
				`10m | round(namespace:gpu_shared_busy_seconds:rate5m, 0.001) | {node="n1",namespace="team"} 1.65 & ` +
					`{node="n2",namespace="team"} 1`,
				`10m | namespace:gpu_shared_memory_used_bytes:sum | namespace:gpu_shared_memory_used_bytes:sum{node="n1",` +
					`namespace="team"} 90e9`,
				`10m | round(node:gpu_unattributed_busy_seconds:rate5m, 0.001) | {node="n1",reason="unresolved"} 0.15 & ` +
					`{node="n1",reason="mps"} 0.2`,
				`10m | node:gpu_unattributed_memory_used_bytes:sum | node:gpu_unattributed_memory_used_bytes:sum{node="n1",` +
					`reason="host"} 3e9 & node:gpu_unattributed_memory_used_bytes:sum{node="n1",reason="mps"} 3e9`,
				`10m | round(container:gpu_use_over_request:ratio, 0.001) | {$A,$P,container="c",quantity="memory"} 1.25 & ` +
					`{$A,$Q,container="c",quantity="memory"} 2 & {$A,$P,container="c",quantity="busy"} 1.4 & ` +
					`{$A,$Q,container="c",quantity="busy"} 2.5 & {$B,namespace="team",pod="s-0",container="c",quantity="memory"} 1.25`}},
		// GPU B was lost after its last reading; n2 has a single GPU.
		{name: "readings by node",
			series: `gpu_device_up{$A} 1x60
				gpu_device_up{$B} 0x60
				gpu_device_up{$C} 1x60
				gpu_last_read_timestamp_seconds{$A,poll="fast"} -10+60x60
				gpu_last_read_timestamp_seconds{$A,poll="slow"} 0+60x60
				gpu_last_read_timestamp_seconds{$B,poll="fast"} 5x60
				gpu_last_read_timestamp_seconds{$C,poll="fast"} -60+60x60
				gpu_attribution_error_ratio{$A,quantity="busy"} 0.01x60
				gpu_attribution_error_ratio{$B,quantity="busy"} 0.02x60
				gpu_attribution_error_ratio{$C,quantity="memory"} 0.03x60
				gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_gpu"} 1x60
				gpu_container_allocation_ratio{$B,$Q,container="c",resource="nvidia_com_gpu"} 0.5x60
				gpu_container_allocation_ratio{$C,$P,container="c",resource="nvidia_com_mig_1g_10gb"} 0.25x60`,
			asks: []string{
				`10m | node:gpu_last_read_age_seconds:max | node:gpu_last_read_age_seconds:max{node="n1",poll="fast"} 10 & ` +
					`node:gpu_last_read_age_seconds:max{node="n1",poll="slow"} 0 & ` +
					`node:gpu_last_read_age_seconds:max{node="n2",poll="fast"} 60`,
				`10m | node:gpu_attribution_error_ratio:max | node:gpu_attribution_error_ratio:max{node="n1",quantity="busy"} 0.02 & ` +
					`node:gpu_attribution_error_ratio:max{node="n2",quantity="memory"} 0.03`,
				`10m | node:gpu_allocation_ratio_by_resource:sum | ` +
					`node:gpu_allocation_ratio_by_resource:sum{node="n1",resource="nvidia_com_gpu"} 1.5 & ` +
					`node:gpu_allocation_ratio_by_resource:sum{node="n2",resource="nvidia_com_mig_1g_10gb"} 0.25`,
			}},
		{name: "the workload by kube-prometheus' rule",
			series: dev("$A", "a", "busy") + dev("$B", "a", "busy") + podOn("$A", "p-0", "0+60x60", "1x60") +
				podOn("$B", "q-0", "0+60x60", "1x60") + podInfo("n1", "p-0", "", "", "1x60") + podInfo("n1", "q-0", "", "", "1x60") +
				owner + `p-0",workload_type="deployment",workload="web"} 1x60` + "\n" + owner +
				`q-0",workload_type="deployment",workload="web"} 1x60`,
			asks: []string{
				`10m | round(workload:gpu_allocated_seconds:rate5m, 0.001) | {namespace="team",workload_type="deployment",` +
					`workload="web",model="a"} 2`,
				`10m | workload:gpu_pods:count | workload:gpu_pods:count{namespace="team",workload_type="deployment",workload="web"} 2`,
				`10m | round(namespace:gpu_busy_seconds:rate5m, 0.001) | {namespace="team",model="a"} 2`,
			}},
		{name: "pods of which only counters are left",
			series: `gpu_container_allocated_seconds_total{$A,$P,container="c"} 0+60x60
				gpu_container_allocated_seconds_total{$B,$Q,container="c"} 0+60x60` + "\n" +
				owner + `q-0",workload_type="deployment",workload="web"} 1x60`,
			asks: []string{`10m | pod:gpu_workload:info | ` +
				`pod:gpu_workload:info{node="n1",namespace="team",pod="p-0",workload_type="pod",workload="p-0"} 1 & ` +
				`pod:gpu_workload:info{node="n1",namespace="team",pod="q-0",workload_type="deployment",workload="web"} 1`}},
		{name: "limited clocks",
			series: `gpu_clock_limited_seconds_total{$A,reason="power_cap"} 0+30x60
				gpu_clock_limited_seconds_total{$B,reason="power_cap"} 7x60`,
			asks: []string{`10m | round(gpu:gpu_clock_limited_seconds:rate5m, 0.001) | {$A,reason="power_cap"} 0.5`}},
		{name: "the exporter's own word goes before the rule's",
			series: dev("$A", "a", "busy") + podOn("$A", "p-0", "0+60x60", "1x60") + podInfo("n1", "p-0", "PyTorchJob", "train", "1x60") +
				owner + `p-0",workload_type="job",workload="p"} 1x60`,
			asks: []string{`10m | pod:gpu_workload:info | pod:gpu_workload:info{node="n1",namespace="team",pod="p-0",` +
				`workload_type="PyTorchJob",workload="train"} 1`}},
		{name: "a pod that has gone keeps its workload as long as its rates speak",
			series: dev("$A", "a", "busy") + podOn("$A", "p-0", "0+60x20 1200x5 stale", "1x20 stale") +
				podInfo("n1", "p-0", "Job", "train", "1x20 stale"),
			asks: []string{
				`22m | round(sum(workload:gpu_allocated_seconds:rate5m) / scalar(sum(rate(gpu_container_allocated_seconds_total[5m]))),` +
					` 0.001) | {} 1`,
				`24m | count by (workload_type, workload) (workload:gpu_allocated_seconds:rate5m) | {workload_type="Job",` +
					`workload="train"} 1`,
				`28m | count by (workload_type, workload) (workload:gpu_allocated_seconds:rate5m) | {workload_type="Job",` +
					`workload="train"} 1`,
				`40m | workload:gpu_allocated_seconds:rate5m | -`,
				`22m | workload:gpu_pods:count | -`,
			}},
		{name: "a successor of the same name, of another workload",
			series: dev("$A", "a", "busy") + podOn("$A", "p-0", "0+60x60", "1x60") +
				`gpu_pod_info{node="n1",namespace="team",pod="p-0",pod_uid="u-1",workload_type="StatefulSet",workload="old"} 1x20 stale
				gpu_pod_info{node="n1",namespace="team",pod="p-0",pod_uid="u-2",workload_type="StatefulSet",workload="p"} _x21 1x39`,
			asks: []string{
				`25m | count(pod:gpu_workload:info) | {} 1`,
				`25m | round(sum(workload:gpu_allocated_seconds:rate5m), 0.001) | {} 1`,
				`40m | pod:gpu_workload:info | pod:gpu_workload:info{node="n1",namespace="team",pod="p-0",workload_type="StatefulSet",` +
					`workload="p"} 1`,
			}},
		{name: "pods of one name on two nodes at once, as while one moves",
			series: dev("$A", "a", "busy") + dev("$C", "a", "busy") + podOn("$A", "p-0", "0+60x60", "1x60") +
				podOn("$C", "p-0", "0+60x60", "1x60") + owner + `p-0",workload_type="statefulset",workload="p"} 1x60`,
			asks: []string{`10m | round(workload:gpu_allocated_seconds:rate5m, 0.001) | {namespace="team",workload_type="statefulset",` +
				`workload="p",model="a"} 2`}},
		{name: "finished pods ask for nothing",
			series: requests("runs", "Running") + requests("waits", "Pending") + requests("done", "Succeeded") +
				requests("broken", "Failed"),
			asks: []string{
				`10m | namespace:gpu_requests_pending:sum | namespace:gpu_requests_pending:sum{namespace="team",` +
					`resource="nvidia_com_gpu"} 2`,
				`10m | sum(pod:gpu_requests:sum) | {} 4`,
				`10m | pod:gpu_requests:sum{phase="Pending"} | pod:gpu_requests:sum{namespace="team",pod="waits",` +
					`resource="nvidia_com_gpu",phase="Pending"} 2`,
			}},
		{name: "claims where a driver allocates GPUs by them, and a pod that has its place",
			series: claims("p") + requests("placed", "Pending") +
				`kube_pod_status_scheduled{namespace="team",pod="placed",condition="true"} 1x60
				gpu_container_allocation_ratio{$A,$Q,container="c",resource="gpu_nvidia_com",mig_uuid=""} 1x60` + "\n",
			asks: []string{
				`10m | pod:gpu_requests:sum{resource="gpu_nvidia_com"} | pod:gpu_requests:sum{namespace="team",pod="p",` +
					`resource="gpu_nvidia_com",phase="Pending"} 1`,
				`10m | pod:gpu_requests_waiting:sum | pod:gpu_requests_waiting:sum{namespace="team",pod="p",resource="gpu_nvidia_com"} 1`,
			}},
		{name: "claims for something else", series: claims("p"), asks: []string{`10m | pod:gpu_requests:sum | -`}},
		{name: "the workload of what a pod has, or only uses",
			series: `gpu_info{$A,model="a"} 1x60` + "\n" + podInfo("n1", "a", "Job", "w", "1x60") + podInfo("n1", "m", "Job", "w", "1x60") +
				podInfo("n1", "b", "Job", "w", "1x60") + `gpu_container_allocation_ratio{$A,namespace="team",pod="a",container="c"} 1x60
				gpu_container_memory_used_bytes{$A,namespace="team",pod="m",container="c"} 1x60
				gpu_container_busy_seconds_total{$A,namespace="team",pod="b",container="c"} 1x60
				gpu_container_allocated_seconds_total{$A,namespace="team",pod="s",container="c"} 1x60` + "\n",
			asks: []string{`10m | count by (pod, workload_type, workload, model) (pod:gpu_device_workload:info) | ` +
				`{pod="a",workload_type="Job",workload="w",model="a"} 1 & {pod="m",workload_type="Job",workload="w",model="a"} 1 & ` +
				`{pod="b",workload_type="Job",workload="w",model="a"} 1 & {pod="s",workload_type="pod",workload="s",model="a"} 1`}},
		{name: "GPUs that spin, work, or are idle", series: rank("$A", "p", 1, 25, 0.001, 0.001) + rank("$B", "p", 1, 25, 0.1, 0.001) +
			rank("$C", "p", 1, 25, 0.001, 0.1) + rank("$D", "p", 1, 60, 0.001, 0.001) +
			rank(`node="n3",uuid="GPU-E",gpu="0"`, "p", 0.5, 25, 0.001, 0.001),
			asks: []string{`10m | gpu:gpu_spinning:ratio5m | gpu:gpu_spinning:ratio5m{node="n1",uuid="GPU-A"} 0.25`}},
		{name: "one thermal reason for hardware and software", series: `gpu_clock_limited_seconds_total{$A,reason="thermal"} 0+30x60
			gpu_clock_limited_seconds_total{$B,reason="thermal"} 0+30x60
			gpu_clock_limited_seconds_total{$B,reason="hw_thermal"} 0x60` + "\n",
			asks: []string{`20m | gpu:gpu_problems:info | gpu:gpu_problems:info{$A,problem="thermal_slowdown",state="degraded"} 1`}},
		{name: "nodes by version, one without a driver, one that has just got another",
			series: `gpu_exporter_build_info{node="n1",version="1"} 1x60
			gpu_exporter_build_info{node="n2",version="2"} 1x60
			gpu_exporter_build_info{node="n3",version="1"} 1x60
			gpu_exporter_build_info{node="n3",version="2"} 1x60
			gpu_driver_info{node="n1",driver_version="580"} 1x60
			gpu_driver_info{node="n3",driver_version="580"} 1x60` + "\n",
			asks: []string{`10m | sum by (driver_version) (cluster:gpu_nodes:count) | {driver_version="580"} 2 & {} 1`,
				`10m | cluster:gpu_nodes:count{driver_version=""} | cluster:gpu_nodes:count{version="2"} 1`}},
		{name: "nodes without an exporter", series: nodes("n1", "n2", "n4", "n5", "n6", "n7", "n8", "n9") +
			`kube_node_status_capacity{node="n3",resource="nvidia_com_gpu"} 0x60
			gpu_exporter_build_info{node="n2",version="1"} 1x60
			kube_node_spec_unschedulable{node="n4"} 1x60
			kube_node_spec_unschedulable{node="n1"} 0x60
			kube_node_status_condition{node="n5",condition="Ready",status="true"} 0x60
			kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x60
			up{job="gpu-exporter",instance="n6"} 0x60
			up{job="gpu-exporter",instance="10.0.0.7:9835"} 1x5 0x54
			gpu_exporter_build_info{job="gpu-exporter",instance="10.0.0.7:9835",node="n7",version="1"} 1x5 stale
			gpu_exporter_build_info{node="n8",version="1",cluster="x"} 1x60
			gpu_exporter_build_info{node="n9",version="1",cluster="y"} 1x60
			kube_node_status_capacity{node="n9",resource="nvidia_com_gpu",cluster="y"} 8x60` + "\n",
			asks: []string{`20m | sum by (node) (node:gpu_without_exporter:count) | {node="n1"} 8 & {node="n9"} 8`}},
		{name: "power: energy where it is counted, else the driver's average",
			series: dev("$A", "a", "busy") + dev("$B", "a", "busy") +
				`gpu_energy_joules_total{$A} 0+18000x60
				gpu_power_watts{$A} 250x60
				gpu_power_watts{$B} 100x60`,
			asks: []string{`10m | round(sum(model:gpu_power_watts:sum), 0.001) | {} 400`}},
		{name: "GPUs by utilization, a full GPU in the last step",
			series: dev("$A", "a", "busy") + dev("$B", "a", "busy") + dev("$C", "a", "busy") +
				`gpu_busy_seconds_total{$A} 0+60x60
				gpu_observed_seconds_total{$A} 0+60x60
				gpu_busy_seconds_total{$B} 0+21x60
				gpu_observed_seconds_total{$B} 0+60x60
				gpu_busy_seconds_total{$C} 0x60
				gpu_observed_seconds_total{$C} 0x60`,
			asks: []string{`10m | cluster:gpu_busy_percent:count | cluster:gpu_busy_percent:count{model="a",busy_percent="90"} 1 & ` +
				`cluster:gpu_busy_percent:count{model="a",busy_percent="30"} 1`}},
		{name: "events: the first of a GPU counts, those from before it was scraped do not, and a new count is all new",
			series: `gpu_device_up{$A} 1x130
				gpu_device_up{$B} _x70 1x60
				gpu_info{$A,model="a"} 1x130
				gpu_device_up{$C} 1x130
				gpu_device_up{` + old + `} 1x130
				gpu_ecc_errors_total{` + old + `,severity="uncorrected",memory="dram"} 4x130
				gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 0x72 2x58
				gpu_ecc_errors_total{$B,severity="uncorrected",memory="dram"} _x72 5x58
				gpu_ecc_errors_total{$C,severity="corrected",memory="dram"} 8x73 11x1 0x1 2x50
				gpu_xid_events_total{$C,xid="31"} 3x70 5x1 stale _x5 1x40`,
			asks: []string{
				`74m | gpu:gpu_ecc_errors:sum | gpu:gpu_ecc_errors:sum{$A,severity="uncorrected"} 2 & ` +
					`gpu:gpu_ecc_errors:sum{$B,severity="uncorrected"} 5 & gpu:gpu_ecc_errors:sum{` + "$C" +
					`,severity="corrected"} 11 & ` + `gpu:gpu_ecc_errors:sum{` + old + `,severity="uncorrected"} 4`,
				`74m | node:gpu_ecc_errors:increase5m | node:gpu_ecc_errors:increase5m{node="n1",severity="uncorrected"} 2 & ` +
					`node:gpu_ecc_errors:increase5m{node="n2",severity="corrected"} 3 & ` +
					`node:gpu_ecc_errors:increase5m{node="n3",severity="uncorrected"} 0`,
				`76m | node:gpu_ecc_errors:increase5m{node="n2"} | node:gpu_ecc_errors:increase5m{node="n2",severity="corrected"} 3`,
				`79m | node:gpu_ecc_errors:increase5m{node="n2"} | node:gpu_ecc_errors:increase5m{node="n2",severity="corrected"} 2`,
				`74m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n2",xid="31"} 2`,
				`81m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n2",xid="31"} 1`,
				`71m | gpu:gpu_model:info | gpu:gpu_model:info{node="n1",uuid="GPU-A",model="a"} 1 & ` +
					`gpu:gpu_model:info{node="n1",uuid="GPU-B"} 1 & ` +
					`gpu:gpu_model:info{node="n2",uuid="GPU-C"} 1 & gpu:gpu_model:info{node="n3",uuid="GPU-E"} 1`,
			}},
		{name: "what can be scheduled: not on nodes that are closed",
			series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 4x60
				gpu_node_allocatable_devices{node="n2",resource="nvidia_com_gpu"} 4x60
				gpu_node_allocatable_devices{node="n3",resource="nvidia_com_gpu"} 4x60
				gpu_node_allocated_devices{node="n1",resource="nvidia_com_gpu"} 1x60
				gpu_node_allocated_devices{node="n2",resource="nvidia_com_gpu"} 0x60
				gpu_node_allocated_devices{node="n3",resource="nvidia_com_gpu"} 0x60
				kube_node_spec_unschedulable{node="n1"} 0x60
				kube_node_spec_unschedulable{node="n2"} 1x60
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x60
				kube_node_status_condition{node="n3",condition="Ready",status="true"} 0x60`,
			asks: []string{`10m | node:gpu_schedulable_devices:sum | ` +
				`node:gpu_schedulable_devices:sum{node="n1",resource="nvidia_com_gpu"} 3`}},
		{name: "GPUs that are unallocated and cannot be scheduled",
			series: schedulable(map[string]string{"free": "", "mig": "gpu_mig_mode{%s} 1x60",
				"sick":     `gpu_health{%s,state="needs_reset"} 1x60`,
				"fabric":   `gpu_health_reason_info{%s,state="degraded",reason="fabric_unhealthy"} 1x60`,
				"plugin":   `gpu_node_allocatable_devices{node="plugin",resource="nvidia_com_gpu"} 0x60`,
				"cordoned": `kube_node_spec_unschedulable{node="cordoned"} 1x60`,
				"down":     `kube_node_status_condition{node="down",condition="Ready",status="true"} 0x60`,
				"fine": `kube_node_spec_unschedulable{node="fine"} 0x60
				kube_node_status_condition{node="fine",condition="Ready",status="true"} 1x60
				gpu_mig_mode{%s} 0x60
				gpu_node_allocatable_devices{node="fine",resource="nvidia_com_gpu"} 1x60`}),
			asks: []string{`10m | sum by (node) (node:gpu_schedulable:sum) | {node="free"} 1 & {node="fine"} 1 & ` +
				`{node="mig"} 0 & {node="sick"} 0 & {node="fabric"} 0 & ` + `{node="plugin"} 0 & {node="cordoned"} 0 & {node="down"} 0`}},
		{name: "an old event without earlier scrapes", series: `gpu_device_up{$A} _x20 1x60
				gpu_xid_events_total{$A,xid="31"} _x20 7x60`,
			asks: []string{`21m | node:gpu_xid_events:increase5m | -`, `24m | node:gpu_xid_events:increase5m | -`,
				`30m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n1",xid="31"} 0`}},
		{name: "links that a GPU has lost, and a board without a bridge",
			series: `gpu_device_up{$A} 1x60
				gpu_nvlink_links{$A,state="up"} 17x60
				gpu_nvlink_links{$A,state="down"} 1x60
				gpu_nvlink_links{$B,state="up"} 18x60
				gpu_nvlink_links{$B,state="down"} 0x60
				gpu_nvlink_links{$C,state="up"} 0x60
				gpu_nvlink_links{$C,state="down"} 12x60`,
			asks: []string{`30m | node:gpu_problems:count | node:gpu_problems:count{node="n1",problem="nvlink_down"} 1`}},
		{name: "two targets of one GPU",
			series: `gpu_device_up{$A} 1x60
				gpu_device_up{$A,instance="second"} 1x60
				gpu_allocation_ratio{$A} 0x60
				gpu_allocation_ratio{$A,instance="second"} 0x60
				gpu_time_seconds_total{$A,state="busy"} 0x60`,
			asks: []string{`30m | sum(node:gpu_schedulable:sum) | {} 1`,
				`30m | sum(node:gpu_unallocated:sum) | {} 1`}},
		{
			name: "data sources that are down",
			series: `gpu_exporter_source_up{node="n1",source="kmsg"} 0x60
				gpu_exporter_source_up{node="n2",source="kmsg"} 0x60
				gpu_exporter_source_last_success_timestamp_seconds{node="n2",source="kmsg"} 1x60
				gpu_exporter_source_up{node="n1",source="podresources"} 0x60
				gpu_exporter_source_up{node="n2",source="podresources"} 1x60`,
			asks: []string{`20m | cluster:gpu_exporter_sources_down:sum | cluster:gpu_exporter_sources_down:sum{source="kmsg"} 1 & ` +
				`cluster:gpu_exporter_sources_down:sum{source="podresources"} 1`},
		},
		{name: "the kubelet's verdict, and a GPU that it does not offer",
			series: `gpu_device_up{$A} 1x60
				gpu_device_up{$B} 1x60
				gpu_allocation_ratio{$A} 0x60
				gpu_allocation_ratio{$B} 0x60
				gpu_device_up{node="n1",uuid="GPU-E",gpu="2"} 1x60
				gpu_allocation_ratio{node="n1",uuid="GPU-E",gpu="2"} 0x60
				gpu_kubelet_healthy{$A} 0x60
				gpu_kubelet_healthy{$B} 1x60
				gpu_kubelet_healthy{node="n1",uuid="GPU-E",gpu="2"} 1x60
				gpu_taint_info{node="n3",uuid="GPU-D",gpu="0",key="k",value="",effect="None"} 1x60
				gpu_kubelet_healthy{node="n3",uuid="GPU-D",gpu="0"} 1x60
				gpu_health{node="n2",uuid="GPU-C",gpu="0",state="lost"} 1x60
				gpu_kubelet_healthy{node="n2",uuid="GPU-C",gpu="0"} 1x60
				gpu_exporter_source_up{node="n1",source="resource_slices"} 1x60`,
			asks: []string{`30m | gpu:gpu_verdicts:info | gpu:gpu_verdicts:info{$A,by="kubelet",state="unhealthy"} 1 & ` +
				`gpu:gpu_verdicts:info{$A,by="dra_driver",state="untainted"} 1 & ` +
				`gpu:gpu_verdicts:info{node="n2",uuid="GPU-C",gpu="0",by="kubelet",state="healthy"} 1 & ` +
				`gpu:gpu_verdicts:info{node="n3",uuid="GPU-D",gpu="0",by="kubelet",state="healthy"} 1 & ` +
				`gpu:gpu_verdicts:info{node="n3",uuid="GPU-D",gpu="0",by="dra_driver",state="None"} 1`,
				`30m | sum(node:gpu_schedulable:sum) | {} 2`}},
		{name: "the verdicts of other programs: taints, and no taint where they are listed",
			series: `gpu_health{$A,state="lost"} 1x60
				gpu_health{$B,state="needs_reset"} 1x60
				gpu_health{node="n2",uuid="GPU-C",gpu="0",state="lost"} 1x60
				gpu_health{node="n3",uuid="GPU-D",gpu="0",state="lost"} 1x60
				gpu_taint_info{$A,key="gpu.nvidia.com/xid",value="79",effect="NoExecute"} 1x60
				gpu_taint_info{$A,key="gpu.nvidia.com/unmonitored",value="",effect="None"} 1x60
				gpu_taint_info{$A,instance="second",key="gpu.nvidia.com/unmonitored",value="",effect="None"} 1x60
				gpu_exporter_source_up{node="n1",source="resource_slices"} 1x60
				gpu_exporter_source_up{node="n2",source="pod_resources"} 1x60
				gpu_exporter_source_up{node="n3",source="resource_slices"} 0x60`,
			asks: []string{`30m | gpu:gpu_verdicts:info | gpu:gpu_verdicts:info{$A,by="dra_driver",state="NoExecute"} 1 & ` +
				`gpu:gpu_verdicts:info{$A,by="dra_driver",state="None"} 1 & ` +
				`gpu:gpu_verdicts:info{$B,by="dra_driver",state="untainted"} 1`}},
		{name: "what is wrong, by node; a code's first event counts, and its second",
			series: `gpu_device_up{$A} 0x60
				gpu_device_up{$B} 1x60
				gpu_health{$A,state="lost"} 1x60
				gpu_health{$A,state="healthy"} 0x60
				gpu_health_reason_info{$A,state="lost",reason="lost"} 1x60
				gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1x60
				gpu_clock_limited_seconds_total{$B,reason="hw_power_brake"} 0+30x60
				gpu_xid_events_total{$A,xid="31"} _x10 1x10 2x40
				gpu_xid_events_total{$A,xid="79"} 0x60
				gpu_ecc_errors_total{$B,severity="corrected",memory="dram"} 100x10 107x50
				gpu_ecc_errors_total{$B,severity="uncorrected",memory="dram"} 3x60`,
			asks: []string{
				`30m | node:gpu_problems:count | node:gpu_problems:count{node="n1",problem="lost"} 1 & ` +
					`node:gpu_problems:count{node="n1",` +
					`problem="recovery_reset"} 1 & node:gpu_problems:count{node="n1",problem="power_brake"} 1`,
				`30m | gpu:gpu_health:info | gpu:gpu_health:info{$A,state="lost"} 1 & gpu:gpu_health:info{$B,state="degraded"} 1`,
				`30m | gpu:gpu_xid_events:sum | gpu:gpu_xid_events:sum{$A,xid="31"} 2`,
				`30m | node:gpu_with_problem:count | node:gpu_with_problem:count{node="n1"} 2`,
				`12m | node:gpu_ecc_errors:increase5m | node:gpu_ecc_errors:increase5m{node="n1",severity="corrected"} 7 & ` +
					`node:gpu_ecc_errors:increase5m{node="n1",severity="uncorrected"} 0`,
				`9m | node:gpu_xid_events:increase5m | -`,
				`12m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n1",xid="31"} 1`,
				`18m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n1",xid="31"} 0`,
				`23m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n1",xid="31"} 1`,
				`30m | node:gpu_xid_events:increase5m | node:gpu_xid_events:increase5m{node="n1",xid="31"} 0`,
			}},
		{name: "activity of whole GPUs: of the SMs, else the power",
			series: dev("$A", "a", "busy") + dev("$B", "a", "busy") + dev("$C", "a", "busy") +
				podInfo("n1", "p-0", "Job", "w", "1x60") + podInfo("n1", "q-0", "Job", "w", "1x60") + podInfo("n2",
				"r-0", "Job", "w", "1x60") + `
				gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x60
				gpu_container_allocation_ratio{$B,$Q,$WHOLE} 1x60
				gpu_container_allocation_ratio{$C,namespace="team",pod="r-0",$WHOLE} 0.5x60
				gpu_sm_active_seconds_total{$A} 0+30x60
				gpu_profiled_seconds_total{$A} 0+60x60
				gpu_sm_active_seconds_total{$C} 0+60x60
				gpu_profiled_seconds_total{$C} 0+60x60
				gpu_energy_joules_total{$A} 0+6000x60
				gpu_power_limit_watts{$A} 100x60
				gpu_energy_joules_total{$B} 0+6000x60
				gpu_power_limit_watts{$B} 400x60`,
			asks: []string{`10m | round(workload:gpu_activity:ratio_max, 0.001) | {$W,model="a"} 0.5`,
				`10m | round(workload:gpu_activity:ratio_min, 0.001) | {$W,model="a"} 0.25`}},
		everyQuantity(), everyProblem(), everyWorkload(), everyPart(),
		{name: "pods that use a GPU and hold none",
			series: podInfo("n1", "p-0", "", "", "1x60") + podInfo("n1", "q-0", "", "", "1x60") + owner +
				`q-0",workload_type="deployment",workload="web"} 1x60`,
			asks: []string{`10m | pod:gpu_workload:info | pod:gpu_workload:info{node="n1",namespace="team",pod="p-0",` +
				`workload_type="pod",workload="p-0"} 1 & ` +
				`pod:gpu_workload:info{node="n1",namespace="team",pod="q-0",workload_type="deployment",workload="web"} 1`}},
		{name: "what is free, by the GPU and by the kubelet",
			series: dev("$A", "a", "unallocated") + dev("$B", "a", "unavailable") +
				`gpu_device_up{$A} 1x60
				gpu_device_up{$B} 0x60
				gpu_allocation_ratio{$A} 0x60
				gpu_allocation_ratio{$B} 0x60
				gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x60
				gpu_node_allocated_devices{node="n1",resource="nvidia_com_gpu"} 0x60`,
			asks: []string{
				`10m | sum(node:gpu_schedulable:sum) | {} 1`,
				`10m | sum(model:gpu_allocation:sum) | {} 0`,
				`10m | node:gpu_unallocated_devices:sum | node:gpu_unallocated_devices:sum{node="n1",resource="nvidia_com_gpu"} 2`,
			}},
	}
}

// schedulable has one unallocated GPU on each node, with a series of its own; %s stands for the GPU's labels.
func schedulable(nodes map[string]string) string {
	text := ""
	for node, series := range nodes {
		labels := `node="` + node + `",uuid="GPU-` + node + `",gpu="0"`
		text += "gpu_device_up{" + labels + "} 1x60\ngpu_allocation_ratio{" + labels + "} 0x60\n" +
			strings.ReplaceAll(series, "%s", labels) + "\n"
	}
	return text
}

// everyQuantity has one GPU with a name and one without, each with every quantity that is summed over GPUs.
func everyQuantity() recording {
	r := recording{name: "every quantity of a GPU with a name and of one without"}
	for labels, model := range map[string]string{"$A": "a", "$D": ""} {
		r.series += dev(labels, model, "busy") + strings.ReplaceAll(`gpu_busy_seconds_total{%} 0+30x60
			gpu_observed_seconds_total{%} 0+30x60
			gpu_sm_active_seconds_total{%} 0+30x60
			gpu_tensor_active_seconds_total{%} 0+30x60
			gpu_profiled_seconds_total{%} 0+30x60
			gpu_clock_limited_seconds_total{%,reason="power_cap"} 0+30x60
			gpu_memory_used_bytes{%} 10x60
			gpu_memory_total_bytes{%} 80x60
			gpu_power_watts{%} 90x60
			gpu_power_limit_watts{%} 700x60
			gpu_device_up{%} 1x60
			gpu_allocation_ratio{%} 0.25x60
			`, "%", labels)
	}
	for records, value := range map[string]string{
		"busy_seconds:rate5m observed_seconds:rate5m sm_active_seconds:rate5m tensor_active_seconds:rate5m profiled_seconds:rate5m": "0.5",
		"memory_used_bytes:sum": "10", "memory_total_bytes:sum": "80", "power_watts:sum": "90", "power_limit_watts:sum": "700",
		"device_up:count device_up:sum": "1", "allocation:sum": "0.25", "unallocated:sum": "0.75", "schedulable:sum": "0"} {
		for record := range strings.FieldsSeq(records) {
			r.asks = append(r.asks, "10m | round(node:gpu_"+record+`, 0.001) | {node="n1",model="a"} `+value+` & {node="n2"} `+value)
		}
	}
	r.asks = append(r.asks, `10m | round(node:gpu_clock_limited_seconds:rate5m, 0.001) | {node="n1",model="a",reason="power_cap"} 0.5 & `+
		`{node="n2",reason="power_cap"} 0.5`,
		`10m | cluster:gpu_busy_percent:count | cluster:gpu_busy_percent:count{model="a",busy_percent="90"} 1 & `+
			`cluster:gpu_busy_percent:count{busy_percent="90"} 1`)
	return r
}

// everyWorkload has a workload on a GPU with a name and one on a GPU without, each of two pods with every quantity
// of containers: the second pod of each has half of the first's, and the third was never watched and has nothing to
// divide. A pod of its own stands beside them.
func everyWorkload() recording {
	r := recording{name: "every quantity of workloads"}
	for _, w := range []struct {
		labels, model, node, namespace, workload string
		scales                                   []int
	}{{"$A", "a", "n1", "team", "named", []int{2, 1, 0}}, {"$D", "", "n2", "team", "bare", []int{2, 1, 0}},
		{"$B", "a", "n1", "other", "lone", []int{2}}} {
		r.series += dev(w.labels, w.model, "busy") + "gpu_device_up{" + w.labels + "} 1x60\n"
		for i, scale := range w.scales {
			pod := fmt.Sprintf("%s-%d", w.workload, i)
			if w.namespace == "team" {
				r.series += podInfo(w.node, pod, "Job", w.workload, "1x60")
			}
			r.series += fmt.Sprintf(`gpu_container_busy_seconds_total{%[1]s} 0+%[2]dx60
				gpu_container_allocated_seconds_total{%[1]s} 0+%[3]dx60
				gpu_container_energy_joules_total{%[1]s} 0+%[4]dx60
				gpu_container_observed_seconds_total{%[1]s} 0+%[5]dx60
				gpu_container_unused_seconds_total{%[1]s,state="idle"} 0+%[6]dx60
				gpu_container_memory_used_bytes{%[1]s} %[7]dx60
				gpu_container_last_busy_timestamp_seconds{%[1]s} %[8]dx60
				gpu_container_allocation_ratio{%[1]s,resource="nvidia_com_gpu",mig_uuid=""} %[9]gx60
				`, w.labels+`,namespace="`+w.namespace+`",pod="`+pod+`",container="c"`,
				6*scale, 30*scale, 600*scale, 60*min(1, scale), 12*scale, 10*scale, 100*scale, 0.25*float64(scale))
		}
	}
	const (
		named = `{namespace="team",workload_type="Job",workload="named",model="a"`
		bare  = `{namespace="team",workload_type="Job",workload="bare"`
		lone  = `{namespace="other",workload_type="pod",workload="lone-0",model="a"`
	)
	// Of each workload of the team, and of the pod of its own.
	values := func(at, record, rest, team, other string) {
		r.asks = append(r.asks, at+" | round(workload:"+record+", 0.001) | "+named+rest+"} "+team+" & "+bare+rest+"} "+team+" & "+lone+rest+
			"} "+other)
	}
	for record, v := range map[string][2]string{"gpu_allocation:sum": {"0.75", "0.5"}, "gpu_allocated_seconds:rate5m": {"1.5", "1"},
		"gpu_busy_seconds:rate5m": {"0.3", "0.2"}, "gpu_observed_seconds:rate5m": {"2", "1"}, "gpu_power_watts:sum": {"30", "20"},
		"gpu_memory_used_bytes:sum": {"30", "20"}, "gpu_memory_used_bytes:max": {"20", "20"}, "gpu_busy:ratio_max": {"0.4", "0.4"},
		"gpu_measured_seconds:rate5m":         {"0.75", "0.5"},
		"gpu_last_busy_timestamp_seconds:max": {"200", "200"}} {
		values("10m", record, "", v[0], v[1])
		if !strings.HasPrefix(record, "gpu_allo") && !strings.HasPrefix(record, "gpu_busy_s") && record != "gpu_measured_seconds:rate5m" &&
			record != "gpu_power_watts:sum" {
			continue
		}
		r.asks = append(r.asks, "10m | round(namespace:"+record+`, 0.001) | {namespace="team",model="a"} `+v[0]+` & {namespace="team"} `+
			v[0]+` & {namespace="other",model="a"} `+v[1])
	}
	// promtool evaluates every group at every step: the sample of a moment is what the last half hour was.
	values("60m", "gpu_allocated_seconds:increase30m", "", "2700", "1800")
	values("60m", "gpu_busy_seconds:increase30m", "", "540", "360")
	values("60m", "gpu_measured_seconds:increase30m", "", "1350", "900")
	values("60m", "gpu_unused_seconds:increase30m", "", "1080", "720")
	values("60m", "gpu_busy:ratio_p95_30m", "", "0.4", "0.4")
	values("60m", "gpu_memory_used_bytes:max30m", "", "20", "20")
	values("10m", "gpu_unused_seconds:rate5m", `,state="idle"`, "0.6", "0.4")
	return r
}

// everyPart has a pod with each kind of part of a GPU. All but low, and dark, whose activity was not observed, are busy for
// 88 % of a quarter of a GPU: half of a GPU that was observed for half of the time, a MIG device of half a GPU likewise, and
// one of two replicas of a MIG device.
func everyPart() recording {
	r := recording{name: "the measured time of each kind of part", series: dev("$A", "a", "busy") + "gpu_device_up{$A} 1x60\n"}
	var measured, ratios []string
	for _, p := range []struct {
		pod                              string
		share, busy, observed, allocated float64 // seconds of a minute but for the share
		mig, measured, ratio             string
	}{{"half-0", 0.5, 13.2, 30, 30, "", "0.25", "0.88"}, {"low-0", 0.5, 3, 60, 30, "", "0.5", "0.1"},
		{"mig-0", 0.5, 13.2, 15, 30, "MIG-1", "0.25", "0.88"}, {"replica-0", 0.25, 13.2, 30, 15, "MIG-2", "0.25", "0.88"},
		{"dark-0", 0.5, 28, 0, 30, "MIG-3", "", ""}} {
		c := `$A,namespace="team",pod="` + p.pod + `",container="c"`
		r.series += fmt.Sprintf(`gpu_container_busy_seconds_total{%[1]s} 0+%[2]gx60
			gpu_container_allocated_seconds_total{%[1]s} 0+%[3]gx60
			gpu_container_allocation_ratio{%[1]s,resource="r",mig_uuid="%[4]s"} %[5]gx60
			gpu_container_unused_seconds_total{%[1]s,state="idle"} 0+6x60
			`, c, p.busy, p.allocated, p.mig, p.share)
		if p.measured == "" {
			continue
		}
		r.series += fmt.Sprintf("gpu_container_observed_seconds_total{%s} 0+%gx60\n", c, p.observed)
		labels := `{namespace="team",workload_type="pod",workload="` + p.pod + `",model="a"} `
		measured, ratios = append(measured, labels+p.measured), append(ratios, labels+p.ratio)
	}
	r.asks = []string{"10m | round(workload:gpu_measured_seconds:rate5m, 0.001) | " + strings.Join(measured, " & "),
		"10m | round(workload:gpu_busy:ratio_max, 0.001) | " + strings.Join(ratios, " & "),
		`40m | round(pod:gpu_unused_seconds:top20, 0.001) | {node="n1",namespace="team",pod="low-0"} 0.1 & ` +
			`{node="n1",namespace="team",pod="dark-0"} 0.1`}
	return r
}

// everyProblem has a GPU with all of them, and one of another node with none.
func everyProblem() recording {
	r := recording{name: "every problem of one GPU, and none of another's"}
	var want, perGPU []string
	for _, p := range []struct{ name, series, sick, well string }{
		{"row_remap_failed", `gpu_health_reason_info{%s,state="replace",reason="row_remap_failed"}`, "1x60", "_x60"},
		{"recovery_reset", `gpu_health_reason_info{%s,state="needs_reset",reason="recovery_reset"}`, "1x60", "_x60"},
		{"nvlink_down", `gpu_nvlink_links{%s,state="up"}`, "17x60", "0x60"},
		{"pcie_narrow", "gpu_pcie_link_width{%s}", "8x60", "16x60"},
		{"thermal_slowdown", `gpu_clock_limited_seconds_total{%s,reason="hw_thermal"}`, "0+30x60", "0+1x60"},
		{"power_brake", `gpu_clock_limited_seconds_total{%s,reason="hw_power_brake"}`, "0+30x60", "0+1x60"},
	} {
		r.series += fmt.Sprintf(p.series, "$A") + " " + p.sick + "\n" + fmt.Sprintf(p.series, "$C") + " " + p.well + "\n"
		want = append(want, `node:gpu_problems:count{node="n1",problem="`+p.name+`"} 1`)
		state := map[string]string{"row_remap_failed": "replace", "recovery_reset": "needs_reset"}[p.name]
		perGPU = append(perGPU, `gpu:gpu_problems:info{$A,problem="`+p.name+`",state="`+cmp.Or(state, "degraded")+`"} 1`)
	}
	// The neighbor shows that there could be more.
	r.series += expand("gpu_device_up{$A} 1x60\n" + `gpu_health{$A,state="replace"} 1x60` + "\n" +
		`gpu_health{$B,state="healthy"} 1x60` + "\n")
	r.series += "gpu_pcie_link_width{$B} 16x60\ngpu_nvlink_links{$B,state=\"up\"} 18x60\n"
	r.asks = []string{"20m | node:gpu_problems:count | " + strings.Join(want, " & "),
		"20m | gpu:gpu_problems:info | " + expand(strings.Join(perGPU, " & ")),
		`20m | gpu:gpu_health:info | gpu:gpu_health:info{$A,state="replace"} 1`}
	return r
}

// query is the expression of a line of asks.
func query(ask string) string { return strings.Split(ask, " | ")[1] }

// unitTest writes the recording as a test of promtool.
func (r recording) unitTest(b *strings.Builder, cluster string) {
	fmt.Fprintf(b, "- name: %q\n  interval: 1m\n  input_series:\n", r.name)
	for _, in := range (testCase{series: r.series}).inputs(cluster) {
		fmt.Fprintf(b, "  - series: '%s'\n    values: '%s'\n", in[0], in[1])
	}
	b.WriteString("  promql_expr_test:\n")
	for _, a := range r.asks {
		parts := strings.Split(a, " | ")
		fmt.Fprintf(b, "  - eval_time: %s\n    expr: '%s'\n    exp_samples:", parts[0], parts[1])
		if parts[2] == "-" {
			b.WriteString(" []\n")
			continue
		}
		b.WriteString("\n")
		for _, want := range strings.Split(expand(parts[2]), " & ") {
			at := strings.LastIndex(want, " ")
			labels := want[:at]
			// A query that aggregates again has let go of the cluster's label.
			if cluster != "" && !strings.Contains(parts[1], "sum(") && !strings.Contains(parts[1], "sum by") &&
				!strings.Contains(parts[1], "count(") && !strings.Contains(parts[1], "count by") {
				labels = withLabel(labels, cluster)
			}
			fmt.Fprintf(b, "    - labels: '%s'\n      value: %s\n", labels, want[at+1:])
		}
	}
}

// dependent is the recording with those of its queries that read a record in these groups, directly or by others.
func (r recording) dependent(groups []alerts.RuleGroup, record string) recording {
	r.asks = slices.DeleteFunc(slices.Clone(r.asks), func(ask string) bool {
		return !slices.ContainsFunc(needed(groups, query(ask), nil), func(g alerts.RuleGroup) bool {
			return slices.ContainsFunc(g.Rules, func(rule alerts.Rule) bool { return rule.Record == record })
		})
	})
	return r
}

// unitTests writes recordings and the rules that their queries read.
func unitTests(t *testing.T, dir, name string, groups []alerts.RuleGroup, list []recording, cluster string) string {
	t.Helper()
	var b, queries strings.Builder
	for _, r := range list {
		if len(r.asks) > 0 {
			r.unitTest(&b, cluster)
		}
		for _, ask := range r.asks {
			queries.WriteString(query(ask))
		}
	}
	return write(t, dir, name, needed(groups, queries.String(), nil), time.Minute, b.String())
}

// Every fault that is planted into a record is noticed. A group reads at most those before it.
func TestRecordingsNoticeFaults(t *testing.T) {
	t.Parallel()
	groups, err := alerts.Default().RecordingRules()
	must.OK(t, err)
	for at, g := range groups {
		for i, r := range g.Rules {
			list := mutants(t, r)
			if len(list) == 0 {
				continue
			}
			t.Run(r.Record, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				var readers []recording
				for _, r := range recordings() {
					readers = append(readers, r.dependent(groups[:at+1], g.Rules[i].Record))
				}
				var paths []string
				for j, m := range list {
					faulty := alerts.RuleGroup{Name: g.Name, Rules: slices.Clone(g.Rules)}
					faulty.Rules[i] = m.rule
					all := append(slices.Clone(groups[:at]), faulty)
					paths = append(paths, unitTests(t, dir, fmt.Sprint("mutant", j), all, readers, ""))
				}
				for j, said := range run(t, paths) {
					switch {
					case said == "":
						t.Errorf("no recording notices: %s", list[j].what)
					case !strings.Contains(said, "exp:"):
						t.Errorf("the fault is no rule any more: %s\n%s", list[j].what, said)
					}
				}
			})
		}
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	groups, err := alerts.Default().RecordingRules()
	must.OK(t, err)
	other := alerts.Default()
	other.ClusterLabel = "k8s_cluster"
	renamed, err := other.RecordingRules()
	must.OK(t, err)
	// Every rule is evaluated over every recording once; with a cluster's label those that are read.
	dir, all := t.TempDir(), recordings()
	var b strings.Builder
	for _, r := range all {
		r.unitTest(&b, "")
	}
	passes(t, []string{write(t, dir, "plain", groups, time.Minute, b.String()),
		unitTests(t, dir, "cluster", groups, all, `cluster="c1"`), unitTests(t, dir, "renamed", renamed, all, `k8s_cluster="c1"`)})
}
