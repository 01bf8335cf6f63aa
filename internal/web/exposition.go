package web

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Metrics is the source of a page of metrics. It is safe for concurrent use.
type Metrics interface {
	// Gatherer returns the families, for other formats.
	prometheus.Gatherer
	// WriteText writes the page in the Prometheus text format or in OpenMetrics. The error names what the page lacks.
	WriteText(out io.Writer, openMetrics bool) error
}

// exposition serves a page of metrics.
type exposition struct {
	cache
	metrics  Metrics
	accepted []expfmt.Format
	log      *slog.Logger
	failed   prometheus.Counter // pages that lack something
}

// newExposition returns a handler of the page in the accepted formats. own registers metrics about it.
func newExposition(latest func() *gpu.View, m Metrics, own prometheus.Registerer, log *slog.Logger,
	accepted ...expfmt.Format) *exposition {
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "promhttp_metric_handler_errors_total",
		Help: "Total number of internal errors encountered by the promhttp metric handler."}, []string{"cause"})
	own.MustRegister(failed)
	return &exposition{cache: cache{latest: latest}, metrics: m, accepted: accepted, log: log,
		failed: failed.WithLabelValues("gathering")}
}

// ServeHTTP implements http.Handler. Parameters name[] select families, as in promhttp.
func (e *exposition) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateAccept(r.Header, e.accepted...)
	h := w.Header()
	h.Set("Content-Type", string(format))
	h.Add("Vary", "Accept")
	if names := r.URL.Query()["name[]"]; len(names) > 0 {
		var page bytes.Buffer
		e.mu.Lock()
		e.encode(&page, format, func(name string) bool { return slices.Contains(names, name) })
		e.mu.Unlock()
		_, _ = w.Write(page.Bytes())
		return
	}
	e.send(w, r, format.FormatType(), func(out io.Writer, _ *gpu.View) {
		openMetrics := format.FormatType() == expfmt.TypeOpenMetrics
		if !openMetrics && format.FormatType() != expfmt.TypeTextPlain {
			e.encode(out, format, func(string) bool { return true })
			return
		}
		e.report(e.metrics.WriteText(out, openMetrics))
	})
}

// encode writes the families that are wanted in any format.
func (e *exposition) encode(out io.Writer, format expfmt.Format, want func(name string) bool) {
	families, err := e.metrics.Gather()
	encoder := expfmt.NewEncoder(out, format)
	for _, f := range families {
		if want(f.GetName()) {
			err = errors.Join(err, encoder.Encode(f))
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	e.report(err)
}

func (e *exposition) report(err error) {
	if err != nil {
		e.log.Error("cannot expose all metrics", "err", err)
		e.failed.Inc()
	}
}
