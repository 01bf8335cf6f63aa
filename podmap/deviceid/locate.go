package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Target is a GPU or MIG instance of the inventory. ComputeInstance is the one where the instance has several and
// one is meant. Part is the fraction of the instance, else of the GPU: less than 1 with it.
type Target struct {
	GPU, Instance   gpu.UUID
	ComputeInstance gpu.UUID
	Part            float64
	Memory          gpu.Opt[gpu.Bytes] // of the GPU
}

// Locate finds a reference among the GPUs of the node; a nil inventory has none. Without targets, elsewhere reports
// that the reference certainly names none of these GPUs.
func Locate(inv *gpu.Inventory, r Ref) (targets []Target, elsewhere bool) {
	if inv == nil {
		inv = &gpu.Inventory{}
	}
	var dev *gpu.InventoryGPU
	var ok bool
	switch r.by {
	case byDetached:
		return nil, true
	case byMIG:
		return instanceByUUID(inv, r.uuid), false
	case byAll:
		for i := range inv.GPUs {
			targets = append(targets, whole(&inv.GPUs[i])...)
		}
		return targets, false
	case byUUID, byParts:
		if t := instanceByUUID(inv, r.full); t != nil && r.by == byParts {
			return t, false
		}
		if dev, ok = inv.ByUUID(r.uuid); !ok {
			return nil, !r.Guessed && allNamed(inv)
		}
	case byMinor, byMinorAndGI, byProfile:
		if dev, ok = inv.ByMinor(r.number); !ok {
			return nil, allNumbered(inv)
		}
	case byIndex, byMIGIndex:
		dev, ok = inv.ByIndex(r.number)
	case byNumber:
		dev, ok = inv.ByIndex(r.number)
		same, known := inv.ByMinor(r.number)
		ok = ok && known && same == dev
	case byPCI:
		for _, all := range [][]gpu.InventoryGPU{inv.GPUs, inv.Detached} {
			if at := slices.IndexFunc(all, func(c gpu.InventoryGPU) bool { return c.PCI == r.pci }); at >= 0 {
				dev, ok = &all[at], true
			}
		}
		if !ok {
			near, _ := Possible(inv, r)
			return nil, len(near) == 0
		}
	case bySole:
		if ok = len(inv.GPUs) == 1; ok {
			dev = &inv.GPUs[0]
		}
	}
	if !ok {
		return nil, false
	}
	switch r.by {
	case byParts:
		return instance(dev, func(in *gpu.Instance) bool { return in.GI == r.gi },
			func(ci gpu.ComputeInstance) bool { return ci.CI == r.ci }), false
	case byMinorAndGI:
		return instance(dev, func(in *gpu.Instance) bool { return in.GI == r.gi }, nil), false
	case byProfile:
		return instance(dev, r.placed, nil), false
	case byMIGIndex:
		return instance(dev, func(in *gpu.Instance) bool {
			return slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.Index == r.ci })
		}, func(ci gpu.ComputeInstance) bool { return ci.Index == r.ci }), false
	}
	return whole(dev), false
}

// placed reports whether a GPU instance has the profile and the placement that the reference names.
func (r Ref) placed(in *gpu.Instance) bool {
	is := func(o gpu.Opt[int], want int) bool { v, ok := o.Get(); return ok && v == want }
	size, sized := r.size.Get()
	return is(in.ProfileID, r.profile) && is(in.PlacementStart, r.start) && (!sized || is(in.PlacementSize, size))
}

func whole(dev *gpu.InventoryGPU) []Target {
	return []Target{{GPU: dev.UUID, Part: 1, Memory: dev.Memory}}
}

func instanceByUUID(inv *gpu.Inventory, uuid gpu.UUID) []Target {
	dev, in, ok := inv.ByInstance(uuid)
	if !ok {
		return nil
	}
	return instance(dev, func(other *gpu.Instance) bool { return other == in },
		func(ci gpu.ComputeInstance) bool { return ci.UUID == uuid })
}

// instance returns the GPU instance that matches, or the fraction of it that one compute instance is. A nil compute
// names the whole.
func instance(dev *gpu.InventoryGPU, match func(*gpu.Instance) bool, compute func(gpu.ComputeInstance) bool) []Target {
	for i := range dev.Instances {
		in := &dev.Instances[i]
		if in.UUID == "" || !match(in) {
			continue
		}
		t := Target{GPU: dev.UUID, Instance: in.UUID, Part: 1}
		if compute != nil && len(in.Compute) > 0 {
			at := slices.IndexFunc(in.Compute, compute)
			if at < 0 {
				return nil // the compute instance is missing
			}
			if t.Part = float64(in.ComputeShare(at)); len(in.Compute) > 1 {
				t.ComputeInstance = in.Compute[at].UUID
			}
		}
		return []Target{t}
	}
	return nil
}

// allNamed reports whether a UUID that is not in the inventory belongs to none of its GPUs: every GPU has its own.
func allNamed(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.GPUs, func(c gpu.InventoryGPU) bool {
		return !strings.HasPrefix(string(c.UUID), "GPU-")
	})
}

// Possible returns the GPUs that a reference without a target may be of; known is false where that may be any.
func Possible(inv *gpu.Inventory, r Ref) (gpus []gpu.UUID, known bool) {
	if r.by != byPCI || inv == nil {
		return nil, false
	}
	// A virtual function has another address than its GPU, on the same bus; a GPU may have none that can be read.
	bus := func(a gpu.PCIAddress) string { return string(a[:strings.LastIndexByte(string(a), ':')+1]) }
	for i := range inv.GPUs {
		if at := inv.GPUs[i].PCI; at == "" || bus(at) == bus(r.pci) {
			gpus = append(gpus, inv.GPUs[i].UUID)
		}
	}
	return gpus, true
}

// Mediated reports whether the reference is a mediated device.
func (r Ref) Mediated() bool { return r.by == byMediated }

// allNumbered reports the same of minor numbers.
func allNumbered(inv *gpu.Inventory) bool {
	return !slices.ContainsFunc(inv.GPUs, func(c gpu.InventoryGPU) bool { return !c.Minor.Present() })
}
