// Package collector renders the catalogue's rows over the latest View as Prometheus metric families.
//
// The families are built once per View and shared by all scrapes of it, so that a scrape costs no more
// than its encoding, two scrapers see the same truth, and nothing that a scrape does reaches the driver,
// the kubelet or a disk.
package collector

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Collector is a prometheus.Gatherer of the latest View. It is safe for concurrent use.
type Collector struct {
	latest func() *gpu.View
	rows   []row
	built  atomic.Pointer[rendering]

	mu    sync.Mutex // one goroutine builds; guards pairs
	pairs map[[2]string]*dto.LabelPair
}

// rendering is what one View came to.
type rendering struct {
	view     *gpu.View
	families []*dto.MetricFamily
	err      error
}

// row is a catalogue row, prepared.
type row struct {
	catalog.Family
	labels []string
	// order lists the positions of labels in the alphabetical order in which they are exposed.
	order []int
	typ   *dto.MetricType
	help  *string
	unit  *string
}

// maxPairs bounds the memory of label pairs: beyond it the memory starts anew. A node of 16 cards and
// some hundred pods needs a few thousand.
const maxPairs = 65536

// New returns a Collector of the rows over whatever latest returns, which must be cheap and safe for
// concurrent use; nil from it renders nothing. The error is a broken row.
func New(latest func() *gpu.View, rows []catalog.Family) (*Collector, error) {
	if err := catalog.Validate(rows); err != nil {
		return nil, err
	}
	return newCollector(latest, rows), nil
}

// NewForeign is New for rows that carry another exporter's names and labels (catalog.ScopeForeign). Of their
// series a label without a value is left out, as a reader cannot tell it from one that is not there.
func NewForeign(latest func() *gpu.View, rows []catalog.Family) (*Collector, error) {
	if err := catalog.ValidateForeign(rows); err != nil {
		return nil, err
	}
	return newCollector(latest, rows), nil
}

func newCollector(latest func() *gpu.View, rows []catalog.Family) *Collector {
	c := &Collector{latest: latest, pairs: map[[2]string]*dto.LabelPair{}}
	for _, f := range rows {
		c.rows = append(c.rows, prepare(f))
	}
	sort.Slice(c.rows, func(i, j int) bool { return c.rows[i].Name < c.rows[j].Name })
	return c
}

func prepare(f catalog.Family) row {
	r := row{Family: f, labels: f.AllLabels(), help: new(f.HelpText())}
	for i := range r.labels {
		r.order = append(r.order, i)
	}
	sort.Slice(r.order, func(i, j int) bool { return r.labels[r.order[i]] < r.labels[r.order[j]] })
	switch f.Type {
	case catalog.Counter:
		r.typ = dto.MetricType_COUNTER.Enum()
	case catalog.Histogram:
		r.typ = dto.MetricType_HISTOGRAM.Enum()
	default:
		r.typ = dto.MetricType_GAUGE.Enum()
	}
	if f.Unit != "" {
		r.unit = new(f.Unit)
	}
	return r
}

