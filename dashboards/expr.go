package dashboards

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// The labels that identify GPUs, containers and MIG instances, always with the cluster: where series have none, it is
// absent on both sides.
const (
	perGPU       = "cluster, node, uuid, gpu"
	perContainer = "cluster, node, uuid, gpu, namespace, pod, container"
	perInstance  = "cluster, node, uuid, gpu, mig_uuid, gi, profile"
	gpuName      = "{{node}} GPU {{gpu}}"
)

// perSecond is the rate of a counter, summed by the labels.
func perSecond(by, series string) string {
	return total(by, "rate("+series+"[$__rate_interval])")
}

// share is one counter of seconds over another: the exact mean over the interval. Without an increase of the
// denominator there is no value.
func share(by, part, whole string) string {
	return perSecond(by, part) + " / (" + perSecond(by, whole) + " > 0)"
}

// rawBusy is the utilization of GPUs.
func rawBusy(by, selector string) string {
	return share(by, "gpu_busy_seconds_total{"+selector+"}", "gpu_observed_seconds_total{"+selector+"}")
}

// profiled is a counter of GPM over the time that was profiled.
func profiled(by, what, selector string) string {
	return share(by, "gpu_"+what+"_seconds_total{"+selector+"}", "gpu_profiled_seconds_total{"+selector+"}")
}

// most is the largest value by the labels: for series that may come from two targets at once.
func maximum(by, expr string) string { return "max by (" + by + ") (" + expr + ")" }

// total is the sum by the labels.
func total(by, expr string) string {
	if by == "" {
		return "sum(" + expr + ")"
	}
	return "sum by (" + by + ") (" + expr + ")"
}

// over is one gauge over another, both summed first: a ratio of sums, never a mean of ratios.
func over(by, part, whole string) string { return total(by, part) + " / " + total(by, whole) }

// orZero is 0 where the expression is empty and the presence has data. Where both are empty, so is the panel: an
// exporter or a rule that died must not look calm.
func orZero(expr, presence string) string { return expr + " or 0 * max(" + presence + ")" }

// records reads a recording rule with the dashboard's matchers.
func records(name, selector string, matchers ...string) string {
	return name + "{" + strings.Join(append([]string{selector}, matchers...), ", ") + "}"
}

// orZeroBy is orZero for each group of labels.
func orZeroBy(by, expr, presence string) string { return expr + " or 0 * " + maximum(by, presence) }

// xids counts the driver's errors over a window: the difference of the counter. The first event of a code is no
// increase, because its series begins at 1: it counts if the node was scraped before. Where the counter restarted, or
// its beginning was not scraped, increase knows better.
func xids(selector, window string) string {
	x := "gpu_xid_events_total{" + selector + "}"
	return "((" + x + " - " + x + " offset " + window + " or " + x + " and on (cluster, node, uuid) gpu_device_up{" +
		selector + "} offset " + window + ") unless resets(" + x + "[" + window + "]) > 0 or round(increase(" + x + "[" +
		window + "]))) > 0"
}

// spread shows a value of each exporter as two lines, however many exporters there are.
func spread(expr string) []Query {
	return []Query{q("maximum", "max("+expr+")"), q("median", "quantile(0.5, "+expr+")")}
}

// firingAlerts are the firing alerts of the shipped rules that match.
func firingAlerts(matchers ...string) string {
	return "ALERTS{" + strings.Join(append([]string{`alertname=~"GPU.*"`, `alertstate="firing"`}, matchers...), ", ") + "}"
}

// firing counts them.
func firing(by string, matchers ...string) string {
	if by == "" {
		return "count(" + firingAlerts(matchers...) + ")"
	}
	return "count by (" + by + ") (" + firingAlerts(matchers...) + ")"
}

// severities are the alerts' severities, worst first, with the number by which tables sort them.
func severities() []Mapping {
	return []Mapping{{"3", "critical", Red}, {"2", "warning", Amber}, {"1", "info", Blue}}
}

// alertCounts are the firing alerts by severity; presence has data while the rules could fire.
func alertCounts(width int, presence string, matchers ...string) Panel {
	p := stat(width, "Alerts firing", Number, "", "Firing alerts of the shipped rules, by severity.")
	p.queries, p.names, p.seriesSteps = nil, "value_and_name", map[string][]Step{}
	for _, s := range severities() {
		p.queries = append(p.queries, q(s.Text, orZero(firing("", append(matchers, `severity="`+s.Text+`"`)...), presence)))
		p.seriesSteps[s.Text] = []Step{base(Gray), step(1e-9, s.Color)}
	}
	return p
}

// alertDetails are the labels of alerts that their table has no column for. Without them alerts of two codes would be one
// row, and one about a resource would not show which.
func alertDetails() []string {
	return []string{"xid", "state", "problem", "kind", "only", "reason", "source", "sensor", "resource", "call", "code",
		"quantity", "container", "workload", "instance"}
}

