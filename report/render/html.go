package render

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

//go:embed page.html
var pageText string

// plotted is how many workloads have plots besides those with advice: it limits the page of a large fleet.
const plotted = 400

// page is what the template shows.
type page struct {
	D         *document.Document
	Priced    bool
	Decisions table
	Sums      string
	Tiles     []tile
	States    table
	Trend     template.HTML
	Advice    []adviceRow
	Levels    []levelTable
	Workloads []workloadRow
	Head      []cell // of the workloads' numbers
	Codes     []string
	Month     table
	Changes   table
	Goal      string
}

// cell is a value with the title of its column, or the title alone.
type cell struct {
	Title, Text string
	Sort        string // the raw value of a number
	Number      bool
	Query       string // PromQL of the row, in its first cell
	HTML        template.HTML
}

type table struct {
	Head []cell
	Rows [][]cell
}

type levelTable struct {
	level
	table
}

type adviceRow struct {
	*document.Advice
	About, Anchor string
}

type workloadRow struct {
	*document.Workload
	Anchor       string
	Cells        []cell
	Spark, Plots template.HTML
}

// cells are the values of a row, or the heads of its columns.
func cells[T any](columns []column[T], x T, head bool) []cell {
	out := make([]cell, len(columns))
	for i, c := range columns {
		v := c.value(x)
		_, text := v.(string)
		out[i] = cell{Title: c.title, Number: !text}
		if !head {
			out[i].Text = c.text(x)
		}
		if !head && !text {
			out[i].Sort = raw(v)
		}
	}
	return out
}

