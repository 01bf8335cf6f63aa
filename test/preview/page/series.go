package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// band is where one series stands at one moment: from low to high, which are the same where nothing is stacked.
type band struct {
	at        time.Time
	low, high float64
}

// stack puts series on top of each other, the first at the bottom: mode "" or "none", "normal", "percent".
// A series that has no point at a moment has none there either when it is stacked. Negative values grow
// downwards from zero, apart from the positive ones.
func stack(mode string, all [][]board.Point) [][]band {
	type sums struct{ up, down float64 }
	total := map[int64]float64{}
	for _, points := range all {
		for _, p := range points {
			if !math.IsNaN(p.Value) {
				total[p.At.UnixMilli()] += math.Abs(p.Value)
			}
		}
	}
	reached := map[int64]sums{}
	out := make([][]band, len(all))
	for i, points := range all {
		for _, p := range points {
			if math.IsNaN(p.Value) {
				continue
			}
			if mode != "normal" && mode != "percent" {
				out[i] = append(out[i], band{p.At, p.Value, p.Value})
				continue
			}
			v := p.Value
			if mode == "percent" {
				if total[p.At.UnixMilli()] == 0 {
					v = 0
				} else {
					v /= total[p.At.UnixMilli()]
				}
			}
			s := reached[p.At.UnixMilli()]
			if v < 0 {
				out[i] = append(out[i], band{p.At, s.down, s.down + v})
				s.down += v
			} else {
				out[i] = append(out[i], band{p.At, s.up, s.up + v})
				s.up += v
			}
			reached[p.At.UnixMilli()] = s
		}
	}
	return out
}

// runs cuts a series where a step is missing. With spanNulls nothing is cut.
func runs(bands []band, step time.Duration, spanNulls any) [][]band {
	widest := step + step/2
	switch span := spanNulls.(type) {
	case bool:
		if span {
			return [][]band{bands}
		}
	case float64:
		widest = max(widest, time.Duration(span)*time.Millisecond)
	}
	var out [][]band
	for i, b := range bands {
		if i == 0 || b.at.Sub(bands[i-1].at) > widest {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], b)
	}
	return out
}

type legendOptions struct {
	Legend struct {
		ShowLegend  *bool    `json:"showLegend"`
		DisplayMode string   `json:"displayMode"`
		Placement   string   `json:"placement"`
		Calcs       []string `json:"calcs"`
		SortBy      string   `json:"sortBy"`
		SortDesc    bool     `json:"sortDesc"`
	} `json:"legend"`
}

// mostSeries is how many series a graph may have before that is noted.
const mostSeries = 60

func (s *sheet) timeseries() (*node, error) {
	var o legendOptions
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := s.lines()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	drawn := slices.DeleteFunc(slices.Clone(all), func(l line) bool { return l.look.Custom.HideFrom.Viz })
	if len(drawn) > mostSeries {
		s.note("%d series in one graph cannot be told apart", len(drawn))
	}
	l0, err := s.looks.of("", "", true)
	if err != nil {
		return nil, err
	}
	// Stacks are by mode: a series whose override takes it out of the stack is drawn beside it.
	bands := make([][]band, len(drawn))
	for _, mode := range []string{"normal", "percent", "none"} {
		var points [][]board.Point
		var which []int
		for i, l := range drawn {
			if cmp.Or(l.look.Custom.Stacking.Mode, "none") == mode {
				points, which = append(points, l.points), append(which, i)
			}
		}
		for i, b := range stack(mode, points) {
			bands[which[i]] = b
		}
	}
	unit, decimals := drawnUnit(drawn, l0)
	y := s.yAxis(l0, drawn, bands, unit)
	c := chart{xs: s.timeTicks(o), yTitle: l0.Custom.AxisLabel}
	texts, err := tickTexts(y.ticks, unit, decimals, s.now)
	if err != nil {
		return nil, err
	}
	for i, t := range y.ticks {
		c.ys = append(c.ys, yLabel{y.place(t), texts[i]})
	}
	svg := picture(s.panel.Title).add(c.gridLines())
	for i := len(drawn) - 1; i >= 0; i-- {
		n, err := s.curve(drawn[i], bands[i], y)
		if err != nil {
			return nil, err
		}
		svg.add(n)
	}
	marks, err := thresholdLines(l0, y)
	if err != nil {
		return nil, err
	}
	svg.add(marks).add(s.markLines())
	out := el("div", "class", "with-legend bottom")
	if o.Legend.Placement == "right" {
		out = el("div", "class", "with-legend right")
	}
	out.add(c.around(svg))
	if o.Legend.ShowLegend == nil || *o.Legend.ShowLegend {
		n, err := s.legend(o, all)
		if err != nil {
			return nil, err
		}
		out.add(n)
	}
	return out, nil
}

// drawnUnit is the unit of the y axis: percent stacks are in percent, whatever their series are in.
func drawnUnit(drawn []line, l0 look) (string, *int) {
	if len(drawn) > 0 && drawn[0].look.Custom.Stacking.Mode == "percent" {
		return "percentunit", nil
	}
	if len(drawn) > 0 {
		return drawn[0].look.Unit, drawn[0].look.Decimals
	}
	return l0.Unit, l0.Decimals
}

