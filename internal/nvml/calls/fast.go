package calls

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// fastCalls are those of the fast poll group.
var fastCalls = []Call{
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
}

// fastFields are those of the fast poll group.
var fastFields = []Field{
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
	{ID: 82, Name: "MEMORY_TEMP", Reading: fast("memory_temperature", "Temperature of the memory.", Celsius, "MemoryTemperature")},
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
}

func engine(e gpu.Engine, what string) []Reading {
	to := fmt.Sprintf("Engines[%q]", e)
	return readings(fast("engine_"+string(e), what+" utilization over the driver's period.", Percent, to).
		rejected("engine_utilization"))
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
