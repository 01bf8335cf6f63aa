package expose

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// The jobs, as a scrape configuration would name them.
const (
	JobExporter  = "gpu-exporter"
	JobKubeState = "kube-state-metrics"
)

// Server serves a fleet. It is safe for concurrent use.
type Server struct {
	fleet     *fleet.Fleet
	now       func() time.Time
	renderers chan *renderer
	mux       *http.ServeMux
}

// renderer is a collector and the view that it renders, for one request at a time.
type renderer struct {
	view      *gpu.View
	collector *collector.Collector
	page      bytes.Buffer
}

// NewServer returns a server of the fleet as it is at now, with these families of each node.
func NewServer(f *fleet.Fleet, now func() time.Time, families []catalog.Family) (*Server, error) {
	s := &Server{fleet: f, now: now, renderers: make(chan *renderer, runtime.GOMAXPROCS(0)), mux: http.NewServeMux()}
	for range cap(s.renderers) {
		d := &renderer{}
		c, err := collector.New(func() *gpu.View { return d.view }, families)
		if err != nil {
			return nil, err
		}
		d.collector = c
		s.renderers <- d
	}
	s.mux.HandleFunc("GET /{$}", s.index)
	s.mux.HandleFunc("GET /sd", s.discover)
	s.mux.HandleFunc("GET /nodes/{node}/metrics", s.node)
	s.mux.HandleFunc("GET /kube-state-metrics/metrics", s.kube)
	s.mux.HandleFunc("GET /clusters/{cluster}/kube-state-metrics/metrics", s.kube)
	return s, nil
}

// ServeHTTP serves /, /sd, /nodes/NAME/metrics, /kube-state-metrics/metrics and the same for each cluster.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// node serves one exporter's page, and 503 while it does not respond.
func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	i, ok := s.fleet.Find(r.PathValue("node"))
	if !ok {
		http.Error(w, "unknown node", http.StatusNotFound)
		return
	}
	view := s.fleet.View(i, s.now())
	if view == nil {
		http.Error(w, "the exporter of this node does not respond now", http.StatusServiceUnavailable)
		return
	}
	d := <-s.renderers
	defer func() { s.renderers <- d }()
	d.view = view
	format := expfmt.NegotiateAccept(r.Header, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtText)
	d.page.Reset()
	if err := d.collector.WriteText(&d.page, format.FormatType() == expfmt.TypeOpenMetrics, nil); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(format))
	_, _ = w.Write(d.page.Bytes()) // the client may have disconnected
}

// kube serves the objects of a cluster, or of all.
func (s *Server) kube(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	out := bufio.NewWriterSize(w, 64<<10)
	defer func() { _ = out.Flush() }() // returns the first error: the client disconnected
	var line []byte
	s.fleet.KubeState(r.PathValue("cluster"), s.now(), func(f fleet.KubeFamily, series func(fleet.KubeEmit)) {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", f.Name, f.Help, f.Name)
		series(func(value float64, labels ...string) {
			line = appendSeries(line[:0], f.Name, labels)
			line = collector.AppendFloat(append(line, ' '), value)
			line = append(line, '\n')
			_, _ = out.Write(line)
		})
	})
}

// target is a target group of HTTP service discovery.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover serves the targets with their labels.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	var out []target
	for i := range s.fleet.Len() {
		n := s.fleet.Node(i)
		out = append(out, target{[]string{r.Host},
			map[string]string{"__metrics_path__": "/nodes/" + n.Name + "/metrics",
				"job": JobExporter, "instance": n.Name, "cluster": n.Cluster}})
	}
	for _, c := range s.fleet.Clusters() {
		out = append(out, target{[]string{r.Host},
			map[string]string{"__metrics_path__": "/clusters/" + c + "/kube-state-metrics/metrics",
				"job": JobKubeState, "instance": c + "/kube-state-metrics", "cluster": c}})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

var index = template.Must(template.New("index").Parse(`<!doctype html><meta charset="utf-8"><title>Simulated fleet</title>
<style>body{font:15px sans-serif;margin:2em;color-scheme:light dark}td,th{text-align:left;padding:.1em 1em .1em 0}</style>
<h1>{{.Total}} nodes, {{.GPUs}} GPUs</h1>
<p>All of them are simulated. <a href="/sd">Targets for Prometheus</a>{{range .Clusters}} ·
<a href="/clusters/{{.}}/kube-state-metrics/metrics">kube-state-metrics of {{.}}</a>{{end}}</p>
<table><tr><th>node<th>pool<th>model<th>GPUs</tr>{{range .Nodes}}
<tr><td><a href="/nodes/{{.Name}}/metrics">{{.Name}}</a><td>{{.Pool}}<td>{{.Model}}<td>{{.GPUs}}</tr>{{end}}</table>
{{- if .More}}<p>and {{.More}} more</p>{{end}}
`))

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	const limit = 500
	page := struct {
		Total, GPUs, More int
		Clusters          []string
		Nodes             []fleet.Node
	}{Total: s.fleet.Len(), Clusters: s.fleet.Clusters()}
	for i := range s.fleet.Len() {
		n := s.fleet.Node(i)
		page.GPUs += n.GPUs
		if i < limit {
			page.Nodes = append(page.Nodes, n)
		}
	}
	page.More = page.Total - len(page.Nodes)
	var b strings.Builder
	if err := index.Execute(&b, page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write([]byte(b.String()))
}
