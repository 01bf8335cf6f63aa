// Package faults_test runs every row of the table of failures in docs/developer/testing.md in real time: the real binary on a
// fake driver and a kubelet, one node for each row, scraped each second by one real Prometheus with the shipped rules.
// All rows run at once; then Prometheus is queried.
//
// Pairs of failures, hours of them, and what real time cannot do (clock changes, suspend) are TestFaults of
// cmd/exporter.
package faults_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/faultkinds"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

const (
	// quicker divides every duration of the rules: five minutes take five seconds.
	quicker = 60
	// started is when a row's exporter has read its GPUs at the latest, since the start of its scenario; ended is the
	// end of the last row.
	started, ended = 8 * time.Second, 70 * time.Second
)

// seed decides when the exporter of a row is killed.
var seed = flag.Uint64("seed", rand.Uint64N(1_000_000), "seed of the random times")

// random is made of the seed.
var random *rand.Rand

// promise is the row of docs/developer/testing.md that a row is of.
func (r *row) promise() string {
	i := slices.IndexFunc(faultkinds.All, func(k faultkinds.Kind) bool { return slices.Contains(k.Rows, r.name) })
	return faultkinds.All[i].Promise
}

// step is an action on a node at a time of its scenario.
type step struct {
	at time.Duration
	do func(*run) error
}

// run is one row while it runs.
type run struct {
	row
	t        *testing.T
	node     *machine.Node
	exporter *machine.Exporter
	address  string
	zero     time.Time // of its scenario
}

// start starts the exporter of the row, at the address that Prometheus scrapes.
func (s *run) start() {
	s.exporter = s.node.Start(s.t, machine.Options{Address: s.address, Flags: append([]string{
		"--poll.fast=500ms", "--poll.medium=1s", "--poll.slow=2s", "--poll.kubelet=1s", "--call-deadline=1s"}, s.flags...)})
}

// setUp sets up the node of the row and its exporter.
func (s *run) setUp() {
	s.t.Helper()
	text := devs + s.script
	if s.scenario != "" {
		text = s.scenario + s.script
	}
	s.node = machine.Parse(s.t, text, cmp.Or(s.pods, twoPods))
	s.node.Name = s.name
	s.zero = time.Now().Add(-s.node.Control.Now())
	if s.before != nil {
		if err := s.before(s); err != nil {
			s.t.Fatalf("%s: %v", s.name, err)
		}
	}
	s.start()
}

// prometheus scrapes all rows. Series without a node get the name of the row.
func prometheus(t *testing.T, runs []*run) dashboard.Client {
	t.Helper()
	dir := t.TempDir()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: ['%s']\n"+
		"scrape_configs:\n  - job_name: gpu-exporter\n    honor_labels: true\n    static_configs:\n", servers.Rules(t, dir, 1.0/quicker))
	for _, s := range runs {
		fmt.Fprintf(&config, "      - {targets: ['%s'], labels: {node: %s}}\n", s.address, s.name)
	}
	file := filepath.Join(dir, "prometheus.yml")
	must.OK(t, os.WriteFile(file, []byte(config.String()), 0o600))
	at := servers.Address(t)
	servers.Start(t, dir, servers.Build(t, servers.Prometheus), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at, "--log.level=warn")
	servers.Until(t, "Prometheus", servers.Answers("http://"+at+"/-/ready"))
	return dashboard.Client{URL: "http://" + at}
}

// TestRows runs all rows, and checks them then.
func TestRows(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	var runs []*run
	for _, r := range table() {
		runs = append(runs, &run{row: r, t: t, address: servers.Address(t)})
	}
	p := prometheus(t, runs)
	type planned struct {
		step
		of *run
		at time.Time
	}
	var plan []planned
	for _, s := range runs {
		s.setUp()
		for _, st := range s.steps {
			plan = append(plan, planned{st, s, s.zero.Add(st.at)})
		}
		plan = append(plan, planned{step{}, s, s.zero.Add(ended)})
	}
	slices.SortStableFunc(plan, func(a, b planned) int { return a.at.Compare(b.at) })
	for _, st := range plan {
		wait(t.Context(), st.at)
		if st.do == nil {
			continue
		}
		if err := st.do(st.of); err != nil {
			t.Errorf("%s: at %v: %v", st.of.name, st.step.at, err)
		}
	}

	var lines []string
	assertions := 0
	for _, s := range runs {
		t.Run(s.name, func(t *testing.T) {
			c := &checker{t: t, prometheus: p, run: s}
			lines = append(lines, c.check())
			assertions += c.queries
		})
	}
	t.Logf("%d rows in real time, %d queries; times are seconds after the start and the end of the fault\n%-18s %8s %9s %7s  %-56s %s\n%s",
		len(lines), assertions, "row", "detected", "recovered", "queries", "fault", "alerts", strings.Join(lines, "\n"))
}

// wait waits until a time.
func wait(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
