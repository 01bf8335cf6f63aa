package report

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// dcgmLabels are those that identify a series; releases spell some of them in two ways, and a scrape that does not
// honor labels puts exported_ before those of the pod.
var dcgmLabels = []string{"Hostname", "hostname", "instance", "UUID", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "job", "namespace", "pod",
	"exported_namespace", "exported_pod"}

// dcgmKey names one pod, or none, on one GPU.
type dcgmKey struct {
	gpu            gpuKey
	namespace, pod string
	instance       string // of a MIG device
	profile        string
}

func (k *dcgmKey) mig() bool { return k.instance != "" }

// dcgmSeries is the data of it.
type dcgmSeries struct {
	dcgmKey
	busy, memory series.Track
}

// dcgmGPU is one GPU.
type dcgmGPU struct {
	model   string
	series  []*dcgmSeries
	present series.Track // 1 in steps with any data
	total   float64
	joules  float64
}

// dcgmHistory is what is read of dcgm-exporter. What it does not report stays unknown: which of several pods of a GPU
// was busy, anything under MIG, pauses within a step, GPUs that fell off the bus.
type dcgmHistory struct {
	*reader
	gpus        map[gpuKey]*dcgmGPU
	series      map[dcgmKey]*dcgmSeries
	implausible int
	pods        bool // at least one series names a pod
	exporters   map[dcgmTarget]bool
	spaces      map[string]*space
}

// dcgmTake stores one value.
type dcgmTake func(g *dcgmGPU, s *dcgmSeries, k int, v float64)

// dcgm accounts for the history of dcgm-exporter.
func (r *reader) dcgm(ctx context.Context) (*fleet, *gpuFacts, []*space, error) {
	if _, err := r.discover(ctx, "DCGM_FI_.+|up|"+metric.KubeOwners+"|"+metric.KubeLabels+"|"+metric.KubePods+"|"+
		metric.KubeSpaces); err != nil {
		return nil, nil, nil, err
	}
	names := slices.Concat(metric.DCGMUtilization.Find(r.has), metric.DCGMEngine.Find(r.has), metric.DCGMUsed.Find(r.has))
	if len(metric.DCGMUtilization.Find(r.has))+len(metric.DCGMEngine.Find(r.has)) == 0 {
		return nil, nil, nil, r.noData("no series of dcgm-exporter's GPU utilization (%s): check that this server " +
			"scrapes it, and that DCGM_FI_DEV_GPU_UTIL is among its counters")
	}
	h := &dcgmHistory{reader: r, gpus: map[gpuKey]*dcgmGPU{}, series: map[dcgmKey]*dcgmSeries{}, spaces: map[string]*space{}}
	if err := h.targets(ctx, names); err != nil {
		return nil, nil, nil, err
	}
	if err := h.readAll(ctx); err != nil {
		return nil, nil, nil, err
	}
	f, facts := newFleet(r.p), newGPUFacts()
	for _, k := range sorted(h.gpus) {
		g := h.gpus[k]
		h.account(f, k, g)
		facts.model[k], facts.memory[k] = g.model, g.total
		facts.byModel[g.model] = max(facts.byModel[g.model], g.total)
	}
	if len(f.nodes) == 0 {
		return nil, nil, nil, r.noData("the series of dcgm-exporter have no values in the period (%s): change --from and --to")
	}
	list := make([]*space, 0, len(h.spaces))
	for _, n := range sortedKeys(h.spaces) {
		s := h.spaces[n]
		if err := r.owners(ctx, s); err != nil {
			return nil, nil, nil, err
		}
		s.join(facts)
		s.fill(r.all(), true)
		list = append(list, s)
	}
	if err := r.pools(ctx, f); err != nil {
		return nil, nil, nil, err
	}
	f.settle(r.opt.RemovedAfter)
	r.source("GPUs and workloads", "series", strings.Join(names, ", "), r.p.Hours())
	r.note("dcgm_means", "Read from dcgm-exporter: activity is the mean of samples of a gauge, not a sum. A sample "+
		"covers the last second or less, so that short work between two samples is missed.")
	r.note("dcgm_unknown", "dcgm-exporter does not report which of several pods of a GPU was busy (their activity is "+
		"unknown), MIG devices without DCGM_FI_PROF_GR_ENGINE_ACTIVE, pauses within five minutes (counted as gap), or whether "+
		"a GPU that is no longer listed was broken or removed (not reported).")
	if !h.pods {
		r.note("dcgm_no_pods", "No series names a pod: run dcgm-exporter with --kubernetes and a scrape that honors "+
			"labels. GPUs that are not busy are unknown, because their allocation is.")
	}
	if h.implausible > 0 {
		r.note("dcgm_implausible", "%d values are implausible, or name no GPU, and were left out.", h.implausible)
	}
	return f, facts, list, nil
}

