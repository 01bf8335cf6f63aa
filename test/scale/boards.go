package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	neturl "net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// aboveNode are the boards that speak of more than a node and therefore read records.
var aboveNode = []string{"gpu-fleet", "gpu-capacity", "gpu-namespace", "gpu-health"}

// asked is one query of a board and how long its answers took.
type asked struct {
	Board, Panel, Query string
	Took                []time.Duration
	Series              int
	// Over is the limit that answers went past, Overs how many did.
	Over  time.Duration `json:",omitempty"`
	Overs int           `json:",omitempty"`
	// Err is why there was no answer.
	Err string `json:",omitempty"`
}

// answered says whether there is a time to speak of.
func (a *asked) answered() bool { return len(a.Took) > 0 }

func (a *asked) best() time.Duration { return slices.Min(a.Took) }

// weight orders queries by their fastest answer: one that was never answered in time is slower than any that was.
func (a *asked) weight() time.Duration {
	switch {
	case a.answered():
		return a.best()
	case a.Over > 0:
		return time.Hour + a.Over
	}
	return -1
}

// spread spells the fastest, the median and the longest answer. What went past the limit is longer than any other.
func (a *asked) spread() [3]string {
	s := slices.Sorted(slices.Values(a.Took))
	at := func(i int) string {
		switch {
		case i < len(s):
			return ms(s[i])
		case a.Over > 0:
			return "> " + plain(a.Over)
		}
		return "none"
	}
	all := len(s) + a.Overs
	return [3]string{at(0), at(all / 2), at(max(0, all-1))}
}

var sinceNow = regexp.MustCompile(`^now-(\d+)([mhd])$`)

// span is how far back a board looks when it is opened.
func span(b board.Board) (time.Duration, error) {
	m := sinceNow.FindStringSubmatch(b.From)
	if m == nil {
		return 0, fmt.Errorf("board %s looks back to %q: expected now-6h or the like", b.UID, b.From)
	}
	n, err := strconv.Atoi(m[1])
	return time.Duration(n) * map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[m[2]], err
}

// window is a board's time range with the resolution that Grafana chooses for a panel of a thousand pixels.
func window(back, scrape time.Duration, now time.Time) board.Window {
	return board.Window{From: now.Add(-back), To: now, Scrape: scrape, Step: max(time.Minute, (back / 1000).Truncate(time.Minute))}
}

// displayed takes the value out of what a query_result of the boards prints: map[… uuid:GPU-… …].
var displayed = regexp.MustCompile(`\buuid:(\S+?)[\s\]]`)

// answer asks a query and reads the answer to its end. It counts the series and leaves the rest unread, so that the
// time is the server's. The server is told the limit too: it shall not work on for nobody.
func answer(ctx context.Context, base, query string, instant bool, w board.Window, limit time.Duration) (series int, err error) {
	path, form := "/api/v1/query", neturl.Values{"query": {query}, "time": {unix(w.To)}}
	if !instant {
		path, form = "/api/v1/query_range", neturl.Values{"query": {query}, "start": {unix(w.From)}, "end": {unix(w.To)}, "step": {strconv.Itoa(int(w.Step.Seconds()))}}
	}
	form.Set("timeout", promDuration(limit))
	form.Set("nocache", "1") // VictoriaMetrics would know the answer the second time
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return 0, fmt.Errorf("%s: %s", res.Status, text)
	}
	return countSeries(res.Body)
}

