package gpu

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
)

// The ways in which a driver or a GPU can be unavailable; each is handled differently.
// Errors of internal/nvml wrap one of them where one fits; test with errors.Is.
var (
	// ErrNoDriver: the library is missing or the kernel driver is not loaded. It may come later: retry.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrNoModule: there is neither a library nor a kernel module. It is an ErrNoDriver.
	ErrNoModule = fmt.Errorf("%w, neither library nor kernel module", ErrNoDriver)
	// ErrNoLibrary: the kernel module is loaded, and the library is missing: a container was created without it.
	ErrNoLibrary = errors.New("no NVML library, but the NVIDIA kernel module is loaded")
	// ErrNotNVML: the file that was loaded is not NVML, or lacks calls that the exporter requires.
	ErrNotNVML = errors.New("not a usable NVML library")
	// ErrVersionMismatch: library and kernel module are of different releases (the driver was replaced
	// underneath). The old library stays mapped until this process is replaced.
	ErrVersionMismatch = errors.New("driver and library versions differ")
	// ErrUninitialized: the session has ended; open a new one.
	ErrUninitialized = errors.New("NVML is not initialized")
	// ErrLost: the GPU fell off the bus.
	ErrLost = errors.New("GPU is lost")
	// ErrResetRequired: the GPU fails every call until it is reset.
	ErrResetRequired = errors.New("GPU needs a reset")
	// ErrPanic: this program has a bug that the driver's values reached; see Recovered.
	ErrPanic = errors.New("panic")
)

// Recovered makes a call and turns a panic into an error that wraps ErrPanic and names the line: what one GPU or the
// driver returns must not end the process.
func Recovered(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v at %s; please report it", ErrPanic, p, panicLine())
		}
	}()
	return call()
}

// panicLine is the place of the panic that is being recovered.
func panicLine() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	for inside, more := false, true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if inside && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		inside = inside || f.Function == "runtime.gopanic"
	}
	return "an unknown line"
}
