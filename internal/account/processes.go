package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// User is whom a process belongs to: a container, or the reason why it belongs to none (host, unresolved,
// driver).
type User struct {
	Container gpu.Container
	Reason    gpu.UnattributedReason
	// MPS is true of a process that bears the name of MPS's daemons, whoever it is.
	MPS bool
}

// Users says whom the processes of the node belong to. A nil map means that processes cannot be told apart
// at all; a process that a map lacks is unresolved.
type Users map[int]User

// of returns the user of a process.
func (u Users) of(pid int) User {
	if who, ok := u[pid]; ok {
		return who
	}
	return User{Reason: gpu.UnattributedUnresolved}
}

// target returns the account of a user on a GPU.
func (l *Ledger) target(c *dev, who User) target {
	if who.Reason != "" {
		return target{reason: who.Reason}
	}
	return target{row: l.row(c, who.Container)}
}

// list returns the processes that were last seen on a GPU.
func (c *dev) list() []gpu.Process {
	if c.medium == nil {
		return nil
	}
	return c.medium.Processes.Or(nil)
}

// on reports whether a process runs on a part.
func (c *dev) on(p *part, proc *gpu.Process) bool {
	switch p.kind {
	case migInstance:
		gi, ok := proc.GI.Get()
		return ok && gi == p.instance.GI
	case spareSlices:
		return false
	}
	return true
}

// owners returns the distinct users of a part, the driver's own processes and MPS's servers left out.
func (l *Ledger) owners(c *dev, p *part, users Users) []User {
	c.ownersSeen = c.ownersSeen[:0]
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
		for _, o := range c.ownersSeen {
			if o == who {
				continue next
			}
		}
		c.ownersSeen = append(c.ownersSeen, who)
	}
	return c.ownersSeen
}

// weigh takes the utilization samples of the processes. The driver names one process per sample of its
// ring, so that only the proportions mean something. A first reading tells of finished work and is left out.
func (c *dev) weigh(f *gpu.Fast, first bool) {
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
		c.weights = c.weights[:0] // nobody for more than one reading: what they weighed is over
	}
}

// processWeight is one utilization sample of a process.
type processWeight struct {
	pid    int
	weight float64
}

// intruder reports whether somebody else than a container was seen at work.
func (l *Ledger) intruder(c *dev, own gpu.Container, users Users) bool {
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

// split divides the work of a part, and the time that was observed, by what its users weigh.
func (l *Ledger) split(c *dev, p *part, busy, observed, ago float64, users Users) {
	owners := l.owners(c, p, users)
	_, doubtful := c.serves(p)
	switch {
	case !(busy > 0):
	case !c.mig && len(c.weights) > 0:
		l.splitByWeight(c, busy, ago, users)
	case doubtful:
		// It may be a server, or somebody who calls himself one: what he does must not become another's.
		l.give(c, credit{target{reason: gpu.UnattributedMPS}, busy}, ago)
		return
	case len(owners) == 0:
		// Whoever it was, it is nobody whose processes are seen.
		l.give(c, credit{target{reason: gpu.UnattributedHidden}, busy}, ago)
	case len(owners) == 1:
		l.work(c, owners[0], busy, ago)
	default:
		l.give(c, credit{target{reason: gpu.UnattributedUnmeasured}, busy}, ago)
		return // no measure of anybody, so no time in which he was measured
	}
	for _, h := range p.holders {
		if h.row.measured() {
			h.row.observed += observed
		}
	}
	for _, r := range l.alive[c.id.UUID] {
		if r.uses && !r.holds && (!c.mig || len(owners) == 1 && owners[0] == User{Container: r.key.container}) {
			r.observed += observed
		}
	}
}

// splitByWeight divides work in proportion to the weights.
func (l *Ledger) splitByWeight(c *dev, busy, ago float64, users Users) {
	total := 0.0
	c.weighed = c.weighed[:0]
next:
	for _, w := range c.weights {
		total += w.weight
		who := l.who(c, users, w.pid)
		if who.Reason == gpu.UnattributedDriver {
			who.Reason = gpu.UnattributedMPS // where the server has samples, it has its clients'
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
			share = left // nothing is lost to rounding
		}
		left -= share
		l.work(c, w.who, share, ago)
	}
}

// work books what processes show to be a user's.
func (l *Ledger) work(c *dev, who User, busy, ago float64) {
	t := l.target(c, who)
	l.give(c, credit{t, busy}, ago)
	if t.row == nil || !(busy > 0) {
		return
	}
	t.row.workedAt = l.clock
	if l.clock > t.row.leftAt+lingering {
		l.wake(t.row)
	}
}

// weighed is a user and what his processes weigh together.
type weighed struct {
	who    User
	weight float64
}
