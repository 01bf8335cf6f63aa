package render

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// Options say what is shown. JSON and CSV show all levels and rows.
type Options struct {
	// By are the levels to show; none is all of them.
	By []string
	// Top is how many rows of a list are shown; 0 is all of them.
	Top int
	// Level is that of CSV, one of CSVLevels; Query adds the PromQL of each row to CSV.
	Level string
	Query bool
}

// Levels are those by which a report may be shown.
func Levels() []string {
	return []string{"cluster", "model", "node_pool", "node", "namespace", "group", "workload"}
}

func (o Options) shows(level string) bool { return len(o.By) == 0 || slices.Contains(o.By, level) }

// level is a list of accounts with its heading, and the columns that name them.
type level struct {
	Key, Title string
	names      []string
	accounts   []document.Account
	name       func(*document.Account) string
}

func levels(d *document.Document) []level {
	known := func(s string) string {
		if s == "" {
			return "(unknown)"
		}
		return s
	}
	in := func(cluster, name string) string {
		if cluster == "" || len(d.Clusters) < 2 {
			return known(name)
		}
		return cluster + " / " + known(name)
	}
	all := []level{
		{"cluster", "Clusters", []string{"cluster"}, d.Clusters, func(a *document.Account) string { return known(a.Cluster) }},
		{"model", "Models", []string{"model"}, d.Models, func(a *document.Account) string { return known(a.Model) }},
		{"node_pool", "Node pools", []string{"cluster", "node_pool"}, d.NodePools,
			func(a *document.Account) string { return in(a.Cluster, a.NodePool) }},
		{"node", "Nodes", []string{"cluster", "node_pool", "node", "model"}, d.Nodes,
			func(a *document.Account) string { return in(a.Cluster, a.Node) }},
		{"namespace", "Namespaces", []string{"cluster", "namespace"}, d.Namespaces,
			func(a *document.Account) string { return in(a.Cluster, a.Namespace) }},
		{"group", "By " + d.GroupLabel, []string{groupLabel}, d.Groups, func(a *document.Account) string { return a.Group }},
	}
	if d.GroupLabel == "" {
		all = all[:len(all)-1]
	}
	return all
}

// stack draws states as one bar. Every text in it is made here, of numbers and the words of the states.
func stack(c document.States, class string) template.HTML {
	sum := c.Sum()
	var b, text strings.Builder
	for s := range document.StateCount {
		v, word := c.Of(s), s.Quantity().Word
		if sum <= 0 || v/sum < 0.0005 {
			continue
		}
		percent := template.HTMLEscapeString(units.Share(v, sum))
		fmt.Fprintf(&b, `<i class="k%d" style="flex:%.4f" title="%s: %s"></i>`, s, v/sum, word, percent)
		fmt.Fprintf(&text, "%s %s; ", word, percent)
	}
	return template.HTML(fmt.Sprintf(`<div class="bar %s" role="img" aria-label="%s">%s</div>`, class, text.String(), b.String()))
}
