package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
)

// ourNames are the labels of gpu-exporter's series by those of the others.
var ourNames = map[string]string{"gpu": "gpu", "UUID": "uuid", "uuid": "uuid", "Hostname": "node", "hostname": "node",
	"namespace": "namespace", "exported_namespace": "namespace", "pod": "pod", "exported_pod": "pod",
	"container": "container", "exported_container": "container", "cluster": "cluster",
	"instance": "instance", "job": "job", "node": "node"}

var ofPods = []string{"namespace", "pod", "container"}

// forms are the functions of ranges in which the rewritten query is equal, "instant" without one, and "==" where it is
// compared for equality. A family is rewritten in these forms only: test/compat evaluates both queries for each.
var forms = map[compat.Rewrite][]string{
	compat.Same: slices.Concat(levels, unscaled, []string{"sum_over_time", "stddev_over_time", "delta", "idelta", "deriv",
		"rate", "irate", "increase"}),
	compat.Near:       levels,
	compat.Increasing: {"rate", "irate", "increase"},
}

var (
	levels = []string{"instant", "== 0", "avg_over_time", "min_over_time", "max_over_time", "last_over_time", "quantile_over_time"}
	// unscaled forms have the same value in every unit.
	unscaled = []string{"absent", "count_over_time", "present_over_time", "changes", "resets"}
	// linear functions of a sum are the sum of the functions.
	linear = []string{"rate", "irate", "increase", "delta", "idelta", "deriv", "avg_over_time", "sum_over_time", "last_over_time"}
)

// The differences that a rewritten query has, by what it is about.
const (
	differsMIG  = "a GPU in MIG mode has one series here, and one for each of its instances there: gpu_mig_* has theirs"
	differsFree = "GPUs that are allocated to no container have no series here"
	differsPart = "a container that shares a GPU, or has a MIG device, has its own part here; dcgm-exporter has the whole " +
		"GPU's for one of the containers, and no utilization in MIG mode"
	differsReload = "a reload of the driver resets the counter there, and not here: what spans it differs"
	differsSum    = "the increase of a sum is extrapolated by part here: near, not equal"
	differsNear   = "utilization and rates are means of up to two minutes here: near, not equal, and later by as much"
)

// instantly are functions of instant vectors that keep what is equal equal.
var instantly = []string{"abs", "absent", "ceil", "clamp", "clamp_max", "clamp_min", "exp", "floor", "label_join",
	"label_replace", "ln", "log10", "log2", "round", "scalar", "sort", "sort_desc", "sqrt", "time", "vector"}

// columns are the labels of a result. Those that are not ours keep their names.
type columns struct {
	all   bool              // those of our series
	ours  map[string]string // some of them, by their names in the query that is rewritten
	made  map[string]bool   // by label_replace, or of an aggregated other metric
	other bool              // those of another metric
}

func (s columns) has() bool { return s.all || s.ours != nil }

// rewriter rewrites one query.
type rewriter struct {
	*checker
	perPod  bool
	honor   bool // pod is that of the workload, not that of dcgm-exporter beside exported_pod
	differs []string
}

var errPerPod = errors.New("a label of pods")

// rewritten returns a query in gpu-exporter's own names, and where it differs. It gives up rather than guess.
func (c *checker) rewritten(expr parser.Expr) (parser.Expr, []string, error) {
	honor := !strings.Contains(expr.String(), "exported_")
	r := rewriter{checker: c, honor: honor}
	again, err := c.parser.ParseExpr(expr.String()) // a copy
	if err != nil {
		return nil, nil, err
	}
	out, _, err := r.walk(again, nil)
	if errors.Is(err, errPerPod) {
		r = rewriter{checker: c, honor: honor, perPod: true}
		if again, err = c.parser.ParseExpr(expr.String()); err != nil {
			return nil, nil, err
		}
		out, _, err = r.walk(again, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	return out, r.differs, nil
}

// label returns the name of a label of a result.
func (r *rewriter) label(name string, s columns) (string, error) {
	if s.made[name] {
		return name, nil
	}
	if !s.all {
		if to, ok := s.ours[name]; ok {
			return to, nil
		}
		return name, nil // not there, or the other metric's
	}
	to := ourNames[name]
	switch {
	case s.other && (to == "" || to == name):
		return name, nil
	case s.other:
		return "", fmt.Errorf("label %s may be that of either side of the join", name)
	case strings.HasPrefix(name, "GPU_I_") || strings.HasPrefix(name, "GPU_CI_"):
		return "", fmt.Errorf("label %s: MIG instances have families of their own, gpu_mig_*", name)
	case to == "":
		return "", fmt.Errorf("label %s is not on our series: join gpu_info or gpu_pod_info, or add it to the scrape as there", name)
	case slices.Contains(ofPods, name) && !r.honor:
		return "", fmt.Errorf("label %s is that of dcgm-exporter's own pod where exported_%s is that of the workload", name, name)
	case slices.Contains(ofPods, to) && !r.perPod:
		return "", errPerPod
	}
	return to, nil
}

func isForeign(expr parser.Expr) bool {
	found := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		found = found || ok && foreign.MatchString(nameOf(v))
		return nil
	})
	return found
}

