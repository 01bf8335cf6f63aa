package deviceid

// What elastic-gpu-agent hands out and writes.
const (
	elasticCore      = "elasticgpu.io/gpu-core"
	elasticMemory    = "elasticgpu.io/gpu-memory"
	elasticContainer = "elasticgpu.io/container-" // and the container's name
	// elasticCores are the ids of one GPU's cores; an id of memory is a MiB.
	elasticCores = 100
)

// elasticGPU is elastic-gpu-agent: <i>-<nn>, where <i> is not the GPU. Its plugin is asked for cores,
// memory or both. It gives the container a link that it makes for it, /dev/elastic-gpu-<hash>-<i>.
var elasticGPU = Scheme{
	Name:    "elastic-gpu",
	class:   Opaque,
	Matches: named(elasticCore, elasticMemory),
	Hint: "the links /dev/elastic-gpu-<hash>-<i> that the kubelet's device checkpoint names, or the pod " +
		"annotation elasticgpu.io/container-<name>",
	allocated: func(req *Request) ([]Assignment, bool) {
		refs, ok := minors(req.Response.Nodes)
		if !ok {
			return nil, false
		}
		return req.elastic(refs)
	},
	annotated: func(req *Request) ([]Assignment, bool) {
		text, _ := req.annotation(elasticContainer + req.Container.Name)
		refs, ok := parseIndices(text)
		if !ok {
			return nil, false
		}
		for i := range refs {
			// The agent makes /dev/nvidia<n> of it; its scheduler numbers GPUs as NVML does.
			refs[i].by = byNumber
		}
		return req.elastic(refs)
	},
}

// elastic gpus by the number of ids. A container that asks for cores and memory holds its GPU once.
func (req *Request) elastic(refs []Ref) ([]Assignment, bool) {
	cores, both := req.Beside[elasticCore], req.Beside[elasticMemory] > 0
	if req.Resource == elasticCore {
		cores = req.Devices
		if both {
			return []Assignment{}, true
		}
	}
	if len(refs) != max(1, cores/elasticCores) {
		return nil, false
	}
	gpus := assign(refs)
	for i := range gpus {
		g := &gpus[i]
		g.Compute = percent(float64(cores) / float64(len(refs)))
		g.Exclusive = cores >= elasticCores
		if req.Resource == elasticMemory {
			g.memory = mebibytes(float64(req.Devices) / float64(len(refs)))
		}
	}
	return gpus, true
}
