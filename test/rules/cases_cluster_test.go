package rules_test

import (
	"fmt"
	"testing"
	"time"
)

// asks is a pod that asks for GPUs: on a node where it has one, and in a phase.
func asks(pod, node, resource, count, pending, running string) string {
	labels := `namespace="team",pod="` + pod + `"`
	at := ""
	if node != "" {
		at = `,node="` + node + `"`
	}
	return `kube_pod_container_resource_requests{` + labels + `,container="c",resource="` + resource + `"` + at + `} ` +
		count + `x200
		kube_pod_status_phase{` + labels + `,phase="Pending"} ` + pending + `
		kube_pod_status_phase{` + labels + `,phase="Running"} ` + running + "\n"
}

// claims is a pending pod with a ResourceClaim, as kube-state-metrics 2.20 reports it (internal/store/pod.go).
func claims(pod string) string {
	labels := `namespace="team",pod="` + pod + `"`
	return `kube_pod_resourceclaim_info{` + labels + `,uid="u",claim_name="gpu",resourceclaim_name="` + pod +
		`-gpu",resourceclaim_template_name="gpu"} 1x60
		kube_pod_status_phase{` + labels + `,phase="Pending"} 1x60
		kube_pod_status_scheduled{` + labels + `,condition="true"} 0x60` + "\n"
}

func free(node, count string) string {
	return `node:gpu_schedulable_devices:sum{node="` + node + `",resource="nvidia_com_gpu"} ` + count + "\n"
}

