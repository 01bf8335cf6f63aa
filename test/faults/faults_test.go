// Package faults_test plays every row of the table of failures in docs/testing.md in real time: the real binary on
// a fake driver and a kubelet, a node of its own for each row, scraped each second by one real Prometheus with the
// shipped rules. All rows are played at once; then Prometheus is asked what a user has seen.
//
// The pairs of failures, hours of them, and what real time cannot do (clocks that are set, suspend) are TestFaults of
// cmd/exporter.
package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/machine"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

const (
	// quicker is by how much every duration of the rules is shorter than shipped: five minutes take five seconds.
	quicker = 60
	// begun is when a row's exporter has read its GPUs at the latest, after its scenario began; ended is when the
	// last row ends.
	begun, ended = 8 * time.Second, 70 * time.Second
)

// step is what is done to a node at a moment of its scenario.
type step struct {
	at time.Duration
	do func(*stage) error
}

// stage is one row while it is played.
type stage struct {
	row
	t        *testing.T
	node     *machine.Node
	exporter *machine.Exporter
	address  string
	zero     time.Time // of its scenario
}

// start runs the row's exporter, at the address that Prometheus scrapes.
func (s *stage) start() {
	s.exporter = s.node.Start(s.t, machine.Options{Address: s.address, Flags: append([]string{
		"--poll.fast=500ms", "--poll.medium=1s", "--poll.slow=2s", "--poll.kubelet=1s", "--call-deadline=1s"}, s.flags...)})
}

// lay puts up the row's node and its exporter.
func (s *stage) lay(boards string) {
	s.t.Helper()
	text := devs + s.script
	if s.scenario != "" {
		text = s.scenario + s.script
	}
	sc, err := scenario.Parse(s.name+".scenario", text, os.DirFS(boards))
	if err != nil {
		s.t.Fatal(err)
	}
	pods, err := standin.ParsePods(s.name+".pods", strings.NewReader(cmp.Or(s.pods, twoPods)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.node = machine.Lay(s.t, sc, pods)
	s.node.Name = s.name
	s.zero = time.Now().Add(-s.node.Control.Now())
	if s.before != nil {
		if err := s.before(s); err != nil {
			s.t.Fatalf("%s: %v", s.name, err)
		}
	}
	s.start()
}

// prometheus scrapes the stages, whose series bear the row's name as node where they have none of their own.
func prometheus(t *testing.T, stages []*stage) dashboard.Client {
	t.Helper()
	dir := t.TempDir()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: ['%s']\n"+
		"scrape_configs:\n  - job_name: gpu-exporter\n    honor_labels: true\n    static_configs:\n", servers.Rules(t, dir, 1.0/quicker))
	for _, s := range stages {
		fmt.Fprintf(&config, "      - {targets: ['%s'], labels: {node: %s}}\n", s.address, s.name)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	at := servers.Address(t)
	servers.Start(t, dir, servers.Build(t, servers.Prometheus), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at, "--log.level=warn")
	servers.Within(t, 60*time.Second, "Prometheus", servers.Answers("http://"+at+"/-/ready"))
	return dashboard.Client{URL: "http://" + at}
}

// TestRows plays all rows, and asks then.
func TestRows(t *testing.T) {
	boards := filepath.Join(machine.Root(t), "testdata", "scenarios")
	var stages []*stage
	for _, r := range table() {
		stages = append(stages, &stage{row: r, t: t, address: servers.Address(t)})
	}
	p := prometheus(t, stages)
	type planned struct {
		step
		of *stage
		at time.Time
	}
	var plan []planned
	for _, s := range stages {
		s.lay(boards)
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
	questions := 0
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			c := &inquiry{t: t, prometheus: p, stage: s}
			lines = append(lines, c.ask())
			questions += c.asked
		})
	}
	t.Logf("%d rows in real time, %d questions asked of Prometheus; the moments are seconds after the fault and after its end\n%-18s %6s %6s %5s  %-56s %s\n%s", len(lines), questions,
		"row", "seen", "well", "asked", "what happens", "alerts", strings.Join(lines, "\n"))
}

// wait waits for a moment: here time is real, it is what is being tested.
func wait(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
