package alerts

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	// clusterWord finds the cluster's label, and not the level cluster: in a record's name.
	clusterWord = regexp.MustCompile(`\bcluster\b([^:]|$)`)
	// spanInExpr finds the durations of PromQL: [5m], [6h:5m] and offset 5m.
	spanInExpr = regexp.MustCompile(`(\[|:|offset )(\d+(?:ms|[smhdw])(?:\d+(?:ms|[smhdw]))*)`)
)

// expr finishes an expression: placeholders, the cluster's label, patterns, and the scale of time.
func (c Config) expr(text string, parameters []Parameter) string {
	for _, k := range parameters {
		if k.Duration > 0 {
			text = strings.ReplaceAll(text, "$"+k.Name+"_seconds", formatNumber(c.scaled(k.Duration).Seconds()))
			text = strings.ReplaceAll(text, "$"+k.Name, FormatDuration(k.Duration))
		} else {
			text = strings.ReplaceAll(text, "$"+k.Name, formatNumber(k.Number))
		}
	}
	text = strings.ReplaceAll(text, `=~"`+resourceRE+`"`, `=~"`+c.Resource+`"`)
	text = strings.ReplaceAll(text, `=~"`+jobRE+`"`, `=~"`+c.Job+`"`)
	text = clusterWord.ReplaceAllString(text, c.ClusterLabel+"$1")
	return spanInExpr.ReplaceAllStringFunc(text, func(s string) string {
		m := spanInExpr.FindStringSubmatch(s)
		d, err := parseDuration(m[2])
		if err != nil {
			return s
		}
		return m[1] + FormatDuration(c.scaled(d))
	})
}

func (c Config) scaled(d time.Duration) time.Duration {
	return time.Duration(math.Round(float64(d)*c.Scale/float64(time.Millisecond))) * time.Millisecond
}

// RecordingRules returns the recording rules as they stand in a file.
func (c Config) RecordingRules() ([]RuleGroup, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var out []RuleGroup
	for _, g := range Groups() {
		group := RuleGroup{Name: g.Name, Interval: c.scaled(g.Interval)}
		for _, r := range g.Records {
			group.Rules = append(group.Rules, Rule{Record: r.Name, Expr: c.expr(r.Expr, nil)})
		}
		out = append(out, group)
	}
	prices := RuleGroup{Name: "gpu-exporter-prices"}
	for _, model := range slices.Sorted(maps.Keys(c.Prices)) {
		prices.Rules = append(prices.Rules, Rule{Record: "model:gpu_hour_price:info",
			Expr: "vector(" + formatNumber(c.Prices[model]) + ")", Labels: []Pair{{"model", model}}})
	}
	if len(prices.Rules) > 0 {
		out = append(out, prices)
	}
	return out, nil
}

// AlertRules returns the alerts that are on as they stand in a file.
func (c Config) AlertRules() ([]RuleGroup, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var out []RuleGroup
	for _, g := range AlertGroups() {
		group := RuleGroup{Name: g.Name, Interval: c.scaled(g.Interval)}
		for _, a := range g.Alerts {
			o := c.Alerts[a.Name]
			a, err := o.apply(a)
			if err != nil {
				return nil, err
			}
			if !a.Off {
				group.Rules = append(group.Rules, c.rule(a, o))
			}
		}
		if len(group.Rules) > 0 {
			out = append(out, group)
		}
	}
	return out, nil
}

// Closing is the end of the description: whose pods are on the GPU or node, and the cluster.
func (a *Alert) Closing(clusterLabel string) string {
	return whose(a.Labels) + "{{ with $labels." + clusterLabel + " }} Cluster: {{ . }}.{{ end }}"
}

// whose writes the template of the pods on the GPU that an alert is about, or of how many there are on its node.
func whose(labels []string) string {
	const pods = "group by (namespace, pod) (gpu_container_allocation_ratio{"
	switch has := func(l string) bool { return slices.Contains(labels, l) }; {
	case has("pod") || !has("node"):
		return ""
	case has("uuid"):
		return `{{ with query (printf "` + pods + `node=%q,uuid=%q})" $labels.node $labels.uuid) }} Pods on it: ` +
			`{{ if gt (len .) 4 }}{{ len . }}{{ else }}{{ range $i, $p := sortByLabel "pod" . }}{{ if $i }}, {{ end }}` +
			`{{ label "namespace" $p }}/` +
			`{{ label "pod" $p }}{{ end }}{{ end }}.{{ end }}`
	}
	return `{{ with query (printf "` + pods + `node=%q})" $labels.node) }} Pods with GPUs on the node: {{ len . }}.{{ end }}`
}

// lookup writes the template that reads a label of the alert.
func lookup(label string) string { return "{{ $labels." + label + " | urlquery }}" }

func (c Config) rule(a Alert, o Override) Rule {
	r := Rule{Alert: a.Name, Expr: c.expr(a.Expr, a.Parameters), For: c.scaled(a.For), Keep: c.scaled(a.Keep)}
	r.Labels = append([]Pair{{"severity", string(a.Severity)}}, pairs(c.Labels, o.Labels)...)
	description := strings.ReplaceAll(a.Description, jobRE, c.Job)
	for _, k := range a.Parameters {
		value := formatNumber(k.Number)
		if k.Duration > 0 {
			value = FormatDuration(c.scaled(k.Duration))
		}
		description = strings.ReplaceAll(description, "$"+k.Name, value)
	}
	description += a.Closing(c.ClusterLabel)
	link := strings.TrimSuffix(c.DashboardURL, "/") + "/d/" + a.Dashboard.UID
	sep := "?"
	if a.Name != "GPUExporterAbsent" { // what is not there has no cluster
		link += sep + "var-cluster=" + lookup(c.ClusterLabel)
		sep = "&"
	}
	for _, v := range a.Dashboard.Vars {
		link += sep + "var-" + v + "=" + lookup(v)
	}
	r.Annotations = []Pair{
		{"summary", a.Summary},
		{"description", description},
		{"runbook_url", strings.ReplaceAll(c.RunbookURL, "{alert}", strings.ToLower(a.Name))},
	}
	if c.DashboardURL != "" {
		r.Annotations = append(r.Annotations, Pair{"dashboard_url", link})
	}
	return r
}

// Document is one file that is written from the tables.
type Document struct {
	// Path is relative to the root of the repository.
	Path, Text string
}

// Render returns every file for the configuration, or one line that names the knob that cannot be.
func Render(c Config) ([]Document, error) {
	records, err := c.RecordingRules()
	if err != nil {
		return nil, err
	}
	rules, err := c.AlertRules()
	if err != nil {
		return nil, err
	}
	return []Document{
		{"alerts/recording.rules.yaml", RulesFile(records)},
		{"alerts/alerts.rules.yaml", RulesFile(rules)},
		{"alerts/prometheusrule.yaml", PrometheusRule(append(records, rules...))},
		{"alerts/alertmanager.example.yaml", Alertmanager(c)},
	}, nil
}

// Generated returns the files of the repository: Render's for the default configuration, and the documentation.
func Generated() ([]Document, error) {
	files, err := Render(Default())
	if err != nil {
		return nil, fmt.Errorf("default configuration: %w", err)
	}
	page, err := Markdown()
	if err != nil {
		return nil, err
	}
	return append(files, Document{"docs/alerts.md", page}), nil
}
