package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// cell is one value of a table: a number, a text or a moment; absent where a query had nothing for the row.
type cell struct {
	text    string
	number  float64
	kind    cellKind
	present bool
}

type cellKind int

const (
	isText cellKind = iota
	isNumber
	isTime
)

// column is one field of a table.
type column struct {
	name  string // as the answer calls it
	title string // as a transformation renamed it; empty: name
	refID string
	kind  cellKind
	cells []cell
}

func (c column) shownName() string { return cmp.Or(c.title, c.name) }

// frame is a table.
type frame struct{ columns []column }

func (f frame) rows() int {
	if len(f.columns) == 0 {
		return 0
	}
	return len(f.columns[0].cells)
}

func (f frame) column(name string) int {
	return slices.IndexFunc(f.columns, func(c column) bool { return c.name == name || c.title == name })
}

// frames makes a table of each answer, as Grafana's source does: Time, the labels in order, and Value, which
// bears the query's letter where there are several.
func frames(answers []Answer) []frame {
	var out []frame
	for _, a := range answers {
		value := "Value"
		if len(answers) > 1 {
			value += " #" + a.Target.RefID
		}
		labels := map[string]bool{}
		for _, s := range a.Series {
			for l := range s.Labels {
				labels[l] = true
			}
		}
		if len(a.Series) == 0 {
			continue
		}
		f := frame{columns: []column{{name: "Time", refID: a.Target.RefID, kind: isTime}}}
		names := sortedKeys(labels)
		for _, l := range names {
			f.columns = append(f.columns, column{name: l, refID: a.Target.RefID})
		}
		f.columns = append(f.columns, column{name: value, refID: a.Target.RefID, kind: isNumber})
		for _, s := range a.Series {
			points := s.Points
			for _, p := range points {
				f.columns[0].cells = append(f.columns[0].cells, cell{number: float64(p.At.UnixMilli()), kind: isTime, present: true})
				for i, l := range names {
					text, ok := s.Labels[l]
					f.columns[i+1].cells = append(f.columns[i+1].cells, cell{text: text, present: ok})
				}
				f.columns[len(f.columns)-1].cells = append(f.columns[len(f.columns)-1].cells, cell{number: p.Value, kind: isNumber, present: true})
			}
		}
		out = append(out, f)
	}
	return out
}

