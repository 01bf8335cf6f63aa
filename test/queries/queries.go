// Package queries follows the labels of PromQL: which a query may use, because the catalog, a recording
// rule or somebody else's exporter has them, and which its answer carries. A misspelled metric is found by any
// Prometheus; a misspelled label is not, it only answers nothing.
package queries

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// ofTarget are the labels that the scrape adds to every series, and cluster, which many add.
var ofTarget = []string{"job", "instance", "cluster"}

// Labels is the set of labels that series may carry.
type Labels []string

func (l Labels) has(name string) bool { return slices.Contains(l, name) }

// With returns the set with some more.
func (l Labels) With(names ...string) Labels {
	out := slices.Clone(l)
	for _, n := range names {
		if !out.has(n) {
			out = append(out, n)
		}
	}
	return out
}

func (l Labels) without(names ...string) Labels {
	return slices.DeleteFunc(slices.Clone(l), func(n string) bool { return slices.Contains(names, n) })
}

func (l Labels) only(names []string) Labels {
	return slices.DeleteFunc(slices.Clone(l), func(n string) bool { return !slices.Contains(names, n) })
}

// beyond returns what l has and the names have not.
func (l Labels) beyond(names []string) Labels { return l.without(names...) }

// Known is every metric and its labels.
type Known map[string]Labels

// Metrics gathers the catalog, the recording rules and what others expose.
func Metrics() Known {
	known := Known{}
	for _, f := range catalog.All() {
		all := Labels(f.AllLabels()).With(ofTarget...)
		if f.Type != catalog.Histogram {
			known[f.Name] = all
			continue
		}
		known[f.Name+"_bucket"], known[f.Name+"_sum"], known[f.Name+"_count"] = all.With("le"), all, all
	}
	for _, r := range alerts.Records() {
		known[r.Name] = Labels(r.Labels).With("cluster")
	}
	for _, e := range dashboards.Externals() {
		known[e.Name] = Labels(e.Labels).With(ofTarget...)
	}
	return known
}

// macros are Grafana's own words in a query; inside strings its variables are text to the parser.
var macros = strings.NewReplacer("$__rate_interval", "5m", "$__range_s", "21600", "$__range", "6h", "$__interval", "1m")

// tooNew are functions that Prometheus 2.42 does not have, or that VictoriaMetrics spells otherwise.
var tooNew = []string{"info", "mad_over_time", "ts_of_max_over_time", "ts_of_min_over_time", "ts_of_last_over_time",
	"double_exponential_smoothing",
	"holt_winters", "sort_by_label", "sort_by_label_desc", "limitk", "limit_ratio", "histogram_avg", "histogram_stddev", "histogram_stdvar",
	"histogram_count", "histogram_sum", "histogram_fraction", "step", "range", "first_over_time"}

// Checker follows queries over what is known.
type Checker struct {
	Known Known
	// OneTarget believes that each GPU is scraped once, so that a join need not aggregate job, instance and the
	// index away. Recording rules do: two targets of one GPU would double their sums anyway.
	OneTarget bool
	// Values are the values of labels, by metric, where all are known.
	Values map[string]map[string][]string
}

// Answer parses a query and returns the labels that its series may carry. The error names what is wrong.
func (c Checker) Answer(query string) (Labels, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(macros.Replace(query))
	if err != nil {
		return nil, err
	}
	return c.follow(expr)
}

func (c Checker) follow(e parser.Expr) (Labels, error) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return c.follow(e.Expr)
	case *parser.UnaryExpr:
		return c.follow(e.Expr)
	case *parser.StepInvariantExpr:
		return c.follow(e.Expr)
	case *parser.SubqueryExpr:
		return c.follow(e.Expr)
	case *parser.MatrixSelector:
		return c.follow(e.VectorSelector)
	case *parser.NumberLiteral, *parser.StringLiteral:
		return nil, nil
	case *parser.VectorSelector:
		return c.selector(e)
	case *parser.Call:
		return c.call(e)
	case *parser.AggregateExpr:
		return c.aggregate(e)
	case *parser.BinaryExpr:
		return c.binary(e)
	}
	return nil, fmt.Errorf("unsupported expression %T", e)
}

func (c Checker) selector(e *parser.VectorSelector) (Labels, error) {
	names := []string{e.Name}
	for _, m := range e.LabelMatchers {
		if e.Name == "" && m.Name == "__name__" && m.Type == labels.MatchRegexp { // {__name__=~"a|b"}
			names = strings.Split(m.Value, "|")
		}
	}
	var have Labels // of all of them
	for i, name := range names {
		known, ok := c.Known[name]
		if !ok {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
		if i == 0 {
			have = slices.Clone(known)
		}
		have = slices.DeleteFunc(have, func(l string) bool { return !known.has(l) })
	}
	for _, m := range e.LabelMatchers {
		if m.Name != "__name__" && !have.has(m.Name) {
			return nil, fmt.Errorf("%s has no label %s", e.Name, m.Name)
		}
		values := c.Values[e.Name][m.Name]
		for _, v := range strings.Split(m.Value, "|") { // in a runbook STATE stands for the label of the alert
			if values != nil && m.Value != strings.ToUpper(m.Name) && !slices.Contains(values, v) {
				return nil, fmt.Errorf("%s has no value %q of %s", e.Name, v, m.Name)
			}
		}
	}
	return have, nil
}

func (c Checker) call(e *parser.Call) (Labels, error) {
	if slices.Contains(tooNew, e.Func.Name) {
		return nil, fmt.Errorf("%s is newer than Prometheus 2.42, or not in MetricsQL", e.Func.Name)
	}
	var have Labels
	for _, a := range e.Args {
		got, err := c.follow(a)
		if err != nil {
			return nil, err
		}
		if t := a.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			have = got
		}
	}
	text := func(i int) string {
		if s, ok := e.Args[i].(*parser.StringLiteral); ok {
			return s.Val
		}
		return ""
	}
	need := func(name string) error {
		if !have.has(name) {
			return fmt.Errorf("%s reads the label %s, which is not there", e.Func.Name, name)
		}
		return nil
	}
	switch e.Func.Name {
	case "label_replace":
		// An empty source sets the label to a word.
		if text(3) != "" {
			if err := need(text(3)); err != nil {
				return nil, err
			}
		}
		return have.With(text(1)), nil
	case "label_join":
		for i := 3; i < len(e.Args); i++ {
			if err := need(text(i)); err != nil {
				return nil, err
			}
		}
		return have.With(text(1)), nil
	case "histogram_quantile":
		if err := need("le"); err != nil {
			return nil, err
		}
		return have.without("le"), nil
	case "absent", "absent_over_time", "scalar", "time", "vector":
		return nil, nil
	}
	return have, nil
}

