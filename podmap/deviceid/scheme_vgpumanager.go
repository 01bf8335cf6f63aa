package deviceid

import (
	"strconv"
	"strings"
)

// What vgpu-manager writes, below a domain that is nvidia.com unless its administrator chose another.
const (
	vgpuManagerNumber    = "/vgpu-number"
	vgpuManagerAllocated = "/real-allocated" // on the pod, after the plugin has allocated
	// vgpuManagerNone fills the list of visible GPUs where the container has not the GPU of that index.
	vgpuManagerNone = "GPU-00000000-0000-0000-0000-000000000000"
)

// vgpuManager is coldzerofear's vgpu-manager. Its IDs look like NVIDIA's replicas, <uuid>::<n>, but contain the GPU
// only with a feature gate: the resource name identifies the scheme. Limits are numbered by the NVML index of the GPU.
var vgpuManager = Scheme{
	Name:    "vgpu-manager",
	class:   Opaque,
	Matches: func(name string) bool { return hasSuffix(name, vgpuManagerNumber) && name != volcanoVGPUNumber },
	Hint:    "the kubelet's device checkpoint, or the pod annotation nvidia.com/real-allocated",
	allocated: func(req *Request) []Assignment {
		var gpus []Assignment
		add := func(r Ref, index int) {
			limit := func(of string) string { return req.env("CUDA_" + of + "_LIMIT_" + strconv.Itoa(index)) }
			cores, _ := amount(limit("CORE"))
			gpus = append(gpus, Assignment{Ref: r, memory: parseLimit(limit("MEM")), Compute: percent(cores)})
		}
		for index, uuid := range strings.Split(req.env("MANAGER_VISIBLE_DEVICES"), ",") {
			if r, ok := ParseNVML(uuid); ok && uuid != vgpuManagerNone {
				add(r, index)
			}
		}
		if gpus == nil {
			for _, r := range req.Response.received() {
				add(r, req.index(r))
			}
		}
		if len(gpus) > req.Devices {
			return nil
		}
		return gpus
	},
	annotated: func(req *Request) []Assignment {
		domain, _, _ := strings.Cut(req.Resource, "/")
		text := req.annotation(domain + vgpuManagerAllocated)
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

// index is the NVML index of the GPU that a reference names; -1 where it is unknown.
func (req *Request) index(r Ref) int {
	if targets, _ := Locate(req.Inventory, r); len(targets) == 1 {
		if dev, ok := req.Inventory.ByUUID(targets[0].GPU); ok {
			return dev.Index
		}
	}
	return -1
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
