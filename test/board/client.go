package board

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Client queries a Prometheus-compatible API.
type Client struct {
	// URL is the API's base: http://127.0.0.1:9090.
	URL string
}

// Series is one series of a response; an instant query's has one point.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time.
type Point struct {
	At    time.Time
	Value float64
}

func (c Client) api() (prometheus.API, error) {
	client, err := api.NewClient(api.Config{Address: c.URL})
	if err != nil {
		return nil, err
	}
	return prometheus.NewAPI(client), nil
}

// Instant queries at one time.
func (c Client) Instant(ctx context.Context, query string, at time.Time) ([]Series, error) {
	client, err := c.api()
	if err != nil {
		return nil, err
	}
	value, _, _, err := client.Query(ctx, query, at)
	return series(query, value, err)
}

// Range queries over the window's time range.
func (c Client) Range(ctx context.Context, query string, w Window) ([]Series, error) {
	client, err := c.api()
	if err != nil {
		return nil, err
	}
	value, _, _, err := client.QueryRange(ctx, query, prometheus.Range{Start: w.From, End: w.To, Step: w.Step})
	return series(query, value, err)
}

func series(query string, value model.Value, err error) ([]Series, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	var out []Series
	add := func(metric model.Metric, points ...model.SamplePair) {
		s := Series{Labels: map[string]string{}}
		for name, value := range metric {
			s.Labels[string(name)] = string(value)
		}
		for _, p := range points {
			s.Points = append(s.Points, Point{At: p.Timestamp.Time(), Value: float64(p.Value)})
		}
		out = append(out, s)
	}
	switch value := value.(type) {
	case model.Vector:
		for _, s := range value {
			add(s.Metric, model.SamplePair{Timestamp: s.Timestamp, Value: s.Value})
		}
	case model.Matrix:
		for _, s := range value {
			add(s.Metric, s.Values...)
		}
	case *model.Scalar:
		add(nil, model.SamplePair{Timestamp: value.Timestamp, Value: value.Value})
	}
	return out, nil
}

var (
	labelValues = regexp.MustCompile(`^label_values\((?:(.+),\s*)?(\w+)\)$`)
	queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)
)

// Choices returns the values to choose from of a query variable; of a query_result, the labels of each series.
func (c Client) Choices(ctx context.Context, b Board, v Variable, values Values, w Window) ([]string, error) {
	query, err := b.Fill(v.Query, values, w)
	if err != nil {
		return nil, err
	}
	if m := queryResult.FindStringSubmatch(query); m != nil {
		found, err := c.Instant(ctx, m[1], w.To)
		var out []string
		for _, s := range found {
			out = append(out, fmt.Sprint(s.Labels))
		}
		return out, err
	}
	m := labelValues.FindStringSubmatch(query)
	if m == nil {
		return nil, fmt.Errorf("dashboard %s: variable %s: unknown query %s", b.UID, v.Name, query)
	}
	return c.Values(ctx, m[2], m[1], w.From, w.To)
}

// Values returns the values of a label of the series that match had between two times; zero times: ever.
func (c Client) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	client, err := c.api()
	if err != nil {
		return nil, err
	}
	found, _, _, err := client.LabelValues(ctx, label, []string{match}, from, to)
	var out []string
	for _, value := range found {
		out = append(out, string(value))
	}
	return out, err
}
