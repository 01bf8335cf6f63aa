package account

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// How busy was obtained, as gpu.ContainerCard.Attribution spells it.
const (
	attributionExclusive = "exclusive"
	attributionProcess   = "process"
	attributionMIG       = "mig"
	attributionNone      = "none"
)

// rank orders them: what a container gets from several parts is called by the worst that measures anything;
// parts of which nobody can tell add nothing to its busy time, and nothing to the time it was observed.
var rank = map[string]int{attributionProcess: 1, attributionExclusive: 2, attributionMIG: 3, attributionNone: 4, "": 5}

// mode is how the work of a part finds its owner.
type mode int

const (
	// modeSole: one container holds all of it, and nobody else was seen on it.
	modeSole mode = iota
	// modeProcess: the processes tell.
	modeProcess
	// modeBlind: nobody can tell.
	modeBlind
)

// target is who gets something: a container's row, or a reason why no container does.
type target struct {
	row    *row
	reason gpu.UnattributedReason
}

// credit is a target's part of the work of one window, in seconds of the GPU.
type credit struct {
	target
	busy float64
}

// settleModes finds the mode of every part, and from them how each container's busy is obtained.
func (l *Ledger) settleModes(c *dev, users Users) {
	c.visible = users != nil && c.medium != nil && c.medium.Processes.Present()
	c.everVisible = c.everVisible || c.visible
	c.servers = c.servers[:0]
	if c.visible {
		l.findServers(c, users)
	}
	for _, p := range c.parts {
		for _, h := range p.holders {
			h.row.attribution = ""
		}
	}
	for _, p := range c.parts {
		p.mode = l.modeOf(c, p, users)
		how := attributionNone
		switch {
		case p.act.method == "": // nothing measures it
		case p.mode == modeSole && p.kind == migInstance:
			how = attributionMIG
		case p.mode == modeSole:
			how = attributionExclusive
		case p.mode == modeProcess:
			how = attributionProcess
		}
		if p.kind == spareSlices {
			continue // nothing runs there
		}
		veiled := p.mode == modeProcess && l.veiled(c, p, users)
		for _, h := range p.holders {
			how := how
			if veiled && !l.seen(c, p, h.row.key.container, users) {
				how = attributionNone
			}
			if rank[how] < rank[h.row.attribution] {
				h.row.attribution = how
			}
		}
	}
}

// veiled reports whether somebody is on a part of whom nobody can say who he is: a holder of whom nothing is seen there
// may be he, so that nothing seen is then no measured nothing.
func (l *Ledger) veiled(c *dev, p *part, users Users) bool {
	return l.anybody(c, p, users, func(who User) bool { return who.Reason == gpu.UnattributedUnresolved })
}

// seen reports whether some process on a part is known to be a container's.
func (l *Ledger) seen(c *dev, p *part, container gpu.Container, users Users) bool {
	return l.anybody(c, p, users, func(who User) bool { return who.Reason == "" && who.Container == container })
}

// anybody reports whether it is true of the user of any process that is listed or was weighed on a part.
func (l *Ledger) anybody(c *dev, p *part, users Users, is func(User) bool) bool {
	list := c.list()
	for i := range list {
		if c.on(p, &list[i]) && is(l.who(c, users, list[i].PID)) {
			return true
		}
	}
	return !c.mig && slices.ContainsFunc(c.weights, func(w processWeight) bool { return is(l.who(c, users, w.pid)) })
}

func (l *Ledger) modeOf(c *dev, p *part, users Users) mode {
	sole := p.sole()
	if !c.visible {
		if sole != nil {
			return modeSole
		}
		return modeBlind
	}
	owners := l.owners(c, p, users)
	served, doubtful := c.serves(p)
	if sole != nil && !doubtful && !l.intruder(c, sole.key.container, users) && (len(owners) == 0 || len(owners) == 1 && owners[0] == (User{Container: sole.key.container})) {
		return modeSole
	}
	if served && collapses(c.id) || doubtful && c.mig {
		return modeBlind
	}
	// Without a measure of each process, work has an owner only where there is but one.
	if len(owners) <= 1 || !c.mig && c.weighable {
		return modeProcess
	}
	return modeBlind
}

// attribute gives the work that was measured on a part to those who did it.
func (l *Ledger) attribute(c *dev, p *part, users Users) {
	in := p.added
	busy, observed := in.busy*p.share, in.observed*p.share
	if c.mig && !p.shareKnown {
		return // it is not in the GPU's sum either
	}
	switch p.mode {
	case modeSole:
		r := p.holders[0].row
		l.give(c, credit{target{row: r}, busy}, in.sinceWork)
		if r.measured() {
			r.observed += observed
		}
	case modeProcess:
		l.split(c, p, busy, observed, in.sinceWork, users)
	case modeBlind:
		l.give(c, credit{target{reason: l.blindReason(c, p)}, busy}, in.sinceWork)
	}
}

// blindReason says why the work of a part has no owner.
func (l *Ledger) blindReason(c *dev, p *part) gpu.UnattributedReason {
	served, doubtful := c.serves(p)
	switch {
	case served && collapses(c.id) || doubtful:
		return gpu.UnattributedMPS
	case c.visible:
		return gpu.UnattributedUnmeasured
	case len(p.holders) == 0 && l.allocs.Configured && !p.freeKnown:
		return gpu.UnattributedUnresolved
	}
	return gpu.UnattributedHidden
}

// give books work that was done until ago seconds before now.
func (l *Ledger) give(c *dev, t credit, ago float64) {
	if !(t.busy > 0) {
		return
	}
	c.givenBusy += t.busy
	if t.row != nil {
		t.row.busy += t.busy
		t.row.lastBusyAt = max(t.row.lastBusyAt, l.clock-ago)
		t.row.lastBusy = l.before(ago)
	} else {
		u := c.why(t.reason)
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
