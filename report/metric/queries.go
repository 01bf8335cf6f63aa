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
// are; pools lists the nodes of each pool of each cluster, pods those of each workload.
func Queries(doc *document.Document, ql prom.QL, has map[string]bool, pools map[[2]string][]string, pods map[string][]string) {
	step := doc.Period.StepSeconds
	window := fmt.Sprintf("[%ds:%ds] @ %d", int(doc.Period.To.Sub(doc.Period.From).Seconds()), step, doc.Period.To.Unix())
	hours := func(expr string) string {
		return fmt.Sprintf("sum by (state) (sum_over_time((%s)%s)) * %g", expr, window, float64(step)/3600)
	}
	states := func(matchers ...string) string {
		if has[RuleGPUs] {
			return hours(ql.Once(ql.Select(RuleGPUs, matchers...)))
		}
		return hours(ql.Once(WithModel(ql, ql.Rate(RawGPUs, matchers...))))
	}
	is := func(label, value string) []string {
		if value == "" {
			return nil
		}
		return []string{label + "=" + prom.Quote(value)}
	}
	doc.Fleet.Query = states()
	for _, list := range [][]document.Account{doc.Clusters, doc.Models, doc.NodePools, doc.Nodes} {
		for i := range list {
			a := &list[i]
			matchers := slices.Concat(is(ql.Cluster, a.Cluster), is("node", a.Node))
			if has[RuleGPUs] {
				matchers = append(matchers, is("model", a.Model)...)
			}
			if a.Node == "" && a.NodePool != "" {
				var names []string
				for _, n := range slices.Compact(pools[[2]string{a.Cluster, a.NodePool}]) {
					names = append(names, regexp.QuoteMeta(n))
				}
				matchers = append(matchers, "node=~"+prom.Quote(strings.Join(names, "|")))
			}
			a.Query = states(matchers...)
		}
	}
	use := func(matchers ...string) string {
		rule, raw := has[RuleAllocated], []string{RawAllocated, RawBusy, RawUnused}
		if rule {
			raw = []string{RuleAllocated, RuleBusy, RuleUnused}
		}
		var parts []string
		for i, state := range []string{"allocated", "busy", ""} {
			expr := ql.Once(ql.Select(raw[i], matchers...))
			if !rule {
				expr = ql.Once(ql.Rate(raw[i], matchers...))
			}
			if expr = hours(expr); state != "" {
				expr = fmt.Sprintf(`label_replace(%s, "state", "%s", "", "")`, expr, state)
			}
			parts = append(parts, expr)
		}
		return strings.Join(parts, " or ")
	}
	for i := range doc.Namespaces {
		a := &doc.Namespaces[i]
		a.Query = use(slices.Concat(is(ql.Cluster, a.Cluster), is("namespace", a.Namespace))...)
	}
	for i := range doc.Workloads {
		w := &doc.Workloads[i]
		matchers := slices.Concat(is(ql.Cluster, w.Cluster), is("namespace", w.Namespace))
		if has[RuleAllocated] {
			matchers = append(matchers, slices.Concat(is("workload_type", w.Kind), is("workload", w.Name), is("model", w.Model))...)
		} else {
			matchers = append(matchers, "pod=~"+prom.Quote(strings.Join(pods[w.ID], "|")))
		}
		w.Query = use(matchers...)
	}
	for i := range doc.Advice {
		if a := &doc.Advice[i]; a.Workload == "" {
			matchers := slices.Concat(is(ql.Cluster, a.Cluster), is("node", a.Node))
			a.Query = states(matchers...)
		}
	}
}
