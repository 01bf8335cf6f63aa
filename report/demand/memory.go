package demand

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// What the memory of a workload indicates.
const (
	Needed       = "needed"       // it falls again: the peak is needed
	Cache        = "cache"        // it grew in several steps and never fell
	Preallocated = "preallocated" // nearly all, or the part that a framework takes, and always the same
)

// Memory separates the memory that a workload needs from caches and preallocation: tracks are those of its pods, sorted has
// the highest of each step.
func Memory(tracks []*series.Track, p series.Period, sorted series.Sample, available float64) (kind string, need float64) {
	median := sorted.Quantile(0.5)
	within := 0
	for _, x := range sorted {
		if x >= 0.98*median && x <= 1.02*median {
			within++
		}
	}
	// JAX takes three quarters of a GPU by default, vLLM nine tenths.
	part := 0.0
	if available > 0 {
		part = median / available
	}
	if (part >= 0.85 || part >= 0.735 && part <= 0.765) && float64(within) >= 0.9*float64(len(sorted)) {
		return Preallocated, 0
	}
	// After the first hour, in which weights are loaded: the lowest is the floor of what grows later.
	floor, fell, rise := 0.0, false, 0.0
	for _, x := range tracks {
		start, highest, first := x.From+p.PerHour(), 0.0, 0.0
		for k, v := range x.All() {
			switch {
			case k < start:
				continue
			case first == 0:
				first = v
			case v < 0.95*highest && k < x.End()-p.PerHour():
				fell = true
			}
			if highest > 0 {
				rise = max(rise, v-highest)
			}
			highest = max(highest, v)
		}
		floor = max(floor, first)
	}
	// What comes in one step is loaded, and needed: a cache grows in many.
	if peak := sorted.Top(); !fell && floor > 0 && peak > 1.2*floor && rise < (peak-floor)/2 && p.Duration(len(sorted)) >= 24*time.Hour {
		return Cache, floor
	}
	return Needed, sorted.Top()
}
