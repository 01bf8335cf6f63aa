package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
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

// trail writes the path of a line. Its points are rounded to a quarter of the plane's unit and written as steps
// from one to the next; a point in the middle of a level stretch is left out. A board may have a hundred
// thousand points, and its page should still open at once.
type trail struct {
	b      strings.Builder
	x, y   int // where the pen is, in quarters
	open   bool
	toX    int // the end of a level stretch that is not written yet
	behind bool
}

func quarters(v float64) int { return int(math.Round(v * 4)) }

func (t *trail) move(x, y float64) {
	t.flush()
	t.x, t.y, t.open = quarters(x), quarters(y), true
	fmt.Fprintf(&t.b, "M%s %s", quarter(t.x), quarter(t.y))
}

// to draws a line from where the pen is; the first point of a trail is moved to.
func (t *trail) to(x, y float64) {
	if !t.open {
		t.move(x, y)
		return
	}
	nx, ny := quarters(x), quarters(y)
	if ny == t.y && (!t.behind || (nx > t.toX) == (t.toX > t.x)) {
		t.toX, t.behind = nx, true
		return
	}
	t.flush()
	if nx != t.x || ny != t.y {
		fmt.Fprintf(&t.b, "l%s %s", quarter(nx-t.x), quarter(ny-t.y))
		t.x, t.y = nx, ny
	}
}

func (t *trail) flush() {
	if t.behind && t.toX != t.x {
		fmt.Fprintf(&t.b, "h%s", quarter(t.toX-t.x))
		t.x = t.toX
	}
	t.behind = false
}

// close leads the line back to where it was moved to last.
func (t *trail) close() {
	t.flush()
	t.b.WriteString("z")
	t.open = false
}

func (t *trail) String() string {
	t.flush()
	return t.b.String()
}

func quarter(n int) string { return strconv.FormatFloat(float64(n)/4, 'f', -1, 64) }

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

// breadth is about how wide a text is, in widths of a digit.
func breadth(text string) float64 {
	sum := 0.0
	for _, r := range text {
		switch {
		case r == '%' || r == 'W' || r == 'M' || r == 'm' || r == 'w':
			sum += 1.65
		case r == ' ' || r == '.' || r == 'i' || r == 'l':
			sum += 0.6
		case unicode.IsUpper(r):
			sum += 1.35
		default:
			sum += 1.05
		}
	}
	return sum
}

// around puts the axes around a picture.
func (c chart) around(svg *node) *node {
	longest := 0.0
	axis := el("div", "class", "y-axis", "aria-hidden", "true")
	for _, y := range c.ys {
		longest = max(longest, breadth(y.text))
		axis.add(el("span", "style", "top:"+percent(1-y.at)).say(y.text))
	}
	axis.set("style", fmt.Sprintf("width:min(%.1fch,38cqw)", longest+1.2))
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
