package bench

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// What serves pages beside the exporter, each in a process of its own, whose processor time is measured.
const (
	fileServer   = "file"          // the same bytes from memory
	clientGolang = "client_golang" // the same series from a collector that reads nothing
	otherProgram = "nvidia_gpu_exporter"
)

// Serve is the command that runs one of the first two: NAME DIRECTORY ADDRESS, where the directory has a page of the
// exporter for each format.
func Serve(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: measure serve file|client_golang DIRECTORY ADDRESS")
	}
	pages := map[string][]byte{}
	for _, f := range formats {
		page, err := os.ReadFile(filepath.Join(args[1], f.name))
		if err != nil {
			return err
		}
		pages[f.encoding] = page
	}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Accept-Encoding")
		if encoding == prom.encoding {
			w.Header().Set("Content-Encoding", encoding)
		}
		_, _ = w.Write(pages[encoding])
	})
	if args[0] == clientGolang {
		families, err := testkit.Families(string(pages[plain.encoding]))
		if err != nil {
			return err
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(newConstant(families))
		handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	}
	server := http.Server{Addr: args[2], Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// constant collects series as an exporter with client_golang's constant metrics does.
type constant []constantSeries

type constantSeries struct {
	desc      *prometheus.Desc
	valueType prometheus.ValueType
	value     float64
	labels    []string
	histogram *dto.Histogram
}

func newConstant(families map[string]*dto.MetricFamily) (c constant) {
	for name, f := range families {
		descs := map[string]*prometheus.Desc{}
		for _, m := range f.Metric {
			s := constantSeries{valueType: prometheus.GaugeValue, value: m.GetGauge().GetValue(), histogram: m.Histogram}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				s.valueType, s.value = prometheus.CounterValue, m.GetCounter().GetValue()
			case dto.MetricType_UNTYPED, dto.MetricType_SUMMARY:
				s.valueType, s.value = prometheus.UntypedValue, m.GetUntyped().GetValue()
			}
			var names []string
			for _, l := range m.Label {
				names, s.labels = append(names, l.GetName()), append(s.labels, l.GetValue())
			}
			key := strings.Join(names, ",")
			if descs[key] == nil {
				descs[key] = prometheus.NewDesc(name, f.GetHelp(), names, nil)
			}
			s.desc = descs[key]
			c = append(c, s)
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c constant) Describe(descs chan<- *prometheus.Desc) {
	seen := map[*prometheus.Desc]bool{}
	for _, s := range c {
		if !seen[s.desc] {
			seen[s.desc] = true
			descs <- s.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c constant) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c {
		if h := s.histogram; h != nil {
			metrics <- prometheus.MustNewConstHistogram(s.desc, h.GetSampleCount(), h.GetSampleSum(), nil, s.labels...)
			continue
		}
		metrics <- prometheus.MustNewConstMetric(s.desc, s.valueType, s.value, s.labels...)
	}
}

// peers starts what is measured beside an exporter, which serves the pages to repeat.
func (l lab) peers(e *exporter) (all map[string]*exporter, stop func(), err error) {
	all = map[string]*exporter{}
	stop = func() {
		for _, p := range all {
			_ = p.Stop()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, f := range formats {
		page, err := f.fetch(e.url)
		if err == nil {
			err = os.WriteFile(filepath.Join(l.dir, f.name), []byte(page), 0o644)
		}
		if err != nil {
			return nil, stop, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	commands := map[string][]string{
		fileServer:   {self, "serve", fileServer, l.dir},
		clientGolang: {self, "serve", clientGolang, l.dir},
	}
	if l.beside != "" {
		commands[otherProgram] = []string{l.beside, "--collect.backend=demo", "--log.level=error", "--web.listen-address"}
	}
	for name, command := range commands {
		address, err := standin.FreeAddress()
		if err != nil {
			return nil, stop, err
		}
		child, err := testkit.Start(exec.Command(command[0], append(command[1:], address)...))
		if err != nil {
			return nil, stop, err
		}
		p := &exporter{Child: child, url: "http://" + address + "/metrics", pid: child.PID()}
		all[name] = p
		if err := child.Within(l.ctx, 20*time.Second, func() error { _, err := plain.fetch(p.url); return err }); err != nil {
			return nil, stop, fmt.Errorf("%s serves no page: %w", name, err)
		}
	}
	return all, stop, nil
}

// timed is one scrape: the page, how long it took, and the processor time of the server until it was read.
func (e *exporter) timed(f format) (page string, took, cpu time.Duration, err error) {
	before, err := process.Precise(e.pid)
	if err != nil {
		return "", 0, 0, err
	}
	start := time.Now()
	page, err = f.fetch(e.url)
	took = time.Since(start)
	if err != nil {
		return "", 0, 0, err
	}
	after, err := process.Precise(e.pid)
	return page, took, after - before, err
}
