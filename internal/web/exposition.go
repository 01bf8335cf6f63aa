package web

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
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

// exposition serves a page of metrics. The page of a View is written once per format and compressed once, so that
// further
// scrapes of it cost one write.
type exposition struct {
	latest   func() *gpu.View
	metrics  Metrics
	accepted []expfmt.Format
	log      *slog.Logger
	failed   prometheus.Counter // pages that lack something

	mu         sync.Mutex // guards what follows
	view       *gpu.View  // of pages
	pages      map[variant][]byte
	page       []byte // memory of the next page
	compressor *gzip.Writer
}

// variant is a form of a page. The versions of a format, and its ways to escape names, make no difference to these
// names.
type variant struct {
	format expfmt.FormatType
	gzip   bool
}

// newExposition returns a handler of the page. own registers metrics about it.
func newExposition(latest func() *gpu.View, m Metrics, own prometheus.Registerer, log *slog.Logger,
	accepted []expfmt.Format) *exposition {
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "promhttp_metric_handler_errors_total",
		Help: "Total number of internal errors encountered by the promhttp metric handler."}, []string{"cause"})
	own.MustRegister(failed)
	return &exposition{latest: latest, metrics: m, accepted: accepted, log: log,
		failed: failed.WithLabelValues("gathering")}
}

// ServeHTTP implements http.Handler. Parameters name[] select families, as promhttp has it.
func (e *exposition) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	format, zip := expfmt.NegotiateAccept(r.Header, e.accepted...), acceptsGzip(r.Header)
	h := w.Header()
	h.Set("Content-Type", string(format))
	h["Vary"] = []string{"Accept", "Accept-Encoding"}
	var page []byte
	if names := r.URL.Query()["name[]"]; len(names) > 0 {
		zip = false
		page = e.encode(format, func(name string) bool { return slices.Contains(names, name) })
	} else {
		page = e.variant(format, zip)
	}
	if zip {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = w.Write(page) // the client may have disconnected
}

// variant returns the page of the latest View; it is shared, and must not be modified.
func (e *exposition) variant(format expfmt.Format, zip bool) []byte {
	v := variant{format.FormatType(), zip}
	e.mu.Lock()
	defer e.mu.Unlock()
	if view := e.latest(); e.pages == nil || view != e.view {
		e.view, e.pages = view, map[variant][]byte{}
	}
	if page, ok := e.pages[v]; ok {
		return page
	}
	var page []byte
	switch v.format {
	case expfmt.TypeTextPlain, expfmt.TypeOpenMetrics:
		var err error
		e.page, err = e.metrics.AppendText(e.page[:0], v.format == expfmt.TypeOpenMetrics)
		e.report(err)
		page = e.page
	default:
		page = e.encode(format, func(string) bool { return true })
	}
	if v.gzip {
		if e.compressor == nil {
			e.compressor, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		}
		e.pages[v] = compress(e.compressor, page)
	} else {
		e.pages[v] = bytes.Clone(page)
	}
	return e.pages[v]
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
