package podmap

import (
	"strings"
)

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
var elasticGPU = scheme{
	name:    "elastic-gpu",
	verdict: lying,
	owns:    named(elasticCore, elasticMemory),
	truth: "the links /dev/elastic-gpu-<hash>-<i> that the kubelet's device checkpoint names, or the pod " +
		"annotation elasticgpu.io/container-<name>",
	allocated: func(c *claim) ([]grant, bool) {
		refs, ok := c.alloc.minors(c.alloc.nodes)
		if !ok {
			return nil, false
		}
		return c.elastic(refs)
	},
	annotated: func(c *claim) ([]grant, bool) {
		text, _ := c.annotation(elasticContainer + c.container.Name)
		refs, ok := readIndices(text)
		if !ok {
			return nil, false
		}
		for i := range refs {
			// The agent makes /dev/nvidia<n> of it; its scheduler numbers GPUs as NVML does.
			refs[i].by = byNumber
		}
		return c.elastic(refs)
	},
}

// elastic grants by the number of ids. A container that asks for cores and memory holds its GPU once.
func (c *claim) elastic(refs []ref) ([]grant, bool) {
	cores, both := c.beside[elasticCore], c.beside[elasticMemory] > 0
	if c.resource == elasticCore {
		cores = c.devices
		if both {
			return []grant{}, true
		}
	}
	if len(refs) != max(1, cores/elasticCores) {
		return nil, false
	}
	grants := grantsOf(refs)
	for i := range grants {
		g := &grants[i]
		g.compute = percent(float64(cores) / float64(len(refs)))
		g.whole = cores >= elasticCores
		if c.resource == elasticMemory {
			g.memory = mebibytes(float64(c.devices) / float64(len(refs)))
		}
	}
	return grants, true
}

// readIndices reads a list of plain numbers, "0,1".
func readIndices(text string) ([]ref, bool) {
	var out []ref
	for field := range strings.SplitSeq(text, ",") {
		r, ok := readIndex(strings.TrimSpace(field))
		if !ok || r.by != byIndex || len(out) >= mostNames {
			return nil, false
		}
		out = append(out, r)
	}
	return out, true
}
