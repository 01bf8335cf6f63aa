package web

import (
	"bytes"
	"errors"
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
	// AppendText appends the page in the Prometheus text format or in OpenMetrics. The error names what the page lacks.
	AppendText(page []byte, openMetrics bool) ([]byte, error)
}

// exposition serves a page of metrics.
type exposition struct {
	cache
	metrics  Metrics
	accepted []expfmt.Format
	log      *slog.Logger
	failed   prometheus.Counter // pages that lack something
	memory   []byte             // of the next page, guarded by cache.mu
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
		e.mu.Lock()
		page := e.encode(format, func(name string) bool { return slices.Contains(names, name) })
		e.mu.Unlock()
		_, _ = w.Write(page)
		return
	}
	e.send(w, r, format.FormatType(), func(*gpu.View) []byte {
		openMetrics := format.FormatType() == expfmt.TypeOpenMetrics
		if !openMetrics && format.FormatType() != expfmt.TypeTextPlain {
			return e.encode(format, func(string) bool { return true })
		}
		var err error
		e.memory, err = e.metrics.AppendText(e.memory[:0], openMetrics)
		e.report(err)
		return e.memory
	})
}

// encode returns the families that are wanted in any format.
func (e *exposition) encode(format expfmt.Format, want func(name string) bool) []byte {
	families, err := e.metrics.Gather()
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if want(f.GetName()) {
			err = errors.Join(err, encoder.Encode(f))
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	e.report(err)
	return b.Bytes()
}

func (e *exposition) report(err error) {
	if err != nil {
		e.log.Error("cannot expose all metrics", "err", err)
		e.failed.Inc()
	}
}
