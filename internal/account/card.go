package account

import (
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Availability says how a GPU could be read in a round.
type Availability int

// Readable GPUs were read, or wait for their poll group. Unavailable GPUs are lost, stuck or missing. Unread
// GPUs are left alone on purpose: nobody can tell what they do.
const (
	Readable Availability = iota
	Unavailable
	Unread
)

// part is what can be held and can be busy as one: the GPU itself, or under MIG an instance of it, or the
// slices of which there is no instance.
type part struct {
	instance gpu.Instance // zero for the GPU and for the slices without instance
	kind     partKind
	// share is the part's share of the GPU; 0 and not known where NVML does not tell.
	share      float64
	shareKnown bool
	act        *activity

	// lag is the time that went by and of which no sample has spoken yet; carry is busy time that was
	// measured and has not found its second yet. See seconds.go.
	lag, carry float64
	// added is what this round measured.
	added increment

	holders    []holder
	free       float64 // the share of the part that nobody is known to hold
	freeKnown  bool    // whether free is known to be free
	loose      bool    // somebody holds some of it, and how much cannot be told
	allocation gpu.Opt[gpu.Ratio]
	mode       mode
	memory     gpu.Opt[gpu.Memory]
}

type partKind int

const (
	wholeGPU partKind = iota
	migInstance
	spareSlices
)

// holder is a container that holds a share of a part.
type holder struct {
	row   *row
	share float64 // of the part; all of them together at most 1
	held  float64 // as the holding says
}

// unattributed is what closes the sums of one GPU for one reason.
type unattributed struct {
	busy, energy       float64
	memory             gpu.Bytes
	hasBusy, hasEnergy bool
	hasMemory          bool
}

// GPU is the account of one GPU.
type dev struct {
	id           gpu.Identity
	seen         bool
	availability Availability
	clock        float64 // the ledger's clock at the last fast reading
	read         bool    // there was one
	fresh        bool    // the next values are the first of a new session

	mig   bool
	parts []*part
	act   activity // of the whole GPU, under MIG the sum over its instances

	energy                 counter
	pcieOut, pcieIn        counter
	nvlinkOut, nvlinkIn    counter
	limited                map[gpu.LimitReason]*counter
	seconds                map[gpu.TimeState]float64
	idleWatts              float64
	idleKnown              bool
	quiet                  bool // the reading before showed no work either
	allocation             gpu.Opt[gpu.Ratio]
	loose                  bool // somebody holds a part of it that cannot be placed
	medium                 *gpu.Medium
	mediumAt               float64 // the ledger's clock when medium came
	weighable              bool    // the driver offers process utilization here
	weights                []processWeight
	weightsAge             int // readings since somebody weighed anything
	weighed                []weighed
	ownersSeen             []User
	servers                []server // of MPS, on the last list
	everServed             bool
	visible, everVisible   bool
	unattributed           map[gpu.UnattributedReason]*unattributed
	credits                []credit // who worked in this round
	givenBusy, givenEnergy float64  // all that was ever attributed, or given a reason
	spentEnergy            float64  // all the energy since the first reading
	memoryError            float64
}

func newGPU(id gpu.Identity) *dev {
	c := &dev{id: id, limited: map[gpu.LimitReason]*counter{}, seconds: map[gpu.TimeState]float64{},
		unattributed: map[gpu.UnattributedReason]*unattributed{}}
	c.parts = []*part{{kind: wholeGPU, share: 1, shareKnown: true, act: &c.act}}
	return c
}

// layout takes the MIG layout and reports whether it changed. What an instance did so far goes on while it exists.
func (c *dev) layout(s *gpu.Slow) bool {
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
		same = a.UUID == b.UUID && a.GI == b.GI && a.Share == b.Share && len(a.Compute) == len(b.Compute)
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
		if i := slices.IndexFunc(before, func(p *part) bool { return p.kind == migInstance && p.instance.UUID == in.UUID }); i >= 0 {
			p = before[i]
		}
		p.instance, p.kind, p.share, p.shareKnown = in, migInstance, float64(share), known
		spare.share -= p.share
		spare.shareKnown = spare.shareKnown && known
		c.parts = append(c.parts, p)
	}
	if spare.share < 0 {
		// More slices than the GPU has: believe the proportions.
		for _, p := range c.parts {
			p.share /= 1 - spare.share
		}
		spare.share = 0
	}
	c.parts = append(c.parts, spare)
	return true
}

