package alerts

import "time"

// Severity says who has to act: critical pages somebody, warning opens a ticket, info is for a report.
type Severity string

// The severities.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// Alert is one alerting rule.
type Alert struct {
	Name     string
	Severity Severity
	// Off marks an alert that has to be switched on: what it finds is normal in many places.
	Off bool
	// Needs names what has to be scraped beside the exporter; empty: nothing.
	Needs string
	// Labels are the labels that tell one alert from another, beside the cluster's and severity.
	Labels []string
	// For is how long the expression has to hold; Keep is how long the alert outlives it.
	For, Keep  time.Duration
	Parameters []Parameter
	// Expr is PromQL of Prometheus 2.42 with the cluster's label spelled cluster. $name stands for a knob's
	// value, and $name_seconds for a duration as a number.
	Expr string
	// Summary says what is the matter, without values. Description says where, how much, and what to do.
	Summary, Description string
	Dashboard            Dashboard
}

// Knob is a threshold or a window of an alert that a user may turn.
type Parameter struct {
	Name string
	// Duration is the default of a window. Where it is 0 the knob is the number Number.
	Duration time.Duration
	Number   float64
	// Min and Max bound a number: outside of them the alert could never fire, or never rest.
	Min, Max float64
	Help     string
}

// window and friends are the usual knobs.
func period(d time.Duration, help string) Parameter {
	return Parameter{Name: "period", Duration: d, Help: help}
}

func number(name string, value, least, maximum float64, help string) Parameter {
	return Parameter{Name: name, Number: value, Min: least, Max: maximum, Help: help}
}

// Board is where to look next: a dashboard, and the variables that it takes from the alert's labels of the same names.
type Dashboard struct {
	UID  string
	Vars []string
}

// The dashboards.
const (
	dashboardCapacity  = "gpu-capacity"
	dashboardNode      = "gpu-node"
	dashboardGPU       = "gpu-device"
	dashboardNamespace = "gpu-namespace"
	dashboardWorkload  = "gpu-workload"
	dashboardHealth    = "gpu-health"
	dashboardSharing   = "gpu-sharing"
	dashboardExporter  = "gpu-exporter"
)

// AlertGroup is a rule group: the alerts of one subject.
type AlertGroup struct {
	Name string
	// Title is the subject, for the documentation.
	Title  string
	Alerts []Alert
}

// AlertGroups returns the alerts by subject.
func AlertGroups() []AlertGroup {
	return []AlertGroup{
		{"gpu-exporter-alerts-gpus", "GPUs that are gone or want to be mended", lost()},
		{"gpu-exporter-alerts-errors", "Errors", reported()},
		{"gpu-exporter-alerts-links", "PCIe, NVLink and fabric", links()},
		{"gpu-exporter-alerts-throttling", "Heat and power", throttling()},
		{"gpu-exporter-alerts-waste", "Waste", waste()},
		{"gpu-exporter-alerts-sharing", "Sharing", sharing()},
		{"gpu-exporter-alerts-capacity", "Capacity", capacity()},
		{"gpu-exporter-alerts-exporter", "The exporter itself", exporter()},
	}
}

// Alerts returns the alerts of all groups.
func Alerts() []Alert {
	var all []Alert
	for _, g := range AlertGroups() {
		all = append(all, g.Alerts...)
	}
	return all
}

// The labels of alerts by what they speak of.
var (
	gpuLabels = []string{"node", "uuid", "gpu"}
	podLabels = []string{"node", "namespace", "pod"}
)

const (
	byGPU      = " by (cluster, node, uuid, gpu) "
	byPod      = " by (cluster, node, namespace, pod) "
	onAlloc    = "cluster, node, uuid, namespace, pod"
	hour       = time.Hour
	day        = 24 * hour
	minute     = time.Minute
	minutes5   = 5 * time.Minute
	minutes10  = 10 * time.Minute
	minutes15  = 15 * time.Minute
	minutes30  = 30 * time.Minute
	atGPU      = "GPU {{ $labels.gpu }} of {{ $labels.node }} ({{ $labels.uuid }})"
	atPod      = "{{ $labels.namespace }}/{{ $labels.pod }} on {{ $labels.node }}"
	value3     = `{{ printf "%.3g" $value }}`
	asPercent  = "{{ $value | humanizePercentage }}"
	resourceRE = "nvidia_com_.+"
	jobRE      = ".*gpu-exporter.*"
)

var (
	gpuDashboard  = Dashboard{dashboardGPU, []string{"node", "uuid"}}
	nodeDashboard = Dashboard{dashboardNode, []string{"node"}}
)