func tableOf[T any](columns []column[*T], rows []T) table {
	query := slices.IndexFunc(columns, func(c column[*T]) bool { return c.key == "query" })
	shown := titled(columns)
	t := table{Head: cells(shown, new(T), true)}
	for i := range rows {
		row := cells(shown, &rows[i], false)
		if query >= 0 {
			row[0].Query = columns[query].text(&rows[i])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func writeHTML(w io.Writer, d *document.Document, o Options) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"minute": func(t any) string {
			if p, ok := t.(*time.Time); ok {
				return units.Minute(d.Period.In(*p))
			}
			return units.Minute(d.Period.In(t.(time.Time)))
		},
		"zone":       func() string { return cmp.Or(d.Period.Zone, "UTC") },
		"span":       units.Span,
		"gpus":       units.GPUs,
		"share":      units.Share,
		"ratio":      func(x any) string { return orDash(number64(x), units.Ratio) },
		"money":      func(x *float64) string { return orDash(x, in(d)) },
		"difference": func(x any) string { return orDash(number64(x), units.Difference) },
		"hours":      func(x any) string { return orDash(number64(x), units.Hours) },
		"gib":        func(x *float64) string { return orDash(x, units.GiB) },
		"raw":        func(x any) string { return raw(x) },
		"words":      func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"saves":      func(a *document.Advice) string { return saves(d, a) },
		"bar":        stack,
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, newPage(d, o))
}

// number64 takes a number of a template, which may be absent.
func number64(x any) *float64 {
	if v, ok := x.(float64); ok {
		return &v
	}
	return x.(*float64)
}

func newPage(d *document.Document, o Options) *page {
	p := &page{D: d, Priced: d.Fleet.Cost != nil, Tiles: tiles(d), Trend: trend(d), Sums: sums(d),
		Decisions: tableOf(decisionColumns(), decisions(d)), Month: tableOf(projectionColumns(d), d.Projections)}
	if d.Comparison != nil {
		p.Changes = tableOf(changeColumns(d), d.Comparison.Changes)
	}
	if d.Goal != nil {
		p.Goal = goal(d)
	}
	states := stateColumns(d)
	p.States.Head = append(cells(states, 0, true), cell{Title: "Definition"})
	for s := range document.StateCount {
		row := append(cells(states, s, false), cell{Title: "Definition", Text: s.Quantity().Definition})
		row[0].HTML = template.HTML(fmt.Sprintf(`<span class="dot k%d"></span>%s`, s, s.Quantity().Word))
		p.States.Rows = append(p.States.Rows, row)
	}
	for _, l := range levels(d, o) {
		t := levelTable{l, tableOf(accountColumns(d, l), l.accounts)}
		bar := cell{Title: "States", Number: true}
		t.Head = slices.Insert(t.Head, 3, bar)
		for i := range t.Rows {
			a := &l.accounts[i]
			bar.HTML, bar.Sort = stack(a.States, "mini"), raw(a.States.Busy/max(a.Hours, 1e-9))
			t.Rows[i] = slices.Insert(t.Rows[i], 3, bar)
			if l.Key == "node" {
				t.Rows[i][0].HTML = template.HTML(fmt.Sprintf(`%s<br><span class="dim small">%s</span>`,
					template.HTMLEscapeString(l.name(a)), template.HTMLEscapeString(a.Model)))
			}
		}
		p.Levels = append(p.Levels, t)
	}
	anchors := map[string]string{}
	if o.shows("workload") {
		// The page shows the name, the advice and the model in its own way.
		columns := slices.DeleteFunc(titled(workloadColumns(d)), func(c column[workload]) bool {
			return c.title == "Workload" || c.key == "model" || c.key == "advice"
		})
		p.Head = cells(columns, &document.Workload{}, true)
		for i := range d.Workloads {
			w := &d.Workloads[i]
			r := workloadRow{Workload: w, Anchor: "w" + strconv.Itoa(i), Cells: cells(columns, w, false)}
			anchors[w.ID] = r.Anchor
			if w.Plot != nil && (i < plotted || w.Advice != "") {
				r.Spark, r.Plots = spark(w.Plot), plots(w)
			}
			p.Workloads = append(p.Workloads, r)
			if w.Advice != "" && !slices.Contains(p.Codes, w.Advice) {
				p.Codes = append(p.Codes, w.Advice)
			}
		}
	}
	slices.Sort(p.Codes)
	for i := range d.Advice {
		a := &d.Advice[i]
		p.Advice = append(p.Advice, adviceRow{a, about(a), anchors[a.Workload]})
	}
	return p
}

// stack draws states as one bar. Every text in it is made here, of numbers and the words of the states.
func stack(c document.States, class string) template.HTML {
	sum := c.Sum()
	var b, text strings.Builder
	for s := range document.StateCount {
		v, word := c.Of(s), s.Quantity().Word
		if sum <= 0 || v/sum < 0.0005 {
			continue
		}
		percent := template.HTMLEscapeString(units.Share(v, sum))
		fmt.Fprintf(&b, `<i class="k%d" style="width:%.2f%%" title="%s: %s"></i>`, s, 100*v/sum, word, percent)
		fmt.Fprintf(&text, "%s %s; ", word, percent)
	}
	return template.HTML(fmt.Sprintf(`<div class="bar %s" role="img" aria-label="%s">%s</div>`, class, text.String(),
		b.String()))
}

// trend draws the states over time, as columns.
func trend(d *document.Document) template.HTML {
	most := 0.0
	for _, b := range d.Trend {
		most = max(most, b.States.Sum()/b.Hours)
	}
	if most == 0 {
		return ""
	}
	const width, height, left, bottom = 1000.0, 230.0, 44.0, 24.0
	step := nice(most / 4)
	top := math.Ceil(most/step-1e-9) * step
	plotWidth, plotHeight := width-left-4, height-bottom-8
	begin, end := d.Period.From, d.Period.To
	total := end.Sub(begin).Hours()
	y := func(v float64) float64 { return 8 + plotHeight*(1-v/top) }
	x := func(t time.Time) float64 { return left + plotWidth*t.Sub(begin).Hours()/total }
	// Labels stand outside the picture, which is stretched.
	var b, ticks, axis, legend strings.Builder
	for v := 0.0; v <= top+1e-9; v += step {
		fmt.Fprintf(&b, `<line class="g" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, left, width-4, y(v), y(v))
		fmt.Fprintf(&ticks, `<span style="position:absolute;right:calc(100%% - %.2f%%);top:%.2f%%;`+
			`transform:translateY(-50%%)">%s</span>`, (left-6)/width*100, y(v)/height*100, units.GPUs(v))
	}
	for _, k := range d.Trend {
		at, columnWidth := 0.0, max(0.5, plotWidth*k.Hours/total*0.94)
		for s := range document.StateCount {
			v := k.States.Of(s) / k.Hours
			if v/top < 0.0005 {
				continue
			}
			fmt.Fprintf(&b, `<rect class="k%d" x="%.2f" width="%.2f" y="%.2f" height="%.2f"/>`, s, x(k.From),
				columnWidth,
				y(at+v), y(at)-y(at+v))
			at += v
		}
		if d.Goal != nil { // busy is the lowest
			v := y(d.Goal.Busy * k.States.Sum() / k.Hours)
			fmt.Fprintf(&b, `<line class="goal" x1="%.2f" x2="%.2f" y1="%.2f" y2="%.2f"/>`, x(k.From), x(k.From)+plotWidth*k.Hours/total,
				v, v)
		}
	}
	form, every := "2 Jan", 24*time.Hour
	if total <= 72 {
		form, every = "2 Jan 15:04", 6*time.Hour
	}
	for end.Sub(begin)/every > 8 {
		every *= 2
	}
	for t := begin.Truncate(24 * time.Hour); !t.After(end); t = t.Add(every) {
		if at := x(t) / width * 100; !t.Before(begin) && at <= 94 {
			fmt.Fprintf(&axis, `<span style="position:absolute;left:%.2f%%">%s</span>`, at, t.Format(form))
		}
	}
	for s := range document.StateCount {
		if d.Fleet.States.Of(s) > 0.0005*d.Fleet.Hours {
			fmt.Fprintf(&legend,
				`<span style="margin-right:1.1rem;white-space:nowrap"><span class="dot k%d"></span>%s</span>`,
				s, s.Quantity().Word)
		}
	}
	return template.HTML(fmt.Sprintf(`<p class="small dim">GPUs by state. %s</p><div style="position:relative">`+
		`<svg viewBox="0 0 %g %g" role="img" aria-label="GPUs by state, over time" preserveAspectRatio="none" `+
		`style="height:15rem">%s</svg><div class="small dim" style="position:absolute;inset:0">%s</div></div>`+
		`<div class="axis small dim" style="position:relative;height:1.4rem;margin-top:-1.1rem">%s</div>`,
		legend.String(), width, height, b.String(), ticks.String(), axis.String()))
}

func nice(x float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(max(x, 1e-9))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*p >= x {
			return m * p
		}
	}
	return 10 * p
}

