// Package replay places the pods of a history on nodes again, as a scheduler would have, and counts which would have
// waited, been throttled or been evicted. A pod is placed when it starts, with what is known then; it is not moved
// afterwards. Recommended changes are judged by it: fewer nodes, shared GPUs, other MIG geometries, fewer GPUs of a pod.
package replay

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Slots is the number of places of a GPU: the memory slices of the largest MIG geometry.
const Slots = 8

// Node is a node with equal GPUs. It exists from a step up to but without another.
type Node struct {
	ID string
	// Class is what pods are restricted to: cluster, model and node pool.
	Class    string
	GPUs     int
	From, To int
	Offers   Offer
	// Part is the size of the parts that it offers, of which a pod takes one; 0 is any.
	Part float64
	// Cores and Bytes are CPUs and memory that it has for pods with GPUs; 0 is unknown, and enough.
	Cores, Bytes float64
}

// Offer is what the device plugin of a node offers, which is set for all of its GPUs.
type Offer int

const (
	Mixed  Offer = iota // whole GPUs, MIG devices and parts of time-sliced GPUs
	Whole               // whole GPUs and MIG devices
	Sliced              // parts of time-sliced GPUs
)

// Shape is what a pod occupies of a GPU: all of it, a fraction, or the slots of a MIG profile.
type Shape struct {
	// Fraction of a time-sliced GPU; 0 for whole GPUs and MIG devices.
	Fraction float64
	// Size and Places are those of a MIG profile: it begins at a multiple of Size, and there are so many places.
	Size, Places int
}

// Pod is one pod as it ran. Demand and Memory are, for each step from From, fractions of one GPU; they count only where
// GPUs are shared, and may be nil.
type Pod struct {
	ID string
	// Gang is set for pods that start together or not at all.
	Gang     string
	Class    string
	Node     string // the only node it may run on; empty is any
	Home     string // the node where it ran
	GPUs     int
	From, To int
	Shape
	// Apart is set for pods of which no two may be on one node.
	Apart string
	// Cores and Bytes are the CPUs and the memory that it requests.
	Cores, Bytes float64
	// Unknown pods may have whole GPUs or parts: they run wherever GPUs have no pods.
	Unknown        bool
	Demand, Memory func(step int) float64
	// Owner is whose figures it adds to, besides those of all; empty is nobody's.
	Owner string
	// Queued pods did not run: they are placed after others of the same step, and only what they run is counted.
	Queued bool

	own *Result // figures of the owner; nil is nobody's
}

// Result is what would have happened. Times are GPU-steps.
type Result struct {
	Placed, Waiting, Unplaced int
	// Waited is the time from a pod's start until it was placed, LongestWait the longest in steps.
	Waited, LongestWait float64
	// Occupied is the time in which a GPU had a pod, Shared that in which it had several.
	Occupied, Shared float64
	// Throttled is the part of Shared in which the demands on a GPU exceeded it, Excess what they exceeded it by;
	// Evicted is the number of pods on a GPU whose memory did not suffice.
	Throttled, Excess float64
	Evicted           int
	// Requested is the time for which all pods requested GPUs, Served that in which queued pods would have run.
	Requested, Served float64
}

// Feasible is true if every pod was placed, and the waiting and throttled parts are within a budget.
func (r Result) Feasible(budget float64) bool {
	return r.Unplaced == 0 && r.Evicted == 0 && r.Waited <= budget*r.Requested && r.Throttled <= budget*r.Shared
}

type device struct {
	mask     uint8 // slots in use
	fraction float64
	pods     []*Pod
}

type machine struct {
	*Node
	gpus []device
	free int // GPUs without a pod
	// partly is the number of GPUs that are shared or partitioned.
	partly int
	pods   []*Pod
	// cores and bytes are those that its pods request.
	cores, bytes float64
}

// takes is true if a node offers what a pod requests, besides GPUs that have no pods.
func (m *machine) takes(p *Pod) bool {
	part := p.Fraction > 0
	switch {
	case m.Cores > 0 && m.cores+p.Cores > m.Cores*1.0001, m.Bytes > 0 && m.bytes+p.Bytes > m.Bytes*1.0001:
		return false
	case p.Unknown:
	case m.Offers == Whole && part, m.Offers == Sliced && !part, m.Part > 0 && p.Fraction > 1.001*m.Part:
		return false
	}
	return p.Apart == "" || !slices.ContainsFunc(m.pods, func(o *Pod) bool { return o.Apart == p.Apart })
}

type placement struct {
	pod  *Pod
	on   *machine
	gpus []int
	mask uint8
}