func capacityCases(t *testing.T) map[string][]testCase {
	const (
		gpus   = `namespace="team",resource="nvidia_com_gpu"`
		placed = `kube_pod_status_scheduled{namespace="team",pod="p",condition="true"} 1x200` + "\n"
	)
	waits := func(count string) string {
		return asks("p", "", "nvidia_com_gpu", count, "0x4 1x60 0x130", "0x200") +
			`kube_pod_status_scheduled{namespace="team",pod="p",condition="true"} 0x200` + "\n"
	}
	// pulls is a pod that has its place.
	pulls := func(count string) string {
		return asks("q", "n1", "nvidia_com_gpu", count, "1x200", "0x200") +
			`kube_pod_status_scheduled{namespace="team",pod="q",condition="true"} 1x200` + "\n"
	}
	gang := ""
	for _, rank := range []string{"r-0", "r-1", "r-2"} {
		gang += asks(rank, "", "nvidia_com_gpu", "2", "0x4 1x60", "0x200")
	}
	return map[string][]testCase{
		"GPUSchedulableWhilePodsWait": {
			{name: "a node has room", series: waits("2") + free("n1", "4x200") + free("n2", "0x200"),
				checks: "4m -; 19m -; 22m " + gpus + "; 65m " + gpus + "; 69m " + gpus + "; 75m -"},
			{name: "there is room, but not enough on one node",
				series: waits("4") + pulls("1") + free("n1", "2x200") + free("n2", "2x200"),
				checks: "30m -; 60m -"},
			{name: "a node has room, and another pod its place", series: waits("2") + pulls("4") + free("n1", "4x200"),
				checks: "19m -; 21m " + gpus},
			{name: "one of three ranks has room", series: gang + free("n1", "2x200") + free("n2", "2x200"), checks: "30m -; 60m -"},
			{name: "three ranks have room", series: gang + free("n1", "4x200") + free("n2", "2x200"), checks: "19m -; 22m " + gpus},
			{name: "it has its place and pulls its image",
				series: asks("p", "n1", "nvidia_com_gpu", "2", "1x200", "0x200") + placed + free("n1", "4x200"),
				checks: "30m -; 60m -"},
			{name: "its claim could be allocated", series: claims("p") + `node:gpu_schedulable:sum{node="n1",model="a"} 1x60
				gpu_container_allocation_ratio{$A,$Q,container="c",resource="gpu_nvidia_com",mig_uuid=""} 1x60`,
				checks: `14m -; 16m namespace="team",resource="gpu_nvidia_com"`},
			{name: "a claim where no driver allocates GPUs by claims",
				series: claims("p") + `node:gpu_schedulable:sum{node="n1",model="a"} 1x60
				gpu_container_allocation_ratio{$A,$Q,container="c",resource="nvidia_com_gpu",mig_uuid=""} 1x60`, checks: "30m -; 50m -"},
			{name: "claims of two pods, and one GPU",
				series: claims("p") + claims("r") + `node:gpu_schedulable:sum{node="n1",model="a"} 1x60
				gpu_container_allocation_ratio{$A,$Q,container="c",resource="gpu_nvidia_com",mig_uuid=""} 1x60`, checks: "30m -; 50m -"},
			{name: "it runs", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "1x200") + free("n1", "4x200"),
				checks: "30m -; 60m -"},
		},
		"GPUCapacityExhausted": {
			{name: "none is left", series: waits("1") + free("n1", "0x200") + free("n2", "0x200"),
				checks: `4m -; 19m -; 22m resource="nvidia_com_gpu"; 65m resource="nvidia_com_gpu"; 79m resource="nvidia_com_gpu"; 85m -`},
			{name: "all nodes are cordoned, and none has a record", series: waits("1"), checks: `30m resource="nvidia_com_gpu"`},
			{name: "four wanted, two on each of two nodes",
				series: waits("4") + free("n1", "2x200") + free("n2", "2x200"),
				checks: `30m resource="nvidia_com_gpu"`},
			{name: "there is room beside one that has its place", series: waits("2") + pulls("4") + free("n1", "4x200"),
				checks: "30m -; 60m -"},
			{name: "one of three ranks has room", series: gang + free("n1", "2x200") + free("n2", "2x200"),
				checks: `30m resource="nvidia_com_gpu"`},
			{name: "a claim, and no GPU is left", series: claims("p") +
				`gpu_container_allocation_ratio{$A,$Q,container="c",resource="gpu_nvidia_com",mig_uuid=""} 1x60
				node:gpu_schedulable:sum{node="n1",model="a"} 0x60`, checks: `14m -; 16m resource="gpu_nvidia_com"`},
			{name: "a claim that has room", series: claims("p") + `node:gpu_schedulable:sum{node="n1",model="a"} 1x60
				gpu_container_allocation_ratio{$A,$Q,container="c",resource="gpu_nvidia_com",mig_uuid=""} 1x60`, checks: "30m -; 50m -"},
			{name: "one is left", series: waits("1") + free("n1", "0x200") + free("n2", "1x200"), checks: "30m -; 60m -"},
			{name: "nobody waits", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "1x200") + free("n1", "0x200"),
				checks: "30m -; 60m -"},
			{name: "no node offers the resource",
				series: waits("1"),
				checks: `30m resource="nvidia_com_gpu"`},
			{name: "the last ones go to a pod that pulls its image",
				series: asks("p", "n1", "nvidia_com_gpu", "2", "1x200", "0x200") + placed + free("n1", "0x200"), checks: "30m -; 60m -"},
		},
		"GPUNotOffered": {
			pulse(t, "GPUNotOffered", "the device plugin is gone", 0,
				`gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"}`, "2",
				"0", `node="n1"`, "gpu_device_up{$A} 1", "gpu_device_up{$B} 1"),
			{name: "six of eight time-sliced GPUs are not healthy",
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 32x10 8x60
				gpu_device_up{$A} 1x70`, checks: `24m -; 27m node="n1"; 60m node="n1"`},
			{name: "one is unavailable anyway",
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x10 1x40
				gpu_device_up{$A} 1x50
				gpu_device_up{$B} 1x10 0x40`, checks: "30m -; 45m -"},
			{name: "MIG is switched on",
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x10 1x40
				gpu_node_allocatable_devices{node="n1",resource="nvidia_com_mig_1g_10gb"} 0x10 7x40
				gpu_mig_mode{$A} 0x10 1x40
				gpu_device_up{$A} 1x50`, checks: "30m -; 45m -"},
			{name: "the kubelet finds one unhealthy", series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x10 1x40
				gpu_device_up{$A} 1x50
				gpu_kubelet_healthy{$A} 1x10 0x40
				gpu_kubelet_healthy{$B} 1x50`, checks: "30m -; 45m -"},
			{name: "the kubelet finds all that it has healthy",
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x10 1x40
				gpu_device_up{$A} 1x50
				gpu_kubelet_healthy{$A} 1x50`, checks: `27m node="n1"; 45m node="n1"`},
			{name: "one is missing", series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x40 1x60
				gpu_device_up{$A} 1x100
				node:gpu_devices:min30m{node="n1"} 2x40 1x60
				node:gpu_device_up:count{node="n1",model="a"} 2x40 1x60`, checks: "60m -; 90m -"},
			{name: "all are there", series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x40 1x60
				gpu_device_up{$A} 1x100
				node:gpu_devices:min30m{node="n1"} 2x100
				node:gpu_device_up:count{node="n1",model="a"} 2x100`, checks: `60m node="n1"`},
			{name: "the DRA driver has the others", series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 4x40
				gpu_device_up{$A} 1x40`, checks: "30m -"},
			{name: "other resources",
				series: `gpu_node_allocatable_devices{node="n1",resource="aliyun_com_gpu_mem"} 80x10 0x40
				gpu_device_up{$A} 1x50`, checks: "30m -"},
		},
	}
}

