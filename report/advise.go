package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/report/change"
	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// gpuCase is one allocation as the rules see it, until some step.
type gpuCase struct {
	*allocation
	from, until int // steps in which it was allocated
	active      int // step after the last busy one; from if there was none
	busySteps   int
	pause       int // longest pause that ended with activity, in steps
	known       int // steps of the idle end with known activity
	busySum     float64
}

// idleSteps is how long it has not been busy.
func (c *gpuCase) idleSteps() int { return c.until - c.active }

// length is the number of steps in which it was allocated.
func (c *gpuCase) length() float64 { return float64(c.until - c.from) }

// caseOf looks at an allocation until a step.
func caseOf(x *allocation, until int) (c gpuCase, ok bool) {
	c = gpuCase{allocation: x, from: x.busy.From, until: min(until, x.busy.End()), active: x.busy.From}
	for k, v := range x.busy.Within(c.from, c.until) {
		v = x.activity(k, v)
		c.busySum += v
		if v < busyAbove {
			c.known++
			continue
		}
		c.pause = max(c.pause, k-c.active)
		c.active, c.known = k+1, 0
		c.busySteps++
	}
	return c, c.from < c.until
}

// cases are what is allocated at a step: candidates for release.
func (a *analysis) cases(l *load, until int) (now []gpuCase) {
	list := l.allocations
	if len(list) == 0 {
		// Single GPUs are unknown: the workload is judged by its busiest.
		key := allocationKey{cluster: l.key.cluster, namespace: l.key.namespace}
		list = []*allocation{{key: key, model: l.key.model, busy: *l.track(qBusiest), typical: 1}}
	}
	for _, x := range list {
		// Without a share it uses the GPU without an allocation.
		if c, ok := caseOf(x, until); ok && x.typical > 0 && a.lasts(c.until, until) {
			now = append(now, c)
		}
	}
	return now
}

// releasable is true if a GPU has been idle for so long that it should be released: not only over a weekend, and not
// within a pause as it has had before.
func (a *analysis) releasable(c *gpuCase) bool {
	g, idle := a.opt.Advice, float64(c.idleSteps())
	return a.p.Duration(c.idleSteps()) >= g.Idle && float64(c.known) >= g.Coverage*idle &&
		a.p.WorkingTime(c.active, c.until, a.opt.zone()) >= g.Idle && (c.busySteps == 0 || idle >= 3*float64(c.pause))
}

// advise looks for what to do about one workload; if there is nothing, the row has the reason.
func (a *analysis) advise(l *load, r *document.Workload, steps int) []document.Advice {
	var ad *document.Advice
	var reason sizing.Reason
	switch {
	case r.Allocated == 0:
		reason = sizing.Reason{Code: "activity_unknown", Text: "no GPU is allocated to it: it is busy on GPUs of others"}
	case l.sum[qObserved] == 0:
		reason = sizing.Reason{Code: "activity_unknown",
			Text: "the activity of its GPUs cannot be measured: MIG before Hopper, or sharing without visible processes"}
	default:
		ad, reason = a.best(l, r, steps)
	}
	if ad != nil && ad.SavedGPUs < a.opt.Advice.Saving && ad.SavedHours < a.opt.Advice.Saving*a.p.Hours() {
		reason = sizing.Reason{Code: "saves_too_little", Text: fmt.Sprintf("the advice %q would save only %.1f GPU-hours", ad.Code,
			ad.SavedHours)}
		ad = nil
	}
	if ad == nil {
		r.NoAdvice, r.NoAdviceReason = reason.Code, reason.Text
		return nil
	}
	r.Advice = ad.Code
	return []document.Advice{*ad}
}

// best is the advice on a workload that is allocated and observed. Idle pods beside busy ones do not hide that all of them need less:
// they are a sentence of it.
func (a *analysis) best(l *load, r *document.Workload, steps int) (*document.Advice, sizing.Reason) {
	idle, whole := a.release(l, r)
	if whole {
		return idle, sizing.Reason{}
	}
	// What is well used is no waste, although a part of it is idle: neither since that part is, nor over the period.
	aside := ""
	if idle != nil && l.busySince(slices.Max(slices.Collect(maps.Values(l.followed.ends)))) > document.WellUsed {
		idle, aside = nil, ". "+idle.Evidence
	}
	if r.BusyMean != nil && *r.BusyMean > document.WellUsed {
		return idle, sizing.Reason{Code: "well_used", Text: "it is busy in " + units.Ratio(*r.BusyMean) + " of its measured time" + aside}
	}
	ad, blocked := a.fewer(l, r)
	if ad == nil {
		var reason sizing.Reason
		if ad, reason = a.size(l, r, steps); blocked.Code == "" {
			blocked = reason
		}
		x, other := a.replicas(l, r, steps)
		if x != nil && (ad == nil || better(x, ad)) {
			ad = x
		} else if other.Code != "" {
			blocked = other
		}
	}
	switch {
	case idle == nil:
		return ad, blocked
	case ad == nil || better(idle, ad):
		return idle, blocked
	}
	ad.Evidence += " " + idle.Evidence
	return ad, blocked
}

