package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// defaultPatience is for how many seconds the samples of a GPU may lag behind the exporter's clock before
// the time of which they do not speak counts as unknown. It bridges a missed round and the driver's refresh.
const defaultPatience = 5.0

// spend gives each of the elapsed seconds of a GPU to exactly one use: busy first, the rest by held share.
//
// The driver's samples arrive late and in their own rhythm, and a second that has been given cannot be taken
// back. So busy time that is more than the window can hold is carried into the next, and time without samples
// is held to be without work until it lags too far behind.
func (l *Ledger) spend(c *dev, elapsed float64) {
	switch c.availability {
	case Unavailable, Unread:
		use := gpu.TimeUnavailable
		if c.availability == Unread {
			use = gpu.TimeUnknown
		}
		c.seconds[use] += elapsed
		for _, p := range c.parts {
			p.lag, p.carry = 0, 0
		}
		return
	}
	certain := 0.0
	for _, p := range c.parts {
		if p.shareKnown {
			certain += p.share
			l.spendPart(c, p, elapsed)
		} else {
			p.lag, p.carry = 0, 0
		}
	}
	if rest := 1 - certain; rest > 1e-9 {
		c.seconds[gpu.TimeUnknown] += rest * elapsed // instances whose size NVML does not tell
	}
}

func (l *Ledger) spendPart(c *dev, p *part, elapsed float64) {
	// Only time that has not been given yet can have been busy.
	room := elapsed + p.lag
	p.carry += min(p.added.busy, room)
	busy := min(elapsed, p.carry)
	p.carry -= busy
	p.lag = max(0, room-p.added.observed)
	rest := elapsed - busy

	unknown := 0.0
	switch {
	case p.kind == spareSlices: // nothing can run there
		p.lag = 0
	case p.act.method == "" || p.act.observed == 0 && p.lag > 0:
		unknown, p.lag = rest, 0
	case p.lag > l.patience:
		unknown = min(rest, p.lag-l.patience)
		p.lag = l.patience
	}
	rest -= unknown
	p.carry = min(p.carry, l.patience)

	c.seconds[gpu.TimeBusy] += busy * p.share
	c.seconds[gpu.TimeUnknown] += unknown * (1 - p.free) * p.share
	for _, h := range p.holders {
		r := h.row
		// Whose work cannot be told apart was not idle for longer than the part was.
		worked := p.act.lastBusyAt
		if r.measured() {
			worked = r.lastBusyAt
		}
		quiet := l.clock - max(worked, r.heldFrom) - recentSpan
		idle := rest * h.share * p.share
		underused := 0.0
		if quiet < elapsed && elapsed > 0 {
			all := idle
			idle = all * max(0, quiet) / elapsed
			underused = all - idle
		}
		r.idle += idle
		r.underused += underused
		c.seconds[gpu.TimeIdle] += idle
		c.seconds[gpu.TimeGap] += underused
	}
	free := gpu.TimeUnknown
	if p.freeKnown {
		free = gpu.TimeUnallocated
	}
	c.seconds[free] += (rest + unknown) * p.free * p.share
}
