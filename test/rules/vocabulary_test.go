package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/queries"
)

// checker knows every series that rules may read, with its labels: the catalog, the records, and the few of others.
func checker() queries.Checker {
	known := queries.Metrics()
	add := func(name string, labels ...string) { known[name] = known[name].With(labels...) }
	target := []string{"cluster", "job", "instance"}
	add("namespace_workload_pod:kube_pod_owner:relabel", "cluster", "namespace", "workload", "workload_type", "pod")
	add("prometheus_rule_evaluation_failures_total", append(target, "rule_group")...)
	add("kube_pod_resourceclaim_info", append(target, "namespace", "pod", "uid", "claim_name", "resourceclaim_name",
		"resourceclaim_template_name")...)
	add("kube_pod_status_scheduled", append(target, "namespace", "pod", "condition")...)
	add("kube_node_status_capacity", append(target, "node", "resource", "unit")...)
	for _, name := range []string{"kube_pod_container_resource_requests", "kube_pod_status_phase", "kube_pod_status_scheduled"} {
		add(name, "uid")
	}
	for _, d := range catalog.Dimensions() {
		add("kube_"+d.Object+"_labels", append(target, d.Object)...)
		for _, l := range d.Labels {
			add("kube_"+d.Object+"_labels", catalog.KubeStateLabel(l))
		}
	}
	add("gpu_container_allocation_ratio", "exported_pod") // where labels are not honored
	return queries.Checker{Known: known, OneTarget: true, Values: closed()}
}

func words[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// closed are the labels whose values are known, by metric.
func closed() map[string]map[string][]string {
	uses := words(gpu.TimeStates)
	return map[string]map[string][]string{
		"gpu_time_seconds_total":              {"state": uses},
		"gpu_container_unused_seconds_total":  {"state": {"idle", "gap"}},
		"namespace:gpu_unused_seconds:rate5m": {"state": {"idle", "gap"}},
		"model:gpu_time_seconds:rate5m":       {"state": uses},
		"gpu_node_devices":                    {"state": words(gpu.DeviceStates)},
		"gpu_recovery_action":                 {"action": words(gpu.RecoveryActions)},
		"gpu_clock_limited_seconds_total":     {"reason": words(gpu.LimitReasons)},
		"gpu_ecc_errors_total":                {"severity": {string(gpu.ECCCorrected), string(gpu.ECCUncorrected)}},
		"gpu_row_remap_banks":                 {"availability": words(gpu.BankAvailabilities)},
		"gpu_nvlink_errors_total":             {"kind": words(gpu.NVLinkErrors)},
		"gpu_nvlink_links":                    {"state": {"up", "down"}},
		"gpu_fabric_state":                    {"state": words(gpu.FabricStates)},
		"gpu_fabric_fault":                    {"fault": words(gpu.FabricFaults)},
		"gpu_temperature_celsius":             {"sensor": {string(gpu.SensorGPU), string(gpu.SensorMemory)}},
		"gpu_temperature_limit_celsius": {"sensor": {string(gpu.SensorGPU), string(gpu.SensorMemory)},
			"limit": {string(gpu.LimitSlowdown), string(gpu.LimitShutdown), string(gpu.LimitMaxOperating)}},
		"gpu_clock_hertz":     {"clock": words(gpu.Clocks)},
		"gpu_clock_max_hertz": {"clock": words(gpu.Clocks)},
		"gpu_exporter_source_up": {"source": {gpu.SourceNVML, gpu.SourceKmsg, gpu.SourceEvents, gpu.SourcePodResources,
			gpu.SourceSlices}},
	}
}

// read returns the labels of a query's result; what is wrong is an error of the test.
func read(t *testing.T, what, query string) []string {
	t.Helper()
	out, err := checker().Answer(query)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return slices.Sorted(slices.Values(out))
}

// Every metric, label and label value of every rule exists, and every result has the labels that the table promises.
func TestRulesSpeakOfWhatExists(t *testing.T) {
	same := func(what string, got, promised []string) {
		t.Helper()
		want := append([]string{"cluster"}, promised...)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the result has the labels %v, and the table promises %v", what, got, want)
		}
	}
	records, err := everything().RecordingRules()
	must.OK(t, err)
	promised := map[string][]string{}
	for _, r := range alerts.Records() {
		promised[r.Name] = r.Labels
	}
	for _, g := range records {
		for _, r := range g.Rules {
			same(r.Record, read(t, r.Record, r.Expr), promised[r.Record])
		}
	}
	for name, r := range bare(t, everything()) {
		same(name, read(t, name, r.Expr), find(t, name).Labels)
	}
}

// A record reads only records that stand before it, in its own group or another.
func TestRecordsReadThoseBefore(t *testing.T) {
	group, all := map[string]string{}, map[string]bool{}
	for _, r := range alerts.Records() {
		all[r.Name] = true
	}
	seen := map[string]bool{}
	for _, g := range alerts.Groups() {
		for _, r := range g.Records {
			e, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			must.OK(t, err)
			parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
				if v, is := n.(*parser.VectorSelector); is && all[v.Name] && !seen[v.Name] {
					t.Errorf("%s reads %s, which is recorded later", r.Name, v.Name)
				}
				return nil
			})
			seen[r.Name] = true
			group[r.Name] = g.Name
		}
	}
}

// The cases' series are such as somebody exposes, with their labels.
func TestCasesSpeakOfWhatExists(t *testing.T) {
	known := checker().Known
	for name, list := range cases(t) {
		for _, s := range list {
			for _, in := range s.inputs("") {
				metric, rest, _ := strings.Cut(in[0], "{")
				if known[metric] == nil {
					t.Errorf("%s: %q feeds %s, which does not exist", name, s.name, metric)
				}
				for _, p := range labelPairs(strings.TrimSuffix(rest, "}")) {
					if !slices.Contains(known[metric], p.Name) {
						t.Errorf("%s: %q feeds %s with a label %s that it does not have", name, s.name, metric, p.Name)
					}
				}
			}
		}
	}
}

func TestUnknownValuesAreFound(t *testing.T) {
	if _, err := checker().Answer(`gpu_time_seconds_total{state=~"busy|lazy"}`); err == nil || !strings.Contains(err.Error(),
		`no value "lazy"`) {
		t.Error(err)
	}
}
