package web_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
)

// discard is a client that reads everything at once.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (*discard) WriteHeader(int)               {}
func (d *discard) Write(b []byte) (int, error) { d.bytes += len(b); return len(b), nil }

type metrics struct{ *collector.Collector }

func (m metrics) WriteText(out io.Writer, openMetrics bool) error {
	return m.Collector.WriteText(out, openMetrics, nil)
}

// BenchmarkScrape is one scrape of a node of eight GPUs: the first of a view, which writes the page, and the next; in
// the text format, as Prometheus requests it (OpenMetrics, gzip), in protobuf, and as dcgm-exporter's page.
func BenchmarkScrape(b *testing.B) {
	for _, pods := range []int{8, 80} {
		views := []*gpu.View{catalogtest.NodeView(8, pods), catalogtest.NodeView(8, pods), catalogtest.NodeView(8, pods)}
		for i, v := range views {
			v.At = v.At.Add(time.Duration(i) * time.Minute)
		}
		views[2].At = views[1].At
		now := 1
		latest := func() *gpu.View { return views[now] }
		own, err := collector.New(latest, catalog.All())
		must.OK(b, err)
		page, err := compat.New(compat.Options{Release: compat.DCGM48, Copies: true})
		must.OK(b, err)
		page.Published(views[0])
		other, err := collector.NewCompat(latest, page.Families())
		must.OK(b, err)
		handler := web.NewServer(web.Options{Latest: latest, Metrics: metrics{own}, Own: prometheus.NewRegistry(),

			Logger: slog.New(slog.DiscardHandler),
			Compat: &web.Compat{Path: compat.DCGM48.Path(), Metrics: metrics{other}}}).Handler
		for _, kind := range []struct{ name, path, accept, encoding string }{
			{"text", "/metrics", "text/plain", ""},
			{"gzip", "/metrics", "application/openmetrics-text;version=1.0.0", "gzip"},
			{"protobuf", "/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", ""},
			{"compat", compat.DCGM48.Path(), "text/plain", ""},
		} {
			request := httptest.NewRequest(http.MethodGet, kind.path, nil)
			request.Header.Set("Accept", kind.accept)
			request.Header.Set("Accept-Encoding", kind.encoding)
			for _, step := range []struct {
				name string
				by   int
			}{{"first", 1}, {"next", 0}} {
				b.Run(fmt.Sprintf("%s/%s/pods=%d", kind.name, step.name, pods), func(b *testing.B) {
					b.ReportAllocs()
					client := &discard{header: http.Header{}}
					for b.Loop() {
						now = 1 + (now-1+step.by)%2
						clear(client.header)
						client.bytes = 0
						handler.ServeHTTP(client, request)
					}
					b.ReportMetric(float64(client.bytes), "bytes/page")
				})
			}
		}
	}
}
