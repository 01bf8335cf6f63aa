package report

import (
	"fmt"

	"github.com/gpu-exporter/gpu-exporter/report/change"
	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// wellUsed is the mean activity above which sharing is not recommended.
const wellUsed = 0.5

// demandOf adds up a part of the period, and what has to be expected of as long a time after it.
func (a *analysis) demandOf(l *load, r *document.Workload, part series.Span) (d, later sizing.Demand) {
	t := l.track(qBusiest).Part(part.From, part.To)
	s, m := t.Values(part.From, part.To), l.track(qMemory).Values(part.From, part.To)
	d = sizing.Demand{Steps: len(s), High: s.Quantile(1 - a.opt.Advice.Budget), Memory: m.Top(), Bursts: r.Sharing == "mig",
		Preallocated: r.Preallocated}
	perDay := a.p.PerHour() * 24
	for _, x := range l.allocations {
		day := a.facts.daily[x.key.gpu()]
		if !x.sole() || day == nil {
			continue
		}
		// The first and the last day may show what another workload did on the GPU.
		from, to := (max(part.From, x.busy.From)+perDay-1)/perDay, min(part.To, x.busy.End())/perDay
		highest := func(q dayQuantity, unknown float64) float64 {
			if s := day[q].Values(from, to); len(s) > 0 {
				return s.Top()
			}
			return unknown
		}
		d.Minute = max(d.Minute, highest(dayMinute, 0))
		if peak := highest(dayPeak, -1); peak >= 0 {
			d.Burst, d.Bursts = max(d.Burst, peak*min(1, highest(daySM, 1))), true
		}
	}
	if r.MemoryNeed != nil && r.MemoryKind == demand.Cache {
		d.Memory = min(d.Memory, *r.MemoryNeed)
	}
	later, factor := d, demand.Later(&t, a.p, a.opt.Advice.Budget)
	later.High, later.Minute, later.Burst = d.High*factor, d.Minute*factor, min(1, d.Burst*factor)
	return d, later
}

// fit chooses the smallest size for what has to be expected; if there is none, that for what was, which is not sure.
func fit(now *sizing.Current, d, later sizing.Demand) (s *sizing.Size, sure bool, reason sizing.Reason) {
	if s, _ = now.Fit(later); s != nil {
		return s, true, reason
	}
	s, reason = now.Fit(d)
	return s, false, reason
}

// judged returns the reason why the size of a workload is not judged, if there is one.
func (a *analysis) judged(l *load, r *document.Workload, steps int) (reason sizing.Reason, ok bool) {
	g, observed := a.opt.Advice, a.p.Duration(steps)
	switch {
	case !a.lasts(l.track(qAllocated).End(), a.p.Steps()):
		return sizing.Reason{Code: "no_longer_allocated", Text: "nothing is allocated to it any more"}, false
	case observed < g.Observed*19/20:
		return sizing.Reason{Code: "observed_too_short", Text: fmt.Sprintf("it was observed for %s; the minimum to judge a size is %s",
			units.Duration(observed), units.Duration(g.Observed))}, false
	case r.Coverage < g.Coverage:
		return sizing.Reason{Code: "coverage_too_low", Text: fmt.Sprintf("its activity is known for %s of its time; the minimum is %s",
			units.Ratio(r.Coverage), units.Ratio(g.Coverage))}, false
	case r.BusyPeak == nil:
		return sizing.Reason{Code: "activity_unknown", Text: "its activity is unknown"}, false
	}
	return sizing.Reason{}, true
}

// size finds workloads for which a part of each GPU is enough.
func (a *analysis) size(l *load, r *document.Workload, steps int) (*document.Advice, sizing.Reason) {
	now := sizing.Current{Sharing: r.Sharing, Profile: r.Profile, Total: a.facts.byModel[r.Model], Several: a.several(l)}
	now.GPU, _ = a.migGPU(r.Model)
	switch reason, ok := a.judged(l, r, steps); {
	case !ok:
		return nil, reason
	case *r.BusyMean >= wellUsed:
		return nil, sizing.Reason{Code: "well_used", Text: fmt.Sprintf("it is busy for %s of what is allocated to it",
			units.Ratio(*r.BusyMean))}
	case now.Several && r.Sharing == "mig":
		return nil, sizing.Reason{Code: "several_mig_devices", Text: "several MIG devices are allocated to each of its pods"}
	case r.MemoryPeak == nil:
		return nil, sizing.Reason{Code: "memory_unknown", Text: "its memory is unknown"}
	}
	d, later := a.demandOf(l, r, series.Span{From: 0, To: a.p.Steps()})
	s, sure, reason := fit(&now, d, later)
	if s == nil {
		return nil, reason
	}
	if r.Rhythm == "" {
		return nil, sizing.UnknownRhythm(a.p.Duration(a.p.Steps()))
	}
	ad := a.adviceFor(r, document.AdviseShare, "low_activity", r.Allocated*(1-s.Part))
	ad.Alternatives = s.Smaller
	mean := "5-minute"
	if d.Minute > d.High {
		mean = "one-minute"
	}
	usage := fmt.Sprintf("busy %s of the time, above %s in %s of it (%s means), %s at the most", units.Ratio(*r.BusyMean),
		units.Ratio(d.Top()), units.Share(a.opt.Advice.Budget, 1), mean, units.Ratio(*r.BusyPeak))
	memory, assumed := "", false
	switch {
	case r.Preallocated:
		ad.Reason, assumed = "preallocated_memory", true
		memory = fmt.Sprintf("; its %s were allocated at the start and never changed, which does not indicate need",
			units.GiB(*r.MemoryMedian))
	case r.MemoryKind == demand.Cache:
		ad.Reason, assumed = "cached_memory", true
		memory = fmt.Sprintf("; assumed to need the %s with which it started: the growth to %s never fell, as that of a "+
			"cache", units.GiB(d.Memory), units.GiB(*r.MemoryPeak))
	case d.Memory > 0:
		memory = fmt.Sprintf("; its memory peak is %s", units.GiB(d.Memory))
	}
	switch {
	case assumed:
		ad.Title = fmt.Sprintf("Try %s at %s, with limited memory", r.Name, s.Name())
		ad.Risk = "medium: a trial, because the memory that it needs cannot be measured; watch latency and allocation errors"
	case s.Replicas > 0:
		ad.Title = fmt.Sprintf("Share the GPU of %s: %s is enough", r.Name, s.Name())
		ad.Risk = "medium: time-slicing isolates neither memory nor faults; simultaneous bursts of two containers slow down"
	default:
		ad.Title = fmt.Sprintf("Move %s to the MIG profile %s", r.Name, s.Profile.Name)
		ad.Risk = "medium: bursts that use the whole GPU take longer on fewer SMs; compare latency before and after"
	}
	if s.Replicas == 0 {
		ad.Code = document.AdviseShrink
	}
	ad.Evidence = units.Sentence(usage, memory)
	var v demand.Validation
	for _, f := range demand.Folds(a.p.Steps()) {
		train, later := a.demandOf(l, r, series.Span{From: 0, To: f.From})
		if s, _, _ := fit(&now, train, later); s != nil && train.Steps > 0 {
			v.Add(s.Name(), f, over(float64(a.exceeded(l, r, s, f)), float64(f.Len())))
		}
	}
	ad.Validation = v.Result(a.p)
	exceeded := over(float64(a.exceeded(l, r, s, series.Span{From: 0, To: a.p.Steps()})), float64(d.Steps))
	ad.Replay = &document.Replay{Pods: r.Pods, OccupiedHours: r.Allocated * s.Part, Throttled: exceeded}
	ad.Confidence = r.Sure(ad.Validation, a.p.Duration(steps), a.opt.Advice.Observed, a.opt.Advice.Coverage, a.opt.Advice.Budget)
	if !sure || assumed || s.Replicas == 0 && !d.Bursts {
		ad.Confidence = "low"
	}
	if s.Replicas == 0 && !d.Bursts {
		ad.Risk += "; bursts shorter than a minute are not recorded"
	}
	ad.ChangeIn, ad.Change = change.Size(r, s)
	l.followed.size = s
	return &ad, sizing.Reason{}
}

// exceeded counts the steps in which a workload needed more than a size has.
func (a *analysis) exceeded(l *load, r *document.Workload, s *sizing.Size, part series.Span) (n int) {
	for k, v := range l.track(qBusiest).Within(part.From, part.To) {
		if v > s.Limit || s.Memory > 0 && r.MemoryKind != demand.Cache && l.track(qMemory).Or(k, 0) > s.Memory {
			n++
		}
	}
	return n
}

// several is true if pods of the workload have more than one GPU at a time. A pod that moves has both for a step.
func (a *analysis) several(l *load) bool {
	earlier := map[string][]*series.Track{}
	for _, x := range l.allocations {
		for _, t := range earlier[x.key.pod] {
			if min(t.End(), x.busy.End())-max(t.From, x.busy.From) > 1 {
				return true
			}
		}
		earlier[x.key.pod] = append(earlier[x.key.pod], &x.busy)
	}
	return len(l.allocations) == 0 && l.sum[qPods] > 0 && l.track(qAllocated).Last() > 1.01*l.sum[qPods]
}
