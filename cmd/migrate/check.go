package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat/guide"
)

// verdict says whether a query works with gpu-exporter as with the other exporter.
type verdict string

const (
	supported verdict = "supported"
	differs   verdict = "supported with a difference"
	missing   verdict = "not supported"
)

// metricName is the label that has a selector's name.
const metricName = "__name__"

// result is the verdict on a query.
type result struct {
	Where, Query string
	Verdict      verdict
	Reasons      []string `json:",omitempty"` // of each difference, and of what is missing
	Settings     []string `json:",omitempty"` // that it needs
	Rewritten    string   `json:",omitempty"`
	Differences  []string `json:",omitempty"` // of the rewritten query
}

// entry is a family, and the page that it is on.
type entry struct {
	guide.Entry
	release compat.Release
}

type checker struct {
	entries map[string]entry
	created map[string]bool // by rules and adapters of the files
	rewrite bool
	parser  parser.Parser
}

func newChecker(rewrite bool) (*checker, error) {
	c := &checker{map[string]entry{}, map[string]bool{}, rewrite, parser.NewParser(parser.Options{EnableExperimentalFunctions: true})}
	for _, release := range []compat.Release{compat.NvidiaSMI, compat.DCGM49, compat.DCGM48} { // the last one wins
		list, err := guide.Entries(release)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			c.entries[e.Name] = entry{e, release}
		}
	}
	return c, nil
}

// Variables of Grafana: as a duration, in a matcher, and where the parser wants a number or a label.
var (
	duration = regexp.MustCompile(`([\[:])\s*(\$\{?\w+(?::\w+)?\}?|\[\[\w+\]\])`)
	quoted   = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	variable = regexp.MustCompile(`\$\{?\w+(?::\w+)?\}?|\[\[\w+\]\]`)
)

// maxNesting bounds the brackets of a query that are open at once: the time of the parser grows with their square.
const maxNesting = 200

func (c *checker) parse(text string) (parser.Expr, error) {
	open := 0
	for _, r := range quoted.ReplaceAllString(text, "") {
		switch r {
		case '(', '[', '{':
			open++
		case ')', ']', '}':
			open--
		}
		if open > maxNesting {
			return nil, fmt.Errorf("more than %d brackets within each other", maxNesting)
		}
	}
	text = duration.ReplaceAllString(text, "${1}5m")
	expr, err := c.parser.ParseExpr(text)
	for _, instead := range []string{"1", "x", ""} {
		if err == nil {
			break
		}
		var kept []string
		plain := quoted.ReplaceAllStringFunc(text, func(s string) string {
			kept = append(kept, s)
			return fmt.Sprintf("\x00%d\x00", len(kept)-1)
		})
		plain = variable.ReplaceAllString(plain, instead)
		for i, s := range kept {
			plain = strings.Replace(plain, fmt.Sprintf("\x00%d\x00", i), s, 1)
		}
		expr, err = c.parser.ParseExpr(plain)
	}
	return expr, err
}

// targetLabels are set by Prometheus or by whoever configured the scrape.
var targetLabels = []string{"job", "instance", "cluster", "node", "service", "endpoint", "prometheus", "region", "zone",
	"environment", "env", "kubernetes_node", "nodename", "kubernetes_pod_name", "kubernetes_namespace", "app", "provider"}

// check judges a query; ours is false if it uses no metric of the other exporters, and none of
// gpu-exporter in a way that changed.
func (c *checker) check(q query) (_ result, ours bool) {
	j := judgment{checker: c, known: map[string]bool{"le": true, metricName: true},
		result: result{Where: q.Where, Query: strings.TrimSpace(q.Text), Verdict: supported}}
	var err error
	if j.expr, err = c.parse(q.Text); err != nil {
		if foreign.MatchString(q.Text) {
			j.because(missing, "not PromQL: %v", err)
		}
		return j.result, foreign.MatchString(q.Text)
	}
	j.alternatives = c.alternatives(j.expr)
	parser.Inspect(j.expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			j.selector(v)
		}
		return nil
	})
	j.changed()
	if !j.ours {
		return j.result, j.own
	}
	parser.Inspect(j.expr, func(node parser.Node, _ []parser.Node) error {
		j.labels(node)
		return nil
	})
	if c.rewrite && j.Verdict != missing {
		if own, differences, err := c.rewritten(j.expr); err != nil {
			j.Reasons = append(j.Reasons, "not rewritten: "+err.Error())
		} else {
			j.Rewritten, j.Differences = own.String(), differences
			for _, flag := range switches(own) {
				j.set(flag)
			}
		}
	}
	return j.result, true
}

