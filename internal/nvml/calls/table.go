package calls

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The arguments of calls, in the order of NVML's enumerations.
var (
	sensors    = Arg{Names: []string{"gpu", "gpu_max"}}
	thresholds = Arg{Names: []string{"shutdown", "slowdown", "mem_max", "gpu_max", "acoustic_min", "acoustic_curr",
		"acoustic_max", "gps_curr"}}
	clocks     = Arg{Names: []string{"graphics", "sm", "mem", "video"}}
	severities = Arg{Names: []string{"corrected", "uncorrected"}}
	counters   = Arg{Names: []string{"volatile", "aggregate"}}
	locations  = Arg{Names: []string{"l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm",
		"cbu", "sram"}}
	causes     = Arg{Names: []string{"single_bit", "double_bit"}}
	links      = Arg{Limit: 36}
	linkErrors = Arg{Names: []string{"replay", "recovery", "crc_flit", "crc_data", "ecc_data"}}
	fans       = Arg{Limit: 16}
	inforom    = Arg{Names: []string{"oem", "ecc", "power"}}
	samples    = Arg{Names: []string{"power", "gpu", "memory", "encoder", "decoder", "processor_clock", "memory_clock",
		"module_power", "jpeg", "ofa"}}
)

var (
	value       = []string{"value"}
	mode        = []string{"current", "pending"}
	utilization = []string{"utilization", "period"}
	memory      = []string{"total", "used", "free"}
)

const (
	u32    = "unsigned int"
	u64    = "unsigned long long"
	enable = "nvmlEnableState_t"
)

func args(list ...Arg) []Arg             { return list }
func names(list ...string) []string      { return list }
func readings(list ...Reading) []Reading { return list }

