package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	// Err is why there was no answer.
	Err string
}

func (a *asked) median() time.Duration {
	s := slices.Sorted(slices.Values(a.Took))
	return s[len(s)/2]
}

func (a *asked) best() time.Duration  { return slices.Min(a.Took) }
func (a *asked) worst() time.Duration { return slices.Max(a.Took) }

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
// time is the server's.
func answer(ctx context.Context, base, query string, instant bool, w board.Window) (series int, err error) {
	path, form := "/api/v1/query", neturl.Values{"query": {query}, "time": {unix(w.To)}}
	if !instant {
		path, form = "/api/v1/query_range", neturl.Values{"query": {query}, "start": {unix(w.From)}, "end": {unix(w.To)}, "step": {strconv.Itoa(int(w.Step.Seconds()))}}
	}
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
	mark := []byte(`"metric":{`)
	buffer, left := make([]byte, 1<<20), 0
	for {
		n, err := res.Body.Read(buffer[left:])
		text := buffer[:left+n]
		if res.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %s", res.Status, text)
		}
		series += bytes.Count(text, mark)
		// A mark may lie across two reads.
		left = copy(buffer, text[max(0, len(text)-len(mark)+1):])
		if err == io.EOF {
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

// askAll asks every query of the boards as they stand when they are opened, the queries of variables included: All
// where a variable has it, else its first value (of namespaces the one with most workloads). Each is asked so often as given, in rounds.
func askAll(ctx context.Context, url string, boards []board.Board, often int, scrape time.Duration) ([]asked, error) {
	c := board.Client{URL: url}
	var out []asked
	one := func(b board.Board, panel, query string, do func(context.Context) (int, error)) {
		a := asked{Board: b.UID, Panel: panel, Query: query}
		for range often {
			limited, stop := context.WithTimeout(ctx, 2*time.Minute)
			began := time.Now()
			n, err := do(limited)
			stop()
			a.Took, a.Series = append(a.Took, time.Since(began)), n
			if err != nil {
				a.Err = err.Error()
				break
			}
		}
		out = append(out, a)
	}
	for _, b := range boards {
		back, err := span(b)
		if err != nil {
			return nil, err
		}
		w := func() board.Window { return window(back, scrape, time.Now()) }
		values := board.Values{}
		for _, v := range b.Variables {
			if v.Type != "query" {
				continue
			}
			var choices []string
			one(b, "variable "+v.Name, v.Query, func(ctx context.Context) (n int, err error) {
				choices, err = c.Choices(ctx, b, v, values, w())
				return len(choices), err
			})
			if !v.All && len(choices) > 0 {
				first := choices[0]
				if query := largest[v.Name]; query != "" {
					if most, err := c.Instant(ctx, query, time.Now()); err == nil && len(most) > 0 {
						first = most[0].Labels[v.Name]
					}
				}
				if strings.HasPrefix(v.Query, "query_result(") {
					if m := displayed.FindStringSubmatch(first); m != nil {
						first = m[1]
					}
				}
				values[v.Name] = []string{first}
			}
		}
		for _, p := range b.Panels {
			for _, t := range p.Targets {
				title := p.Title
				if len(p.Targets) > 1 {
					title += "/" + t.RefID
				}
				one(b, title, t.Expr, func(ctx context.Context) (int, error) {
					w := w()
					query, err := b.Fill(t.Expr, values, w)
					if err != nil {
						return 0, err
					}
					return answer(ctx, url, query, t.Instant, w)
				})
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
