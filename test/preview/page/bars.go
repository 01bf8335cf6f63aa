package page

import (
	"fmt"
	"math"
)

// bargauge is a bar for each series, from the scale's lower end to its value.
func (s *sheet) bargauge() (*node, error) {
	var o statOptions
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := s.readings(o.calc())
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var plain []line
	for _, r := range all {
		l := r.line
		l.points = l.points[len(l.points)-1:]
		plain = append(plain, l)
	}
	low, high := ends(all[0].look, plain)
	if all[0].look.Min == nil {
		low = min(low, 0)
	}
	out := el("div", "class", "bars", "tabindex", "0", "role", "region", "aria-label", "Bars of "+s.panel.Title)
	for _, r := range all {
		part := 0.0
		if high > low && !math.IsNaN(r.value) {
			part = min(max((r.value-low)/(high-low), 0), 1)
		}
		name := el("span", "class", "bar-name", "title", r.name).add(s.named(r.line))
		out.add(el("div", "class", "bar", "style", "--c:"+r.colour).add(name,
			el("span", "class", "bar-track").add(el("span", "class", "bar-fill", "style", "width:"+percent(part))),
			el("span", "class", "bar-value").say(r.shown.String())))
	}
	return out, nil
}

// gauge is a half circle for each series.
func (s *sheet) gauge() (*node, error) {
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
		from, to := 0.0, 100.0
		if r.look.Unit == "percentunit" {
			to = 1
		}
		if r.look.Min != nil {
			from = *r.look.Min
		}
		if r.look.Max != nil {
			to = *r.look.Max
		}
		svg := el("svg", "viewBox", "0 0 200 116", "role", "img", "aria-label", r.name+": "+r.shown.String(), "class", "gauge")
		svg.add(el("path", "class", "track", "d", arc(0, 1)))
		if part := min(max((r.value-from)/(to-from), 0), 1); part > 0 && !math.IsNaN(part) {
			svg.add(el("path", "class", "fill", "d", arc(0, part)))
		}
		svg.add(el("text", "x", "100", "y", "98", "text-anchor", "middle").say(r.shown.String()))
		n := el("div", "class", "stat", "style", "--c:"+r.colour).add(svg)
		if len(all) > 1 || o.TextMode == "value_and_name" {
			n.add(el("div", "class", "stat-name", "title", r.name).say(r.name))
		}
		out.add(n)
	}
	return out, nil
}

// arc is a part of a half circle from the left to the right.
func arc(from, to float64) string {
	point := func(at float64) (float64, float64) {
		a := math.Pi * (1 - at)
		return 100 + 84*math.Cos(a), 100 - 84*math.Sin(a)
	}
	x1, y1 := point(from)
	x2, y2 := point(to)
	return fmt.Sprintf("M%s %sA84 84 0 0 1 %s %s", near(x1), near(y1), near(x2), near(y2))
}
