package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// fastRows is the fast poll group.
var fastRows = concat(
	[]row[gpu.Fast]{
		{reading: "power", doc: "Field 185, scope GPU: power averaged over 1 s, in milliwatts.",
			field: nvml.FI_DEV_POWER_AVERAGE, scope: nvml.POWER_SCOPE_GPU,
			set: milliwatts(func(to *gpu.Fast) *gpu.Opt[gpu.Watts] { return &to.Power })},
		{reading: "power", rank: 1, doc: "Power in milliwatts; the mean of 1 s on Ampere (GA100 apart) and newer.", calls: []callID{callPowerUsage},
			read: powerCall(callPowerUsage, nvml.Device.GetPowerUsage, func(to *gpu.Fast) *gpu.Opt[gpu.Watts] { return &to.Power })},
		{reading: "power_instant", doc: "Field 186, scope GPU: power now, in milliwatts.",
			field: nvml.FI_DEV_POWER_INSTANT, scope: nvml.POWER_SCOPE_GPU,
			set: milliwatts(func(to *gpu.Fast) *gpu.Opt[gpu.Watts] { return &to.PowerInstant })},
		{reading: "power_module", doc: "Field 185, scope module (with the CPU on Grace): power averaged over 1 s, in milliwatts.",
			field: nvml.FI_DEV_POWER_AVERAGE, scope: nvml.POWER_SCOPE_MODULE,
			set: milliwatts(func(to *gpu.Fast) *gpu.Opt[gpu.Watts] { return &to.PowerModule })},
		{reading: "power_memory", doc: "Field 185, scope memory: power averaged over 1 s, in milliwatts.",
			field: nvml.FI_DEV_POWER_AVERAGE, scope: nvml.POWER_SCOPE_MEMORY,
			set: milliwatts(func(to *gpu.Fast) *gpu.Opt[gpu.Watts] { return &to.PowerMemory })},
		{reading: "energy", doc: "Field 83: energy since the driver was loaded, in millijoules.",
			field: nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION,
			set: func(to *gpu.Fast, v value) {
				if mj, ok := v.count(); ok {
					to.Energy = gpu.Some(gpu.Joules(mj) / 1000)
				}
			}},
		{reading: "energy", rank: 1, doc: "Energy since the driver was loaded, in millijoules.", calls: []callID{callTotalEnergy},
			read: func(c *GPU, to *gpu.Fast) nvml.Return {
				mj, ret := get(c, callTotalEnergy, c.handle().GetTotalEnergyConsumption)
				if ret == nvml.SUCCESS {
					to.Energy = gpu.Some(gpu.Joules(mj) / 1000)
				}
				return ret
			}},
		{reading: "memory_temperature", doc: "Field 82: temperature of the memory, in degrees Celsius.",
			field: nvml.FI_DEV_MEMORY_TEMP,
			set: func(to *gpu.Fast, v value) {
				if t, ok := v.number(); ok {
					to.MemoryTemperature = gpu.Some(gpu.Celsius(t))
				}
			}},
	},
	limitedRows(),
	[]row[gpu.Fast]{
		{reading: "pcie_transmit", doc: "Field 197: bytes sent over PCIe; may wrap.",
			field: nvml.FI_DEV_PCIE_COUNT_TX_BYTES,
			set:   traffic(1, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.PCIeTransmit })},
		{reading: "pcie_receive", doc: "Field 198: bytes received over PCIe; may wrap.",
			field: nvml.FI_DEV_PCIE_COUNT_RX_BYTES,
			set:   traffic(1, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.PCIeReceive })},
		{reading: "nvlink_transmit", doc: "Field 138, all links: KiB of data sent over NVLink.",
			field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope: allLinks,
			set: traffic(1024, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.NVLinkTransmit })},
		{reading: "nvlink_transmit", rank: 1, doc: "Field 202 of each link (NVLink 5): bytes sent.",
			field: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scope: everyLink,
			set: traffic(1, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.NVLinkTransmit })},
		{reading: "nvlink_receive", doc: "Field 139, all links: KiB of data received over NVLink.",
			field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope: allLinks,
			set: traffic(1024, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.NVLinkReceive })},
		{reading: "nvlink_receive", rank: 1, doc: "Field 204 of each link (NVLink 5): bytes received.",
			field: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scope: everyLink,
			set: traffic(1, func(to *gpu.Fast) *gpu.Opt[gpu.Bytes] { return &to.NVLinkReceive })},
		{reading: "utilization", doc: "Share of the driver's last window in which a kernel ran, and in which memory was accessed, in percent.",
			calls: []callID{callUtilizationRates},
			read: func(c *GPU, to *gpu.Fast) nvml.Return {
				u, ret := get(c, callUtilizationRates, c.handle().GetUtilizationRates)
				if ret == nvml.SUCCESS {
					to.Utilization = gpu.Some(gpu.Utilization{GPU: gpu.Ratio(u.Gpu) / 100, Memory: gpu.Ratio(u.Memory) / 100})
				}
				return ret
			}},
		{reading: "busy_samples", doc: "The driver's ring of GPU utilization, in percent of each sample's window.", calls: []callID{callSamples},
			read: func(c *GPU, to *gpu.Fast) nvml.Return {
				return readRing(c, nvml.GPU_UTILIZATION_SAMPLES, &c.busy, &to.Busy)
			}},
		{reading: "memory_busy_samples", doc: "The driver's ring of memory utilization, in percent of each sample's window.", calls: []callID{callSamples},
			read: func(c *GPU, to *gpu.Fast) nvml.Return {
				return readRing(c, nvml.MEMORY_UTILIZATION_SAMPLES, &c.memory, &to.MemoryBusy)
			}},
		{reading: "process_samples", doc: "Utilization by process since the last read, in percent.", calls: []callID{callProcessUtilization},
			read: readProcessSamples},
		{reading: "engine_encoder", doc: "Encoder utilization of the driver's window, in percent.", calls: []callID{callEncoderUtilization},
			read: engine(gpu.EngineEncoder, callEncoderUtilization, nvml.Device.GetEncoderUtilization)},
		{reading: "engine_decoder", doc: "Decoder utilization of the driver's window, in percent.", calls: []callID{callDecoderUtilization},
			read: engine(gpu.EngineDecoder, callDecoderUtilization, nvml.Device.GetDecoderUtilization)},
		{reading: "engine_jpeg", doc: "JPEG engine utilization of the driver's window, in percent.", calls: []callID{callJPEGUtilization},
			read: engine(gpu.EngineJPEG, callJPEGUtilization, nvml.Device.GetJpgUtilization)},
		{reading: "engine_ofa", doc: "Optical flow engine utilization of the driver's window, in percent.", calls: []callID{callOFAUtilization},
			read: engine(gpu.EngineOFA, callOFAUtilization, nvml.Device.GetOfaUtilization)},
		{reading: "gpm", doc: "Profiling metrics 1-5 and 10-13 between two samples, in percent.",
			calls: []callID{callGPMSupport, callGPMSampleAlloc, callGPMSampleGet, callGPMMetricsGet}, read: readGPM},
		{reading: "mig_gpm", doc: "Profiling metrics of each MIG GPU instance, in percent.",
			calls: []callID{callGPMSupport, callGPMSampleAlloc, callGPMMIGSampleGet, callGPMMetricsGet}, read: readInstanceGPM},
	},
)

