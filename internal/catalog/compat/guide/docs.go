// Package guide documents the pages of package compat, in docs/dcgm-exporter.md and docs/nvidia-gpu-exporter.md, and for
// gpu-migrate the query of each family in the names of the catalog. It is not linked into the exporter.
package guide

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
)

// introduction begins the generated part of docs/dcgm-exporter.md; ~ stands for a back quote.
const introduction = `## Names of dcgm-exporter

With ~--compat=dcgm-4.8~ or ~--compat=dcgm-4.9~ the exporter also serves, at ~%s~, the names, units, types and labels of that release of
dcgm-exporter, from the same readings as ~/metrics~ and in the text format only. They were compared with its published configuration and
NVIDIA's field list, not with a running dcgm-exporter.

%d families: %d of dcgm-exporter's default configuration, %d that its file has as comments, %d for custom collector files. %d are equal.
4.9 renames %d default families and changes the unit of %d of them; a star marks names that follow its rules but are in no public
source.

### Labels

| label | value |
|---|---|
%s
### Families that differ

A 60 s mean is that before the latest reading, at any scrape interval. For the MIG instances of names marked (MIG) the query has
~gpu_mig_~ instead of ~gpu_~.

| dcgm-exporter 4.8 | 4.9 | here | difference |
|---|---|---|---|
`

// Markdown renders the generated part of docs/dcgm-exporter.md. The error is that of compat.New.
func Markdown() (string, error) {
	p, err := compat.New(compat.Options{Release: compat.DCGM48})
	if err != nil {
		return "", err
	}
	labels, err := labelsMarkdown(false)
	if err != nil {
		return "", err
	}
	absent, err := labelsMarkdown(true)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	count := map[compat.Shipped]int{}
	equal, renamed, rescaled := 0, 0, 0
	for _, r := range p.Rows() {
		count[r.Shipped]++
		if r.Differs == "" {
			equal++
		}
		if r.Renamed != "" && r.Shipped == compat.ByDefault {
			renamed++
			if r.Unit.Name != r.Unit.New {
				rescaled++
			}
		}
	}
	fmt.Fprintf(&b, strings.ReplaceAll(introduction, "~", "`"),
		compat.DCGM48.Path(), len(p.Rows()), count[compat.ByDefault], count[compat.Commented], count[compat.Custom], equal, renamed,
		rescaled, labels)
	equals := rowsMarkdown(&b, p.Rows())
	b.WriteString("\n### Families that are equal\n\nWith the name in 4.9, if another, and the query in base units here. Where names " +
		"share a query, the values of its label are in their order. Metrics that [metrics](metrics.md) marks *all* need " +
		"`--metrics=all` or the switch of their chapter.\n\n" + equals)
	options(&b)
	b.WriteString("\n### Missing families\n\nThe last column has the alternative here.\n\n| dcgm-exporter | reason | " +
		"here |\n|---|---|---|\n")
	for _, m := range missing() {
		instead := ""
		if m.instead != nil {
			instead = "`" + strings.Join(m.instead, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.what, m.reason, instead)
	}
	return b.String() + absent, nil
}

// tableSMI begins the names in docs/nvidia-gpu-exporter.md.
const tableSMI = "%d families:\n\n| nvidia_gpu_exporter | | here | difference |\n|---|---|---|---|\n"

// MarkdownSMI renders the names in docs/nvidia-gpu-exporter.md. The error is that of compat.New.
func MarkdownSMI() (string, error) {
	p, err := compat.New(compat.Options{Release: compat.NvidiaSMI})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, tableSMI, len(p.Families()))
	rowsMarkdown(&b, p.Rows())
	return b.String(), nil
}

// ofSeveral matches the label whose values are those of as many names of dcgm-exporter.
var ofSeveral = regexp.MustCompile(`(, |\{)(memory|reason)="([a-z0-9_]+)"`)

// withoutLabel returns a query without that label, and the label's value.
func withoutLabel(query string) (string, string) {
	m := ofSeveral.FindStringSubmatch(query)
	if m == nil {
		return query, ""
	}
	return strings.ReplaceAll(ofSeveral.ReplaceAllString(query, strings.ReplaceAll(m[1], ", ", "")), "{}", ""), m[3]
}

// rowsMarkdown writes the rows that differ, and returns those that are equal. Rows with the same query and difference
// are one, and a difference that several have is written once, as a note below.
func rowsMarkdown(b *strings.Builder, rows []compat.Row) string {
	// These names of 4.9 are implied by the number and units in its release notes; neither they nor DCGM's header show them.
	unconfirmed := regexp.MustCompile(`DEV_(ENC|DEC|MEMORY|GPU)_UTIL_RATIO|FB_(USED|FREE|RESERVED)_BYTES|_CLOCK_HERTZ|` +
		`GPU_ENERGY_JOULES_TOTAL|NVLINK_THROUGHPUT_BYTES_PER_SECOND`)
	type line struct{ names, next, query, differs string }
	var lines []line
	uses := map[string]int{}
	write := queries()
	for _, r := range rows {
		l := line{names: "`" + r.Name + "`", query: "`" + write(r.GPU) + "`", differs: r.Differs}
		if r.ByHand != "" {
			l.query = r.ByHand
		}
		if r.Instance != nil && r.Instance.Of != nil {
			instance := write(r.Instance)
			if of := write(r.GPU); instance != strings.ReplaceAll(of, "gpu_", "gpu_mig_") {
				l.query += "; instance: `" + instance + "`"
			} else {
				l.names += " (MIG)"
			}
		}
		if r.Container != nil {
			l.query += "; container: `" + write(r.Container) + "`"
		}
		if r.Renamed != "" {
			l.next = "`" + r.Renamed + "`"
			if unconfirmed.MatchString(r.Renamed) {
				l.next += "*"
			}
			if r.Unit.Name != r.Unit.New {
				l.next += " (" + r.Unit.New + ")"
			}
		}
		if n := len(lines) - 1; n >= 0 && l.next == "" && l.differs != "" && lines[n].query == l.query && lines[n].differs == l.differs {
			lines[n].names += ", " + l.names
			continue
		}
		lines = append(lines, l)
		uses[l.differs]++
	}
	var equals, notes strings.Builder
	numbers := map[string]int{}
	values := "" // of the label by which the lines so far differ
	for i, l := range lines {
		switch {
		case l.differs == "":
			if l.next != "" {
				l.names += ", " + l.next
			}
			same, value := withoutLabel(l.query)
			if i+1 < len(lines) && l.next == "" && lines[i+1].next == "" && lines[i+1].differs == "" {
				if next, _ := withoutLabel(lines[i+1].query); value != "" && next == same {
					lines[i+1].names = l.names + ", " + lines[i+1].names
					values += value + ", "
					continue
				}
			}
			if values != "" {
				l.query, values = same+" with "+ofSeveral.FindStringSubmatch(l.query)[2]+" "+values+value, ""
			}
			fmt.Fprintf(&equals, "- %s: %s\n", l.names, l.query)
			continue
		case uses[l.differs] > 1:
			if numbers[l.differs] == 0 {
				numbers[l.differs] = len(numbers) + 1
				fmt.Fprintf(&notes, "\nNote %d: %s.\n", numbers[l.differs], l.differs)
			}
			l.differs = fmt.Sprintf("note %d", numbers[l.differs])
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", l.names, l.next, l.query, l.differs)
	}
	b.WriteString(notes.String())
	return equals.String()
}
