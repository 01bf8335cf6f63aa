package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// Events in a range are those of the counters: none is lost or counted twice, whatever the scrape interval, through a gap
// of the scrapes and a restart of the exporter.
func TestEventsAddUp(t *testing.T) {
	start := fleet.DefaultEpoch()
	gpu := []string{"node", "n1", "uuid", "GPU-A", "gpu", "0"}
	for _, every := range []int{15, 30, 35, 60, 61} {
		t.Run(fmt.Sprintf("%ds", every), func(t *testing.T) {
			t.Parallel()
			s := replay.New(t, alerts.Default())
			s.Groups = slices.DeleteFunc(s.Groups, func(g *replay.Group) bool {
				return !slices.Contains([]string{"gpu-exporter-models", "gpu-exporter-problems", "gpu-exporter-allocation",
					"gpu-exporter-events"}, g.Name())
			})
			const restart = 4000 // seconds
			// An event between the last evaluation and a restart is in no record.
			events, errors, fresh, scraped, seen, unseen := 0, 100.0, 0, 0, 0, -1
			for second := range 7200 {
				at := start.Add(time.Duration(second) * time.Second)
				if second > 1000 && second < 6500 && second%37 == 0 { // the first begins the series
					events, errors = events+1, errors+3
				}
				if second == restart {
					fresh = events
				}
				gap := second >= 2500 && second < 2900
				if second%every == every/2 && !gap {
					err := s.Scrape(t.Context(), "n1", at, func(put func(labels.Labels, float64)) {
						series := func(name string, v float64, more ...string) {
							put(labels.FromStrings(append(append([]string{"__name__", name}, gpu...), more...)...), v)
						}
						series("gpu_device_up", 1)
						series("gpu_ecc_errors_total", errors, "severity", "corrected", "memory", "dram")
						if n := events - fresh; n > 0 {
							series("gpu_xid_events_total", float64(n), "xid", "31")
						}
					})
					if fresh > 0 && unseen < 0 {
						unseen = fresh - seen
					}
					scraped = events
					must.OK(t, err)
				}
				if second%60 == 0 {
					s.Eval(t.Context(), at)
					seen = scraped
				}
			}
			end := start.Add(2 * time.Hour)
			for query, want := range map[string]float64{
				"sum(sum_over_time(node:gpu_xid_events:increase5m[2h:5m]))": float64(events - unseen),
				"sum(sum_over_time(node:gpu_ecc_errors:increase5m[2h:5m]))": float64(3 * events),
			} {
				if got, err := s.Query(t.Context(), query, end); err != nil || len(got) != 1 || got[0].F != want {
					t.Errorf("%s: %v, %v, want %v", query, got, err, want)
				}
			}
		})
	}
}
