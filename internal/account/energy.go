package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// idleLearning is the weight of one idle period in the moving average of the idle power.
const idleLearning = 0.1

// splitEnergy attributes the energy of one period: the idle part by allocated share, the active part by busy share. The
// idle power is learned in periods that are proven idle and follow another such period, since clocks and fans take a
// moment to slow down.
func (l *Ledger) splitEnergy(c *device, joules, busy, observed, elapsed float64) {
	c.totalEnergy += joules
	proven := busy == 0 && observed >= elapsed/2 && observed > 0
	if proven && c.quiet && elapsed > 0 {
		watts := joules / elapsed
		if !c.idleKnown {
			c.idleWatts, c.idleKnown = watts, true
		} else {
			c.idleWatts += idleLearning * (watts - c.idleWatts)
		}
	}
	c.quiet = proven
	if !(joules > 0) {
		return
	}
	if p := c.parts[0]; p.kind == wholeGPU && p.mode == modeSole {
		l.addEnergy(c, target{row: p.rows[0].row}, joules)
		return
	}
	if busy <= 0 && !proven {
		// Whether the GPU was busy is unknown.
		l.addEnergy(c, target{reason: gpu.UnattributedUnmeasured}, joules)
		return
	}
	idle := joules
	if busy > 0 {
		idle = min(joules, c.idleWatts*elapsed)
	}
	l.splitIdleEnergy(c, idle)
	if active := joules - idle; active > 0 {
		left := active
		for i := range c.credits {
			share := min(left, active*c.credits[i].busy/busy)
			if i == len(c.credits)-1 {
				share = left
			}
			left -= share
			l.addEnergy(c, c.credits[i].target, share)
		}
		if len(c.credits) == 0 {
			l.addEnergy(c, target{reason: gpu.UnattributedUnmeasured}, active)
		}
	}
}

// splitIdleEnergy attributes idle energy by allocated share.
func (l *Ledger) splitIdleEnergy(c *device, joules float64) {
	left := joules
	pay := func(t target, share float64) {
		part := min(left, joules*share)
		left -= part
		l.addEnergy(c, t, part)
	}
	for p := range c.units {
		for _, h := range p.rows {
			t := target{row: h.row}
			if !h.row.measured() {
				t = target{reason: l.unknownReason(c, p)}
			}
			pay(t, p.share*h.share)
		}
		reason := gpu.UnattributedUnresolved
		if p.unallocatedKnown || !l.allocs.Configured {
			reason = gpu.UnattributedIdle
		}
		pay(target{reason: reason}, p.share*p.unallocated)
	}
	l.addEnergy(c, target{reason: gpu.UnattributedUnresolved}, left)
}
