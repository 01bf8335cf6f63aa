package render

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// column is a column of a list, from which every format is made: text, Markdown and the page show its title and text, CSV its key and raw
// value, and the page instead of the text what is drawn.
type column[T any] struct {
	// key is the CSV header; empty if CSV does not have the column.
	key string
	// title is the heading; empty if only CSV has the column.
	title  string
	number bool
	// text is the value for a reader; nil is none. value is the raw one: string, float64, *float64 or *time.Time; nil is the text.
	text  func(T) string
	value func(T) any
	drawn func(T) template.HTML
}

// number is a column of numbers.
func number[T any](key, title string, of func(T) float64, format func(float64) string) column[T] {
	return column[T]{key, title, true, func(x T) string { return format(of(x)) }, func(x T) any { return of(x) }, nil}
}

// optional is a column of numbers that may be absent.
func optional[T any](key, title string, of func(T) *float64, format func(float64) string) column[T] {
	return column[T]{key, title, true, func(x T) string { return orDash(of(x), format) }, func(x T) any { return of(x) }, nil}
}

// label is a column of text.
func label[T any](key, title string, of func(T) string) column[T] {
	return column[T]{key, title, false, of, nil, nil}
}

// cell is a value of a list, or the head of a column.
type cell struct {
	key, Title, Text, Sort string // Sort is the raw value
	Number                 bool
	HTML                   template.HTML
	page                   bool // text formats do not have it
}

// table is a list in all formats.
type table struct {
	Key, Title string
	Head       []cell
	Rows       [][]cell
}

