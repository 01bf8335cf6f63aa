package report

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// run is a pod as it ran on its GPUs: what a replay places. Its demand and memory are those of a pod with one whole GPU,
// by the hour and in hundredths of it.
type run struct {
	cluster, model, node, workload string
	demand, memory                 []uint8 // nil while unknown
	first                          int     // hour of the first
	share                          float64 // GPUs that its node's account counts as allocated to it
	replay.Pod
}

// splitAfter is how long a pod must have been without its GPUs to count as two that ran one after the other.
const splitAfter = 15 * time.Minute

// shapeOf is the shape of the devices of a MIG profile.
func shapeOf(gpu *mig.GPU, p mig.Profile) replay.Shape {
	return replay.Shape{Size: p.Memory * replay.Slots / gpu.Memory, Places: p.PerGPU}
}

// runs are the pods of a workload, each for the time in which its GPUs were allocated.
func (a *analysis) runs(l *load) []run {
	var out []run
	gap := int(splitAfter/a.p.Step) + 1
	for _, x := range l.allocations {
		t := &x.busy
		if t.Len() == 0 {
			t = &x.share
		}
		for _, s := range t.Spans(gap) {
			n := run{cluster: l.key.cluster, model: l.key.model, node: x.key.node, workload: l.key.id(), share: x.typical}
			request := a.requests[podKey{x.key.cluster, x.key.namespace, x.key.pod}]
			n.Pod = replay.Pod{ID: l.key.id() + "/" + x.key.pod, Gang: l.key.id(), From: s.From, To: s.To, GPUs: 1,
				Cores: request.Cores, Bytes: request.Bytes}
			if strings.EqualFold(l.key.kind, "DaemonSet") {
				n.Node = x.key.node // it leaves with the node
			}
			switch {
			case x.mig():
				if gpu, ok := a.migGPU(x.model); ok {
					if p, ok := gpu.FromResource(x.resource); ok {
						n.Shape = shapeOf(gpu, p)
					}
				}
			case x.shared():
				n.Shape = replay.Shape{Fraction: x.typical}
			default:
				a.demands(&n, x)
			}
			// The GPUs of one pod are placed together.
			same := slices.IndexFunc(out, func(o run) bool {
				return o.ID == n.ID && o.node == n.node && n.From < o.To && o.From < n.To && n.whole() && o.whole()
			})
			if same >= 0 {
				o := &out[same]
				o.GPUs++
				o.share += n.share
				o.From, o.To = min(o.From, n.From), max(o.To, n.To)
				o.demand, o.memory = nil, nil
				continue
			}
			out = append(out, n)
		}
	}
	where := func(n *run) (*replay.Pod, string) { return &n.Pod, n.node }
	if k := gpu.KindOf(l.key.kind); k.Pods != gpu.Together && replay.Spread(out, where) {
		for i := range out {
			out[i].Apart = l.key.id()
		}
	}
	// Pods of a gang that start in the same step belong together, as those of a StatefulSet may; replicas do not.
	if k := gpu.KindOf(l.key.kind); k.Pods == gpu.Alone || k.Pods == gpu.Interchangeable || len(out) < 2 {
		for i := range out {
			out[i].Gang = ""
		}
	}
	return out
}

// whole is true if whole GPUs are allocated to the pod.
func (n *run) whole() bool { return n.Fraction == 0 && n.Size == 0 }

// demands adds the demand of a pod on a whole GPU.
func (a *analysis) demands(n *run, x *allocation) {
	total, perHour := a.facts.byModel[x.model], a.p.PerHour()
	if total <= 0 || x.busy.Len() == 0 || !x.sole() {
		return
	}
	n.first = n.From / perHour
	hours := (n.To-1)/perHour - n.first + 1
	n.demand = make([]uint8, hours)
	if x.memory.Len() > 0 {
		n.memory = make([]uint8, hours)
	}
	raise := func(list []uint8, k int, v float64) {
		p := &list[k/perHour-n.first]
		*p = max(*p, series.Hundredths(v))
	}
	for k, v := range x.busy.Within(n.From, n.To) {
		raise(n.demand, k, x.activity(k, v))
	}
	for k, v := range x.memory.Within(n.From, n.To) {
		raise(n.memory, k, v/total)
	}
}

