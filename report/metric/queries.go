package metric

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// Queries adds the PromQL of the hours of each part of the fleet and of each workload. has are the metrics that there
// are, raw the parts of the period that no recording rule covers, which are read from the series; pools lists the nodes of
// each pool of each cluster, pods those of each workload.
func Queries(doc *document.Document, ql prom.QL, has map[string]bool, raw []document.Span,
	pools map[[2]string][]string, pods map[string][]string) {
	step := doc.Period.StepSeconds
	window := func(p document.Span) string {
		return fmt.Sprintf("[%ds:%ds] @ %d", int(p.To.Sub(p.From).Seconds()), step, p.To.Unix())
	}
	// Each figure is from the sources of its row: the rules where they have a history, the series elsewhere.
	hours := func(rule string, has bool, series string) string {
		of := func(expr string, p document.Span) string {
			return fmt.Sprintf("sum by (state) (sum_over_time((%s)%s)) * %g", expr, window(p), float64(step)/3600)
		}
		if !has {
			return of(series, doc.Period)
		}
		parts := []string{of(rule, doc.Period)}
		for i, p := range raw {
			parts = append(parts, fmt.Sprintf(`label_replace(%s, "part", "%d", "", "")`, of(series, p), i))
		}
		if len(parts) > 1 {
			return "sum by (state) (" + strings.Join(parts, " or ") + ")"
		}
		return parts[0]
	}
	states := func(model string, matchers ...string) string {
		series := WithModel(ql, ql.Rate(RawGPUs, matchers...), model)
		if model != "" {
			matchers = append(matchers, "model="+prom.Quote(model))
		}
		return hours(ql.Once(ql.Select(RuleGPUs, matchers...)), has[RuleGPUs], ql.Once(series))
	}
	is := func(label, value string) []string {
		if matcher := label + "=" + prom.Quote(value); value == "" || strings.Contains(ql.Match, matcher) {
			return nil
		}
		return []string{label + "=" + prom.Quote(value)}
	}
	doc.Fleet.Query = states("")
	for _, list := range [][]document.Account{doc.Clusters, doc.Models, doc.NodePools, doc.Nodes} {
		for i := range list {
			a := &list[i]
			matchers := slices.Concat(is(ql.Cluster, a.Cluster), is("node", a.Node))
			if a.Node == "" && a.NodePool != "" {
				var names []string
				for _, n := range slices.Compact(pools[[2]string{a.Cluster, a.NodePool}]) {
					names = append(names, regexp.QuoteMeta(n))
				}
				matchers = append(matchers, "node=~"+prom.Quote(strings.Join(names, "|")))
			}
			a.Query = states(a.Model, matchers...)
		}
	}
	use := func(of, pods []string) string {
		var parts []string
		for i, x := range [][2]string{{RuleAllocated, RawAllocated}, {RuleBusy, RawBusy}, {RuleUnused, RawUnused}} {
			expr := hours(ql.Once(ql.Select(x[0], of...)), has[RuleAllocated], ql.Once(ql.Rate(x[1], pods...)))
			if state := []string{"allocated", "busy", ""}[i]; state != "" {
				expr = fmt.Sprintf(`label_replace(%s, "state", "%s", "", "")`, expr, state)
			}
			parts = append(parts, expr)
		}
		return strings.Join(parts, " or ")
	}
	for i := range doc.Namespaces {
		a := &doc.Namespaces[i]
		matchers := slices.Concat(is(ql.Cluster, a.Cluster), is("namespace", a.Namespace))
		a.Query = use(matchers, matchers)
	}
	for i := range doc.Workloads {
		w := &doc.Workloads[i]
		matchers := slices.Concat(is(ql.Cluster, w.Cluster), is("namespace", w.Namespace))
		w.Query = use(slices.Concat(matchers, is("workload_type", w.Kind), is("workload", w.Name), is("model", w.Model)),
			slices.Concat(matchers, []string{"pod=~" + prom.Quote(strings.Join(pods[w.ID], "|"))}))
	}
	for i := range doc.Advice {
		if a := &doc.Advice[i]; a.Workload == "" {
			matchers := slices.Concat(is(ql.Cluster, a.Cluster), is("node", a.Node))
			a.Query = states(a.Model, matchers...)
		}
	}
}
