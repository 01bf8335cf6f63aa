package account

import (
	"math"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// shortestGap is the minimum time, in seconds, that the ring has to lack for the profiling counters to fill it: the two
	// end up to two samples of the ring apart, which is 1 % of a gap of 40 s.
	shortestGap = 5.0
	// comparedSpan is over how many seconds, by exponential decay, both are compared where the ring has no gap.
	comparedSpan = 600.0
	// agreement is by how much they may differ there for a gap to be filled, at least a second.
	agreement = 0.02
	// slack is how many seconds the periods of the two may differ.
	slack = 1.0
)

// profiled is the time in which the graphics or compute engine of a GPU was active, by its profiling counters. They count
// while nothing reads them: where the ring lost samples between two polls, they have the busy time.
type profiled struct {
	busy, covered      float64 // since the previous reading of the ring
	ringBusy, likewise float64 // busy time by the ring and by the counters, where both cover the same
}

// add adds the pair of a reading.
func (p *profiled) add(g gpu.Opt[gpu.GPM], elapsed float64) {
	pair, _ := g.Get()
	if active, ok := pair.GraphicsActive.Get(); ok {
		period := profiledPeriod(pair, elapsed)
		p.busy += float64(active) * period
		p.covered += period
	}
}

// fill completes an increment of the ring, since seconds after the previous one.
func (p *profiled) fill(in *increment, since float64) {
	busy, covered := p.busy, p.covered
	p.busy, p.covered = 0, 0
	if math.Abs(covered-since) > slack || math.Abs(in.observed+in.lost-since) > slack {
		return // they do not cover the same
	}
	switch {
	case in.lost == 0:
		keep := math.Exp(-since / comparedSpan)
		p.ringBusy, p.likewise = p.ringBusy*keep+in.busy, p.likewise*keep+busy
	case in.lost > shortestGap && math.Abs(p.ringBusy-p.likewise) <= max(1, agreement*p.ringBusy):
		in.unsampled, in.unsampledTime = min(max(0, busy-in.busy), in.lost), in.lost
		recent := in.observed
		in.observed, in.lost = in.observed+in.lost, 0
		in.addEarlier(in.unsampled, recent)
	}
}
