package compat

import "github.com/gpu-exporter/gpu-exporter/internal/catalog"

// What several rows differ in.
const (
	steadier = "mean over the last 60 s, where it shows one window of the driver: steadier, and no burst is missed"
	gpm      = "mean over the last 60 s, from NVML's GPM counters: Hopper and newer alone, and without DCGM's profiling module"
	oneKind  = "NVML's counters of all link generations are one figure per kind here"
	measured = "; under MIG each instance has its own on Hopper and newer, where it has none"
)

// table returns the families that are rendered, by subject.
func table() []row {
	rows := []row{
		{name: "DCGM_FI_DEV_SM_CLOCK", renamed: "DCGM_FI_DEV_SM_CLOCK_HERTZ", typ: catalog.Gauge, shipped: on, help: "Clock of the SMs", unit: megahertz, dev: level("gpu_clock_hertz", "clock", "sm")},
		{name: "DCGM_FI_DEV_MEM_CLOCK", renamed: "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", typ: catalog.Gauge, shipped: on, help: "Clock of the memory", unit: megahertz, dev: level("gpu_clock_hertz", "clock", "memory")},
		{name: "DCGM_FI_DEV_VIDEO_CLOCK", typ: catalog.Gauge, shipped: chosen, help: "Clock of the video engines", unit: megahertz, dev: level("gpu_clock_hertz", "clock", "video")},
		{name: "DCGM_FI_DEV_MAX_SM_CLOCK", typ: catalog.Gauge, paired: true, shipped: chosen, help: "Highest clock of the SMs", unit: megahertz, dev: level("gpu_clock_max_hertz", "clock", "sm")},
		{name: "DCGM_FI_DEV_MAX_MEM_CLOCK", typ: catalog.Gauge, shipped: chosen, help: "Highest clock of the memory", unit: megahertz, dev: level("gpu_clock_max_hertz", "clock", "memory")},
		{name: "DCGM_FI_DEV_MAX_VIDEO_CLOCK", typ: catalog.Gauge, shipped: chosen, help: "Highest clock of the video engines", unit: megahertz, dev: level("gpu_clock_max_hertz", "clock", "video")},
		{name: "DCGM_FI_DEV_PSTATE", typ: catalog.Gauge, shipped: chosen, help: "Performance state, 0 is the highest", dev: level("gpu_performance_state")},

		{name: "DCGM_FI_DEV_GPU_TEMP", renamed: "DCGM_FI_DEV_GPU_TEMP_CELSIUS", typ: catalog.Gauge, shipped: on, help: "Temperature of the GPU", unit: celsius, dev: level("gpu_temperature_celsius", "sensor", "gpu")},
		{name: "DCGM_FI_DEV_MEMORY_TEMP", renamed: "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", typ: catalog.Gauge, shipped: on, help: "Temperature of the memory", unit: celsius, dev: level("gpu_temperature_celsius", "sensor", "memory")},
		{name: "DCGM_FI_DEV_SLOWDOWN_TEMP", typ: catalog.Gauge, paired: true, shipped: chosen, help: "Temperature at which the GPU slows down", unit: celsius, dev: level("gpu_temperature_limit_celsius", "sensor", "gpu", "limit", "slowdown")},
		{name: "DCGM_FI_DEV_SHUTDOWN_TEMP", typ: catalog.Gauge, shipped: chosen, help: "Temperature at which the GPU shuts down", unit: celsius, dev: level("gpu_temperature_limit_celsius", "sensor", "gpu", "limit", "shutdown")},
		{name: "DCGM_FI_DEV_GPU_MAX_OP_TEMP", typ: catalog.Gauge, shipped: chosen, help: "Highest temperature at which the GPU should work", unit: celsius, dev: level("gpu_temperature_limit_celsius", "sensor", "gpu", "limit", "max_operating")},
		{name: "DCGM_FI_DEV_MEM_MAX_OP_TEMP", typ: catalog.Gauge, shipped: chosen, help: "Highest temperature at which the memory should work", unit: celsius, dev: level("gpu_temperature_limit_celsius", "sensor", "memory", "limit", "max_operating")},
		{name: "DCGM_FI_DEV_FAN_SPEED", typ: catalog.Gauge, shipped: chosen, help: "Speed of the first fan", unit: percent, dev: level("gpu_fan_speed_ratio", "fan", "0")},

		{name: "DCGM_FI_DEV_POWER_USAGE", renamed: "DCGM_FI_DEV_BOARD_POWER_WATTS", typ: catalog.Gauge, shipped: on, help: "Power of the GPU, the driver's average", unit: watts, dev: level("gpu_power_watts")},
		{name: "DCGM_FI_DEV_POWER_USAGE_INSTANT", typ: catalog.Gauge, shipped: chosen, help: "Power of the GPU at the last sample of its sensor", unit: watts, dev: level("gpu_power_instant_watts")},
		{name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", renamed: "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", typ: catalog.Counter, shipped: on, help: "Energy since the driver was loaded", unit: millijoules, dev: level("gpu_energy_joules_total")},
		{name: "DCGM_FI_DEV_POWER_MGMT_LIMIT", typ: catalog.Gauge, paired: true, shipped: off, help: "Power limit that was asked for", unit: watts, dev: level("gpu_power_limit_requested_watts")},
		{name: "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", typ: catalog.Gauge, paired: true, shipped: off, help: "Power limit that is enforced", unit: watts, dev: level("gpu_power_limit_watts")},
		{name: "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", typ: catalog.Gauge, shipped: chosen, help: "Power limit after the driver was loaded", unit: watts, dev: level("gpu_power_limit_default_watts")},
		{name: "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", typ: catalog.Gauge, shipped: chosen, help: "Lowest power limit", unit: watts, dev: level("gpu_power_limit_min_watts")},
		{name: "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", typ: catalog.Gauge, shipped: chosen, help: "Highest power limit", unit: watts, dev: level("gpu_power_limit_max_watts")},

		{name: "DCGM_FI_DEV_GPU_UTIL", renamed: "DCGM_FI_DEV_GPU_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Time in which at least one kernel ran", unit: percent,
			dev: level("gpu_utilization_ratio"), instance: share("gpu_mig_busy_seconds_total", "gpu_mig_observed_seconds_total"),
			tenant:  share("gpu_container_busy_seconds_total", "gpu_container_observed_seconds_total"),
			differs: steadier + measured + "; on a shared GPU each tenant has its own part beside the GPU's, and none where it cannot be measured, where it has 0"},
		{name: "DCGM_FI_DEV_MEM_COPY_UTIL", renamed: "DCGM_FI_DEV_MEMORY_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Time in which memory was read or written", unit: percent,
			dev: share("gpu_memory_busy_seconds_total", "gpu_observed_seconds_total"), differs: steadier},
		{name: "DCGM_FI_DEV_ENC_UTIL", renamed: "DCGM_FI_DEV_ENC_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Utilization of the encoder", unit: percent, dev: level("gpu_engine_utilization_ratio", "engine", "encoder")},
		{name: "DCGM_FI_DEV_DEC_UTIL", renamed: "DCGM_FI_DEV_DEC_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Utilization of the decoder", unit: percent, dev: level("gpu_engine_utilization_ratio", "engine", "decoder")},

		{name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", renamed: "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Time in which the compute or graphics engine was at work", unit: ratio,
			dev: level("gpu_utilization_ratio"), instance: share("gpu_mig_busy_seconds_total", "gpu_mig_observed_seconds_total"),
			differs: "mean over the last 60 s of the driver's utilization samples, under MIG of the instance's GPM counter: the time in which a kernel ran, on every GPU, without profiling; MIG before Hopper has none"},
		{name: "DCGM_FI_PROF_SM_ACTIVE", typ: catalog.Gauge, shipped: off, help: "Time in which an SM had a warp, mean over the SMs", unit: ratio,
			dev: share("gpu_sm_active_seconds_total", "gpu_profiled_seconds_total"), instance: share("gpu_mig_sm_active_seconds_total", "gpu_mig_profiled_seconds_total"), differs: gpm},
		{name: "DCGM_FI_PROF_SM_OCCUPANCY", typ: catalog.Gauge, shipped: off, help: "Resident warps over the most that fit", unit: ratio,
			dev: share("gpu_sm_occupancy_seconds_total", "gpu_profiled_seconds_total"), instance: share("gpu_mig_sm_occupancy_seconds_total", "gpu_mig_profiled_seconds_total"), differs: gpm},
		{name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", renamed: "DCGM_FI_PROF_TENSOR_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Time in which tensor cores were at work", unit: ratio,
			dev: share("gpu_tensor_active_seconds_total", "gpu_profiled_seconds_total"), instance: share("gpu_mig_tensor_active_seconds_total", "gpu_mig_profiled_seconds_total"), differs: gpm},
		{name: "DCGM_FI_PROF_DRAM_ACTIVE", renamed: "DCGM_FI_PROF_DRAM_UTIL_RATIO", typ: catalog.Gauge, shipped: on, help: "Memory bandwidth in use over the possible", unit: ratio,
			dev: share("gpu_dram_active_seconds_total", "gpu_profiled_seconds_total"), instance: share("gpu_mig_dram_active_seconds_total", "gpu_mig_profiled_seconds_total"), differs: gpm},
	}
	for _, p := range []struct{ name, pipe, help string }{
		{"DCGM_FI_PROF_PIPE_FP64_ACTIVE", "fp64", "Time in which the FP64 pipes were at work"},
		{"DCGM_FI_PROF_PIPE_FP32_ACTIVE", "fp32", "Time in which the FP32 pipes were at work"},
		{"DCGM_FI_PROF_PIPE_FP16_ACTIVE", "fp16", "Time in which the FP16 pipes were at work"},
	} {
		rows = append(rows, row{name: p.name, typ: catalog.Gauge, shipped: off, help: p.help, unit: ratio,
			dev: share("gpu_pipe_active_seconds_total", "gpu_profiled_seconds_total", "pipe", p.pipe), instance: nowhere(), differs: gpm + "; under MIG none"})
	}
	rows = append(rows,
		row{name: "DCGM_FI_DEV_FB_USED", renamed: "DCGM_FI_DEV_FB_USED_BYTES", typ: catalog.Gauge, shipped: on, help: "Device memory that is allocated", unit: mebibytes,
			dev: level("gpu_memory_used_bytes"), instance: level("gpu_mig_memory_used_bytes"), tenant: level("gpu_container_memory_used_bytes"),
			differs: "equal for a GPU and for an instance; on a shared GPU each tenant has its own part beside the GPU's, and none where it cannot be told, where it has 0"},
		row{name: "DCGM_FI_DEV_FB_FREE", renamed: "DCGM_FI_DEV_FB_FREE_BYTES", typ: catalog.Gauge, shipped: on, help: "Device memory that nobody allocated", unit: mebibytes,
			dev: level("gpu_memory_free_bytes"), instance: level("gpu_mig_memory_free_bytes")},
		row{name: "DCGM_FI_DEV_FB_RESERVED", renamed: "DCGM_FI_DEV_FB_RESERVED_BYTES", typ: catalog.Gauge, shipped: on, help: "Device memory that driver and firmware keep", unit: mebibytes,
			dev: level("gpu_memory_reserved_bytes"), instance: level("gpu_mig_memory_reserved_bytes")},
		row{name: "DCGM_FI_DEV_FB_TOTAL", renamed: "DCGM_FI_DEV_FB_CAPACITY_BYTES", typ: catalog.Gauge, shipped: chosen, help: "Device memory", unit: mebibytes,
			dev: level("gpu_memory_total_bytes"), instance: level("gpu_mig_memory_total_bytes")},
		row{name: "DCGM_FI_DEV_FB_USED_PERCENT", typ: catalog.Gauge, shipped: chosen, help: "Used device memory over what is not reserved", unit: ratio,
			dev:      &figure{of: []string{"gpu_memory_used_bytes"}, over: []string{"gpu_memory_used_bytes", "gpu_memory_free_bytes"}},
			instance: &figure{of: []string{"gpu_mig_memory_used_bytes"}, over: []string{"gpu_mig_memory_used_bytes", "gpu_mig_memory_free_bytes"}}},
		row{name: "DCGM_FI_DEV_BAR1_TOTAL", typ: catalog.Gauge, shipped: chosen, help: "Window through which the host maps device memory", unit: mebibytes, dev: level("gpu_bar1_memory_total_bytes")},
		row{name: "DCGM_FI_DEV_BAR1_USED", typ: catalog.Gauge, shipped: chosen, help: "Part of that window that is mapped", unit: mebibytes, dev: level("gpu_bar1_memory_used_bytes")},
		row{name: "DCGM_FI_DEV_BAR1_FREE", typ: catalog.Gauge, shipped: chosen, help: "Part of that window that is not mapped", unit: mebibytes, dev: &figure{of: []string{"gpu_bar1_memory_total_bytes"}, less: "gpu_bar1_memory_used_bytes"}},

		row{name: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", renamed: "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", typ: catalog.Counter, shipped: on, help: "PCIe packets that were sent again", dev: level("gpu_pcie_replays_total")},
		row{name: "DCGM_FI_PROF_PCIE_TX_BYTES", typ: catalog.Gauge, shipped: on, help: "Sent over PCIe", unit: perSecond, dev: rate("gpu_pcie_transmit_bytes_total"), differs: "mean over the last 60 s of NVML's byte counter: no profiling needed, but a driver of R535 or newer"},
		row{name: "DCGM_FI_PROF_PCIE_RX_BYTES", typ: catalog.Gauge, shipped: on, help: "Received over PCIe", unit: perSecond, dev: rate("gpu_pcie_receive_bytes_total"), differs: "mean over the last 60 s of NVML's byte counter: no profiling needed, but a driver of R535 or newer"},
		row{name: "DCGM_FI_DEV_PCIE_LINK_GEN", typ: catalog.Gauge, shipped: chosen, help: "PCIe generation of the link now", dev: level("gpu_pcie_link_generation")},
		row{name: "DCGM_FI_DEV_PCIE_LINK_WIDTH", typ: catalog.Gauge, shipped: chosen, help: "Poll groups of the link now", dev: level("gpu_pcie_link_width")},
		row{name: "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", typ: catalog.Gauge, shipped: chosen, help: "Highest PCIe generation", dev: level("gpu_pcie_link_generation_max")},
		row{name: "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", typ: catalog.Gauge, shipped: chosen, help: "Most poll groups", dev: level("gpu_pcie_link_width_max")},

		row{name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", renamed: "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", typ: catalog.Gauge, shipped: on, help: "Sent and received over all NVLinks", unit: megabytesPerSecond,
			dev: rate("gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total"), differs: "mean over the last 60 s, both directions together; a gauge as from 4.8.3 on (its type was counter until 4.8.2)"},
		row{name: "DCGM_FI_PROF_NVLINK_TX_BYTES", typ: catalog.Gauge, shipped: chosen, help: "Sent over all NVLinks", unit: perSecond, dev: rate("gpu_nvlink_transmit_bytes_total"), differs: "mean over the last 60 s"},
		row{name: "DCGM_FI_PROF_NVLINK_RX_BYTES", typ: catalog.Gauge, shipped: chosen, help: "Received over all NVLinks", unit: perSecond, dev: rate("gpu_nvlink_receive_bytes_total"), differs: "mean over the last 60 s"},
	)
	for _, e := range []struct{ name, kind, help string }{
		{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "crc_flit", "Flow-control CRC errors of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "crc_flit", "Flow-control CRC errors of all NVLinks, as spelled until 4.8.3"},
		{"DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL", "crc_flit", "Data-link CRC errors of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", "crc_data", "Data CRC errors of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "crc_data", "Data CRC errors of all NVLinks, as spelled until 4.8.3"},
		{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", "replay", "Replays of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "replay", "Replays of all NVLinks, as spelled until 4.8.3"},
		{"DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", "replay", "Data-link replays of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", "recovery", "Recoveries of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "recovery", "Recoveries of all NVLinks, as spelled until 4.8.3"},
		{"DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL", "recovery", "Data-link recoveries of all NVLinks"},
		{"DCGM_FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL", "recovery", "Recovery events of all NVLinks"},
	} {
		rows = append(rows, row{name: e.name, typ: catalog.Counter, shipped: off, help: e.help, dev: level("gpu_nvlink_errors_total", "kind", e.kind), differs: oneKind})
	}

	xid := func(figure figure) *figure {
		figure.of = append([]string{"gpu_xid_events_total"}, figure.of...)
		figure.by = "xid"
		return &figure
	}
	rows = append(rows,
		row{name: "DCGM_FI_DEV_XID_ERRORS", renamed: "DCGM_FI_DEV_XID_ERROR", typ: catalog.Gauge, shipped: on, help: "The XID that was seen last since the exporter started; 0 before the first",
			dev: xid(figure{of: []string{"gpu_xid_last_timestamp_seconds"}, latest: true}), differs: "0 until the first XID, where 4.8.2 has no series; err_msg is in our words; also from the kernel log; a GPU that cannot be read keeps it"},
		row{name: "DCGM_EXP_XID_ERRORS_TOTAL", typ: catalog.Counter, shipped: off, help: "XIDs since the exporter started", dev: xid(figure{}), differs: "the critical codes exist from 0 on, so that the first is an increase; no labels of the code's text"},
		row{name: "DCGM_EXP_XID_ERRORS_COUNT", typ: catalog.Gauge, shipped: off, help: "XIDs of the last five minutes", dev: xid(figure{fiveMinutes: true}), differs: "a code keeps its series after the window, at 0; no series for a code that was never seen; no window_size_in_ms and no labels of the code's text"},
	)
	for _, l := range []struct{ name, reason, help string }{
		{"DCGM_FI_DEV_POWER_VIOLATION", "power_cap", "Time for which the power limit held clocks down"},
		{"DCGM_FI_DEV_THERMAL_VIOLATION", "thermal", "Time for which heat held clocks down"},
		{"DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "sync_boost", "Time for which another GPU of the sync group held clocks down"},
		{"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "board_limit", "Time for which a limit of the board held clocks down"},
		{"DCGM_FI_DEV_RELIABILITY_VIOLATION", "reliability", "Time for which a reliability voltage limit held clocks down"},
	} {
		rows = append(rows, row{name: l.name, typ: catalog.Counter, shipped: off, help: l.help, unit: nanoseconds, dev: level("gpu_clock_limited_seconds_total", "reason", l.reason)})
	}
	for _, s := range []struct{ short, severity, help string }{{"SBE", "corrected", "single-bit"}, {"DBE", "uncorrected", "double-bit"}} {
		for _, k := range []struct{ short, family, help string }{{"VOL", "gpu_ecc_errors_total", "since the driver was loaded"}, {"AGG", "gpu_ecc_lifetime_errors_total", "over the GPU's life"}} {
			rows = append(rows, row{name: "DCGM_FI_DEV_ECC_" + s.short + "_" + k.short + "_TOTAL", typ: catalog.Counter, shipped: off,
				help: "ECC errors, " + s.help + ", " + k.help, dev: level(k.family, "severity", s.severity), differs: "the sum of the locations that the GPU counts; corrected stands for single-bit, uncorrected for double-bit, as in NVML"})
			for _, m := range []struct{ short, memory, help string }{{"DEV", "dram", "device memory"}, {"SRM", "sram", "SRAM"}, {"L1", "l1", "L1 cache"}, {"L2", "l2", "L2 cache"},
				{"REG", "register_file", "register files"}, {"TEX", "texture_memory", "texture memory"}, {"SHM", "texture_shm", "shared texture memory"}, {"CBU", "cbu", "CBU"}} {
				rows = append(rows, row{name: "DCGM_FI_DEV_ECC_" + s.short + "_" + k.short + "_" + m.short, typ: catalog.Counter, shipped: chosen,
					help: "ECC errors in " + m.help + ", " + s.help + ", " + k.help, dev: level(k.family, "severity", s.severity, "memory", m.memory)})
			}
		}
	}
	rows = append(rows,
		row{name: "DCGM_FI_DEV_RETIRED_SBE", typ: catalog.Counter, shipped: off, help: "Pages retired for single-bit errors", dev: level("gpu_retired_pages_total", "cause", "multiple_single_bit")},
		row{name: "DCGM_FI_DEV_RETIRED_DBE", typ: catalog.Counter, shipped: off, help: "Pages retired for double-bit errors", dev: level("gpu_retired_pages_total", "cause", "double_bit")},
		row{name: "DCGM_FI_DEV_RETIRED_PENDING", typ: catalog.Gauge, shipped: off, help: "1 while pages wait to be retired", dev: level("gpu_retired_pages_pending")},
		row{name: "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", renamed: "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", typ: catalog.Counter, shipped: on, help: "Rows remapped for uncorrectable errors", dev: level("gpu_remapped_rows_total", "cause", "uncorrected")},
		row{name: "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", renamed: "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", typ: catalog.Counter, shipped: on, help: "Rows remapped for correctable errors", dev: level("gpu_remapped_rows_total", "cause", "corrected")},
		row{name: "DCGM_FI_DEV_ROW_REMAP_FAILURE", renamed: "DCGM_FI_DEV_ROW_REMAP_FAILED", typ: catalog.Gauge, shipped: on, help: "1 after a row could not be remapped", dev: level("gpu_row_remap_failed")},
		row{name: "DCGM_FI_DEV_ROW_REMAP_PENDING", typ: catalog.Gauge, shipped: chosen, help: "1 while rows wait to be remapped", dev: level("gpu_row_remap_pending")},
	)
	for _, b := range []struct{ short, availability string }{{"MAX", "max"}, {"HIGH", "high"}, {"PARTIAL", "partial"}, {"LOW", "low"}, {"NONE", "none"}} {
		rows = append(rows, row{name: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_" + b.short, typ: catalog.Gauge, shipped: chosen, help: "Banks whose spare rows are: " + b.availability, dev: level("gpu_row_remap_banks", "availability", b.availability)})
	}
	return append(rows,
		row{name: "DCGM_FI_DEV_ECC_CURRENT", typ: catalog.Gauge, shipped: chosen, help: "1 while ECC is on", dev: level("gpu_ecc_mode")},
		row{name: "DCGM_FI_DEV_ECC_PENDING", typ: catalog.Gauge, shipped: chosen, help: "ECC mode after the next reboot", dev: level("gpu_ecc_mode_pending")},
		row{name: "DCGM_FI_DEV_MIG_MODE", typ: catalog.Gauge, shipped: chosen, help: "1 while the GPU is in MIG mode", dev: level("gpu_mig_mode")},
		row{name: "DCGM_FI_DEV_PERSISTENCE_MODE", typ: catalog.Gauge, shipped: chosen, help: "1 while persistence mode is on", dev: level("gpu_persistence_mode")},
	)
}