// walk rewrites an expression and returns its labels. The path has the forms that it is used in.
func (r *rewriter) walk(expr parser.Expr, path []string) (parser.Expr, columns, error) {
	if !isForeign(expr) {
		return expr, ofOthers(expr), nil
	}
	switch n := expr.(type) {
	case *parser.VectorSelector:
		if len(path) == 0 || strings.HasPrefix(path[len(path)-1], "==") {
			path = append(slices.Clone(path), "instant")
		}
		return r.own(n, path)
	case *parser.Call:
		return r.call(n, path)
	case *parser.AggregateExpr:
		return r.aggregate(n, path)
	case *parser.BinaryExpr:
		return r.binary(n, path)
	case *parser.ParenExpr:
		return into(r, expr, &n.Expr, path)
	case *parser.UnaryExpr:
		return into(r, expr, &n.Expr, path)
	case *parser.SubqueryExpr:
		return into(r, expr, &n.Expr, path)
	}
	return nil, columns{}, fmt.Errorf("%s: not supported", expr)
}

// into rewrites the only operand of an expression.
func into(r *rewriter, whole parser.Expr, part *parser.Expr, path []string) (parser.Expr, columns, error) {
	out, s, err := r.walk(*part, path)
	*part = out
	return whole, s, err
}

// ofOthers are the labels of an expression without one of our series.
func ofOthers(expr parser.Expr) columns {
	s := columns{made: map[string]bool{}}
	switch n := expr.(type) {
	case *parser.AggregateExpr:
		if !n.Without {
			for _, l := range n.Grouping {
				s.made[l] = true
			}
			return s
		}
	case *parser.ParenExpr:
		return ofOthers(n.Expr)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		_, selector := node.(*parser.VectorSelector)
		s.other = s.other || selector
		return nil
	})
	return s
}

func (r *rewriter) call(n *parser.Call, path []string) (_ parser.Expr, s columns, err error) {
	ranged := slices.ContainsFunc(n.Args, func(e parser.Expr) bool { return e.Type() == parser.ValueTypeMatrix })
	switch {
	case ranged || n.Func.Name == "absent":
		path = append(slices.Clone(path), n.Func.Name)
	case !slices.Contains(instantly, n.Func.Name):
		return nil, s, fmt.Errorf("%s is not proved to be equal", n.Func.Name)
	}
	factor := 1.0
	var within *parser.AggregateExpr // what the function goes into: it is not equal of a sum
	for i, arg := range n.Args {
		m, ok := arg.(*parser.MatrixSelector)
		if !ok {
			part, of, err := r.walk(arg, path)
			if err != nil {
				return nil, s, err
			}
			if n.Args[i] = part; of.has() || i == 0 {
				s = of
			}
			continue
		}
		v := m.VectorSelector.(*parser.VectorSelector)
		e := r.entries[v.Name]
		own, of, err := r.ownUnscaled(v, path)
		if err != nil {
			return nil, s, err
		}
		s, factor = of, e.Factor
		switch own := own.(type) {
		case *parser.VectorSelector:
			n.Args[i] = &parser.MatrixSelector{VectorSelector: own, Range: m.Range, RangeExpr: m.RangeExpr}
			continue
		case *parser.ParenExpr:
			within, _ = own.Expr.(*parser.AggregateExpr)
		}
		if within != nil && !slices.Contains(linear, n.Func.Name) {
			return nil, s, fmt.Errorf("%s of a sum is not proved to be equal", n.Func.Name)
		}
		if within != nil {
			n.Args[i] = &parser.MatrixSelector{VectorSelector: within.Expr, Range: m.Range, RangeExpr: m.RangeExpr}
			continue
		}
		n.Args[i] = &parser.SubqueryExpr{Expr: own, Range: m.Range, Step: 30 * time.Second}
	}
	switch {
	case strings.HasPrefix(n.Func.Name, "label_"):
		if s, err = r.labels(n, s); err != nil {
			return nil, s, err
		}
	case n.Func.Name == "scalar", n.Func.Name == "vector":
		s = columns{}
	case within != nil:
		if within.Expr = n; slices.Contains([]string{"rate", "increase"}, n.Func.Name) && !slices.Contains(r.differs, differsSum) {
			r.differs = append(r.differs, differsSum)
		}
		return scaled(within, factor), s, nil
	}
	if slices.Contains(unscaled, n.Func.Name) {
		factor = 1
	}
	return scaled(n, factor), s, nil
}

