package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The codes of advice: what to do.
const (
	adviseRelease     = "release"
	adviseFewer       = "fewer_gpus"
	adviseMore        = "more_room"
	adviseShrink      = "shrink"
	adviseShare       = "share"
	adviseConsolidate = "consolidate"
	adviseGeometry    = "mig_geometry"
	adviseFix         = "fix_fault"
)

// The reasons for advice.
const (
	reasonNeverUsed    = "never_used"
	reasonLoaded       = "loaded_idle"
	reasonStopped      = "stopped"
	reasonIdlePods     = "idle_pods"
	reasonIdleGPUs     = "idle_gpus"
	reasonSmall        = "low_activity"
	reasonPreallocated = "preallocated_memory"
	reasonSaturated    = "oversubscribed"
)

// AdviceCodes lists what may be advised, and ReasonCodes why, with their meaning; both are published with the schema.
func AdviceCodes() map[string]string {
	return map[string]string{
		adviseRelease: "Give the GPUs back: nobody works on them.", adviseFewer: "Ask for fewer GPUs: some of a pod's GPUs do nothing.",
		adviseMore: "Give more room: those who share the GPU want more than it has.", adviseShrink: "Take a smaller MIG profile.",
		adviseShare: "Share the GPU with others.", adviseConsolidate: "Run on fewer nodes.",
		adviseGeometry: "Cut the GPUs into other MIG profiles.", adviseFix: "Repair the GPU: its hours are lost.",
	}
}

// ReasonCodes lists the reasons.
func ReasonCodes() map[string]string {
	return map[string]string{
		reasonNeverUsed: "Held, and no process ever had memory on the GPU.", reasonLoaded: "A process is loaded and has had no work.",
		reasonStopped: "It worked, stopped, and kept its GPUs.", reasonIdlePods: "Some of its pods work, others do not.",
		reasonIdleGPUs: "Some GPUs of a pod work, others do not.", reasonSmall: "Activity and memory fit into less.",
		reasonPreallocated: "Activity is low; the memory in use was taken at the start and says nothing about need.",
		reasonSaturated:    "The GPU is busy all the time and shared.", "half_empty_nodes": "Fewer nodes would hold what is allocated at the busiest time.",
		"unwanted_profiles": "Instances of one profile stay free while pods wait for another.", "gpu_unavailable": "The GPU could not be used.",
	}
}

// The codes of silence: why nothing is advised.
const (
	silentShort    = "observed_too_short"
	silentCoverage = "coverage_too_low"
	silentPattern  = "returns_after_pauses"
	silentWell     = "used_well"
	silentPeaks    = "peaks_need_it"
	silentMemory   = "memory_needs_it"
	silentGPUs     = "several_gpus_at_once"
	silentShared   = "already_shared"
	silentGone     = "no_longer_there"
	silentSmall    = "saves_too_little"
	silentReplay   = "failed_the_replay"
	silentUnknown  = "activity_unknown"
)

// silence is a reason for saying nothing.
type silence struct{ code, text string }

// gpuCase is one holding as the rules see it, until some step.
type GPUCase struct {
	h           *alloc
	from, until int // steps in which it was held
	active      int // step after the last one with work; from when there was none
	worked      int // steps with work
	pause       int // longest pause that ended with work, in steps
	known       int // steps of the quiet end of which the activity is known
	busy        float64
}

// quiet is how long it has been without work, in steps.
func (c *GPUCase) quiet() int { return c.until - c.active }

// caseOf looks at a holding until a step.
func caseOf(h *alloc, until int) (c GPUCase, ok bool) {
	c = GPUCase{h: h, from: h.busy.from, until: min(until, h.busy.end())}
	if h.busy.len() == 0 || c.from >= c.until {
		return c, false
	}
	c.active = c.from
	for k := c.from; k < c.until; k++ {
		v, ok := h.activity(k)
		if !ok {
			continue
		}
		c.busy += v
		if v < quietBelow {
			c.known++
			continue
		}
		c.pause = max(c.pause, k-c.active)
		c.active, c.known = k+1, 0
		c.worked++
	}
	return c, true
}

