package alerts

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Levels divides recording rules: those of a level read none of their own level or of a later one. To backfill rules,
// evaluate one level after the other.
func Levels(groups []RuleGroup) [][]RuleGroup {
	var left []Rule
	every := map[string]time.Duration{}
	for _, g := range groups {
		left = append(left, g.Rules...)
		for _, r := range g.Rules {
			every[r.Record] = g.Interval
		}
	}
	var out [][]RuleGroup
	for len(left) > 0 {
		var now, later []Rule
		for _, r := range left {
			if slices.ContainsFunc(left, func(other Rule) bool {
				return other.Record != r.Record &&
					reads(r.Expr, other.Record)
			}) {
				later = append(later, r)
			} else {
				now = append(now, r)
			}
		}
		if len(now) == 0 {
			// Rules that read each other in a circle have no order; a test sees to it that there are none.
			now, later = later, nil
		}
		out = append(out, byInterval(fmt.Sprintf("level-%d", len(out)+1), now, every))
		left = later
	}
	return out
}

// byInterval divides the rules of a level by how often they are evaluated.
func byInterval(name string, rules []Rule, every map[string]time.Duration) []RuleGroup {
	var out []RuleGroup
	for _, r := range rules {
		i := slices.IndexFunc(out, func(g RuleGroup) bool { return g.Interval == every[r.Record] })
		if i < 0 {
			g := RuleGroup{Name: name, Interval: every[r.Record]}
			if g.Interval > 0 {
				g.Name += "-" + FormatDuration(g.Interval)
			}
			i, out = len(out), append(out, g)
		}
		out[i].Rules = append(out[i].Rules, r)
	}
	return out
}

// reads reports whether the expression names the record, and not only a longer name.
func reads(expr, record string) bool {
	for {
		i := strings.Index(expr, record)
		if i < 0 {
			return false
		}
		before, after := byte(' '), byte(' ')
		if i > 0 {
			before = expr[i-1]
		}
		expr = expr[i+len(record):]
		if expr != "" {
			after = expr[0]
		}
		if !inName(before) && !inName(after) {
			return true
		}
	}
}

func inName(c byte) bool {
	return c == '_' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
