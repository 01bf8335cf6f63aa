package queries

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// groups are names of groups of metrics.
type groups map[string]bool

// required are the groups without any of which an expression has no result.
type required map[string]groups // of metrics and records by name

func newRequired(t *testing.T) required {
	t.Helper()
	r := required{}
	for _, g := range catalog.Groups() {
		for _, f := range g.Rows {
			for _, part := range []string{"", "_bucket", "_sum", "_count"} {
				r[f.Name+part] = groups{g.Name: true}
			}
		}
	}
	records := map[string]string{}
	for _, rec := range alerts.Records() {
		records[rec.Name] = rec.Expr
	}
	for again := true; again; {
		again = false
		for name, expr := range records {
			if of, ready := r.of(t, expr, records); ready {
				r[name], again = of, true
				delete(records, name)
			}
		}
	}
	if len(records) > 0 {
		t.Fatalf("records read each other: %v", slices.Collect(maps.Keys(records)))
	}
	return r
}

// of returns the groups that an expression requires; ready is false if it reads one of the records that are not known yet.
func (r required) of(t *testing.T, text string, unknown map[string]string) (_ groups, ready bool) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(macros.Replace(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	ready = true
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok && unknown[v.Name] != "" {
			ready = false
		}
		return nil
	})
	return r.follow(expr), ready
}

func (r required) follow(e parser.Expr) groups {
	out := groups{}
	switch e := e.(type) {
	case *parser.VectorSelector:
		maps.Copy(out, r[e.Name])
	case *parser.MatrixSelector:
		return r.follow(e.VectorSelector)
	case *parser.ParenExpr:
		return r.follow(e.Expr)
	case *parser.UnaryExpr:
		return r.follow(e.Expr)
	case *parser.SubqueryExpr:
		return r.follow(e.Expr)
	case *parser.StepInvariantExpr:
		return r.follow(e.Expr)
	case *parser.AggregateExpr:
		return r.follow(e.Expr)
	case *parser.Call:
		if strings.HasPrefix(e.Func.Name, "absent") {
			return out
		}
		for _, a := range e.Args {
			maps.Copy(out, r.follow(a))
		}
	case *parser.BinaryExpr:
		left, right := r.follow(e.LHS), r.follow(e.RHS)
		switch e.Op {
		case parser.LUNLESS:
			return left
		case parser.LOR:
			return both(left, right)
		}
		maps.Copy(left, right)
		return left
	}
	return out
}

func both(a, b groups) groups {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(g string, _ bool) bool { return !b[g] })
	return out
}

// With a group off, a panel that this empties says which switch it needs. Without identity nothing is left but single panels:
// only those of nothing else name it.
func TestEachGroupOffSaysWhich(t *testing.T) {
	need, checked := newRequired(t), 0
	for _, d := range boards(t) {
		var look func(panel)
		look = func(p panel) {
			for _, inner := range p.Panels {
				look(inner)
			}
			var empty groups
			text := p.FieldConfig.Defaults.NoValue
			if p.Type == "stat" {
				text = p.Description
			}
			for i, target := range p.Targets {
				expr := target.Expr
				expr, _, _ = strings.Cut(expr, " or (0 * max(") // it shows N/A
				of, _ := need.of(t, expr, nil)
				if i == 0 {
					empty = of
				}
				empty = both(empty, of)
			}
			if len(empty) > 1 {
				delete(empty, "identity")
			}
			for _, g := range slices.Sorted(maps.Keys(empty)) {
				checked++
				if !strings.Contains(text, "--collector."+g) && (g != "identity" || !strings.Contains(text, "--collector.")) {
					t.Errorf("%s, %q: %q does not name --collector.%s", d.UID, p.Title, text, g)
				}
			}
		}
		for _, p := range d.Panels {
			look(p)
		}
	}
	if checked < 100 {
		t.Errorf("only %d panels and groups were checked", checked)
	}
}

// With a group off, every alert that cannot fire any more is listed by doctor, the log and the node page.
func TestEachGroupOffListsItsAlerts(t *testing.T) {
	need, rules := newRequired(t), map[string]string{}
	list, err := alerts.Default().AlertRules()
	must.OK(t, err)
	for _, group := range list {
		for _, r := range group.Rules {
			rules[r.Alert] = r.Expr
		}
	}
	for _, g := range catalog.Groups() {
		silenced := catalog.Selection{Size: catalog.SizeDefault, Groups: map[string]bool{g.Name: false}}.Silenced()
		for name, expr := range rules {
			if of, _ := need.of(t, expr, nil); of[g.Name] && silenced[name] == nil {
				t.Errorf("without %s, %s never fires, and is not listed", g.Name, name)
			}
		}
	}
}
