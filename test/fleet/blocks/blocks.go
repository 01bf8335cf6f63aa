// Package blocks writes the past of a simulated fleet as blocks of a Prometheus database: weeks of many GPUs in
// minutes, for tests of dashboards, rules and reports that need a past.
package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// Options say what is written.
type Options struct {
	// From and To bound the past, From among it; Step is the time between two scrapes.
	From, To time.Time
	Step     time.Duration
	// Block is the length of a block: two hours times a whole number. Where it is 0 it is chosen such that a
	// block has some hundred steps.
	Block time.Duration
	// Want says which families are written; nil: all. Weeks of raw series of a thousand GPUs are many: choose.
	Want func(name string) bool
}

// Result is what was written.
type Result struct {
	Blocks  int
	Samples int64
}

const smallest = 2 * time.Hour

func (o *Options) block() time.Duration {
	if o.Block > 0 {
		return max(smallest, o.Block.Truncate(smallest))
	}
	return max(smallest, (300 * o.Step).Truncate(smallest))
}

// Write writes the past of a fleet into dir, where the data of a Prometheus that does not run may be already.
func Write(ctx context.Context, dir string, f *fleet.Fleet, o Options) (Result, error) {
	var r Result
	if o.Step <= 0 || !o.From.Before(o.To) {
		return r, fmt.Errorf("a past from %v to %v in steps of %v has no step", o.From, o.To, o.Step)
	}
	block := o.block()
	samplers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range samplers {
		samplers[i] = &worker{fleet: f, sampler: expose.NewSampler(f, o.Want), options: &o}
	}
	for at := o.From; at.Before(o.To); {
		// Blocks begin at whole multiples of their length.
		edge := at.UnixMilli() / block.Milliseconds() * block.Milliseconds()
		end := time.UnixMilli(edge + block.Milliseconds())
		if end.After(o.To) {
			end = o.To
		}
		n, err := writeBlock(ctx, dir, block, samplers, at, end)
		if err != nil {
			return r, err
		}
		r.Samples += n
		if n > 0 {
			r.Blocks++
		}
		steps := (end.Sub(at) + o.Step - 1) / o.Step
		at = at.Add(steps * o.Step)
	}
	return r, nil
}

// worker writes one target at a time.
type worker struct {
	fleet   *fleet.Fleet
	sampler *expose.Sampler
	options *Options
	builder labels.ScratchBuilder
}

func writeBlock(ctx context.Context, dir string, length time.Duration, workers []*worker, from, to time.Time) (samples int64, err error) {
	// The head takes what is at most half its range behind: each node begins anew at the block's beginning.
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 2*length.Milliseconds())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f := workers[0].fleet
	clusters := f.Clusters()
	var next, total atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, len(workers))
	for _, worker := range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= f.Len()+len(clusters) {
					return
				}
				n, err := worker.target(ctx, w, i, clusters, from, to)
				total.Add(n)
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if total.Load() == 0 {
		return 0, nil
	}
	_, err = w.Flush(ctx)
	return total.Load(), err
}

// target writes one node, or behind the nodes one cluster.
func (w *worker) target(ctx context.Context, b *tsdb.BlockWriter, i int, clusters []string, from, to time.Time) (count int64, err error) {
	app := b.Appender(ctx)
	known := map[string]storage.SeriesRef{}
	var key []byte
	var failed error
	pending := 0
	put := func(at time.Time, ref storage.SeriesRef, l labels.Labels, v float64) storage.SeriesRef {
		ref, err := app.Append(ref, l, at.UnixMilli(), v)
		if err != nil && failed == nil {
			failed = fmt.Errorf("cannot append %s at %v: %w", l, at, err)
		}
		count++
		pending++
		return ref
	}
	for at := from; at.Before(to) && failed == nil; at = at.Add(w.options.Step) {
		take := func(s expose.Sample) {
			key = s.AppendSeries(key[:0])
			ref, ok := known[string(key)]
			if ok {
				put(at, ref, labels.EmptyLabels(), s.Value)
				return
			}
			known[string(key)] = put(at, 0, Labels(&w.builder, &s), s.Value)
		}
		if i >= w.fleet.Len() {
			w.sampler.Kube(clusters[i-w.fleet.Len()], at, take)
		} else {
			w.sampler.Node(i, at, take)
		}
		if pending > 50000 {
			if err := app.Commit(); err != nil {
				return count, err
			}
			app, pending = b.Appender(ctx), 0
			if err := ctx.Err(); err != nil {
				return count, errors.Join(err, app.Rollback())
			}
		}
	}
	if failed != nil {
		return count, errors.Join(failed, app.Rollback())
	}
	return count, app.Commit()
}

// Labels makes a series' labels with a builder; those without value are not there.
func Labels(b *labels.ScratchBuilder, s *expose.Sample) labels.Labels {
	b.Reset()
	b.Add(model.MetricNameLabel, s.Name)
	for i, l := range s.Labels {
		if s.Values[i] != "" {
			b.Add(l, s.Values[i])
		}
	}
	b.Sort()
	return b.Labels()
}
