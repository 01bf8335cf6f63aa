package calls

import "slices"

// FieldType is the type of the values of nvmlDeviceGetFieldValues, for a range of fields. The driver names the type in
// each entry, and the exporter reads by that: the table is for the stand-in driver, and for hwcheck, which compares it
// with a driver.
type FieldType struct {
	First, Last uint32
	// Value is NVML's nvmlValueType_t.
	Value uint32
	// Source is where the type stands: the getter of the same value in nvml.h 13.4, a file of the kernel modules, or a
	// program that checks the type. "none" is a guess.
	Source string
}

// The types of nvmlValueType_t that fields have.
const (
	typeUint      = 1
	typeULongLong = 3
	typeInt       = 5
)

const retired, errorCounter = "nvmlDeviceGetRetiredPages: unsigned int", "nvmlDeviceGetNvLinkErrorCounter: unsigned long long"

// FieldTypes is the table, by field.
var FieldTypes = []FieldType{
	{1, 2, typeUint, "nvmlDeviceGetEccMode: nvmlEnableState_t"},
	{29, 31, typeUint, retired},
	{38, 38, typeULongLong, errorCounter},
	{45, 45, typeULongLong, errorCounter},
	{52, 52, typeULongLong, errorCounter},
	{59, 59, typeULongLong, errorCounter},
	{74, 79, typeULongLong, "nvmlDeviceGetViolationStatus: nvmlViolationTime_t, unsigned long long"},
	{82, 82, typeUint, "nvmlDeviceGetTemperature: unsigned int; public readers of the field take uiVal for this type alone"},
	{83, 83, typeULongLong, "nvmlDeviceGetTotalEnergyConsumption: unsigned long long"},
	{84, 89, typeUint, "none; nvmlDeviceGetPcieReplayCounter and its neighbors have unsigned int"},
	{90, 91, typeUint, "openucx/ucx, uct/cuda/base: checks NVLINK_SPEED_MBPS_COMMON and NVLINK_LINK_COUNT for this type"},
	{92, 95, typeUint, "nvmlDeviceGetPcieReplayCounter: unsigned int"},
	{138, 139, typeULongLong, "nvmlDeviceGetNvLinkUtilizationCounter: unsigned long long"},
	{142, 147, typeUint, "nvmlDeviceGetRemappedRows: unsigned int"},
	{160, 160, typeULongLong, errorCounter},
	{161, 184, typeUint, "none"},
	{185, 186, typeUint, "nvmlDeviceGetPowerUsage: unsigned int"},
	{187, 190, typeUint, "nvmlDeviceGetPowerManagementLimitConstraints: unsigned int"},
	{192, 192, typeUint, "nvmlDeviceGetPowerManagementLimit: unsigned int"},
	{193, 196, typeInt, "nvmlDeviceGetMarginTemperature: int"},
	{197, 198, typeUint, "open-gpu-kernel-modules 595.45.04, ctrl2080bus.h: NvU32 pexCounters"},
	{199, 200, typeUint, "none"},
	{202, 221, typeULongLong, "none; the totals of links in nvml.h have 64 bits"},
	{226, 227, typeUint, "none"},
	{230, 230, typeUint, "nvml.h: nvmlDeviceGpuRecoveryAction_t, an enumeration"},
	{231, 234, typeUint, "none"},
	{269, 271, typeULongLong, "as 74 to 79, whose names they continue"},
	{274, 274, typeULongLong, "none"},
	{301, 302, typeULongLong, "none"},
}

// TypeOf returns the type of a field; false where the table has none.
func TypeOf(id uint32) (FieldType, bool) {
	i := slices.IndexFunc(FieldTypes, func(t FieldType) bool { return id >= t.First && id <= t.Last })
	if i < 0 {
		return FieldType{Value: typeULongLong}, false
	}
	return FieldTypes[i], true
}
