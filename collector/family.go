package collector

import (
	"fmt"
	"sort"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// row is a prepared catalog row.
type row struct {
	catalog.Family
	labels []string
	order  []int // positions of labels in alphabetical order
	help   string
	typ    dto.MetricType
	head   struct{ text, openMetrics []byte } // comment lines
}

func prepare(f catalog.Family) row {
	r := row{Family: f, labels: f.AllLabels()}
	for i := range r.labels {
		r.order = append(r.order, i)
	}
	sort.Slice(r.order, func(i, j int) bool { return r.labels[r.order[i]] < r.labels[r.order[j]] })
	r.help = f.HelpText()
	switch f.Type {
	case catalog.Counter:
		r.typ = dto.MetricType_COUNTER
	case catalog.Histogram:
		r.typ = dto.MetricType_HISTOGRAM
	default:
		r.typ = dto.MetricType_GAUGE
	}
	return r
}

// with returns the row's family with these series.
func (r *row) with(metrics ...*dto.Metric) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &r.Name, Help: &r.help, Type: &r.typ, Metric: metrics}
	if r.Unit != "" {
		f.Unit = &r.Unit
	}
	return f
}

func (r *row) metric(l *labels, value float64) *dto.Metric {
	if r.Type == catalog.Counter {
		return &dto.Metric{Label: r.pairs(l), Counter: &dto.Counter{Value: &value}}
	}
	return &dto.Metric{Label: r.pairs(l), Gauge: &dto.Gauge{Value: &value}}
}

// pairs returns the labels of a series in alphabetical order.
func (r *row) pairs(l *labels) []*dto.LabelPair {
	out, pairs := make([]*dto.LabelPair, 0, len(l.values)), make([]dto.LabelPair, len(l.values))
	for n, i := range r.order {
		if l.values[i] != "" || r.Scope != catalog.ScopeCompat {
			pairs[n].Name, pairs[n].Value = &r.labels[i], &l.values[i]
			out = append(out, &pairs[n])
		}
	}
	return out
}

// reader reads the series of rows, one row after the other: its functions are made once for all of them.
type reader struct {
	value         func(*labels, float64)
	of            func(*labels, gpu.Histogram)
	emit          catalog.Emit
	emitHistogram catalog.EmitHistogram

	row    *row
	series *series
	broken error
}

func newReader(value func(*labels, float64), of func(*labels, gpu.Histogram)) *reader {
	d := &reader{value: value, of: of}
	d.emit = func(v float64, values ...string) {
		if l, ok := d.find(values); ok {
			d.value(l, v)
		}
	}
	d.emitHistogram = func(h gpu.Histogram, values ...string) {
		if l, ok := d.find(values); ok {
			d.of(l, h)
		}
	}
	return d
}

// read reads a row's series from a View. The error names a series that must not be exposed: one with a wrong number of
// labels, or a duplicate.
func (d *reader) read(r *row, s *series, view *gpu.View) error {
	d.row, d.series, d.broken = r, s, nil
	if r.ReadHistogram != nil {
		r.ReadHistogram(view, d.emitHistogram)
	} else {
		r.Read(view, d.emit)
	}
	return d.broken
}

func (d *reader) find(values []string) (*labels, bool) {
	if len(values) != len(d.row.labels) {
		d.broken = fmt.Errorf("%s has %d label values for %d labels", d.row.Name, len(values), len(d.row.labels))
		return nil, false
	}
	l, once := d.series.labels(values)
	if !once {
		d.broken = fmt.Errorf("duplicate series of %s: %s", d.row.Name, strings.Join(values, ", "))
	}
	return l, once
}

// family returns the row's family for a View.
func (r *row) family(s *series, view *gpu.View) (*dto.MetricFamily, error) {
	f := r.with()
	err := newReader(
		func(l *labels, v float64) {
			m := r.metric(l, v)
			if r.Created != nil {
				l.counter = m.Counter
			}
			f.Metric = append(f.Metric, m)
		},
		func(l *labels, h gpu.Histogram) {
			f.Metric = append(f.Metric, &dto.Metric{Label: r.pairs(l), Histogram: histogram(h)})
		}).read(r, s, view)
	if r.Created != nil {
		r.setCreated(s, view)
	}
	return f, err
}

// setCreated sets the start timestamps of the counters of this pass. The text formats have none: OpenMetrics 1.0 would
// have a series more for each.
func (r *row) setCreated(s *series, view *gpu.View) {
	r.Created(view, func(v float64, values ...string) {
		if c := s.find(values).shown.counter; c != nil {
			c.CreatedTimestamp = timestamppb.New(time.Unix(0, int64(v*1e9)))
		}
	})
	for _, l := range s.now {
		l.shown.counter = nil
	}
}
