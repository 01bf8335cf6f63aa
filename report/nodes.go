package report

import (
	"math"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// nodeGPUs is the account of the GPUs of one model on one node while it is read. Sums are in GPU-steps.
type nodeGPUs struct {
	key         nodeKey
	states      document.States
	reported    series.Track // GPUs in the ledger
	count       series.Track // GPUs by the node's own count
	allocated   series.Track
	unavailable series.Track
	silent      series.Track // GPUs that are expected and did not report
	size        int          // GPUs
	joules      float64
	energy      bool
	// before is true if the node existed before the period.
	before bool

	expected        float64
	from, to        int // the steps in which it belonged to the fleet
	removed, joined bool
	reclaimable     float64 // GPU-hours, from allocations
	beyond          float64
	unattributed    float64
	pool            string
	// zone is that of a node whose pool is guessed, or its region or domain.
	guessed        bool
	zone           string
	kube.Requested             // CPUs and memory for pods with GPUs; 0 is unknown
	part           prices.Part // of the price list
	price          *float64    // of a GPU-hour
}

// fleet is the account of all nodes.
type fleet struct {
	p       series.Period
	nodes   map[nodeKey]*nodeGPUs
	buckets []document.States // GPU-steps
	size    int               // steps of a bucket
	covered []bool            // steps with any data
	// withoutRules are parts that no rule covers.
	withoutRules []series.Span
	requests     map[podKey]kube.Requested
}

func newFleet(p series.Period) *fleet {
	size := 1
	for _, s := range []time.Duration{p.Step, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour} {
		if size = max(1, int(s/p.Step)); p.Steps()/size <= 124 {
			break
		}
	}
	return &fleet{p: p, nodes: map[nodeKey]*nodeGPUs{}, buckets: make([]document.States, (p.Steps()+size-1)/size), size: size,
		covered: make([]bool, p.Steps())}
}

func (f *fleet) node(k nodeKey) *nodeGPUs {
	n := entry(f.nodes, k)
	n.key = k
	return n
}

// add counts GPUs that spent step k in a state.
func (f *fleet) add(n *nodeGPUs, s document.State, k int, gpus float64) {
	*n.states.At(s) += gpus
	*f.buckets[k/f.size].At(s) += gpus
	n.reported.Add(k, gpus)
	if s != document.Unallocated && s != document.Unavailable {
		n.allocated.Add(k, gpus)
	}
	if s == document.Unavailable && gpus > 0 {
		n.unavailable.Add(k, gpus)
	}
	f.covered[k] = true
}

// gaps are the parts of at least two steps without data of any node.
func (f *fleet) gaps() []series.Span {
	var out []series.Span
	for k := 0; k < len(f.covered); k++ {
		from := k
		for k < len(f.covered) && !f.covered[k] {
			k++
		}
		if k-from >= 2 {
			out = append(out, series.Span{From: from, To: k})
		}
	}
	return out
}

// sorted returns the nodes in order.
func (f *fleet) sorted() []*nodeGPUs {
	var out []*nodeGPUs
	for _, k := range sorted(f.nodes) {
		out = append(out, f.nodes[k])
	}
	return out
}

// settle ends the reading: GPUs without a model join the model of their node, and what is missing from the expected
// time is not reported. A node without samples for removedAfter until the end counts as removed after its last one.
func (f *fleet) settle(removedAfter time.Duration) {
	f.adopt()
	for k, n := range f.nodes {
		// The steps in which it belonged to the fleet.
		from := min(n.reported.First(f.p.Steps()), n.count.First(f.p.Steps()))
		to := max(n.reported.End(), n.count.End())
		if to == 0 { // power alone
			delete(f.nodes, k)
			continue
		}
		n.joined = from > 0 && !n.before
		if n.before {
			from = 0
		}
		if n.removed = f.p.Steps()-to > int(removedAfter/f.p.Step); !n.removed {
			to = f.p.Steps()
		}
		n.from, n.to = from, to
		last, known := 0.0, false
		for k := from; k < f.p.Steps() && !known; k++ {
			last, known = n.count.At(k)
		}
		if !known {
			for _, v := range n.reported.All() {
				last = max(last, float64(int(v+0.5)))
			}
		}
		n.size = n.gpus()
		for k := from; k < to; k++ {
			if gone := n.count.Or(k, float64(n.size)) - n.reported.Or(k, 0); gone > 0.02 {
				n.silent.Add(k, gone)
			}
			last = n.count.Or(k, last)
			n.expected += last
			// A mean over a step that is covered in full differs from the count by rounding alone.
			if missing := last - n.reported.Or(k, 0); missing > max(0.02, 0.005*last) {
				n.states.NotReported += missing
				f.buckets[k/f.size].NotReported += missing
			}
		}
		n.count, n.reported = series.Track{}, series.Track{} // no longer needed
	}
}

// gpus is the number of GPUs of a node.
func (n *nodeGPUs) gpus() int {
	switch {
	case n.size > 0:
		return n.size
	case n.count.Len() == 0:
		return int(math.Ceil(n.reported.Values(n.reported.From, n.reported.End()).Top() - 0.1))
	}
	return int(n.count.Values(n.count.From, n.count.End()).Top() + 0.5)
}

// adopt gives GPUs without a model to the model of their node, if there is only one.
func (f *fleet) adopt() {
	models := map[nodeKey][]*nodeGPUs{}
	for k, n := range f.nodes {
		if k.model != "" {
			at := nodeKey{k.cluster, k.node, ""}
			models[at] = append(models[at], n)
		}
	}
	for at, of := range models {
		orphan := f.nodes[at]
		if orphan == nil || len(of) != 1 {
			continue
		}
		n := of[0]
		n.states.Plus(orphan.states, 1)
		n.reported.Plus(&orphan.reported)
		n.count.Plus(&orphan.count)
		n.allocated.Plus(&orphan.allocated)
		n.unavailable.Plus(&orphan.unavailable)
		n.joules += orphan.joules
		n.energy = n.energy || orphan.energy
		n.before = n.before || orphan.before
		delete(f.nodes, at)
	}
}

// account turns a group of nodes into its account.
func (f *fleet) account(nodes []*nodeGPUs, list *prices.List) document.Account {
	h := f.p.StepHours()
	var a document.Account
	for _, n := range nodes {
		var states document.States
		states.Plus(n.states, h)
		var kWh *float64
		if n.energy {
			kWh = new(n.joules / 3.6e6)
		}
		a.Add(states, states.Sum(), n.reclaimable, n.beyond, kWh, n.price)
		a.Hours, a.Unattributed = a.Hours+n.expected*h, a.Unattributed+n.unattributed
	}
	a.Close(f.p.Hours(), list)
	return a
}

// part is a part of the fleet.
type part struct{ cluster, model, pool, node string }

func (k part) parts() []string { return []string{k.cluster, k.model, k.pool, k.node} }

// grouped makes the accounts of parts of the fleet, in order. of returns the part to which a node belongs.
func (f *fleet) grouped(list *prices.List, of func(*nodeGPUs) part) []document.Account {
	groups := map[part][]*nodeGPUs{}
	for _, n := range f.sorted() {
		groups[of(n)] = append(groups[of(n)], n)
	}
	out := make([]document.Account, 0, len(groups))
	for _, k := range sorted(groups) {
		a := f.account(groups[k], list)
		a.Cluster, a.Model, a.NodePool, a.Node = k.cluster, k.model, k.pool, k.node
		if a.Node != "" && len(groups[k]) == 1 {
			a.Model = groups[k][0].key.model
		}
		out = append(out, a)
	}
	return out
}

// assign adds what allocations showed to the accounts of their nodes.
func (f *fleet) assign(found []*finding) {
	models := map[nodeKey][]*nodeGPUs{}
	for _, n := range f.sorted() {
		k := nodeKey{n.key.cluster, "", n.key.model}
		models[k] = append(models[k], n)
	}
	give := func(k nodeKey, hours float64, to func(*nodeGPUs) *float64) {
		if n := f.nodes[k]; n != nil {
			*to(n) += hours
			return
		}
		// The node is unknown: the nodes of the model share the hours in proportion to their idle time.
		nodes, all := models[nodeKey{k.cluster, "", k.model}], 0.0
		for _, n := range nodes {
			all += n.states.Idle
		}
		for _, n := range nodes {
			*to(n) += hours * over(n.states.Idle, all)
		}
	}
	for _, x := range found {
		for k, v := range x.reclaimed {
			give(k, v, func(n *nodeGPUs) *float64 { return &n.reclaimable })
		}
		for k, v := range x.beyond {
			give(k, v, func(n *nodeGPUs) *float64 { return &n.beyond })
		}
	}
}

// class is where pods of a node may run: in its pool, and if that is guessed only in its zone.
func (f *fleet) class(n *nodeGPUs) string {
	return n.key.cluster + "\x00" + n.key.model + "\x00" + n.pool + "\x00" + n.zone
}
