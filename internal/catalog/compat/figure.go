package compat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// parseFigure parses a cell of table.csv, such as "rate a{x=y} + b / c" or "latest a + b by x"; nil of an empty cell.
func parseFigure(text string) *figure {
	if text == "" {
		return nil
	}
	f := &figure{}
	to := func(name string) { f.of = append(f.of, name) }
	for word := range strings.FieldsSeq(text) {
		switch word {
		case "none", "+":
		case "rate":
			f.increase = true
		case "last5m":
			f.fiveMinutes = true
		case "latest":
			f.latest = true
		case "-":
			to = func(name string) { f.less = name }
		case "/":
			to = func(name string) { f.over = append(f.over, name) }
		case "by":
			to = func(name string) { f.by = name }
		default:
			name, selector, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
			to(name)
			if selector != "" {
				f.with = strings.FieldsFunc(selector, func(r rune) bool { return r == '=' || r == ';' })
			}
		}
	}
	return f
}

// check finds families, labels and scopes that do not exist or do not match.
func (f *figure) check(families map[string]catalog.Family) error {
	var scope catalog.Scope
	for i, name := range f.names() {
		row, ok := families[name]
		switch {
		case !ok:
			return fmt.Errorf("no family %s in the catalog", name)
		case i > 0 && row.Scope != scope:
			return fmt.Errorf("%s has another scope than %s", name, f.of[0])
		case f.increase && row.Type != catalog.Counter:
			return fmt.Errorf("%s is not a counter", name)
		}
		scope = row.Scope
		for j := 0; j < len(f.with) && i < len(f.of); j += 2 {
			if !slices.Contains(row.Labels, f.with[j]) {
				return fmt.Errorf("%s has no label %s", name, f.with[j])
			}
		}
		if f.by != "" && !slices.Contains(row.Labels, f.by) {
			return fmt.Errorf("%s has no label %s", name, f.by)
		}
	}
	return nil
}

// names lists the families of the figure.
func (f *figure) names() []string {
	out := slices.Clone(f.of)
	if f.less != "" {
		out = append(out, f.less)
	}
	return append(out, f.over...)
}

// read returns the readings of a view. A nil figure has none.
func (f *figure) read(p *Page, v *gpu.View) map[key][]reading {
	if f == nil || f.of == nil {
		return nil
	}
	out := map[key][]reading{}
	switch {
	case f.latest:
		return f.readLatest(p, v)
	case f.fiveMinutes:
		// A code without an earlier value counts from 0: its series begins with the first occurrence.
		before := sums{}
		if views := p.lastFiveMinutes(v); views != nil {
			before = p.sums(views[0], f.of[0], f)
		}
		for k, now := range p.sums(v, f.of[0], f) {
			for _, label := range ordered(now) {
				if x := now[label]; x > 0 { // codes that never occurred have no series, as in dcgm-exporter
					out[k] = append(out[k], reading{max(0, x-before[k][label]), []string{label}})
				}
			}
		}
	case f.increase:
		return f.readIncrease(p, v)
	default:
		return f.readLevel(p, v)
	}
	return out
}

// readLevel returns the current values.
func (f *figure) readLevel(p *Page, v *gpu.View) map[key][]reading {
	tables := func(names []string, of *figure) []sums {
		var out []sums
		for _, n := range names {
			out = append(out, p.sums(v, n, of))
		}
		return out
	}
	of, over := tables(f.of, f), tables(f.over, nil)
	var less sums
	if f.less != "" {
		less = p.sums(v, f.less, nil)
	}
	out := map[key][]reading{}
	for k, now := range of[0] {
		for _, label := range ordered(now) {
			x, ok := add(of, k, label)
			if f.less != "" {
				y, there := less[k][""]
				x, ok = x-y, ok && there
			}
			if f.over != nil {
				whole, there := add(over, k, "")
				x, ok = x/whole, ok && there && whole > 0
			}
			if !ok {
				continue
			}
			r := reading{value: x}
			if f.by != "" {
				r.own = []string{label}
			}
			out[k] = append(out[k], r)
		}
	}
	return out
}

// ordered lists the labels of an entry: those that are numbers by their number.
func ordered(entry map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(entry), func(a, b string) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
	})
}

// add sums one entry of several tables; ok is false where one of them lacks it.
func add(tables []sums, k key, label string) (total float64, ok bool) {
	for _, t := range tables {
		x, there := t[k][label]
		if !there {
			return 0, false
		}
		total += x
	}
	return total, true
}

// readIncrease returns the increase in the last minute, or since the series began within it.
func (f *figure) readIncrease(p *Page, v *gpu.View) map[key][]reading {
	tables := func(v *gpu.View) (of, over []sums) {
		for _, n := range f.of {
			of = append(of, p.sums(v, n, f))
		}
		for _, n := range f.over {
			over = append(over, p.sums(v, n, nil))
		}
		return of, over
	}
	of, over := tables(v)
	out := map[key][]reading{}
	waiting := map[key]bool{}
	for k := range of[0] {
		waiting[k] = true
	}
	for _, before := range p.lastMinute(v) {
		if len(waiting) == 0 {
			break
		}
		ofBefore, overBefore := tables(before)
		for k := range waiting {
			total, ok := increaseOf(ofBefore, of, k)
			var whole float64
			var known bool
			if f.over == nil {
				whole = p.secondsBetween(before, v, k.gpu)
				known = whole > 0
			} else {
				whole, known = increaseOf(overBefore, over, k)
			}
			if !ok || !known {
				continue // it did not exist yet: a later view may have it
			}
			delete(waiting, k)
			if !(whole > 0) {
				continue
			}
			value := total / whole
			if f.over != nil {
				value = min(1, value) // the driver rounds
			}
			out[k] = []reading{{value: value}}
		}
	}
	return out
}

