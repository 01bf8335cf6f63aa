package compat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// figure is a number made of families of the catalog.
type figure struct {
	of   []string // their series that match with are added up; all families must have some
	less string   // taken away, where set
	over []string // what it is divided by, where set; with does not select there
	with []string // own labels and their values, in pairs
	by   string   // an own label that the series keep
	// increase takes what was added in the last minute instead of what stands there: divided by the increase of
	// over, or by the seconds between the readings. In fiveMinutes, it is the bare increase.
	increase, fiveMinutes bool
	// latest makes the label by the value: that of the series whose number is the highest.
	latest bool
}

// key says what a reading speaks of. Instance or container are empty where it speaks of the GPU.
type key struct {
	dev, instance string
	container     gpu.Container
}

// reading is a value and its own labels.
type reading struct {
	value float64
	own   []string
}

// level is a gauge, or a counter as it stands.
func level(family string, with ...string) *figure { return &figure{of: []string{family}, with: with} }

// share is the increase of a counter over that of another, in the last minute.
func share(family, over string, with ...string) *figure {
	return &figure{of: []string{family}, over: []string{over}, with: with, increase: true}
}

// rate is the increase per second in the last minute, of several counters together.
func rate(families ...string) *figure { return &figure{of: families, increase: true} }

// nowhere is a figure that is never there: of an instance, where the GPU's own would be wrong for it.
func nowhere() *figure { return &figure{} }

// check finds families, labels and scopes that do not exist or do not fit together.
func (f *figure) check(families map[string]catalog.Family) error {
	var scope catalog.Scope
	for i, name := range f.names() {
		row, ok := families[name]
		switch {
		case !ok:
			return fmt.Errorf("the catalog has no family %s", name)
		case i > 0 && row.Scope != scope:
			return fmt.Errorf("%s is of another scope than %s", name, f.of[0])
		case f.increase && row.Type != catalog.Counter:
			return fmt.Errorf("%s is no counter", name)
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
		// What a GPU has never counted before counts from 0: the series of its first XID begins with it.
		before := sums{}
		if past := p.lastFiveMinutes(v); past != nil {
			before = p.sums(past[0], f.of[0], f)
		}
		for k, now := range p.sums(v, f.of[0], f) {
			for _, label := range ordered(now) {
				if x := now[label]; x > 0 { // codes that were never seen have no series, as there
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

// readLevel returns what stands there.
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

// readIncrease returns what was added in the last minute, or since what it speaks of was first seen in it.
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
			total, ok := grown(ofBefore, of, k)
			var whole float64
			var known bool
			if f.over == nil {
				whole = p.secondsBetween(before, v, k.dev)
				known = whole > 0
			} else {
				whole, known = grown(overBefore, over, k)
			}
			if !ok || !known {
				continue // it was not there yet: a younger view may tell
			}
			delete(waiting, k)
			if !(whole > 0) {
				continue
			}
			value := total / whole
			if f.over != nil {
				value = min(1, value) // the driver rounds; a part of a whole is not more than it
			}
			out[k] = []reading{{value: value}}
		}
	}
	return out
}

// grown is by how much the entries of several tables grew together; ok is false where one was not there, or fell.
func grown(before, now []sums, k key) (total float64, ok bool) {
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

// readLatest returns for each GPU the code that was seen last, and 0 where none was.
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

// sums are added up series of a family, by what they speak of and by a label.
type sums map[key]map[string]float64

// sums reads a family of a view through the catalog: the sums of the series that the figure selects, by what
// they speak of and by the label that the figure keeps ("" without one).
func (p *Page) sums(v *gpu.View, family string, f *figure) sums {
	out := sums{}
	row := p.families[family]
	scope := len(row.Scope.Labels())
	own := func(labels []string, name string) string { return labels[scope+slices.Index(row.Labels, name)] }
	row.Read(v, func(value float64, labels ...string) {
		k := key{dev: labels[1]}
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
	// What has labels of its own is summed up before it meets what has none.
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
