package account

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/account/counters"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// New returns an empty ledger.
func New(o Options) *Ledger {
	l := &Ledger{maxLag: defaultMaxLag, devices: map[gpu.UUID]*device{}, rows: map[rowKey]*row{},
		alive: map[gpu.UUID][]*row{},
		byGPU: map[gpu.UUID][]*gpu.Allocation{}, allocatedTo: map[gpu.Container]bool{},
		xids: map[gpu.UUID]*xidCounts{}, pci: map[gpu.PCIAddress]gpu.UUID{}, aggregation: newAggregation(o.Accounts),
		processLimit: o.Processes, host: o.Host, complete: map[string]bool{}}
	if o.MaxLag > 0 {
		l.maxLag = o.MaxLag.Seconds()
	}
	return l
}

// Filter returns the plausibility filter that every reading passes before Advance; it counts what it rejects.
func (l *Ledger) Filter() *Filter { return &l.filter }

// Host reports whether the host has the GPUs: nothing allocates them, and no container or job was found to use one.
func (l *Ledger) Host() bool { return l.host }

// Reopened is called when the driver's session is new: rings and counters may have restarted.
func (l *Ledger) Reopened() {
	for _, c := range l.devices {
		c.reopened()
	}
}

// Forget drops the account of a GPU that turned out to be another one, such as a GPU that had no UUID yet.
func (l *Ledger) Forget(u gpu.UUID) {
	delete(l.devices, u)
	delete(l.alive, u)
	l.placed = false
	for key := range l.rows {
		if key.device == u {
			l.drop(key)
		}
	}
}

// Event counts one report of an XID. A GPU without UUID is identified by its PCI address.
func (l *Ledger) Event(e gpu.XIDEvent) {
	u := e.GPU
	if known, ok := l.pci[e.PCI]; ok && (u == "" || string(u) == string(e.PCI)) {
		u = known
	}
	if u == "" {
		u = gpu.UUID(e.PCI)
	}
	if u != "" {
		l.xidsOf(u).add(e)
	}
}

func (l *Ledger) xidsOf(u gpu.UUID) *xidCounts {
	b := l.xids[u]
	if b == nil {
		b = &xidCounts{codes: map[int]*xidCode{}}
		l.xids[u] = b
	}
	return b
}

// deviceOf returns the account of a GPU, a new one if necessary.
func (l *Ledger) deviceOf(id gpu.Identity) *device {
	c := l.devices[id.UUID]
	if c == nil {
		c = newGPU(id, l.now.Add(-l.elapsed))
		l.devices[id.UUID], l.placed = c, false
	}
	if c.id.Index != id.Index {
		l.published = nil
	}
	c.id = id
	if id.PCI != "" && string(id.UUID) != string(id.PCI) && l.pci[id.PCI] != id.UUID {
		l.pci[id.PCI] = id.UUID
		if early, ok := l.xids[gpu.UUID(id.PCI)]; ok {
			l.xidsOf(id.UUID).merge(early)
			delete(l.xids, gpu.UUID(id.PCI))
		}
	}
	return c
}

// Advance accounts for the period since the previous poll and applies the new allocations.
func (l *Ledger) Advance(r Poll) {
	elapsed := max(0, r.Elapsed.Seconds())
	l.clock += elapsed
	l.before, l.now, l.elapsed = l.now, r.Now, max(0, r.Elapsed)
	l.events, l.kernelLog, l.cgroups, l.next = r.Events, r.KernelLog, r.Cgroups, r.Allocations
	l.aggregation.begin()
	for i := range r.GPUs {
		l.advanceGPU(&r.GPUs[i], elapsed, r.Users)
	}
	l.setAllocations(r.Allocations)
	l.listAlive()
	for i := range r.GPUs {
		c := l.devices[r.GPUs[i].Identity.UUID]
		l.settleModes(c, r.Users)
		l.attributeMemory(c, r.Users)
		l.listProcesses(c, r.Users, r.Command)
	}
	l.expire()
	l.listAlive()
	for _, c := range l.devices {
		l.classifyUsers(c)
	}
	l.aggregation.end()
}

