package replay_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// script adds up what the fleet does at a time, from its views: without series, rules and queries.
type script struct {
	gpus       []*gpuNow
	containers []*containerNow
	resources  []resourceNow
	nodes      []nodeNow
	kube       map[string]map[string]float64 // by family, then by labels as in key
	span       time.Duration
}

// thing has labels.
type thing struct{ labels map[string]string }

func (x thing) key(by string) string {
	var out []string
	for name := range strings.FieldsSeq(by) {
		out = append(out, x.labels[name])
	}
	return strings.Join(out, "/")
}

// gpuNow is a GPU now, and a span before. Young: it has not been read throughout.
type gpuNow struct {
	thing
	now, before *gpu.GPU
	young       bool
	at          time.Time
	containers  []*containerNow
}

type containerNow struct {
	thing
	gpu         *gpuNow
	now, before *gpu.ContainerGPU
	allocation  *gpu.ContainerAllocation
	young       bool
}

type resourceNow struct {
	thing
	gpu.ResourceCount
}

type nodeNow struct {
	thing
	view *gpu.View
}

// newScript has rates over a span: the time between the first and the last of the scrapes that a rate reads.
func newScript(t *testing.T, f *fleet.Fleet, at time.Time, span time.Duration) *script {
	t.Helper()
	s := &script{kube: map[string]map[string]float64{}, span: span}
	for i := range f.Len() {
		n := f.Node(i)
		now, before := f.View(i, at), f.View(i, at.Add(-span))
		if now == nil {
			continue
		}
		young := before == nil
		for m := time.Minute; m < span; m += time.Minute {
			young = young || f.View(i, at.Add(-m)) == nil
		}
		node := func(more ...string) thing {
			l := map[string]string{"cluster": n.Cluster, "node": n.Name, "pool": n.Pool, "zone": n.Zone, "rack": n.Rack, "model": n.Model}
			if n.Rack == "" {
				l["rack"] = "(no label)"
			}
			for j := 0; j < len(more); j += 2 {
				l[more[j]] = more[j+1]
			}
			return thing{l}
		}
		s.nodes = append(s.nodes, nodeNow{node(), now})
		byUUID := map[gpu.UUID]*gpuNow{}
		for j := range now.GPUs {
			g := &gpuNow{thing: node("uuid", string(now.GPUs[j].UUID), "gpu", index(now.GPUs[j].Index), "model",
				now.GPUs[j].Model), now: &now.GPUs[j], young: young, at: at}
			if before != nil {
				if k := slices.IndexFunc(before.GPUs, func(b gpu.GPU) bool { return b.UUID == g.now.UUID }); k >= 0 {
					g.before = &before.GPUs[k]
				}
			}
			g.young = g.young || g.before == nil || less(g.now.GPUSeconds, g.before.GPUSeconds)
			byUUID[g.now.UUID] = g
			s.gpus = append(s.gpus, g)
		}
		owners := map[gpu.PodName]*gpu.PodMeta{}
		for _, p := range now.Pods {
			owners[gpu.PodName{Namespace: p.Namespace, Pod: p.Pod}] = p.Meta
		}
		for j := range now.Containers {
			c := &now.Containers[j]
			x := &containerNow{gpu: byUUID[c.GPU], now: c, young: young}
			l := map[string]string{"namespace": c.Namespace, "pod": c.Pod, "container": c.Name, "team": c.Namespace}
			if m := owners[c.PodName()]; m != nil {
				l["workload_type"], l["workload"] = m.WorkloadType, m.Workload
			}
			for k, v := range x.gpu.labels {
				l[k] = v
			}
			x.labels = l
			if before != nil {
				if k := slices.IndexFunc(before.Containers, func(b gpu.ContainerGPU) bool {
					return b.GPU == c.GPU && b.Container == c.Container
				}); k >= 0 {
					x.before = &before.Containers[k]
				}
			}
			for k := range now.Allocations {
				if a := &now.Allocations[k]; a.GPU == c.GPU && a.Container == c.Container {
					x.allocation = a
				}
			}
			x.young = x.young || x.before == nil || x.before.Ended || c.Ended || x.gpu.young
			x.gpu.containers = append(x.gpu.containers, x)
			s.containers = append(s.containers, x)
		}
		for _, r := range now.Resources {
			name := strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(r.Resource)
			s.resources = append(s.resources, resourceNow{node("resource", name), r})
		}
	}
	f.KubeState("", at, func(family fleet.KubeFamily, series func(fleet.KubeEmit)) {
		rows := map[string]float64{}
		s.kube[family.Name] = rows
		series(func(v float64, labels ...string) {
			var key []string
			for i := 1; i < len(labels); i += 2 {
				key = append(key, labels[i])
			}
			rows[strings.Join(key, "/")] = v
		})
	})
	return s
}

// index is that of NVML; a GPU that is not in NVML has none.
func index(i int) string {
	if i < 0 {
		return ""
	}
	return strconv.Itoa(i)
}

func less(a, b map[gpu.TimeState]gpu.Seconds) bool {
	var x, y gpu.Seconds
	for _, v := range a {
		x += v
	}
	for _, v := range b {
		y += v
	}
	return x < y
}

// values are those of the rows of a column by their labels, and unsure the rows that churn leaves open.
type values struct {
	of     map[string]float64
	unsure map[string]bool
}

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

func opt[T number](o gpu.Opt[T]) (float64, bool) { v, ok := o.Get(); return float64(v), ok }

