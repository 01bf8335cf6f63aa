package report

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// dcgmField is one quantity under the names that releases of dcgm-exporter gave it. The unit follows from the name:
// since 4.9 it stands at its end.
type dcgmField struct {
	name  *regexp.Regexp
	scale func(name string) float64 // to base units
}

func inUnits(suffix string, with, without float64) func(string) float64 {
	return func(name string) float64 {
		if strings.HasSuffix(name, suffix) {
			return with
		}
		return without
	}
}

var (
	dcgmUtilization = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_GPU_UTIL(_RATIO)?$`), inUnits("_RATIO", 1, 0.01)}
	dcgmUsed        = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_FB_USED(_BYTES)?$`), inUnits("_BYTES", 1, 1<<20)}
	dcgmFree        = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_FB_FREE(_BYTES)?$`), inUnits("_BYTES", 1, 1<<20)}
	dcgmReserved    = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_FB_RESERVED(_BYTES)?$`), inUnits("_BYTES", 1, 1<<20)}
	dcgmTotal       = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_FB_(TOTAL|CAPACITY_BYTES)$`), inUnits("_BYTES", 1, 1<<20)}
	dcgmPower       = dcgmField{regexp.MustCompile(`^DCGM_FI_DEV_(POWER_USAGE|BOARD_POWER_WATTS)$`), func(string) float64 { return 1 }}
)

// find returns the names of a field that there are: two, when the exporter was upgraded within the window.
func (f dcgmField) find(has map[string]bool) []string {
	var out []string
	for n := range has {
		if f.name.MatchString(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// dcgmLabels are those by which its series are told apart; releases spell some of them in two ways, and a scrape that
// does not honour labels puts exported_ before the tenant's.
var dcgmLabels = []string{"Hostname", "hostname", "instance", "UUID", "modelName", "GPU_I_ID", "namespace", "pod", "exported_namespace", "exported_pod"}

// dcgmKey names one tenant, or nobody, on one GPU.
type dcgmKey struct {
	dev            GPUKey
	namespace, pod string
	mig            bool
}

// dcgmSeries is what is told of it.
type dcgmSeries struct {
	dcgmKey
	busy, memory track
}

// dcgmGPU is one GPU.
type dcgmGPU struct {
	model   string
	series  []*dcgmSeries
	present track // 1 in steps in which anything was said of it
	total   float64
	joules  float64
}

// dcgm makes the account from what dcgm-exporter left. What it does not tell stays unknown: which of several tenants of a GPU worked,
// anything under MIG, pauses within a step, GPUs that fell off the bus.
func (r *reader) dcgm(ctx context.Context) (*fleet, *GPUFacts, []*space, error) {
	match := `{__name__=~"DCGM_FI_DEV_.+|` + kubeOwners + `|kube_node_labels"` + r.and() + `}`
	names, err := r.api.Values(ctx, "__name__", match, r.w.From, r.w.To)
	if err != nil {
		return nil, nil, nil, err
	}
	r.has = map[string]bool{}
	for _, n := range names {
		r.has[n] = true
	}
	activity := dcgmUtilization.find(r.has)
	if len(activity) == 0 {
		return nil, nil, nil, &NoData{fmt.Sprintf("no series of dcgm-exporter's GPU utilization from %s to %s: check that this server scrapes it, and that DCGM_FI_DEV_GPU_UTIL is among its counters", r.w.From.Format(time.RFC3339), r.w.To.Format(time.RFC3339))}
	}
	devs := map[GPUKey]*dcgmGPU{}
	odd, tenants := 0, false
	series := map[dcgmKey]*dcgmSeries{}
	read := func(f dcgmField, op string, take func(c *dcgmGPU, s *dcgmSeries, k int, v float64)) error {
		for _, name := range f.find(r.has) {
			scale := f.scale(name)
			query := r.lang.by("max", op+"_over_time("+r.lang.sel(name)+"[5m])", dcgmLabels...)
			err := r.steps(ctx, query, r.all(), func(l prom.Labels, k int, v float64) {
				c, s := r.dcgmWho(l, devs, series)
				if c == nil || math.IsNaN(v) || v < 0 || v*scale > 1e15 {
					odd++
					return
				}
				tenants = tenants || s.pod != ""
				take(c, s, k, v*scale)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, q := range []struct {
		field dcgmField
		op    string
		take  func(c *dcgmGPU, s *dcgmSeries, k int, v float64)
	}{
		{dcgmUtilization, "avg", func(c *dcgmGPU, s *dcgmSeries, k int, v float64) {
			c.present.max(k, 1)
			if v > 1.01 { // garbage is known to be served
				odd++
				return
			}
			s.busy.max(k, min(1, v))
		}},
		{dcgmUsed, "max", func(c *dcgmGPU, s *dcgmSeries, k int, v float64) {
			c.present.max(k, 1)
			s.memory.max(k, v)
		}},
		{dcgmTotal, "max", func(c *dcgmGPU, _ *dcgmSeries, _ int, v float64) { c.total = max(c.total, v) }},
	} {
		if err := read(q.field, q.op, q.take); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := r.dcgmRest(ctx, devs, read); err != nil {
		return nil, nil, nil, err
	}
	f, facts := newFleet(r.w), &GPUFacts{map[GPUKey]string{}, map[GPUKey]float64{}, map[string]float64{}, map[GPUKey]*track{}, map[GPUKey]*track{}}
	spaces := map[string]*space{}
	for _, k := range slices.SortedFunc(maps.Keys(devs), func(a, b GPUKey) int {
		return strings.Compare(a.cluster+"\x00"+a.node+"\x00"+a.uuid, b.cluster+"\x00"+b.node+"\x00"+b.uuid)
	}) {
		c := devs[k]
		facts.model[k], facts.memory[k] = c.model, c.total
		facts.byName[c.model] = max(facts.byName[c.model], c.total)
		r.dcgmGPU(f, k, c, spaces, tenants)
	}
	if len(f.nodes) == 0 {
		return nil, nil, nil, &NoData{"dcgm-exporter's series have no values in the window: move --from and --to"}
	}
	list := make([]*space, 0, len(spaces))
	for _, n := range sortedKeys(spaces) {
		s := spaces[n]
		if err := r.owners(ctx, s); err != nil {
			return nil, nil, nil, err
		}
		s.fromAllocs(facts.modelOf, r.w.Step.Seconds())
		list = append(list, s)
	}
	if err := r.pools(ctx, f); err != nil {
		return nil, nil, nil, err
	}
	f.settle(r.opt.Gone)
	r.source("GPUs and workloads", "series", strings.Join(activity, ", ")+", "+strings.Join(dcgmUsed.find(r.has), ", "), r.w.Total())
	r.note("dcgm_means", "Read from dcgm-exporter: activity is the mean of samples of a gauge, not a sum. A sample shows the last second or less, so that short work between two samples is not seen.")
	r.note("dcgm_unknown", "It does not tell which of several tenants of a GPU worked (their activity is unobserved), anything of MIG instances, pauses within five minutes (counted as underused), or whether a GPU that is no longer listed was broken or taken away (not reported).")
	if !tenants {
		r.note("dcgm_no_pods", "No series names a pod: run dcgm-exporter with --kubernetes and a scrape that honours labels. GPUs without work are unobserved, because nobody can tell whether they were held.")
	}
	if odd > 0 {
		r.note("dcgm_implausible", "%d values could not be true, or named no GPU, and were left out.", odd)
	}
	return f, facts, list, nil
}

// dcgmRest reads what makes up the total of older releases, and power.
func (r *reader) dcgmRest(ctx context.Context, devs map[GPUKey]*dcgmGPU, read func(dcgmField, string, func(*dcgmGPU, *dcgmSeries, int, float64)) error) error {
	parts := map[*dcgmGPU][3]float64{}
	for i, f := range []dcgmField{dcgmFree, dcgmReserved} {
		err := read(f, "max", func(c *dcgmGPU, s *dcgmSeries, k int, v float64) {
			if s.mig {
				return
			}
			p := parts[c]
			if i == 0 {
				// Used and free of one moment: the largest free belongs to the least used.
				used := s.memory.or(k, 0)
				v += used
			}
			p[i] = max(p[i], v)
			parts[c] = p
		})
		if err != nil {
			return err
		}
	}
	for c, p := range parts {
		if c.total == 0 && p[0] > 0 {
			c.total = p[0] + p[1]
		}
	}
	seen := map[*dcgmGPU]map[int]bool{}
	return read(dcgmPower, "avg", func(c *dcgmGPU, _ *dcgmSeries, k int, v float64) {
		if v > 5000 {
			return
		}
		if seen[c] == nil {
			seen[c] = map[int]bool{}
		}
		if !seen[c][k] { // every tenant's series repeats the GPU's power
			seen[c][k] = true
			c.joules += v * r.w.Step.Seconds()
		}
	})
}

// dcgmWho finds the GPU and the tenant of a series.
func (r *reader) dcgmWho(l prom.Labels, devs map[GPUKey]*dcgmGPU, series map[dcgmKey]*dcgmSeries) (*dcgmGPU, *dcgmSeries) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := l.Get(n); v != "" {
				return v
			}
		}
		return ""
	}
	k := GPUKey{l.Get(r.lang.cluster), first("Hostname", "hostname", "instance"), l.Get("UUID")}
	if k.uuid == "" || k.node == "" {
		return nil, nil
	}
	c := devs[k]
	if c == nil {
		c = &dcgmGPU{}
		devs[k] = c
	}
	if m := l.Get("modelName"); m != "" {
		c.model = m
	}
	namespace, pod := l.Get("exported_namespace"), l.Get("exported_pod")
	if pod == "" {
		namespace, pod = l.Get("namespace"), l.Get("pod")
		if strings.Contains(pod, "dcgm-exporter") || strings.Contains(pod, "dcgm_exporter") {
			namespace, pod = "", "" // the exporter's own
		}
	}
	id := dcgmKey{k, namespace, pod, l.Get("GPU_I_ID") != ""}
	s := series[id]
	if s == nil {
		s = &dcgmSeries{dcgmKey: id}
		series[id] = s
		c.series = append(c.series, s)
	}
	return c, s
}

// dcgmGPU gives the steps of one GPU to the cells and to its tenants.
func (r *reader) dcgmGPU(f *fleet, k GPUKey, c *dcgmGPU, spaces map[string]*space, tenants bool) {
	if c.present.len() == 0 {
		return
	}
	n := f.node(nodeKey{k.cluster, k.node, c.model})
	n.joules += c.joules
	n.energy = n.energy || c.joules > 0
	end := c.present.end()
	if time.Duration(r.w.Steps()-end)*r.w.Step <= r.opt.Gone {
		end = r.w.Steps()
	}
	for step := c.present.from; step < end; step++ {
		n.count.add(step, 1)
		if _, there := c.present.at(step); !there {
			continue
		}
		var holders []*dcgmSeries
		busy, known, mig := 0.0, false, false
		for _, s := range c.series {
			v, ok := s.busy.at(step)
			_, listed := s.memory.at(step)
			if !ok && !listed {
				continue
			}
			if ok && !s.mig {
				busy, known = max(busy, v), true
			}
			mig = mig || s.mig
			if s.pod != "" {
				holders = append(holders, s)
			}
		}
		switch {
		case mig || !known:
			f.add(n, Unobserved, step, 1)
		case len(holders) == 0:
			f.add(n, Useful, step, busy)
			n.outside += busy * r.w.Hours()
			if tenants {
				f.add(n, Unallocated, step, 1-busy)
			} else {
				f.add(n, Unobserved, step, 1-busy)
			}
		default:
			f.add(n, Useful, step, busy)
			if busy < quietBelow {
				f.add(n, Idle, step, 1-busy)
			} else {
				f.add(n, Gap, step, 1-busy)
			}
		}
		for _, s := range holders {
			sp := spaces[s.namespace]
			if sp == nil {
				sp = newSpace(r.w, s.namespace)
				sp.shares = true
				spaces[s.namespace] = sp
			}
			h := sp.alloc(holdKey{k.cluster, s.namespace, s.pod, k.node, k.uuid})
			h.share.max(step, 1/float64(len(holders)))
			if v, ok := s.memory.at(step); ok {
				h.memory.max(step, v)
			}
			if mig || !known || len(holders) > 1 {
				continue // whose work it was is not told
			}
			h.busy.add(step, busy)
			if busy < quietBelow {
				h.idle.add(step, 1-busy)
			}
		}
	}
}

// fromHoldings makes workloads of holdings alone.
func (s *space) fromAllocs(model func(cluster, node, uuid string) string, stepSeconds float64) {
	s.join(model)
	for _, l := range s.sorted() {
		for _, h := range l.allocs {
			for i, v := range h.share.v {
				k := h.share.from + i
				if v != v {
					continue
				}
				l.add(qHeld, k, float64(v), stepSeconds)
				if m, ok := h.memory.at(k); ok {
					l.add(qMemory, k, m, stepSeconds)
				}
				busy, ok := h.busy.at(k)
				if !ok {
					continue
				}
				l.add(qObserved, k, 1, stepSeconds)
				l.add(qBusy, k, busy, stepSeconds)
				l.add(qMost, k, busy, stepSeconds)
				if busy >= quietBelow {
					l.lastBusy = max(l.lastBusy, float64(s.w.End(k).Unix()))
					l.add(qUnderused, k, max(0, float64(v)-busy), stepSeconds)
				} else {
					l.add(qIdle, k, max(0, float64(v)-busy), stepSeconds)
				}
			}
		}
	}
}