func (l *Ledger) advanceGPU(r *Reading, elapsed float64, users Users) {
	c := l.deviceOf(r.Identity)
	if c.seen {
		c.watched += l.now.Sub(l.before).Seconds()
	} else {
		c.seen, elapsed = true, 0 // its first period starts now
	}
	if c.availability != Readable && r.Availability == Readable {
		c.act.reseed() // nothing was measured meanwhile
		for p := range c.all {
			p.act.lastBusyAt = l.clock
		}
		for _, row := range l.alive[c.id.UUID] {
			row.wasMeasured = false
		}
	}
	c.availability, c.spacing = r.Availability, r.Spacing.Seconds()
	medium := r.Medium
	if r.Availability != Readable {
		medium = nil
	}
	if c.medium != medium {
		c.medium, c.mediumAt = medium, l.clock
		c.integrated = medium != nil && medium.Integrated
	}
	if r.Slow != nil && c.layout(r.Slow) {
		l.place(c)
		l.published = nil
	}
	for p := range c.all {
		p.added = increment{}
	}
	c.credits = c.credits[:0]
	if r.Availability == Readable && r.Fast != nil {
		added, joules, hasEnergy, since := l.readFast(c, r.Fast)
		l.settleModes(c, users)
		l.addProcesses(c, added)
		for p := range c.units {
			l.attribute(c, p, users)
		}
		if hasEnergy {
			l.splitEnergy(c, joules, added.busy, added.observed, since)
		}
	}
	l.addTime(c, elapsed)
	for p := range c.units {
		for _, h := range p.rows {
			if p.shareKnown {
				h.row.allocated += elapsed * p.share * h.allocated
			}
		}
	}
}

// listAlive collects the rows of each GPU that have not ended.
func (l *Ledger) listAlive() {
	for u, list := range l.alive {
		l.alive[u] = list[:0]
	}
	for _, r := range l.rows {
		if !r.ended {
			l.alive[r.key.device] = append(l.alive[r.key.device], r)
		}
	}
}

// classifyUsers sets the attribution method of containers that use a GPU that is not allocated to them, and their
// mismatch.
func (l *Ledger) classifyUsers(c *device) {
	for _, r := range l.alive[c.id.UUID] {
		r.mismatch = nil
		if r.attribution == "" || !r.isAllocated {
			r.attribution = attributionNone // its share is unknown, or it has none
		}
		if r.attribution == attributionNone && c.act.method != "" && c.visible &&
			(!r.isAllocated || l.clock-r.usedAt < recentSpan) {
			r.attribution = attributionProcess
		}
		r.wasMeasured = r.measured()
		if !r.uses || r.isAllocated {
			continue
		}
		if !l.allocs.Known || l.clock-r.usedFrom < mismatchDelay {
			continue
		}
		pod := r.key.container.PodName()
		switch {
		case l.allocatedTo[r.key.container]:
			r.mismatch = []string{"used_other_gpu"}
		case !slices.Contains(l.allocs.Listed[pod], r.key.container.Name) &&
			slices.ContainsFunc(l.alive[c.id.UUID], func(other *row) bool {
				return other.isAllocated && other.key.container.PodName() == pod
			}): // an init or ephemeral container, which may use the GPUs of its pod
		default:
			r.mismatch = []string{"used_not_allocated"}
		}
	}
}

// Fill completes a GPU of a view with its account: XIDs, activity, instances, seconds, allocation and unattributed
// parts. It leaves the other fields unchanged.
func (l *Ledger) Fill(out *gpu.GPU) {
	out.XIDs = l.xidsOf(out.UUID).publish(l.now, l.events && out.XIDEvents, l.kernelLog)
	c := l.devices[out.UUID]
	if c == nil {
		return
	}
	out.Created, out.GPUSeconds = c.created, make(map[gpu.TimeState]gpu.Seconds, len(gpu.TimeStates))
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
				in.Activity, in.ComputeActivity = p.act.publish(l.clock, live), p.publishCompute(l.clock, live)
			}
			out.Instances = append(out.Instances, in)
		}
	}
	if c.availability == Unavailable {
		return // its counters are not exported while it is unavailable, and continue when it returns
	}
	out.Activity = c.publish(l.clock, live)
	out.Unattributed = c.publishUnattributed()
	out.AttributionErrors = c.publishErrors(live)
	if l.processLimit > 0 {
		out.Processes = c.publishProcesses()
	}
}

