package dashboards

import "slices"

// Source is where a metric comes from that the catalog does not have.
type Source string

// The sources.
const (
	FromRecordingRule    Source = "recording rule"
	FromKubeStateMetrics Source = "kube-state-metrics"
	FromNodeExporter     Source = "node-exporter"
	FromPrometheus       Source = "Prometheus"
	FromProcess          Source = "the exporter's process"
)

// External is a metric of others that the dashboards may read, with the labels that the dashboards may use.
type External struct {
	Name   string
	Source Source
	Labels []string
}

// Externals lists them. Every one also has what Prometheus adds: job, instance, and cluster where it is set.
func Externals() []External {
	pod := []string{"namespace", "pod", "container", "node"}
	alert := slices.Concat([]string{"alertname", "severity", "node", "uuid", "gpu", "namespace", "pod", "workload_type", "model"},
		alertDetails())
	rows := []External{
		{"ALERTS", FromPrometheus, append([]string{"alertstate"}, alert...)},
		{"ALERTS_FOR_STATE", FromPrometheus, alert},
		{priceSeries, FromRecordingRule, []string{"model"}},
		{"up", FromPrometheus, nil},
		{"scrape_duration_seconds", FromPrometheus, nil},
		{"scrape_samples_scraped", FromPrometheus, nil},
		{"scrape_series_added", FromPrometheus, nil},
		{"process_start_time_seconds", FromProcess, []string{"node"}},
		{"process_cpu_seconds_total", FromProcess, []string{"node"}},
		{"process_resident_memory_bytes", FromProcess, []string{"node"}},
		{"process_open_fds", FromProcess, []string{"node"}},
		{"process_max_fds", FromProcess, []string{"node"}},
		{"go_goroutines", FromProcess, []string{"node"}},
		{"go_gc_duration_seconds_sum", FromProcess, []string{"node"}},
		{"go_gc_duration_seconds_count", FromProcess, []string{"node"}},
		{"promhttp_metric_handler_requests_total", FromProcess, []string{"node", "code"}},
		{"kube_node_status_condition", FromKubeStateMetrics, []string{"node", "condition", "status"}},
		{"kube_node_spec_unschedulable", FromKubeStateMetrics, []string{"node"}},
		{"kube_node_status_allocatable", FromKubeStateMetrics, []string{"node", "resource", "unit"}},
		{"kube_pod_status_phase", FromKubeStateMetrics, []string{"namespace", "pod", "phase"}},
		{"kube_pod_status_unschedulable", FromKubeStateMetrics, []string{"namespace", "pod"}},
		{"kube_pod_container_resource_requests", FromKubeStateMetrics, append([]string{"resource", "unit"}, pod...)},
		{"kube_pod_container_status_restarts_total", FromKubeStateMetrics, pod},
		{"kube_pod_container_status_last_terminated_reason", FromKubeStateMetrics, append([]string{"reason"}, pod...)},
		{"kube_pod_container_status_waiting_reason", FromKubeStateMetrics, append([]string{"reason"}, pod...)},
		{"kube_pod_created", FromKubeStateMetrics, []string{"namespace", "pod"}},
		{"kube_resourcequota", FromKubeStateMetrics, []string{"namespace", "resourcequota", "resource", "type"}},
		{"node_cpu_seconds_total", FromNodeExporter, []string{"node", "cpu", "mode"}},
		{"node_memory_MemAvailable_bytes", FromNodeExporter, []string{"node"}},
		{"node_memory_MemTotal_bytes", FromNodeExporter, []string{"node"}},
		{"node_network_receive_bytes_total", FromNodeExporter, []string{"node", "device"}},
		{"node_network_transmit_bytes_total", FromNodeExporter, []string{"node", "device"}},
	}
	return rows
}
