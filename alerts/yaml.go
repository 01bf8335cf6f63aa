package alerts

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const generatedBy = "# Written from the tables in alerts/ by `make generate`; do not edit.\n"

// pairs merges maps into a list in the order of the names; later maps win.
func pairs(from ...map[string]string) []Pair {
	all := map[string]string{}
	for _, m := range from {
		maps.Copy(all, m)
	}
	var out []Pair
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, Pair{name, all[name]})
	}
	return out
}

// page writes YAML line by line. Texts are quoted as JSON quotes them, which YAML reads; expressions are
// blocks, so that a person can read them.
type page struct {
	b      strings.Builder
	indent string
}

func (p *page) line(format string, args ...any) {
	p.b.WriteString(p.indent)
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

func (p *page) text(name, value string) { p.line("%s: %s", name, quote(value)) }

// quote writes a text in double quotes. strconv's escapes of control characters are YAML's too.
func quote(s string) string {
	q := strconv.Quote(s)
	return strings.NewReplacer(`\u007f`, `\x7f`).Replace(q)
}

func (p *page) block(name, value string) {
	if !strings.Contains(value, "\n") {
		p.line("%s: |-", name)
		p.line("  %s", value)
		return
	}
	p.line("%s: |-", name)
	for _, l := range strings.Split(value, "\n") {
		if l == "" {
			p.b.WriteByte('\n')
			continue
		}
		p.line("  %s", strings.TrimRight(l, " "))
	}
}

func (p *page) pairs(name string, list []Pair) {
	if len(list) == 0 {
		return
	}
	p.line("%s:", name)
	p.indent += "  "
	for _, l := range list {
		p.text(l.Name, l.Value)
	}
	p.indent = p.indent[2:]
}

func (p *page) groups(groups []RuleGroup) {
	p.line("groups:")
	for _, g := range groups {
		p.line("- name: %s", g.Name)
		if g.Interval > 0 {
			p.line("  interval: %s", FormatDuration(g.Interval))
		}
		p.line("  rules:")
		outer := p.indent
		for _, r := range g.Rules {
			p.indent = outer + "  "
			if r.Record != "" {
				p.line("- record: %s", r.Record)
			} else {
				p.line("- alert: %s", r.Alert)
			}
			p.indent = outer + "    "
			p.block("expr", r.Expr)
			if r.For > 0 {
				p.line("for: %s", FormatDuration(r.For))
			}
			if r.Keep > 0 {
				p.line("keep_firing_for: %s", FormatDuration(r.Keep))
			}
			p.pairs("labels", r.Labels)
			p.pairs("annotations", r.Annotations)
		}
		p.indent = outer
	}
}

// RulesFile writes groups as a rules file of Prometheus and vmalert.
func RulesFile(groups []RuleGroup) string {
	var p page
	p.b.WriteString(generatedBy)
	p.groups(groups)
	return p.b.String()
}

// PrometheusRule writes groups as the custom resource that the Prometheus operator reads.
func PrometheusRule(groups []RuleGroup) string {
	var p page
	p.b.WriteString(generatedBy)
	p.line("apiVersion: monitoring.coreos.com/v1")
	p.line("kind: PrometheusRule")
	p.line("metadata:")
	p.line("  name: gpu-exporter")
	p.line("  labels:")
	p.line("    app.kubernetes.io/name: gpu-exporter")
	p.line("spec:")
	p.indent = "  "
	p.groups(groups)
	return p.b.String()
}

// inhibition is an alert that makes others redundant while the labels are equal.
type inhibition struct {
	reason string
	source []string
	target []string
	equal  []string
}

func inhibitions() []inhibition {
	return []inhibition{
		{"Without a driver nothing of the node's GPUs can be read.",
			[]string{"GPUDriverDown"}, []string{"GPUExporterPollStuck", "GPUExporterNVMLErrors", "GPUAllocationUnknown"},
			[]string{"node"}},
		{"No target at all is one problem, not one per node.",
			[]string{"GPUExporterAbsent"}, []string{"GPUExporterMissingOnNode"}, nil},
		{"A pod that is not running is idle.",
			[]string{"GPUAllocatedPodNotRunning"}, []string{"GPUAllocatedIdle"}, []string{"node", "namespace", "pod"}},
	}
}

// Alertmanager writes a complete example of Alertmanager's configuration: which notifications are one, who gets them, and which alert
// inhibits which.
func Alertmanager(c Config) string {
	var p page
	p.b.WriteString(generatedBy)
	p.b.WriteString(alertmanagerRoutes)
	p.line("inhibit_rules:")
	for _, i := range inhibitions() {
		p.line("# %s", i.reason)
		p.line("- source_matchers:")
		p.line("  - %s", quote(`alertname=~"`+strings.Join(i.source, "|")+`"`))
		p.line("  target_matchers:")
		p.line("  - %s", quote(`alertname=~"`+strings.Join(i.target, "|")+`"`))
		p.line("  equal: [%s]", strings.Join(append([]string{c.ClusterLabel}, i.equal...), ", "))
	}
	return strings.ReplaceAll(p.b.String(), "CLUSTER", c.ClusterLabel)
}

const alertmanagerRoutes = "# An example to take from: add the integrations of your receivers. " +
	"Where the alerts of several clusters meet, their label CLUSTER\n" +
	"# keeps them apart. Replicas of Prometheus must send the same labels (alert_relabel_configs drops the label of the replica)." + `
route:
  receiver: gpu-ticket
  # One notification for each fault: of a node, or of a namespace where the alert is about pods or workloads.
  group_by: [CLUSTER, node, namespace, alertname]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 24h
  routes:
  - matchers: ["severity=\"critical\""]
    receiver: gpu-page
    repeat_interval: 4h
  # For dashboards: does not notify by itself.
  - matchers: ["severity=\"info\""]
    receiver: nobody
receivers:
- name: gpu-page
- name: gpu-ticket
- name: nobody
`
