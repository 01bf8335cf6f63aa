package deploy_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The labels of a pod, relabeled by Prometheus, become a target named after its node, without labels of the exporter's
// own pod.
func TestRelabelled(t *testing.T) {
	t.Parallel()
	const node, job = "gpu-node-1", "gpu-exporter"
	for _, c := range []struct {
		set  string
		want []map[string]string // by endpoint
	}{
		{"monitoring.kind=PodMonitor", []map[string]string{{"instance": node, "node": node, "job": job}}},
		{"monitoring.kind=ServiceMonitor", []map[string]string{{"instance": node, "node": node, "job": job}}},
		{"monitoring.kind=PodMonitor,compat.release=dcgm-4.8",
			[]map[string]string{{"instance": node, "node": node, "job": job}, {"instance": node, "node": node, "job": "dcgm-compat"}}},
		// dcgm-exporter's dashboards query the workload as exported_pod, because pod is the exporter's there.
		{"monitoring.kind=ServiceMonitor,compat.release=dcgm-4.8,compat.job=nvidia-dcgm-exporter,compat.honorLabels=false",
			[]map[string]string{{"instance": node, "node": node, "job": job},
				{"instance": node, "node": node, "job": "nvidia-dcgm-exporter", "namespace": "monitoring", "pod": "gpu-exporter-x7x2z",
					"container": "gpu-exporter", "endpoint": "metrics", "service": "gpu-exporter"}}},
	} {
		kind, _, _ := strings.Cut(strings.TrimPrefix(c.set, "monitoring.kind="), ",")
		var m monitor
		unmarshal(t, install(t, "--set", c.set).find(t, kind), &m)
		var got []map[string]string
		for _, e := range m.endpoints() {
			got = append(got, relabelled(t, e))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the targets have %v, want %v", c.set, got, c.want)
		}
	}
}

// relabelled are the labels of an endpoint's target on one node.
func relabelled(t *testing.T, e endpoint) map[string]string {
	t.Helper()
	var rules []*relabel.Config
	for _, r := range e.Relabelings {
		c := relabel.DefaultRelabelConfig
		c.NameValidationScheme = model.UTF8Validation
		for _, s := range r.SourceLabels {
			c.SourceLabels = append(c.SourceLabels, model.LabelName(s))
		}
		if r.Action != "" {
			c.Action = relabel.Action(r.Action)
		}
		if r.Regex != "" {
			c.Regex = relabel.MustNewRegexp(r.Regex)
		}
		if r.Replacement != "" {
			c.Replacement = r.Replacement
		}
		c.TargetLabel = r.TargetLabel
		must.OK(t, c.Validate(model.UTF8Validation))
		rules = append(rules, &c)
	}
	// Before the monitor's own relabelings the operator sets these.
	b := labels.NewBuilder(labels.FromMap(map[string]string{
		"__address__": "10.0.0.7:10835", "__meta_kubernetes_pod_node_name": "gpu-node-1", "instance": "10.0.0.7:10835",
		"job":       "monitoring/gpu-exporter",
		"namespace": "monitoring", "pod": "gpu-exporter-x7x2z", "container": "gpu-exporter", "endpoint": "metrics",
		"service": "gpu-exporter",
	}))
	if !relabel.ProcessBuilder(b, rules...) {
		t.Fatal("the target is dropped")
	}
	own := map[string]string{}
	for name, value := range b.Labels().Map() {
		if name[0] != '_' {
			own[name] = value
		}
	}
	return own
}
