package podmap

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// volcanoVGPUIDs is what Volcano's vGPU scheduler writes on a pod, in HAMi's format.
const volcanoVGPUIDs = "volcano.sh/vgpu-ids-new"

// volcanoVGPU is Volcano's plugin of HAMi's making: <uuid>-<n>, chosen by the kubelet. Its annotation counts
// memory in units of a factor that only the plugin knows, so the amount is taken from the container alone.
var volcanoVGPU = scheme{
	name:      "volcano-vgpu",
	verdict:   lying,
	owns:      named("volcano.sh/vgpu-number"),
	truth:     "the kubelet's device checkpoint, or the pod annotation volcano.sh/vgpu-ids-new",
	allocated: func(c *claim) ([]grant, bool) { return c.hamiCore() },
	annotated: func(c *claim) ([]grant, bool) {
		text, ok := c.annotation(volcanoVGPUIDs)
		if !ok {
			return nil, false
		}
		slots, ok := readHAMi(text)
		if !ok {
			return nil, false
		}
		at, ok := c.hamiSlot(slots)
		if !ok {
			return nil, false
		}
		grants := slices.Clone(slots[at])
		for i := range grants {
			if grants[i].onInstance {
				return nil, false
			}
			grants[i].memory = gpu.None[gpu.Bytes]()
		}
		return grants, true
	},
}
