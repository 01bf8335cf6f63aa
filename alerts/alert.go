package alerts

import "time"

// Severity is when a person has to act: critical now, warning in working hours, info never by itself.
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
	// Off marks an alert that has to be enabled: in many places its condition is normal.
	Off bool
	// Needs names what has to be scraped beside the exporter; empty: nothing.
	Needs string
	// Labels identify an alert, beside the cluster's label and severity.
	Labels []string
	// For and Keep are the rule's for and keep_firing_for.
	For, Keep  time.Duration
	Parameters []Parameter
	// Expr is PromQL of Prometheus 2.42 with the cluster label cluster. $name stands for the value of a parameter,
	// $name_seconds for a duration in seconds.
	Expr string
	// Summary is the problem, without values. Description is where, how much, and what to do.
	Summary, Description string
	Dashboard            Dashboard
}

// Parameter is a threshold or a period of an alert that a user may change.
type Parameter struct {
	Name string
	// Duration is the default of a period; if 0, the parameter is the number Number.
	Duration time.Duration
	Number   float64
	// Min and Max bound a number: outside of them the alert would never fire, or never resolve.
	Min, Max float64
	Help     string
}

// period is the usual parameter for a lookback.
func period(d time.Duration, help string) Parameter {
	return Parameter{Name: "period", Duration: d, Help: help}
}

func number(name string, value, least, maximum float64, help string) Parameter {
	return Parameter{Name: name, Number: value, Min: least, Max: maximum, Help: help}
}

// Dashboard is where to look next: its UID, and the variables that are set from the alert's labels of the same names.
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
	Title string
	// Interval is how often the group is evaluated; 0: as often as the server does by default.
	Interval time.Duration
	Alerts   []Alert
}

// The labels of alerts about GPUs and pods.
var (
	gpuLabels = []string{"node", "uuid", "gpu"}
	podLabels = []string{"node", "namespace", "pod"}
)

const (
	byGPU     = " by (cluster, node, uuid, gpu) "
	byPod     = " by (cluster, node, namespace, pod) "
	onAlloc   = "cluster, node, uuid, namespace, pod"
	hour      = time.Hour
	day       = 24 * hour
	minute    = time.Minute
	minutes5  = 5 * time.Minute
	minutes10 = 10 * time.Minute
	minutes15 = 15 * time.Minute
	minutes30 = 30 * time.Minute
	// A GPU that the driver did not initialize has no index, and its PCI address for a UUID.
	atGPU = "GPU {{ if $labels.gpu }}{{ $labels.gpu }} of {{ $labels.node }} ({{ $labels.uuid }})" +
		"{{ else }}{{ $labels.uuid }} of {{ $labels.node }}{{ end }}"
	atPod      = "{{ $labels.namespace }}/{{ $labels.pod }} on {{ $labels.node }}"
	value3     = `{{ printf "%.3g" $value }}`
	asPercent  = "{{ $value | humanizePercentage }}"
	resourceRE = "nvidia_com_.+"
	jobRE      = "(.+/)?gpu-exporter"
)

var (
	byGPUAnd      = func(label string) string { return " by (cluster, node, uuid, gpu, " + label + ") " }
	gpuDashboard  = Dashboard{dashboardGPU, []string{"node", "uuid"}}
	nodeDashboard = Dashboard{dashboardNode, []string{"node"}}
)
