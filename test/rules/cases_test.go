package rules_test

import (
	"maps"
	"testing"
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
	return map[string][]testCase{
		"GPUDeviceDown": {
			pulse(t, "GPUDeviceDown", "lost and found", 0, "gpu_device_up{$A}", "1", "0", "$A", "gpu_device_up{$B} 1"),
			{name: "four minutes of a reset", series: "gpu_device_up{$A} 1x4 0x3 1x20", checks: "8m -; 10m -; 15m -"},
		},
		"GPUDeviceMissing": {
			pulse(t, "GPUDeviceMissing", "not started by the driver", 0, `gpu_node_devices{node="n1",state="missing"}`, "0", "1",
				`node="n1"`),
			{name: "failed and detached are others' business", series: `gpu_node_devices{node="n1",state="missing"} 0x40
				gpu_node_devices{node="n1",state="failed"} 1x40
				gpu_node_devices{node="n1",state="detached"} 1x40`, checks: "30m -"},
		},
		"GPUDisappeared": {
			{name: "gone while the others stay", series: `gpu_device_up{$A} 1x20 stale
				gpu_device_up{$B} 1x420
				gpu_exporter_source_up{node="n1",source="nvml"} 1x420`, checks: "20m -; 29m -; 35m $A; 6h $A; 6h23m $A; 6h40m -"},
			{name: "the whole node is gone", series: `gpu_device_up{$A} 1x20 stale
				gpu_exporter_source_up{node="n1",source="nvml"} 1x20 stale`, checks: "35m -; 60m -"},
			{name: "the driver came after the exporter, and GPUs have names now",
				series: `gpu_device_up{node="n1",uuid="0000:18:00.0",gpu="-1"} 0x20 stale
				gpu_device_up{$A} _x21 1x400
				gpu_exporter_source_up{node="n1",source="nvml"} 0x20 1x400`, checks: "29m -; 35m -; 60m -; 6h -"},
			{name: "GPUs are not visible", series: `gpu_device_up{$A} 1x20 stale
				gpu_exporter_source_up{node="n1",source="nvml"} 1x20 0x60`, checks: "35m -; 60m -"},
			{name: "lost, but known", series: `gpu_device_up{$A} 1x20 0x60
				gpu_exporter_source_up{node="n1",source="nvml"} 1x80`, checks: "35m -; 60m -"},
		},
		"GPUDeviceDetached": {
			pulse(t, "GPUDeviceDetached", "given to a virtual machine", 0, `gpu_node_devices{node="n1",state="detached"}`, "0", "2",
				`node="n1"`),
			{name: "missing is another matter", series: `gpu_node_devices{node="n1",state="detached"} 0x90
				gpu_node_devices{node="n1",state="missing"} 1x90`, checks: "80m -"},
		},
		"GPURecoveryActionRequired": {
			pulse(t, "GPURecoveryActionRequired", "a reset is wanted", 0, `gpu_recovery_action{$A,action="reset"}`, "0", "1",
				`$A,action="reset"`, `gpu_recovery_action{$B,action="none"} 1`),
			{name: "none is an action as well", series: `gpu_recovery_action{$A,action="none"} 1x20
				gpu_recovery_action{$A,action="reset"} 0x20`, checks: "5m -; 15m -"},
		},
		"GPUModeChangePending": {
			pulse(t, "GPUModeChangePending", "MIG is switched on", 0, "gpu_mig_mode_pending{$A}", "0", "1", `$A,mode="mig"`,
				"gpu_mig_mode{$A} 0"),
			pulse(t, "GPUModeChangePending", "ECC is switched off", 0, "gpu_ecc_mode_pending{$A}", "1", "0", `$A,mode="ecc"`,
				"gpu_ecc_mode{$A} 1"),
			{name: "both modes hold", series: "gpu_mig_mode{$A} 1x90\ngpu_mig_mode_pending{$A} 1x90\ngpu_ecc_mode{$A} " +
				"0x90\ngpu_ecc_mode_pending{$A} 0x90", checks: "80m -"},
		},
	}
}

