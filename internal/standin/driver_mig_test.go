package standin

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

func TestMIG(t *testing.T) {
	s := named(t, "h100-mig")
	lib, control := playing(t, s)
	control.Set(30 * time.Second)
	d := device(t, lib, 0)
	if cur, pending, r := d.GetMigMode(); cur != 1 || pending != 1 || r != nvml.SUCCESS {
		t.Errorf("MIG mode %d, %d, %v", cur, pending, r)
	}
	n, _ := d.GetMaxMigDeviceCount()
	if n != 7 {
		t.Errorf("at most %d devices", n)
	}
	_, want := s.Truth(0).MIG(30 * time.Second)
	found := map[gpu.UUID]nvml.Device{}
	gaps := 0
	for i := range n {
		m, r := d.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND {
			gaps++
			continue
		}
		uuid, r := m.GetUUID()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		found[gpu.UUID(uuid)] = m
	}
	if len(found) != len(want) || gaps != n-len(want) {
		t.Fatalf("%d devices and %d gaps, want %d", len(found), gaps, len(want))
	}
	for _, w := range want {
		m := found[w.UUID]
		gi, _ := m.GetGpuInstanceId()
		ci, _ := m.GetComputeInstanceId()
		is, _ := m.IsMigDeviceHandle()
		parent, _ := m.GetDeviceHandleFromMigDeviceHandle()
		a, r := m.GetAttributes()
		name, _ := m.GetName()
		mem, _ := m.GetMemoryInfo_v2()
		if gi != w.GI || ci != w.CI || !is || parent != d || r != nvml.SUCCESS || int(a.ComputeInstanceSliceCount) != w.Slices ||
			int(a.GpuInstanceSliceCount) != w.GISlices || gpu.Bytes(a.MemorySizeMB)<<20 != w.Memory || gpu.Bytes(mem.Total) != w.Memory {
			t.Errorf("%s is GI %d, CI %d, %v, %+v, memory %+v; want %+v", w.UUID, gi, ci, is, a, mem, w)
		}
		wantName := "NVIDIA H100 80GB HBM3 MIG " + w.Profile
		if w.Slices < w.GISlices {
			wantName = fmt.Sprintf("NVIDIA H100 80GB HBM3 MIG %dc.%s", w.Slices, w.Profile)
		}
		if name != wantName {
			t.Errorf("%s is called %q, want %q", w.UUID, name, wantName)
		}
		if again, r := lib.DeviceGetHandleByUUID(string(w.UUID)); r != nvml.SUCCESS || again != m {
			t.Errorf("%s is not found by its UUID: %v", w.UUID, r)
		}
		inst, r := d.GetGpuInstanceById(w.GI)
		if r != nvml.SUCCESS {
			t.Fatalf("GPU instance %d: %v", w.GI, r)
		}
		info, r := inst.GetInfo()
		if r != nvml.SUCCESS || int(info.Id) != w.GI || int(info.Placement.Start) != w.Start || int(info.Placement.Size) != w.Size {
			t.Errorf("GPU instance %d: %+v, %v", w.GI, info, r)
		}
	}
	// By profile: two instances of 1g.10gb.
	profile, r := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	if r != nvml.SUCCESS || profile.Id != 19 || profile.SliceCount != 1 || profile.InstanceCount != 7 {
		t.Errorf("profile %+v, %v", profile, r)
	}
	if list, r := d.GetGpuInstances(&profile); r != nvml.SUCCESS || len(list) != 2 {
		t.Errorf("instances of 1g.10gb: %d, %v", len(list), r)
	}
	if v3, r := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V3(); r != nvml.SUCCESS || v3.Id != 9 ||
		v3.MultiprocessorCount != 60 {
		t.Errorf("profile %+v, %v", v3, r)
	}
	if v2, r := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V2(); r != nvml.SUCCESS || v2.Id != 9 {
		t.Errorf("profile %+v, %v", v2, r)
	}
	// The GPU's process list is that of all instances, with their ids; a device's is its own.
	all, _ := d.GetComputeRunningProcesses()
	if len(all) != 4 || all[0].GpuInstanceId != 2 || all[1].ComputeInstanceId != 1 {
		t.Errorf("the gpu's processes: %+v", all)
	}
	own, _ := found["MIG-5a0e2002-1d11-5a01-8b00-000000000021"].GetComputeRunningProcesses()
	if len(own) != 1 || own[0].Pid != 7202 {
		t.Errorf("a device's processes: %+v", own)
	}
	if m, _ := found["MIG-5a0e2009-1d11-5a01-8b00-000000000090"].GetMemoryInfo(); m.Used != 3<<30 {
		t.Errorf("a device's used memory: %d", m.Used)
	}
	// No utilization under MIG, on neither handle; on a GPU without MIG there is.
	for _, x := range []nvml.Device{d, own1(found)} {
		if _, r := x.GetUtilizationRates(); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("utilization under MIG: %v", r)
		}
		if _, _, r := x.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("samples under MIG: %v", r)
		}
		if _, r := x.GetProcessUtilization(0); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("process utilization under MIG: %v", r)
		}
	}
	if _, r := own1(found).GetPowerUsage(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("power of a MIG device: %v", r)
	}
	whole := device(t, lib, 1)
	if _, r := whole.GetMigDeviceHandleByIndex(0); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a MIG device without MIG: %v", r)
	}
	if _, r := whole.GetUtilizationRates(); r != nvml.SUCCESS {
		t.Errorf("utilization without MIG: %v", r)
	}
}

