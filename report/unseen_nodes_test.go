package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
)

// visit is a pod of a node pool: from which step it wants GPUs, and for how many.
type visit struct {
	gpus, wants, lasts int
	from, node         int // where it ran
}

const perNode = 8

// schedule runs pods on nodes of eight GPUs, in the order of their creation, each on the node that has enough unallocated
// GPUs and the most of them, or the fewest. It returns the fraction of the requested GPU-time that pods waited.
func schedule(list []visit, nodes, steps int, spread bool) float64 {
	free, waited, requested := slices.Repeat([]int{perNode}, nodes), 0, 0
	var queue []int
	running, next := map[int][]int{}, 0 // by end
	for k := range steps {
		for _, i := range running[k] {
			free[list[i].node] += list[i].gpus
		}
		for ; next < len(list) && list[next].wants <= k; next++ {
			queue = append(queue, next)
		}
		queue = slices.DeleteFunc(queue, func(i int) bool {
			v, best := &list[i], -1
			for n, f := range free {
				if f >= v.gpus && (best < 0 || spread == (f > free[best]) && f != free[best]) {
					best = n
				}
			}
			requested += v.gpus
			if best < 0 {
				waited += v.gpus
				return false
			}
			free[best] -= v.gpus
			v.from, v.node = k, best
			running[k+v.lasts] = append(running[k+v.lasts], i)
			requested += v.gpus * (v.lasts - 1)
			return true
		})
	}
	for _, i := range queue {
		list[i].from = steps // never
	}
	return over(float64(waited), float64(requested))
}

// pool draws a node pool with services and jobs; in one of five, jobs become more after the report. It has 4 to 12 nodes, or a
// multiple of it.
func pool(seed uint64, period, multiple int) (nodes int, list []visit) {
	r := rand.New(rand.NewPCG(seed, 4242))
	nodes = multiple * (4 + r.IntN(9))
	load, factor := (0.1+0.7*r.Float64())*float64(perNode*nodes)/2, 1.0
	if r.IntN(5) == 0 {
		factor = 1.2 + r.Float64()
	}
	for sum := 0.0; sum < load; {
		v := visit{gpus: []int{1, 1, 2, 4}[r.IntN(4)], lasts: 2*period + 1}
		switch r.IntN(6) {
		case 0:
			v.wants = r.IntN(2 * period)
		case 1:
			v.lasts = 1 + r.IntN(2*period)
		}
		sum += float64(v.gpus)
		list = append(list, v)
	}
	const mean, size = 60, 2.4
	for k := range 2 * period {
		rate := load / (mean * size)
		if k/144%7 >= 5 {
			rate /= 3
		}
		if k >= period {
			rate *= factor
		}
		for r.Float64() < rate/(1+rate) {
			list = append(list, visit{gpus: []int{1, 1, 2, 2, 4}[r.IntN(5)], wants: k, lasts: 1 + int(mean*r.ExpFloat64())})
		}
	}
	slices.SortStableFunc(list, func(x, y visit) int { return x.wants - y.wants })
	return nodes, list
}

// unseenPools are the first seeds of pools that nobody looked at while reserve, folds and history were chosen; that was done with
// those from 2,000,000 and from 3,000,000 on, and with unseen.
var unseenPools = []uint64{60221408, 66260702, 13806490, 29979246, 91093837, 16726219, 53034000, 88541878, 12566371, 96485332,
	83144626, 56703744}

// future is a pool that is reported on, and what becomes of it: its pods after the report, and how many nodes an oracle gives back,
// which knows them. Advice is confirmed if they wait for no more than the budget on the nodes that are left.
type future struct {
	nodes, most int
	list, later []visit
	wait        float64 // of later pods that wait on all nodes
}

const poolBudget, poolPeriod = 0.001, unseenWeeks * 7 * 144

func futureOf(seed uint64, multiple int) (x future) {
	x.nodes, x.list = pool(seed, poolPeriod, multiple)
	schedule(x.list, x.nodes, 2*poolPeriod, true)
	for _, v := range x.list {
		if end := v.from + v.lasts; end > poolPeriod {
			x.later = append(x.later, visit{gpus: v.gpus, wants: max(0, v.wants-poolPeriod), lasts: end - max(v.from, poolPeriod)})
		}
	}
	x.wait = schedule(x.later, x.nodes, poolPeriod, false)
	for x.most+1 < x.nodes && x.confirms(x.most+1) {
		x.most++
	}
	return x
}

func (x *future) confirms(n int) bool {
	return n < x.nodes && schedule(x.later, x.nodes-n, poolPeriod, false) <= x.wait+poolBudget
}

// analyzed makes the advice from the pods, without series and their reading.
func (x *future) analyzed() []document.Advice {
	a := analysisOf(poolPeriod, unseenStep)
	a.opt.Advice.Budget = poolBudget
	f, names := newFleet(a.p), make([]string, x.nodes)
	for i := range names {
		names[i] = fmt.Sprint("gpu-", i)
		n := f.node(nodeKey{"", names[i], h100})
		n.size, n.expected = perNode, perNode*poolPeriod
	}
	var runs []run
	for j, v := range x.list {
		if v.from < poolPeriod {
			end := min(v.from+v.lasts, poolPeriod)
			more := level(v.from, end, float64(v.gpus))
			f.nodes[nodeKey{"", names[v.node], h100}].allocated.Plus(&more)
			runs = append(runs, ran(fmt.Sprint("w", j), names[v.node], v.gpus, v.from, end))
		}
	}
	return a.consolidate(f, a.byModel(f, []*finding{placedOn(h100, runs...)}), nil)
}

