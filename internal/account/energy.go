package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// idleLearning is how much of what a quiet window shows goes into the idle power.
const idleLearning = 0.1

// burn divides the energy of one window. The idle part goes to the holders by their held share, the active
// part by the share of the work. What a GPU draws while idle is learned in windows in which idleness is
// proven, after another of the kind: clocks and fans need a moment to come down.
func (l *Ledger) burn(c *dev, joules, busy, observed, elapsed float64) {
	c.spentEnergy += joules
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
		l.charge(c, target{row: p.holders[0].row}, joules)
		return
	}
	if busy <= 0 && !proven {
		// Nothing says whether anybody worked.
		l.charge(c, target{reason: gpu.UnattributedUnmeasured}, joules)
		return
	}
	idle := joules
	if busy > 0 {
		idle = min(joules, c.idleWatts*elapsed)
	}
	l.chargeIdle(c, idle)
	if active := joules - idle; active > 0 {
		left := active
		for i := range c.credits {
			share := min(left, active*c.credits[i].busy/busy)
			if i == len(c.credits)-1 {
				share = left
			}
			left -= share
			l.charge(c, c.credits[i].target, share)
		}
		if len(c.credits) == 0 {
			l.charge(c, target{reason: gpu.UnattributedUnmeasured}, active)
		}
	}
}

// chargeIdle gives idle energy to the holders.
func (l *Ledger) chargeIdle(c *dev, joules float64) {
	left := joules
	pay := func(t target, share float64) {
		part := min(left, joules*share)
		left -= part
		l.charge(c, t, part)
	}
	for _, p := range c.parts {
		for _, h := range p.holders {
			t := target{row: h.row}
			if !h.row.measured() {
				t = target{reason: l.blindReason(c, p)}
			}
			pay(t, p.share*h.share)
		}
		reason := gpu.UnattributedUnresolved
		if p.freeKnown || !l.allocs.Configured {
			reason = gpu.UnattributedIdle
		}
		pay(target{reason: reason}, p.share*p.free)
	}
	l.charge(c, target{reason: gpu.UnattributedUnresolved}, left)
}

// charge books energy.
func (l *Ledger) charge(c *dev, t target, joules float64) {
	if !(joules > 0) {
		return
	}
	c.givenEnergy += joules
	if t.row != nil {
		t.row.energy += joules
		return
	}
	u := c.why(t.reason)
	u.energy += joules
	u.hasEnergy = true
}
