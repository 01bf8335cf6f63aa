package deviceid

import (
	"fmt"
	"strings"
)

// vgpuManagerAllocated is what vgpu-manager's plugin writes on a pod after it has allocated.
const vgpuManagerAllocated = "nvidia.com/real-allocated"

// vgpuManager is coldzerofear's vgpu-manager. Its IDs look like NVIDIA's replicas, <uuid>::<n>, but contain the GPU
// only with a feature gate: the resource name identifies the scheme.
var vgpuManager = Scheme{
	Name:    "vgpu-manager",
	class:   Opaque,
	Matches: named("nvidia.com/vgpu-number"),
	Hint:    "the kubelet's device checkpoint, or the pod annotation nvidia.com/real-allocated",
	allocated: func(req *Request) []Assignment {
		refs := req.Response.visible()
		if refs == nil {
			refs = parseVisible(req.env("MANAGER_VISIBLE_DEVICES"))
		}
		gpus := req.withMemoryLimits(refs, "CUDA_MEM_LIMIT_")
		for i := range gpus {
			if len(gpus) == req.Devices {
				cores, _ := amount(req.env(fmt.Sprintf("CUDA_CORE_LIMIT_%d", i)))
				gpus[i].Compute = percent(cores)
			}
		}
		return gpus
	},
	annotated: func(req *Request) []Assignment {
		text := req.annotation(vgpuManagerAllocated)
		if len(text) > maxText {
			return nil
		}
		for slot := range strings.SplitSeq(text, ";") {
			if name, list, _ := strings.Cut(slot, "["); name == req.Container.Name {
				return req.vgpuManagerGPUs(list)
			}
		}
		return nil
	},
}

// vgpuManagerGPUs parses the container's list in "<container>[<index>_<uuid>_<cores>_<MiB>,…];…".
func (req *Request) vgpuManagerGPUs(list string) []Assignment {
	list, closed := strings.CutSuffix(list, "]")
	var gpus []Assignment
	for device := range strings.SplitSeq(list, ",") {
		fields := strings.Split(device, "_")
		if len(fields) != 4 {
			return nil
		}
		a, ok := parseAssignment(fields[1], fields[3], fields[2])
		if !ok || !closed {
			return nil
		}
		gpus = append(gpus, a)
	}
	if len(gpus) != req.Devices {
		return nil
	}
	return gpus
}

// draVGPUManager is the DRA driver of the same project.
var draVGPUManager = Scheme{
	Name:    "vgpu-manager dra",
	class:   Opaque,
	Matches: named("manager.nvidia.com"),
	Hint:    "the status of the ResourceClaim",
}
