package calls

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// slowCalls are those of the slow poll group.
var slowCalls = []Call{
	{Function: "nvmlDeviceGetEnforcedPowerLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit", "Enforced limit.", Milliwatts, "PowerLimit"))},
	{Function: "nvmlDeviceGetPowerManagementLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit_requested", "Requested limit.", Milliwatts, "PowerLimitRequested").rejected("power_limit"))},
	{Function: "nvmlDeviceGetPowerManagementDefaultLimit", Values: value, C: u32, Readings: readings(
		slow("power_limit_default", "Limit after boot.", Milliwatts, "PowerLimitDefault").rejected("power_limit"))},
	{Function: "nvmlDeviceGetPowerManagementLimitConstraints", Values: names("min", "max"), C: u32, Readings: readings(
		slow("power_limit_range", "Minimum and maximum limit that can be set.", Milliwatts, "PowerLimitMin", "PowerLimitMax").
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
}

// slowFields are those of the slow poll group.
var slowFields = []Field{
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

func pcie(name, doc, to string, limit float64) []Reading {
	return readings(slow(name, doc, Number, to).within(1, limit).rejected("pcie_link"))
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
