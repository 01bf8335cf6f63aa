package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// The codes of advice: what to do.
const (
	adviseRelease     = "release"
	adviseFewer       = "fewer_gpus"
	adviseLessSharing = "reduce_sharing"
	adviseShrink      = "shrink"
	adviseShare       = "share"
	adviseConsolidate = "consolidate"
	adviseGeometry    = "mig_geometry"
	adviseFix         = "fix_fault"
)

// AdviceCodes lists what may be recommended, with its meaning; it is published with the schema.
func AdviceCodes() map[string]string {
	return map[string]string{
		adviseRelease:     "Release the GPUs: nothing runs on them.",
		adviseFewer:       "Request fewer GPUs: some of a pod's GPUs are idle.",
		adviseLessSharing: "Share the GPU among fewer containers: they need more than it has.",
		adviseShrink:      "Use a smaller MIG profile.",
		adviseShare:       "Share the GPU with others.",
		adviseConsolidate: "Run on fewer nodes.",
		adviseGeometry:    "Partition the GPUs into other MIG profiles.",
		adviseFix:         "Repair the GPU: its hours are lost.",
	}
}

// ReasonCodes lists the reasons of advice, with their meaning.
func ReasonCodes() map[string]string {
	return map[string]string{
		"never_used":   "Allocated, and no process ever had memory on the GPU.",
		"loaded_idle":  "A process is loaded and was never busy.",
		"stopped":      "It was busy, stopped, and kept its GPUs.",
		"idle_pods":    "Some of its pods are busy, others are not.",
		"idle_gpus":    "Some GPUs of a pod are busy, others are not.",
		"low_activity": "Activity and memory fit into less.",
		"preallocated_memory": "Activity is low; the memory in use was allocated at the start and does not indicate " +
			"need.",
		"oversubscribed":       "The GPU is shared and busy all the time.",
		"half_empty_nodes":     "Fewer nodes are enough for what is allocated at the busiest time.",
		"unallocated_profiles": "MIG devices of one profile stay unallocated while pods are pending for another.",
		"gpu_unavailable":      "The GPU could not be used.",
	}
}

// noAdvice is the reason for no advice: a stable code, and a text.
type noAdvice struct{ code, text string }

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
	c = gpuCase{allocation: x, from: x.busy.from, until: min(until, x.busy.end()), active: x.busy.from}
	for k, v := range x.busy.within(c.from, c.until) {
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
	return a.p.duration(c.idleSteps()) >= g.Idle && float64(c.known) >= g.Coverage*idle &&
		a.workingTime(c.active, c.until) >= g.Idle && (c.busySteps == 0 || idle >= 1.5*float64(c.pause))
}

// workingTime is the part of a time that is on Monday to Friday.
func (a *analysis) workingTime(from, to int) time.Duration {
	n := 0
	for k := from; k < to; k++ {
		if d := a.p.Begin(k).Weekday(); d != time.Saturday && d != time.Sunday {
			n++
		}
	}
	return a.p.duration(n)
}

// advise looks for what to do about one workload. The first rule that applies counts; if none does, the row has the
// reason.
func (a *analysis) advise(l *load, r *Workload, steps int) []Advice {
	var ad *Advice
	var reason noAdvice
	switch {
	case r.Allocated == 0:
		reason = noAdvice{"activity_unknown", "no GPU is allocated to it: it is busy on GPUs of others"}
	case l.sum[qObserved] == 0:
		reason = noAdvice{"activity_unknown",
			"the activity of its GPUs cannot be measured: MIG before Hopper, or sharing without visible processes"}
	default:
		if ad = a.release(l, r); ad == nil {
			ad = a.fewer(l, r)
		}
		if ad == nil {
			ad, reason = a.size(l, r, steps)
		}
	}
	if ad != nil && ad.SavedGPUs < a.opt.Advice.Saving && ad.SavedHours < a.opt.Advice.Saving*a.p.Hours() {
		reason = noAdvice{"saves_too_little", fmt.Sprintf("the advice %q would save only %.1f GPU-hours", ad.Code,
			ad.SavedHours)}
		ad = nil
	}
	if ad == nil {
		r.NoAdvice, r.NoAdviceReason = reason.code, reason.text
		return nil
	}
	r.Advice = ad.Code
	return []Advice{*ad}
}