// labels renames the sources of label_replace and label_join.
func (r *rewriter) labels(n *parser.Call, s columns) (columns, error) {
	for i, arg := range n.Args {
		if from, ok := arg.(*parser.StringLiteral); ok && i >= 3 && (n.Func.Name == "label_join" || i == 3) {
			to, err := r.label(from.Val, s)
			if err != nil {
				return s, err
			}
			from.Val = to
		}
	}
	s.made = maps.Clone(s.made)
	if s.made == nil {
		s.made = map[string]bool{}
	}
	s.made[n.Args[1].(*parser.StringLiteral).Val] = true
	return s, nil
}

func (r *rewriter) aggregate(n *parser.AggregateExpr, path []string) (parser.Expr, columns, error) {
	if n.Op == parser.COUNT_VALUES {
		path = append(slices.Clone(path), "==")
	}
	if n.Param != nil && isForeign(n.Param) {
		return nil, columns{}, errors.New("a parameter of an aggregation is not rewritten")
	}
	part, s, err := r.walk(n.Expr, path)
	if err != nil {
		return nil, s, err
	}
	n.Expr = part
	of := columns{ours: map[string]string{}, made: map[string]bool{}}
	for i, name := range n.Grouping {
		to, err := r.label(name, s)
		switch {
		case n.Without && (to == "uuid" || to == "gpu"):
			return nil, s, fmt.Errorf("without (%s) keeps other labels of the GPU there, and none here", name)
		case n.Without && err != nil:
			continue // it is not there
		case err != nil:
			return nil, s, err
		case s.made[name] || s.other:
			of.made[name] = true
		default:
			of.ours[name] = to
		}
		n.Grouping[i] = to
	}
	if n.Without || slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK}, n.Op) {
		return n, s, nil
	}
	return n, of, nil
}

func (r *rewriter) binary(n *parser.BinaryExpr, path []string) (parser.Expr, columns, error) {
	left, right := paths(n, path)
	lhs, l, err := r.walk(n.LHS, left)
	if err != nil {
		return nil, l, err
	}
	rhs, s, err := r.walk(n.RHS, right)
	if err != nil {
		return nil, s, err
	}
	m := n.VectorMatching
	n.LHS, n.RHS = lhs, rhs
	switch {
	case m == nil || !m.On && !l.has() && !s.has():
		if l.has() || l.other {
			return n, l, nil
		}
		return n, s, nil
	case !m.On:
		if l.has() != s.has() {
			return n, l, r.sameNames(n, l, s)
		}
		for i := range m.MatchingLabels {
			to, err := r.label(m.MatchingLabels[i], l)
			if to == "uuid" || to == "gpu" || to == "node" {
				return nil, l, fmt.Errorf("ignoring (%s) keeps other labels of the GPU there, and none here", m.MatchingLabels[i])
			}
			if err == nil { // else it is not there
				m.MatchingLabels[i] = to
			}
		}
		// Both sides may have labels of their own, such as sensor, that the other exporter has in the metric's name.
		m.MatchingLabels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.MatchingLabels, ownLabels(n.LHS), ownLabels(n.RHS)))))
	default:
		for i, name := range m.MatchingLabels {
			a, err := r.label(name, l)
			if err != nil {
				return nil, l, err
			}
			b, err := r.label(name, s)
			if err != nil {
				return nil, s, err
			}
			switch m.MatchingLabels[i] = a; {
			case a == b:
			case a != name:
				m.MatchingLabels[i] = b
				n.LHS, l = named(n.LHS, l, name, a)
			default:
				n.RHS, s = named(n.RHS, s, name, b)
			}
		}
	}
	out, err := r.combined(n, l, s)
	return n, out, err
}

