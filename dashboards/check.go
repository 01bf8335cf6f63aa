package dashboards

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Source is where a metric comes from that the catalog does not have.
type Source string

// The sources.
const (
	FromRecordingRule    Source = "recording rule"
	FromKubeStateMetrics Source = "kube-state-metrics"
	FromNodeExporter     Source = "node-exporter"
	FromPrometheus       Source = "Prometheus"
	FromProcess          Source = "the exporter's process"
)

// External is a metric of others that the dashboards may read, with the labels that the dashboards may use.
type External struct {
	Name   string
	Source Source
	Labels []string
}

// Externals lists them. Every one also has what Prometheus adds: job, instance, and cluster where it is set.
func Externals() []External {
	pod := []string{"namespace", "pod", "container", "node"}
	alert := slices.Concat([]string{"alertname", "severity", "node", "uuid", "gpu", "namespace", "pod", "workload_type", "model"},
		alertDetails())
	rows := []External{
		{"ALERTS", FromPrometheus, append([]string{"alertstate"}, alert...)},
		{"ALERTS_FOR_STATE", FromPrometheus, alert},
		{priceSeries, FromRecordingRule, []string{"model"}},
		{"up", FromPrometheus, nil},
		{"scrape_duration_seconds", FromPrometheus, nil},
		{"scrape_samples_scraped", FromPrometheus, nil},
		{"scrape_series_added", FromPrometheus, nil},
		{"process_start_time_seconds", FromProcess, []string{"node"}},
		{"process_cpu_seconds_total", FromProcess, []string{"node"}},
		{"process_resident_memory_bytes", FromProcess, []string{"node"}},
		{"process_open_fds", FromProcess, []string{"node"}},
		{"process_max_fds", FromProcess, []string{"node"}},
		{"go_goroutines", FromProcess, []string{"node"}},
		{"go_gc_duration_seconds_sum", FromProcess, []string{"node"}},
		{"go_gc_duration_seconds_count", FromProcess, []string{"node"}},
		{"promhttp_metric_handler_requests_total", FromProcess, []string{"node", "code"}},
		{"kube_node_status_condition", FromKubeStateMetrics, []string{"node", "condition", "status"}},
		{"kube_node_spec_unschedulable", FromKubeStateMetrics, []string{"node"}},
		{"kube_node_status_allocatable", FromKubeStateMetrics, []string{"node", "resource", "unit"}},
		{"kube_pod_status_phase", FromKubeStateMetrics, []string{"namespace", "pod", "phase"}},
		{"kube_pod_status_unschedulable", FromKubeStateMetrics, []string{"namespace", "pod"}},
		{"kube_pod_container_resource_requests", FromKubeStateMetrics, append([]string{"resource", "unit"}, pod...)},
		{"kube_pod_container_status_restarts_total", FromKubeStateMetrics, pod},
		{"kube_pod_container_status_last_terminated_reason", FromKubeStateMetrics, append([]string{"reason"}, pod...)},
		{"kube_pod_container_status_waiting_reason", FromKubeStateMetrics, append([]string{"reason"}, pod...)},
		{"kube_pod_created", FromKubeStateMetrics, []string{"namespace", "pod"}},
		{"kube_resourcequota", FromKubeStateMetrics, []string{"namespace", "resourcequota", "resource", "type"}},
		{"node_cpu_seconds_total", FromNodeExporter, []string{"node", "cpu", "mode"}},
		{"node_memory_MemAvailable_bytes", FromNodeExporter, []string{"node"}},
		{"node_memory_MemTotal_bytes", FromNodeExporter, []string{"node"}},
		{"node_network_receive_bytes_total", FromNodeExporter, []string{"node", "device"}},
		{"node_network_transmit_bytes_total", FromNodeExporter, []string{"node", "device"}},
	}
	return rows
}

// histogramParts are the endings of a classic histogram's series.
var histogramParts = []string{"_bucket", "_sum", "_count"}

