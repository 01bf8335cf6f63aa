package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// TestNotes: each note has its limit, and the figures that it is about.
func TestNotes(t *testing.T) {
	type given struct {
		coverage, difference float64
		versions             []string
		first                int // hour with data
		nodes                []*nodeGPUs
		prices               string
		models               []string
	}
	node := func(name string, removed, joined bool) *nodeGPUs {
		return &nodeGPUs{key: nodeKey{"", name, h100}, removed: removed, joined: joined}
	}
	for _, tt := range []struct {
		what    string
		given   given
		notes   []string
		partial string
	}{
		{what: "nothing to note", given: given{coverage: 0.9, versions: []string{"1.0.0"}, nodes: []*nodeGPUs{node("a", false, false)}}},
		{what: "versions", given: given{coverage: 1, versions: []string{"1.0.0", "1.1.0"}},
			notes: []string{"mixed_versions: The history is of 2 exporter versions: 1.0.0, 1.1.0."}},
		{what: "coverage", given: given{coverage: 0.89},
			notes: []string{"low_coverage: Coverage is 89 % of the expected GPU-hours; the rest is not reported or unknown."}},
		{what: "a difference of a thousandth", given: given{coverage: 1, difference: 0.001}},
		{what: "a larger one", given: given{coverage: 1, difference: 0.0011}, partial: "the account is wrong: the states differ from the " +
			"expected GPU-hours by 0.11 %, the limit is 0.1 %; do not use its figures"},
		{what: "less than nothing by a thousandth", given: given{coverage: 1, difference: -0.001}},
		{what: "by more", given: given{coverage: 1, difference: -0.25}, partial: "the account is wrong: the states differ from the " +
			"expected GPU-hours by -25.00 %, the limit is 0.1 %; do not use its figures"},
		{what: "a history that begins after 23 hours", given: given{coverage: 1, first: 23}},
		{what: "after a day", given: given{coverage: 1, first: 24},
			notes: []string{"short_history: The history begins at 2026-02-03 00:00 " +
				"UTC, 24.0 hours after the start of the period: Prometheus keeps 15 days by default. " +
				"Raise --storage.tsdb.retention.time, or send the recording rules to long-term storage."}},
		{what: "nodes that left and joined", given: given{coverage: 1, nodes: []*nodeGPUs{node("d", true, false), node("b", false, true),
			node("c", true, true), node("a", false, true)}}, notes: []string{
			"nodes_removed: Without samples for more than 24.0 hours until the end, and so counted as removed: c, d.",
			"nodes_joined: First seen within the period, and expected from then on: a, b, c."}},
		{what: "a model without a price", given: given{coverage: 1, prices: "gpus: [{model: a, per_hour: 1}]", models: []string{"a",
			"x", "",
			"y"}},
			partial: "no price for x, y: its cost is left out; add it to the price list"},
		{what: "a price of energy alone", given: given{coverage: 1, prices: "energy_per_kwh: 1", models: []string{"a"}}},
		{what: "a price that nothing has", given: given{coverage: 1, prices: "gpus: [{model: a, per_hour: 1}, {model: 'b*', per_hour: 1}]",
			models: []string{"a"}}, notes: []string{"unused_prices: The price list has models that the fleet does not have: b*."}},
	} {
		o, f := Defaults(), hourly(240)
		if tt.given.prices != "" {
			list, err := prices.Parse([]byte(tt.given.prices))
			must.OK(t, err)
			o.Prices = list
		}
		r := &reader{p: f.p, opt: o, partial: nil}
		f.covered[tt.given.first] = true
		for _, n := range tt.given.nodes {
			f.nodes[n.key] = n
		}
		doc := &document.Document{Fleet: document.Account{Coverage: tt.given.coverage},
			Checks: document.Checks{Difference: tt.given.difference}}
		for _, m := range tt.given.models {
			n := f.node(nodeKey{"", "n", m})
			n.part.Model, n.price = m, o.Prices.Mean(prices.Part{Model: m}, monday, tenDays)
		}
		r.addNotes(doc, f, tt.given.versions)
		var got []string
		for _, n := range r.notes {
			got = append(got, n.Code+": "+n.Text)
		}
		if !slices.Equal(got, tt.notes) || strings.Join(r.partial, "|") != tt.partial {
			t.Errorf("%s: %q %q", tt.what, got, r.partial)
		}
	}
}

// A node of two models is named once.
func TestNotesNameNodesOnce(t *testing.T) {
	f := hourly(240)
	f.covered[0] = true
	for _, model := range []string{"x", "y"} {
		f.nodes[nodeKey{"", "n1", model}] = &nodeGPUs{key: nodeKey{"", "n1", model}, removed: true, joined: true}
	}
	r := &reader{p: f.p, opt: Defaults()}
	r.addNotes(&document.Document{Fleet: document.Account{Coverage: 1}}, f, nil)
	if len(r.notes) != 2 || !strings.HasSuffix(r.notes[0].Text, ": n1.") || !strings.HasSuffix(r.notes[1].Text, ": n1.") {
		t.Errorf("%+v", r.notes)
	}
}

// TestChecks: what containers account for of a state of the nodes; of dcgm-exporter only what it has.
func TestChecks(t *testing.T) {
	d := &document.Document{Fleet: document.Account{States: document.States{Busy: 100, Gap: 40, Idle: 50, Unallocated: 10},
		Unattributed: 10, Hours: 210, Difference: 1. / 21}}
	rows := []*document.Workload{{Busy: 50, Gap: 10, Idle: 20}, {Busy: 20, Gap: 10, Idle: 10}}
	c := &d.Checks
	d.Check(rows, true, true)
	for what, x := range map[string][2]float64{"busy": {*c.Busy, 0.2}, "gap": {*c.Gap, 0.5}, "idle": {*c.Idle, 0.4},
		"expected": {c.ExpectedHours, 210},
		"reported": {c.ReportedHours, 200}, "difference": {c.Difference, 1. / 21}} {
		near(t, what, x[0], x[1])
	}
	if d.Check(rows, false, false); c.Busy != nil || c.Idle != nil || c.Gap != nil {
		t.Errorf("%+v", c)
	}
	d.Fleet = document.Account{States: document.States{Gap: 5}}
	if d.Check(rows, true, true); c.Busy != nil || c.Idle != nil || c.Gap == nil {
		t.Errorf("%+v", c)
	}
}

// The same source is listed once with its longest time, a reason for a partial report once.
func TestSources(t *testing.T) {
	r := &reader{sources: map[string]*document.Source{}}
	for _, hours := range []float64{3, 7, 5} {
		r.source("workloads", "rules", "m", hours)
		r.source("workloads", "series", "m", 1)
		r.missing("no %s", "price")
	}
	if len(r.sources) != 2 || r.sources["workloads\x00rules"].Hours != 7 || len(r.partial) != 1 || r.partial[0] != "no price" {
		t.Errorf("%+v %v", r.sources, r.partial)
	}
	p := series.NewPeriod(monday, monday.Add(time.Hour), time.Minute)
	if err := (&reader{p: p}).noData("nothing (%s)"); fmt.Sprint(err) != "nothing (2026-02-02T00:00:00Z to 2026-02-02T01:00:00Z)" {
		t.Error(err)
	}
}
