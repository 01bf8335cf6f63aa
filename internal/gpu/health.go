package gpu

import "time"

// Source is the health of one data source.
type Source struct {
	Name        string
	Up          bool
	LastSuccess Opt[time.Time]
	Errors      uint64
	Duration    Opt[time.Duration] // of the last attempt
	Message     string             // what is wrong and what to do, one line; empty when up
}

// PollHealth is the interval and the last duration of one poll group.
type PollHealth struct {
	PollGroup PollGroup
	Interval  time.Duration
	Duration  Opt[time.Duration] // of the last poll
}

// CallStats is one driver call since start.
type CallStats struct {
	Call     string
	Duration Histogram
	Errors   []CodeCount // by code; NOT_SUPPORTED and its like are not errors
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

// FeatureState is whether a feature works on this node.
type FeatureState string

// On works. Locked is disabled by a missing permission. Unsupported cannot work on this node.
const (
	FeatureOn          FeatureState = "on"
	FeatureLocked      FeatureState = "locked"
	FeatureUnsupported FeatureState = "unsupported"
)

// FeatureStates lists them all.
var FeatureStates = []FeatureState{FeatureOn, FeatureLocked, FeatureUnsupported}

// Feature is a function that needs more than the default permissions, or particular hardware.
type Feature struct {
	Name  string
	State FeatureState
	// Hint says how to enable it. For the node page.
	Hint string
}

// Pause is a reason for which NVML may be shut down intentionally.
type Pause struct {
	Reason string // mig_change
	Active bool
}

// NotOffered lists the readings that one GPU lacks.
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
