package account

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Options are the few things that a Ledger is told. The zero value is right.
type Options struct {
	// Patience is for how long the samples of a GPU may lag behind before its time counts as unknown;
	// 5 s where it is 0. It should be more than two rounds.
	Patience time.Duration
	// Accounts is how many accounts of a container on a GPU there may be at once; DefaultAccounts where it is 0.
	Accounts int
}

// Ledger keeps every counter of one node. It is not safe for concurrent use: one goroutine owns it, and what
// it returns is that goroutine's to publish.
type Ledger struct {
	patience float64
	clock    float64 // seconds since the first round, as the rounds counted them
	now      time.Time

	devs  map[gpu.UUID]*dev
	rows  map[rowKey]*row
	alive map[gpu.UUID][]*row // the rows of each GPU that hold or use it

	// holdings are in force for the window that begins at clock.
	allocs  gpu.Allocations
	byGPU   map[gpu.UUID][]*gpu.Allocation
	holders map[gpu.Container]bool
	round   uint64

	// books and pci remember GPUs that are off the bus, too.
	books map[gpu.UUID]*xidBook
	pci   map[gpu.PCIAddress]gpu.UUID

	sieve   Filter
	folding folding
}

// Reading is what one round says of one GPU. The ledger keeps pointers to what it is given and changes
// none of it.
type Reading struct {
	Identity     gpu.Identity
	Availability Availability
	Fast         *gpu.Fast   // what was read in this round, nil if nothing was
	Medium       *gpu.Medium // the newest that still stands, nil if none does
	Slow         *gpu.Slow   // likewise; without it the last layout stands
}

// Round is one window: what went by, and what is known at its end.
type Round struct {
	Now     time.Time     // exporter's clock, for time stamps only
	Elapsed time.Duration // since the round before, by a clock that only goes forward
	GPUs    []Reading
	// Holdings are in force from now on: the window that ends now belongs to those of the round before.
	Allocations gpu.Allocations
	Users       Users
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	l := &Ledger{patience: defaultPatience, devs: map[gpu.UUID]*dev{}, rows: map[rowKey]*row{}, alive: map[gpu.UUID][]*row{},
		byGPU: map[gpu.UUID][]*gpu.Allocation{}, holders: map[gpu.Container]bool{},
		books: map[gpu.UUID]*xidBook{}, pci: map[gpu.PCIAddress]gpu.UUID{}, folding: newFolding(o.Accounts)}
	if o.Patience > 0 {
		l.patience = o.Patience.Seconds()
	}
	return l
}

// Sieve returns the sieve through which every reading has to go before a round; it counts what it rejects.
func (l *Ledger) Filter() *Filter { return &l.sieve }

// Reopened tells that the driver's session is a new one: rings and counters may have begun again.
func (l *Ledger) Reopened() {
	for _, c := range l.devs {
		c.reopened()
	}
}

// Forget drops the account of a GPU that is another one's now, such as a GPU that had no name yet.
func (l *Ledger) Forget(u gpu.UUID) {
	delete(l.devs, u)
	delete(l.alive, u)
	for key := range l.rows {
		if key.dev == u {
			l.drop(key)
		}
	}
}

// Event counts one report of an XID. A GPU that NVML cannot name any more is known by its PCI address.
func (l *Ledger) Event(e gpu.XIDEvent) {
	u := e.GPU
	if known, ok := l.pci[e.PCI]; ok && (u == "" || string(u) == string(e.PCI)) {
		u = known
	}
	if u == "" {
		u = gpu.UUID(e.PCI)
	}
	if u != "" {
		l.book(u).add(e)
	}
}

func (l *Ledger) book(u gpu.UUID) *xidBook {
	b := l.books[u]
	if b == nil {
		b = newXIDBook()
		l.books[u] = b
	}
	return b
}

// meet returns the account of a GPU.
func (l *Ledger) meet(id gpu.Identity) *dev {
	c := l.devs[id.UUID]
	if c == nil {
		c = newGPU(id)
		l.devs[id.UUID] = c
	}
	c.id = id
	if id.PCI != "" && string(id.UUID) != string(id.PCI) && l.pci[id.PCI] != id.UUID {
		l.pci[id.PCI] = id.UUID
		if early, ok := l.books[gpu.UUID(id.PCI)]; ok {
			l.book(id.UUID).merge(early)
			delete(l.books, gpu.UUID(id.PCI))
		}
	}
	return c
}

// Advance accounts for one window and puts the new holdings in force.
func (l *Ledger) Advance(r Round) {
	elapsed := max(0, r.Elapsed.Seconds())
	l.clock += elapsed
	l.now = r.Now
	l.folding.begin()
	for i := range r.GPUs {
		l.advanceGPU(&r.GPUs[i], elapsed, r.Users)
	}
	l.install(r.Allocations)
	l.muster()
	for i := range r.GPUs {
		c := l.devs[r.GPUs[i].Identity.UUID]
		l.settleModes(c, r.Users)
		l.remember(c, r.Users)
	}
	l.leave()
	l.muster()
	for _, c := range l.devs {
		l.judgeUsers(c)
	}
	l.folding.end()
}

