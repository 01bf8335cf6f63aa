package main

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// processMetrics are the process_* and go_* families: a small set that does not stop the world. They are collected in
// the background, since a scrape would otherwise read six files below /proc. Safe for concurrent use.
type processMetrics struct {
	registry *prometheus.Registry
	latest   atomic.Pointer[gathered]
}

// gathered is the result of one collection.
type gathered struct {
	families []*dto.MetricFamily
	err      error
}

func newProcessMetrics() *processMetrics {
	o := &processMetrics{registry: prometheus.NewRegistry()}
	o.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
	)
	return o
}

// update collects them for the following scrapes.
func (o *processMetrics) update(context.Context) {
	families, err := o.registry.Gather()
	o.latest.Store(&gathered{families, err})
}

// Gather implements prometheus.Gatherer with the result of the last update; the first caller may collect itself.
// Callers share the families and must not modify them.
func (o *processMetrics) Gather() ([]*dto.MetricFamily, error) {
	l := o.latest.Load()
	if l == nil {
		o.update(context.Background())
		l = o.latest.Load()
	}
	return l.families, l.err
}
