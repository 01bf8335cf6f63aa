package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// slowRows is the slow poll group.
var slowRows = concat(
	[]row[gpu.Slow]{
		{reading: "mig_mode", doc: "MIG mode, and what it will be after the next reset.", calls: []callID{callMIGMode}, read: readMIGMode},
		{reading: "mig_instances", doc: "The MIG devices and the GPU instances that they belong to.",
			calls: []callID{callMaxMIGCount, callMIGHandle, callUUID, callGPUInstanceID, callComputeInstanceID, callAttributes, callName}, read: readInstances},
		{reading: "mig_placement", doc: "Where the GPU instances lie, in memory slices; needs privileges.",
			calls: []callID{callGPUInstance, callGPUInstanceInfo}, read: readPlacement},
		{reading: "mig_share", doc: "Compute slices of an instance over those of the GPU's largest profile.", calls: []callID{callProfileInfo}, read: readShares},
		{reading: "power_limit", doc: "Limit that is enforced, in milliwatts.", calls: []callID{callEnforcedLimit},
			read: powerCall(callEnforcedLimit, nvml.Device.GetEnforcedPowerLimit, func(to *gpu.Slow) *gpu.Opt[gpu.Watts] { return &to.PowerLimit })},
		{reading: "power_limit_requested", doc: "Limit that was asked for, in milliwatts.", calls: []callID{callPowerLimit},
			read: powerCall(callPowerLimit, nvml.Device.GetPowerManagementLimit, func(to *gpu.Slow) *gpu.Opt[gpu.Watts] { return &to.PowerLimitRequested })},
		{reading: "power_limit_default", doc: "Limit after boot, in milliwatts.", calls: []callID{callDefaultLimit},
			read: powerCall(callDefaultLimit, nvml.Device.GetPowerManagementDefaultLimit, func(to *gpu.Slow) *gpu.Opt[gpu.Watts] { return &to.PowerLimitDefault })},
		{reading: "power_limit_range", doc: "Lowest and highest limit that can be set, in milliwatts.", calls: []callID{callLimitConstraints},
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				low, high, ret := get2(c, callLimitConstraints, c.handle().GetPowerManagementLimitConstraints)
				if ret == nvml.SUCCESS {
					to.PowerLimitMin, to.PowerLimitMax = gpu.Some(gpu.Watts(low)/1000), gpu.Some(gpu.Watts(high)/1000)
				}
				return ret
			}},
	},
	thresholdRows(),
	maxClockRows(),
	[]row[gpu.Slow]{
		{reading: "persistence_mode", doc: "Whether the driver stays loaded without clients.", calls: []callID{callPersistenceMode},
			read: mode(callPersistenceMode, nvml.Device.GetPersistenceMode, func(to *gpu.Slow) *gpu.Opt[bool] { return &to.PersistenceMode })},
		{reading: "accounting_mode", doc: "Whether the driver keeps accounts of processes.", calls: []callID{callAccountingMode},
			read: mode(callAccountingMode, nvml.Device.GetAccountingMode, func(to *gpu.Slow) *gpu.Opt[bool] { return &to.AccountingMode })},
		{reading: "display_active", doc: "Whether a display is driven.", calls: []callID{callDisplayActive},
			read: mode(callDisplayActive, nvml.Device.GetDisplayActive, func(to *gpu.Slow) *gpu.Opt[bool] { return &to.DisplayActive })},
		{reading: "compute_mode", doc: "Who may open compute contexts.", calls: []callID{callComputeMode},
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				m, ret := get(c, callComputeMode, c.handle().GetComputeMode)
				// NVML numbers the modes in the order of the list.
				if ret == nvml.SUCCESS && m >= 0 && int(m) < len(gpu.ComputeModes) {
					to.ComputeMode = gpu.Some(gpu.ComputeModes[m])
				}
				return ret
			}},
		{reading: "ecc_mode", doc: "ECC mode, and what it will be after the next reset.", calls: []callID{callECCMode},
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				current, pending, ret := get2(c, callECCMode, c.handle().GetEccMode)
				if ret == nvml.SUCCESS {
					to.ECCMode = gpu.Some(gpu.ModePair{Current: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED})
				}
				return ret
			}},
		{reading: "row_remap_banks", doc: "Banks by spare rows left.", calls: []callID{callRemapHistogram},
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				h, ret := get(c, callRemapHistogram, c.handle().GetRowRemapperHistogram)
				if ret == nvml.SUCCESS {
					to.RemapBanks = map[gpu.BankAvailability]uint64{gpu.BanksMax: uint64(h.Max), gpu.BanksHigh: uint64(h.High),
						gpu.BanksPartial: uint64(h.Partial), gpu.BanksLow: uint64(h.Low), gpu.BanksNone: uint64(h.None)}
				}
				return ret
			}},
		{reading: "pcie_link_generation", doc: "PCIe generation now.", calls: []callID{callPCIeGeneration},
			read: number(callPCIeGeneration, nvml.Device.GetCurrPcieLinkGeneration, func(to *gpu.Slow) *gpu.Opt[int] { return &to.PCIe.Generation })},
		{reading: "pcie_link_width", doc: "PCIe lanes now.", calls: []callID{callPCIeWidth},
			read: number(callPCIeWidth, nvml.Device.GetCurrPcieLinkWidth, func(to *gpu.Slow) *gpu.Opt[int] { return &to.PCIe.Width })},
		{reading: "pcie_link_generation_max", doc: "Highest PCIe generation of GPU and slot.", calls: []callID{callPCIeMaxGeneration},
			read: number(callPCIeMaxGeneration, nvml.Device.GetMaxPcieLinkGeneration, func(to *gpu.Slow) *gpu.Opt[int] { return &to.PCIe.MaxGeneration })},
		{reading: "pcie_link_width_max", doc: "Most PCIe lanes of GPU and slot.", calls: []callID{callPCIeMaxWidth},
			read: number(callPCIeMaxWidth, nvml.Device.GetMaxPcieLinkWidth, func(to *gpu.Slow) *gpu.Opt[int] { return &to.PCIe.MaxWidth })},
		{reading: "nvlink_links", doc: "NVLinks by state.", calls: []callID{callNVLinkState}, read: readNVLinks},
		{reading: "fabric", doc: "Registration with the NVSwitch fabric, and its health.", calls: []callID{callFabric}, read: readFabric},
	},
)

