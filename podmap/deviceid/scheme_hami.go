package deviceid

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What HAMi writes on a pod.
const (
	hamiAllocated    = "hami.io/vgpu-devices-allocated"
	hamiAllocatedOld = "4pd.io/vgpu-ids-new" // up to 2.3
	hamiMIG          = "hami.io/vgpu-mig-allocations"
	hamiPhase        = "hami.io/bind-phase"
)

// hami is Project-HAMi's plugin: GPU-<uuid>-<n> under nvidia.com/gpu, or another configured name. The scheduler
// extender selects the GPU without the kubelet: the UUID in the ID is that of any GPU of the node.
var hami = Scheme{
	Name:    "hami",
	class:   Opaque,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		_, ok := parseReplica(id, "-")
		return Ref{}, ok && !strings.Contains(id, "::") && !strings.Contains(id, "_")
	},
	Hint:      "the kubelet's device checkpoint, or the pod annotation hami.io/vgpu-devices-allocated",
	allocated: (*Request).hamiCore,
	annotated: func(req *Request) []Assignment {
		text := req.annotation(hamiAllocated)
		if text == "" {
			text = req.annotation(hamiAllocatedOld)
		}
		slot, gpus := req.hamiSlot(text)
		mig, ok := parseHAMiMIG(req.annotation(hamiMIG))
		if !ok || req.annotation(hamiPhase) == "failed" {
			return nil
		}
		for i := range gpus {
			m, ok := mig[[2]int{slot, i}]
			switch {
			case ok && m.gpu != gpus[i].Ref.uuid, !ok && gpus[i].onInstance:
				return nil // of another GPU, or on an unknown instance
			case ok:
				gpus[i].Ref = m.ref
			}
		}
		return gpus
	},
}

// hamiCore reads what HAMi and plugins derived from it set for a container: the GPUs for NVIDIA's runtime, and the
// limits of the library in the container.
func (req *Request) hamiCore() []Assignment {
	gpus := req.withMemoryLimits(req.Response.received(), "CUDA_DEVICE_MEMORY_LIMIT_")
	cores, _ := amount(req.env("CUDA_DEVICE_SM_LIMIT"))
	for i := range gpus {
		gpus[i].Compute = percent(cores)
	}
	return gpus
}

// hamiSlot returns this container's slot, and its GPUs, of "<uuid>,<type>,<MiB>,<percent>:…;…": a slot per container,
// empty where it has no GPU. Since 2.9 init containers have slots too, and come first.
func (req *Request) hamiSlot(text string) (slot int, gpus []Assignment) {
	if len(text) > maxText {
		return 0, nil
	}
	var all [][]Assignment
	var slots, counts []int // of those with GPUs
	for container := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(text), ";"), ";") {
		var gpus []Assignment
		for device := range strings.SplitSeq(container, ":") {
			if device = strings.TrimSpace(device); device == "" {
				continue
			}
			fields := strings.Split(device, ",")
			if len(fields) < 4 || len(gpus) >= maxRefs {
				return 0, nil
			}
			// GPU-<uuid>[<template>-<place>] is a static MIG template.
			uuid, _, templated := strings.Cut(fields[0], "[")
			a, ok := parseAssignment(uuid, fields[2], fields[3])
			if !ok {
				return 0, nil
			}
			a.onInstance = templated
			gpus = append(gpus, a)
		}
		if len(gpus) > 0 {
			slots, counts = append(slots, len(all)), append(counts, len(gpus))
		}
		all = append(all, gpus)
	}
	at, ok := req.slot(counts, len(slots) > 0 && slots[len(slots)-1] == len(all)-1)
	if !ok {
		return 0, nil
	}
	return slots[at], slices.Clone(all[slots[at]])
}

type hamiInstance struct {
	gpu gpu.UUID
	ref Ref
}

// parseHAMiMIG parses the MIG devices by container slot and device. It is false where one is invalid, or not created
// yet.
func parseHAMiMIG(text string) (map[[2]int]hamiInstance, bool) {
	var raw []struct {
		ContainerIndex, DeviceIndex      int
		GPUUUID, MIGUUID                 string
		GPUInstanceID, ComputeInstanceID *int
	}
	if text == "" {
		return nil, true
	}
	if len(text) > maxText || json.Unmarshal([]byte(text), &raw) != nil {
		return nil, false
	}
	out := map[[2]int]hamiInstance{}
	for _, m := range raw {
		key, uuid := [2]int{m.ContainerIndex, m.DeviceIndex}, gpu.UUID(m.GPUUUID)
		r, ok := ParseNVML(m.MIGUUID)
		ok = ok && r.by == byMIG
		parent, isGPU := ParseNVML(m.GPUUUID)
		isGPU = isGPU && parent.by == byUUID
		if gi, ci := m.GPUInstanceID, m.ComputeInstanceID; m.MIGUUID == "" && gi != nil && ci != nil {
			r, ok = Ref{by: byParts, uuid: uuid, gi: *gi, ci: *ci}, *gi >= 0 && *ci >= 0
		}
		if _, twice := out[key]; twice || !ok || !isGPU {
			return nil, false
		}
		out[key] = hamiInstance{uuid, r}
	}
	return out, true
}
