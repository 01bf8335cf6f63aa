package account

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// target returns the account of a user on a GPU.
func (l *Ledger) target(c *device, who User) target {
	if who.Reason != "" {
		return target{reason: who.Reason}
	}
	return target{row: l.row(c, who.Container)}
}

// attributeBusy adds busy time that ended the given number of seconds ago.
func (l *Ledger) attributeBusy(c *device, t credit, ago float64) {
	if !(t.busy > 0) {
		return
	}
	c.attributedBusy += t.busy
	if t.row != nil {
		t.row.busy += t.busy
		t.row.lastBusyAt = max(t.row.lastBusyAt, l.clock-ago)
		t.row.lastBusy = l.now.Add(-time.Duration(ago * float64(time.Second)))
	} else {
		u := c.unattributedBy(t.reason)
		u.busy += t.busy
		u.hasBusy = true
	}
	for i := range c.credits {
		if c.credits[i].target == t.target {
			c.credits[i].busy += t.busy
			return
		}
	}
	c.credits = append(c.credits, t)
}

// addEnergy adds energy to a target.
func (l *Ledger) addEnergy(c *device, t target, joules float64) {
	if !(joules > 0) {
		return
	}
	c.attributedEnergy += joules
	if t.row != nil {
		t.row.energy += joules
		return
	}
	u := c.unattributedBy(t.reason)
	u.energy += joules
	u.hasEnergy = true
}

// unattributedBy returns the account of one reason.
func (c *device) unattributedBy(reason gpu.UnattributedReason) *unattributed {
	u := c.unattributed[reason]
	if u == nil {
		u = &unattributed{}
		c.unattributed[reason] = u
	}
	return u
}
