package dashboards

import "strings"

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

// xids counts the driver's errors over a window. A code that was never seen before has no increase at its first
// event, because its series begins at 1.
func xids(selector, window string) string {
	x := "gpu_xid_events_total{" + selector + "}"
	return "increase(" + x + "[" + window + "]) > 0 or (" + x + " > 0 unless " + x + " offset " + window + ")"
}

// spread shows a value of each exporter as two lines, however many exporters there are.
func spread(expr string) []Query {
	return []Query{q("maximum", "max("+expr+")"), q("median", "quantile(0.5, "+expr+")")}
}

// firing counts the firing alerts that match.
func firing(by string, matchers ...string) string {
	m := append([]string{`alertname=~"GPU.*"`, `alertstate="firing"`}, matchers...)
	if by == "" {
		return "count(ALERTS{" + strings.Join(m, ", ") + "})"
	}
	return "count by (" + by + ") (ALERTS{" + strings.Join(m, ", ") + "})"
}

// alertTable lists what fires.
func alertTable(width int, matchers ...string) Panel {
	return table(width, "Firing GPU alerts", "Severity",
		"Firing alerts of the shipped rules. Empty: none is firing, or the rules are not loaded.",
		label("severity", "Severity").mapped(Mapping{"critical", "critical", Red}, Mapping{"warning", "warning", Amber},
			Mapping{"info", "info", Blue}),
		label("alertname", "Alert"), label("node", "Node"), label("gpu", "GPU"), label("namespace", "Namespace"),
		label("pod", "Pod"),
		value("Alerts", Number, firing("severity, alertname, node, gpu, namespace, pod", matchers...)))
}

// hours integrates a recording rule of a five-minute rate over the range that is shown, in hours: one value for
// each five minutes, so that nothing is counted twice and what was absent counts nothing.
func hours(record string) string { return "sum_over_time(" + record + "[$__range:5m]) / 12" }

// kept integrates a record of half hours, which has one sample for each, over the range that is shown, in hours.
func kept(record string) string { return "sum_over_time(" + record + "[$__range]) / 3600" }

// events sums a recording rule of five-minute increases over the range that is shown.
func events(record string) string { return "sum_over_time(" + record + "[$__range:5m])" }
