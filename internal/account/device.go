package account

import (
	"math"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account/counters"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func newGPU(id gpu.Identity, created time.Time) *device {
	c := &device{id: id, created: created, limited: map[gpu.LimitReason]*counters.Counter{}, seconds: map[gpu.TimeState]float64{},
		unattributed: map[gpu.UnattributedReason]*unattributed{}}
	c.parts = []*part{{kind: wholeGPU, share: 1, shareKnown: true, act: &c.act}}
	return c
}

// layout applies the MIG layout and reports whether it changed. An instance keeps its counters while it exists; one that
// was recreated with another size under its UUID has other series.
func (c *device) layout(s *gpu.Slow) bool {
	mode, _ := s.MIGMode.Get()
	if !mode.Current {
		if !c.mig {
			return false
		}
		c.mig = false
		c.act.reseed()
		c.act.method = ""
		c.parts = []*part{{kind: wholeGPU, share: 1, shareKnown: true, act: &c.act}}
		return true
	}
	same := c.mig && len(c.parts) == len(s.Instances)+1
	for i := 0; same && i < len(s.Instances); i++ {
		a, b := &c.parts[i].instance, &s.Instances[i]
		same = a.UUID == b.UUID && a.GI == b.GI && a.Profile == b.Profile && a.Share == b.Share &&
			slices.Equal(a.Compute, b.Compute)
	}
	if same {
		for i := range s.Instances {
			c.parts[i].instance = s.Instances[i]
		}
		return false
	}
	before := c.parts
	if !c.mig {
		c.act.method = "" // the GPU itself is not measured any more; its instances may be
	}
	c.mig, c.parts = true, make([]*part, 0, len(s.Instances)+1)
	spare := &part{kind: spareSlices, share: 1, shareKnown: true, act: &activity{}}
	for _, in := range s.Instances {
		share, known := in.Share.Get()
		p := &part{act: &activity{}}
		if i := slices.IndexFunc(before, func(p *part) bool {
			return p.kind == migInstance && p.instance.UUID == in.UUID && p.instance.GI == in.GI && p.instance.Profile == in.Profile
		}); i >= 0 {
			p = before[i]
		}
		p.instance, p.kind, p.share, p.shareKnown = in, migInstance, float64(share), known
		spare.share -= p.share
		spare.shareKnown = spare.shareKnown && known
		c.parts = append(c.parts, p)
	}
	if spare.share < 0 {
		// The slices exceed the GPU's: normalize them.
		for _, p := range c.parts {
			p.share /= 1 - spare.share
		}
		spare.share = 0
	}
	for _, p := range c.parts {
		p.divide()
	}
	c.parts = append(c.parts, spare)
	return true
}

// divide makes the compute instances of an instance parts of it, if there are several. One keeps its counters while it
// exists.
func (p *part) divide() {
	before := p.within
	p.within, p.divided = nil, false
	for i, ci := range p.instance.Compute {
		if len(p.instance.Compute) < 2 {
			return
		}
		s := &part{instance: p.instance, compute: ci, kind: computeInstance, act: &activity{}, shareKnown: p.shareKnown,
			share: p.share * float64(p.instance.ComputeShare(i))}
		if at := slices.IndexFunc(before, func(o *part) bool { return o.compute.UUID == ci.UUID }); at >= 0 {
			s.act = before[at].act
		}
		p.within = append(p.within, s)
	}
}

// units are the parts that share the GPU's time among them: the compute instances of an instance, or the instance.
func (c *device) units(yield func(*part) bool) {
	for _, p := range c.parts {
		list := []*part{p}
		if p.divided {
			list = p.within
		}
		for _, u := range list {
			if !yield(u) {
				return
			}
		}
	}
}

// all are the parts, and those within them.
func (c *device) all(yield func(*part) bool) {
	for _, p := range c.parts {
		if !yield(p) {
			return
		}
		for _, s := range p.within {
			if !yield(s) {
				return
			}
		}
	}
}

// partOf returns the part with the UUID of a MIG device, nil if there is none.
func (c *device) partOf(u gpu.UUID) *part {
	for _, p := range c.parts {
		if p.kind == migInstance && (p.instance.UUID == u ||
			slices.ContainsFunc(p.instance.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == u })) {
			return p
		}
	}
	return nil
}

// reopened is called when the driver's session is new.
func (c *device) reopened() {
	c.session++
	c.act.reseed()
	c.weights, c.weightsAge, c.explained, c.hiddenUntil, c.profiled = nil, 0, explained{}, 0, profiled{}
}

