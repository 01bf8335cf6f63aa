package deviceid

import (
	"slices"
	"strings"
)

// What gpu-manager writes: on the container its GPU's device nodes, on the pod the minors per container.
const (
	tencentVCUDA  = "tencent.com/vcuda-"
	tencentCore   = tencentVCUDA + "core"
	tencentMemory = tencentVCUDA + "memory" // an ID is 256 MiB
	tencentDevice = tencentVCUDA + "device"
	tencentIndex  = "tencent.com/predicate-gpu-idx-"
)

// tkestack is the gpu-manager of Tencent's TKEStack (GaiaGPU): tencent.com/vcuda-core-<n>, a hundred per GPU, which
// name no GPU.
var tkestack = Scheme{
	Name:    "tkestack gpu-manager",
	class:   Opaque,
	Matches: named(tencentCore),
	Hint:    "the kubelet's device checkpoint, or the pod annotations tencent.com/predicate-gpu-idx-<i>",
	allocated: func(req *Request) []Assignment {
		refs := minors(strings.Split(req.Response.Annotations[tencentDevice], ","))
		if refs == nil {
			refs = minors(req.Response.Nodes)
		}
		return req.vcuda(refs)
	},
	annotated: func(req *Request) []Assignment {
		lists := map[int]string{}
		var slots, counts []int
		for key, list := range req.Pod.Annotations {
			if n, ok := strings.CutPrefix(key, tencentIndex); ok {
				i, ok := decimal(n)
				if !ok {
					return nil
				}
				lists[i] = list
				slots, counts = append(slots, i), append(counts, anyCount) // the IDs are cores, the list is of GPUs
			}
		}
		slices.Sort(slots)
		at, ok := req.slot(counts, false)
		if !ok {
			return nil
		}
		refs := parseIndices(lists[slots[at]])
		for i := range refs {
			refs[i].by = byMinor
		}
		return req.vcuda(refs)
	},
}

// vcuda assigns cores by the number of IDs, and blocks of memory.
func (req *Request) vcuda(refs []Ref) []Assignment {
	gpus := byCores(refs, req.Devices)
	for i := range gpus {
		gpus[i].fraction = gpus[i].Compute
		gpus[i].memory = mebibytes(float64(256*req.Amounts[tencentMemory]) / float64(len(refs)))
	}
	return gpus
}