// reported makes the advice from series of the pods.
func (x *future) reported(t *testing.T) []document.Advice {
	now := monday.Add(unseenWeeks * 7 * day)
	at := func(k int) time.Time { return monday.Add(time.Duration(k) * unseenStep) }
	var s scene
	allocated := make([][]float64, x.nodes)
	for n := range allocated {
		allocated[n] = make([]float64, poolPeriod+1)
	}
	for j, v := range x.list {
		if v.from >= poolPeriod {
			continue
		}
		end := min(v.from+v.lasts, poolPeriod)
		for k := v.from; k < end; k++ {
			allocated[v.node][k] += float64(v.gpus)
		}
		one := job{name: fmt.Sprint("w", j), node: fmt.Sprint("gpu-", v.node), from: at(v.from), to: at(end), memory: 70 * gib,
			busy: func(int64) float64 { return 0.9 }}
		for g := range v.gpus {
			one.pods = append(one.pods, fmt.Sprintf("w%d-0", j))
			one.gpus = append(one.gpus, fmt.Sprintf("GPU-%d-%d", j, g))
		}
		s.job(one)
	}
	for n := range x.nodes {
		l := map[string]string{"node": fmt.Sprint("gpu-", n), "model": h100}
		used := func(unix int64) float64 {
			return allocated[n][min(poolPeriod, max(0, int(unix-monday.Unix()-1)/int(unseenStep.Seconds())))]
		}
		s.add(metric.RuleGPUs, with(l, "state", "busy"), func(u int64) (float64, bool) { return used(u), true })
		s.add(metric.RuleGPUs, with(l, "state", "unallocated"), func(u int64) (float64, bool) { return perNode - used(u), true })
		s.add(metric.RuleCount, l, constant(perNode))
		s.add(metric.KubeLabels, map[string]string{"node": l["node"], "label_node_pool": "pool"}, constant(1))
	}
	return s.must(t, func(o *Options) { o.To, o.Now, o.Step = now, now, unseenStep }).Advice
}

// back is the number of nodes that advice gives back, and whether it is a question.
func back(list []document.Advice) (n int, question bool) {
	for _, a := range list {
		if a.Code == document.AdviseConsolidate {
			return int(a.SavedGPUs/perNode + 0.5), a.Unsure()
		}
	}
	return 0, false
}

// TestUnseenNodes advises on node pools that nobody has looked at: 90 % of the advice in the sums is confirmed by the five weeks
// that follow, and it has two fifths of the nodes that an oracle gives back. What is made from series is the same. With -fleets=all
// also of large pools, whose reserve is not rounded up as much: 85 % is confirmed.
func TestUnseenNodes(t *testing.T) {
	seeds, pools, series := unseenPools[:2], []int{40, 0}, 1
	switch *fleets {
	case "all":
		seeds, pools, series = unseenPools, []int{80, 16}, 4
	case "development":
		seeds, pools, series = []uint64{2_000_000, 2_001_000, 3_000_000}, []int{80, 16}, 1
	}
	for i, multiple := range []int{1, 5} {
		var given, confirmed, nodes, right [2]float64 // in the sums, and questions
		possible := 0.0
		for _, seed := range seeds {
			for p := range uint64(pools[i]) {
				x := futureOf(seed+p, multiple)
				n, question := back(x.analyzed())
				if multiple == 1 && p < uint64(series) {
					if m, asks := back(x.reported(t)); m != n || asks != question {
						t.Errorf("seed %d: %d and %v, from series %d and %v", seed+p, n, question, m, asks)
					}
				}
				if possible += float64(x.most); n == 0 {
					continue
				}
				level := 0
				if question {
					level = 1
				}
				given[level]++
				nodes[level] += float64(n)
				if x.confirms(n) {
					confirmed[level]++
					right[level] += float64(n)
				}
			}
		}
		for j, name := range []string{"in the sums", "questions"} {
			t.Logf("pools of %d to %d nodes, %s: %.0f given, %.0f confirmed (%.1f %%); %.0f nodes, %.0f confirmed, of %.0f that the "+
				"oracle gives back (%.1f %%)", 4*multiple, 12*multiple, name, given[j], confirmed[j],
				100*over(confirmed[j], given[j]), nodes[j],
				right[j], possible, 100*over(right[j], possible))
		}
		least := []float64{0.9, 0.85}[i]
		if pools[i] > 0 && (given[0] < 20 || confirmed[0] < least*given[0] || right[0] < 0.4*possible) {
			t.Errorf("%.0f of %.0f confirmed, %.0f of %.0f nodes", confirmed[0], given[0], right[0], possible)
		}
	}
}
