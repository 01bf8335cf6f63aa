package report

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// The names of what is read. A test holds them against the rules and the catalog.
const (
	ruleGPUs   = "node:gpu_time_seconds:rate5m"
	ruleCount  = "node:gpu_device_up:count"
	rulePower  = "node:gpu_power_watts:sum"
	ruleFaults = "node:gpu_problems:count"
	ruleFree   = "node:gpu_free_devices:sum"
	ruleXIDs   = "node:gpu_xid_events:increase5m"
	ruleWaits  = "namespace:gpu_requests_pending:sum"

	ruleHeld     = "workload:gpu_allocated_seconds:rate5m"
	ruleBusy     = "workload:gpu_busy_seconds:rate5m"
	ruleObserved = "workload:gpu_observed_seconds:rate5m"
	ruleUnused   = "workload:gpu_unused_seconds:rate5m"
	ruleWatts    = "workload:gpu_power_watts:sum"
	ruleMemory   = "workload:gpu_memory_used_bytes:max"
	ruleMost     = "workload:gpu_busy:ratio_max"
	ruleLast     = "workload:gpu_last_busy_timestamp_seconds:max"
	rulePods     = "workload:gpu_pods:count"
	ruleOwners   = "pod:gpu_workload:info"

	rawGPUs         = "gpu_time_seconds_total"
	rawUp           = "gpu_device_up"
	rawEnergy       = "gpu_energy_joules_total"
	rawPower        = "gpu_power_watts"
	rawInfo         = "gpu_info"
	rawTotal        = "gpu_memory_total_bytes"
	rawUnattributed = "gpu_unattributed_busy_seconds_total"
	rawVersion      = "gpu_exporter_build_info"
	rawXID          = "gpu_xid_events_total"
	rawPeak         = "gpu_utilization_peak_ratio"
	rawMinute       = "gpu_utilization_ratio"

	rawHeld       = "gpu_container_allocated_seconds_total"
	rawBusy       = "gpu_container_busy_seconds_total"
	rawObserved   = "gpu_container_observed_seconds_total"
	rawUnused     = "gpu_container_unused_seconds_total"
	rawJoules     = "gpu_container_energy_joules_total"
	rawMemory     = "gpu_container_memory_used_bytes"
	rawAllocation = "gpu_container_allocation_ratio"
	rawLast       = "gpu_container_last_busy_timestamp_seconds"
	rawPods       = "gpu_pod_info"

	kubeOwners = "namespace_workload_pod:kube_pod_owner:relabel"
	kubeLabels = "kube_node_labels"
)

// language writes PromQL with the same extra matchers in every selector.
type language struct {
	match   string // such as cluster="prod", or empty
	cluster string // the label that names the cluster
}

// sel is a selector of one metric.
func (l language) sel(metric string, matchers ...string) string {
	all := matchers
	if l.match != "" {
		all = append(all, l.match)
	}
	if len(all) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(all, ", ") + "}"
}

// any is a selector of several metrics by name, as one question.
func (l language) any(metrics []string, matchers ...string) string {
	return l.sel("", append([]string{`__name__=~"` + strings.Join(metrics, "|") + `"`}, matchers...)...)
}

// in matches a namespace.
func in(namespace string) string { return "namespace=" + prom.Quote(namespace) }

func (l language) by(op string, expr string, labels ...string) string {
	return fmt.Sprintf("%s by (%s) (%s)", op, strings.Join(append([]string{l.cluster}, labels...), ", "), expr)
}

// withModel joins the GPU's model as the recording rules do.
func (l language) withModel(devs string) string {
	on := l.cluster + ", node, uuid"
	return fmt.Sprintf("(%s) * on (%s) group_left (model) (max by (%s, model) (last_over_time(%s[10m])) or on (%s) group by (%s) (last_over_time(%s[10m])))",
		devs, on, on, l.sel(rawInfo), on, on, l.sel(rawGPUs, `state="busy"`))
}

// onHolding are the labels of a pod on a GPU.
var onAlloc = []string{"node", "uuid", "namespace", "pod"}

func (l language) rate(metric string, matchers ...string) string {
	return "rate(" + l.sel(metric, matchers...) + "[5m])"
}

// promVersion collects the label version.
func promVersion(seen map[string]bool) func(prom.Labels, span, float64) {
	return func(l prom.Labels, _ span, _ float64) {
		if v := l.Get("version"); v != "" {
			seen[v] = true
		}
	}
}
