package page

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// span is a stretch of time in which a series had one state.
type stretch struct {
	from, to time.Time
	shown    shown
	colour   string
}

// stretches joins moments that look the same. A missing step ends a stretch.
func (s *sheet) stretches(l line) ([]stretch, error) {
	var out []stretch
	var last time.Time
	for _, p := range l.points {
		if math.IsNaN(p.Value) {
			continue
		}
		v, err := l.look.show(p.Value, s.now)
		if err != nil {
			return nil, err
		}
		colour := v.colour
		if colour == "" {
			if colour, err = l.look.colourOf(p.Value, 0, 0, l.nth); err != nil {
				return nil, err
			}
		}
		// A state holds until the next moment that was asked for, but not past the window.
		until := p.At.Add(s.window.Step)
		if until.After(s.window.To) {
			until = s.window.To
		}
		if n := len(out); n > 0 && p.At.Sub(last) <= s.window.Step+s.window.Step/2 && out[n-1].shown == v && out[n-1].colour == colour {
			out[n-1].to = until
		} else {
			if n > 0 && out[n-1].to.After(p.At) {
				out[n-1].to = p.At
			}
			out = append(out, stretch{p.At, until, v, colour})
		}
		last = p.At
	}
	return out, nil
}

func (s *sheet) timeline() (*node, error) {
	var o struct {
		legendOptions
		ShowValue string `json:"showValue"`
	}
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := s.lines()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	rows := el("div", "class", "timeline-rows")
	type state struct{ text, colour string }
	var seen []state
	for _, l := range all {
		parts, err := s.stretches(l)
		if err != nil {
			return nil, err
		}
		track := el("div", "class", "timeline-track")
		length := s.window.To.Sub(s.window.From).Seconds()
		for _, p := range parts {
			if st := (state{p.shown.String(), p.colour}); !slices.Contains(seen, st) {
				seen = append(seen, st)
			}
			left := max(0, p.from.Sub(s.window.From).Seconds()/length)
			width := min(p.to.Sub(s.window.From).Seconds()/length, 1) - left
			if width <= 0 {
				width = 0.002
				left = min(left, 1-width)
			}
			b := el("span", "style", "left:"+percent(left)+";width:"+percent(width)+";background:"+p.colour,
				"title", l.name+": "+p.shown.String()+", "+p.from.UTC().Format("15:04")+" to "+p.to.UTC().Format("15:04"))
			wide, _ := s.room()
			if o.ShowValue == "always" || o.ShowValue == "auto" && width*wide > 7*float64(len(p.shown.String())) {
				b.say(p.shown.String())
			}
			track.add(b)
		}
		rows.add(el("div", "class", "timeline-row").add(el("span", "class", "timeline-name", "title", l.name).add(s.named(l)), track))
	}
	times := el("div", "class", "x-axis", "aria-hidden", "true")
	for _, x := range s.timeTicks(o.legendOptions) {
		times.add(el("span", "style", "left:"+percent(x.at)).say(x.text))
	}
	out := el("div", "class", "timeline").add(rows, el("div", "class", "timeline-row").add(el("span", "class", "timeline-name"), times))
	if o.Legend.ShowLegend == nil || *o.Legend.ShowLegend {
		list := el("ul", "class", "legend")
		order := s.mappingOrder(all[0].look)
		slices.SortStableFunc(seen, func(a, b state) int { return order(a.text) - order(b.text) })
		for _, st := range seen {
			list.add(el("li", "title", st.text).add(swatch(st.colour), el("span", "class", "name").say(st.text)))
		}
		out.add(list)
	}
	return out, nil
}

// mappingOrder is the order in which the mapping names its states.
func (s *sheet) mappingOrder(l look) func(string) int {
	order := map[string]int{}
	for _, m := range l.Mappings {
		var options map[string]mapped
		if m.Type == "value" && json.Unmarshal(m.Options, &options) == nil {
			for _, r := range options {
				order[r.Text] = r.Index
			}
		}
	}
	return func(text string) int {
		if n, ok := order[text]; ok {
			return n
		}
		return len(order)
	}
}