func errorCases(t *testing.T) map[string][]testCase {
	// begins is an event of a code that was never seen, and so has no series before.
	begins := func(xid string) string {
		return `gpu_device_up{$A} 1x130
			gpu_xid_events_total{$A,xid="` + xid + `"} _x10 1x120`
	}
	late := func(xid string) testCase {
		return testCase{name: "an old event without earlier scrapes, with history", series: `gpu_device_up{$A} _x20 1x100
			gpu_xid_events_total{$A,xid="` + xid + `"} _x20 1x100`, checks: "19m -; 21m -; 25m -; 31m -; 50m -"}
	}
	grows := func(xid string) string { return `gpu_xid_events_total{$A,xid="` + xid + `"} 0x10 1x120` }
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
			{name: "fell off the bus", series: grows("79"), checks: `10m -; 11m $A,xid="79"; 45m $A,xid="79"; 55m -`},
			{name: "its first event begins the series", series: begins("48"),
				checks: `9m -; 10m $A,xid="48"; 19m $A,xid="48"; 45m $A,xid="48"; 55m -`},
			{name: "found in the kernel's log by a new exporter", series: `gpu_xid_last_timestamp_seconds{$A,xid="119"} _x12 600x80`,
				checks: `11m -; 12m $A,xid="119"; 55m -`},
			{name: "programs' faults and trifles", series: other("13", "31", "43", "63", "94", "145", "999"), checks: "11m -; 15m -"},
			{name: "an old event behind a scrape that failed", series: `gpu_xid_events_total{$A,xid="79"} 1x70 _x9 1x60`,
				checks: "60m -; 82m -; 90m -; 95m -"},
			{name: "an exporter that restarts its counters", series: `gpu_xid_events_total{$A,xid="79"} 5x70 0x60`,
				checks: "60m -; 75m -; 90m -"},
		},
		"GPUXIDWarning": {
			late("94"),
			{name: "a contained memory error", series: begins("94"),
				checks: `9m -; 10m $A,xid="94"; 19m $A,xid="94"; 30m $A,xid="94"; 40m -`},
			{name: "a second one", series: grows("145"), checks: `10m -; 11m $A,xid="145"; 40m -`},
			{name: "an unknown code", series: `gpu_xid_last_timestamp_seconds{$A,xid="999"} _x12 600x80`,
				checks: `11m -; 12m $A,xid="999"; 40m -`},
			{name: "worse and milder ones", series: other("79", "48", "13", "31", "43", "63"), checks: "11m -; 15m -"},
			{name: "an old event behind a scrape that failed", series: `gpu_xid_events_total{$A,xid="94"} 1x70 _x9 1x60`,
				checks: "60m -; 82m -; 95m -"},
		},
		"GPUXIDApplication": {
			late("31"),
			{name: "a page fault", series: begins("31"), checks: `9m -; 10m $A,xid="31"; 19m $A,xid="31"; 27m $A,xid="31"; 40m -`},
			{name: "a second one", series: grows("13"), checks: `10m -; 11m $A,xid="13"; 40m -`},
			{name: "seen by the exporter before", series: `gpu_xid_last_timestamp_seconds{$A,xid="31"} _x12 600x80`,
				checks: `11m -; 12m $A,xid="31"; 40m -`},
			{name: "the GPU's own faults", series: other("79", "94", "63", "999"), checks: "11m -; 15m -"},
			{name: "an old event behind a scrape that failed", series: `gpu_xid_events_total{$A,xid="31"} 1x70 _x9 1x60`,
				checks: "60m -; 82m -; 95m -"},
		},
		"GPUUncorrectedECC": {
			{name: "one error", series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x10 4x90`,
				checks: "10m -; 11m $A; 45m $A; 55m -"},
			{name: "one error, and then the GPU is lost",
				series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="sram"} 0x10 1 stale`,
				checks: "10m -; 11m $A; 18m $A; 45m $A; 60m -"},
			{name: "a driver that restarts its counters", series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x10 0x50`,
				checks: "10m -; 12m -; 30m -"},
			{name: "corrected ones, and old ones", series: `gpu_ecc_errors_total{$A,severity="corrected",memory="dram"} 0+5x60
				gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 3x60`, checks: "11m -; 30m -"},
		},
		"GPUCorrectedECCRateHigh": {
			{name: "ten a minute for two hours",
				series: `gpu_ecc_errors_total{$A,severity="corrected",memory="dram"} 0x10 10+10x120 1210x140`,
				checks: "70m -; 95m $A; 175m $A; 200m $A; 240m -"},
			{name: "one a minute", series: `gpu_ecc_errors_total{$A,severity="corrected",memory="dram"} 0+1x300`, checks: "150m -; 290m -"},
			{name: "uncorrected ones", series: `gpu_ecc_errors_total{$A,severity="uncorrected",memory="dram"} 0+10x300`, checks: "150m -"},
		},
		"GPURowRemapFailed": {
			pulse(t, "GPURowRemapFailed", "no spare row", 0, "gpu_row_remap_failed{$A}", "0", "1", "$A"),
			{name: "a row that only waits", series: "gpu_row_remap_failed{$A} 0x30\ngpu_row_remap_pending{$A} 1x30", checks: "20m -"},
		},
		"GPURowRemapPending": {
			pulse(t, "GPURowRemapPending", "waits for a reset", 0, "gpu_row_remap_pending{$A}", "0", "1", "$A"),
			{name: "rows that were replaced", series: "gpu_row_remap_pending{$A} 0x30\n" +
				`gpu_remapped_rows_total{$A,cause="corrected"} 4x30`, checks: "20m -"},
		},
		"GPURowRemapBanksExhausted": {
			pulse(t, "GPURowRemapBanksExhausted", "a bank without spare rows", 0, `gpu_row_remap_banks{$A,availability="none"}`, "0", "1",
				"$A"),
			{name: "a bank with few", series: `gpu_row_remap_banks{$A,availability="none"} 0x40
				gpu_row_remap_banks{$A,availability="low"} 3x40`, checks: "30m -"},
		},
		"GPURetiredPagesPending": {
			pulse(t, "GPURetiredPagesPending", "waits for a reset", 0, "gpu_retired_pages_pending{$A}", "0", "1", "$A"),
			{name: "pages that are retired", series: "gpu_retired_pages_pending{$A} 0x30\n" +
				`gpu_retired_pages_total{$A,cause="double_bit"} 4x30`, checks: "20m -"},
		},
		"GPURetiredPagesMany": {
			pulse(t, "GPURetiredPagesMany", "sixty in all", 0, `gpu_retired_pages_total{$A,cause="double_bit"}`, "1", "20", "$A",
				`gpu_retired_pages_total{$A,cause="multiple_single_bit"} 40`),
			{name: "fifty-nine", series: `gpu_retired_pages_total{$A,cause="double_bit"} 59x30`, checks: "20m -"},
		},
	}
}

func linkCases(t *testing.T) map[string][]testCase {
	return map[string][]testCase{
		"GPUNVLinkDown": {
			pulse(t, "GPUNVLinkDown", "one link fewer than its neighbor", 0, `gpu_nvlink_links{$A,state="up"}`, "18", "17", "$A",
				`gpu_nvlink_links{$B,state="up"} 18`),
			{name: "fewer than an hour ago, with no neighbor", series: `gpu_nvlink_links{$A,state="up"} 12x60 11x460`,
				checks: "60m -; 65m -; 70m $A; 6h $A; 7h30m -"},
			{name: "a board that never was better than its neighbor", series: `gpu_nvlink_links{$A,state="up"} 17x500
				gpu_nvlink_links{$B,state="up"} 18x500`, checks: "10m $A; 8h $A"},
			{name: "no bridge was ever there", series: `gpu_nvlink_links{$A,state="up"} 0x30
				gpu_nvlink_links{$A,state="down"} 12x30
				gpu_nvlink_links{$B,state="up"} 12x30`, checks: "10m -; 25m -"},
			{name: "all links of all GPUs", series: `gpu_nvlink_links{$A,state="up"} 12x30
				gpu_nvlink_links{$B,state="up"} 12x30`, checks: "10m -; 25m -"},
		},
		"GPUNVLinkErrors": {
			{name: "replays", series: `gpu_nvlink_errors_total{$A,kind="replay"} 0x10 2+2x40 82x60`,
				checks: `20m -; 27m -; 35m $A,kind="replay"; 50m $A,kind="replay"; 74m $A,kind="replay"; 90m -`},
			{name: "symbol errors that are corrected anyway", series: `gpu_nvlink_errors_total{$A,kind="symbol"} 0+50x60`, checks: "40m -"},
			{name: "a few", series: `gpu_nvlink_errors_total{$A,kind="replay"} 0+0.5x60`, checks: "40m -"},
		},
		"GPUFabricUnhealthy": {
			pulse(t, "GPUFabricUnhealthy", "never registered", 0, `gpu_fabric_state{$A,state="in_progress"}`, "0", "1",
				`$A,problem="in_progress"`, `gpu_fabric_state{$B,state="completed"} 1`),
			pulse(t, "GPUFabricUnhealthy", "registered with an error", 0, `gpu_fabric_state{$A,state="failed"}`, "0", "1",
				`$A,problem="failed"`),
			pulse(t, "GPUFabricUnhealthy", "a route is lost", 0, `gpu_fabric_fault{$A,fault="route_unhealthy"}`, "0", "1",
				`$A,problem="route_unhealthy"`),
			{name: "registered, no fault", series: `gpu_fabric_state{$A,state="completed"} 1x30
				gpu_fabric_state{$A,state="in_progress"} 0x30
				gpu_fabric_fault{$A,fault="route_unhealthy"} 0x30`, checks: "15m -; 25m -"},
		},
		"GPUPCIeDegraded": {
			pulse(t, "GPUPCIeDegraded", "half the poll groups of its neighbor", 0, "gpu_pcie_link_width{$B}", "4", "8", "$A",
				"gpu_pcie_link_width{$A} 4", "gpu_pcie_link_width_max{$A} 16"),
			{name: "a slot with eight lanes, as its neighbor's", series: `gpu_pcie_link_width{$A} 8x60
				gpu_pcie_link_width_max{$A} 16x60
				gpu_pcie_link_width{$B} 8x60
				gpu_pcie_link_width_max{$B} 16x60`, checks: "20m -; 50m -"},
			{name: "a GPU of eight poll groups beside one of sixteen", series: `gpu_pcie_link_width{$A} 8x60
				gpu_pcie_link_width_max{$A} 8x60
				gpu_pcie_link_width{$B} 16x60
				gpu_pcie_link_width_max{$B} 16x60`, checks: "20m -; 50m -"},
			pulse(t, "GPUPCIeDegraded", "half the poll groups that it had", 0, "gpu_pcie_link_width{$A}", "16", "8", "$A",
				"gpu_pcie_link_width_max{$A} 16"),
			{name: "an older generation while at work", series: `gpu_pcie_link_generation{$A} 4x60
				gpu_pcie_link_generation_max{$A} 5x60
				gpu_busy_seconds_total{$A} 0+54x40 2160x20
				gpu_observed_seconds_total{$A} 0+60x60`, checks: "14m -; 20m $A; 40m $A; 55m $A; 60m -"},
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
		},
		"GPUPCIeReplaysHigh": {
			{name: "twenty a minute", series: `gpu_pcie_replays_total{$A} 0x10 20+20x50 1020x60`,
				checks: "20m -; 42m -; 50m $A; 60m $A; 80m $A; 100m -"},
			{name: "five a minute", series: `gpu_pcie_replays_total{$A} 0+5x100`, checks: "60m -; 90m -"},
		},
	}
}

func throttlingCases(t *testing.T) map[string][]testCase {
	limited := func(reason, values string) string {
		return `gpu_clock_limited_seconds_total{$A,reason="` + reason + `"} ` + values
	}
	return map[string][]testCase{
		"GPUThermalSlowdown": {
			{name: "half of the time", series: limited("hw_thermal", "0x10 30+30x20 630x40"),
				checks: "10m -; 15m -; 17m $A; 31m $A; 44m $A; 50m -"},
			{name: "an older driver", series: limited("thermal", "0x10 30+30x20 630x40"), checks: "10m -; 17m $A; 50m -"},
			{name: "a second now and then", series: limited("hw_thermal", "0+1x60"), checks: "20m -; 50m -"},
			{name: "an older driver, a second now and then", series: limited("thermal", "0+1x60"), checks: "20m -; 50m -"},
			{name: "the driver's own care", series: limited("hw_thermal", "0x60") + "\n" + limited("sw_thermal", "0+30x60") + "\n" +
				limited("thermal", "0+30x60"), checks: "20m -; 50m -"},
		},
		"GPUThermalSlowdownSoftware": {
			{name: "half of the time", series: limited("sw_thermal", "0x10 30+30x50 1530x60"),
				checks: "30m -; 39m -; 45m $A; 60m $A; 72m $A; 85m -"},
			{name: "a tenth of the time", series: limited("sw_thermal", "0+6x100"), checks: "60m -; 90m -"},
			{name: "power, not heat", series: limited("power_cap", "0+60x100"), checks: "60m -"},
		},
		"GPUPowerBrake": {
			{name: "half of the time", series: limited("hw_power_brake", "0x10 30+30x20 630x40"),
				checks: "10m -; 15m -; 17m $A; 31m $A; 44m $A; 50m -"},
			{name: "a second now and then", series: limited("hw_power_brake", "0+1x60"), checks: "20m -; 50m -"},
			{name: "the ordinary power limit", series: limited("power_cap", "0+60x60"), checks: "20m -; 50m -"},
		},
		"GPUTemperatureNearLimit": {
			pulse(t, "GPUTemperatureNearLimit", "one degree below", 0, `gpu_temperature_celsius{$A,sensor="gpu"}`, "60", "88", "$A",
				`gpu_temperature_limit_celsius{$A,sensor="gpu",limit="slowdown"} 89`),
			{name: "hot for another GPU, not for this", series: `gpu_temperature_celsius{$A,sensor="gpu"} 88x30
				gpu_temperature_limit_celsius{$A,sensor="gpu",limit="slowdown"} 102x30
				gpu_temperature_limit_celsius{$A,sensor="gpu",limit="max_operating"} 87x30
				gpu_temperature_limit_celsius{$B,sensor="gpu",limit="slowdown"} 89x30`, checks: "20m -; 28m -"},
		},
		"GPUMemoryTemperatureHigh": {
			pulse(t, "GPUMemoryTemperatureHigh", "one degree below", 0, `gpu_temperature_celsius{$A,sensor="memory"}`, "60", "94", "$A",
				`gpu_temperature_limit_celsius{$A,sensor="memory",limit="max_operating"} 95`),
			{name: "five degrees below", series: `gpu_temperature_celsius{$A,sensor="memory"} 90x30
				gpu_temperature_limit_celsius{$A,sensor="memory",limit="max_operating"} 95x30`, checks: "20m -; 28m -"},
		},
		"GPUPowerCapped": {
			{name: "capped and slow", series: limited("power_cap", "0x10 60+60x100 6060x60") + `
				gpu_clock_hertz{$A,clock="sm"} 1000000000x170
				gpu_clock_max_hertz{$A,clock="sm"} 1980000000x170`, checks: "60m -; 70m -; 90m $A; 110m $A; 130m $A; 150m -"},
			{name: "at its limit, with good clocks", series: limited("power_cap", "0+60x170") + `
				gpu_clock_hertz{$A,clock="sm"} 1700000000x170
				gpu_clock_max_hertz{$A,clock="sm"} 1980000000x170`, checks: "90m -; 160m -"},
			{name: "slow because there is nothing to do", series: limited("power_cap", "0x170") + `
				gpu_clock_hertz{$A,clock="sm"} 345000000x170
				gpu_clock_max_hertz{$A,clock="sm"} 1980000000x170`, checks: "90m -; 160m -"},
		},
	}
}
