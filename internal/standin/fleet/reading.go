package fleet

import (
	"math"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// bucketTop is the upper bound of a histogram's bucket.
func bucketTop(i int) float64 { return math.Exp2(float64(i) / 8) }

// load is what a GPU does at one time.
type load struct {
	total, watts float64
	processes    int // containers with a process
}

// loadAt returns the load at a time.
func (p *place) loadAt(t stamp) load {
	var m load
	power := 0.0
	for slot := range p.shares {
		w := p.current(slot, t)
		if w == nil {
			continue
		}
		if w.process {
			m.processes++
		}
		l := w.level(t)
		if p.mig() {
			l = min(1, l) * p.shares[slot]
		}
		m.total += l
		power += l * w.of.intensity
	}
	m.watts, _ = p.power(t, power, m.processes > 0)
	return m
}

// jitter moves a gauge a little, the same way for ten seconds.
func (c *device) jitter(t stamp, what uint64) float64 {
	return noise(c.id, what, uint64(t.floor(mediumPoll))) - 0.5
}

func (c *device) fast(p *place, t stamp, now load, mean float64) *gpu.Fast {
	b := p.rack.board
	f := &gpu.Fast{Taken: p.rack.fleet.time(t.floor(fastPoll))}
	f.Power = gpu.Some(gpu.Watts(round(now.watts*(1+0.01*c.jitter(t, 1)), 3)))
	f.PowerInstant = gpu.Some(gpu.Watts(round(now.watts*(1+0.04*c.jitter(t, 2)), 3)))
	if b.memoryIdle > 0 && b.profiled {
		f.PowerMemory = gpu.Some(gpu.Watts(round(now.watts*0.12, 2)))
	}
	if b.memoryIdle > 0 {
		f.MemoryTemperature = gpu.Some(gpu.Celsius(math.Round(b.memoryIdle + (b.memoryBusy-b.memoryIdle)*mean +
			2*c.jitter(t, 3))))
	}
	if p.faultOf(FaultThermal, t) != nil && now.total > 0 {
		for _, limit := range b.thresholds {
			if limit.Sensor == gpu.SensorMemory {
				f.MemoryTemperature = gpu.Some(limit.Value - 1)
			}
		}
	}
	if !p.mig() {
		f.Engines = map[gpu.Engine]gpu.Ratio{}
		for _, e := range b.engines {
			f.Engines[e] = 0
		}
	}
	return f
}

func round(x float64, digits int) float64 {
	s := math.Pow10(digits)
	return math.Round(x*s) / s
}

func (c *device) medium(p *place, t stamp, now load, mean float64) *gpu.Medium {
	b := p.rack.board
	m := &gpu.Medium{Taken: p.rack.fleet.time(t.floor(mediumPoll)), BAR1: gpu.Some(gpu.BAR1{Total: b.bar1, Used: mib})}
	used := driverBytes
	if !p.mig() {
		for slot := range p.shares {
			used += p.usedMemory(slot, t)
		}
	} else {
		for slot := range p.shares {
			u := p.usedMemory(slot, t)
			used += u
			total := p.slotMemory(slot)
			m.Instances = append(m.Instances, gpu.InstanceMedium{UUID: c.layout[slot].UUID,
				Memory: gpu.Some(gpu.Memory{Total: total, Used: u, Free: total - u, Reserved: gpu.Some(gpu.Bytes(0))})})
		}
	}
	m.Memory = gpu.Some(gpu.Memory{Total: b.memory, Used: used, Free: b.memory - b.reserved - used, Reserved: gpu.Some(b.reserved)})
	celsius := b.idleCelsius + (b.busyCelsius-b.idleCelsius)*mean
	clock := b.graphics
	if p.faultOf(FaultThermal, t) != nil && now.total > 0 {
		celsius = float64(b.thresholds[0].Value) - 1
		clock *= 0.7
	}
	m.Temperature = gpu.Some(gpu.Celsius(math.Round(celsius + 2*c.jitter(t, 4))))
	if now.processes == 0 {
		clock = 345e6
	}
	if p.faultOf(FaultPowerCap, t) != nil && now.total > 0.5 {
		clock *= 0.65
	}
	m.Clocks = map[gpu.Clock]gpu.Hertz{gpu.ClockGraphics: round15(clock), gpu.ClockSM: round15(clock),
		gpu.ClockMemory: b.memoryClock, gpu.ClockVideo: b.video}
	m.PState, m.ClockEvents = gpu.Some(0), gpu.Some(0)
	c.errors(p, t, m)
	if !p.rack.pool.Hidden {
		list := []gpu.Process{}
		for slot := range p.shares {
			w := p.current(slot, t)
			if w == nil || !w.process {
				continue
			}
			proc := gpu.Process{PID: int(2000 + w.pod.id%60000), Kinds: []gpu.ProcessKind{gpu.ProcessCompute},
				Memory: gpu.Some(p.usedMemory(slot, t))}
			if p.mig() {
				proc.GI, proc.CI = gpu.Some(c.layout[slot].GI), gpu.Some(0)
			}
			list = append(list, proc)
		}
		m.Processes = gpu.Some(list)
	}
	return m
}

func round15(h gpu.Hertz) gpu.Hertz { return gpu.Hertz(math.Round(float64(h)/15e6)) * 15e6 }

// errors fills in the error counters.
func (c *device) errors(p *place, t stamp, m *gpu.Medium) {
	b := p.rack.board
	var corrected, uncorrected uint64
	rows := map[gpu.RemapCause]uint64{gpu.CauseCorrected: 0, gpu.CauseUncorrected: 0}
	pending, failed := false, false
	links := map[gpu.NVLinkError]uint64{}
	for _, k := range b.nvlinkErrors {
		links[k] = 0
	}
	for i := range p.dev.faults {
		f := &p.dev.faults[i]
		if t < f.from {
			continue
		}
		n := uint64((min(t, f.to) - f.from) / f.every)
		switch f.kind {
		case FaultECC:
			corrected += n * 40
		case FaultRemap:
			uncorrected += 1 + n/40
			rows[gpu.CauseUncorrected]++
			pending = f.contains(t)
		case FaultRemapFail:
			uncorrected += 2
			rows[gpu.CauseUncorrected]++
			failed = f.contains(t)
		case FaultCritical:
			uncorrected += 1 + n
		case FaultNVLink:
			for k := range links {
				if k == gpu.NVLinkReplay || k == gpu.NVLinkRecovery || k == gpu.NVLinkSymbol {
					links[k] += 1 + uint64((min(t, f.to)-f.from)/(30*second))
				}
			}
		}
	}
	lifetime := c.id % 3
	for _, where := range b.ecc {
		n, u := uint64(0), uint64(0)
		if where == gpu.ECCDRAM {
			n, u = corrected, uncorrected
		}
		m.ECC = append(m.ECC,
			gpu.ECCCount{Severity: gpu.ECCCorrected, Memory: where, Volatile: gpu.Some(n), Lifetime: gpu.Some(n + lifetime)},
			gpu.ECCCount{Severity: gpu.ECCUncorrected, Memory: where, Volatile: gpu.Some(u), Lifetime: gpu.Some(u)})
	}
	m.PCIeReplays = gpu.Some(c.id >> 8 % 4)
	if b.nvlinks > 0 {
		m.NVLinkErrors = links
	}
	if b.remapBanks > 0 {
		m.RemappedRows, m.RemapPending, m.RemapFailed = rows, gpu.Some(pending), gpu.Some(failed)
	} else {
		m.RetiredPages = map[gpu.RemapCause]uint64{gpu.CauseSingleBit: 0, gpu.CauseDoubleBit: rows[gpu.CauseUncorrected]}
		m.RetirePending = gpu.Some(pending || failed)
	}
}

// xidTable are the XIDs of faults, and whether they repeat.
var xidTable = []struct {
	kind  FaultKind
	xid   int
	again bool
}{
	{FaultXID, 31, true}, {FaultCritical, 95, true}, {FaultLost, 79, false}, {FaultECC, 92, true},
	{FaultRemap, 48, false}, {FaultRemap, 63, false},
	{FaultRemapFail, 64, false}, {FaultNVLink, 74, true},
}

// xids counts the events since the exporter started.
func (p *place) xids(started, t stamp) []gpu.XIDCount {
	var out []gpu.XIDCount
	for _, x := range gpu.XIDsFromZero() {
		out = append(out, gpu.XIDCount{XID: x})
	}
	for i := range p.dev.faults {
		f := &p.dev.faults[i]
		for _, x := range xidTable {
			if x.kind != f.kind {
				continue
			}
			n, last := f.events(x.again, started, t)
			if n == 0 {
				continue
			}
			at := slices.IndexFunc(out, func(c gpu.XIDCount) bool { return c.XID == x.xid })
			if at < 0 {
				out = append(out, gpu.XIDCount{XID: x.xid})
				at = len(out) - 1
			}
			out[at].Count += n
			if before, ok := out[at].Last.Get(); !ok || p.rack.fleet.time(last).After(before) {
				out[at].Last = gpu.Some(p.rack.fleet.time(last))
			}
		}
	}
	slices.SortFunc(out, func(a, b gpu.XIDCount) int { return a.XID - b.XID })
	return out
}

// events counts the events of a fault after a start and until t.
func (f *fault) events(again bool, started, t stamp) (n uint64, last stamp) {
	count := func(until stamp) int64 { // events at or before a moment
		until = min(until, f.to-1)
		switch {
		case until < f.from:
			return 0
		case !again:
			return 1
		}
		return int64((until-f.from)/f.every) + 1
	}
	all := count(t)
	return uint64(all - count(started)), f.from + stamp(max(0, all-1))*f.every
}

// recovery is the recovery action that the driver recommends.
func (p *place) recovery(t stamp) gpu.RecoveryAction {
	switch {
	case p.faultOf(FaultCritical, t) != nil:
		return gpu.RecoveryReset
	case p.faultOf(FaultRemap, t) != nil:
		return gpu.RecoveryDrainAndReset
	}
	return gpu.RecoveryNone
}

// slowReading returns the slow reading.
func (c *device) slowReading(p *place, t stamp, active bool) *gpu.Slow {
	b := p.rack.board
	limit := b.limit
	if p.faultOf(FaultPowerCap, t) != nil {
		limit *= capTo
	}
	s := &gpu.Slow{Taken: p.rack.fleet.time(t.floor(slowPoll)), PowerLimit: gpu.Some(limit),
		PowerLimitRequested: gpu.Some(limit), PowerLimitDefault: gpu.Some(b.limit), PowerLimitMin: gpu.Some(b.limitMin),
		PowerLimitMax:     gpu.Some(b.limit),
		TemperatureLimits: b.thresholds, MaxClocks: b.maxClocks(), PersistenceMode: gpu.Some(true),
		AccountingMode: gpu.Some(false), DisplayActive: gpu.Some(false),
		ComputeMode: gpu.Some(gpu.ComputeDefault), ECCMode: gpu.Some(gpu.ModePair{Current: true, Pending: true}),
		Instances: c.layout}
	if b.slices > 0 {
		s.MIGMode = gpu.Some(gpu.ModePair{Current: p.mig(), Pending: p.mig()})
	}
	if b.remapBanks > 0 {
		full := b.remapBanks
		s.RemapBanks = map[gpu.BankAvailability]uint64{gpu.BanksMax: full, gpu.BanksHigh: 0, gpu.BanksPartial: 0,
			gpu.BanksLow: 0, gpu.BanksNone: 0}
		if p.faultOf(FaultRemap, t) != nil {
			s.RemapBanks[gpu.BanksMax], s.RemapBanks[gpu.BanksHigh] = full-1, 1
		}
		if p.faultOf(FaultRemapFail, t) != nil {
			s.RemapBanks[gpu.BanksMax], s.RemapBanks[gpu.BanksNone] = full-1, 1
		}
	}
	s.DisplayAttached = gpu.Some(false)
	s.PCIe = gpu.PCIeLink{Generation: gpu.Some(b.generation), Width: gpu.Some(b.width), MaxGeneration: gpu.Some(b.generation),
		MaxWidth: gpu.Some(b.width), GPUMaxGeneration: gpu.Some(b.generation)}
	if !active && !b.profiled {
		s.PCIe.Generation = gpu.Some(1)
	}
	if p.faultOf(FaultPCIe, t) != nil {
		s.PCIe.Width = gpu.Some(b.width / 4)
	}
	unlinked := p.faultOf(FaultNVLink, t) != nil
	if b.nvlinks > 0 {
		down := b2i(unlinked)
		s.NVLinks = gpu.Some(gpu.NVLinkCount{Up: b.nvlinks - down, Down: down})
	}
	if b.fabric {
		s.Fabric = gpu.Some(gpu.Fabric{State: gpu.FabricCompleted, Status: "SUCCESS", Health: gpu.FabricHealths[2*b2i(unlinked)],
			Faults: map[gpu.FabricFault]bool{gpu.FabricDegradedBandwidth: unlinked, gpu.FabricRouteUnhealthy: false,
				gpu.FabricRouteRecovery: false, gpu.FabricAccessTimeout: false}})
	}
	return s
}

func (b *board) maxClocks() map[gpu.Clock]gpu.Hertz {
	return map[gpu.Clock]gpu.Hertz{gpu.ClockGraphics: b.graphics, gpu.ClockSM: b.graphics,
		gpu.ClockMemory: b.memoryClock, gpu.ClockVideo: b.video}
}

// countedSeconds and countedJoules round the value of a counter: sums in another order differ in the last bits, and
// Prometheus takes the smallest decrease for a counter reset.
func countedSeconds(x float64) gpu.Seconds { return gpu.Seconds(round(x, 6)) }

func countedJoules(x float64) gpu.Joules { return gpu.Joules(round(x, 3)) }
