package dashboards

import (
	"slices"
	"strings"
)

// kind is how a panel shows its series: the plugin's name in Grafana.
type kind string

const (
	kindStat     kind = "stat"
	kindSeries   kind = "timeseries"
	kindTable    kind = "table"
	kindTimeline kind = "state-timeline"
	kindHeatmap  kind = "heatmap"
	kindBars     kind = "bargauge"
	kindText     kind = "text"
)

// Panel is one panel. It is built by the constructors below, whose methods return changed copies.
type Panel struct {
	kind        kind
	width       int
	title, help string
	unit        Unit
	decimals    int // below 0: Grafana decides
	queries     []Query
	columns     []Column // of a table
	sortBy      string   // title of the column; a leading minus means largest first
	limits      [2]*float64
	softMax     *float64 // end of the scale unless values exceed it
	steps       []Step
	mappings    []Mapping
	stack       string // "", "normal", "percent"
	drawBars    bool
	colors      map[string]string
	links       []Link
	text        string
	names       string            // what a stat shows of its series' names: "", "value_and_name", "name"
	seriesSteps map[string][]Step // thresholds of single series of a stat
	empty       string            // what an empty panel says; "": by what it reads
	points      int               // maximum number of points of a series; 0: as many as the panel has pixels
}

// Query is one PromQL expression. In its braces, <node> and its like stand for the matchers of the dashboard's
// variables (see selectors).
type Query struct {
	Expr, Legend string
}

func q(legend, expr string) Query { return Query{Expr: expr, Legend: legend} }

// stat is one number, or a few.
func stat(width int, title string, unit Unit, expr, help string) Panel {
	return Panel{kind: kindStat, width: width, title: title, help: help, unit: unit, decimals: -1,
		queries: []Query{{Expr: expr}}}
}

// series is values over time. Legends name node and index where GPUs are shown.
func series(width int, title string, unit Unit, help string, queries ...Query) Panel {
	return Panel{kind: kindSeries, width: width, title: title, help: help, unit: unit, decimals: -1, queries: queries}
}

// table is one row per combination of labels, now.
func table(width int, title, sortBy, help string, columns ...Column) Panel {
	return Panel{kind: kindTable, width: width, title: title, help: help, unit: Number, decimals: -1, columns: columns,
		sortBy: sortBy}
}

// timeline is states over time. The mapping names and colors them.
func timeline(width int, title, help string, mappings []Mapping, queries ...Query) Panel {
	return Panel{kind: kindTimeline, width: width, title: title, help: help, unit: Plain, decimals: -1,
		queries: queries, mappings: mappings}
}

// bars is the largest of many, now.
func bars(width int, title string, unit Unit, help string, query Query) Panel {
	return Panel{kind: kindBars, width: width, title: title, help: help, unit: unit, decimals: -1,
		queries: []Query{query}}
}

// heatmap counts series by their value over time. Each query is one bucket, lowest first.
func heatmap(width int, title string, help string, queries ...Query) Panel {
	return Panel{kind: kindHeatmap, width: width, title: title, help: help, unit: Number, decimals: -1,
		queries: queries}
}

// note is words, in Markdown.
func note(width int, title, help, text string) Panel {
	return Panel{kind: kindText, width: width, title: title, help: help, unit: Plain, decimals: -1, text: text}
}

// at sets thresholds: where the action differs, not where the number looks large.
func (p Panel) at(steps ...Step) Panel { p.steps = steps; return p }

// between sets the ends of the scale.
func (p Panel) between(lowest, highest float64) Panel {
	p.limits = [2]*float64{&lowest, &highest}
	return p
}

// from sets the lower end of the scale.
func (p Panel) from(lowest float64) Panel { p.limits = [2]*float64{&lowest, nil}; return p }

// share scales the axis from 0 to 1, or further where a value is above it.
func (p Panel) share() Panel { p = p.from(0); p.softMax = new(1.0); return p }

// digits sets the number of decimals.
func (p Panel) digits(n int) Panel { p.decimals = n; return p }

// stacked puts series on top of each other; percent makes them fill the height.
func (p Panel) stacked() Panel { p.stack = "normal"; return p }