// ends are the placements by their end.
type ends []placement

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].pod.To < e[j].pod.To }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(placement)) }
func (e *ends) Pop() any          { l := len(*e) - 1; x := (*e)[l]; *e = (*e)[:l]; return x }

// world is the state of a replay.
type world struct {
	classes map[string][]*machine
	bound   map[string][]*machine // by node
	running ends
	Result
	budget float64 // of waiting pods; negative is none
	home   bool    // pods are placed where they ran, if they can be
}

// each changes the figures of all pods, and those of the owner of a pod.
func (w *world) each(p *Pod, change func(*Result)) {
	change(&w.Result)
	w.every(p, nil, 0, change)
}

// Run places pods on nodes. Equal input gives an equal result.
func Run(nodes []Node, pods []Pod) Result { return Within(nodes, pods, -1) }

// Within does the same, and ends as soon as the result is not feasible within a budget that is not negative.
func Within(nodes []Node, pods []Pod, budget float64) Result {
	w := world{budget: budget}
	w.run(nodes, pods)
	return w.Result
}

// Sort brings pods into the order in which those of equal steps are placed: what is bound to a node was there first; of the
// rest larger ones go first, as a scheduler that packs does. Sorted pods are replayed faster.
func Sort(pods []Pod) { slices.SortStableFunc(pods, func(x, y Pod) int { return before(&x, &y) }) }

func before(x, y *Pod) int {
	apart := func(p *Pod) int { return map[bool]int{true: 1}[p.Apart != ""] }
	return cmp.Or(x.From-y.From, later(x)-later(y), cmp.Compare(y.Node, x.Node), apart(y)-apart(x), strings.Compare(x.Gang, y.Gang),
		cmp.Compare(y.Amount(), x.Amount()), strings.Compare(x.ID, y.ID))
}

// run places pods, and returns the figures of each owner of pods, besides those of all.
func (w *world) run(nodes []Node, pods []Pod) map[string]*Result {
	w.classes, w.bound = map[string][]*machine{}, map[string][]*machine{}
	for i := range nodes {
		n := &nodes[i]
		m := &machine{Node: n, gpus: make([]device, n.GPUs), free: n.GPUs}
		w.classes[n.Class] = append(w.classes[n.Class], m)
		w.bound[n.ID] = append(w.bound[n.ID], m)
	}
	owners := map[string]*Result{}
	order := make([]*Pod, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.To <= p.From {
			continue
		}
		if p.own = owners[p.Owner]; p.own == nil && p.Owner != "" {
			p.own = &Result{}
			owners[p.Owner] = p.own
		}
		order = append(order, p)
		if !p.Queued {
			w.each(p, func(r *Result) { r.Requested += p.Amount() * float64(p.To-p.From) })
		}
	}
	if !slices.IsSortedFunc(order, before) {
		slices.SortStableFunc(order, before)
	}
	var waiting []*Pod
	for i := 0; i < len(order); {
		now := order[i].From
		// Who waits until now is known only once all that ends before has left.
		if waiting = w.advance(waiting, now); w.lost(waiting, now) {
			break
		}
		for i < len(order) && order[i].From == now {
			gang := order[i : i+1]
			for i++; i < len(order) && order[i].From == now && order[i].Gang != "" && order[i].Gang == gang[0].Gang; i++ {
				gang = gang[:len(gang)+1]
			}
			if !w.together(gang, now) {
				waiting = append(waiting, gang...)
			}
		}
	}
	for _, p := range w.advance(waiting, 1<<60) {
		w.unplaced(p)
	}
	return owners
}

// lost is true if the budget is exceeded, whatever follows.
func (w *world) lost(waiting []*Pod, now int) bool {
	if w.budget < 0 {
		return false
	}
	waited := w.Waited
	for _, p := range waiting {
		if !p.Queued {
			waited += p.Amount() * float64(min(now, p.To)-p.From)
		}
	}
	return w.Unplaced > 0 || w.Evicted > 0 || waited > w.budget*w.Requested
}

func later(p *Pod) int {
	if p.Queued {
		return 1
	}
	return 0
}

// Amount is the number of GPUs, or the fraction of one.
func (p *Pod) Amount() float64 {
	switch {
	case p.Fraction > 0:
		return p.Fraction
	case p.Size > 0:
		return float64(p.Size) / Slots
	}
	return float64(p.GPUs)
}

func (w *world) unplaced(p *Pod) {
	if !p.Queued {
		w.each(p, func(r *Result) { r.Unplaced++ })
	}
	w.wait(p, p.To)
}

