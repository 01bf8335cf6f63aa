package report

import (
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/series"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

func (k loadKey) id() string {
	return strings.TrimPrefix(strings.Join(k.parts(), "/"), "/")
}

// quantity is something that is read of workloads.
type quantity int

const (
	qAllocated quantity = iota
	qBusy
	qObserved
	qIdle
	qBusiest // busy of the busiest of what is allocated to it: a GPU, a share of one or a MIG device
	qMemory  // largest memory of a container on a GPU
	qGap
	qWatts
	qLastBusy // Unix time
	qPods     // at a time
	quantities
)

// load is what one workload did on one model, while it is read. Tracks are in GPUs, sums in GPU-steps; of the last
// busy time and the pods the sum is the maximum.
type load struct {
	key         loadKey
	from        string // where the owner is known from
	tracks      [qMemory + 1]series.Track
	sum         [quantities]float64
	energy      bool
	pods        map[podKey]bool
	allocations []*allocation
	followed    followed
}

// add counts one value of one series of a workload.
func (l *load) add(q quantity, k int, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	switch q {
	case qLastBusy, qPods:
		l.sum[q] = max(l.sum[q], v)
		return
	case qBusiest:
		l.tracks[q].Max(k, min(1, v))
	case qMemory:
		l.tracks[q].Max(k, v)
	case qGap:
	case qWatts:
		l.energy = true
	default:
		l.tracks[q].Add(k, v)
	}
	l.sum[q] += v
}

// taker returns what counts the values of one series.
func (l *load) taker(q quantity) func(int, float64) {
	return func(k int, v float64) { l.add(q, k, v) }
}

// track returns the track of a quantity up to qMemory.
func (l *load) track(q quantity) *series.Track { return &l.tracks[q] }

// allocation is one pod on one GPU. Tracks are in GPUs, except the memory.
type allocation struct {
	key        allocationKey
	model      string
	resource   string
	busy, idle series.Track
	share      series.Track // fraction of the GPU that is allocated to the pod
	memory     series.Track // bytes, hourly values spread over their steps
	typical    float64      // the median share; 0 while unknown
	// since is when it was allocated, lastBusy when it was last busy, or first observed: Unix times, 0 if unknown.
	since, lastBusy float64
}

// space is one namespace while it is read.
type space struct {
	p           series.Period
	name        string
	loads       map[loadKey]*load
	allocations map[allocationKey]*allocation
	owners      map[podKey]kube.Owner
	// shares is true if the share of each allocation is known.
	shares bool
}

func newSpace(p series.Period, name string) *space {
	return &space{p: p, name: name, loads: map[loadKey]*load{}, allocations: map[allocationKey]*allocation{},
		owners: map[podKey]kube.Owner{}}
}

func (s *space) load(cluster string, o kube.Owner, model string) *load {
	k := loadKey{cluster, s.name, o.Kind, o.Name, model}
	l := entry(s.loads, k)
	if l.pods == nil {
		l.key, l.from, l.pods = k, o.From, map[podKey]bool{}
	}
	return l
}

func (s *space) allocation(k allocationKey) *allocation {
	a := entry(s.allocations, k)
	a.key = k
	return a
}

// ownerOf returns the owner of a pod.
func (s *space) ownerOf(p podKey) kube.Owner {
	if o, ok := s.owners[p]; ok {
		return o
	}
	return kube.GuessOwner(p.pod)
}

// join adds every allocation to its workload. A workload that no rule covers is made from its allocations.
func (s *space) join(facts *gpuFacts) {
	for _, k := range sorted(s.allocations) {
		a, p := s.allocations[k], podKey{k.cluster, k.namespace, k.pod}
		a.model = facts.model[k.gpu()]
		l := s.load(k.cluster, s.ownerOf(p), a.model)
		l.pods[p] = true
		l.allocations = append(l.allocations, a)
		a.settle()
		if !s.shares {
			a.typical = 1
		}
	}
}

// fill makes up for missing rules: what allocations did in a part of the period is added to their workloads. Where there are no counters
// of containers, all of it is from the allocations, and what is not idle is a gap.
func (s *space) fill(g series.Span, all bool) {
	for _, l := range s.loads {
		for _, a := range l.allocations {
			for k, v := range a.busy.Within(g.From, g.To) {
				l.add(qBusy, k, v)
				l.add(qBusiest, k, a.activity(k, v))
			}
			for k, v := range a.idle.Within(g.From, g.To) {
				l.add(qIdle, k, v)
			}
			if !all {
				continue
			}
			for k, v := range a.share.All() {
				l.add(qAllocated, k, v)
				if m, ok := a.memory.At(k); ok {
					l.add(qMemory, k, m)
				}
				busy, ok := a.busy.At(k)
				if !ok {
					continue
				}
				l.add(qObserved, k, map[bool]float64{true: v, false: 1}[a.mig()])
				if busy >= busyAbove {
					l.add(qLastBusy, k, float64(s.p.End(k).Unix()))
					l.add(qGap, k, max(0, v-busy))
				}
			}
		}
	}
}

// busyBefore returns when an allocation was last busy, or first observed, if that was before a Unix time.
func (a *allocation) busyBefore(unix float64) (at float64, ok bool) {
	return a.lastBusy, a.since > 0 && a.lastBusy > a.since+120 && a.lastBusy < unix
}

// settle sets the typical share, which fills in where shares were read more coarsely than the rest.
func (a *allocation) settle() {
	shares := a.share.Values(a.share.From, a.share.End())
	positive := slices.IndexFunc(shares, func(v float64) bool { return v > 0 })
	if positive >= 0 {
		a.typical = shares[positive:].Quantile(0.5)
	}
}

// shareAt is the share of the GPU in step k.
func (a *allocation) shareAt(k int) float64 {
	if v, ok := a.share.At(k); ok && v > 0 {
		return v
	}
	return a.typical
}

// longestPause is the longest part of a step that was idle, from 0 to 1; steps without data are none.
func (a *allocation) longestPause() float64 {
	longest := 0.0
	for k, v := range a.idle.All() {
		longest = max(longest, min(1, over(v, a.shareAt(k))))
	}
	return longest
}

// sole is true if the whole GPU is allocated to the pod alone.
func (a *allocation) sole() bool { return !a.mig() && a.typical > 0.999 }

// shared is true if the pod has a known part of a GPU that is not partitioned.
func (a *allocation) shared() bool { return !a.mig() && a.typical > 0 && a.typical < 0.999 }

func (a *allocation) mig() bool { return strings.Contains(a.resource, "mig") }

// activity is how busy what is allocated was in a step with so much busy time: the GPU, the share of it or the MIG device.
func (a *allocation) activity(k int, busy float64) float64 {
	if share := a.shareAt(k); share > 0 {
		busy /= share
	}
	return min(1, busy)
}

// gpuFacts are what is known of each GPU.
type gpuFacts struct {
	model   map[gpuKey]string
	memory  map[gpuKey]float64
	byModel map[string]float64 // memory
	daily   map[gpuKey]*[dayQuantities]series.Track
}

func newGPUFacts() *gpuFacts {
	return &gpuFacts{map[gpuKey]string{}, map[gpuKey]float64{}, map[string]float64{}, map[gpuKey]*[dayQuantities]series.Track{}}
}

// dayQuantity is something that is read of a GPU for each day of the period: what is exceeded for the budget's fraction
// of the day.
type dayQuantity int

const (
	dayMinute dayQuantity = iota // one-minute mean of its activity
	dayPeak                      // highest sample of the driver within a minute
	daySM                        // active SMs while it is busy, as a fraction of all
	dayQuantities
)

// followed is what the pods of a workload would have been, had its advice been followed.
type followed struct {
	ends     map[string]int // step at which a pod is released
	size     *sizing.Size
	fewer    int // GPUs of each pod
	replicas int
}