func (s *sheet) yAxis(l0 look, drawn []line, bands [][]band, unit string) axis {
	low, high := math.Inf(1), math.Inf(-1)
	lowest, highest := l0.Min, l0.Max
	for i, one := range bands {
		for _, b := range one {
			low, high = min(low, b.low, b.high), max(high, b.low, b.high)
		}
		if c := drawn[i].look.Custom; c.DrawStyle == "bars" || c.Stacking.Mode == "normal" {
			low = min(low, 0)
		}
		if drawn[i].look.Custom.Stacking.Mode == "percent" {
			zero, one := 0.0, 1.0
			lowest, highest = &zero, &one
		}
	}
	if soft := l0.Custom.AxisSoftMin; soft != nil {
		low = min(low, *soft)
	}
	if soft := l0.Custom.AxisSoftMax; soft != nil {
		high = max(high, *soft)
	}
	_, room := s.room()
	return newAxis(low, high, lowest, highest, unit, int(max(2, room/38)))
}

// tickTexts writes the labels of an axis with as many decimals as say exactly where each stands, at most three.
func tickTexts(ticks []float64, unit string, decimals *int, now time.Time) ([]string, error) {
	var out []string
	for n := range 4 {
		out = out[:0]
		exact := true
		for _, t := range ticks {
			short, err := format(t, unit, &n, now)
			if err != nil {
				return nil, err
			}
			long, err := format(t, unit, new(6), now)
			if err != nil {
				return nil, err
			}
			a, errA := strconv.ParseFloat(short.number, 64)
			b, errB := strconv.ParseFloat(long.number, 64)
			exact = exact && (errA != nil || errB != nil || math.Abs(a-b) < 1e-5)
			out = append(out, short.String())
		}
		if exact && (decimals == nil || n >= min(*decimals, 1)) {
			break
		}
	}
	// Where the unit changes along the axis, as from s to mins, decimals of the larger would stand at the smaller too.
	units := map[string]bool{}
	for _, text := range out {
		_, unit, _ := strings.Cut(text, " ")
		units[strings.TrimSuffix(unit, "s")] = true
	}
	for i, text := range out {
		number, unit, spaced := strings.Cut(text, " ")
		if len(units) > 1 && spaced && strings.Contains(number, ".") {
			out[i] = strings.TrimSuffix(strings.TrimRight(number, "0"), ".") + " " + unit
		}
	}
	return out, nil
}

// curve is one series: its area, its line, and dots where a moment stands alone.
func (s *sheet) curve(l line, bands []band, y axis) (*node, error) {
	last, err := reduce("lastNotNull", l.points)
	if err != nil {
		return nil, err
	}
	colour, err := l.look.colourOf(last, y.from, y.to, l.nth)
	if err != nil {
		return nil, err
	}
	c := l.look.Custom
	width := 1.0
	if c.LineWidth != nil {
		width = *c.LineWidth
	}
	px := func(at time.Time) float64 {
		return plane * at.Sub(s.window.From).Seconds() / s.window.To.Sub(s.window.From).Seconds()
	}
	py := func(v float64) float64 { return plane * (1 - min(max(y.place(v), -0.02), 1.02)) }
	g := el("g", "style", "--c:"+colour)
	g.add(el("title").say(l.name))
	if c.DrawStyle == "bars" {
		step := plane * s.window.Step.Seconds() / s.window.To.Sub(s.window.From).Seconds()
		var d strings.Builder
		for _, b := range bands {
			low := b.low
			if b.low == b.high {
				low = max(0, y.from)
			}
			fmt.Fprintf(&d, "M%s %sh%sV%sh-%sz", near(px(b.at)-step*0.4), near(py(low)), near(step*0.8), near(py(b.high)), near(step*0.8))
		}
		return g.add(el("path", "class", "area", "style", "fill-opacity:"+num(max(c.FillOpacity, 50)/100), "d", d.String())), nil
	}
	var area, stroke trail
	for _, run := range runs(bands, s.window.Step, c.SpanNulls) {
		if len(run) == 1 {
			// A moment alone is a dash as wide as it can be seen.
			x, at := px(run[0].at), py(run[0].high)
			stroke.move(x-2, at)
			stroke.to(x+2, at)
			continue
		}
		for i, b := range run {
			x, at := px(b.at), py(b.high)
			if i == 0 {
				stroke.move(x, at)
				area.move(x, at)
				continue
			}
			if c.LineInterpolation == "stepAfter" {
				before := py(run[i-1].high)
				stroke.to(x, before)
				area.to(x, before)
			}
			stroke.to(x, at)
			area.to(x, at)
		}
		for _, b := range slices.Backward(run) {
			low := b.low
			if cmp.Or(c.Stacking.Mode, "none") == "none" {
				low = min(max(0, y.from), y.to)
			}
			area.to(px(b.at), py(low))
		}
		area.close()
	}
	if c.FillOpacity > 0 {
		g.add(el("path", "class", "area", "style", "fill-opacity:"+num(c.FillOpacity/100), "d", area.String()))
	}
	style := "stroke-width:" + num(width+0.5)
	if c.LineStyle.Fill == "dash" || c.LineStyle.Fill == "dot" {
		style += ";stroke-dasharray:" + map[string]string{"dash": "8 6", "dot": "1 4"}[c.LineStyle.Fill]
	}
	if width > 0 {
		g.add(el("path", "class", "stroke", "style", style, "d", stroke.String()))
	}
	return g, nil
}

