// Package catalogtest makes Views for tests: one in which every row of the catalog has something to say.
package catalogtest

import (
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// At is the moment of the views.
var At = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// FullView returns a View in which every family has at least one series: a healthy GPU with everything,
// a MIG GPU, a lost GPU and one that is missing from NVML.
func FullView() *gpu.View {
	whole := fullGPU()
	for _, reading := range []any{whole.Fast.Or(nil), whole.Medium.Or(nil), whole.Slow.Or(nil)} {
		fill(reflect.ValueOf(reading).Elem())
	}
	mig := migGPU()
	lost := gpu.GPU{
		Identity: gpu.Identity{UUID: "GPU-33333333-3333-3333-3333-333333333333", Index: 2, PCI: "0000:29:00.0",
			Model: "NVIDIA H100 80GB HBM3"},
		State: gpu.DeviceFailed, Message: "lost: fell off the bus",
		LastRead:       map[gpu.PollGroup]time.Time{gpu.PollFast: At.Add(-time.Minute)},
		Recovery:       gpu.Some(gpu.RecoveryReset),
		KubeletHealthy: gpu.Some(false),
		Taints:         []gpu.Taint{{Key: "gpu.nvidia.com/gpu-lost", Value: "true", Effect: "NoExecute"}},
		XIDs: []gpu.XIDCount{{XID: 79, Count: 1, Last: gpu.Some(At.Add(-time.Minute)), GI: gpu.Some(3),
			Container: gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}}},
		GPUSeconds:      map[gpu.TimeState]gpu.Seconds{gpu.TimeUnavailable: 60},
		AllocationRatio: gpu.Some(gpu.Ratio(1)),
		// What was read before must not show any more.
		Fast:     gpu.Some(&gpu.Fast{Power: gpu.Some(gpu.Watts(1))}),
		Activity: gpu.Activity{Busy: gpu.Some(gpu.Seconds(9))},
	}
	missing := gpu.GPU{Identity: gpu.Identity{UUID: "0000:41:00.0", Index: -1, PCI: "0000:41:00.0"},
		State:      gpu.DeviceMissing,
		GPUSeconds: map[gpu.TimeState]gpu.Seconds{gpu.TimeUnavailable: 60}}
	detached := gpu.GPU{Identity: gpu.Identity{UUID: "0000:52:00.0", Index: -1, PCI: "0000:52:00.0"},
		State: gpu.DeviceDetached}

	trainer := gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}
	server := gpu.Container{Namespace: "web", Pod: "serve-0", Name: "api"}
	return &gpu.View{
		At: At, Node: "node-1", Build: gpu.Build{Version: "1.2.3", Revision: "abc", GoVersion: "go1.26"},
		System: gpu.Some(gpu.System{DriverVersion: "580.105.08", CUDAVersion: "13.0", NVMLVersion: "13.580.105.08"}),
		GPUs:   []gpu.GPU{whole, mig, lost, missing, detached},
		Devices: map[gpu.DeviceState]int{gpu.DeviceUp: 2, gpu.DeviceFailed: 1, gpu.DeviceMissing: 1,
			gpu.DeviceDetached: 1},
		Ownership: true,
		Containers: []gpu.ContainerGPU{
			{Container: trainer, GPU: whole.UUID, Index: 0, Allocated: gpu.Some(gpu.Seconds(100)),
				Busy: gpu.Some(gpu.Seconds(60)), Observed: gpu.Some(gpu.Seconds(100)),
				Idle: gpu.Some(gpu.Seconds(10)), Gap: gpu.Some(gpu.Seconds(30)), Energy: gpu.Some(gpu.Joules(30000)),
				Memory:    gpu.Some(gpu.Bytes(1 << 34)),
				Processes: gpu.Some(1), LastBusy: gpu.Some(At), Since: gpu.Some(At.Add(-100 * time.Second)),
				Attribution: "exclusive", Source: gpu.SourcePodResources,
				Mismatch: []string{"used_other_gpu"}},
			{Container: gpu.Container{Namespace: "ml", Pod: "done-0", Name: "main"}, GPU: whole.UUID, Index: 0,
				Allocated: gpu.Some(gpu.Seconds(5)),
				Memory:    gpu.Some(gpu.Bytes(7)), Ended: true},
		},
		Allocations: []gpu.ContainerAllocation{
			{Allocation: gpu.Allocation{Container: trainer, Resource: "nvidia.com/gpu", GPU: whole.UUID,
				Share: gpu.Some(gpu.Ratio(1)), Source: gpu.SourcePodResources}, Index: 0,
				AllocationRatio: gpu.Some(gpu.Ratio(1))},
			{Allocation: gpu.Allocation{Container: server, Resource: "nvidia.com/mig-1g.10gb", GPU: mig.UUID,
				Instance: mig.Instances[0].UUID, Share: gpu.Some(gpu.Ratio(1)),
				MemoryLimit: gpu.Some(gpu.Bytes(10 << 30)), MemoryGuaranteed: gpu.Some(gpu.Bytes(5 << 30)),
				ComputeLimit: gpu.Some(gpu.Ratio(0.25))}, Index: 1,
				AllocationRatio: gpu.Some(gpu.Ratio(1.0 / 7))},
		},
		Unresolved: []gpu.Unresolved{{Container: server, Resource: "aliyun.com/gpu-mem", Devices: 3}},
		Resources:  []gpu.ResourceCount{{Resource: "nvidia.com/gpu", Allocatable: gpu.Some(8), Allocated: 1}},
		Pods:       []gpu.PodRef{{Namespace: "ml", Pod: "train-0"}},
		Visible: []gpu.VisibleGPU{{Container: trainer, GPU: whole.UUID, Index: 0},
			{Container: server, GPU: whole.UUID, Index: 0}},
		Sources: []gpu.Source{{Name: gpu.SourceNVML, Up: true, LastSuccess: gpu.Some(At), Errors: 1,
			Duration: gpu.Some(20 * time.Millisecond)}},
		PollGroups: []gpu.PollHealth{{PollGroup: gpu.PollFast, Interval: 2 * time.Second,
			Duration: gpu.Some(3 * time.Millisecond)}},
		Calls: []gpu.CallStats{{Call: "nvmlDeviceGetPowerUsage",
			Duration: gpu.Histogram{Count: 3, Sum: 0.006, Zero: 1, Buckets: []gpu.Bucket{{Index: -72, Count: 1}, {Index: -70, Count: 1}}},
			Errors:   []gpu.CodeCount{{Code: "GPU_IS_LOST", Count: 2}}}},
		Accounts: gpu.Some(gpu.Accounts{Own: 2, Limit: 1000}),
		Panics:   gpu.Some(uint64(1)), Rejected: []gpu.RejectedCount{{Reading: "utilization", Count: 1}},
		Features: []gpu.Feature{{Name: "processes", State: gpu.FeatureMissingPermission, Hint: "Set hostPID: true."}},
		Paused:   []gpu.Pause{{Reason: "mig_change"}},
	}
}

