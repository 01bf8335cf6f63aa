package standin

import (
	"context"
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

func second[T any](_ T, r nvml.Return) nvml.Return { return r }

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
