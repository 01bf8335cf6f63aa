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

// maxTries bounds the placements that find the shares for which there is room.
const maxTries = 100

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
		placed := func(advised func(*finding) bool) map[string]*replay.Result {
			return a.placement(f, g, byGroup[g.key], advised).Owners()
		}
		before := placed(func(*finding) bool { return false })
		// What is counted has to hold whether or not somebody does what is a question.
		for _, all := range []bool{false, true} {
			follows := func(x *finding) bool { return x.follows() && (all || !x.advice[0].Unsure()) }
			one := func(x *finding) bool { return x.follows() && x.advice[0].Unsure() == all }
			for again := slices.ContainsFunc(byGroup[g.key], one); again; {
				a.crowds(byGroup[g.key], follows, placed)
				after, replays := placed(follows), map[*finding]*document.Replay{}
				again = false
				for _, x := range byGroup[g.key] {
					if r, was := after[x.row.ID], before[x.row.ID]; follows(x) && r != nil {
						is, refuted := a.refutes(x, r, was)
						again = again || refuted
						replays[x] = is
					}
				}
				for x, is := range replays {
					if again {
						break
					}
					if old := x.advice[0].Replay; old != nil {
						is.Throttled, is.OccupiedHours = max(is.Throttled, old.Throttled), old.OccupiedHours
					}
					x.advice[0].Replay = is
				}
			}
		}
	}
}

// refutes compares the figures of a workload with those of before, and withdraws its advice if it would be worse off.
func (a *analysis) refutes(x *finding, r, was *replay.Result) (is *document.Replay, refuted bool) {
	more, budget := *r, a.opt.Advice.Budget // what waits or is evicted anyway is not due to the advice
	more.Waiting, more.Evicted = max(0, r.Waiting-was.Waiting), max(0, r.Evicted-was.Evicted)
	more.Waited, more.LongestWait = max(0, r.Waited-was.Waited), max(0, r.LongestWait-was.LongestWait)
	is = a.replayed(more)
	if r.Unplaced > was.Unplaced || more.Evicted > 0 || more.Waited > budget*r.Requested ||
		r.Throttled > max(was.Throttled, budget*r.Shared) {
		x.refuted("the advice %q, placed on the nodes of the period: %d of %d pods would have waited, %d been evicted, "+
			"throttled in %.2f %% of the time on shared GPUs", x.advice[0].Code, is.Waiting, is.Pods, is.Evicted, 100*is.Throttled)
		return is, true
	}
	return is, false
}

// crowds withdraws advice to share GPUs with which nodes are set aside that pods of others, or its own, would have waited for: what saves
// most is kept. A group of shares is tried at once, and halved if it does not fit.
func (a *analysis) crowds(found []*finding, follows func(*finding) bool,
	owners func(advised func(*finding) bool) map[string]*replay.Result) {
	shares := func(x *finding) bool { return follows(x) && x.row.Advice == document.AdviseShare }
	kept := map[*finding]bool{}
	place := func() map[string]*replay.Result {
		return owners(func(x *finding) bool { return follows(x) && (kept[x] || !shares(x)) })
	}
	var list []*finding
	for _, x := range found {
		if shares(x) {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(x, y *finding) int {
		by := func(x, y *finding) int { return map[bool]int{true: 1}[better(&x.advice[0], &y.advice[0])] }
		return by(y, x) - by(x, y)
	})
	before, tries := place(), 0
	var keep func([]*finding)
	keep = func(list []*finding) {
		for _, x := range list {
			kept[x] = true
		}
		after := place()
		late := slices.IndexFunc(found, func(x *finding) bool {
			r, was := after[x.row.ID], before[x.row.ID]
			return r != nil && (r.Unplaced > was.Unplaced || r.Waited > was.Waited+a.opt.Advice.Budget*r.Requested)
		})
		if tries++; late < 0 {
			return
		}
		for _, x := range list {
			kept[x] = false
		}
		if len(list) == 1 && list[0] == found[late] {
			a.refutes(list[0], after[list[0].row.ID], before[list[0].row.ID])
			return
		}
		if n := len(list) / 2; n > 0 && tries < maxTries {
			keep(list[:n])
			keep(list[n:])
			return
		}
		for _, x := range list {
			x.refuted("a device plugin shares all GPUs of a node or none: with nodes set aside for it, pods of %s would have waited",
				found[late].row.ID)
		}
	}
	keep(list)
}

// refuted withdraws the advice.
func (x *finding) refuted(format string, args ...any) {
	x.row.Advice, x.row.NoAdvice, x.row.NoAdviceReason, x.advice = "", "refuted_by_replay", fmt.Sprintf(format, args...), nil
}
