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
	Levels    []table
	Workloads []workloadRow
	Head      []cell // of the workloads' numbers
	Codes     []string
	Month     table
	Changes   table
	Goal      string
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
		"words":      func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"saves":      func(a *document.Advice) string { return saves(d, a) },
		"bar":        stack,
		"query": func(row []cell) string {
			for _, c := range row {
				if c.name == "query" {
					return c.Text
				}
			}
			return ""
		},
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
	p := &page{D: d, Priced: d.Fleet.Cost != nil, Tiles: tiles(d), Trend: trend(d), Sums: sums(d), States: stateTable(d),
		Decisions: tableOf(d, "decision", "", decisionColumns(), decisions(d))}
	if d.Goal != nil {
		p.Goal = goal(d)
	}
	anchors := map[string]string{}
	for _, t := range lists(d, o) {
		switch {
		case t.Key == "workload":
			// The page shows the name, the advice and the model in its own way.
			own := func(row []cell) []cell {
				return slices.DeleteFunc(slices.Clone(row), func(c cell) bool {
					return c.Title == "Workload" || c.Title == "Advice" || c.name == "model"
				})
			}
			p.Head = own(t.Head)
			for i, row := range t.Rows {
				w := &d.Workloads[i]
				r := workloadRow{Workload: w, Anchor: "w" + strconv.Itoa(i), Cells: own(row)}
				anchors[w.ID] = r.Anchor
				if w.Plot != nil && (i < plotted || w.Advice != "") {
					r.Spark, r.Plots = spark(w.Plot), plots(w)
				}
				p.Workloads = append(p.Workloads, r)
				if w.Advice != "" && !slices.Contains(p.Codes, w.Advice) {
					p.Codes = append(p.Codes, w.Advice)
				}
			}
		case t.Key == "projection":
			p.Month = t
		case t.Key == "change":
			p.Changes = t
		case t.Key != "advice" && t.inText():
			p.Levels = append(p.Levels, t)
		}
	}
	slices.Sort(p.Codes)
	for i := range d.Advice {
		a := &d.Advice[i]
		p.Advice = append(p.Advice, adviceRow{a, about(a), anchors[a.Workload]})
	}
	return p
}

// trend draws the states over time, as columns.
func trend(d *document.Document) template.HTML {
	most := 0.0
	for _, k := range d.Trend {
		most = max(most, k.States.Sum()/k.Hours)
	}
	if most == 0 {
		return ""
	}
	var b, legend strings.Builder
	form := map[bool]string{true: "2 Jan 15:04", false: "2 Jan"}[d.Period.Hours <= 72]
	for i, k := range d.Trend {
		label, line := "", ""
		if i%max(1, (len(d.Trend)+7)/8) == 0 {
			label = d.Period.In(k.From).Format(form)
		}
		if d.Goal != nil { // busy is the lowest
			line = fmt.Sprintf(`<u class="goal" style="bottom:%.2f%%"></u>`, 100*d.Goal.Busy)
		}
		fmt.Fprintf(&b, `<div class="col" style="flex:%g"><div style="height:%.2f%%">%s%s</div><span>%s</span></div>`, k.Hours,
			100*k.States.Sum()/k.Hours/most, stack(k.States, "up"), line, label)
	}
	for s := range document.StateCount {
		if d.Fleet.States.Of(s) > 0.0005*d.Fleet.Hours {
			fmt.Fprintf(&legend, `<span><span class="dot k%d"></span>%s</span> `, s, s.Quantity().Word)
		}
	}
	return template.HTML(fmt.Sprintf(`<p class="small dim keys">GPUs by state; the top is %s GPUs. %s</p><div class="trend">%s</div>`,
		units.GPUs(math.Ceil(most)), legend.String(), b.String()))
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
			fmt.Fprintf(&b, "M%d %gV%sh1V%gz", i, height, strconv.FormatFloat(height*(1-min(1, x/top)), 'f', 1, 64), height)
		}
	}
	return b.String()
}

func spark(p *document.Plot) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="s" viewBox="0 0 %d 24" preserveAspectRatio="none" aria-hidden="true">`+
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
	figure("Busy: mean, and the highest 5 minutes behind it; top is 100 %", "b", area(p.Peak, 1, 60), "a", line(p.Busy, 1, 59))
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
