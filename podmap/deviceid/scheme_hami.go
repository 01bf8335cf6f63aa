package deviceid

import (
	"encoding/json"
	"fmt"
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

// hami is Project-HAMi's plugin: GPU-<uuid>-<n> under nvidia.com/gpu, or whatever name was configured. The
// scheduler extender chooses the GPU and the kubelet is not told: the UUID in the id is one of the node's
// GPUs, and as often as not the wrong one.
var hami = Scheme{
	Name:    "hami",
	class:   Opaque,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		if strings.Contains(id, "::") || strings.Contains(id, "_") {
			return Ref{}, false
		}
		_, ok := parseReplica(id, "-")
		return Ref{}, ok
	},
	Hint:      "the kubelet's device checkpoint, or the pod annotation hami.io/vgpu-devices-allocated",
	allocated: func(req *Request) ([]Assignment, bool) { return req.hamiCore() },
	annotated: func(req *Request) ([]Assignment, bool) {
		if phase, _ := req.annotation(hamiPhase); phase == "failed" {
			return nil, false
		}
		text, ok := req.annotation(hamiAllocated)
		if !ok {
			text, ok = req.annotation(hamiAllocatedOld)
		}
		if !ok {
			return nil, false
		}
		slots, ok := parseHAMi(text)
		if !ok {
			return nil, false
		}
		at, ok := req.hamiSlot(slots)
		if !ok {
			return nil, false
		}
		mig := map[[2]int]Ref{}
		if text, ok := req.annotation(hamiMIG); ok {
			if mig, ok = parseHAMiMIG(text); !ok {
				return nil, false
			}
		}
		gpus := slices.Clone(slots[at])
		for i := range gpus {
			g := &gpus[i]
			if r, ok := mig[[2]int{at, i}]; ok {
				if r.uuid != g.Ref.uuid && r.full == "" || r.full != "" && r.full != g.Ref.uuid {
					return nil, false // it speaks of another GPU
				}
				r.full = ""
				g.Ref = r
			} else if g.onInstance {
				return nil, false // on some instance, and which is not written
			}
		}
		return gpus, true
	},
}

// hamiCore reads what the plugins of HAMi's making give a container: its GPUs in the words of NVIDIA's runtime,
// and the limits of the library inside.
func (req *Request) hamiCore() ([]Assignment, bool) {
	refs, ok := req.Response.visible()
	if !ok {
		refs, ok = minors(req.Response.Nodes)
	}
	// An answer of more GPUs than there are ids is not this claim's.
	if !ok || len(refs) > req.Devices {
		return nil, false
	}
	gpus := assign(refs)
	var limits []gpu.Opt[gpu.Bytes]
	for i := range req.Devices {
		text, ok := req.env(fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_%d", i))
		if !ok {
			break
		}
		limits = append(limits, parseLimit(text))
	}
	setMemoryLimits(gpus, limits)
	if sm, ok := req.envAmount("CUDA_DEVICE_SM_LIMIT"); ok {
		for i := range gpus {
			gpus[i].Compute = percent(sm)
		}
	}
	return gpus, true
}

// setMemoryLimits gives each GPU its limit. The runtime's list has a GPU once, the limits are one per virtual
// device: where their numbers differ, only a sum over one GPU or equal limits tell something.
func setMemoryLimits(gpus []Assignment, limits []gpu.Opt[gpu.Bytes]) {
	switch {
	case len(limits) == len(gpus):
		for i := range gpus {
			gpus[i].memory = limits[i]
		}
	case len(gpus) == 1 && len(limits) > 0:
		var sum gpu.Bytes
		for _, l := range limits {
			b, ok := l.Get()
			if !ok {
				return
			}
			sum += b
		}
		gpus[0].memory = gpu.Some(sum)
	}
}

// parseHAMi reads "<uuid>,<type>,<MiB>,<percent>:…;…": a slot per container, empty where it has no GPU. The text
// behind the last ";" is no slot.
func parseHAMi(text string) ([][]Assignment, bool) {
	if len(text) > maxText {
		return nil, false
	}
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	var slots [][]Assignment
	for slot := range strings.SplitSeq(text, ";") {
		var gpus []Assignment
		for device := range strings.SplitSeq(slot, ":") {
			if device = strings.TrimSpace(device); device == "" {
				continue
			}
			g, ok := parseHAMiDevice(device)
			if !ok || len(gpus) >= maxRefs {
				return nil, false
			}
			gpus = append(gpus, g)
		}
		slots = append(slots, gpus)
	}
	return slots, len(slots) > 0
}

func parseHAMiDevice(text string) (Assignment, bool) {
	fields := strings.Split(text, ",")
	if len(fields) < 4 {
		return Assignment{}, false
	}
	// GPU-<uuid>[<template>-<place>] is a static MIG template.
	uuid, _, templated := strings.Cut(fields[0], "[")
	r, ok := ParseNVML(uuid)
	memory, okMemory := amount(fields[2])
	cores, okCores := amount(fields[3])
	if !ok || !okMemory || !okCores {
		return Assignment{}, false
	}
	return Assignment{Ref: r, memory: mebibytes(memory), Compute: percent(cores), onInstance: templated}, true
}

// hamiSlot finds the container's slot. Since 2.9 init containers have slots too, and come first.
func (req *Request) hamiSlot(slots [][]Assignment) (int, bool) {
	var taken, counts []int
	for i, gpus := range slots {
		if len(gpus) > 0 {
			taken = append(taken, i)
			counts = append(counts, len(gpus))
		}
	}
	at, ok := req.slot(counts, len(taken) > 0 && taken[len(taken)-1] == len(slots)-1)
	if !ok {
		return 0, false
	}
	return taken[at], true
}

// parseHAMiMIG reads the MIG devices by container slot and device. In full stands the GPU's UUID.
func parseHAMiMIG(text string) (map[[2]int]Ref, bool) {
	var raw []struct {
		ContainerIndex, DeviceIndex      int
		GPUUUID, MIGUUID                 string
		GPUInstanceID, ComputeInstanceID *int
	}
	if len(text) > maxText || json.Unmarshal([]byte(text), &raw) != nil {
		return nil, false
	}
	out := map[[2]int]Ref{}
	for _, m := range raw {
		key := [2]int{m.ContainerIndex, m.DeviceIndex}
		if _, twice := out[key]; twice || !prefixedUUID(m.GPUUUID, "GPU-") {
			return nil, false
		}
		switch {
		case m.MIGUUID != "":
			r, ok := ParseNVML(m.MIGUUID)
			if !ok || r.by != byMIG {
				return nil, false
			}
			r.full = gpu.UUID(m.GPUUUID)
			out[key] = r
		case m.GPUInstanceID != nil && m.ComputeInstanceID != nil && *m.GPUInstanceID >= 0 && *m.ComputeInstanceID >= 0:
			out[key] = Ref{by: byParts, uuid: gpu.UUID(m.GPUUUID), gi: *m.GPUInstanceID, ci: *m.ComputeInstanceID}
		default:
			return nil, false // reserved, and not made yet
		}
	}
	return out, true
}
