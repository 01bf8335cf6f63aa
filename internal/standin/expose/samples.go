package expose

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// Family is a metric family as a database knows it.
type Family struct {
	Name, Help, Unit string
	Type             string // gauge, counter or histogram
}

// Sample is one sample of a series as Prometheus would store it, with the labels of its target. What it points
// to is reused after the call that gives it.
type Sample struct {
	Family *Family
	Name   string // of the series: the family's, or with _count, _sum, _bucket
	// Labels and Values are in the order of the labels' names. A label without value may be among them: to a
	// database it is not there.
	Labels, Values []string
	Value          float64
}

// Sampler tells what a Prometheus that scrapes the fleet would store. It is for one goroutine at a time.
type Sampler struct {
	fleet *fleet.Fleet
	rows  []sampledRow
	up    column
	kube  map[string]*sampledKube
}

// column is one name of series with its labels in order.
type column struct {
	family *Family
	name   string
	labels []string
	from   []int // where each label's value stands in what a reader gives; beyond it: the target's labels
	values []string
}

type sampledRow struct {
	catalog.Family
	column column
	parts  [3]column // of a histogram: count, sum, bucket
}

type sampledKube struct {
	column
	given int
}

// targetLabels are what a scrape adds.
var targetLabels = []string{"cluster", "instance", "job"}

// NewSampler returns a sampler of the families for which want says yes; nil wants all.
func NewSampler(f *fleet.Fleet, want func(name string) bool) *Sampler {
	if want == nil {
		want = func(string) bool { return true }
	}
	s := &Sampler{fleet: f, kube: map[string]*sampledKube{}}
	rows := catalog.All()
	sort.Slice(rows, func(i, j int) bool { return rows[i].Name < rows[j].Name })
	for _, row := range rows {
		if !want(row.Name) {
			continue
		}
		fam := &Family{Name: row.Name, Help: row.HelpText(), Unit: row.Unit, Type: "gauge"}
		switch row.Type {
		case catalog.Counter:
			fam.Type = "counter"
		case catalog.Histogram:
			fam.Type = "histogram"
		}
		r := sampledRow{Family: row, column: newColumn(fam, fam.Name, row.AllLabels())}
		if fam.Type == "histogram" {
			r.parts = [3]column{newColumn(fam, fam.Name+"_count", row.AllLabels()), newColumn(fam, fam.Name+"_sum", row.AllLabels()),
				newColumn(fam, fam.Name+"_bucket", append(row.AllLabels(), "le"))}
		}
		s.rows = append(s.rows, r)
	}
	for _, k := range fleet.KubeFamilies() {
		if want(k.Name) {
			s.kube[k.Name] = &sampledKube{column: column{family: &Family{Name: k.Name, Help: k.Help, Type: "gauge"}, name: k.Name}}
		}
	}
	s.up = newColumn(&Family{Name: "up", Help: "1 while the target can be scraped.", Type: "gauge"}, "up", nil)
	return s
}

func newColumn(f *Family, name string, given []string) column {
	c := column{family: f, name: name}
	all := append(slices.Clone(given), targetLabels...)
	for i := range all {
		c.from = append(c.from, i)
	}
	sort.Slice(c.from, func(i, j int) bool { return all[c.from[i]] < all[c.from[j]] })
	for _, i := range c.from {
		c.labels = append(c.labels, all[i])
	}
	c.values = make([]string, len(all))
	return c
}

// sample puts values in the order of the labels.
func (c *column) sample(value float64, given []string, target [3]string) Sample {
	for at, i := range c.from {
		if i < len(given) {
			c.values[at] = given[i]
		} else {
			c.values[at] = target[i-len(given)]
		}
	}
	return Sample{Family: c.family, Name: c.name, Labels: c.labels, Values: c.values, Value: value}
}

// Families lists the families in the order of their names.
func (s *Sampler) Families() []*Family {
	out := []*Family{s.up.family}
	for i := range s.rows {
		out = append(out, s.rows[i].column.family)
	}
	for _, k := range s.kube {
		out = append(out, k.family)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Node gives the samples of a scrape of one node, up among them, and returns the view; nil if it does not answer.
func (s *Sampler) Node(i int, at time.Time, emit func(Sample)) *gpu.View {
	n := s.fleet.Node(i)
	target := [3]string{n.Cluster, n.Name, JobExporter}
	v := s.fleet.View(i, at)
	if v == nil {
		emit(s.up.sample(0, nil, target))
		return nil
	}
	emit(s.up.sample(1, nil, target))
	for i := range s.rows {
		r := &s.rows[i]
		if r.ReadHistogram != nil {
			r.ReadHistogram(v, func(h gpu.Histogram, labels ...string) {
				emit(r.parts[0].sample(float64(h.Count), labels, target))
				emit(r.parts[1].sample(h.Sum, labels, target))
				emit(r.parts[2].sample(float64(h.Count), append(labels, "+Inf"), target))
			})
			continue
		}
		r.Read(v, func(value float64, labels ...string) { emit(r.column.sample(value, labels, target)) })
	}
	return v
}

// Kube gives the samples of a scrape of a cluster's kube-state-metrics, up among them.
func (s *Sampler) Kube(cluster string, at time.Time, emit func(Sample)) {
	target := [3]string{cluster, cluster + "/" + JobKubeState, JobKubeState}
	emit(s.up.sample(1, nil, target))
	if len(s.kube) == 0 {
		return
	}
	var given []string
	s.fleet.KubeState(cluster, at, func(f fleet.KubeFamily, series func(fleet.KubeEmit)) {
		k := s.kube[f.Name]
		if k == nil {
			return
		}
		series(func(value float64, labels ...string) {
			given = given[:0]
			for i := 1; i < len(labels); i += 2 {
				given = append(given, labels[i])
			}
			if k.given != len(given) {
				var names []string
				for i := 0; i < len(labels); i += 2 {
					names = append(names, labels[i])
				}
				k.column, k.given = newColumn(k.family, k.name, names), len(given)
			}
			emit(k.sample(value, given, target))
		})
	})
}

// AppendKey appends to b what tells a series from all others.
func (s *Sample) AppendKey(b []byte) []byte {
	b = append(b, s.Name...)
	for i, l := range s.Labels {
		if s.Values[i] == "" {
			continue
		}
		b = append(append(append(append(b, 0xff), l...), 0xff), s.Values[i]...)
	}
	return b
}

// metadataName is a family's name in OpenMetrics.
func (f *Family) metadataName() string {
	if f.Type == "counter" {
		return strings.TrimSuffix(f.Name, "_total")
	}
	return f.Name
}
