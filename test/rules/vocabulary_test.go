package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// vocabulary is every series that rules may read, with its labels: the catalog, the records, and the few
// of others.
func vocabulary() map[string][]string {
	target := []string{"cluster", "job", "instance"}
	pod := []string{"cluster", "job", "instance", "namespace", "pod"}
	out := map[string][]string{
		"up":                        target,
		"scrape_duration_seconds":   target,
		"scrape_samples_scraped":    target,
		"process_cpu_seconds_total": append(slices.Clone(target), "node"),
		"prometheus_rule_evaluation_failures_total":     append(slices.Clone(target), "rule_group"),
		"namespace_workload_pod:kube_pod_owner:relabel": {"cluster", "namespace", "workload", "workload_type", "pod"},
		"kube_pod_container_resource_requests":          append(slices.Clone(pod), "container", "node", "resource", "unit", "uid"),
		"kube_pod_status_phase":                         append(slices.Clone(pod), "phase", "uid"),
		"kube_pod_status_scheduled":                     append(slices.Clone(pod), "condition", "uid"),
		"kube_pod_container_status_waiting_reason":      append(slices.Clone(pod), "container", "reason", "uid"),
		"kube_resourcequota":                            append(slices.Clone(target), "namespace", "resourcequota", "resource", "type"),
		"kube_node_status_capacity":                     append(slices.Clone(target), "node", "resource", "unit"),
		"kube_node_spec_unschedulable":                  append(slices.Clone(target), "node"),
		"kube_node_status_condition":                    append(slices.Clone(target), "node", "condition", "status"),
	}
	for _, d := range catalog.Dimensions() {
		name := "kube_" + d.Object + "_labels"
		out[name] = append(out[name], append(slices.Clone(target), d.Object)...)
		for _, l := range d.Labels {
			out[name] = append(out[name], catalog.KubeStateLabel(l))
		}
	}
	for _, f := range catalog.All() {
		out[f.Name] = append(f.AllLabels(), target...)
	}
	// Where labels are not honored.
	out["gpu_container_allocation_ratio"] = append(out["gpu_container_allocation_ratio"], "exported_pod")
	for _, r := range alerts.Records() {
		out[r.Name] = append([]string{"cluster"}, r.Labels...)
	}
	return out
}

func words[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// closed are the labels whose values are known, by metric.
func closed() map[string]map[string][]string {
	uses := words(gpu.TimeStates)
	return map[string]map[string][]string{
		"gpu_time_seconds_total":              {"state": uses},
		"gpu_container_unused_seconds_total":  {"state": {"idle", "gap"}},
		"namespace:gpu_unused_seconds:rate5m": {"state": {"idle", "gap"}},
		"model:gpu_time_seconds:rate5m":       {"state": uses},
		"gpu_node_devices":                    {"state": words(gpu.DeviceStates)},
		"gpu_recovery_action":                 {"action": words(gpu.RecoveryActions)},
		"gpu_clock_limited_seconds_total":     {"reason": words(gpu.LimitReasons)},
		"gpu_ecc_errors_total":                {"severity": {string(gpu.ECCCorrected), string(gpu.ECCUncorrected)}},
		"gpu_row_remap_banks":                 {"availability": words(gpu.BankAvailabilities)},
		"gpu_nvlink_errors_total":             {"kind": words(gpu.NVLinkErrors)},
		"gpu_nvlink_links":                    {"state": {"up", "down"}},
		"gpu_fabric_state":                    {"state": words(gpu.FabricStates)},
		"gpu_fabric_fault":                    {"fault": words(gpu.FabricFaults)},
		"gpu_temperature_celsius":             {"sensor": {string(gpu.SensorGPU), string(gpu.SensorMemory)}},
		"gpu_temperature_limit_celsius": {"sensor": {string(gpu.SensorGPU), string(gpu.SensorMemory)},
			"limit": {string(gpu.LimitSlowdown), string(gpu.LimitShutdown), string(gpu.LimitMaxOperating)}},
		"gpu_clock_hertz":     {"clock": words(gpu.Clocks)},
		"gpu_clock_max_hertz": {"clock": words(gpu.Clocks)},
		"gpu_exporter_source_up": {"source": {gpu.SourceNVML, gpu.SourceKmsg, gpu.SourceEvents, gpu.SourcePodResources,
			gpu.SourceSlices}},
	}
}

// reader works out which labels a query's result has, and what is wrong with the query on the way.
type reader struct {
	vocabulary map[string][]string
	closed     map[string]map[string][]string
	wrong      []string
}

func newReader() *reader { return &reader{vocabulary: vocabulary(), closed: closed()} }

func (r *reader) complain(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

type set map[string]bool

func setOf(list ...string) set {
	s := set{}
	for _, l := range list {
		s[l] = true
	}
	return s
}

func (r *reader) need(s set, names []string, where string) {
	for _, n := range names {
		if !s[n] {
			r.complain("the label %s is not among %v in %s", n, slices.Sorted(maps.Keys(s)), where)
		}
	}
}

func (r *reader) selector(v *parser.VectorSelector) set {
	if v.Name == "" { // {__name__=~"a|b"}
		return r.anyOf(v)
	}
	known, ok := r.vocabulary[v.Name]
	if !ok {
		r.complain("no metric %s", v.Name)
		return set{}
	}
	s := setOf(known...)
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		r.need(s, []string{m.Name}, v.String())
		if m.Value == strings.ToUpper(m.Name) { // in a runbook it stands for the label of the alert
			continue
		}
		if values := r.closed[v.Name][m.Name]; values != nil {
			for _, value := range strings.Split(m.Value, "|") {
				if !slices.Contains(values, value) {
					r.complain("%s has no value %q of %s", v.Name, value, m.Name)
				}
			}
		}
	}
	return s
}

// anyOf returns the labels of a selector that lists the names of metrics.
func (r *reader) anyOf(v *parser.VectorSelector) set {
	all := set{}
	for _, m := range v.LabelMatchers {
		for _, name := range strings.Split(m.Value, "|") {
			if one := *v; m.Name == model.MetricNameLabel {
				one.Name = name
				maps.Copy(all, r.selector(&one))
			}
		}
	}
	if len(all) == 0 {
		r.complain("no metric in %s", v)
	}
	return all
}

// labels returns the labels that the result of an expression may have.
func (r *reader) labels(e parser.Expr) set {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return r.selector(e)
	case *parser.MatrixSelector:
		return r.labels(e.VectorSelector)
	case *parser.SubqueryExpr:
		return r.labels(e.Expr)
	case *parser.ParenExpr:
		return r.labels(e.Expr)
	case *parser.UnaryExpr:
		return r.labels(e.Expr)
	case *parser.AggregateExpr:
		return r.aggregate(e)
	case *parser.Call:
		return r.call(e)
	case *parser.BinaryExpr:
		return r.binary(e)
	default:
		return set{}
	}
}

