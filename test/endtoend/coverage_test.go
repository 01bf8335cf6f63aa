package endtoend_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// views returns the values of the dashboard's variables with which its queries are run; what is missing is All. A query
// has data if it has some in one of the views.
func views(t *testing.T, c dashboard.Client, d dashboard.Dashboard, w dashboard.Window) []dashboard.Values {
	t.Helper()
	has := func(name string) bool {
		return slices.ContainsFunc(d.Variables, func(v dashboard.Variable) bool { return v.Name == name })
	}
	if !has("uuid") {
		return []dashboard.Values{{}}
	}
	var out []dashboard.Values
	for _, query := range []string{
		`topk(1, gpu_tensor_active_seconds_total and on (node, uuid) gpu_nvlink_links and on (node, uuid) gpu_allocation_ratio == 1)`,
		`topk(1, gpu_mig_mode == 1 and on (node, uuid) gpu_mig_busy_seconds_total)`,
		`topk(1, gpu_xid_last_timestamp_seconds and on (node, uuid) gpu_device_up == 1)`,
		`topk(1, count by (node, uuid) (ALERTS{alertstate="firing", uuid!=""}))`,
		`topk(1, gpu_retired_pages_total)`,
	} {
		series, err := c.Instant(t.Context(), query, w.To)
		if err != nil || len(series) == 0 {
			t.Fatalf("no GPU found: %s: %v", query, err)
		}
		v := dashboard.Values{"uuid": {series[0].Labels["uuid"]}}
		if has("node") {
			v["node"] = []string{series[0].Labels["node"]}
		}
		out = append(out, v)
	}
	return out
}

// absent lists the queries without data in the simulated fleet, by dashboard and panel, with the reason. A listed query
// that has data is an error.
type absent map[string]string

// cover runs every query of every dashboard and returns a table of the number of series and the times.
func cover(t *testing.T, c dashboard.Client, w dashboard.Window, empty absent) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	all, err := dashboard.LoadAll(filepath.Join(root, "dashboards"))
	must.OK(t, err)
	// Whether a container uses more than it requested depends on the hour.
	unoffered := append(unoffered(t, root), "container:gpu_use_over_request:ratio")
	var table strings.Builder
	used := map[string]bool{}
	for _, d := range all {
		views := views(t, c, d, w)
		for _, v := range d.Variables {
			if v.Type != "query" {
				continue
			}
			choices, err := c.Choices(t.Context(), d, v, views[0], w)
			if err != nil {
				t.Errorf("%s: variable %s: %v", d.UID, v.Name, err)
			} else if len(choices) == 0 {
				t.Errorf("%s: variable %s has no values", d.UID, v.Name)
			}
		}
		panels, series := 0, 0
		for _, p := range d.Panels {
			if len(p.Targets) == 0 {
				continue
			}
			panels++
			found, slowest := 0, time.Duration(0)
			for _, target := range p.Targets {
				n := 0
				for _, values := range views {
					one, duration, err := run(t.Context(), c, d, target, values, w)
					if err != nil {
						t.Errorf("%s: %s: %v", d.UID, p.Title, err)
					}
					n, slowest = n+one, max(slowest, duration)
				}
				found += n
				key := d.UID + "/" + p.Title
				if len(p.Targets) > 1 {
					key += "/" + target.RefID
				}
				switch _, known := empty[key]; {
				case n == 0 && !known && !slices.ContainsFunc(unoffered,
					func(name string) bool { return strings.Contains(target.Expr, name+"{") }):
					t.Errorf("%s has no data: %s", key, target.Expr)
				case n > 0 && known:
					t.Errorf("%s has %d series, although it is listed as empty: %s", key, n, empty[key])
				}
				used[key] = true
			}
			series += found
			fmt.Fprintf(&table, "%-14s %-36s %5d series %6.0f ms\n", d.UID, p.Title, found, slowest.Seconds()*1000)
		}
		fmt.Fprintf(&table, "%-14s %-36s %5d series\n\n", d.UID, fmt.Sprintf("%d panels", panels), series)
	}
	for key := range empty {
		if !used[key] {
			t.Errorf("no dashboard has the panel %s, which is listed as empty", key)
		}
	}
	return table.String()
}

// unoffered are the families that no simulated GPU offers, by docs/evidence/metrics-by-gpu.csv.
func unoffered(t *testing.T, root string) (out []string) {
	t.Helper()
	text := must.Read(t, filepath.Join(root, "docs", "evidence", "metrics-by-gpu.csv"))
	for line := range strings.Lines(text) {
		if name, models, _ := strings.Cut(line, ","); strings.Trim(models, ",\n") == "" {
			out = append(out, name)
		}
	}
	return out
}

// run runs one query as its panel does.
func run(ctx context.Context, c dashboard.Client, d dashboard.Dashboard, target dashboard.Target, values dashboard.Values,
	w dashboard.Window) (series int, duration time.Duration, err error) {
	query, err := d.Fill(target.Expr, values, w)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	var found []dashboard.Series
	if target.Instant {
		found, err = c.Instant(ctx, query, w.To)
	} else {
		found, err = c.Range(ctx, query, w)
	}
	return len(found), time.Since(start), err
}

// report writes the table to bin/endtoend.
func report(t *testing.T, name, table string) {
	t.Helper()
	dir := filepath.Join("..", "..", "bin", "endtoend")
	must.OK(t, os.MkdirAll(dir, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(dir, name+".txt"), []byte(table), 0o600))
}
