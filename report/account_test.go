package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// hourly is a fleet of so many hours.
func hourly(hours int) *fleet {
	return newFleet(series.NewPeriod(monday, monday.Add(time.Duration(hours)*time.Hour), time.Hour))
}

// The seven states of any fleet add up to what is expected, of each node and of each part of the trend: whatever GPUs
// appeared, were silent, left, or had no model.
func TestAccountAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		hours := 20 + r.IntN(200)
		f := hourly(hours)
		nodes := 1 + r.IntN(4)
		for i := range nodes {
			models := []string{h100, "", "NVIDIA A10"}[:1+r.IntN(3)]
			from, to := r.IntN(hours/2), hours-r.IntN(hours/2)
			for _, model := range models {
				n, gpus := f.node(nodeKey{"", fmt.Sprint("n", i), model}), 1+r.IntN(8)
				n.before = r.IntN(3) == 0
				for k := from; k < to; k++ {
					if r.IntN(10) == 0 {
						continue // silent
					}
					left := float64(gpus)
					for s := range document.NotReported {
						v := left
						if s < document.Unknown {
							v = left * r.Float64()
						}
						f.add(n, s, k, v)
						left -= v
					}
					n.count.Add(k, float64(gpus))
				}
			}
		}
		f.settle(time.Duration(r.IntN(hours)) * time.Hour)
		var all, trend document.States
		expected := 0.0
		for _, n := range f.nodes {
			// A node whose GPUs have no model counts them with those of the only model.
			if math.Abs(n.states.Sum()-n.expected) > 1e-3*n.expected+1e-6 {
				t.Fatalf("%+v: states add up to %v of %v", n.key, n.states.Sum(), n.expected)
			}
			all.Plus(n.states, 1)
			expected += n.expected
		}
		for _, b := range f.buckets {
			trend.Plus(b, 1)
		}
		for s := range document.StateCount {
			if math.Abs(trend.Of(s)-all.Of(s)) > 1e-6*expected {
				t.Fatalf("%s: %v in the trend, %v of the nodes", s, trend.Of(s), all.Of(s))
			}
		}
		a := f.account(f.sorted(), nil)
		if math.Abs(a.Difference) > 1e-3 || math.Abs(a.Hours-expected) > 1e-6*expected {
			t.Fatalf("%+v", a)
		}
	}
}

// TestSettle: from when to when a node is expected, with how many GPUs, and what of it is not reported. Each step is the number
// of GPUs; a dot is a step without a report.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		what            string
		steps           string
		before          bool
		removedAfter    int
		from, to        int
		expected        float64
		notReported     float64
		joined, removed bool
	}{
		{what: "all of the time", steps: "8888888888", to: 10, expected: 80},
		{what: "it joined", steps: "...8888888", from: 3, to: 10, expected: 56, joined: true},
		{what: "it existed before", steps: "...8888888", before: true, to: 10, expected: 80, notReported: 24},
		{what: "silent within", steps: "88..888888", to: 10, expected: 80, notReported: 16},
		{what: "silent at the end, for as long as allowed", steps: "88888888..", removedAfter: 2, to: 10, expected: 80, notReported: 16},
		{what: "for longer", steps: "8888888...", removedAfter: 2, to: 7, expected: 56, removed: true},
		{what: "it grew", steps: "4444..8888", to: 10, expected: 4*6 + 8*4, notReported: 8},
		{what: "it shrank", steps: "8888..4444", to: 10, expected: 8*6 + 4*4, notReported: 16},
		{what: "it existed before, and grew", steps: "..44448888", before: true, to: 10, expected: 4*6 + 8*4, notReported: 8},
	} {
		f := hourly(len(tt.steps))
		n := f.node(nodeKey{"", "n1", h100})
		n.before = tt.before
		for k, c := range tt.steps {
			if c != '.' {
				f.add(n, document.Busy, k, float64(c-'0'))
				n.count.Add(k, float64(c-'0'))
			}
		}
		f.settle(time.Duration(tt.removedAfter) * time.Hour)
		if n.from != tt.from || n.to != tt.to || n.expected != tt.expected || n.states.NotReported != tt.notReported ||
			n.joined != tt.joined ||
			n.removed != tt.removed {
			t.Errorf("%s: from %d to %d, %v expected, %v not reported, joined %v, removed %v", tt.what, n.from, n.to, n.expected,
				n.states.NotReported, n.joined, n.removed)
		}
		trend := 0.0
		for _, b := range f.buckets {
			trend += b.NotReported
		}
		near(t, tt.what+": in the trend", trend, tt.notReported)
	}
}