// limitedFields are the driver's counters of nanoseconds in which clocks were held down.
var limitedFields = []struct {
	reason gpu.LimitReason
	field  uint32
}{
	{gpu.LimitPowerCap, nvml.FI_DEV_PERF_POLICY_POWER},
	{gpu.LimitThermal, nvml.FI_DEV_PERF_POLICY_THERMAL},
	{gpu.LimitSyncBoost, nvml.FI_DEV_PERF_POLICY_SYNC_BOOST},
	{gpu.LimitBoard, nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT},
	{gpu.LimitReliability, nvml.FI_DEV_PERF_POLICY_RELIABILITY},
	{gpu.LimitSWThermal, nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN},
	{gpu.LimitHWThermal, nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN},
	{gpu.LimitHWPowerBrake, nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN},
}

func limitedRows() []row[gpu.Fast] {
	var rows []row[gpu.Fast]
	for _, f := range limitedFields {
		rows = append(rows, row[gpu.Fast]{
			reading: "limited_" + string(f.reason), field: f.field,
			doc: "Nanoseconds in which clocks were held down for this reason.",
			set: func(to *gpu.Fast, v value) {
				if ns, ok := v.count(); ok {
					if to.Limited == nil {
						to.Limited = map[gpu.LimitReason]gpu.Seconds{}
					}
					to.Limited[f.reason] = gpu.Seconds(float64(ns) / 1e9)
				}
			}})
	}
	return rows
}

// concat joins parts of a table.
func concat[T any](parts ...[]row[T]) []row[T] {
	var rows []row[T]
	for _, p := range parts {
		rows = append(rows, p...)
	}
	return rows
}

// milliwatts makes the set of a field of power.
func milliwatts[T any](at func(*T) *gpu.Opt[gpu.Watts]) func(*T, value) {
	return func(to *T, v value) {
		if mw, ok := v.count(); ok {
			*at(to) = gpu.Some(gpu.Watts(mw) / 1000)
		}
	}
}

// powerCall makes the read of a call that returns milliwatts.
func powerCall[T any](id callID, method func(nvml.Device) (uint32, nvml.Return), at func(*T) *gpu.Opt[gpu.Watts]) func(*GPU, *T) nvml.Return {
	return func(c *GPU, to *T) nvml.Return {
		mw, ret := get(c, id, func() (uint32, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			*at(to) = gpu.Some(gpu.Watts(mw) / 1000)
		}
		return ret
	}
}

// traffic makes the set of a counter of data, in units of some bytes.
func traffic(unit uint64, at func(*gpu.Fast) *gpu.Opt[gpu.Bytes]) func(*gpu.Fast, value) {
	return func(to *gpu.Fast, v value) {
		if n, ok := v.count(); ok {
			*at(to) = gpu.Some(gpu.Bytes(n * unit))
		}
	}
}

// engine makes the read of an engine's utilization.
func engine(name gpu.Engine, id callID, method func(nvml.Device) (uint32, uint32, nvml.Return)) func(*GPU, *gpu.Fast) nvml.Return {
	return func(c *GPU, to *gpu.Fast) nvml.Return {
		percent, _, ret := get2(c, id, func() (uint32, uint32, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			if to.Engines == nil {
				to.Engines = map[gpu.Engine]gpu.Ratio{}
			}
			to.Engines[name] = gpu.Ratio(percent) / 100
		}
		return ret
	}
}