// hourly returns the values of a list by step.
func (a *analysis) hourly(list []uint8, first int) func(int) float64 {
	perHour := a.p.PerHour()
	return func(k int) float64 { return float64(list[k/perHour-first]) / 100 }
}

// fleetNodes are the nodes of one model, as a replay takes them, and what is on them besides known pods.
type fleetNodes struct {
	key          nodeKey // cluster and model
	pods         []replay.Pod
	unknown      []replay.Pod // allocated, or not reported: they count as pods
	broken       []replay.Pod // unavailable GPUs, bound to their node
	replay.Fleet              // with all three
	back         []string     // nodes that can be given back
	// partitioned are the slots of MIG devices that pods had at the same time, at most, by node.
	partitioned map[string]float64
	peak        float64 // allocated GPUs at the busiest time
}

// byModel prepares a replay for each model of each cluster.
func (a *analysis) byModel(f *fleet, found []*finding) []*fleetNodes {
	steps, onNode := f.p.Steps(), map[nodeKey][]*run{}
	for _, x := range found {
		for i := range x.runs {
			r := &x.runs[i]
			k := nodeKey{r.cluster, r.node, r.model}
			onNode[k] = append(onNode[k], r)
		}
	}
	groups := map[nodeKey]*fleetNodes{}
	totals := map[*fleetNodes]*series.Track{}
	known, slots := make([]float64, steps), make([]float64, steps) // of one node
	for _, n := range f.sorted() {
		k := nodeKey{n.key.cluster, "", n.key.model}
		g := entry(groups, k)
		if g.Used == nil {
			g.key, g.Used, g.Left, g.partitioned = k, map[string]float64{}, map[string]bool{}, map[string]float64{}
		}
		class := f.class(n)
		machine := replay.Node{ID: n.key.node, Class: class, GPUs: n.gpus(), To: steps, Cores: n.Cores, Bytes: n.Bytes}
		clear(known)
		clear(slots)
		whole, parts := false, []float64(nil) // pods have whole GPUs, or parts of them
		for _, r := range onNode[n.key] {
			p := r.Pod
			p.Class = class
			g.pods = append(g.pods, p)
			if whole = whole || p.Fraction == 0; p.Fraction > 0 {
				parts = append(parts, p.Fraction)
			}
			for s := p.From; s < p.To; s++ {
				known[s] += r.share
				slots[s] += float64(p.Size)
			}
		}
		g.partitioned[n.key.node] = slices.Max(slots)
		g.Used[n.key.node], g.Left[n.key.node] = n.allocated.Sum(), n.removed
		entry(totals, g).Plus(&n.allocated)
		if len(parts) == 0 {
			machine.Offers = replay.Whole
		} else if !whole {
			if machine.Offers = replay.Sliced; slices.Max(parts)-slices.Min(parts) < 0.01 {
				machine.Part = parts[0]
			}
		}
		g.Nodes = append(g.Nodes, machine)
		base := replay.Pod{ID: "?" + n.key.node, Class: class, Unknown: true, Home: n.key.node}
		g.unknown = append(g.unknown, replay.Levels(steps, base, func(s int) float64 {
			return n.allocated.Or(s, 0) + n.silent.Or(s, 0) - known[s]
		})...)
		base.Node = n.key.node
		g.broken = append(g.broken, replay.Levels(steps, base, func(s int) float64 { return n.unavailable.Or(s, 0) })...)
	}
	out := make([]*fleetNodes, 0, len(groups))
	for _, k := range sorted(groups) {
		g := groups[k]
		g.peak = totals[g].Values(0, steps).Top()
		g.Pods = slices.Concat(g.broken, g.pods, g.unknown)
		replay.Sort(g.Pods)
		out = append(out, g)
	}
	return out
}

