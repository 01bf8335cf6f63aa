package gpu

import (
	"fmt"
	"strings"
	"time"
)

// The names of data sources, in Source.Name and in Allocation.Source.
const (
	SourceCheckpoint = "checkpoint"        // the kubelet's device checkpoint
	SourceAnnotation = "annotation"        // an annotation or label of the pod
	SourceDRA        = "dra_checkpoint"    // the checkpoint of a DRA driver
	SourceFractions  = "gpu_fractioning"   // the records of NVIDIA's GPU fractioning operator on the node
	SourceSlices     = "resource_slices"   // the API server that DRA drivers publish their devices at
	SourceAPI        = "api"               // the API server that pod metadata is watched at
	SourceJobs       = "slurm_job_mapping" // the directory of Slurm's job mapping
	SourceVisible    = "visible"           // the scan for the GPUs visible in containers
	SourceProcesses  = "processes"         // the host's /proc, which has the cgroups of processes
	SourceLogs       = "pod_logs"          // the names of pod and container logs
	SourceCgroups    = "cgroups"           // the host's cgroups, whose GPU memory the kernel accounts
)

// Source is the published state of one data source.
type Source struct {
	Name        string
	Up          bool
	LastSuccess Opt[time.Time]
	Errors      uint64
	Duration    Opt[time.Duration] // of the last attempt
	Message     string             // what is wrong and what to do, one line; empty when up
}

// Health records the attempts to read one data source. The zero Health has none. Its owner guards it.
type Health struct {
	failures int // consecutive
	errors   uint64
	err      string // of the last attempt; empty after a success
	partial  bool   // the last attempt read most
	success  Opt[time.Time]
	duration Opt[time.Duration]
}

// Succeeded records a successful attempt, and returns how many attempts before it had failed in a row.
func (h *Health) Succeeded(now time.Time) (failures int) {
	failures = h.failures
	h.failures, h.err, h.partial, h.success = 0, "", false, Some(now)
	return failures
}

// Failed records a failed attempt, and reports whether it failed in another way than the attempt before. Err may be
// long and of several lines, for parts of it come from other programs.
func (h *Health) Failed(err string) (changed bool) {
	err = oneLine(err)
	changed = err != h.err
	h.failures++
	h.errors++
	h.err, h.partial = err, false
	return changed
}

// Partial records an attempt that succeeded but for some of what it read, and reports whether that is new.
func (h *Health) Partial(now time.Time, errors int, err string) (changed bool) {
	err = oneLine(err)
	changed = err != h.err
	h.Succeeded(now)
	h.failures, h.err, h.partial = 1, err, true
	h.errors += uint64(errors)
	return changed
}

func oneLine(s string) string {
	const longest = 300
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// Lost counts an error that is not a failed attempt.
func (h *Health) Lost() { h.errors++ }

// Took records the duration of the last attempt.
func (h *Health) Took(d time.Duration) { h.duration = Some(d) }

// Failures is the number of consecutive failed attempts.
func (h *Health) Failures() int { return h.failures }

// Attempted reports whether an attempt has ended.
func (h *Health) Attempted() bool { return h.failures > 0 || h.success.Present() }

// Fresh reports whether the last success is at most maxAge old.
func (h *Health) Fresh(now time.Time, maxAge time.Duration) bool {
	at, ok := h.success.Get()
	return ok && now.Sub(at) <= maxAge
}

// Source returns the state to publish. Pending is the message before the first attempt; while the source is down, its
// last response is used for up to maxAge, where 0 is no limit.
func (h *Health) Source(name, pending string, now time.Time, maxAge time.Duration) Source {
	s := Source{Name: name, Up: h.failures == 0 && h.success.Present(), LastSuccess: h.success,
		Errors: h.errors, Duration: h.duration, Message: h.err}
	at, ok := h.success.Get()
	age := max(now.Sub(at), 0).Round(time.Second)
	switch {
	case s.Up:
	case h.failures == 0:
		s.Message = pending
	case !ok || h.partial:
	case maxAge > 0 && !h.Fresh(now, maxAge):
		s.Message += fmt.Sprintf("; the last response is %s old and no longer used", age)
	default:
		s.Message += fmt.Sprintf("; using the response from %s ago", age)
	}
	return s
}

// PollHealth is the interval and the last duration of one poll group.
type PollHealth struct {
	PollGroup PollGroup
	Interval  time.Duration
	Duration  Opt[time.Duration] // of the last poll
}

// CallStats is one driver call since start.
type CallStats struct {
	Call      string
	PollGroup PollGroup // the one that makes the call; empty for calls of a session
	Duration  Histogram
	Errors    []CodeCount // by code; NOT_SUPPORTED and its like are not errors
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

// FeatureState is whether a feature works on this node: the same word in the metric, on the node page and in doctor.
type FeatureState string

// On works. Off was not asked for: no flag enables it. MissingPermission was asked for, or needs no flag, and a permission
// or a mount that it needs is missing.
const (
	FeatureOn                FeatureState = "on"
	FeatureOff               FeatureState = "off"
	FeatureMissingPermission FeatureState = "missing_permission"
)

// FeatureStates lists them all.
var FeatureStates = []FeatureState{FeatureOn, FeatureOff, FeatureMissingPermission}

// String returns the state for a person.
func (s FeatureState) String() string { return strings.ReplaceAll(string(s), "_", " ") }

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
	Zero    uint64   // exactly 0
	Buckets []Bucket // that are not empty, by Index
}

// Bucket is one bucket of a Histogram.
type Bucket struct {
	Index int
	Count uint64
}
