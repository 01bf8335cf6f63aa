package gpu

import "errors"

// The ways in which a driver or a GPU can be unavailable; each is handled differently.
// Errors of internal/nvml wrap one of them where one fits; test with errors.Is.
var (
	// ErrNoDriver: the library is missing or the kernel driver is not loaded. It may come later: retry.
	ErrNoDriver = errors.New("no NVIDIA driver")
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
)