// transform runs the panel's transformations in their order. One that is not known is noted and left out.
func transform(in []frame, steps []board.Transformation, note func(string, ...any)) ([]frame, error) {
	for _, t := range steps {
		var err error
		switch t.ID {
		case "merge":
			in = []frame{merge(in)}
		case "organize":
			in, err = each(in, t.Options, organize)
		case "sortBy":
			in, err = each(in, t.Options, sortRows)
		case "limit":
			in, err = each(in, t.Options, limit)
		case "filterFieldsByName":
			in, err = each(in, t.Options, filterFields)
		case "joinByField":
			in, err = join(in, t.Options)
		default:
			note("the transformation %s is not known: its step is left out", t.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("transformation %s: %w", t.ID, err)
		}
	}
	return in, nil
}

func each[O any](in []frame, options json.RawMessage, f func(frame, O) (frame, error)) ([]frame, error) {
	var o O
	if len(options) > 0 {
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
	}
	var out []frame
	for _, one := range in {
		r, err := f(one, o)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// merge puts tables together: rows that agree in every column that all tables have become one, as long as
// they contradict each other nowhere else.
func merge(in []frame) frame {
	var out frame
	count := map[string]int{}
	for _, f := range in {
		for _, c := range f.columns {
			count[c.name]++
			if out.column(c.name) < 0 {
				out.columns = append(out.columns, column{name: c.name, title: c.title, refID: c.refID, kind: c.kind})
			}
		}
	}
	type row []cell
	var rows []row
	byKey := map[string][]int{}
	for _, f := range in {
		at := make([]int, len(f.columns))
		for i, c := range f.columns {
			at[i] = out.column(c.name)
		}
		for r := range f.rows() {
			next := make(row, len(out.columns))
			var key []string
			for i, c := range f.columns {
				next[at[i]] = c.cells[r]
				if count[c.name] == len(in) {
					key = append(key, fmt.Sprintf("%d=%q %v", at[i], c.cells[r].text, c.cells[r].number))
				}
			}
			slices.Sort(key)
			k := strings.Join(key, "\x00")
			merged := false
			for _, i := range byKey[k] {
				if fits(rows[i], next) {
					for c := range next {
						if next[c].present {
							rows[i][c] = next[c]
						}
					}
					merged = true
					break
				}
			}
			if !merged {
				byKey[k] = append(byKey[k], len(rows))
				rows = append(rows, next)
			}
		}
	}
	for _, r := range rows {
		for c := range out.columns {
			out.columns[c].cells = append(out.columns[c].cells, r[c])
		}
	}
	return out
}

func fits(a, b []cell) bool {
	for i := range a {
		if a[i].present && b[i].present && a[i] != b[i] {
			return false
		}
	}
	return true
}

type organizeOptions struct {
	ExcludeByName, IncludeByName map[string]bool
	IndexByName                  map[string]int
	RenameByName                 map[string]string
}

func organize(f frame, o organizeOptions) (frame, error) {
	var out frame
	for _, c := range f.columns {
		if o.ExcludeByName[c.name] || len(o.IncludeByName) > 0 && !o.IncludeByName[c.name] {
			continue
		}
		if to := o.RenameByName[c.name]; to != "" {
			c.title = to
		}
		out.columns = append(out.columns, c)
	}
	if len(o.IndexByName) > 0 {
		// A column without a place of its own stands before those that have one.
		place := func(c column) int {
			if i, ok := o.IndexByName[c.name]; ok {
				return i
			}
			return -1
		}
		slices.SortStableFunc(out.columns, func(x, y column) int { return cmp.Compare(place(x), place(y)) })
	}
	return out, nil
}

type sortOptions struct {
	Sort []struct {
		Field string
		Desc  bool
	}
}

func sortRows(f frame, o sortOptions) (frame, error) {
	for _, s := range slices.Backward(o.Sort) {
		if at := f.column(s.Field); at >= 0 {
			f = f.sorted(at, s.Desc)
		}
	}
	return f, nil
}

// sorted orders rows by a column; rows without a value stand last either way.
func (f frame) sorted(by int, desc bool) frame {
	order := make([]int, f.rows())
	for i := range order {
		order[i] = i
	}
	cells := f.columns[by].cells
	slices.SortStableFunc(order, func(x, y int) int {
		a, b := cells[x], cells[y]
		empty := func(c cell) bool { return !c.present || c.kind == isNumber && math.IsNaN(c.number) }
		if empty(a) || empty(b) {
			switch {
			case empty(a) && empty(b):
				return 0
			case empty(a):
				return 1
			}
			return -1
		}
		c := cmp.Compare(a.number, b.number)
		if a.kind == isText {
			c = natural(a.text, b.text)
		}
		if desc {
			c = -c
		}
		return c
	})
	return f.pick(order)
}

func (f frame) pick(order []int) frame {
	out := frame{columns: slices.Clone(f.columns)}
	for i := range out.columns {
		cells := make([]cell, len(order))
		for j, r := range order {
			cells[j] = f.columns[i].cells[r]
		}
		out.columns[i].cells = cells
	}
	return out
}

// natural compares texts with their numbers as numbers: node-9 before node-10.
func natural(a, b string) int {
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	for a != "" && b != "" {
		if digit(a[0]) && digit(b[0]) {
			i, j := 0, 0
			for i < len(a) && digit(a[i]) {
				i++
			}
			for j < len(b) && digit(b[j]) {
				j++
			}
			x, y := strings.TrimLeft(a[:i], "0"), strings.TrimLeft(b[:j], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[i:], b[j:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

type limitOptions struct{ LimitField any }

func limit(f frame, o limitOptions) (frame, error) {
	n, ok := o.LimitField.(float64)
	if !ok {
		return f, fmt.Errorf("limit %v is no number", o.LimitField)
	}
	order := make([]int, min(int(n), f.rows()))
	for i := range order {
		order[i] = i
	}
	return f.pick(order), nil
}

type filterOptions struct {
	Include, Exclude *struct {
		Names   []string
		Pattern string
	}
}

func filterFields(f frame, o filterOptions) (frame, error) {
	in := func(c column, names []string, pattern string) (bool, error) {
		if slices.Contains(names, c.shownName()) {
			return true, nil
		}
		if pattern == "" {
			return false, nil
		}
		r, err := javaScript(pattern)
		if err != nil {
			return false, err
		}
		return r.MatchString(c.shownName()), nil
	}
	var out frame
	for _, c := range f.columns {
		keep := true
		if o.Include != nil {
			is, err := in(c, o.Include.Names, o.Include.Pattern)
			if err != nil {
				return f, err
			}
			keep = is
		}
		if o.Exclude != nil {
			is, err := in(c, o.Exclude.Names, o.Exclude.Pattern)
			if err != nil {
				return f, err
			}
			keep = keep && !is
		}
		if keep {
			out.columns = append(out.columns, c)
		}
	}
	return out, nil
}

// join puts tables side by side where the field agrees; a second row with the same value is left alone.
func join(in []frame, options json.RawMessage) ([]frame, error) {
	var o struct{ ByField, Mode string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	var out frame
	rowOf := map[string]int{}
	var found []int
	for n, f := range in {
		by := f.column(o.ByField)
		if by < 0 {
			continue
		}
		if len(out.columns) == 0 {
			out.columns = []column{{name: f.columns[by].name, title: f.columns[by].title, kind: f.columns[by].kind}}
		}
		first := len(out.columns)
		for i, c := range f.columns {
			if i != by {
				name := c.name
				if out.column(name) >= 0 {
					name = fmt.Sprintf("%s %d", c.name, n+1)
				}
				out.columns = append(out.columns, column{name: name, title: c.title, refID: c.refID, kind: c.kind, cells: make([]cell, len(found))})
			}
		}
		for r := range f.rows() {
			key := f.columns[by].cells[r]
			k := fmt.Sprintf("%q %v", key.text, key.number)
			at, ok := rowOf[k]
			if !ok {
				at = len(found)
				rowOf[k], found = at, append(found, 0)
				for i := range out.columns {
					out.columns[i].cells = append(out.columns[i].cells, cell{kind: out.columns[i].kind})
				}
				out.columns[0].cells[at] = key
			}
			found[at]++
			to := first
			for i, c := range f.columns {
				if i != by {
					out.columns[to].cells[at] = c.cells[r]
					to++
				}
			}
		}
	}
	if o.Mode == "inner" {
		var order []int
		for i, n := range found {
			if n >= len(in) {
				order = append(order, i)
			}
		}
		out = out.pick(order)
	}
	return []frame{out}, nil
}

func (c cell) moment() time.Time { return time.UnixMilli(int64(c.number)).UTC() }
