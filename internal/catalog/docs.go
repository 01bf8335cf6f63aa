package catalog

import (
	"fmt"
	"strings"
)

// Board is a GPU, or a GPU under MIG, and the families that its exposition has.
type Board struct {
	Name     string
	Families map[string]bool
}

// Markdown renders docs/metrics.md from the catalog, and from what the boards were seen to offer.
func Markdown(boards []Board) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from the catalog (` + "`internal/catalog`" + `) by ` + "`make generate`" + `; a test compares it byte for byte.

Conventions: base units (bytes, seconds, celsius, watts, joules, hertz, ratio 0 to 1), last in the name before
` + "`_total`" + `; facts in ` + "`_info`" + ` series that are always 1; a state is a set of series, one per state, 0 or 1.
Moments are Unix timestamps, never ages. A value that cannot be measured is absent: a 0 is a measured 0.

Every series carries ` + "`node`" + `. The other labels follow from the scope:

| scope | labels | one series per |
|---|---|---|
`)
	for _, s := range []struct {
		scope Scope
		per   string
	}{
		{ScopeNode, "node"}, {ScopeGPU, "GPU: its UUID (the PCI address where NVML has none), and the NVML index when it was first seen. Join on node and uuid"},
		{ScopeInstance, "MIG GPU instance"}, {ScopeContainer, "container and GPU"}, {ScopePod, "pod"}, {ScopeExporter, "exporter"},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.scope, code(s.scope.Labels()), s.per)
	}
	for _, g := range Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Title)
		if g.Intro != "" {
			b.WriteString(g.Intro + "\n\n")
		}
		b.WriteString("| family | type | scope | own labels | meaning | source | offered by |\n|---|---|---|---|---|---|---|\n")
		for _, f := range g.Rows {
			name := "`" + f.Name + "`"
			if f.Stability != Stable {
				name += " (" + string(f.Stability) + ")"
			}
			offered := f.Offered
			if offered == "" && (f.Scope == ScopeGPU || f.Scope == ScopeInstance) {
				offered = "every GPU"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", name, f.Type, f.Scope, code(f.Labels), cell(f.Help), cell(f.Source), cell(offered))
		}
		for _, e := range g.Examples {
			fmt.Fprintf(&b, "\n%s\n\n```promql\n%s\n```\n", e.Question, e.Query)
		}
	}
	writeMatrix(&b, boards)
	b.WriteString("\n## Every field of nvidia-smi\n\nWhat `nvidia-smi --query-gpu` can be asked, and where the answer is here.\n\n")
	b.WriteString(queryFieldsMarkdown())
	return b.String()
}

// writeMatrix writes which board offers which family. What every board offers, or none, is said once.
func writeMatrix(b *strings.Builder, boards []Board) {
	b.WriteString("\n## What each board offers\n\nFrom the golden expositions of recorded boards (`testdata/golden`), idle and loaded. Offered by all of them: ")
	var everywhere, nowhere []string
	var rows strings.Builder
	for _, f := range All() {
		if f.Scope != ScopeGPU && f.Scope != ScopeInstance {
			continue
		}
		n, cells := 0, ""
		for _, board := range boards {
			mark := " "
			if board.Families[f.Name] {
				mark = "x"
				n++
			}
			cells += " " + mark + " |"
		}
		switch n {
		case len(boards):
			everywhere = append(everywhere, f.Name)
		case 0:
			nowhere = append(nowhere, f.Name)
		default:
			fmt.Fprintf(&rows, "| `%s` |%s\n", f.Name, cells)
		}
	}
	b.WriteString(code(everywhere) + ".")
	if len(nowhere) > 0 {
		b.WriteString(" By none of them: " + code(nowhere) + ".")
	}
	b.WriteString("\n\n| family |")
	for _, board := range boards {
		b.WriteString(" " + board.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(boards)) + "\n" + rows.String())
}

func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

// cell keeps a text inside its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