// publish returns the activity with the driver's counters.
func (c *device) publish(clock float64, live bool) gpu.Activity {
	a := c.act.publish(clock, live)
	if c.energy.Seen {
		a.Energy = gpu.Some(gpu.Joules(c.energy.Total))
	}
	for _, b := range []struct {
		n  *counters.Counter
		to *gpu.Opt[float64]
	}{{&c.nvlinkOut, &a.NVLinkTransmit}, {&c.nvlinkIn, &a.NVLinkReceive}} {
		if b.n.Seen {
			*b.to = gpu.Some(b.n.Total)
		}
	}
	for _, b := range []struct {
		n  *counters.Wrapping
		to *gpu.Opt[float64]
	}{{&c.pcieOut, &a.PCIeTransmit}, {&c.pcieIn, &a.PCIeReceive}} {
		if v, ok := b.n.Get(); ok {
			*b.to = gpu.Some(v)
		} else if reason := b.n.Reason(); reason != "" && len(a.Unmeasured) == 0 {
			a.Unmeasured = append(a.Unmeasured, gpu.Unmeasured{Reading: "pcie_bytes", Reason: reason})
		}
	}
	if a.MemoryBusy.Present() && a.MemoryBusy.Or(0) == 0 && c.integrated {
		// The driver reports 0 for ever.
		a.MemoryBusy = gpu.None[gpu.Seconds]()
		a.Unmeasured = append(a.Unmeasured, gpu.Unmeasured{Reading: "memory_busy", Reason: "always_zero"})
	}
	if c.medium != nil {
		a.Unmeasured = append(a.Unmeasured, c.medium.Unmeasured...)
	}
	if len(c.limited)+len(c.sampled) > 0 {
		a.Limited = make(map[gpu.LimitReason]gpu.Seconds, len(c.limited))
		for reason, s := range c.sampled {
			a.Limited[reason] = gpu.Seconds(s)
		}
		for reason, n := range c.limited {
			a.Limited[reason] = gpu.Seconds(n.Total)
		}
	}
	return a
}

