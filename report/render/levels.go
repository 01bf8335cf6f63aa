package render

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// Options say what is shown. JSON and CSV show everything.
type Options struct {
	// By are the levels to show; none is all of them.
	By []string
	// Top is how many rows of a list are shown; 0 is all of them.
	Top int
}

// Levels are those by which a report may be shown.
func Levels() []string {
	return []string{"cluster", "model", "node_pool", "node", "namespace", "group", "workload"}
}

func (o Options) shows(level string) bool { return len(o.By) == 0 || slices.Contains(o.By, level) }

// level is a list of accounts with its heading.
type level struct {
	Key, Title string
	accounts   []document.Account
	name       func(*document.Account) string
}

func levels(d *document.Document, o Options) []level {
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
		{"cluster", "Clusters", d.Clusters, func(a *document.Account) string { return known(a.Cluster) }},
		{"model", "Models", d.Models, func(a *document.Account) string { return known(a.Model) }},
		{"node_pool", "Node pools", d.NodePools, func(a *document.Account) string { return in(a.Cluster, a.NodePool) }},
		{"node", "Nodes", d.Nodes, func(a *document.Account) string { return in(a.Cluster, a.Node) }},
		{"namespace", "Namespaces", d.Namespaces, func(a *document.Account) string { return in(a.Cluster, a.Namespace) }},
		{"group", "By " + d.GroupLabel, d.Groups, func(a *document.Account) string { return a.Group }},
	}
	return slices.DeleteFunc(all, func(l level) bool {
		return !o.shows(l.Key) || len(l.accounts) == 0 || l.Key == "cluster" && len(l.accounts) < 2
	})
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
	return template.HTML(fmt.Sprintf(`<div class="bar %s" role="img" aria-label="%s">%s</div>`, class, text.String(),
		b.String()))
}