func own1(found map[gpu.UUID]nvml.Device) nvml.Device {
	return found["MIG-5a0e2005-1d11-5a01-8b00-000000000050"]
}

// A new layout ends the old handles; the mode changes only when it is applied.
func TestMIGReconfiguration(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
at 10s gpu 0 mig pending on
at 20s gpu 0 mig apply layout="gi=1 profile=3g.40gb start=0 size=4"
at 30s gpu 0 mig apply layout="gi=1 profile=1g.10gb start=0 size=1 ; gi=2 profile=1g.10gb start=1 size=1"
at 40s gpu 0 mig pending off
at 50s gpu 0 mig apply layout=""
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	for _, tc := range []struct {
		at               time.Duration
		current, pending int
		devices          int
	}{{0, 0, 0, 0}, {10, 0, 1, 0}, {20, 1, 1, 1}, {30, 1, 1, 2}, {40, 1, 0, 2}, {50, 0, 0, 0}} {
		control.Set(tc.at * time.Second)
		cur, pending, r := d.GetMigMode()
		devices := 0
		for i := range 7 {
			if _, r := d.GetMigDeviceHandleByIndex(i); r == nvml.SUCCESS {
				devices++
			}
		}
		if r != nvml.SUCCESS || cur != tc.current || pending != tc.pending || devices != tc.devices {
			t.Errorf("at %d s: mode %d, pending %d, %d devices, %v; want %+v", tc.at, cur, pending, devices, r, tc)
		}
	}
	control.Set(20 * time.Second)
	old, _ := d.GetMigDeviceHandleByIndex(0)
	control.Set(30 * time.Second)
	if _, r := old.GetUUID(); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a handle of the old layout answers %v", r)
	}
}

// gpm returns metric values between two moments, or the code that they got.
func gpmMetrics(t *testing.T, lib nvml.Interface, take func(s nvml.GpmSample) nvml.Return, control *scenario.Control, t0, t1 time.Duration,
	ids ...uint32) map[uint32]float64 {
	t.Helper()
	get := nvml.GpmMetricsGetType{NumMetrics: uint32(len(ids))}
	var r nvml.Return
	for i, at := range []time.Duration{t0, t1} {
		s, r := lib.GpmSampleAlloc()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		defer s.Free()
		control.Set(at)
		if r := take(s); r != nvml.SUCCESS {
			t.Fatalf("taking a sample at %v: %v", at, r)
		}
		if i == 0 {
			get.Sample1 = s
		} else {
			get.Sample2 = s
		}
	}
	for i, id := range ids {
		get.Metrics[i].MetricId = id
	}
	if r = lib.GpmMetricsGet(&get); r != nvml.SUCCESS {
		t.Fatalf("metrics: %v", r)
	}
	out := map[uint32]float64{}
	for i, id := range ids {
		out[id] = get.Metrics[i].Value
		if code := nvml.Return(get.Metrics[i].NvmlReturn); code != nvml.SUCCESS {
			out[id] = -float64(code)
		}
	}
	return out
}

