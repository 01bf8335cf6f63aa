// Package replay evaluates the shipped rules in this process: simulated targets are scraped into a database of
// Prometheus,
// and the rule groups are evaluated by Prometheus' own code, as fast as they can be and at simulated times.
package replay

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/blocks"
)

// Group is a rule group of Prometheus.
type Group = rules.Group

// Server is a Prometheus without HTTP, clock and goroutines.
type Server struct {
	DB     *tsdb.DB
	Engine *promql.Engine
	// Groups are evaluated in this order.
	Groups []*rules.Group
	// Costs are those of the last evaluation of each expression of a rule.
	Costs map[string]Cost
	// Relabel changes the labels of what Fleet scrapes; nil: none.
	Relabel func(labels.Labels) labels.Labels
	// Unmarked has the ends of series not marked as stale, as in a backend that knows no markers.
	Unmarked bool
	targets  map[string]map[uint64]labels.Labels // series of the last scrape
}

// New returns a server with the recording rules and the alerts of a configuration, which is removed with the test.
func New(tb testing.TB, c alerts.Config) *Server {
	tb.Helper()
	records, err := c.RecordingRules()
	if err != nil {
		tb.Fatal(err)
	}
	alerting, err := c.AlertRules()
	if err != nil {
		tb.Fatal(err)
	}
	return WithRules(tb, append(records, alerting...))
}

// Cost is what the evaluation of an expression costs.
type Cost struct {
	// Samples are those that it loads, each as often as it is read.
	Samples int64
	// CPU is the processor time of this process meanwhile: other programs do not count, and garbage collection does.
	CPU time.Duration
}

// CPU returns the processor time of this process.
func CPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it fails for another argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// longest is the longest time that a server records, in milliseconds.
const longest = int64(100 * 24 * time.Hour / time.Millisecond)

// WithRules returns a server with some rules, which is removed with the test.
func WithRules(tb testing.TB, all []alerts.RuleGroup) *Server {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	dir := tb.TempDir()
	db, err := tsdb.Open(filepath.Join(dir, "data"), slog.New(slog.DiscardHandler), nil,
		// One block in memory: writing blocks takes most of the time.
		&tsdb.Options{RetentionDuration: 2 * longest, MinBlockDuration: longest, MaxBlockDuration: longest, StripeSize: 256,
			WALSegmentSize: -1}, nil)
	must(err)
	tb.Cleanup(func() { must(db.Close()) })
	s := &Server{DB: db, targets: map[string]map[uint64]labels.Labels{}, Costs: map[string]Cost{},
		Engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e9,
			Timeout: time.Hour, EnableAtModifier: true, NoStepSubqueryIntervalFn: func(int64) int64 { return 60000 },
			Parser: parser.NewParser(parser.Options{})})}
	file := filepath.Join(dir, "rules.yaml")
	must(os.WriteFile(file, []byte(alerts.RulesFile(all)), 0o600))
	m := rules.NewManager(&rules.ManagerOptions{QueryFunc: s.evaluate, Appendable: s,
		Queryable:  db,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Context: context.Background()})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		tb.Fatal(errs)
	}
	for _, g := range all {
		s.Groups = append(s.Groups, groups[rules.GroupKey(file, g.Name)])
	}
	return s
}

// Appender returns what scrapes and rules write to.
func (s *Server) Appender(ctx context.Context) storage.Appender {
	if s.Unmarked {
		return unmarked{s.DB.Appender(ctx)}
	}
	return s.DB.Appender(ctx)
}

type unmarked struct{ storage.Appender }

func (u unmarked) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if value.IsStaleNaN(v) {
		return ref, nil
	}
	return u.Appender.Append(ref, l, t, v)
}

// Scrape stores what a target exposes at a time, given by do, and ends the series that it no longer exposes.
func (s *Server) Scrape(ctx context.Context, target string, at time.Time, do func(put func(labels.Labels, float64))) error {
	app := s.Appender(ctx)
	seen, before := map[uint64]labels.Labels{}, s.targets[target]
	var failed error
	add := func(l labels.Labels, v float64) {
		if _, err := app.Append(storage.SeriesRef(0), l, at.UnixMilli(), v); err != nil && failed == nil {
			failed = fmt.Errorf("%s at %v: %w", l, at, err)
		}
	}
	do(func(l labels.Labels, v float64) {
		seen[l.Hash()] = l
		add(l, v)
	})
	for hash, l := range before {
		if _, ok := seen[hash]; !ok {
			add(l, math.Float64frombits(value.StaleNaN))
		}
	}
	s.targets[target] = seen
	if failed != nil {
		return failed
	}
	return app.Commit()
}

// Fleet scrapes all nodes of a fleet and its kube-state-metrics.
func (s *Server) Fleet(ctx context.Context, f *fleet.Fleet, sampler *expose.Sampler, at time.Time) error {
	var b labels.ScratchBuilder
	take := func(put func(labels.Labels, float64)) func(expose.Sample) {
		return func(e expose.Sample) {
			l := blocks.Labels(&b, &e)
			if s.Relabel != nil {
				l = s.Relabel(l)
			}
			put(l, e.Value)
		}
	}
	for i := range f.Len() {
		err := s.Scrape(ctx, f.Node(i).Name, at, func(put func(labels.Labels, float64)) { sampler.Node(i, at, take(put)) })
		if err != nil {
			return err
		}
	}
	for _, c := range f.Clusters() {
		err := s.Scrape(ctx, "kube-state-metrics "+c, at, func(put func(labels.Labels, float64)) { sampler.Kube(c, at, take(put)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Eval evaluates the groups that are due at a time; times are multiples of a minute.
func (s *Server) Eval(ctx context.Context, at time.Time) {
	for _, g := range s.Groups {
		if at.UnixMilli()%g.Interval().Milliseconds() == 0 {
			g.Eval(ctx, at)
		}
	}
}

// Query evaluates an expression at a time.
func (s *Server) Query(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	v, _, err := s.query(ctx, expr, at)
	return v, err
}

// evaluate is what a rule calls.
func (s *Server) evaluate(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	begin := CPU()
	v, samples, err := s.query(ctx, expr, at)
	s.Costs[expr] = Cost{samples, CPU() - begin}
	return v, err
}

func (s *Server) query(ctx context.Context, expr string, at time.Time) (promql.Vector, int64, error) {
	q, err := s.Engine.NewInstantQuery(ctx, s.DB, nil, expr, at)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return nil, 0, fmt.Errorf("%s: %w", expr, r.Err)
	}
	samples := q.Stats().Samples.TotalSamples
	if v, ok := r.Value.(promql.Scalar); ok {
		return promql.Vector{{T: v.T, F: v.V}}, samples, nil
	}
	v, err := r.Vector()
	return v, samples, err
}