// placement are the nodes of a model, and all pods of the period on them, with some of the advice on workloads followed.
func (a *analysis) placement(f *fleet, g *fleetNodes, found []*finding, advised func(*finding) bool) *replay.Fleet {
	then := &replay.Fleet{Nodes: g.Nodes, Pods: slices.Concat(g.broken, g.unknown), Left: g.Left, Used: maps.Clone(g.Used)}
	for _, x := range found {
		list, follows := x.replaced, advised(x)
		if !follows {
			list = nil
		}
		for _, r := range x.runs {
			if r.Owner = r.workload; !follows {
				list = append(list, r.Pod)
			} else if x.row.Cluster == g.key.cluster && x.row.Model == g.key.model {
				then.Used[r.node] -= r.share * float64(r.To-r.From)
			}
		}
		for _, p := range list {
			id, _, _ := strings.Cut(p.ID, "#") // of the pod's first GPU
			n := f.nodes[nodeKey{g.key.cluster, x.nodes[id], g.key.model}]
			if n == nil || x.row.Cluster != g.key.cluster || x.row.Model != g.key.model {
				continue
			}
			p.Class, p.Home = f.class(n), n.key.node
			if then.Pods = append(then.Pods, p); follows && x.row.Advice == document.AdviseShare {
				then.Sized = append(then.Sized, p)
			} else if follows {
				then.Used[n.key.node] += p.Amount() * float64(p.To-p.From)
			}
		}
	}
	replay.Sort(then.Pods)
	return then
}

// nodeHistory is how long a pool must be known for its nodes to be given back with confidence: three weeks.
const nodeHistory = 21 * day

// consolidate recommends to give nodes back where the pods of the period would have run on the rest of them, and which more could be given
// back once all advice about workloads is carried out: what it frees changes no invoice by itself. That is as sure as the least sure part.
func (a *analysis) consolidate(f *fleet, groups []*fleetNodes, found []*finding) (out []document.Advice) {
	for _, g := range groups {
		level, n := "high", 0
		for _, x := range found {
			if x.follows() && x.row.Cluster == g.key.cluster && x.row.Model == g.key.model {
				n++
				level = document.Least(level, x.advice[0].Confidence)
			}
		}
		var counted *replay.Fleet
		if n > 0 {
			counted = a.placement(f, g, found, func(x *finding) bool { return x.follows() && !x.advice[0].Unsure() })
		}
		if ad := a.giveBack(f, g, counted); ad != nil {
			out = append(out, *ad)
		}
		if n == 0 {
			continue
		}
		then := *g
		then.Fleet, then.Left = *a.placement(f, g, found, (*finding).follows), maps.Clone(g.Left)
		for _, name := range g.back {
			then.Left[name] = true
		}
		if ad := a.giveBack(f, &then, nil); ad != nil {
			ad.Reason, ad.Confidence = "after_advice", document.Least(level, ad.Confidence)
			ad.Title = "After the advice on workloads: " + strings.ToLower(ad.Title[:1]) + ad.Title[1:]
			ad.Evidence = fmt.Sprintf("With %s on workloads carried out: %s", units.Count(float64(n), "recommendation"), ad.Evidence)
			out = append(out, *ad)
		}
	}
	return out
}

