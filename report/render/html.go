package render

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report"
)

//go:embed page.html
var pageText string

// plotted is how many workloads have plots beside those with advice: a page of a large fleet stays a page.
const plotted = 400

// page is what the template shows.
type page struct {
	D         *report.Document
	Priced    bool
	Energy    bool
	Tiles     []tile
	Cells     []cellRow
	Trend     template.HTML
	Advice    []adviceRow
	Levels    []levelRows
	Workloads []workloadRow
	Codes     []string
}

type tile struct{ Value, Label string }

type cellRow struct {
	Index       int
	Title, Help string
	Hours       float64
	Cost        *float64
}

type adviceRow struct {
	A      *report.Advice
	Who    string
	Anchor string
}

type levelRows struct {
	Key, Title string
	Rows       []accountRow
}

type accountRow struct {
	Name string
	A    *report.Account
}

type workloadRow struct {
	W            *report.Workload
	Anchor       string
	Spark, Plots template.HTML
}

func writeHTML(w io.Writer, d *report.Document, o Options) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"moment": func(t any) string {
			switch t := t.(type) {
			case time.Time:
				return moment(t)
			case *time.Time:
				return moment(*t)
			}
			return "–"
		},
		"span":    span,
		"gpus":    devs,
		"part":    part,
		"ratio":   ratio,
		"percent": func(x float64) string { return part(x, 1) },
		"money":   money,
		"closing": func(x any) string { return closing(number(x)) },
		"hours":   func(x any) string { return hours(number(x)) },
		"gib": func(x *float64) string {
			return gibibytes(x)
		},
		"val": func(x *float64) any {
			if x == nil {
				return ""
			}
			return *x
		},
		"words":   func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"bar":     stack,
		"useful":  func(a *report.Account) float64 { return a.Cells.Useful / max(a.Hours, 1e-9) },
		"unknown": func(a *report.Account) float64 { return a.Cells.Unobserved + a.Cells.NotReported },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, newPage(d, o))
}

// number is a figure that may be absent, which counts as 0 where a template has looked before.
func number(x any) float64 {
	switch x := x.(type) {
	case float64:
		return x
	case *float64:
		if x != nil {
			return *x
		}
	}
	return 0
}