// countSeries counts the series of an answer as it passes by.
func countSeries(r io.Reader) (series int, err error) {
	mark := []byte(`"metric":{`)
	buffer, left := make([]byte, 1<<20), 0
	for {
		n, err := r.Read(buffer[left:])
		text := buffer[:left+n]
		series += bytes.Count(text, mark)
		// A mark may lie across two reads.
		left = copy(buffer, text[max(0, len(text)-len(mark)+1):])
		if errors.Is(err, io.EOF) {
			return series, nil
		}
		if err != nil {
			return series, err
		}
	}
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// largest finds the value to choose where a board wants one: that of which there is most.
var largest = map[string]string{"namespace": "topk(1, count by (namespace) (workload:gpu_pods:count))"}

// asking says how boards are asked.
type asking struct {
	// URL is the server's.
	URL string
	// Often is how often each query is asked, Limit the longest time that it may take.
	Often int
	Limit time.Duration
	// For is the time that all together may take: what is left then is not asked.
	For time.Duration
	// Scrape is the time between two scrapes.
	Scrape time.Duration
}

// question is one query with all that is needed to ask it.
type question struct {
	asked
	ask func(context.Context) (int, error)
}

// once asks a question one time.
func (q *question) once(ctx context.Context, limit time.Duration) {
	limited, stop := context.WithTimeout(ctx, limit)
	defer stop()
	began := time.Now()
	n, err := q.ask(limited)
	took := time.Since(began)
	switch {
	case err == nil:
		q.Took, q.Series = append(q.Took, took), n
	case ctx.Err() != nil:
		q.Err = "stopped"
	case took > limit*9/10:
		q.Over, q.Overs = limit, q.Overs+1
	default:
		q.Err = err.Error()
	}
}

// all asks every query of the boards as they stand when they are opened, the queries of variables included: All where
// a variable has it, else its first value (of namespaces the one with most workloads). A board that has workloads to choose from is
// asked a second time, with the one that has most pods: so it stands when a link leads to it. They are asked in rounds, so that what else
// the machine does meets all of them alike: each query once, then each again, as often as is wanted and as long as there is time.
// A query that fails is named, and not asked again; one that goes past the limit has a second try.
func (a asking) all(ctx context.Context, boards []board.Board) ([]asked, error) {
	end := time.Now().Add(a.For)
	var all []*question
	for _, b := range boards {
		of, err := a.questions(ctx, b, nil)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(b.Variables, func(v board.Variable) bool { return v.Name == "workload" }) {
			one, err := a.questions(ctx, b, a.workload(ctx))
			if err != nil {
				return nil, err
			}
			for _, q := range one {
				q.Board += oneWorkload
			}
			of = append(of, one...)
		}
		all = append(all, of...)
		for _, q := range of {
			switch {
			case len(q.Took) > 0 || q.Err != "" || q.Over > 0: // a variable's, asked already
			case time.Now().After(end):
				q.Err = fmt.Sprintf("not asked: the %v for all boards were over", a.For)
			default:
				q.once(ctx, a.Limit)
			}
		}
	}
	for range a.Often - 1 {
		for _, q := range all {
			if q.Err == "" && q.Overs < 2 && ctx.Err() == nil && time.Now().Before(end) {
				q.once(ctx, a.Limit)
			}
		}
	}
	out := make([]asked, len(all))
	for i, q := range all {
		out[i] = q.asked
	}
	return out, ctx.Err()
}

// oneWorkload stands behind the name of a board that was asked of one workload.
const oneWorkload = ", one workload"

// workload is the one with most pods, as a board's variables name it.
func (a asking) workload(ctx context.Context) board.Values {
	limited, stop := context.WithTimeout(ctx, a.Limit)
	defer stop()
	most, err := board.Client{URL: a.URL}.Instant(limited, "topk(1, count by (namespace, workload) (pod:gpu_workload:info))", time.Now())
	if err != nil || len(most) == 0 {
		return nil
	}
	return board.Values{"namespace": {most[0].Labels["namespace"]}, "workload": {most[0].Labels["workload"]}}
}

// questions are those of one board, some of whose variables may be chosen. The others are asked on the way, since what follows depends
// on what they answer.
func (a asking) questions(ctx context.Context, b board.Board, chosen board.Values) ([]*question, error) {
	back, err := span(b)
	if err != nil {
		return nil, err
	}
	now := func() board.Window { return window(back, a.Scrape, time.Now()) }
	c := board.Client{URL: a.URL}
	values := board.Values{}
	maps.Copy(values, chosen)
	var out []*question
	for _, v := range b.Variables {
		if v.Type != "query" {
			continue
		}
		var choices []string
		q := &question{asked: asked{Board: b.UID, Panel: "variable " + v.Name, Query: v.Query}}
		q.ask = func(ctx context.Context) (n int, err error) {
			choices, err = c.Choices(ctx, b, v, values, now())
			return len(choices), err
		}
		q.once(ctx, a.Limit)
		out = append(out, q)
		switch {
		case len(choices) == 0 || len(values[v.Name]) > 0 || v.All && v.AllValue != "":
			continue
		case v.All: // what Grafana makes of All where nothing is said of it
			values[v.Name] = choices
			continue
		}
		values[v.Name] = []string{a.choose(ctx, c, v, choices)}
	}
	for _, p := range b.Panels {
		for _, t := range p.Targets {
			title := p.Title
			if len(p.Targets) > 1 {
				title += "/" + t.RefID
			}
			out = append(out, &question{asked{Board: b.UID, Panel: title, Query: t.Expr}, func(ctx context.Context) (int, error) {
				w := now()
				query, err := b.Fill(t.Expr, values, w)
				if err != nil {
					return 0, err
				}
				return answer(ctx, a.URL, query, t.Instant, w, a.Limit)
			}})
		}
	}
	return out, nil
}

// choose takes one of a variable's values.
func (a asking) choose(ctx context.Context, c board.Client, v board.Variable, choices []string) string {
	first := choices[0]
	if query := largest[v.Name]; query != "" {
		limited, stop := context.WithTimeout(ctx, a.Limit)
		defer stop()
		if most, err := c.Instant(limited, query, time.Now()); err == nil && len(most) > 0 {
			first = most[0].Labels[v.Name]
		}
	}
	if strings.HasPrefix(v.Query, "query_result(") {
		if m := displayed.FindStringSubmatch(first); m != nil {
			first = m[1]
		}
	}
	return first
}

// above are the boards above node level.
func above(boards []board.Board) []board.Board {
	return slices.DeleteFunc(slices.Clone(boards), func(b board.Board) bool { return !slices.Contains(aboveNode, b.UID) })
}
