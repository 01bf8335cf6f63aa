package page

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

type tableOptions struct {
	ShowHeader *bool `json:"showHeader"`
	SortBy     []struct {
		DisplayName string `json:"displayName"`
		Desc        bool   `json:"desc"`
	} `json:"sortBy"`
	CellHeight string `json:"cellHeight"`
}

// autoColumn is how narrow Grafana makes a column without a width or a least width of its own.
const autoColumn = 150.0

func (s *sheet) table() (*node, error) {
	var o tableOptions
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := transform(frames(s.answers), s.panel.Transformations, s.note)
	if err != nil || len(all) == 0 || all[0].rows() == 0 {
		return nil, err
	}
	if len(all) > 1 {
		s.note("%d tables are left after the transformations; the first is shown", len(all))
	}
	f := all[0]
	looked := make([]look, len(f.columns))
	var visible []int
	for i := range f.columns {
		c := &f.columns[i]
		if looked[i], err = s.looks.of(c.shownName(), c.refID, c.kind == isNumber); err != nil {
			return nil, err
		}
		if n := looked[i].DisplayName; n != "" {
			c.title = n
		}
		if !looked[i].Custom.Hidden {
			visible = append(visible, i)
		}
	}
	for i := len(o.SortBy) - 1; i >= 0; i-- {
		at := f.column(o.SortBy[i].DisplayName)
		if at < 0 {
			s.note("it is sorted by %q, which is no column", o.SortBy[i].DisplayName)
			continue
		}
		f = f.sorted(at, o.SortBy[i].Desc)
	}
	t := el("table")
	cols := el("colgroup")
	head := el("tr")
	total := 0.0
	for _, i := range visible {
		c, l := f.columns[i], looked[i]
		col := el("col")
		if l.Custom.Width > 0 {
			col.set("style", fmt.Sprintf("width:%.0fpx", l.Custom.Width))
			total += l.Custom.Width
		} else {
			total += cmp.Or(l.Custom.MinWidth, autoColumn)
		}
		cols.add(col)
		th := el("th", "scope", "col", "title", c.shownName()).say(c.shownName())
		if alignRight(c, l) {
			th.set("class", "number")
		}
		head.add(th)
	}
	if wide, _ := s.room(); total > wide {
		s.note("the table is %.0f px wide and scrolls in a panel of %.0f px: columns without a width take %.0f px", total, wide, autoColumn)
	}
	t.set("style", fmt.Sprintf("min-width:%.0fpx", total))
	t.add(cols)
	if o.ShowHeader == nil || *o.ShowHeader {
		t.add(el("thead").add(head))
	}
	body := el("tbody")
	for r := range f.rows() {
		row := el("tr")
		for _, i := range visible {
			td, err := s.tableCell(f, looked[i], i, r)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", f.columns[i].shownName(), err)
			}
			row.add(td)
		}
		body.add(row)
	}
	t.add(body)
	return el("div", "class", "table", "tabindex", "0", "role", "region", "aria-label", s.panel.Title).add(t), nil
}

func alignRight(c column, l look) bool {
	switch l.Custom.Align {
	case "left", "center":
		return false
	case "right":
		return true
	}
	return c.kind == isNumber && len(l.Mappings) == 0
}

func (s *sheet) tableCell(f frame, l look, col, row int) (*node, error) {
	c := f.columns[col]
	v := c.cells[row]
	td := el("td")
	if alignRight(c, l) {
		td.set("class", "number")
	}
	if !v.present {
		return td, nil
	}
	text, colour := v.text, ""
	switch v.kind {
	case isTime:
		text = v.moment().Format("2006-01-02 15:04:05")
	case isText:
		m, is, err := l.mapping(v.text, 0, false)
		if err != nil {
			return nil, err
		}
		if is && m.Text != "" {
			text = m.Text
		}
		if is && m.Color != "" {
			if colour, err = css(m.Color); err != nil {
				return nil, err
			}
		}
	case isNumber:
		sh, err := l.show(v.number, s.now)
		if err != nil {
			return nil, err
		}
		text, colour = sh.String(), sh.colour
	}
	low, high := 0.0, 0.0
	if v.kind == isNumber {
		low, high = columnEnds(c, l)
		if colour == "" {
			var err error
			if colour, err = l.step(v.number, low, high); err != nil {
				return nil, err
			}
		}
	}
	var inner *node
	kind := l.Custom.CellOptions.Type
	switch {
	case kind == "gauge" && v.kind == isNumber:
		part := 0.0
		if high > low && !math.IsNaN(v.number) {
			part = min(max((v.number-low)/(high-low), 0), 1)
		}
		inner = el("span", "class", "cell-gauge", "style", "--c:"+colour).add(
			el("span", "class", "bar-track").add(el("span", "class", "bar-fill", "style", "width:"+percent(part))),
			el("span", "class", "bar-value").say(text))
	case kind == "color-text" && colour != "":
		inner = el("span", "class", "coloured", "style", "--c:"+colour).say(text)
	case kind == "color-background" && colour != "":
		inner = el("span", "class", "filled", "style", "--c:"+colour).say(text)
	default:
		inner = words(text)
	}
	labels := map[string]string{}
	for _, other := range f.columns {
		if cell := other.cells[row]; cell.present {
			labels[other.name] = cell.text
			if cell.kind == isNumber {
				labels[other.name] = digits(cell.number, nil)
			}
		}
	}
	if href, title := s.link(l.Links, nil, labels); href != "" {
		inner = el("a", "href", href, "title", strings.TrimSpace(text+" - "+title)).add(inner)
	} else {
		td.set("title", text)
	}
	return td.add(inner), nil
}

// columnEnds is the scale of a column's bars.
func columnEnds(c column, l look) (low, high float64) {
	var points []board.Point
	for _, v := range c.cells {
		if v.present {
			points = append(points, board.Point{Value: v.number})
		}
	}
	low, high = ends(l, []line{{points: points}})
	if l.Min == nil {
		low = min(low, 0)
	}
	return low, high
}
