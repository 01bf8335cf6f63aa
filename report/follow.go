package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/demand"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

// followed is what the pods of a workload would have been, had its advice been followed.
type followed struct {
	ends     map[string]int // step at which a pod is released
	size     *sizing.Size
	fewer    int // GPUs of each pod
	replicas int
}

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
			} else if gpu, ok := a.migGPU(x.model); ok {
				p.Shape = replay.Shape{Size: s.Profile.Memory * replay.Slots / gpu.Memory, Places: s.Profile.PerGPU}
			}
			if x.known {
				p.Demand = a.hourly(x.demand, x.first)
				if s := what.size; s.Memory > 0 && r.MemoryKind == demand.Needed {
					p.Memory = a.hourly(x.memory, x.first)
				}
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

// refute places the pods of a period again, with all advice about workloads followed, and withdraws what would have made
// pods of the same workload wait, be throttled or be evicted, more than without any advice.
func (a *analysis) refute(f *fleet, groups []*fleetNodes, found []*finding) {
	byGroup, own := map[nodeKey][]*finding{}, map[string]*finding{}
	for _, x := range found {
		k := nodeKey{x.row.Cluster, "", x.row.Model}
		byGroup[k] = append(byGroup[k], x)
		if len(x.advice) > 0 && x.row.Advice != document.AdviseLessSharing {
			own[x.row.ID] = x
		}
	}
	for _, g := range groups {
		placed := func(advised bool) map[string]*replay.Result {
			pods := slices.Concat(g.broken, g.unknown)
			for _, x := range byGroup[g.key] {
				list := x.replaced
				if !advised || own[x.row.ID] == nil {
					list = list[:0:0]
					for _, r := range x.runs {
						p := r.Pod
						p.Owner = r.workload
						list = append(list, p)
					}
				}
				for _, p := range list {
					id, _, _ := strings.Cut(p.ID, "#") // of the pod's first GPU
					if n := f.nodes[nodeKey{g.key.cluster, x.nodes[id], g.key.model}]; n != nil {
						p.Class = f.class(n)
						pods = append(pods, p)
					}
				}
			}
			_, owners := replay.Owners(g.machines, pods)
			return owners
		}
		advised := slices.ContainsFunc(byGroup[g.key], func(x *finding) bool { return own[x.row.ID] != nil })
		if !advised {
			continue
		}
		before := placed(false)
		for range 3 {
			after, withdrawn := placed(true), false
			for _, x := range byGroup[g.key] {
				r := after[x.row.ID]
				if own[x.row.ID] == nil || r == nil {
					continue
				}
				budget, was := a.opt.Advice.Budget, replay.Result{}
				if before[x.row.ID] != nil {
					was = *before[x.row.ID]
				}
				if r.Unplaced > was.Unplaced || r.Evicted > was.Evicted || r.Waited > was.Waited+budget*r.Requested ||
					r.Throttled > math.Max(was.Throttled, budget*r.Shared) {
					ad := x.advice[0]
					delete(own, x.row.ID)
					x.advice, x.row.Advice, x.row.NoAdvice = nil, "", "refuted_by_replay"
					x.row.NoAdviceReason = fmt.Sprintf("the advice %q, placed on the nodes of the period: %d of %d pods would have "+
						"waited, %d been evicted, throttled in %.2f %% of the time on shared GPUs", ad.Code, r.Waiting, r.Placed+r.Unplaced,
						r.Evicted, 100*over(r.Throttled, r.Shared))
					withdrawn = true
					continue
				}
				is, ad := a.replayed(*r), &x.advice[0]
				if old := ad.Replay; old != nil {
					is.Throttled, is.OccupiedHours = max(is.Throttled, old.Throttled), old.OccupiedHours
				}
				ad.Replay = is
			}
			if !withdrawn {
				break
			}
		}
	}
}