func (l *Ledger) advanceGPU(r *Reading, elapsed float64, users Users) {
	c := l.meet(r.Identity)
	if !c.seen {
		c.seen, elapsed = true, 0 // its first window begins now
	}
	if c.availability != Readable && r.Availability == Readable {
		c.act.reseed() // what went on meanwhile was nobody's to see
	}
	c.availability = r.Availability
	medium := r.Medium
	if r.Availability != Readable {
		medium = nil
	}
	if c.medium != medium {
		c.medium, c.mediumAt = medium, l.clock
	}
	if r.Slow != nil && c.layout(r.Slow) {
		l.place(c)
	}
	for _, p := range c.parts {
		p.added = increment{}
	}
	c.credits = c.credits[:0]
	if r.Availability == Readable && r.Fast != nil {
		added, joules, hasEnergy, since := l.readFast(c, r.Fast)
		l.settleModes(c, users)
		for _, p := range c.parts {
			l.attribute(c, p, users)
		}
		if hasEnergy {
			l.burn(c, joules, added.busy, added.observed, since)
		}
	} else {
		l.settleModes(c, users)
	}
	l.spend(c, elapsed)
	for _, p := range c.parts {
		for _, h := range p.holders {
			if p.shareKnown {
				h.row.held += elapsed * p.share * h.held
			}
		}
	}
}

// muster lists the rows that are alive, in a fixed order.
func (l *Ledger) muster() {
	for u, list := range l.alive {
		l.alive[u] = list[:0]
	}
	for _, r := range l.rows {
		if !r.gone {
			l.alive[r.key.dev] = append(l.alive[r.key.dev], r)
		}
	}
	for _, list := range l.alive {
		slices.SortFunc(list, func(a, b *row) int { return a.key.container.Compare(b.key.container) })
	}
}

// judgeUsers says how the work of those is known who use a GPU without holding it, and whether that is wrong.
func (l *Ledger) judgeUsers(c *dev) {
	for _, r := range l.alive[c.id.UUID] {
		r.mismatch = nil
		if r.attribution == "" || !r.holds {
			r.attribution = attributionNone // how much it holds cannot be told, or nothing
		}
		if r.attribution == attributionNone && c.act.method != "" && c.visible && (!r.holds || l.clock-r.workedAt < recentSpan) {
			r.attribution = attributionProcess
		}
		if !r.uses || r.holds {
			continue
		}
		if !l.allocs.Known || l.clock-r.usedFrom < mismatchPatience {
			continue
		}
		if l.holders[r.key.container] {
			r.mismatch = []string{"used_other_gpu"}
		} else {
			r.mismatch = []string{"used_not_allocated"}
		}
	}
}

// before is the exporter's clock some seconds ago.
func (l *Ledger) before(seconds float64) time.Time {
	return l.now.Add(-time.Duration(seconds * float64(time.Second)))
}

// Fill completes a GPU of a view with its account: XIDs, activity, instances, seconds, allocation and what
// is not attributed. The rest of the GPU is left alone.
func (l *Ledger) Fill(out *gpu.GPU) {
	out.XIDs = l.book(out.UUID).publish()
	c := l.devs[out.UUID]
	if c == nil {
		return
	}
	out.GPUSeconds = make(map[gpu.TimeState]gpu.Seconds, len(gpu.TimeStates))
	for _, use := range gpu.TimeStates {
		out.GPUSeconds[use] = gpu.Seconds(c.seconds[use])
	}
	out.AllocationRatio = c.allocation
	live := c.availability == Readable
	out.Instances = nil
	for _, p := range c.parts {
		if p.kind == migInstance {
			in := gpu.InstanceActivity{Instance: p.instance, Memory: p.memory, AllocationRatio: p.allocation}
			if c.availability != Unavailable {
				in.Activity = p.act.publish(l.clock, live)
			}
			out.Instances = append(out.Instances, in)
		}
	}
	if c.availability == Unavailable {
		return // its counters end with it; they go on when it returns
	}
	out.Activity = c.publish(l.clock, live)
	out.Unattributed = c.publishUnattributed()
	out.AttributionErrors = c.publishClosing(live)
}

// publish returns the activity with the driver's counters.
func (c *dev) publish(clock float64, live bool) gpu.Activity {
	a := c.act.publish(clock, live)
	if c.energy.seen {
		a.Energy = gpu.Some(gpu.Joules(c.energy.total))
	}
	for _, b := range []struct {
		n  *counter
		to *gpu.Opt[float64]
	}{{&c.pcieOut, &a.PCIeTransmit}, {&c.pcieIn, &a.PCIeReceive}, {&c.nvlinkOut, &a.NVLinkTransmit}, {&c.nvlinkIn, &a.NVLinkReceive}} {
		if b.n.seen {
			*b.to = gpu.Some(b.n.total)
		}
	}
	if len(c.limited) > 0 {
		a.Limited = make(map[gpu.LimitReason]gpu.Seconds, len(c.limited))
		for reason, n := range c.limited {
			a.Limited[reason] = gpu.Seconds(n.total)
		}
	}
	return a
}