func exporterCases(t *testing.T) map[string][]testCase {
	const info = `gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"}`
	const target = `job="monitoring/gpu-exporter",instance="n1"`
	runs := asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "0x4 1x60 0x130")
	rollout := ""
	for i := range 7 { // of which five fail
		rollout += fmt.Sprintf(`up{job="monitoring/gpu-exporter",instance="m%d"} 1x20 %dx44 1x40`+"\n", i, i/5)
	}
	return map[string][]testCase{
		"GPUExporterDown": {
			{name: "a pod that does not start", series: "up{" + target + "} 1x20 0x29 1x40",
				checks: "36m -; 40m " + target + `,node="n1"; 61m ` + target + `,node="n1"; 68m -`},
			{name: "it crashes again and again", series: "up{" + target + "} 0x3 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1 0x4 1",
				checks: `20m ` + target + `,node="n1"; 30m ` + target + `,node="n1"`},
			{name: "addresses as instances", series: `up{job="gpu-exporter",instance="10.0.0.1:9835"} 0x30`,
				checks: `9m -; 11m job="gpu-exporter",instance="10.0.0.1:9835",node="10.0.0.1"`},
			{name: "an address as instance, of a node that is known", series: `up{job="gpu-exporter",instance="10.0.0.1:9835"} 1x5 0x30
				node:gpu_exporter_target:info30m{job="gpu-exporter",instance="10.0.0.1:9835",node="n1"} 1x35`,
				checks: `9m -; 30m job="gpu-exporter",instance="10.0.0.1:9835",node="n1"`},
			{name: "an address as instance, of a cordoned node", series: `up{job="gpu-exporter",instance="10.0.0.1:9835"} 0x30
				node:gpu_exporter_target:info30m{job="gpu-exporter",instance="10.0.0.1:9835",node="n1"} 1x30
				kube_node_spec_unschedulable{node="n1"} 1x30`, checks: "20m -"},
			{name: "the node is down", series: "up{" + target + "} 0x30\n" +
				`kube_node_status_condition{node="n1",condition="Ready",status="true"} 0x30`, checks: "20m -"},
			{name: "the node is cordoned", series: "up{" + target + "} 0x30\n" +
				`kube_node_spec_unschedulable{node="n1"} 1x30`, checks: "20m -"},
			{name: "a node in service", series: "up{" + target + "} 0x30\n" +
				`kube_node_spec_unschedulable{node="n1"} 0x30
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x30`,
				checks: `12m ` + target + `,node="n1"`},
			{name: "another exporter", series: `up{job="nvidia-gpu-exporter",instance="n1"} 0x30`, checks: "20m -"},
			{name: "another job", series: `up{job="node-exporter",instance="n1"} 0x30`, checks: "20m -"},
			{name: "a restart", series: "up{" + target + "} 1x5 0x2 1x20", checks: "8m -; 15m -"},
			{name: "a bad rollout", series: rollout, checks: "30m -; 50m -"},
		},
		"GPUExporterAbsent": {
			{name: "the DaemonSet is gone, and comes back",
				series: "up{" + target + "} 1x4 stale _x30 1x20\n" + `up{job="prometheus",instance="x"} 1x60`,
				checks: "4m -; 19m -; 20m one; 34m one; 39m one; 45m -"},
			{name: "a bad rollout", series: rollout, checks: "33m -; 44m each; 60m each; 90m -"},
			{name: "the exporters of one of two clusters are removed", series: `node:gpu_without_exporter:count{node="n1"} _x30 8x60 stale
				node:gpu_without_exporter:count{node="n2"} _x30 8x60 stale
				up{job="gpu-exporter",instance="n1"} 1x30 stale
				up{job="gpu-exporter",instance="m1",cluster="b"} 1x120`, checks: "40m -; 47m each; 85m each; 99m -"},
			{name: "one node of a cluster has none", series: `node:gpu_without_exporter:count{node="n1"} 8x60
				up{job="gpu-exporter",instance="n2"} 1x60`, checks: "20m -; 50m -"},
			{name: "nothing is scraped of a cluster with GPUs",
				series: `node:gpu_without_exporter:count{node="n1",cluster="b"} 8x60`, checks: "14m -; 16m one; 50m one"},
			{name: "one that is down is there", series: "up{" + target + "} 0x30", checks: "20m -"},
			{name: "the job has another name", series: `up{job="gpu-metrics",instance="n1"} 1x30
				gpu_exporter_build_info{job="gpu-metrics",instance="n1",node="n1",version="1",revision="r",goversion="go"} 1x30`,
				checks: "14m -; 16m one"},
		},
		"GPUExporterMissingOnNode": {
			{name: "the node pool is new", series: `node:gpu_without_exporter:count{node="n1"} _x5 8x30 stale
				up{job="gpu-exporter",instance="n2"} 1x60`, checks: `19m -; 20m node="n1"; 38m node="n1"; 43m -`},
			{name: "the cluster has none at all", series: `node:gpu_without_exporter:count{node="n1"} 8x40
				up{job="node-exporter",instance="n1"} 1x40`, checks: "20m -; 38m -"},
		},
		"GPUDriverDown": {
			{name: "unloaded", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x10 0x30 1x30`,
				checks: `11m -; 15m -; 16m node="n1"; 40m node="n1"; 45m node="n1"; 47m -`},
			{name: "it comes twenty minutes after the exporter",
				series: `gpu_exporter_source_up{node="n1",source="nvml"} 0x20 1x30`,
				checks: "10m -; 20m -; 30m -"},
			{name: "it never comes", step: 5 * time.Minute,
				series: `gpu_exporter_source_up{node="n1",source="nvml"} 0x200`,
				checks: `25m -; 30m -; 35m node="n1"; 16h node="n1"`},
			{name: "the node is drained for an upgrade",
				series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x10 0x30
				kube_node_spec_unschedulable{node="n1"} 0x8 1x40`, checks: "20m -; 39m -"},
			{name: "a node in service", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x10 0x30
				kube_node_spec_unschedulable{node="n1"} 0x40
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x40`, checks: `20m node="n1"`},
			{name: "the node is down", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x10 0x30
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 0x40`, checks: "20m -"},
			{name: "the kubelet's socket", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x30
				gpu_exporter_source_up{node="n1",source="podresources"} 0x30`, checks: "20m -"},
		},
		"GPUExporterSourceDown": {
			pulse(t, "GPUExporterSourceDown", "the kubelet's socket", 0, `gpu_exporter_source_up{node="n1",source="podresources"}`, "1",
				"0", `node="n1",source="podresources"`),
			{name: "a kernel log without the permission to read it",
				series: `gpu_exporter_source_up{node="n1",source="kmsg"} 0x30`, checks: "20m -"},
			{name: "a kernel log that was readable", series: `gpu_exporter_source_up{node="n1",source="kmsg"} 1x5 0x30
				gpu_exporter_source_last_success_timestamp_seconds{node="n1",source="kmsg"} 0+60x5 300x30`,
				checks: `20m node="n1",source="kmsg"`},
			{name: "the driver has an alert of its own", series: `gpu_exporter_source_up{node="n1",source="nvml"} 0x30
				gpu_exporter_source_up{node="n1",source="podresources"} 1x30`, checks: "20m -"},
		},
		"GPUExporterPollStuck": {
			{name: "no reading for minutes", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="medium"} 0+30x20 600x30 1530+30x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="medium"} 10x120
				gpu_device_up{$A} 1x120`,
				checks: `10m -; 19m -; 21m $A; 25m $A; 29m $A; 32m -`},
			{name: "the clock of the node is two minutes behind", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="medium"} -120+30x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="medium"} 10x60
				gpu_device_up{$A} 1x60`, checks: "10m -; 17m -; 25m -"},
			{name: "a slow poll group of twelve minutes", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="slow"} 0x24 720x24 1440x24
				gpu_exporter_poll_interval_seconds{node="n1",poll="slow"} 720x72
				gpu_device_up{$A} 1x72`, checks: "11m -; 12m -; 24m -"},
			{name: "a slow poll group takes its time", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="slow"} 0x5 180x5 360x5 540x5 720x5 900x5 1080x5 1260x5 1440x5 1620x5
				gpu_exporter_poll_interval_seconds{node="n1",poll="slow"} 60x60
				gpu_device_up{$A} 1x60`, checks: "10m -; 17m -"},
			{name: "a lost GPU has an alert of its own", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_device_up{$A} 0x60`, checks: "10m -; 20m -"},
			{name: "NVML is shut down intentionally", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_exporter_paused{node="n1",reason="mig_change"} 1x60
				gpu_device_up{$A} 1x60`, checks: "10m -; 20m -"},
			{name: "not on purpose", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_exporter_paused{node="n1",reason="mig_change"} 0x60
				gpu_device_up{$A} 1x60`, checks: `9m -; 20m $A`},
		},
		"GPUExporterNVMLErrors": {
			{name: "a panic", series: `gpu_exporter_panics_total{node="n1"} 0x30 1x90
				gpu_exporter_panics_total{node="n2"} 0x120`,
				checks: `29m -; 44m -; 47m node="n1",call="any",code="panic"; 85m node="n1",call="any",code="panic"; 100m -`},
			{name: "every round",
				series: `gpu_exporter_call_errors_total{node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"} 0x10 6+6x40 246x60`,
				checks: `10m -; 25m -; 30m node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; 60m node="n1",` +
					`call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; 68m node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; ` +
					`75m -`},
			{name: "a GPU is lost",
				series: `gpu_exporter_call_errors_total{node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="GPU_IS_LOST"} 6+6x90`,
				checks: "30m -; 60m -"},
			{name: "now and then",
				series: `gpu_exporter_call_errors_total{node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="UNKNOWN"} 0+0.5x90`,
				checks: "40m -; 80m -"},
		},
		"GPUAllocationUnknown": {
			{name: "a pod is running without an allocation",
				series: runs + `gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`,
				checks: `4m -; 19m -; 20m node="n1"; 65m node="n1"; 69m node="n1"; 75m -`},
			{name: "it is known", series: runs +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200
				gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x200`, checks: "30m -; 60m -"},
			{name: "there is no exporter", series: runs, checks: "30m -; 60m -"},
			{name: "it has finished", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "0x200") +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`,
				checks: "30m -; 60m -"},
			{name: "it asks for nothing", series: asks("p", "n1", "nvidia_com_gpu", "0", "0x200", "1x200") +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`,
				checks: "30m -; 60m -"},
			pulse(t, "GPUAllocationUnknown", "an unknown scheme", 0,
				`gpu_container_unresolved_devices{node="n1",$P,container="c",resource="nvidia_com_gpu"}`, "0", "2",
				`node="n1"`),
			{name: "the kubelet's socket is lost", series: runs +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200
				gpu_container_unresolved_devices{node="n1",$P,container="c",resource="nvidia_com_gpu"} 8x200
				gpu_exporter_source_up{node="n1",source="podresources"} 0x200`, checks: "30m -; 60m -"},
			{name: "there is no driver", series: runs +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200
				gpu_exporter_source_up{node="n1",source="nvml"} 0x200`, checks: "30m -; 60m -"},
			{name: "the driver and the kubelet respond", series: runs +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200
				gpu_exporter_source_up{node="n1",source="nvml"} 1x200`, checks: `30m node="n1"`},
			{name: "all is known",
				series: `gpu_container_unresolved_devices{node="n1",$P,container="c",resource="nvidia_com_gpu"} 0x40
				gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x40`, checks: "30m -"},
		},
		"GPUAttributionError": {
			pulse(t, "GPUAttributionError", "five per cent", 0, `gpu_attribution_error_ratio{$A,quantity="busy"}`, "0", "0.05",
				`$A,quantity="busy"`),
			{name: "a rounding", series: `gpu_attribution_error_ratio{$A,quantity="busy"} 0.0001x40`, checks: "30m -"},
		},
		"GPUExporterPaused": {
			pulse(t, "GPUExporterPaused", "for ever", 0, `gpu_exporter_paused{node="n1",reason="mig_change"}`, "0", "1",
				`node="n1",reason="mig_change"`),
			{name: "for a change", series: `gpu_exporter_paused{node="n1",reason="mig_change"} 0x5 1 0x30`,
				checks: "6m -; 16m -"},
		},
		"GPUScrapeMisconfigured": {
			{name: "a PodMonitor beside annotations",
				series: "gpu_device_up{$A} 1x80\n" + `gpu_device_up{$A,job="second"} _x5 1x40 stale _x20`,
				checks: `19m -; 21m node="n1",problem="scraped_twice"; 50m node="n1",problem="scraped_twice"; 53m -`},
			{name: "labels of the target win",
				series: `gpu_container_allocation_ratio{$A,namespace="monitoring",pod="x",exported_pod="p-0",$WHOLE} _x5 1x40 stale _x20`,
				checks: `19m -; 21m node="n1",problem="labels_not_honored"; 50m node="n1",problem="labels_not_honored"; 53m -`},
			{name: "kube-state-metrics has another cluster's name",
				series: `kube_node_status_capacity{node="n1",resource="nvidia_com_gpu",cluster="x"} 8x60
				kube_node_status_capacity{node="n2",resource="nvidia_com_gpu",cluster="x"} 8x60
				gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x60
				gpu_exporter_build_info{node="n2",version="1",revision="r",goversion="go"} 1x60`,
				checks: `14m -; 16m node="any",problem="cluster_differs"; 50m node="any",problem="cluster_differs"`},
			{name: "another cluster has a node of its name", series: `kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"} 8x30
				kube_node_status_capacity{node="n1",resource="nvidia_com_gpu",cluster="x"} 8x30
				gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x30`, checks: "20m -"},
			{name: "no kube-state-metrics", series: `gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x30`,
				checks: "20m -"},
			// The operator's last relabeling of samples sets the label to the monitor's namespace: prometheus-operator 39bdf1c0,
			// pkg/prometheus/testdata/EnforcedNamespaceLabelPodMonitor_Expected.golden.
			{name: "an enforced namespace", series: `gpu_container_allocation_ratio{$A,namespace="monitoring",pod="p-0",$WHOLE} 1x40
				gpu_container_allocation_ratio{$A,namespace="monitoring",pod="q-0",$WHOLE} 1x40
				kube_pod_status_phase{$P,phase="Running"} 1x40
				kube_pod_status_phase{$Q,phase="Running"} 1x40`, checks: `14m -; 16m node="any",problem="namespace_enforced"`},
			{name: "a pod that kube-state-metrics does not know, and one that it does",
				series: `gpu_container_allocation_ratio{$A,namespace="monitoring",pod="r-0",$WHOLE} 1x40
				gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x40
				kube_pod_status_phase{$P,phase="Running"} 1x40`, checks: "20m -; 35m -"},
			{name: "two GPUs and two pods, once each", series: "gpu_device_up{$A} 1x40\ngpu_device_up{$B} 1x40\n" +
				"gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x40", checks: "30m -"},
		},
		"GPURecordsAbsent": {
			{name: "no rules until noon", series: info + " 1x60\ncluster:gpu_nodes:count _x20 1x40",
				checks: "9m -; 11m one; 24m one; 30m -"},
			{name: "rules", series: info + " 1x30\ncluster:gpu_nodes:count 1x30", checks: "20m -"},
		},
	}
}
