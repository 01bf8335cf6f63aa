package collector_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// discard is a client that reads everything at once.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) WriteHeader(int)             {}
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkScrape is one uncompressed scrape of a node of eight GPUs: the first of a view, which builds the
// families, the next, which only writes them, and beside them the same bytes served as they are.
func BenchmarkScrape(b *testing.B) {
	for _, pods := range []int{8, 80} {
		one, other := catalogtest.NodeView(8, pods), catalogtest.NodeView(8, pods)
		view := one
		c := newCollector(b, func() *gpu.View { return view }, catalog.All())
		handler := promhttp.HandlerForTransactional(c.Transactional(), promhttp.HandlerOpts{DisableCompression: true})
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		page := recorder.Body.Bytes()
		families, err := c.Gather()
		if err != nil {
			b.Fatal(err)
		}
		series := 0
		for _, f := range families {
			series += len(f.Metric)
		}
		run := func(name string, before func(), serve http.Handler) {
			b.Run(fmt.Sprintf("%s/pods=%d", name, pods), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					before()
					serve.ServeHTTP(discard{http.Header{}}, request)
				}
				b.ReportMetric(float64(series), "series")
				b.ReportMetric(float64(len(page)), "bytes/page")
			})
		}
		run("first", func() {
			if view == one {
				view = other
			} else {
				view = one
			}
		}, handler)
		run("next", func() {}, handler)
		run("static", func() {}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	}
}

// BenchmarkForeign is the same under another exporter's names.
func BenchmarkCompat(b *testing.B) {
	for _, pods := range []int{8, 80} {
		p, err := compat.New(compat.DCGM48)
		if err != nil {
			b.Fatal(err)
		}
		views := []*gpu.View{catalogtest.NodeView(8, pods), catalogtest.NodeView(8, pods), catalogtest.NodeView(8, pods)}
		for i, v := range views {
			v.At = v.At.Add(time.Duration(i) * time.Minute)
		}
		views[2].At = views[1].At
		p.Published(views[0])
		now := 1
		c, err := collector.NewCompat(func() *gpu.View { return views[now] }, p.Families())
		if err != nil {
			b.Fatal(err)
		}
		handler := promhttp.HandlerForTransactional(c.Transactional(), promhttp.HandlerOpts{DisableCompression: true})
		request := httptest.NewRequest(http.MethodGet, compat.Path, nil)
		for _, step := range []struct {
			name string
			by   int
		}{{"first", 1}, {"next", 0}} {
			b.Run(fmt.Sprintf("%s/pods=%d", step.name, pods), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					now = 1 + (now-1+step.by)%2
					handler.ServeHTTP(discard{http.Header{}}, request)
				}
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, request)
				b.ReportMetric(float64(recorder.Body.Len()), "bytes/page")
			})
		}
	}
}
