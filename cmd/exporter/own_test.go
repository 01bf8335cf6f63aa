package main

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// What the process says of itself is there from the first scrape on, costs the next ones nothing, and moves with each look.
func TestOwn(t *testing.T) {
	o := newProcessMetrics()
	value := func() float64 {
		t.Helper()
		families, err := o.Gather()
		must.OK(t, err)
		names := map[string]*dto.MetricFamily{}
		for _, f := range families {
			names[f.GetName()] = f
		}
		for _, want := range []string{"process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds", "go_goroutines"} {
			if names[want] == nil {
				t.Fatalf("no %s in %d families", want, len(families))
			}
		}
		return names["go_goroutines"].Metric[0].GetGauge().GetValue()
	}
	before := value()
	stop := make(chan struct{})
	defer close(stop)
	for range 50 {
		go func() { <-stop }()
	}
	if got := value(); got != before {
		t.Errorf("a scrape looked: %v goroutines, then %v", before, got)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = o.Gather() }); n > 0 {
		t.Errorf("a scrape takes %v pieces of memory", n)
	}
	o.update(t.Context())
	if got := value(); got < before+40 { // others may have ended
		t.Errorf("%v goroutines after a look, %v before and 50 more", got, before)
	}
}
