package rules_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// What is set up wrong beside two healthy nodes raises one alert that names it, and nothing else.
func TestMisconfigurations(t *testing.T) {
	records, err := everything().RecordingRules()
	must.OK(t, err)
	alerting, err := everything().AlertRules()
	must.OK(t, err)
	rename := func(series map[string]float64, old, replacement string) {
		for _, name := range slices.Collect(maps.Keys(series)) {
			if strings.Contains(name, old) {
				series[strings.ReplaceAll(name, old, replacement)] = series[name]
				delete(series, name)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(series map[string]float64)
		// records end after so many minutes; 0 is never.
		end  int
		want []string
	}{
		"nothing":                            {},
		"the recording rules are not loaded": {end: -1, want: []string{"GPURecordsAbsent"}},
		"the recording rules fail since half an hour": {end: 45, want: []string{"GPURecordsAbsent"}},
		"the job has another name": {func(s map[string]float64) { rename(s, `job="gpu-exporter"`, `job="gpu-metrics"`) }, 0,
			[]string{"GPUExporterAbsent"}},
		"kube-state-metrics is not scraped": {func(s map[string]float64) {
			maps.DeleteFunc(s, func(name string, _ float64) bool { return strings.HasPrefix(name, "kube_") })
		}, 0, nil},
		"one node is scraped twice": {func(s map[string]float64) {
			for name, v := range maps.Clone(s) {
				if strings.Contains(name, `node="n1"`) && strings.HasPrefix(name, "gpu_device_up{") {
					s[withLabel(name, `job="annotations"`)] = v
				}
			}
		}, 0, []string{"GPUScrapeMisconfigured"}},
		"labels are not honored": {func(s map[string]float64) {
			for name, v := range maps.Clone(s) {
				if strings.HasPrefix(name, "gpu_container_allocation_ratio{") && strings.Contains(name, `node="n1"`) {
					delete(s, name)
					s[strings.NewReplacer(`pod="`, `exported_pod="`, `namespace="`, `namespace="monitoring",pod="x",exported_namespace="`).
						Replace(name)] = v
				}
			}
		}, 0, []string{"GPUScrapeMisconfigured"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			series := page(t)
			for _, n := range []string{"n1", "n2"} {
				series[`up{job="gpu-exporter",instance="`+n+`"}`] = 1
				series[`gpu_exporter_build_info{job="gpu-exporter",node="`+n+`",version="1"}`] = 1
				series[`kube_node_status_condition{node="`+n+`",condition="Ready",status="true"}`] = 1
			}
			if c.change != nil {
				c.change(series)
			}
			got := map[string]int{}
			for _, a := range constant(t, series, records, alerting, c.end) {
				got[a.Get("alertname")]++
			}
			if want := slices.Sorted(slices.Values(c.want)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				t.Errorf("fires %v, want one of %v", got, want)
			}
			for alert, n := range got {
				if n != 1 {
					t.Errorf("%s fires %d times", alert, n)
				}
			}
		})
	}
}

// constant evaluates the rules over series that do not change, and returns what fires after eighty minutes.
func constant(t *testing.T, series map[string]float64, records, alerting []alerts.RuleGroup, end int) (firing []labels.Labels) {
	t.Helper()
	const step, minutes = 2, 80
	server := replay.WithRules(t, append(slices.Clone(records), alerting...))
	p := parser.NewParser(parser.Options{})
	parsed := make([]labels.Labels, 0, len(series))
	values := make([]float64, 0, len(series))
	for name, v := range series {
		l, err := p.ParseMetric(name)
		must.OK(t, err)
		parsed, values = append(parsed, l), append(values, v)
	}
	for minute := 0; minute <= minutes; minute += step {
		at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		app := server.DB.Appender(t.Context())
		for i, l := range parsed {
			if _, err := app.Append(0, l, at.UnixMilli(), values[i]); err != nil {
				t.Fatalf("%s: %v", l, err)
			}
		}
		must.OK(t, app.Commit())
		for i, g := range server.Groups {
			if i >= len(records) || end == 0 || minute < end {
				g.Eval(t.Context(), at)
			}
			for _, r := range g.Rules() {
				if r.LastError() != nil {
					t.Fatalf("%s: %v", r.Name(), r.LastError())
				}
				if alert, is := r.(*rules.AlertingRule); is && minute == minutes {
					for _, a := range alert.ActiveAlerts() {
						if a.State == rules.StateFiring {
							firing = append(firing, a.Labels)
						}
					}
				}
			}
		}
	}
	return firing
}
