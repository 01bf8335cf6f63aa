package replay_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// page queries panels of the shipped dashboards over series that are written by hand.
type page struct {
	*testing.T
	server *replay.Server
	boards map[string]dashboard.Dashboard
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func newPage(t *testing.T) page {
	t.Helper()
	all, err := dashboard.LoadAll(filepath.Join("..", "..", "..", "dashboards"))
	must.OK(t, err)
	boards := map[string]dashboard.Dashboard{}
	for _, d := range all {
		boards[d.UID] = d
	}
	return page{t, replay.WithRules(t, nil), boards}
}

// put writes one sample of each series, which are pairs of a name and of a value of a label.
func (p page) put(at time.Time, series ...[]string) {
	p.Helper()
	err := p.server.Scrape(p.Context(), at.String(), at, func(put func(labels.Labels, float64)) {
		for _, s := range series {
			value := 1.0
			if s[0] == "" { // a series of value 0
				value, s = 0, s[1:]
			}
			put(labels.FromStrings(append([]string{"__name__"}, s...)...), value)
		}
	})
	if err != nil {
		p.Fatal(err)
	}
}

// rows is the result of one query of a panel at noon.
func (p page) rows(uid, title, ref string, values dashboard.Values) promql.Vector {
	p.Helper()
	d := p.boards[uid]
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if panel.Title != title || target.RefID != ref {
				continue
			}
			expr, err := d.Fill(target.Expr, values, dashboard.Window{From: noon.Add(-time.Hour), To: noon, Step: time.Minute,
				Scrape: time.Minute})
			if err != nil {
				p.Fatal(err)
			}
			v, err := p.server.Query(p.Context(), expr, noon)
			if err != nil {
				p.Fatal(err)
			}
			return v
		}
	}
	p.Fatalf("%s has no panel %s with a query %s", uid, title, ref)
	return nil
}

// Each firing alert is a row of its own, which shows what it is about: two XIDs of a GPU are two rows.
func TestEachAlertIsARow(t *testing.T) {
	p := newPage(t)
	// No column shows these: the target and the model of what the row names, and the kind of its workload.
	unseen := []string{"job", "model", "workload_type"}
	want := map[string]bool{}
	var series [][]string
	for _, a := range alerts.Alerts() {
		ofAlert := []string{"alertname", a.Name, "severity", string(a.Severity)}
		for _, l := range a.Labels {
			ofAlert = append(ofAlert, l, l+" of "+a.Name)
		}
		for _, differs := range append([]string{""}, a.Labels...) {
			if slices.Contains(unseen, differs) {
				continue
			}
			one := slices.Clone(ofAlert)
			key := a.Name
			for i := 4; i < len(one); i += 2 {
				if one[i] == differs {
					one[i+1] = "another " + one[i+1]
				}
				if !slices.Contains(unseen, one[i]) {
					key += ", " + one[i+1]
				}
			}
			want[key] = true
			series = append(series, append([]string{"ALERTS", "alertstate", "firing"}, one...),
				append([]string{"ALERTS_FOR_STATE"}, one...))
		}
	}
	p.put(noon, series...)
	for _, ref := range []string{"A", "B"} {
		rows := p.rows("gpu-health", "Firing GPU alerts", ref, nil)
		if len(rows) != len(want) || len(want) < 100 {
			t.Errorf("query %s: %d alerts are %d rows", ref, len(want), len(rows))
		}
		missing := maps.Clone(want)
		for _, row := range rows {
			var shown strings.Builder
			row.Metric.Range(func(l labels.Label) { fmt.Fprintf(&shown, " %s", l.Value) })
			maps.DeleteFunc(missing, func(key string, _ bool) bool {
				return !slices.ContainsFunc(strings.Split(key, ", "), func(part string) bool {
					return !strings.Contains(shown.String(), part)
				})
			})
		}
		for key := range missing {
			t.Errorf("query %s: no row shows %s", ref, key)
		}
	}
}

