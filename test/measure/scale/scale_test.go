package scale

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// TestSmallFleet is a short `make scale`: every rule is evaluated without an error, and every query of the dashboards above node
// level succeeds within seconds, with a week of recorded series.
func TestSmallFleet(t *testing.T) {
	t.Parallel() // most of it is waiting for scrapes
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	must.OK(t, err)
	must.OK(t, build(t.Context(), root, false))
	boards, err := dashboard.LoadAll(filepath.Join(root, "dashboards"))
	must.OK(t, err)
	launched := time.Now()
	l, err := start(t.Context(), options{root: root, rules: quickRules(t, root, "30m"), nodes: 50, gpus: 8, servers: 1,
		interval: 5 * time.Second, memoryGiB: 2, log: t.Output()}, t.TempDir())
	must.OK(t, err)
	defer func() { l.stop() }()

	// Rules of groups with a long interval are not evaluated within the test; their expressions are, below.
	rare, _, err := rareRules()
	must.OK(t, err)
	err = errors.New("nothing was evaluated")
	for end := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(end); {
		if _, died := l.wait(t.Context(), 2*time.Second); died != nil {
			t.Fatal(died)
		}
		err = evaluated(t, l, rare)
	}
	must.OK(t, err)

	depth, err := depths(boards, 7*24*time.Hour)
	must.OK(t, err)
	shipped := must.Read(t, filepath.Join(root, "alerts", "alerts.rules.yaml"))
	for name := range rare {
		if depth[name] == 0 && !strings.Contains(shipped, name) {
			t.Errorf("no dashboard and no alert reads the history of %s, which is recorded for that alone", name)
		}
	}
	// A record of records has a result from the evaluation after that of what it reads.
	var found []series
	err = errors.New("nothing was recorded")
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		if found, err = records(t.Context(), l.servers[0], depth, l.interval); err != nil {
			t.Fatal(err)
		}
		for name := range rare {
			if depth[name] > 0 && !slices.ContainsFunc(found, func(s series) bool { return s.labels.Get("__name__") == name }) {
				err = errors.Join(err, fmt.Errorf("%s records nothing", name))
			}
		}
		if err != nil {
			time.Sleep(l.interval)
		}
	}
	if err != nil {
		t.Error(err)
	}
	samples, err := writeBlocks(t.Context(), l.data("prometheus-1"), found, launched.Truncate(time.Minute).Add(-time.Minute))
	must.OK(t, err)
	// A server that starts loads the blocks at once.
	if l.servers[0], err = l.servers[0].restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if boards = above(boards); len(boards) != len(aboveNode) {
		t.Fatalf("%d of the dashboards %v exist", len(boards), aboveNode)
	}
	all, err := querier{server: l.servers[0], repeat: 2, timeout: 30 * time.Second, total: 2 * time.Minute,
		scrape: time.Minute}.all(t.Context(), boards)
	must.OK(t, err)
	data := 0
	for _, a := range all {
		switch {
		case a.Err != "":
			t.Errorf("%s: %s: %s", a.Dashboard, a.Panel, a.Err)
		case a.Min() > 5:
			t.Errorf("%s: %s takes %v", a.Dashboard, a.Panel, a.Seconds)
		}
		if a.Series > 0 {
			data++
		}
	}
	if data < len(all)*3/4 {
		t.Errorf("%d of %d queries have data", data, len(all))
	}
	t.Logf("%d series and %d samples of history, slowest: %v", len(found), samples, Slowest(all))
}

// quickRules returns a folder with the shipped rules, in which groups that are evaluated every few minutes follow the lab's
// interval as all others do. Records of half hours follow another.
func quickRules(t *testing.T, root, halfHours string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(root, "alerts", "*.rules.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		rules := must.Read(t, f)
		rules = regexp.MustCompile(`\n  interval: \dm\n`).ReplaceAllString(rules, "\n")
		rules = strings.ReplaceAll(rules, "\n  interval: 30m\n", "\n  interval: "+halfHours+"\n")
		must.OK(t, os.WriteFile(filepath.Join(dir, filepath.Base(f)), []byte(rules), 0o600))
	}
	return dir
}

