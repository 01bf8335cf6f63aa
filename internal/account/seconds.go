package account

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// defaultMaxLag is how many seconds of measured time may wait for a second to be counted in. It should exceed two polls and
// the driver's refresh period.
const defaultMaxLag = 5.0

// addTime adds each of the elapsed seconds of a GPU to exactly one state: busy first, the rest by allocated share.
//
// The driver's samples arrive late and at their own intervals, and a second that has been counted cannot be moved. So time
// that the samples cover beyond the period is kept for the next ones, and what was not measured when it is counted is unknown:
// once after a start, for as long as samples are late; then each second is counted as one measured so much earlier.
func (l *Ledger) addTime(c *device, elapsed float64) {
	switch c.availability {
	case Unavailable, Unread:
		use := gpu.TimeUnavailable
		if c.availability == Unread {
			use = gpu.TimeUnknown
		}
		c.seconds[use] += elapsed
		for p := range c.all {
			p.busy, p.rest = 0, 0
		}
		return
	}
	certain := 0.0
	for p := range c.units {
		if p.shareKnown {
			certain += p.share
			l.addPartTime(c, p, elapsed)
		} else {
			p.busy, p.rest = 0, 0
		}
	}
	if rest := 1 - certain; rest > 1e-9 {
		c.seconds[gpu.TimeUnknown] += rest * elapsed // instances whose size NVML does not report
	}
}

func (l *Ledger) addPartTime(c *device, p *part, elapsed float64) {
	p.busy += p.added.busy
	p.rest += max(0, p.added.observed-p.added.busy)
	if p.kind == spareSlices {
		p.rest = elapsed // they cannot be busy
	}
	busy := min(elapsed, p.busy)
	rest := min(elapsed-busy, p.rest)
	unknown, limit := elapsed-busy-rest, l.maxLag+c.spacing
	p.busy = min(p.busy-busy, limit)
	p.rest = min(p.rest-rest, limit-p.busy)

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
	switch {
	case p.unallocatedKnown:
		unallocated = gpu.TimeUnallocated
	case l.host: // it has what nothing allocates
		idle, gap := SplitUnused(rest*p.share, elapsed, l.clock-p.act.lastBusyAt)
		c.seconds[gpu.TimeIdle] += idle
		c.seconds[gpu.TimeGap] += gap
		rest = 0
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