// line draws a path through values between 0 and top; -1 breaks it.
func line(v []float64, top, height float64) string {
	var b strings.Builder
	pen := false
	for i, x := range v {
		if x < 0 {
			pen = false
			continue
		}
		if !pen {
			b.WriteByte('M')
		} else {
			b.WriteByte('L')
		}
		pen = true
		fmt.Fprintf(&b, "%d %s", i, strconv.FormatFloat(height*(1-min(1, x/top)), 'f', 1, 64))
		if i+1 == len(v) || v[i+1] < 0 {
			b.WriteString("h.8") // a single point is visible, too
		}
	}
	return b.String()
}

// area draws columns from the ground up to values.
func area(v []float64, top, height float64) string {
	var b strings.Builder
	for i, x := range v {
		if x > 0 {
			fmt.Fprintf(&b, "M%d %gV%sh1V%gz", i, height, strconv.FormatFloat(height*(1-min(1, x/top)), 'f', 1, 64),
				height)
		}
	}
	return b.String()
}

func spark(p *document.Plot) template.HTML {
	return template.HTML(
		fmt.Sprintf(`<svg class="s" viewBox="0 0 %d 24" preserveAspectRatio="none" aria-hidden="true">`+
			`<path class="b" d="%s"/><path class="a" d="%s"/></svg>`, len(p.Busy), area(p.Peak, 1, 24),
			line(p.Busy, 1, 23)))
}

// plots draws a workload over time. Its captions and paths are made of numbers.
func plots(w *document.Workload) template.HTML {
	p := w.Plot
	var b strings.Builder
	figure := func(caption string, paths ...string) {
		fmt.Fprintf(&b,
			`<figure><svg class="p" viewBox="0 0 %d 60" preserveAspectRatio="none" role="img" aria-label="%s">`+
				`<line class="g" x1="0" x2="%d" y1="30" y2="30"/>`, len(p.Busy), caption, len(p.Busy))
		for i := 0; i < len(paths); i += 2 {
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, paths[i], paths[i+1])
		}
		fmt.Fprintf(&b, `</svg><figcaption>%s</figcaption></figure>`, caption)
	}
	figure("Busy: mean, and the highest 5 minutes behind it; top is 100 %", "b", area(p.Peak, 1, 60), "a",
		line(p.Busy, 1, 59))
	if top := slices.Max(append([]float64{0}, p.Memory...)); top > 0 {
		if w.MemoryTotal != nil {
			top = max(top, *w.MemoryTotal)
		}
		figure("Memory of one container on one GPU; top is "+units.GiB(top), "m", line(p.Memory, top, 59))
	}
	if top := slices.Max(append([]float64{0}, p.GPUs...)); top > 0 {
		figure("Allocated GPUs; top is "+units.GPUs(math.Ceil(top*100)/100), "b", area(p.GPUs, top, 58))
	}
	return template.HTML(`<div class="plots">` + b.String() + "</div>")
}
