package dashboards

import (
	"fmt"
	"slices"
	"strings"
)

// unchecked is what only Grafana itself can show.
var unchecked = []string{
	"That each Grafana from 10 to 13 takes the files: they follow the classic schema, which all of them document, and none runs in the tests.",
	"That panels look well: text that is cut off, colors beside each other, the height of a table's rows.",
	"That value mappings, thresholds and colors of the overrides take hold on the fields that they name: Grafana names a table's fields after the query that made them.",
	"That links carry the clicked row's labels: the links are checked for boards and variables that exist, not by clicking.",
	"That the regular expression of the variable GPU splits Grafana's text of a series into the name that is shown and the UUID.",
	"That annotations appear at the right moments.",
	"That the migrations of a later Grafana leave the panels as they are: the files follow the classic schema with the options of Grafana 11.",
	"How fast a board of a large fleet is drawn.",
}

// Markdown renders docs/dashboards.md.
func Markdown(boards []Board) string {
	var b strings.Builder
	b.WriteString("# Dashboards\n\nGenerated from the tables in `dashboards/` by `make generate`; a test compares it byte for byte.\n\n" +
		"The JSON files beside those tables load into Grafana 10 to 13 as they are: by file provisioning, a ConfigMap, the API, or the operator. " +
		"All boards carry the tag `" + tag + "`, open one another, and keep the time range, the data source and the variables on the way. Their uids and the names of their variables do not change.\n\n" +
		"Above node level the boards read [recording rules](../alerts/records.go) alone, which keeps them quick on any fleet; load the shipped rules, or those boards stay empty. " +
		"Where the series have a label `cluster`, the boards can choose by it; where they have none, All matches them.\n\n" +
		"Colors mean the same everywhere: green is at work, amber is held and idle, grey is free, red wants somebody. " +
		"N/A is a GPU that lacks the sensor; an empty panel says that nobody collects, unless its description says what else it may mean.\n\n" +
		"| board | uid | answers | panels |\n|---|---|---|---|\n")
	for _, board := range boards {
		n := 0
		board.everyPanel(func(Panel) { n++ })
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` | %s | %d |\n", board.Title, anchor(board.Title), board.UID, board.Question, n)
	}
	for _, board := range boards {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", board.Title, board.Question)
		var names []string
		for _, v := range board.Vars {
			if v.Hidden {
				continue
			}
			names = append(names, "`"+v.Name+"`")
		}
		source := "recording rules"
		if board.Raw {
			source = "what the exporter exposes"
		}
		fmt.Fprintf(&b, "![%s, a preview that `make preview` drew from the demo's data: not Grafana](images/board-%s.png)\n\n", board.Title, board.UID)
		fmt.Fprintf(&b, "Variables: %s. Reads %s.", strings.Join(names, ", "), source)
		if leads := board.leadsTo(); len(leads) > 0 {
			b.WriteString(" Leads to " + strings.Join(leads, ", ") + ".")
		}
		if len(board.Marks) > 0 {
			var marks []string
			for _, m := range board.Marks {
				marks = append(marks, strings.ToLower(m.Name[:1])+m.Name[1:])
			}
			b.WriteString(" Annotations: " + strings.ReplaceAll(strings.Join(marks, ", "), "xID", "XID") + ".")
		}
		b.WriteString("\n")
		for _, r := range board.Rows {
			title := r.Title
			if title == "" {
				title = "Answers"
			}
			fmt.Fprintf(&b, "\n### %s\n\n| panel | shows |\n|---|---|\n", title)
			for _, l := range r.Lines {
				for _, p := range l.Panels {
					fmt.Fprintf(&b, "| %s | %s |\n", p.title, p.help)
				}
			}
		}
	}
	b.WriteString("\n## What is checked, and what only Grafana can show\n\n" +
		"Tests without a Grafana hold every board to its schema (the files are read back strictly), its layout, its links, its variables, the house rules, and every query, by Prometheus' own parser, to metrics and labels that exist. They cannot show:\n\n")
	for _, u := range unchecked {
		b.WriteString("- " + u + "\n")
	}
	return b.String()
}

// leadsTo lists the boards to which the panels link, in the order in which they first do.
func (b Board) leadsTo() []string {
	var out []string
	add := func(l Link) {
		if uid := "`" + l.UID + "`"; !slices.Contains(out, uid) {
			out = append(out, uid)
		}
	}
	b.everyPanel(func(p Panel) {
		for _, l := range p.links {
			add(l)
		}
		for _, c := range p.columns {
			if c.link != nil {
				add(*c.link)
			}
		}
	})
	return out
}

// anchor spells a heading as the pages of a repository do.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return -1
	}, strings.ToLower(title))
}
