package account

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// grace is for how long, in seconds, the counters of a container that holds no more stand still, so
	// that their last increase is scraped.
	grace = 300.0
	// mismatchPatience is for how long, in seconds, somebody uses a GPU that he does not hold before it is
	// called a mismatch: pods come and go between two answers of the kubelet.
	mismatchPatience = 30.0
	// whole is the share from which a GPU counts as held whole: shares are sums of fractions.
	whole = 0.9995
)

// never is a moment before all others.
const never = -1e18

// rowKey names the account of one container on one GPU.
type rowKey struct {
	dev       gpu.UUID
	container gpu.Container
}

// row is the account of one container on one GPU.
type row struct {
	key rowKey
	// holds and uses say why it is alive; gone is set when neither is true, goneAt since when.
	holds, uses, gone bool
	goneAt            float64
	round             uint64 // in which it was last found holding
	placed            bool   // how much it held could be told at some time
	// heldFrom, leftAt, usedFrom and workedAt are moments of the ledger's clock: the holding began, it ended,
	// the use without a holding was first seen, the processes were last credited with work.
	heldFrom, leftAt, usedFrom, workedAt float64
	since                                gpu.Opt[time.Time]
	source                               string

	held, busy, observed, idle, underused, energy float64
	lastBusy                                      time.Time
	lastBusyAt                                    float64

	attribution string // exclusive, process, mig, none; empty: not told
	memory      gpu.Bytes
	hasMemory   bool
	blurred     bool // some process did not tell its memory
	processes   int
	counted     bool // processes speaks
	used        bool // it used the GPU at the reading before
	mismatch    []string
}

// measured says that busy speaks.
func (r *row) measured() bool {
	return r.attribution != "" && r.attribution != attributionNone
}

// row returns the account of a container on a GPU, a new one if need be, and that of the others without room for one.
func (l *Ledger) row(c *dev, container gpu.Container) *row {
	key := rowKey{c.id.UUID, l.named(c.id.UUID, container)}
	r := l.rows[key]
	if r == nil {
		r = &row{key: key, gone: true, goneAt: l.clock, leftAt: never, workedAt: never}
		l.rows[key] = r
		if key.container != gpu.OtherContainers {
			l.folding.accounts++
		}
	}
	return r
}

// wake starts a new life of a row: its counters go on, its activity begins now.
func (l *Ledger) wake(r *row) {
	if r.gone {
		r.gone, r.lastBusy, r.lastBusyAt = false, l.now, l.clock
		r.forgetNow()
	}
}

// install puts new holdings in force for the window that begins now.
func (l *Ledger) install(h gpu.Allocations) {
	clear(l.holders)
	for i := range h.List {
		l.holders[h.List[i].Container] = true
	}
	for i := range h.Unresolved {
		l.holders[h.Unresolved[i].Container] = true
	}
	h = l.fold(h)
	l.allocs = h
	l.round++
	clear(l.byGPU)
	for i := range h.List {
		l.byGPU[h.List[i].GPU] = append(l.byGPU[h.List[i].GPU], &h.List[i])
		l.holders[h.List[i].Container] = true // the others, too
	}
	for u, list := range l.byGPU {
		c := l.devs[u]
		if c == nil {
			continue
		}
		for _, h := range list {
			r := l.row(c, h.Container)
			if !r.holds {
				r.heldFrom = l.clock
			}
			r.holds, r.round, r.since, r.source = true, l.round, h.Since, h.Source
			l.wake(r)
		}
	}
	for _, r := range l.rows {
		if r.holds && r.round != l.round {
			r.holds, r.leftAt = false, l.clock
		}
	}
	for _, c := range l.devs {
		l.place(c)
	}
}

// place finds who holds which part of a GPU.
func (l *Ledger) place(c *dev) {
	c.loose = false
	for _, p := range c.parts {
		p.holders, p.loose = p.holders[:0], false
	}
	for _, h := range l.byGPU[c.id.UUID] {
		r := l.rows[rowKey{c.id.UUID, h.Container}]
		if r == nil {
			continue
		}
		share, known := h.Share.Get()
		switch p := c.partOf(h.Instance); {
		case h.Instance == "":
			for _, p := range c.parts {
				p.hold(r, float64(share), known)
			}
		case p != nil:
			p.hold(r, float64(share), known)
		default:
			c.loose = true // an instance that the layout does not show yet
		}
	}
	held, certain := 0.0, l.allocs.Known
	for _, p := range c.parts {
		sum := 0.0
		for _, h := range p.holders {
			sum += h.held
		}
		if sum > 1 {
			for i := range p.holders {
				p.holders[i].share /= sum
			}
		}
		p.free = max(0, 1-sum)
		if sum >= whole {
			p.free = 0
			for i := range p.holders {
				p.holders[i].share = p.holders[i].held / sum
			}
		}
		p.freeKnown = l.allocs.Known && !l.allocs.Uncertain && !p.loose && !c.loose
		p.allocation = gpu.None[gpu.Ratio]()
		if p.freeKnown || l.allocs.Known && p.free == 0 {
			p.allocation = gpu.Some(gpu.Ratio(1 - p.free))
		}
		certain = certain && p.allocation.Present() && (p.shareKnown || p.free == 1 || p.free == 0)
		held += p.share * (1 - p.free)
	}
	c.allocation = gpu.None[gpu.Ratio]()
	if certain {
		c.allocation = gpu.Some(gpu.Ratio(min(1, max(0, held))))
	}
}

// hold adds a holding to a part.
func (p *part) hold(r *row, share float64, known bool) {
	if !known || !(share >= 0) || !p.shareKnown {
		p.loose = true
		return
	}
	r.placed = true
	if i := slices.IndexFunc(p.holders, func(h holder) bool { return h.row == r }); i >= 0 {
		p.holders[i].share += share
		p.holders[i].held += share
		return
	}
	p.holders = append(p.holders, holder{row: r, share: share, held: share})
}

// sole returns the only holder of the whole part, nil if there is none.
func (p *part) sole() *row {
	if len(p.holders) == 1 && p.holders[0].held >= whole && !p.loose {
		return p.holders[0].row
	}
	return nil
}

// leave ends the rows that neither hold nor use, and forgets those whose grace is over.
func (l *Ledger) leave() {
	for key, r := range l.rows {
		if r.holds || r.uses {
			l.wake(r)
			continue
		}
		if !r.gone {
			r.gone, r.goneAt = true, l.clock
		}
		if l.clock-r.goneAt >= grace {
			l.drop(key)
		}
	}
}

// allocated is the share of the physical GPU that a holding takes; absent while it cannot be told.
func (l *Ledger) allocated(h *gpu.Allocation) gpu.Opt[gpu.Ratio] {
	share, ok := h.Share.Get()
	if !ok {
		return gpu.None[gpu.Ratio]()
	}
	if h.Instance == "" {
		return gpu.Some(share)
	}
	if c := l.devs[h.GPU]; c != nil {
		if p := c.partOf(h.Instance); p != nil && p.shareKnown {
			return gpu.Some(share * gpu.Ratio(p.share))
		}
	}
	return gpu.None[gpu.Ratio]()
}
