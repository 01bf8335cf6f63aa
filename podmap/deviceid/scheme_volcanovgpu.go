package deviceid

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

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
