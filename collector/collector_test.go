package collector_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func newCollector(t testing.TB, latest func() *gpu.View, rows []catalog.Family) *collector.Collector {
	t.Helper()
	c, err := collector.New(latest, rows)
	must.OK(t, err)
	return c
}

func text(t testing.TB, families []*dto.MetricFamily) string {
	t.Helper()
	var b strings.Builder
	enc := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		must.OK(t, enc.Encode(f))
	}
	return b.String()
}

// gathered passes families through client_golang's strictest registry, which checks names, types,
// consistent labels and duplicates.
type gathered struct{ families []*dto.MetricFamily }

type constant struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func (c constant) Desc() *prometheus.Desc { return c.desc }
func (c constant) Write(m *dto.Metric) error {
	m.Label, m.Gauge, m.Counter, m.Histogram = c.metric.Label, c.metric.Gauge, c.metric.Counter, c.metric.Histogram
	return nil
}

func (g gathered) each(do func(constant)) {
	for _, f := range g.families {
		var labels []string
		for _, p := range f.Metric[0].Label {
			labels = append(labels, p.GetName())
		}
		desc := prometheus.NewDesc(f.GetName(), f.GetHelp(), labels, nil)
		for _, m := range f.Metric {
			do(constant{desc, m})
		}
	}
}

func (g gathered) Describe(ch chan<- *prometheus.Desc) { g.each(func(c constant) { ch <- c.desc }) }
func (g gathered) Collect(ch chan<- prometheus.Metric) { g.each(func(c constant) { ch <- c }) }

func TestPedanticRegistryAcceptsEverything(t *testing.T) {
	c := newCollector(t, catalogtest.FullView, catalog.All())
	families, err := c.Gather()
	must.OK(t, err)
	if len(families) != len(catalog.All()) {
		t.Errorf("%d families for %d rows", len(families), len(catalog.All()))
	}
	r := prometheus.NewPedanticRegistry()
	must.OK(t, r.Register(gathered{families}))
	if _, err := r.Gather(); err != nil {
		t.Error(err)
	}
}

func TestBrokenSeriesCostOnlyThemselves(t *testing.T) {
	row := func(name string, emit func(catalog.Emit)) catalog.Family {
		return catalog.Family{Name: name, Type: catalog.Gauge, Help: "X.", Scope: catalog.ScopeNode,
			Stability: catalog.Stable,
			Labels:    []string{"a"},
			Read:      func(_ *gpu.View, e catalog.Emit) { emit(e) }}
	}
	other := row("gpu_other", func(e catalog.Emit) { e(1, ""); e(2, "x") }) // other exporters leave out empty labels
	other.Scope = catalog.ScopeCompat
	c := newCollector(t, catalogtest.FullView, []catalog.Family{other,
		row("gpu_twice", func(e catalog.Emit) { e(1, "n", "x"); e(2, "n", "x"); e(3, "n", "y") }),
		row("gpu_short", func(e catalog.Emit) { e(1, "n") }),
		row("gpu_bytes", func(e catalog.Emit) { e(1, "n", "\xff\xfe"); e(2, "n", "ok\n\"") }),
	})
	families, err := c.Gather()
	if err == nil || !strings.Contains(err.Error(), "gpu_twice") || !strings.Contains(err.Error(), "gpu_short") {
		t.Errorf("the error does not name the broken series: %v", err)
	}
	want := `# HELP gpu_bytes X.
# TYPE gpu_bytes gauge
gpu_bytes{a="` + "\uFFFD" + `",node="n"} 1
gpu_bytes{a="ok␊\"",node="n"} 2
# HELP gpu_other X.
# TYPE gpu_other gauge
gpu_other 1
gpu_other{a="x"} 2
# HELP gpu_twice X.
# TYPE gpu_twice gauge
gpu_twice{a="x",node="n"} 1
gpu_twice{a="y",node="n"} 3
`
	var page strings.Builder
	failed := c.WriteText(&page, false, nil)
	if got := text(t, families); got != want || page.String() != want || failed == nil || failed.Error() != err.Error() {
		t.Errorf("got\n%s\nand, with %v,\n%s\nwant\n%s", got, failed, &page, want)
	}
}

func TestNativeHistogramSpans(t *testing.T) {
	rows := []catalog.Family{{Name: "gpu_h_seconds", Unit: "seconds", Type: catalog.Histogram, Help: "H.",
		Scope:     catalog.ScopeNode,
		Stability: catalog.Stable,
		ReadHistogram: func(_ *gpu.View, emit catalog.EmitHistogram) {
			emit(gpu.Histogram{Count: 10, Sum: 1.5, Zero: 1, Buckets: []gpu.Bucket{{Index: -5, Count: 2},
				{Index: -4, Count: 3}, {Index: 7, Count: 4}}}, "n")
			emit(gpu.Histogram{}, "empty")
		}}}
	families, err := newCollector(t, catalogtest.FullView, rows).Gather()
	must.OK(t, err)
	h := families[0].Metric[0].Histogram
	if h.GetSchema() != gpu.HistogramSchema || h.GetZeroCount() != 1 || h.GetSampleCount() != 10 || h.ZeroThreshold == nil ||
		families[0].GetUnit() != "seconds" {
		t.Errorf("head is wrong: %v", h)
	}
	if len(h.PositiveSpan) != 2 || h.PositiveSpan[0].GetOffset() != -5 || h.PositiveSpan[0].GetLength() != 2 ||
		h.PositiveSpan[1].GetOffset() != 10 || h.PositiveSpan[1].GetLength() != 1 {
		t.Errorf("spans are wrong: %v", h.PositiveSpan)
	}
	if empty := families[0].Metric[1].Histogram.PositiveSpan; len(empty) != 1 || empty[0].Offset == nil || empty[0].Length == nil {
		t.Errorf("an empty one looks like a classic histogram: %v", empty)
	}
	if d := h.PositiveDelta; len(d) != 3 || d[0] != 2 || d[1] != 1 || d[2] != 1 {
		t.Errorf("deltas are wrong: %v", d)
	}
}

// Each counter of a series has the time at which the catalog says that it began, in every pass, and none of another.
func TestCreatedTimestamps(t *testing.T) {
	v := catalogtest.DistinctView()
	c := newCollector(t, func() *gpu.View { return v }, catalog.All())
	for range 2 {
		families, err := c.Gather()
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*dto.MetricFamily{}
		for _, f := range families {
			byName[f.GetName()] = f
		}
		counters := 0
		for _, row := range catalog.All() {
			want := map[string]float64{}
			if row.Created != nil {
				row.Created(v, func(value float64, labels ...string) { want[strings.Join(labels, " ")] = value })
			}
			for _, m := range byName[row.Name].GetMetric() {
				var values []string
				for _, label := range row.AllLabels() {
					for _, p := range m.Label {
						if p.GetName() == label {
							values = append(values, p.GetValue())
						}
					}
				}
				at := m.GetCounter().GetCreatedTimestamp()
				wanted, ok := want[strings.Join(values, " ")]
				if (at != nil) != ok || ok && at.AsTime().Unix() != int64(wanted) {
					t.Errorf("%s %q began at %v, want %v", row.Name, values, at.AsTime(), wanted)
				}
				if ok {
					counters++
				}
			}
		}
		if counters < 20 {
			t.Errorf("%d counters have a time", counters)
		}
		next := *v
		v = &next
	}
}
