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

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// looks are the ways in which a person would look at the board: with what chosen in its variables. All is
// chosen where there is nothing better. A query has data when one of the looks shows some.
func looks(t *testing.T, c board.Client, b board.Board, w board.Window) []board.Values {
	t.Helper()
	has := func(name string) bool {
		return slices.ContainsFunc(b.Variables, func(v board.Variable) bool { return v.Name == name })
	}
	if !has("uuid") {
		return []board.Values{{}}
	}
	var out []board.Values
	for _, query := range []string{
		`topk(1, gpu_tensor_active_seconds_total and on (node, uuid) gpu_nvlink_links and on (node, uuid) gpu_allocation_ratio == 1)`,
		`topk(1, gpu_mig_mode == 1 and on (node, uuid) gpu_mig_busy_seconds_total)`,
		`topk(1, gpu_xid_last_timestamp_seconds and on (node, uuid) gpu_device_up == 1)`,
		`topk(1, count by (node, uuid) (ALERTS{alertstate="firing", uuid!=""}))`,
		`topk(1, gpu_retired_pages_total)`,
	} {
		series, err := c.Instant(t.Context(), query, w.To)
		if err != nil || len(series) == 0 {
			t.Fatalf("nothing to look at: %s: %v", query, err)
		}
		v := board.Values{"uuid": {series[0].Labels["uuid"]}}
		if has("node") {
			v["node"] = []string{series[0].Labels["node"]}
		}
		out = append(out, v)
	}
	return out
}

// absent are the queries that the simulated fleet answers with nothing, by board and panel, with the reason.
// Each must be answered with nothing: a reason that does not hold any more is an error.
type absent map[string]string

// cover asks every query of every board and returns the table of what was found.
func cover(t *testing.T, c board.Client, w board.Window, empty absent) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	boards, err := board.LoadAll(filepath.Join(root, "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	used := map[string]bool{}
	for _, b := range boards {
		views := looks(t, c, b, w)
		for _, v := range b.Variables {
			if v.Type != "query" {
				continue
			}
			choices, err := c.Choices(t.Context(), b, v, views[0], w)
			if err != nil {
				t.Errorf("%s: variable %s: %v", b.UID, v.Name, err)
			} else if len(choices) == 0 {
				t.Errorf("%s: variable %s has no values", b.UID, v.Name)
			}
		}
		panels, series := 0, 0
		for _, p := range b.Panels {
			if len(p.Targets) == 0 {
				continue
			}
			panels++
			found, slowest := 0, time.Duration(0)
			for _, target := range p.Targets {
				n := 0
				for _, values := range views {
					one, took, err := ask(t.Context(), c, b, target, values, w)
					if err != nil {
						t.Errorf("%s: %s: %v", b.UID, p.Title, err)
					}
					n, slowest = n+one, max(slowest, took)
				}
				found += n
				key := b.UID + "/" + p.Title
				if len(p.Targets) > 1 {
					key += "/" + target.RefID
				}
				switch _, known := empty[key]; {
				case n == 0 && !known:
					t.Errorf("%s has no data: %s", key, target.Expr)
				case n > 0 && known:
					t.Errorf("%s has %d series, although it is listed as empty: %s", key, n, empty[key])
				}
				used[key] = true
			}
			series += found
			fmt.Fprintf(&table, "%-14s %-36s %5d series %6.0f ms\n", b.UID, p.Title, found, slowest.Seconds()*1000)
		}
		fmt.Fprintf(&table, "%-14s %-36s %5d series\n\n", b.UID, fmt.Sprintf("%d panels", panels), series)
	}
	for key := range empty {
		if !used[key] {
			t.Errorf("no board has the panel %s, which is listed as empty", key)
		}
	}
	return table.String()
}

// ask answers one query as its panel would.
func ask(ctx context.Context, c board.Client, b board.Board, target board.Target, values board.Values, w board.Window) (series int, took time.Duration, err error) {
	query, err := b.Fill(target.Expr, values, w)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	var found []board.Series
	if target.Instant {
		found, err = c.Instant(ctx, query, w.To)
	} else {
		found, err = c.Range(ctx, query, w)
	}
	return len(found), time.Since(began), err
}

// report prints the table and keeps it where a person finds it after the run.
func report(t *testing.T, name, table string) {
	t.Helper()
	t.Logf("%s:\n%s", name, table)
	dir := filepath.Join("..", "..", "bin", "endtoend")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
}

func keys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
