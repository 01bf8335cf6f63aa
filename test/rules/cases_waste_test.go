package rules_test

import (
	"fmt"
	"regexp"
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

// beside is a pod with an idle fiftieth of GPU A, and with a part of GPU B: its share, its MIG device and, in seconds of five
// minutes, what is allocated, observed and busy of it.
func beside(name string, share float64, mig, allocated, observed, busy, checks string) testCase {
	s := testCase{name: name, step: 5 * time.Minute, checks: checks, series: alloc("0.02x120", "0+6x120", "0x120", "0+300x120") +
		`gpu_container_allocated_seconds_total{$A,$P,container="c"} 0+6x120
		gpu_container_allocation_ratio{$B,$P,container="c",resource="r",mig_uuid="` + mig + `"} ` + fmt.Sprint(share) + "x120\n"}
	for counter, values := range map[string]string{"allocated": allocated, "observed": observed, "busy": busy} {
		if values != "" {
			s.series += "gpu_container_" + counter + `_seconds_total{$B,$P,container="c"} 0+` + values + "x120\n"
		}
	}
	return s
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
			{name: "a night", step: 5 * time.Minute,
				series: alloc("1x120", "0+300x90 27000x30", "0x90 300+300x29", "0+300x120"),
				checks: "3h -; 6h25m -; 6h30m " + pod + "; 7h30m " + pod + "; 7h40m " + pod + "; 8h -"},
			{name: "an exporter that restarts in between", step: time.Minute,
				series: alloc("1x200 stale _x6 1x260", "0+60x200 stale _x6 0x1 0+60x259", "0x200 stale _x6 0x260",
					"0+60x200 stale _x6 0+60x260"), checks: "389m -; 391m " + pod},
			{name: "work every two hours", step: 5 * time.Minute,
				series: alloc("1x120", "0+300x24 7200x2 7500+300x24 14700x2 15000+300x24 22200x2 22500+300x39",
					"0x25 300+300x1 600x24 900+300x1 1200x24 1500+300x1 1800x40", "0+300x120"),
				checks: "6h40m -; 8h -"},
			{name: "work in a third of each half an hour", step: 5 * time.Minute,
				series: alloc("1x120", sawtooth(20), sawwork(20), "0+300x120"), checks: "6h40m -; 8h -"},
			{name: "half a second of work every three minutes", step: 5 * time.Minute,
				series: alloc("1x120", "0+299x120", "0+0.83x120", "0+300x120"), checks: "6h40m -; 8h -"},
			{name: "a pod of three hours", step: 5 * time.Minute,
				series: alloc("_x80 1x36", "_x80 0+300x36", "_x80 0x36", "_x80 0+300x36"),
				checks: "6h35m -; 9h -"},
			{name: "MIG before Hopper: activity is not observed", step: 5 * time.Minute,
				series: alloc("0.5x120", "0x120", "", ""),
				checks: "8h -"},
			beside("half of a GPU, observed half of the time, busy", 0.5, "", "150", "150", "72", "6h35m -; 8h -"),
			beside("half of a GPU, hardly used", 0.5, "", "150", "300", "30", "6h25m -; 6h35m "+pod),
			beside("a MIG device, observed half of the time, busy", 0.5, "MIG-1", "150", "75", "72", "6h35m -; 8h -"),
			beside("a replica of a MIG device, busy", 0.25, "MIG-1", "75", "150", "72", "6h35m -; 8h -"),
			beside("a replica of a MIG device, hardly used", 0.25, "MIG-1", "75", "150", "30", "6h25m -; 6h35m "+pod),
			beside("a MIG device whose observed time is not exported, busy", 0.5, "MIG-1", "150", "", "72", "6h35m -; 8h -"),
			{name: "observed, but unknown", step: 5 * time.Minute, series: alloc("1x120", "0x120", "0x120", "0x120"), checks: "8h -"},
		},
		"GPUNamespaceIdle": {
			{name: "eight GPUs of two models", step: 5 * time.Minute,
				series: `namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="idle"} 0.5x11 4x60 0x40
				namespace:gpu_unused_seconds:rate5m{namespace="team",model="b",state="idle"} 0.5x11 4x60 0x40
				namespace:gpu_allocation:sum{namespace="team",model="a"} 20x120
				namespace:gpu_allocation:sum{namespace="team",model="b"} 20x120`,
				checks: `195m -; 215m namespace="team"; 350m namespace="team"; 400m namespace="team"; 420m -`},
			{name: "three idle, many with gaps", step: 5 * time.Minute,
				series: `namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="idle"} 3x90
				namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="gap"} 12x90
				namespace:gpu_allocation:sum{namespace="team",model="a"} 20x90`,
				checks: "3h -; 6h -"},
			{name: "five of 240", step: 5 * time.Minute,
				series: `namespace:gpu_unused_seconds:rate5m{namespace="team",model="a",state="idle"} 5x90
				namespace:gpu_allocation:sum{namespace="team",model="a"} 240x90`, checks: "3h -; 6h -"},
		},
		"GPUAllocatedPodNotRunning": {
			pulse(t, "GPUAllocatedPodNotRunning", "pulls its image", 0, `kube_pod_status_phase{$P,phase="Pending"}`, "0", "1",
				pod+`,state="Pending"`, "gpu_container_allocation_ratio{$A,$P,$WHOLE} 1"),
			{name: "starts and fails again and again", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x90
				kube_pod_status_phase{$P,phase="Running"} 1x90
				kube_pod_status_phase{$P,phase="Pending"} 0x90
				kube_pod_container_status_waiting_reason{$P,container="c",reason="CrashLoopBackOff"} ` +
				strings.Repeat("1x3 _x2 ", 6) + "_x30",
				checks: "29m -; 35m " + pod + `,state="CrashLoopBackOff"; 45m ` + pod + `,state="CrashLoopBackOff"; 70m -`},
			{name: "runs", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x60
				kube_pod_status_phase{$P,phase="Running"} 1x60
				kube_pod_status_phase{$P,phase="Pending"} 0x60
				kube_pod_container_status_waiting_reason{$P,container="side",reason="ContainerCreating"} 1x60`,
				checks: "40m -; 55m -"},
			{name: "runs well after a crash", series: `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x60
				kube_pod_status_phase{$P,phase="Running"} 1x60
				kube_pod_container_status_waiting_reason{$P,container="c",reason="CrashLoopBackOff"} 0x60`,
				checks: "40m -; 55m -"},
			{name: "waits, and holds nothing", series: `kube_pod_status_phase{$P,phase="Pending"} 1x60`,
				checks: "40m -"},
		},
		"GPUJobHung": hungCases(),
		"GPUWorkloadStraggler": {
			pulse(t, "GPUWorkloadStraggler", "one rank waits", 0, `workload:gpu_activity:ratio_min{$W,model="a"}`,
				"0.9", "0.2", `$W,model="a"`,
				`workload:gpu_activity:ratio_max{$W,model="a"} 0.95`, "workload:gpu_pods:count{$W} 4"),
			{name: "one pod with GPUs of its choice", series: `workload:gpu_activity:ratio_min{$W,model="a"} 0.1x60
				workload:gpu_activity:ratio_max{$W,model="a"} 0.9x60
				workload:gpu_pods:count{$W} 1x60`, checks: "50m -"},
			{name: "actors of a RayCluster", series: `workload:gpu_activity:ratio_min{namespace="team",workload_type="RayCluster",` +
				`workload="w",model="a"} 0.1x60
				workload:gpu_activity:ratio_max{namespace="team",workload_type="RayCluster",workload="w",model="a"} 0.9x60
				workload:gpu_pods:count{namespace="team",workload_type="RayCluster",workload="w"} 4x60`, checks: "50m -"},
			{name: "replicas of a service",
				series: `workload:gpu_activity:ratio_min{namespace="team",workload_type="Deployment",workload="web",model="a"} 0.1x60
				workload:gpu_activity:ratio_max{namespace="team",workload_type="Deployment",workload="web",model="a"} 0.9x60
				workload:gpu_pods:count{namespace="team",workload_type="Deployment",workload="web"} 4x60`,
				checks: "50m -"},
		},
	}
}

