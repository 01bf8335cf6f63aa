package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// ruleGroups are the groups of a rules file, whoever wrote it.
type ruleGroups struct {
	Groups []struct {
		Name, Interval string
		Rules          []struct {
			Record, Alert, Expr, For string
			KeepFiringFor            string `json:"keep_firing_for"`
			Labels, Annotations      map[string]string
		}
	}
}

func parseRules(t *testing.T, text string) ruleGroups {
	t.Helper()
	var g ruleGroups
	must.OK(t, yaml.UnmarshalStrict([]byte(text), &g))
	return g
}

// rendered are the rules of a render, as either kind.
func (in installed) rules(t *testing.T, kind string) ruleGroups {
	t.Helper()
	for _, o := range in.all {
		if o.Metadata.Name != "gpu-exporter-rules" || o.Kind != kind {
			continue
		}
		var got struct {
			Spec ruleGroups
			Data map[string]string
		}
		unmarshal(t, o, &got)
		if kind == "ConfigMap" {
			return parseRules(t, got.Data["gpu-exporter.rules.yaml"])
		}
		return got.Spec
	}
	t.Fatalf("no rules among %v", in.kinds())
	return ruleGroups{}
}

func same(t *testing.T, got, want ruleGroups) {
	t.Helper()
	if len(got.Groups) != len(want.Groups) {
		t.Fatalf("%d groups, want %d", len(got.Groups), len(want.Groups))
	}
	for i, g := range got.Groups {
		w := want.Groups[i]
		if g.Name != w.Name || g.Interval != w.Interval || len(g.Rules) != len(w.Rules) {
			t.Fatalf("group %s has %d rules, want %s with %d", g.Name, len(g.Rules), w.Name, len(w.Rules))
		}
		for j, r := range g.Rules {
			if !reflect.DeepEqual(r, w.Rules[j]) {
				t.Errorf("the chart has\n%+v\nand the tables\n%+v", r, w.Rules[j])
			}
		}
	}
}

// tables are the rules as the tables of alerts write them.
func tables(t *testing.T, c alerts.Config) ruleGroups {
	t.Helper()
	records, err := c.RecordingRules()
	must.OK(t, err)
	rules, err := c.AlertRules()
	must.OK(t, err)
	return parseRules(t, alerts.RulesFile(append(records, rules...)))
}

// Untouched, the chart's rules are those of the repository's files.
func TestRulesAsShipped(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"PrometheusRule", "ConfigMap"} {
		same(t, install(t, "--set", "rules.kind="+kind).rules(t, kind), tables(t, alerts.Default()))
	}
}

// Every knob does in the chart what it does in the tables.
func TestRulesTurned(t *testing.T) {
	c := alerts.Default()
	c.ClusterLabel, c.RunbookURL, c.DashboardURL, c.Job, c.Resource = "k8s_cluster", "https://wiki.example.com/{alert}",
		"https://grafana.example.com/", "gpus", "nvidia_com_gpu|nvidia_com_mig.*"
	c.Labels = map[string]string{"team": "platform"}
	c.Alerts = map[string]alerts.Override{}
	type turned = map[string]any
	own := turned{}
	for i, a := range alerts.Alerts() {
		o := alerts.Override{Enabled: new(i%3 != 0), For: "7m", KeepFiringFor: "11m", Parameters: map[string]string{},
			Labels: map[string]string{"origin": "chart"}}
		v := turned{"enabled": i%3 != 0, "for": "7m", "keepFiringFor": "11m", "labels": turned{"origin": "chart"}}
		if i%2 == 0 {
			o.Severity = alerts.Info
			v["severity"] = "info"
		}
		for _, k := range a.Parameters {
			if k.Duration > 0 {
				o.Parameters[k.Name] = "1h35m"
				v[k.Name] = "1h35m"
			} else {
				o.Parameters[k.Name] = yamlNumber(t, k.Min)
				v[k.Name] = k.Min
			}
		}
		c.Alerts[a.Name], own[a.Name] = o, v
	}
	text, err := yaml.Marshal(turned{"rules": turned{"kind": "PrometheusRule", "clusterLabel": c.ClusterLabel, "runbookURL": c.RunbookURL,
		"dashboardURL": c.DashboardURL, "job": c.Job, "resource": c.Resource, "alertLabels": c.Labels, "alerts": own}})
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "values.yaml")
	must.OK(t, os.WriteFile(path, text, 0o644))
	same(t, install(t, "-f", path).rules(t, "PrometheusRule"), tables(t, c))
}

// yamlNumber writes a number as the tables read it.
func yamlNumber(t *testing.T, v float64) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	must.OK(t, err)
	return strings.TrimSpace(string(text))
}

// Either half can be left out.
func TestRulesHalves(t *testing.T) {
	for set, want := range map[string][2]bool{"rules.recording=false": {false, true}, "rules.alerting=false": {true, false}} {
		g := install(t, "--set", "rules.kind=PrometheusRule,"+set).rules(t, "PrometheusRule")
		has := func(alert bool) bool {
			for _, g := range g.Groups {
				for _, r := range g.Rules {
					if (r.Alert != "") == alert {
						return true
					}
				}
			}
			return false
		}
		if has(false) != want[0] || has(true) != want[1] {
			t.Errorf("%s: records %v, alerts %v", set, has(false), has(true))
		}
	}
	if slices.ContainsFunc(install(t).kinds(), func(k string) bool { return strings.HasPrefix(k, "PrometheusRule") }) {
		t.Error("a PrometheusRule is rendered for a cluster without that kind")
	}
}