// readFast applies a fast reading: it sets added of every part and returns the energy used since the previous reading
// with samples. Energy is attributed by busy time, so a reading without samples has none.
func (l *Ledger) readFast(c *device, f *gpu.Fast) (total increment, joules float64, hasEnergy bool, since float64) {
	elapsed, sampled := 0.0, !f.Unsampled || c.mig
	if c.read {
		elapsed, since = l.clock-c.clock, l.clock-c.sampledAt
	}
	first := !c.read
	c.read, c.clock = true, l.clock

	take := func(n *counters.Counter, kind counters.Kind, v, elapsed float64, reading string) float64 {
		step, ok := n.Add(kind, v, elapsed, n.Renewed(c.session))
		if !ok {
			l.filter.Reject(reading)
		}
		return step
	}
	if v, ok := f.Energy.Get(); ok && sampled {
		seeded := c.energy.Seen
		joules = take(&c.energy, counters.Energy, float64(v), since, "energy")
		hasEnergy = seeded
	}
	for _, b := range []struct {
		n    *counters.Counter
		kind counters.Kind
		v    gpu.Opt[gpu.Bytes]
		name string
	}{{&c.nvlinkOut, counters.NVLink, f.NVLinkTransmit, "nvlink_bytes"},
		{&c.nvlinkIn, counters.NVLink, f.NVLinkReceive, "nvlink_bytes"}} {
		if v, ok := b.v.Get(); ok {
			take(b.n, b.kind, float64(v), elapsed, b.name)
		}
	}
	pair := f.GPM.Or(gpu.GPM{})
	for _, b := range []struct {
		n         *counters.Wrapping
		v         gpu.Opt[gpu.Bytes]
		rate, sum gpu.Opt[float64]
	}{{&c.pcieOut, f.PCIeTransmit, pair.PCIeTransmit, pair.PCIeTransmitted},
		{&c.pcieIn, f.PCIeReceive, pair.PCIeReceive, pair.PCIeReceived}} {
		by := counters.Estimates{Sum: b.sum}
		if r, ok := b.rate.Get(); ok {
			by.Step = gpu.Some(r * pair.Window.Seconds())
		}
		if v, ok := b.v.Get(); !ok {
			b.n.Miss(elapsed, by.Step.Present() || by.Sum.Present())
		} else if !b.n.Add(float64(v), by, elapsed, b.n.Renewed(c.session)) {
			l.filter.Reject("pcie_bytes")
		}
	}
	for reason, v := range f.Limited {
		n := c.limited[reason]
		if n == nil {
			n = &counters.Counter{}
			c.limited[reason] = n
		}
		take(n, counters.LimitedTime, float64(v), elapsed, "limited_time")
	}
	if mask, ok := f.SampledReasons.Get(); ok {
		for bit, name := range gpu.ClockReasons {
			reason := gpu.LimitReason(name)
			if c.limited[reason] != nil || !slices.Contains(gpu.LimitReasons, reason) {
				continue
			}
			if c.sampled == nil {
				c.sampled = map[gpu.LimitReason]float64{}
			}
			c.sampled[reason] += min(elapsed, maxRatePeriod) * float64(mask>>bit&1)
		}
	}

	c.act.profile(f.GPM, elapsed)
	c.profiled.add(f.GPM, elapsed)
	if !sampled {
		return total, 0, false, 0
	}
	c.sampledAt = l.clock
	var by []processWeight
	if c.mig {
		c.profiled = profiled{}
		total = c.readInstances(f, l, elapsed)
	} else {
		total = c.act.read(f, since, l.filter.Reject)
		by = l.readAccounts(c, f, &total, since)
		c.profiled.fill(&total, since)
		c.parts[0].added = total
	}
	c.act.sum(total, l.clock, l.now)
	if c.weigh(f, first, l.complete); len(by) > 0 {
		c.weights, c.weightsAge = by, 0
	}
	return total, joules, hasEnergy, since
}

// readInstances adds up the instances: instance time counts by the instance's share, and slices without instance are
// observed while some instance is.
func (c *device) readInstances(f *gpu.Fast, l *Ledger, elapsed float64) (total increment) {
	longest := 0.0
	for _, p := range c.parts {
		p.added = increment{}
		if p.kind != migInstance {
			continue
		}
		i := slices.IndexFunc(f.Instances, func(in gpu.InstanceFast) bool { return in.UUID == p.instance.UUID })
		if i < 0 {
			continue
		}
		p.added = p.act.readGPM(f.Instances[i].GPM, elapsed)
		p.act.profile(f.Instances[i].GPM, elapsed)
		p.act.sum(p.added, l.clock, l.now)
		l.readCompute(c, p, f.Instances[i].Compute, elapsed)
	}
	for p := range c.units {
		if p.kind == spareSlices || p.act.method == "" || !p.shareKnown {
			continue
		}
		c.act.method = gpu.MethodGPM
		total.busy += p.added.busy * p.share
		total.observed += p.added.observed * p.share
		longest = max(longest, p.added.observed)
		total.wasBusy = total.wasBusy || p.added.wasBusy
	}
	// Instances without metrics are not observed; slices without instance cannot be busy.
	if spare := c.parts[len(c.parts)-1]; spare.kind == spareSlices && longest > 0 {
		total.observed += spare.share * longest
		spare.added = increment{observed: longest}
		spare.act.method = gpu.MethodGPM
	}
	if longest > 0 {
		total.sampled = true
		total.peak = min(1, total.busy/longest)
	}
	return total
}

