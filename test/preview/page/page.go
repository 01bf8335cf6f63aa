package page

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

//go:embed style.css
var style string

// Request is what is to be drawn.
type Request struct {
	Board  board.Board
	Values board.Values
	// Texts are what stands at the top instead of a variable's value: node and index of a card for its UUID.
	Texts map[string]string
	// From and To are the window; Scrape is the interval of the scrapes.
	From, To time.Time
	Scrape   time.Duration
	// RangeFrom and RangeTo are how links name the window: now-6h and now.
	RangeFrom, RangeTo string
	Links              Links
	// Others are the boards to which the head leads.
	Others []board.Board
	// Source says where the answers come from.
	Source string
}

// Found is what a panel showed.
type Found struct {
	Board, Panel, Type string
	// Series counts what all its queries answered.
	Series int
	// Notes are what was not drawn as the panel asks for it.
	Notes []string
	// Err is why the panel could not be drawn.
	Err error
}

// Empty says that a panel with queries has nothing to show.
func (f Found) Empty() bool {
	return f.Err == nil && f.Series == 0 && f.Type != "text" && f.Type != "row"
}

// Draw asks every query of a board and draws the page. A panel that cannot be drawn says why in its place and
// in what is returned; the error is for what concerns the whole page. At most four queries run at a time.
func Draw(ctx context.Context, from Asker, r Request) (string, []Found, error) {
	marks, err := askMarks(ctx, from, r)
	if err != nil {
		return "", nil, err
	}
	var panels []board.Panel
	for _, p := range r.Board.Panels {
		if p.Type != "row" {
			panels = append(panels, p)
		}
	}
	bodies, found := make([]*node, len(panels)), make([]Found, len(panels))
	var group sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i, p := range panels {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			bodies[i], found[i] = drawPanel(ctx, from, r, p, marks)
		})
	}
	group.Wait()
	return document(r, panels, bodies, found).page(), found, nil
}

// windowOf is the window of a panel: its step is that of Grafana for a panel of this width, aligned as Grafana
// aligns it.
func windowOf(r Request, p board.Panel) board.Window {
	var raw struct {
		Interval      string  `json:"interval"`
		MaxDataPoints float64 `json:"maxDataPoints"`
	}
	_ = json.Unmarshal(p.Raw, &raw) // Raw was read before; what is missing stays zero
	wide, _ := size(p.W, p.H)
	points := cmp.Or(raw.MaxDataPoints, wide)
	step := roundInterval(time.Duration(float64(r.To.Sub(r.From)) / points))
	if least, err := time.ParseDuration(raw.Interval); err == nil {
		step = max(step, least)
	}
	step = max(step, r.Scrape, time.Second)
	return board.Window{From: r.From.Truncate(step), To: r.To.Truncate(step), Now: r.To, Step: step, Scrape: r.Scrape}
}

// roundInterval takes a step to the next round one.
func roundInterval(d time.Duration) time.Duration {
	for _, round := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
		if d <= round {
			return round
		}
	}
	return 24 * time.Hour
}

func drawPanel(ctx context.Context, from Asker, r Request, p board.Panel, marks []moment) (*node, Found) {
	f := Found{Board: r.Board.UID, Panel: p.Title, Type: p.Type}
	ls, err := newLooks(p)
	if err == nil {
		f.Notes, err = Unknown(p)
	}
	w := windowOf(r, p)
	s := &sheet{board: r.Board, panel: p, looks: ls, window: w, values: r.Values, links: r.Links, now: r.To, rangeFrom: r.RangeFrom, rangeTo: r.RangeTo, marks: marks}
	var body *node
	if err == nil {
		s.answers, err = Ask(ctx, from, r.Board, p, r.Values, w)
	}
	for _, a := range s.answers {
		f.Series += len(a.Series)
	}
	if err == nil {
		body, err = s.draw()
	}
	f.Notes = append(f.Notes, s.notes...)
	switch {
	case err != nil:
		f.Err = fmt.Errorf("board %s: panel %q: %w", r.Board.UID, p.Title, err)
		body = el("div", "class", "failed").add(el("b").say("Not drawn")).add(el("span").say(err.Error()))
	case body == nil:
		text := "No data"
		if l, err := ls.of("", "", true); err == nil {
			text = noValue(l)
		}
		body = el("div", "class", "empty").say(text)
	}
	return body, f
}

