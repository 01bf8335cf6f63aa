package nvml

import (
	"errors"
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// refuseCalls makes every call of the named functions return a code from now on.
func (r *harness) refuseCalls(code nvml.Return, calls ...string) {
	r.library.options.Intercept = func(_ int, call string, _ []int, _ any, run func() int32) int32 {
		for _, name := range calls {
			if call == name {
				return int32(code)
			}
		}
		return run()
	}
}

// What ends the session ends a scan; any other refusal of a handle is that of one GPU.
func TestScanRefused(t *testing.T) {
	for code, want := range map[nvml.Return]error{nvml.ERROR_UNINITIALIZED: gpu.ErrUninitialized,
		nvml.ERROR_DRIVER_NOT_LOADED: gpu.ErrNoDriver, nvml.ERROR_LIB_RM_VERSION_MISMATCH: gpu.ErrVersionMismatch,
		nvml.ERROR_GPU_IS_LOST: nil, nvml.ERROR_UNKNOWN: nil} {
		r := playText(t, "gpu 0 board=b\ngpu 1 board=b\n")
		s, err := r.library.Open()
		must.OK(t, err)
		r.session = s
		r.refuseCalls(code, "nvmlDeviceGetHandleByIndex")
		devs, err := s.Scan()
		if !errors.Is(err, want) || (err == nil) != (want == nil) || err == nil && (len(devs) != 2 || devs[1].Err() == nil) {
			t.Errorf("%s: %v, %v", codeName(code), devs, err)
		}
	}
}

// A limit is the end of the margin less its offset, whatever the sign: 87 less -40, and less 20, are limits; 87 less 60 is none, as
// limits are 50 to 150 degrees.
func TestOffsetsOfLimits(t *testing.T) {
	offsets, text := []int{-40, 20, 37, -63, 38, -64}, ""
	for i, offset := range offsets {
		text += fmt.Sprintf("gpu %d board=b\n  Temperature[gpu] = 42\n  MarginTemperature = 45\n  Field[194] = %d type=int\n", i, offset)
	}
	for i, c := range playText(t, text).open() {
		want := []string{"[{gpu slowdown 127}]", "[{gpu slowdown 67}]", "[{gpu slowdown 50}]", "[{gpu slowdown 150}]", "[]", "[]"}[i]
		if got := fmt.Sprint(slow(t, c).TemperatureLimits); got != want {
			t.Errorf("offset %d: %s, want %s", offsets[i], got, want)
		}
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
