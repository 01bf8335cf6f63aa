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

// chosen are the values of variables with which a board is looked at: what a person would have clicked on.
// A board that is not listed is looked at with All.
func chosen(t *testing.T, c board.Client, b board.Board, w board.Window) board.Values {
	t.Helper()
	ask := func(query, label string) string {
		series, err := c.Instant(t.Context(), query, w.To)
		if err != nil {
			t.Fatal(err)
		}
		if len(series) == 0 {
			t.Fatalf("nothing to look at: %s", query)
		}
		return series[0].Labels[label]
	}
	values := board.Values{}
	for _, v := range b.Variables {
		switch {
		case v.Name == "node":
			values["node"] = []string{ask(`topk(1, count by (node) (gpu_nvlink_links))`, "node")}
		case v.Name == "uuid" || v.Name == "gpu":
			values[v.Name] = []string{ask(`topk(1, gpu_profiled_seconds_total{node="`+values["node"][0]+`"})`, v.Name)}
		}
	}
	return values
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
		values := chosen(t, c, b, w)
		for _, v := range b.Variables {
			if v.Type != "query" {
				continue
			}
			choices, err := c.Choices(t.Context(), b, v, values, w)
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
				n, took, err := ask(t.Context(), c, b, target, values, w)
				if err != nil {
					t.Errorf("%s: %s: %v", b.UID, p.Title, err)
				}
				found, slowest = found+n, max(slowest, took)
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

// union joins lists of what is empty.
func union(lists ...absent) absent {
	out := absent{}
	for _, l := range lists {
		for k, v := range l {
			out[k] = v
		}
	}
	return out
}

func keys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
