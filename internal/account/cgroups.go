package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// Sources of a container's memory, values of gpu.ContainerGPU.MemorySource.
const (
	memoryOfGPU       = "gpu"
	memoryOfProcesses = "process"
	memoryOfCgroups   = "cgroup"
	memoryOfDriver    = "driver"
)

// Memory in use that no cgroup is charged for, as a part and in bytes, up to which it is the driver's own. More of it
// means that kernel or driver do not charge for everything (managed memory, or cgroups without a limit): the figures of
// containers would then be too small.
const (
	maxUncharged      = 0.02
	maxUnchargedBytes = 64 << 20
)

// charged returns what the memory of a GPU is charged to: by the kernel, else by the driver. It is empty without either.
func (l *Ledger) charged(c *device) (list []gpu.CgroupMemory, source string) {
	if list, ok := l.cgroups[c.id.PCI]; ok {
		return list, memoryOfCgroups
	}
	if c.medium != nil {
		return c.medium.Cgroups, memoryOfDriver
	}
	return nil, ""
}

// attributeCgroups attributes the used memory of a GPU by cgroup, in place of what was attributed before. It reports
// whether it did: only figures that account for all of the GPU's memory are used.
func (l *Ledger) attributeCgroups(c *device, used gpu.Bytes) bool {
	list, source := l.charged(c)
	var sum gpu.Bytes
	for i := range list {
		sum += list[i].Used
	}
	if len(list) == 0 || used > sum && used-sum > max(maxUnchargedBytes, gpu.Bytes(maxUncharged*float64(used))) {
		return false
	}
	for _, u := range c.unattributed {
		u.memory, u.hasMemory = 0, false
	}
	for _, r := range l.alive[c.id.UUID] {
		if r.isAllocated || r.uses {
			r.memory, r.hasMemory, r.memoryPartial, r.memorySource = 0, true, false, source
		}
	}
	for i := range list {
		m := &list[i]
		if m.Used == 0 {
			continue // it only means that the GPU is accounted
		}
		switch t := l.target(c, User{Container: m.Container, Reason: m.Reason}); {
		case t.row != nil && !t.row.isAllocated && t.row.releasedAt >= c.mediumAt:
			l.addUnattributedMemory(c, gpu.UnattributedUnresolved, m.Used) // read before the end of the allocation
		case t.row != nil:
			l.markUser(t.row)
			t.row.memory += m.Used
			t.row.hasMemory, t.row.memorySource = true, source
		default:
			l.addUnattributedMemory(c, t.reason, m.Used)
		}
	}
	c.memoryError = 0
	if sum > used {
		c.memoryError = float64(sum-used) / float64(max(1, used))
	} else {
		l.addUnattributedMemory(c, gpu.UnattributedDriver, used-sum)
	}
	return true
}

// limitByCgroup sets the limits that the driver enforces, in place of those that a sharing scheme records. The first
// allocation of a container on a GPU has them. The list is ordered by container and GPU.
func (l *Ledger) limitByCgroup(list []gpu.ContainerAllocation) {
	for i := range list {
		h := &list[i]
		c := l.devices[h.GPU]
		if c == nil || c.mig {
			continue
		}
		charged, _ := l.charged(c)
		for _, m := range charged {
			if m.Reason != "" || m.Container != h.Container || m.Container == (gpu.Container{}) {
				continue
			}
			first := i == 0 || list[i-1].Container != h.Container || list[i-1].GPU != h.GPU
			if m.Limit.Present() {
				h.MemoryLimit = gpu.None[gpu.Bytes]()
				if first {
					h.MemoryLimit = m.Limit
				}
			}
			if first {
				h.MemoryGuaranteed = m.Guaranteed
			}
		}
	}
}
