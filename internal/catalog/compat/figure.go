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

// parseFigure parses a cell of a table, such as "rate a{x=y} + b / c" or "latest a + b by x"; nil of an empty cell.
func parseFigure(text string) *Figure {
	if text == "" {
		return nil
	}
	f := &Figure{}
	to, next := &f.Of, ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case next == "by":
			f.By, next = word, ""
		case next == "&":
			f.mask, _ = strconv.Atoi(word)
			next = ""
		case word == "none" || word == "+":
		case slices.Contains(operators, Operator(word)):
			f.Operator = Operator(word)
		case word == "-":
			to = &f.Less
		case word == "/":
			to = &f.Over
		case word == "by" || word == "&":
			next = word
		default:
			name, selector, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
			*to = append(*to, Term{name, strings.FieldsFunc(selector, func(r rune) bool { return r == '=' || r == ';' })})
		}
	}
	return f
}

// check finds families, labels and scopes that do not exist or do not match.
func (f *Figure) check(families map[string]catalog.Family) error {
	var scope catalog.Scope
	for i, t := range slices.Concat(f.Of, f.Less, f.Over) {
		row, ok := families[t.Name]
		switch {
		case !ok:
			return fmt.Errorf("no family %s in the catalog", t.Name)
		case i > 0 && row.Scope != scope:
			return fmt.Errorf("%s has another scope than %s", t.Name, f.Of[0].Name)
		case f.Operator == Rate && row.Type != catalog.Counter:
			return fmt.Errorf("%s is not a counter", t.Name)
		}
		scope = row.Scope
		for j := 0; j < len(t.With); j += 2 {
			if !slices.Contains(row.Labels, t.With[j]) {
				return fmt.Errorf("%s has no label %s", t.Name, t.With[j])
			}
		}
		if f.By != "" && !slices.Contains(row.Labels, f.By) {
			return fmt.Errorf("%s has no label %s", t.Name, f.By)
		}
	}
	return nil
}

// read returns the readings of a view. A nil figure has none.
func (f *Figure) read(p *Page, v *gpu.View) map[key][]reading {
	if f == nil || f.Of == nil {
		return nil
	}
	switch f.Operator {
	case Latest:
		return f.readLatest(p, v)
	case Last5m:
		return f.readLast(p, v)
	case Events:
		return f.readEvents(p, v)
	case Health:
		return f.readHealth(p, v)
	case Rate:
		return f.readIncrease(p, v)
	}
	out := map[key][]reading{}
	switch f.Operator {
	case Count:
		all := p.sums(v, f.Of[0], "")
		for k := range all {
			out[k] = []reading{{value: float64(len(all))}}
		}
	case State, State1:
		family := p.families[f.Of[0].Name]
		family.Read(v, func(_ float64, labels ...string) {
			number := slices.Index(family.States, labels[len(labels)-1])
			if f.Operator == State1 {
				number++
			}
			out[key{gpu: labels[1]}] = []reading{{value: float64(number)}}
		})
	default:
		return f.readLevel(p, v)
	}
	return out
}

// readLast returns the increases in the last five minutes. A code without an earlier value counts from 0: its series
// begins with the first occurrence. Codes that never occurred have no series, and a GPU without any has one without a
// code, as in dcgm-exporter.
func (f *Figure) readLast(p *Page, v *gpu.View) map[key][]reading {
	out, before := map[key][]reading{}, sums{}
	views, window := p.recent(v, p.XIDWindow)
	if views != nil {
		before = p.sums(views[0], f.Of[0], f.By)
	}
	for k, now := range p.sums(v, f.Of[0], f.By) {
		for _, label := range ordered(now) {
			if x := now[label]; x > 0 {
				out[k] = append(out[k], reading{max(0, x-before[k][label]), []string{label, window}})
			}
		}
		if out[k] == nil {
			out[k] = []reading{{0, []string{"", window}}}
		}
	}
	return out
}

// clockEvents are dcgm-exporter's names of the bits of the mask, from the lowest.
var clockEvents = []string{"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal",
	"hw_thermal", "hw_power_brake", "display_clocks"}

