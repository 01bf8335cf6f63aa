package board

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Client asks a Prometheus-compatible API.
type Client struct {
	// URL is the API's base: http://127.0.0.1:9090.
	URL string
}

// Series is one series of an answer; an instant answer has one point.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a moment.
type Point struct {
	At    time.Time
	Value float64
}

type answer struct {
	Status, Error string
	Data          json.RawMessage
}

func (c Client) ask(ctx context.Context, path string, form url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%s: %s: %w", path, res.Status, err)
	}
	if a.Status != "success" {
		return fmt.Errorf("%s %s: %s", path, form.Get("query"), a.Error)
	}
	return json.Unmarshal(a.Data, into)
}

type matrix struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
		Values [][2]any
	}
}

func (m matrix) series() ([]Series, error) {
	var out []Series
	for _, r := range m.Result {
		s := Series{Labels: r.Metric}
		values := r.Values
		if values == nil {
			values = [][2]any{r.Value}
		}
		for _, v := range values {
			at, ok := v[0].(float64)
			text, ok2 := v[1].(string)
			if !ok || !ok2 {
				return nil, fmt.Errorf("a point is %v", v)
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			s.Points = append(s.Points, Point{time.UnixMilli(int64(at * 1000)), value})
		}
		out = append(out, s)
	}
	return out, nil
}

// Instant answers a query at a moment.
func (c Client) Instant(ctx context.Context, query string, at time.Time) ([]Series, error) {
	var m matrix
	if err := c.ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {unix(at)}}, &m); err != nil {
		return nil, err
	}
	return m.series()
}

// Range answers a query over a window.
func (c Client) Range(ctx context.Context, query string, w Window) ([]Series, error) {
	var m matrix
	form := url.Values{"query": {query}, "start": {unix(w.From)}, "end": {unix(w.To)}, "step": {strconv.FormatFloat(w.Step.Seconds(), 'f', -1, 64)}}
	if err := c.ask(ctx, "/api/v1/query_range", form, &m); err != nil {
		return nil, err
	}
	return m.series()
}

func unix(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

var (
	labelValues = regexp.MustCompile(`^label_values\((?:(.+),\s*)?(\w+)\)$`)
	queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)
)

// Choices answers a query variable.
func (c Client) Choices(ctx context.Context, b Board, v Variable, values Values, w Window) ([]string, error) {
	query, err := b.Fill(v.Query, values, w)
	if err != nil {
		return nil, err
	}
	form := url.Values{"start": {unix(w.From)}, "end": {unix(w.To)}}
	if m := queryResult.FindStringSubmatch(query); m != nil {
		series, err := c.Instant(ctx, m[1], w.To)
		var out []string
		for _, s := range series {
			out = append(out, fmt.Sprint(s.Labels))
		}
		return out, err
	}
	m := labelValues.FindStringSubmatch(query)
	if m == nil {
		return nil, fmt.Errorf("board %s: variable %s: cannot read %s", b.UID, v.Name, query)
	}
	if m[1] != "" {
		form.Set("match[]", m[1])
	}
	var out []string
	req := c.URL + "/api/v1/label/" + m[2] + "/values?" + form.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, req, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var a answer
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return nil, err
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("%s: %s", req, a.Error)
	}
	return out, json.Unmarshal(a.Data, &out)
}