// Calls is the table of functions, in the order of the statistics of calls.
var Calls = []Call{
	{Function: "nvmlInit", Newest: 2, Required: true, System: true},
	{Function: "nvmlShutdown", Required: true, Key: "-"},
	{Function: "nvmlSystemGetDriverVersion", Required: true, Values: value, Text: true, System: true},
	{Function: "nvmlSystemGetCudaDriverVersion", Values: value, System: true},
	{Function: "nvmlSystemGetNVMLVersion", Values: value, Text: true, System: true},
	{Function: "nvmlDeviceGetCount", Newest: 2, Required: true, System: true,
		Methods: names("Interface.DeviceGetCount")},
	{Function: "nvmlDeviceGetHandleByIndex", Newest: 2, Required: true, System: true,
		Methods: names("Interface.DeviceGetHandleByIndex")},
	{Function: "nvmlDeviceGetHandleByUUID", Unused: true, System: true},
	{Function: "nvmlDeviceGetHandleByPciBusId", Newest: 2, Unused: true, System: true},

	{Function: "nvmlDeviceGetUUID", Required: true},
	{Function: "nvmlDeviceGetPciInfo", Newest: 3, Required: true, Values: names("device", "subsystem")},
	{Function: "nvmlDeviceGetMinorNumber", Int: true,
		Readings: readings(once("minor_number", "Number of the device node.", Number, "Minor"))},
	{Function: "nvmlDeviceGetIndex", Unused: true},
	{Function: "nvmlDeviceGetName", Values: value, Text: true,
		Readings: readings(once("model", "Product name.", Text, "Model"))},
	{Function: "nvmlDeviceGetBrand", Values: value, C: "nvmlBrandType_t"},
	{Function: "nvmlDeviceGetArchitecture", Values: value, C: "nvmlDeviceArchitecture_t"},
	{Function: "nvmlDeviceGetCudaComputeCapability", Values: names("major", "minor"), C: "int"},
	{Function: "nvmlDeviceGetSerial", Values: value, Text: true, C: "char",
		Readings: readings(once("serial", "Serial number of the board.", Text, "Serial"))},
	{Function: "nvmlDeviceGetBoardPartNumber", Values: value, Text: true, C: "char",
		Readings: readings(once("board_part", "Part number of the board.", Text, "BoardPart"))},
	{Function: "nvmlDeviceGetVbiosVersion", Values: value, Text: true, C: "char",
		Readings: readings(once("vbios_version", "Version of the video BIOS.", Text, "VBIOS"))},
	{Function: "nvmlDeviceGetInforomImageVersion", Values: value, Text: true, C: "char",
		Readings: readings(once("inforom_image", "Version of the inforom image.", Text, "Firmware.InforomImage"))},
	{Function: "nvmlDeviceGetInforomVersion", Args: args(inforom), Values: value, Text: true, C: "char",
		CArg: "nvmlInforomObject_t", Readings: readings(
			once("inforom_oem", "Version of the inforom's OEM object.", Text, "Firmware.InforomOEM").arg("INFOROM_OEM"),
			once("inforom_ecc", "Version of the inforom's ECC object.", Text, "Firmware.InforomECC").arg("INFOROM_ECC"),
			once("inforom_power", "Version of the inforom's power object.", Text, "Firmware.InforomPower").
				arg("INFOROM_POWER"))},
	{Function: "nvmlDeviceGetGspFirmwareVersion", Since: 535, Values: value, Text: true,
		Readings: readings(once("gsp_version", "Version of the GSP firmware.", Text, "Firmware.GSP"))},
	{Function: "nvmlDeviceGetPlatformInfo", Since: 580, C: "nvmlPlatformInfo_t",
		Values: names("chassisSerialNumber", "slotNumber", "trayIndex", "hostId", "peerType", "moduleId")},
	{Function: "nvmlDeviceGetNumaNodeId", Unused: true, Since: 580, Values: value, C: u32},
	{Function: "nvmlDeviceGetBusType", Unused: true, Since: 535, Values: value, C: "nvmlBusType_t"},

	{Function: "nvmlDeviceGetFieldValues"},
	{Function: "nvmlDeviceGetPowerUsage", Values: value, C: u32, Readings: readings(
		fast("power", "Power; the mean of 1 s on Ampere (except GA100) and newer.", Milliwatts, "Power").rank(1))},
	{Function: "nvmlDeviceGetTotalEnergyConsumption", Values: value, C: u64, Readings: readings(
		fast("energy", "Energy since the driver was loaded.", Millijoules, "Energy").rank(1).kind(Counter))},
	{Function: "nvmlDeviceGetUtilizationRates", Values: names("gpu", "memory")},
	{Function: "nvmlDeviceGetSamples", Args: args(samples), Values: value, Computed: true},
	{Function: "nvmlDeviceGetProcessUtilization", Values: names("sm", "memory", "encoder", "decoder"), Optional: 3,
		Computed: true},
	{Function: "nvmlDeviceGetAccountingPids", Values: value, Computed: true},
	{Function: "nvmlDeviceGetAccountingStats_v2", Since: 610, Values: names("sampleCount", "sumGpuUtil", "sumFbUtil"),
		Computed: true},
	{Function: "nvmlDeviceGetEncoderUtilization", Values: utilization, C: u32, NotMIG: true,
		Readings: engine(gpu.EngineEncoder, "Encoder")},
	{Function: "nvmlDeviceGetDecoderUtilization", Values: utilization, C: u32, NotMIG: true,
		Readings: engine(gpu.EngineDecoder, "Decoder")},
	{Function: "nvmlDeviceGetJpgUtilization", Since: 580, Values: utilization, C: u32, NotMIG: true,
		Readings: engine(gpu.EngineJPEG, "JPEG engine")},
	{Function: "nvmlDeviceGetOfaUtilization", Since: 580, Values: utilization, C: u32, NotMIG: true,
		Readings: engine(gpu.EngineOFA, "Optical flow engine")},
	{Function: "nvmlGpmQueryDeviceSupport", Since: 535, Values: value, Methods: names("Device.GpmQueryDeviceSupport")},
	{Function: "nvmlGpmSampleAlloc", Since: 535, System: true},
	{Function: "nvmlGpmSampleFree", Since: 535, Key: "-", Methods: names("GpmSample.Free")},
	{Function: "nvmlGpmSampleGet", Since: 535, Methods: names("GpmSample.Get")},
	{Function: "nvmlGpmMigSampleGet", Since: 535, Methods: names("GpmSample.MigGet")},
	{Function: "nvmlGpmMetricsGet", Since: 535, System: true},

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
	{Function: "nvmlDeviceGetFBCStats", C: "nvmlFBCStats_t",
		Values: names("sessionsCount", "averageFPS", "averageLatency")},
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

	{Function: "nvmlDeviceGetEnforcedPowerLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit", "Enforced limit.", Milliwatts, "PowerLimit"))},
	{Function: "nvmlDeviceGetPowerManagementLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit_requested", "Requested limit.", Milliwatts, "PowerLimitRequested").rejected("power_limit"))},
	{Function: "nvmlDeviceGetPowerManagementDefaultLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit_default", "Limit after boot.", Milliwatts, "PowerLimitDefault").rejected("power_limit"))},
	{Function: "nvmlDeviceGetPowerManagementLimitConstraints", Values: names("min", "max"), C: u32, Readings: readings(
		slow("power_limit_range", "Minimum and maximum limit that can be set.", Milliwatts,
			"PowerLimitMin", "PowerLimitMax").
			rejected("power_limit"))},
	{Function: "nvmlDeviceGetTemperatureThreshold", Args: args(thresholds), Values: value, C: u32,
		CArg: "nvmlTemperatureThresholds_t"},
	{Function: "nvmlDeviceGetMarginTemperature", Since: 580, Values: value},
	{Function: "nvmlDeviceGetMaxClockInfo", Args: args(clocks), Values: value, C: u32, CArg: "nvmlClockType_t",
		Readings: clockReadings(slow, "clock_max", "Maximum clock", "MaxClocks", 0, 1, 2, 3)},
	{Function: "nvmlDeviceGetPersistenceMode", Values: value, C: enable, Readings: readings(
		slow("persistence_mode", "Whether the driver stays loaded without clients.", Switch, "PersistenceMode"))},
	{Function: "nvmlDeviceGetAccountingMode", Values: value, C: enable, Readings: readings(
		slow("accounting_mode", "Whether the driver keeps accounts of processes.", Switch, "AccountingMode"))},
	{Function: "nvmlDeviceGetDisplayActive", Values: value, C: enable, Readings: readings(
		slow("display_active", "Whether a display is driven.", Switch, "DisplayActive"))},
	{Function: "nvmlDeviceGetDisplayMode", Values: value, C: enable, Readings: readings(
		slow("display_attached", "Whether a display is connected.", Switch, "DisplayAttached"))},
	{Function: "nvmlDeviceGetGspFirmwareMode", Since: 535, Values: names("enabled", "default"), C: u32, Readings: readings(
		slow("gsp_mode", "Whether the driver runs on the GPU's system processor.", Flag, "GSPMode", "GSPModeDefault"))},
	{Function: "nvmlDeviceGetC2cModeInfoV", Since: 580, Values: names("isC2cEnabled"), C: "nvmlC2cModeInfo_v1_t",
		Methods: names("Device.GetC2cModeInfoV", "C2cModeInfoHandler.V1")},
	{Function: "nvmlDeviceGetDramEncryptionMode", Since: 580, Values: mode},
	{Function: "nvmlDeviceGetConfComputeProtectedMemoryUsage", Since: 580, Values: memory, C: "nvmlMemory_t"},
	{Function: "nvmlDeviceGetSramEccErrorStatus", Since: 580, C: "nvmlEccSramErrorStatus_t",
		Values: names("aggregateUncParity", "aggregateUncSecDed", "volatileUncParity", "volatileUncSecDed",
			"aggregateUncBucketL2", "aggregateUncBucketSm", "aggregateUncBucketPcie", "aggregateUncBucketMcu", "aggregateUncBucketOther",
			"bThresholdExceeded")},
	{Function: "nvmlDeviceGetRepairStatus", Since: 580, C: "nvmlRepairStatus_t",
		Values: names("bChannelRepairPending", "bTpcRepairPending")},
	{Function: "nvmlDeviceGetUnrepairableMemoryFlag_v1", Since: 580, C: "nvmlUnrepairableMemoryStatus_v1_t",
		Values: names("bUnrepairableMemory")},
	{Function: "nvmlDeviceGetApplicationsClock", Args: args(clocks), Values: value, C: u32, CArg: "nvmlClockType_t",
		Readings: clockReadings(slow, "clock_applications", "Applications clock", "ApplicationClocks", 0, 2)},
	{Function: "nvmlDeviceGetDefaultApplicationsClock", Args: args(clocks), Values: value, C: u32,
		CArg:     "nvmlClockType_t",
		Readings: clockReadings(slow, "clock_default_applications", "Default applications clock", "DefaultClocks", 0, 2)},
	{Function: "nvmlDeviceGetVirtualizationMode", Unused: true, Values: value, C: "nvmlGpuVirtualizationMode_t"},
	{Function: "nvmlDeviceGetComputeMode", Values: value, C: "nvmlComputeMode_t", Readings: readings(
		slow("compute_mode", "Who may open compute contexts.", OneOf("ComputeModes"), "ComputeMode").
			when("v >= 0 && int(v) < len(gpu.ComputeModes)"))},
	{Function: "nvmlDeviceGetMigMode"},
	{Function: "nvmlDeviceGetEccMode", Values: mode, C: enable},
	{Function: "nvmlDeviceGetDefaultEccMode", Unused: true, Values: value, C: enable},
	{Function: "nvmlDeviceGetRowRemapperHistogram", Values: names("max", "high", "partial", "low", "none")},
	{Function: "nvmlDeviceGetCurrPcieLinkGeneration", Values: value, C: u32, Int: true,
		Readings: pcie("pcie_link_generation", "Current PCIe generation.", "PCIe.Generation", 16)},
	{Function: "nvmlDeviceGetCurrPcieLinkWidth", Values: value, C: u32, Int: true,
		Readings: pcie("pcie_link_width", "Current number of PCIe lanes.", "PCIe.Width", 64)},
	{Function: "nvmlDeviceGetMaxPcieLinkGeneration", Values: value, C: u32, Int: true,
		Readings: pcie("pcie_link_generation_max", "Maximum PCIe generation of both ends.", "PCIe.MaxGeneration", 16)},
	{Function: "nvmlDeviceGetMaxPcieLinkWidth", Values: value, C: u32, Int: true,
		Readings: pcie("pcie_link_width_max", "Maximum number of PCIe lanes of GPU and slot.", "PCIe.MaxWidth", 64)},
	{Function: "nvmlDeviceGetGpuMaxPcieLinkGeneration", Since: 535, Values: value, C: u32, Int: true,
		Readings: pcie("pcie_link_generation_gpu_max", "Maximum of the GPU alone.", "PCIe.GPUMaxGeneration", 16)},
	{Function: "nvmlDeviceGetNvLinkState", Args: args(links), Values: value, C: enable, CArg: u32},
	{Function: "nvmlDeviceGetNvLinkErrorCounter", Unused: true, Args: args(links, linkErrors), Values: value},
	{Function: "nvmlDeviceGetGpuFabricInfo", Unused: true, Since: 535, Optional: 5,
		Values: names("state", "status", "clique", "health_mask", "health_summary", "cluster")},
	{Function: "nvmlDeviceGetGpuFabricInfoV", Since: 580,
		Methods: names("Device.GetGpuFabricInfoV", "GpuFabricInfoHandler.V3", "GpuFabricInfoHandler.V2")},
	{Function: "nvmlDeviceGetMemoryBusWidth", Since: 535, Values: value, C: u32},
	{Function: "nvmlDeviceGetNumGpuCores", Since: 535, Values: value, C: u32},

	{Function: "nvmlDeviceGetMaxMigDeviceCount"},
	{Function: "nvmlDeviceGetMigDeviceHandleByIndex"},
	{Function: "nvmlDeviceIsMigDeviceHandle", Unused: true, Key: "IsMigDeviceHandle"},
	{Function: "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", Unused: true},
	{Function: "nvmlDeviceGetGpuInstanceId"},
	{Function: "nvmlDeviceGetComputeInstanceId"},
	{Function: "nvmlDeviceGetAttributes", Newest: 2},
	{Function: "nvmlDeviceGetGpuInstances", Unused: true},
	{Function: "nvmlDeviceGetGpuInstanceById"},
	{Function: "nvmlGpuInstanceGetInfo", Key: "GpuInstanceInfo", Methods: names("GpuInstance.GetInfo")},
	{Function: "nvmlDeviceGetGpuInstanceProfileInfo"},

	{Function: "nvmlDeviceGetSupportedEventTypes", Values: value},
	{Function: "nvmlEventSetCreate", System: true, Methods: names("Interface.EventSetCreate")},
	{Function: "nvmlEventSetFree", Key: "-", Methods: names("EventSet.Free")},
	{Function: "nvmlDeviceRegisterEvents", Key: "RegisterEvents", Methods: names("Device.RegisterEvents")},
	{Function: "nvmlEventSetWait", Newest: 2, Waits: true, System: true, Methods: names("EventSet.Wait")},
}

