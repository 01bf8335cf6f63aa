package collector

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// rendering is the families of one View. Its memory is reused for a later View: while a node's series do not change,
// filling it allocates next to nothing.
type rendering struct {
	view    *gpu.View
	rows    []filled // by the row's position in the Collector
	shown   []*dto.MetricFamily
	err     error
	readers int // guarded by Collector.mu
}

// filled is one row with the series of a View.
type filled struct {
	family  dto.MetricFamily
	cells   []*cell // all that were allocated; the first len(metrics) are in use
	metrics []*dto.Metric
}

// cell is the memory of one series.
type cell struct {
	metric dto.Metric
	value  float64 // value of a gauge or a counter, which point here
}

// next returns the memory of the next series; it is in use only once appended to metrics.
func (f *filled) next(t catalog.Type) *cell {
	at := len(f.metrics)
	if at < len(f.cells) {
		return f.cells[at]
	}
	c := new(cell)
	switch t {
	case catalog.Histogram:
	case catalog.Counter:
		c.metric.Counter = &dto.Counter{Value: &c.value}
	default:
		c.metric.Gauge = &dto.Gauge{Value: &c.value}
	}
	f.cells = append(f.cells, c)
	return c
}

// fill reads the row's series from a View. The error names a series that must not be exposed: one with a wrong number
// of labels, or a duplicate.
func (f *filled) fill(r *row, known *series, shared pairs, view *gpu.View) error {
	if len(f.cells) > 2*len(f.metrics)+spareCells {
		f.cells = f.cells[:len(f.metrics):len(f.metrics)] // release memory after a peak
	}
	f.metrics = f.metrics[:0]
	var broken error
	label := func(c *cell, values []string) bool {
		if len(values) != len(r.labels) {
			broken = fmt.Errorf("%s has %d label values for %d labels", r.Name, len(values), len(r.labels))
			return false
		}
		labels, once := known.labels(r, shared, values)
		if !once {
			broken = fmt.Errorf("duplicate series of %s: %s", r.Name, strings.Join(values, ", "))
			return false
		}
		c.metric.Label = labels
		f.metrics = append(f.metrics, &c.metric)
		return true
	}
	if r.ReadHistogram != nil {
		r.ReadHistogram(view, func(h gpu.Histogram, values ...string) {
			if c := f.next(r.Type); label(c, values) {
				c.metric.Histogram = histogram(h)
			}
		})
		return broken
	}
	r.Read(view, func(value float64, values ...string) {
		if c := f.next(r.Type); label(c, values) {
			c.value = value
		}
	})
	return broken
}

// spareCells is how many more series than now a row may have had before their memory is released.
const spareCells = 64
