package deviceid

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
var tkestack = Scheme{
	Name:    "tkestack gpu-manager",
	class:   Opaque,
	Matches: named(tencentCore),
	Hint:    "the kubelet's device checkpoint, or the pod annotations tencent.com/predicate-gpu-idx-<i>",
	allocated: func(req *Request) ([]Assignment, bool) {
		refs, ok := minors(strings.Split(req.Response.Annotations[tencentDevice], ","))
		if !ok {
			refs, ok = minors(req.Response.Nodes)
		}
		if !ok {
			return nil, false
		}
		return req.vcuda(refs, Bytes(float64(req.Response.Devices[tencentMemory])*tencentBlock))
	},
	annotated: func(req *Request) ([]Assignment, bool) {
		lists := map[int]string{}
		var slots []int
		for key, list := range req.Pod.Annotations {
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
		at, ok := req.slot(counts, false)
		if !ok {
			return nil, false
		}
		var refs []Ref
		for text := range strings.SplitSeq(lists[slots[at]], ",") {
			minor, ok := decimal(strings.TrimSpace(text))
			if !ok {
				return nil, false
			}
			refs = append(refs, minorRef(minor))
		}
		return req.vcuda(refs, gpu.None[gpu.Bytes]())
	},
}

// vcuda gpus cores by the number of ids: up to a hundred are a part of one GPU, more are whole GPUs.
func (req *Request) vcuda(refs []Ref, memory gpu.Opt[gpu.Bytes]) ([]Assignment, bool) {
	if len(refs) != max(1, req.Devices/tencentCores) {
		return nil, false // it speaks of another container
	}
	gpus := assign(refs)
	for i := range gpus {
		g := &gpus[i]
		g.Exclusive = req.Devices >= tencentCores
		g.Compute = percent(float64(req.Devices) / float64(len(refs)))
		g.fraction = g.Compute
		if b, ok := memory.Get(); ok {
			g.memory = gpu.Some(b / gpu.Bytes(len(refs)))
		}
	}
	return gpus, true
}