// fill makes the optional values of a reading present that fullGPU leaves absent, so that a new one has a series here
// without a line of its own. The value is zero.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Struct {
			continue
		}
		if present := f.FieldByName("ok"); present.IsValid() && !present.Bool() {
			reflect.NewAt(present.Type(), unsafe.Pointer(present.UnsafeAddr())).Elem().SetBool(true)
		}
		if strings.HasSuffix(f.Type().PkgPath(), "internal/gpu") && !f.FieldByName("ok").IsValid() {
			fill(f)
		}
	}
}

func fullGPU() gpu.GPU {
	return gpu.GPU{
		Identity: gpu.Identity{UUID: "GPU-11111111-1111-1111-1111-111111111111", Index: 0, PCI: "0000:18:00.0",
			Minor: gpu.Some(0), Model: "NVIDIA H100 80GB HBM3",
			Brand: "NVIDIA", Architecture: "Hopper", ComputeCapability: "9.0", Serial: "1650000000001",
			BoardPart: "692-2G520-0200-000", VBIOS: "96.00.99.00.01", NUMANode: gpu.Some(0),
			Firmware: gpu.Firmware{GSP: "580.105.08"}, Platform: gpu.Platform{Known: true}},
		State:    gpu.DeviceUp,
		LastRead: map[gpu.PollGroup]time.Time{gpu.PollFast: At, gpu.PollMedium: At, gpu.PollSlow: At},
		Recovery: gpu.Some(gpu.RecoveryNone),
		Fast: gpu.Some(&gpu.Fast{
			Power: gpu.Some(gpu.Watts(300)), PowerInstant: gpu.Some(gpu.Watts(310)),
			PowerModule: gpu.Some(gpu.Watts(500)), PowerMemory: gpu.Some(gpu.Watts(44)),
			MemoryTemperature: gpu.Some(gpu.Celsius(60)),
			Engines:           map[gpu.Engine]gpu.Ratio{gpu.EngineDecoder: 0.5, gpu.EngineEncoder: 0},
		}),
		Medium: gpu.Some(&gpu.Medium{
			Memory:      gpu.Some(gpu.Memory{Total: 1000, Used: 300, Free: 600, Reserved: gpu.Some(gpu.Bytes(100))}),
			BAR1:        gpu.Some(gpu.BAR1{Total: 1000, Used: 1}),
			Temperature: gpu.Some(gpu.Celsius(55)), Fans: []gpu.Opt[gpu.Ratio]{gpu.Some(gpu.Ratio(0.4)), {}},
			Clocks: map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 1.98e9}, PState: gpu.Some(0), ClockEvents: gpu.Some(4),
			ECC: []gpu.ECCCount{{Severity: gpu.ECCCorrected, Memory: gpu.ECCDRAM,
				Volatile: gpu.Some(uint64(1)), Lifetime: gpu.Some(uint64(2))}},
			RemappedRows: map[gpu.RemapCause]uint64{gpu.CauseCorrected: 0, gpu.CauseUncorrected: 1},
			RemapPending: gpu.Some(false), RemapFailed: gpu.Some(false),
			RetiredPages: map[gpu.RemapCause]uint64{gpu.CauseDoubleBit: 1}, RetirePending: gpu.Some(true),
			PCIeReplays:   gpu.Some(uint64(3)),
			RemapInactive: map[gpu.RemapCause]uint64{gpu.CauseCorrected: 0},
			NVLinkErrors:  map[gpu.NVLinkError]uint64{gpu.NVLinkReplay: 1},
			Processes: gpu.Some([]gpu.Process{{PID: 10, Kinds: []gpu.ProcessKind{gpu.ProcessCompute},
				Memory: gpu.Some(gpu.Bytes(300))}}),
		}),
		Slow: gpu.Some(&gpu.Slow{
			PowerLimit: gpu.Some(gpu.Watts(700)), PowerLimitRequested: gpu.Some(gpu.Watts(700)),
			PowerLimitDefault: gpu.Some(gpu.Watts(700)), PowerLimitMin: gpu.Some(gpu.Watts(200)),
			PowerLimitMax:     gpu.Some(gpu.Watts(700)),
			TemperatureLimits: []gpu.TemperatureThreshold{{Sensor: gpu.SensorGPU, Limit: gpu.LimitSlowdown, Value: 89}},
			MaxClocks:         map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 1.98e9},
			ApplicationClocks: map[gpu.Clock]gpu.Hertz{gpu.ClockGraphics: 1.98e9},
			DefaultClocks:     map[gpu.Clock]gpu.Hertz{gpu.ClockGraphics: 1.98e9},
			ScopeLimits:       map[string]gpu.Watts{"module min": 200},
			MarginLimits:      map[string]gpu.Celsius{"memory max_operating": 0},
			PersistenceMode:   gpu.Some(true), AccountingMode: gpu.Some(false), DisplayActive: gpu.Some(false),
			ComputeMode: gpu.Some(gpu.ComputeDefault),
			MIGMode:     gpu.Some(gpu.ModePair{}), ECCMode: gpu.Some(gpu.ModePair{Current: true, Pending: true}),
			RemapBanks: map[gpu.BankAvailability]uint64{gpu.BanksMax: 2560},
			Links: []gpu.Link{{Kind: gpu.LinkNVLink, Value: gpu.LinkUp, N: 1}, {Kind: gpu.LinkNVLink, Value: gpu.LinkTransmit, N: 9},
				{Kind: gpu.LinkNVLink, Value: gpu.LinkReceive, N: 8}, {Kind: gpu.LinkNVLink, Value: "replay"},
				{Kind: gpu.LinkC2C, Value: gpu.LinkUp, N: 1}, {Kind: gpu.LinkC2C, Value: "crc", N: 2},
				{Kind: gpu.LinkPCIe, Value: "fatal"}},
			PCIe:    gpu.PCIeLink{Generation: gpu.Some(5), Width: gpu.Some(16), MaxGeneration: gpu.Some(5), MaxWidth: gpu.Some(16)},
			NVLinks: gpu.Some(gpu.NVLinkCount{Up: 18}), Encoder: gpu.Some(gpu.Sessions{Count: 1, FPS: 60}),
			Fabric: gpu.Some(gpu.Fabric{State: gpu.FabricCompleted, Status: "SUCCESS", Health: "healthy",
				Faults: map[gpu.FabricFault]bool{gpu.FabricDegradedBandwidth: true}}),
		}),
		XIDs: []gpu.XIDCount{{XID: 79}, {XID: 13, Count: 2, Last: gpu.Some(At)}},
		Activity: gpu.Activity{Method: gpu.Some(gpu.MethodRing), Busy: gpu.Some(gpu.Seconds(60)),
			Observed: gpu.Some(gpu.Seconds(100)), MemoryBusy: gpu.Some(gpu.Seconds(20)),
			Mean: gpu.Some(gpu.Ratio(0.6)), Peak: gpu.Some(gpu.Ratio(1)), LastBusy: gpu.Some(At),
			Profiled: gpu.Some(gpu.Seconds(100)), SMActive: gpu.Some(gpu.Seconds(50)),
			SMOccupancy: gpu.Some(gpu.Seconds(20)), TensorActive: gpu.Some(gpu.Seconds(30)),
			DRAMActive: gpu.Some(gpu.Seconds(25)), Pipes: map[gpu.Pipe]gpu.Seconds{gpu.PipeFP32: 3},
			Energy: gpu.Some(gpu.Joules(1e6)), Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitPowerCap: 5},
			Unmeasured:   []gpu.Unmeasured{{Reading: "pcie_bytes", Reason: "counter_overflow"}},
			PCIeTransmit: gpu.Some(1e9), PCIeReceive: gpu.Some(2e9),
			NVLinkTransmit: gpu.Some(3e9), NVLinkReceive: gpu.Some(4e9)},
		GPUSeconds:      map[gpu.TimeState]gpu.Seconds{gpu.TimeBusy: 60, gpu.TimeGap: 30, gpu.TimeIdle: 10},
		AllocationRatio: gpu.Some(gpu.Ratio(1)),
		Unattributed: []gpu.Unattributed{{Reason: gpu.UnattributedHost, Busy: gpu.Some(gpu.Seconds(0)),
			Energy: gpu.Some(gpu.Joules(1)), Memory: gpu.Some(gpu.Bytes(0))}},
		AttributionErrors: []gpu.AttributionError{{Quantity: "busy"}},
		Processes: []gpu.ProcessActivity{{PID: 7, Command: "python3", Kinds: []gpu.ProcessKind{gpu.ProcessCompute, gpu.ProcessGraphics},
			Memory: gpu.Some(gpu.Bytes(1 << 30)), Busy: gpu.Some(gpu.Seconds(40))}, {Command: "other", Busy: gpu.Some(gpu.Seconds(20))}},
	}
}

