package deviceid

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// volcanoVGPUIDs is what Volcano's vGPU scheduler writes on a pod, in HAMi's format.
const volcanoVGPUIDs = "volcano.sh/vgpu-ids-new"

// volcanoVGPU is Volcano's plugin of HAMi's making: <uuid>-<n>, chosen by the kubelet. Its annotation counts
// memory in units of a factor that only the plugin knows, so the amount is taken from the container alone.
var volcanoVGPU = Scheme{
	Name:      "volcano-vgpu",
	class:     Opaque,
	Matches:   named("volcano.sh/vgpu-number"),
	Hint:      "the kubelet's device checkpoint, or the pod annotation volcano.sh/vgpu-ids-new",
	allocated: func(req *Request) ([]Assignment, bool) { return req.hamiCore() },
	annotated: func(req *Request) ([]Assignment, bool) {
		text, ok := req.annotation(volcanoVGPUIDs)
		if !ok {
			return nil, false
		}
		slots, ok := parseHAMi(text)
		if !ok {
			return nil, false
		}
		at, ok := req.hamiSlot(slots)
		if !ok {
			return nil, false
		}
		gpus := slices.Clone(slots[at])
		for i := range gpus {
			if gpus[i].onInstance {
				return nil, false
			}
			gpus[i].memory = gpu.None[gpu.Bytes]()
		}
		return gpus, true
	},
}