// mode makes the read of a call that returns on or off.
func mode(id callID, method func(nvml.Device) (nvml.EnableState, nvml.Return), at func(*gpu.Slow) *gpu.Opt[bool]) func(*GPU, *gpu.Slow) nvml.Return {
	return func(c *GPU, to *gpu.Slow) nvml.Return {
		on, ret := get(c, id, func() (nvml.EnableState, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			*at(to) = gpu.Some(on == nvml.FEATURE_ENABLED)
		}
		return ret
	}
}

// number makes the read of a call that returns a count.
func number(id callID, method func(nvml.Device) (int, nvml.Return), at func(*gpu.Slow) *gpu.Opt[int]) func(*GPU, *gpu.Slow) nvml.Return {
	return func(c *GPU, to *gpu.Slow) nvml.Return {
		n, ret := get(c, id, func() (int, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			*at(to) = gpu.Some(n)
		}
		return ret
	}
}

// readNVLinks asks every link for its state. The links that exist are found out by the first read.
func readNVLinks(c *GPU, to *gpu.Slow) nvml.Return {
	ask := c.links
	if ask == nil {
		for link := range nvml.NVLINK_MAX_LINKS {
			ask = append(ask, link)
		}
	}
	var count gpu.NVLinkCount
	var exist []int
	fate := nvml.ERROR_NOT_SUPPORTED
	for _, link := range ask {
		state, ret := get(c, callNVLinkState, func() (nvml.EnableState, nvml.Return) { return c.handle().GetNvLinkState(link) }, link)
		if whole(ret) != nil {
			return ret
		}
		switch {
		case ret == nvml.SUCCESS:
			exist = append(exist, link)
			if state == nvml.FEATURE_ENABLED {
				count.Up++
			} else {
				count.Down++
			}
		case notOffered(ret), ret == nvml.ERROR_INVALID_ARGUMENT:
			if link == 0 {
				return ret // a GPU without NVLink says so at the first
			}
		default:
			fate = ret
		}
	}
	if fate != nvml.ERROR_NOT_SUPPORTED || len(exist) == 0 {
		return fate
	}
	c.links = exist
	to.NVLinks = gpu.Some(count)
	return nvml.SUCCESS
}

// fabricFaults are the parts of the fabric's health mask: where they lie and which values mean no and yes.
// 0 is always "not told".
var fabricFaults = []struct {
	fault       gpu.FabricFault
	shift, mask uint32
	no          uint32
}{
	{gpu.FabricDegradedBandwidth, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE},
	{gpu.FabricRouteRecovery, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_FALSE},
	{gpu.FabricRouteUnhealthy, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE},
	{gpu.FabricAccessTimeout, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_FALSE},
	{gpu.FabricIncorrectConfig, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION, nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE},
}

// faultsOf reads a health mask.
func faultsOf(mask uint32) map[gpu.FabricFault]bool {
	faults := map[gpu.FabricFault]bool{}
	for _, f := range fabricFaults {
		if v := mask >> f.shift & f.mask; v != 0 {
			faults[f.fault] = v != f.no
		}
	}
	return faults
}

// readFabric asks with the newest structure first; a driver that does not know it is asked with the one before.
func readFabric(c *GPU, to *gpu.Slow) nvml.Return {
	info, ret := get(c, callFabric, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return c.handle().GetGpuFabricInfoV().V3() })
	state, mask := info.State, info.HealthMask
	if ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH || ret == nvml.ERROR_INVALID_ARGUMENT {
		var older nvml.GpuFabricInfo_v2
		older, ret = get(c, callFabric, func() (nvml.GpuFabricInfo_v2, nvml.Return) { return c.handle().GetGpuFabricInfoV().V2() })
		state, mask = older.State, older.HealthMask
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	// NVML numbers the states in the order of the list, after "not supported".
	if state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED || int(state) > len(gpu.FabricStates) {
		return nvml.ERROR_NOT_SUPPORTED
	}
	to.Fabric = gpu.Some(gpu.Fabric{State: gpu.FabricStates[state-1], Faults: faultsOf(mask)})
	return ret
}
