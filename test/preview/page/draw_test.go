package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// fixed answers every query with the series under its text; a range query gets each series as it is.
type fixed map[string][]board.Series

func (f fixed) Instant(_ context.Context, query string, _ time.Time) ([]board.Series, error) {
	var out []board.Series
	for _, s := range f[query] {
		out = append(out, board.Series{Labels: s.Labels, Points: s.Points[len(s.Points)-1:]})
	}
	return out, nil
}

func (f fixed) Range(_ context.Context, query string, _ board.Window) ([]board.Series, error) {
	return f[query], nil
}

func (f fixed) Choices(_ context.Context, _ board.Board, v board.Variable, _ board.Values, _ board.Window) ([]string, error) {
	return []string{"n10", "n9"}, nil
}

func series(values []float64, labels ...string) board.Series {
	s := one(0, labels...)
	s.Points = points(values...)
	return s
}

// panel reads a panel's JSON as board does.
func panel(t *testing.T, text string) board.Panel {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Fatalf("no JSON: %s", text)
	}
	b, err := board.Read([]byte(`{"uid":"b","title":"B","panels":[` + text + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return b.Panels[0]
}

// drawOne draws a board of one panel over ten minutes.
func drawOne(t *testing.T, answers fixed, text string) (string, Found) {
	t.Helper()
	b := board.Board{UID: "b", Title: "B", Panels: []board.Panel{panel(t, text)}, Variables: []board.Variable{{Name: "cluster", Type: "query", All: true, Multi: true}}}
	html, found, err := Draw(t.Context(), answers, request(b))
	if err != nil {
		t.Fatal(err)
	}
	_, main, _ := strings.Cut(html, "<main>")
	return main, found[0]
}

func request(b board.Board) Request {
	return Request{Board: b, From: start, To: start.Add(10 * time.Minute), Scrape: time.Minute, RangeFrom: "now-6h", RangeTo: "now", Source: "a test",
		Links: func(uid string, query url.Values) (string, bool) {
			return uid + ".html?" + query.Encode(), strings.HasPrefix(uid, "gpu-")
		}}
}

const steps = `"thresholds":{"mode":"absolute","steps":[{"color":"green","value":null},{"color":"red","value":80}]}`

func TestPanels(t *testing.T) {
	answers := fixed{
		"one":   {series([]float64{10, 90}, "gpu", "0")},
		"two":   {series([]float64{1, 2, 3}, "gpu", "0", "node", "n1"), series([]float64{3, 2, 1}, "gpu", "1", "node", "n1")},
		"state": {series([]float64{1, 1, 0, 0, 1}, "gpu", "0")},
		"heat":  {series([]float64{1, 4, 0}, "at", "0"), series([]float64{4, 2, 1}, "at", "50")},
		"le":    {series([]float64{5}, "le", "+Inf"), series([]float64{2}, "le", "1"), series([]float64{4}, "le", "2")},
	}
	const target = `"targets":[{"refId":"A","expr":"%s","legendFormat":"%s"}]`
	q := func(expr, legend string) string { return fmt.Sprintf(target, expr, legend) }
	for _, c := range []struct {
		name, panel string
		want        []string // what the page has
		not         []string
	}{
		{"a number with its unit and its threshold's colour", `{"type":"stat","title":"T","gridPos":{"w":6,"h":4},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"watt",` + steps + `}},"options":{"graphMode":"none"}}`,
			[]string{`>90<span class="unit">W</span>`, `--c:var(--red)`}, []string{"<svg"}},
		{"a number with its course", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"graphMode":"area"}}`, []string{`class="spark"`}, nil},
		{"the mean", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"reduceOptions":{"calcs":["mean"]}}}`, []string{`>50</div>`}, nil},
		{"a mapping wins over unit and threshold", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"watt",` + steps + `,"mappings":[{"type":"value","options":{"90":{"text":"hot","color":"purple"}}}]}}}`,
			[]string{">hot<", "--c:var(--purple)"}, []string{"90"}},
		{"a range of values has a name", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"none","mappings":[{"type":"range","options":{"from":50,"to":null,"result":{"text":"much"}}}]}}}`, []string{">much<"}, nil},
		{"several numbers have names", `{"type":"stat","gridPos":{"w":12,"h":4},` + q("two", "GPU {{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"textMode":"value_and_name"}}`, []string{">GPU 0<", ">GPU 1<", ">3<", ">1<"}, nil},
		{"nothing is said plainly", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("none", "") + `,"fieldConfig":{"defaults":{"unit":"none"}}}`, []string{">No data<"}, nil},
		{"noValue", `{"type":"stat","gridPos":{"w":6,"h":4},` + q("none", "") + `,"fieldConfig":{"defaults":{"unit":"none","noValue":"nobody asks"}}}`, []string{">nobody asks<"}, nil},
		{"a graph", `{"type":"timeseries","gridPos":{"w":12,"h":8},` + q("two", "{{node}} GPU {{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"percent","min":0,"custom":{"fillOpacity":10,"thresholdsStyle":{"mode":"dashed"}},"thresholds":{"mode":"absolute","steps":[{"color":"green","value":null},{"color":"red","value":2}]}}},"options":{"legend":{"displayMode":"table","placement":"right","calcs":["mean","lastNotNull"]}}}`,
			[]string{">n1 GPU 0<", ">Mean<", ">Last *<", `>2%<`, "stroke:var(--red);stroke-dasharray", `class="area"`, ">3%<"}, nil},
		{"a stack in percent", `{"type":"timeseries","gridPos":{"w":12,"h":8},` + q("two", "{{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"short","custom":{"stacking":{"mode":"percent"},"fillOpacity":70}}}}`, []string{">100%<", ">0%<"}, []string{">120%<"}},
		{"a colour by name", `{"type":"timeseries","gridPos":{"w":12,"h":8},` + q("two", "GPU {{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"short","color":{"mode":"palette-classic"}},"overrides":[{"matcher":{"id":"byName","options":"GPU 1"},"properties":[{"id":"color","value":{"mode":"fixed","fixedColor":"#8e8e8e"}}]}]}}`,
			[]string{"--c:#8e8e8e", "--c:" + classicColour(0)}, []string{"--c:" + classicColour(1)}},
		{"bars", `{"type":"bargauge","gridPos":{"w":12,"h":8},` + q("two", "GPU {{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"h","min":0}},"options":{"orientation":"horizontal"}}`, []string{`width:100.00%`, `width:33.33%`, ">3 hours<", ">1 hour<"}, nil},
		{"a gauge", `{"type":"gauge","gridPos":{"w":6,"h":8},` + q("one", "") + `,"fieldConfig":{"defaults":{"unit":"percent",` + steps + `}}}`, []string{`class="fill"`, ">90%<", "--c:var(--red)"}, nil},
		{"states", `{"type":"state-timeline","gridPos":{"w":12,"h":8},` + q("state", "GPU {{gpu}}") + `,"fieldConfig":{"defaults":{"unit":"none","mappings":[{"type":"value","options":{"0":{"text":"idle","color":"orange","index":1},"1":{"text":"busy","color":"green","index":0}}}]}}}`,
			[]string{`style="left:0.00%;width:20.00%;background:var(--green)"`, `style="left:20.00%;width:20.00%;background:var(--orange)"`, ">busy<", ">idle<"}, nil},
		{"a heatmap", `{"type":"heatmap","gridPos":{"w":12,"h":8},` + q("heat", "{{at}}") + `,"fieldConfig":{"defaults":{"unit":"short"}},"options":{"color":{"scheme":"Oranges","exponent":1}}}`,
			[]string{">0<", ">50<", "fill:#7f2704", "08:01, 50: 2"}, []string{": 0<"}},
		{"a histogram is taken apart", `{"type":"heatmap","gridPos":{"w":12,"h":8},"targets":[{"refId":"A","expr":"le","legendFormat":"{{le}}","format":"heatmap"}],"fieldConfig":{"defaults":{"unit":"short"}}}`,
			[]string{", 1: 2<", ", 2: 2<", ", +Inf: 1<"}, nil},
		{"words", `{"type":"text","gridPos":{"w":12,"h":8},"options":{"mode":"markdown","content":"# Head\n\nA **bold** word, ` + "`code`" + ` and [a board](/d/gpu-fleet/x?${cluster:queryparam}).\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | <b>2</b> |"}}`,
			[]string{"<h4>Head</h4>", "<b>bold</b>", "<code>code</code>", `<a href="gpu-fleet.html?">a board</a>`, "<ul><li>one</li><li>two</li></ul>", "<th>a</th>", "&lt;b&gt;2&lt;/b&gt;"}, []string{"<b>2"}},
	} {
		html, found := drawOne(t, answers, c.panel)
		if found.Err != nil {
			t.Errorf("%s: %v", c.name, found.Err)
		}
		for _, want := range c.want {
			if !strings.Contains(html, want) {
				t.Errorf("%s: the page has no %s:\n%s", c.name, want, html)
			}
		}
		for _, not := range c.not {
			if strings.Contains(html, not) {
				t.Errorf("%s: the page has %s:\n%s", c.name, not, html)
			}
		}
	}
}

func TestTable(t *testing.T) {
	answers := fixed{
		"util": {one(0.9, "__name__", "u", "node", "n9", "uuid", "a&b"), one(0.2, "node", "n10", "uuid", "c")},
		"temp": {one(61, "node", "n9", "uuid", "a&b")},
	}
	html, found := drawOne(t, answers, `{"type":"table","title":"Cards","gridPos":{"w":24,"h":8},
	  "targets":[{"refId":"A","expr":"util","instant":true,"format":"table"},{"refId":"B","expr":"temp","instant":true,"format":"table"}],
	  "transformations":[{"id":"merge","options":{}},{"id":"organize","options":{"excludeByName":{"Time":true,"__name__":true},"indexByName":{"node":0,"uuid":1,"Value #A":2,"Value #B":3},"renameByName":{}}}],
	  "fieldConfig":{"defaults":{"unit":"short"},"overrides":[
	    {"matcher":{"id":"byName","options":"node"},"properties":[{"id":"displayName","value":"Node"},{"id":"links","value":[{"title":"Open the card","url":"/d/gpu-card/gpu-card?${cluster:queryparam}&var-node=${__data.fields.node}&var-uuid=${__data.fields.uuid}&${__url_time_range}"}]}]},
	    {"matcher":{"id":"byName","options":"Value #A"},"properties":[{"id":"displayName","value":"Busy"},{"id":"unit","value":"percentunit"},{"id":"min","value":0},{"id":"max","value":1},
	      {"id":"thresholds","value":{"mode":"absolute","steps":[{"color":"orange","value":null},{"color":"green","value":0.5}]}},{"id":"custom.cellOptions","value":{"type":"gauge","mode":"basic","valueDisplayMode":"text"}}]},
	    {"matcher":{"id":"byName","options":"Value #B"},"properties":[{"id":"displayName","value":"Heat"},{"id":"unit","value":"celsius"}]}]},
	  "options":{"sortBy":[{"displayName":"Node","desc":false}]}}`)
	if found.Err != nil || found.Series != 3 || len(found.Notes) > 0 {
		t.Errorf("%+v", found)
	}
	for _, want := range []string{
		`>Node</th>`, `>Busy</th>`, `>Heat</th>`, `>61 °C</td>`, `>90%</span>`, `width:20.00%`, "--c:var(--orange)", "--c:var(--green)",
		`href="gpu-card.html?from=now-6h&amp;to=now&amp;var-node=n9&amp;var-uuid=a%26b"`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the table has no %s:\n%s", want, html)
		}
	}
	if strings.Index(html, ">n9<") > strings.Index(html, ">n10<") {
		t.Error("n10 stands before n9")
	}
	if strings.Contains(html, ">Time<") {
		t.Error("Time was to be left out")
	}
}

// Labels come from pods, which anybody may name.
func TestHostileLabelsStayText(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) ]]> </style> url(x)`
	links := `"links":[{"title":"t","url":"/d/gpu-card/x?var-pod=${__data.fields.pod}${__field.labels.pod}"},{"title":"t","url":"${__data.fields.pod}"}]`
	answers := fixed{"q": {series([]float64{1, 2}, "pod", evil), series([]float64{2, 1}, "pod", "javascript:alert(1)")}}
	for _, kind := range []string{"stat", "timeseries", "table", "bargauge", "gauge", "state-timeline", "heatmap"} {
		html, found := drawOne(t, answers, `{"type":"`+kind+`","title":"<b>T</b>","description":"\"<i>d</i>","gridPos":{"w":24,"h":8},"targets":[{"refId":"A","expr":"q","legendFormat":"{{pod}}"}],
		  "fieldConfig":{"defaults":{"unit":"short","displayName":"${__field.labels.pod}",`+links+`}},"options":{"textMode":"value_and_name","legend":{"displayMode":"table","calcs":["max"]}}}`)
		if found.Err != nil {
			t.Errorf("%s: %v", kind, found.Err)
		}
		for _, not := range []string{"<script", "<img", "<b>T", "<i>d", `href="javascript`, "</style> url"} {
			if strings.Contains(html, not) {
				t.Errorf("%s: %s came through:\n%s", kind, not, html)
			}
		}
		if open, closed := strings.Count(html, "<section"), strings.Count(html, "</section>"); open != closed {
			t.Errorf("%s: %d sections begin, %d end", kind, open, closed)
		}
	}
}

