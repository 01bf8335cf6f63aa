package calls

import (
	"fmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// mediumCalls are those of the medium poll group.
var mediumCalls = []Call{
	{Function: "nvmlDeviceGetMemoryInfo_v2", Since: 535, Values: names("total", "used", "free", "reserved")},
	{Function: "nvmlDeviceGetMemoryInfo", Values: memory},
	{Function: "nvmlDeviceGetBAR1MemoryInfo", Values: memory},
	{Function: "nvmlDeviceGetMemoryLimits_v1", Since: 615, Values: names("softLimit", "hardLimit", "currentUsed"), Computed: true},
	{Function: "nvmlDeviceGetTemperatureV", Since: 580,
		Methods:  names("Device.GetTemperatureV", "TemperatureHandler.V1"),
		Readings: readings(medium("temperature", "Temperature of the GPU.", Celsius, "Temperature").byHand())},
	{Function: "nvmlDeviceGetTemperature", Args: args(sensors), Values: value, C: u32,
		CArg: "nvmlTemperatureSensors_t"},
	{Function: "nvmlDeviceGetNumFans", Since: 535, Values: value, C: u32},
	{Function: "nvmlDeviceGetFanSpeed", Unused: true, Values: value, C: u32},
	{Function: "nvmlDeviceGetFanSpeed_v2", Args: args(fans), Values: value, C: u32, CArg: u32},
	{Function: "nvmlDeviceGetClockInfo", Args: args(clocks), Values: value, C: u32, CArg: "nvmlClockType_t",
		Readings: clockReadings(medium, "clock", "Clock", "Clocks", 0, 1, 2, 3)},
	{Function: "nvmlDeviceGetPerformanceState", Values: value, C: "nvmlPstates_t", Readings: readings(
		medium("performance_state", "Performance state, 0 the fastest; 32 is unknown.", Number, "PState").
			within(0, 15).when("v <= 15"))},
	{Function: "nvmlDeviceGetCurrentClocksEventReasons", Since: 535, Values: value, C: u64, Readings: readings(
		medium("clock_event_reasons", "Bit mask of the reasons that set the clocks now.", Number, "ClockEvents").
			instead("clock_events_sampled"),
		sampledReasons(0))},
	{Function: "nvmlDeviceGetCurrentClocksThrottleReasons", Values: value, C: u64, Readings: readings(
		medium("clock_event_reasons", "Its name before R535.", Number, "ClockEvents").rank(1).
			instead("clock_events_sampled"),
		sampledReasons(1))},
	{Function: "nvmlDeviceGetEncoderStats", Values: names("sessionCount", "averageFps", "averageLatency")},
	{Function: "nvmlDeviceGetFBCStats", C: "nvmlFBCStats_t", Values: names("sessionsCount", "averageFPS", "averageLatency")},
	{Function: "nvmlDeviceGetMemoryErrorCounter", Args: args(severities, counters, locations), Values: value},
	{Function: "nvmlDeviceGetTotalEccErrors", Args: args(severities, counters), Values: value},
	{Function: "nvmlDeviceGetRemappedRows", Values: names("corrected", "uncorrected", "pending", "failure")},
	{Function: "nvmlDeviceGetRetiredPages", Unused: true, Args: args(causes), Values: value},
	{Function: "nvmlDeviceGetRetiredPagesPendingStatus", Unused: true, Values: value, C: enable},
	{Function: "nvmlDeviceGetPcieReplayCounter", Values: value, C: u32, Int: true, Readings: readings(
		medium("pcie_replays", "PCIe replays.", Count, "PCIeReplays").rank(1).kind(Errors).when("v >= 0"))},
	{Function: "nvmlDeviceGetComputeRunningProcesses", Newest: 3, NewestSince: 535},
	{Function: "nvmlDeviceGetGraphicsRunningProcesses", Newest: 3, NewestSince: 535},
	{Function: "nvmlDeviceGetMPSComputeRunningProcesses", Newest: 3, NewestSince: 535},
}

// mediumFields are those of the medium poll group.
var mediumFields = []Field{
	{ID: 142, Name: "REMAPPED_COR", Reading: medium("remapped_rows", "Rows remapped after correctable errors.", Count,
		"RemappedRows[gpu.CauseCorrected]").kind(Errors)},
	{ID: 143, Name: "REMAPPED_UNC", Reading: medium("remapped_rows", "Rows remapped after uncorrectable errors.", Count,
		"RemappedRows[gpu.CauseUncorrected]").kind(Errors)},
	{ID: 144, Name: "REMAPPED_PENDING",
		Reading: medium("remapped_rows", "Whether rows are to be remapped at the next reset.", Switch, "RemapPending")},
	{ID: 145, Name: "REMAPPED_FAILURE",
		Reading: medium("remapped_rows", "Whether a row could not be remapped.", Switch, "RemapFailed")},
	{ID: 301, Name: "REMAPPED_ROWS_COR_INACTIVE", Reading: medium("remapped_rows_inactive",
		"Inactive remappings after correctable errors.", Count, "RemapInactive[gpu.CauseCorrected]")},
	{ID: 302, Name: "REMAPPED_ROWS_UNC_INACTIVE", Reading: medium("remapped_rows_inactive",
		"Inactive remappings after uncorrectable errors.", Count, "RemapInactive[gpu.CauseUncorrected]")},
	{ID: 29, Name: "RETIRED_SBE", Reading: medium("retired_pages", "Pages retired after repeated single-bit errors.",
		Count, "RetiredPages[gpu.CauseSingleBit]").kind(Errors)},
	{ID: 30, Name: "RETIRED_DBE", Reading: medium("retired_pages", "Pages retired after a double-bit error.", Count,
		"RetiredPages[gpu.CauseDoubleBit]").kind(Errors)},
	{ID: 31, Name: "RETIRED_PENDING",
		Reading: medium("retired_pages", "Whether pages will be retired at the next reset.", Switch, "RetirePending")},
	{ID: 94, Name: "PCIE_REPLAY_COUNTER", Reading: medium("pcie_replays", "PCIe replays.", Count, "PCIeReplays").kind(Errors)},
	linkError(38, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "", gpu.NVLinkCRCFlit, 0),
	linkError(163, "NVLINK_ERROR_DL_CRC", perLink, gpu.NVLinkCRCFlit, 1),
	linkError(45, "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "", gpu.NVLinkCRCData, 0),
	linkError(52, "NVLINK_REPLAY_ERROR_COUNT_TOTAL", "", gpu.NVLinkReplay, 0),
	linkError(161, "NVLINK_ERROR_DL_REPLAY", perLink, gpu.NVLinkReplay, 1),
	linkError(59, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "", gpu.NVLinkRecovery, 0),
	linkError(162, "NVLINK_ERROR_DL_RECOVERY", perLink, gpu.NVLinkRecovery, 1),
	// Blackwell, in place of the others
	linkError(215, "NVLINK_COUNT_LINK_RECOVERY_EVENTS", perLink, gpu.NVLinkRecovery, 2),
	linkError(160, "NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", "", gpu.NVLinkECC, 0),
	linkError(221, "NVLINK_COUNT_SYMBOL_ERRORS", perLink, gpu.NVLinkSymbol, 0),
	{ID: 230, Name: "GET_GPU_RECOVERY_ACTION", Reading: medium("recovery_action", "What the driver recommends.",
		OneOf("RecoveryActions"), "Recovery").when("v < uint64(len(gpu.RecoveryActions))")},
}

// sampledReasons is the mask at each fast poll, where the driver does not count the time of all reasons.
func sampledReasons(rank int) Reading {
	return fast("clock_events_sampled", "Bit mask of the reasons that set the clocks now.", Count, "SampledReasons").
		rank(rank).instead("limited_hw_power_brake")
}

// linkError is a counter of NVLink errors: the sums of all links on older drivers, then one of each link.
func linkError(id uint32, name, scope string, kind gpu.NVLinkError, rank int) Field {
	return Field{ID: id, Name: name, Scope: scope,
		Reading: medium("nvlink_errors_"+string(kind), "NVLink errors of all links.",
			Count, fmt.Sprintf("NVLinkErrors[%q]", kind)).rank(rank).kind(Errors)}
}
