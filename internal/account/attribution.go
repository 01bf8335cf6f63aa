package account

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// rank orders them: a container with several parts has the weakest method that measures anything; parts that cannot be
// measured add nothing to its busy and observed time.
var rank = map[string]int{attributionProcess: 1, attributionExclusive: 2, attributionMIG: 3, attributionNone: 4, "": 5}

// settleModes sets the mode of every part, and from them the attribution method of each container.
func (l *Ledger) settleModes(c *device, users Users) {
	c.visible = users != nil && c.medium != nil && c.medium.Processes.Present()
	c.everVisible = c.everVisible || c.visible
	l.findServers(c, users)
	for p := range c.all {
		p.mode = l.modeOf(c, p, users)
		for _, h := range p.rows {
			h.row.attribution = ""
		}
	}
	for p := range c.units {
		how := attributionNone
		switch {
		case p.act.method == "": // not measured
		case p.mode == modeSole && p.kind == wholeGPU:
			how = attributionExclusive
		case p.mode == modeSole:
			how = attributionMIG
		case p.mode == modeProcess:
			how = attributionProcess
		}
		if p.kind == spareSlices {
			continue // cannot be busy
		}
		unresolved := p.mode == modeProcess && l.hasUnresolved(c, p, users)
		for _, h := range p.rows {
			how := how
			if unresolved && !l.seen(c, p, h.row.key.container, users) {
				how = attributionNone
			}
			if rank[how] < rank[h.row.attribution] {
				h.row.attribution = how
			}
		}
	}
	for _, r := range l.alive[c.id.UUID] {
		if r.measured() && !r.wasMeasured {
			// It may have been busy while that was not measured: such time is never idle.
			r.lastBusy, r.lastBusyAt = l.now, l.clock
		}
	}
}

// hasUnresolved reports whether a process on a part could not be resolved to a container. It may belong to any
// container that the part is allocated to, so the absence of visible processes is then not a measured zero.
func (l *Ledger) hasUnresolved(c *device, p *part, users Users) bool {
	return l.anyUser(c, p, users, func(who User) bool { return who.Reason == gpu.UnattributedUnresolved })
}

// seen reports whether a process on a part is known to belong to a container.
func (l *Ledger) seen(c *device, p *part, container gpu.Container, users Users) bool {
	return l.anyUser(c, p, users, func(who User) bool { return who.Reason == "" && who.Container == container })
}

// anyUser reports whether the condition is true of the user of any process that is listed or has samples on a part.
func (l *Ledger) anyUser(c *device, p *part, users Users, is func(User) bool) bool {
	list := c.list()
	for i := range list {
		if c.on(p, &list[i]) && is(l.who(c, users, list[i].PID)) {
			return true
		}
	}
	return !c.mig && slices.ContainsFunc(c.weights, func(w processWeight) bool { return is(l.who(c, users, w.pid)) })
}

func (l *Ledger) modeOf(c *device, p *part, users Users) mode {
	sole := p.sole()
	if !c.visible {
		if sole != nil {
			return modeSole
		}
		return modeUnknown
	}
	first, n := l.usersOn(c, p, users)
	served, untrusted := c.mpsServers(p)
	if sole != nil && !untrusted && l.clock >= c.hiddenUntil && !l.otherUser(c, sole.key.container, users) &&
		(n == 0 || n == 1 && first == (User{Container: sole.key.container})) {
		return modeSole
	}
	if served && hidesClients(c.id) || untrusted && c.mig {
		return modeUnknown
	}
	// Without samples per process, busy time can be attributed only if there is a single user.
	if n <= 1 || !c.mig && c.weighable {
		return modeProcess
	}
	return modeUnknown
}

// attribute assigns the measured activity of a part.
func (l *Ledger) attribute(c *device, p *part, users Users) {
	in := p.added
	busy, observed := in.busy*p.share, in.observed*p.share
	if c.mig && !p.shareKnown {
		return // it is not in the GPU's total either
	}
	if in.unsampledTime > 0 && (p.mode == modeProcess || p.mode == modeSole && !l.allocatedThrough(c, p.rows[0].row, in)) {
		// Processes of a gap may have ended in it, and containers too: its busy time belongs to none of those that are known.
		unsampled := in.unsampled * p.share
		l.attributeBusy(c, credit{target{reason: gpu.UnattributedUnresolved}, unsampled}, in.sinceBusy)
		busy, observed = busy-unsampled, observed-in.unsampledTime*p.share
	}
	switch p.mode {
	case modeSole:
		r := p.rows[0].row
		l.attributeBusy(c, credit{target{row: r}, busy}, in.sinceBusy)
		if r.measured() {
			r.observed += observed
		}
	case modeProcess:
		l.split(c, p, busy, observed, in.sinceBusy, users)
	case modeUnknown:
		l.attributeBusy(c, credit{target{reason: l.unknownReason(c, p)}, busy}, in.sinceBusy)
	}
}

// allocatedThrough reports whether a GPU has been allocated to the container of a row since before a gap and, by a response of the
// kubelet, after it.
func (l *Ledger) allocatedThrough(c *device, r *row, in increment) bool {
	who, sampled := r.key.container, in.observed-in.unsampledTime
	return r.allocatedAt <= l.clock-in.observed &&
		slices.ContainsFunc(l.next.List, func(a gpu.Allocation) bool { return a.GPU == c.id.UUID && a.Container == who }) &&
		slices.ContainsFunc(l.next.Sources, func(s gpu.Source) bool {
			at, ok := s.LastSuccess.Get()
			return s.Name == gpu.SourcePodResources && ok && l.now.Sub(at).Seconds() <= sampled
		})
}

// unknownReason is why the activity of a part cannot be attributed.
func (l *Ledger) unknownReason(c *device, p *part) gpu.UnattributedReason {
	served, untrusted := c.mpsServers(p)
	switch {
	case served && hidesClients(c.id) || untrusted:
		return gpu.UnattributedMPS
	case c.visible:
		return gpu.UnattributedUnmeasured
	case len(p.rows) == 0 && l.allocs.Configured && !p.unallocatedKnown:
		return gpu.UnattributedUnresolved
	}
	return gpu.UnattributedHidden
}
