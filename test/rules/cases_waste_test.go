package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// holding is a pod that holds GPU A alone: its allocation and its counters.
func alloc(allocation, idle, busy, observed string) string {
	series := func(name, labels, values string) string {
		if values == "" {
			return ""
		}
		return fmt.Sprintf("%s{$A,$P,%s} %s\n", name, labels, values)
	}
	return series("gpu_container_allocation_ratio", "$WHOLE", allocation) +
		series("gpu_container_unused_seconds_total", `container="c",state="idle"`, idle) +
		series("gpu_container_busy_seconds_total", `container="c"`, busy) +
		series("gpu_container_observed_seconds_total", `container="c"`, observed)
}

// A pod that is idle for 20 minutes and works for 10, again and again, in samples of five minutes.
func sawtooth(times int) string {
	var b strings.Builder
	for i := range times {
		fmt.Fprintf(&b, "%d+300x4 %dx0 ", i*1200, (i+1)*1200)
	}
	return b.String()
}

func sawwork(times int) string {
	var b strings.Builder
	for i := range times {
		fmt.Fprintf(&b, "%dx4 %dx0 ", i*600, i*600+300)
	}
	return b.String()
}

const pod = `node="n1",$P`

func wasteCases(t *testing.T) map[string][]testCase {
	return map[string][]testCase{
		"GPUAllocatedIdle": {
			{name: "nothing runs for half an hour, then work begins",
				series: alloc("1x140", "0+60x60 3600x80", "0x60 60+60x79", "0+60x140"),
				checks: "20m -; 34m -; 35m " + pod + "; 60m " + pod + "; 69m " + pod + "; 75m -"},
			{name: "two of two GPUs", series: alloc("1x140", "0+60x140", "0x140", "0+60x140") +
				`gpu_container_allocation_ratio{$B,$P,$WHOLE} 1x140
				gpu_container_unused_seconds_total{$B,$P,container="c",state="idle"} 0+60x140
				gpu_container_busy_seconds_total{$B,$P,container="c"} 0+60x140
				gpu_container_observed_seconds_total{$B,$P,container="c"} 0+60x140`, checks: "60m " + pod + "; 130m " + pod},
			{name: "the exporter restarts and is absent for five minutes",
				series: alloc("1x44 stale _x4 1x100", "0+60x44 stale _x4 0x1 0+60x99", "0x44 stale _x4 0x100",
					"0+60x44 stale _x4 0+60x100"),
				checks: "40m " + pod + "; 45m " + pod + "; 49m " + pod + "; 52m " + pod + "; 60m " + pod + "; 75m " + pod + "; 90m " + pod +
					"; 120m " + pod},
			{name: "it comes back under another target label", series: `
				gpu_container_allocation_ratio{instance="a",$A,$P,$WHOLE} 1x44 stale
				gpu_container_unused_seconds_total{instance="a",$A,$P,container="c",state="idle"} 0+60x44 stale
				gpu_container_busy_seconds_total{instance="a",$A,$P,container="c"} 0x44 stale
				gpu_container_observed_seconds_total{instance="a",$A,$P,container="c"} 0+60x44 stale
				gpu_container_allocation_ratio{instance="b",$A,$P,$WHOLE} _x47 1x100
				gpu_container_unused_seconds_total{instance="b",$A,$P,container="c",state="idle"} _x48 0+60x99
				gpu_container_busy_seconds_total{instance="b",$A,$P,container="c"} _x47 0x100
				gpu_container_observed_seconds_total{instance="b",$A,$P,container="c"} _x47 0+60x100`,
				checks: "40m " + pod + "; 46m " + pod + "; 52m " + pod + "; 60m " + pod + "; 90m " + pod + "; 120m " + pod},
			{name: "a new pod has its time of grace", series: alloc("_x40 1x100", "_x40 0+60x100", "_x40 0x100", "_x40 0+60x100"),
				checks: "55m -; 65m -; 74m -; 76m " + pod},
			{name: "six minutes of work in each half an hour",
				series: alloc("1x130", "0+60x20 1200x8 1260+60x20 2460x8 2520+60x20 3720x8 3780+60x40",
					"0x21 60+60x5 360x22 420+60x5 720x22 780+60x5 1080x44", "0+60x130"),
				checks: "50m -; 80m -; 110m -"},
			{name: "MIG before Hopper: activity is not observed", series: alloc("0.5x130", "0x130", "", ""), checks: "60m -; 120m -"},
			{name: "observed, but unknown", series: alloc("1x130", "0x130", "0x130", "0x130"), checks: "60m -; 120m -"},
		},
		"GPUAllocatedIdleLong": {
			{name: "a night", step: 5 * time.Minute, series: alloc("1x120", "0+300x90 27000x30", "0x90 300+300x29", "0+300x120"),
				checks: "3h -; 6h25m -; 6h30m " + pod + "; 7h30m " + pod + "; 7h40m " + pod + "; 8h -"},
			{name: "an exporter that restarts in between", step: time.Minute,
				series: alloc("1x200 stale _x6 1x260", "0+60x200 stale _x6 0x1 0+60x259", "0x200 stale _x6 0x260",
					"0+60x200 stale _x6 0+60x260"), checks: "389m -; 391m " + pod},
			{name: "work every two hours", step: 5 * time.Minute,
				series: alloc("1x120", "0+300x24 7200x2 7500+300x24 14700x2 15000+300x24 22200x2 22500+300x39",
					"0x25 300+300x1 600x24 900+300x1 1200x24 1500+300x1 1800x40", "0+300x120"), checks: "6h40m -; 8h -"},
			{name: "work in a third of each half an hour", step: 5 * time.Minute,
				series: alloc("1x120", sawtooth(20), sawwork(20), "0+300x120"), checks: "6h40m -; 8h -"},
			{name: "a pod of three hours", step: 5 * time.Minute, series: alloc("_x80 1x36", "_x80 0+300x36", "_x80 0x36", "_x80 0+300x36"),
				checks: "6h35m -; 9h -"},
			{name: "MIG before Hopper: activity is not observed", step: 5 * time.Minute, series: alloc("0.5x120", "0x120", "", ""),
				checks: "8h -"},
			{name: "observed, but unknown", step: 5 * time.Minute, series: alloc("1x120", "0x120", "0x120", "0x120"), checks: "8h -"},
		},
		"GPUNamespaceIdle": {
			{name: "eight GPUs of two models", step: 5 * time.Minute,
				series: `namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="idle"} 0.5x11 4x60 0x40
				namespace:gpu_unused_seconds:rate5m{namespace="team",model="b",state="idle"} 0.5x11 4x60 0x40`,
				checks: `195m -; 215m namespace="team"; 350m namespace="team"; 400m namespace="team"; 420m -`},
			{name: "three idle, many with gaps", step: 5 * time.Minute,
				series: `namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="idle"} 3x90
				namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="gap"} 12x90`, checks: "3h -; 6h -"},
		},
		"GPUAllocatedUnderused": lowUtilizationCases(),
		"GPUAllocatedPodNotRunning": {
			pulse(t, "GPUAllocatedPodNotRunning", "pulls its image", 0, `kube_pod_status_phase{$P,phase="Pending"}`, "0", "1",
				pod+`,state="Pending"`, "gpu_container_allocation_ratio{$A,$P,$WHOLE} 1"),
			{name: "starts and fails again and again", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x90
				kube_pod_status_phase{$P,phase="Running"} 1x90
				kube_pod_status_phase{$P,phase="Pending"} 0x90
				kube_pod_container_status_waiting_reason{$P,container="c",reason="CrashLoopBackOff"} 1 _x5 1 _x5 1 _x5 1 _x5 1 _x5 1 ` +
				`_x5 1 _x5 1 _x30`,
				checks: "29m -; 35m " + pod + `,state="CrashLoopBackOff"; 45m ` + pod + `,state="CrashLoopBackOff"; 70m -`},
			{name: "runs", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x60
				kube_pod_status_phase{$P,phase="Running"} 1x60
				kube_pod_status_phase{$P,phase="Pending"} 0x60
				kube_pod_container_status_waiting_reason{$P,container="side",reason="ContainerCreating"} 1x60`, checks: "40m -; 55m -"},
			{name: "runs well after a crash", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x60
				kube_pod_status_phase{$P,phase="Running"} 1x60
				kube_pod_container_status_waiting_reason{$P,container="c",reason="CrashLoopBackOff"} 0x60`, checks: "40m -; 55m -"},
			{name: "waits, and holds nothing", series: `kube_pod_status_phase{$P,phase="Pending"} 1x60`, checks: "40m -"},
		},
		"GPUWorkloadStraggler": {
			pulse(t, "GPUWorkloadStraggler", "one rank waits", 0, `workload:gpu_busy:ratio_min{$W,model="a"}`, "0.9", "0.2", `$W,model="a"`,
				`workload:gpu_busy:ratio_max{$W,model="a"} 0.95`, "workload:gpu_pods:count{$W} 4"),
			{name: "one pod with GPUs of its choice", series: `workload:gpu_busy:ratio_min{$W,model="a"} 0.1x60
				workload:gpu_busy:ratio_max{$W,model="a"} 0.9x60
				workload:gpu_pods:count{$W} 1x60`, checks: "50m -"},
			{name: "replicas of a service",
				series: `workload:gpu_busy:ratio_min{namespace="team",workload_type="Deployment",workload="web",model="a"} 0.1x60
				workload:gpu_busy:ratio_max{namespace="team",workload_type="Deployment",workload="web",model="a"} 0.9x60
				workload:gpu_pods:count{namespace="team",workload_type="Deployment",workload="web"} 4x60`, checks: "50m -"},
		},
		"GPUMIGUnused": {
			pulse(t, "GPUMIGUnused", "two of three instances", 10*time.Minute,
				`gpu_mig_allocation_ratio{$A,mig_uuid="MIG-1",gi="1",profile="1g.10gb"}`, "1", "0", "$A",
				`gpu_mig_allocation_ratio{$A,mig_uuid="MIG-2",gi="2",profile="1g.10gb"} 0`,
				`gpu_mig_allocation_ratio{$A,mig_uuid="MIG-3",gi="3",profile="1g.10gb"} 1`),
			{name: "one of two, the other half allocated", step: 10 * time.Minute,
				series: `gpu_mig_allocation_ratio{$A,mig_uuid="MIG-1",gi="1",profile="1g.10gb"} 0x200
				gpu_mig_allocation_ratio{$A,mig_uuid="MIG-2",gi="2",profile="1g.10gb"} 0.5x200`, checks: "25h -; 33h -"},
		},
		"GPUCapacityUnderused": {
			{name: "three quarters stand free for a day", step: 10 * time.Minute,
				series: `model:gpu_time_seconds:rate5m{model="a",state="unallocated"} 6x180 0x100
				model:gpu_time_seconds:rate5m{model="a",state="busy"} 2x180 8x100`,
				checks: `24h -; 24h50m -; 25h10m model="a"; 29h model="a"; 38h50m model="a"; 40h -`},
			{name: "a quarter", step: 10 * time.Minute, series: `model:gpu_time_seconds:rate5m{model="a",state="unallocated"} 2x200
				model:gpu_time_seconds:rate5m{model="a",state="idle"} 6x200`, checks: "26h -; 33h -"},
			{name: "a pool of this morning", step: 10 * time.Minute,
				series: `model:gpu_time_seconds:rate5m{model="a",state="unallocated"} _x100 6x60
				model:gpu_time_seconds:rate5m{model="a",state="busy"} _x100 2x60`, checks: "19h -; 26h -"},
		},
	}
}

// lowUtilizationCases play days; the workload has one pod that holds GPU A.
func lowUtilizationCases() []testCase {
	const labels = `$W,model="a"`
	tell := func(name, before, busy, memory, allocation, checks string) testCase {
		return testCase{name: name, step: 10 * time.Minute, checks: checks,
			series: `workload:gpu_busy:ratio_max{` + labels + `} ` + before + busy + `
			workload:gpu_memory_used_bytes:max{` + labels + `} ` + before + memory + `
			workload:gpu_allocation:sum{` + labels + `} ` + before + `1x260
			gpu_container_allocation_ratio{$A,$P,$WHOLE} ` + before + allocation + `
			pod:gpu_workload:info{node="n1",$P,workload_type="Job",workload="w"} ` + before + `1x260
			model:gpu_memory_total_bytes:sum{model="a"} 160e9x260
			model:gpu_device_up:sum{model="a"} 2x260`}
	}
	lone := tell("a pod of its own that holds a quarter", "", "0.1x260", "10e9x260", "0.25x260", "26h -; 40h -")
	lone.series = strings.ReplaceAll(expand(lone.series), `workload_type="Job",workload="w"`, `workload_type="pod",workload="p-0"`)
	return []testCase{
		lone,
		tell("little work in little memory, then much", "", "0.1x179 0.9x80", "10e9x260", "1x260",
			"23h -; 24h50m -; 25h "+labels+"; 30h "+labels+"; 31h50m "+labels+"; 34h -"),
		tell("busy now and then", "", "0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 "+
			"0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9 0.9 0.1x9", "10e9x260", "1x260",
			"26h -; 30h -"),
		tell("needs the memory", "", "0.1x260", "60e9x260", "1x260", "26h -; 40h -"),
		tell("holds a quarter already", "", "0.1x260", "10e9x260", "0.25x260", "26h -; 40h -"),
		tell("began this morning", "_x60 ", "0.1x260", "10e9x260", "1x260", "20h -; 33h50m -"),
	}
}

func sharingCases(t *testing.T) map[string][]testCase {
	const (
		sharer1 = `gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.5`
		sharer2 = `gpu_container_allocation_ratio{$A,$Q,container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.5`
		walled1 = `gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_mig_1g_10gb",mig_uuid="MIG-1"} 0.5`
		walled2 = `gpu_container_allocation_ratio{$A,$Q,container="c",resource="nvidia_com_mig_1g_10gb",mig_uuid="MIG-2"} 0.5`
	)
	busy := func(a, p, q string) string {
		text := "gpu_busy_seconds_total{$A} " + a + "\ngpu_observed_seconds_total{$A} 0+60x120\n" + sharer1 + "x120\n"
		for who, values := range map[string]string{"$P": p, "$Q": q} {
			if values != "" {
				text += "gpu_container_busy_seconds_total{$A," + who + `,container="c"} ` + values +
					"\ngpu_container_observed_seconds_total{$A," + who + `,container="c"} 0+60x120` + "\n"
			}
		}
		return text
	}
	return map[string][]testCase{
		"GPUMemoryOvercommitted": {
			pulse(t, "GPUMemoryOvercommitted", "promised twice", 0, `gpu_container_memory_limit_bytes{$A,$P,container="c"}`, "30e9", "60e9",
				"$A",
				`gpu_container_memory_limit_bytes{$A,$Q,container="c"} 40e9`, "gpu_memory_total_bytes{$A} 80e9"),
			{name: "all of it, and no more", series: `gpu_container_memory_limit_bytes{$A,$P,container="c"} 80e9x30
				gpu_memory_total_bytes{$A} 80e9x30`, checks: "20m -"},
		},
		"GPUSharedMemoryPressure": {
			pulse(t, "GPUSharedMemoryPressure", "two containers, no memory left", 0, "gpu_memory_free_bytes{$A}", "20e9", "2e9", "$A",
				"gpu_memory_total_bytes{$A} 80e9", sharer1, sharer2),
			{name: "one container that filled its GPU", series: "gpu_memory_free_bytes{$A} 1e9x30\ngpu_memory_total_bytes{$A} 80e9x30\n" +
				sharer1 + "x30", checks: "20m -"},
			{name: "instances with walls between them", series: "gpu_memory_free_bytes{$A} 1e9x30\ngpu_memory_total_bytes{$A} 80e9x30\n" +
				walled1 + "x30\n" + walled2 + "x30", checks: "20m -"},
		},
		"GPUMemoryPeaksExceedGPU": {
			{name: "peaks at different hours", series: `gpu_container_memory_used_bytes{$A,$P,container="c"} 10e9x4 60e9x5 10e9x500
				gpu_container_memory_used_bytes{$A,$Q,container="c"} 10e9x20 50e9x5 10e9x480
				gpu_memory_total_bytes{$A} 80e9x510` + "\n" + sharer1 + "x510\n" + sharer2 + "x510",
				checks: "22m -; 30m -; 31m $A; 6h $A; 6h20m $A; 6h40m -"},
			{name: "one container with a GPU of its own", series: `gpu_container_memory_used_bytes{$A,$P,container="c"} 90e9x60
				gpu_memory_total_bytes{$A} 80e9x60` + "\n" + sharer1 + "x60", checks: "40m -"},
			{name: "one that has gone", series: `gpu_container_memory_used_bytes{$A,$P,container="c"} 60e9x60
				gpu_container_memory_used_bytes{$A,$Q,container="c"} 60e9x5 stale
				gpu_container_memory_used_bytes{$A,namespace="team",pod="r",container="c"} 10e9x60
				gpu_container_allocation_ratio{$A,namespace="team",pod="r",container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.5x60
				gpu_memory_total_bytes{$A} 80e9x60` + "\n" + sharer1 + "x60", checks: "14m -; 40m -"},
		},
		"GPUSharedContention": {
			{name: "two that want it all", series: busy("0+60x60 3600x60", "0+30x60 1800x60", "0+30x60 1800x60") + sharer2 + "x120",
				checks: "25m -; 36m $A; 60m $A; 69m $A; 80m -"},
			{name: "two containers with unknown activity", series: busy("0+60x60 3600x60", "", "") + sharer2 + "x120",
				checks: "25m -; 36m $A; 80m -"},
			{name: "one works, one rests", series: busy("0+60x120", "0+60x120", "0+0.6x120") + sharer2 + "x120", checks: "60m -; 110m -"},
			{name: "one that has the GPU to itself", series: busy("0+60x120", "", ""), checks: "60m -; 110m -"},
			{name: "two with time to spare", series: busy("0+40x120", "0+20x120", "0+20x120") + sharer2 + "x120", checks: "60m -; 110m -"},
		},
		"GPUReplicasUnused": {
			{name: "twenty replicas of two GPUs, four in use", step: 10 * time.Minute,
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 20x300
				gpu_node_allocated_devices{node="n1",resource="nvidia_com_gpu"} 4x180 15x120
				gpu_device_up{$A} 1x300
				gpu_device_up{$B} 1x300`,
				checks: `23h50m -; 24h50m -; 25h10m node="n1",resource="nvidia_com_gpu"; 30h node="n1",resource="nvidia_com_gpu"; ` +
					`30h50m node="n1",resource="nvidia_com_gpu"; 32h -`},
			{name: "whole GPUs that are not requested", step: 10 * time.Minute,
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} 2x300
				gpu_node_allocated_devices{node="n1",resource="nvidia_com_gpu"} 0x300
				gpu_device_up{$A} 1x300
				gpu_device_up{$B} 1x300`, checks: "26h -; 40h -"},
			{name: "replicas since this morning", step: 10 * time.Minute,
				series: `gpu_node_allocatable_devices{node="n1",resource="nvidia_com_gpu"} _x60 20x80
				gpu_node_allocated_devices{node="n1",resource="nvidia_com_gpu"} _x60 4x80
				gpu_device_up{$A} 1x300`, checks: "20h -; 23h -"},
		},
		"GPUUsedWithoutAllocation": {
			pulse(t, "GPUUsedWithoutAllocation", "a container that took all GPUs", 0,
				`gpu_container_mismatch{$A,$P,container="c",kind="used_not_allocated"}`, "0", "1",
				`$A,$P,container="c",kind="used_not_allocated"`),
			{name: "for a moment", series: `gpu_container_mismatch{$A,$P,container="c",kind="used_other_gpu"} 0x5 1x5 0x40`,
				checks: "10m -; 12m -; 30m -"},
		},
	}
}