// busySince is Busy of measured of all its GPUs from a step on.
func (l *load) busySince(from int) float64 {
	busy, measured := 0.0, 0.0
	for _, x := range l.allocations {
		for k, v := range x.busy.Within(from, x.busy.End()) {
			busy, measured = busy+v, measured+x.shareAt(k)
		}
	}
	return over(busy, measured)
}

// better is true if advice is surer than other advice, or as sure and saves more.
func better(x, y *document.Advice) bool {
	if x.Unsure() != y.Unsure() {
		return y.Unsure()
	}
	return x.SavedHours > y.SavedHours
}

// adviceFor starts an advice about a workload.
func (a *analysis) adviceFor(r *document.Workload, code, reason string, saved float64) document.Advice {
	ad := a.advice(nodeKey{r.Cluster, "", r.Model}, code, reason, saved, r.Confidence)
	ad.Workload, ad.Namespace, ad.SavedCost = r.ID, r.Namespace, prices.Cost(r.Cost, over(saved, r.Allocated))
	return ad
}

// advice starts an advice about a part of the fleet.
func (a *analysis) advice(about nodeKey, code, reason string, saved float64, confidence string) document.Advice {
	return document.Advice{Code: code, Saving: document.SavesHours, Reason: reason, Cluster: about.cluster,
		Node: about.node, Model: about.model, SavedHours: saved,
		SavedGPUs: over(saved, a.p.Hours()), SavedCost: prices.Cost(a.price(about), saved), Confidence: confidence}
}

// release finds GPUs on which nothing runs; whole is true if nothing runs on any of the workload.
func (a *analysis) release(l *load, r *document.Workload) (ad *document.Advice, whole bool) {
	othersBusy := false
	inUse := map[string]bool{}
	var idle []gpuCase
	for _, c := range a.cases(l, a.p.Steps()) {
		if a.releasable(&c) {
			idle = append(idle, c)
		} else {
			inUse[c.key.pod] = true
			othersBusy = othersBusy || c.busySteps > 0
		}
	}
	// A pod with other GPUs in use is for the next rule.
	idle = slices.DeleteFunc(idle, func(c gpuCase) bool { return inUse[c.key.pod] })
	if len(idle) == 0 {
		return nil, false
	}
	var hours, gpus, kernels, memory float64
	busySteps, shortest := 0, a.p.Steps()
	memory = *cmp.Or(r.MemoryPeak, &memory)
	pods := map[string]int{} // and the step at which each was last busy
	l.followed.ends = pods
	for _, c := range idle {
		pods[c.key.pod] = max(pods[c.key.pod], c.active)
		share := c.typical
		if len(l.allocations) == 0 {
			share = r.GPUsNow
		}
		hours += float64(c.idleSteps()) * share * a.p.StepHours()
		gpus += share
		busySteps, shortest = busySteps+c.busySteps, min(shortest, c.idleSteps())
		for _, v := range c.busy.Within(c.active, c.until) {
			kernels += v * a.p.Step.Seconds()
		}
		for _, v := range c.memory.All() {
			memory = max(memory, v)
		}
	}
	found := a.adviceFor(r, document.AdviseRelease, "", hours)
	ad, whole = &found, len(inUse) == 0
	ad.SavedGPUs, ad.Title = gpus, fmt.Sprintf("Release %s of %s", units.Count(gpus, "GPU"), r.Name)
	// The exporter's time of last activity may lie before the period. Until there was any, it is when it was first
	// observed, which may be a restart of the exporter.
	idleFor, earlier := a.p.Duration(shortest), 0.0
	for _, c := range idle {
		if at, ok := c.busyBefore(float64(a.p.From.Unix())); ok && busySteps == 0 {
			earlier = max(earlier, at)
		}
	}
	if since := idle[0].since; len(idle) == 1 && since > 0 && idle[0].lastBusy <= since+120 && busySteps == 0 {
		idleFor = max(idleFor, a.p.To.Sub(time.Unix(int64(since), 0))) // never busy since it was allocated
	}
	last := ""
	if earlier > 0 {
		at := time.Unix(int64(earlier), 0)
		idleFor = max(idleFor, a.p.To.Sub(at))
		last = " (last busy, or first observed, " + units.Minute(at.In(a.opt.zone())) + " " + a.opt.zone().String() + ")"
	} else if r.LastBusy != nil {
		last = " (last busy " + units.Minute(r.LastBusy.In(a.opt.zone())) + " " + a.opt.zone().String() + ")"
	}
	since, verb, ran := units.Duration(idleFor), "are", "no kernel ran"
	if units.Count(gpus, "GPU") == "1 GPU" {
		verb = "is"
	}
	if kernels >= 1 {
		ran = fmt.Sprintf("kernels ran for %.0f s in all", kernels)
	}
	was := busySteps > 0 || earlier > 0
	switch {
	case len(inUse) > 0 && othersBusy:
		ad.Reason = "idle_pods"
		ad.Evidence = units.Sentence(fmt.Sprintf("%d of its pods, with %s, have not been busy for %s, while others are",
			len(pods), units.Count(gpus, "GPU"), since))
	case busySteps > 0:
		ad.Reason = "stopped"
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " stopped being busy ", since, " ago and ", verb, " still allocated", last)
	case memory < emptyBelow:
		ad.Reason = "never_used"
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " allocated for ", since, ": ", ran, ", and no process had memory", last)
	default:
		ad.Reason = "loaded_idle"
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " allocated for ", since, " with ", units.GiB(memory),
			" of memory in use: a process is loaded, and ", ran, last)
	}
	ad.Risk = "low: ask the owner first; what is in the pod's memory is lost when it stops"
	ad.Alternatives = "Nothing smaller than a release: an idle GPU needs no share of one. " +
		"Rare requests can be served by scaling from zero."
	ad.ChangeIn, ad.Change = change.Release(r, whole, sortedKeys(pods))
	ad.Validation = a.validateRelease(l)
	// What ran once may run again: a monthly job pauses for a month, and GPUs are requested weeks before a launch.
	switch ad.Confidence = "low"; {
	case was && idleFor >= 60*day, idleFor >= 180*day:
		ad.Confidence = "high"
	case was && idleFor < 8*day:
		ad.Risk = "medium: a job that runs every week looks the same after " + since + "; ask the owner first"
	default:
		ad.Risk = "medium: a job that runs every month, or one that is not yet launched, looks the same after " + since +
			"; ask the owner first"
	}
	return ad, whole
}

