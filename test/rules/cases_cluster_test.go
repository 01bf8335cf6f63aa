package rules_test

import (
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
	return `kube_pod_container_resource_requests{` + labels + `,container="c",resource="` + resource + `"` + at + `} ` + count + `x200
		kube_pod_status_phase{` + labels + `,phase="Pending"} ` + pending + `
		kube_pod_status_phase{` + labels + `,phase="Running"} ` + running + "\n"
}

func free(node, count string) string {
	return `node:gpu_unallocated_devices:sum{node="` + node + `",resource="nvidia_com_gpu"} ` + count + "\n"
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
	return map[string][]testCase{
		"GPUUnallocatedWhilePodsWait": {
			{name: "a node has room", series: waits("2") + free("n1", "4x200") + free("n2", "0x200"),
				checks: "4m -; 19m -; 20m " + gpus + "; 65m " + gpus + "; 69m " + gpus + "; 75m -"},
			{name: "there is room, but not enough on one node", series: waits("4") + free("n1", "2x200") + free("n2", "2x200"),
				checks: "30m -; 60m -"},
			{name: "it has its place and pulls its image",
				series: asks("p", "n1", "nvidia_com_gpu", "2", "1x200", "0x200") + placed + free("n1", "4x200"), checks: "30m -; 60m -"},
			{name: "it runs", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "1x200") + free("n1", "4x200"),
				checks: "30m -; 60m -"},
		},
		"GPUFragmented": {
			{name: "two on each of two nodes, four wanted", series: waits("4") + free("n1", "2x200") + free("n2", "2x200"),
				checks: "4m -; 19m -; 20m " + gpus + "; 65m " + gpus + "; 69m " + gpus + "; 75m -"},
			{name: "a node has room", series: waits("2") + free("n1", "2x200") + free("n2", "2x200"), checks: "30m -; 60m -"},
			{name: "too few on all together", series: waits("5") + free("n1", "2x200") + free("n2", "2x200"), checks: "30m -; 60m -"},
			{name: "it has its place and pulls its image",
				series: asks("p", "n1", "nvidia_com_gpu", "4", "1x200", "0x200") + placed + free("n1", "2x200") + free("n2", "2x200"),
				checks: "30m -; 60m -"},
		},
		"GPUCapacityExhausted": {
			{name: "none is left", series: waits("1") + free("n1", "0x200") + free("n2", "0x200"),
				checks: `4m -; 19m -; 20m resource="nvidia_com_gpu"; 65m resource="nvidia_com_gpu"; 79m resource="nvidia_com_gpu"; 85m -`},
			{name: "one is left", series: waits("1") + free("n1", "0x200") + free("n2", "1x200"), checks: "30m -; 60m -"},
			{name: "nobody waits", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "1x200") + free("n1", "0x200"),
				checks: "30m -; 60m -"},
			{name: "the last ones go to a pod that pulls its image",
				series: asks("p", "n1", "nvidia_com_gpu", "2", "1x200", "0x200") + placed + free("n1", "0x200"), checks: "30m -; 60m -"},
		},
		"GPUResourceNotOffered": {
			{name: "a MIG profile that no GPU has", series: asks("p", "", "nvidia_com_mig_3g_40gb", "1", "0x4 1x60 0x130", "0x200") +
				`cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8x200`,
				checks: `34m -; 35m namespace="team",resource="nvidia_com_mig_3g_40gb"; 65m namespace="team",` +
					`resource="nvidia_com_mig_3g_40gb"; 69m namespace="team",resource="nvidia_com_mig_3g_40gb"; 75m -`},
			{name: "all are taken", series: waits("1") + `cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8x200`,
				checks: "40m -; 60m -"},
			{name: "offered, and with none to give", series: waits("1") +
				`cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 0x200`, checks: "34m -; 40m " + gpus},
			{name: "it has its place", series: asks("p", "n1", "nvidia_com_gpu", "1", "1x200", "0x200") + placed, checks: "40m -; 60m -"},
		},
		"GPURequestsOvercommitted": {
			pulse(t, "GPURequestsOvercommitted", "twice what there is", 0, `cluster:gpu_requests:sum{resource="nvidia_com_gpu"}`, "8", "16",
				`resource="nvidia_com_gpu"`, `cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8`),
			{name: "a little more than there is", series: `cluster:gpu_requests:sum{resource="nvidia_com_gpu"} 10x90
				cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8x90`, checks: "80m -"},
			{name: "a resource that is being taken away", series: `cluster:gpu_requests:sum{resource="nvidia_com_gpu"} 10x90
				cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 0x90`, checks: "80m -"},
		},
		"GPUQuotaOvercommitted": {
			pulse(t, "GPUQuotaOvercommitted", "twice what there is", 0,
				`kube_resourcequota{namespace="a",resourcequota="q",resource="requests.nvidia.com/gpu",type="hard"}`, "4", "16", "one",
				`kube_resourcequota{namespace="b",resourcequota="q",resource="requests.nvidia.com/gpu",type="used"} 16`,
				`cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8`),
			{name: "quotas that can all be kept",
				series: `kube_resourcequota{namespace="a",resourcequota="q",resource="requests.nvidia.com/gpu",type="hard"} 8x90
				kube_resourcequota{namespace="a",resourcequota="q",resource="requests.memory",type="hard"} 1e12x90
				cluster:gpu_allocatable_devices:sum{resource="nvidia_com_gpu"} 8x90`, checks: "80m -"},
		},
	}
}