func (r *reader) aggregate(e *parser.AggregateExpr) set {
	inner := r.labels(e.Expr)
	if e.Without {
		r.complain("without() keeps unexpected labels: %s", e)
	}
	r.need(inner, e.Grouping, e.String())
	if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
		return inner
	}
	out := setOf(e.Grouping...)
	if e.Op == parser.COUNT_VALUES {
		out[e.Param.(*parser.StringLiteral).Val] = true
	}
	return out
}

func (r *reader) call(e *parser.Call) set {
	text := func(i int) string { return e.Args[i].(*parser.StringLiteral).Val }
	switch e.Func.Name {
	case "absent", "vector":
		for _, a := range e.Args {
			r.labels(a)
		}
		return set{}
	case "label_replace":
		s := maps.Clone(r.labels(e.Args[0]))
		if src := text(3); src != "" {
			r.need(s, []string{src}, e.String())
		}
		s[text(1)] = true
		return s
	case "label_join":
		s := maps.Clone(r.labels(e.Args[0]))
		for i := 3; i < len(e.Args); i++ {
			r.need(s, []string{text(i)}, e.String())
		}
		s[text(1)] = true
		return s
	}
	out := set{}
	for _, a := range e.Args {
		maps.Copy(out, r.labels(a))
	}
	return out
}

func (r *reader) binary(e *parser.BinaryExpr) set {
	left, right := r.labels(e.LHS), r.labels(e.RHS)
	switch {
	case e.LHS.Type() == parser.ValueTypeScalar:
		return right
	case e.RHS.Type() == parser.ValueTypeScalar:
		return left
	}
	m := e.VectorMatching
	if m.On {
		r.need(left, m.MatchingLabels, "the left of "+e.String())
		r.need(right, m.MatchingLabels, "the right of "+e.String())
	} else if e.Op != parser.LOR && !maps.Equal(left, right) {
		r.complain("without on(), %v never equals %v in %s", slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(right)), e)
	}
	switch {
	case e.Op == parser.LAND, e.Op == parser.LUNLESS:
		return left
	case e.Op == parser.LOR:
		out := maps.Clone(left)
		maps.Copy(out, right)
		return out
	case m.Card == parser.CardManyToOne:
		r.need(right, m.Include, "the right of "+e.String())
		out := maps.Clone(left)
		maps.Copy(out, setOf(m.Include...))
		return out
	case m.Card == parser.CardOneToMany:
		out := maps.Clone(right)
		maps.Copy(out, setOf(m.Include...))
		return out
	case m.On:
		return setOf(m.MatchingLabels...)
	default:
		return left
	}
}

