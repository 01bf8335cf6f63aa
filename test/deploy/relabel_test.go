package deploy_test

import (
	"maps"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// Prometheus, given what the operator knows of a pod, makes of it a target that is called by its node and has nothing of the exporter's own pod.
func TestRelabelled(t *testing.T) {
	for _, kind := range []string{"PodMonitor", "ServiceMonitor"} {
		var m monitor
		unmarshal(t, install(t, "--set", "monitoring.kind="+kind).find(t, kind), &m)
		var rules []*relabel.Config
		for _, r := range append(m.Spec.PodMetricsEndpoints, m.Spec.Endpoints...)[0].Relabelings {
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
			if err := c.Validate(model.UTF8Validation); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			rules = append(rules, &c)
		}
		// Before the monitor's own relabelings the operator sets these.
		b := labels.NewBuilder(labels.FromMap(map[string]string{
			"__address__": "10.0.0.7:10835", "__meta_kubernetes_pod_node_name": "gpu-node-1", "instance": "10.0.0.7:10835", "job": "monitoring/gpu-exporter",
			"namespace": "monitoring", "pod": "gpu-exporter-x7x2z", "container": "gpu-exporter", "endpoint": "metrics", "service": "gpu-exporter",
		}))
		if !relabel.ProcessBuilder(b, rules...) {
			t.Fatalf("%s drops the target", kind)
		}
		own := map[string]string{}
		for name, value := range b.Labels().Map() {
			if name[0] != '_' {
				own[name] = value
			}
		}
		want := map[string]string{"instance": "gpu-node-1", "node": "gpu-node-1", "job": "gpu-exporter"}
		if !maps.Equal(own, want) {
			t.Errorf("%s: the target has %v, want %v", kind, own, want)
		}
	}
}