func exporterCases(t *testing.T) map[string][]testCase {
	const target = `job="monitoring/gpu-exporter",instance="n1"`
	runs := asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "0x4 1x60 0x130")
	return map[string][]testCase{
		"GPUExporterDown": {
			pulse(t, "GPUExporterDown", "a pod that does not start", 0, "up{"+target+"}", "1", "0", target),
			{name: "another job", series: `up{job="node-exporter",instance="n1"} 0x30`, checks: "20m -"},
			{name: "a restart", series: "up{" + target + "} 1x5 0x2 1x20", checks: "8m -; 15m -"},
		},
		"GPUExporterAbsent": {
			{name: "the DaemonSet is gone, and comes back",
				series: "up{" + target + "} 1x4 stale _x30 1x20\n" + `up{job="prometheus",instance="x"} 1x60`,
				checks: "4m -; 19m -; 20m one; 34m one; 39m one; 45m -"},
			{name: "one that is down is there", series: "up{" + target + "} 0x30", checks: "20m -"},
		},
		"GPUExporterMissingOnNode": {
			pulse(t, "GPUExporterMissingOnNode", "the node pool is new", 0,
				`kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"}`, "0", "8", `node="n1"`,
				`kube_node_status_condition{node="n1",condition="Ready",status="true"} 1`),
			{name: "the exporter is there", series: `kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"} 8x30
				gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x30`, checks: "20m -; 28m -"},
			{name: "the node is down", series: `kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"} 8x30
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 0x30`, checks: "20m -; 28m -"},
			{name: "a node without GPUs", series: `kube_node_status_capacity{node="n1",resource="memory"} 8x30`, checks: "20m -"},
		},
		"GPUDriverDown": {
			pulse(t, "GPUDriverDown", "not loaded", 0, `gpu_exporter_source_up{node="n1",source="nvml"}`, "1", "0", `node="n1"`),
			{name: "the kubelet's socket", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x30
				gpu_exporter_source_up{node="n1",source="podresources"} 0x30`, checks: "20m -"},
		},
		"GPUExporterSourceDown": {
			pulse(t, "GPUExporterSourceDown", "the kubelet's socket", 0, `gpu_exporter_source_up{node="n1",source="podresources"}`, "1",
				"0", `node="n1",source="podresources"`),
			{name: "the driver has an alert of its own", series: `gpu_exporter_source_up{node="n1",source="nvml"} 0x30
				gpu_exporter_source_up{node="n1",source="podresources"} 1x30`, checks: "20m -"},
		},
		"GPUExporterPollStuck": {
			{name: "no reading for minutes", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="medium"} 0+30x20 600x30 1530+30x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="medium"} 10x120
				gpu_device_up{$A} 1x120`, checks: `10m -; 15m -; 17m $A,poll="medium"; 25m $A,poll="medium"; 29m $A,poll="medium"; 32m -`},
			{name: "a slow poll group takes its time", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="slow"} 0x5 180x5 360x5 540x5 720x5 900x5
				gpu_exporter_poll_interval_seconds{node="n1",poll="slow"} 60x60
				gpu_device_up{$A} 1x60`, checks: "10m -; 17m -"},
			{name: "a lost GPU has an alert of its own", step: 30 * time.Second,
				series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_device_up{$A} 0x60`, checks: "10m -; 20m -"},
			{name: "NVML is shut down intentionally", step: 30 * time.Second, series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_exporter_paused{node="n1",reason="mig_change"} 1x60
				gpu_device_up{$A} 1x60`, checks: "10m -; 20m -"},
			{name: "not on purpose", step: 30 * time.Second, series: `gpu_last_read_timestamp_seconds{$A,poll="fast"} 0x60
				gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2x60
				gpu_exporter_paused{node="n1",reason="mig_change"} 0x60
				gpu_device_up{$A} 1x60`, checks: `5m -; 20m $A,poll="fast"`},
		},
		"GPUExporterSlow": {
			pulse(t, "GPUExporterSlow", "three seconds of two", 0, `gpu_exporter_poll_duration_seconds{node="n1",poll="fast"}`, "0.1", "3",
				`node="n1",poll="fast"`, `gpu_exporter_poll_interval_seconds{node="n1",poll="fast"} 2`),
			{name: "three seconds of sixty", series: `gpu_exporter_poll_duration_seconds{node="n1",poll="slow"} 3x40
				gpu_exporter_poll_interval_seconds{node="n1",poll="slow"} 60x40`, checks: "30m -"},
		},
		"GPUExporterScrapeSlow": {
			pulse(t, "GPUExporterScrapeSlow", "seven seconds", 0, "scrape_duration_seconds{"+target+"}", "0.1", "7", target),
			{name: "another job", series: `scrape_duration_seconds{job="kubelet",instance="n1"} 7x40`, checks: "30m -"},
			{name: "two seconds", series: "scrape_duration_seconds{" + target + "} 2x40", checks: "30m -"},
		},
		"GPUExporterNVMLErrors": {
			{name: "every round",
				series: `gpu_exporter_call_errors_total{node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"} 0x10 6+6x40 246x60`,
				checks: `10m -; 25m -; 30m node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; 60m node="n1",` +
					`call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; 68m node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="TIMEOUT"; ` +
					`75m -`},
			{name: "now and then",
				series: `gpu_exporter_call_errors_total{node="n1",call="nvmlDeviceGetMemoryInfo_v2",code="UNKNOWN"} 0+0.5x90`,
				checks: "40m -; 80m -"},
		},
		"GPUExporterRejectedValues": {
			{name: "ten of them", series: `gpu_exporter_rejected_values_total{node="n1",reading="utilization"} 0x10 1+1x9 10x130`,
				checks: `10m -; 12m -; 20m node="n1",reading="utilization"; 70m node="n1",reading="utilization"; 90m node="n1",` +
					`reading="utilization"; 100m -`},
			{name: "one", series: `gpu_exporter_rejected_values_total{node="n1",reading="utilization"} 0x10 1x90`, checks: "20m -; 60m -"},
		},
		"GPUExporterJoinBroken": {
			{name: "a pod is running without an allocation",
				series: runs + `gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`,
				checks: `4m -; 19m -; 20m node="n1"; 65m node="n1"; 69m node="n1"; 75m -`},
			{name: "it is known", series: runs + `gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200
				gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x200`, checks: "30m -; 60m -"},
			{name: "there is no exporter", series: runs, checks: "30m -; 60m -"},
			{name: "it has finished", series: asks("p", "n1", "nvidia_com_gpu", "2", "0x200", "0x200") +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`, checks: "30m -; 60m -"},
			{name: "it asks for nothing", series: asks("p", "n1", "nvidia_com_gpu", "0", "0x200", "1x200") +
				`gpu_exporter_build_info{node="n1",version="1",revision="r",goversion="go"} 1x200`, checks: "30m -; 60m -"},
		},
		"GPUExporterJoinPartial": {
			pulse(t, "GPUExporterJoinPartial", "an unknown scheme", 0,
				`gpu_container_unresolved_devices{node="n1",$P,container="c",resource="nvidia_com_gpu"}`, "0", "2",
				`node="n1",resource="nvidia_com_gpu"`),
			{name: "all is known", series: `gpu_container_unresolved_devices{node="n1",$P,container="c",resource="nvidia_com_gpu"} 0x40
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
			{name: "for a change", series: `gpu_exporter_paused{node="n1",reason="mig_change"} 0x5 1 0x30`, checks: "6m -; 16m -"},
		},
		"GPUDriverVersionSkew": skewCases(t),
	}
}

func skewCases(t *testing.T) []testCase {
	info := func(node, uuid, model string) string {
		return `gpu_info{node="` + node + `",uuid="` + uuid + `",gpu="0",model="` + model +
			`",brand="b",architecture="x",compute_capability="9.0",pci_bus_id="p",minor_number="0",serial="s",board_part="b",` +
			`vbios_version="v",numa_node="0"}`
	}
	driver := func(node, version string) string {
		return `gpu_driver_info{node="` + node + `",driver_version="` + version + `",cuda_version="13.0",nvml_version="13"}`
	}
	return []testCase{
		pulse(t, "GPUDriverVersionSkew", "an upgrade that stopped half way", 10*time.Minute, driver("n2", "580"), "_", "1", `model="H100"`,
			driver("n1", "570")+" 1", info("n1", "GPU-A", "H100")+" 1", info("n2", "GPU-C", "H100")+" 1"),
		{name: "one driver per model", step: 10 * time.Minute, series: driver("n1", "570") + " 1x60\n" + driver("n2", "580") + " 1x60\n" +
			info("n1", "GPU-A", "P100") + " 1x60\n" + info("n2", "GPU-C", "H100") + " 1x60", checks: "7h -; 9h -"},
	}
}