// known reports whether the metric exists: the catalog, a recording rule, or one of Externals.
func known(metric string, rules []string) bool {
	if slices.Contains(rules, metric) || slices.ContainsFunc(Externals(),
		func(e External) bool { return e.Name == metric }) {
		return true
	}
	if _, ok := catalog.Lookup(metric); ok {
		return true
	}
	for _, part := range histogramParts {
		if name, is := strings.CutSuffix(metric, part); is {
			f, ok := catalog.Lookup(name)
			return ok && f.Type == catalog.Histogram
		}
	}
	return false
}

var uidShape = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Check returns the first broken rule of the dashboards in one line that names the dashboard and the panel. The
// recording rules are those that the dashboards may read.
func Check(dashboards []Dashboard, rules []string) error {
	for i, b := range dashboards {
		if !uidShape.MatchString(b.UID) {
			return fmt.Errorf("dashboard %q: a uid is lower case, digits and hyphens, at most 40", b.UID)
		}
		if slices.ContainsFunc(dashboards[:i], func(o Dashboard) bool { return o.UID == b.UID }) {
			return fmt.Errorf("dashboard %s: duplicate uid", b.UID)
		}
		if _, err := b.layout(); err != nil {
			return err
		}
		if err := b.check(dashboards, rules); err != nil {
			return fmt.Errorf("dashboard %s: %w", b.UID, err)
		}
	}
	return nil
}