func engine(e gpu.Engine, what string) []Reading {
	to := fmt.Sprintf("Engines[%q]", e)
	return readings(fast("engine_"+string(e), what+" utilization over the driver's period.", Percent, to).
		rejected("engine_utilization"))
}

func pcie(name, doc, to string, limit float64) []Reading {
	return readings(slow(name, doc, Number, to).within(1, limit).rejected("pcie_link"))
}

// clockReadings are the clocks of domains, by NVML's numbers.
func clockReadings(group func(name, doc string, unit Unit, to ...string) Reading, name, doc, to string,
	domains ...int) []Reading {
	var list []Reading
	for _, d := range domains {
		clock := gpu.Clocks[d]
		list = append(list, group(name+"_"+string(clock), doc+" of the domain.", Megahertz,
			fmt.Sprintf("%s[%q]", to, clock)).
			arg("CLOCK_"+strings.ToUpper(clocks.Names[d])).rejected(name))
	}
	return list
}

// sampledReasons is the mask at each fast poll, where the driver does not count the time of all reasons.
func sampledReasons(rank int) Reading {
	return fast("clock_events_sampled", "Bit mask of the reasons that set the clocks now.", Count, "SampledReasons").
		rank(rank).instead("limited_hw_power_brake")
}

const (
	perLink  = "everyLink"
	allLinks = "allLinks"
)

