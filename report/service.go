package report

import (
	"fmt"
	"math"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/report/change"
	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// service is a workload whose replicas share the demand.
type service struct {
	pods   int           // at the end of the period
	gpus   float64       // of each pod
	demand *series.Track // busy GPUs of all pods
	doubt  string        // why its pods may not be replicas
}

// alike compares the memory of pods: replicas of one model differ by less than a tenth, shards of data by more.
func (a *analysis) alike(l *load) (lowest, highest float64) {
	medians := map[string]float64{}
	for _, x := range l.allocations {
		// What was never busy may have loaded nothing.
		if v := x.memory.Values(0, a.p.Steps()); a.lasts(x.busy.End(), a.p.Steps()) && len(v) > 0 && x.busy.Sum() > 0 {
			medians[x.key.pod] += v.Quantile(0.5)
		}
	}
	lowest = math.Inf(1)
	for _, v := range medians {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	return lowest, highest
}

// serviceOf returns the service that a workload is; ok is false if its pods are not replicas of each other.
func (a *analysis) serviceOf(l *load, r *document.Workload) (s service, ok bool) {
	kind := gpu.KindOf(r.Kind)
	if kind.Pods != gpu.Interchangeable && kind.Pods != gpu.Ordered {
		return s, false
	}
	pods := map[string]bool{}
	for _, x := range l.allocations {
		if a.lasts(x.busy.End(), a.p.Steps()) {
			pods[x.key.pod] = true
		}
	}
	s = service{pods: len(pods), demand: l.track(qBusy)}
	if kind.Pods == gpu.Ordered {
		s.doubt = "pods of a " + kind.Name + " may have data of their own"
	}
	if len(l.allocations) == 0 {
		s.pods = int(l.sum[qPods] + 0.5)
	}
	s.gpus = over(r.GPUsNow, float64(s.pods))
	return s, s.pods >= 3 && s.gpus > 0 && r.Sharing != "shared"
}

// replicasFor is the number of replicas for a demand with sizing.Headroom; two remain, so that one may fail.
func replicasFor(s service, busy float64) int {
	return max(2, int(math.Ceil(sizing.Headroom*busy/s.gpus-1e-6)))
}

// replicas finds services that need fewer pods, all of the time or in the hours of the day in which demand is low.
func (a *analysis) replicas(l *load, r *document.Workload, steps int) (*document.Advice, sizing.Reason) {
	s, ok := a.serviceOf(l, r)
	if !ok {
		return nil, sizing.Reason{}
	}
	if reason, judged := a.judged(l, r, steps); !judged {
		return nil, reason
	}
	switch lowest, highest := a.alike(l); {
	case highest == 0 && s.doubt == "":
		s.doubt = "the memory of its pods is unknown, which would show whether they are replicas"
	case highest > 1.1*lowest:
		return nil, sizing.Reason{Code: "pods_differ", Text: fmt.Sprintf("its pods use %s to %s of memory: they are no replicas",
			units.GiB(lowest), units.GiB(highest))}
	}
	all := s.demand.Values(0, a.p.Steps())
	// For what has to be expected; if that takes all of them, for what was, which is not sure.
	high, later := all.Quantile(1-a.opt.Advice.Budget), demand.Later(s.demand, a.p, a.opt.Advice.Budget)
	n, sure := replicasFor(s, high*later), true
	if n >= s.pods {
		n, sure, later = min(s.pods, replicasFor(s, high)), false, 1
	}
	saved := 0.0
	for _, v := range l.track(qAllocated).All() {
		saved += max(0, v-float64(n)*s.gpus) * a.p.StepHours()
	}
	low, from, to, night := demand.Quiet(a.p, a.opt.zone(), s.demand, l.track(qAllocated), s.gpus, n, later)
	scheduled := r.Rhythm == "day" && night > 0.1*r.Allocated
	if scheduled {
		saved += night
	} else {
		from, to = 0, 0
	}
	switch {
	case r.Rhythm == "":
		return nil, sizing.UnknownRhythm(a.p.Duration(a.p.Steps()))
	case n >= s.pods && !scheduled:
		return nil, sizing.Reason{}
	}
	ad := a.adviceFor(r, document.AdviseReplicas, "low_demand", saved)
	least, most := n, n
	for i := range 8 {
		size := a.p.Steps() / 8
		x := replicasFor(s, later*s.demand.Without(series.Span{From: i * size, To: (i + 1) * size}).Quantile(1-a.opt.Advice.Budget))
		least, most = min(least, x), max(most, x)
	}
	mean := over(all.Sum(), float64(len(all)))
	ad.Title = fmt.Sprintf("Run %d replicas of %s instead of %d", n, r.Name, s.pods)
	ad.Evidence = units.Sentence(fmt.Sprintf("%s together were busy as %.1f GPUs on average, and above %.1f in %s of the "+
		"time; without any eighth of the period, %d to %d replicas", units.Count(float64(s.pods), "pod"), mean,
		all.Quantile(1-a.opt.Advice.Budget), units.Share(a.opt.Advice.Budget, 1), least, most))
	ad.Alternatives = fmt.Sprintf("%d would have too little headroom in %s of the time.", n-1,
		units.Share(demand.Exceedance(all, float64(n-1)*s.gpus/(sizing.Headroom*later)), 1))
	if n == 2 {
		ad.Alternatives = "Two remain, so that one may fail."
	}
	ad.ChangeIn, ad.Change = "autoscaler or workload", change.Replicas(r, s.pods, n, n, 0, 0, "")
	if scheduled {
		ad.Reason = "daily_demand"
		ad.Title = fmt.Sprintf("Run %s with %d replicas by day and %d from %02d:00 to %02d:00", r.Name, n, low, from, to)
		if a.opt.zone() != time.UTC {
			ad.Title += " " + a.opt.zone().String()
		}
		ad.Change = change.Replicas(r, s.pods, n, low, from, to, a.opt.zone().String())
	}
	var v demand.Validation
	for _, f := range demand.Folds(a.p.Steps()) {
		if train, had := s.demand.Part(0, f.From), l.track(qAllocated).Part(0, f.From); train.Len() > 0 {
			factor := demand.Later(&train, a.p, a.opt.Advice.Budget)
			x := replicasFor(s, train.Values(0, f.From).Quantile(1-a.opt.Advice.Budget)*factor)
			least, begin, end := x, 0, 0
			if scheduled {
				least, begin, end, _ = demand.Quiet(a.p, a.opt.zone(), &train, &had, s.gpus, x, factor)
			}
			v.Add(units.Count(float64(x), "replica"), f, demand.Missed(a.p, a.opt.zone(), s.demand, f, s.gpus, x, least, begin, end))
		}
	}
	ad.Validation = v.Result(a.p)
	ad.Replay = &document.Replay{Pods: s.pods, OccupiedHours: r.Allocated - saved,
		Throttled: demand.Missed(a.p, a.opt.zone(), s.demand, series.Span{From: 0, To: a.p.Steps()}, s.gpus, n, low, from, to)}
	ad.Confidence = r.Sure(ad.Validation, a.p.Duration(steps), a.opt.Advice.Observed, a.opt.Advice.Coverage, a.opt.Advice.Budget)
	if ad.Confidence == "high" && float64(n)*s.gpus < 2*all.Top() {
		ad.Confidence = "medium"
	}
	if !sure || s.doubt != "" {
		ad.Confidence = "low"
	}
	if s.doubt != "" {
		ad.Evidence += " Confidence is low: " + s.doubt + "."
	}
	l.followed.replicas = n
	ad.Risk = "medium: requests queue if the demand grows; let an autoscaler have the old number as its maximum"
	return &ad, sizing.Reason{}
}
