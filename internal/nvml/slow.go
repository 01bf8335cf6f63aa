package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// slowRows is the slow poll group.
var slowRows = slices.Concat(
	[]row[gpu.Slow]{
		{reading: "mig_mode", read: readMIGMode},
		{reading: "mig_instances", read: readInstances},
		{reading: "mig_placement", read: readPlacement},
		{reading: "mig_share", read: readShares},
	},
	slowValues, slowDetails,
	thresholdRows(),
	[]row[gpu.Slow]{
		{reading: "ecc_mode", read: plainPair(callEccMode, nvml.Device.GetEccMode,
			func(to *gpu.Slow, current, pending nvml.EnableState) {
				to.ECCMode = gpu.Some(gpu.ModePair{Current: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED})
			})},
		{reading: "row_remap_banks", read: plain(callRowRemapperHistogram, nvml.Device.GetRowRemapperHistogram,
			func(to *gpu.Slow, h nvml.RowRemapperHistogramValues) {
				to.RemapBanks = map[gpu.BankAvailability]uint64{gpu.BanksMax: uint64(h.Max), gpu.BanksHigh: uint64(h.High),
					gpu.BanksPartial: uint64(h.Partial), gpu.BanksLow: uint64(h.Low), gpu.BanksNone: uint64(h.None)}
			})},
		{reading: "nvlink_links", read: readNVLinks},
		{reading: "fabric", read: readFabric},
	},
)

// readNVLinks reads the state of every link. The first read finds the links that exist.
func readNVLinks(c *GPU, to *gpu.Slow) nvml.Return {
	read := c.links
	if read == nil {
		for link := range nvml.NVLINK_MAX_LINKS {
			read = append(read, link)
		}
	}
	var count gpu.NVLinkCount
	var exist []int
	var up []gpu.Link
	result := nvml.ERROR_NOT_SUPPORTED
	for _, link := range read {
		state, ret := get(c, callNvLinkState, func() (nvml.EnableState, nvml.Return) { return c.handle().GetNvLinkState(link) }, link)
		if whole(ret) != nil {
			return ret
		}
		switch {
		case ret == nvml.SUCCESS:
			exist = append(exist, link)
			if c.dev.session.library.options.Links {
				up = append(up, gpu.Link{Kind: gpu.LinkNVLink, Index: link, Value: gpu.LinkUp, N: uint64(state)})
			}
			if state == nvml.FEATURE_ENABLED {
				count.Up++
			} else {
				count.Down++
			}
		case notOffered(ret), ret == nvml.ERROR_INVALID_ARGUMENT:
			if link == 0 {
				return ret // a GPU without NVLink
			}
		default:
			result = ret
		}
	}
	if result != nvml.ERROR_NOT_SUPPORTED || len(exist) == 0 {
		return result
	}
	c.links = exist
	to.NVLinks, to.Links = gpu.Some(count), up
	return nvml.SUCCESS
}

// fabricFaults are the parts of the fabric's health mask: their place, and the value for no. 0 is always "not
// reported".
var fabricFaults = []struct {
	fault       gpu.FabricFault
	shift, mask uint32
	no          uint32
}{
	{gpu.FabricDegradedBandwidth, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE},
	{gpu.FabricRouteRecovery, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_FALSE},
	{gpu.FabricRouteUnhealthy, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE},
	{gpu.FabricAccessTimeout, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY,
		nvml.GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_FALSE},
	{gpu.FabricIncorrectConfig, nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION,
		nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE},
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

// readFabric reads the newest structure; from a driver that does not have it, the one before.
func readFabric(c *GPU, to *gpu.Slow) nvml.Return {
	info, ret := get(c, callGpuFabricInfoV, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return c.handle().GetGpuFabricInfoV().V3() })
	if ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH || ret == nvml.ERROR_INVALID_ARGUMENT {
		var older nvml.GpuFabricInfo_v2
		older, ret = get(c, callGpuFabricInfoV,
			func() (nvml.GpuFabricInfo_v2, nvml.Return) { return c.handle().GetGpuFabricInfoV().V2() })
		info = nvml.GpuFabricInfo_v3{ClusterUuid: older.ClusterUuid, Status: older.Status, CliqueId: older.CliqueId,
			State: older.State, HealthMask: older.HealthMask}
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	// NVML numbers the states in the order of the list, after "not supported".
	if info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED || info.State > nvml.GPU_FABRIC_STATE_COMPLETED {
		return nvml.ERROR_NOT_SUPPORTED
	}
	f := gpu.Fabric{State: gpu.FabricStates[info.State-1], Clique: int(info.CliqueId), Faults: faultsOf(info.HealthMask)}
	if f.State == gpu.FabricCompleted { // the header: "must be checked only if Probe state returns complete"
		if f.Status = codeName(nvml.Return(info.Status)); f.Status != codeName(nvml.SUCCESS) {
			f.State = gpu.FabricFailed
		}
	}
	if u := info.ClusterUuid; u != [16]uint8{} {
		f.Cluster = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	}
	if n := int(info.HealthSummary); n > 0 && n <= len(gpu.FabricHealths) {
		f.Health = gpu.FabricHealths[n-1]
	}
	partition := info.HealthMask >> nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_PARTITION_ASSIGNED &
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_PARTITION_ASSIGNED
	if partition != nvml.GPU_FABRIC_HEALTH_MASK_PARTITION_ASSIGNED_NOT_SUPPORTED {
		f.Partitioned = gpu.Some(partition == nvml.GPU_FABRIC_HEALTH_MASK_PARTITION_ASSIGNED_TRUE)
	}
	to.Fabric = gpu.Some(f)
	return ret
}
