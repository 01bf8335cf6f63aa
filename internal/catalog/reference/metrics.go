// Package reference renders the documentation of the metrics: docs/metrics.md, docs/glossary.md, docs/metrics-by-gpu.csv,
// docs/metrics-by-source.csv and docs/nvidia-smi.md. It is not linked into the exporter.
package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Model is a GPU model, or one in MIG mode, and the families that its exposition has.
type Model struct {
	Name     string
	Families map[string]bool
}

// Markdown renders docs/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from ` + "`internal/catalog`" + `.

Values are in base units: bytes, seconds, Celsius, watts, joules, hertz, ratios from 0 to 1. Points in time are Unix
timestamps. A value that cannot be measured is absent; a 0 has been measured. The ending of a name gives the type:
` + "`_total` is a counter, `_info` an info metric, which is always 1" + `, all others are gauges but those marked otherwise; of
a state set only the states that are present have a series. Activity, GPU-time, containers, XIDs and PCIe bytes are counted since the
exporter started.

What is shipped reads decides what is exported ([metrics-by-reader.csv](metrics-by-reader.csv)): ` + "`--metrics=core`" + ` has
what the alerts, the report and the dashboards above node level read, ` + "`--metrics=default`" + ` what anything shipped reads,
` + "`--metrics=all`" + ` also those marked all. Each chapter has a switch, which exports it whole or not at all.

[metrics-by-gpu.csv](metrics-by-gpu.csv) shows which GPU models offer which metric,
[metrics-by-source.csv](metrics-by-source.csv) and HELP the NVML call or file that it is read from,
[nvidia-smi.md](nvidia-smi.md) where each field of nvidia-smi is found, and the [glossary](glossary.md) defines busy, gap,
idle and the other states.

The beginning gives the labels that a metric has beside its own:

| names | labels | one series per |
|---|---|---|
`)
	for _, s := range scopes {
		names := "others"
		if s.prefixes != nil {
			names = code(s.prefixes)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, code(s.scope.Labels()), s.per)
	}
	for _, g := range catalog.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\nSwitch: `--[no-]collector.%s`.\n\n", g.Title, g.Name)
		if intro := chapters[g.Title].intro; intro != "" {
			b.WriteString(intro + "\n\n")
		}
		b.WriteString("| metric and own labels | meaning; *available on* |\n|---|---|\n")
		same := map[string][]string{}
		for _, f := range g.Rows {
			if twin := twinOf(f); twin != "" {
				same[twin] = append(same[twin], f.Name)
				continue
			}
			name := "`" + f.Name + "`"
			if notes := notes(f); notes != nil {
				name += " (" + strings.Join(notes, ", ") + ")"
			}
			if f.Labels != nil {
				name += " by " + code(f.Labels)
			}
			meaning := byLabel.ReplaceAllString(stateSet.ReplaceAllString(f.Help, ""), ".")
			if f.Offered != "" {
				meaning += " *" + strings.ToUpper(f.Offered[:1]) + f.Offered[1:] + ".*"
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, cell(meaning))
		}
		for _, of := range []struct{ prefix, row string }{{"gpu_", "%s | The same as without `mig_`, of the instance."},
			{"gpu_mig_", "%s by `ci` | The same of each compute instance, where an instance has several."}} {
			if names := same[of.prefix]; names != nil {
				fmt.Fprintf(&b, "| "+of.row+" |\n", code(names))
			}
		}
		for _, e := range chapters[g.Title].examples {
			fmt.Fprintf(&b, "\n%s\n\n```promql\n%s\n```\n", e.question, e.query)
		}
	}
	return b.String()
}

// AvailabilityCSV renders docs/metrics-by-gpu.csv: the families of GPUs and MIG instances, and the models whose
// expositions have them.
func AvailabilityCSV(models []Model) string {
	var b strings.Builder
	b.WriteString("metric")
	for _, m := range models {
		b.WriteString("," + m.Name)
	}
	for _, f := range catalog.All() {
		if f.Scope != catalog.ScopeGPU && f.Scope != catalog.ScopeInstance {
			continue
		}
		b.WriteString("\n" + f.Name)
		for _, m := range models {
			b.WriteString(",")
			if m.Families[f.Name] {
				b.WriteString("x")
			}
		}
	}
	return b.String() + "\n"
}

// twinOf returns the prefix under which the catalog has a family of an instance, or of a compute instance, for the whole of
// which it is a part; empty if there is none.
func twinOf(f catalog.Family) string {
	if f.Scope != catalog.ScopeInstance || f.Type == catalog.Info {
		return ""
	}
	for _, p := range []struct{ own, whole string }{{"gpu_mig_ci_", "gpu_mig_"}, {"gpu_mig_", "gpu_"}} {
		if name, ok := strings.CutPrefix(f.Name, p.own); ok {
			if _, ok := catalog.Lookup(p.whole + name); ok {
				return p.whole
			}
		}
	}
	return ""
}

// stateSet is what HELP says of state sets, and the introduction of the page once.
var stateSet = regexp.MustCompile(`; 1 for (the current|each present) \w+`)

// byLabel repeats the labels, which are beside the name.
var byLabel = regexp.MustCompile(`,? by (state|sensor|reason|resource|cause|kind|code|poll group|severity and memory location)\.`)

// notes are what the name of a family does not say of its type, scope and stability.
func notes(f catalog.Family) []string {
	var out []string
	if f.Size() == catalog.SizeAll {
		out = append(out, "all")
	} else if f.Values != nil {
		out = append(out, "default: "+strings.Join(f.Values, ", "))
	}
	if f.Stability != catalog.Stable {
		out = append(out, string(f.Stability))
	}
	if f.Type == catalog.StateSet || f.Type == catalog.Histogram {
		out = append(out, string(f.Type))
	}
	if f.Scope != scopeOf(f.Name) {
		out = append(out, "of a "+string(f.Scope))
	}
	return out
}

// scopes are the scopes and the prefixes of the names that have them.
var scopes = []struct {
	scope    catalog.Scope
	prefixes []string
	per      string
}{
	{catalog.ScopeNode, []string{"gpu_node_", "gpu_driver_"}, "node"},
	{catalog.ScopeInstance, []string{"gpu_mig_"}, "MIG GPU instance"},
	{catalog.ScopeContainer, []string{"gpu_container_", "gpu_process_"}, "container and GPU"},
	{catalog.ScopePod, []string{"gpu_pod_"}, "pod"},
	{catalog.ScopeExporter, []string{"gpu_exporter_"}, "exporter"},
	{catalog.ScopeGPU, nil, "GPU: UUID (PCI address if it has none), and NVML index when discovered. Join on `node` and `uuid`"},
}

func scopeOf(name string) catalog.Scope {
	for _, s := range scopes {
		if slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return s.scope
		}
	}
	return catalog.ScopeGPU
}

// SourcesCSV renders docs/metrics-by-source.csv: what each family is read from.
func SourcesCSV() string {
	var b strings.Builder
	b.WriteString("metric,type,source\n")
	for _, f := range catalog.All() {
		if f.Source != "" {
			fmt.Fprintf(&b, "%s,%s,%q\n", f.Name, f.Type, f.Source)
		}
	}
	return b.String()
}

func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// cell escapes a text for a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
