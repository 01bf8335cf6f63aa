package account

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// grace is how long, in seconds, the counters of a container are exported after its allocation ended, so that their
	// last increase is scraped.
	grace = 300.0
	// mismatchDelay is how long, in seconds, a container uses a GPU that is not allocated to it before this is a
	// mismatch: pods come and go between two responses of the kubelet.
	mismatchDelay = 30.0
	// whole is the share from which a GPU counts as allocated entirely: shares are sums of fractions.
	whole = 0.9995
)

// setAllocations applies new allocations to the period that starts now.
func (l *Ledger) setAllocations(h gpu.Allocations) {
	if l.placed && h.Same(&l.allocs) {
		h.List = l.allocs.List // byGPU refers to it
		l.allocs = h
		return
	}
	l.published = nil
	clear(l.allocatedTo)
	for i := range h.List {
		l.allocatedTo[h.List[i].Container] = true
	}
	for i := range h.Unresolved {
		l.allocatedTo[h.Unresolved[i].Container] = true
	}
	h = l.aggregate(h)
	l.allocs = h
	l.generation++
	clear(l.byGPU)
	for i := range h.List {
		l.byGPU[h.List[i].GPU] = append(l.byGPU[h.List[i].GPU], &h.List[i])
		l.allocatedTo[h.List[i].Container] = true // including OtherContainers
	}
	for u, list := range l.byGPU {
		c := l.devices[u]
		if c == nil {
			continue
		}
		for _, h := range list {
			r := l.row(c, h.Container)
			if !r.isAllocated {
				r.allocatedAt = l.clock
			}
			r.isAllocated, r.generation, r.since, r.source = true, l.generation, h.Since, h.Source
			l.activate(r)
		}
	}
	for _, r := range l.rows {
		if r.isAllocated && r.generation != l.generation {
			r.isAllocated, r.releasedAt = false, l.clock
		}
	}
	for _, c := range l.devices {
		l.place(c)
	}
	l.placed = true
}

// place assigns the allocations of a GPU to its parts.
func (l *Ledger) place(c *device) {
	c.unplaced = false
	for p := range c.all {
		p.rows, p.unplaced = p.rows[:0], false
	}
	for _, h := range l.byGPU[c.id.UUID] {
		r := l.rows[rowKey{c.id.UUID, h.Container}]
		if r == nil {
			continue
		}
		share, known := h.Share.Get()
		switch p := c.partOf(h.Instance); {
		case h.Instance == "":
			for p := range c.all {
				p.allocate(r, float64(share), known)
			}
		case p != nil:
			p.allocate(r, float64(share), known)
			listed := slices.ContainsFunc(p.within, func(s *part) bool { return s.compute.UUID == h.ComputeInstance })
			for i, s := range p.within {
				switch {
				case s.compute.UUID == h.ComputeInstance:
					s.allocate(r, float64(share/p.instance.ComputeShare(i)), known)
				case h.ComputeInstance == "":
					s.allocate(r, float64(share), known)
				case !listed:
					s.unplaced = true
				}
			}
		default:
			c.unplaced = true // an instance that the layout does not list yet
		}
	}
	allocated, certain := 0.0, l.allocs.Known
	for p := range c.all {
		sum := 0.0
		for _, h := range p.rows {
			sum += h.allocated
		}
		p.unallocated = max(0, 1-sum)
		if sum >= whole {
			p.unallocated = 0
			for i := range p.rows {
				p.rows[i].share = p.rows[i].allocated / sum
			}
		}
		p.unallocatedKnown = l.allocs.Unallocated(c.id.UUID) && !p.unplaced && !c.unplaced
		p.allocation = gpu.None[gpu.Ratio]()
		if p.unallocatedKnown || l.allocs.Known && p.unallocated == 0 {
			p.allocation = gpu.Some(gpu.Ratio(1 - p.unallocated))
		}
		if p.kind == computeInstance {
			continue // it is in that of its instance
		}
		certain = certain && p.allocation.Present() && (p.shareKnown || p.unallocated == 1 || p.unallocated == 0)
		allocated += p.share * (1 - p.unallocated)
	}
	c.allocation = gpu.None[gpu.Ratio]()
	if certain {
		c.allocation = gpu.Some(gpu.Ratio(min(1, max(0, allocated))))
	}
}

// allocate adds an allocation to a part.
func (p *part) allocate(r *row, share float64, known bool) {
	if !known || !(share >= 0) || !p.shareKnown {
		p.unplaced = true
		return
	}
	r.placed = true
	if i := slices.IndexFunc(p.rows, func(h rowShare) bool { return h.row == r }); i >= 0 {
		p.rows[i].share += share
		p.rows[i].allocated += share
		return
	}
	p.rows = append(p.rows, rowShare{row: r, share: share, allocated: share})
}

// sole returns the row that the whole part is allocated to, nil if there is none.
func (p *part) sole() *row {
	if len(p.rows) == 1 && p.rows[0].allocated >= whole && !p.unplaced {
		return p.rows[0].row
	}
	return nil
}

// physicalShare is the share of the physical GPU that an allocation takes; absent if unknown.
func (l *Ledger) physicalShare(h *gpu.Allocation) gpu.Opt[gpu.Ratio] {
	share, ok := h.Share.Get()
	if !ok {
		return gpu.None[gpu.Ratio]()
	}
	if h.Instance == "" {
		return gpu.Some(share)
	}
	if c := l.devices[h.GPU]; c != nil {
		if p := c.partOf(h.Instance); p != nil && p.shareKnown {
			return gpu.Some(share * gpu.Ratio(p.share))
		}
	}
	return gpu.None[gpu.Ratio]()
}