func TestHostileLinksLeadNowhere(t *testing.T) {
	s := &sheet{links: func(uid string, _ url.Values) (string, bool) { return uid + ".html", uid == "gpu-card" }}
	for form, want := range map[string]string{
		"/d/gpu-card/x": "gpu-card.html", "/d/other/x": "", "javascript:alert(1)": "", "//evil.example": "", "data:text/html,x": "",
		"https://example.org/a?b=${__field.labels.pod}": "https://example.org/a?b=%22%3E%3C", "/d/../x": "", "https:///x": "",
	} {
		if got := s.address(form, map[string]string{"pod": `"><`}, nil); got != want {
			t.Errorf("%s: %s, want %s", form, got, want)
		}
	}
}

func TestWhatIsUnknownIsNamed(t *testing.T) {
	answers := fixed{"q": {series([]float64{1, 2}, "a", "b")}}
	const head = `"title":"P","gridPos":{"w":12,"h":8},"targets":[{"refId":"A","expr":"q"}]`
	for name, c := range map[string]struct{ panel, err, note string }{
		"unit":        {`{"type":"stat",` + head + `,"fieldConfig":{"defaults":{"unit":"parsec"}}}`, `board b: panel "P": unknown unit "parsec"`, ""},
		"kind":        {`{"type":"canvas",` + head + `}`, `unknown kind of panel "canvas"`, ""},
		"colour":      {`{"type":"stat",` + head + `,"fieldConfig":{"defaults":{"unit":"none","thresholds":{"mode":"absolute","steps":[{"color":"mauve","value":null}]}}}}`, `unknown colour "mauve"`, ""},
		"calculation": {`{"type":"stat",` + head + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"reduceOptions":{"calcs":["p99"]}}}`, `unknown calculation "p99"`, ""},
		"matcher":     {`{"type":"stat",` + head + `,"fieldConfig":{"defaults":{"unit":"none"},"overrides":[{"matcher":{"id":"byMoon","options":"x"},"properties":[]}]}}`, `unknown matcher "byMoon"`, ""},
		"variable":    {`{"type":"stat","title":"P","targets":[{"refId":"A","expr":"q{a=\"$nobody\"}"}]}`, "has no variable nobody", ""},
		"option":      {`{"type":"stat",` + head + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"sparkle":true}}`, "", "options.sparkle = true"},
		"value":       {`{"type":"timeseries",` + head + `,"fieldConfig":{"defaults":{"unit":"none","custom":{"lineInterpolation":"smooth"}}}}`, "", "fieldConfig.custom.lineInterpolation = smooth"},
		"override":    {`{"type":"timeseries",` + head + `,"fieldConfig":{"defaults":{"unit":"none"},"overrides":[{"matcher":{"id":"byName","options":"x"},"properties":[{"id":"custom.glow","value":1}]}]}}`, "", "fieldConfig.custom.glow = 1"},
		"of a panel":  {`{"type":"stat",` + head + `,"repeat":"node","fieldConfig":{"defaults":{"unit":"none"}}}`, "", "repeat = node"},
		"sort":        {`{"type":"table",` + head + `,"fieldConfig":{"defaults":{"unit":"none"}},"options":{"sortBy":[{"displayName":"Nobody"}]}}`, "", `sorted by "Nobody", which is no column`},
	} {
		html, found := drawOne(t, answers, c.panel)
		switch {
		case c.err != "" && (found.Err == nil || !strings.Contains(found.Err.Error(), c.err)):
			t.Errorf("%s: %v, want %s", name, found.Err, c.err)
		case c.err != "" && !strings.Contains(html, "Not drawn"):
			t.Errorf("%s: the panel does not say that it is not drawn", name)
		case c.note != "" && (found.Err != nil || !strings.Contains(strings.Join(found.Notes, "\n"), c.note)):
			t.Errorf("%s: %v %q, want %s", name, found.Err, found.Notes, c.note)
		}
	}
}