// publishUnattributed lists the parts by reason, in the order of the names. Reasons that can occur start at 0, so that
// their first increase is visible.
func (c *device) publishUnattributed() []gpu.Unattributed {
	expected := []gpu.UnattributedReason{gpu.UnattributedHidden}
	if c.everVisible {
		expected = append(expected, gpu.UnattributedHost, gpu.UnattributedUnresolved, gpu.UnattributedUnmeasured)
	}
	if c.everMPS {
		expected = append(expected, gpu.UnattributedMPS)
	}
	for _, reason := range expected {
		u := c.unattributedBy(reason)
		u.hasBusy, u.hasEnergy = true, true
	}
	c.unattributedBy(gpu.UnattributedIdle).hasEnergy = true
	out := make([]gpu.Unattributed, 0, len(c.unattributed))
	for _, reason := range slices.Sorted(maps.Keys(c.unattributed)) {
		u := c.unattributed[reason]
		row := gpu.Unattributed{Reason: reason}
		if u.hasBusy && c.act.method != "" {
			row.Busy = gpu.Some(gpu.Seconds(u.busy))
		}
		if u.hasEnergy && c.energy.Seen {
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

// publishErrors compares each total with its parts, and the time of all states with that between the polls. Of time only a
// difference is published: unlike the others it has no cause outside the exporter.
func (c *device) publishErrors(live bool) []gpu.AttributionError {
	var out []gpu.AttributionError
	add := func(quantity string, device, given float64) {
		e := 0.0
		if d := max(device-given, given-device); d > 1e-9*max(1, device) {
			e = d / max(device, 1e-9)
		}
		if e > 0 || quantity != "time" {
			out = append(out, gpu.AttributionError{Quantity: quantity, Ratio: gpu.Ratio(e)})
		}
	}
	if c.act.method != "" {
		add("busy", c.act.busy, c.attributedBusy)
	}
	if c.energy.Seen {
		add("energy", c.totalEnergy, c.attributedEnergy)
	}
	if live && c.medium != nil && c.medium.Memory.Present() {
		out = append(out, gpu.AttributionError{Quantity: "memory", Ratio: gpu.Ratio(c.memoryError)})
	}
	states := 0.0
	for _, s := range c.seconds {
		states += s
	}
	add("time", c.watched, states)
	return out
}

// Containers returns the accounts of the containers, by container, then GPU.
func (l *Ledger) Containers() []gpu.ContainerGPU {
	if l.order == nil {
		l.order = slices.Collect(maps.Values(l.rows))
		gpu.Sort(l.order, func(a, b *row) int { return a.key.compare(b.key) })
	}
	out := make([]gpu.ContainerGPU, 0, len(l.rows))
	for _, r := range l.order {
		key := r.key
		c := l.devices[key.device]
		if c == nil {
			continue
		}
		row := gpu.ContainerGPU{Container: key.container, GPU: key.device, Index: c.id.Index, Ended: r.ended,
			Since: r.since, Source: r.source, Created: r.created}
		if r.placed {
			row.Allocated = gpu.Some(gpu.Seconds(r.allocated))
			row.Idle = gpu.Some(gpu.Seconds(r.idle))
			row.Gap = gpu.Some(gpu.Seconds(r.gap))
		}
		if c.availability != Unavailable {
			row.Attribution = r.attribution
			if r.measured() || r.busy > 0 {
				// what was attributed stays in the sum while nothing more is measured
				row.Busy = gpu.Some(gpu.Seconds(r.busy))
				row.Observed = gpu.Some(gpu.Seconds(r.observed))
			}
			if c.energy.Seen && (r.measured() || r.energy > 0) {
				row.Energy = gpu.Some(gpu.Joules(r.energy))
			}
		}
		if !r.ended {
			if r.hasMemory && !r.memoryPartial {
				row.Memory, row.MemorySource = gpu.Some(r.memory), r.memorySource
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
	return out
}

// Allocations returns the current allocations with the share of the physical GPU that each takes, by container, then
// GPU.
func (l *Ledger) Allocations() []gpu.ContainerAllocation {
	if l.published == nil {
		l.published = l.physicalAllocations()
	}
	out := l.published
	for _, c := range l.devices {
		if charged, _ := l.charged(c); len(charged) > 0 {
			out = slices.Clone(out)
			l.limitByCgroup(out)
			break
		}
	}
	return out
}

// physicalAllocations returns the allocations without the limits of cgroups.
func (l *Ledger) physicalAllocations() []gpu.ContainerAllocation {
	out := make([]gpu.ContainerAllocation, 0, len(l.allocs.List))
	for i := range l.allocs.List {
		h := &l.allocs.List[i]
		row := gpu.ContainerAllocation{Allocation: *h, Index: -1, AllocationRatio: l.physicalShare(h)}
		at := -1
		if h.ComputeInstance != "" { // those of one MIG instance have one series
			at = slices.IndexFunc(out, func(o gpu.ContainerAllocation) bool {
				return o.Container == h.Container && o.Resource == h.Resource && o.Instance == h.Instance
			})
		}
		if at >= 0 {
			shared := out[at].Shared || h.Shared
			out[at].Allocation = merged(out[at].Allocation, *h)
			out[at].Shared, out[at].ComputeInstance = shared, ""
			out[at].AllocationRatio = sum(out[at].AllocationRatio, row.AllocationRatio)
			continue
		}
		if c := l.devices[h.GPU]; c != nil {
			row.Index = c.id.Index
		}
		out = append(out, row)
	}
	gpu.Sort(out, func(a, b gpu.ContainerAllocation) int {
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

// Rejected returns the number of implausible values, by reading.
func (l *Ledger) Rejected() []gpu.RejectedCount { return l.filter.Counts() }

// expire ends the rows that are neither allocated nor used, and drops those whose grace period is over.
func (l *Ledger) expire() {
	for key, r := range l.rows {
		if r.isAllocated || r.uses {
			l.activate(r)
			continue
		}
		if !r.ended {
			r.ended, r.endedAt = true, l.clock
		}
		if l.clock-r.endedAt >= grace {
			l.drop(key)
		}
	}
}
