package render

import (
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

type (
	account  = *document.Account
	workload = *document.Workload
	advice   = *document.Advice
)

// unusedCost is the cost of the unused time.
func unusedCost(a account) *float64 {
	if a.StateCost == nil {
		return nil
	}
	return new(a.StateCost.Unused())
}

// stateTable has the states of the fleet.
func stateTable(d *document.Document) table {
	type row = *document.State
	of := func(x row) float64 { return d.Fleet.States.Of(*x) }
	var all []document.State
	for s := range document.StateCount {
		all = append(all, s)
	}
	return tableOf(d, "state", "", []column[row]{
		{title: "State", text: func(x row) string { return x.Quantity().Word }, drawn: func(x row) template.HTML {
			return template.HTML(fmt.Sprintf(`<span class="dot k%d"></span>%s`, *x, x.Quantity().Word))
		}},
		number("gpu_hours", "GPU-hours", "", of),
		shareOfHours("", "Share", "", of, func(row) float64 { return d.Fleet.Hours }),
		optional("cost_CURRENCY", "Cost", "", func(x row) *float64 {
			if d.Fleet.StateCost == nil {
				return nil
			}
			return d.Fleet.StateCost.At(*x)
		}),
		{title: "Definition", drawn: func(x row) template.HTML {
			return template.HTML(template.HTMLEscapeString(x.Quantity().Definition))
		}},
	}, all)
}

// shareOfHours is a column of hours, of which a reader sees the share.
func shareOfHours[T any](name, title, meaning string, of, hours func(T) float64) column[T] {
	c := number(name, title, meaning, of)
	c.text = func(x T) string { return units.Share(of(x), hours(x)) }
	return c
}

// The names of parts of the fleet, as lists of accounts, workloads and advice have them.
const (
	ofCluster   = "Cluster, by --cluster-label."
	ofNamespace = "Namespace of the pods."
	ofModel     = "Model of the GPUs."
	ofGroup     = "Value of the label of --group-by=label:LABEL."
)

// accountColumns are those of the accounts of a level.
func accountColumns(d *document.Document, l level) []column[account] {
	owned := l.Key == "namespace" || l.Key == "group" // allocated time alone
	name := label("", l.Title, "", l.name)
	if l.Key == "node" {
		name.drawn = func(a account) template.HTML {
			return template.HTML(fmt.Sprintf(`%s<br><span class="dim small">%s</span>`, template.HTMLEscapeString(l.name(a)),
				template.HTMLEscapeString(a.Model)))
		}
	}
	columns := slices.DeleteFunc([]column[account]{
		label("cluster", "", ofCluster, func(a account) string { return a.Cluster }),
		label("node_pool", "", "Node pool, by --node-pool-label.", func(a account) string { return a.NodePool }),
		label("node", "", "Node.", func(a account) string { return a.Node }),
		label("namespace", "", ofNamespace, func(a account) string { return a.Namespace }),
		label(groupLabel, "", ofGroup, func(a account) string { return a.Group }),
		label("model", "", ofModel, func(a account) string { return a.Model }),
	}, func(c column[account]) bool { return !slices.Contains(l.names, c.name) })
	hours := func(a account) float64 { return a.Hours }
	columns = append(columns, name,
		number("gpus", "GPUs", "Mean number of GPUs over the period; of an owner (namespace or LABEL), of those allocated to it.",
			func(a account) float64 { return a.GPUs }),
		number("gpu_hours", "Hours", ofHours, hours),
		column[account]{title: "States", number: func(a account) *float64 { return new(a.States.Busy / max(a.Hours, 1e-9)) },
			drawn: func(a account) template.HTML { return stack(a.States, "mini") }})
	for s := range document.StateCount {
		if owned && (s == document.Unallocated || s == document.Unavailable || s == document.NotReported) {
			continue // always 0
		}
		columns = append(columns, shareOfHours(s.String()+"_gpu_hours", s.Quantity().Word, units.Sentence(s.Quantity().Definition),
			func(a account) float64 { return a.States.Of(s) }, hours))
	}
	if owned {
		columns = append(columns, shareOfHours("used_by_others_gpu_hours", "Used by others", ofOthers,
			func(a account) float64 { return a.UsedByOthers }, hours))
	}
	return append(columns,
		number("beyond_allocation_gpu_hours", "", ofBeyond, func(a account) float64 { return a.Beyond }),
		number("reclaimable_gpu_hours", "Reclaimable, h", ofReclaimable, func(a account) float64 { return a.Reclaimable }),
		number("coverage_percent", "", ofCoverage, func(a account) float64 { return a.Coverage }),
		optional("energy_kwh", "Energy, kWh", ofEnergy, func(a account) *float64 { return a.EnergyKWh }),
		optional("cost_CURRENCY", "Cost", ofCost, func(a account) *float64 { return a.Cost }),
		optional("unused_cost_CURRENCY", "", ofUnusedCost, unusedCost),
		optional("shared_cost_CURRENCY", "Shared cost", "Its share of the cost of no owner, with --prices.share.",
			func(a account) *float64 { return a.SharedCost }),
		optional("reclaimable_cost_CURRENCY", "Reclaimable cost", "Cost of the reclaimable time.",
			func(a account) *float64 { return a.ReclaimableCost }),
		label("query", "", ofQuery, func(a account) string { return a.Query }))
}

// Meanings of columns that several lists have.
const (
	ofHours       = "Expected time; of an owner, allocated time. The states, and use by others, add up to it."
	ofOthers      = "Allocated time in which other containers of the GPU were busy."
	ofBeyond      = "Busy time beyond the allocation, on shared GPUs."
	ofReclaimable = "Idle time in continuous periods of 30 minutes and longer."
	ofCoverage    = "Reported and known part of the time."
	ofEnergy      = "Energy of the GPUs."
	ofCost        = "Cost of the time, with --prices."
	ofUnusedCost  = "Cost of gap and idle."
	ofQuery       = "PromQL of the time, with --query."
	ofPart        = "fleet, or the namespace or label."
	ofTitle       = "What is recommended."
	ofID          = "The same in all reports that give the advice."
)

// workloadColumns are those of the workloads.
func workloadColumns(d *document.Document) []column[workload] {
	return []column[workload]{
		label("cluster", "", ofCluster, func(w workload) string { return w.Cluster }),
		label("namespace", "", ofNamespace, func(w workload) string { return w.Namespace }),
		label(groupLabel, "", ofGroup, func(w workload) string { return w.Group }),
		label("kind", "", "Kind of the owner, such as Deployment.", func(w workload) string { return w.Kind }),
		label("workload", "", "Name of the workload.", func(w workload) string { return w.Name }),
		label("", "Workload", "", func(w workload) string { return w.Namespace + "/" + w.Name }),
		label("model", "Model", ofModel, func(w workload) string { return w.Model }),
		number("gpus", "GPUs", "Mean number of GPUs while any was allocated.", func(w workload) float64 { return w.GPUs }),
		number("allocated_gpu_hours", catalog.Allocated.Word+", h", "Allocated time.", func(w workload) float64 { return w.Allocated }),
		number("busy_gpu_hours", "", units.Sentence(catalog.Busy.Definition), func(w workload) float64 { return w.Busy - w.Beyond }),
		optional("busy_mean_percent", catalog.Busy.Word, "Busy time over the measured time.",
			func(w workload) *float64 { return w.BusyMean }),
		optional("busy_p95_percent", "P95", "95th percentile of the busiest GPU's means over a step.",
			func(w workload) *float64 { return w.BusyP95 }),
		optional("busy_peak_percent", "Peak", "Highest of these means.", func(w workload) *float64 { return w.BusyPeak }),
		optional("memory_peak_gib", "Memory peak", "Peak of one container on one GPU.", func(w workload) *float64 { return w.MemoryPeak }),
		optional("memory_beyond_allocation_gib", "Memory beyond allocation", "Maximum of one container beyond its share of a shared GPU.",
			func(w workload) *float64 { return w.MemoryBeyond }),
		optional("memory_floor_gib", "", "Minimum of one container on one GPU.", func(w workload) *float64 { return w.MemoryFloor }),
		number("gap_gpu_hours", "", units.Sentence(catalog.Gap.Definition), func(w workload) float64 { return w.Gap }),
		number("idle_gpu_hours", catalog.Idle.Word+", h", units.Sentence(catalog.Idle.Definition),
			func(w workload) float64 { return w.Idle }),
		number("unknown_gpu_hours", "", units.Sentence(catalog.Unknown.Definition), func(w workload) float64 { return w.Unknown }),
		number("used_by_others_gpu_hours", "", ofOthers, func(w workload) float64 { return w.UsedByOthers }),
		number("beyond_allocation_gpu_hours", "", ofBeyond, func(w workload) float64 { return w.Beyond }),
		number("reclaimable_gpu_hours", "", ofReclaimable, func(w workload) float64 { return w.Reclaimable }),
		number("longest_idle_hours", "Longest idle", "Longest continuous idle period, on the clock.",
			func(w workload) float64 { return w.LongestIdle }),
		instant(d, "last_busy", "", "Last activity; empty if there was none.", func(w workload) *time.Time { return w.LastBusy }),
		number("unused_gpu_hours", catalog.Unused.Word+", h", "Gap and idle.", func(w workload) float64 { return w.Unused }),
		number("coverage_percent", "", ofCoverage, func(w workload) float64 { return w.Coverage }),
		optional("energy_kwh", "", ofEnergy, func(w workload) *float64 { return w.EnergyKWh }),
		optional("cost_CURRENCY", "", ofCost, func(w workload) *float64 { return w.Cost }),
		optional("unused_cost_CURRENCY", "Unused cost", ofUnusedCost, func(w workload) *float64 { return w.UnusedCost }),
		label("", "Advice", "", func(w workload) string {
			if w.Advice == "" {
				return "(" + w.NoAdvice + ")"
			}
			return w.Advice
		}),
		label("advice", "", "Code of the advice.", func(w workload) string { return w.Advice }),
		label("no_advice", "", "Reason code, if there is no advice.", func(w workload) string { return w.NoAdvice }),
		label("query", "", ofQuery, func(w workload) string { return w.Query }),
	}
}

// adviceColumns are those of the advice.
func adviceColumns() []column[advice] {
	return []column[advice]{
		label("advice", "", "Code of the advice.", func(a advice) string { return a.Code }),
		label("reason", "", "Reason code.", func(a advice) string { return a.Reason }),
		label("cluster", "", ofCluster, func(a advice) string { return a.Cluster }),
		label("namespace", "", ofNamespace, func(a advice) string { return a.Namespace }),
		label("node", "", "Node.", func(a advice) string { return a.Node }),
		label("model", "", ofModel, func(a advice) string { return a.Model }),
		label("recommendation", "Recommendation", ofTitle, func(a advice) string { return a.Title }),
		label("about", "For", "Workload, node, model or cluster that it is about.", about),
		label("owner", "Owner", "Who can do it.", func(a advice) string { return a.Owner }),
		label("evidence", "Reason", "Why, in words.", func(a advice) string { return a.Evidence }),
		label("saving", "Saves", "Kind of the saving: kinds are not added up.", func(a advice) string { return kindOf(a.Saving) }),
		number("saved_gpu_hours", "GPU-hours", "What the period would have saved.", func(a advice) float64 { return a.SavedHours }),
		number("nodes", "", "Nodes that would be given back.", func(a advice) float64 { return float64(a.Nodes) }),
		number("cumulated_gpu_hours", "Cumulated", "Saved by all of the kind up to this one, but for low confidence.",
			func(a advice) float64 { return a.Cumulated }),
		optional("saved_cost_CURRENCY", "Cost", "Cost of what is saved.", func(a advice) *float64 { return a.SavedCost }),
		optional("saved_cost_CURRENCY_per_month", "Cost per month", "The same of a month from now on.",
			func(a advice) *float64 { return a.MonthCost }),
		label("effort", "Effort", "What the change takes.", func(a advice) string { return a.Effort }),
		label("replay", "Replay", "What would have happened to the pods of the period.",
			func(a advice) string { return replayed(a.Replay) }),
		label("risk", "", "What may go wrong.", func(a advice) string { return a.Risk }),
		label("confidence", "Confidence", "high, medium or low (a question).", func(a advice) string { return a.Confidence }),
		optional("throttled_percent", "", "Time in which the demand would have exceeded what is left.", func(a advice) *float64 {
			if a.Replay == nil {
				return nil
			}
			return &a.Replay.Throttled
		}),
		optional("exceeded_later_percent", "", "Time in which it did, of advice made before each fold.", func(a advice) *float64 {
			if a.Validation == nil {
				return nil
			}
			return &a.Validation.Exceeded
		}),
		label("id", "", ofID, func(a advice) string { return a.ID }),
		label("query", "", ofQuery, func(a advice) string { return a.Query }),
	}
}

// decisionColumns are those of the first lines of a report.
func decisionColumns() []column[*decision] {
	type row = *decision
	return []column[row]{
		label("", "Decision", "", func(x row) string { return x.Action }),
		label("", "Owner", "", func(x row) string { return x.Owner }),
		label("", "Confidence", "", func(x row) string { return x.sure() }),
		label("", "Per month", "", func(x row) string { return x.Saves }),
		optional("", "Nodes", "", func(x row) *float64 {
			if n := float64(x.Nodes); n > 0 {
				return &n
			}
			return nil
		}),
	}
}

// bucketColumns are those of the parts of the trend; hours are those of all states.
func bucketColumns(d *document.Document) []column[*document.Bucket] {
	columns := []column[*document.Bucket]{
		instant(d, "from", "", "Start of the part of the trend.", func(b *document.Bucket) *time.Time { return &b.From }),
		number("gpu_hours", "", ofHours, func(b *document.Bucket) float64 { return b.States.Sum() }),
	}
	for s := range document.StateCount {
		columns = append(columns, number(s.String()+"_gpu_hours", "", units.Sentence(s.Quantity().Definition),
			func(b *document.Bucket) float64 { return b.States.Of(s) }))
	}
	return columns
}

// changeColumns are those of what changed since an earlier report, per day.
func changeColumns() []column[*document.Change] {
	type row = *document.Change
	return []column[row]{
		label("part", "Part", ofPart, func(x row) string { return x.Name }),
		number("gpu_hours_per_day_before", "GPU-hours before", "Time in the earlier report.", func(x row) float64 { return x.HoursBefore }),
		number("gpu_hours_per_day", "GPU-hours", "Time.", func(x row) float64 { return x.Hours }),
		number("unused_gpu_hours_per_day_before", "Unused before", "Gap and idle in the earlier report.",
			func(x row) float64 { return x.UnusedBefore }),
		number("unused_gpu_hours_per_day", "Unused", "Gap and idle.", func(x row) float64 { return x.Unused }),
		optional("cost_CURRENCY_per_day_before", "Cost before", "Cost in the earlier report.",
			func(x row) *float64 { return x.CostBefore }),
		optional("cost_CURRENCY_per_day", "Cost", "Cost.", func(x row) *float64 { return x.Cost }),
		optional("unused_cost_CURRENCY_per_day_before", "Unused cost before", "Cost of gap and idle in the earlier report.",
			func(x row) *float64 { return x.UnusedCostBefore }),
		optional("unused_cost_CURRENCY_per_day", "Unused cost", ofUnusedCost, func(x row) *float64 { return x.UnusedCost }),
	}
}

// pastColumns are those of past reports, outcomeColumns those of what became of their advice.
func pastColumns(d *document.Document) []column[*document.Past] {
	type row = *document.Past
	return []column[row]{
		instant(d, "until", "Until", "End of the report's period.", func(x row) *time.Time { return &x.To }),
		number("gpu_hours_per_day", "GPU-hours", "Time.", func(x row) float64 { return x.Hours }),
		number("unused_gpu_hours_per_day", "Unused", "Gap and idle.", func(x row) float64 { return x.Unused }),
		optional("unused_cost_CURRENCY_per_day", "Unused cost", ofUnusedCost, func(x row) *float64 { return x.UnusedCost }),
		number("recommendations", "Recommendations", "Advice in the report.", func(x row) float64 { return float64(x.Advice) }),
	}
}

func outcomeColumns(d *document.Document) []column[*document.Outcome] {
	type row = *document.Outcome
	return []column[row]{
		label("recommendation", "Recommendation", ofTitle, func(x row) string { return x.Title }),
		label("outcome", "Outcome", "done, ignored, refuted by later demand, or withdrawn.", func(x row) string {
			return x.Outcome + map[string]string{"refuted": " by later demand"}[x.Outcome]
		}),
		instant(d, "first", "First", "End of the first report with the advice.", func(x row) *time.Time { return &x.First }),
		number("reports", "Reports", "Reports with the advice.", func(x row) float64 { return float64(x.Reports) }),
		label("id", "", ofID, func(x row) string { return x.ID }),
	}
}

// projectionColumns are those of what a month costs.
func projectionColumns(d *document.Document) []column[*document.Projection] {
	type row = *document.Projection
	return []column[row]{
		label("part", "Part", ofPart, func(p row) string { return p.Name }),
		number("cost_CURRENCY_per_month", "Cost", "Cost at the rate of the period.", func(p row) float64 { return p.Cost }),
		number("unused_cost_CURRENCY_per_month", "Unused cost", ofUnusedCost, func(p row) float64 { return p.UnusedCost }),
		number("saved_cost_CURRENCY_per_month", "Advice saves", "What advice saves.", func(p row) float64 { return p.Saved }),
		optional("budget_CURRENCY_per_month", "Budget", "Budget in the price list.", func(p row) *float64 { return p.Budget }),
		{"budget_used_percent", "Used of it", "Cost / budget.", func(p row) string { return ofBudget(d, p) }, func(p row) *float64 {
			if p.Budget == nil || *p.Budget == 0 {
				return nil
			}
			return new(p.Cost / *p.Budget)
		}, nil, nil},
	}
}

// ofBudget compares a month with its budget.
func ofBudget(d *document.Document, p *document.Projection) string {
	switch {
	case p.Budget == nil || *p.Budget == 0:
		return "–"
	case p.Cost > *p.Budget:
		return "exceeded by " + in(d)(p.Cost-*p.Budget)
	}
	return units.Share(p.Cost, *p.Budget)
}

// replayed describes what would have happened to the pods of the period.
func replayed(r *document.Replay) string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d pods placed again: ", r.Pods)
	if r.Waiting == 0 {
		text += "none waits"
	} else {
		text += fmt.Sprintf("%d wait, %s GPU-hours in all", r.Waiting, units.Hours(r.WaitedHours))
	}
	text += fmt.Sprintf(", %d evicted, throttled in %s of the time", r.Evicted, units.Ratio(r.Throttled))
	if r.Unknown != "" {
		text += "; not known: " + r.Unknown
	}
	return text
}