// cases are the holdings that are held at a step: what counts for release.
func (a *analyst) cases(l *load, until int) (now []GPUCase) {
	if len(l.allocs) == 0 {
		// Single GPUs are not known: the workload is judged by its busiest.
		h := &alloc{key: holdKey{l.key.cluster, l.key.namespace, "", "", ""}, model: l.key.model, busy: l.most, typical: 1}
		if c, ok := caseOf(h, until); ok && c.until == until || ok && a.stillHeldAt(c.until, until) {
			now = append(now, c)
		}
		return now
	}
	for _, h := range l.allocs {
		if h.typical == 0 {
			continue // it uses the GPU and holds nothing
		}
		if c, ok := caseOf(h, until); ok && a.stillHeldAt(c.until, until) {
			now = append(now, c)
		}
	}
	return now
}

func (a *analyst) stillHeldAt(end, until int) bool {
	return time.Duration(until-end)*a.w.Step <= heldAtEnd
}

// released says whether a GPU that has been quiet should be given back.
func (a *analyst) released(c *GPUCase) (bool, silence) {
	g := a.opt.Advice
	quiet := time.Duration(c.quiet()) * a.w.Step
	switch {
	case quiet < g.Quiet:
		return false, silence{silentPattern, "it worked within the last " + duration(g.Quiet)}
	case float64(c.known) < g.Coverage*float64(c.quiet()):
		return false, silence{silentCoverage, fmt.Sprintf("of the %s since it was last seen at work only %.0f %% are known", duration(quiet), 100*over(float64(c.known), float64(c.quiet())))}
	case a.workingTime(c.active, c.until) < g.Quiet:
		return false, silence{silentPattern, "the quiet time fell on a weekend"}
	case float64(c.quiet()) < 1.5*float64(c.pause) && c.worked > 0:
		return false, silence{silentPattern, fmt.Sprintf("it has come back after a pause of %s before", duration(time.Duration(c.pause)*a.w.Step))}
	}
	return true, silence{}
}

// workingTime is the part of a stretch that lies on Monday to Friday.
func (a *analyst) workingTime(from, to int) time.Duration {
	n := 0
	for k := from; k < to; k++ {
		if d := a.w.Begin(k).Weekday(); d != time.Saturday && d != time.Sunday {
			n++
		}
	}
	return time.Duration(n) * a.w.Step
}

// advise looks for what to do about one workload. The first rule that speaks is the one that is heard; when none
// does, the row says why.
func (a *analyst) advise(l *load, r *Workload, steps int) []Advice {
	if r.Held == 0 {
		r.NoAdvice, r.NoReason = silentUnknown, "it holds nothing: its work is on GPUs of others"
		return nil
	}
	if l.observedSum == 0 {
		r.NoAdvice, r.NoReason = silentUnknown, "the work of its GPUs cannot be measured: MIG before Hopper, or sharing without sight of processes"
		return nil
	}
	out, why := a.release(l, r)
	if len(out) == 0 {
		var fewer silence
		if out, fewer = a.fewer(l, r); fewer.code != "" {
			why = fewer
		}
	}
	if len(out) == 0 {
		var size silence
		if out, size = a.size(l, r, steps); size.code != "" {
			why = size
		}
	}
	for i := range out {
		if out[i].SavedGPUs < a.opt.Advice.Saving && out[i].SavedHours < a.opt.Advice.Saving*a.w.Total() {
			why = silence{silentSmall, fmt.Sprintf("the advice %q would save %.1f GPU-hours only", out[i].Code, out[i].SavedHours)}
			out = nil
			break
		}
	}
	if len(out) == 0 {
		r.NoAdvice, r.NoReason = why.code, why.text
		return nil
	}
	r.Advice = out[0].Code
	return out
}

func (a *analyst) adviceFor(r *Workload, code, reason string) Advice {
	return Advice{Code: code, Reason: reason, Workload: r.ID, Namespace: r.Namespace, Cluster: r.Cluster, Model: r.Model, Confidence: r.Confidence}
}

