package podmap

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// vgpuManagerAllocated is what vgpu-manager's plugin writes on a pod after it has allocated.
const vgpuManagerAllocated = "nvidia.com/real-allocated"

// vgpuManager is coldzerofear's vgpu-manager. Its ids look like NVIDIA's replicas, <uuid>::<n>, but equal
// the GPU only under a feature gate: the resource name gives it away.
var vgpuManager = scheme{
	name:    "vgpu-manager",
	verdict: lying,
	owns:    named("nvidia.com/vgpu-number"),
	truth:   "the kubelet's device checkpoint, or the pod annotation nvidia.com/real-allocated",
	allocated: func(c *claim) ([]grant, bool) {
		refs, ok := c.alloc.visible()
		if !ok {
			list, _ := c.env("MANAGER_VISIBLE_DEVICES")
			refs, ok = readVisible(list)
		}
		if !ok || len(refs) > c.devices {
			return nil, false
		}
		grants := grantsOf(refs)
		var limits []gpu.Opt[gpu.Bytes]
		for i := range c.devices {
			text, ok := c.env(fmt.Sprintf("CUDA_MEM_LIMIT_%d", i))
			if !ok {
				break
			}
			limits = append(limits, readLimit(text))
		}
		grantLimits(grants, limits)
		if len(grants) == c.devices {
			for i := range grants {
				cores, _ := c.envAmount(fmt.Sprintf("CUDA_CORE_LIMIT_%d", i))
				grants[i].compute = percent(cores)
			}
		}
		return grants, true
	},
	annotated: func(c *claim) ([]grant, bool) {
		text, _ := c.annotation(vgpuManagerAllocated)
		return c.vgpuManagerSlot(text)
	},
}

// vgpuManagerSlot reads the container's part of "<container>[<index>_<uuid>_<cores>_<MiB>,…];…".
func (c *claim) vgpuManagerSlot(text string) ([]grant, bool) {
	if len(text) > longestValue {
		return nil, false
	}
	for slot := range strings.SplitSeq(text, ";") {
		name, list, ok := strings.Cut(slot, "[")
		list, closed := strings.CutSuffix(list, "]")
		if name != c.container.Name {
			continue
		}
		if !ok || !closed {
			return nil, false
		}
		var grants []grant
		for device := range strings.SplitSeq(list, ",") {
			fields := strings.Split(device, "_")
			if len(fields) != 4 {
				return nil, false
			}
			r, ok := readNVML(fields[1])
			cores, okCores := amount(fields[2])
			memory, okMemory := amount(fields[3])
			if !ok || !okCores || !okMemory {
				return nil, false
			}
			grants = append(grants, grant{ref: r, memory: mebibytes(memory), compute: percent(cores)})
		}
		return grants, len(grants) == c.devices
	}
	return nil, false
}

// draVGPUManager is the DRA driver of the same project.
var draVGPUManager = scheme{
	name:    "vgpu-manager dra",
	verdict: lying,
	owns:    named("manager.nvidia.com"),
	truth:   "the status of the ResourceClaim",
}