// lists are the tables of all formats; those without a title are in CSV alone, those without rows in CSV as their head.
func lists(d *document.Document, o Options) []table {
	fleet := level{Key: "fleet", name: func(*document.Account) string { return "" }}
	out := []table{tableOf(d, "fleet", "", accountColumns(d, fleet), []document.Account{d.Fleet})}
	for _, l := range levels(d) {
		if o.shows(l.Key) {
			out = append(out, tableOf(d, l.Key, l.Title, accountColumns(d, l), l.accounts))
		}
	}
	if o.shows("workload") {
		out = append(out, tableOf(d, "workload", "Workloads, largest unused first", workloadColumns(d), d.Workloads))
	}
	out = append(out, tableOf(d, "advice", "Advice", adviceColumns(), d.Advice), tableOf(d, "trend", "", bucketColumns(d), d.Trend))
	if d.Currency != "" {
		out = append(out, tableOf(d, "projection", "A month at this rate", projectionColumns(d), d.Projections))
	}
	if len(d.Past) > 0 {
		out = append(out, tableOf(d, "past", "Reports so far, per day", pastColumns(d), d.Past),
			tableOf(d, "outcome", "What became of advice", outcomeColumns(d), d.Outcomes))
	}
	if d.Comparison != nil {
		out = append(out, tableOf(d, "change", "Per day, before and now", changeColumns(), d.Comparison.Changes))
	}
	return out
}