// adviceFor starts an advice about a workload.
func (a *analysis) adviceFor(r *Workload, code, reason string, saved float64) Advice {
	ad := a.advice(nodeKey{r.Cluster, "", r.Model}, code, reason, saved, r.Confidence)
	ad.Workload, ad.Namespace = r.ID, r.Namespace
	return ad
}

// advice starts an advice about a part of the fleet.
func (a *analysis) advice(about nodeKey, code, reason string, saved float64, confidence string) Advice {
	return Advice{Code: code, Reason: reason, Cluster: about.cluster, Node: about.node, Model: about.model,
		SavedHours: saved,
		SavedGPUs:  over(saved, a.p.Hours()), SavedCost: a.opt.Prices.Cost(about.model, saved), Confidence: confidence}
}

// raise makes the confidence of a low one medium, if the evidence is long enough.
func (ad *Advice) raise(enough bool) {
	if ad.Confidence == "low" && enough {
		ad.Confidence = "medium"
	}
}

// release finds GPUs on which nothing runs.
func (a *analysis) release(l *load, r *Workload) *Advice {
	othersBusy := false
	inUse, pods := map[string]bool{}, map[string]bool{}
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
		return nil
	}
	slices.SortStableFunc(idle, func(x, y gpuCase) int { return strings.Compare(x.key.pod, y.key.pod) })
	var hours, gpus, kernels, memory float64
	busySteps, shortest := 0, a.p.Steps()
	if r.MemoryPeak != nil {
		memory = *r.MemoryPeak
	}
	for _, c := range idle {
		pods[c.key.pod] = true
		share := c.typical
		if len(l.allocations) == 0 {
			share = r.GPUsNow
		}
		hours += float64(c.idleSteps()) * share * a.p.StepHours()
		gpus += share
		busySteps += c.busySteps
		shortest = min(shortest, c.idleSteps())
		for _, v := range c.busy.within(c.active, c.until) {
			kernels += v * a.p.Step.Seconds()
		}
		for _, v := range c.memory.all() {
			memory = max(memory, v)
		}
	}
	ad := a.adviceFor(r, adviseRelease, "", hours)
	ad.SavedGPUs = gpus
	ad.Title = fmt.Sprintf("Release %s of %s", units.Count(gpus, "GPU"), r.Name)
	since, verb, ran := units.Duration(a.p.duration(shortest)), "are", "no kernel ran"
	if units.Count(gpus, "GPU") == "1 GPU" {
		verb = "is"
	}
	if kernels >= 1 {
		ran = fmt.Sprintf("kernels ran for %.0f s in all", kernels)
	}
	switch {
	case len(inUse) > 0 && othersBusy:
		ad.Reason = "idle_pods"
		ad.Evidence = units.Sentence(fmt.Sprintf("%d of its pods, with %s, have not been busy for %s, while others are",
			len(pods), units.Count(gpus, "GPU"), since))
	case busySteps > 0:
		ad.Reason = "stopped"
		last := ""
		if r.LastBusy != nil {
			last = " (last busy " + r.LastBusy.Format("2006-01-02 15:04") + " UTC)"
		}
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " stopped being busy ", since, " ago and ", verb,
			" still allocated", last)
	case memory < emptyBelow:
		ad.Reason = "never_used"
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " allocated for ", since, ": ", ran,
			", and no process had memory")
	default:
		ad.Reason = "loaded_idle"
		ad.Evidence = units.Sentence(units.Count(gpus, "GPU"), " allocated for ", since, " with ", units.GiB(memory),
			" of memory in use: a process is loaded, and ", ran)
	}
	ad.Risk = "low: ask the owner first; what is in the pod's memory is lost when it stops"
	ad.raise(a.p.duration(shortest) >= 3*day)
	ad.Alternatives = "Nothing smaller than a release: an idle GPU needs no share of one. " +
		"Rare requests can be served by scaling from zero."
	ad.ChangeIn, ad.Change = releaseChange(r, len(inUse) == 0, sortedKeys(pods))
	ad.Validation = a.validateRelease(l)
	return &ad
}

