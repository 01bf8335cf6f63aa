package standin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// A call that hangs comes back when the GPU is restored. Meanwhile the other GPU answers, and a second
// call on the GPU is noticed.
func TestHang(t *testing.T) {
	s := named(t, "faults")
	lib, control := playing(t, s)
	d, other := device(t, lib, 0), device(t, lib, 1)
	control.Set(301 * time.Second)
	done := make(chan nvml.Return)
	go func() { done <- second(d.GetUtilizationRates()) }()
	testkit.Until(func() bool { return control.Hanging() > 0 })
	if _, r := other.GetUtilizationRates(); r != nvml.SUCCESS {
		t.Errorf("the other gpu answers %v", r)
	}
	if control.Overlaps() != 0 {
		t.Errorf("%d overlaps", control.Overlaps())
	}
	if _, r := d.GetPowerUsage(); r != nvml.SUCCESS {
		t.Errorf("another call on the gpu answers %v", r)
	}
	if control.Overlaps() != 1 {
		t.Errorf("%d overlaps, want 1", control.Overlaps())
	}
	select {
	case r := <-done:
		t.Fatalf("the call came back: %v", r)
	default:
	}
	control.Set(330 * time.Second)
	if r := <-done; r != nvml.SUCCESS || control.Hanging() != 0 {
		t.Errorf("the restored gpu answers %v, %d hang", r, control.Hanging())
	}
	if n := control.CallsOn("nvmlDeviceGetUtilizationRates", 0); n != 1 {
		t.Errorf("%d calls were counted", n)
	}
}

// Drivers go and come. Sessions and handles of an earlier one are over.
func TestDriver(t *testing.T) {
	s := written(t, plainBoard+`
system DriverVersion = "1"
gpu 0 board=b
gpu 1 board=b
load gpu=0 busy=100%
at 0s system delay Init 1ms
at 10s driver unload
at 20s driver load
at 30s driver mismatch
at 40s driver load
at 50s gpu 0 remove
at 60s gpu 0 restore
at 70s driver replace
at 70s system DriverVersion = "2"
`)
	lib, control := prepare(t, s)
	begin := func(at time.Duration, want nvml.Return) {
		t.Helper()
		control.Set(at)
		if r := lib.Init(); r != want {
			t.Errorf("at %v nvmlInit answers %v, want %v", at, r, want)
		}
	}
	begin(5*time.Second, nvml.SUCCESS)
	d := device(t, lib, 0)
	if control.Sessions() != 1 {
		t.Errorf("%d sessions", control.Sessions())
	}
	if e, _ := d.GetTotalEnergyConsumption(); e != 5*250_000 {
		t.Errorf("energy %d mJ", e)
	}
	control.Set(15 * time.Second)
	if _, r := d.GetPowerUsage(); r != nvml.ERROR_UNINITIALIZED {
		t.Errorf("without a driver: %v", r)
	}
	if _, r := lib.DeviceGetCount(); r != nvml.ERROR_UNINITIALIZED {
		t.Errorf("without a driver: %v", r)
	}
	lib.Shutdown()
	if control.Sessions() != 0 {
		t.Errorf("%d sessions after shutdown", control.Sessions())
	}
	begin(16*time.Second, nvml.ERROR_DRIVER_NOT_LOADED)
	begin(25*time.Second, nvml.SUCCESS)
	if _, r := d.GetPowerUsage(); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a handle of an earlier session answers %v", r)
	}
	d = device(t, lib, 0)
	if e, _ := d.GetTotalEnergyConsumption(); e != 5*250_000 { // since the driver was loaded
		t.Errorf("energy %d mJ", e)
	}
	if got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.SUCCESS || len(got) != 20 {
		t.Errorf("%d samples, %v", len(got), r)
	}
	lib.Shutdown()
	begin(35*time.Second, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
	begin(55*time.Second, nvml.SUCCESS)
	if n, _ := lib.DeviceGetCount(); n != 1 {
		t.Errorf("%d gpus while one is removed", n)
	}
	if uuid, _ := device(t, lib, 0).GetUUID(); uuid != string(s.GPUs[1].UUID) {
		t.Errorf("the remaining gpu is %s", uuid)
	}
	lib.Shutdown()
	begin(65*time.Second, nvml.SUCCESS)
	if n, _ := lib.DeviceGetCount(); n != 2 {
		t.Errorf("%d gpus", n)
	}
	lib.Shutdown()
	// The library was mapped before the driver was replaced.
	begin(75*time.Second, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
}

func TestFaults(t *testing.T) {
	s := named(t, "faults")
	lib, control := playing(t, s)
	d, other := device(t, lib, 0), device(t, lib, 1)
	for _, tc := range []struct {
		at   time.Duration
		want nvml.Return
	}{{1, nvml.SUCCESS}, {402, nvml.ERROR_GPU_IS_LOST}, {459, nvml.ERROR_GPU_IS_LOST}, {460, nvml.SUCCESS},
		{500, nvml.ERROR_RESET_REQUIRED}, {560, nvml.SUCCESS}} {
		control.Set(tc.at * time.Second)
		for name, r := range map[string]nvml.Return{
			"power":       second(d.GetPowerUsage()),
			"UUID":        second(d.GetUUID()),
			"fields":      d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}),
			"samples":     third(d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)),
			"processes":   second(d.GetComputeRunningProcesses()),
			"its handle":  second(lib.DeviceGetHandleByIndex(0)),
			"its handle?": second(lib.DeviceGetHandleByUUID(string(s.GPUs[0].UUID))),
		} {
			if r != tc.want {
				t.Errorf("at %d s %s answers %v, want %v", tc.at, name, r, tc.want)
			}
		}
		if _, r := other.GetPowerUsage(); r != nvml.SUCCESS {
			t.Errorf("at %d s the other gpu answers %v", tc.at, r)
		}
	}
	control.Set(200 * time.Second)
	if r := d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}); r != nvml.ERROR_UNKNOWN {
		t.Errorf("a refused call answers %v", r)
	}
	control.Set(230 * time.Second)
	if r := d.GetFieldValues([]nvml.FieldValue{{FieldId: 83}}); r != nvml.SUCCESS {
		t.Errorf("afterwards it answers %v", r)
	}
}

