// Package direct makes the two NVML calls that fill a buffer of the caller into one that is reused. go-nvml allocates
// one for each call, and queries its size first: twice as many calls that take the driver's global lock.
package direct

/*
#cgo linux LDFLAGS: -Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files
// As in nvml.h of CUDA 13.
typedef struct nvmlDevice_st *nvmlDevice_t;
int nvmlDeviceGetSamples(nvmlDevice_t device, int type, unsigned long long lastSeenTimeStamp, int *sampleValType,
                         unsigned int *sampleCount, void *samples);
int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *utilization, unsigned int *processSamplesCount,
                                    unsigned long long lastSeenTimeStamp);
*/
import "C"

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// handle returns the C handle that go-nvml's implementation of a device wraps; false for another implementation.
func handle(dev nvml.Device) (C.nvmlDevice_t, bool) {
	v := reflect.ValueOf(dev)
	if v.Kind() != reflect.Struct || v.NumField() != 1 || v.Field(0).Kind() != reflect.Pointer {
		return nil, false
	}
	return C.nvmlDevice_t(v.Field(0).UnsafePointer()), true
}

// Samples fills the buffer with samples newer than last and returns how many there are; ok is false where nothing was
// called. The library must have nvmlDeviceGetSamples.
func Samples(dev nvml.Device, kind nvml.SamplingType, last uint64, buffer []nvml.Sample) (of nvml.ValueType, n int,
	ret nvml.Return, ok bool) {
	device, ok := handle(dev)
	if !ok || len(buffer) == 0 {
		return 0, 0, 0, false
	}
	valueType, count := C.int(0), C.uint(len(buffer))
	ret = nvml.Return(C.nvmlDeviceGetSamples(device, C.int(kind), C.ulonglong(last), &valueType, &count,
		unsafe.Pointer(&buffer[0])))
	return nvml.ValueType(valueType), min(int(count), len(buffer)), ret, true
}

// ProcessUtilization fills the buffer with samples newer than last and returns how many there are, or how many there
// would be with ERROR_INSUFFICIENT_SIZE; ok is false where nothing was called. The library must have
// nvmlDeviceGetProcessUtilization.
func ProcessUtilization(dev nvml.Device, last uint64, buffer []nvml.ProcessUtilizationSample) (n int, ret nvml.Return, ok bool) {
	device, ok := handle(dev)
	if !ok || len(buffer) == 0 {
		return 0, 0, false
	}
	count := C.uint(len(buffer))
	ret = nvml.Return(C.nvmlDeviceGetProcessUtilization(device, unsafe.Pointer(&buffer[0]), &count, C.ulonglong(last)))
	return int(count), ret, true
}