func sharingCases(t *testing.T) map[string][]testCase {
	const (
		sharer1 = `gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.5`
		sharer2 = `gpu_container_allocation_ratio{$A,$Q,container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.5`
		walled1 = `gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_mig_1g_10gb",mig_uuid="MIG-1"} 0.5`
		walled2 = `gpu_container_allocation_ratio{$A,$Q,container="c",resource="nvidia_com_mig_1g_10gb",mig_uuid="MIG-2"} 0.5`
	)
	return map[string][]testCase{
		"GPUSharedMemoryPressure": {
			pulse(t, "GPUSharedMemoryPressure", "two containers, no memory left", 0, "gpu_memory_free_bytes{$A}", "20e9", "2e9", "$A",
				"gpu_memory_total_bytes{$A} 80e9", sharer1, sharer2),
			{name: "one container that filled its GPU",
				series: "gpu_memory_free_bytes{$A} 1e9x30\ngpu_memory_total_bytes{$A} 80e9x30\n" + sharer1 + "x30", checks: "20m -"},
			{name: "instances with walls between them",
				series: "gpu_memory_free_bytes{$A} 1e9x30\ngpu_memory_total_bytes{$A} 80e9x30\n" +
					walled1 + "x30\n" + walled2 + "x30", checks: "20m -"},
		},
		"GPUContainerUsesMoreThanRequested": {
			pulse(t, "GPUContainerUsesMoreThanRequested", "more memory than its share", 0,
				`container:gpu_use_over_request:ratio{$A,$P,container="c",quantity="memory"}`, "1", "1.6",
				`$A,$P,container="c",quantity="memory"`),
			{name: "a little more", series: `container:gpu_use_over_request:ratio{$A,$P,container="c",quantity="busy"} 1.05x60`,
				checks: "50m -"},
		},
		"GPUMemoryUsedUnallocated": {
			pulse(t, "GPUMemoryUsedUnallocated", "a process survived its pod", 0, "gpu_allocation_ratio{$A}", "1", "0", "$A",
				"gpu_memory_used_bytes{$A} 70e9", "gpu_memory_total_bytes{$A} 80e9"),
			{name: "the driver's own", series: "gpu_allocation_ratio{$A} 0x60\ngpu_memory_used_bytes{$A} " +
				"5e8x60\ngpu_memory_total_bytes{$A} 80e9x60", checks: "50m -"},
			{name: "no kubelet says to whom it is allocated",
				series: "gpu_memory_used_bytes{$A} 70e9x60\ngpu_memory_total_bytes{$A} 80e9x60",
				checks: "50m -"},
		},
		"GPUUsedWithoutAllocation": {
			pulse(t, "GPUUsedWithoutAllocation", "a container that took all GPUs", 0,
				`gpu_container_mismatch{$A,$P,container="c",kind="used_not_allocated"}`, "0", "1",
				`$A,$P,container="c",kind="used_not_allocated"`),
			{name: "for a moment",
				series: `gpu_container_mismatch{$A,$P,container="c",kind="used_other_gpu"} 0x5 1x5 0x40`,
				checks: "10m -; 12m -; 30m -"},
		},
	}
}

