package podmap

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What gpu-manager writes: on the container its GPU's device nodes, on the pod per container its minors.
const (
	tencentVCUDA  = "tencent.com/vcuda-"
	tencentCore   = tencentVCUDA + "core"
	tencentMemory = tencentVCUDA + "memory"
	tencentDevice = tencentVCUDA + "device"
	tencentIndex  = "tencent.com/predicate-gpu-idx-"
	// tencentBlock is what one id of memory stands for, tencentCores are the ids of one GPU's cores.
	tencentBlock = 256 << 20
	tencentCores = 100
)

// tkestack is the gpu-manager of Tencent's TKEStack (GaiaGPU): tencent.com/vcuda-core-<n>, a hundred per
// GPU, which name no GPU at all.
var tkestack = scheme{
	name:    "tkestack gpu-manager",
	verdict: lying,
	owns:    named(tencentCore),
	truth:   "the kubelet's device checkpoint, or the pod annotations tencent.com/predicate-gpu-idx-<i>",
	allocated: func(c *claim) ([]grant, bool) {
		refs, ok := c.alloc.minors(strings.Split(c.alloc.annotations[tencentDevice], ","))
		if !ok {
			refs, ok = c.alloc.minors(c.alloc.nodes)
		}
		if !ok {
			return nil, false
		}
		blocks := 0
		if c.alloc.beside != nil {
			blocks = c.alloc.beside.devices[tencentMemory]
		}
		return c.vcuda(refs, bytesOf(float64(blocks)*tencentBlock))
	},
	annotated: func(c *claim) ([]grant, bool) {
		lists := map[int]string{}
		var slots []int
		for key, list := range c.pod.annotations {
			if n, ok := strings.CutPrefix(key, tencentIndex); ok {
				i, numeric := decimal(n)
				if !numeric {
					return nil, false
				}
				lists[i] = list
				slots = append(slots, i)
			}
		}
		slices.Sort(slots)
		counts := make([]int, len(slots))
		for i := range counts {
			counts[i] = anyCount // the ids are cores, the list is of GPUs
		}
		at, ok := c.slot(counts, false)
		if !ok {
			return nil, false
		}
		var refs []ref
		for text := range strings.SplitSeq(lists[slots[at]], ",") {
			minor, ok := decimal(strings.TrimSpace(text))
			if !ok {
				return nil, false
			}
			refs = append(refs, ref{by: byMinor, minor: minor, gi: -1, ci: -1})
		}
		return c.vcuda(refs, gpu.None[gpu.Bytes]())
	},
}

// vcuda grants cores by the number of ids: up to a hundred are a part of one GPU, more are whole GPUs.
func (c *claim) vcuda(refs []ref, memory gpu.Opt[gpu.Bytes]) ([]grant, bool) {
	if len(refs) != max(1, c.devices/tencentCores) {
		return nil, false // it speaks of another container
	}
	grants := grantsOf(refs)
	for i := range grants {
		g := &grants[i]
		g.whole = c.devices >= tencentCores
		g.compute = percent(float64(c.devices) / float64(len(refs)))
		g.fraction = g.compute
		if b, ok := memory.Get(); ok {
			g.memory = gpu.Some(b / gpu.Bytes(len(refs)))
		}
	}
	return grants, true
}
