package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
)

// Workloads are added up by a label: of a pod, or else of its namespace.
func TestGroups(t *testing.T) {
	list, err := prices.Parse([]byte("{currency: EUR, gpus: [{model: '*', per_hour: 2}]}"))
	must.OK(t, err)
	var s scene
	s.node("n1", h100, 3, states{"busy": 3}, nil)
	for i, name := range []string{"one", "two", "three"} {
		s.job(job{name: name, pods: []string{name + "-0"}, busy: hourOf(0, 24, 0.25*float64(i+1), 0), memory: gib})
	}
	with := func(o *Options) { o.Prices, o.GroupLabel = list, "example.com/team" }
	if d := s.must(t, with); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, ""), "example.com/team") || len(d.Groups) != 1 {
		t.Errorf("%v %+v", d.PartialReasons, d.Groups)
	}
	s.add(metric.KubeSpaces, map[string]string{"namespace": "team", "label_example_com_team": "red",
		"pod": "kube-state-metrics-0"}, constant(1)) // the operator's monitors add the target's pod
	s.add(metric.KubePods, map[string]string{"namespace": "team", "pod": "three-0", "label_example_com_team": "blue"}, constant(1))
	d := s.must(t, with)
	if d.Partial || len(d.Groups) != 2 || d.Groups[0].Group != "blue" || d.Groups[1].Group != "red" || d.GroupLabel != "example.com/team" {
		t.Fatalf("%v %+v", d.PartialReasons, d.Groups)
	}
	for what, x := range map[string][2]float64{
		"blue hours": {d.Groups[0].Hours, 240}, "red hours": {d.Groups[1].Hours, 480}, "red busy": {d.Groups[1].States.Busy, 180},
		"red cost": {*d.Groups[1].Cost, 960}, "red cost of unused": {d.Groups[1].StateCost.Unused(), 600},
		"blue cost of unused": {d.Groups[0].StateCost.Unused(), 120},
	} {
		near(t, what, x[0], x[1])
	}
	for _, a := range d.Advice {
		if a.Workload != "" && a.Owner != "red" && a.Owner != "blue" {
			t.Errorf("%+v", a)
		}
	}
}

// A history that begins within the period is reported with what to do about it.
func TestShortHistory(t *testing.T) {
	var s scene
	s.node("n1", h100, 1, states{"busy": 1}, func(at int64) bool { return at > monday.Add(5*day).Unix() })
	notes := s.must(t, nil).Notes
	if !slices.ContainsFunc(notes, func(n document.Note) bool {
		return n.Code == "short_history" && strings.Contains(n.Text, "2026-02-07 00:00 UTC, 5.0 days after")
	}) {
		t.Errorf("%+v", notes)
	}
}

// Spot and reserved nodes have prices of their own: of accounts, of the workloads on them and of the nodes that can go. What belongs to no
// namespace is shared in proportion.
func TestPricesOfPools(t *testing.T) {
	list, err := prices.Parse([]byte(`{gpus: [{model: '*', node_labels: {capacity: spot}, per_hour: 1}, {model: '*', node_pool: own,
per_hour: 3}, {model: '*', from: 2026-02-07, per_hour: 10}, {model: '*', per_hour: 4}]}`))
	must.OK(t, err)
	var s scene
	s.node("n1", h100, 2, states{"busy": 1, "unallocated": 1}, nil)
	s.node("own-1", h100, 1, states{"busy": 1}, nil)
	s.node("x-1", h100, 1, states{"unallocated": 1}, nil)
	s.add(metric.KubeLabels, map[string]string{"node": "n1", "label_capacity": "spot"}, constant(1))
	s.job(job{name: "spot", pods: []string{"a-0"}, busy: hourOf(0, 24, 0.9, 0)})
	s.job(job{name: "own", node: "own-1", pods: []string{"b-0"}, busy: hourOf(0, 24, 0.9, 0)})
	d := s.must(t, func(o *Options) { o.Prices, o.ShareCost = list, true })
	cost := map[string]float64{"n1": 2 * 240, "own-1": 3 * 240, "x-1": 5*24*4 + 5*24*10}
	for _, n := range d.Nodes {
		near(t, n.Node, *n.Cost, cost[n.Node])
	}
	for _, w := range d.Workloads {
		near(t, w.Name, *w.Cost, map[string]float64{"spot": 240, "own": 720}[w.Name])
	}
	near(t, "shared", *d.Namespaces[0].SharedCost, 240+5*24*14)
}