// askMarks asks the annotations that are switched on.
func askMarks(ctx context.Context, from Asker, r Request) ([]moment, error) {
	var out []moment
	for _, m := range r.Board.Marks {
		if !m.Enable || m.Expr == "" {
			continue
		}
		step := max(time.Minute, roundInterval(r.To.Sub(r.From)/1000))
		w := board.Window{From: r.From.Truncate(step), To: r.To.Truncate(step), Step: step, Scrape: r.Scrape}
		query, err := r.Board.Fill(m.Expr, r.Values, w)
		if err != nil {
			return nil, err
		}
		series, err := from.Range(ctx, query, w)
		if err != nil {
			return nil, fmt.Errorf("board %s: annotation %q: %w", r.Board.UID, m.Name, err)
		}
		colour, err := css(m.IconColor)
		if err != nil {
			return nil, fmt.Errorf("board %s: annotation %q: %w", r.Board.UID, m.Name, err)
		}
		for _, s := range series {
			var last time.Time
			for _, p := range s.Points {
				// Points side by side are one region; its beginning is what is marked.
				if p.At.Sub(last) > step+step/2 {
					out = append(out, moment{p.At, legend(m.Title, s.Labels) + ": " + legend(m.Text, s.Labels), colour})
				}
				last = p.At
			}
		}
	}
	return out, nil
}

// rows groups panels by the heading under which they stand.
func rowsOf(b board.Board) (headings []board.Panel) {
	headings = []board.Panel{{}}
	for _, p := range b.Panels {
		if p.Type == "row" {
			headings = append(headings, p)
		}
	}
	return headings
}

func document(r Request, panels []board.Panel, bodies []*node, found []Found) *node {
	main := el("main")
	for _, h := range rowsOf(r.Board) {
		grid := el("div", "class", "grid")
		top := -1
		for _, p := range panels {
			if p.Row == h.Title && (top < 0 || p.Y < top) {
				top = p.Y
			}
		}
		for i, p := range panels {
			if p.Row != h.Title {
				continue
			}
			place := fmt.Sprintf("grid-column:%d/span %d;grid-row:%d/span %d", p.X+1, p.W, p.Y-top+1, p.H)
			head := el("h3").say(p.Title)
			section := el("section", "class", "panel is-"+p.Type, "id", fmt.Sprintf("panel-%d", p.ID), "style", place, "title", p.Description)
			if p.Title != "" {
				section.add(el("header").add(head).add(info(p.Description)))
			}
			if len(found[i].Notes) > 0 {
				section.set("data-notes", strings.Join(found[i].Notes, "; "))
			}
			grid.add(section.add(el("div", "class", "body").add(bodies[i])))
		}
		if len(grid.kids) == 0 {
			continue
		}
		if h.Title != "" {
			head := el("h2").say(h.Title)
			if h.Collapsed {
				head.add(el("small").say("closed in Grafana until it is clicked"))
			}
			main.add(head)
		}
		main.add(grid)
	}
	return shell(r.Board.Title, el("div").add(top(r, found), main))
}

// info marks a panel that has a description; the words are the panel's title attribute.
func info(description string) *node {
	if description == "" {
		return nil
	}
	return el("span", "class", "info", "aria-label", description, "role", "note").say("i")
}