// validateRelease releases what was idle before each fold, and counts how often it was busy in the fold.
func (a *analysis) validateRelease(l *load) *document.Validation {
	var v demand.Validation
	for _, f := range demand.Folds(a.p.Steps()) {
		compared, busy := 0, 0
		for _, c := range a.cases(l, f.From) {
			if !a.releasable(&c) {
				continue
			}
			for k, b := range c.busy.Within(f.From, min(f.To, c.busy.End())) {
				compared++
				if c.activity(k, b) >= busyAbove {
					busy++
				}
			}
		}
		if compared > 0 {
			v.Add("no GPU", f, over(float64(busy), float64(compared)))
		}
	}
	return v.Result(a.p)
}

// idleRank is the fraction of the busiest GPU's busy time below which a GPU of the same pod counts as idle.
const idleRank = 0.1

// contextMemory is at least that of a CUDA context: a process may have one on each GPU that it can see, whatever it does there.
const contextMemory = 1 << 30

// spare is how many of a pod's idle GPUs it can do without: what they have in memory above a context has to fit beside the others,
// and the ranks that are left divide those of today, because each takes an equal part of layers or of the batch. GPUs without memory in
// use have no rank. known is false if the memory of one is unknown.
func (a *analysis) spare(list, idle []gpuCase) (n int, known bool, kept float64) {
	memory, total, ranks := 0.0, a.facts.byModel[list[0].model], len(list)
	known = total > 0
	for _, c := range list {
		values := c.memory.Values(c.from, c.until)
		known = known && len(values) > 0
		top := values.Top()
		if slices.ContainsFunc(idle, func(i gpuCase) bool { return i.allocation == c.allocation }) {
			top = max(0, top-contextMemory)
			if kept += top; top == 0 {
				ranks--
			}
		}
		memory += top
	}
	for n = len(idle); n > 0; n-- {
		left := len(list) - n
		if total == 0 || left >= ranks || memory <= 0.95*total*float64(left) && ranks%left == 0 {
			break
		}
	}
	return n, known, kept
}

