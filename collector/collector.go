// Package collector writes the catalog's rows over the latest View as Prometheus metric families.
//
// The labels of a series are encoded once in its life, since a node's series are the same from View to View, and once
// for all families that have them: a page in a text format is names, these bytes and values. No scrape reaches the
// driver, the kubelet or a disk.
package collector

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Collector is a prometheus.Gatherer of the latest View, and writes it in the text formats. It is safe for concurrent
// use.
type Collector struct {
	latest func() *gpu.View
	rows   []row

	mu       sync.Mutex // guards what follows
	known    []series   // cached series of each row
	caches   []*labelCache
	building uint64    // counts readings of rows
	pieces   sync.Pool // of *[]byte, of pages that were written
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
	c := &Collector{latest: latest, known: make([]series, len(rows))}
	for _, f := range rows {
		c.rows = append(c.rows, prepare(f))
	}
	sort.Slice(c.rows, func(i, j int) bool { return c.rows[i].Name < c.rows[j].Name })
	byLabels := map[string]*labelCache{}
	for i, r := range c.rows {
		key := strings.Join(r.labels, ",")
		if byLabels[key] == nil {
			byLabels[key] = newLabelCache()
			c.caches = append(c.caches, byLabels[key])
		}
		c.known[i].cache = byLabels[key]
	}
	return c
}

// Gather returns the families of the latest View in the order of their names; the caller must not modify their labels.
// An invalid series (a wrong number of labels, or a duplicate) is omitted and named in the error; the others are
// returned with it.
func (c *Collector) Gather() (families []*dto.MetricFamily, err error) {
	err = c.each(func(r *row, s *series, view *gpu.View) error {
		f, err := r.family(s, view)
		if len(f.Metric) > 0 {
			families = append(families, f)
		}
		return err
	})
	return families, err
}

// each has write read every row over the latest View.
func (c *Collector) each(write func(*row, *series, *gpu.View) error) error {
	view := c.latest()
	if view == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.building + 1
	var broken []string
	for i := range c.rows {
		c.building++
		c.known[i].begin(c.building)
		if err := write(&c.rows[i], &c.known[i], view); err != nil {
			broken = append(broken, err.Error())
		}
		c.known[i].end()
	}
	for _, cache := range c.caches {
		cache.forget(first)
	}
	if broken != nil {
		return fmt.Errorf("invalid series omitted: %s", strings.Join(broken, "; "))
	}
	return nil
}