// publishUnattributed lists the reasons in the order of their names. Those that can be expected exist from
// 0, so that their first increase is seen.
func (c *dev) publishUnattributed() []gpu.Unattributed {
	expected := []gpu.UnattributedReason{gpu.UnattributedHidden}
	if c.everVisible {
		expected = append(expected, gpu.UnattributedHost, gpu.UnattributedUnresolved, gpu.UnattributedUnmeasured)
	}
	if c.everServed {
		expected = append(expected, gpu.UnattributedMPS)
	}
	for _, reason := range expected {
		u := c.why(reason)
		u.hasBusy, u.hasEnergy = true, true
	}
	c.why(gpu.UnattributedIdle).hasEnergy = true
	out := make([]gpu.Unattributed, 0, len(c.unattributed))
	for _, reason := range slices.Sorted(maps.Keys(c.unattributed)) {
		u := c.unattributed[reason]
		row := gpu.Unattributed{Reason: reason}
		if u.hasBusy && c.act.method != "" {
			row.Busy = gpu.Some(gpu.Seconds(u.busy))
		}
		if u.hasEnergy && c.energy.seen {
			row.Energy = gpu.Some(gpu.Joules(u.energy))
		}
		if u.hasMemory {
			row.Memory = gpu.Some(u.memory)
		}
		if row.Busy.Present() || row.Energy.Present() || row.Memory.Present() {
			out = append(out, row)
		}
	}
	return out
}

func (c *dev) publishClosing(live bool) []gpu.AttributionError {
	var out []gpu.AttributionError
	add := func(quantity string, device, given float64) {
		e := 0.0
		if d := max(device-given, given-device); d > 1e-9*max(1, device) {
			e = d / max(device, 1e-9)
		}
		out = append(out, gpu.AttributionError{Quantity: quantity, Ratio: gpu.Ratio(e)})
	}
	if c.act.method != "" {
		add("busy", c.act.busy, c.givenBusy)
	}
	if c.energy.seen {
		add("energy", c.spentEnergy, c.givenEnergy)
	}
	if live && c.medium != nil && c.medium.Memory.Present() {
		out = append(out, gpu.AttributionError{Quantity: "memory", Ratio: gpu.Ratio(c.memoryError)})
	}
	return out
}

// Containers returns the accounts of the containers, by container, then GPU.
func (l *Ledger) Containers() []gpu.ContainerGPU {
	out := make([]gpu.ContainerGPU, 0, len(l.rows))
	for key, r := range l.rows {
		c := l.devs[key.dev]
		if c == nil {
			continue
		}
		row := gpu.ContainerGPU{Container: key.container, GPU: key.dev, Index: c.id.Index, Ended: r.gone, Since: r.since, Source: r.source}
		if r.placed {
			row.Allocated = gpu.Some(gpu.Seconds(r.held))
			row.Idle = gpu.Some(gpu.Seconds(r.idle))
			row.Gap = gpu.Some(gpu.Seconds(r.underused))
		}
		if c.availability != Unavailable {
			row.Attribution = r.attribution
			if r.measured() || r.busy > 0 {
				row.Busy = gpu.Some(gpu.Seconds(r.busy)) // what it got stays in the sum while no more can be told
				row.Observed = gpu.Some(gpu.Seconds(r.observed))
			}
			if c.energy.seen && (r.measured() || r.energy > 0) {
				row.Energy = gpu.Some(gpu.Joules(r.energy))
			}
		}
		if !r.gone {
			if r.hasMemory && !r.blurred {
				row.Memory = gpu.Some(r.memory)
			}
			if r.counted {
				row.Processes = gpu.Some(r.processes)
			}
			if r.measured() {
				row.LastBusy = gpu.Some(r.lastBusy)
			}
			row.Mismatch = r.mismatch
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b gpu.ContainerGPU) int {
		if d := a.Container.Compare(b.Container); d != 0 {
			return d
		}
		return strings.Compare(string(a.GPU), string(b.GPU))
	})
	return out
}

// Holdings returns the holdings in force with the share of the physical GPU that each takes, by container,
// then GPU.
func (l *Ledger) Allocations() []gpu.ContainerAllocation {
	out := make([]gpu.ContainerAllocation, 0, len(l.allocs.List))
	for i := range l.allocs.List {
		h := &l.allocs.List[i]
		row := gpu.ContainerAllocation{Allocation: *h, Index: -1, AllocationRatio: l.allocated(h)}
		if c := l.devs[h.GPU]; c != nil {
			row.Index = c.id.Index
		}
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b gpu.ContainerAllocation) int {
		if d := a.Container.Compare(b.Container); d != 0 {
			return d
		}
		if d := strings.Compare(string(a.GPU), string(b.GPU)); d != 0 {
			return d
		}
		return strings.Compare(string(a.Instance), string(b.Instance))
	})
	return out
}

// Rejected returns how many values could not be true, by reading.
func (l *Ledger) Rejected() []gpu.RejectedCount { return l.sieve.Counts() }

// RingSpan returns the depth of the driver's rings in seconds as a first reading shows it, 0 where it does not.
func RingSpan(f *gpu.Fast) float64 {
	r, _ := f.Busy.Get()
	return span(r)
}
