package report_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// instant evaluates a query on a server: values by state.
func instant(t *testing.T, server, query string, at time.Time) map[string]float64 {
	t.Helper()
	series, err := dashboard.Client{URL: server}.Instant(t.Context(), query, at)
	must.OK(t, err)
	out := map[string]float64{}
	for _, s := range series {
		out[s.Labels["state"]] = s.Points[0].Value
	}
	return out
}

// Whichever server keeps a history, the account is the same, and the query of every row has the figures of the row: with recording rules,
// without, and with rules that begin late, of two clusters, and of one of them by --match.
func TestQueriesHaveTheFiguresOfTheirRows(t *testing.T) {
	t.Parallel()
	p := built(t)
	config, err := fleet.Preset("demo", 6)
	must.OK(t, err)
	for _, pool := range config.Pools {
		pool.Cluster = "west"
		config.Pools = append(config.Pools, pool)
	}
	f, err := fleet.New(config)
	must.OK(t, err)
	from, to := begins, begins.Add(4*hour)
	start := from.Add(-10 * time.Minute)
	period := []string{"--from=" + from.Format(time.RFC3339), "--to=" + to.Format(time.RFC3339), "--now=" + to.Format(time.RFC3339)}
	dir, victoriaURL, reports := t.TempDir(), "", map[string]*document.Document{}
	for _, server := range []struct {
		name string
		// with serves the history, and records in a part of it; stop ends that.
		with func(from, to time.Time) (url string, stop func())
	}{
		{"Prometheus", func(first, last time.Time) (string, func()) {
			if first.IsZero() {
				write(t, dir, f, start, to, 30*time.Second)
			} else {
				p.record(t, dir, first, last)
			}
			return p.serve(t, dir)
		}},
		{"VictoriaMetrics", func(first, last time.Time) (string, func()) {
			if first.IsZero() {
				victoriaURL = victoria(t, p, f, start, to)
			} else {
				p.replay(t, victoriaURL, first, last)
			}
			return victoriaURL, func() {}
		}},
	} {
		for _, rules := range []struct {
			what     string
			from, to time.Time // of what is added
		}{{what: "no rules"}, {"late rules", from.Add(2 * hour), to}, {"rules", start, from.Add(2 * hour)}} {
			url, stop := server.with(rules.from, rules.to)
			for _, match := range []string{"", `--match=cluster="west"`} {
				args := period
				if match != "" {
					args = append(slices.Clip(period), match)
				}
				d := p.run(t, url, args...)
				if n := len(d.Clusters); match == "" && n != 2 || match != "" && n > 1 {
					t.Errorf("%s %s %s: %d clusters", server.name, rules.what, match, n)
				}
				if key := rules.what + match; reports[key] == nil {
					reports[key] = d
				} else {
					agree(t, reports[key], d)
				}
				rows, wrong := compareQueries(t, url, to, d)
				if t.Logf("%s, %s %s: %d rows, %d figures differ", server.name, rules.what, match, rows, wrong); wrong > 0 || rows < 20 {
					t.Errorf("%s, %s %s: %d rows, %d figures differ", server.name, rules.what, match, rows, wrong)
				}
			}
			stop()
		}
	}
}

// compareQueries evaluates the query of every row of a report.
func compareQueries(t *testing.T, server string, to time.Time, d *document.Document) (rows, wrong int) {
	t.Helper()
	check := func(name, query string, want map[string]float64) {
		rows++
		got := instant(t, server, query, to)
		for state, v := range want {
			if !near(got[state], v, 0.01, 0.05) {
				wrong++
				t.Errorf("%s: %s is %.3f, the query has %.3f: %s", name, state, v, got[state], query)
			}
		}
	}
	for kind, list := range map[string][]document.Account{"fleet": {d.Fleet}, "cluster": d.Clusters, "model": d.Models,
		"pool": d.NodePools, "node": d.Nodes} {
		for _, a := range list {
			check(kind+" "+a.Cluster+a.Model+a.NodePool+a.Node, a.Query, map[string]float64{"busy": a.States.Busy, "gap": a.States.Gap,
				"idle": a.States.Idle, "unallocated": a.States.Unallocated})
		}
	}
	for _, a := range d.Namespaces {
		check("namespace "+a.Cluster+"/"+a.Namespace, a.Query, map[string]float64{"allocated": a.Hours})
	}
	for _, w := range d.Workloads {
		check(w.ID, w.Query, map[string]float64{"allocated": w.Allocated})
	}
	for _, a := range d.Advice {
		if a.Query != "" {
			check(a.Title, a.Query, nil)
		}
	}
	return rows, wrong
}