// Fields is the table of field values. Names, units and scopes are those beside the constants in nvml.h 13.4; the driver
// names the type in each entry. Sources beyond the header: 197 and 198 have 32 bits (open-gpu-kernel-modules 595.45.04,
// ctrl2080bus.h: NvU32 pexCounters); 202 and 204 are read with scope UINT_MAX (DCGM 4.6.0, DcgmCMUtils.cpp); 138 and 139
// are no counters of NVLink 5 (the same modules, knvlinkGetSupportedCounters_GB100); the power scopes of 185 and 186 are
// as the GB200 in NVIDIA/k8s-test-infra, qx-gb200.xml. FieldTypes has the type of each. No GPU has confirmed them here.
var Fields = []Field{
	{ID: 185, Name: "POWER_AVERAGE", Scope: "nvml.POWER_SCOPE_GPU",
		Reading: fast("power", "Power averaged over 1 s.", Milliwatts, "Power")},
	{ID: 186, Name: "POWER_INSTANT", Scope: "nvml.POWER_SCOPE_GPU",
		Reading: fast("power_instant", "Power at the last sensor sample.", Milliwatts, "PowerInstant")},
	{ID: 185, Name: "POWER_AVERAGE", Scope: "nvml.POWER_SCOPE_MODULE",
		Reading: fast("power_module", "Power of the module (with its CPU), averaged over 1 s.", Milliwatts, "PowerModule")},
	{ID: 185, Name: "POWER_AVERAGE", Scope: "nvml.POWER_SCOPE_MEMORY",
		Reading: fast("power_memory", "Power of the memory, averaged over 1 s.", Milliwatts, "PowerMemory")},
	{ID: 186, Name: "POWER_INSTANT", Scope: "nvml.POWER_SCOPE_MODULE",
		Reading: fast("power_module_instant", "Power of the module at the last sensor sample.", Milliwatts,
			"PowerModuleInstant")},
	{ID: 83, Name: "TOTAL_ENERGY_CONSUMPTION",
		Reading: fast("energy", "Energy since the driver was loaded.", Millijoules, "Energy").kind(Counter)},
	{ID: 82, Name: "MEMORY_TEMP",
		Reading: fast("memory_temperature", "Temperature of the memory.", Celsius, "MemoryTemperature")},
	limited(74, "PERF_POLICY_POWER", gpu.LimitPowerCap),
	limited(75, "PERF_POLICY_THERMAL", gpu.LimitThermal),
	limited(76, "PERF_POLICY_SYNC_BOOST", gpu.LimitSyncBoost),
	limited(77, "PERF_POLICY_BOARD_LIMIT", gpu.LimitBoard),
	limited(79, "PERF_POLICY_RELIABILITY", gpu.LimitReliability),
	limited(269, "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", gpu.LimitSWThermal),
	limited(270, "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", gpu.LimitHWThermal),
	limited(271, "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", gpu.LimitHWPowerBrake),
	{ID: 197, Name: "PCIE_COUNT_TX_BYTES",
		Reading: fast("pcie_transmit", "Data sent over PCIe, 32 bits.", Bytes, "PCIeTransmit").kind(Counter)},
	{ID: 198, Name: "PCIE_COUNT_RX_BYTES",
		Reading: fast("pcie_receive", "Data received over PCIe, 32 bits.", Bytes, "PCIeReceive").kind(Counter)},
	// The driver's own sum first. The fields of NVLink 5 come before those of older links, which may succeed there with 0.
	nvlinkBytes(202, "NVLINK_COUNT_XMIT_BYTES", "transmit", allLinks, 0, Bytes),
	nvlinkBytes(202, "NVLINK_COUNT_XMIT_BYTES", "transmit", perLink, 1, Bytes),
	nvlinkBytes(138, "NVLINK_THROUGHPUT_DATA_TX", "transmit", allLinks, 2, KiB),
	nvlinkBytes(204, "NVLINK_COUNT_RCV_BYTES", "receive", allLinks, 0, Bytes),
	nvlinkBytes(204, "NVLINK_COUNT_RCV_BYTES", "receive", perLink, 1, Bytes),
	nvlinkBytes(139, "NVLINK_THROUGHPUT_DATA_RX", "receive", allLinks, 2, KiB),

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
	{ID: 94, Name: "PCIE_REPLAY_COUNTER",
		Reading: medium("pcie_replays", "PCIe replays.", Count, "PCIeReplays").kind(Errors)},
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
	marginLimit(193, "SHUTDOWN", gpu.SensorGPU, gpu.LimitShutdown),
	marginLimit(194, "SLOWDOWN", gpu.SensorGPU, gpu.LimitSlowdown),
	marginLimit(195, "MEM_MAX", gpu.SensorMemory, gpu.LimitMaxOperating),
	marginLimit(196, "GPU_MAX", gpu.SensorGPU, gpu.LimitMaxOperating),
	scopeLimit(187, "MIN", "MODULE", "min"), scopeLimit(188, "MAX", "MODULE", "max"),
	scopeLimit(189, "DEFAULT", "MODULE", "default"), scopeLimit(190, "CURRENT", "MODULE", "enforced"),
	scopeLimit(192, "REQUESTED", "MODULE", "requested"),
	scopeLimit(187, "MIN", "GPU_BASE", "min"), scopeLimit(188, "MAX", "GPU_BASE", "max"),
	scopeLimit(189, "DEFAULT", "GPU_BASE", "default"), scopeLimit(190, "CURRENT", "GPU_BASE", "enforced"),
	{ID: 274, Name: "EDPP_MULTIPLIER", Reading: slow("edpp_multiplier", "Multiplier of the peak power limit.", Percent,
		"EDPPMultiplier").within(0, 10)},
}