func TestGPM(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
gpu 2
gpu 3 board=b
process gpu=0 pid=1 busy=30% period=1s
`+"mig gpu=3 layout=\"gi=1 profile=1g.10gb start=4 size=1 index=0 ; "+
		"gi=2 ci=0 profile=3g.40gb start=0 size=4 slices=1 index=1 ; gi=2 ci=1 slices=2 index=2\"\n"+
		`process gpu=3 pid=4 gi=1 busy=10% period=1s
process gpu=3 pid=5 gi=2 ci=0 busy=30% period=1s
process gpu=3 pid=6 gi=2 ci=1 busy=70% period=1s phase=100ms
mig gpu=1 layout="gi=1 profile=3g.40gb start=0 size=4 ; gi=4 profile=1g.10gb start=4 size=1"
process gpu=1 pid=2 gi=1 busy=50% period=1s
process gpu=1 pid=3 gi=4 busy=10% period=1s
`)
	lib, control := playing(t, s)
	d, mig, none := device(t, lib, 0), device(t, lib, 1), device(t, lib, 2)
	if support, r := d.GpmQueryDeviceSupport(); r != nvml.SUCCESS || support.IsSupportedDevice != 1 {
		t.Errorf("support: %+v, %v", support, r)
	}
	if _, r := none.GpmQueryDeviceSupport(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("support where there is none: %v", r)
	}
	got := gpmMetrics(t, lib, d.GpmSampleGet, control, time.Second, 3*time.Second, 2, 10, 11, 248, 249)
	if math.Abs(got[2]-30) > 1e-6 || math.Abs(got[10]-15) > 1e-6 || got[11] != -float64(nvml.ERROR_NOT_SUPPORTED) ||
		math.Abs(got[248]-3e9) > 1 || math.Abs(got[249]-0.9e9) > 1 {
		t.Errorf("metrics %v", got)
	}
	if got := gpmMetrics(t, lib, d.GpmSampleGet, control, 4*time.Second, 4300*time.Millisecond, 2); math.Abs(got[2]-100) > 1e-6 {
		t.Errorf("in a busy window %v", got)
	}
	instance := func(gi int) func(s nvml.GpmSample) nvml.Return {
		return func(s nvml.GpmSample) nvml.Return { return mig.GpmMigSampleGet(gi, s) }
	}
	if got := gpmMetrics(t, lib, instance(1), control, time.Second, 3*time.Second, 2); math.Abs(got[2]-50) > 1e-6 {
		t.Errorf("instance 1: %v", got)
	}
	m, _ := mig.GetMigDeviceHandleByIndex(1)
	if got := gpmMetrics(t, lib, m.GpmSampleGet, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-10) > 1e-6 {
		t.Errorf("instance 4: %v", got)
	}
	if got := gpmMetrics(t, lib, mig.GpmSampleGet, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-(50*3+10.)/7) > 1e-6 {
		t.Errorf("the gpu under MIG: %v", got)
	}
	// Two compute instances of one GPU instance: each has its own, the GPU instance the time in which one of them is busy.
	for index, want := range []float64{10, 30, 70} { // the first is the only one of its GPU instance
		m, _ := device(t, lib, 3).GetMigDeviceHandleByIndex(index)
		if got := gpmMetrics(t, lib, m.GpmSampleGet, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-want) > 1e-6 {
			t.Errorf("MIG device %d: %v, want %v", index, got, want)
		}
	}
	whole := func(s nvml.GpmSample) nvml.Return { return device(t, lib, 3).GpmMigSampleGet(2, s) }
	if got := gpmMetrics(t, lib, whole, control, time.Second, 3*time.Second, 2); math.Abs(got[2]-80) > 1e-6 {
		t.Errorf("the instance of both: %v, want 80", got)
	}
	a, _ := lib.GpmSampleAlloc()
	b, _ := lib.GpmSampleAlloc()
	defer a.Free()
	defer b.Free()
	if r := none.GpmSampleGet(a); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a sample where there is no GPM: %v", r)
	}
	if r := mig.GpmMigSampleGet(9, a); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a sample of an instance that is not there: %v", r)
	}
	d.GpmSampleGet(a)
	if r := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("metrics of a sample never taken: %v", r)
	}
	d.GpmSampleGet(b)
	if r := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b}); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("metrics of no time at all: %v", r)
	}
}
