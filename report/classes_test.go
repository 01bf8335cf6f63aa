package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

// class is a kind of advice: what was given of it, and what became of the workloads for which it is what saves the most in
// the time after the report. Of pairs the first is advice in the sums, the second questions.
type class struct {
	given, confirmed [2]float64
	workloads        float64            // of this class by the oracle
	reachable        float64            // GPUs
	recovered        [2]float64         // GPUs, by advice of this class that was confirmed
	other            [2]float64         // GPUs, by advice of another class that was confirmed
	reasons          map[string]float64 // GPUs without advice, by the reason for none
}

// oracle is the class of advice that saves the most of a workload in a time of known demand, and how many GPUs: nothing is
// needed, a part of a GPU, fewer ranks, or replicas, by the hour where that saves another tenth.
func oracle(w lived, demand series.Sample, used []bool, hours [24]float64, budget float64) (kind string, best float64) {
	need := series.Sample(slices.Sorted(slices.Values(demand))).Quantile(1 - budget)
	switch pods := float64(w.pods); {
	case !slices.Contains(used, true):
		return document.AdviseRelease, pods * float64(w.gpus)
	case w.kind == "service":
		least := pods
		for _, v := range hours {
			saved := pods - min(pods, max(1, math.Ceil(v)))
			best, least = best+saved/24, min(least, saved)
		}
		if best-least > 0.1*pods {
			return document.AdviseReplicas + " daily_demand", best
		}
		return document.AdviseReplicas + " low_demand", best
	case w.kind == "ranks":
		for _, u := range used {
			if !u {
				best++
			}
		}
		return document.AdviseFewer, best
	}
	for k := sizing.MaxReplicas; k >= 2 && best == 0; k-- {
		if part := 1 / float64(k); need <= part && w.memory <= 80*gib*part {
			best = 1 - part
		}
	}
	gpu, _ := mig.For(h100, 0)
	if slices.ContainsFunc(gpu.Profiles, func(p mig.Profile) bool {
		return p.PerGPU >= 2 && gpu.ComputeRatio(p) >= need && p.Bytes >= w.memory
	}) {
		return document.AdviseShrink, best
	}
	return document.AdviseShare, best
}

func (y *tally) class(kind string, best float64) *class {
	c := entry(y.classes, kind)
	if c.reasons == nil {
		c.reasons = map[string]float64{}
	}
	if best > 0 {
		c.workloads++
		c.reachable += best
	}
	return c
}

// judged counts advice in its own class, and what it saves in that of the workload by the oracle.
func (y *tally) judged(a *document.Advice, of *class, kind string, best, saved float64, confirmed bool) {
	is, i := a.Code, 0
	if is == document.AdviseReplicas {
		is += " " + a.Reason
	}
	if a.Confidence == "low" {
		i = 1
	}
	own := y.class(is, 0)
	own.given[i]++
	switch {
	case !confirmed:
		of.reasons["exceeded"] += best
		return
	case is == kind:
		of.recovered[i] += saved
	default:
		of.other[i] += saved
	}
	own.confirmed[i]++
}

// table prints precision and recall of each class of advice, which add up to those of all: precision is how much of what was
// given is confirmed, recall how much of what the oracle saves by a class.
func (y *tally) table(t *testing.T) {
	percent := func(a, b float64) float64 { return 100 * over(a, b) }
	t.Logf("%-28s %5s %9s %9s %9s %9s %6s %6s %9s %14s", "class", "given", "precision", "questions", "precision", "workloads", "GPUs",
		"recall", "any class", "with questions")
	var reachable, counted float64
	for _, k := range sortedKeys(y.classes) {
		c := y.classes[k]
		inSums := c.recovered[0] + c.other[0]
		reachable, counted = reachable+c.reachable, counted+inSums
		t.Logf("%-28s %5.0f %7.1f %% %9.0f %7.1f %% %9.0f %6.1f %4.0f %% %7.0f %% %12.0f %%", k, c.given[0], percent(c.confirmed[0],
			c.given[0]),
			c.given[1], percent(c.confirmed[1], c.given[1]), c.workloads, c.reachable, percent(c.recovered[0], c.reachable),
			percent(inSums, c.reachable), percent(inSums+c.recovered[1]+c.other[1], c.reachable))
		for _, reason := range byValue(c.reasons) {
			if c.reasons[reason] >= 0.5 {
				t.Logf("%-28s %.1f GPUs: %s", "", c.reasons[reason], strings.ReplaceAll(reason, "_", " "))
			}
		}
		if c.given[0] >= 10 && c.confirmed[0] < 0.9*c.given[0] {
			t.Errorf("%s: %.0f of %.0f confirmed", k, c.confirmed[0], c.given[0])
		}
	}
	near(t, "reachable by class", reachable, y.reachable)
	near(t, "recovered by class", counted, y.of["counted"].saved)
}
