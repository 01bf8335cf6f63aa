package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Truth is what really happened in a period, whatever exporters could measure.
type Truth struct {
	From, To time.Time
	// GPUs is GPU-time by state over all GPUs; it adds up to the number of GPUs times the period.
	GPUs      map[gpu.TimeState]gpu.Seconds
	Workloads []WorkloadTruth // by cluster, namespace, kind and name
}

// WorkloadTruth is what one workload did in a period. Seconds are GPU-seconds: a second on a MIG device or a replica
// counts by its share of the GPU.
type WorkloadTruth struct {
	Class                    Class
	Cluster, Namespace       string
	Kind, Name               string
	Pool, Model, Resource    string
	Pods                     []string
	Devices                  int // maximum at one time: GPUs, replicas or MIG devices
	Allocated                gpu.Seconds
	Busy, Gap, Idle          gpu.Seconds // with Lost they add up to Held, on GPUs that others do not share
	Lost                     gpu.Seconds // allocated on GPUs that could not be read
	Energy                   gpu.Joules
	MemoryPeak, DeviceMemory gpu.Bytes // maximum on one device, and its size
	First, Last              time.Time // of the allocation, within the period
	LastBusy                 gpu.Opt[time.Time]
	Waited                   gpu.Seconds // requested GPUs times the time pending
	Measured                 bool        // whether an exporter can measure it
	Runs                     []Run
}

// Run is a pod on a GPU of a node, within the period.
type Run struct {
	Pod       string
	Node, GPU int
	From, To  time.Time
}

// Truth adds up what happened between two times. Its cost grows with the period and the fleet: a week of a thousand
// GPUs takes seconds.
func (f *Fleet) Truth(from, to time.Time) *Truth {
	a, b := f.stamp(from), f.stamp(to)
	out := &Truth{From: from, To: to, GPUs: map[gpu.TimeState]gpu.Seconds{}}
	var totals [states]float64
	found := map[*workload]*workloadTotals{}
	for _, r := range f.racks {
		for cycle := r.cycleAt(a); cycle <= r.cycleAt(b-1); cycle++ {
			p := r.plan(cycle)
			begin, end := max(a, p.from), min(b, p.to)
			r.truth(f, p, begin, end, &totals, found)
		}
	}
	for i, u := range gpu.TimeStates {
		out.GPUs[u] = gpu.Seconds(totals[i])
	}
	for _, acc := range found {
		acc.finish()
		out.Workloads = append(out.Workloads, acc.WorkloadTruth)
	}
	slices.SortFunc(out.Workloads, func(a, b WorkloadTruth) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return out
}

// workloadTotals is a workload while it is added up.
type workloadTotals struct {
	WorkloadTruth
	pods    map[*pod]bool
	changes []change // of allocations, to find the maximum
}

type change struct {
	at    stamp
	count int
}

func (a *workloadTotals) pod(p *pod) {
	if a.pods[p] {
		return
	}
	a.pods[p] = true
	a.Pods = append(a.Pods, p.name)
}

func (a *workloadTotals) finish() {
	slices.Sort(a.Pods)
	a.Pods = slices.Compact(a.Pods)
	// What ends at a time frees its slot for what begins then.
	slices.SortFunc(a.changes, func(x, y change) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.count, y.count))
	})
	now := 0
	for _, e := range a.changes {
		now += e.count
		a.Devices = max(a.Devices, now)
	}
}

// truth adds up one cycle of a rack.
func (r *racked) truth(f *Fleet, p *plan, begin, end stamp, totals *[states]float64, found map[*workload]*workloadTotals) {
	find := func(of *pod) *workloadTotals {
		acc := found[of.of]
		if acc == nil {
			w := of.of
			acc = &workloadTotals{pods: map[*pod]bool{},
				WorkloadTruth: WorkloadTruth{Class: w.class, Cluster: r.pool.Cluster, Namespace: w.namespace,
					Kind: w.kind, Name: w.name,
					Pool: r.pool.Name, Model: r.board.model, Resource: of.resource}}
			found[of.of] = acc
		}
		acc.pod(of)
		return acc
	}
	for _, of := range p.pods {
		if of.node < 0 && of.created < end && of.ended > begin {
			acc := find(of)
			acc.Waited += gpu.Seconds(float64(of.count) * (min(end, of.ended) - max(begin, of.created)).seconds())
		}
	}
	for n := range p.nodes {
		node := f.nodes[r.first+n]
		for c := range node.gpus {
			pl := node.place(&p.nodes[n], c)
			attributable := pl.measured() && !pl.hidden()
			pl.all = true
			// Idle time depends on the time before: begin an hour earlier and subtract it.
			t := &counters{at: max(p.from, begin-hour), started: p.from, instances: make([]sums, len(node.gpus[c].layout))}
			pl.advance(t, begin, nil)
			before := t.states
			pl.advance(t, end, func(d usage) {
				acc := find(d.of.pod)
				acc.Allocated += gpu.Seconds(d.allocated)
				acc.Busy += gpu.Seconds(d.busy)
				acc.Idle += gpu.Seconds(d.idle)
				acc.Gap += gpu.Seconds(d.gap)
				acc.Lost += gpu.Seconds(d.lost)
				acc.Energy += gpu.Joules(d.energy)
				if from := f.time(d.from); acc.First.IsZero() || from.Before(acc.First) {
					acc.First = from
				}
				if to := f.time(d.to); to.After(acc.Last) {
					acc.Last = to
				}
				if d.busy > 0 {
					if last, ok := acc.LastBusy.Get(); !ok || f.time(d.to).After(last) {
						acc.LastBusy = gpu.Some(f.time(d.to))
					}
				}
			})
			for u := range totals {
				totals[u] += t.states[u] - before[u]
			}
			for slot, list := range p.nodes[n].gpus[c].slots {
				for _, w := range list {
					x, y := max(begin, w.from), min(end, w.to)
					if x >= y {
						continue
					}
					acc := find(w.pod)
					acc.changes = append(acc.changes, change{x, 1}, change{y, -1})
					acc.Runs = append(acc.Runs, Run{w.pod.name, r.first + n, c, f.time(x), f.time(y)})
					acc.Measured = attributable
					acc.DeviceMemory = max(acc.DeviceMemory, pl.slotMemory(slot))
					acc.MemoryPeak = max(acc.MemoryPeak, pl.usedMemory(slot, x), pl.usedMemory(slot, y-1))
				}
			}
		}
	}
}
