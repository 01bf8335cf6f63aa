package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
)

// follow changes the pods of a workload as its advice says.
func (a *analysis) follow(runs []run, r *document.Workload, what followed) (out []replay.Pod) {
	var last []int // ends of the replicas
	slices.SortStableFunc(runs, func(x, y run) int { return x.From - y.From })
	for _, x := range runs {
		p := x.Pod
		p.Owner = x.workload
		switch r.Advice {
		case document.AdviseRelease:
			if end, ok := what.ends[x.ID[strings.LastIndex(x.ID, "/")+1:]]; ok {
				p.To = min(p.To, end)
			}
		case document.AdviseFewer:
			if p.GPUs > what.fewer {
				p.GPUs -= what.fewer
			}
		case document.AdviseReplicas:
			free := slices.IndexFunc(last, func(end int) bool { return end <= p.From })
			switch {
			case free >= 0:
				last[free] = p.To
			case len(last) < what.replicas:
				last = append(last, p.To)
			default:
				p.To = p.From
			}
		case document.AdviseShare, document.AdviseShrink:
			gpus := p.GPUs
			p.GPUs, p.Gang = 1, ""
			if s := what.size; s.Replicas > 0 {
				p.Shape = replay.Shape{Fraction: s.Part}
			} else {
				gpu, _ := a.migGPU(x.model)
				p.Shape = shapeOf(gpu, s.Profile)
			}
			if x.demand != nil {
				p.Demand = a.hourly(x.demand, x.first)
			}
			if x.memory != nil && r.MemoryKind == demand.Needed {
				p.Memory = a.hourly(x.memory, x.first)
			}
			for i := range gpus - 1 {
				more := p
				more.ID += fmt.Sprint("#", i+2)
				out = append(out, more)
			}
		}
		if p.From < p.To {
			out = append(out, p)
		}
	}
	return out
}

// follows is true if the pods of a workload are placed as its advice says.
func (x *finding) follows() bool {
	return len(x.advice) > 0 && x.row.Advice != document.AdviseLessSharing
}

// refute places the pods of a period again, with all advice about workloads followed, and withdraws what would have made
// pods of the same workload wait, be throttled or be evicted, more than without any advice. What is withdrawn may refute other
// advice: it ends once all that remains has been placed together.
func (a *analysis) refute(f *fleet, groups []*fleetNodes, found []*finding) {
	byGroup := map[nodeKey][]*finding{}
	for _, x := range found {
		k := nodeKey{x.row.Cluster, "", x.row.Model}
		byGroup[k] = append(byGroup[k], x)
	}
	for _, g := range groups {
		placed := func(advised bool) map[string]*replay.Result {
			_, owners := replay.Owners(a.placement(f, g, byGroup[g.key], advised))
			return owners
		}
		before, budget := placed(false), a.opt.Advice.Budget
		for again := true; again; {
			after, replays := placed(true), map[*finding]*document.Replay{}
			if again = a.crowds(byGroup[g.key], before, after); again {
				continue
			}
			for _, x := range byGroup[g.key] {
				r, was := after[x.row.ID], before[x.row.ID]
				if !x.follows() || r == nil {
					continue
				}
				more := *r // what waits or is evicted anyway is not due to the advice
				more.Waiting, more.Evicted = max(0, r.Waiting-was.Waiting), max(0, r.Evicted-was.Evicted)
				more.Waited, more.LongestWait = max(0, r.Waited-was.Waited), max(0, r.LongestWait-was.LongestWait)
				is := a.replayed(more)
				if r.Unplaced > was.Unplaced || more.Evicted > 0 || more.Waited > budget*r.Requested ||
					r.Throttled > max(was.Throttled, budget*r.Shared) {
					x.refuted("the advice %q, placed on the nodes of the period: %d of %d pods would have waited, %d been evicted, "+
						"throttled in %.2f %% of the time on shared GPUs", x.advice[0].Code, is.Waiting, is.Pods, is.Evicted,
						100*is.Throttled)
					again = true
					continue
				}
				if old := x.advice[0].Replay; old != nil {
					is.Throttled, is.OccupiedHours = max(is.Throttled, old.Throttled), old.OccupiedHours
				}
				replays[x] = is
			}
			for x, is := range replays {
				if !again {
					x.advice[0].Replay = is
				}
			}
		}
	}
}

// crowds withdraws the advice to share GPUs if the nodes that are set aside for it make pods of workloads without advice wait.
func (a *analysis) crowds(found []*finding, before, after map[string]*replay.Result) (withdrawn bool) {
	for _, x := range found {
		r, was := after[x.row.ID], before[x.row.ID]
		if x.follows() || r == nil || r.Unplaced <= was.Unplaced && r.Waited <= was.Waited+a.opt.Advice.Budget*r.Requested {
			continue
		}
		for _, y := range found {
			if y.row.Advice == document.AdviseShare {
				y.refuted("a device plugin shares all GPUs of a node or none: with nodes set aside for it, pods of %s would have waited",
					x.row.ID)
				withdrawn = true
			}
		}
	}
	return withdrawn
}

// refuted withdraws the advice.
func (x *finding) refuted(format string, args ...any) {
	x.row.Advice, x.row.NoAdvice, x.row.NoAdviceReason, x.advice = "", "refuted_by_replay", fmt.Sprintf(format, args...), nil
}

// placement are the nodes of a model, and all pods of the period on them, with or without the advice on workloads followed.
func (a *analysis) placement(f *fleet, g *fleetNodes, found []*finding, advised bool) ([]replay.Node, []replay.Pod) {
	pods, nodes := slices.Concat(g.broken, g.unknown), slices.Clone(g.Nodes)
	var shared []replay.Pod // by advice
	own := map[string]float64{}
	for _, x := range found {
		for _, r := range x.runs {
			if advised && x.row.Advice == document.AdviseShare {
				own[r.node] += r.share * float64(r.To-r.From)
			}
		}
		list := x.replaced
		if !advised || !x.follows() {
			list = nil
			for _, r := range x.runs {
				p := r.Pod
				p.Owner = r.workload
				list = append(list, p)
			}
		}
		for _, p := range list {
			id, _, _ := strings.Cut(p.ID, "#") // of the pod's first GPU
			n := f.nodes[nodeKey{g.key.cluster, x.nodes[id], g.key.model}]
			if n != nil && x.row.Cluster == g.key.cluster && x.row.Model == g.key.model {
				p.Class = f.class(n)
				pods = append(pods, p)
				if advised && x.row.Advice == document.AdviseShare {
					shared = append(shared, p)
				}
			}
		}
	}
	if advised {
		replay.SetAside(nodes, shared, func(name string) float64 { return g.Used[name] - own[name] })
	}
	return nodes, pods
}
