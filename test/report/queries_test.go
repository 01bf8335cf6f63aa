package report_test

import (
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

// The query of every row, evaluated by Prometheus, has the figures of the row: with recording rules, without, and with rules that begin
// late.
func TestQueriesHaveTheFiguresOfTheirRows(t *testing.T) {
	t.Parallel()
	p := built(t)
	config, err := fleet.Preset("demo", 6)
	must.OK(t, err)
	f, err := fleet.New(config)
	must.OK(t, err)
	from, to := begins, begins.Add(4*hour)
	for what, rules := range map[string]time.Time{"no rules": {}, "rules": from.Add(-10 * time.Minute), "late rules": from.Add(2 * hour)} {
		dir := t.TempDir()
		write(t, dir, f, from.Add(-10*time.Minute), to, 30*time.Second)
		if !rules.IsZero() {
			p.record(t, dir, rules, to)
		}
		server, stop := p.serve(t, dir)
		d := p.run(t, server, "--from="+from.Format(time.RFC3339), "--to="+to.Format(time.RFC3339), "--now="+to.Format(time.RFC3339))
		rows, wrong := 0, 0
		check := func(name, query string, want map[string]float64) {
			rows++
			got := instant(t, server, query, to)
			for state, v := range want {
				if !near(got[state], v, 0.01, 0.05) {
					wrong++
					t.Errorf("%s: %s: %s is %.3f, the query has %.3f", what, name, state, v, got[state])
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
			check("namespace "+a.Namespace, a.Query, map[string]float64{"allocated": a.Hours})
		}
		for _, w := range d.Workloads {
			check(w.ID, w.Query, map[string]float64{"allocated": w.Allocated})
		}
		t.Logf("%s: %d rows, %d figures differ", what, rows, wrong)
		stop()
	}
}
