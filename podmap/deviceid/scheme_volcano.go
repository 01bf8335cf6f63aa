package deviceid

// What Volcano's first plugin writes.
const (
	volcanoNumber   = "volcano.sh/gpu-number"
	volcanoGPUIndex = "volcano.sh/gpu-index" // NVML indices, for the whole pod
)

// volcanoGPUShare is Volcano's first GPU sharing: <index>-<n>, chosen by the kubelet, while the scheduler
// chose the GPU. Memory and whole GPUs are two ways to ask, so both stand alone.
var volcanoGPUShare = Scheme{
	Name:    "volcano gpushare",
	class:   Opaque,
	Matches: named("volcano.sh/gpu-memory", volcanoNumber),
	Hint:    "the kubelet's device checkpoint, or the pod annotation volcano.sh/gpu-index",
	allocated: func(req *Request) ([]Assignment, bool) {
		refs, ok := req.Response.visible()
		if !ok || req.Resource == volcanoNumber && len(refs) != req.Devices {
			return nil, false
		}
		gpus := assign(refs)
		units, okUnits := req.envAmount("VOLCANO_GPU_ALLOCATED")
		total, okTotal := req.envAmount("VOLCANO_GPU_MEMORY_TOTAL")
		if !okTotal {
			total, okTotal = req.envAmount("VOLCANO_GPU_TOTAL")
		}
		for i := range gpus {
			switch {
			case req.Resource == volcanoNumber:
				gpus[i].Exclusive = true
			case okUnits && okTotal && len(gpus) == 1:
				// The factor of a unit is a flag of the plugin; that the total is the GPU's tells it.
				gpus[i].units, gpus[i].total, gpus[i].relative = units, total, true
			}
		}
		return gpus, true
	},
	annotated: func(req *Request) ([]Assignment, bool) {
		text, _ := req.annotation(volcanoGPUIndex)
		refs, ok := parseIndices(text)
		if !ok {
			return nil, false
		}
		gpus := assign(refs)
		switch {
		case req.Resource == volcanoNumber:
			// The list is the pod's: it tells one container's GPUs only where no other has any.
			if len(req.Siblings) != 1 || len(refs) != req.Devices {
				return nil, false
			}
			for i := range gpus {
				gpus[i].Exclusive = true
			}
		case len(gpus) != 1:
			return nil, false
		default:
			gpus[0].units, gpus[0].pool, gpus[0].relative = float64(req.Devices), req.Allocatable, true
		}
		return gpus, true
	},
}