func top(r Request, found []Found) *node {
	notice := el("p", "class", "notice").add(el("b").say("Preview, not Grafana.")).
		say(" Drawn from the definitions that Grafana loads and from live answers of " + r.Source + ". Times are UTC.")
	bar := el("div", "class", "title-bar").add(el("h1").say(r.Board.Title))
	bar.add(el("span", "class", "range").say(r.From.UTC().Format("2006-01-02 15:04") + " to " + r.To.UTC().Format("2006-01-02 15:04")))
	vars := el("div", "class", "variables")
	for _, v := range r.Board.Variables {
		if v.Type == "datasource" {
			continue
		}
		chosen := strings.Join(r.Values[v.Name], " + ")
		switch {
		case len(r.Values[v.Name]) == 0 && (v.Type == "textbox" || v.Type == "constant" || v.Type == "custom"):
			chosen = v.Query
		case len(r.Values[v.Name]) == 0:
			chosen = "All"
		}
		if text := r.Texts[v.Name]; text != "" {
			chosen = text
		}
		vars.add(el("span", "class", "variable").add(el("b").say(cmp.Or(v.Label, v.Name)), el("span").say(chosen)))
	}
	boards := el("nav", "aria-label", "Boards")
	for _, b := range r.Others {
		if href, ok := r.Links(b.UID, url.Values{}); ok {
			a := el("a", "href", href, "title", b.Description).say(b.Title)
			if b.UID == r.Board.UID {
				a.set("aria-current", "page")
			}
			boards.add(a)
		}
	}
	empty, failed := 0, 0
	for _, f := range found {
		if f.Empty() {
			empty++
		}
		if f.Err != nil {
			failed++
		}
	}
	count := fmt.Sprintf("%d panels", len(found))
	if empty > 0 {
		count += fmt.Sprintf(", %d without data", empty)
	}
	if failed > 0 {
		count += fmt.Sprintf(", %d not drawn", failed)
	}
	return el("div", "class", "top").add(notice, boards, bar, el("p", "class", "question").say(r.Board.Description).add(el("span", "class", "count").say(count)), vars)
}

// shell is a whole page.
func shell(title string, body *node) *node {
	css := el("style")
	css.text = strings.NewReplacer("/*dark*/", shadeRules(true), "/*light*/", shadeRules(false)).Replace(style)
	return el("html", "lang", "en").add(
		el("head").add(el("meta", "charset", "utf-8"), el("meta", "name", "viewport", "content", "width=device-width"),
			el("meta", "name", "color-scheme", "content", "dark light"), el("title").say(title+" (preview)"), css),
		el("body").add(body))
}

func (n *node) page() string { return "<!doctype html>\n" + n.String() + "\n" }

// Index is the page that leads to the boards and says what each of them found.
func Index(boards []board.Board, found []Found, links Links, source string) string {
	rows := el("tbody")
	for _, b := range boards {
		href, ok := links(b.UID, url.Values{})
		if !ok {
			continue
		}
		panels, series := 0, 0
		var empty, failed []string
		for _, f := range found {
			if f.Board != b.UID {
				continue
			}
			panels++
			series += f.Series
			if f.Empty() {
				empty = append(empty, f.Panel)
			}
			if f.Err != nil {
				failed = append(failed, f.Err.Error())
			}
		}
		slices.Sort(empty)
		rows.add(el("tr").add(el("td").add(el("a", "href", href).say(b.Title)), el("td").say(b.Description), el("td", "class", "number").say(fmt.Sprint(panels)),
			el("td", "class", "number").say(fmt.Sprint(series)), el("td").say(strings.Join(empty, ", ")), el("td").say(strings.Join(failed, "; "))))
	}
	head := el("tr")
	for _, h := range []string{"Board", "What it answers", "Panels", "Series", "Panels without data", "Not drawn"} {
		th := el("th", "scope", "col").say(h)
		if h == "Panels" || h == "Series" {
			th.set("class", "number")
		}
		head.add(th)
	}
	return shell("GPU boards", el("div").add(
		el("div", "class", "top").add(el("p", "class", "notice").add(el("b").say("Preview, not Grafana.")).say(" Drawn from the definitions that Grafana loads and from live answers of "+source+"."),
			el("div", "class", "title-bar").add(el("h1").say("GPU boards"))),
		el("main").add(el("section", "class", "panel index").add(el("div", "class", "body").add(el("table").add(el("thead").add(head), rows)))))).page()
}
