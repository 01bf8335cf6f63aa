package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// attributeMemory attributes the memory in use and counts the processes of the newest medium reading. A container found
// on a GPU is a user of it from here on, whether it is allocated to it or not.
func (l *Ledger) attributeMemory(c *device, users Users) {
	for _, u := range c.unattributed {
		u.memory, u.hasMemory = 0, false
	}
	c.memoryError = 0
	for _, r := range l.alive[c.id.UUID] {
		r.resetGauges()
	}
	for _, p := range c.parts {
		p.memory = c.memoryOf(p)
	}
	if c.medium == nil {
		return
	}
	var given gpu.Bytes
	memoryPartial := false
	if c.visible {
		given, memoryPartial = l.attributeProcesses(c, users)
		for _, r := range l.alive[c.id.UUID] {
			// A container that was busy and is not in the list counts as present until the next list.
			if !r.uses && l.clock-r.usedAt < lingering && r.usedAt > r.releasedAt+lingering {
				l.markUser(r)
			}
		}
	}
	for _, p := range c.parts {
		memory, ok := p.memory.Get()
		switch {
		case !ok:
			continue
		case p.mode == modeSole:
			// All used memory is the container's, including contexts and what the driver reserves for them.
			p.rows[0].row.memory += memory.Used
			p.rows[0].row.hasMemory, p.rows[0].row.memorySource = true, memoryOfGPU
		case !c.visible && p.kind == migInstance:
			l.addUnattributedMemory(c, gpu.UnattributedHidden, memory.Used)
		default:
			continue
		}
		given += memory.Used
	}
	total, ok := c.medium.Memory.Get()
	if ok && !c.mig && l.attributeCgroups(c, total.Used) {
		return
	}
	switch {
	case !ok:
	case given > total.Used:
		c.memoryError = float64(given-total.Used) / float64(max(1, total.Used))
	case !c.visible && !c.mig:
		l.addUnattributedMemory(c, gpu.UnattributedHidden, total.Used-given)
	case memoryPartial:
		l.addUnattributedMemory(c, gpu.UnattributedUnmeasured, total.Used-given)
	default:
		l.addUnattributedMemory(c, gpu.UnattributedDriver, total.Used-given)
	}
}

// memoryOf returns the memory of a part as last read.
func (c *device) memoryOf(p *part) gpu.Opt[gpu.Memory] {
	if c.medium == nil {
		return gpu.None[gpu.Memory]()
	}
	switch p.kind {
	case wholeGPU:
		return c.medium.Memory
	case migInstance:
		for i := range c.medium.Instances {
			if c.medium.Instances[i].UUID == p.instance.UUID {
				return c.medium.Instances[i].Memory
			}
		}
	}
	return gpu.None[gpu.Memory]()
}

// attributeProcesses counts the listed processes and attributes their memory, except on parts allocated to a single
// container. It returns the attributed sum, and whether the memory of some process is unknown.
func (l *Ledger) attributeProcesses(c *device, users Users) (given gpu.Bytes, memoryPartial bool) {
	// Where an MPS server stands for its clients, the list does not have all of a container's processes.
	collapsed := len(c.servers) > 0 && hidesClients(c.id)
	for _, p := range c.parts {
		unresolved := len(p.rows) > 0 && l.hasUnresolved(c, p, users)
		for _, h := range p.rows {
			if !collapsed && !(unresolved && !l.seen(c, p, h.row.key.container, users)) {
				h.row.hasMemory, h.row.counted, h.row.memorySource = true, true, memoryOfProcesses // not listed: a measured zero
			}
		}
	}
	list := c.list()
	for i := range list {
		proc := &list[i]
		used, reported := proc.Memory.Get()
		t := l.target(c, c.user(users, proc.PID))
		if t.row != nil && !t.row.isAllocated && t.row.releasedAt >= c.mediumAt {
			// The list precedes the end of the allocation: it no longer applies to the container.
			t = target{reason: gpu.UnattributedUnresolved}
		}
		if t.row != nil {
			l.markUser(t.row)
			t.row.counted = !collapsed
			t.row.processes++
		}
		if p := c.partOfProcess(proc); p != nil && p.mode == modeSole && p.memory.Present() {
			continue
		}
		memoryPartial = memoryPartial || !reported
		given += used
		if t.row != nil && collapsed {
			t = target{reason: gpu.UnattributedMPS}
		}
		if t.row == nil {
			l.addUnattributedMemory(c, t.reason, used)
			continue
		}
		t.row.memory += used
		t.row.hasMemory, t.row.memorySource = true, memoryOfProcesses
		t.row.memoryPartial = t.row.memoryPartial || !reported
	}
	return given, memoryPartial
}

func (l *Ledger) addUnattributedMemory(c *device, reason gpu.UnattributedReason, used gpu.Bytes) {
	u := c.unattributedBy(reason)
	u.memory += used
	u.hasMemory = true
}