// release finds GPUs that nobody works on.
func (a *analyst) release(l *load, r *Workload) ([]Advice, silence) {
	now := a.cases(l, a.w.Steps())
	if len(now) == 0 {
		return nil, silence{silentGone, "it holds nothing any more"}
	}
	idle := map[string][]GPUCase{}  // by pod
	awake := map[string][]GPUCase{} // by pod
	var why silence
	for _, c := range now {
		if ok, s := a.released(&c); ok {
			idle[c.h.key.pod] = append(idle[c.h.key.pod], c)
		} else {
			awake[c.h.key.pod] = append(awake[c.h.key.pod], c)
			why = s
		}
	}
	var cases []GPUCase
	pods, whole, others := 0, true, false
	for _, list := range awake {
		for _, c := range list {
			others = others || c.worked > 0
		}
	}
	for _, pod := range sortedKeys(idle) {
		if len(awake[pod]) > 0 {
			whole = false
			continue // its other GPUs work: that is the next rule's
		}
		pods++
		cases = append(cases, idle[pod]...)
	}
	whole = whole && len(awake) == 0
	if len(cases) == 0 {
		return nil, why
	}
	var hours, shares, worked float64
	longest, shortest := 0, a.w.Steps()
	for _, c := range cases {
		share := max(c.h.typical, 0)
		if len(l.allocs) == 0 {
			share = r.GPUsNow
		}
		hours += float64(c.quiet()) * share * a.w.Hours()
		shares += share
		worked += float64(c.worked)
		longest, shortest = max(longest, c.quiet()), min(shortest, c.quiet())
	}
	var reason, did string
	ran := 0.0
	for _, c := range cases {
		for k := c.active; k < c.until; k++ {
			ran += c.h.busy.or(k, 0) * a.w.Step.Seconds()
		}
	}
	kernels := "no kernel ran"
	if ran >= 1 {
		kernels = fmt.Sprintf("kernels ran for %.0f s in all", ran)
	}
	memory := 0.0
	if r.MemoryPeak != nil {
		memory = *r.MemoryPeak
	}
	for _, c := range cases {
		for _, v := range c.h.memory.v {
			if v == v {
				memory = max(memory, float64(v))
			}
		}
	}
	quiet := duration(time.Duration(shortest) * a.w.Step)
	switch {
	case !whole && others:
		reason, did = reasonIdlePods, fmt.Sprintf("%d of its pods, with %s, have had no work for %s, while others work", pods, GPUsText(shares), quiet)
	case worked > 0:
		reason = reasonStopped
		did = fmt.Sprintf("%s last worked %s ago and %s kept since", GPUsText(shares), quiet, isAre(shares))
		if r.LastBusy != nil {
			did += " (last seen at work " + r.LastBusy.Format("2006-01-02 15:04") + " UTC)"
		}
	case memory < emptyBelow:
		reason, did = reasonNeverUsed, fmt.Sprintf("%s held for %s: %s, and no process had memory", GPUsText(shares), quiet, kernels)
	default:
		reason, did = reasonLoaded, fmt.Sprintf("%s held for %s with %s in memory: a process is loaded, and %s", GPUsText(shares), quiet, bytesText(memory), kernels)
	}
	ad := a.adviceFor(r, adviseRelease, reason)
	ad.Title = fmt.Sprintf("Release %s of %s", GPUsText(shares), r.Name)
	ad.Evidence = sentence(did)
	ad.SavedHours, ad.SavedGPUs = hours, shares
	ad.SavedCost = a.prices.cost(r.Model, hours)
	ad.Risk = "low: ask the owner first; what is in the pod's memory is lost when it ends"
	if r.Confidence == "low" && time.Duration(shortest)*a.w.Step >= 3*24*time.Hour {
		ad.Confidence = "medium"
	}
	ad.Why = "Nothing smaller than a release: a GPU without any work needs no share of one. Requests that come rarely are served by scaling from zero."
	ad.ChangeIn, ad.Change = releaseChange(r, whole, pods, sortedKeys(idle))
	ad.HeldOut = a.replayRelease(l)
	return []Advice{ad}, silence{}
}