// partOf returns the part of a MIG device's UUID.
func (c *dev) partOf(u gpu.UUID) *part {
	for _, p := range c.parts {
		if p.kind != migInstance {
			continue
		}
		if p.instance.UUID == u || slices.ContainsFunc(p.instance.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == u }) {
			return p
		}
	}
	return nil
}

// reopened is called when the driver's session is a new one.
func (c *dev) reopened() {
	c.fresh = true
	c.act.reseed()
	c.weights, c.weightsAge = nil, 0
}

// why returns the account of one reason.
func (c *dev) why(reason gpu.UnattributedReason) *unattributed {
	u := c.unattributed[reason]
	if u == nil {
		u = &unattributed{}
		c.unattributed[reason] = u
	}
	return u
}

// readFast takes a fast reading: it fills added of every part, and returns the energy that was used.
func (l *Ledger) readFast(c *dev, f *gpu.Fast) (total increment, joules float64, hasEnergy bool, elapsed float64) {
	if c.read {
		elapsed = l.clock - c.clock
	}
	first := !c.read
	c.read, c.clock = true, l.clock
	fresh := c.fresh
	c.fresh = false

	take := func(n *counter, kind counterKind, v float64, reading string) float64 {
		step, ok := n.add(kind, v, elapsed, fresh)
		if !ok {
			l.sieve.Reject(reading)
		}
		return step
	}
	if v, ok := f.Energy.Get(); ok {
		seeded := c.energy.seen
		joules = take(&c.energy, energyCounter, float64(v), "energy")
		hasEnergy = seeded
	}
	for _, b := range []struct {
		n    *counter
		kind counterKind
		v    gpu.Opt[gpu.Bytes]
		name string
	}{{&c.pcieOut, pcieCounter, f.PCIeTransmit, "pcie_bytes"}, {&c.pcieIn, pcieCounter, f.PCIeReceive, "pcie_bytes"},
		{&c.nvlinkOut, nvlinkCounter, f.NVLinkTransmit, "nvlink_bytes"}, {&c.nvlinkIn, nvlinkCounter, f.NVLinkReceive, "nvlink_bytes"}} {
		if v, ok := b.v.Get(); ok {
			take(b.n, b.kind, float64(v), b.name)
		}
	}
	for reason, v := range f.Limited {
		n := c.limited[reason]
		if n == nil {
			n = &counter{}
			c.limited[reason] = n
		}
		take(n, limitedCounter, float64(v), "limited_time")
	}

	reject := l.sieve.Reject
	if !c.mig {
		total = c.act.read(f, elapsed, reject)
		c.act.profile(f.GPM, elapsed)
		c.parts[0].added = total
	} else {
		total = c.readInstances(f, l, elapsed)
		c.act.profile(f.GPM, elapsed)
	}
	c.act.sum(total, l.clock, l.now)
	c.weigh(f, first)
	return total, joules, hasEnergy, elapsed
}

// readInstances sums the instances into the GPU: instance time counts by the instance's share, and the
// slices without instance are observed as long as some instance is.
func (c *dev) readInstances(f *gpu.Fast, l *Ledger, elapsed float64) (total increment) {
	longest, shares := 0.0, 0.0
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
		if p.act.method == "" || !p.shareKnown {
			continue
		}
		c.act.method = gpu.MethodGPM
		total.busy += p.added.busy * p.share
		total.observed += p.added.observed * p.share
		shares += p.share
		longest = max(longest, p.added.observed)
		if p.added.worked {
			total.worked = true
		}
	}
	// Instances that nothing tells about are not observed; what has no instance cannot work.
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