// validateRelease releases what was idle at the end of the first part of the period, and counts how often it was busy
// in the rest.
func (a *analysis) validateRelease(l *load) *Validation {
	cut := a.trainSteps()
	compared, busy, train := 0, 0, 0
	for _, c := range a.cases(l, cut) {
		if !a.releasable(&c) {
			continue
		}
		train = max(train, c.until-c.from)
		for k, v := range c.busy.within(cut, c.busy.end()) {
			compared++
			if c.activity(k, v) >= busyAbove {
				busy++
			}
		}
	}
	return a.validation(train, a.p.Steps()-cut, compared, "no GPU", busy)
}

// idleRank is the fraction of the busiest GPU's busy time below which a GPU of the same pod counts as idle.
const idleRank = 0.1

// fewer finds pods of several GPUs of which some are idle.
func (a *analysis) fewer(l *load, r *Workload) *Advice {
	pods := map[string][]gpuCase{}
	for _, x := range l.allocations {
		if c, ok := caseOf(x, a.p.Steps()); ok && x.typical > 0 {
			pods[c.key.pod] = append(pods[c.key.pod], c)
		}
	}
	var hours, idleHours, idleGPUs, gpus, weighed, affected float64
	fewest, most := 1<<30, 0
	for _, pod := range sortedKeys(pods) {
		list, length, busiest := pods[pod], 0.0, 0.0
		for _, c := range list {
			length = max(length, c.length())
			busiest = max(busiest, c.busySum/c.length())
		}
		if len(list) < 2 || a.p.duration(int(length)) < a.opt.Advice.Idle || busiest < 0.1 {
			continue
		}
		idle := 0
		for _, c := range list {
			// The start of a program uses every GPU, and a rank that waits for the others runs a kernel now and then.
			if c.busySum < idleRank*busiest*c.length() && float64(c.busy.count()) >= a.opt.Advice.Coverage*c.length() {
				idle++
				idleHours += c.length() * c.typical * a.p.StepHours()
			}
		}
		weighed += length * float64(len(list))
		hours += length * a.p.StepHours()
		most = max(most, len(list))
		if idle > 0 {
			affected += length * float64(len(list))
			fewest = min(fewest, idle)
			idleGPUs += float64(idle)
			gpus += float64(len(list))
		}
	}
	if weighed == 0 || affected < 0.8*weighed {
		return nil
	}
	ad := a.adviceFor(r, adviseFewer, "idle_gpus", idleHours)
	ad.Title = fmt.Sprintf("Request %d instead of %d GPUs for each pod of %s", most-fewest, most, r.Name)
	ad.Evidence = units.Sentence(fmt.Sprintf("over %s of its pods, %.0f of %.0f GPUs were busy for less than a tenth "+
		"of the busiest GPU's "+
		"time in their pod", units.Duration(time.Duration(hours*float64(time.Hour))), idleGPUs, gpus))
	ad.Alternatives = "The busy GPUs remain: fewer would slow it down."
	ad.Risk = "medium: the program may count its visible GPUs; check its number of ranks (often one process drives " +
		"one GPU)"
	ad.ChangeIn, ad.Change = "pod template", fmt.Sprintf("resources:\n  limits:\n    nvidia.com/gpu: %d   "+
		"# and as many ranks (torchrun --nproc-per-node=%[1]d)", most-fewest)
	ad.raise(hours >= 48)
	return &ad
}

// sortAdvice puts what saves most first.
func sortAdvice(list []Advice) {
	slices.SortStableFunc(list, func(x, y Advice) int {
		return cmp.Or(cmp.Compare(y.SavedHours, x.SavedHours),
			strings.Compare(x.Code+x.Workload+x.Node+x.Model, y.Code+y.Workload+y.Node+y.Model))
	})
}