// marginLimit is the margin at which a temperature limit is reached; internal/nvml/thermal.go derives the limit.
func marginLimit(id uint32, name string, sensor gpu.Sensor, limit gpu.TemperatureLimit) Field {
	return Field{ID: id, Name: "TEMPERATURE_" + name + "_TLIMIT", Reading: slow(
		fmt.Sprintf("temperature_margin_limit_%s_%s", sensor, limit), "Margin at which the limit is reached.", Celsius,
		fmt.Sprintf("MarginLimits[%q]", string(sensor)+" "+string(limit))).
		rejected("temperature_margin")}
}

// scopeLimit is a power limit of more, or less, than the GPU.
func scopeLimit(id uint32, name, scope, limit string) Field {
	key := strings.ToLower(scope)
	return Field{ID: id, Name: "POWER_" + name + "_LIMIT", Scope: "nvml.POWER_SCOPE_" + scope, Reading: slow(
		"power_limit_"+key+"_"+limit, "Power limit of the scope.", Milliwatts,
		fmt.Sprintf("ScopeLimits[%q]", key+" "+limit)).rejected("power_limit")}
}

// limited is a counter of the time in which clocks were reduced for one reason.
func limited(id uint32, name string, reason gpu.LimitReason) Field {
	return Field{ID: id, Name: name, Reading: fast("limited_"+string(reason),
		"Time in which clocks were reduced for this reason.",
		Nanoseconds, fmt.Sprintf("Limited[%q]", reason)).kind(Counter).rejected("limited_time")}
}

