package alerts

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
	"time"
)

// alertsPage is docs/alerts.md with the runbooks; heads of alerts and the recording rules are inserted.
//
//go:embed alerts.md.tmpl
var alertsPage string

// Markdown renders docs/alerts.md. It fails for an alert without a runbook and a runbook without an alert.
func Markdown() (string, error) {
	byName, written, interval := map[string]Alert{}, map[string]bool{}, map[string]time.Duration{}
	for _, g := range AlertGroups() {
		for _, a := range g.Alerts {
			byName[a.Name], interval[a.Name] = a, g.Interval
		}
	}
	t, err := template.New("alerts.md.tmpl").Funcs(template.FuncMap{
		"records":   recordsTable,
		"published": publishedRules,
		"alert": func(name string) (string, error) {
			a, ok := byName[name]
			if !ok || written[name] {
				return "", fmt.Errorf("%s is no alert, or has two runbooks", name)
			}
			written[name] = true
			return a.head(interval[name]), nil
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
func (a Alert) head(interval time.Duration) string {
	var b strings.Builder
	// The link in Grafana's table has the name as it is spelled; headings have it in lower case.
	fmt.Fprintf(&b, "<a id=\"%s\"></a>\n### %s\n\n*%s", a.Name, a.Name, a.Severity)
	if a.For > 0 {
		b.WriteString(", after " + formatDuration(a.For))
	}
	if interval > 0 {
		b.WriteString(", evaluated every " + formatDuration(interval))
	}
	if a.Needs != "" {
		b.WriteString(", needs " + a.Needs)
	}
	if a.Off {
		b.WriteString(", off by default")
	}
	b.WriteString(".* " + a.Summary)
	for i, k := range a.Parameters {
		value := formatNumber(k.Number)
		if k.Duration > 0 {
			value = formatDuration(k.Duration)
		}
		b.WriteString([]string{" Thresholds: ", "; "}[min(i, 1)])
		fmt.Fprintf(&b, "`%s` = %s, %s", k.Name, value, k.Help)
	}
	if len(a.Parameters) > 0 {
		b.WriteString(".")
	}
	if len(a.Labels) > 0 {
		b.WriteString(" Labels: `" + strings.Join(a.Labels, "`, `") + "`;")
	}
	fmt.Fprintf(&b, " dashboard [%s](dashboards.md).\n\n```promql\n%s\n```\n\nQuery first", a.Dashboard.UID,
		Default().expr(a.Expr, a.Parameters))
	if n := needs(a.Queries()); n != "" {
		b.WriteString(" (" + n + ")")
	}
	b.WriteString(":\n")
	for _, q := range a.Queries() {
		fmt.Fprintf(&b, "\n- %s: `%s`", q.Shows, q.With(strings.ToUpper))
	}
	return b.String()
}

func recordsTable() string {
	var b strings.Builder
	for _, g := range Groups() {
		every := ""
		if g.Interval > 0 {
			every = "Evaluated every " + formatDuration(g.Interval) + ".\n\n"
		}
		fmt.Fprintf(&b, "### %s\n\n%s| record | labels | meaning |\n|---|---|---|\n", g.Name, every)
		for _, r := range g.Records {
			help := r.Help
			if r.Needs != "" {
				help += " Needs " + r.Needs + "."
			}
			labels := ""
			if len(r.Labels) > 0 {
				labels = "`" + strings.Join(r.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, labels, help)
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}
