package document

import (
	"cmp"
	"slices"
	"strings"
)

// Remember adds the trend of past reports, in any order, and what became of their advice.
func (d *Document) Remember(past []*Document) {
	all := append(slices.Clone(past), d)
	slices.SortFunc(all, func(x, y *Document) int { return x.Period.To.Compare(y.Period.To) })
	outcomes := map[string]*Outcome{}
	for _, r := range all {
		p := Past{To: r.Period.To, Advice: len(r.Advice)}
		p.Hours, p.Unused, _, p.UnusedCost = perDay(&r.Fleet, r.Period)
		d.Past = append(d.Past, p)
		for i := range r.Advice {
			a := &r.Advice[i]
			a.identify()
			x := outcomes[a.ID]
			if x == nil {
				x = &Outcome{ID: a.ID, First: r.Period.To}
				outcomes[a.ID] = x
			}
			x.Title, x.Outcome, x.Reports = a.Title, d.became(r, a), x.Reports+1
		}
	}
	for _, x := range outcomes {
		if x.First.Before(d.Period.To) {
			d.Outcomes = append(d.Outcomes, *x)
		}
	}
	slices.SortFunc(d.Outcomes, func(x, y Outcome) int {
		return cmp.Or(strings.Compare(x.Outcome, y.Outcome), x.First.Compare(y.First), strings.Compare(x.Title, y.Title))
	})
}

// became says what advice of a report came to in this one.
func (d *Document) became(before *Document, a *Advice) string {
	has := func(r *Document) (gpus float64) {
		for i := range r.Workloads {
			if w := &r.Workloads[i]; w.ID == a.Workload {
				gpus += w.GPUsNow
			}
		}
		for i := range r.Nodes {
			if n := &r.Nodes[i]; a.Workload == "" && n.Model == a.Model && n.Cluster == a.Cluster && (a.Node == "" || a.Node == n.Node) {
				gpus += n.GPUs
			}
		}
		return gpus
	}
	switch {
	case slices.ContainsFunc(d.Advice, func(x Advice) bool { return x.ID == a.ID }):
		return "ignored"
	case a.Code == AdviseFix || a.Code == AdviseGeometry || a.Code == AdviseLessSharing || has(d) < has(before)-a.SavedGPUs/2:
		return "done"
	case slices.ContainsFunc(d.Workloads, func(w Workload) bool { return w.ID == a.Workload && w.needs(before, a) }):
		return "refuted"
	}
	return "withdrawn"
}

// needs reports whether later demand contradicts advice of an earlier report: what was to be released was busy since, or nothing smaller
// covers the activity or the memory.
func (w *Workload) needs(before *Document, a *Advice) bool {
	return a.Code == AdviseRelease && a.Reason != "idle_pods" && w.LastBusy != nil && w.LastBusy.After(before.Period.To) ||
		slices.Contains([]string{"well_used", "peaks_too_high", "memory_too_high"}, w.NoAdvice)
}