func tableOf[T any](key, title string, columns []column[*T], rows []T) table {
	t := table{Key: key, Title: title}
	for _, c := range columns {
		t.Head = append(t.Head, cell{key: c.key, Title: c.title, Number: c.number, page: c.text == nil})
	}
	for i := range rows {
		row := slices.Clone(t.Head)
		for k, c := range columns {
			x := &row[k]
			if c.text != nil {
				x.Text = c.text(&rows[i])
			}
			if x.Sort = units.Clean(x.Text); c.value != nil {
				x.Sort = raw(c.value(&rows[i]))
			} else if x.Sort != "" && strings.ContainsRune("=+-@", rune(x.Sort[0])) {
				x.Sort = "'" + x.Sort // a spreadsheet takes no name for a formula
			}
			if c.drawn != nil {
				x.HTML = c.drawn(&rows[i])
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func orDash(x *float64, format func(float64) string) string {
	if x == nil {
		return "–"
	}
	return format(*x)
}

// in formats amounts of the document's currency.
func in(d *document.Document) func(float64) string {
	return func(x float64) string { return units.Money(x, d.Currency) }
}

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
	x := a.StateCost.Unused()
	return &x
}

// stateTable has the states of the fleet.
func stateTable(d *document.Document) table {
	type row = *document.State
	of := func(x row) float64 { return d.Fleet.States.Of(*x) }
	columns := []column[row]{
		{title: "State", text: func(x row) string { return x.Quantity().Word }, drawn: func(x row) template.HTML {
			return template.HTML(fmt.Sprintf(`<span class="dot k%d"></span>%s`, *x, x.Quantity().Word))
		}},
		number("", "GPU-hours", of, units.Hours),
		number("", "Share", of, func(x float64) string { return units.Share(x, d.Fleet.Hours) }),
	}
	if d.Fleet.StateCost != nil {
		columns = append(columns, number("", "Cost", func(x row) float64 { return d.Fleet.StateCost.Of(*x) }, in(d)))
	}
	columns = append(columns, column[row]{title: "Definition", drawn: func(x row) template.HTML {
		return template.HTML(template.HTMLEscapeString(x.Quantity().Definition))
	}})
	var all []document.State
	for s := range document.StateCount {
		all = append(all, s)
	}
	return tableOf("state", "", columns, all)
}

// accountColumns are those of the accounts of a level.
func accountColumns(d *document.Document, l level) []column[account] {
	owned := l.Key == "namespace" || l.Key == "group" // allocated time alone
	name := label("", l.Title, l.name)
	if l.Key == "node" {
		name.drawn = func(a account) template.HTML {
			return template.HTML(fmt.Sprintf(`%s<br><span class="dim small">%s</span>`, template.HTMLEscapeString(l.name(a)),
				template.HTMLEscapeString(a.Model)))
		}
	}
	columns := []column[account]{
		label("cluster", "", func(a account) string { return a.Cluster }),
		label("node_pool", "", func(a account) string { return a.NodePool }),
		label("node", "", func(a account) string { return a.Node }),
		label("namespace", "", func(a account) string { return a.Namespace }),
		label("group", "", func(a account) string { return a.Group }),
		label("model", "", func(a account) string { return a.Model }),
		name,
		number("gpus", "GPUs", func(a account) float64 { return a.GPUs }, units.GPUs),
		number("hours", "Hours", func(a account) float64 { return a.Hours }, units.Hours),
		{title: "States", number: true, value: func(a account) any { return a.States.Busy / max(a.Hours, 1e-9) },
			drawn: func(a account) template.HTML { return stack(a.States, "mini") }},
	}
	for s := range document.StateCount {
		title := s.Quantity().Word
		if owned && (s == document.Unallocated || s == document.Unavailable || s == document.NotReported) {
			title = "" // always 0
		}
		columns = append(columns, shareOfHours(s.String(), title, func(a account) float64 { return a.States.Of(s) }))
	}
	others := ""
	if owned {
		others = "Used by others"
	}
	columns = append(columns, shareOfHours("used_by_others", others, func(a account) float64 { return a.UsedByOthers }),
		number("beyond_allocation", "", func(a account) float64 { return a.Beyond }, units.Hours),
		number("reclaimable_idle", "Reclaimable, h", func(a account) float64 { return a.Reclaimable }, units.Hours),
		number("coverage", "", func(a account) float64 { return a.Coverage }, units.Ratio))
	energy, cost, reclaimable, shared := "", "", "", ""
	if slices.ContainsFunc(l.accounts, func(a document.Account) bool { return a.SharedCost != nil }) {
		shared = "Shared cost"
	}
	if d.Fleet.EnergyKWh != nil {
		energy = "Energy, kWh"
	}
	if d.Fleet.Cost != nil {
		cost, reclaimable = "Cost", "Reclaimable cost"
	}
	return append(columns,
		optional("energy_kwh", energy, func(a account) *float64 { return a.EnergyKWh }, units.Hours),
		optional("cost", cost, func(a account) *float64 { return a.Cost }, in(d)),
		optional("unused_cost", "", unusedCost, in(d)),
		optional("shared_cost", shared, func(a account) *float64 { return a.SharedCost }, in(d)),
		optional("reclaimable_cost", reclaimable, func(a account) *float64 { return a.ReclaimableCost }, in(d)),
		label("query", "", func(a account) string { return a.Query }))
}

// shareOfHours is a column of hours, of which a reader sees the share.
func shareOfHours(key, title string, of func(account) float64) column[account] {
	return column[account]{key: key, title: title, number: true, text: func(a account) string { return units.Share(of(a), a.Hours) },
		value: func(a account) any { return of(a) }}
}

// workloadColumns are those of the workloads.
func workloadColumns(d *document.Document) []column[workload] {
	unused := ""
	if d.Fleet.Cost != nil {
		unused = "Unused cost"
	}
	beyond := ""
	if slices.ContainsFunc(d.Workloads, func(w document.Workload) bool { return w.MemoryBeyond != nil }) {
		beyond = "Memory beyond allocation"
	}
	return []column[workload]{
		label("cluster", "", func(w workload) string { return w.Cluster }),
		label("namespace", "", func(w workload) string { return w.Namespace }),
		label("group", "", func(w workload) string { return w.Group }),
		label("kind", "", func(w workload) string { return w.Kind }),
		label("workload", "", func(w workload) string { return w.Name }),
		label("", "Workload", func(w workload) string { return w.Namespace + "/" + w.Name }),
		label("model", "Model", func(w workload) string { return w.Model }),
		number("gpus", "GPUs", func(w workload) float64 { return w.GPUs }, units.GPUs),
		number("hours", catalog.Allocated.Word+", h", func(w workload) float64 { return w.Allocated }, units.Hours),
		number("busy", "", func(w workload) float64 { return w.Busy - w.Beyond }, units.Hours),
		optional("busy_mean", catalog.Busy.Word, func(w workload) *float64 { return w.BusyMean }, units.Ratio),
		optional("busy_p95", "P95", func(w workload) *float64 { return w.BusyP95 }, units.Ratio),
		optional("busy_peak", "Peak", func(w workload) *float64 { return w.BusyPeak }, units.Ratio),
		optional("memory_peak_bytes", "Memory peak", func(w workload) *float64 { return w.MemoryPeak }, units.GiB),
		optional("memory_beyond_allocation_bytes", beyond, func(w workload) *float64 { return w.MemoryBeyond }, units.GiB),
		optional("memory_floor_bytes", "", func(w workload) *float64 { return w.MemoryFloor }, units.GiB),
		number("gap", "", func(w workload) float64 { return w.Gap }, units.Hours),
		number("idle", catalog.Idle.Word+", h", func(w workload) float64 { return w.Idle }, units.Hours),
		number("unknown", "", func(w workload) float64 { return w.Unknown }, units.Hours),
		number("used_by_others", "", func(w workload) float64 { return w.UsedByOthers }, units.Hours),
		number("beyond_allocation", "", func(w workload) float64 { return w.Beyond }, units.Hours),
		number("reclaimable_idle", "", func(w workload) float64 { return w.Reclaimable }, units.Hours),
		number("longest_idle", "Longest idle", func(w workload) float64 { return w.LongestIdle }, units.Span),
		{key: "last_busy", value: func(w workload) any { return w.LastBusy }},
		number("", catalog.Unused.Word+", h", func(w workload) float64 { return w.Unused }, units.Hours),
		number("coverage", "", func(w workload) float64 { return w.Coverage }, units.Ratio),
		optional("energy_kwh", "", func(w workload) *float64 { return w.EnergyKWh }, units.Hours),
		optional("cost", "", func(w workload) *float64 { return w.Cost }, in(d)),
		optional("unused_cost", unused, func(w workload) *float64 { return w.UnusedCost }, in(d)),
		{key: "advice", title: "Advice", text: func(w workload) string {
			if w.Advice == "" {
				return "(" + w.NoAdvice + ")"
			}
			return w.Advice
		}, value: func(w workload) any { return w.Advice }},
		label("no_advice", "", func(w workload) string { return w.NoAdvice }),
		label("query", "", func(w workload) string { return w.Query }),
	}
}

// adviceColumns are those of the advice.
func adviceColumns(d *document.Document) []column[advice] {
	saves, month := "", ""
	if d.Fleet.Cost != nil {
		saves, month = "Cost", "Cost per month"
	}
	return []column[advice]{
		label("advice", "", func(a advice) string { return a.Code }),
		label("reason", "", func(a advice) string { return a.Reason }),
		label("cluster", "", func(a advice) string { return a.Cluster }),
		label("namespace", "", func(a advice) string { return a.Namespace }),
		label("node", "", func(a advice) string { return a.Node }),
		label("model", "", func(a advice) string { return a.Model }),
		label("title", "Recommendation", func(a advice) string { return a.Title }),
		label("workload", "For", about),
		label("owner", "Owner", func(a advice) string { return a.Owner }),
		label("evidence", "Reason", func(a advice) string { return a.Evidence }),
		label("saving", "Saves", func(a advice) string { return kindOf(a.Saving) }),
		number("saved_hours", "GPU-hours", func(a advice) float64 { return a.SavedHours }, units.Hours),
		{key: "nodes", value: func(a advice) any { return float64(a.Nodes) }},
		number("cumulated_hours", "Cumulated", func(a advice) float64 { return a.Cumulated }, units.Hours),
		optional("saved_cost", saves, func(a advice) *float64 { return a.SavedCost }, in(d)),
		optional("saved_cost_per_month", month, func(a advice) *float64 { return a.MonthCost }, in(d)),
		label("effort", "Effort", func(a advice) string { return a.Effort }),
		label("replay", "Replay", func(a advice) string { return replayed(a.Replay) }),
		label("risk", "", func(a advice) string { return a.Risk }),
		label("confidence", "Confidence", func(a advice) string { return a.Confidence }),
		{key: "throttled", value: func(a advice) any {
			if a.Replay != nil {
				return a.Replay.Throttled
			}
			return ""
		}},
		{key: "exceeded_later", value: func(a advice) any {
			if a.Validation != nil {
				return a.Validation.Exceeded
			}
			return ""
		}},
		label("query", "", func(a advice) string { return a.Query }),
	}
}

// decisionColumns are those of the first lines of a report.
func decisionColumns() []column[*decision] {
	type row = *decision
	return []column[row]{
		label("", "Decision", func(x row) string { return x.Action }),
		label("", "Owner", func(x row) string { return x.Owner }),
		label("", "Confidence", func(x row) string { return x.sure() }),
		label("", "Per month", func(x row) string { return x.Saves }),
		optional("", "Nodes", func(x row) *float64 {
			if n := float64(x.Nodes); n > 0 {
				return &n
			}
			return nil
		}, units.Whole),
	}
}

// bucketColumns are those of the parts of the trend; hours are those of all states.
func bucketColumns() []column[*document.Bucket] {
	columns := []column[*document.Bucket]{
		{key: "from", value: func(b *document.Bucket) any { return &b.From }},
		number("hours", "", func(b *document.Bucket) float64 { return b.States.Sum() }, units.Hours),
	}
	for s := range document.StateCount {
		columns = append(columns, number(s.String(), "", func(b *document.Bucket) float64 { return b.States.Of(s) }, units.Hours))
	}
	return columns
}

// changeColumns are those of what changed since an earlier report, per day.
func changeColumns(d *document.Document) []column[*document.Change] {
	type row = *document.Change
	titles := [4]string{}
	if d.Fleet.Cost != nil {
		titles = [4]string{"Cost before", "Cost", "Unused cost before", "Unused cost"}
	}
	return []column[row]{
		label("title", "Part", func(x row) string { return x.Name }),
		number("hours_per_day_before", "GPU-hours before", func(x row) float64 { return x.HoursBefore }, units.Hours),
		number("hours_per_day", "GPU-hours", func(x row) float64 { return x.Hours }, units.Hours),
		number("unused_per_day_before", "Unused before", func(x row) float64 { return x.UnusedBefore }, units.Hours),
		number("unused_per_day", "Unused", func(x row) float64 { return x.Unused }, units.Hours),
		optional("cost_per_day_before", titles[0], func(x row) *float64 { return x.CostBefore }, in(d)),
		optional("cost_per_day", titles[1], func(x row) *float64 { return x.Cost }, in(d)),
		optional("unused_cost_per_day_before", titles[2], func(x row) *float64 { return x.UnusedCostBefore }, in(d)),
		optional("unused_cost_per_day", titles[3], func(x row) *float64 { return x.UnusedCost }, in(d)),
	}
}

// pastColumns are those of past reports, outcomeColumns those of what became of their advice.
func pastColumns(d *document.Document) []column[*document.Past] {
	type row = *document.Past
	cost := map[bool]string{true: "Unused cost"}[d.Fleet.Cost != nil]
	return []column[row]{
		{key: "to", title: "Until", text: func(x row) string { return units.Minute(d.Period.In(x.To)) },
			value: func(x row) any { return &x.To }},
		number("hours_per_day", "GPU-hours", func(x row) float64 { return x.Hours }, units.Hours),
		number("unused_per_day", "Unused", func(x row) float64 { return x.Unused }, units.Hours),
		optional("unused_cost_per_day", cost, func(x row) *float64 { return x.UnusedCost }, in(d)),
		number("advice_count", "Recommendations", func(x row) float64 { return float64(x.Advice) }, units.Whole),
	}
}

func outcomeColumns(d *document.Document) []column[*document.Outcome] {
	type row = *document.Outcome
	return []column[row]{
		label("title", "Recommendation", func(x row) string { return x.Title }),
		label("outcome", "Outcome", func(x row) string {
			return x.Outcome + map[string]string{"refuted": " by later demand"}[x.Outcome]
		}),
		{key: "first", title: "First", text: func(x row) string { return units.Minute(d.Period.In(x.First)) },
			value: func(x row) any { return &x.First }},
		number("reports", "Reports", func(x row) float64 { return float64(x.Reports) }, units.Whole),
		label("id", "", func(x row) string { return x.ID }),
	}
}

// projectionColumns are those of what a month costs.
func projectionColumns(d *document.Document) []column[*document.Projection] {
	type row = *document.Projection
	budget, used := "", ""
	if slices.ContainsFunc(d.Projections, func(p document.Projection) bool { return p.Budget != nil }) {
		budget, used = "Budget", "Used of it"
	}
	return []column[row]{
		label("title", "Part", func(p row) string { return p.Name }),
		number("cost_per_month", "Cost", func(p row) float64 { return p.Cost }, in(d)),
		number("unused_cost_per_month", "Unused cost", func(p row) float64 { return p.UnusedCost }, in(d)),
		number("saved_cost_per_month", "Advice saves", func(p row) float64 { return p.Saved }, in(d)),
		optional("budget_per_month", budget, func(p row) *float64 { return p.Budget }, in(d)),
		label("", used, func(p row) string { return ofBudget(d, p) }),
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

// raw writes a value for a program.
func raw(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', 10, 64)
	case *float64:
		if v != nil {
			return raw(*v)
		}
	case *time.Time:
		if v != nil {
			return v.Format(time.RFC3339)
		}
	}
	return ""
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

// lists are the tables of all formats; those without a title are in CSV alone.
func lists(d *document.Document, o Options) []table {
	fleet := level{Key: "fleet", name: func(*document.Account) string { return "" }}
	out := []table{tableOf("fleet", "", accountColumns(d, fleet), []document.Account{d.Fleet})}
	for _, l := range levels(d, o) {
		out = append(out, tableOf(l.Key, l.Title, accountColumns(d, l), l.accounts))
	}
	if o.shows("workload") && len(d.Workloads) > 0 {
		out = append(out, tableOf("workload", "Workloads, largest unused first", workloadColumns(d), d.Workloads))
	}
	out = append(out, tableOf("advice", "Advice", adviceColumns(d), d.Advice), tableOf("trend", "", bucketColumns(), d.Trend))
	if len(d.Projections) > 0 {
		out = append(out, tableOf("projection", "A month at this rate", projectionColumns(d), d.Projections))
	}
	if len(d.Past) > 1 {
		out = append(out, tableOf("past", "Reports so far, per day", pastColumns(d), d.Past))
	}
	if len(d.Outcomes) > 0 {
		out = append(out, tableOf("outcome", "What became of advice", outcomeColumns(d), d.Outcomes))
	}
	if d.Comparison != nil {
		out = append(out, tableOf("change", "Per day, before and now", changeColumns(d), d.Comparison.Changes))
	}
	return out
}
