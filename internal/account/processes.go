package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// User is the owner of a process: a container, or the reason why it belongs to none (host, unresolved, driver).
type User struct {
	Container gpu.Container
	Reason    gpu.UnattributedReason
	// MPS is true for a process with the name of an MPS daemon, whoever started it.
	MPS bool
}

// Users maps the processes of the node to their owners. A nil map means that processes cannot be resolved at all; a
// process missing from the map is unresolved.
type Users map[int]User

// of returns the owner of a process.
func (u Users) of(pid int) User {
	if who, ok := u[pid]; ok {
		return who
	}
	return User{Reason: gpu.UnattributedUnresolved}
}

// target returns the account of a user on a GPU.
func (l *Ledger) target(c *device, who User) target {
	if who.Reason != "" {
		return target{reason: who.Reason}
	}
	return target{row: l.row(c, who.Container)}
}

// list returns the processes of the last process list of a GPU.
func (c *device) list() []gpu.Process {
	if c.medium == nil {
		return nil
	}
	return c.medium.Processes.Or(nil)
}

// on reports whether a process runs on a part.
func (c *device) on(p *part, proc *gpu.Process) bool {
	switch p.kind {
	case migInstance:
		gi, ok := proc.GI.Get()
		return ok && gi == p.instance.GI
	case spareSlices:
		return false
	}
	return true
}

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

// weigh stores the utilization samples of the processes. The driver records one process per sample of its ring, so only
// the proportions are meaningful. A first reading covers past activity and is dropped.
func (c *device) weigh(f *gpu.Fast, first bool) {
	samples, ok := f.Processes.Get()
	if !ok {
		return
	}
	c.weighable = true
	c.weightsAge++
	replaced := false
	for _, s := range samples {
		if s.SM <= 0 || first {
			continue
		}
		if !replaced {
			c.weights, replaced, c.weightsAge = c.weights[:0], true, 0
		}
		c.weights = append(c.weights, processWeight{s.PID, s.SM})
	}
	if !replaced && c.weightsAge > 1 {
		c.weights = c.weights[:0] // no samples for more than one reading: the old ones are void
	}
}

// processWeight is one utilization sample of a process.
type processWeight struct {
	pid    int
	weight float64
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

// weighed is a user with the sum of its samples.
type weighed struct {
	who    User
	weight float64
}
