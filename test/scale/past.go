package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	neturl "net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/test/board"
)

var (
	recordName = regexp.MustCompile(`\b[a-z]+:[a-z0-9_]+:[a-z0-9_]+|\bALERTS\b`)
	// lookedBack finds a record with the window or the offset behind its selector.
	lookedBack = regexp.MustCompile(`(\b[a-z]+:[a-z0-9_]+:[a-z0-9_]+|\bALERTS\b)(?:\{[^{}]*\})?(?:\[(\$__range|\d+[smhd])[^\]]*\]| offset (\d+[smhd]))`)
)

// depths says how far back the boards look at each record; those that are only looked at now are left out.
func depths(boards []board.Board, longest time.Duration) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for _, b := range boards {
		span, err := span(b)
		if err != nil {
			return nil, err
		}
		look := func(name string, far time.Duration) {
			if far > time.Hour {
				out[name] = min(longest, max(out[name], far))
			}
		}
		for _, p := range b.Panels {
			for _, t := range p.Targets {
				if !t.Instant {
					for _, name := range recordName.FindAllString(t.Expr, -1) {
						look(name, span)
					}
				}
				for _, m := range lookedBack.FindAllStringSubmatch(t.Expr, -1) {
					if m[2] == "$__range" {
						look(m[1], span)
						continue
					}
					far, err := model.ParseDuration(m[2] + m[3])
					if err != nil {
						return nil, fmt.Errorf("board %s: %s: %w", b.UID, t.Expr, err)
					}
					look(m[1], time.Duration(far))
				}
			}
		}
	}
	return out, nil
}

// past is a series that is given a past.
type past struct {
	labels labels.Labels
	value  float64
	depth  time.Duration
	// step is the time between two samples.
	step time.Duration
}

// seldom are the records of groups with an interval of their own: most of the time an instant query does not find
// them, so that their expression is asked.
func seldom() (map[string]alerts.Rule, map[string]time.Duration, error) {
	groups, err := alerts.Default().RecordingRules()
	rules, step := map[string]alerts.Rule{}, map[string]time.Duration{}
	for _, g := range groups {
		for _, r := range g.Rules {
			if g.Interval > 0 {
				rules[r.Record], step[r.Record] = r, g.Interval
			}
		}
	}
	return rules, step, err
}

// records asks a server for the series of the records, as they are now. What is integrated in steps of five minutes is
// integrated in steps of the scrapes instead: a young server may have nothing at the last whole five minutes.
func records(ctx context.Context, url string, depth map[string]time.Duration, interval time.Duration) ([]past, error) {
	rules, step, err := seldom()
	if err != nil {
		return nil, err
	}
	var out []past
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	for _, name := range slices.Sorted(maps.Keys(depth)) {
		query, share := cmp.Or(rules[name].Expr, name), 1.0
		if strings.Contains(query, ":5m]") {
			query, share = strings.ReplaceAll(query, ":5m]", ":"+promDuration(interval)+"]"), interval.Minutes()/5
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/query?query="+neturl.QueryEscape(query), nil)
		if err != nil {
			return nil, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Status, Error string
			Data          struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return nil, err
		}
		if answer.Status != "success" {
			return nil, fmt.Errorf("%s: %s", name, answer.Error)
		}
		for _, r := range answer.Data.Result {
			text, _ := r.Value[1].(string)
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			r.Metric["__name__"] = name
			out = append(out, past{labels.FromMap(r.Metric), v * share, depth[name], max(time.Minute, step[name])})
		}
	}
	return out, nil
}

// at is the value at a time: the value of now, a little off.
func (p *past) at(dice *rand.Rand) float64 {
	if p.value == math.Trunc(p.value) && math.Abs(p.value) < 1000 {
		return p.value // counts and shares that move seldom
	}
	// Few binary digits: a database packs what is measured better than noise.
	return math.Float64frombits(math.Float64bits(p.value*(0.95+0.1*dice.Float64())) &^ (1<<40 - 1))
}

// blockLength is one that Prometheus makes itself, so that it leaves the blocks as they are.
const blockLength = 18 * time.Hour

// writePast writes the past of the series into the data of a running Prometheus, up to the time to.
func writePast(ctx context.Context, data string, series []past, to time.Time) (samples int64, err error) {
	slices.SortFunc(series, func(a, b past) int { return cmp.Compare(b.depth, a.depth) })
	if len(series) == 0 {
		return 0, errors.New("no records to give a past to")
	}
	from := to.Add(-series[0].depth)
	for at := from.Truncate(blockLength); at.Before(to); at = at.Add(blockLength) {
		n, err := writeBlock(ctx, data, series, at, at.Add(blockLength), to)
		samples += n
		if err != nil {
			return samples, err
		}
	}
	return samples, nil
}

// importPast sends the past to a VictoriaMetrics, as lines of JSON, with the labels that the server's series have there beside
// their own.
func importPast(ctx context.Context, url string, series []past, tags map[string]string, to time.Time) (samples int64, err error) {
	dice := rand.New(rand.NewPCG(1, 1))
	type line struct {
		Metric     map[string]string `json:"metric"`
		Values     []float64         `json:"values"`
		Timestamps []int64           `json:"timestamps"`
	}
	for part := range slices.Chunk(series, 200) {
		var body bytes.Buffer
		enc := json.NewEncoder(&body)
		for _, p := range part {
			l := line{Metric: p.labels.Map()}
			maps.Copy(l.Metric, tags)
			for at := to.Add(-p.depth).Truncate(p.step); at.Before(to); at = at.Add(p.step) {
				l.Timestamps, l.Values = append(l.Timestamps, at.UnixMilli()), append(l.Values, p.at(dice))
			}
			if err := enc.Encode(l); err != nil {
				return samples, err
			}
			samples += int64(len(l.Values))
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/import", &body)
		if err != nil {
			return samples, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return samples, err
		}
		if err := res.Body.Close(); err != nil {
			return samples, err
		}
		if res.StatusCode/100 != 2 {
			return samples, fmt.Errorf("import of a past: %s", res.Status)
		}
	}
	return samples, get(ctx, url+"/internal/force_flush")
}

func writeBlock(ctx context.Context, data string, series []past, from, to, end time.Time) (samples int64, err error) {
	// The head takes what is at most half its range behind: each series begins anew at the block's beginning.
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), data, 2*blockLength.Milliseconds())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	dice := rand.New(rand.NewPCG(1, uint64(from.UnixMilli())))
	for part := range slices.Chunk(series, 100) {
		if err := ctx.Err(); err != nil {
			return samples, err
		}
		app := w.Appender(ctx)
		for _, p := range part {
			at := end.Add(-p.depth).Truncate(p.step)
			if at.Before(from) {
				at = from // a whole multiple of every step
			}
			ref, l := storage.SeriesRef(0), p.labels
			for ; at.Before(to) && at.Before(end); at = at.Add(p.step) {
				next, err := app.Append(ref, l, at.UnixMilli(), p.at(dice))
				if err != nil {
					return samples, errors.Join(fmt.Errorf("%s at %v: %w", p.labels, at, err), app.Rollback())
				}
				ref, l = next, labels.EmptyLabels()
				samples++
			}
		}
		if err := app.Commit(); err != nil {
			return samples, err
		}
	}
	if samples == 0 {
		return 0, nil
	}
	_, err = w.Flush(ctx)
	return samples, err
}