// readHealth returns the health by watch, in DCGM's numbers: 0 passes, 10 warns, 20 fails.
func (f *Figure) readHealth(p *Page, v *gpu.View) map[key][]reading {
	recommended := p.sums(v, Term{Name: "gpu_recovery_action"}, "action")
	failed, pending := p.sums(v, Term{Name: "gpu_row_remap_failed"}, ""), p.sums(v, Term{Name: "gpu_row_remap_pending"}, "")
	out := map[key][]reading{}
	for k, up := range p.sums(v, f.Of[0], "") {
		all := reading{0, []string{"ALL", "DCGM_FR_OK"}}
		if up[""] == 0 || recommended[k] != nil && recommended[k][string(gpu.RecoveryNone)] == 0 {
			all = reading{20, []string{"ALL", "DCGM_FR_UNKNOWN"}}
		}
		out[k] = []reading{all}
		remapping, ok := failed[k]
		switch {
		case !ok:
		case remapping[""] > 0:
			out[k] = append(out[k], reading{20, []string{"MEM", "DCGM_FR_ROW_REMAP_FAILURE"}})
		case pending[k][""] > 0:
			out[k] = append(out[k], reading{10, []string{"MEM", "DCGM_FR_PENDING_ROW_REMAP"}})
		default:
			out[k] = append(out[k], reading{0, []string{"MEM", "DCGM_FR_OK"}})
		}
	}
	return out
}

// readEvents counts, for each bit of a mask, the views of the last five minutes in which it was set.
func (f *Figure) readEvents(p *Page, v *gpu.View) map[key][]reading {
	counts := map[key]map[int]float64{}
	views, window := p.recent(v, p.ClockWindow)
	for _, v := range append(slices.Clone(views), v) {
		for k, mask := range p.sums(v, f.Of[0], "") {
			if counts[k] == nil {
				counts[k] = map[int]float64{}
			}
			for bit := range clockEvents {
				if int(mask[""])>>bit&1 == 1 {
					counts[k][bit]++
				}
			}
		}
	}
	out := map[key][]reading{}
	for k, bits := range counts {
		for _, bit := range slices.Sorted(maps.Keys(bits)) {
			out[k] = append(out[k], reading{bits[bit], []string{clockEvents[bit], window}})
		}
		if out[k] == nil {
			out[k] = []reading{{0, []string{"", window}}}
		}
	}
	return out
}

// readLevel returns the current values.
func (f *Figure) readLevel(p *Page, v *gpu.View) map[key][]reading {
	of, less, over := p.tables(v, f.Of, f.By), p.tables(v, f.Less, ""), p.tables(v, f.Over, "")
	out := map[key][]reading{}
	for k, now := range of[0] {
		for _, label := range ordered(now) {
			x, ok := add(of, k, label)
			if less != nil {
				y, there := add(less, k, "")
				x, ok = x-y, ok && there
			}
			if over != nil {
				whole, there := add(over, k, "")
				x, ok = x/whole, ok && there && whole > 0
			}
			if !ok {
				continue
			}
			if f.mask != 0 {
				x = float64(min(1, int(x)&f.mask))
			}
			r := reading{value: x}
			if f.By != "" {
				r.own = []string{label}
			}
			out[k] = append(out[k], r)
		}
	}
	return out
}

// tables returns the sums of several terms; nil without any.
func (p *Page) tables(v *gpu.View, terms []Term, by string) []sums {
	var out []sums
	for _, t := range terms {
		out = append(out, p.sums(v, t, by))
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
func (f *Figure) readIncrease(p *Page, v *gpu.View) map[key][]reading {
	tables := func(v *gpu.View) (of, over []sums) { return p.tables(v, f.Of, f.By), p.tables(v, f.Over, "") }
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
			if f.Over == nil {
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
			if f.Over != nil {
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
func (f *Figure) readLatest(p *Page, v *gpu.View) map[key][]reading {
	when := p.sums(v, f.Of[1], f.By)
	out := map[key][]reading{}
	for k, counts := range p.sums(v, f.Of[0], f.By) {
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

// sums reads a family of a view through the catalog and adds up the series that the term selects, by what they are of
// and by the label by ("" without one).
func (p *Page) sums(v *gpu.View, t Term, by string) sums {
	out := sums{}
	row := p.families[t.Name]
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
		for i := 0; i < len(t.With); i += 2 {
			if own(labels, t.With[i]) != t.With[i+1] {
				return
			}
		}
		kept := ""
		if by != "" {
			kept = own(labels, by)
		}
		if out[k] == nil {
			out[k] = map[string]float64{}
		}
		out[k][kept] += value
	})
	return out
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
	fast := Term{"gpu_last_read_timestamp_seconds", []string{"poll", string(gpu.PollFast)}}
	a, was := p.sums(before, fast, "")[key{gpu: uuid}][""]
	b, is := p.sums(now, fast, "")[key{gpu: uuid}][""]
	if !was || !is {
		return 0
	}
	return b - a
}
