package alerts

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
)

// alertsPage is docs/alerts.md with the runbooks; heads of alerts and the recording rules are inserted.
//
//go:embed alerts.md.tmpl
var alertsPage string

// Markdown renders docs/alerts.md. It fails for an alert without a runbook and a runbook without an alert.
func Markdown() (string, error) {
	byName, written := map[string]Alert{}, map[string]bool{}
	for _, a := range Alerts() {
		byName[a.Name] = a
	}
	t, err := template.New("alerts.md.tmpl").Funcs(template.FuncMap{
		"records":   recordsTable,
		"published": publishedRules,
		"first":     func() string { return list(gpuQueries()) },
		"slow":      slow,
		"stories":   storiesTable,
		"levels":    levels,
		"alert": func(name string) (string, error) {
			a, ok := byName[name]
			if !ok || written[name] {
				return "", fmt.Errorf("%s is no alert, or has two runbooks", name)
			}
			written[name] = true
			return a.head(), nil
		},
	}).Parse(alertsPage)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return "", err
	}
	for name := range byName {
		if !written[name] {
			return "", fmt.Errorf("alerts.md.tmpl has no runbook of %s", name)
		}
	}
	return b.String(), nil
}

// head is the heading of a runbook, which the alert's runbook_url links to, and what the alert's row says.
func (a Alert) head() string {
	var b strings.Builder
	// The link in Grafana's table has the name as it is spelled; headings have it in lower case.
	fmt.Fprintf(&b, "<a id=\"%s\"></a>\n### %s\n\n*%s", a.Name, a.Name, a.Severity)
	if a.For > 0 {
		b.WriteString(", after " + FormatDuration(a.For))
	}
	if a.Needs != "" {
		b.WriteString(", needs " + a.Needs)
	}
	if a.Off {
		b.WriteString(", off by default")
	}
	b.WriteString(".* " + a.Summary)
	own := slices.DeleteFunc(slices.Clone(a.Labels), func(l string) bool {
		return slices.Contains(gpuLabels, l) || slices.Contains(podLabels, l)
	})
	if len(own) > 0 {
		b.WriteString(" Own labels: " + code(own) + ".")
	}
	for i, k := range a.Parameters {
		value := formatNumber(k.Number)
		if k.Duration > 0 {
			value = FormatDuration(k.Duration)
		}
		fmt.Fprintf(&b, "%s`%s=%s`: %s", []string{" ", "; "}[min(i, 1)], k.Name, value, k.Help)
	}
	if len(a.Parameters) > 0 {
		b.WriteString(".")
	}
	queries := a.Queries()
	if n := needs(queries); n != "" && n != "`kube_*` needs "+a.Needs {
		b.WriteString("\n\nFor the queries " + n + ".")
	}
	b.WriteString("\n\n" + list(slices.DeleteFunc(queries, func(q Query) bool { return slices.Contains(gpuQueries(), q) })))
	return b.String()
}

func list(queries []Query) string {
	var lines []string
	for _, q := range queries {
		lines = append(lines, fmt.Sprintf("- %s: `%s`", q.Shows, q.With(strings.ToUpper)))
	}
	return strings.Join(lines, "\n")
}

// slow lists the chapters whose alerts are evaluated rarely.
func slow() string {
	var out []string
	for _, g := range AlertGroups() {
		if g.Interval == rarely {
			out = append(out, "*"+g.Title+"*")
		}
	}
	return strings.Join(out, " and ")
}

// recordsTable has a row for the records that differ in their level alone.
func recordsTable() string {
	var b strings.Builder
	b.WriteString("| record | labels | meaning |\n|---|---|---|\n")
	for _, g := range Groups() {
		names, first := map[string][]string{}, []Record(nil)
		for _, r := range g.Records {
			if names[r.Help] == nil {
				first = append(first, r)
			}
			names[r.Help] = append(names[r.Help], r.Name)
		}
		for _, r := range first {
			help := r.Help
			if r.Needs != "" {
				help += " Needs " + r.Needs + "."
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", code(names[r.Help]), code(r.ownLabels()), help)
		}
	}
	return strings.TrimSpace(b.String())
}

// levelLabels are the labels of the levels that records are named after, beside the cluster's.
func levelLabels() map[string][]string {
	return map[string][]string{
		"container": {"node", "uuid", "gpu", "namespace", "pod", "container"}, "gpu": {"node", "uuid"}, "pod": podLabels,
		"node": {"node"}, "model": {"model"}, "workload": {"namespace", "workload_type", "workload"}, "namespace": {"namespace"},
	}
}

// ownLabels are those that the level does not imply.
func (r Record) ownLabels() []string {
	level, _, _ := strings.Cut(r.Name, ":")
	implied := levelLabels()[level]
	return slices.DeleteFunc(slices.Clone(r.Labels), func(l string) bool { return slices.Contains(implied, l) })
}

func levels() string {
	var lines []string
	all := levelLabels()
	for _, level := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, fmt.Sprintf("`%s:` (%s)", level, code(all[level])))
	}
	return strings.Join(lines, ", ")
}

func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}