// readCompute applies the activity of the compute instances of a MIG instance. One that is not sampled on its own loses
// its counters: those of the MIG instance are no substitute.
//
// Should a driver return the activity of the MIG instance for each of them, it would attribute to a container what
// another did. So their time counts once they were busy for different times on this GPU, while all are sampled and the
// compute instance of each process is known.
func (l *Ledger) readCompute(c *device, p *part, list []gpu.ComputeFast, elapsed float64) {
	divided := len(p.within) > 0 && !slices.ContainsFunc(c.list(), func(proc gpu.Process) bool {
		return c.on(p, &proc) && !proc.CI.Present()
	})
	for _, s := range p.within {
		i := slices.IndexFunc(list, func(ci gpu.ComputeFast) bool { return ci.UUID == s.compute.UUID })
		if i < 0 {
			s.act, divided = &activity{}, false
			continue
		}
		s.added = s.act.readGPM(list[i].GPM, elapsed)
		s.act.profile(list[i].GPM, elapsed)
		s.act.sum(s.added, l.clock, l.now)
		divided = divided && s.act.method != ""
		first := p.within[0].act
		c.distinct = c.distinct || first.method != "" && s.act.method != "" &&
			math.Abs(s.act.busy-first.busy) > math.Abs(s.act.observed-first.observed)+distinctBusy
	}
	if divided = divided && c.distinct; divided != p.divided {
		p.divided = divided
		for _, u := range append(p.within, p) {
			u.busy, u.rest = 0, 0
		}
	}
}

// publishCompute returns the activity of each compute instance, if there are several.
func (p *part) publishCompute(clock float64, live bool) []gpu.Activity {
	var out []gpu.Activity
	for _, s := range p.within {
		out = append(out, s.act.publish(clock, live))
	}
	return out
}

// weigh stores the utilization samples of the processes. The driver records one process per sample of its ring: only their
// proportions count. A first reading, of the past, is dropped. complete has the models that leave out no process.
func (c *device) weigh(f *gpu.Fast, first bool, complete map[string]bool) {
	samples, ok := f.Processes.Get()
	c.weighable, c.weightsAge = c.weighable || ok, c.weightsAge+1
	if !ok || !f.Busy.Present() || c.act.method != gpu.MethodRing {
		c.explained = explained{} // there is nothing to compare with
	} else {
		c.explained.add(samples, c.act.rings[0].scratch, c.act.rings[0].limit(0))
		x, resident := &c.explained, c.unlisted() > unlistedMemory
		x.doubt.complete = x.doubt.complete || complete[c.id.Model]
		complete[c.id.Model] = x.doubt.complete
		if x.proven || resident && (x.doubt.proves(c.act.rings[0].limit(0)/2) || c.clock < c.hiddenUntil) {
			c.hiddenUntil = c.clock + hiddenHold
		}
	}
	for _, s := range samples {
		if s.SM <= 0 || first {
			continue
		}
		if c.weightsAge > 0 {
			c.weights, c.weightsAge = c.weights[:0], 0
		}
		c.weights = append(c.weights, processWeight{s.PID, s.SM})
	}
	if c.weightsAge > 1 {
		c.weights = c.weights[:0] // no samples for more than one reading: the old ones are void
	}
}

// list returns the processes of the last process list of a GPU.
func (c *device) list() []gpu.Process {
	if c.medium == nil {
		return nil
	}
	return c.medium.Processes.Or(nil)
}

// on reports whether a process runs on a part.
func (c *device) on(p *part, proc *gpu.Process) bool {
	switch p.kind {
	case migInstance:
		gi, ok := proc.GI.Get()
		return ok && gi == p.instance.GI
	case computeInstance:
		return proc.GI == gpu.Some(p.instance.GI) && proc.CI == gpu.Some(p.compute.CI)
	case spareSlices:
		return false
	}
	return true
}

// partOfProcess returns the part on which a process runs, nil if unknown.
func (c *device) partOfProcess(proc *gpu.Process) *part {
	for _, p := range c.parts {
		if c.on(p, proc) {
			return p
		}
	}
	return nil
}
