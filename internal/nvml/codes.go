package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// codeName returns the name of a code, without the prefix NVML_ERROR_. The library is never called for the text of a
// code; a Return that is printed would call it.
func codeName(ret nvml.Return) string {
	if name, ok := codeNames[ret]; ok {
		return name
	}
	return fmt.Sprintf("CODE_%d", int32(ret))
}

// notOffered reports whether a code means that this driver and GPU do not have the reading in this session.
func notOffered(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_DEPRECATED,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return true
	}
	return false
}

// silent reports whether a code is no error: success, "not offered" or "nothing there". A buffer that is too small is
// tried again; giving up is counted by the caller.
func silent(ret nvml.Return) bool {
	switch ret {
	case nvml.SUCCESS, nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA, nvml.ERROR_TIMEOUT, nvml.ERROR_INSUFFICIENT_SIZE:
		return true
	}
	return notOffered(ret)
}

// whole returns the error of a code that concerns the whole GPU or session, and nil for all others.
func whole(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		return gpu.ErrLost
	case nvml.ERROR_RESET_REQUIRED:
		return gpu.ErrResetRequired
	case nvml.ERROR_UNINITIALIZED:
		return gpu.ErrUninitialized
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIBRARY_NOT_FOUND:
		return gpu.ErrNoDriver
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return gpu.ErrVersionMismatch
	}
	return nil
}

// failure is the error of a failed call; it wraps that of internal/gpu where there is one.
func failure(id callID, ret nvml.Return, on string) error {
	if err := whole(ret); err != nil {
		return fmt.Errorf("%s of %s: %w (%s)", guards[id].name, on, err, codeName(ret))
	}
	return fmt.Errorf("%s of %s: %s", guards[id].name, on, codeName(ret))
}
