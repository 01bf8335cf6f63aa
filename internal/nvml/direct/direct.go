// Package direct makes the NVML calls that fill a buffer of the caller into one that is reused. go-nvml allocates
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
int nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids);
int nvmlGpmMetricsGet(void *metrics);
*/
import "C"

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// handle returns the C handle of a device.
func handle(dev nvml.Device) (C.nvmlDevice_t, bool) {
	p, ok := wrapped(dev)
	return C.nvmlDevice_t(p), ok
}

// wrapped returns the pointer that go-nvml's implementation of a device or sample wraps; false for another implementation.
func wrapped(of any) (unsafe.Pointer, bool) {
	v := reflect.ValueOf(of)
	if v.Kind() != reflect.Struct || v.NumField() != 1 || v.Field(0).Kind() != reflect.Pointer {
		return nil, false
	}
	return v.Field(0).UnsafePointer(), true
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
	ret = nvml.Return(C.nvmlDeviceGetSamples(device, C.int(kind), C.ulonglong(last), &valueType, &count, unsafe.Pointer(&buffer[0])))
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

// maxAccounts bounds the processes that are listed: the driver keeps some thousands that have ended.
const maxAccounts = 1 << 13

// AccountingPIDs lists the processes that the driver accounts for in a buffer that grows as needed, or what otherwise
// lists for another implementation. The library must have nvmlDeviceGetAccountingPids.
func AccountingPIDs(dev nvml.Device, buffer *[]uint32, otherwise func() ([]int, nvml.Return)) (pids []uint32, ret nvml.Return) {
	device, ok := handle(dev)
	if !ok {
		list, ret := otherwise()
		for _, pid := range list {
			pids = append(pids, uint32(pid))
		}
		return pids, ret
	}
	for {
		if len(*buffer) == 0 {
			*buffer = make([]uint32, 128)
		}
		count := C.uint(len(*buffer))
		ret = nvml.Return(C.nvmlDeviceGetAccountingPids(device, &count, (*C.uint)(unsafe.Pointer(&(*buffer)[0]))))
		if ret != nvml.ERROR_INSUFFICIENT_SIZE || int(count) <= len(*buffer) || len(*buffer) == maxAccounts {
			return (*buffer)[:min(int(count), len(*buffer))], ret
		}
		*buffer = make([]uint32, min(int(count)+128, maxAccounts))
	}
}

// GPMRequest is an nvmlGpmMetricsGet_t; its zero value is ready for use. It is 19 KB, which go-nvml allocates for each
// call and copies three times. What it points to is memory of the driver, so that Go need not look at it.
type GPMRequest struct {
	version, number uint32
	from, to        uintptr
	metrics         [len(nvml.GpmMetricsGetType{}.Metrics)]gpmMetric
}

type gpmMetric struct {
	id, ret uint32
	value   float64
	names   [3]uintptr
}

var _ [unsafe.Sizeof(gpmMetric{})]byte = [unsafe.Sizeof(nvml.GpmMetric{})]byte{}

// Read fills in the metrics, whose IDs are set, for the time between two samples; ok is false where nothing was called.
// The library must have nvmlGpmMetricsGet.
func (r *GPMRequest) Read(from, to nvml.GpmSample, metrics []nvml.GpmMetric) (ret nvml.Return, ok bool) {
	first, ok1 := wrapped(from)
	second, ok2 := wrapped(to)
	if !ok1 || !ok2 || len(metrics) > len(r.metrics) {
		return 0, false
	}
	r.version, r.number = nvml.GPM_METRICS_GET_VERSION, uint32(len(metrics))
	r.from, r.to = uintptr(first), uintptr(second)
	for i, m := range metrics {
		r.metrics[i] = gpmMetric{id: m.MetricId}
	}
	ret = nvml.Return(C.nvmlGpmMetricsGet(unsafe.Pointer(r)))
	for i := range metrics {
		metrics[i].NvmlReturn, metrics[i].Value = r.metrics[i].ret, r.metrics[i].value
	}
	return ret, true
}