func (w *world) wait(p *Pod, until int) {
	if p.Queued {
		return
	}
	w.each(p, func(r *Result) {
		r.Waiting++
		r.Waited += p.Amount() * float64(until-p.From)
		r.LongestWait = max(r.LongestWait, float64(until-p.From))
	})
}

// advance ends pods up to a step, and places those that wait on what they leave. What ended while it waited never ran.
func (w *world) advance(waiting []*Pod, until int) []*Pod {
	for len(w.running) > 0 && w.running[0].pod.To <= until && !w.lost(waiting, w.running[0].pod.To) {
		now := w.running[0].pod.To
		for len(w.running) > 0 && w.running[0].pod.To <= now {
			w.release(heap.Pop(&w.running).(placement))
		}
		rest := waiting[:0:0]
		for len(waiting) > 0 {
			n := 1
			for n < len(waiting) && waiting[0].Gang != "" && waiting[n].Gang == waiting[0].Gang &&
				waiting[n].From == waiting[0].From {
				n++
			}
			gang := waiting[:n]
			waiting = waiting[n:]
			switch {
			case gang[0].To <= now:
				for _, p := range gang {
					w.unplaced(p)
				}
			case w.together(gang, now):
				for _, p := range gang {
					w.wait(p, now)
				}
			default:
				rest = append(rest, gang...)
			}
		}
		waiting = rest
	}
	return waiting
}

// together places all pods of a gang, or none.
func (w *world) together(gang []*Pod, now int) bool {
	var done []placement
	for _, p := range gang {
		at, ok := w.place(p, now)
		if !ok {
			for _, d := range done {
				w.release(d)
			}
			return false
		}
		done = append(done, at)
	}
	for _, d := range done {
		if d.pod.Queued {
			w.Served += d.pod.Amount() * float64(d.pod.To-now)
		} else {
			w.each(d.pod, func(r *Result) { r.Placed++ })
		}
		heap.Push(&w.running, d)
		w.account(d, now)
	}
	return true
}

// place finds the fullest node on which a pod fits, and on it the fullest GPU. A part of a GPU goes to one that is shared or
// partitioned already, if any node has one with room.
func (w *world) place(p *Pod, now int) (placement, bool) {
	var best *machine
	var at []int
	var mask uint8
	beside := false // others are on that GPU
	machines := w.classes[p.Class]
	if p.Node != "" {
		machines = w.bound[p.Node]
	}
	offered := func(m *machine) bool { return m.From <= now && m.To >= p.To && m.Class == p.Class }
	if i := slices.IndexFunc(w.bound[p.Home], offered); w.home && i >= 0 && w.bound[p.Home][i].takes(p) {
		if at, mask = w.bound[p.Home][i].fit(p); len(at) > 0 {
			best, machines = w.bound[p.Home][i], nil
		}
	}
	for _, m := range machines {
		if !offered(m) {
			continue
		}
		full := best != nil && m.free >= best.free
		if full && (beside || m.partly == 0) || !m.takes(p) {
			continue
		}
		if gpus, slots := m.fit(p); len(gpus) > 0 {
			others := len(m.gpus[gpus[0]].pods) > 0
			if best == nil || others && !beside || others == beside && !full {
				best, at, mask, beside = m, gpus, slots, others
			}
		}
	}
	if best == nil {
		return placement{}, false
	}
	d := placement{p, best, at, mask}
	best.pods, best.cores, best.bytes = append(best.pods, p), best.cores+p.Cores, best.bytes+p.Bytes
	for _, i := range at {
		g := &best.gpus[i]
		if len(g.pods) == 0 {
			best.free--
			if p.Amount() < 1 {
				best.partly++
			}
		}
		g.mask |= mask
		g.fraction += best.part(p)
		g.pods = append(g.pods, p)
	}
	return d, true
}

// fit returns the GPUs of a node that a pod would get, nil if it does not fit.
func (m *machine) fit(p *Pod) ([]int, uint8) {
	if p.Fraction == 0 && p.Size == 0 {
		if m.free < p.GPUs {
			return nil, 0
		}
		gpus := make([]int, 0, p.GPUs)
		for i := range m.gpus {
			if len(gpus) < p.GPUs && len(m.gpus[i].pods) == 0 {
				gpus = append(gpus, i)
			}
		}
		return gpus, 1<<Slots - 1
	}
	best, slots := -1, uint8(0)
	for i := range m.gpus {
		g := &m.gpus[i]
		if mask, ok := g.take(p, m.part(p)); ok && (best < 0 || g.used() > m.gpus[best].used()) {
			best, slots = i, mask
		}
	}
	if best < 0 {
		return nil, 0
	}
	return []int{best}, slots
}

