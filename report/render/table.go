package render

import (
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// column is a column of a list, from which every format is made: text, Markdown and the page show its title and text, CSV its name and raw
// value, the page instead of the text what is drawn, and the documentation its name, unit and meaning.
type column[T any] struct {
	// name is the CSV header, whose ending is the unit; empty if CSV does not have the column. CURRENCY and LABEL stand for those of the
	// document. title is the heading; empty if only CSV has the column.
	name, title, meaning string
	text                 func(T) string // nil: the number in its unit
	number               func(T) *float64
	at                   func(T) *time.Time
	drawn                func(T) template.HTML
}

// number is a column of numbers, optional one of numbers that may be absent.
func number[T any](name, title, meaning string, of func(T) float64) column[T] {
	return optional(name, title, meaning, func(x T) *float64 { return new(of(x)) })
}

func optional[T any](name, title, meaning string, of func(T) *float64) column[T] {
	return column[T]{name: name, title: title, meaning: meaning, number: of}
}

// label is a column of text.
func label[T any](name, title, meaning string, of func(T) string) column[T] {
	return column[T]{name: name, title: title, meaning: meaning, text: of}
}

// instant is a column of times.
func instant[T any](d *document.Document, name, title, meaning string, of func(T) *time.Time) column[T] {
	return column[T]{name: name, title: title, meaning: meaning, at: of, text: func(x T) string {
		if at := of(x); at != nil {
			return units.Minute(d.Period.In(*at))
		}
		return "–"
	}}
}

// unit is what a number is in: the ending of its name, words for the documentation, the factor of the value in CSV, and the text for a
// reader.
type unit struct {
	ending, words string
	factor        float64
	text          func(float64) string
}

func unitOf(d *document.Document, name string) unit {
	for _, u := range []unit{{"gpu_hours", "GPU-hours", 1, units.Hours}, {"hours", "hours", 1, units.Span},
		{"percent", "%", 100, units.Ratio}, {"gib", "GiB", 1. / (1 << 30), units.GiB},
		{"kwh", "kWh", 1, units.Hours}, {"gpus", "GPUs", 1, units.GPUs},
		{currency, "currency of the prices", 1, in(d)}} {
		if _, rest, ok := strings.Cut("_"+name+"_", "_"+u.ending+"_"); ok {
			if strings.HasPrefix(rest, "per_") {
				u.words += " " + strings.Join(strings.Split(rest, "_")[:2], " ")
			}
			return u
		}
	}
	return unit{"", "number", 1, units.Whole}
}

// In names of columns these stand for the currency of the prices and for the label by which workloads are added up.
const (
	currency   = "CURRENCY"
	groupLabel = "LABEL"
)

// cell is a value of a list, or the head of a column.
type cell struct {
	name, Title, Text, Sort string // Sort is the raw value
	unit, meaning           string
	Number                  bool
	HTML                    template.HTML
	page                    bool // text formats do not have it
}

// table is a list in all formats.
type table struct {
	Key, Title string
	Head       []cell
	Rows       [][]cell
}

// inText reports whether formats for a reader have the table: it says more than the fleet's figures.
func (t *table) inText() bool {
	return t.Title != "" && (len(t.Rows) > 1 || len(t.Rows) == 1 && t.Key != "cluster" && t.Key != "past")
}

// tableOf makes a table. A column of numbers in which no row has one has no title: only CSV has it.
func tableOf[T any](d *document.Document, key, title string, columns []column[*T], rows []T) table {
	t := table{Key: key, Title: title, Rows: make([][]cell, len(rows))}
	for k, c := range columns {
		u := unitOf(d, c.name)
		head := cell{name: c.name, Title: c.title, Number: c.number != nil, page: c.text == nil && c.drawn != nil, meaning: c.meaning}
		switch {
		case c.number != nil:
			head.unit = u.words
		case c.at != nil:
			head.unit = "time, UTC"
		}
		t.Head = append(t.Head, head)
		empty := len(rows) > 0
		for i := range rows {
			x, row := head, &rows[i]
			switch {
			case c.text != nil:
				x.Text = c.text(row)
			case c.number != nil:
				x.Text = orDash(c.number(row), u.text)
			}
			switch {
			case c.number != nil:
				if v := c.number(row); v != nil {
					x.Sort = raw(*v * u.factor)
				}
			case c.at != nil:
				if at := c.at(row); at != nil {
					x.Sort = at.Format(time.RFC3339)
				}
			default:
				if x.Sort = units.Clean(x.Text); x.Sort != "" && strings.ContainsRune("=+-@", rune(x.Sort[0])) {
					x.Sort = "'" + x.Sort // a spreadsheet takes no name for a formula
				}
			}
			if c.drawn != nil {
				x.HTML = c.drawn(row)
			}
			empty = empty && c.number != nil && c.number(row) == nil
			t.Rows[i] = append(t.Rows[i], x)
		}
		if empty {
			t.Head[k].Title = ""
			for i := range rows {
				t.Rows[i][k].Title = ""
			}
		}
	}
	return t
}

func orDash(x *float64, format func(float64) string) string {
	if x == nil {
		return "–"
	}
	return format(*x)
}

// in formats amounts of the document's currency.
func in(d *document.Document) func(float64) string {
	return func(x float64) string { return units.Money(x, d.Currency) }
}

// raw writes a number for a program, without an exponent.
func raw(x float64) string { return strconv.FormatFloat(math.Round(x*1e6)/1e6, 'f', -1, 64) }
