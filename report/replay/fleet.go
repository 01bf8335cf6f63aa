package replay

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// Fleet are nodes, and all that is placed on them, in the order of Sort.
type Fleet struct {
	Nodes []Node
	Pods  []Pod
	// Sized are those of the pods for which nodes are set aside.
	Sized []Pod
	// Left are the nodes that have left; Used has the GPU-steps in which the GPUs of a node were allocated.
	Left map[string]bool
	Used map[string]float64
}

// Owners replays all of it, each pod on the node where it ran if it can be, for the figures of each owner of pods.
func (f *Fleet) Owners() map[string]*Result {
	nodes := slices.Clone(f.Nodes)
	f.setAside(nodes, f.Pods, f.Sized)
	w := world{budget: -1, home: true}
	return w.run(nodes, f.Pods)
}

// Unknown lists what a placement does not know.
func Unknown(requests, guessedPools bool) string {
	return "taints, affinity, volumes, NVLink, NUMA" + map[bool]string{false: ", CPU and memory"}[requests] +
		map[bool]string{true: "; node pools are guessed"}[guessedPools]
}

// Waits describes who would have waited.
func (r Result) Waits(step time.Duration) string {
	if r.Waiting == 0 {
		return "none would have waited"
	}
	text := fmt.Sprintf("%d would have waited, %s at the longest", r.Waiting, units.Duration(time.Duration(r.LongestWait*float64(step))))
	if r.Unplaced > 0 {
		text += fmt.Sprintf(", and %d would not have run at all", r.Unplaced)
	}
	return text
}

// Without replays a part of the period without some nodes, and those that have left. It ends as soon as the budget is exceeded; a
// negative one never is.
func (f *Fleet) Without(names []string, from, to int, budget float64) Result {
	removed := map[string]bool{}
	var nodes []Node
	for _, n := range f.Nodes {
		if removed[n.ID] = f.Left[n.ID] || slices.Contains(names, n.ID); !removed[n.ID] {
			nodes = append(nodes, n)
		}
	}
	left := func(of []Pod) (pods []Pod) {
		for _, p := range of {
			p.From, p.To = max(p.From, from), min(p.To, to)
			if p.From < p.To && (p.Node == "" || !removed[p.Node]) {
				pods = append(pods, p)
			}
		}
		return pods
	}
	pods := left(f.Pods)
	f.setAside(nodes, pods, left(f.Sized))
	return Within(nodes, pods, budget)
}

// Removable finds how many nodes, least used first, a part of the period would not have needed.
func (f *Fleet) Removable(from, to int, budget float64) (order []string, n int, r Result) {
	least := slices.SortedFunc(slices.Values(f.Nodes), func(x, y Node) int {
		return cmp.Or(cmp.Compare(f.Used[x.ID]/float64(max(1, x.GPUs)), f.Used[y.ID]/float64(max(1, y.GPUs))), strings.Compare(x.ID, y.ID))
	})
	for _, x := range least {
		if !f.Left[x.ID] {
			order = append(order, x.ID)
		}
	}
	low, high := 0, len(order)+1 // low is feasible, high is not
	for high-low > 1 {
		mid := (low + high) / 2
		if x := f.Without(order[:mid], from, to, budget); x.Feasible(budget) {
			low, r = mid, x
		} else {
			high = mid
		}
	}
	return order, low, r
}

// Needs are the GPUs of the nodes that each eighth of a history needed.
type Needs struct {
	// Order has the nodes that could be given back, Left the GPUs of the others if none, one, two, ... of them are.
	Order []string
	Left  []float64
	// From is the begin of each eighth, and the end.
	From  [9]int
	Parts [8]float64
}

// Needs replays the eighths of a part of the period.
func (f *Fleet) Needs(order []string, from, to int, budget float64) *Needs {
	h := &Needs{Order: order, Left: make([]float64, len(order)+1), From: [9]int{from}}
	for i := len(order) - 1; i >= 0; i-- {
		for _, m := range f.Nodes {
			if m.ID == order[i] {
				h.Left[i] = h.Left[i+1] + float64(m.GPUs)
			}
		}
	}
	for i := range h.Parts {
		h.From[i+1] = from + (i+1)*(to-from)/len(h.Parts)
		_, n, _ := f.Removable(h.From[i], h.From[i+1], budget)
		h.Parts[i] = h.Left[n]
	}
	return h
}

