package rules_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// cases returns the cases of every alert.
func cases(t *testing.T) map[string][]testCase {
	t.Helper()
	all := map[string][]testCase{}
	for _, part := range []map[string][]testCase{lostCases(t), errorCases(t), linkCases(t), throttlingCases(t),
		wasteCases(t), sharingCases(t), capacityCases(t), exporterCases(t)} {
		maps.Copy(all, part)
	}
	return all
}

func lostCases(t *testing.T) map[string][]testCase {
	const up = `gpu_exporter_source_up{node="n1",source="nvml"} 1x300`
	peers := func(of int) string {
		text := fmt.Sprintf("\n"+`node:gpu_device_up:count{node="n1",model="a"} %dx90`, of)
		for i := range 5 {
			text += fmt.Sprintf("\n"+`node:gpu_device_up:count{node="p%d",model="a"} 8x90`, i)
		}
		return text
	}
	return map[string][]testCase{
		"GPUUnavailable": {
			pulse(t, "GPUUnavailable", "lost and found", 0, "gpu_device_up{$A}", "1", "0", "$A", "gpu_device_up{$B} 1"),
			{name: "it comes and goes", series: "gpu_device_up{$A} " + strings.Repeat("1x3 0x3 ", 8) + "1x80\ngpu_device_up{$B} 1x160",
				checks: "8m -; 24m -; 25m $A; 50m $A; 65m $A; 105m $A; 112m -"},
			{name: "it goes twice", series: "gpu_device_up{$A} 1x9 0x3 1x3 0x3 1x60", checks: "15m -; 25m -; 30m -; 60m -"},
			{name: "the driver is loaded three times", series: "gpu_device_up{$A} " + strings.Repeat("1x3 0x3 ", 4) + "1x30\n" +
				`gpu_exporter_source_up{node="n1",source="nvml"} ` + strings.Repeat("1x3 0x3 ", 4) + "1x30",
				checks: "26m -; 30m -; 40m -"},
			{name: "four minutes of a reset", series: "gpu_device_up{$A} 1x4 0x3 1x20", checks: "8m -; 10m -; 15m -"},
			{name: "never initialized, and known by its address",
				step: 10 * time.Minute, series: `gpu_device_up{node="n1",uuid="0000:18:00.0",gpu="-1"} 0x200
				gpu_exporter_source_up{node="n1",source="nvml"} 1x200`,
				checks: `0m -; 10m node="n1",uuid="0000:18:00.0",gpu="-1"; 33h node="n1",uuid="0000:18:00.0",gpu="-1"`},
			{name: "there is no driver", series: "gpu_device_up{$A} 0x60\n" + `gpu_exporter_source_up{node="n1",source="nvml"} 0x60`,
				checks: "10m -; 50m -"},
		},
		"GPUMissing": {
			{name: "seven of eight since a reboot", step: 10 * time.Minute, series: up + `
				node:gpu_device_up:count{node="n1",model="a"} 8x40 7x100 8x60`,
				checks: `6h40m -; 7h -; 7h30m node="n1"; 23h node="n1"; 24h -`},
			{name: "for a week", step: time.Hour, series: up + `
				node:gpu_device_up:count{node="n1",model="a"} 8x12 7x180`,
				checks: `12h -; 15h node="n1"; 180h node="n1"; 183h -`},
			{name: "delivered with seven", series: up + strings.Replace(peers(7), " 7x90", " 7x60 8x30", 1),
				checks: `29m -; 31m node="n1"; 64m node="n1"; 68m -`},
			{name: "half of the pool has seven", series: up + peers(7) + strings.ReplaceAll(peers(7), `"p`, `"q`) +
				strings.ReplaceAll(strings.ReplaceAll(peers(7), `"p`, `"r`), " 8x", " 7x"), checks: "40m -; 80m -"},
			{name: "a smaller node by design", series: up + peers(4), checks: "40m -; 80m -"},
			{name: "four nodes of a pool say nothing", series: up + `
				node:gpu_device_up:count{node="n1",model="a"} 7x90
				node:gpu_device_up:count{node="p1",model="a"} 8x90`, checks: "40m -; 80m -"},
			{name: "taken out of a cordoned node", series: up + `
				kube_node_spec_unschedulable{node="n1"} 1x90
				node:gpu_device_up:count{node="n1",model="a"} 8x10 7x90`, checks: "60m -; 90m -"},
			{name: "a node that is down", series: up + `
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 0x90
				node:gpu_device_up:count{node="n1",model="a"} 8x10 7x90`, checks: "60m -; 90m -"},
			{name: "a node in service", series: up + `
				kube_node_spec_unschedulable{node="n1"} 0x90
				kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x90
				node:gpu_device_up:count{node="n1",model="a"} 8x40 7x50`, checks: `39m -; 85m node="n1"`},
			{name: "given to a virtual machine", series: up + `
				node:gpu_device_up:count{node="n1",model="a"} 8x10 7x90
				gpu_node_devices{node="n1",state="detached"} 0x10 1x90`, checks: "60m -; 90m -"},
			{name: "the driver is not loaded", series: `gpu_exporter_source_up{node="n1",source="nvml"} 1x10 0x90
				node:gpu_device_up:count{node="n1",model="a"} 8x10 7x90`, checks: "60m -; 90m -"},
		},
		"GPUVerdictsDisagree": {
			{name: "the driver alone", series: `gpu_taint_info{$A,key="gpu.nvidia.com/xid",value="79",effect="NoExecute"} 1x60 stale
				gpu_taint_info{$B,key="gpu.nvidia.com/unmonitored",value="",effect="None"} 1x80
				gpu_kubelet_healthy{$A} 1x80`,
				checks: `25m -; 32m $A,only="driver"; 60m $A,only="driver"; 64m $A,only="driver"; 70m -`},
			{name: "both", series: `gpu:gpu_health:info{$A,state="lost"} 1x60
				gpu_taint_info{$A,key="gpu.nvidia.com/gpu-lost",value="true",effect="NoExecute"} 1x60
				gpu_exporter_source_up{node="n1",source="resource_slices"} 1x60`, checks: `50m -`},
			{name: "the kubelet alone", series: `gpu_kubelet_healthy{$A} 0x60
				gpu_kubelet_healthy{$B} 1x60`, checks: `25m -; 32m $A,only="kubelet"; 60m $A,only="kubelet"; 70m -`},
			{name: "the exporter and the kubelet", series: `gpu:gpu_health:info{$A,state="lost"} 1x60
				gpu_kubelet_healthy{$A} 0x60`, checks: `50m -`},
			{name: "the exporter alone, which is another alert", series: `gpu:gpu_health:info{$A,state="needs_reset"} 1x60
				gpu_kubelet_healthy{$A} 1x60`, checks: `50m -`},
			{name: "the kubelet and the DRA driver", series: `gpu_kubelet_healthy{$A} 0x60
				gpu_taint_info{$A,key="gpu.nvidia.com/gpu-lost",value="true",effect="NoExecute"} 1x60`,
				checks: `32m $A,only="driver"`},
		},
		"GPURepairRequired": {
			pulse(t, "GPURepairRequired", "a reset is recommended", 0, `gpu_health{$A,state="needs_reset"}`, "0", "1",
				`$A,state="needs_reset"`, `gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1`,
				`gpu_health_reason_info{$A,state="needs_reset",reason="row_remap_pending"} 1`),
			{name: "no spare row, and a reset", series: `gpu_health{$A,state="replace"} 1x20
				gpu_health{$A,state="needs_reset"} 0x20
				gpu_health_reason_info{$A,state="replace",reason="row_remap_failed"} 1x20
				gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1x20`,
				checks: `1m -; 2m $A,state="replace"; 15m $A,state="replace"`},
			{name: "the GPU is unavailable anyway", series: `gpu_health{$A,state="needs_reboot"} 1x20
				gpu_health_reason_info{$A,state="needs_reboot",reason="recovery_reboot"} 1x20
				gpu_device_up{$A} 0x20`, checks: "5m -; 15m -"},
			{name: "repairs that can wait, and what is not one", series: `gpu_health{$A,state="needs_reset"} 1x20
				gpu_health_reason_info{$A,state="needs_reset",reason="row_remap_pending"} 1x20
				gpu_health_reason_info{$A,state="needs_reset",reason="xid_reset"} 1x20
				gpu_health{$B,state="degraded"} 1x20
				gpu_health_reason_info{$B,state="degraded",reason="uncorrected_ecc"} 1x20`, checks: "5m -; 15m -"},
			{name: "the exporter does not read the GPU", series: `gpu_health{$A,state="unknown"} 1x20
				gpu_health_reason_info{$A,state="unknown",reason="not_read"} 1x20
				gpu_health_reason_info{$A,state="degraded",reason="recovery_peers"} 1x20`, checks: "5m -; 15m -"},
		},
	}
}