var uuid = regexp.MustCompile(`uuid="[^"]*"`)

// rank is a pod with a GPU: how busy it is, its power of a limit of 100 W, and the activity of tensor cores and memory; before
// Hopper that is not measured.
func rank(at, pod string, busy, watts float64, activity ...float64) string {
	const span = "x60"
	at = expand(at)
	rate := func(name string, v float64) string { return fmt.Sprintf("%s{%s} 0+%g%s\n", name, at, 60*v, span) }
	text := `gpu_container_allocation_ratio{` +
		at + `,namespace="team",pod="` + pod + `",container="c",resource="r",mig_uuid=""} 1` + span + `
		pod:gpu_device_workload:info{node="n1",` + uuid.FindString(at) + `,namespace="team",pod="` + pod +
		`",workload_type="Job",workload="w",model="a"} 1` + span + "\n" +
		rate("gpu_busy_seconds_total", busy) + rate("gpu_observed_seconds_total", 1) + rate("gpu_energy_joules_total", watts) +
		"gpu_power_limit_watts{" + at + "} 100" + span + "\n"
	if len(activity) > 0 {
		text += rate("gpu_profiled_seconds_total", 1) + rate("gpu_tensor_active_seconds_total", activity[0]) +
			rate("gpu_dram_active_seconds_total", activity[1])
	}
	return text
}

