package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// nodeKey names the GPUs of one model on one node.
type nodeKey struct{ cluster, node, model string }

func (a nodeKey) compare(b nodeKey) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node), strings.Compare(a.model, b.model))
}

// nodeGPUs is the account of the GPUs of one model on one node while it is read. Sums are in GPU-steps.
type nodeGPUs struct {
	key    nodeKey
	cells  Cells
	ledger track // GPUs in the ledger
	count  track // GPUs by the node's own count
	held   track // GPUs that are not free
	joules float64
	energy bool
	// before says that the node was there before the window began.
	before bool

	expected     float64
	from, to     int // the steps in which it belonged to the fleet
	left, joined bool
	reclaimable  float64 // GPU-hours, from holdings
	beyond       float64
	outside      float64
	pool         string
}

// fleet is the account of all nodes.
type fleet struct {
	w       Window
	nodes   map[nodeKey]*nodeGPUs
	buckets []Cells // GPU-steps
	size    int     // steps of a bucket
	covered []bool  // steps of which anything is known
	unruled []span  // parts of which no rule tells
}

func newFleet(w Window) *fleet {
	size := 1
	for _, s := range []time.Duration{w.Step, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour} {
		if size = int(s / w.Step); w.Steps()/max(1, size) <= 124 {
			break
		}
	}
	size = max(1, size)
	return &fleet{w: w, nodes: map[nodeKey]*nodeGPUs{}, buckets: make([]Cells, (w.Steps()+size-1)/size), size: size, covered: make([]bool, w.Steps())}
}

func (f *fleet) node(k nodeKey) *nodeGPUs {
	n := f.nodes[k]
	if n == nil {
		n = &nodeGPUs{key: k}
		f.nodes[k] = n
	}
	return n
}

// cellOf says into which cell a use of the ledger goes.
func cellOf(use string) (Cell, bool) {
	switch use {
	case "busy":
		return Useful, true
	case "gap":
		return Gap, true
	case "idle":
		return Idle, true
	case "unallocated":
		return Unallocated, true
	case "unavailable":
		return Unavailable, true
	case "unknown":
		return Unobserved, true
	}
	return 0, false
}

// add takes GPUs that spent step k in a cell.
func (f *fleet) add(n *nodeGPUs, c Cell, k int, devs float64) {
	*n.cells.At(c) += devs
	*f.buckets[k/f.size].At(c) += devs
	n.ledger.add(k, devs)
	if c != Unallocated && c != Unavailable {
		n.held.add(k, devs)
	}
	f.covered[k] = true
}

// gaps are the stretches of at least least steps in which nothing is known of any node.
func (f *fleet) gaps(least int) []span {
	var out []span
	for k := 0; k < len(f.covered); {
		if f.covered[k] {
			k++
			continue
		}
		from := k
		for k < len(f.covered) && !f.covered[k] {
			k++
		}
		if k-from >= least {
			out = append(out, span{from, k})
		}
	}
	return out
}

// sorted returns the nodes in order.
func (f *fleet) sorted() []*nodeGPUs {
	return slices.SortedFunc(maps.Values(f.nodes), func(a, b *nodeGPUs) int { return a.key.compare(b.key) })
}

// settle ends the reading: GPUs of no known model join the model of their node, and what was expected is held against what was
// reported. A node that was silent for gone until the end has left when it was last heard.
func (f *fleet) settle(gone time.Duration) {
	f.adopt()
	quiet := int(gone / f.w.Step)
	for _, n := range f.nodes {
		n.from, n.to = min(first(&n.ledger, f.w.Steps()), first(&n.count, f.w.Steps())), max(n.ledger.end(), n.count.end())
		n.joined = n.from > 0 && !n.before
		if n.before {
			n.from = 0
		}
		if n.left = f.w.Steps()-n.to > quiet; !n.left {
			n.to = f.w.Steps()
		}
		last, known := 0.0, false
		for k := n.from; k < f.w.Steps() && !known; k++ {
			last, known = n.count.at(k)
		}
		if !known {
			for _, v := range n.ledger.v {
				if v == v {
					last = max(last, float64(int(v+0.5)))
				}
			}
		}
		for k := n.from; k < n.to; k++ {
			last = n.count.or(k, last)
			n.expected += last
			// A mean over a step that is covered in full differs from the count by rounding alone.
			if missing := last - n.ledger.or(k, 0); missing > max(0.02, 0.005*last) {
				n.cells.NotReported += missing
				f.buckets[k/f.size].NotReported += missing
			}
		}
	}
}

func first(t *track, none int) int {
	if t.len() == 0 {
		return none
	}
	return t.from
}

// adopt gives GPUs without a model to the one model of their node, if there is only one.
func (f *fleet) adopt() {
	models := map[nodeKey][]string{}
	for k := range f.nodes {
		if k.model != "" {
			at := nodeKey{k.cluster, k.node, ""}
			models[at] = append(models[at], k.model)
		}
	}
	for at, of := range models {
		orphan := f.nodes[at]
		if orphan == nil || len(of) != 1 {
			continue
		}
		n := f.nodes[nodeKey{at.cluster, at.node, of[0]}]
		n.cells.plus(orphan.cells)
		for _, p := range []struct{ into, from *track }{{&n.ledger, &orphan.ledger}, {&n.count, &orphan.count}, {&n.held, &orphan.held}} {
			for i, v := range p.from.v {
				if v == v {
					p.into.add(p.from.from+i, float64(v))
				}
			}
		}
		n.joules += orphan.joules
		n.energy = n.energy || orphan.energy
		n.before = n.before || orphan.before
		delete(f.nodes, at)
	}
}

// account turns a group of nodes into its account.
func (f *fleet) account(nodes []*nodeGPUs, price *Prices) Account {
	h := f.w.Hours()
	var a Account
	energy, joules := false, 0.0
	var cost Cells
	priced := false
	for _, n := range nodes {
		var own Cells
		for c := Cell(0); c < CellCount; c++ {
			*own.At(c) = n.cells.Of(c) * h
		}
		a.Cells.plus(own)
		a.Hours += n.expected * h
		a.Reclaimable += n.reclaimable
		a.Beyond += n.beyond
		a.Outside += n.outside
		energy = energy || n.energy
		joules += n.joules
		if p, ok := price.dev(n.key.model); ok {
			priced = true
			for c := Cell(0); c < CellCount; c++ {
				*cost.At(c) += own.Of(c) * p
			}
		}
	}
	a.GPUs = over(a.Hours, f.w.Total())
	a.ClosingError = over(a.Hours-a.Cells.Sum(), a.Hours)
	a.Coverage = over(a.Hours-a.Cells.NotReported-a.Cells.Unobserved, a.Hours)
	if energy {
		kwh := joules / 3.6e6
		a.EnergyKWh = &kwh
		a.EnergyCost = price.energy(kwh)
	}
	if priced {
		sum := cost.Sum()
		a.Cost, a.CellCost = &sum, &cost
	}
	return a
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
