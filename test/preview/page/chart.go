package page

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// plane is the unit in which pictures are drawn: 1000 by 1000, stretched to whatever room there is. Letters
// are never part of a picture, so that they are not stretched with it.
const plane = 1000.0

func num(v float64) string { return strconv.FormatFloat(v, 'f', -1, 32) }

func near(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func percent(part float64) string { return strconv.FormatFloat(part*100, 'f', 2, 64) + "%" }

// picture is an SVG that fills its room. The label says what it shows to those who do not see it.
func picture(label string) *node {
	return el("svg", "viewBox", "0 0 1000 1000", "preserveAspectRatio", "none", "role", "img", "aria-label", label)
}

// chart lays a picture out between its axes. The labels of the y axis stand at their places from the bottom,
// 0 to 1; xs may be empty.
type chart struct {
	ys     []yLabel
	xs     []timeTick
	yTitle string
}

type yLabel struct {
	at   float64
	text string
}

// around puts the axes around a picture.
func (c chart) around(svg *node) *node {
	longest := 0
	axis := el("div", "class", "y-axis", "aria-hidden", "true")
	for _, y := range c.ys {
		longest = max(longest, utf8.RuneCountInString(y.text))
		axis.add(el("span", "style", "top:"+percent(1-y.at)).say(y.text))
	}
	axis.set("style", fmt.Sprintf("width:%.1fch", float64(longest)*1.02+0.8))
	times := el("div", "class", "x-axis", "aria-hidden", "true")
	for _, x := range c.xs {
		times.add(el("span", "style", "left:"+percent(x.at)).say(x.text))
	}
	out := el("div", "class", "chart")
	if c.yTitle != "" {
		out.add(el("div", "class", "y-title").say(c.yTitle))
	}
	return out.add(axis, el("div", "class", "plot").add(svg, times))
}

// gridLines are drawn first, below everything.
func (c chart) gridLines() *node {
	g := el("g", "class", "grid-lines")
	for _, y := range c.ys {
		g.add(el("line", "x1", "0", "x2", "1000", "y1", near(plane*(1-y.at)), "y2", near(plane*(1-y.at))))
	}
	for _, x := range c.xs {
		g.add(el("line", "y1", "0", "y2", "1000", "x1", near(plane*x.at), "x2", near(plane*x.at)))
	}
	return g
}
