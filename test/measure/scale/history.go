package scale

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

var (
	recordName = regexp.MustCompile(`\b[a-z]+:[a-z0-9_]+:[a-z0-9_]+|\bALERTS\b`)
	// lookback matches a record with the range or the offset behind its selector.
	lookback = regexp.MustCompile(`(\b[a-z]+:[a-z0-9_]+:[a-z0-9_]+|\bALERTS\b)(?:\{[^{}]*\})?` +
		`(?:\[(\$__range|\d+[smhd])[^\]]*\]| offset (\d+[smhd]))`)
)

// depths returns how far back the dashboards read each record; those read at the current time alone are left out.
func depths(dashboards []dashboard.Dashboard, longest time.Duration) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	add := func(name string, depth time.Duration) {
		if depth > time.Hour {
			out[name] = min(longest, max(out[name], depth))
		}
	}
	for _, d := range dashboards {
		span, err := timeRange(d)
		if err != nil {
			return nil, err
		}
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				for _, name := range recordName.FindAllString(t.Expr, -1) {
					if !t.Instant {
						add(name, span)
					}
				}
				for _, m := range lookback.FindAllStringSubmatch(t.Expr, -1) {
					depth := model.Duration(span)
					if m[2] != "$__range" {
						if depth, err = model.ParseDuration(m[2] + m[3]); err != nil {
							return nil, fmt.Errorf("dashboard %s: %s: %w", d.UID, t.Expr, err)
						}
					}
					add(m[1], time.Duration(depth))
				}
			}
		}
	}
	return out, nil
}

// recent is how far an instant query looks back.
const recent = 5 * time.Minute

// series is a recorded series that gets a history of a depth, with samples at each step.
type series struct {
	labels      labels.Labels
	value       float64
	depth, step time.Duration
}

// rareRules are the recording rules of groups that are evaluated less often than an instant query looks back: it often
// misses their series, so their expression is evaluated instead, with those of the ones that it reads.
func rareRules() (map[string]alerts.Rule, map[string]time.Duration, error) {
	groups, err := alerts.Default().RecordingRules()
	rules, step := map[string]alerts.Rule{}, map[string]time.Duration{}
	for _, g := range groups {
		for _, r := range g.Rules {
			if g.Interval < recent {
				continue
			}
			r.Expr = recordName.ReplaceAllStringFunc(r.Expr, func(name string) string {
				if read, ok := rules[name]; ok {
					return "(" + read.Expr + ")"
				}
				return name
			})
			rules[r.Record], step[r.Record] = r, g.Interval
		}
	}
	return rules, step, err
}

// records returns the recorded series of a server as they are now. What is integrated in steps of five minutes is
// integrated in steps of the scrapes: a young server may have nothing at the last full five minutes.
func records(ctx context.Context, s *server, depth map[string]time.Duration, interval time.Duration) ([]series, error) {
	rules, step, err := rareRules()
	if err != nil {
		return nil, err
	}
	var out []series
	for _, name := range slices.Sorted(maps.Keys(depth)) {
		query, factor := cmp.Or(rules[name].Expr, name), 1.0
		if strings.Contains(query, ":5m]") {
			query, factor = strings.ReplaceAll(query, ":5m]", ":"+milliseconds(interval)+"]"), interval.Minutes()/5
		}
		found, err := instant(ctx, s, query, time.Now())
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			r.Labels[model.MetricNameLabel] = name
			out = append(out, series{labels.FromMap(r.Labels), r.Points[0].Value * factor, depth[name], max(time.Minute, step[name])})
		}
	}
	return out, nil
}

// at is a value of the history: the current one with some noise.
func (s *series) at(random *rand.Rand) float64 {
	if s.value == math.Trunc(s.value) && math.Abs(s.value) < 1000 {
		return s.value // counts and shares change rarely
	}
	// Few binary digits: measured values compress better than noise.
	return math.Float64frombits(math.Float64bits(s.value*(0.95+0.1*random.Float64())) &^ (1<<40 - 1))
}

// blockLength is one that Prometheus compacts to itself, so that it leaves the blocks as they are.
const blockLength = 18 * time.Hour

// writeBlocks writes the history of the series up to a time into the data of a running Prometheus.
func writeBlocks(ctx context.Context, data string, all []series, to time.Time) (samples int64, err error) {
	if len(all) == 0 {
		return 0, errors.New("no recorded series")
	}
	deepest := slices.MaxFunc(all, func(a, b series) int { return cmp.Compare(a.depth, b.depth) }).depth
	for at := to.Add(-deepest).Truncate(blockLength); at.Before(to) && err == nil; at = at.Add(blockLength) {
		var n int64
		n, err = writeBlock(ctx, data, all, at, to)
		samples += n
	}
	return samples, err
}

func writeBlock(ctx context.Context, data string, all []series, from, end time.Time) (samples int64, err error) {
	// The head accepts what is at most half its range behind: each series begins again at the block's start.
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), data, 2*blockLength.Milliseconds())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	random := rand.New(rand.NewPCG(1, uint64(from.UnixMilli())))
	for chunk := range slices.Chunk(all, 100) {
		app := w.Appender(ctx)
		for _, s := range chunk {
			at := end.Add(-s.depth).Truncate(s.step)
			if at.Before(from) {
				at = from // a multiple of every step
			}
			ref, l := storage.SeriesRef(0), s.labels
			for ; at.Before(from.Add(blockLength)) && at.Before(end); at = at.Add(s.step) {
				if ref, err = app.Append(ref, l, at.UnixMilli(), s.at(random)); err != nil {
					return samples, errors.Join(fmt.Errorf("%s at %v: %w", s.labels, at, err), app.Rollback())
				}
				l = labels.EmptyLabels()
				samples++
			}
		}
		if err := errors.Join(ctx.Err(), app.Commit()); err != nil {
			return samples, err
		}
	}
	if samples > 0 {
		_, err = w.Flush(ctx)
	}
	return samples, err
}

// writeText writes the history in the text format, with the labels that series have in a database beside their own.
func writeText(out io.Writer, all []series, tags map[string]string, to time.Time) error {
	random, b := rand.New(rand.NewPCG(1, 1)), bufio.NewWriter(out)
	for _, s := range all {
		l := labels.NewBuilder(s.labels)
		for name, value := range tags {
			l.Set(name, value)
		}
		name := l.Get(model.MetricNameLabel)
		metric := name + l.Del(model.MetricNameLabel).Labels().String()
		for at := to.Add(-s.depth).Truncate(s.step); at.Before(to); at = at.Add(s.step) {
			fmt.Fprintf(b, "%s %g %d\n", metric, s.at(random), at.UnixMilli())
		}
	}
	return b.Flush()
}