func errorCases(t *testing.T) map[string][]testCase {
	// begins is an event of a code that was never seen, and so has no series before.
	begins := func(xid string) string {
		return `gpu_device_up{$A} 1x160
			gpu_xid_events_total{$A,xid="` + xid + `"} _x40 1x120` + "\n"
	}
	late := func(xid string) testCase {
		return testCase{name: "an old event without earlier scrapes, with history",
			series: `gpu_device_up{$A} _x20 1x100
			gpu_xid_events_total{$A,xid="` + xid + `"} _x20 1x100`, checks: "19m -; 21m -; 25m -; 49m -; 70m -"}
	}
	// found are those that an exporter finds in the kernel log after the reset, as the one before it had counted them.
	found := func(xid string) testCase {
		return testCase{name: "found in the kernel's log after the reset",
			series: `gpu_xid_events_total{$A,xid="` + xid + `"} _x12 1x8 stale _x2 0x60
			gpu_xid_last_timestamp_seconds{$A,xid="` + xid + `"} _x12 720x8 stale _x2 720x60
			gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} _x12 1x8 stale
			gpu_recovery_action{$A,action="none"} _x24 1x60`, checks: "20m -; 30m -; 40m -; 50m -; 60m -"}
	}
	counted := func(xid, checks string) testCase {
		return testCase{name: "counted by the exporter of a node that was not scraped before",
			series: `gpu_xid_events_total{$A,xid="` + xid + `"} _x12 1x80
			gpu_xid_last_timestamp_seconds{$A,xid="` + xid + `"} _x12 600x80
			gpu_recovery_action{$A,action="none"} 1x130`, checks: checks}
	}
	grows := func(xid string) string { return `gpu_xid_events_total{$A,xid="` + xid + `"} 1x10 2x120` + "\n" }
	other := func(xids ...string) string {
		text := ""
		for _, x := range xids {
			text += grows(x) + "\n"
		}
		return text
	}
	return map[string][]testCase{
		"GPUXIDFatal": {
			late("79"),
			{name: "a driver without recommendations", step: 10 * time.Minute, series: "gpu_device_up{$A} 1x200\n" +
				`gpu_xid_events_total{$A,xid="62"} _x4 1x190
				gpu_xid_last_timestamp_seconds{$A,xid="62"} _x4 2400x190`,
				checks: `30m -; 40m -; 50m $A,xid="62"; 23h $A,xid="62"; 26h -`},
			{name: "a driver with recommendations",
				series: grows("62") + "\n" + `gpu_xid_last_timestamp_seconds{$A,xid="62"} _x11 660x120
				gpu_recovery_action{$A,action="none"} 1x130`,
				checks: `15m -; 16m $A,xid="62"; 54m $A,xid="62"; 60m -`},
			{name: "a further one, on a node with a wrong clock",
				series: grows("62") + "\n" + `gpu_recovery_action{$A,action="none"} 1x130`,
				checks: `15m -; 16m $A,xid="62"; 54m $A,xid="62"; 60m -`},
			{name: "it fell off the bus", series: grows("79") + "\n" + `gpu_health_reason_info{$A,state="lost",reason="lost"} _x11 1x120`,
				checks: "22m -; 60m -"},
			{name: "its first event begins the series",
				series: begins("48") + `gpu_recovery_action{$A,action="none"} 1x160`,
				checks: `44m -; 45m $A,xid="48"; 69m $A,xid="48"; 83m $A,xid="48"; 90m -`},
			{name: "found in the kernel's log by a new exporter",
				series: `gpu_xid_last_timestamp_seconds{$A,xid="119"} _x12 600x80
				gpu_recovery_action{$A,action="none"} 1x130`,
				checks: `16m -; 17m $A,xid="119"; 39m $A,xid="119"; 53m $A,xid="119"; 60m -`},
			found("95"),
			counted("119", `16m -; 17m $A,xid="119"; 39m $A,xid="119"; 53m $A,xid="119"; 60m -`),
			{name: "found there after the reset, by a driver without recommendations",
				series: `gpu_xid_events_total{$A,xid="95"} _x12 1x8 stale _x2 0x120
				gpu_xid_last_timestamp_seconds{$A,xid="95"} _x12 720x8 stale _x2 720x120`,
				checks: `16m -; 17m $A,xid="95"; 20m $A,xid="95"; 34m $A,xid="95"; 40m -; 100m -`},
			{name: "it was lost, and came back", series: begins("79") +
				`gpu_health_reason_info{$A,state="lost",reason="lost"} _x40 1x8 stale
				gpu_recovery_action{$A,action="none"} 1x160`, checks: "50m -; 60m -; 75m -"},
			{name: "an old one in the kernel's log", step: 10 * time.Minute,
				series: `gpu_xid_last_timestamp_seconds{$A,xid="119"} 0x200`,
				checks: `10m $A,xid="119"; 2h -; 25h -`},
			{name: "programs' faults and trifles", series: other("13", "31", "43", "63", "94", "145", "999"), checks: "22m -; 35m -"},
			{name: "an old event behind a scrape that failed",
				series: `gpu_xid_events_total{$A,xid="79"} 1x70 _x9 1x60`,
				checks: "60m -; 92m -; 110m -; 125m -"},
			{name: "an exporter that restarts its counters", series: `gpu_xid_events_total{$A,xid="79"} 5x70 0x60`,
				checks: "60m -; 85m -; 110m -"},
		},
		"GPUXIDWarning": {
			late("94"), found("94"), counted("94", `16m -; 17m $A,xid="94"; 39m $A,xid="94"; 53m $A,xid="94"; 60m -`),
			{name: "a contained memory error", series: begins("94"),
				checks: `44m -; 45m $A,xid="94"; 69m $A,xid="94"; 80m $A,xid="94"; 90m -`},
			{name: "a second one", series: grows("145"), checks: `15m -; 16m $A,xid="145"; 60m -`},
			{name: "an unknown code", series: `gpu_xid_last_timestamp_seconds{$A,xid="999"} _x12 600x80`,
				checks: `16m -; 17m $A,xid="999"; 60m -`},
			{name: "the driver recommends a reset",
				series: grows("94") + `gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1x130`,
				checks: "11m -; 17m -; 30m -"},
			{name: "worse and milder ones", series: other("79", "48", "13", "31", "43", "63"), checks: "11m -; 17m -; 35m -"},
			{name: "an old event behind a scrape that failed",
				series: `gpu_xid_events_total{$A,xid="94"} 1x70 _x9 1x60`,
				checks: "60m -; 82m -; 125m -"},
		},
		"GPUXIDApplication": {
			late("31"), found("31"), counted("31", `16m -; 17m $A,xid="31"; 39m $A,xid="31"; 48m $A,xid="31"; 60m -`),
			{name: "a page fault", series: begins("31"), checks: `44m -; 45m $A,xid="31"; 69m $A,xid="31"; 77m $A,xid="31"; 90m -`},
			{name: "a second one", series: grows("13"), checks: `15m -; 16m $A,xid="13"; 60m -`},
			{name: "seen by the exporter before", series: `gpu_xid_last_timestamp_seconds{$A,xid="31"} _x12 600x80`,
				checks: `16m -; 17m $A,xid="31"; 60m -`},
			{name: "the GPU is lost",
				series: grows("31") + `gpu_health_reason_info{$A,state="lost",reason="lost"} 1x130`, checks: "11m -; 17m -; 30m -"},
			{name: "the GPU's own faults", series: other("79", "94", "63", "999"), checks: "11m -; 17m -; 35m -"},
			{name: "an old event behind a scrape that failed",
				series: `gpu_xid_events_total{$A,xid="31"} 1x70 _x9 1x60`,
				checks: "60m -; 82m -; 125m -"},
		},
		"GPUUncorrectedECC": {
			{name: "one error", series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x10 4x110`,
				checks: "15m -; 16m $A; 65m $A; 75m -"},
			{name: "the first error of the GPU", series: "gpu_device_up{$A} 1x130\n" +
				`gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 0x40 1x90`,
				checks: "45m -; 46m $A; 69m $A; 105m -"},
			{name: "of a GPU that was not scraped before", series: "gpu_device_up{$A} _x40 1x130\n" +
				`gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} _x40 1x90`, checks: "41m -; 60m -"},
			{name: "one error, and the driver recommends a reset",
				series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="sram"} 3x10 4x60
				gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1x70`, checks: "11m -; 17m -; 30m -"},
			{name: "one error, of which there is an XID", series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x40 4x110
				gpu_xid_last_timestamp_seconds{$A,xid="94"} _x41 2460x110`, checks: "47m -; 70m -; 90m -"},
			{name: "one error, an XID of hours ago, and one of the application",
				series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x10 4x110
				gpu_xid_last_timestamp_seconds{$A,xid="94"} -7200x120
				gpu_xid_last_timestamp_seconds{$A,xid="31"} _x10 600x110`, checks: "15m -; 16m $A; 65m $A; 75m -"},
			{name: "a driver that restarts its counters",
				series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x10 0x50`,
				checks: "10m -; 12m -; 30m -"},
			{name: "corrected ones, and old ones",
				series: `gpu_ecc_errors_total{$A,severity="corrected",memory="dram"} 0+5x60
				gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x60`, checks: "11m -; 17m -; 30m -"},
		},
		"GPURepairPending": {
			{name: "a row waits for a reset",
				series: `gpu_health_reason_info{$A,state="needs_reset",reason="row_remap_pending"} _x5 1x30 stale _x30`,
				checks: "9m -; 10m $A; 34m $A; 39m $A; 50m -"},
			{name: "a TPC, too", series: `gpu_health_reason_info{$A,state="needs_reset",reason="tpc_repair_pending"} 1x30
				gpu_health_reason_info{$A,state="needs_reset",reason="row_remap_pending"} 1x30`, checks: "4m -; 5m $A; 20m $A"},
			{name: "the driver recommends a reset now",
				series: `gpu_health_reason_info{$A,state="needs_reset",reason="row_remap_pending"} 1x30
				gpu_health_reason_info{$A,state="needs_reset",reason="recovery_reset"} 1x30`, checks: "10m -; 20m -"},
			{name: "other problems", series: `gpu_health_reason_info{$A,state="needs_reset",reason="xid_reset"} 1x30
				gpu_health_reason_info{$A,state="degraded",reason="nvlink_down"} 1x30`, checks: "20m -"},
		},
		"GPUMemorySparesLow": {
			pulse(t, "GPUMemorySparesLow", "a bank without spare rows", 0, `gpu_row_remap_banks{$A,availability="none"}`, "0", "1", "$A"),
			pulse(t, "GPUMemorySparesLow", "sixty pages in all", 0, `gpu_retired_pages_total{$A,cause="double_bit"}`, "1", "20", "$A",
				`gpu_retired_pages_total{$A,cause="multiple_single_bit"} 40`),
			{name: "a bank with few, and fifty-nine pages", series: `gpu_row_remap_banks{$A,availability="none"} 0x40
				gpu_row_remap_banks{$A,availability="low"} 3x40
				gpu_retired_pages_total{$A,cause="double_bit"} 59x40`, checks: "30m -"},
		},
	}
}

func linkCases(t *testing.T) map[string][]testCase {
	errors := func(gpu string) (text string) {
		for _, kind := range []string{"replay", "recovery", "crc_flit", "crc_data"} {
			text += "gpu_nvlink_errors_total{" + gpu + `,kind="` + kind + `"} 0x10 2+2x40 82x60` + "\n"
		}
		return text
	}
	return map[string][]testCase{
		"GPUNVLinkDown": {
			pulse(t, "GPUNVLinkDown", "one link fewer than its neighbor", 0, `gpu_nvlink_links{$A,state="up"}`, "18",
				"17", `node="n1"`,
				`gpu_nvlink_links{$B,state="up"} 18`),
			{name: "fewer than an hour ago, with no neighbor", step: 10 * time.Minute,
				series: `gpu_nvlink_links{$A,state="up"} 12x6 11x400`,
				checks: `60m -; 70m -; 80m node="n1"; 40h node="n1"; 51h -`},
			{name: "a board that never was better than its neighbor", series: `gpu_nvlink_links{$A,state="up"} 17x500
				gpu_nvlink_links{$B,state="up"} 18x500`,
				checks: `11m node="n1"; 8h node="n1"`},
			{name: "no bridge was ever there", series: `gpu_nvlink_links{$A,state="up"} 0x30
				gpu_nvlink_links{$A,state="down"} 12x30
				gpu_nvlink_links{$B,state="up"} 12x30`, checks: "10m -; 25m -"},
			{name: "all links of all GPUs", series: `gpu_nvlink_links{$A,state="up"} 12x30
				gpu_nvlink_links{$B,state="up"} 12x30`, checks: "10m -; 25m -"},
			pulse(t, "GPUNVLinkDown", "never registered", 0, `gpu_fabric_state{$A,state="in_progress"}`, "0", "1",
				`node="n1"`, `gpu_fabric_state{$B,state="completed"} 1`),
			pulse(t, "GPUNVLinkDown", "registered with an error", 0, `gpu_fabric_state{$A,state="failed"}`, "0", "1",
				`node="n1"`),
			pulse(t, "GPUNVLinkDown", "a route is lost", 0, `gpu_fabric_fault{$A,fault="route_unhealthy"}`, "0", "1",
				`node="n1"`),
			{name: "one page for a lost link, its faults and its other end", series: `gpu_nvlink_links{$A,state="up"} 17x30
				gpu_nvlink_links{$B,state="up"} 17x30
				gpu_nvlink_links{node="n1",uuid="GPU-E",gpu="2",state="up"} 18x30
				gpu_fabric_fault{$A,fault="route_unhealthy"} 1x30
				gpu_fabric_fault{$A,fault="degraded_bandwidth"} 1x30
				gpu_fabric_health{$A,health="unhealthy"} 1x30`, checks: `9m -; 10m node="n1"; 25m node="n1"`},
			{name: "unhealthy as a whole, and one that needs a reset anyway", series: `gpu_fabric_health{$A,health="limited_capacity"} 1x30
				gpu_fabric_health{$B,health="unhealthy"} 1x30
				gpu_health_reason_info{$B,state="needs_reset",reason="recovery_reset"} 1x30`,
				checks: `9m -; 10m node="n1"; 25m node="n1"`},
			{name: "one that needs a reset anyway", series: `gpu_fabric_health{$B,health="unhealthy"} 1x30
				gpu_health_reason_info{$B,state="needs_reset",reason="recovery_reset"} 1x30`, checks: "10m -; 25m -"},
			{name: "registered, no fault", series: `gpu_fabric_state{$A,state="completed"} 1x30
				gpu_fabric_state{$A,state="in_progress"} 0x30
				gpu_fabric_fault{$A,fault="route_unhealthy"} 0x30`, checks: "15m -; 25m -"},
		},
		"GPUNVLinkErrors": {
			{name: "replays", series: `gpu_nvlink_errors_total{node="n1"} 0x10 2+2x40 82x60`,
				checks: `20m -; 27m -; 35m node="n1"; 50m node="n1"; 74m node="n1"; 90m -`},
			{name: "four kinds at both ends", series: errors("$A") + errors("$B"), checks: `20m -; 35m node="n1"; 50m node="n1"; 90m -`},
			{name: "the link is down", series: errors("$A") + `gpu_health_reason_info{$A,state="degraded",reason="nvlink_down"} 1x110`,
				checks: "35m -; 50m -"},
			{name: "symbol errors that are corrected anyway",
				series: `gpu_nvlink_errors_total{$A,kind="symbol"} 0+50x60`, checks: "40m -"},
			{name: "a few", series: `gpu_nvlink_errors_total{node="n1"} 0+0.5x60`, checks: "40m -"},
		},
		"GPUPCIeDegraded": {
			pulse(t, "GPUPCIeDegraded", "half the width of its neighbor", 0, "gpu_pcie_link_width{$B}", "4", "8", `$A,problem="lanes"`,
				"gpu_pcie_link_width{$A} 4", "gpu_pcie_link_width_max{$A} 16"),
			{name: "a slot with eight lanes, as its neighbor's", series: `gpu_pcie_link_width{$A} 8x60
				gpu_pcie_link_width_max{$A} 16x60
				gpu_pcie_link_width{$B} 8x60
				gpu_pcie_link_width_max{$B} 16x60`, checks: "20m -; 50m -"},
			{name: "a link of width 8 beside one of 16", series: `gpu_pcie_link_width{$A} 8x60
				gpu_pcie_link_width_max{$A} 8x60
				gpu_pcie_link_width{$B} 16x60
				gpu_pcie_link_width_max{$B} 16x60`, checks: "20m -; 50m -"},
			pulse(t, "GPUPCIeDegraded", "half the width that it had", 0, "gpu_pcie_link_width{$A}", "16", "8", `$A,problem="lanes"`,
				"gpu_pcie_link_width_max{$A} 16"),
			{name: "an older generation while at work", series: `gpu_pcie_link_generation{$A} 4x60
				gpu_pcie_link_generation_max{$A} 5x60
				gpu_busy_seconds_total{$A} 0+54x40 2160x20
				gpu_observed_seconds_total{$A} 0+60x60`,
				checks: `14m -; 20m $A,problem="generation"; 40m $A,problem="generation"; 55m $A,problem="generation"; 60m -`},
			{name: "an older generation to save power", series: `gpu_pcie_link_generation{$A} 1x60
				gpu_pcie_link_generation_max{$A} 5x60
				gpu_pcie_link_width{$A} 16x60
				gpu_pcie_link_width_max{$A} 16x60
				gpu_busy_seconds_total{$A} 0+3x60
				gpu_observed_seconds_total{$A} 0+60x60`, checks: "20m -; 50m -"},
			{name: "full speed at work", series: `gpu_pcie_link_generation{$A} 5x60
				gpu_pcie_link_generation_max{$A} 5x60
				gpu_busy_seconds_total{$A} 0+54x60
				gpu_observed_seconds_total{$A} 0+60x60`, checks: "20m -; 50m -"},
			{name: "twenty a minute", series: `gpu_pcie_replays_total{$A} 0x10 20+20x50 1020x60`,
				checks: `20m -; 29m -; 50m $A,problem="replays"; 60m $A,problem="replays"; 80m $A,problem="replays"; 100m -`},
			{name: "five a minute", series: `gpu_pcie_replays_total{$A} 0+5x100`, checks: "60m -; 90m -"},
		},
	}
}

func throttlingCases(t *testing.T) map[string][]testCase {
	limited := func(reason, values string) string {
		return `gpu_clock_limited_seconds_total{$A,reason="` + reason + `"} ` + values
	}
	slow := func(busy, clock string) string {
		return "gpu_busy_seconds_total{$A} " + busy + "\ngpu_observed_seconds_total{$A} 0+60x120\n" +
			`gpu_clock_hertz{$A,clock="sm"} ` + clock + "\n" + `gpu_clock_hertz{$B,clock="sm"} 2e9x120
			gpu_info{$A,model="a"} 1x120
			gpu_info{$B,model="a"} 1x120` + "\n"
	}
	return map[string][]testCase{
		"GPUHardwareSlowdown": {
			{name: "half of the time", series: limited("hw_thermal", "0x10 30+30x20 630x40"),
				checks: `10m -; 15m -; 17m $A,reason="thermal"; 31m $A,reason="thermal"; 44m $A,reason="thermal"; 50m -`},
			{name: "an older driver", series: limited("thermal", "0x10 30+30x20 630x40"),
				checks: `10m -; 17m $A,reason="thermal"; 50m -`},
			{name: "a second now and then", series: limited("hw_thermal", "0+1x60") + "\n" + limited("hw_power_brake", "0+1x60"),
				checks: "20m -; 50m -"},
			{name: "an older driver, a second now and then", series: limited("thermal", "0+1x60"), checks: "20m -; 50m -"},
			{name: "the driver's own care", series: limited("hw_thermal", "0x60") + "\n" + limited("sw_thermal", "0+30x60") + "\n" +
				limited("thermal", "0+30x60") + "\n" + limited("power_cap", "0+60x60"), checks: "20m -; 50m -"},
			{name: "the power brake", series: limited("hw_power_brake", "0x10 30+30x20 630x40"),
				checks: `15m -; 17m $A,reason="power_brake"; 44m $A,reason="power_brake"; 50m -`},
		},
		"GPUTemperatureHigh": {
			pulse(t, "GPUTemperatureHigh", "one degree below", 0, `gpu_temperature_celsius{$A,sensor="gpu"}`, "60", "88", `$A,sensor="gpu"`,
				`gpu_temperature_limit_celsius{$A,sensor="gpu",limit="slowdown"} 89`),
			pulse(t, "GPUTemperatureHigh", "memory one degree below", 0, `gpu_temperature_celsius{$A,sensor="memory"}`, "60", "94",
				`$A,sensor="memory"`, `gpu_temperature_limit_celsius{$A,sensor="memory",limit="max_operating"} 95`),
			{name: "hot for another GPU, not for this", series: `gpu_temperature_celsius{$A,sensor="gpu"} 88x30
				gpu_temperature_limit_celsius{$A,sensor="gpu",limit="slowdown"} 102x30
				gpu_temperature_limit_celsius{$A,sensor="gpu",limit="max_operating"} 87x30
				gpu_temperature_celsius{$A,sensor="memory"} 90x30
				gpu_temperature_limit_celsius{$A,sensor="memory",limit="max_operating"} 95x30
				gpu_temperature_limit_celsius{$B,sensor="gpu",limit="slowdown"} 89x30`, checks: "20m -; 28m -"},
			{name: "it slows down already", series: limited("hw_thermal", "0+30x60") + `
				gpu_temperature_celsius{$A,sensor="gpu"} 88x60
				gpu_temperature_limit_celsius{$A,sensor="gpu",limit="slowdown"} 89x60`, checks: "30m -; 50m -"},
		},
		"GPUSlowWithoutReason": {
			{name: "half of its clock, busy, no reason",
				series: slow("0+60x60 3600x60", "1e9x120") + limited("power_cap", "0x120"),
				checks: "30m -; 46m $A; 60m $A; 70m $A; 95m -"},
			{name: "at its power limit", series: slow("0+60x120", "1e9x120") + limited("power_cap", "0+60x120"), checks: "60m -; 110m -"},
			{name: "clocks of the whole node are locked",
				series: strings.ReplaceAll(slow("0+60x120", "1e9x120"), "2e9", "1e9"), checks: "60m -; 110m -"},
			{name: "another model is faster", series: strings.Replace(slow("0+60x120", "1e9x120"), `model="a"`, `model="b"`, 1) +
				limited("power_cap", "0x120"), checks: "60m -; 110m -"},
			{name: "good clocks", series: slow("0+60x120", "1.8e9x120"), checks: "60m -; 110m -"},
			{name: "nothing to do", series: slow("0+6x120", "3e8x120"), checks: "60m -; 110m -"},
		},
	}
}
