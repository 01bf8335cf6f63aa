package web

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// pageOf is a page that counts how often it is written.
type pageOf struct {
	written int
	err     error
}

func (p *pageOf) Gather() ([]*dto.MetricFamily, error) {
	return []*dto.MetricFamily{{Name: new("gpu_x"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{
		{Gauge: &dto.Gauge{Value: new(float64(p.written))}}}}}, nil
}

func (p *pageOf) WriteText(out io.Writer, openMetrics bool) error {
	p.written++
	fmt.Fprintf(out, "%d %v %s", p.written, openMetrics, strings.Repeat("x", 5000))
	return p.err
}

func TestPageIsWrittenOncePerViewAndFormat(t *testing.T) {
	view, source := &gpu.View{}, &pageOf{}
	e := newExposition(func() *gpu.View { return view }, source, prometheus.NewRegistry(),
		slog.New(slog.DiscardHandler),
		expfmt.DefaultOpenMetricsAcceptedFormats()...)
	scrape := func(accept, encoding, query string) (string, http.Header) {
		t.Helper()
		r, w := httptest.NewRequest(http.MethodGet, "/metrics"+query, nil), httptest.NewRecorder()
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", encoding)
		e.ServeHTTP(w, r)
		body := io.Reader(w.Body)
		if w.Header().Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		must.OK(t, err)
		got, _, _ := strings.Cut(string(text), " x")
		return got, w.Header()
	}
	const openMetrics = "application/openmetrics-text;version=1.0.0"
	for _, c := range []struct{ accept, encoding, query, want, kind string }{
		{"", "", "", "1 false", "text/plain; version=0.0.4"},
		{"", "", "", "1 false", "text/plain; version=0.0.4"},
		{"", "gzip", "", "2 false", "text/plain; version=0.0.4"},
		{openMetrics, "gzip", "", "3 true", "application/openmetrics-text; version=1.0.0"},
		{openMetrics, "", "", "4 true", "application/openmetrics-text; version=1.0.0"},
		{openMetrics, "gzip", "", "3 true", "application/openmetrics-text; version=1.0.0"},
		{"", "gzip", "", "2 false", "text/plain; version=0.0.4"},
		{"", "", "?name[]=gpu_x", "# TYPE gpu_x gauge\ngpu_x 4\n", "text/plain; version=0.0.4"},
		{"", "", "?name[]=gpu_y", "", "text/plain; version=0.0.4"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "", "", "",
			"application/vnd.google.protobuf"},
	} {
		got, header := scrape(c.accept, c.encoding, c.query)
		if got != c.want && !strings.Contains(c.accept, "protobuf") {
			t.Errorf("%+v: got %q", c, got)
		}
		if !strings.HasPrefix(header.Get("Content-Type"), c.kind) {
			t.Errorf("%+v: content type %q", c, header.Get("Content-Type"))
		}
		if zipped := header.Get("Content-Encoding") == "gzip"; zipped != (c.encoding == "gzip") {
			t.Errorf("%+v: compressed: %v", c, zipped)
		}
		if vary := strings.Join(header.Values("Vary"), ", "); vary != "Accept, Accept-Encoding" && c.query == "" {
			t.Errorf("%+v: Vary: %s", c, vary)
		}
	}
	view = &gpu.View{}
	if got, _ := scrape("", "", ""); got != "5 false" {
		t.Errorf("the next view: %q", got)
	}
}

// What a page lacks is logged and counted; the rest is served.
func TestIncompletePage(t *testing.T) {
	var log strings.Builder
	own := prometheus.NewRegistry()
	e := newExposition(func() *gpu.View { return nil }, &pageOf{err: errors.New("gpu_x has a duplicate")}, own,
		slog.New(slog.NewTextHandler(&log, nil)))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "1 false") ||
		!strings.Contains(log.String(), "gpu_x has a duplicate") {
		t.Errorf("%d, %.20s, %s", w.Code, w.Body, log.String())
	}
	families, err := own.Gather()
	must.OK(t, err)
	for _, m := range families[0].Metric {
		if want := map[string]float64{"gathering": 1}[m.Label[0].GetValue()]; m.Counter.GetValue() != want {
			t.Errorf("%v, want %v", m, want)
		}
	}
}