// alertTable lists what fires, the most severe first.
func alertTable(width int, matchers ...string) Panel {
	const by = "cluster, alertname, node, gpu, uuid, namespace, pod, workload, detail"
	m := strings.Join(append([]string{`alertname=~"GPU.*"`}, matchers...), ", ")
	detailed := func(op, expr string) string {
		return op + " by (" + by + ") (label_replace(label_join(" + expr + `, "detail", " ", "` + strings.Join(alertDetails(), `", "`) +
			`"), "detail", "$1", "detail", " *(.*?) *"))`
	}
	var rank []string
	for _, s := range severities() {
		rank = append(rank, s.Value+` * ALERTS{`+m+`, alertstate="firing", severity="`+s.Text+`"}`)
	}
	return table(width, "Firing GPU alerts", "-Severity",
		"Firing alerts of the shipped rules, the most severe first; click an alert for its runbook. Detail: what the alert is "+
			"about beside the GPU or pod, such as the XID, resource or data source. Empty: none is firing, or the rules are not loaded.",
		value("Severity", Plain, detailed("max", strings.Join(rank, " or "))).mapped(severities()...).wide(90),
		label("alertname", "Alert").to(Link{UID: runbooks, Title: "Open the runbooks"}).atLeast(265),
		label("node", "Node").to(toNode()),
		label("gpu", "GPU").to(toGPU()).wide(60), label("namespace", "Namespace").to(toNamespace()),
		label("pod", "Pod").to(toPod()).wide(200), label("detail", "Detail").wide(175),
		value("Since", When, "1000 * "+detailed("min", "ALERTS_FOR_STATE{"+m+"} and ignoring (alertstate) ALERTS{"+m+
			`, alertstate="firing"}`)).wide(130),
		label("uuid", "UUID").hide()).called("No alert is firing, or the alert rules are not loaded.")
}

// stateTiles are the six states of GPU-time, in their order and colors: with their total, a row that adds up.
func stateTiles(width int, unit Unit, digits int, what string, expr func(matcher string) string) []Panel {
	var out []Panel
	for _, s := range catalog.TimeStates() {
		out = append(out, stat(width, s.Word, unit, expr(`state="`+string(s.State)+`"`),
			what+" "+s.Sentence()).digits(digits).at(base(s.Color)))
	}
	return out
}

// stateQueries are the six states for a stack: a query each, because a stack has the order of its queries.
func stateQueries(expr func(matcher string) string) []Query {
	var out []Query
	for _, s := range catalog.TimeStates() {
		out = append(out, q(s.Lower(), expr(`state="`+string(s.State)+`"`)))
	}
	return out
}

// topSeries is a stack of the twenty largest at the end of the range, and of all others together. The choice is made
// once for the range: topk alone would choose others at each step.
func topSeries(width int, title string, unit Unit, by, record, help string) Panel {
	largest := " on (" + by + ") topk(20, " + total(by, "last_over_time("+record+"[5m] @ end())") + ")"
	legend := "{{" + strings.ReplaceAll(strings.TrimPrefix(by, "cluster, "), ", ", "}}/{{") + "}}"
	return series(width, title, unit, help+" The twenty largest now; the rest are others.",
		q(legend, total(by, record+" and"+largest)), q("others", total("", record+" unless"+largest)+" > 1e-9")).
		stacked().from(0).coarse(288)
}

// hours integrates a recording rule of a five-minute rate over the range that is shown, in hours: one value for
// each five minutes, so that nothing is counted twice and what was absent counts nothing.
func hours(record string) string { return "sum_over_time(" + record + "[$__range:5m]) / 12" }

// kept integrates a record of half hours, which has one sample for each, over the range that is shown, in hours.
func kept(record string) string { return "sum_over_time(" + record + "[$__range]) / 3600" }

// priceSeries is the price of a GPU-hour by model, from the values of the rules.
const priceSeries = "model:gpu_hour_price:info"

// priced is GPU-hours by the labels, in money: what has no price costs nothing and is not part of it.
func priced(by, hours string) string {
	with := strings.TrimPrefix(by+", model", ", ")
	return total(by, "("+total(with, hours)+") * on (model) group_left () "+maximum("model", priceSeries))
}

// busyOfMeasured is catalog.BusyOfMeasured of what a level has in its records, each read by a function of the record.
func busyOfMeasured(level, by string, read func(metric string) string) string {
	return total(by, read(level+":gpu_busy_seconds")) + " / (" + total(by, read(level+":gpu_measured_seconds")) + " > 0)"
}

// busyNow is that of the last five minutes.
func busyNow(level, by, selector string) string {
	return busyOfMeasured(level, by, func(metric string) string { return records(metric+":rate5m", selector) })
}

// measured is that of workloads in the range, and unmeasured the GPU-hours that were not measured: a container in MIG before
// Hopper has no activity, which is neither busy nor unused.
func measured(by, selector string) string {
	return busyOfMeasured("workload", by, func(metric string) string { return kept(records(metric+":increase30m", selector)) })
}

// notWellUsed leaves out the workloads whose Busy of measured is too high to be in a list of waste.
func notWellUsed(by, busyOfMeasured string) string {
	return fmt.Sprintf(" unless on (%s) %s > %g", by, busyOfMeasured, catalog.WellUsed)
}

func unmeasured(by, selector string) string {
	of := func(metric string) string {
		return total(by, kept(records("workload:gpu_"+metric+"_seconds:increase30m", selector)))
	}
	allocated := of("allocated")
	return "clamp_min(" + allocated + " - (" + of("busy") + " + " + of("unused") + " or 0 * " + allocated + "), 0)"
}

// events sums a recording rule of five-minute increases over the range that is shown.
func events(record string) string { return "sum_over_time(" + record + "[$__range:5m])" }