// What a node reports without counting its GPUs: the most at a time. Rounding of means is not missing time: up to a fiftieth
// of a GPU, or half a hundredth of the node.
func TestSettleRounding(t *testing.T) {
	for _, tt := range []struct {
		gpus, reported, missing float64
	}{{2, 2, 0}, {2, 1.985, 0}, {2, 1.975, 0.025}, {8, 7.965, 0}, {8, 7.95, 0.05}, {8, 8.5, 0}} {
		f := hourly(4)
		n := f.node(nodeKey{"", "n1", h100})
		for k := range 4 {
			f.add(n, document.Idle, k, tt.reported)
			n.count.Add(k, tt.gpus)
		}
		f.settle(0)
		near(t, fmt.Sprint(tt.reported, " of ", tt.gpus), n.states.NotReported, 4*tt.missing)
		near(t, "expected", n.expected, 4*tt.gpus)
		silent := 0.0 // from a fiftieth of a GPU on, of a node of any size
		if left := tt.gpus - tt.reported; left > 0.02 {
			silent = left
		}
		if got := n.silent.Or(0, 0); math.Abs(got-silent) > 1e-6 {
			t.Errorf("%v of %v: %v silent", tt.reported, tt.gpus, got)
		}
	}
	f := hourly(6)
	n := f.node(nodeKey{"", "n1", h100})
	for k, v := range []float64{3.6, 3.98, 2, 3.98} {
		f.add(n, document.Busy, k, v)
	}
	f.settle(2 * time.Hour)
	near(t, "expected without a count", n.expected, 4*6)
	near(t, "not reported without a count", n.states.NotReported, 0.4+2+4+4)
	near(t, "silent", n.silent.Sum(), 0.4+2+4+4)
	// Power alone is no node.
	f = hourly(4)
	f.node(nodeKey{"", "n1", h100}).joules = 5
	if f.settle(0); len(f.nodes) != 0 {
		t.Errorf("%+v", f.nodes)
	}
}

// GPUs without a model are those of the only model of their node, with all of their figures.
func TestAdopt(t *testing.T) {
	of := func(models ...string) *fleet {
		f := hourly(4)
		for i, m := range models {
			n := f.node(nodeKey{"c", "n1", m})
			for k := range 2 {
				f.add(n, document.Busy, k, 1+float64(i))
				f.add(n, document.Unavailable, k, 0.5)
				n.count.Add(k, 2)
			}
			n.joules, n.energy, n.before = 10, m == "", m == ""
		}
		f.node(nodeKey{"d", "n1", "x"}).count.Add(0, 1) // of another cluster
		f.adopt()
		return f
	}
	f := of(h100, "")
	n := f.nodes[nodeKey{"c", "n1", h100}]
	if len(f.nodes) != 2 || n.states.Busy != 6 || n.states.Unavailable != 2 || n.joules != 20 || !n.energy || !n.before {
		t.Fatalf("%+v", n)
	}
	for what, x := range map[string][2]float64{"reported": {n.reported.Sum(), 8}, "count": {n.count.Sum(), 8},
		"allocated":   {n.allocated.Sum(), 6},
		"unavailable": {n.unavailable.Sum(), 2}} {
		near(t, what, x[0], x[1])
	}
	for _, models := range [][]string{{h100, "NVIDIA A10", ""}, {h100}, {""}} {
		if f := of(models...); len(f.nodes) != len(models)+1 || f.nodes[nodeKey{"c", "n1", models[0]}].states.Busy != 2 {
			t.Errorf("%v: %d nodes", models, len(f.nodes))
		}
	}
}

// Which states are allocated, and which steps have data.
func TestFleetAdd(t *testing.T) {
	f := hourly(4)
	n := f.node(nodeKey{"", "n1", h100})
	for s := range document.NotReported {
		f.add(n, s, 1, 1)
	}
	f.add(n, document.Unavailable, 2, 0)
	if n.allocated.Sum() != 4 || n.reported.Sum() != 6 || n.unavailable.Sum() != 1 || n.unavailable.Len() != 1 || !f.covered[1] ||
		!f.covered[2] ||
		f.covered[0] || f.covered[3] || n.states.Sum() != 6 || f.buckets[1].Sum() != 6 {
		t.Errorf("%+v %v", n, f.covered)
	}
}

