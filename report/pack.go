package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
)

// item is one allocation of a whole GPU as packing sees it: by the hour, in hundredths, rounded up.
type item struct {
	cluster, model, id string
	from               int     // first hour
	demand             []uint8 // highest mean of a step in the hour, in hundredths of a GPU
	memory             []uint8 // highest memory in the hour, in hundredths of the GPU's
	preallocated       bool    // its memory was allocated at the start: the need is unknown
}

// quantile of its demand.
func (it *item) quantile(q float64) uint8 {
	s := slices.Sorted(slices.Values(it.demand))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

const (
	// packHours is how long an allocation must have lasted to be worth a move.
	packHours = 12
	// packMemory is how much of a GPU's memory packing fills, in hundredths.
	packMemory = 95
	// packMean is the mean demand, in hundredths, above which an allocation keeps its GPU.
	packMean = 60
)

// items are the allocations of a workload that packing may move: pods that have one whole GPU.
func (a *analysis) items(l *load) []item {
	total, perHour := a.facts.byModel[l.key.model], a.p.perHour()
	if a.several(l) || total <= 0 {
		return nil
	}
	var out []item
	for _, x := range l.allocations {
		if !x.sole() || x.busy.len() < packHours*perHour {
			continue
		}
		first, last := x.busy.from/perHour, (x.busy.end()-1)/perHour
		it := item{cluster: l.key.cluster, model: l.key.model, id: l.key.id() + "/" + x.key.pod + "/" + x.key.uuid,
			from:   first,
			demand: make([]uint8, last-first+1), memory: make([]uint8, last-first+1)}
		raise := func(list []uint8, k int, v float64) {
			list[k/perHour-first] = max(list[k/perHour-first], hundredths(v))
		}
		for k, v := range x.busy.all() {
			raise(it.demand, k, x.activity(k, v))
		}
		for k, v := range x.memory.within(x.busy.from, x.busy.end()) {
			raise(it.memory, k, v/total)
		}
		it.preallocated = preallocated(it.memory)
		out = append(out, it)
	}
	return out
}

func hundredths(v float64) uint8 { return uint8(min(100, max(0, math.Ceil(100*v-1e-9)))) }

// preallocated is true if the memory is nearly all there is, and always the same.
func preallocated(memory []uint8) bool {
	s := slices.Sorted(slices.Values(memory))
	low, mid, high := s[len(s)/10], s[len(s)/2], s[len(s)-1]
	return mid >= 85 && high-low <= 4
}

// bin is one GPU that is packed.
type bin struct {
	load, memory []uint16 // by hour
	items        int
	occupied     int // hours
	over         int // hours with more demand than the GPU has
}

// put puts an item into the bin if it fits.
func (b *bin) put(it *item, overload float64) bool {
	if b.items >= maxReplicas {
		return false
	}
	over, occupied := b.over, b.occupied
	for i, d := range it.demand {
		k := it.from + i
		if b.memory[k]+uint16(it.memory[i]) > packMemory && b.memory[k] > 0 {
			return false
		}
		before, after := b.load[k], b.load[k]+uint16(d)
		if b.memory[k] == 0 && before == 0 {
			occupied++
		}
		if after > 100 && before <= 100 {
			over++
		}
	}
	if b.items > 0 && float64(over) > overload*float64(occupied) {
		return false
	}
	b.over, b.occupied = over, occupied
	b.items++
	for i, d := range it.demand {
		b.load[it.from+i] += uint16(d)
		// It occupies its GPU also if it has no memory in use.
		b.memory[it.from+i] += uint16(max(1, it.memory[i]))
	}
	return true
}

// pack simulates that the small allocations of a model share GPUs. Largest first, each on the first GPU with enough
// left
// in every hour of the recorded history; equal input gives equal output.
func (a *analysis) pack(items []item) []Packing {
	slices.SortFunc(items, func(x, y item) int {
		return cmp.Or(strings.Compare(x.cluster, y.cluster), strings.Compare(x.model, y.model),
			strings.Compare(x.id, y.id))
	})
	var out []Packing
	for from, to := 0, 0; from < len(items); from = to {
		for to < len(items) && items[to].cluster == items[from].cluster && items[to].model == items[from].model {
			to++
		}
		for _, pack := range []func([]item, int) *Packing{a.packShared, a.packMIG} {
			if p := pack(items[from:to], int(a.p.Hours())+2); p != nil {
				p.Cluster, p.Model, p.Limit = items[from].cluster, items[from].model, a.opt.Advice.Overload
				p.FreedCost = a.opt.Prices.Cost(p.Model, p.FreedHours)
				out = append(out, *p)
			}
		}
	}
	return out
}

// packing is the result of moving items: GPU-hours before and after, and those with too much demand.
func (a *analysis) packing(scenario, text string, items, before, after int, overload float64) *Packing {
	return &Packing{Scenario: scenario, Text: text, Items: items, GPUsBefore: over(float64(before), a.p.Hours()),
		GPUsAfter: over(float64(after), a.p.Hours()), FreedHours: max(0, float64(before-after)), Overload: overload}
}

func (a *analysis) packShared(items []item, hours int) *Packing {
	var order []*item
	weights := map[*item]uint8{}
	before := 0
	for i := range items {
		it := &items[i]
		sum := 0
		for _, d := range it.demand {
			sum += int(d)
		}
		if !it.preallocated && sum <= packMean*len(it.demand) {
			order = append(order, it)
			weights[it] = max(it.quantile(0.95), slices.Max(it.memory))
			before += len(it.demand)
		}
	}
	if len(order) < 2 {
		return nil
	}
	slices.SortStableFunc(order, func(x, y *item) int { return cmp.Compare(weights[y], weights[x]) })
	limit := a.opt.Advice.Overload
	var bins []*bin
	for _, it := range order {
		if !slices.ContainsFunc(bins, func(b *bin) bool { return b.put(it, limit) }) {
			b := &bin{load: make([]uint16, hours), memory: make([]uint16, hours)}
			b.put(it, limit)
			bins = append(bins, b)
		}
	}
	after, overloaded := 0, 0
	for _, b := range bins {
		after += b.occupied
		overloaded += b.over
	}
	return a.packing("share", fmt.Sprintf("%d pods with a whole GPU each and little demand, at most %d on a GPU: the "+
		"highest "+
		"demands of each hour are added up, memory never exceeds %d %%.", len(order), maxReplicas, packMemory),
		len(order), before, after, over(float64(overloaded), float64(after)))
}

// packMIG gives every small item the smallest profile that fits it, and fills GPUs with MIG devices.
func (a *analysis) packMIG(items []item, hours int) *Packing {
	gpu, ok := a.migGPU(items[0].model)
	if !ok {
		return nil
	}
	type placed struct {
		it *item
		p  mig.Profile
	}
	var order []placed
	before, overloaded := 0, 0
	total := a.facts.byModel[items[0].model]
	for i := range items {
		it := &items[i]
		demand, memory := float64(it.quantile(0.99))/100, float64(slices.Max(it.memory))/100*total
		at := slices.IndexFunc(gpu.Profiles, func(p mig.Profile) bool {
			return p.PerGPU >= 2 && gpu.ComputeRatio(p) >= demand && p.Bytes >= memory
		})
		if it.preallocated || at < 0 {
			continue
		}
		p := gpu.Profiles[at]
		order = append(order, placed{it, p})
		before += len(it.demand)
		for _, d := range it.demand {
			if float64(d)/100 > gpu.ComputeRatio(p) {
				overloaded++
			}
		}
	}
	if len(order) < 2 {
		return nil
	}
	slices.SortStableFunc(order, func(x, y placed) int {
		return cmp.Or(cmp.Compare(y.p.Compute, x.p.Compute), cmp.Compare(y.p.Memory, x.p.Memory))
	})
	type partitioned struct{ compute, memory []uint8 } // slices in use, by hour
	var gpus []partitioned
	after := 0
	for _, o := range order {
		last := o.it.from + len(o.it.demand)
		at := slices.IndexFunc(gpus, func(g partitioned) bool {
			return int(slices.Max(g.compute[o.it.from:last]))+o.p.Compute <= gpu.Compute &&
				int(slices.Max(g.memory[o.it.from:last]))+o.p.Memory <= gpu.Memory
		})
		if at < 0 {
			at = len(gpus)
			gpus = append(gpus, partitioned{make([]uint8, hours), make([]uint8, hours)})
		}
		for k := o.it.from; k < last; k++ {
			if gpus[at].compute[k] == 0 {
				after++
			}
			gpus[at].compute[k] += uint8(o.p.Compute)
			gpus[at].memory[k] += uint8(o.p.Memory)
		}
	}
	return a.packing("mig", fmt.Sprintf("%d pods with a whole GPU each, each in the smallest MIG profile that covers "+
		"its "+
		"demand in 99 %% of the hours and its memory in all of them.", len(order)),
		len(order), before, after, over(float64(overloaded), float64(before)))
}
