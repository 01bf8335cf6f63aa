// Package reference renders the documentation of the metrics: docs/metrics.md, docs/metrics-by-gpu.csv and
// docs/nvidia-smi.md. It is not linked into the exporter.
package reference

import (
	"fmt"
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

Values are in base units: bytes, seconds, Celsius, watts, joules, hertz, ratios from 0 to 1. ` + "`_info`" +
		` metrics are always 1;
a state set has one series per state, 0 or 1. Points in time are Unix timestamps. A value that cannot be measured is
absent; a 0 has been measured. [metrics-by-gpu.csv](metrics-by-gpu.csv) shows which GPU models offer which metric,
[nvidia-smi.md](nvidia-smi.md) where each field of nvidia-smi is found, and the [glossary](glossary.md) defines busy, gap, idle
and the other states.

Every series has the label ` + "`node`" + `; the scope adds:

| scope | labels | one series per |
|---|---|---|
`)
	for _, s := range []struct {
		scope catalog.Scope
		per   string
	}{
		{catalog.ScopeNode, "node"},
		{catalog.ScopeGPU, "GPU: UUID (PCI address if it has none), and NVML index when discovered. Join on `node` and `uuid`"},
		{catalog.ScopeInstance, "MIG GPU instance"}, {catalog.ScopeContainer, "container and GPU"}, {catalog.ScopePod, "pod"},
		{catalog.ScopeExporter, "exporter"},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.scope, code(s.scope.Labels()), s.per)
	}
	for _, g := range catalog.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Title)
		if g.Intro != "" {
			b.WriteString(g.Intro + "\n\n")
		}
		b.WriteString("| metric and own labels | type, scope | meaning; available on | source |\n|---|---|---|---|\n")
		for _, f := range g.Rows {
			name := "`" + f.Name + "`"
			if f.Stability != catalog.Stable {
				name += " (" + string(f.Stability) + ")"
			}
			if f.Labels != nil {
				name += " by " + code(f.Labels)
			}
			meaning := f.Help
			if f.Offered != "" {
				meaning += " On: " + f.Offered + "."
			}
			fmt.Fprintf(&b, "| %s | %s, %s | %s | %s |\n", name, f.Type, f.Scope, cell(meaning), cell(f.Source))
		}
		for _, e := range g.Examples {
			fmt.Fprintf(&b, "\n%s\n\n```promql\n%s\n```\n", e.Question, e.Query)
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

func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// cell escapes a text for a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
