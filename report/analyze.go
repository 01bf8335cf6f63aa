package report

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// analysis turns what was read of workloads into rows, advice and items to pack.
type analysis struct {
	p     series.Period
	opt   *Options
	facts *gpuFacts
	// requests are those of pods with GPUs; unknown lists what a placement does not know.
	requests map[podKey]kube.Requested
	unknown  string
	prices   map[nodeKey]*float64 // of GPU-hours, by node
}

// price is that of a GPU-hour on a node, or without one of a model; nil if it is unknown.
func (a *analysis) price(k nodeKey) *float64 {
	if price, ok := a.prices[k]; ok {
		return price
	}
	return a.opt.Prices.Mean(prices.Part{Model: k.model, Cluster: k.cluster}, a.p.From, a.p.To)
}

// priceOf is that of a GPU-hour of a workload, by where its pods ran; nil if a part of it is unknown.
func (a *analysis) priceOf(l *load) *float64 {
	sum, weight := 0.0, 0.0
	for _, x := range l.allocations {
		n := max(1, float64(x.busy.Len()+x.share.Len())*x.typical)
		price := a.price(nodeKey{x.key.cluster, x.key.node, x.model})
		if price == nil {
			return nil
		}
		sum, weight = sum+n**price, weight+n
	}
	if weight == 0 {
		return a.price(nodeKey{l.key.cluster, "", l.key.model})
	}
	return new(sum / weight)
}

const (
	// busyAbove is the activity of a step from which it counts as busy: less is below a second of five minutes.
	busyAbove = 0.002
	// emptyBelow is the memory below which no process is on a GPU: contexts alone take more.
	emptyBelow = 64 << 20
	// reclaimableFrom is how long an idle period must last to be reclaimable.
	reclaimableFrom = 30 * time.Minute
	// allocatedAtEnd is how far before the end of the period the last value of what is still allocated may be.
	allocatedAtEnd = 15 * time.Minute
)

// finding is what remains of one workload when its series are no longer needed.
type finding struct {
	row    document.Workload
	advice []document.Advice
	runs   []run
	// replaced are the pods as they would have been with the advice followed; nodes has the node of each pod.
	replaced []replay.Pod
	nodes    map[string]string
	pods     []string
	// reclaimed and beyond are GPU-hours by node.
	reclaimed, beyond map[nodeKey]float64
	// measured is the allocated GPU-time whose activity was measured, in GPU-steps.
	measured float64
	// shared are the allocations on GPUs that others share.
	shared []*allocation
}

// follows is true if the pods of a workload are placed as its advice says.
func (x *finding) follows() bool {
	return len(x.advice) > 0 && x.row.Advice != document.AdviseLessSharing
}

// namespace makes the findings of one namespace.
func (a *analysis) namespace(s *space) []*finding {
	var out []*finding
	for _, k := range sorted(s.loads) {
		l := s.loads[k]
		if l.sum[qAllocated] > 0 || l.sum[qBusy] > 0 {
			out = append(out, a.workload(l))
		}
	}
	return out
}