// giveBack finds the nodes of a model that can be given back, whether or not the advice on workloads that is counted is carried out.
func (a *analysis) giveBack(f *fleet, g *fleetNodes, counted *replay.Fleet) *document.Advice {
	budget, steps, first := a.opt.Advice.Budget, a.p.Steps(), max(0, slices.Index(f.covered, true))
	known := a.p.Duration(steps - first)
	if known < a.opt.Advice.Observed*19/20 || g.key.model == "" {
		return nil
	}
	order, needless, _ := g.Removable(first, steps, budget)
	if len(order) < 2 || needless == 0 {
		return nil
	}
	h := g.Needs(order, first, steps, budget)
	n, doubt := h.Back(h.Reserved(h.Left[needless], sizing.Headroom, len(h.Parts))), ""
	if n == 0 {
		n, doubt = needless, "no reserve is left"
	}
	if counted != nil { // shares need nodes of their own
		n = sort.Search(n, func(k int) bool { return !counted.Without(order[:k+1], first, steps, budget).Feasible(budget) })
	}
	r := g.Without(order[:n], first, steps, -1)
	if n == 0 || !r.Feasible(budget) {
		return nil
	}
	g.back = order[:n]
	validation := a.validateNodes(g, h)
	switch {
	case known < nodeHistory*19/20:
		doubt = fmt.Sprintf("%s of history are less than three weeks", units.Duration(known))
	case validation != nil && validation.Worst > budget:
		doubt = "a part of the period needed more than those before it, with a reserve"
	case slices.ContainsFunc(order[:n], func(name string) bool { return f.nodes[nodeKey{g.key.cluster, name, g.key.model}].guessed }):
		doubt = "no label names their node pool (--node-pool-label)"
	}
	var back document.Account
	for _, name := range order[:n] {
		x := f.nodes[nodeKey{g.key.cluster, name, g.key.model}]
		back.Hours += x.expected * a.p.StepHours()
		back.Add(document.States{}, x.expected*a.p.StepHours(), 0, 0, nil, a.price(x.key))
	}
	ad := a.advice(g.key, document.AdviseConsolidate, "half_empty_nodes", back.Hours, "medium")
	ad.SavedCost = back.Cost
	ad.Nodes, ad.SavedGPUs, ad.Saving, ad.Replay, ad.Validation = n, h.Left[0]-h.Left[n], document.SavesNodes, a.replayed(r), validation
	names := slices.Sorted(slices.Values(order[:n]))
	ad.Title = fmt.Sprintf("Give back %s of %s: %s", units.Count(float64(n), "node"), g.key.model, units.Few(names, 8))
	ad.Evidence = fmt.Sprintf("%d pods of the period, placed on the other %s with %.0f GPUs, would all have run: %s. "+
		"%.0f GPUs were allocated at the busiest time.", r.Placed, units.Count(float64(len(order)-n), "node"), h.Left[n],
		r.Waits(a.p.Step), g.peak)
	ad.Risk = "medium: only the reserve is left for growth and for the loss of a node; drain each node before it is removed"
	if len(order) == n {
		ad.Evidence = "None of them was allocated at any time of the period."
		ad.Alternatives, ad.Risk = "No node of the model is left.", "medium: nothing is left for new pods"
	} else {
		ad.Alternatives = units.Sentence(units.Count(float64(len(order)-needless), "node"), " would have sufficed, without a reserve; "+
			"with one less, ", g.Without(order[:needless+1], first, steps, -1).Waits(a.p.Step))
	}
	if kept := g.Kept(); len(kept) > 0 {
		ad.Evidence += " Kept: no two replicas on one node, which was always so, of " + units.Few(kept, 8) + "."
	}
	if doubt != "" {
		ad.Confidence, ad.Evidence = "low", ad.Evidence+" Confidence is low: "+doubt+"."
	}
	ad.ChangeIn = "node pool"
	ad.Change = "# new pods fill nodes one after the other: kube-scheduler, NodeResourcesFit with\n" +
		"#   scoringStrategy.type: MostAllocated for nvidia.com/gpu; then\nkubectl drain --ignore-daemonsets " +
		strings.Join(names, " ")
	return &ad
}

// replayed are the figures of a replay.
func (a *analysis) replayed(r replay.Result) *document.Replay {
	h := a.p.StepHours()
	return &document.Replay{Pods: r.Placed + r.Unplaced, Waiting: r.Waiting, WaitedHours: r.Waited * h, LongestWait: r.LongestWait * h,
		OccupiedHours: r.Occupied * h, Throttled: over(r.Throttled, r.Shared), Evicted: r.Evicted, Unknown: a.unknown}
}

// validateNodes chooses the nodes by what was needed before each fold, and replays the fold without them.
func (a *analysis) validateNodes(g *fleetNodes, h *replay.Needs) *document.Validation {
	var v demand.Validation
	for i := len(h.Parts) / 2; i < len(h.Parts); i++ {
		n := h.Back(h.Reserved(slices.Max(h.Parts[:i]), sizing.Headroom, i))
		if n == 0 {
			continue
		}
		r := g.Without(h.Order[:n], h.From[i], h.From[i+1], -1)
		v.Add(units.Count(float64(len(h.Order)-n), "node"), series.Span{From: h.From[i] - h.From[0], To: h.From[i+1] - h.From[0]},
			over(r.Waited, r.Requested))
	}
	return v.Result(a.p)
}