// paths are those to the sides of an operation.
func paths(n *parser.BinaryExpr, path []string) (left, right []string) {
	switch {
	case n.Op == parser.EQLC || n.Op == parser.NEQ:
		with := func(e parser.Expr) []string {
			if number, ok := e.(*parser.NumberLiteral); ok && number.Val == 0 {
				return append(slices.Clone(path), "== 0")
			}
			return append(slices.Clone(path), "==")
		}
		return with(n.RHS), with(n.LHS)
	case !n.Op.IsComparisonOperator() && !n.Op.IsSetOperator(): // what is equal to 0 is not the family itself
		left = slices.Clone(path)
		for i := range left {
			left[i] = strings.TrimSuffix(left[i], " 0")
		}
		return left, left
	}
	return path, path
}

// combined are the columns of the result of an operation on two vectors. It renames the labels that group_left or
// group_right takes over.
func (r *rewriter) combined(n *parser.BinaryExpr, l, s columns) (columns, error) {
	m := n.VectorMatching
	many, one := l, s
	if m.Card == parser.CardOneToMany {
		many, one = s, l
	}
	out := columns{many.all, maps.Clone(many.ours), maps.Clone(many.made), many.other}
	for i, name := range m.Include {
		to, err := r.label(name, one)
		if err != nil {
			return one, err
		}
		m.Include[i] = to
		if out.made == nil {
			out.made = map[string]bool{}
		}
		switch {
		case to == name:
			out.made[name] = true
		case out.all && ourNames[name] == to:
		default:
			if out.ours == nil {
				out.ours = map[string]string{}
			}
			out.ours[name] = to
		}
	}
	if n.Op == parser.LOR {
		out.all, out.other = l.all || s.all, l.other || s.other
		for name, to := range s.ours {
			if out.ours == nil {
				out.ours = map[string]string{}
			}
			out.ours[name] = to
		}
	}
	return out, nil
}

// sameNames reports whether two sides, one of them without our series, still match: all labels have to keep their
// names.
func (r *rewriter) sameNames(n *parser.BinaryExpr, l, s columns) error {
	if !l.has() {
		l, s = s, l
	}
	if !s.other && len(s.made) == 0 {
		return nil // it has no labels
	}
	for name, to := range l.ours {
		if l.all || name != to {
			return fmt.Errorf("%s without on(): label %s is %s here", n.Op, name, to)
		}
	}
	if l.all || s.other {
		return fmt.Errorf("%s without on(): the other metric has other labels than our series", n.Op)
	}
	return nil
}

// named gives one side of a join a label under the name that the other side has it by.
func named(expr parser.Expr, s columns, name, from string) (parser.Expr, columns) {
	text := func(s string) parser.Expr { return &parser.StringLiteral{Val: s} }
	s.made = maps.Clone(s.made)
	if s.made == nil {
		s.made = map[string]bool{}
	}
	s.made[name] = true
	return &parser.Call{Func: parser.Functions["label_replace"],
		Args: parser.Expressions{expr, text(name), text("$1"), text(from), text("(.*)")}}, s
}

// ownLabels are the labels of the selectors that the other exporters have in no query.
func ownLabels(expr parser.Expr) (out []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok && strings.HasPrefix(s.Name, "gpu_") {
			for _, m := range s.LabelMatchers {
				if m.Name != metricName && !slices.Contains(slices.Collect(maps.Values(ourNames)), m.Name) {
					out = append(out, m.Name)
				}
			}
		}
		return nil
	})
	return out
}

