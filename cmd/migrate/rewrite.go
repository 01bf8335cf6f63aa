package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// ourNames are the labels of gpu-exporter's series by those of the others.
var ourNames = map[string]string{"gpu": "gpu", "UUID": "uuid", "uuid": "uuid", "Hostname": "node", "hostname": "node",
	"namespace": "namespace", "exported_namespace": "namespace", "pod": "pod", "exported_pod": "pod",
	"container": "container", "exported_container": "container", "xid": "xid", "err_code": "xid", "cluster": "cluster",
	"instance": "instance", "job": "job", "node": "node"}

// rewritten returns a query in gpu-exporter's own names. It gives up rather than guess.
func (c *checker) rewritten(expr parser.Expr) (string, error) {
	again, err := c.parser.ParseExpr(expr.String()) // a copy
	if err != nil {
		return "", err
	}
	perPod := false
	var unknown []string
	rename := func(names []string) {
		for i, name := range names {
			switch to := ourNames[name]; to {
			case "":
				unknown = append(unknown, name)
			case "namespace", "pod", "container":
				perPod = true
				names[i] = to
			default:
				names[i] = to
			}
		}
	}
	parser.Inspect(again, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			rename(n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				rename(n.VectorMatching.MatchingLabels)
				rename(n.VectorMatching.Include)
			}
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				if name := []string{m.Name}; m.Name != metricName {
					rename(name)
				}
			}
		}
		return nil
	})
	if i := slices.IndexFunc(unknown, func(l string) bool { return strings.HasPrefix(l, "GPU_I_") }); i >= 0 {
		return "", fmt.Errorf("label %s: MIG instances have families of their own, gpu_mig_*", unknown[i])
	}
	if unknown != nil {
		return "", fmt.Errorf("label %s is not on our series: join gpu_info or gpu_pod_info", unknown[0])
	}
	out, err := c.replace(again, perPod)
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// replace returns an expression with the families of the other exporters replaced.
func (c *checker) replace(expr parser.Expr, perPod bool) (parser.Expr, error) {
	var err error
	into := func(e *parser.Expr) {
		if *e != nil && err == nil {
			*e, err = c.replace(*e, perPod)
		}
	}
	switch n := expr.(type) {
	case *parser.VectorSelector:
		own, factor, plain, err := c.own(n, perPod)
		_ = plain
		return scaled(own, factor), err
	case *parser.Call:
		for i, arg := range n.Args {
			m, ok := arg.(*parser.MatrixSelector)
			if !ok {
				into(&n.Args[i])
				continue
			}
			own, factor, plain, err := c.own(m.VectorSelector.(*parser.VectorSelector), perPod)
			if err != nil {
				return nil, err
			}
			if plain {
				n.Args[i] = &parser.MatrixSelector{VectorSelector: own, Range: m.Range, RangeExpr: m.RangeExpr}
			} else {
				n.Args[i] = &parser.SubqueryExpr{Expr: own, Range: m.Range}
			}
			return scaled(n, factor), nil
		}
	case *parser.AggregateExpr:
		into(&n.Expr)
	case *parser.BinaryExpr:
		into(&n.LHS)
		into(&n.RHS)
		// Both sides may have labels of their own, such as sensor, that the other exporter has in the metric's name.
		if m := n.VectorMatching; err == nil && m != nil && !m.On {
			m.MatchingLabels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.MatchingLabels, ownLabels(n.LHS),
				ownLabels(n.RHS)))))
		}
	case *parser.ParenExpr:
		into(&n.Expr)
	case *parser.UnaryExpr:
		into(&n.Expr)
	case *parser.SubqueryExpr:
		into(&n.Expr)
	}
	return expr, err
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

// own returns the expression of a family with the matchers of a selector, and whether it is a selector itself.
func (c *checker) own(v *parser.VectorSelector, perPod bool) (_ parser.Expr, factor float64, plain bool, _ error) {
	e, ok := c.entries[v.Name]
	if !ok {
		if foreign.MatchString(v.Name) {
			return nil, 0, false, errors.New(v.Name + " has no equivalent")
		}
		return v, 1, true, nil
	}
	text := e.Query
	if perPod {
		text = e.Container
	}
	if text == "" {
		return nil, 0, false, fmt.Errorf("%s has no value by container", v.Name)
	}
	own, err := c.parser.ParseExpr(text)
	if err != nil {
		return nil, 0, false, err
	}
	parser.Inspect(own, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			for _, m := range v.LabelMatchers {
				if to := ourNames[m.Name]; to != "" && to != "job" { // the job of our own names is another
					s.LabelMatchers = append(slices.Clone(s.LabelMatchers), labels.MustNewMatcher(m.Type, to, m.Value))
				}
			}
		}
		return nil
	})
	if _, plain = own.(*parser.VectorSelector); !plain {
		own = &parser.ParenExpr{Expr: own}
	}
	return own, e.Factor, plain, nil
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
	return &parser.ParenExpr{Expr: &parser.BinaryExpr{Op: parser.ItemType(op), LHS: expr,
		RHS: &parser.NumberLiteral{Val: number}}}
}
