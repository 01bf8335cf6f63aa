// Package render shows a report: as JSON with a published schema, as a page that stands alone, as Markdown for a pull request, as CSV
// for a spreadsheet, and as a table for a terminal. Names of other people's workloads are data in every one of them.
package render

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/report"
)

// Options say what is shown. JSON and CSV show everything.
type Options struct {
	// By are the levels to show.
	By []string
	// Top is how many rows of a list are shown; 0: all.
	Top int
}

// Levels are those that a report may be shown by.
func Levels() []string {
	return []string{"cluster", "model", "node_pool", "node", "namespace", "workload"}
}

// Formats are those that there are.
func Formats() []string { return []string{"html", "md", "csv", "json", "table"} }

// Extension is that of a format's file.
func Extension(format string) string {
	if format == "table" {
		return "txt"
	}
	return format
}

// Write writes a report in a format.
func Write(w io.Writer, d *report.Document, format string, o Options) error {
	b := bufio.NewWriterSize(w, 1<<16)
	var err error
	switch format {
	case "json":
		err = writeJSON(b, d)
	case "html":
		err = writeHTML(b, d, o)
	case "md":
		err = writeMarkdown(b, d, o)
	case "csv":
		err = writeCSV(b, d)
	case "table":
		err = writeTable(b, d, o)
	default:
		err = fmt.Errorf("there is no format %q", format)
	}
	if err != nil {
		return err
	}
	return b.Flush()
}

func writeJSON(w io.Writer, d *report.Document) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(true)
	e.SetIndent("", " ")
	return e.Encode(d)
}

// shows says whether a level is asked for; none at all asks for every one.
func (o Options) shows(level string) bool { return len(o.By) == 0 || slices.Contains(o.By, level) }

// level is a list of accounts with its heading.
type level struct {
	key, title string
	accounts   []report.Account
	name       func(*report.Account) string
}

func levels(d *report.Document, o Options) []level {
	in := func(cluster, name string) string {
		if cluster == "" || len(d.Clusters) < 2 {
			return name
		}
		return cluster + " / " + name
	}
	known := func(s string) string {
		if s == "" {
			return "(not known)"
		}
		return s
	}
	all := []level{
		{"cluster", "Clusters", d.Clusters, func(a *report.Account) string { return known(a.Cluster) }},
		{"model", "Models", d.Models, func(a *report.Account) string { return known(a.Model) }},
		{"node_pool", "Node pools", d.NodePools, func(a *report.Account) string { return in(a.Cluster, known(a.NodePool)) }},
		{"node", "Nodes", d.Nodes, func(a *report.Account) string { return in(a.Cluster, known(a.Node)) }},
		{"namespace", "Namespaces", d.Namespaces, func(a *report.Account) string { return in(a.Cluster, known(a.Namespace)) }},
	}
	var out []level
	for _, l := range all {
		if o.shows(l.key) && len(l.accounts) > 0 && (l.key != "cluster" || len(l.accounts) > 1) {
			out = append(out, l)
		}
	}
	return out
}
