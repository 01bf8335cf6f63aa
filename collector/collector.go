// Package collector renders the catalog's rows over the latest View as Prometheus metric families.
//
// The families are built once per View and shared by all scrapes of it, so a scrape costs no more than its encoding,
// all scrapers get the same values, and no scrape reaches the driver, the kubelet or a disk. The memory of a rendering
// is reused for a later View once it has no readers, and the labels of a series are built once in its life: a node's
// series are the same from View to View.
package collector

import (
	"fmt"
	"hash/maphash"
	"sort"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Collector is a prometheus.Gatherer of the latest View. It is safe for concurrent use.
type Collector struct {
	latest func() *gpu.View
	rows   []row

	mu       sync.Mutex // one goroutine renders; guards what follows
	current  *rendering
	spare    *rendering // has no readers and may be reused
	known    []series   // cached labels of the series of each row
	pairs    pairs
	building uint64 // counts renderings
}

// New returns a Collector of the rows over the View that latest returns. latest must be cheap and safe for concurrent
// use; nil renders nothing. The error is an invalid row.
func New(latest func() *gpu.View, rows []catalog.Family) (*Collector, error) {
	if err := catalog.Validate(rows); err != nil {
		return nil, err
	}
	return newCollector(latest, rows), nil
}

// NewCompat is New for rows with the names and labels of another exporter (catalog.ScopeCompat). Labels without a value
// are omitted, which is equivalent for a reader.
func NewCompat(latest func() *gpu.View, rows []catalog.Family) (*Collector, error) {
	if err := catalog.ValidateCompat(rows); err != nil {
		return nil, err
	}
	return newCollector(latest, rows), nil
}

func newCollector(latest func() *gpu.View, rows []catalog.Family) *Collector {
	c := &Collector{latest: latest, known: make([]series, len(rows)), pairs: pairs{}}
	for _, f := range rows {
		c.rows = append(c.rows, prepare(f))
	}
	for i := range c.known {
		c.known[i].seed = maphash.MakeSeed()
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

// Gather returns the families of the latest View in the order of their names. They are shared: the caller may keep them
// but must not modify them. An invalid series (a wrong number of labels, or a duplicate) is omitted and named in the
// error; the others are returned with it.
func (c *Collector) Gather() ([]*dto.MetricFamily, error) {
	r := c.take()
	if r == nil {
		return nil, nil
	}
	// The caller does not report when it has read them: the rendering is never reused.
	return r.shown, r.err
}

// Transactional is the Collector for callers that report when they have read the families, whose memory is then reused
// for a later View.
func (c *Collector) Transactional() prometheus.TransactionalGatherer { return transactional{c} }

type transactional struct{ *Collector }

// Gather is Collector.Gather; the families must not be used after done.
func (t transactional) Gather() (families []*dto.MetricFamily, done func(), err error) {
	r := t.take()
	if r == nil {
		return nil, func() {}, nil
	}
	return r.shown, sync.OnceFunc(func() { t.end(r) }), r.err
}

// take adds a reader to the rendering of the latest View and returns it; nil if there is no View.
func (c *Collector) take() *rendering {
	view := c.latest()
	if view == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || c.current.view != view {
		c.replace(view)
	}
	c.current.readers++
	return c.current
}

// end removes a reader from a rendering.
func (c *Collector) end(r *rendering) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.readers--
	if r != c.current && r.readers == 0 && c.spare == nil {
		c.spare = r
	}
}

// replace renders a View and makes it the current one. The caller holds c.mu.
func (c *Collector) replace(view *gpu.View) {
	r := c.spare
	c.spare = nil
	if r == nil {
		r = &rendering{rows: make([]filled, len(c.rows))}
	}
	c.render(r, view)
	if old := c.current; old != nil && old.readers == 0 {
		c.spare = old
	}
	c.current = r
}

// render fills a rendering without readers. The caller holds c.mu.
func (c *Collector) render(out *rendering, view *gpu.View) {
	c.building++
	c.pairs.bound()
	out.view, out.shown, out.err = view, out.shown[:0], nil
	var broken []string
	for i := range c.rows {
		r, f, known := &c.rows[i], &out.rows[i], &c.known[i]
		known.begin(c.building)
		if err := f.fill(r, known, c.pairs, view); err != nil {
			broken = append(broken, err.Error())
		}
		known.end()
		if len(f.metrics) == 0 {
			continue
		}
		f.family.Name, f.family.Help, f.family.Type, f.family.Unit, f.family.Metric = &r.Name, r.help, r.typ, r.unit,
			f.metrics
		out.shown = append(out.shown, &f.family)
	}
	if broken != nil {
		out.err = fmt.Errorf("invalid series omitted: %s", strings.Join(broken, "; "))
	}
}