func (c Checker) aggregate(e *parser.AggregateExpr) (Labels, error) {
	have, err := c.follow(e.Expr)
	if err != nil {
		return nil, err
	}
	for _, g := range e.Grouping {
		if !have.has(g) {
			return nil, fmt.Errorf("%s groups by %s, which is not there: there is %s", e.Op, g, strings.Join(have, ", "))
		}
	}
	out := have.only(e.Grouping)
	if e.Without {
		out = have.without(e.Grouping...)
	}
	switch e.Op {
	case parser.TOPK, parser.BOTTOMK:
		return have, nil
	case parser.COUNT_VALUES:
		if s, ok := e.Param.(*parser.StringLiteral); ok {
			return out.With(s.Val), nil
		}
	}
	return out, nil
}

func isScalar(e parser.Expr) bool { return e.Type() == parser.ValueTypeScalar }

func (c Checker) binary(e *parser.BinaryExpr) (Labels, error) {
	left, err := c.follow(e.LHS)
	if err != nil {
		return nil, err
	}
	right, err := c.follow(e.RHS)
	if err != nil {
		return nil, err
	}
	switch {
	case isScalar(e.LHS):
		return right, nil
	case isScalar(e.RHS):
		return left, nil
	}
	m := e.VectorMatching
	for _, l := range m.MatchingLabels {
		switch {
		case m.On && !left.has(l):
			return nil, fmt.Errorf("%s on %s: the left side has no such label, only %s", e.Op, l, strings.Join(left, ", "))
		case m.On && !right.has(l):
			return nil, fmt.Errorf("%s on %s: the right side has no such label, only %s", e.Op, l, strings.Join(right, ", "))
		}
	}
	set := e.Op == parser.LAND || e.Op == parser.LUNLESS || e.Op == parser.LOR
	// What is compared when pairs are sought.
	matched := func(l Labels) Labels {
		if m.On {
			return l.only(m.MatchingLabels)
		}
		return l.without(m.MatchingLabels...)
	}
	// Without on() all labels must agree; a label that only one side has means that no pair ever does.
	if !m.On && e.Op != parser.LOR {
		if extra := append(matched(left).beyond(right), matched(right).beyond(left)...); len(extra) > 0 {
			return nil, fmt.Errorf("%s: only one side has %s, so that no pair is ever found", e.Op, strings.Join(extra, ", "))
		}
	}
	if set {
		if e.Op == parser.LOR {
			return left.With(right...), nil
		}
		return left, nil
	}
	switch m.Card {
	case parser.CardManyToOne:
		if err := included(e, right); err != nil {
			return nil, err
		}
		switch e.LHS.(type) {
		case *parser.ParenExpr, *parser.AggregateExpr, *parser.VectorSelector:
		default:
			if c.OneTarget {
				break // nothing but readability
			}
			return nil, fmt.Errorf("%s group_left: put the left side in parentheses", e.Op)
		}
		return left.With(m.Include...), c.single(e, "right", right)
	case parser.CardOneToMany:
		if err := included(e, left); err != nil {
			return nil, err
		}
		return right.With(m.Include...), c.single(e, "left", left)
	}
	if err := c.single(e, "left", left); err != nil {
		return nil, err
	}
	if err := c.single(e, "right", right); err != nil {
		return nil, err
	}
	return matched(left), nil
}

// single reports labels of a side of which there must be one beside what is matched: it has to be aggregated first. Two
// targets that show one GPU would otherwise end the whole query with an error.
func (c Checker) single(e *parser.BinaryExpr, side string, l Labels) error {
	m := e.VectorMatching
	if !m.On {
		return nil
	}
	extra := l.beyond(m.MatchingLabels).beyond(m.Include)
	if c.OneTarget {
		extra = extra.without("job", "instance", "gpu")
	}
	if len(extra) > 0 {
		return fmt.Errorf("%s on (%s): the %s side also has %s: aggregate it first", e.Op, strings.Join(m.MatchingLabels, ", "), side,
			strings.Join(extra, ", "))
	}
	return nil
}

// included reports labels that the many side takes over from the other and that are not there.
func included(e *parser.BinaryExpr, one Labels) error {
	for _, l := range e.VectorMatching.Include {
		if !one.has(l) {
			return fmt.Errorf("%s takes over the label %s, which is not there", e.Op, l)
		}
	}
	return nil
}