// fewer finds pods of several GPUs of which some are idle, and replays them on the rest: what all of them did together
// must not exceed it.
func (a *analysis) fewer(l *load, r *document.Workload) (*document.Advice, sizing.Reason) {
	pods := map[string][]gpuCase{}
	for _, x := range l.allocations {
		if c, ok := caseOf(x, a.p.Steps()); ok && x.typical > 0 {
			pods[c.key.pod] = append(pods[c.key.pod], c)
		}
	}
	var hours, idleGPUs, gpus, weighed, affected, exceeded, compared float64
	var saved [][]float64 // hours of each idle GPU of each pod
	var blocked sizing.Reason
	fewest, most, sure, ranked := 1<<30, 0, r.Coverage >= a.opt.Advice.Coverage, false
	for _, pod := range sortedKeys(pods) {
		list, length, busiest := pods[pod], 0.0, 0.0
		for _, c := range list {
			length = max(length, c.length())
			busiest = max(busiest, c.busySum/c.length())
		}
		if len(list) < 2 || a.p.Duration(int(length)) < a.opt.Advice.Idle || busiest < 0.1 {
			continue
		}
		var idle []gpuCase
		var sum, most1 series.Track
		var each []float64
		for _, c := range list {
			for k, v := range c.busy.All() {
				sum.Add(k, v)
			}
			// The start of a program uses every GPU, and a rank that waits for the others runs a kernel now and then.
			if c.busySum < idleRank*busiest*c.length() && float64(c.busy.Count()) >= a.opt.Advice.Coverage*c.length() {
				idle = append(idle, c)
				each = append(each, c.length()*c.typical*a.p.StepHours())
				most1.Plus(&c.busy)
			}
		}
		weighed += length * float64(len(list))
		hours += length * a.p.StepHours()
		most = max(most, len(list))
		n, known, kept := a.spare(list, idle)
		if n < len(idle) {
			blocked = sizing.Reason{Code: "memory_too_high", Text: fmt.Sprintf("%d of %d GPUs of a pod are idle, but %s in their memory "+
				"do not fit beside the others, or as many ranks as are left do not divide those of today", len(idle), len(list),
				units.GiB(kept))}
		}
		if n > 0 {
			sure, ranked = sure && known, ranked || kept > 0
			saved = append(saved, each)
			affected += length * float64(len(list))
			fewest = min(fewest, n)
			idleGPUs += float64(len(idle))
			gpus += float64(len(list))
			for k, v := range sum.All() {
				compared++
				// What the idle ones did has to fit beside the others.
				if v > float64(len(list)-n) && most1.Or(k, 0) > 0.05 {
					exceeded++
				}
			}
		}
	}
	atLeast := a.opt.Advice.Observed
	if gpu.KindOf(r.Kind).Ends {
		atLeast = a.opt.Advice.Idle // what it did is the whole of it
	}
	if weighed == 0 || affected < 0.8*weighed || exceeded > a.opt.Advice.Budget*compared || hours < atLeast.Hours()*19/20 {
		return nil, blocked
	}
	idleHours := 0.0
	for _, each := range saved {
		slices.Sort(each)
		for _, h := range each[:fewest] {
			idleHours += h
		}
	}
	ad := a.adviceFor(r, document.AdviseFewer, "idle_gpus", idleHours)
	ad.Title = fmt.Sprintf("Request %d instead of %d GPUs for each pod of %s", most-fewest, most, r.Name)
	ad.Evidence = units.Sentence(fmt.Sprintf("over %s of its pods, %.0f of %.0f GPUs were busy for less than a tenth "+
		"of the busiest GPU's time in their pod", units.Duration(time.Duration(hours*float64(time.Hour))), idleGPUs, gpus))
	ad.Alternatives = "The busy GPUs remain: fewer would slow it down."
	ad.Risk = "medium: the program may count its visible GPUs; check its number of ranks (often one process drives one GPU)"
	ad.ChangeIn, ad.Change = "pod template", fmt.Sprintf("resources:\n  limits:\n    nvidia.com/gpu: %d   "+
		"# and as many ranks (torchrun --nproc-per-node=%[1]d)", most-fewest)
	if ranked {
		ad.Risk += "; the idle GPUs have memory of ranks: their number must divide layers, heads or batch"
	}
	ad.Replay = &document.Replay{Pods: len(pods), OccupiedHours: r.Allocated - idleHours, Throttled: over(exceeded, compared)}
	if ad.Confidence = "medium"; !sure {
		ad.Confidence = "low"
	}
	l.followed.fewer = fewest
	return &ad, sizing.Reason{}
}