// read parses a query and returns the labels of its result; what is wrong is an error of the test.
func read(t *testing.T, what, query string) []string {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return nil
	}
	r := newReader()
	out := slices.Sorted(maps.Keys(r.labels(e)))
	for _, w := range r.wrong {
		t.Errorf("%s: %s", what, w)
	}
	return out
}

// Every metric, label and label value of every rule exists, and every result has the labels that the table promises.
func TestRulesSpeakOfWhatExists(t *testing.T) {
	same := func(what string, got, promised []string) {
		t.Helper()
		want := append([]string{"cluster"}, promised...)
		if what == "GPUExporterAbsent" {
			want = nil
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the result has the labels %v, and the table promises %v", what, got, want)
		}
	}
	records, err := everything().RecordingRules()
	if err != nil {
		t.Fatal(err)
	}
	promised := map[string][]string{}
	for _, r := range alerts.Records() {
		promised[r.Name] = r.Labels
	}
	for _, g := range records {
		for _, r := range g.Rules {
			same(r.Record, read(t, r.Record, r.Expr), promised[r.Record])
		}
	}
	for name, r := range bare(t, everything()) {
		same(name, read(t, name, r.Expr), find(t, name).Labels)
	}
}

// A record reads only records that stand before it, in its own group or another.
func TestRecordsReadThoseBefore(t *testing.T) {
	group, all := map[string]string{}, map[string]bool{}
	for _, r := range alerts.Records() {
		all[r.Name] = true
	}
	seen := map[string]bool{}
	for _, g := range alerts.Groups() {
		for _, r := range g.Records {
			e, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
				if v, is := n.(*parser.VectorSelector); is && all[v.Name] && !seen[v.Name] {
					t.Errorf("%s reads %s, which is recorded later", r.Name, v.Name)
				}
				return nil
			})
			seen[r.Name] = true
			group[r.Name] = g.Name
		}
	}
}

// The cases' series are such as somebody exposes, with their labels.
func TestCasesSpeakOfWhatExists(t *testing.T) {
	known := vocabulary()
	for name, list := range cases(t) {
		for _, s := range list {
			for _, in := range s.inputs("") {
				metric, rest, _ := strings.Cut(in[0], "{")
				if known[metric] == nil {
					t.Errorf("%s: %q feeds %s, which does not exist", name, s.name, metric)
				}
				for _, p := range labelPairs(strings.TrimSuffix(rest, "}")) {
					if !slices.Contains(known[metric], p.Name) {
						t.Errorf("%s: %q feeds %s with a label %s that it does not have", name, s.name, metric, p.Name)
					}
				}
			}
		}
	}
}

func TestReaderFindsFaults(t *testing.T) {
	for query, says := range map[string]string{
		`gpu_busy_second_total`:                                                        "no metric gpu_busy_second_total",
		`{__name__=~"gpu_device_up|gpu_device_upp"}`:                                   "no metric gpu_device_upp",
		`{node="n1"}`:                                                                  "no metric in",
		`sum by (cluster, pod) (gpu_busy_seconds_total)`:                               "the label pod is not among",
		`gpu_time_seconds_total{state="lazy"}`:                                         `no value "lazy"`,
		`gpu_time_seconds_total{pod="p"}`:                                              "the label pod is not among",
		`sum by (node) (gpu_device_up) / sum by (cluster, node) (gpu_device_up)`:       "never equals",
		`gpu_device_up * on (node, pod) gpu_device_up`:                                 "the label pod is not among",
		`gpu_device_up * on (node) group_left (pod) gpu_exporter_build_info`:           "the label pod is not among",
		`sum without (uuid) (gpu_device_up)`:                                           "without()",
		`label_replace(gpu_device_up, "x", "$1", "pod", "(.*)")`:                       "the label pod is not among",
		`label_join(gpu_device_up, "x", ",", "node", "pod")`:                           "the label pod is not among",
		`node:gpu_device_up:count{state="busy"}`:                                       "the label state is not among",
		`sum by (cluster, uuid) (sum by (cluster, node) (gpu_device_up))`:              "the label uuid is not among",
		`max_over_time((sum by (cluster) (rate(gpu_bsy_seconds_total[5m])))[1h:5m])`:   "no metric gpu_bsy_seconds_total",
		`gpu_device_up unless on (node) kube_node_status_capacity{resorce="nvidia_x"}`: "the label resorce is not among",
	} {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader()
		r.labels(e)
		if !strings.Contains(strings.Join(r.wrong, "\n"), says) {
			t.Errorf("%s: says %q, want %q", query, r.wrong, says)
		}
	}
}