func hungCases() []testCase {
	const (
		a     = `node="n1",uuid="GPU-A",gpu="0"`
		b     = `node="n1",uuid="GPU-B",gpu="1"`
		c     = `node="n1",uuid="GPU-C",gpu="2"`
		pods  = "workload:gpu_pods:count{$W} 2x60\n"
		hangs = "14m -; 17m $W; 55m $W"
		works = "20m -; 40m -; 55m -"
	)
	spins := rank(a, "p-0", 1, 25, 0.001, 0.001)
	before := func(now string) string {
		return `workload:gpu_activity:ratio_max{$W,model="a"} ` + now + "x60\n" +
			`workload:gpu_activity:ratio_p50_30m{$W,model="a"} 0.7x60` + "\n"
	}
	return []testCase{
		{name: "two ranks spin, without history", series: pods + spins + rank(b, "q-0", 1, 25, 0.001, 0.001), checks: hangs},
		{name: "two of three spin, and one stopped", series: pods + spins + rank(b, "q-0", 1, 25, 0.001, 0.001) +
			rank(c, "r-0", 0, 12, 0, 0),
			checks: hangs},
		{name: "it ends",
			series: pods + strings.ReplaceAll(spins+rank(b, "q-0", 1, 25, 0.001, 0.001), "gpu_busy_seconds_total{"+b+"} 0+60x60",
				"gpu_busy_seconds_total{"+b+"} 0+60x25 1500+12x35"), checks: "14m -; 17m $W; 25m $W; 35m $W; 45m -"},
		{name: "one rank works", series: pods + spins + rank(b, "q-0", 1, 25, 0.001, 0.001) +
			rank(c, "r-0", 0.8, 80, 0.4, 0.3), checks: works},
		{name: "one GPU", series: pods + spins, checks: works},
		{name: "all ranks are idle", series: pods + rank(a, "p-0", 0, 12, 0, 0) + rank(b, "q-0", 0, 12, 0, 0), checks: works},
		{name: "much power", series: pods + rank(a, "p-0", 1, 60, 0.001, 0.001) + rank(b, "q-0", 1, 60, 0.001, 0.001), checks: works},
		{name: "tensor cores are active", series: pods + rank(a, "p-0", 1, 25, 0.2, 0.001) + rank(b, "q-0", 1, 25, 0.2, 0.001),
			checks: works},
		{name: "light decoding", series: pods + rank(a, "p-0", 1, 25, 0.001, 0.2) + rank(b, "q-0", 1, 25, 0.001, 0.2), checks: works},
		{name: "light decoding before Hopper, as always", series: pods + before("0.5") + rank(a, "p-0", 1, 25) + rank(b, "q-0", 1, 25),
			checks: works},
		{name: "a new job before Hopper", series: pods + rank(a, "p-0", 1, 25) + rank(b, "q-0", 1, 25), checks: works},
		{name: "a fall of power before Hopper", series: pods + before("0.25") + rank(a, "p-0", 1, 25) + rank(b, "q-0", 1, 25),
			checks: "55m $W"},
		{name: "a fall of power before Hopper that lasts longer than the work", series: pods + strings.ReplaceAll(before("0.25"), "0.7x60",
			"0.7x5 0.25x54") + rank(a, "p-0", 1, 25) + rank(b, "q-0", 1, 25), checks: "57m $W"},
		{name: "halves of GPUs", series: pods + strings.ReplaceAll(spins+rank(b, "q-0", 1, 25, 0.001, 0.001), `mig_uuid=""} 1x60`,
			`mig_uuid=""} 0.5x60`), checks: works},
		{name: "replicas of a service", series: strings.ReplaceAll(pods+spins+rank(b, "q-0", 1, 25, 0.001, 0.001),
			`workload_type="Job"`, `workload_type="Deployment"`), checks: works},
	}
}
