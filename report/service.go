package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

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
}

// serviceOf returns the service that a workload is; ok is false if its pods are not interchangeable.
func (a *analysis) serviceOf(l *load, r *document.Workload) (s service, ok bool) {
	switch strings.ToLower(r.Kind) {
	case "job", "cronjob", "pod", "daemonset":
		return s, false
	}
	pods := map[string]bool{}
	for _, x := range l.allocations {
		if a.lasts(x.busy.End(), a.p.Steps()) {
			pods[x.key.pod] = true
		}
	}
	s = service{len(pods), 0, l.track(qBusy)}
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

// without are the values of a track outside a part.
func without(t *series.Track, part series.Span) series.Sample {
	out := append(t.Values(t.From, part.From), t.Values(part.To, t.End())...)
	slices.Sort(out)
	return out
}

// replicas finds services that need fewer pods, all of the time or in the hours of the day in which demand is low.
func (a *analysis) replicas(l *load, r *document.Workload, steps int) *document.Advice {
	s, ok := a.serviceOf(l, r)
	if _, judged := a.judged(l, r, steps); !ok || !judged {
		return nil
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
	low, from, to, night := a.quietHours(l, s, n, later)
	scheduled := r.Rhythm == "day" && night > 0.1*r.Allocated
	if scheduled {
		saved += night
	}
	if n >= s.pods && !scheduled || r.Rhythm == "" {
		return nil
	}
	ad := a.adviceFor(r, document.AdviseReplicas, "low_demand", saved)
	least, most := n, n
	for i := range 8 {
		size := a.p.Steps() / 8
		x := replicasFor(s, later*without(s.demand, series.Span{From: i * size, To: (i + 1) * size}).Quantile(1-a.opt.Advice.Budget))
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
	ad.ChangeIn, ad.Change = "autoscaler or workload", change.Replicas(r, n, n, 0, 0)
	if scheduled {
		ad.Reason = "daily_demand"
		ad.Title = fmt.Sprintf("Run %s with %d replicas by day and %d from %02d:00 to %02d:00", r.Name, n, low, from, to)
		ad.Change = change.Replicas(r, n, low, from, to)
	}
	var v demand.Validation
	for _, f := range demand.Folds(a.p.Steps()) {
		if train := s.demand.Part(0, f.From); train.Len() > 0 {
			x := replicasFor(s, train.Values(0, f.From).Quantile(1-a.opt.Advice.Budget)*demand.Later(&train, a.p, a.opt.Advice.Budget))
			v.Add(units.Count(float64(x), "replica"), f, demand.Exceedance(s.demand.Values(f.From, f.To), float64(x)*s.gpus))
		}
	}
	ad.Validation = v.Result(a.p)
	ad.Replay = &document.Replay{Pods: s.pods, OccupiedHours: r.Allocated - saved, Throttled: demand.Exceedance(all, float64(n)*s.gpus)}
	if ad.Confidence = a.confidence(r, ad.Validation, steps); ad.Confidence == "high" && float64(n)*s.gpus < 2*all.Top() {
		ad.Confidence = "medium"
	}
	if !sure {
		ad.Confidence = "low"
	}
	l.followed.replicas = n
	ad.Risk = "medium: requests queue if the demand grows; let an autoscaler have the old number as its maximum"
	return &ad
}

// quietHeadroom is that of hours with low demand: what grows a little there soon exceeds the few replicas that are left.
// Two remain, so that one may fail, or none if there never was any demand.
const quietHeadroom = 2

// quietHours finds the hours of the day, in the zone of the report, in which fewer replicas are always enough, and what
// they would save. low may be 0: scale to zero.
func (a *analysis) quietHours(l *load, s service, n int, later float64) (low, from, to int, saved float64) {
	var highest, allocated [24]float64
	for k, v := range s.demand.All() {
		h := a.hourOfDay(k)
		highest[h] = max(highest[h], v)
	}
	for k, v := range l.track(qAllocated).All() {
		allocated[a.hourOfDay(k)] += min(v, float64(n)*s.gpus) * a.p.StepHours()
	}
	for start := range 24 {
		top, hours := 0.0, 0.0
		for length := 1; length < 24; length++ {
			h := (start + length - 1) % 24
			top = max(top, highest[h])
			hours += allocated[h]
			need := 0
			if top > busyAbove {
				need = max(2, int(math.Ceil(quietHeadroom*later*top/s.gpus-1e-6)))
			}
			if x := hours * (1 - float64(need)/float64(n)); length >= 4 && need < n && x > saved+1e-9 {
				low, from, to, saved = need, start, (start+length)%24, x
			}
		}
	}
	return low, from, to, saved
}

// hourOfDay is the hour in which a step begins, in the zone of the report.
func (a *analysis) hourOfDay(k int) int { return a.p.Begin(k).In(a.opt.zone()).Hour() }
