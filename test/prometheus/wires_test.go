package prometheus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

type wire struct {
	values map[string]float64 // by series
	points map[string][]any   // OTLP data points by family
	types  map[string]model.MetricType
}

// scrape reads a page as Prometheus' scraper does: the GPUs' counters and gauges, and the data points of OTLP for them. The mapping is
// that of the Collector's receiver (open-telemetry/opentelemetry-collector-contrib 0004a50, receiver/prometheusreceiver): names and
// labels stay, a counter is a cumulative monotonic sum with its start timestamp.
func scrape(t *testing.T, address, accept string) wire {
	t.Helper()
	page, err := testkit.Client{}.Get(t.Context(), "http://"+address+"/metrics", "Accept", accept)
	must.OK(t, err)
	kind := page.Header.Get("Content-Type")
	if want, _, _ := strings.Cut(accept, ";"); !strings.HasPrefix(kind, want) {
		t.Fatalf("the page is %s, not %s", kind, accept)
	}
	p, err := textparse.New([]byte(page.Text), kind, nil, textparse.ParserOptions{})
	must.OK(t, err)
	w := wire{map[string]float64{}, map[string][]any{}, map[string]model.MetricType{}}
	now, of := strconv.FormatInt(time.Now().UnixNano(), 10), model.MetricType("")
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return w
		}
		must.OK(t, err)
		switch entry {
		case textparse.EntryType:
			_, of = p.Type()
		case textparse.EntrySeries:
			var l labels.Labels
			p.Labels(&l)
			l = l.WithoutEmpty() // the same series to Prometheus
			name := l.Get(model.MetricNameLabel)
			if strings.HasPrefix(name, "gpu_exporter_") || !strings.HasPrefix(name, "gpu_") {
				continue
			}
			_, _, value := p.Series()
			attributes := []any{}
			l.Range(func(l labels.Label) {
				if l.Name != model.MetricNameLabel {
					attributes = append(attributes, map[string]any{"key": l.Name, "value": map[string]any{"stringValue": l.Value}})
				}
			})
			point := map[string]any{"attributes": attributes, "timeUnixNano": now, "asDouble": value}
			if start := p.StartTimestamp(); start > 0 {
				point["startTimeUnixNano"] = strconv.FormatInt(start*1e6, 10)
			}
			w.values[l.String()], w.types[name] = value, of
			w.points[name] = append(w.points[name], point)
		default:
		}
	}
}

// Every wire has the same numbers: the Prometheus text format, OpenMetrics, protobuf, and OTLP into Prometheus' own receiver.
func TestEveryWireHasTheSameNumbers(t *testing.T) {
	t.Parallel()
	m := machine.Parse(t, machine.TwoGPUs+"load gpu=0-1 busy=50% period=200ms\n", machine.TwoPods)
	e := m.Start(t, machine.Options{})
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	var sent wire
	servers.Until(t, "three formats of one poll are equal", func() error {
		sent = scrape(t, e.Address, protobuf)
		for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
			if got := scrape(t, e.Address, accept); !maps.Equal(got.values, sent.values) {
				return fmt.Errorf("%s differs from protobuf:\n%v\n%v", accept, got.values, sent.values)
			}
		}
		if len(sent.points["gpu_container_allocated_seconds_total"]) == 0 {
			return fmt.Errorf("only %d series yet", len(sent.values))
		}
		return nil
	})

	starts, metrics := 0, []any{}
	for name, points := range sent.points {
		metric := map[string]any{"name": name, "gauge": map[string]any{"dataPoints": points}}
		if sent.types[name] == model.MetricTypeCounter {
			metric = map[string]any{"name": name, "sum": map[string]any{"dataPoints": points, "isMonotonic": true,
				"aggregationTemporality": 2}}
		}
		metrics = append(metrics, metric)
		for _, p := range points {
			if p.(map[string]any)["startTimeUnixNano"] != nil {
				starts++
			}
		}
	}
	if starts == 0 {
		t.Error("no counter has a start timestamp")
	}
	scopes := []any{map[string]any{"metrics": metrics}}
	body, err := json.Marshal(map[string]any{"resourceMetrics": []any{map[string]any{"scopeMetrics": scopes}}})
	must.OK(t, err)

	dir, address := t.TempDir(), servers.Address(t)
	servers.Start(t, dir, servers.Build(t, servers.Prometheus), "--config.file=/dev/null", "--storage.tsdb.path="+dir,
		"--web.enable-otlp-receiver", "--web.listen-address="+address)
	servers.Until(t, "Prometheus is ready", servers.Answers("http://"+address+"/-/ready"))
	response, err := http.Post("http://"+address+"/api/v1/otlp/v1/metrics", "application/json", bytes.NewReader(body))
	must.OK(t, err)
	defer response.Body.Close()
	if answer, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", response.Status, answer)
	}
	all, err := dashboard.Client{URL: "http://" + address}.Instant(t.Context(), `{__name__=~"gpu_.+"}`, time.Now())
	must.OK(t, err)
	received := map[string]float64{}
	for _, s := range all {
		received[labels.FromMap(s.Labels).String()] = s.Points[0].Value
	}
	for series, want := range sent.values {
		if got, ok := received[series]; !ok || got != want {
			t.Errorf("%s is %v (%t) by OTLP, %v in the page", series, got, ok, want)
		}
	}
	if len(received) != len(sent.values) {
		t.Errorf("%d series by OTLP, %d in the page", len(received), len(sent.values))
	}
	t.Logf("%d series, %d with a start timestamp", len(received), starts)
}
