package account

import (
	"cmp"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Every account of a container on a GPU is some fifteen series, and nothing else in the exposition grows with what
// users start. So the number of accounts is limited: containers above the limit share one account per GPU,
// gpu.OtherContainers. Names are replaced before anything is computed, so sums add up as without: the others are
// allocated, busy and draw power as one container would.

// DefaultAccounts is the default maximum number of accounts (container, GPU).
const DefaultAccounts = 1000

// evictAfter is after how many seconds the account of an ended container may be dropped for a live one: by then, some
// scrapes have read its final values.
const evictAfter = 60.0

func newAggregation(limit int) aggregation {
	if limit <= 0 {
		limit = DefaultAccounts
	}
	return aggregation{limit: limit, unplaced: map[rowKey]struct{}{}, now: map[rowKey]struct{}{},
		before: map[rowKey]struct{}{}, evicted: map[rowKey]struct{}{}}
}

// begin starts a poll.
func (f *aggregation) begin() {
	f.now, f.before = f.before, f.now
	clear(f.now)
	clear(f.evicted)
	f.full = false
}

// end counts the containers that became aggregated in this poll.
func (f *aggregation) end() {
	for key := range f.now {
		if _, ok := f.before[key]; !ok {
			f.total++
		}
	}
}

// named returns the name under which a container has its account on a GPU: its own, or OtherContainers.
func (l *Ledger) named(u gpu.UUID, who gpu.Container) gpu.Container {
	f := &l.aggregation
	if len(f.evicted) == 0 && f.accounts+len(f.unplaced) < f.limit {
		return who // below the limit
	}
	key := rowKey{u, who}
	if who == gpu.OtherContainers || l.rows[key] != nil {
		return who
	}
	if _, ok := f.unplaced[key]; ok {
		return who
	}
	if _, ok := f.evicted[key]; !ok && (f.accounts+len(f.unplaced) < f.limit || l.evict()) {
		return who
	}
	f.now[key] = struct{}{}
	return gpu.OtherContainers
}

// evict drops the account that ended first, if that was long enough ago.
func (l *Ledger) evict() bool {
	if l.aggregation.full {
		return false
	}
	var oldest *row
	for _, r := range l.rows {
		if !r.ended || l.clock-r.endedAt < evictAfter || r.key.container == gpu.OtherContainers {
			continue
		}
		if oldest == nil || r.endedAt < oldest.endedAt || r.endedAt == oldest.endedAt && r.key.compare(oldest.key) < 0 {
			oldest = r
		}
	}
	if oldest == nil {
		l.aggregation.full = true
		return false
	}
	l.drop(oldest.key)
	l.aggregation.evicted[oldest.key] = struct{}{}
	return true
}

func (k rowKey) compare(other rowKey) int {
	return cmp.Or(k.container.Compare(other.container), cmp.Compare(k.device, other.device))
}

// drop removes a row.
func (l *Ledger) drop(key rowKey) {
	if key.container != gpu.OtherContainers {
		l.aggregation.accounts--
	}
	delete(l.rows, key)
	l.order = nil
}

// aggregate creates the accounts of h's allocations and renames those above the limit to OtherContainers. It does not
// modify h.
func (l *Ledger) aggregate(h gpu.Allocations) gpu.Allocations {
	clear(l.aggregation.unplaced)
	limit := l.aggregation.limit
	var list []gpu.Allocation // nil: unchanged
	at := map[aggregateKey]int{}
	own := 0
	for i := range h.List {
		alloc := h.List[i]
		name := gpu.OtherContainers
		if own < limit {
			name = l.admit(alloc.GPU, alloc.Container)
		} else {
			l.aggregation.now[rowKey{alloc.GPU, alloc.Container}] = struct{}{}
		}
		if name == alloc.Container {
			own++
			if list != nil {
				list = append(list, alloc)
			}
			continue
		}
		if list == nil {
			list = append(make([]gpu.Allocation, 0, len(h.List)), h.List[:i]...)
		}
		alloc.Container = name
		place := aggregateKey{alloc.Resource, alloc.GPU, alloc.Instance, alloc.ComputeInstance}
		if j, ok := at[place]; ok {
			list[j] = merged(list[j], alloc)
			continue
		}
		at[place] = len(list)
		list = append(list, alloc)
	}
	whole := list == nil && len(h.Unresolved) <= limit
	if list != nil {
		h.List = list
	}
	h.Unresolved = l.aggregateUnresolved(h.Unresolved)
	if !whole {
		h.Pods = podsOf(h)
	}
	return h
}

// podsOf returns the pods that have a container with an account of its own.
func podsOf(h gpu.Allocations) []gpu.PodRef {
	own := map[[2]string]bool{}
	for i := range h.List {
		own[[2]string{h.List[i].Container.Namespace, h.List[i].Container.Pod}] = true
	}
	for i := range h.Unresolved {
		own[[2]string{h.Unresolved[i].Container.Namespace, h.Unresolved[i].Container.Pod}] = true
	}
	return slices.DeleteFunc(slices.Clone(h.Pods), func(p gpu.PodRef) bool { return !own[[2]string{p.Namespace, p.Pod}] })
}

// admit creates the account of an allocation and returns its name.
func (l *Ledger) admit(u gpu.UUID, who gpu.Container) gpu.Container {
	if c := l.devices[u]; c != nil {
		return l.row(c, who).key.container
	}
	name := l.named(u, who)
	if name == who {
		l.aggregation.unplaced[rowKey{u, who}] = struct{}{}
	}
	return name
}

// severalSources is the source of allocations merged from several data sources.
const severalSources = "several"

// merged combines two allocations of the same resource.
func merged(a, b gpu.Allocation) gpu.Allocation {
	a.Share = sum(a.Share, b.Share)
	a.MemoryLimit = either(a.MemoryLimit, b.MemoryLimit)
	a.ComputeLimit = either(a.ComputeLimit, b.ComputeLimit)
	a.Shared = true
	if a.Source != b.Source {
		a.Source = severalSources
	}
	since, known := a.Since.Get()
	if other, ok := b.Since.Get(); known && (!ok || other.Before(since)) {
		a.Since = b.Since // the earlier one; unknown if either is
	}
	return a
}

// sum adds two values; absent if either is.
func sum[T ~float64](a, b gpu.Opt[T]) gpu.Opt[T] {
	x, ok := a.Get()
	y, also := b.Get()
	if !ok || !also {
		return gpu.None[T]()
	}
	return gpu.Some(x + y)
}

// either adds the values that are present.
func either[T ~float64 | ~uint64](a, b gpu.Opt[T]) gpu.Opt[T] {
	if !a.Present() && !b.Present() {
		return gpu.None[T]()
	}
	return gpu.Some(a.Or(0) + b.Or(0))
}

// aggregateUnresolved keeps up to the limit of entries and adds up the rest by resource.
func (l *Ledger) aggregateUnresolved(list []gpu.Unresolved) []gpu.Unresolved {
	limit := l.aggregation.limit
	if len(list) <= limit {
		return list
	}
	out := slices.Clone(list[:limit])
	at := map[string]int{}
	for _, u := range list[limit:] {
		l.aggregation.now[rowKey{"", u.Container}] = struct{}{} // the GPU is unknown
		if i, ok := at[u.Resource]; ok {
			out[i].Devices += u.Devices
			continue
		}
		at[u.Resource] = len(out)
		out = append(out, gpu.Unresolved{Container: gpu.OtherContainers, Resource: u.Resource, Devices: u.Devices})
	}
	return out
}

// InForce returns the current allocations as published, with those above the limit as OtherContainers.
func (l *Ledger) InForce() gpu.Allocations { return l.allocs }

// Accounts returns the number of accounts and of aggregated containers.
func (l *Ledger) Accounts() gpu.Accounts {
	f := &l.aggregation
	return gpu.Accounts{Own: f.accounts + len(f.unplaced), Limit: f.limit, Aggregated: len(f.now),
		Aggregations: f.total}
}

// row returns the account of a container on a GPU, a new one if necessary, or the aggregated one above the limit.
func (l *Ledger) row(c *device, container gpu.Container) *row {
	key := rowKey{c.id.UUID, l.named(c.id.UUID, container)}
	r := l.rows[key]
	if r == nil {
		l.host = l.host && container.OfHost()
		r = &row{key: key, ended: true, endedAt: l.clock, releasedAt: never, usedAt: never,
			created: l.now.Add(-l.elapsed)} // what this poll adds was measured since the previous one
		l.rows[key], l.order = r, nil
		if key.container != gpu.OtherContainers {
			l.aggregation.accounts++
		}
	}
	return r
}

// activate restarts an ended row: its counters continue, its activity starts now.
func (l *Ledger) activate(r *row) {
	if r.ended {
		r.ended, r.lastBusy, r.lastBusyAt = false, l.now, l.clock
		r.resetGauges()
	}
}