func (g *device) used() float64 { return max(g.fraction, float64(bits.OnesCount8(g.mask))/Slots) }

// part is what a pod occupies of a time-sliced GPU: 0 if it has another one.
func (m *machine) part(p *Pod) float64 {
	if p.Fraction == 0 {
		return 0
	}
	return max(p.Fraction, m.Part)
}

// take returns the slots that a part of the GPU would get. A GPU is either partitioned or time-sliced.
func (g *device) take(p *Pod, part float64) (uint8, bool) {
	if part > 0 {
		sliced := len(g.pods) == 0 || g.fraction > 0
		return 0, sliced && g.fraction+part < 1.001
	}
	for i := range p.Places {
		if mask := uint8((1<<p.Size - 1) << (i * p.Size)); g.mask&mask == 0 && g.fraction == 0 {
			return mask, true
		}
	}
	return 0, false
}

func (w *world) release(d placement) {
	d.on.pods = slices.DeleteFunc(d.on.pods, func(p *Pod) bool { return p == d.pod })
	d.on.cores, d.on.bytes = d.on.cores-d.pod.Cores, d.on.bytes-d.pod.Bytes
	for _, i := range d.gpus {
		g := &d.on.gpus[i]
		g.mask &^= d.mask
		g.fraction -= d.on.part(d.pod)
		g.pods = slices.DeleteFunc(slices.Clone(g.pods), func(p *Pod) bool { return p == d.pod })
		if len(g.pods) == 0 {
			g.mask, g.fraction = 0, 0
			d.on.free++
			if d.pod.Amount() < 1 {
				d.on.partly--
			}
		}
	}
}

// account adds what a placed pod does to its GPUs, beside the pods that are already there. A later pod accounts for the
// time that it shares with those before it.
func (w *world) account(d placement, now int) {
	p := d.pod
	w.each(p, func(r *Result) { r.Occupied += float64(len(d.gpus)) * float64(p.To-now) })
	if p.Fraction == 0 && p.Size == 0 {
		return
	}
	others := d.on.gpus[d.gpus[0]].pods
	const full = 1.0001
	evicted := false
	for k := now; k < p.To; k++ {
		demand, memory, n := 0.0, 0.0, 0
		for _, o := range others {
			if o != p && o.To > k {
				n++
				demand += value(o.Demand, k)
				memory += value(o.Memory, k)
			}
		}
		if n == 0 {
			continue
		}
		w.each(p, func(r *Result) { r.Occupied-- })
		shared := func(r *Result) { r.Shared++ }
		if n == 1 {
			w.Shared++
			w.every(p, others, k, shared)
		} else if !slices.ContainsFunc(others, func(o *Pod) bool { return o != p && o.To > k && o.own == p.own }) {
			w.every(p, nil, k, shared) // those of the others have it already
		}
		if p.Size > 0 {
			continue // MIG devices are isolated
		}
		if together := demand + value(p.Demand, k); together > full {
			w.Excess += together - max(1, demand)
			if demand <= full {
				w.Throttled++
				w.every(p, others, k, func(r *Result) { r.Throttled++ })
			}
		}
		evicted = evicted || memory+value(p.Memory, k) > full
	}
	if evicted {
		w.Evicted++
		w.every(p, others, now, func(r *Result) { r.Evicted++ })
	}
}

// every changes the figures of the owners of the pods that are on a GPU at a step, each once.
func (w *world) every(p *Pod, others []*Pod, k int, change func(*Result)) {
	if p.own != nil {
		change(p.own)
	}
	for i, o := range others {
		again := o == p || o.To <= k || o.own == p.own || o.own == nil
		for _, earlier := range others[:i] {
			again = again || earlier.To > k && earlier.own == o.own
		}
		if !again {
			change(o.own)
		}
	}
}

func value(of func(int) float64, k int) float64 {
	if of == nil {
		return 0
	}
	return of(k)
}

// Levels makes pods of a number of GPUs over time: one for each time with the same number. What differs from a whole
// number by a start or an end within a step is rounded up where it lasts.
func Levels(steps int, base Pod, of func(int) float64) (out []Pod) {
	const noise = 0.3
	last := 0
	for s := range steps {
		n := int(math.Ceil(of(s) - noise))
		if n > 0 && n == last {
			out[len(out)-1].To++
		} else if n > 0 {
			p := base
			p.GPUs, p.From, p.To = n, s, s+1
			out = append(out, p)
		}
		last = n
	}
	return out
}
