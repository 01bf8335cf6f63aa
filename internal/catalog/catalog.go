// Package catalog is the table of metric families: one row per family has its name, help, source, labels, scope,
// stability and the function that reads it from a View. The exposition, docs/metrics.md, dashboards, alerts, the report
// and their tests are made from these rows or checked against them.
//
// The rows are values: All creates them on each call, and nothing here can be changed from outside.
package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Type is the kind of a family. Info and StateSet are exposed as gauges: info is always 1 and carries
// facts as labels; of a state set only the states that are present have a series, of value 1.
type Type string

// The types.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Info      Type = "info"
	StateSet  Type = "state set"
	Histogram Type = "histogram"
)

// Scope is what one series of a family is about, which determines the labels before its own.
type Scope string

// The scopes. Every series carries node.
const (
	ScopeNode      Scope = "node"
	ScopeGPU       Scope = "GPU"
	ScopeInstance  Scope = "MIG instance"
	ScopeContainer Scope = "container"
	ScopePod       Scope = "pod"
	ScopeExporter  Scope = "exporter"
	// ScopeForeign has no labels of ours, not even node: the names and labels are another exporter's.
	ScopeCompat Scope = "foreign"
)

// Labels returns the labels that every series of the scope carries, in the order in which readers give
// their values.
func (s Scope) Labels() []string {
	dev := []string{"node", "uuid", "gpu"}
	switch s {
	case ScopeGPU:
		return dev
	case ScopeInstance:
		return append(dev, "mig_uuid", "gi", "profile")
	case ScopeContainer:
		return append(dev, "namespace", "pod", "container")
	case ScopePod:
		return []string{"node", "namespace", "pod"}
	case ScopeCompat:
		return nil
	default:
		return []string{"node"}
	}
}

// Stability is what may still change. Names and labels of stable families do not.
type Stability string

// Stable is promised; Experimental may change with a note in the changelog.
const (
	Stable       Stability = "stable"
	Experimental Stability = "experimental"
)

// Emit receives one series: its value and the values of all its labels, the scope's first, then the
// family's own in the order of Family.Labels. The slice is reused: copy it to keep it.
type Emit func(value float64, labels ...string)

// EmitHistogram receives one series of a histogram.
type EmitHistogram func(h gpu.Histogram, labels ...string)

// Family is one row.
type Family struct {
	Name string
	Type Type
	// Unit is the base unit in which the name ends (before _total); empty for counts, facts and states.
	Unit string
	// Help is the meaning of the value: a noun phrase with unit and time span.
	Help string
	// Source is the NVML call or field, the kernel file or the kubelet message that it is read from.
	Source string
	// Offered is which GPUs, drivers or permissions it needs; empty: every GPU.
	Offered string
	Labels  []string
	// States are the values of the label of a state set whose states exclude each other, in the order of NVML's numbers.
	States []string
	// Values are those of the last own label that something shipped reads; only size all has others. Nil: every value.
	Values    []string
	Scope     Scope
	Stability Stability

	// Readings are the readings of the driver (internal/nvml) that nothing but this family and others that list them needs.
	Readings []string

	// Read emits every series of the family in a view. It is pure and safe for concurrent use. Exactly one of
	// Read and ReadHistogram is set, the latter for type Histogram.
	Read          func(*gpu.View, Emit)
	ReadHistogram func(*gpu.View, EmitHistogram)
	// Created emits, for the series of a counter that began at 0 while the exporter ran, the Unix time of that. It may
	// emit more series than Read.
	Created func(*gpu.View, Emit)
}

// AllLabels returns the scope's labels followed by the family's own.
func (f Family) AllLabels() []string { return append(f.Scope.Labels(), f.Labels...) }

// reads returns the family with its Readings.
func (f Family) reads(readings ...string) Family {
	f.Readings = readings
	return f
}

// HelpText is the HELP of the exposition: the meaning, and where the value comes from.
func (f Family) HelpText() string {
	if f.Source == "" {
		return f.Help
	}
	return f.Help + " Source: " + f.Source + "."
}

// Group is a chapter of the catalog, exported or not as a whole by --[no-]collector.NAME.
type Group struct {
	Name  string
	Title string
	Rows  []Family
}

// Documentation is where the pages of documentation are.
const Documentation = "https://github.com/gpu-exporter/gpu-exporter/blob/main/docs/"

// units are the base units in which names end.
var units = []string{"bytes", "celsius", "hertz", "joules", "ratio", "seconds", "watts"}

// complete sets what follows from the name of a family, and what is the same for most: type, unit and stability.
func (f *Family) complete() {
	switch {
	case f.Type != "":
	case strings.HasSuffix(f.Name, "_total"):
		f.Type = Counter
	case strings.HasSuffix(f.Name, "_info"):
		f.Type = Info
	default:
		f.Type = Gauge
	}
	name := strings.TrimSuffix(f.Name, "_total")
	if last := name[strings.LastIndexByte(name, '_')+1:]; slices.Contains(units, last) {
		f.Unit = last
	}
	f.Stability = cmp.Or(f.Stability, Stable)
}

// Validate checks the rules of a row that the compiler cannot, and returns the first broken one.
func Validate(rows []Family) error {
	seen := map[string]bool{}
	for _, f := range rows {
		broken := func(format string, args ...any) error {
			return fmt.Errorf("catalog row %s: %s", f.Name, fmt.Sprintf(format, args...))
		}
		switch {
		case seen[f.Name]:
			return broken("duplicate name")
		case !strings.HasPrefix(f.Name, "gpu_"):
			return broken("the name does not begin with gpu_")
		case f.Help == "" || !strings.HasSuffix(f.Help, "."):
			return broken("help is not a sentence: %q", f.Help)
		case f.Stability == "":
			return broken("no stability")
		case (f.Type == Counter) != strings.HasSuffix(f.Name, "_total"):
			return broken("a %s and its name disagree about _total", f.Type)
		case (f.Type == Info) != strings.HasSuffix(f.Name, "_info"):
			return broken("a %s and its name disagree about _info", f.Type)
		case f.Unit != "" && !strings.HasSuffix(strings.TrimSuffix(f.Name, "_total"), "_"+f.Unit):
			return broken("does not end in its unit %s", f.Unit)
		case (f.Type == Histogram) != (f.ReadHistogram != nil) || (f.Read == nil) == (f.ReadHistogram == nil):
			return broken("must have exactly one reader of its type")
		}
		seen[f.Name] = true
		all := f.AllLabels()
		for i, l := range all {
			if slices.Contains(all[:i], l) {
				return broken("duplicate label %s", l)
			}
			if slices.Contains(reserved, l) {
				return broken("label %s is reserved for the scrape target", l)
			}
		}
	}
	return nil
}

// ValidateCompat checks rows that carry another exporter's names, of which our laws of naming say nothing: it
// returns the first that could not be exposed.
func ValidateCompat(rows []Family) error {
	seen := map[string]bool{}
	for _, f := range rows {
		switch {
		case seen[f.Name]:
			return fmt.Errorf("compat row %s: duplicate name", f.Name)
		case f.Scope != ScopeCompat || f.Read == nil || f.Help == "":
			return fmt.Errorf("compat row %s: no help, no reader, or another scope", f.Name)
		}
		seen[f.Name] = true
		for i, l := range f.Labels {
			if slices.Contains(f.Labels[:i], l) {
				return fmt.Errorf("compat row %s: duplicate label %s", f.Name, l)
			}
		}
	}
	return nil
}

// reserved are labels that Prometheus and its operators set.
var reserved = []string{"job", "instance", "cluster", "region", "zone", "env", "service", "endpoint", "type", "le",
	"quantile"}