func fold[X any](list []X, by string, key func(X, string) string, op func(sum, v float64, first bool) float64,
	of func(X) (v float64, ok, sure bool)) values {
	out := values{map[string]float64{}, map[string]bool{}}
	for _, x := range list {
		v, ok, sure := of(x)
		k := key(x, by)
		if !sure {
			out.unsure[k] = true
		}
		if ok {
			_, had := out.of[k]
			out.of[k] = op(out.of[k], v, !had)
		}
	}
	return out
}

func add(sum, v float64, _ bool) float64 { return sum + v }
func most(high, v float64, first bool) float64 {
	if first {
		return v
	}
	return max(high, v)
}

// sum is the sum over GPUs of a quantity that may be absent.
func (s *script) sum(by string, of func(*gpuNow) (float64, bool)) values {
	return fold(s.gpus, by, func(g *gpuNow, by string) string { return g.key(by) }, add,
		func(g *gpuNow) (float64, bool, bool) { v, ok := of(g); return v, ok, true })
}

// rate is the sum over GPUs of a counter's rate.
func (s *script) rate(by string, of func(*gpu.GPU) (float64, bool)) values {
	return fold(s.gpus, by, func(g *gpuNow, by string) string { return g.key(by) }, add,
		func(g *gpuNow) (float64, bool, bool) {
			if g.young {
				return 0, false, false
			}
			now, ok := of(g.now)
			before, had := of(g.before)
			return (now - before) / s.span.Seconds(), ok && had, ok == had
		})
}

func (s *script) state(states ...gpu.TimeState) func(*gpu.GPU) (float64, bool) {
	return func(g *gpu.GPU) (sum float64, ok bool) {
		for _, state := range states {
			sum += float64(g.GPUSeconds[state])
		}
		return sum, g.GPUSeconds != nil
	}
}

// gauges and rates are those of containers.
func (s *script) gauges(by string, op func(float64, float64, bool) float64, of func(*containerNow) (float64, bool)) values {
	return fold(s.containers, by, func(c *containerNow, by string) string { return c.key(by) }, op,
		func(c *containerNow) (float64, bool, bool) {
			if c.now.Ended {
				return 0, false, true
			}
			v, ok := of(c)
			return v, ok, true
		})
}

func (s *script) rates(by string, of func(*gpu.ContainerGPU) (float64, bool)) values {
	return fold(s.containers, by, func(c *containerNow, by string) string { return c.key(by) }, add,
		func(c *containerNow) (float64, bool, bool) {
			if c.young {
				return 0, false, false
			}
			now, ok := of(c.now)
			before, had := of(c.before)
			return (now - before) / s.span.Seconds(), ok && had, ok == had
		})
}

// measured is the allocated time of containers whose activity was measured: their share of the time in which the GPU was
// observed, or the part of the MIG device that was.
func (s *script) measured(by string) values {
	return fold(s.containers, by, func(c *containerNow, by string) string { return c.key(by) }, add,
		func(c *containerNow) (float64, bool, bool) {
			if c.young {
				return 0, false, false
			}
			rate := func(of func(*gpu.ContainerGPU) (float64, bool)) (float64, bool) {
				now, ok := of(c.now)
				before, had := of(c.before)
				return (now - before) / s.span.Seconds(), ok && had
			}
			seen, ok := rate(observedTime)
			part, known := rate(allocatedTime)
			if of, whole := share(c); whole && of > 0 && c.allocation.Instance == "" {
				return seen * min(of, 1), ok, true
			}
			return min(seen, part), ok && known, true
		})
}

// over divides values row by row; a row that only one side has, or with a denominator of 0, is no row.
func (v values) over(by values) values {
	out := values{map[string]float64{}, map[string]bool{}}
	for k, x := range v.of {
		if y, ok := by.of[k]; ok && y != 0 {
			out.of[k] = x / y
		}
	}
	for _, u := range []values{v, by} {
		for k := range u.unsure {
			out.unsure[k] = true
		}
	}
	return out
}

// only keeps the rows for which keep is true.
func (v values) only(keep func(key string, x float64) bool) values {
	out := values{map[string]float64{}, v.unsure}
	for k, x := range v.of {
		if keep(k, x) {
			out.of[k] = x
		}
	}
	return out
}

func positive(_ string, x float64) bool { return x > 0 }

func (s *script) kubeSum(family string, by func(labels []string) (key string, ok bool)) values {
	out := values{map[string]float64{}, nil}
	for labels, v := range s.kube[family] {
		if k, ok := by(strings.Split(labels, "/")); ok {
			out.of[k] += v
		}
	}
	return out
}

// comparison compares what panels show with the script.
type comparison struct {
	*testing.T
	cells    map[string]promql.Vector
	compared map[string]bool
}

// show compares a column with what it must show, by labels in the order of the values' keys.
func (c comparison) show(column, by string, want values, share, more float64) {
	c.Helper()
	got, ok := c.cells[column]
	if !ok {
		c.Errorf("there is no column %s", column)
		return
	}
	c.compared[column] = true
	shown := map[string]float64{}
	for _, e := range got {
		var key []string
		for name := range strings.FieldsSeq(by) {
			key = append(key, e.Metric.Get(name))
		}
		shown[strings.Join(key, "/")] += e.F
	}
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 3 {
			c.Errorf(column+": "+format, args...)
		}
	}
	for k, w := range want.of {
		v, ok := shown[k]
		switch {
		case want.unsure[k]:
		case !ok:
			complain("%q is not shown, want %.4g", k, w)
		case math.Abs(v-w) > share*math.Abs(w)+more:
			complain("%q is %.6g, want %.6g", k, v, w)
		}
	}
	for k, v := range shown {
		if _, ok := want.of[k]; !ok && !want.unsure[k] {
			complain("%q is %.6g, want no such row", k, v)
		}
	}
	if wrong > 3 {
		c.Errorf("%s: and %d more rows", column, wrong-3)
	}
}
