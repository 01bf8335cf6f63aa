package catalog

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Quantity is a term for a share of GPU-time or a set of GPUs, as dashboards, alerts, the report and the node page
// use it. Its definition stands here and nowhere else.
type Quantity struct {
	// Word is the term as titles, legends and columns spell it.
	Word string
	// State is the value of the label state of gpu_time_seconds_total; empty for a quantity made of several.
	State gpu.TimeState
	// Definition completes the sentence "Word: ...", without a final full stop.
	Definition string
	// Color is the color of the quantity on Grafana dashboards; empty for a quantity that is never drawn beside others.
	Color string
}

// The six states: every second of a GPU that is reported counts in exactly one.
var (
	Busy        = Quantity{"Busy", gpu.TimeBusy, "at least one kernel was running", "#1a9850"}
	Gap         = Quantity{"Gap", gpu.TimeGap, "allocated, no kernel for less than 60 s: pauses within work", "#fff899"}
	Idle        = Quantity{"Idle", gpu.TimeIdle, "allocated, no kernel for 60 s or longer", "#b85c00"}
	Unallocated = Quantity{"Unallocated", gpu.TimeUnallocated,
		"allocated to no container, as reported by the kubelet or its equivalent", "#8e8e8e"}
	Unavailable = Quantity{"Unavailable", gpu.TimeUnavailable, "not readable: lost, hung, missing, or needs a reset", "#e02f44"}
	Unknown     = Quantity{"Unknown", gpu.TimeUnknown, "readable, but its allocation or activity could not be measured", "#9f5fe8"}
)

// Quantities made of the states, and what no exporter reported.
var (
	Allocated = Quantity{Word: "Allocated", Definition: "busy + gap + idle + the allocated part of unknown",
		Color: "blue"}
	Unused      = Quantity{Word: "Unused", Definition: "gap + idle", Color: "orange"}
	Utilization = Quantity{Word: "Utilization",
		Definition: "busy / (busy + gap + idle + unallocated): busy time as a share of observed time"}
	Underused = Quantity{Word: "Underused",
		Definition: "allocated with low utilization; an adjective, not a state"}
	BusyOfMeasured = Quantity{Word: "Busy of measured",
		Definition: "busy time / the allocated time whose activity was measured, of a share of a GPU as of a whole one; above " +
			"100 % where more than the allocated share was used"}
	Schedulable = Quantity{Word: "Schedulable",
		Definition: "unallocated, healthy, in the required mode, offered by the kubelet, on a node that is Ready and " +
			"not cordoned"}
	NotReported = Quantity{Word: "Not reported",
		Definition: "GPU-time that must have existed and that no exporter reported", Color: "#20c4c4"}
	Coverage = Quantity{Word: "Coverage",
		Definition: "reported and known GPU-time / all GPU-time that must have existed"}
)

// WellUsed is the Busy of measured above which nothing that is allocated is listed as waste.
const WellUsed = 0.8

// MeasuredTime returns PromQL for the denominator of Busy of measured: the allocated GPU-time of each container on each GPU
// whose activity was measured, as the rate or increase over a window. A share of a GPU is observed as long as the GPU, and
// a part of it by allocation; a MIG device is observed by its part of the GPU. Where the share is unknown, so is the result.
func MeasuredTime(function, window, matchers string) string {
	const by = "cluster, node, uuid, namespace, pod, container"
	over := func(counter string) string { return function + "(" + counter + "{" + matchers + "}[" + window + "])" }
	observed, allocated := over("gpu_container_observed_seconds_total"), over("gpu_container_allocated_seconds_total")
	wholeOrShare := strings.TrimSuffix(`mig_uuid="", `+matchers, ", ")
	return "((" + observed + ") * on (" + by + ") group_left () clamp_max(sum by (" + by +
		") (last_over_time(gpu_container_allocation_ratio{" + wholeOrShare + "}[" + atLeast10m(window) + "]) > 0), 1) or (" + observed +
		" < " + allocated + " or " + allocated + " and " + observed + "))"
}

// atLeast10m is for what describes counters: they are exported for five minutes longer, and rates last five more.
func atLeast10m(window string) string {
	if window == "5m" {
		return "10m"
	}
	return window
}

// TimeStates returns the six states in the order in which dashboards and the report stack them.
func TimeStates() []Quantity { return []Quantity{Busy, Gap, Idle, Unallocated, Unavailable, Unknown} }

// Quantities returns every quantity, the states first.
func Quantities() []Quantity {
	return append(TimeStates(), Allocated, Unused, Utilization, Underused, BusyOfMeasured, Schedulable, NotReported, Coverage)
}

// Lower is the word within a sentence.
func (q Quantity) Lower() string { return strings.ToLower(q.Word) }

// Sentence is the definition as a sentence: "Gap: allocated, ...".
func (q Quantity) Sentence() string { return q.Word + ": " + q.Definition + "." }

// Define returns the definitions of the quantities as sentences, for descriptions.
func Define(quantities ...Quantity) string {
	sentences := make([]string, len(quantities))
	for i, q := range quantities {
		sentences[i] = q.Sentence()
	}
	return strings.Join(sentences, " ")
}
