package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

func TestOpenWithoutLibrary(t *testing.T) {
	for _, path := range []string{"libno-such-nvml.so.7", filepath.Join(t.TempDir(), "libnvidia-ml.so.1")} {
		_, err := New(Options{Path: path, SysfsRoot: t.TempDir()}).Open()
		if !errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNotNVML) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Where the library is missing, the error says whether the kernel module is loaded: a container created before gets no library.
func TestOpenWithoutLibraryLooksForTheModule(t *testing.T) {
	sysfs := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	open := func(sysfs string) (all []bool) {
		_, err := New(Options{Path: filepath.Join(sysfs, "libnvidia-ml.so.1"), SysfsRoot: sysfs}).Open()
		for _, is := range []error{gpu.ErrNoDriver, gpu.ErrNoModule, gpu.ErrNoLibrary} {
			all = append(all, errors.Is(err, is))
		}
		return all
	}
	if got := open(sysfs); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("without a module: %v", got)
	}
	if got := open(file); !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("without a sysfs: %v", got)
	}
	must.OK(t, os.MkdirAll(filepath.Join(sysfs, "module/nvidia"), 0o700))
	if got := open(sysfs); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("with a module: %v", got)
	}
}

// TestOpenWhatIsNotNVML: something that loads, and is not NVML, must be told apart before anything of it
// is called: the first call would end the process.
func TestOpenWhatIsNotNVML(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	must.OK(t, os.WriteFile(path, []byte("not a library"), 0o600))
	if _, err := New(Options{Path: path}).Open(); !errors.Is(err, gpu.ErrNotNVML) {
		t.Errorf("garbage: %v", err)
	}
	_, err := New(Options{Path: "libm.so.6"}).Open()
	if !errors.Is(err, gpu.ErrNotNVML) || !strings.Contains(err.Error(), "nvmlInit_v2") ||
		!strings.Contains(err.Error(), "nvmlDeviceGetUUID") {
		t.Errorf("libm: %v", err)
	}
	// Closing what was never open, and opening again, must be safe too.
	if _, err := New(Options{Path: "libm.so.6"}).Open(); !errors.Is(err, gpu.ErrNotNVML) {
		t.Errorf("libm again: %v", err)
	}
}

// TestDriverComes: failed attempts leave nothing behind that would keep the driver held later.
func TestDriverComes(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
at 0s driver unload
at 10s driver load
`)
	for range 5 {
		if _, err := r.library.Open(); !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "DRIVER_NOT_LOADED") {
			t.Fatalf("without a driver: %v", err)
		}
	}
	if got := r.errors("nvmlInit")["DRIVER_NOT_LOADED"]; got != 5 {
		t.Errorf("counted %d failed nvmlInit, want 5", got)
	}
	r.at(10 * time.Second)
	devs := r.open()
	if len(devs) != 1 || r.control.Sessions() != 1 {
		t.Fatalf("%d GPUs, %d sessions", len(devs), r.control.Sessions())
	}
	if want := (gpu.System{DriverVersion: "580.105.08", CUDAVersion: "13.0", NVMLVersion: "13.580.105.08"}); r.session.System() != want {
		t.Errorf("system: %+v", r.session.System())
	}
	if _, err := r.library.Open(); err == nil {
		t.Error("a second session was opened")
	}
	for range 2 {
		if err := r.session.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if n := r.control.Sessions(); n != 0 {
		t.Errorf("%d sessions after close", n)
	}
	if _, err := devs[0].Fast(true); !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("a poll group after close: %v", err)
	}
	if _, err := r.session.Scan(); !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("a scan after close: %v", err)
	}
	if _, err := r.session.WaitEvents(time.Millisecond); !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("events after close: %v", err)
	}
	if n := len(r.open()); n != 1 || r.control.Sessions() != 1 {
		t.Errorf("opened again: %d GPUs, %d sessions", n, r.control.Sessions())
	}
}

func TestVersionMismatch(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
at 10s driver mismatch
`)
	dev := r.open()[0]
	r.at(10 * time.Second)
	if _, err := dev.Medium(); !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("a poll group while the driver is replaced: %v", err)
	}
	if err := r.session.Close(); err != nil {
		t.Logf("close: %v", err)
	}
	_, err := r.library.Open()
	if !errors.Is(err, gpu.ErrVersionMismatch) || !strings.Contains(err.Error(), "restart the process") {
		t.Errorf("open: %v", err)
	}
	r.session = nil
}

// TestHang: a call that hangs costs its own GPU only; the driver is not shut down under it, and let go
// as soon as it returns.
func TestHang(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
gpu 1 board=b
at 10s gpu 0 hang UtilizationRates
at 20s gpu 0 restore
`)
	devs := r.open()
	r.at(10 * time.Second)
	done := make(chan error, 1)
	go func() {
		_, err := devs[0].Fast(true)
		done <- err
	}()
	testkit.Until(func() bool { return r.control.Hanging() > 0 })
	if _, err := devs[1].Fast(true); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
	if again := r.scan(); len(again) != 2 || again[0] != devs[0] || again[1] != devs[1] {
		t.Errorf("scan: %v", again)
	}
	if _, err := r.session.WaitEvents(time.Millisecond); err != nil {
		t.Errorf("events: %v", err)
	}
	if devs[0].Err() != nil || len(devs[0].NotOffered()) > 100 {
		t.Errorf("GPU 0: %v", devs[0].Err())
	}
	if err := r.session.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("close: %v", err)
	}
	if _, err := r.library.Open(); !errors.Is(err, ErrBusy) {
		t.Errorf("open: %v", err)
	}
	if n := r.control.Calls("nvmlShutdown"); n != 0 {
		t.Errorf("shut down %d times under a call", n)
	}
	r.at(20 * time.Second)
	if err := <-done; !errors.Is(err, gpu.ErrUninitialized) {
		t.Errorf("the poll group that hung: %v", err)
	}
	if n := len(r.open()); n != 2 || r.control.Calls("nvmlShutdown") != 1 || r.control.Sessions() != 1 {
		t.Errorf("opened again: %d GPUs, %d shutdowns, %d sessions", n, r.control.Calls("nvmlShutdown"), r.control.Sessions())
	}
}