// idleRank is the part of the busiest GPU's work below which a GPU of the same pod does nothing of its own.
const idleRank = 0.1

// fewer finds pods of several GPUs of which some do not work.
func (a *analyst) fewer(l *load, r *Workload) ([]Advice, silence) {
	if len(l.allocs) == 0 {
		return nil, silence{}
	}
	pods := map[string][]GPUCase{}
	for _, h := range l.allocs {
		if c, ok := caseOf(h, a.w.Steps()); ok && h.typical > 0 {
			pods[h.key.pod] = append(pods[h.key.pod], c)
		}
	}
	var hours, saved, idleHours, idleGPUs, all float64
	least, most := 1<<30, 0
	seen, hit := 0.0, 0.0
	for _, pod := range sortedKeys(pods) {
		devs := pods[pod]
		if len(devs) < 2 {
			continue
		}
		length, worker := 0, 0.0
		for _, c := range devs {
			length = max(length, c.until-c.from)
			worker = max(worker, over(c.busy, float64(c.until-c.from)))
		}
		if time.Duration(length)*a.w.Step < a.opt.Advice.Quiet || worker < 0.1 {
			continue
		}
		n := 0
		for _, c := range devs {
			// The start of a program touches every GPU, and a rank that waits for the others asks now and then.
			if c.busy < idleRank*worker*float64(c.until-c.from) && float64(c.h.busy.count()) >= a.opt.Advice.Coverage*float64(c.until-c.from) {
				n++
				idleHours += float64(c.until-c.from) * c.h.typical * a.w.Hours()
			}
		}
		weight := float64(length) * float64(len(devs))
		seen += weight
		hours += float64(length) * a.w.Hours()
		if n > 0 {
			hit += weight
			least = min(least, n)
			idleGPUs += float64(n)
			all += float64(len(devs))
		}
		most = max(most, len(devs))
	}
	if seen == 0 || hit < 0.8*seen {
		return nil, silence{}
	}
	saved = idleHours
	ad := a.adviceFor(r, adviseFewer, reasonIdleGPUs)
	ad.Title = fmt.Sprintf("Ask for %d instead of %d GPUs for each pod of %s", most-least, most, r.Name)
	ad.Evidence = sentence(fmt.Sprintf("over %s of its pods, %.0f of %.0f GPUs did less than a tenth of what the busiest GPU of their pod did", hoursText(hours), idleGPUs, all))
	ad.SavedHours, ad.SavedGPUs = saved, over(saved, a.w.Total())
	ad.SavedCost = a.prices.cost(r.Model, saved)
	ad.Why = "The GPUs that work are left: taking more of them away would slow it down."
	ad.Risk = "medium: the program may count the GPUs that it sees; check its number of ranks (often one process drives one GPU)"
	ad.ChangeIn, ad.Change = "pod template", GPUsChange(r, most-least)
	if r.Confidence == "low" && hours >= 48 {
		ad.Confidence = "medium"
	}
	return []Advice{ad}, silence{}
}

func duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}

func hoursText(h float64) string { return duration(time.Duration(h * float64(time.Hour))) }

func GPUsText(n float64) string {
	switch {
	case n > 0.995 && n < 1.005:
		return "1 GPU"
	case n == float64(int(n+0.5)) || n >= 10:
		return fmt.Sprintf("%.0f GPUs", n)
	}
	return fmt.Sprintf("%.2f GPUs", n)
}

func isAre(n float64) string {
	if n > 0.995 && n < 1.005 {
		return "is"
	}
	return "are"
}

func bytesText(b float64) string { return fmt.Sprintf("%.1f GiB", b/(1<<30)) }

func percent(x float64) string {
	if x > 0 && x < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// sortAdvice puts what saves most first.
func sortAdvice(list []Advice) {
	slices.SortStableFunc(list, func(x, y Advice) int {
		switch {
		case x.SavedHours > y.SavedHours:
			return -1
		case x.SavedHours < y.SavedHours:
			return 1
		}
		return strings.Compare(x.Code+x.Workload+x.Node+x.Model, y.Code+y.Workload+y.Node+y.Model)
	})
}