func migGPU() gpu.GPU {
	in := gpu.Instance{UUID: "MIG-22222222-0001-2222-2222-222222222222", GI: 7, Profile: "1g.10gb", Slices: 1,
		PlacementStart: gpu.Some(0), PlacementSize: gpu.Some(1), Share: gpu.Some(gpu.Ratio(1.0 / 7)),
		Compute: []gpu.ComputeInstance{{UUID: "MIG-22222222-0001-2222-2222-222222222222", CI: 0, SMs: gpu.Some(16)},
			{UUID: "MIG-22222222-0002-2222-2222-222222222222", CI: 1, SMs: gpu.Some(8)}}}
	activity := gpu.Activity{Method: gpu.Some(gpu.MethodGPM), Busy: gpu.Some(gpu.Seconds(6)),
		Observed: gpu.Some(gpu.Seconds(10)), Profiled: gpu.Some(gpu.Seconds(10)), SMActive: gpu.Some(gpu.Seconds(5)),
		SMOccupancy: gpu.Some(gpu.Seconds(4)), TensorActive: gpu.Some(gpu.Seconds(3)),
		DRAMActive: gpu.Some(gpu.Seconds(2))}
	return gpu.GPU{
		Identity: gpu.Identity{UUID: "GPU-22222222-2222-2222-2222-222222222222", Index: 1, PCI: "0000:19:00.0",
			Minor: gpu.Some(1), Model: "NVIDIA H100 80GB HBM3"},
		State: gpu.DeviceUp,
		Slow:  gpu.Some(&gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{Current: true, Pending: true}), Instances: []gpu.Instance{in}}),
		Instances: []gpu.InstanceActivity{{Instance: in, Activity: activity, ComputeActivity: []gpu.Activity{activity, {}},
			AllocationRatio: gpu.Some(gpu.Ratio(1)),
			Memory:          gpu.Some(gpu.Memory{Total: 100, Used: 10, Free: 80, Reserved: gpu.Some(gpu.Bytes(10))})}},
		AllocationRatio: gpu.Some(gpu.Ratio(1.0 / 7)),
	}
}
