package main

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// own is what Go and the process say of themselves: a small set, and nothing that stops the world. It is looked up
// in the background, as all else: a scrape would have to read six files below /proc for it, of which /proc/stat grows
// with the host's processors. It is safe for concurrent use.
type own struct {
	registry *prometheus.Registry
	latest   atomic.Pointer[look]
}

// look is what was found at one time.
type look struct {
	families []*dto.MetricFamily
	err      error
}

func newOwn() *own {
	o := &own{registry: prometheus.NewRegistry()}
	o.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
	)
	return o
}

// look looks, for the scrapes that follow.
func (o *own) look(context.Context) {
	families, err := o.registry.Gather()
	o.latest.Store(&look{families, err})
}

// Gather implements prometheus.Gatherer with what the last look found; the first caller may look itself. Callers share
// the families, and must not change them.
func (o *own) Gather() ([]*dto.MetricFamily, error) {
	l := o.latest.Load()
	if l == nil {
		o.look(context.Background())
		l = o.latest.Load()
	}
	return l.families, l.err
}
