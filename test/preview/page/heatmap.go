package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

type heatmapOptions struct {
	Color struct {
		Mode     string  `json:"mode"`
		Scheme   string  `json:"scheme"`
		Exponent float64 `json:"exponent"`
		Reverse  bool    `json:"reverse"`
		Fill     string  `json:"fill"`
	} `json:"color"`
	CellValues struct {
		Unit string `json:"unit"`
	} `json:"cellValues"`
	YAxis struct {
		Unit string `json:"unit"`
	} `json:"yAxis"`
	Legend struct {
		Show *bool `json:"show"`
	} `json:"legend"`
}

// heatmap draws each series as one row, the first at the bottom. Series of a histogram are told by their le:
// they are taken apart into what each bucket holds alone.
func (s *sheet) heatmap() (*node, error) {
	var o heatmapOptions
	if err := s.options(&o); err != nil {
		return nil, err
	}
	all, err := s.lines()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(s.answers, func(a Answer) bool { return a.Target.Format == "heatmap" }) {
		all = apart(all)
	}
	highest := 0.0
	for _, l := range all {
		for _, p := range l.points {
			if !math.IsNaN(p.Value) {
				highest = max(highest, p.Value)
			}
		}
	}
	colours, ok := scheme(o.Color.Scheme)
	if !ok {
		if o.Color.Scheme != "" {
			s.note("options.color.scheme %s is not known: drawn in Oranges", o.Color.Scheme)
		}
		colours, _ = scheme("Oranges")
	}
	if o.Color.Reverse {
		colours = reversed(colours)
	}
	from, length := s.window.From, s.window.To.Sub(s.window.From).Seconds()
	step := plane * s.window.Step.Seconds() / length
	c := chart{xs: s.timeTicks(legendOptions{})}
	svg := picture(s.panel.Title)
	row := plane / float64(len(all))
	_, high := s.room()
	every := 1 + int(float64(len(all))*18/max(high-60, 18))
	// Cells that are only a few pixels wide have no room for a gap between them.
	class := "cell"
	if wide, _ := s.room(); step/plane*wide < 6 {
		class = "cell tight"
	}
	for i, l := range all {
		if i%every == 0 {
			c.ys = append(c.ys, yLabel{(float64(i) + 0.5) / float64(len(all)), l.name})
		}
		for _, p := range l.points {
			if math.IsNaN(p.Value) || p.Value <= 0 {
				continue
			}
			text, err := format(p.Value, o.CellValues.Unit, nil, s.now)
			if err != nil {
				return nil, err
			}
			colour := between(colours, shadeOf(p.Value/highest, o.Color.Exponent))
			svg.add(el("rect", "class", class, "x", near(plane*p.At.Sub(from).Seconds()/length-step), "y", near(plane-row*float64(i+1)),
				"width", near(step+0.3), "height", near(row), "style", "fill:"+colour).
				add(el("title").say(fmt.Sprintf("%s, %s: %s", p.At.UTC().Format("15:04"), l.name, text))))
		}
	}
	out := el("div", "class", "with-legend bottom").add(c.around(svg))
	if o.Legend.Show == nil || *o.Legend.Show {
		top, err := format(highest, o.CellValues.Unit, nil, s.now)
		if err != nil {
			return nil, err
		}
		var stops []string
		for i := range 11 {
			stops = append(stops, between(colours, shadeOf(float64(i)/10, o.Color.Exponent)))
		}
		out.add(el("div", "class", "colour-scale").say("0").add(el("i", "style", "background:linear-gradient(to right,"+strings.Join(stops, ",")+")")).say(top.String()))
	}
	return out, nil
}

// shadeOf is Grafana's exponent: below 1 it tells small values apart better.
func shadeOf(part, exponent float64) float64 {
	if exponent == 0 {
		exponent = 0.5
	}
	return math.Pow(part, exponent)
}

// apart turns cumulative buckets into single ones, lowest first.
func apart(all []line) []line {
	bound := func(l line) float64 {
		v, err := strconv.ParseFloat(l.labels["le"], 64)
		if err != nil {
			return math.Inf(1)
		}
		return v
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(x, y line) int {
		switch a, b := bound(x), bound(y); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	below := map[int64]float64{}
	for i := range out {
		points := make([]board.Point, 0, len(out[i].points))
		for _, p := range out[i].points {
			at := p.At.UnixMilli()
			points = append(points, board.Point{At: p.At, Value: max(0, p.Value-below[at])})
			below[at] = p.Value
		}
		out[i].points = points
	}
	return out
}
