package dashboard

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Client queries a Prometheus-compatible API.
type Client struct {
	// URL is the API's base: http://127.0.0.1:9090.
	URL string
}

// Series is one series of a result; that of an instant query has one point.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time.
type Point struct {
	At    time.Time
	Value float64
}

// API is Prometheus' own client.
func (c Client) API() (v1.API, error) {
	client, err := api.NewClient(api.Config{Address: c.URL})
	if err != nil {
		return nil, err
	}
	return v1.NewAPI(client), nil
}

// series converts a result; query is for the error.
func series(query string, v model.Value, err error) ([]Series, error) {
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", query, err)
	}
	var out []Series
	add := func(m model.Metric, points ...model.SamplePair) {
		s := Series{Labels: make(map[string]string, len(m))}
		for name, value := range m {
			s.Labels[string(name)] = string(value)
		}
		for _, p := range points {
			s.Points = append(s.Points, Point{p.Timestamp.Time(), float64(p.Value)})
		}
		out = append(out, s)
	}
	switch v := v.(type) {
	case model.Vector:
		for _, s := range v {
			add(s.Metric, model.SamplePair{Timestamp: s.Timestamp, Value: s.Value})
		}
	case model.Matrix:
		for _, s := range v {
			add(s.Metric, s.Values...)
		}
	case *model.Scalar:
		add(nil, model.SamplePair{Timestamp: v.Timestamp, Value: v.Value})
	}
	return out, nil
}

// Instant evaluates a query at a time.
func (c Client) Instant(ctx context.Context, query string, at time.Time, options ...v1.Option) ([]Series, error) {
	a, err := c.API()
	if err != nil {
		return nil, err
	}
	v, _, _, err := a.Query(ctx, query, at, options...)
	return series(query, v, err)
}

// Range evaluates a query over a time range.
func (c Client) Range(ctx context.Context, query string, w Window, options ...v1.Option) ([]Series, error) {
	a, err := c.API()
	if err != nil {
		return nil, err
	}
	v, _, _, err := a.QueryRange(ctx, query, v1.Range{Start: w.From, End: w.To, Step: w.Step}, options...)
	return series(query, v, err)
}

var (
	labelValues = regexp.MustCompile(`^label_values\((?:(.+),\s*)?(\w+)\)$`)
	queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)
)

// Choices evaluates a query variable.
func (c Client) Choices(ctx context.Context, d Dashboard, v Variable, values Values, w Window) ([]string, error) {
	query, err := d.Fill(v.Query, values, w)
	if err != nil {
		return nil, err
	}
	var out []string
	if m := queryResult.FindStringSubmatch(query); m != nil {
		series, err := c.Instant(ctx, m[1], w.To)
		for _, s := range series {
			out = append(out, fmt.Sprint(s.Labels))
		}
		return out, err
	}
	m := labelValues.FindStringSubmatch(query)
	if m == nil {
		return nil, fmt.Errorf("dashboard %s: variable %s: unknown kind of query %s", d.UID, v.Name, query)
	}
	return c.Values(ctx, m[2], m[1], w.From, w.To)
}

// Values returns the values of a label, of the series that match if that is not empty, between two times; zero times: ever.
func (c Client) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	a, err := c.API()
	if err != nil {
		return nil, err
	}
	var matches []string
	if match != "" {
		matches = []string{match}
	}
	found, _, _, err := a.LabelValues(ctx, label, matches, from, to)
	var out []string
	for _, value := range found {
		out = append(out, string(value))
	}
	return out, err
}
