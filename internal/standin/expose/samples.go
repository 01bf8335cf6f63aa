package expose

import (
	"slices"
	"sort"
	"time"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// Sample is one sample of a series as Prometheus would store it, with the labels of its target. Its slices are reused.
type Sample struct {
	Name string // of the series: the family's, or with _count, _sum, _bucket
	// Labels and Values are sorted by label. A label with an empty value does not exist in a database.
	Labels, Values []string
	Value          float64
}

// AppendSeries appends the series in the text format.
func (s *Sample) AppendSeries(b []byte) []byte {
	b = append(append(b, s.Name...), '{')
	for i, l := range s.Labels {
		if s.Values[i] == "" {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(collector.AppendEscaped(append(append(b, l...), '=', '"'), s.Values[i]), '"')
	}
	return append(b, '}')
}

// Sampler returns what a Prometheus that scrapes the fleet would store. It is not safe for concurrent use.
type Sampler struct {
	fleet *fleet.Fleet
	rows  []row
	up    column
	kube  map[string]*kubeColumn
}

// column is one name of series with its labels.
type column struct {
	name   string
	labels []string // sorted
	from   []int    // index of each label's value among the reader's, then the target's
	values []string
}

type row struct {
	catalog.Family
	columns []column // one, or count, sum and bucket of a histogram
}

type kubeColumn struct {
	column
	labels int // without the target's
}

// targetLabels are those that a scrape adds.
var targetLabels = []string{"cluster", "instance", "job"}

// NewSampler returns a sampler of the wanted families; nil: all.
func NewSampler(f *fleet.Fleet, want func(name string) bool) *Sampler {
	s := &Sampler{fleet: f, kube: map[string]*kubeColumn{}, up: newColumn("up", nil)}
	for _, family := range catalog.All() {
		if want != nil && !want(family.Name) {
			continue
		}
		r := row{Family: family, columns: []column{newColumn(family.Name, family.AllLabels())}}
		if family.Type == catalog.Histogram {
			r.columns = []column{newColumn(family.Name+"_count", family.AllLabels()),
				newColumn(family.Name+"_sum", family.AllLabels()),
				newColumn(family.Name+"_bucket", append(family.AllLabels(), "le"))}
		}
		s.rows = append(s.rows, r)
	}
	for _, k := range fleet.KubeFamilies() {
		if want == nil || want(k.Name) {
			s.kube[k.Name] = &kubeColumn{}
		}
	}
	return s
}

func newColumn(name string, own []string) column {
	c := column{name: name}
	all := append(slices.Clone(own), targetLabels...)
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

// sample sorts values by label.
func (c *column) sample(value float64, own []string, target [3]string) Sample {
	for at, i := range c.from {
		if i < len(own) {
			c.values[at] = own[i]
		} else {
			c.values[at] = target[i-len(own)]
		}
	}
	return Sample{Name: c.name, Labels: c.labels, Values: c.values, Value: value}
}

// Node emits the samples of a scrape of one node, up included.
func (s *Sampler) Node(i int, at time.Time, emit func(Sample)) {
	n := s.fleet.Node(i)
	target := [3]string{n.Cluster, n.Name, JobExporter}
	v := s.fleet.View(i, at)
	if v == nil {
		emit(s.up.sample(0, nil, target))
		return
	}
	emit(s.up.sample(1, nil, target))
	for _, r := range s.rows {
		if r.ReadHistogram == nil {
			r.Read(v, func(value float64, labels ...string) { emit(r.columns[0].sample(value, labels, target)) })
			continue
		}
		r.ReadHistogram(v, func(h gpu.Histogram, labels ...string) {
			emit(r.columns[0].sample(float64(h.Count), labels, target))
			emit(r.columns[1].sample(h.Sum, labels, target))
			emit(r.columns[2].sample(float64(h.Count), append(labels, "+Inf"), target))
		})
	}
}

// Kube emits the samples of a scrape of a cluster's kube-state-metrics, up included.
func (s *Sampler) Kube(cluster string, at time.Time, emit func(Sample)) {
	target := [3]string{cluster, cluster + "/" + JobKubeState, JobKubeState}
	emit(s.up.sample(1, nil, target))
	if len(s.kube) == 0 {
		return
	}
	var names, values []string
	s.fleet.KubeState(cluster, at, func(f fleet.KubeFamily, series func(fleet.KubeEmit)) {
		k := s.kube[f.Name]
		if k == nil {
			return
		}
		series(func(value float64, labels ...string) {
			names, values = names[:0], values[:0]
			for i := 0; i < len(labels); i += 2 {
				names, values = append(names, labels[i]), append(values, labels[i+1])
			}
			if k.name == "" || k.labels != len(names) {
				k.column, k.labels = newColumn(f.Name, names), len(names)
			}
			emit(k.sample(value, values, target))
		})
	})
}