func second[T any](_ T, r nvml.Return) nvml.Return { return r }

func third[T, U any](_ T, _ U, r nvml.Return) nvml.Return { return r }

// Under a clock of its own the scenario goes on by itself.
func TestSimulateLive(t *testing.T) {
	s := named(t, "demo")
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), "newest", dir)
	must.OK(t, err)
	env, control, err := SimulateLive(s, dir)
	must.OK(t, err)
	defer control.Close()
	setenv(t, env)
	lib := nvml.New(nvml.WithLibraryPath(path))
	if r := lib.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	defer lib.Shutdown()
	d := device(t, lib, 0)
	first, _ := d.GetTotalEnergyConsumption()
	testkit.Until(func() bool { e, r := d.GetTotalEnergyConsumption(); return r != nvml.SUCCESS || e > first })
	truth := func() float64 { return 1000 * float64(s.Truth(0).Energy(0, control.Now())) }
	low := truth()
	e, _ := d.GetTotalEnergyConsumption()
	if high := truth(); float64(e) < 0.95*low-1000 || float64(e) > 1.05*high+1000 {
		t.Errorf("energy %d mJ, the truth is %v to %v mJ", e, low, high)
	}
}

// What no scenario is, is reported and answered as a driver that is not there.
func TestNoScenario(t *testing.T) {
	s := written(t, plainBoard+"gpu 0 board=b\n")
	lib, _ := prepare(t, s)
	t.Setenv("FAKENVML_SCENARIO", filepath.Join(t.TempDir(), "none"))
	if r := lib.Init(); r != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("nvmlInit answers %v", r)
	}
}

// An old driver, in a process of its own: go-nvml finds the older versions of the calls.
func TestOldDriver(t *testing.T) {
	if path := os.Getenv("STANDIN_TEST_LIBRARY"); path != "" {
		lib := nvml.New(nvml.WithLibraryPath(path))
		if r := lib.Init(); r != nvml.SUCCESS {
			t.Fatal(r)
		}
		defer lib.Shutdown()
		d := device(t, lib, 0)
		list, r := d.GetComputeRunningProcesses()
		if r != nvml.SUCCESS || len(list) != 1 || list[0].Pid != 2207 {
			t.Errorf("processes %+v, %v", list, r)
		}
		if lib.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil {
			t.Error("the old driver knows nvmlDeviceGetMemoryInfo_v2")
		}
		values := []nvml.FieldValue{{FieldId: 185}}
		if r := d.GetFieldValues(values); r != nvml.SUCCESS || values[0].NvmlReturn != uint32(nvml.ERROR_NOT_SUPPORTED) {
			t.Errorf("a newer field: %+v, %v", values, r)
		}
		return
	}
	s := named(t, "little")
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), s.Symbols, dir)
	must.OK(t, err)
	env, control, err := Simulate(s, dir)
	must.OK(t, err)
	defer control.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOldDriver$", "-test.v")
	cmd.Env = append(append(os.Environ(), env...), "STANDIN_TEST_LIBRARY="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if control.Calls("nvmlDeviceGetComputeRunningProcesses_v2") == 0 || control.Sessions() != 0 {
		t.Errorf("the other process called %v, %d sessions are open", control.AllCalls(), control.Sessions())
	}
}