// workload makes the finding of a workload.
func (a *analysis) workload(l *load) *finding {
	h, k := a.p.StepHours(), l.key
	f := &finding{reclaimed: map[nodeKey]float64{}, beyond: map[nodeKey]float64{}, row: document.Workload{ID: k.id(),
		Cluster: k.cluster, Namespace: k.namespace, Kind: k.kind, Name: k.name, OwnerFrom: l.from, Model: k.model,
		Allocated: l.sum[qAllocated] * h, Busy: l.sum[qBusy] * h, Gap: l.sum[qGap] * h, Idle: l.sum[qIdle] * h,
		Pods: max(len(l.pods), int(l.sum[qPods]+0.5))}}
	r := &f.row
	a.sharing(l, r)

	// The time in which GPUs were allocated to it.
	steps, begin, end := 0, a.p.Steps(), 0
	for i, v := range l.track(qAllocated).All() {
		if v > 0.001 {
			steps++
			begin, end = min(begin, i), i+1
		}
	}
	if steps == 0 { // it used GPUs without an allocation
		begin, end = l.track(qBusy).First(begin), l.track(qBusy).End()
	}
	r.FirstSeen, r.LastSeen = a.p.Begin(min(begin, max(0, end-1))), a.p.Begin(end)
	r.GPUs = over(l.sum[qAllocated], float64(steps))
	if a.lasts(end, a.p.Steps()) {
		r.GPUsNow = l.track(qAllocated).Last()
	}
	a.divide(l, f)
	a.busyRatios(l, r, f.measured)
	a.memory(l, r)
	if l.energy {
		r.EnergyKWh = new(l.sum[qWatts] * a.p.Step.Seconds() / 3.6e6)
	}
	r.Unused = r.Idle + r.Gap
	price := a.priceOf(l)
	r.Cost, r.UnusedCost = prices.Cost(price, r.Allocated), prices.Cost(price, r.Unused)
	if l.sum[qLastBusy] > 0 && r.Busy > 0 {
		r.LastBusy = new(time.UnixMilli(int64(l.sum[qLastBusy] * 1000)).UTC().Truncate(time.Second))
	}
	r.Confidence = "low"
	switch observed, g := a.p.Duration(steps), a.opt.Advice; {
	case observed >= 14*day && r.Coverage >= 0.99:
		r.Confidence = "high"
	case observed >= g.Observed*19/20 && r.Coverage >= g.Coverage:
		r.Confidence = "medium"
	}
	r.Rhythm = demand.Split(l.track(qBusiest), a.p).Name
	r.Plot = demand.Plot(a.p, l.track(qBusy), l.track(qObserved), l.track(qBusiest), l.track(qMemory), l.track(qAllocated))
	f.advice = a.advise(l, r, steps)
	f.runs, f.nodes = a.runs(l), map[string]string{}
	if len(f.advice) > 0 {
		f.replaced = a.follow(slices.Clone(f.runs), r, l.followed)
	}
	for _, x := range f.runs {
		f.nodes[x.ID] = x.node
	}
	for _, k := range sorted(l.pods) {
		f.pods = append(f.pods, k.pod)
	}
	for _, x := range l.allocations {
		if x.shared() {
			x.idle, x.share = series.Track{}, series.Track{} // no longer needed
			f.shared = append(f.shared, x)
		}
	}
	return f
}

// lasts is true if what ended at a step was still allocated at another.
func (a *analysis) lasts(end, until int) bool { return a.p.Duration(until-end) <= allocatedAtEnd }

// migGPU finds the MIG table of a model.
func (a *analysis) migGPU(model string) (*mig.GPU, bool) {
	return mig.For(model, a.facts.byModel[model])
}

// sharing finds how the GPUs are shared: by what most of the time was.
func (a *analysis) sharing(l *load, r *document.Workload) {
	r.Sharing = "whole"
	profiles, sums := map[string]float64{}, map[string]float64{}
	for _, x := range l.allocations {
		hours := float64(x.busy.Count()) * max(x.typical, 0.01)
		switch {
		case x.mig():
			sums["mig"] += hours
			profiles[x.resource] += hours
		case x.shared():
			sums["shared"] += hours
		default:
			sums["whole"] += hours
		}
	}
	for _, s := range []string{"mig", "shared"} {
		if sums[s] > sums[r.Sharing] {
			r.Sharing = s
		}
	}
	if gpu, ok := a.migGPU(l.key.model); ok && r.Sharing == "mig" {
		most := 0.0
		for _, res := range sortedKeys(profiles) {
			if p, ok := gpu.FromResource(res); ok && profiles[res] > most {
				r.Profile, most = p.Name, profiles[res]
			}
		}
	}
}