// judgment is a result in the making.
type judgment struct {
	*checker
	result
	expr         parser.Expr
	alternatives map[string]bool
	known        map[string]bool // labels
	ours         bool            // a metric of the other exporters
	own          bool            // target or objects of the other exporter
	joined       bool            // with other metrics, whose labels are theirs
}

func (j *judgment) because(v verdict, format string, args ...any) {
	if v == missing || j.Verdict == supported {
		j.Verdict = v
	}
	if reason := fmt.Sprintf(format, args...); !slices.Contains(j.Reasons, reason) {
		j.Reasons = append(j.Reasons, reason)
	}
}

func (j *judgment) set(s string) {
	if !slices.Contains(j.Settings, s) {
		j.Settings = append(j.Settings, s)
	}
}

func (j *judgment) selector(v *parser.VectorSelector) {
	name := nameOf(v)
	if !foreign.MatchString(name) {
		j.other(v, name)
		return
	}
	j.ours = true
	if strings.Contains(name, ":") || j.created[name] {
		if !j.created[name] {
			j.because(differs, "%s is recorded by a rule: check the file of the rule in the same call", name)
		}
		j.joined = true
		return
	}
	e, ok := j.entries[name]
	if !ok && j.alternatives[name] {
		j.because(differs, "%s: not there; the other side of or is used", name)
		return
	}
	if !ok {
		if reason, instead, ok := guide.Missing(name); ok {
			j.because(missing, "%s: %s%s", name, reason, use(instead))
		} else if !j.matches(name) {
			j.because(missing, "%s: gpu-exporter has no such metric; if a rule or adapter creates it, check its "+
				"file in the same call", name)
		}
		return
	}
	j.set("--compat=" + string(e.release))
	if e.Differs != "" {
		j.because(differs, "%s: %s", name, e.Differs)
	}
	for _, l := range e.Labels {
		j.known[l] = true
	}
	for _, m := range v.LabelMatchers {
		switch {
		case m.Name == "instance" && strings.Contains(m.Value, "9400"):
			j.set("compat.port=9400")
		case m.Name == "instance" && strings.Contains(m.Value, "9835"):
			j.set("compat.port=9835")
		case m.Name == "job" && !variable.MatchString(m.Value) && m.Type == labels.MatchEqual:
			j.set("compat.job=" + m.Value)
		case m.Name == "UUID" && strings.Contains(m.Value, "MIG-"):
			j.because(differs, "UUID is that of the GPU, also for MIG devices")
		}
	}
}

// other judges a selector of a metric of none of the other exporters.
func (j *judgment) other(v *parser.VectorSelector, name string) {
	for _, l := range v.LabelMatchers {
		j.known[l.Name] = true
		switch {
		case !exporter.MatchString(l.Value):
		case name == "up" || strings.HasPrefix(name, "scrape_"):
			j.own = true
			j.because(differs, "%s: the target is gpu-exporter's: set compat.job, or use up{job=\"gpu-exporter\"} for the "+
				"target and gpu_device_up for a GPU that is not readable", v)
		default:
			j.own = true
			j.because(differs, "%s: select the objects of gpu-exporter", v)
		}
	}
	j.joined = true
}

// labels judges the labels that a part of the query names, and rates of gauges.
func (j *judgment) labels(node parser.Node) {
	switch n := node.(type) {
	case *parser.VectorSelector:
		if _, ok := j.entries[n.Name]; ok {
			for _, m := range n.LabelMatchers {
				j.label(m.Name)
			}
		}
	case *parser.AggregateExpr:
		if !n.Without && !j.joined {
			for _, l := range n.Grouping {
				j.label(l)
			}
		}
	case *parser.Call:
		if n.Func.Name == "rate" || n.Func.Name == "irate" || n.Func.Name == "increase" {
			parser.Inspect(n, func(node parser.Node, _ []parser.Node) error {
				v, ok := node.(*parser.VectorSelector)
				if e := j.entries[nameOf(v)]; ok && e.Gauge && (e.Rewrite == compat.Near || strings.Contains(e.Name, "NVLINK")) {
					j.because(differs, "%s is a gauge, per second or a mean: %s of it means nothing here, nor there "+
						"(NVLINK_BANDWIDTH_TOTAL since 4.8.3)", e.Name, n.Func.Name)
				}
				return nil
			})
		}
	}
}