// evaluated checks that every rule that is due was evaluated, and none failed.
func evaluated(t *testing.T, l *lab, rare map[string]alerts.Rule) error {
	t.Helper()
	rules, err := ruleTimes(t.Context(), l.servers[0])
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
		if _, isRare := rare[r.Name]; r.Pending && !isRare {
			return fmt.Errorf("%s of %s was not evaluated", r.Name, r.Group)
		}
	}
	// Rules that count problems record nothing while there are none.
	n, err := value(t.Context(), l.servers[0], "count(count_over_time(workload:gpu_unused_seconds:rate5m[1m:5s])) and on () "+
		"count(count_over_time(workload:gpu_busy_seconds:rate5m[1m:5s])) and on () count(workload:gpu_busy:ratio_max) and on () "+
		"count(model:gpu_time_seconds:rate5m)", time.Now())
	if err == nil && n == 0 {
		err = errors.New("no records of workloads yet")
	}
	return err
}

// The depth of a record is the longest range over which a dashboard reads it.
func TestDepths(t *testing.T) {
	b := dashboard.Dashboard{UID: "b", From: "now-7d", Panels: []dashboard.Panel{{Targets: []dashboard.Target{
		{Instant: true, Expr: `sum(now:only:x{c=~"$cluster"}) + sum_over_time(all:range:x{c="a"}[$__range:5m])`},
		{Instant: true, Expr: `predict_linear(three:days:x[3d], 60) and two:days:x{a="b"} offset 2d and five:minutes:x[5m]`},
		{Expr: `sum(over:time:x) / ALERTS{a="b"}`},
	}}}}
	const day = 24 * time.Hour
	got, err := depths([]dashboard.Dashboard{b}, 4*day)
	must.OK(t, err)
	want := map[string]time.Duration{"all:range:x": 4 * day, "three:days:x": 3 * day, "two:days:x": 2 * day, "over:time:x": 4 * day,
		"ALERTS": 4 * day}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// TestSeveralServers shares the nodes of one cluster between two servers that write what their rules record to one database: it has
// everything that both have and nothing else, and the dashboards show what they show on one server with all nodes.
func TestSeveralServers(t *testing.T) {
	t.Parallel() // most of it is waiting for scrapes
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	must.OK(t, err)
	must.OK(t, build(t.Context(), root, true))
	boards, err := dashboard.LoadAll(filepath.Join(root, "dashboards"))
	must.OK(t, err)
	// Each server evaluates records of half hours at its own time: one would have for minutes what another lacks.
	l, err := start(t.Context(), options{root: root, rules: quickRules(t, root, "10000h"), nodes: 20, gpus: 4, servers: 2, split: byNode,
		reference: true,
		interval:  5 * time.Second,
		memoryGiB: 2, log: t.Output()}, t.TempDir())
	must.OK(t, err)
	defer l.stop()
	launched := time.Now()
	var c *Comparison
	err = errors.New("nothing was compared")
	for end := launched.Add(4 * time.Minute); err != nil && time.Now().Before(end); {
		if aborted, err := l.wait(t.Context(), 5*time.Second); aborted != "" || err != nil {
			t.Fatal(aborted, err)
		}
		// The rates of young servers depend on when each scraped first; a share that is missing would be half.
		c = &Comparison{}
		err = errors.Join(l.compareNames(t.Context(), c), l.compareRecords(t.Context(), c), l.compareTruth(t.Context(), c),
			l.compareDashboards(t.Context(), c, above(boards), launched, 0.25))
		switch {
		case err != nil:
		case c.Names < 60:
			err = fmt.Errorf("%d names so far", c.Names)
		case len(c.Differences) > 0:
			err = fmt.Errorf("the database differs: %s", strings.Join(c.Differences, "\n"))
		}
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%+v", c)
}
