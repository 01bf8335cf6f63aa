package deviceid

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// vgpuManagerAllocated is what vgpu-manager's plugin writes on a pod after it has allocated.
const vgpuManagerAllocated = "nvidia.com/real-allocated"

// vgpuManager is coldzerofear's vgpu-manager. Its ids look like NVIDIA's replicas, <uuid>::<n>, but equal
// the GPU only under a feature gate: the resource name gives it away.
var vgpuManager = Scheme{
	Name:    "vgpu-manager",
	class:   Opaque,
	Matches: named("nvidia.com/vgpu-number"),
	Hint:    "the kubelet's device checkpoint, or the pod annotation nvidia.com/real-allocated",
	allocated: func(req *Request) ([]Assignment, bool) {
		refs, ok := req.Response.visible()
		if !ok {
			list, _ := req.env("MANAGER_VISIBLE_DEVICES")
			refs, ok = parseVisible(list)
		}
		if !ok || len(refs) > req.Devices {
			return nil, false
		}
		gpus := assign(refs)
		var limits []gpu.Opt[gpu.Bytes]
		for i := range req.Devices {
			text, ok := req.env(fmt.Sprintf("CUDA_MEM_LIMIT_%d", i))
			if !ok {
				break
			}
			limits = append(limits, parseLimit(text))
		}
		setMemoryLimits(gpus, limits)
		if len(gpus) == req.Devices {
			for i := range gpus {
				cores, _ := req.envAmount(fmt.Sprintf("CUDA_CORE_LIMIT_%d", i))
				gpus[i].Compute = percent(cores)
			}
		}
		return gpus, true
	},
	annotated: func(req *Request) ([]Assignment, bool) {
		text, _ := req.annotation(vgpuManagerAllocated)
		return req.vgpuManagerSlot(text)
	},
}

// vgpuManagerSlot reads the container's part of "<container>[<index>_<uuid>_<cores>_<MiB>,…];…".
func (req *Request) vgpuManagerSlot(text string) ([]Assignment, bool) {
	if len(text) > maxText {
		return nil, false
	}
	for slot := range strings.SplitSeq(text, ";") {
		name, list, ok := strings.Cut(slot, "[")
		list, closed := strings.CutSuffix(list, "]")
		if name != req.Container.Name {
			continue
		}
		if !ok || !closed {
			return nil, false
		}
		var gpus []Assignment
		for device := range strings.SplitSeq(list, ",") {
			fields := strings.Split(device, "_")
			if len(fields) != 4 {
				return nil, false
			}
			r, ok := ParseNVML(fields[1])
			cores, okCores := amount(fields[2])
			memory, okMemory := amount(fields[3])
			if !ok || !okCores || !okMemory {
				return nil, false
			}
			gpus = append(gpus, Assignment{Ref: r, memory: mebibytes(memory), Compute: percent(cores)})
		}
		return gpus, len(gpus) == req.Devices
	}
	return nil, false
}

// draVGPUManager is the DRA driver of the same project.
var draVGPUManager = Scheme{
	Name:    "vgpu-manager dra",
	class:   Opaque,
	Matches: named("manager.nvidia.com"),
	Hint:    "the status of the ResourceClaim",
}
