package gpu

import "time"

// Source is the health of one source of facts.
type Source struct {
	Name        string
	Up          bool
	LastSuccess Opt[time.Time]
	Errors      uint64
	Duration    Opt[time.Duration] // of the last attempt
	Message     string             // what is wrong and what to do, one line; empty when up
}

// LaneHealth is one poll group's rhythm.
type PollHealth struct {
	PollGroup PollGroup
	Interval  time.Duration
	Duration  Opt[time.Duration] // of the last round
}

// CallStats is one driver call since start.
type CallStats struct {
	Call     string
	Duration Histogram
	Errors   []CodeCount // by code; not-offered answers are no errors
}

// CodeCount counts one return code.
type CodeCount struct {
	Code  string // "GPU_IS_LOST"
	Count uint64
}

// RejectedCount counts the implausible values of one reading.
type RejectedCount struct {
	Reading string
	Count   uint64
}

// FeatureState says whether a feature works here.
type FeatureState string

// On works. Locked needs a right that an administrator can give. Unsupported cannot work on this node.
const (
	FeatureOn          FeatureState = "on"
	FeatureLocked      FeatureState = "locked"
	FeatureUnsupported FeatureState = "unsupported"
)

// FeatureStates lists them all.
var FeatureStates = []FeatureState{FeatureOn, FeatureLocked, FeatureUnsupported}

// Feature is something that needs more than the default rights or more than any hardware.
type Feature struct {
	Name  string
	State FeatureState
	// Hint says how to unlock it. For the page.
	Hint string
}

// Pause is a reason for which NVML may be let go on purpose.
type Pause struct {
	Reason string // mig_change
	Active bool
}

// NotOffered is the readings that one GPU lacks.
type NotOffered struct {
	GPU      UUID
	Readings []string
}

// HistogramSchema is the resolution of Histogram: buckets grow by 2^(2^-3), about 9 %.
const HistogramSchema = 3

// Histogram is a distribution of seconds in exponential buckets (Prometheus native histograms, schema
// HistogramSchema): bucket i counts the values in (2^((i-1)/8), 2^(i/8)]. The zero Histogram is empty.
type Histogram struct {
	Count   uint64
	Sum     float64
	Zero    uint64 // exactly 0
	Buckets map[int]uint64
}
