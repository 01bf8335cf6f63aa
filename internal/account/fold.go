package account

import (
	"cmp"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Every account of a container on a GPU is some fifteen series, and nothing else in the exposition grows with what
// users start. So there is a ceiling: who comes when it is reached has one account with all the others of his kind on
// that GPU, called gpu.OtherContainers. Names are folded before anything is computed, which is why every sum closes
// as it does without: the others hold, work and draw power as one container would.

// DefaultAccounts is how many accounts of a container on a GPU there may be at once.
const DefaultAccounts = 1000

// roomAfter is after how many seconds the account of a container that is gone makes room for one that is there: some
// scrapes have seen its end by then.
const roomAfter = 60.0

// folding is who has no account of his own.
type folding struct {
	limit int
	// accounts counts the rows, but for those of the others.
	accounts int
	// unplaced are the holders of GPUs that were never met: they have no row, and are published as holders.
	unplaced map[rowKey]struct{}
	// now and before are the folded of this round and of the last; total counts those that became so.
	now, before map[rowKey]struct{}
	total       uint64
	// evicted made room in this round and may not come back in it: a counter goes back between two views alone.
	evicted map[rowKey]struct{}
	// crammed tells that nothing can make room in this round.
	crammed bool
}

func newFolding(limit int) folding {
	if limit <= 0 {
		limit = DefaultAccounts
	}
	return folding{limit: limit, unplaced: map[rowKey]struct{}{}, now: map[rowKey]struct{}{}, before: map[rowKey]struct{}{}, evicted: map[rowKey]struct{}{}}
}

// begin starts a round.
func (f *folding) begin() {
	f.now, f.before = f.before, f.now
	clear(f.now)
	clear(f.evicted)
	f.crammed = false
}

// end counts who was folded in this round and was not before.
func (f *folding) end() {
	for key := range f.now {
		if _, ok := f.before[key]; !ok {
			f.total++
		}
	}
}

// named returns the name under which a container has its account on a GPU: its own, or that of the others.
func (l *Ledger) named(u gpu.UUID, who gpu.Container) gpu.Container {
	f := &l.folding
	if len(f.evicted) == 0 && f.accounts+len(f.unplaced) < f.limit {
		return who // there is room for everybody
	}
	key := rowKey{u, who}
	if who == gpu.OtherContainers || l.rows[key] != nil {
		return who
	}
	if _, ok := f.unplaced[key]; ok {
		return who
	}
	if _, ok := f.evicted[key]; !ok && (f.accounts+len(f.unplaced) < f.limit || l.makeRoom()) {
		return who
	}
	f.now[key] = struct{}{}
	return gpu.OtherContainers
}

// who is the user of a process, as a GPU's account knows him.
func (l *Ledger) who(c *dev, users Users, pid int) User {
	u := c.user(users, pid)
	if u.Reason == "" {
		u.Container = l.named(c.id.UUID, u.Container)
	}
	return u
}

// makeRoom ends the account that has been gone for longest, if that is long enough.
func (l *Ledger) makeRoom() bool {
	if l.folding.crammed {
		return false
	}
	var oldest *row
	for _, r := range l.rows {
		if !r.gone || l.clock-r.goneAt < roomAfter || r.key.container == gpu.OtherContainers {
			continue
		}
		if oldest == nil || r.goneAt < oldest.goneAt || r.goneAt == oldest.goneAt && r.key.compare(oldest.key) < 0 {
			oldest = r
		}
	}
	if oldest == nil {
		l.folding.crammed = true
		return false
	}
	l.drop(oldest.key)
	l.folding.evicted[oldest.key] = struct{}{}
	return true
}

func (k rowKey) compare(other rowKey) int {
	return cmp.Or(k.container.Compare(other.container), cmp.Compare(k.dev, other.dev))
}

// drop forgets a row.
func (l *Ledger) drop(key rowKey) {
	if key.container != gpu.OtherContainers {
		l.folding.accounts--
	}
	delete(l.rows, key)
}

// spot is what the others hold together.
type spot struct {
	resource      string
	dev, instance gpu.UUID
}

// fold gives the holders of h their accounts, and those without one the name of the others. It changes nothing in h.
func (l *Ledger) fold(h gpu.Allocations) gpu.Allocations {
	clear(l.folding.unplaced)
	limit := l.folding.limit
	var list []gpu.Allocation // nil: as it was
	at := map[spot]int{}
	own := 0
	for i := range h.List {
		alloc := h.List[i]
		name := gpu.OtherContainers
		if own < limit {
			name = l.settle(alloc.GPU, alloc.Container)
		} else {
			l.folding.now[rowKey{alloc.GPU, alloc.Container}] = struct{}{}
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
		place := spot{alloc.Resource, alloc.GPU, alloc.Instance}
		if j, ok := at[place]; ok {
			list[j] = together(list[j], alloc)
			continue
		}
		at[place] = len(list)
		list = append(list, alloc)
	}
	whole := list == nil && len(h.Unresolved) <= limit
	if list != nil {
		h.List = list
	}
	h.Unresolved = l.foldUnresolved(h.Unresolved)
	if !whole {
		h.Pods = podsOf(h)
	}
	return h
}

// podsOf returns the pods of which some container has its own name.
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

// settle makes the account of a holder and returns its name.
func (l *Ledger) settle(u gpu.UUID, who gpu.Container) gpu.Container {
	if c := l.devs[u]; c != nil {
		return l.row(c, who).key.container
	}
	name := l.named(u, who)
	if name == who {
		l.folding.unplaced[rowKey{u, who}] = struct{}{}
	}
	return name
}

// severalSources is the source of what was read from more than one.
const severalSources = "several"

// together is what two holdings of the same thing are as one.
func together(a, b gpu.Allocation) gpu.Allocation {
	a.Share = sum(a.Share, b.Share)
	a.MemoryLimit = either(a.MemoryLimit, b.MemoryLimit)
	a.ComputeLimit = either(a.ComputeLimit, b.ComputeLimit)
	a.Shared = true
	if a.Source != b.Source {
		a.Source = severalSources
	}
	since, known := a.Since.Get()
	if other, ok := b.Since.Get(); known && (!ok || other.Before(since)) {
		a.Since = b.Since // the older; where one is not known, neither is that
	}
	return a
}

// sum adds what has to be known of both.
func sum[T ~float64](a, b gpu.Opt[T]) gpu.Opt[T] {
	x, ok := a.Get()
	y, also := b.Get()
	if !ok || !also {
		return gpu.None[T]()
	}
	return gpu.Some(x + y)
}

// either adds what only some have.
func either[T ~float64 | ~uint64](a, b gpu.Opt[T]) gpu.Opt[T] {
	if !a.Present() && !b.Present() {
		return gpu.None[T]()
	}
	return gpu.Some(a.Or(0) + b.Or(0))
}

// foldUnresolved keeps as many holders of what cannot be resolved, and adds up the rest by resource.
func (l *Ledger) foldUnresolved(list []gpu.Unresolved) []gpu.Unresolved {
	limit := l.folding.limit
	if len(list) <= limit {
		return list
	}
	out := slices.Clone(list[:limit])
	at := map[string]int{}
	for _, u := range list[limit:] {
		l.folding.now[rowKey{"", u.Container}] = struct{}{} // on no GPU that is known
		if i, ok := at[u.Resource]; ok {
			out[i].Devices += u.Devices
			continue
		}
		at[u.Resource] = len(out)
		out = append(out, gpu.Unresolved{Container: gpu.OtherContainers, Resource: u.Resource, Devices: u.Devices})
	}
	return out
}

// InForce returns the holdings as they are published: those without an account of their own as the others.
func (l *Ledger) InForce() gpu.Allocations { return l.allocs }

// Accounts returns how many accounts of containers there are, and who has none.
func (l *Ledger) Accounts() gpu.Accounts {
	f := &l.folding
	return gpu.Accounts{Own: f.accounts + len(f.unplaced), Limit: f.limit, Aggregated: len(f.now), Aggregations: f.total}
}