func (j *judgment) label(name string) {
	bare := strings.TrimPrefix(name, "exported_")
	switch {
	case bare != name && (bare == "pod" || bare == "namespace" || bare == "container"):
		j.set("compat.honorLabels=false")
	case strings.HasPrefix(name, "DCGM_FI_") && slices.Contains(compat.DeviceLabels(), name):
		j.set("--compat.set=label=" + name)
	case j.known[name] || slices.Contains(targetLabels, name):
	default:
		if reason, instead, ok := guide.Missing(name); ok {
			j.because(missing, "label %s: %s%s", name, reason, use(instead))
		} else if !created(j.expr, name) {
			j.because(differs, "label %s is not on the page: keep the relabeling or pod label that adds it", name)
		}
	}
}

// changed judges uses of gpu-exporter's own metrics that had another result in earlier builds.
func (j *judgment) changed() {
	parser.Inspect(j.expr, func(node parser.Node, path []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := histogramPart.ReplaceAllString(nameOf(v), "")
		for _, c := range guide.Changes() {
			if slices.Contains(c.Families, name) && c.Then != "any" && (c.Uses == nil || slices.ContainsFunc(path,
				func(n parser.Node) bool { return slices.Contains(c.Uses, useOf(n)) })) {
				j.own = true
				j.because(differs, "%s: `%s` is now `%s`", name, c.Then, c.Now)
			}
		}
		return nil
	})
	for _, flag := range switches(j.expr) {
		j.own = true
		j.set(flag)
	}
}

// histogramPart is the end of the name of a histogram's series.
var histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

// useOf is what a node of a query does with what is in it: a function, an aggregation or a comparison with a number.
func useOf(n parser.Node) string {
	switch n := n.(type) {
	case *parser.Call:
		return n.Func.Name
	case *parser.AggregateExpr:
		return n.Op.String()
	case *parser.BinaryExpr:
		if number, ok := n.RHS.(*parser.NumberLiteral); ok {
			return fmt.Sprintf("%s %g", n.Op, number.Val)
		}
	}
	return ""
}

// switches are the flags of the exporter without which it does not export what a query in its names reads.
func switches(expr parser.Expr) (flags []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := nameOf(v)
		for _, g := range catalog.Groups() {
			for _, f := range g.Rows {
				other := f.Values != nil && slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
					return m.Name == f.Labels[len(f.Labels)-1] && !slices.ContainsFunc(f.Values, m.Matches)
				})
				if f.Type == catalog.Histogram {
					name = histogramPart.ReplaceAllString(name, "")
				}
				if flag := "--collector." + g.Name; f.Name == name && (other || f.Size() > catalog.SizeDefault) &&
					!slices.Contains(flags, flag) {
					flags = append(flags, flag)
				}
			}
		}
		return nil
	})
	return flags
}

// nameOf is the name of a selector, also by a matcher; empty of none.
func nameOf(v *parser.VectorSelector) string {
	if v == nil {
		return ""
	}
	name := v.Name
	for _, m := range v.LabelMatchers {
		if m.Name == metricName && name == "" {
			name = m.Value
		}
	}
	return name
}

// alternatives are the names with a supported metric on the other side of an or.
func (c *checker) alternatives(expr parser.Expr) map[string]bool {
	out := map[string]bool{}
	side := func(expr parser.Expr) (names []string, complete bool) {
		complete = true
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if v, ok := node.(*parser.VectorSelector); ok && foreign.MatchString(v.Name) {
				names = append(names, v.Name)
				_, known := c.entries[v.Name]
				complete = complete && known
			}
			return nil
		})
		return names, complete && names != nil
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.BinaryExpr); ok && n.Op == parser.LOR {
			left, leftOK := side(n.LHS)
			right, rightOK := side(n.RHS)
			for _, name := range left {
				out[name] = out[name] || rightOK
			}
			for _, name := range right {
				out[name] = out[name] || leftOK
			}
		}
		return nil
	})
	return out
}

// matches reports whether a regular expression for __name__ selects a family.
func (c *checker) matches(pattern string) bool {
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return false
	}
	for name := range c.entries {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

// created reports whether label_replace or label_join makes a label, or a join takes it from another metric.
func created(expr parser.Expr, name string) bool {
	found := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.Call:
			if strings.HasPrefix(n.Func.Name, "label_") && len(n.Args) > 1 {
				s, ok := n.Args[1].(*parser.StringLiteral)
				found = found || ok && s.Val == name
			}
		case *parser.BinaryExpr:
			found = found || n.VectorMatching != nil && slices.Contains(n.VectorMatching.Include, name)
		}
		return nil
	})
	return found
}

func use(instead []string) string {
	if instead == nil {
		return ""
	}
	return "; use " + strings.Join(instead, ", ")
}