// own returns the expression of a selector in its unit.
func (r *rewriter) own(v *parser.VectorSelector, path []string) (parser.Expr, columns, error) {
	factor := r.entries[v.Name].Factor
	own, s, err := r.ownUnscaled(v, path)
	if slices.Contains(path, "absent") && err == nil {
		if _, plain := own.(*parser.VectorSelector); !plain {
			err = errors.New("absent: the result would have other labels")
		}
		factor = 1
	}
	if err != nil {
		return nil, s, err
	}
	return scaled(own, factor), s, nil
}

// ownUnscaled returns the expression of a selector in base units, with its matchers, if the forms are proved.
func (r *rewriter) ownUnscaled(v *parser.VectorSelector, path []string) (parser.Expr, columns, error) {
	s := columns{all: true}
	e, ok := r.entries[v.Name]
	refuse := func(format string, args ...any) (parser.Expr, columns, error) {
		reason := fmt.Sprintf(format, args...)
		if e.ByHand != "" {
			reason += "; by hand: " + e.ByHand
		}
		return nil, s, errors.New(reason)
	}
	if !ok {
		return refuse("%s has no equivalent", nameOf(v))
	}
	for _, form := range path {
		exact := form == "==" && e.Rewrite == compat.Same && e.Factor == 1
		switch {
		case e.Rewrite == compat.NoRewrite:
			return refuse("%s has other series here", v.Name)
		case !exact && !slices.Contains(forms[e.Rewrite], form):
			if form == "==" {
				return refuse("%s: equality with a number is not proved", v.Name)
			}
			return refuse("%s of %s is not proved to be equal", form, v.Name)
		}
	}
	text := e.Query
	if r.perPod {
		text = e.Container
	}
	if text == "" {
		return refuse("%s has no value by container", v.Name)
	}
	if v.Timestamp != nil || v.StartOrEnd != 0 {
		return refuse("@ is not rewritten")
	}
	var matchers []*labels.Matcher
	for _, m := range v.LabelMatchers {
		if m.Name == metricName || m.Name == "job" { // the job of our own names is another
			continue
		}
		to, err := r.label(m.Name, s)
		if err != nil {
			return nil, s, err
		}
		free := m.Matches("") && !variable.MatchString(m.Value)
		switch {
		case to == "instance" && (strings.Contains(m.Value, "9400") || strings.Contains(m.Value, "9835")):
			return nil, s, fmt.Errorf("%s: the port is another here", m)
		case free && slices.Contains(ofPods, to):
			return refuse("%s selects GPUs that are allocated to no container too: those are gpu_allocation_ratio == 0", m)
		case to == "uuid" && (strings.Contains(m.Value, "MIG-") || m.Name == "uuid" && !variable.MatchString(m.Value)):
			return refuse("%s: UUIDs are those of GPUs here, with GPU- before them", m)
		}
		matchers = append(matchers, labels.MustNewMatcher(m.Type, to, m.Value))
	}
	own, err := r.parser.ParseExpr(text)
	if err != nil {
		return nil, s, err
	}
	parser.Inspect(own, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			s.LabelMatchers = append(slices.Clone(s.LabelMatchers), matchers...)
			s.OriginalOffset, s.OriginalOffsetExpr = v.OriginalOffset, v.OriginalOffsetExpr
		}
		return nil
	})
	if _, plain := own.(*parser.VectorSelector); !plain {
		own = &parser.ParenExpr{Expr: own}
	}
	r.differ(e.Rewrite)
	return own, s, nil
}

// differ keeps what a rewritten query has that is different.
func (r *rewriter) differ(rewrite compat.Rewrite) {
	differs := []string{differsMIG}
	if r.perPod {
		differs = []string{differsFree, differsPart}
	}
	switch rewrite {
	case compat.Near:
		differs = append(differs, differsNear)
	case compat.Increasing:
		differs = append(differs, differsReload)
	}
	for _, d := range differs {
		if !slices.Contains(r.differs, d) {
			r.differs = append(r.differs, d)
		}
	}
}

// scaled multiplies an expression, or divides it by the inverse if that is the rounder number.
func scaled(expr parser.Expr, factor float64) parser.Expr {
	if factor == 1 || expr == nil {
		return expr
	}
	op, number := parser.MUL, factor
	if factor < 1 {
		op, number = parser.DIV, 1/factor
	}
	return &parser.ParenExpr{Expr: &parser.BinaryExpr{Op: parser.ItemType(op), LHS: expr, RHS: &parser.NumberLiteral{Val: number}}}
}
