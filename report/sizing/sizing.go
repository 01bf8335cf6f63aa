// Package sizing chooses the smallest part of a GPU that covers a demand: a fraction of a time-sliced GPU, or a MIG
// profile.
package sizing

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

const (
	// Headroom is added above the activity that is exceeded for the budget's fraction of the time, MemoryHeadroom above
	// the memory that is needed.
	Headroom       = 1.25
	MemoryHeadroom = 1.1
	// MaxReplicas is the maximum number of time-sliced replicas of a GPU that is recommended.
	MaxReplicas = 4
)

// Demand is what a workload needed of one GPU, as fractions of what is allocated to it, and bytes.
type Demand struct {
	// High and Minute are exceeded for the budget's fraction of the time: means of five minutes and of one.
	High, Minute float64
	// Burst is the part of the GPU's SMs that is active at such times within seconds, which a MIG device would slow
	// down; Bursts is false if it is unknown.
	Burst  float64
	Bursts bool
	// Memory is the memory needed; it indicates nothing if Preallocated is set.
	Memory       float64
	Preallocated bool
	Steps        int
}

// Top is the higher of the means.
func (d *Demand) Top() float64 { return max(d.High, d.Minute) }

// Need is the compute of a time-sliced GPU, with headroom.
func (d *Demand) Need() float64 { return Headroom * d.Top() }

// isolated is the compute of a MIG device.
func (d *Demand) isolated() float64 { return max(d.Need(), d.Burst) }

// Current is what a workload has now.
type Current struct {
	// Sharing is whole, shared or mig; Profile that of its MIG devices.
	Sharing, Profile string
	// GPU is the table of MIG profiles of its model; nil if it has none.
	GPU *mig.GPU
	// Total is the memory of the GPU.
	Total float64
	// Several is true if pods have more than one GPU each.
	Several bool
}

// Reason is why there is no smaller size: a stable code, and a text.
type Reason struct{ Code, Text string }

// UnknownRhythm is the reason for a demand of which the period does not show the peaks.
func UnknownRhythm(period time.Duration) Reason {
	return Reason{Code: "rhythm_unknown", Text: "its demand repeats neither by day nor by week within " +
		units.Duration(period) + ": a longer period may show its peaks"}
}

// Size is a smaller size that is sufficient.
type Size struct {
	Profile  mig.Profile
	Replicas int     // of a time-sliced GPU; 0 with a profile
	Limit    float64 // activity that the size carries, as a fraction of the allocation
	Memory   float64 // bytes that it has; 0 if memory indicates no need
	Part     float64 // of the allocation
	Smaller  string  // why not the next smaller size
}

// Name is how the size is called.
func (s *Size) Name() string {
	if s.Replicas > 0 {
		return fmt.Sprintf("1/%d of a GPU", s.Replicas)
	}
	return s.Profile.Name
}

// Fit chooses the smallest size that covers a demand.
func (c *Current) Fit(d Demand) (*Size, Reason) {
	switch isMIG := c.Sharing == "mig"; {
	case c.Sharing == "shared":
		return nil, Reason{"already_shared", "a share of a GPU is already allocated to it"}
	case isMIG && d.Preallocated:
		return nil, Reason{"memory_too_high",
			"its memory was allocated at the start and does not indicate whether a smaller MIG device is enough"}
	case isMIG && c.GPU == nil:
		return nil, Reason{"activity_unknown", "the table of MIG profiles has no such model"}
	case isMIG || c.GPU != nil && !c.Several && !d.Preallocated:
		if s, reason := c.fitProfile(d); s != nil || isMIG {
			return s, reason
		}
	}
	return c.fitReplicas(d)
}

// fitReplicas chooses the number of time-sliced replicas.
func (c *Current) fitReplicas(d Demand) (*Size, Reason) {
	for k := MaxReplicas; k >= 2; k-- {
		s := &Size{Replicas: k, Limit: 1 / float64(k), Part: 1 / float64(k)}
		if !d.Preallocated {
			s.Memory = c.Total * s.Part
		}
		if d.Need() > s.Part || s.Memory > 0 && MemoryHeadroom*d.Memory > 0.95*s.Memory {
			continue
		}
		switch {
		case k == MaxReplicas:
			s.Smaller = fmt.Sprintf("Not more than %d on one GPU before a trial.", MaxReplicas)
		case d.Preallocated || d.Need() > 1/float64(k+1):
			s.Smaller = fmt.Sprintf("Not 1/%d: it needs %s with headroom.", k+1, units.Ratio(d.Need()))
		default:
			s.Smaller = fmt.Sprintf("Not 1/%d: its memory of %s does not fit.", k+1, units.GiB(d.Memory))
		}
		return s, Reason{}
	}
	if d.Need() > 0.5 || d.Preallocated {
		return nil, tooHigh(d.Need())
	}
	return nil, Reason{"memory_too_high", fmt.Sprintf("its memory of %s needs the GPU", units.GiB(d.Memory))}
}

func tooHigh(need float64) Reason {
	return Reason{"peaks_too_high", fmt.Sprintf("it needs %s of its allocation, with headroom", units.Ratio(min(1, need)))}
}

// fitProfile chooses a MIG profile of which a GPU has at least two.
func (c *Current) fitProfile(d Demand) (*Size, Reason) {
	has, gpu := 1.0, c.GPU // of the GPU
	current := gpu.Profiles[len(gpu.Profiles)-1]
	if c.Sharing == "mig" {
		p, ok := gpu.Profile(c.Profile)
		if !ok {
			return nil, Reason{"activity_unknown", "the profile of its MIG devices is not in the table"}
		}
		current, has = p, gpu.ComputeRatio(p)
	}
	need, smaller := d.isolated()*has, ""
	for i, p := range gpu.Profiles {
		if p.PerGPU < 2 || p.Compute >= current.Compute && p.Memory >= current.Memory {
			continue
		}
		compute := gpu.ComputeRatio(p)
		switch {
		case compute < need:
			what := "it needs %[3]s with headroom"
			if d.Burst > d.Need() {
				what = "its bursts use %[3]s within seconds, and would take longer"
			}
			smaller = fmt.Sprintf("Not %[1]s: it has %[2]s of the GPU's compute, and "+what+".",
				p.Name, units.Ratio(compute), units.Ratio(need))
			continue
		case p.Bytes < MemoryHeadroom*d.Memory:
			smaller = fmt.Sprintf("Not %s: it has %s, and the memory needed is %s.", p.Name, units.GiB(p.Bytes), units.GiB(d.Memory))
			continue
		case smaller == "":
			smaller = p.Name + " is the smallest profile."
		}
		if i+1 < len(gpu.Profiles) {
			smaller += " The next larger is " + gpu.Profiles[i+1].Name + "."
		}
		part := float64(current.PerGPU) / float64(p.PerGPU)
		return &Size{Profile: p, Limit: compute / has, Memory: p.Bytes, Part: part, Smaller: smaller}, Reason{}
	}
	if d.isolated() > 0.5 {
		return nil, tooHigh(d.isolated())
	}
	return nil, Reason{"memory_too_high", fmt.Sprintf("no smaller profile fits its memory of %s", units.GiB(d.Memory))}
}