func newPage(d *report.Document, o Options) *page {
	p := &page{D: d, Priced: costs(d), Energy: d.Fleet.EnergyKWh != nil, Trend: trend(d)}
	f := &d.Fleet
	say := func(value, label string) { p.Tiles = append(p.Tiles, tile{value, label}) }
	say(part(f.Cells.Useful, f.Hours), "of all GPU-hours were useful")
	say(hours(f.Waste()), "GPU-hours held and not used, as many as "+devs(f.Waste()/max(d.Window.Hours, 1e-9))+" GPUs")
	say(hours(f.Reclaimable), "of them idle for 30 minutes and more at a time")
	saved := 0.0
	var cost *float64
	for i := range d.Advice {
		a := &d.Advice[i]
		if a.Workload == "" {
			continue
		}
		saved += a.SavedHours
		if a.SavedCost != nil {
			v := *a.SavedCost
			if cost != nil {
				v += *cost
			}
			cost = &v
		}
	}
	text := "GPU-hours that advice on workloads would have saved"
	if cost != nil {
		text += ", " + money(cost, d.Currency)
	}
	say(hours(saved), text)
	if p.Priced {
		waste := d.Fleet.CellCost.Idle + d.Fleet.CellCost.Gap + d.Fleet.CellCost.Unallocated + d.Fleet.CellCost.Unavailable
		say(money(&waste, d.Currency), "of "+money(d.Fleet.Cost, d.Currency)+" paid for hours without work")
	}
	if f.EnergyKWh != nil {
		label := "kWh"
		if f.EnergyCost != nil {
			label += ", " + money(f.EnergyCost, d.Currency)
		}
		say(hours(*f.EnergyKWh), label)
	}
	say(part(f.Coverage, 1), "of the hours are known; the cells close to "+fmt.Sprintf("%.3f %%", 100*math.Abs(d.Checks.ClosingError)))
	for _, c := range cells() {
		r := cellRow{Index: int(c), Title: c.Title(), Help: c.Help(), Hours: f.Cells.Of(c)}
		if f.CellCost != nil {
			v := f.CellCost.Of(c)
			r.Cost = &v
		}
		p.Cells = append(p.Cells, r)
	}
	for _, l := range levels(d, o) {
		rows := levelRows{Key: l.key, Title: l.title}
		for i := range l.accounts {
			rows.Rows = append(rows.Rows, accountRow{l.name(&l.accounts[i]), &l.accounts[i]})
		}
		p.Levels = append(p.Levels, rows)
	}
	anchors := map[string]string{}
	if o.shows("workload") {
		for i := range d.Workloads {
			w := &d.Workloads[i]
			r := workloadRow{W: w, Anchor: "w" + strconv.Itoa(i)}
			anchors[w.ID] = r.Anchor
			if w.Plot != nil && (i < plotted || w.Advice != "") {
				r.Spark = spark(w.Plot)
				r.Plots = plots(w, d)
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
		p.Advice = append(p.Advice, adviceRow{a, who(a), anchors[a.Workload]})
	}
	return p
}

// stack draws a partition as one bar. Every text in it is made here, of numbers and our own words.
func stack(c report.Cells, class string) template.HTML {
	sum := c.Sum()
	var b, said strings.Builder
	for _, cell := range cells() {
		v := c.Of(cell)
		if sum <= 0 || v/sum < 0.0005 {
			continue
		}
		fmt.Fprintf(&b, `<i class="k%d" style="width:%.2f%%" title="%s: %s"></i>`, cell, 100*v/sum, cell.Title(), template.HTMLEscapeString(part(v, sum)))
		fmt.Fprintf(&said, "%s %s; ", cell.Title(), part(v, sum))
	}
	return template.HTML(fmt.Sprintf(`<div class="bar %s" role="img" aria-label="%s">%s</div>`, class, template.HTMLEscapeString(said.String()), b.String()))
}

// trend draws the partition over time, as columns.
func trend(d *report.Document) template.HTML {
	if len(d.Trend) == 0 {
		return ""
	}
	const width, height, left, bottom = 1000.0, 230.0, 44.0, 24.0
	most := 0.0
	for _, b := range d.Trend {
		most = max(most, b.Cells.Sum()/b.Hours)
	}
	if most == 0 {
		return ""
	}
	step := nice(most / 4)
	top := math.Ceil(most/step-1e-9) * step
	plotWidth, plotHeight := width-left-4, height-bottom-8
	begin, end := d.Window.From, d.Window.To
	total := end.Sub(begin).Hours()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="GPUs by what they did, over time" preserveAspectRatio="none" style="height:15rem">`, width, height)
	y := func(v float64) float64 { return 8 + plotHeight*(1-v/top) }
	for v := 0.0; v <= top+1e-9; v += step {
		fmt.Fprintf(&b, `<line class="g" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, left, width-4, y(v), y(v))
	}
	for _, k := range d.Trend {
		x := left + plotWidth*k.From.Sub(begin).Hours()/total
		w := plotWidth * k.Hours / total
		at := 0.0
		for _, c := range cells() {
			v := k.Cells.Of(c) / k.Hours
			if v/top < 0.0005 {
				continue
			}
			fmt.Fprintf(&b, `<rect class="k%d" x="%.2f" width="%.2f" y="%.2f" height="%.2f"/>`, c, x, max(0.5, w*0.94), y(at+v), y(at)-y(at+v))
			at += v
		}
	}
	b.WriteString("</svg>")
	// Labels stand outside the picture, which is stretched.
	var axis strings.Builder
	form, every := "2 Jan", 24*time.Hour
	if total <= 72 {
		form, every = "2 Jan 15:04", 6*time.Hour
	}
	for end.Sub(begin)/every > 8 {
		every *= 2
	}
	for t := begin.Truncate(24 * time.Hour); !t.After(end); t = t.Add(every) {
		if t.Before(begin) {
			continue
		}
		pos := (left + plotWidth*t.Sub(begin).Hours()/total) / width * 100
		if pos > 94 {
			break
		}
		fmt.Fprintf(&axis, `<span style="position:absolute;left:%.2f%%">%s</span>`, pos, t.Format(form))
	}
	var ticks strings.Builder
	for v := 0.0; v <= top+1e-9; v += step {
		fmt.Fprintf(&ticks, `<span style="position:absolute;right:calc(100%% - %.2f%%);top:%.2f%%;transform:translateY(-50%%)">%s</span>`, (left-6)/width*100, y(v)/height*100, template.HTMLEscapeString(devs(v)))
	}
	var legend strings.Builder
	for _, c := range cells() {
		if d.Fleet.Cells.Of(c) > 0.0005*d.Fleet.Hours {
			fmt.Fprintf(&legend, `<span style="margin-right:1.1rem;white-space:nowrap"><span class="dot k%d"></span>%s</span>`, c, c.Title())
		}
	}
	return template.HTML(fmt.Sprintf(`<p class="small dim">GPUs by what they did. %s</p><div style="position:relative">%s<div class="small dim" style="position:absolute;inset:0">%s</div></div><div class="axis small dim" style="position:relative;height:1.4rem;margin-top:-1.1rem">%s</div>`,
		legend.String(), b.String(), ticks.String(), axis.String()))
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
			b.WriteString("h.8") // a single point is seen, too
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

func spark(p *report.Plot) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="s" viewBox="0 0 %d 24" preserveAspectRatio="none" aria-hidden="true"><path class="b" d="%s"/><path class="a" d="%s"/></svg>`,
		len(p.Activity), area(p.Peak, 1, 24), line(p.Activity, 1, 23)))
}

func plots(w *report.Workload, d *report.Document) template.HTML {
	p := w.Plot
	figure := func(caption, inner string) string {
		return fmt.Sprintf(`<figure><svg class="p" viewBox="0 0 %d 60" preserveAspectRatio="none" role="img" aria-label="%s"><line class="g" x1="0" x2="%d" y1="30" y2="30"/>%s</svg><figcaption>%s</figcaption></figure>`,
			len(p.Activity), caption, len(p.Activity), inner, caption)
	}
	var b strings.Builder
	b.WriteString(`<div class="plots">`)
	b.WriteString(figure("Activity: mean, and the highest 5 minutes behind it; top is 100 %", fmt.Sprintf(`<path class="b" d="%s"/><path class="a" d="%s"/>`, area(p.Peak, 1, 60), line(p.Activity, 1, 59))))
	top := 0.0
	for _, v := range p.Memory {
		top = max(top, v)
	}
	if top > 0 {
		if w.MemoryTotal != nil {
			top = max(top, *w.MemoryTotal)
		}
		b.WriteString(figure("Memory of one container on one GPU; top is "+template.HTMLEscapeString(gibibytes(&top)), fmt.Sprintf(`<path class="m" d="%s"/>`, line(p.Memory, top, 59))))
	}
	most := 0.0
	for _, v := range p.GPUs {
		most = max(most, v)
	}
	if most > 0 {
		b.WriteString(figure("GPUs held; top is "+template.HTMLEscapeString(devs(math.Ceil(most*100)/100)), fmt.Sprintf(`<path class="b" d="%s"/>`, area(p.GPUs, most, 58))))
	}
	b.WriteString("</div>")
	return template.HTML(b.String())
}