// The page of a workload lists the alerts of its pods and its own, not those of its neighbors, and the namespace counts them.
func TestAlertsOfAWorkload(t *testing.T) {
	p := newPage(t)
	series := [][]string{}
	alert := func(name string, more ...string) {
		of := append([]string{"alertname", name, "severity", "info", "namespace", "team"}, more...)
		series = append(series, append([]string{"ALERTS", "alertstate", "firing"}, of...), append([]string{"ALERTS_FOR_STATE"}, of...))
	}
	for _, w := range []string{"train", "serve", "quiet"} {
		series = append(series, []string{"pod:gpu_workload:info", "node", "n1", "namespace", "team", "pod", w + "-0",
			"workload_type", "Job", "workload", w},
			[]string{"workload:gpu_allocation:sum", "namespace", "team", "workload_type", "Job", "workload", w})
		if w != "quiet" {
			alert("GPUAllocatedIdle", "node", "n1", "pod", w+"-0")
			alert("GPUWorkloadStraggler", "workload_type", "Job", "workload", w)
		}
	}
	alert("GPUNamespaceIdle")
	p.put(noon, series...)
	for _, ref := range []string{"A", "B"} {
		var got []string
		for _, row := range p.rows("gpu-workload", "Firing GPU alerts", ref,
			dashboard.Values{"namespace": {"team"}, "workload": {"train"}}) {
			got = append(got, row.Metric.Get("alertname")+" "+row.Metric.Get("pod")+row.Metric.Get("workload"))
		}
		slices.Sort(got)
		if want := []string{"GPUAllocatedIdle train-0", "GPUWorkloadStraggler train"}; !slices.Equal(got, want) {
			t.Errorf("query %s: %q instead of %q", ref, got, want)
		}
	}
	got := map[string]float64{}
	for _, row := range p.rows("gpu-namespace", "Workloads", "K", dashboard.Values{"namespace": {"team"}}) {
		got[row.Metric.Get("workload")] = row.F
	}
	if want := map[string]float64{"train": 2, "serve": 2, "quiet": 0}; !maps.Equal(got, want) {
		t.Errorf("alerts of workloads: %v instead of %v", got, want)
	}
}

// A node without alerts of a severity has none of it, which is known.
func TestAlertsOfANode(t *testing.T) {
	p := newPage(t)
	p.put(noon, []string{"ALERTS", "alertname", "GPUUnavailable", "alertstate", "firing", "severity", "critical", "node", "n1"})
	for ref, want := range map[string]float64{"A": 1, "B": 0, "C": 0, "D": 100} {
		if rows := p.rows("gpu-fleet", "Nodes by alerts", ref, nil); len(rows) != 1 || rows[0].F != want {
			t.Errorf("query %s: %v instead of %v", ref, rows, want)
		}
	}
}

// A node whose exporter is down is not one without exporter, and the table names both.
func TestExportersThatAreGone(t *testing.T) {
	p := newPage(t)
	target := []string{"job", "gpu-exporter", "instance"}
	up := func(node string) []string { return append(append([]string{"up"}, target...), node) }
	info := func(node string) []string {
		return append(append([]string{"gpu_exporter_build_info", "node", node}, target...), node)
	}
	offers := func(node string) []string {
		return []string{"kube_node_status_allocatable", "node", node, "resource", "nvidia_com_gpu"}
	}
	p.put(noon.Add(-time.Hour), up("healthy"), up("crashed"), info("healthy"), info("crashed"))
	p.put(noon, up("healthy"), append([]string{""}, up("crashed")...), info("healthy"), offers("healthy"), offers("crashed"),
		offers("forgotten"), []string{"", "kube_node_status_allocatable", "node", "cpu-only", "resource", "nvidia_com_gpu"})
	all := dashboard.Values{"job": {"gpu-exporter"}}
	for tile, want := range map[string]float64{"Scraped": 1, "Down": 1, "Missing": 1} {
		if rows := p.rows("gpu-exporter", tile, "A", all); len(rows) != 1 || rows[0].F != want {
			t.Errorf("%s: %v instead of %v", tile, rows, want)
		}
	}
	got := map[string]float64{}
	for _, row := range p.rows("gpu-exporter", "Exporters", "A", all) {
		got[row.Metric.Get("node")] = row.F
	}
	if want := map[string]float64{"healthy": 2, "forgotten": 1, "crashed": 0}; !maps.Equal(got, want) {
		t.Errorf("states of exporters: %v instead of %v", got, want)
	}
}
