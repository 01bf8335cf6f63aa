package scale

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// aboveNode are the dashboards of more than a node, which read recorded series.
var aboveNode = []string{"gpu-fleet", "gpu-capacity", "gpu-namespace", "gpu-health"}

// above are the dashboards above node level.
func above(dashboards []dashboard.Dashboard) []dashboard.Dashboard {
	return slices.DeleteFunc(slices.Clone(dashboards), func(d dashboard.Dashboard) bool { return !slices.Contains(aboveNode, d.UID) })
}

// timeRange is that of a dashboard when it is opened.
func timeRange(d dashboard.Dashboard) (time.Duration, error) {
	span, err := model.ParseDuration(strings.TrimPrefix(d.From, "now-"))
	if err != nil {
		err = fmt.Errorf("dashboard %s: time range from %q: %w", d.UID, d.From, err)
	}
	return time.Duration(span), err
}

// window is a dashboard's time range with the resolution that Grafana chooses for a panel of so many points; 0: of a
// thousand pixels.
func window(span, scrape time.Duration, points int, now time.Time) dashboard.Window {
	return dashboard.Window{From: now.Add(-span), To: now, Scrape: scrape,
		Step: max(time.Minute, (span / time.Duration(cmp.Or(points, 1000))).Truncate(time.Minute))}
}

// querier runs the queries of dashboards on a server: each up to repeat times, all of them within total.
type querier struct {
	server         *server
	repeat         int
	timeout, total time.Duration
	scrape         time.Duration
}

// running is a query with what is needed to run it.
type running struct {
	Query
	run func(context.Context) (series int, err error)
}

// once runs the query one time.
func (r *running) once(ctx context.Context, timeout time.Duration) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	n, err := r.run(limited)
	took := time.Since(start)
	switch {
	case err == nil:
		r.Seconds, r.Series = append(r.Seconds, took.Seconds()), n
	case ctx.Err() == nil && took > timeout*9/10:
		r.Timeouts++
	default:
		r.Err = err.Error()
	}
}

// all runs every query of the dashboards as they are when opened, the queries of variables included: All where a
// variable has it, else its first value (of namespaces the one with most workloads). A dashboard with a variable for
// workloads runs with the workload that has most pods, as links open it, and a second time with all of a namespace.
// Queries run in rounds, so that
// other load on the machine affects all alike. A query that fails does not run again, one that times out runs twice.
func (q querier) all(ctx context.Context, dashboards []dashboard.Dashboard) ([]Query, error) {
	end := time.Now().Add(q.total)
	var all []*running
	for _, d := range dashboards {
		var choices []dashboard.Values
		if slices.ContainsFunc(d.Variables, func(v dashboard.Variable) bool { return v.Name == "workload" }) {
			const most = "topk(1, count by (namespace, workload) (pod:gpu_workload:info))"
			choices = append(choices, q.labels(ctx, most, "namespace", "workload"))
		}
		for i, chosen := range append(choices, nil) {
			opened := d
			if i > 0 {
				opened.UID += ", all workloads of a namespace"
			}
			of, err := q.prepare(ctx, opened, chosen)
			if err != nil {
				return nil, err
			}
			all = append(all, of...)
		}
	}
	for i := range q.repeat {
		for _, r := range all {
			switch {
			case ctx.Err() != nil || r.Err != "" || r.Timeouts > 1 || len(r.Seconds) > i:
			case time.Now().Before(end):
				r.once(ctx, q.timeout)
			case i == 0:
				r.Err = fmt.Sprintf("not run: the queries took longer than %v", q.total)
			}
		}
	}
	out := make([]Query, len(all))
	for i, r := range all {
		out[i] = r.Query
	}
	return out, ctx.Err()
}

// labels returns the labels of the first series of a query as values of variables.
func (q querier) labels(ctx context.Context, query string, names ...string) dashboard.Values {
	found, err := instant(ctx, q.server, query, time.Now())
	if err != nil || len(found) == 0 {
		return nil
	}
	out := dashboard.Values{}
	for _, name := range names {
		out[name] = []string{found[0].Labels[name]}
	}
	return out
}

// displayed matches the value in what a query_result prints: map[… uuid:GPU-… …].
var displayed = regexp.MustCompile(`\buuid:(\S+?)[\s\]]`)

// prepare returns the queries of a dashboard. Those of variables run on the way: what follows depends on their values.
func (q querier) prepare(ctx context.Context, d dashboard.Dashboard, chosen dashboard.Values) ([]*running, error) {
	span, err := timeRange(d)
	if err != nil {
		return nil, err
	}
	values := dashboard.Values{}
	maps.Copy(values, chosen)
	var out []*running
	for _, v := range d.Variables {
		if v.Type != "query" {
			continue
		}
		var choices []string
		r := &running{Query: Query{Dashboard: d.UID, Panel: "variable " + v.Name}}
		r.run = func(ctx context.Context) (n int, err error) {
			choices, err = q.server.Choices(ctx, d, v, values, window(span, q.scrape, 0, time.Now()))
			return len(choices), err
		}
		r.once(ctx, q.timeout)
		out = append(out, r)
		switch {
		case len(choices) == 0 || len(values[v.Name]) > 0 || v.All && v.AllValue != "":
		case v.All: // as Grafana expands All without a value of its own
			values[v.Name] = choices
		default:
			values[v.Name] = choices[:1]
			if m := displayed.FindStringSubmatch(choices[0]); m != nil && strings.HasPrefix(v.Query, "query_result(") {
				values[v.Name] = m[1:]
			}
			if v.Name == "namespace" {
				maps.Copy(values, q.labels(ctx, "topk(1, count by (namespace) (workload:gpu_pods:count))", "namespace"))
			}
		}
	}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			title := p.Title
			if len(p.Targets) > 1 {
				title += "/" + t.RefID
			}
			out = append(out, &running{Query{Dashboard: d.UID, Panel: title}, func(ctx context.Context) (int, error) {
				w := window(span, q.scrape, p.MaxDataPoints, time.Now())
				query, err := d.Fill(t.Expr, values, w)
				if err != nil {
					return 0, err
				}
				var found []dashboard.Series
				if t.Instant {
					found, err = q.server.Instant(ctx, query, w.To, v1.WithTimeout(q.timeout))
				} else {
					found, err = q.server.Range(ctx, query, w, v1.WithTimeout(q.timeout))
				}
				return len(found), err
			}})
		}
	}
	return out, nil
}
