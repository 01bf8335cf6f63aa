package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// lingering is for how long, in seconds, work makes a container a user without being in a process list: the
// lists are read that often.
const lingering = 12.0

// remember divides the memory that is in use now, and counts the processes, by the newest medium reading.
// Who is found on a GPU is its user from here on, whether he holds it or not.
func (l *Ledger) remember(c *dev, users Users) {
	for _, u := range c.unattributed {
		u.memory, u.hasMemory = 0, false
	}
	c.memoryError = 0
	for _, r := range l.alive[c.id.UUID] {
		r.forgetNow()
	}
	for _, p := range c.parts {
		p.memory = c.memoryOf(p)
	}
	if c.medium == nil {
		return
	}
	var given gpu.Bytes
	blurred := false
	if c.visible {
		given, blurred = l.rememberProcesses(c, users)
		for _, r := range l.alive[c.id.UUID] {
			// Who worked and is not in the list yet, or no more, is there until the next list.
			if !r.uses && l.clock-r.workedAt < lingering && r.workedAt > r.leftAt+lingering {
				l.found(r)
			}
		}
	}
	for _, p := range c.parts {
		memory, ok := p.memory.Get()
		switch {
		case !ok:
			continue
		case p.mode == modeSole:
			// All that is used there is the holder's: contexts, and what the driver keeps for them, too.
			p.holders[0].row.memory += memory.Used
			p.holders[0].row.hasMemory = true
		case !c.visible && p.kind == migInstance:
			l.leaveMemory(c, gpu.UnattributedHidden, memory.Used)
		default:
			continue
		}
		given += memory.Used
	}
	total, ok := c.medium.Memory.Get()
	switch {
	case !ok:
	case given > total.Used:
		c.memoryError = float64(given-total.Used) / float64(max(1, total.Used))
	case !c.visible && !c.mig:
		l.leaveMemory(c, gpu.UnattributedHidden, total.Used-given)
	case blurred:
		l.leaveMemory(c, gpu.UnattributedUnmeasured, total.Used-given)
	default:
		l.leaveMemory(c, gpu.UnattributedDriver, total.Used-given)
	}
}

// memoryOf returns the memory of a part as it was last read.
func (c *dev) memoryOf(p *part) gpu.Opt[gpu.Memory] {
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

// rememberProcesses counts the listed processes and books their memory, except on parts that one container
// has for itself. It returns what was booked; blurred is set when some process did not tell its memory.
func (l *Ledger) rememberProcesses(c *dev, users Users) (given gpu.Bytes, blurred bool) {
	// Where a server stands for its clients, what is listed of a container is not all of it.
	collapsed := len(c.servers) > 0 && collapses(c.id)
	for _, p := range c.parts {
		veiled := len(p.holders) > 0 && l.veiled(c, p, users)
		for _, h := range p.holders {
			if !collapsed && !(veiled && !l.seen(c, p, h.row.key.container, users)) {
				h.row.hasMemory, h.row.counted = true, true // nothing is a measured nothing
			}
		}
	}
	list := c.list()
	for i := range list {
		proc := &list[i]
		used, told := proc.Memory.Get()
		t := l.target(c, c.user(users, proc.PID))
		if t.row != nil && !t.row.holds && t.row.leftAt >= c.mediumAt {
			// The list is older than the end of the holding: what it says of the container is over.
			t = target{reason: gpu.UnattributedUnresolved}
		}
		if t.row != nil {
			l.found(t.row)
			t.row.counted = !collapsed
			t.row.processes++
		}
		if p := c.partWith(proc); p != nil && p.mode == modeSole && p.memory.Present() {
			continue
		}
		blurred = blurred || !told
		given += used
		if t.row != nil && collapsed {
			t = target{reason: gpu.UnattributedMPS}
		}
		if t.row == nil {
			l.leaveMemory(c, t.reason, used)
			continue
		}
		t.row.memory += used
		t.row.hasMemory = true
		t.row.blurred = t.row.blurred || !told
	}
	return given, blurred
}

// found notes that a container is at work on a GPU.
func (l *Ledger) found(r *row) {
	l.wake(r)
	if r.holds || !r.uses && !r.used {
		r.usedFrom = l.clock
	}
	r.uses = true
}

// partWith returns the part on which a process runs, nil if that cannot be told.
func (c *dev) partWith(proc *gpu.Process) *part {
	for _, p := range c.parts {
		if c.on(p, proc) {
			return p
		}
	}
	return nil
}

// forgetNow ends what is said of the present moment.
func (r *row) forgetNow() {
	r.used = r.uses
	r.memory, r.hasMemory, r.blurred = 0, false, false
	r.processes, r.counted, r.uses = 0, false, false
}

func (l *Ledger) leaveMemory(c *dev, reason gpu.UnattributedReason, used gpu.Bytes) {
	u := c.why(reason)
	u.memory += used
	u.hasMemory = true
}