// increaseOf is the increase of the entries of several tables together; ok is false if one did not exist, or decreased.
func increaseOf(before, now []sums, k key) (total float64, ok bool) {
	for i := range now {
		a, was := before[i][k][""]
		b, is := now[i][k][""]
		if !was || !is || b < a {
			return 0, false
		}
		total += b - a
	}
	return total, true
}

// readLatest returns the last code of each GPU, 0 if there was none.
func (f *figure) readLatest(p *Page, v *gpu.View) map[key][]reading {
	when := p.sums(v, f.of[1], f)
	out := map[key][]reading{}
	for k, counts := range p.sums(v, f.of[0], f) {
		code, at := "0", 0.0
		for _, label := range ordered(counts) {
			if t, n := when[k][label], counts[label]; n > 0 && (t > at || t == at && number(label) > number(code)) {
				code, at = label, t
			}
		}
		out[k] = []reading{{value: float64(number(code)), own: []string{code, xidMessage(number(code))}}}
	}
	return out
}

// sums reads a family of a view through the catalog and adds up the series that the figure selects, by what they are of
// and by the label that the figure keeps ("" without one).
func (p *Page) sums(v *gpu.View, family string, f *figure) sums {
	out := sums{}
	row := p.families[family]
	scope := len(row.Scope.Labels())
	own := func(labels []string, name string) string { return labels[scope+slices.Index(row.Labels, name)] }
	row.Read(v, func(value float64, labels ...string) {
		k := key{gpu: labels[1]}
		switch row.Scope {
		case catalog.ScopeInstance:
			k.instance = labels[3]
		case catalog.ScopeContainer:
			k.container = gpu.Container{Namespace: labels[3], Pod: labels[4], Name: labels[5]}
		}
		kept := ""
		if f != nil {
			for i := 0; i < len(f.with); i += 2 {
				if own(labels, f.with[i]) != f.with[i+1] {
					return
				}
			}
			if f.by != "" {
				kept = own(labels, f.by)
			}
		}
		if out[k] == nil {
			out[k] = map[string]float64{}
		}
		out[k][kept] += value
	})
	return out
}

// promQL is the figure as a query over the families of the catalog.
func (f *figure) promQL(families map[string]catalog.Family) string {
	var selector []string
	for i := 0; i < len(f.with); i += 2 {
		selector = append(selector, fmt.Sprintf("%s=%q", f.with[i], f.with[i+1]))
	}
	braces := ""
	if selector != nil {
		braces = "{" + strings.Join(selector, ", ") + "}"
	}
	// A family with own labels is summed before it is divided by one without.
	by := "node, uuid"
	if families[f.of[0]].Scope == catalog.ScopeInstance {
		by = "node, uuid, gi"
	}
	terms := func(names []string, braces string, together bool) string {
		var out []string
		for _, n := range names {
			q := n + braces
			switch {
			case f.fiveMinutes:
				q = "increase(" + q + "[5m])"
			case f.increase:
				q = "rate(" + q + "[1m])"
			}
			if together {
				q = "sum by (" + by + ") (" + q + ")"
			}
			out = append(out, q)
		}
		if q := strings.Join(out, " + "); len(out) == 1 {
			return q
		} else {
			return "(" + q + ")"
		}
	}
	several := f.by == "" && len(families[f.of[0]].Labels) > len(f.with)/2
	of := terms(f.of, braces, several || f.over != nil && f.with != nil)
	switch {
	case f.latest:
		return f.of[1] + " and " + f.of[0] + " > 0"
	case f.less != "":
		return of + " - " + f.less
	case f.over != nil:
		return of + " / " + terms(f.over, "", several || f.with != nil)
	case len(f.of) > 1:
		return strings.TrimSuffix(strings.TrimPrefix(of, "("), ")")
	}
	return of
}

// number parses an XID code; 0 if it is not a number.
func number(code string) int {
	n, err := strconv.Atoi(code)
	if err != nil {
		return 0
	}
	return n
}

// secondsBetween is the time between the fast readings of a GPU in two views, 0 if unknown.
func (p *Page) secondsBetween(before, now *gpu.View, uuid string) float64 {
	fast := &figure{of: []string{"gpu_last_read_timestamp_seconds"}, with: []string{"poll", string(gpu.PollFast)}}
	a, was := p.sums(before, fast.of[0], fast)[key{gpu: uuid}][""]
	b, is := p.sums(now, fast.of[0], fast)[key{gpu: uuid}][""]
	if !was || !is {
		return 0
	}
	return b - a
}
