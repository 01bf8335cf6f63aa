package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// usersOn returns the distinct users of a part, without the driver's own processes and MPS servers.
func (l *Ledger) usersOn(c *device, p *part, users Users) []User {
	c.usersSeen = c.usersSeen[:0]
	list := c.list()
next:
	for i := range list {
		if !c.on(p, &list[i]) {
			continue
		}
		who := l.who(c, users, list[i].PID)
		if who.Reason == gpu.UnattributedDriver || who.Reason == gpu.UnattributedMPS {
			continue
		}
		for _, o := range c.usersSeen {
			if o == who {
				continue next
			}
		}
		c.usersSeen = append(c.usersSeen, who)
	}
	return c.usersSeen
}

// otherUser reports whether a process of another container or of the host was active.
func (l *Ledger) otherUser(c *device, own gpu.Container, users Users) bool {
	for _, w := range c.weights {
		switch who := l.who(c, users, w.pid); who.Reason {
		case "":
			if who.Container != own {
				return true
			}
		case gpu.UnattributedHost:
			return true
		}
	}
	return false
}

// split divides the busy time of a part, and its observed time, in proportion to the samples of its users.
func (l *Ledger) split(c *device, p *part, busy, observed, ago float64, users Users) {
	usersOn := l.usersOn(c, p, users)
	_, untrusted := c.mpsServers(p)
	switch {
	case !(busy > 0):
	case !c.mig && len(c.weights) > 0:
		l.splitByWeight(c, busy, ago, users)
	case untrusted:
		// It may be an MPS server or pretend to be one: its activity must not be attributed to another container.
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedMPS}, busy}, ago)
		return
	case len(usersOn) == 0:
		// No visible process can have caused it.
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedHidden}, busy}, ago)
	case len(usersOn) == 1:
		l.attributeUser(c, usersOn[0], busy, ago)
	default:
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedUnmeasured}, busy}, ago)
		return // nothing was measured per user, so there is no observed time
	}
	for _, h := range p.rows {
		if h.row.measured() {
			h.row.observed += observed
		}
	}
	for _, r := range l.alive[c.id.UUID] {
		if r.uses && !r.isAllocated && (!c.mig || len(usersOn) == 1 && usersOn[0] == User{Container: r.key.container}) {
			r.observed += observed
		}
	}
}

// splitByWeight divides busy time in proportion to the samples.
func (l *Ledger) splitByWeight(c *device, busy, ago float64, users Users) {
	total := 0.0
	c.weighed = c.weighed[:0]
next:
	for _, w := range c.weights {
		total += w.weight
		who := l.who(c, users, w.pid)
		if who.Reason == gpu.UnattributedDriver {
			who.Reason = gpu.UnattributedMPS // where the server has samples, they are those of its clients
		}
		for i := range c.weighed {
			if c.weighed[i].who == who {
				c.weighed[i].weight += w.weight
				continue next
			}
		}
		c.weighed = append(c.weighed, weighed{who, w.weight})
	}
	left := busy
	for i, w := range c.weighed {
		share := min(left, busy*w.weight/total)
		if i == len(c.weighed)-1 {
			share = left // the remainder of rounding
		}
		left -= share
		l.attributeUser(c, w.who, share, ago)
	}
}

// attributeUser adds busy time that process samples show for a user.
func (l *Ledger) attributeUser(c *device, who User, busy, ago float64) {
	t := l.target(c, who)
	l.attributeBusy(c, credit{t, busy}, ago)
	if t.row == nil || !(busy > 0) {
		return
	}
	t.row.usedAt = l.clock
	if l.clock > t.row.releasedAt+lingering {
		l.activate(t.row)
	}
}

// lingering is how long, in seconds, a container counts as a user after its last samples without being in a process
// list: the lists are read that often.
const lingering = 12.0

// markUser records that a container uses a GPU.
func (l *Ledger) markUser(r *row) {
	l.activate(r)
	if r.isAllocated || !r.uses && !r.used {
		r.usedFrom = l.clock
	}
	r.uses = true
}
