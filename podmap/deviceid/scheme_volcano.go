package deviceid

import (
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What Volcano's first plugin writes.
const (
	volcanoNumber   = "volcano.sh/gpu-number"
	volcanoGPUIndex = "volcano.sh/gpu-index" // NVML indices, for the whole pod
)

// volcanoGPUShare is Volcano's first GPU sharing: <index>-<n>, selected by the kubelet, while the scheduler selects the
// GPU. Pods request either memory or whole GPUs.
var volcanoGPUShare = Scheme{
	Name:    "volcano gpushare",
	class:   Opaque,
	Matches: named("volcano.sh/gpu-memory", volcanoNumber),
	Hint:    "the kubelet's device checkpoint, or the pod annotation volcano.sh/gpu-index",
	allocated: func(req *Request) []Assignment {
		refs := req.Response.visible()
		if req.Resource == volcanoNumber {
			return req.wholeGPUs(refs)
		}
		gpus := assign(refs)
		units, okUnits := amount(req.env("VOLCANO_GPU_ALLOCATED"))
		total, okTotal := amount(req.env("VOLCANO_GPU_MEMORY_TOTAL"))
		if !okTotal {
			total, okTotal = amount(req.env("VOLCANO_GPU_TOTAL"))
		}
		if okUnits && okTotal && len(gpus) == 1 {
			// The factor of a unit is a flag of the plugin: the total is the GPU's.
			gpus[0].units, gpus[0].total, gpus[0].relative = units, total, true
		}
		return gpus
	},
	annotated: func(req *Request) []Assignment {
		refs := parseIndices(req.annotation(volcanoGPUIndex))
		switch {
		case req.Resource == volcanoNumber && len(req.Siblings) == 1: // the list is the pod's
			return req.wholeGPUs(refs)
		case req.Resource == volcanoNumber || len(refs) != 1:
			return nil
		}
		return []Assignment{{Ref: refs[0], units: float64(req.Devices), pool: req.Allocatable, relative: true}}
	},
}

// volcanoVGPUNumber is the resource of Volcano's vGPU plugin.
const volcanoVGPUNumber = "volcano.sh/vgpu-number"

// volcanoVGPUIDs is what Volcano's vGPU scheduler writes on a pod, in HAMi's format.
const volcanoVGPUIDs = "volcano.sh/vgpu-ids-new"

// volcanoVGPU is Volcano's plugin, derived from HAMi: <uuid>-<n>, selected by the kubelet. Its annotation counts memory
// in units of a factor that is private to the plugin, so the limit is only read from the container.
var volcanoVGPU = Scheme{
	Name:      "volcano-vgpu",
	class:     Opaque,
	Matches:   named(volcanoVGPUNumber),
	Hint:      "the kubelet's device checkpoint, or the pod annotation volcano.sh/vgpu-ids-new",
	allocated: (*Request).hamiCore,
	annotated: func(req *Request) []Assignment {
		_, gpus := req.hamiSlot(req.annotation(volcanoVGPUIDs))
		for i := range gpus {
			if gpus[i].onInstance {
				return nil
			}
			gpus[i].memory = gpu.None[gpu.Bytes]()
		}
		return gpus
	},
}
