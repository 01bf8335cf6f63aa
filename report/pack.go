package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/mig"
)

// item is one holding of a whole GPU as packing sees it: by the hour, in hundredths, rounded up.
type item struct {
	cluster, model, id string
	from               int     // first hour
	demand             []uint8 // highest mean of a step in the hour, in hundredths of a GPU
	memory             []uint8 // highest memory in the hour, in hundredths of the GPU's
	fixed              bool    // its memory was taken at the start: nothing is known of need
}

// quantile of its demand.
func (it *item) quantile(q float64) uint8 {
	s := slices.Clone(it.demand)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func (it *item) most(v []uint8) uint8 {
	m := uint8(0)
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

const (
	// packHours is how long a holding must have lasted to be worth a move.
	packHours = 12
	// packMemory is how much of a GPU's memory packing fills, in hundredths.
	packMemory = 95
	// packMean is the mean demand, in hundredths, above which a holding keeps its GPU.
	packMean = 60
)

// items are the holdings of a workload that packing may move: pods that hold one whole GPU.
func (a *analyst) items(l *load) []item {
	if a.several(l) {
		return nil
	}
	size := max(1, int(time.Hour/a.w.Step))
	total := a.facts.byName[l.key.model]
	var out []item
	for _, h := range l.allocs {
		if !h.sole() || h.busy.len() < packHours*size || total <= 0 {
			continue
		}
		first, last := h.busy.from/size, (h.busy.end()-1)/size
		it := item{cluster: l.key.cluster, model: l.key.model, id: l.key.id() + "/" + h.key.pod + "/" + h.key.uuid, from: first,
			demand: make([]uint8, last-first+1), memory: make([]uint8, last-first+1)}
		for k := h.busy.from; k < h.busy.end(); k++ {
			i := k/size - first
			if v, ok := h.activity(k); ok {
				it.demand[i] = max(it.demand[i], hundredths(v))
			}
			if v, ok := h.memory.at(k); ok {
				it.memory[i] = max(it.memory[i], hundredths(v/total))
			}
		}
		it.fixed = preallocated(it.memory)
		out = append(out, it)
	}
	return out
}

func hundredths(v float64) uint8 { return uint8(min(100, max(0, math.Ceil(100*v-1e-9)))) }

// preallocated says that the memory is nearly all there is, and always the same.
func preallocated(memory []uint8) bool {
	s := slices.Clone(memory)
	slices.Sort(s)
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

// takes says whether an item fits, and puts it in if it does.
func (b *bin) takes(it *item, overload float64, most int) bool {
	if b.items >= most {
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
		// A holder occupies its GPU also when it has no memory in use.
		b.memory[it.from+i] += uint16(max(1, it.memory[i]))
	}
	return true
}

// pack answers what would be if the small ones of a model shared GPUs. Largest first, each onto the first GPU that has room for it
// in every hour of the recorded history; equal input gives equal output.
func (a *analyst) pack(items []item, hours int) []Packing {
	slices.SortFunc(items, func(x, y item) int {
		return cmp.Or(strings.Compare(x.cluster, y.cluster), strings.Compare(x.model, y.model), strings.Compare(x.id, y.id))
	})
	var out []Packing
	for from := 0; from < len(items); {
		to := from
		for to < len(items) && items[to].cluster == items[from].cluster && items[to].model == items[from].model {
			to++
		}
		out = append(out, a.packShared(items[from:to], hours)...)
		out = append(out, a.packMIG(items[from:to], hours)...)
		from = to
	}
	return out
}

func (a *analyst) packShared(items []item, hours int) []Packing {
	type weighed struct {
		it     *item
		weight uint8
	}
	var order []weighed
	before := 0
	for i := range items {
		it := &items[i]
		sum := 0
		for _, d := range it.demand {
			sum += int(d)
		}
		if it.fixed || sum > packMean*len(it.demand) {
			continue
		}
		order = append(order, weighed{it, max(it.quantile(0.95), it.most(it.memory))})
		before += len(it.demand)
	}
	if len(order) < 2 {
		return nil
	}
	slices.SortStableFunc(order, func(x, y weighed) int { return cmp.Compare(y.weight, x.weight) })
	limit := a.opt.Advice.Overload
	var bins []*bin
	for _, w := range order {
		placed := false
		for _, b := range bins {
			if placed = b.takes(w.it, limit, mostReplicas); placed {
				break
			}
		}
		if !placed {
			b := &bin{load: make([]uint16, hours+1), memory: make([]uint16, hours+1)}
			b.takes(w.it, limit, mostReplicas)
			bins = append(bins, b)
		}
	}
	after, overloaded := 0, 0
	for _, b := range bins {
		after += b.occupied
		overloaded += b.over
	}
	p := a.packing(items[0], "share", len(order), float64(before), float64(after), over(float64(overloaded), float64(after)))
	p.Limit = limit
	p.Text = fmt.Sprintf("%d pods with a whole GPU of their own and little demand, at most %d to a GPU: the highest demands of each hour are added up, memory never exceeds %d %%.", len(order), mostReplicas, packMemory)
	return []Packing{p}
}

func (a *analyst) packing(of item, scenario string, items int, before, after, overload float64) Packing {
	total := a.w.Total()
	p := Packing{Cluster: of.cluster, Model: of.model, Scenario: scenario, Items: items, GPUsBefore: over(before, total), GPUsAfter: over(after, total),
		FreedHours: max(0, before-after), Overload: overload}
	p.FreedCost = a.prices.cost(of.model, p.FreedHours)
	return p
}

// packMIG gives every small item the smallest profile that holds it, and fills GPUs with instances.
func (a *analyst) packMIG(items []item, hours int) []Packing {
	dev, ok := a.migGPU(items[0].model)
	if !ok {
		return nil
	}
	type placed struct {
		it *item
		p  mig.Profile
	}
	var order []placed
	before, overloaded := 0, 0
	total := a.facts.byName[items[0].model]
	for i := range items {
		it := &items[i]
		if it.fixed {
			continue
		}
		demand, memory := float64(it.quantile(0.99))/100, float64(it.most(it.memory))/100*total
		for _, p := range dev.Profiles {
			if p.Most < 2 || dev.ComputeRatio(p) < demand || p.Bytes < memory {
				continue
			}
			order = append(order, placed{it, p})
			before += len(it.demand)
			for _, d := range it.demand {
				if float64(d)/100 > dev.ComputeRatio(p) {
					overloaded++
				}
			}
			break
		}
	}
	if len(order) < 2 {
		return nil
	}
	slices.SortStableFunc(order, func(x, y placed) int {
		return cmp.Or(cmp.Compare(y.p.Compute, x.p.Compute), cmp.Compare(y.p.Memory, x.p.Memory))
	})
	type cut struct{ compute, memory, used []uint8 }
	var devs []*cut
	for _, o := range order {
		fits := func(c *cut) bool {
			for i := range o.it.demand {
				k := o.it.from + i
				if int(c.compute[k])+o.p.Compute > dev.Compute || int(c.memory[k])+o.p.Memory > dev.Memory {
					return false
				}
			}
			return true
		}
		at := slices.IndexFunc(devs, fits)
		if at < 0 {
			devs = append(devs, &cut{make([]uint8, hours+1), make([]uint8, hours+1), make([]uint8, hours+1)})
			at = len(devs) - 1
		}
		c := devs[at]
		for i := range o.it.demand {
			k := o.it.from + i
			c.compute[k] += uint8(o.p.Compute)
			c.memory[k] += uint8(o.p.Memory)
			c.used[k]++
		}
	}
	after := 0
	for _, c := range devs {
		for _, u := range c.used {
			if u > 0 {
				after++
			}
		}
	}
	p := a.packing(items[0], "mig", len(order), float64(before), float64(after), over(float64(overloaded), float64(before)))
	p.Limit = a.opt.Advice.Overload
	p.Text = fmt.Sprintf("%d pods with a whole GPU of their own, each in the smallest MIG profile that covers its demand in 99 %% of the hours and its memory in all of them.", len(order))
	return []Packing{p}
}
