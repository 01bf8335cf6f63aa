package podmap

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// Pods of 2 to 9 s one after the other, of which a change of the checkpoint reports the start, and nothing the end: the
// time that they have a GPU by the polls is that which they had.
func TestEndsOfShortPods(t *testing.T) {
	for _, c := range []struct {
		name            string
		checkpoint, api bool
		most, least     float64 // of the measured time, to the truth
	}{
		{"the checkpoint", true, false, 1.02, 0.98},
		{"with the pods' watch, which reports ends, but has no events here", true, true, 2, 1.02},
		{"without a checkpoint", false, false, 2, 1.02},
	} {
		clock := newClock()
		k := &fakeKubelet{pods: pods("team/base/main")}
		m := clock.source(k)
		if c.checkpoint {
			m.checkpoint = source.NewCheckpoint("/nonexistent/kubelet_internal_checkpoint", m.table.seed, source.Keep{},
				source.Options{Clock: clock.time, Logger: m.options.Logger})
		}
		if c.api {
			m.watch = &fakeWatch{}
		}
		poll := func() bool {
			t.Helper()
			must.OK(t, m.Poll(t.Context()))
			return len(m.Allocations(node()).List) > 0
		}
		poll()
		var truth, measured time.Duration
		for i := range 160 {
			length := 2*time.Second + time.Duration(i*37%80)*7*time.Second/80
			truth += length
			k.pods = pods("team/base/main", "team/job/main nvidia.com/gpu="+GPUA)
			start := clock.now
			clock.advance(settling)
			if !poll() {
				t.Fatal("the start is not seen")
			}
			seen := clock.now
			for {
				clock.advance(m.delay())
				if clock.now.Sub(start) >= length {
					k.pods = pods("team/base/main")
				}
				if !poll() {
					break
				}
			}
			measured += clock.now.Sub(seen)
			clock.advance(30 * time.Second)
		}
		k.pods = pods("team/base/main", "team/job/main nvidia.com/gpu="+GPUA)
		if poll(); c.checkpoint && !c.api && m.delay() != spacing {
			t.Errorf("a new allocation: %v", m.delay())
		}
		if clock.advance(200 * time.Second); m.delay() != DefaultInterval {
			t.Errorf("an old allocation: %v", m.delay())
		}
		if ratio := measured.Seconds() / truth.Seconds(); ratio > c.most || ratio < c.least {
			t.Errorf("%s: %.3f of the truth", c.name, ratio)
		} else {
			t.Logf("%s: %.3f of the truth", c.name, ratio)
		}
	}
}
