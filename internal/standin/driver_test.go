package standin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// The stand-in driver is tested as it is used: through go-nvml, which loads it with dlopen. One process can
// bind one library, so tests that want another set of symbols look at the file or start a process.

// playing builds the library and plays a scenario, with an open session.
func playing(t *testing.T, s *scenario.Scenario) (nvml.Interface, *scenario.Control) {
	t.Helper()
	lib, control := prepare(t, s)
	if r := lib.Init(); r != nvml.SUCCESS {
		t.Fatalf("nvmlInit: %v", r)
	}
	t.Cleanup(func() { lib.Shutdown() })
	return lib, control
}

func prepare(t *testing.T, s *scenario.Scenario) (nvml.Interface, *scenario.Control) {
	t.Helper()
	dir := t.TempDir()
	path, err := BuildFakeNVML(context.Background(), "newest", dir)
	must.OK(t, err)
	env, control, err := Simulate(s, dir)
	must.OK(t, err)
	t.Cleanup(func() { control.Close() })
	setenv(t, env)
	return nvml.New(nvml.WithLibraryPath(path)), control
}

func setenv(t *testing.T, env []string) {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

func named(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	s, err := Scenario(name)
	must.OK(t, err)
	return s
}

func written(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.scenario", "scenario 1\n"+text, nil)
	must.OK(t, err)
	return s
}

func device(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, r := lib.DeviceGetHandleByIndex(index)
	if r != nvml.SUCCESS {
		t.Fatalf("handle of gpu %d: %v", index, r)
	}
	return d
}

const plainBoard = `
board b
  Name = "A gpu"
  ring period=100ms entries=20
  model idle_watts=50 busy_watts=250 idle_celsius=30 busy_celsius=70
  MemoryInfo_v2 = total=10GiB reserved=100MiB
  GpmQueryDeviceSupport = 1
  Gpm[2] = 100*util
  Gpm[10] = 50*util
  Gpm[248] = 1e9*t
  Gpm[249] = 1e9*busy
  SupportedEventTypes = 0x108
  profile 1g.10gb number=0 id=19 slices=1 memory=10240MiB sms=16 count=7 copies=1
  profile 3g.40gb number=2 id=9 slices=3 memory=40960MiB sms=60 count=2 copies=3
  profile 7g.80gb number=4 id=0 slices=7 memory=81920MiB sms=132 count=1
`

// Each set has its own queue, and sees what comes after a GPU was registered with it.
func TestEvents(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
at 5s gpu 0 xid 31
at 10s gpu 0 xid 79
at 10s gpu 0 xid 64
at 11s gpu 1 xid 48 gi=3 ci=0
at 12s gpu 1 mig pending on
at 20s gpu 0 lose
at 20s gpu 0 xid 119
at 20s gpu 0 xid 48
`)
	lib, control := playing(t, s)
	control.Set(6 * time.Second)
	register := func() nvml.EventSet {
		set, r := lib.EventSetCreate()
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		for i := range 2 {
			d := device(t, lib, i)
			types, _ := d.GetSupportedEventTypes()
			if r := d.RegisterEvents(types&(nvml.EventTypeXidCriticalError|nvml.EventMigConfigChange), set); r != nvml.SUCCESS {
				t.Fatalf("registering gpu %d: %v", i, r)
			}
		}
		return set
	}
	first := register()
	second := register()
	if r := device(t, lib, 0).RegisterEvents(nvml.EventTypeClock, first); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("registering an event that is not supported: %v", r)
	}
	if _, r := first.Wait(0); r != nvml.ERROR_TIMEOUT {
		t.Errorf("an event before its time: %v", r)
	}
	control.Set(15 * time.Second)
	for _, set := range []nvml.EventSet{first, second} {
		for _, want := range []string{"0 8 64", "1 8 48", "1 100 0"} {
			e, r := set.Wait(1000)
			if r != nvml.SUCCESS {
				t.Fatalf("waiting for %s: %v", want, r)
			}
			index, _ := e.Device.GetIndex()
			if got := fmt.Sprintf("%d %x %d", index, e.EventType, e.EventData); got != want {
				t.Errorf("event %s, want %s", got, want)
			}
			if e.EventData == 48 && (e.GpuInstanceId != 3 || e.ComputeInstanceId != 0) {
				t.Errorf("instance %d, %d", e.GpuInstanceId, e.ComputeInstanceId)
			}
		}
		if _, r := set.Wait(0); r != nvml.ERROR_TIMEOUT {
			t.Errorf("one event too many: %v", r)
		}
	}
	// A waiting call is woken by the clock.
	done := make(chan nvml.Return)
	go func() {
		e, r := first.Wait(60_000)
		if e.EventData != 48 {
			t.Errorf("event %+v", e)
		}
		done <- r
	}()
	control.Set(20 * time.Second)
	if r := <-done; r != nvml.SUCCESS {
		t.Errorf("the event at 20 s: %v", r)
	}
	if _, r := first.Wait(60_000); r != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("waiting on a lost gpu: %v", r)
	}
	if r := first.Free(); r != nvml.SUCCESS {
		t.Error(r)
	}
	if _, r := first.Wait(0); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("waiting on a freed set: %v", r)
	}
}

// The driver counts the processor time of its functions, also where another process reads it, and not that of its caller.
func TestProcessorTime(t *testing.T) {
	lib, control := playing(t, named(t, "8xh100-shared"))
	d := device(t, lib, 0)
	reader, err := scenario.OpenControl(control.Path())
	must.OK(t, err)
	defer reader.Close()
	before := reader.Processor()
	for reader.Processor()-before < 5*time.Millisecond {
		if _, r := d.GetUtilizationRates(); r != nvml.SUCCESS {
			t.Fatal(r)
		}
	}
	after := reader.Processor()
	for range 10_000_000 { // some ms of the caller's own
	}
	if more := reader.Processor() - after; more != 0 {
		t.Errorf("%v were counted without a call", more)
	}
	if _, err := scenario.OpenControl("/dev/null"); err == nil {
		t.Error("a file that is none was opened as a control file")
	}
}
