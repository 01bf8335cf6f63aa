package page

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

type statOptions struct {
	ReduceOptions struct {
		Calcs  []string `json:"calcs"`
		Values bool     `json:"values"`
	} `json:"reduceOptions"`
	GraphMode   string `json:"graphMode"`
	ColorMode   string `json:"colorMode"`
	TextMode    string `json:"textMode"`
	DisplayMode string `json:"displayMode"`
	Orientation string `json:"orientation"`
	JustifyMode string `json:"justifyMode"`
}

func (o statOptions) calc() string {
	if len(o.ReduceOptions.Calcs) == 0 {
		return "lastNotNull"
	}
	return o.ReduceOptions.Calcs[0]
}

// reading is one number of a stat, a gauge or a bar gauge.
type reading struct {
	line
	value  float64
	shown  shown
	colour string
}

// readings reduces every series to its number.
func (s *sheet) readings(calc string) ([]reading, error) {
	all, err := s.lines()
	if err != nil {
		return nil, err
	}
	var out []reading
	for _, l := range all {
		r := reading{line: l}
		if r.value, err = reduce(calc, l.points); err != nil {
			return nil, err
		}
		if r.shown, err = l.look.show(r.value, s.now); err != nil {
			return nil, err
		}
		low, high := ends(l.look, []line{l})
		if r.colour = r.shown.colour; r.colour == "" {
			if r.colour, err = l.look.colourOf(r.value, low, high, l.nth); err != nil {
				return nil, err
			}
		}
		if math.IsNaN(r.value) && r.shown.colour == "" {
			r.colour = "var(--muted)"
		}
		out = append(out, r)
	}
	return out, nil
}

// ends of a scale: what the field says, else what its values reach.
func ends(l look, all []line) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, one := range all {
		for _, p := range one.points {
			if !math.IsNaN(p.Value) {
				low, high = min(low, p.Value), max(high, p.Value)
			}
		}
	}
	if l.Min != nil {
		low = *l.Min
	}
	if l.Max != nil {
		high = *l.Max
	}
	return low, high
}

func (s *sheet) stat() (*node, error) {
	var o statOptions
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := s.readings(o.calc())
	if err != nil || len(all) == 0 {
		return nil, err
	}
	wide, high := s.room()
	columns, rows := arrange(len(all), wide, high, o.Orientation)
	out := el("div", "class", "stats", "style", fmt.Sprintf("grid-template-columns:repeat(%d,minmax(0,1fr));grid-template-rows:repeat(%d,minmax(0,1fr))", columns, rows))
	for _, r := range all {
		if o.TextMode == "name" {
			r.shown.amount = amount{number: r.name}
		}
		named := o.TextMode == "value_and_name" || len(all) > 1 && (o.TextMode == "auto" || o.TextMode == "")
		class, style := "stat", "--c:"+r.colour
		if strings.HasPrefix(o.ColorMode, "background") {
			class += " filled"
		}
		if o.ColorMode == "none" {
			style = "--c:var(--ink)"
		}
		n := el("div", "class", class, "style", style)
		if o.GraphMode == "area" && len(r.points) > 1 {
			n.add(s.spark(r.line))
		}
		if named {
			n.add(el("div", "class", "stat-name", "title", r.name).say(r.name))
		}
		if o.TextMode != "none" {
			room := 100.0
			if named {
				room = 62
			}
			// A number is as large as its cell lets it be: 0.6 of its size is how wide a digit is.
			long := float64(utf8.RuneCountInString(r.shown.number)) + 0.65*float64(utf8.RuneCountInString(r.shown.unit))
			if r.shown.unit != "" && r.shown.unit != "%" {
				long += 0.4
			}
			big := el("div", "class", "stat-value", "style", fmt.Sprintf("font-size:max(12px,min(%.0fcqh,%.1fcqw,56px))", room*0.62, 92/(long*0.6)))
			big.say(r.shown.number)
			if r.shown.unit != "" && o.TextMode != "name" {
				big.add(el("span", "class", "unit").say(r.shown.unit))
			}
			inner := big
			if href, title := s.link(r.look.Links, r.labels, nil); href != "" {
				inner = el("a", "href", href, "title", title).add(big)
			}
			n.add(inner)
		}
		out.add(n)
	}
	return out, nil
}

// arrange puts n readings into cells that are about twice as wide as high.
func arrange(n int, wide, high float64, orientation string) (columns, rows int) {
	switch orientation {
	case "horizontal":
		return 1, n
	case "vertical":
		return n, 1
	}
	best := 0.0
	columns, rows = n, 1
	for c := 1; c <= n; c++ {
		r := (n + c - 1) / c
		// The side of the letters that fit, for numbers of about five digits.
		if fit := min(wide/float64(c)/3.5, high/float64(r)); fit > best*1.001 {
			best, columns, rows = fit, c, r
		}
	}
	return columns, rows
}

// spark is the course of a value, small and without axes.
func (s *sheet) spark(l line) *node {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range l.points {
		if !math.IsNaN(p.Value) {
			low, high = min(low, p.Value), max(high, p.Value)
		}
	}
	if low > high {
		return nil
	}
	if l.look.Min != nil {
		low = min(low, *l.look.Min)
	}
	if low == high {
		low, high = low-1, high+1
	}
	a := axis{from: low, to: high}
	length := s.window.To.Sub(s.window.From).Seconds()
	svg := picture("Course of "+l.name).set("class", "spark")
	var bands []band
	for _, p := range l.points {
		if !math.IsNaN(p.Value) {
			bands = append(bands, band{p.At, low, p.Value})
		}
	}
	for _, run := range runs(bands, s.window.Step, l.look.Custom.SpanNulls) {
		var top, area trail
		x := func(b band) float64 { return plane * b.at.Sub(s.window.From).Seconds() / length }
		for _, b := range run {
			y := plane * (0.95 - 0.9*a.place(b.high))
			top.to(x(b), y)
			area.to(x(b), y)
		}
		area.to(x(run[len(run)-1]), plane)
		area.to(x(run[0]), plane)
		area.close()
		svg.add(el("path", "class", "stroke", "d", top.String()), el("path", "class", "area", "d", area.String()))
	}
	return svg
}
