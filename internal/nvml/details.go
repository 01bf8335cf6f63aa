package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// detail is a row for a structure that one call returns.
func detail[T, V any](reading, doc string, id callID, get1 func(nvml.Device) (V, nvml.Return),
	set func(to *T, v V)) row[T] {
	return row[T]{reading: reading, doc: doc, calls: []callID{id}, read: func(c *GPU, to *T) nvml.Return {
		v, ret := get(c, id, func() (V, nvml.Return) { return get1(c.handle()) })
		if ret == nvml.SUCCESS {
			set(to, v)
		}
		return ret
	}}
}

// sessions are the statistics of encoding or capture, latency in microseconds.
func sessions(count int, fps, latency uint32) gpu.Opt[gpu.Sessions] {
	return gpu.Some(gpu.Sessions{Count: count, FPS: float64(fps), Latency: gpu.Seconds(latency) / 1e6})
}

// encoderStats are the three values of a call.
type encoderStats struct {
	SessionCount               int
	AverageFps, AverageLatency uint32
}

var identityDetails = []row[gpu.Identity]{
	detail("platform", "Place of the GPU in its rack.", callPlatformInfo, nvml.Device.GetPlatformInfo,
		func(to *gpu.Identity, p nvml.PlatformInfo) {
			to.Platform = gpu.Platform{Known: true, ChassisSerial: text(p.ChassisSerialNumber[:]), Slot: int(p.SlotNumber),
				Tray: int(p.TrayIndex), Host: int(p.HostId), PeerType: int(p.PeerType), Module: int(p.ModuleId)}
		}),
}

var mediumDetails = []row[gpu.Medium]{
	detail("temperature_margin", "Degrees Celsius until the GPU slows down.", callMarginTemperature,
		nvml.Device.GetMarginTemperature, func(to *gpu.Medium, m nvml.MarginTemperature) {
			to.Margin = gpu.Some(gpu.Celsius(m.MarginTemperature))
		}),
}

var slowDetails = []row[gpu.Slow]{
	detail("encoder_sessions", "Sessions of video encoding, their frames per second and latency.", callEncoderStats,
		func(d nvml.Device) (s encoderStats, ret nvml.Return) {
			s.SessionCount, s.AverageFps, s.AverageLatency, ret = d.GetEncoderStats()
			return s, ret
		}, func(to *gpu.Slow, s encoderStats) {
			to.Encoder = sessions(s.SessionCount, s.AverageFps, s.AverageLatency)
		}),
	detail("capture_sessions", "Sessions of frame buffer capture, their frames per second and latency.", callFBCStats,
		nvml.Device.GetFBCStats, func(to *gpu.Slow, s nvml.FBCStats) {
			to.Capture = sessions(int(s.SessionsCount), s.AverageFPS, s.AverageLatency)
		}),
	detail("sram_errors", "Uncorrectable SRAM errors by kind and source.", callSramEccErrorStatus,
		nvml.Device.GetSramEccErrorStatus, func(to *gpu.Slow, s nvml.EccSramErrorStatus) {
			to.SRAM = gpu.Some(gpu.SRAMErrors{Exceeded: s.BThresholdExceeded != 0,
				Volatile: map[string]uint64{"parity": s.VolatileUncParity, "secded": s.VolatileUncSecDed},
				Lifetime: map[string]uint64{"parity": s.AggregateUncParity, "secded": s.AggregateUncSecDed},
				Sources: map[string]uint64{"l2": s.AggregateUncBucketL2, "sm": s.AggregateUncBucketSm,
					"pcie": s.AggregateUncBucketPcie, "mcu": s.AggregateUncBucketMcu, "other": s.AggregateUncBucketOther}})
		}),
	detail("repair", "Whether repairs of memory channels and of TPCs are pending.", callRepairStatus,
		nvml.Device.GetRepairStatus, func(to *gpu.Slow, s nvml.RepairStatus) {
			to.ChannelRepair, to.TPCRepair = gpu.Some(s.BChannelRepairPending != 0), gpu.Some(s.BTpcRepairPending != 0)
		}),
	detail("unrepairable_memory", "Whether the memory has errors that cannot be repaired.",
		callUnrepairableMemoryFlagV1, nvml.Device.GetUnrepairableMemoryFlag_v1,
		func(to *gpu.Slow, s nvml.UnrepairableMemoryStatus_v1) {
			to.Unrepairable = gpu.Some(s.BUnrepairableMemory != 0)
		}),
	detail("protected_memory", "Memory protected by confidential computing, in bytes.",
		callConfComputeProtectedMemoryUsage, nvml.Device.GetConfComputeProtectedMemoryUsage,
		func(to *gpu.Slow, m nvml.Memory) {
			if m.Total > 0 { // 0: the mode is off
				to.ProtectedMemory = gpu.Some(gpu.Memory{Total: gpu.Bytes(m.Total), Used: gpu.Bytes(m.Used),
					Free: gpu.Bytes(m.Free)})
			}
		}),
	detail("c2c_mode", "Whether the link to the CPU is enabled.", callC2cModeInfoV,
		func(d nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return) { return d.GetC2cModeInfoV().V1() },
		func(to *gpu.Slow, m nvml.C2cModeInfo_v1) { to.C2C = gpu.Some(m.IsC2cEnabled != 0) }),
	detail("dram_encryption", "Encryption of the memory, and what it will be after the next reset.",
		callDramEncryptionMode, func(d nvml.Device) (p pair[uint32, uint32], ret nvml.Return) {
			current, pending, ret := d.GetDramEncryptionMode()
			return pair[uint32, uint32]{current.EncryptionState, pending.EncryptionState}, ret
		}, func(to *gpu.Slow, p pair[uint32, uint32]) {
			to.DRAMEncryption = gpu.Some(gpu.ModePair{Current: p.first != 0, Pending: p.second != 0})
		}),
}

// text is a string of a fixed size.
func text(b []byte) string {
	head, _, _ := strings.Cut(string(b), "\x00")
	return strings.TrimSpace(strings.ToValidUTF8(head, "?"))
}