// events draws counts as bars: a line would suggest values between two events.
func (p Panel) events() Panel { p.stack, p.drawBars = "normal", true; return p }

func (p Panel) percent() Panel { p.stack = "percent"; return p }

// colored fixes the colors of series by their legends.
func (p Panel) colored(byName map[string]string) Panel { p.colors = byName; return p }

// withNames shows the legend beside each number of a stat.
func (p Panel) withNames(legend string) Panel {
	p.names = "value_and_name"
	p.queries = slices.Clone(p.queries)
	p.queries[0].Legend = legend
	return p
}

// namesOnly shows which series there are, and not their values.
func (p Panel) namesOnly(legend string) Panel {
	p = p.withNames(legend)
	p.names = "name"
	return p
}

// mapped names values.
func (p Panel) mapped(m ...Mapping) Panel {
	p.mappings = append(slices.Clone(p.mappings), m...)
	return p
}

// among keeps the rows of a table for which the filter has an element with the same labels. Without it every
// column brings the rows that only it has.
func (p Panel) among(labels, filter string) Panel {
	p.columns = slices.Clone(p.columns)
	for i := range p.columns {
		if c := &p.columns[i]; c.label == "" {
			c.expr = "(" + c.expr + ") and on (" + labels + ") (" + filter + ")"
		}
	}
	return p
}

// sixHours are the points of coarse series on dashboards of six hours: one every five minutes.
const sixHours = 72

// coarse limits the points of each series: what reads every GPU or workload at each step costs so much less.
func (p Panel) coarse(points int) Panel { p.points = points; return p }

// called sets what the panel says while it is empty.
func (p Panel) called(text string) Panel { p.empty = text; return p }

// to adds links.
func (p Panel) to(links ...Link) Panel { p.links = append(slices.Clone(p.links), links...); return p }

// ifUp distinguishes "not supported" from "not collected": where the expression is empty while
// presence has data, the value is the sentinel that is shown as N/A; where both are empty, so is the panel.
func (p Panel) ifUp(presence string) Panel {
	p.queries = slices.Clone(p.queries)
	// Without labels on both sides, or both would be shown.
	p.queries[0].Expr = "max(" + p.queries[0].Expr + ") or (0 * max(" + presence + ") - 1)"
	return p.mapped(Mapping{Value: "-1", Text: "N/A", Color: Gray})
}

// Column is one column of a table: a label, or a value with its query.
type Column struct {
	title string
	label string // a label's name; empty: a value
	expr  string
	unit  Unit
	width int
	link  *Link
	steps []Step
	names []Mapping
	bar   bool
	grows bool // width is a minimum
	// hidden columns are there for the links of others.
	hidden bool
}

// label is a column that shows a label of the rows.
func label(name, title string) Column { return Column{label: name, title: title, unit: Text} }

// value is a column with a number of its own.
func value(title string, unit Unit, expr string) Column {
	return Column{title: title, unit: unit, expr: expr}
}

func (c Column) to(l Link) Column           { c.link = &l; return c }
func (c Column) at(steps ...Step) Column    { c.steps = steps; return c }
func (c Column) mapped(m ...Mapping) Column { c.names = m; return c }
func (c Column) wide(pixels int) Column     { c.width = pixels; return c }
func (c Column) atLeast(pixels int) Column  { c.width, c.grows = pixels, true; return c }
func (c Column) hide() Column               { c.hidden = true; return c }
func (c Column) gauge(steps ...Step) Column { c.bar = true; c.steps = steps; return c }

func (p Panel) valueColumns() (exprs []Query) {
	for _, c := range p.columns {
		if c.label == "" {
			exprs = append(exprs, Query{Expr: c.expr})
		}
	}
	return exprs
}

// allQueries returns what the panel asks, in the order of the refIds.
func (p Panel) allQueries() []Query {
	if p.kind == kindTable {
		return p.valueColumns()
	}
	return p.queries
}

// sortKey splits the panel's sort order.
func (p Panel) sortKey() (title string, descending bool) {
	title, descending = strings.CutPrefix(p.sortBy, "-")
	return title, descending
}
