package sampler

import (
	"cmp"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// adopt applies the GPU list of a scan.
func (s *Sampler) adopt(devs []GPU) {
	seen := map[*tracked]bool{}
	for _, dev := range devs {
		id := dev.Identity()
		i := slices.IndexFunc(s.devs, func(t *tracked) bool { return t.id.UUID == id.UUID })
		if i < 0 {
			s.devs = append(s.devs, &tracked{id: id, index: id.Index, state: gpu.DeviceUp})
			i = len(s.devs) - 1
			s.log.Info("GPU discovered", "gpu", id.UUID, "pci", id.PCI, "model", id.Model)
		}
		t := s.devs[i]
		seen[t] = true
		t.index = id.Index
		if t.id.Index >= 0 {
			id.Index = t.id.Index
		}
		if id.Model == "" && t.id.Model != "" {
			id = t.id // it cannot be read now: keep its last identity
		}
		if t.dev == nil || t.dev != dev {
			t.fast.due, t.medium.due, t.slow.due = true, true, true
		}
		t.id, t.dev, t.lostErr = id, dev, nil
	}
	s.devs = slices.DeleteFunc(s.devs, func(t *tracked) bool {
		if seen[t] || t.pending {
			return false
		}
		// Another is at its address: it was replaced, or had no UUID yet.
		replaced := t.id.PCI != "" && slices.ContainsFunc(devs, func(d GPU) bool { return d.Identity().PCI == t.id.PCI })
		onBus, _ := s.expected.has(t.id.PCI)
		if t.dev = nil; !replaced && (t.known || onBus) {
			return false
		}
		s.ledger.Forget(t.id.UUID)
		return true
	})
	s.sortGPUs()
}

// sortGPUs sorts by index, then PCI address; GPUs that NVML never listed come last.
func (s *Sampler) sortGPUs() {
	gpu.Sort(s.devs, func(a, b *tracked) int {
		switch {
		case a.id.Index != b.id.Index && (a.id.Index < 0 || b.id.Index < 0):
			return b.id.Index - a.id.Index
		case a.id.Index != b.id.Index:
			return a.id.Index - b.id.Index
		}
		return cmp.Compare(a.id.PCI, b.id.PCI)
	})
}

// updateInventory replaces the inventory when it changed.
func (s *Sampler) updateInventory() {
	inv := &gpu.Inventory{}
	for _, t := range s.devs {
		if !t.known && t.dev == nil && t.state == gpu.DeviceDetached {
			inv.Detached = append(inv.Detached, gpu.InventoryGPU{UUID: t.id.UUID, PCI: t.id.PCI})
			continue
		}
		if !t.known && t.dev == nil && string(t.id.UUID) == string(t.id.PCI) {
			continue // the driver never listed it
		}
		c := gpu.InventoryGPU{UUID: t.id.UUID, Index: t.index, Minor: t.id.Minor, PCI: t.id.PCI, Memory: t.memory}
		if t.layout != nil {
			mode, _ := t.layout.MIGMode.Get()
			c.MIG, c.Instances = mode.Current, t.layout.Instances
		}
		inv.GPUs = append(inv.GPUs, c)
	}
	if s.inventory == nil || !slices.EqualFunc(inv.GPUs, s.inventory.GPUs, sameGPU) ||
		!slices.EqualFunc(inv.Detached, s.inventory.Detached, sameGPU) {
		s.inventory = inv
	}
}

func sameGPU(a, b gpu.InventoryGPU) bool {
	return a.UUID == b.UUID && a.Index == b.Index && a.Minor == b.Minor && a.PCI == b.PCI && a.MIG == b.MIG &&
		a.Memory == b.Memory &&
		slices.EqualFunc(a.Instances, b.Instances, func(x, y gpu.Instance) bool {
			return x.UUID == y.UUID && x.GI == y.GI && x.Profile == y.Profile && x.Slices == y.Slices &&
				x.Share == y.Share &&
				x.PlacementStart == y.PlacementStart && x.PlacementSize == y.PlacementSize &&
				x.ProfileID == y.ProfileID &&
				slices.Equal(x.Compute, y.Compute)
		})
}

// watchMIG shuts down NVML when a change of the MIG mode is pending, which waits for open clients: once for everything
// that is pending on the node. A change that was pending when the exporter started does not count: it was not blocked by
// this process. On Ampere the mode changes with a reset of the GPU only, for which NVML has to be released anyway.
func (s *Sampler) watchMIG(t *tracked, slow *gpu.Slow) {
	mode, ok := slow.MIGMode.Get()
	first := !t.migSeen
	t.migSeen = true
	if ok && mode.Current == mode.Pending {
		t.migAnnounced = false
	}
	if !ok || mode.Current == mode.Pending || t.migAnnounced {
		return
	}
	t.migAnnounced = true
	if first || t.id.Architecture == resetForMIG {
		s.log.Info("MIG mode change pending", "gpu", t.id.UUID, "enabled", mode.Pending, "needs_reset", t.id.Architecture == resetForMIG)
		return
	}
	if s.session.pauseAt == 0 && s.session.intent == intentNone {
		// The other GPUs' changes are awaited: a tool sets one after the other.
		s.session.pauseAt = s.clock + pauseDelay
		for _, other := range s.devs {
			other.slow.due = true
		}
	}
}
