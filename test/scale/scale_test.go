package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// TestSmallFleet is the short form of `make scale`: every rule group is evaluated without an error, and every query
// of the boards above node level is answered, with a week of records behind it, and within seconds. How
// fast is for `make scale` to say.
func TestSmallFleet(t *testing.T) {
	t.Parallel() // most of it is waiting for scrapes
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), root, false); err != nil {
		t.Fatal(err)
	}
	boards, err := board.LoadAll(filepath.Join(root, "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	in, err := start(t.Context(), options{Root: root, Nodes: 50, GPUs: 8, Servers: 1, Interval: 5 * time.Second, MemoryGiB: 2, Log: t.Output()}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { in.stop() }()

	// Every rule whose turn comes within the run makes something; those of the other groups are asked below.
	seldom, _, err := seldom()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.New("nothing was evaluated")
	for end := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(end); {
		if _, died := in.watch(t.Context(), 2*time.Second); died != nil {
			t.Fatal(died)
		}
		err = evaluated(t, in, seldom)
	}
	if err != nil {
		t.Fatal(err)
	}

	depth, err := depths(boards, 7*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name := range seldom {
		if depth[name] == 0 {
			t.Errorf("no board looks back at %s, which is there for that alone", name)
		}
	}
	series, err := records(t.Context(), in.servers[0].url, depth, in.Interval)
	if err != nil {
		t.Fatal(err)
	}
	for name := range seldom {
		if !slices.ContainsFunc(series, func(p past) bool { return p.labels.Get("__name__") == name }) {
			t.Errorf("%s makes nothing", name)
		}
	}
	samples, err := writePast(t.Context(), in.data("prometheus-1"), series, began.Truncate(time.Minute).Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	// A server that starts sees the blocks at once.
	if in.servers[0], err = in.servers[0].again(t.Context()); err != nil {
		t.Fatal(err)
	}
	boards = above(boards)
	if len(boards) != len(aboveNode) {
		t.Fatalf("%d of the boards %v exist", len(boards), aboveNode)
	}
	all, err := asking{URL: in.servers[0].url, Often: 2, Limit: 30 * time.Second, For: 2 * time.Minute, Scrape: time.Minute}.all(t.Context(), boards)
	if err != nil {
		t.Fatal(err)
	}
	data := 0
	for _, a := range all {
		switch {
		case a.Err != "":
			t.Errorf("%s: %s: %s", a.Board, a.Panel, a.Err)
		case a.weight() > 5*time.Second:
			t.Errorf("%s: %s takes %v: %s", a.Board, a.Panel, a.Took, a.Query)
		}
		if a.Series > 0 {
			data++
		}
	}
	if data < len(all)*3/4 {
		t.Errorf("%d of %d queries have data", data, len(all))
	}
	t.Logf("%d series and %d samples of a past\n%s", len(series), samples, askedTable(all))
}

// evaluated tells whether every rule was evaluated that is due, and that none failed.
func evaluated(t *testing.T, in *installation, seldom map[string]alerts.Rule) error {
	t.Helper()
	rules, err := ruleTimes(t.Context(), in.servers[0].url)
	if err != nil {
		return err
	}
	if len(rules) < 100 {
		return fmt.Errorf("%d rules are loaded", len(rules))
	}
	for _, r := range rules {
		if r.Failed != "" {
			t.Fatalf("%s of %s: %s", r.Name, r.Group, r.Failed)
		}
		if _, rare := seldom[r.Name]; r.Waits && !rare {
			return fmt.Errorf("%s of %s was not evaluated", r.Name, r.Group)
		}
	}
	// What counts problems has nothing to tell while nothing is wrong.
	n, err := in.number(t.Context(), "count(count_over_time(workload:gpu_unused_seconds:rate5m[1m:5s])) and on () count(count_over_time(workload:gpu_busy_seconds:rate5m[1m:5s])) and on () count(workload:gpu_busy:ratio_max) and on () count(cluster:gpu_time_seconds:rate5m)")
	if err == nil && n == 0 {
		err = errors.New("no records of workloads yet")
	}
	return err
}

// A table of the boards' queries says how far back each record is read.
func TestDepths(t *testing.T) {
	b := board.Board{UID: "b", From: "now-7d", Panels: []board.Panel{{Targets: []board.Target{
		{Instant: true, Expr: `sum(now:only:x{c=~"$cluster"}) + sum_over_time(all:range:x{c="a"}[$__range:5m])`},
		{Instant: true, Expr: `predict_linear(three:days:x[3d], 60) and two:days:x{a="b"} offset 2d and five:minutes:x[5m]`},
		{Expr: `sum(over:time:x) / ALERTS{a="b"}`},
	}}}}
	const day = 24 * time.Hour
	got, err := depths([]board.Board{b}, 4*day)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{"all:range:x": 4 * day, "three:days:x": 3 * day, "two:days:x": 2 * day, "over:time:x": 4 * day, "ALERTS": 4 * day}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// TestSeveralServers shares the nodes of one cluster between two servers that send what their rules make to one database:
// it has everything that both have and nothing else, and the boards show what they show of one server with all nodes.
func TestSeveralServers(t *testing.T) {
	t.Parallel() // most of it is waiting for scrapes
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), root, true); err != nil {
		t.Fatal(err)
	}
	boards, err := board.LoadAll(filepath.Join(root, "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	m := &measuring{began: time.Now(), figures: figures{Nodes: 20, GPUs: 80, Servers: 2, Split: byNode}}
	m.installation, err = start(t.Context(), options{Root: root, Nodes: 20, GPUs: 4, Servers: 2, Split: byNode, Reference: true, Interval: 5 * time.Second, MemoryGiB: 2, Log: t.Output()}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer m.stop()
	h := &held{}
	err = errors.New("nothing was compared")
	for end := time.Now().Add(4 * time.Minute); err != nil && time.Now().Before(end); {
		if _, died := m.watch(t.Context(), 5*time.Second); died != nil {
			t.Fatal(died)
		}
		// The rates of young servers depend on when each scraped first; a part that is missing would be half. On a busy machine
		// what was made reaches the database late.
		*h = held{At: time.Now().Add(-20 * time.Second).Truncate(time.Second), Boards: &boardsHeld{}}
		err = errors.Join(m.holdNames(t.Context(), h), m.holdRecords(t.Context(), h), m.holdBoards(t.Context(), h, above(boards), 0.25))
		switch {
		case err != nil:
		case h.Records < 80:
			err = fmt.Errorf("%d records so far", h.Records)
		case len(h.Different) > 0:
			err = fmt.Errorf("the database differs from the servers in %v", h.Different)
		case h.Boards.Same < h.Boards.Queries:
			err = fmt.Errorf("boards differ from those of one server: %s", strings.Join(h.Boards.Other, "\n"))
		}
	}
	if err != nil {
		t.Error(err)
	}
	if len(h.Foreign) > 0 {
		t.Errorf("no rule makes %v", h.Foreign)
	}
	t.Logf("%d records of %.0f series, %d queries of boards", h.Records, h.Series, h.Boards.Queries)
}