// A place that the page gives a panel is the one that the board gives it, below its heading.
func TestPlaces(t *testing.T) {
	b, err := board.Read([]byte(`{"uid":"b","title":"B","panels":[
	  {"id":1,"type":"text","title":"first","gridPos":{"x":6,"y":0,"w":18,"h":3},"options":{}},
	  {"id":2,"type":"row","title":"Closed","collapsed":true,"gridPos":{"x":0,"y":3,"w":24,"h":1},"panels":[
	    {"id":3,"type":"text","title":"inner","gridPos":{"x":0,"y":4,"w":12,"h":5},"options":{}}]},
	  {"id":4,"type":"row","title":"Open","gridPos":{"x":0,"y":4,"w":24,"h":1}},
	  {"id":5,"type":"text","title":"last","gridPos":{"x":0,"y":5,"w":24,"h":2},"options":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	html, _, err := Draw(t.Context(), fixed{}, request(b))
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`<h2>([^<]+)|id="panel-(\d+)" style="([^"]+)"`).FindAllString(html, -1)
	want := []string{
		`id="panel-1" style="grid-column:7/span 18;grid-row:1/span 3"`, `<h2>Closed`, `id="panel-3" style="grid-column:1/span 12;grid-row:1/span 5"`,
		`<h2>Open`, `id="panel-5" style="grid-column:1/span 24;grid-row:1/span 2"`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("places:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(html, "closed in Grafana until it is clicked") || !strings.Contains(html, "Preview, not Grafana.") {
		t.Error("the page does not say what it is")
	}
}

func TestPrepareChoosesAsGrafanaDoes(t *testing.T) {
	b := board.Board{UID: "b", Variables: []board.Variable{
		{Name: "datasource", Type: "datasource"}, {Name: "cluster", Type: "query", Query: "label_values(x, cluster)", Multi: true, All: true},
		{Name: "node", Type: "query", Query: "label_values(x, node)"},
		{Name: "uuid", Type: "query", Query: `query_result(cards{node="$node"})`, Regex: `/display="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/`},
	}}
	answers := fixed{`cards{node="n9"}`: {one(1, "display", "n9 GPU 10", "uuid", "GPU-b"), one(1, "display", "n9 GPU 2", "uuid", "GPU-a")}}
	r, err := Prepare(t.Context(), answers, b, board.Values{"strange": {"x"}, "cluster": {"$__all"}}, Range{"now-6h", "now"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Values, r.Texts["uuid"], r.To.Sub(r.From)); got != "map[node:[n9] uuid:[GPU-a]]n9 GPU 26h0m0s" {
		t.Error(got)
	}
	for _, window := range []Range{{"now", "now-6h"}, {"yesterday", "now"}, {"-", "now"}} {
		if _, err := Prepare(t.Context(), answers, b, nil, window, time.Minute); err == nil {
			t.Errorf("%v is no error", window)
		}
	}
}