// thresholdLines draws the thresholds that the panel wants to see and that are within its axis.
func thresholdLines(l look, y axis) (*node, error) {
	mode := l.Custom.ThresholdsStyle.Mode
	if mode == "" || mode == "off" {
		return nil, nil
	}
	g := el("g", "class", "thresholds")
	for i, step := range l.Thresholds.Steps {
		if step.Value == nil {
			continue
		}
		v := *step.Value
		if l.Thresholds.Mode == "percentage" {
			v = y.from + (y.to-y.from)*v/100
		}
		colour, err := css(step.Color)
		if err != nil {
			return nil, err
		}
		at := y.place(v)
		if strings.Contains(mode, "area") {
			top := 1.0
			if i+1 < len(l.Thresholds.Steps) && l.Thresholds.Steps[i+1].Value != nil {
				top = min(1, y.place(*l.Thresholds.Steps[i+1].Value))
			}
			if top > max(at, 0) {
				g.add(el("rect", "x", "0", "width", "1000", "y", near(plane*(1-top)), "height", near(plane*(top-max(at, 0))), "style", "fill:"+colour+";fill-opacity:.1"))
			}
		}
		if at < 0 || at > 1 || mode == "area" {
			continue
		}
		style := "stroke:" + colour
		if strings.Contains(mode, "dash") {
			style += ";stroke-dasharray:10 8"
		}
		g.add(el("line", "x1", "0", "x2", "1000", "y1", near(plane*(1-at)), "y2", near(plane*(1-at)), "style", style))
	}
	return g, nil
}

// legend lists the series, as words or as a table with their calculations.
func (s *sheet) legend(o legendOptions, all []line) (*node, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(l line) bool { return l.look.Custom.HideFrom.Legend })
	type entry struct {
		line
		values []float64
	}
	var entries []entry
	for _, l := range all {
		e := entry{line: l}
		for _, c := range o.Legend.Calcs {
			v, err := reduce(c, l.points)
			if err != nil {
				return nil, err
			}
			e.values = append(e.values, v)
		}
		entries = append(entries, e)
	}
	if at := slices.IndexFunc(o.Legend.Calcs, func(c string) bool { return calcTitle(c) == o.Legend.SortBy }); at >= 0 {
		slices.SortStableFunc(entries, func(x, y entry) int {
			if o.Legend.SortDesc {
				x, y = y, x
			}
			return cmp.Compare(x.values[at], y.values[at])
		})
	}
	colour := func(l line) (string, error) {
		last, err := reduce("lastNotNull", l.points)
		if err != nil {
			return "", err
		}
		return l.look.colourOf(last, 0, 0, l.nth)
	}
	if o.Legend.DisplayMode != "table" {
		list := el("ul", "class", "legend")
		for _, e := range entries {
			c, err := colour(e.line)
			if err != nil {
				return nil, err
			}
			item := el("li", "title", e.name).add(swatch(c)).add(el("span", "class", "name").add(s.named(e.line)))
			for i, calc := range o.Legend.Calcs {
				v, err := e.look.show(e.values[i], s.now)
				if err != nil {
					return nil, err
				}
				item.add(el("span", "class", "calc").say(calcTitle(calc) + ": " + v.String()))
			}
			list.add(item)
		}
		return list, nil
	}
	head := el("tr").add(el("th", "scope", "col").say("Name"))
	for _, c := range o.Legend.Calcs {
		head.add(el("th", "scope", "col", "class", "number").say(calcTitle(c)))
	}
	body := el("tbody")
	for _, e := range entries {
		c, err := colour(e.line)
		if err != nil {
			return nil, err
		}
		row := el("tr").add(el("td", "title", e.name).add(el("span", "class", "name").add(swatch(c), s.named(e.line))))
		for _, v := range e.values {
			text, err := e.look.show(v, s.now)
			if err != nil {
				return nil, err
			}
			row.add(el("td", "class", "number").say(text.String()))
		}
		body.add(row)
	}
	return el("div", "class", "legend-table", "tabindex", "0", "role", "region", "aria-label", "Legend of "+s.panel.Title).add(el("table").add(el("thead").add(head), body)), nil
}

// named is the name of a series; where its points have a link, the name leads there.
func (s *sheet) named(l line) *node {
	if href, title := s.link(l.look.Links, l.labels, nil); href != "" {
		return el("a", "href", href, "title", l.name+" - "+title).say(l.name)
	}
	return words(l.name)
}

func swatch(colour string) *node { return el("i", "class", "swatch", "style", "background:"+colour) }