// divide finds what part of the allocated time is unknown, was used by others, and what was used beyond it.
func (a *analysis) divide(l *load, f *finding) {
	h, r := a.p.StepHours(), &f.row
	typical, weight := 0.0, 0.0
	for _, x := range l.allocations {
		node := nodeKey{x.key.cluster, x.key.node, x.model}
		if !x.mig() && x.typical < 0.999 {
			total := a.facts.byModel[x.model]
			for k, v := range x.memory.All() {
				if more := v - x.shareAt(k)*total; total > 0 && more > 0 && (r.MemoryBeyond == nil || more > *r.MemoryBeyond) {
					r.MemoryBeyond = &more
				}
			}
			n := float64(x.busy.Count())
			typical += x.typical * n
			weight += n
			for k, v := range x.busy.All() {
				if more := v - x.shareAt(k); more > 0 {
					r.Beyond += more * h
					f.beyond[node] += more * h
				}
			}
		}
		for _, s := range demand.IdlePeriods(&x.idle, x.shareAt) {
			if time.Duration(s.Steps*float64(a.p.Step)) >= reclaimableFrom {
				r.Reclaimable += s.Idle * h
				f.reclaimed[node] += s.Idle * h
			}
			r.LongestIdle = max(r.LongestIdle, s.Steps*h)
		}
		r.LongestIdle = max(r.LongestIdle, x.longestPause()*h) // shorter than a step
	}
	if len(l.allocations) == 0 {
		a.divideSums(l, f)
	}
	// A container with a share is observed for the whole time, whatever its share.
	if f.measured = l.sum[qObserved]; r.Sharing == "shared" && weight > 0 && typical > 0 {
		f.measured *= typical / weight
	} else if len(l.allocations) == 0 && l.sum[qAllocated] > 0 {
		f.measured = min(f.measured, l.sum[qAllocated])
	}
	if r.Allocated > 0 {
		r.Coverage = max(0, min(1, f.measured*h/r.Allocated))
		if r.Coverage > 0.999 {
			r.Coverage = 1
		}
	}
	// Gap and idle are known of some whose busy time is not.
	left := r.Allocated - (r.Busy - r.Beyond) - r.Gap - r.Idle
	if r.Sharing == "shared" && left < 0 {
		// Within one step it may have used more than its share and less, one after the other.
		r.Beyond, left = r.Beyond-left, 0
	}
	r.Unknown = max(0, min(left, r.Allocated*(1-r.Coverage)))
	r.UsedByOthers = max(0, r.Allocated-(r.Busy-r.Beyond)-r.Gap-r.Idle-r.Unknown)
	if r.Sharing != "shared" && r.UsedByOthers < 0.01*r.Allocated {
		r.UsedByOthers = 0 // what means over steps differ by
	}
}

// divideSums finds idle periods if single GPUs are unknown.
func (a *analysis) divideSums(l *load, f *finding) {
	h, r := a.p.StepHours(), &f.row
	open := l.track(qIdle).Opening(int(reclaimableFrom / a.p.Step))
	r.Reclaimable = open.Sum() * h
	f.reclaimed[nodeKey{l.key.cluster, "", l.key.model}] += r.Reclaimable
	run := 0.0
	for _, v := range open.All() {
		if run++; v <= 0.01 {
			run = 0
		}
		r.LongestIdle = max(r.LongestIdle, run*h)
	}
	if l.sum[qAllocated] == 0 {
		r.Beyond = r.Busy
	}
}

// busyRatios are busy of measured, and its quantiles for the busiest allocation.
func (a *analysis) busyRatios(l *load, r *document.Workload, measured float64) {
	if measured <= 0 {
		return
	}
	r.BusyMean = new(min(1, l.sum[qBusy]/measured))
	if s := l.track(qBusiest).Values(0, a.p.Steps()); len(s) > 0 {
		r.BusyP95, r.BusyP99, r.BusyPeak = new(s.Quantile(0.95)), new(s.Quantile(0.99)), new(s.Top())
	}
}

// memory finds how much memory one container has on one GPU, whether that indicates a need, and how much of the idle
// time there was a process.
func (a *analysis) memory(l *load, r *document.Workload) {
	total, memory, idle := a.facts.byModel[l.key.model], l.track(qMemory), l.track(qIdle)
	if total > 0 {
		r.MemoryTotal = &total
	}
	s := memory.Values(0, a.p.Steps())
	if len(s) == 0 {
		return
	}
	if idle.Count() > 0 {
		with, without := 0.0, 0.0
		for k, v := range idle.All() {
			if memory.Or(k, 0) >= emptyBelow {
				with += v * a.p.StepHours()
			} else {
				without += v * a.p.StepHours()
			}
		}
		r.IdleWithMemory, r.IdleWithoutMemory = &with, &without
	}
	// Loading indicates nothing about the floor: a hundredth of the time is left out.
	median := s.Quantile(0.5)
	r.MemoryPeak, r.MemoryMedian, r.MemoryFloor = new(s.Top()), &median, new(s.Quantile(0.01))
	available := total
	if gpu, ok := a.migGPU(l.key.model); ok && r.Profile != "" {
		if p, ok := gpu.Profile(r.Profile); ok {
			available = p.Bytes
		}
	}
	if r.Sharing != "shared" {
		tracks := make([]*series.Track, len(l.allocations))
		for i, x := range l.allocations {
			tracks[i] = &x.memory
		}
		kind, need := demand.Memory(tracks, a.p, s, available)
		r.MemoryKind, r.Preallocated = kind, kind == demand.Preallocated
		if need > 0 {
			r.MemoryNeed = &need
		}
	}
}
