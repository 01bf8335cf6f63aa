package podmap

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
var hami = scheme{
	name:    "hami",
	verdict: lying,
	owns:    underNVIDIA,
	read: func(_, id string) (ref, bool) {
		if strings.Contains(id, "::") || strings.Contains(id, "_") {
			return ref{}, false
		}
		_, ok := readReplica(id, "-")
		return ref{}, ok
	},
	truth:     "the kubelet's device checkpoint, or the pod annotation hami.io/vgpu-devices-allocated",
	allocated: func(c *claim) ([]grant, bool) { return c.hamiCore() },
	annotated: func(c *claim) ([]grant, bool) {
		if phase, _ := c.annotation(hamiPhase); phase == "failed" {
			return nil, false
		}
		text, ok := c.annotation(hamiAllocated)
		if !ok {
			text, ok = c.annotation(hamiAllocatedOld)
		}
		if !ok {
			return nil, false
		}
		slots, ok := readHAMi(text)
		if !ok {
			return nil, false
		}
		at, ok := c.hamiSlot(slots)
		if !ok {
			return nil, false
		}
		mig := map[[2]int]ref{}
		if text, ok := c.annotation(hamiMIG); ok {
			if mig, ok = readHAMiMIG(text); !ok {
				return nil, false
			}
		}
		grants := slices.Clone(slots[at])
		for i := range grants {
			g := &grants[i]
			if r, ok := mig[[2]int{at, i}]; ok {
				if r.uuid != g.ref.uuid && r.full == "" || r.full != "" && r.full != g.ref.uuid {
					return nil, false // it speaks of another GPU
				}
				r.full = ""
				g.ref = r
			} else if g.onInstance {
				return nil, false // on some instance, and which is not written
			}
		}
		return grants, true
	},
}

// hamiCore reads what the plugins of HAMi's making give a container: its GPUs in the words of NVIDIA's runtime,
// and the limits of the library inside.
func (c *claim) hamiCore() ([]grant, bool) {
	refs, ok := c.alloc.visible()
	if !ok {
		refs, ok = c.alloc.minors(c.alloc.nodes)
	}
	// An answer of more GPUs than there are ids is not this claim's.
	if !ok || len(refs) > c.devices {
		return nil, false
	}
	grants := grantsOf(refs)
	var limits []gpu.Opt[gpu.Bytes]
	for i := range c.devices {
		text, ok := c.env(fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_%d", i))
		if !ok {
			break
		}
		limits = append(limits, readLimit(text))
	}
	grantLimits(grants, limits)
	if sm, ok := c.envAmount("CUDA_DEVICE_SM_LIMIT"); ok {
		for i := range grants {
			grants[i].compute = percent(sm)
		}
	}
	return grants, true
}

// grantLimits gives each GPU its limit. The runtime's list has a GPU once, the limits are one per virtual
// device: where their numbers differ, only a sum over one GPU or equal limits tell something.
func grantLimits(grants []grant, limits []gpu.Opt[gpu.Bytes]) {
	switch {
	case len(limits) == len(grants):
		for i := range grants {
			grants[i].memory = limits[i]
		}
	case len(grants) == 1 && len(limits) > 0:
		var sum gpu.Bytes
		for _, l := range limits {
			b, ok := l.Get()
			if !ok {
				return
			}
			sum += b
		}
		grants[0].memory = gpu.Some(sum)
	}
}

// readLimit reads an amount as HAMi's library does: "3000m" are MiB. None is no limit.
func readLimit(text string) gpu.Opt[gpu.Bytes] {
	text = strings.ToLower(strings.TrimSpace(text))
	by := 1.0
	for suffix, factor := range map[string]float64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if head, ok := strings.CutSuffix(text, suffix); ok {
			text, by = head, factor
			break
		}
	}
	v, ok := amount(text)
	if !ok {
		return gpu.None[gpu.Bytes]()
	}
	return bytesOf(v * by)
}

// readHAMi reads "<uuid>,<type>,<MiB>,<percent>:…;…": a slot per container, empty where it has no GPU. The text
// behind the last ";" is no slot.
func readHAMi(text string) ([][]grant, bool) {
	if len(text) > longestValue {
		return nil, false
	}
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	var slots [][]grant
	for slot := range strings.SplitSeq(text, ";") {
		var grants []grant
		for device := range strings.SplitSeq(slot, ":") {
			if device = strings.TrimSpace(device); device == "" {
				continue
			}
			g, ok := readHAMiDevice(device)
			if !ok || len(grants) >= mostNames {
				return nil, false
			}
			grants = append(grants, g)
		}
		slots = append(slots, grants)
	}
	return slots, len(slots) > 0
}

func readHAMiDevice(text string) (grant, bool) {
	fields := strings.Split(text, ",")
	if len(fields) < 4 {
		return grant{}, false
	}
	// GPU-<uuid>[<template>-<place>] is a static MIG template.
	uuid, _, templated := strings.Cut(fields[0], "[")
	r, ok := readNVML(uuid)
	memory, okMemory := amount(fields[2])
	cores, okCores := amount(fields[3])
	if !ok || !okMemory || !okCores {
		return grant{}, false
	}
	return grant{ref: r, memory: mebibytes(memory), compute: percent(cores), onInstance: templated}, true
}

// hamiSlot finds the container's slot. Since 2.9 init containers have slots too, and come first.
func (c *claim) hamiSlot(slots [][]grant) (int, bool) {
	var taken, counts []int
	for i, grants := range slots {
		if len(grants) > 0 {
			taken = append(taken, i)
			counts = append(counts, len(grants))
		}
	}
	at, ok := c.slot(counts, len(taken) > 0 && taken[len(taken)-1] == len(slots)-1)
	if !ok {
		return 0, false
	}
	return taken[at], true
}

// readHAMiMIG reads the MIG devices by container slot and device. In full stands the GPU's UUID.
func readHAMiMIG(text string) (map[[2]int]ref, bool) {
	var raw []struct {
		ContainerIndex, DeviceIndex      int
		GPUUUID, MIGUUID                 string
		GPUInstanceID, ComputeInstanceID *int
	}
	if len(text) > longestValue || json.Unmarshal([]byte(text), &raw) != nil {
		return nil, false
	}
	out := map[[2]int]ref{}
	for _, m := range raw {
		key := [2]int{m.ContainerIndex, m.DeviceIndex}
		if _, twice := out[key]; twice || !prefixedUUID(m.GPUUUID, "GPU-") {
			return nil, false
		}
		switch {
		case m.MIGUUID != "":
			r, ok := readNVML(m.MIGUUID)
			if !ok || r.by != byMIG {
				return nil, false
			}
			r.full = gpu.UUID(m.GPUUUID)
			out[key] = r
		case m.GPUInstanceID != nil && m.ComputeInstanceID != nil && *m.GPUInstanceID >= 0 && *m.ComputeInstanceID >= 0:
			out[key] = ref{by: byParts, uuid: gpu.UUID(m.GPUUUID), gi: *m.GPUInstanceID, ci: *m.ComputeInstanceID}
		default:
			return nil, false // reserved, and not made yet
		}
	}
	return out, true
}
