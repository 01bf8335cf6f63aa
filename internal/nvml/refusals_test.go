package nvml

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// refuseCalls makes every call of the named functions return a code from now on.
func (r *harness) refuseCalls(code nvml.Return, calls ...string) {
	r.library.options.Intercept = func(_ int, call string, _ any, run func() int32) int32 {
		for _, name := range calls {
			if call == name {
				return int32(code)
			}
		}
		return run()
	}
}

// A GPU that is lost keeps its identity, though not even its address can be read.
func TestLostGPUKeepsItsIdentity(t *testing.T) {
	r := playText(t, "gpu 0 board=b uuid=GPU-a pci=0000:18:00.0\nat 10s gpu 0 lose\n")
	c := r.open()[0]
	id := c.Identity()
	r.at(10 * time.Second)
	if _, err := c.Fast(true); !errors.Is(err, gpu.ErrLost) {
		t.Fatal(err)
	}
	r.refuseCalls(nvml.ERROR_GPU_IS_LOST, "nvmlDeviceGetPciInfo")
	if again := r.scan()[0]; again.Identity() != id || !errors.Is(again.Err(), gpu.ErrLost) || id.PCI == "" {
		t.Errorf("%+v, %v; it was %+v", again.Identity(), again.Err(), id)
	}
}

// What ends the session ends a scan; any other refusal of a handle is that of one GPU.
func TestScanRefused(t *testing.T) {
	for code, want := range map[nvml.Return]error{nvml.ERROR_UNINITIALIZED: gpu.ErrUninitialized,
		nvml.ERROR_DRIVER_NOT_LOADED: gpu.ErrNoDriver, nvml.ERROR_LIB_RM_VERSION_MISMATCH: gpu.ErrVersionMismatch,
		nvml.ERROR_GPU_IS_LOST: nil, nvml.ERROR_UNKNOWN: nil} {
		r := playText(t, "gpu 0 board=b\ngpu 1 board=b\n")
		s, err := r.library.Open()
		if err != nil {
			t.Fatal(err)
		}
		r.session = s
		r.refuseCalls(code, "nvmlDeviceGetHandleByIndex")
		devs, err := s.Scan()
		if !errors.Is(err, want) || (err == nil) != (want == nil) || err == nil && (len(devs) != 2 || devs[1].Err() == nil) {
			t.Errorf("%s: %v, %v", codeName(code), devs, err)
		}
	}
}

// A wait for events without GPUs returns at its end, and ends with the session.
func TestWaitWithoutGPUs(t *testing.T) {
	r := playText(t, "gpu 0 board=b\n")
	s, err := r.library.Open()
	if err != nil {
		t.Fatal(err)
	}
	r.session = s
	start := time.Now()
	if events, err := s.WaitEvents(30 * time.Millisecond); err != nil || len(events) != 0 || time.Since(start) < 30*time.Millisecond {
		t.Errorf("%v, %v after %v", events, err, time.Since(start))
	}
	done := make(chan error)
	go func() {
		_, err := s.WaitEvents(time.Minute)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, gpu.ErrUninitialized) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a wait goes on after Close")
	}
}

// A limit is the end of the margin less its offset, whatever the sign: 87 less -40, and less 20, are limits; 87 less 60 is none.
func TestOffsetsOfLimits(t *testing.T) {
	for offset, want := range map[int]string{-40: "[{gpu slowdown 127}]", 20: "[{gpu slowdown 67}]", 37: "[{gpu slowdown 50}]",
		-63: "[{gpu slowdown 150}]", 38: "[]", -64: "[]"} {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			r := playText(t,
				fmt.Sprintf("gpu 0 board=b\n  Temperature[gpu] = 42\n  MarginTemperature = 45\n  Field[194] = %d type=int\n", offset))
			if got := fmt.Sprint(slow(t, r.open()[0]).TemperatureLimits); got != want {
				t.Errorf("offset %d: %s, want %s", offset, got, want)
			}
		})
	}
}

// In MIG mode there are no accounts of processes: there is nothing to read, and the next read without it is a first one.
func TestAccountsUnderMIG(t *testing.T) {
	c := stubGPU(&stub{})
	c.mig.on, c.accounts = true, map[uint32]bool{7: true}
	var to gpu.Fast
	if ret := readAccounts(c, &to); ret != nothingToRead || c.accounts != nil || to.Accounts.Present() {
		t.Errorf("%s, %v, %v", codeName(ret), c.accounts, to.Accounts)
	}
}

// Field values in milliwatts are limits in watts, for every scope.
func TestScopeLimitsAreInWatts(t *testing.T) {
	scopes := map[string]gpu.Watts{}
	for i := range slowValues {
		if set := slowValues[i].set; set != nil {
			var to gpu.Slow
			set(&to, summed(700_000))
			for scope, limit := range to.ScopeLimits {
				scopes[scope] = limit
			}
		}
	}
	for scope, limit := range scopes {
		if limit != 700 {
			t.Errorf("%s: %v", scope, limit)
		}
	}
	if len(scopes) < 6 {
		t.Errorf("scopes %v", scopes)
	}
}