// Gather returns the families of the latest View in the order of their names. The caller must not change
// them: others share them. A broken series (a wrong number of labels, or one that stands twice) is left
// out and named in the error; the others are returned beside it.
func (c *Collector) Gather() ([]*dto.MetricFamily, error) {
	view := c.latest()
	if view == nil {
		return nil, nil
	}
	if r := c.built.Load(); r != nil && r.view == view {
		return r.families, r.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.built.Load(); r != nil && r.view == view {
		return r.families, r.err
	}
	r := c.render(view)
	c.built.Store(r)
	return r.families, r.err
}

// render builds the families of a View. c.mu is held.
func (c *Collector) render(view *gpu.View) *rendering {
	if len(c.pairs) > maxPairs {
		c.pairs = map[[2]string]*dto.LabelPair{}
	}
	out := &rendering{view: view, families: make([]*dto.MetricFamily, 0, len(c.rows))}
	var broken []string
	b := builder{collector: c, seed: maphash.MakeSeed()}
	for i := range c.rows {
		metrics := b.build(&c.rows[i], view)
		if b.broken != "" {
			broken = append(broken, b.broken)
			b.broken = ""
		}
		if len(metrics) == 0 {
			continue
		}
		r := &c.rows[i]
		out.families = append(out.families, &dto.MetricFamily{Name: &r.Name, Help: r.help, Type: r.typ, Unit: r.unit, Metric: metrics})
	}
	if broken != nil {
		out.err = fmt.Errorf("series left out: %s", strings.Join(broken, "; "))
	}
	return out
}

// builder turns one row at a time into metrics. It reuses its memory from row to row.
type builder struct {
	collector *Collector
	seed      maphash.Seed
	seen      map[uint64]struct{}
	broken    string
}

func (b *builder) build(r *row, view *gpu.View) []*dto.Metric {
	b.seen = map[uint64]struct{}{}
	var metrics []*dto.Metric
	add := func(m *dto.Metric, labels []string) {
		pairs, ok := b.labels(r, labels)
		if ok {
			m.Label = pairs
			metrics = append(metrics, m)
		}
	}
	if r.ReadHistogram != nil {
		r.ReadHistogram(view, func(h gpu.Histogram, labels ...string) {
			add(&dto.Metric{Histogram: histogram(h)}, labels)
		})
		return metrics
	}
	r.Read(view, func(value float64, labels ...string) {
		if r.Type == catalog.Counter {
			add(&dto.Metric{Counter: &dto.Counter{Value: &value}}, labels)
		} else {
			add(&dto.Metric{Gauge: &dto.Gauge{Value: &value}}, labels)
		}
	})
	return metrics
}

// labels returns the pairs of one series in alphabetical order, and false for a series that must not be
// exposed: one with a wrong number of labels, or one that stands already.
func (b *builder) labels(r *row, values []string) ([]*dto.LabelPair, bool) {
	if len(values) != len(r.labels) {
		b.broken = fmt.Sprintf("%s has %d label values for %d labels", r.Name, len(values), len(r.labels))
		return nil, false
	}
	var h maphash.Hash
	h.SetSeed(b.seed)
	pairs := make([]*dto.LabelPair, 0, len(values))
	for _, i := range r.order {
		p := b.collector.pair(r.labels[i], values[i])
		// The sanitised value counts: two names may come to the same text.
		h.WriteString(*p.Value)
		h.WriteByte(0xff)
		if values[i] != "" || r.Scope != catalog.ScopeForeign {
			pairs = append(pairs, p)
		}
	}
	sum := h.Sum64()
	if _, twice := b.seen[sum]; twice {
		b.broken = fmt.Sprintf("%s stands twice with %s", r.Name, strings.Join(values, ", "))
		return nil, false
	}
	b.seen[sum] = struct{}{}
	return pairs, true
}

// pair returns the shared pair of a label and a value. Names in the field (pods, processes, models) are
// whatever bytes somebody wrote; the exposition is UTF-8. c.mu is held.
func (c *Collector) pair(name, value string) *dto.LabelPair {
	key := [2]string{name, value}
	if p, ok := c.pairs[key]; ok {
		return p
	}
	p := &dto.LabelPair{Name: new(name), Value: new(strings.ToValidUTF8(value, "\uFFFD"))}
	c.pairs[key] = p
	return p
}

// histogram renders a native histogram; in the text format it shows as count and sum.
func histogram(h gpu.Histogram) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: new(h.Count), SampleSum: new(h.Sum),
		Schema: new(int32(gpu.HistogramSchema)), ZeroThreshold: new(0.0), ZeroCount: new(h.Zero),
	}
	at := make([]int, 0, len(h.Buckets))
	for i := range h.Buckets {
		at = append(at, i)
	}
	slices.Sort(at)
	var previous int64
	for n, i := range at {
		switch {
		case n == 0:
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(int32(i)), Length: new(uint32(1))})
		case i == at[n-1]+1:
			*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		default:
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: new(int32(i - at[n-1] - 1)), Length: new(uint32(1))})
		}
		count := int64(h.Buckets[i])
		out.PositiveDelta = append(out.PositiveDelta, count-previous)
		previous = count
	}
	if len(at) == 0 {
		// A native histogram without buckets is told from a classic one by an empty span.
		out.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	return out
}