// Grew is by how much one of the eighths before number i needed more than all before it. The first half of them only shows what
// was needed.
func (h *Needs) Grew(i int) (most float64) {
	for k := (i + 1) / 2; k < i; k++ {
		most = max(most, h.Parts[k]-slices.Max(h.Parts[:k]))
	}
	return most
}

// Reserved is what has to be left before eighth number i if so much was needed until then: with headroom, as of a size, or what was
// added before.
func (h *Needs) Reserved(need, headroom float64, i int) float64 {
	return max(headroom*need, need+h.Grew(i))
}

// Back is how many nodes can be given back if the others have to have some GPUs.
func (h *Needs) Back(gpus float64) (n int) {
	for n < len(h.Order) && h.Left[n+1] >= gpus-1e-9 {
		n++
	}
	return n
}

// setAside makes nodes that offer whole GPUs offer parts, as few as those pods that need parts need beside what time-sliced nodes have
// free: a device plugin shares all GPUs of a node or none, in parts of one size. Those that others use least are first; what is bound to
// a node and needs a whole GPU keeps it. pods are all, sized those that are to be placed so.
func (f *Fleet) setAside(nodes []Node, pods, sized []Pod) {
	sizes, small, bound := map[string][]float64{}, map[string][]Pod{}, map[string]bool{} // by class, and by node
	for i := range sized {
		if p := &sized[i]; p.Fraction > 0 && !slices.Contains(sizes[p.Class], p.Fraction) {
			sizes[p.Class] = append(sizes[p.Class], p.Fraction)
		}
	}
	for i := range pods {
		p := &pods[i]
		if bound[p.Node] = bound[p.Node] || p.Fraction == 0 && !p.Unknown; p.Fraction > 0 && sizes[p.Class] != nil {
			small[p.Class] = append(small[p.Class], *p)
		}
	}
	for class, list := range sizes {
		var free []*Node  // may be set aside
		var shared []Node // are
		for i := range nodes {
			if n := &nodes[i]; n.Class == class && n.Offers == Sliced {
				shared = append(shared, *n)
			} else if n.Class == class && n.Offers == Whole && !bound[n.ID] {
				free = append(free, n)
			}
		}
		slices.SortStableFunc(free, func(x, y *Node) int {
			return cmp.Compare(f.Used[x.ID]/float64(max(1, x.GPUs)), f.Used[y.ID]/float64(max(1, y.GPUs)))
		})
		slices.Sort(list)
		for _, size := range slices.Backward(list) {
			placed := slices.DeleteFunc(slices.Clone(small[class]), func(p Pod) bool { return p.Fraction < size })
			Sort(placed)
			with := func(n int) Result {
				machines := slices.Clone(shared)
				for _, x := range free[:n] {
					x := *x
					x.Offers, x.Part = Sliced, size
					machines = append(machines, x)
				}
				return Run(machines, placed)
			}
			best := with(len(free))
			n := sort.Search(len(free), func(n int) bool {
				r := with(n)
				return r.Unplaced <= best.Unplaced && r.Waited <= best.Waited
			})
			for _, x := range free[:n] {
				x.Offers, x.Part = Sliced, size
				shared = append(shared, *x)
			}
			free = free[n:]
		}
	}
}

// Spread is true if pods run at the same time, and never two of them on one node.
func Spread[T any](list []T, of func(*T) (*Pod, string)) bool {
	together := false
	last := map[string]*Pod{} // by node, of those that began the one that ends last
	slices.SortStableFunc(list, func(x, y T) int { p, _ := of(&x); q, _ := of(&y); return p.From - q.From })
	for i := range list {
		p, node := of(&list[i])
		other := func(k string) bool { o := last[k]; return o != nil && p.From+1 < o.To && p.ID != o.ID }
		if together = together || other(""); other(node) {
			return false
		}
		for _, k := range []string{"", node} {
			if o := last[k]; o == nil || p.To > o.To {
				last[k] = p
			}
		}
	}
	return together
}

// Kept lists, without the last part of their names, what is kept apart though two of it have room on a node.
func (f *Fleet) Kept() (names []string) {
	most := 0
	for _, n := range f.Nodes {
		most = max(most, n.GPUs)
	}
	for _, p := range f.Pods {
		if p.Apart != "" && 2*p.Amount() <= float64(most) {
			names = append(names, p.Apart[:strings.LastIndex(p.Apart, "/")])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
