package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// plain reads the value of a call.
func plain[T, V any](id callID, method func(nvml.Device) (V, nvml.Return), set func(to *T, v V)) func(*GPU, *T) nvml.Return {
	return func(c *GPU, to *T) nvml.Return {
		v, ret := get(c, id, func() (V, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			set(to, v)
		}
		return ret
	}
}

// plainOf reads the value of a call with an argument.
func plainOf[T, V any, A ~int32 | ~uint32](id callID, method func(nvml.Device, A) (V, nvml.Return), arg A,
	set func(to *T, v V)) func(*GPU, *T) nvml.Return {
	return func(c *GPU, to *T) nvml.Return {
		v, ret := get(c, id, func() (V, nvml.Return) { return method(c.handle(), arg) }, int(arg))
		if ret == nvml.SUCCESS {
			set(to, v)
		}
		return ret
	}
}

// plainPair reads the two values of a call.
func plainPair[T, V, W any](id callID, method func(nvml.Device) (V, W, nvml.Return), set func(to *T, v V, w W)) func(*GPU, *T) nvml.Return {
	return func(c *GPU, to *T) nvml.Return {
		v, w, ret := get2(c, id, func() (V, W, nvml.Return) { return method(c.handle()) })
		if ret == nvml.SUCCESS {
			set(to, v, w)
		}
		return ret
	}
}

// counted stores the value of a field as an unsigned number, if it is one.
func counted[T any](set func(to *T, v uint64)) func(*T, value) {
	return func(to *T, f value) {
		if v, ok := f.count(); ok {
			set(to, v)
		}
	}
}

// measured stores the value of a field that may be negative.
func measured[T any](set func(to *T, v float64)) func(*T, value) {
	return func(to *T, f value) {
		if v, ok := f.number(); ok {
			set(to, v)
		}
	}
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
	{reading: "platform", read: plain(callPlatformInfo, nvml.Device.GetPlatformInfo,
		func(to *gpu.Identity, p nvml.PlatformInfo) {
			to.Platform = gpu.Platform{Known: true, ChassisSerial: text(p.ChassisSerialNumber[:]), Slot: int(p.SlotNumber),
				Tray: int(p.TrayIndex), Host: int(p.HostId), PeerType: int(p.PeerType), Module: int(p.ModuleId)}
		})},
}

var mediumDetails = []row[gpu.Medium]{
	// In degrees Celsius, until the GPU slows down.
	{reading: "temperature_margin", read: plain(callMarginTemperature,
		nvml.Device.GetMarginTemperature, func(to *gpu.Medium, m nvml.MarginTemperature) {
			to.Margin = gpu.Some(gpu.Celsius(m.MarginTemperature))
		})},
}

var slowDetails = []row[gpu.Slow]{
	{reading: "encoder_sessions", read: plain(callEncoderStats,
		func(d nvml.Device) (s encoderStats, ret nvml.Return) {
			s.SessionCount, s.AverageFps, s.AverageLatency, ret = d.GetEncoderStats()
			return s, ret
		}, func(to *gpu.Slow, s encoderStats) {
			to.Encoder = sessions(s.SessionCount, s.AverageFps, s.AverageLatency)
		})},
	{reading: "capture_sessions", read: plain(callFBCStats,
		nvml.Device.GetFBCStats, func(to *gpu.Slow, s nvml.FBCStats) {
			to.Capture = sessions(int(s.SessionsCount), s.AverageFPS, s.AverageLatency)
		})},
	{reading: "sram_errors", read: plain(callSramEccErrorStatus,
		nvml.Device.GetSramEccErrorStatus, func(to *gpu.Slow, s nvml.EccSramErrorStatus) {
			to.SRAM = gpu.Some(gpu.SRAMErrors{Exceeded: s.BThresholdExceeded != 0,
				Volatile: map[string]uint64{"parity": s.VolatileUncParity, "secded": s.VolatileUncSecDed},
				Lifetime: map[string]uint64{"parity": s.AggregateUncParity, "secded": s.AggregateUncSecDed},
				Sources: map[string]uint64{"l2": s.AggregateUncBucketL2, "sm": s.AggregateUncBucketSm,
					"pcie": s.AggregateUncBucketPcie, "mcu": s.AggregateUncBucketMcu, "other": s.AggregateUncBucketOther}})
		})},
	{reading: "repair", read: plain(callRepairStatus,
		nvml.Device.GetRepairStatus, func(to *gpu.Slow, s nvml.RepairStatus) {
			to.ChannelRepair, to.TPCRepair = gpu.Some(s.BChannelRepairPending != 0), gpu.Some(s.BTpcRepairPending != 0)
		})},
	{reading: "unrepairable_memory", read: plain(callUnrepairableMemoryFlagV1, nvml.Device.GetUnrepairableMemoryFlag_v1,
		func(to *gpu.Slow, s nvml.UnrepairableMemoryStatus_v1) {
			to.Unrepairable = gpu.Some(s.BUnrepairableMemory != 0)
		})},
	{reading: "protected_memory", read: plain(callConfComputeProtectedMemoryUsage, nvml.Device.GetConfComputeProtectedMemoryUsage,
		func(to *gpu.Slow, m nvml.Memory) {
			if m.Total > 0 { // 0: the mode is off
				to.ProtectedMemory = gpu.Some(gpu.Memory{Total: gpu.Bytes(m.Total), Used: gpu.Bytes(m.Used),
					Free: gpu.Bytes(m.Free)})
			}
		})},
	{reading: "c2c_mode", read: plain(callC2cModeInfoV,
		func(d nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return) { return d.GetC2cModeInfoV().V1() },
		func(to *gpu.Slow, m nvml.C2cModeInfo_v1) { to.C2C = gpu.Some(m.IsC2cEnabled != 0) })},
	{reading: "dram_encryption", read: plain(callDramEncryptionMode, func(d nvml.Device) (p pair[uint32, uint32], ret nvml.Return) {
		current, pending, ret := d.GetDramEncryptionMode()
		return pair[uint32, uint32]{current.EncryptionState, pending.EncryptionState}, ret
	}, func(to *gpu.Slow, p pair[uint32, uint32]) {
		to.DRAMEncryption = gpu.Some(gpu.ModePair{Current: p.first != 0, Pending: p.second != 0})
	})},
}

// text is a string of a fixed size.
func text(b []byte) string {
	head, _, _ := strings.Cut(string(b), "\x00")
	return strings.TrimSpace(strings.ToValidUTF8(head, "?"))
}