func (b Dashboard) check(all []Dashboard, rules []string) error {
	if b.Question == "" || b.Title == "" {
		return fmt.Errorf("no title or question")
	}
	for _, name := range []string{varDatasource, varCluster} {
		if !b.has(name) {
			return fmt.Errorf("the variable %s is missing", name)
		}
	}
	for _, v := range b.Vars {
		if v.Query == "" {
			continue
		}
		if err := b.checkQuery(v.Query, rules, true); err != nil {
			return fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	for _, m := range b.Annotations {
		if err := b.checkQuery(m.Expr, rules, true); err != nil {
			return fmt.Errorf("annotation %q: %w", m.Name, err)
		}
	}
	var broken error
	titles := map[string]bool{}
	b.everyPanel(func(p Panel) {
		if broken != nil {
			return
		}
		err := b.checkPanel(p, all, rules)
		if err == nil && titles[p.title] {
			err = fmt.Errorf("duplicate title")
		}
		if err != nil {
			broken = fmt.Errorf("panel %q: %w", p.title, err)
		}
		titles[p.title] = true
	})
	return broken
}

func (b Dashboard) has(variable string) bool {
	return slices.ContainsFunc(b.Vars, func(v Variable) bool { return v.Name == variable })
}

func (b Dashboard) checkPanel(p Panel, all []Dashboard, rules []string) error {
	switch {
	case p.title == "":
		return fmt.Errorf("no title")
	case p.help == "":
		return fmt.Errorf("no description")
	case p.unit == "":
		return fmt.Errorf("no unit")
	case p.kind != kindText && len(p.allQueries()) == 0:
		return fmt.Errorf("no query")
	case p.unit == Ratio && p.limits[0] == nil && p.stack != "percent": // limits empty the panel in Grafana 10 and 11.1
		return fmt.Errorf("a ratio without limits of the scale")
	}
	for _, query := range p.allQueries() {
		if err := b.checkQuery(query.Expr, rules, false); err != nil {
			return err
		}
		if strings.Contains(query.Expr, "topk") && !strings.Contains(query.Expr, "@ end()") && p.kind != kindStat &&
			p.kind != kindTable && p.kind != kindBars {
			return fmt.Errorf("topk over time shows other series at each step: use it in a stat, a table or bars")
		}
		for _, w := range windowsOf(query.Expr) {
			if w != "$__rate_interval" && w != "$__range" && w != "$__range:5m" && p.window == "" {
				return fmt.Errorf("the window [%s] is neither $__rate_interval nor $__range, and without a reason", w)
			}
		}
		if len(p.allQueries()) > 1 && p.kind == kindSeries && query.Legend == "" {
			return fmt.Errorf("no legend of one of several queries: %s", query.Expr)
		}
	}
	links := slices.Clone(p.links)
	for _, c := range p.columns {
		if c.link != nil {
			links = append(links, *c.link)
		}
		if c.label == "" && c.unit == "" {
			return fmt.Errorf("the column %q has no unit", c.title)
		}
	}
	if p.kind == kindTable {
		key := strings.TrimPrefix(p.sortBy, "-")
		if !slices.ContainsFunc(p.columns, func(c Column) bool { return c.title == key }) {
			return fmt.Errorf("it is sorted by %q, which is not a column", key)
		}
	}
	for _, l := range links {
		if err := b.checkLink(l, p, all); err != nil {
			return err
		}
	}
	return nil
}

func (b Dashboard) checkLink(l Link, p Panel, all []Dashboard) error {
	if strings.HasPrefix(l.UID, pages) {
		return nil
	}
	at := slices.IndexFunc(all, func(o Dashboard) bool { return o.UID == l.UID })
	if at < 0 {
		return fmt.Errorf("it links to %s, which is no board", l.UID)
	}
	for _, v := range l.Vars {
		if !all[at].has(v.Name) {
			return fmt.Errorf("it links to %s and sets %s, which that dashboard does not have", l.UID, v.Name)
		}
		if v.Field == "" && !b.has(v.Name) {
			return fmt.Errorf("it passes %s, which this dashboard does not have", v.Name)
		}
		if v.Field != "" && p.kind == kindTable &&
			!slices.ContainsFunc(p.columns, func(c Column) bool { return c.label == v.Field }) {
			return fmt.Errorf("it links by the column %s, which the table does not have", v.Field)
		}
	}
	return nil
}

// ownMetric reports whether only this exporter has the metric, so that it has a recording rule above node level.
func ownMetric(name string) bool { return strings.HasPrefix(name, "gpu_") }

// checkQuery checks one expression. The queries of variables and annotations may read raw series on any
// dashboard: they need names and times, not sums.
func (b Dashboard) checkQuery(expr string, rules []string, names bool) error {
	expanded, err := b.expand(expr)
	if err != nil {
		return err
	}
	for _, v := range variablesOf(expanded) {
		if !b.has(v) {
			return fmt.Errorf("query %q uses $%s, which the dashboard does not have", expr, v)
		}
	}
	// The functions of variables are words of Grafana; their label argument looks like a metric.
	promql := expanded
	if inner, ok := strings.CutPrefix(promql, "label_values("); ok {
		promql = inner[:strings.LastIndex(inner, ",")]
	} else if inner, ok := strings.CutPrefix(promql, "query_result("); ok {
		promql = strings.TrimSuffix(inner, ")")
	}
	metrics := metricsOf(promql)
	if len(metrics) == 0 {
		return fmt.Errorf("query %q reads no metric", expr)
	}
	for _, m := range metrics {
		if !known(m, rules) {
			return fmt.Errorf("query %q reads %s, which does not exist", expr, m)
		}
		if !b.Raw && !names && ownMetric(m) {
			return fmt.Errorf("query %q reads the raw series %s: above node level dashboards read recording rules",
				expr, m)
		}
	}
	for metric, selector := range selectorsOf(promql) {
		// Prices belong to models, wherever they run.
		if !names && metric != priceSeries && !strings.Contains(selector, varCluster+`=~"$`+varCluster+`"`) {
			return fmt.Errorf("query %q does not select by cluster", expr)
		}
	}
	return nil
}

// selectorsOf returns the braces of every metric that an expression reads; "" for a metric without.
func selectorsOf(expr string) iter.Seq2[string, string] {
	return func(yield func(metric, selector string) bool) {
		for _, m := range metricsOf(expr) {
			at := regexp.MustCompile(`(?:^|[^a-zA-Z0-9_:])` + regexp.QuoteMeta(m) + `(\{[^{}]*\})?(?:$|[^a-zA-Z0-9_:])`)
			for _, found := range at.FindAllStringSubmatch(expr, -1) {
				if !yield(m, found[1]) {
					return
				}
			}
		}
	}
}
