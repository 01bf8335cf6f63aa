package blocks_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/blocks"
)

// What the database holds is what the fleet did: each sample, over the edges of blocks and a restart.
func TestBlocksHoldWhatTheFleetDid(t *testing.T) {
	f, err := fleet.New(fleet.Demo(4))
	must.OK(t, err)
	from := time.Date(2026, 11, 18, 13, 7, 0, 0, time.UTC)
	o := blocks.Options{From: from, To: from.Add(5 * time.Hour), Step: 5 * time.Minute, Block: 2 * time.Hour}
	dir := t.TempDir()
	result, err := blocks.Write(t.Context(), dir, f, o)
	must.OK(t, err)
	if result.Blocks != 4 {
		t.Errorf("%d blocks for 13:07 to 18:07 in blocks of two hours", result.Blocks)
	}
	// A reader wants the log of a server that ran, if only an empty one.
	must.OK(t, os.Mkdir(filepath.Join(dir, "wal"), 0o755))
	db, err := tsdb.OpenDBReadOnly(dir, "", nil)
	must.OK(t, err)
	defer db.Close()
	q, err := db.Querier(from.UnixMilli(), o.To.UnixMilli())
	must.OK(t, err)
	defer q.Close()
	type sample struct {
		series string
		at     int64
	}
	stored := map[sample]float64{}
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		for it = s.Iterator(it); it.Next() != chunkenc.ValNone; {
			at, v := it.At()
			stored[sample{s.Labels().String(), at}] = v
		}
	}
	must.OK(t, set.Err())
	if int64(len(stored)) != result.Samples {
		t.Errorf("%d samples stored, %d written", len(stored), result.Samples)
	}
	fresh, err := fleet.New(fleet.Demo(4))
	must.OK(t, err)
	s := expose.NewSampler(fresh, nil)
	for at := from; at.Before(o.To); at = at.Add(o.Step) {
		check := func(x expose.Sample) {
			b := labels.NewScratchBuilder(8)
			b.Add(model.MetricNameLabel, x.Name)
			for i := range x.Labels {
				if x.Values[i] != "" {
					b.Add(x.Labels[i], x.Values[i])
				}
			}
			b.Sort()
			key := sample{b.Labels().String(), at.UnixMilli()}
			if v, ok := stored[key]; !ok || v != x.Value && !math.IsNaN(v) {
				t.Fatalf("%v: stored %v (%t), the fleet says %v", key, v, ok, x.Value)
			}
			delete(stored, key)
		}
		for i := range fresh.Len() {
			s.Node(i, at, check)
		}
		s.Kube("main", at, check)
	}
	for key, v := range stored {
		t.Fatalf("%d samples too many, such as %v %v", len(stored), key, v)
	}
}

func TestWriteRefusesNothing(t *testing.T) {
	f, err := fleet.New(fleet.Demo(4))
	must.OK(t, err)
	if _, err := blocks.Write(t.Context(), t.TempDir(), f,
		blocks.Options{From: time.Unix(10, 0), To: time.Unix(10, 0), Step: time.Second}); err == nil {
		t.Error("a past without a step was written")
	}
}
