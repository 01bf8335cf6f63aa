package alerts

import (
	"fmt"
	"strings"
)

// Markdown is docs/alerts.md: every alert with its meaning and knobs, and every recording rule.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Alerts and recording rules

Written from the tables in ` + "`alerts/`" + ` by ` + "`make generate`" + `; a test compares it byte for byte.

| file | for |
|---|---|
| ` + "`alerts/recording.rules.yaml`, `alerts/alerts.rules.yaml`" + ` | Prometheus from 2.42 on, and vmalert |
| ` + "`alerts/prometheusrule.yaml`" + ` | the Prometheus operator: the same rules as one PrometheusRule |
| ` + "`alerts/alertmanager-inhibition.example.yaml`" + ` | Alertmanager: which alert silences which |

The dashboards above node level, the capacity report and some alerts read the recording rules: load both files. Some alerts need
kube-state-metrics, and say so. Severities: critical pages somebody, warning is work for the day, info is for a report.
Every alert is tested with promtool: that it fires, that it rests in the nearest innocent case, and that it ends.
Thresholds are given as *name = value*; every one of them, ` + "`for`" + `, ` + "`keep_firing_for`" + ` and the severity can be set.
`)
	for _, g := range AlertGroups() {
		fmt.Fprintf(&b, "\n## %s\n\n| alert | severity | means | for | thresholds | one per |\n|---|---|---|---|---|---|\n", g.Title)
		for _, a := range g.Alerts {
			means := strings.TrimSuffix(a.Summary, ".")
			if a.Off {
				means += "; off by default"
			}
			if a.Needs != "" {
				means += "; needs " + a.Needs
			}
			var knobs []string
			for _, k := range a.Knobs {
				value := formatNumber(k.Number)
				if k.Duration > 0 {
					value = formatDuration(k.Duration)
				}
				knobs = append(knobs, fmt.Sprintf("`%s` = %s: %s", k.Name, value, k.Help))
			}
			per := "`" + strings.Join(a.Labels, "`, `") + "`"
			if len(a.Labels) == 0 {
				per = "cluster"
			}
			lasts := formatDuration(a.For)
			if a.For == 0 {
				lasts = "at once"
			}
			fmt.Fprintf(&b, "| [%s](runbooks/%s.md) | %s | %s | %s | %s | %s |\n", a.Name, strings.ToLower(a.Name), a.Severity, means, lasts, strings.Join(knobs, "<br>"), per)
		}
	}
	b.WriteString("\n## Recording rules\n\nEach keeps the label of the cluster beside those that are listed.\n")
	for _, g := range Groups() {
		every := ""
		if g.Interval > 0 {
			every = "Evaluated every " + formatDuration(g.Interval) + ".\n\n"
		}
		fmt.Fprintf(&b, "\n### %s\n\n"+every+"| record | labels | means |\n|---|---|---|\n", g.Name)
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
	}
	return b.String()
}