// nvlinkBytes is a counter of the data of all NVLinks.
func nvlinkBytes(id uint32, name, direction, scope string, rank int, unit Unit) Field {
	return Field{ID: id, Name: name, Scope: scope, Reading: fast("nvlink_"+direction,
		"Data over all NVLinks, since the driver was loaded.", unit,
		"NVLink"+strings.ToUpper(direction[:1])+direction[1:]).rank(rank).kind(Counter)}
}

// linkError is a counter of NVLink errors: the sums of all links on older drivers, then one of each link.
func linkError(id uint32, name, scope string, kind gpu.NVLinkError, rank int) Field {
	return Field{ID: id, Name: name, Scope: scope,
		Reading: medium("nvlink_errors_"+string(kind), "NVLink errors of all links.",
			Count, fmt.Sprintf("NVLinkErrors[%q]", kind)).rank(rank).kind(Errors)}
}

// All returns every reading of the call and field table.
func All() []Reading {
	var list []Reading
	for i := range Fields {
		list = append(list, Fields[i].Reading)
	}
	for i := range Calls {
		list = append(list, Calls[i].Readings...)
	}
	return list
}

// ReturnCodes are NVML's return codes by their names without NVML_ERROR_.
var ReturnCodes = map[string]int{
	"UNINITIALIZED": 1, "INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3, "NO_PERMISSION": 4, "ALREADY_INITIALIZED": 5,
	"NOT_FOUND": 6, "INSUFFICIENT_SIZE": 7, "INSUFFICIENT_POWER": 8, "DRIVER_NOT_LOADED": 9, "TIMEOUT": 10,
	"IRQ_ISSUE": 11, "LIBRARY_NOT_FOUND": 12, "FUNCTION_NOT_FOUND": 13, "CORRUPTED_INFOROM": 14, "GPU_IS_LOST": 15,
	"RESET_REQUIRED": 16, "OPERATING_SYSTEM": 17, "LIB_RM_VERSION_MISMATCH": 18, "IN_USE": 19, "MEMORY": 20,
	"NO_DATA": 21, "VGPU_ECC_NOT_SUPPORTED": 22, "INSUFFICIENT_RESOURCES": 23, "FREQ_NOT_SUPPORTED": 24,
	"ARGUMENT_VERSION_MISMATCH": 25, "DEPRECATED": 26, "NOT_READY": 27, "GPU_NOT_FOUND": 28, "INVALID_STATE": 29,
	"RESET_TYPE_NOT_SUPPORTED": 30, "UNKNOWN": 999,
}
