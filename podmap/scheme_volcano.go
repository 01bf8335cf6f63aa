package podmap

// What Volcano's first plugin writes.
const (
	volcanoNumber   = "volcano.sh/gpu-number"
	volcanoGPUIndex = "volcano.sh/gpu-index" // NVML indices, for the whole pod
)

// volcanoGPUShare is Volcano's first GPU sharing: <index>-<n>, chosen by the kubelet, while the scheduler
// chose the GPU. Memory and whole GPUs are two ways to ask, so both stand alone.
var volcanoGPUShare = scheme{
	name:    "volcano gpushare",
	verdict: lying,
	owns:    named("volcano.sh/gpu-memory", volcanoNumber),
	truth:   "the kubelet's device checkpoint, or the pod annotation volcano.sh/gpu-index",
	allocated: func(c *claim) ([]grant, bool) {
		refs, ok := c.alloc.visible()
		if !ok || c.resource == volcanoNumber && len(refs) != c.devices {
			return nil, false
		}
		grants := grantsOf(refs)
		units, okUnits := c.envAmount("VOLCANO_GPU_ALLOCATED")
		total, okTotal := c.envAmount("VOLCANO_GPU_MEMORY_TOTAL")
		if !okTotal {
			total, okTotal = c.envAmount("VOLCANO_GPU_TOTAL")
		}
		for i := range grants {
			switch {
			case c.resource == volcanoNumber:
				grants[i].whole = true
			case okUnits && okTotal && len(grants) == 1:
				// The factor of a unit is a flag of the plugin; that the total is the GPU's tells it.
				grants[i].units, grants[i].total, grants[i].relative = units, total, true
			}
		}
		return grants, true
	},
	annotated: func(c *claim) ([]grant, bool) {
		text, _ := c.annotation(volcanoGPUIndex)
		refs, ok := readIndices(text)
		if !ok {
			return nil, false
		}
		grants := grantsOf(refs)
		switch {
		case c.resource == volcanoNumber:
			// The list is the pod's: it tells one container's GPUs only where no other has any.
			if len(c.crew) != 1 || len(refs) != c.devices {
				return nil, false
			}
			for i := range grants {
				grants[i].whole = true
			}
		case len(grants) != 1:
			return nil, false
		default:
			grants[0].units, grants[0].pool, grants[0].relative = float64(c.devices), c.listed, true
		}
		return grants, true
	},
}