// An account has hours of GPU-steps, and the cost of each state where a model has a price.
func TestAccount(t *testing.T) {
	list, err := prices.Parse([]byte("{gpus: [{model: a, per_hour: 2}, {model: b, per_hour: 3}], energy_per_kwh: 0.5}"))
	must.OK(t, err)
	f := newFleet(series.NewPeriod(monday, monday.Add(10*time.Hour), 30*time.Minute))
	of := func(model string, busy, missing float64) *nodeGPUs {
		return &nodeGPUs{key: nodeKey{"", "n", model}, states: document.States{Busy: busy, Unknown: 2, NotReported: missing},
			price:    list.Mean(prices.Part{Model: model}, monday, tenDays),
			expected: busy + 3 + missing, reclaimable: 1, beyond: 2, unattributed: 3}
	}
	first, second, third := of("a", 10, 4), of("b", 6, 0), of("c", 20, 0)
	first.energy, second.energy, first.joules, second.joules = true, true, 7.2e6, 3.6e6
	a := f.account([]*nodeGPUs{first, second, third}, list)
	for what, x := range map[string][2]float64{"hours": {a.Hours, 24.5}, "GPUs": {a.GPUs, 2.45}, "busy": {a.States.Busy, 18},
		"not reported": {a.States.NotReported, 2}, "reclaimable": {a.Reclaimable, 3}, "beyond": {a.Beyond, 6},
		"unattributed": {a.Unattributed, 9}, "difference": {a.Difference, 1.5 / 24.5}, "coverage": {a.Coverage, 1 - 5/24.5},
		"cost of busy": {a.StateCost.Busy, 10 + 9}, "cost of not reported": {a.StateCost.NotReported, 4}, "cost": {*a.Cost, 19 + 5 + 4},
		"energy": {*a.EnergyKWh, 3}, "energy cost": {*a.EnergyCost, 1.5}} {
		near(t, what, x[0], x[1])
	}
	if a = f.account([]*nodeGPUs{third}, list); a.Cost != nil || a.StateCost != nil || a.EnergyKWh != nil || a.EnergyCost != nil {
		t.Errorf("%+v", a)
	}
	if a = f.account(nil, list); a.Hours != 0 || a.Coverage != 0 || a.Difference != 0 || a.GPUs != 0 {
		t.Errorf("%+v", a)
	}
}

// Parts of the fleet are in order; a node of a single model has its model, and a cluster without a name is not listed.
func TestGrouped(t *testing.T) {
	f := hourly(10)
	for i, k := range []nodeKey{{"b", "n1", "y"}, {"a", "n2", "x"}, {"a", "n2", "y"}, {"a", "n1", "x"}} {
		n := f.node(k)
		n.expected, n.pool = float64(1+i), "pool-"+k.model
	}
	var doc document.Document
	f.fill(&doc, nil)
	text := ""
	for _, list := range [][]document.Account{doc.Clusters, doc.Models, doc.NodePools, doc.Nodes} {
		for _, a := range list {
			text += fmt.Sprintf("%s/%s/%s/%s %.0f, ", a.Cluster, a.Model, a.NodePool, a.Node, a.Hours)
		}
		text += "\n"
	}
	if want := "a/// 9, b/// 1, \n/x// 6, /y// 4, \na//pool-x/ 6, a//pool-y/ 3, b//pool-y/ 1, \n" +
		"a/x/pool-x/n1 4, a/x/pool-x/n2 2, a/y/pool-y/n2 3, b/y/pool-y/n1 1, \n"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if doc.Fleet.Hours != 10 || len(doc.Trend) != 10 || !doc.Trend[9].From.Equal(monday.Add(9*time.Hour)) {
		t.Errorf("%+v", doc.Trend)
	}
	// Two models of a node in one pool: the node has neither.
	for _, n := range f.nodes {
		n.pool, n.key.cluster = "p", ""
	}
	f.fill(&doc, nil)
	if len(doc.Clusters) != 0 || len(doc.Nodes) != 2 || doc.Nodes[1].Model != "" {
		t.Errorf("%+v %+v", doc.Clusters, doc.Nodes)
	}
	// The last part of the trend is shorter.
	f = newFleet(series.NewPeriod(monday, monday.Add(125*time.Hour), time.Hour))
	doc = document.Document{}
	f.fill(&doc, nil)
	if n := len(doc.Trend); n != 42 || doc.Trend[0].Hours != 3 || doc.Trend[41].Hours != 2 {
		t.Errorf("%+v", doc.Trend)
	}
}

// Hours of allocations are those of their node; where it is unknown, of the nodes of the model, by their idle time.
func TestAssign(t *testing.T) {
	f := hourly(10)
	for k, idle := range map[nodeKey]float64{{"", "n1", "x"}: 6, {"", "n2", "x"}: 2, {"", "n3", "y"}: 5, {"c", "n4", "x"}: 9} {
		f.node(k).states.Idle = idle
	}
	f.assign([]*finding{{reclaimed: map[nodeKey]float64{{"", "n1", "x"}: 1, {"", "gone", "x"}: 4}, beyond: map[nodeKey]float64{{"", "n2",
		"x"}: 3}},
		{reclaimed: map[nodeKey]float64{{"", "", "y"}: 7, {"", "", "z"}: 9}, beyond: map[nodeKey]float64{{"", "", "x"}: 8}}})
	for node, want := range map[string][2]float64{"n1": {1 + 3, 6}, "n2": {1, 3 + 2}, "n3": {7, 0}, "n4": {0, 0}} {
		for k, n := range f.nodes {
			if k.node == node {
				near(t, node+": reclaimable", n.reclaimable, want[0])
				near(t, node+": beyond", n.beyond, want[1])
			}
		}
	}
}