// dcgmTarget is a scrape target: a series that does not honor labels has its pod instead of the workload's.
type dcgmTarget struct{ job, namespace, pod string }

// targets reads which pods are scraped. A job with a series that has the label exported_pod does not honor labels: where there is no up,
// as after federation, its other pods are the exporter's, too.
func (h *dcgmHistory) targets(ctx context.Context, names []string) error {
	h.exporters = map[dcgmTarget]bool{}
	for _, name := range names {
		err := h.coarse(ctx, day, "group", "last", h.q.Select(name, `exported_pod!=""`), []string{"job"},
			func(l prom.Labels, _ series.Span, _ float64) { h.exporters[dcgmTarget{job: l.Get("job")}] = true })
		if err != nil {
			return err
		}
	}
	if !h.has["up"] {
		return nil
	}
	return h.coarse(ctx, day, "group", "last", h.q.Select("up", `pod!=""`), []string{"job", "namespace", "pod"},
		func(l prom.Labels, _ series.Span, _ float64) {
			h.exporters[dcgmTarget{l.Get("job"), l.Get("namespace"), l.Get("pod")}] = true
		})
}

// readAll reads every field. The total memory of older releases is the sum of its parts.
func (h *dcgmHistory) readAll(ctx context.Context) error {
	parts := map[*dcgmGPU]*[2]float64{} // free and used, reserved
	part := func(i int, v float64, g *dcgmGPU, s *dcgmSeries) {
		if s.mig() {
			return
		}
		p := entry(parts, g)
		p[i] = max(p[i], v)
	}
	counted := map[*dcgmGPU]map[int]bool{}
	for _, x := range []struct {
		field metric.DCGM
		op    string
		take  dcgmTake
	}{
		{metric.DCGMUtilization, "avg", func(g *dcgmGPU, s *dcgmSeries, k int, v float64) {
			g.present.Max(k, 1)
			if v > 1.01 { // known to be exported at times
				h.implausible++
				return
			}
			s.busy.Max(k, min(1, v))
		}},
		{metric.DCGMEngine, "avg", func(g *dcgmGPU, s *dcgmSeries, k int, v float64) {
			if s.mig() && v <= 1.01 { // of a whole GPU, its utilization is a time in which kernels ran, as elsewhere
				g.present.Max(k, 1)
				s.busy.Max(k, min(1, v))
			}
		}},
		{metric.DCGMUsed, "max", func(g *dcgmGPU, s *dcgmSeries, k int, v float64) {
			g.present.Max(k, 1)
			s.memory.Max(k, v)
		}},
		{metric.DCGMTotal, "max", func(g *dcgmGPU, _ *dcgmSeries, _ int, v float64) { g.total = max(g.total, v) }},
		// Used and free of one time: the largest free belongs to the least used.
		{metric.DCGMFree, "max", func(g *dcgmGPU, s *dcgmSeries, k int, v float64) { part(0, v+s.memory.Or(k, 0), g, s) }},
		{metric.DCGMReserved, "max", func(g *dcgmGPU, s *dcgmSeries, _ int, v float64) { part(1, v, g, s) }},
		{metric.DCGMPower, "avg", func(g *dcgmGPU, _ *dcgmSeries, k int, v float64) {
			if counted[g] == nil {
				counted[g] = map[int]bool{}
			}
			if v <= 5000 && !counted[g][k] { // every pod's series repeats the GPU's power
				counted[g][k] = true
				g.joules += v * h.p.Step.Seconds()
			}
		}},
	} {
		for _, name := range x.field.Find(h.has) {
			scale := x.field.Scale(name)
			query := h.q.By("max", x.op+"_over_time("+h.q.Select(name)+"[5m])", dcgmLabels...)
			err := h.steps(ctx, query, h.all(), func(l prom.Labels) func(int, float64) {
				g, s := h.find(l)
				return func(k int, v float64) {
					if g == nil || math.IsNaN(v) || v < 0 || v*scale > 1e15 {
						h.implausible++
						return
					}
					h.pods = h.pods || s.pod != ""
					x.take(g, s, k, v*scale)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	for g, p := range parts {
		if g.total == 0 && p[0] > 0 {
			g.total = p[0] + p[1]
		}
	}
	return nil
}

// find finds the GPU and the pod of a series.
func (h *dcgmHistory) find(l prom.Labels) (*dcgmGPU, *dcgmSeries) {
	node := cmp.Or(l.Get("Hostname"), l.Get("hostname"), l.Get("instance"))
	k := gpuKey{l.Get(h.q.Cluster), node, l.Get("UUID")}
	if k.uuid == "" || k.node == "" {
		return nil, nil
	}
	g := entry(h.gpus, k)
	g.model = cmp.Or(l.Get("modelName"), g.model)
	namespace, pod := l.Get("exported_namespace"), l.Get("exported_pod")
	if pod == "" {
		namespace, pod = l.Get("namespace"), l.Get("pod")
		job := l.Get("job")
		if h.exporters[dcgmTarget{job, namespace, pod}] || h.exporters[dcgmTarget{job: job}] || strings.Contains(pod, "dcgm-exporter") ||
			strings.Contains(pod, "dcgm_exporter") {
			namespace, pod = "", "" // the exporter's own
		}
	}
	id := dcgmKey{k, namespace, pod, l.Get("GPU_I_ID"), l.Get("GPU_I_PROFILE")}
	s := h.series[id]
	if s == nil {
		s = &dcgmSeries{dcgmKey: id}
		h.series[id] = s
		g.series = append(g.series, s)
	}
	return g, s
}

// account adds the steps of one GPU to the states and to its pods.
func (h *dcgmHistory) account(f *fleet, k gpuKey, g *dcgmGPU) {
	if g.present.Len() == 0 {
		return
	}
	n := f.node(nodeKey{k.cluster, k.node, g.model})
	n.joules += g.joules
	n.energy = n.energy || g.joules > 0
	end := g.present.End()
	if h.p.Duration(h.p.Steps()-end) <= h.opt.RemovedAfter {
		end = h.p.Steps()
	}
	for step := g.present.From; step < end; step++ {
		n.count.Add(step, 1)
		if _, present := g.present.At(step); present {
			h.step(f, n, g, step)
		}
	}
}

// dcgmDevice is a GPU or a MIG device in a step, with the pods that have it.
type dcgmDevice struct {
	share, busy float64 // of the GPU, and of the device
	known       bool    // its activity
	pods        []*dcgmSeries
	resource    string // of a MIG device
}

// step adds a step of a GPU to the states and to its pods: as one device, or if the activity of MIG devices is known, as these.
func (h *dcgmHistory) step(f *fleet, n *nodeGPUs, g *dcgmGPU, step int) {
	whole, left, measured, seen := dcgmDevice{share: 1, known: true}, 1.0, false, map[string]bool{}
	var parts []dcgmDevice
	any := false // the activity of the GPU is known
	for _, s := range g.series {
		x := dcgmDevice{}
		_, listed := s.memory.At(step)
		if x.busy, x.known = s.busy.At(step); !x.known && !listed {
			continue
		}
		if s.pod != "" {
			x.pods = []*dcgmSeries{s}
		}
		whole.pods = append(whole.pods, x.pods...)
		if !s.mig() {
			whole.busy, any = max(whole.busy, x.busy), any || x.known
			continue
		}
		whole.known, measured = false, measured || x.known
		if gpu, profile, ok := mig.WithProfile(g.model, s.profile); ok && !seen[s.instance] {
			seen[s.instance] = true
			g.total = cmp.Or(g.total, gpu.Bytes)
			x.share, x.resource = min(left, gpu.ComputeRatio(profile)), profile.Resource()
			left -= x.share
			parts = append(parts, x)
		}
	}
	if whole.known = whole.known && any; !measured {
		parts = []dcgmDevice{whole}
	} else {
		f.add(n, document.Unallocated, step, left) // slices that no MIG device has
	}
	for _, x := range parts {
		rest := document.Gap
		switch {
		case !x.known:
			x.busy, rest = 0, document.Unknown
		case len(x.pods) == 0 && h.pods:
			rest = document.Unallocated
		case len(x.pods) == 0:
			rest = document.Unknown
		case x.busy < busyAbove:
			rest = document.Idle
		}
		f.add(n, document.Busy, step, x.share*x.busy)
		f.add(n, rest, step, x.share*(1-x.busy))
		if len(x.pods) == 0 {
			n.unattributed += x.share * x.busy * h.p.StepHours()
		}
		for _, s := range x.pods {
			sp := h.spaces[s.namespace]
			if sp == nil {
				sp = newSpace(h.p, s.namespace)
				sp.shares = true
				h.spaces[s.namespace] = sp
			}
			a := sp.allocation(allocationKey{s.gpu.cluster, s.namespace, s.pod, s.gpu.node, s.gpu.uuid})
			a.resource = cmp.Or(x.resource, a.resource)
			a.share.Max(step, x.share/float64(len(x.pods)))
			if v, ok := s.memory.At(step); ok {
				a.memory.Max(step, v)
			}
			if x.known && len(x.pods) == 1 { // of several it is unknown which was busy
				a.busy.Add(step, x.share*x.busy)
				if rest == document.Idle {
					a.idle.Add(step, x.share*(1-x.busy))
				}
			}
		}
	}
}
