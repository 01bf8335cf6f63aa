package deviceid

// What elastic-gpu-agent offers and writes.
const (
	elasticCore      = "elasticgpu.io/gpu-core"
	elasticMemory    = "elasticgpu.io/gpu-memory" // an ID is a MiB
	elasticContainer = "elasticgpu.io/container-" // and the container's name
)

// elasticGPU is elastic-gpu-agent: <i>-<nn>, where <i> is not the GPU. Pods request cores, memory or both. The
// container gets a link that the agent creates for it, /dev/elastic-gpu-<hash>-<i>.
var elasticGPU = Scheme{
	Name:    "elastic-gpu",
	class:   Opaque,
	Matches: named(elasticCore, elasticMemory),
	Hint: "the links /dev/elastic-gpu-<hash>-<i> in the kubelet's device checkpoint, or the pod annotation " +
		"elasticgpu.io/container-<name>",
	allocated: func(req *Request) []Assignment { return req.elastic(minors(req.Response.Nodes)) },
	annotated: func(req *Request) []Assignment {
		refs := parseIndices(req.annotation(elasticContainer + req.Container.Name))
		for i := range refs {
			// The agent creates /dev/nvidia<n> for it; its scheduler numbers GPUs as NVML does.
			refs[i].by = byNumber
		}
		return req.elastic(refs)
	},
}

// elastic assigns by the number of IDs. A container that requests cores and memory has its GPU once, by the memory.
func (req *Request) elastic(refs []Ref) []Assignment {
	gpus := byCores(refs, req.Amounts[elasticCore])
	if gpus != nil && req.Resource == elasticCore && req.Amounts[elasticMemory] > 0 {
		return []Assignment{}
	}
	for i := range gpus {
		if req.Resource == elasticMemory {
			gpus[i].memory = mebibytes(float64(req.Devices) / float64(len(refs)))
		}
	}
	return gpus
}
