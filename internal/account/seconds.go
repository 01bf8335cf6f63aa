package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// defaultMaxLag is how many seconds the samples of a GPU may lag behind the exporter's clock before the time they do
// not cover counts as unknown. It covers a missed poll and the driver's refresh period.
const defaultMaxLag = 5.0

// addTime adds each of the elapsed seconds of a GPU to exactly one state: busy first, the rest by allocated share.
//
// The driver's samples arrive late and at their own intervals, and a second that has been counted cannot be moved. So
// busy time beyond the length of the period is carried over to the next, and time without samples is taken as not busy
// until it lags too far behind. Time that the samples skipped is unknown at once, and so is that before the first sample
// of a new session or of a GPU that has returned.
func (l *Ledger) addTime(c *device, elapsed float64) {
	switch c.availability {
	case Unavailable, Unread:
		use := gpu.TimeUnavailable
		if c.availability == Unread {
			use = gpu.TimeUnknown
		}
		c.seconds[use] += elapsed
		for p := range c.all {
			p.lag, p.carry = 0, 0
		}
		return
	}
	certain := 0.0
	for p := range c.units {
		if p.shareKnown {
			certain += p.share
			l.addPartTime(c, p, elapsed)
		} else {
			p.lag, p.carry = 0, 0
		}
	}
	if rest := 1 - certain; rest > 1e-9 {
		c.seconds[gpu.TimeUnknown] += rest * elapsed // instances whose size NVML does not report
	}
}

func (l *Ledger) addPartTime(c *device, p *part, elapsed float64) {
	// Only time that has not been assigned yet can have been busy.
	room := elapsed + p.lag
	p.carry += min(p.added.busy, room)
	busy := min(elapsed, p.carry)
	p.carry -= busy
	rest := elapsed - busy
	unknown, limit := min(rest, p.added.lost), l.maxLag+c.spacing
	p.lag = max(0, room-p.added.observed-p.added.lost)
	switch {
	case p.kind == spareSlices: // cannot be busy
		unknown, p.lag = 0, 0
	case p.act.method == "" || (p.act.unseen || p.act.observed == 0) && p.lag > 0:
		unknown, p.lag = rest, 0
	case p.lag > limit:
		unknown = min(rest, unknown+p.lag-limit)
		p.lag = limit
	}
	rest -= unknown
	p.carry = min(p.carry, limit)

	c.seconds[gpu.TimeBusy] += busy * p.share
	c.seconds[gpu.TimeUnknown] += unknown * (1 - p.unallocated) * p.share
	for _, h := range p.rows {
		r := h.row
		// If its activity is not measured, it was idle no longer than the part.
		wasBusy := p.act.lastBusyAt
		if r.measured() {
			wasBusy = r.lastBusyAt
		}
		idle, gap := SplitUnused(rest*h.share*p.share, elapsed, l.clock-max(wasBusy, r.allocatedAt))
		r.idle += idle
		r.gap += gap
		c.seconds[gpu.TimeIdle] += idle
		c.seconds[gpu.TimeGap] += gap
	}
	unallocated := gpu.TimeUnknown
	if p.unallocatedKnown {
		unallocated = gpu.TimeUnallocated
	}
	c.seconds[unallocated] += (rest + unknown) * p.unallocated * p.share
}

// SplitUnused divides allocated time without a kernel into idle and gap. It spreads over the last elapsed seconds, at whose end
// the GPU has been quiet for a time: since its last kernel, or since it was allocated. The first 60 s of quiet are gap.
func SplitUnused(unused, elapsed, quiet float64) (idle, gap float64) {
	if quiet -= recentSpan; quiet >= elapsed || elapsed <= 0 {
		return unused, 0
	}
	idle = unused * max(0, quiet) / elapsed
	return idle, unused - idle
}
