package account

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// recentSpan is the period, in seconds, of the mean and the peak, and the minimum time without a kernel for a
	// container to be idle.
	recentSpan = 60.0
	// ringTimeout is how long, in seconds, a GPU with rings may fail to return them before the driver's last sampling
	// period is used instead: the ring itself covers 10 s.
	ringTimeout = 30.0
	// ringPatience is how long, in seconds, a ring may stay empty while the driver reports that the GPU is busy, before
	// the driver's last sampling period is used instead.
	ringPatience = 10.0
	// distinctBusy is by how many seconds compute instances of one MIG instance must differ in busy time to be taken as
	// sampled each on its own.
	distinctBusy = 1.0
	// maxRatePeriod is the maximum time, in seconds, that one reading of the driver's last sampling period stands for.
	maxRatePeriod = 5.0
)

// interval is the result of one read, kept for the mean and the peak of the last minute.
type interval struct {
	at             float64 // ledger's clock
	busy, observed float64
	peak           float64
}

// activity holds the activity counters of a GPU or a MIG instance.
type activity struct {
	method         gpu.Method // "" until something can be measured
	rings          [2]ring    // GPU, memory
	ringMissing    float64
	ringEmpty      float64 // time in which the ring had no samples and the GPU was busy
	gap            bool    // nothing was read since the last session or failure
	busy, observed float64
	memoryBusy     float64
	hasMemory      bool
	recent         []interval

	started    bool      // measured at least once
	lastBusy   time.Time // exporter's clock
	lastBusyAt float64   // the same, by the ledger's clock

	profiled, smActive, smOccupancy, tensor, dram float64
	hasProfile                                    bool
	hasMetric                                     [4]bool // SM active, occupancy, tensor, DRAM
	pipes                                         map[gpu.Pipe]float64
}

// reseed is called when the driver's session is new.
func (a *activity) reseed() {
	a.gap = true
	for i := range a.rings {
		a.rings[i].reseed()
	}
}

// read applies the activity of one fast reading, elapsed seconds after the previous one, and returns the increment.
func (a *activity) read(f *gpu.Fast, elapsed float64, reject func(reading string)) increment {
	busyRing, hasRing := f.Busy.Get()
	rate, hasRate := f.Utilization.Get()
	var in increment
	if len(busyRing) > 0 {
		a.ringEmpty = 0
	} else if hasRing && hasRate && rate.GPU > 0 {
		a.ringEmpty += elapsed
	}
	gap := a.gap
	a.gap = false
	switch {
	case hasRing && a.ringEmpty < ringPatience:
		if a.method != gpu.MethodRing {
			a.reseed()
			a.method = gpu.MethodRing
		}
		a.ringMissing = 0
		in = a.rings[0].add(busyRing, hasRate && rate.GPU == 0, elapsed, func() { reject("utilization_sample") })
		if memoryRing, ok := f.MemoryBusy.Get(); ok {
			m := a.rings[1].add(memoryRing, hasRate && rate.Memory == 0, elapsed, func() { reject("memory_utilization_sample") })
			in.memory, a.hasMemory = m.busy, true
		}
	case !hasRing && a.method == gpu.MethodRing && a.ringMissing+elapsed < ringTimeout:
		a.ringMissing += elapsed
	case hasRate:
		first := a.method != gpu.MethodRate
		a.method = gpu.MethodRate
		if first || gap {
			elapsed = 0 // the gauge applies from now on
		}
		in = gauge(float64(rate.GPU), min(elapsed, maxRatePeriod))
		in.lost = elapsed - in.observed
		in.memory, a.hasMemory = float64(rate.Memory)*in.observed, true
	default:
		in = a.readGPM(f.GPM, elapsed)
	}
	return in
}

// readGPM applies the engine activity of a pair of profiling samples.
func (a *activity) readGPM(g gpu.Opt[gpu.GPM], elapsed float64) increment {
	p, ok := g.Get()
	active, offered := p.GraphicsActive.Get()
	if !ok || !offered {
		return increment{}
	}
	a.method = gpu.MethodGPM
	return gauge(float64(active), profiledPeriod(p, elapsed))
}

// profiledPeriod is the time covered by a pair, limited to the time since the previous reading.
func profiledPeriod(p gpu.GPM, elapsed float64) float64 {
	return max(0, min(p.Window.Seconds(), elapsed+1))
}

// gauge converts a mean over a period to an increment.
func gauge(v, window float64) increment {
	in := increment{busy: v * window, observed: window}
	if window > 0 {
		in.sampled, in.peak, in.wasBusy = true, v, v > 0
	}
	return in
}

// profile integrates the profiling metrics.
func (a *activity) profile(g gpu.Opt[gpu.GPM], elapsed float64) {
	p, ok := g.Get()
	if !ok {
		return
	}
	w := profiledPeriod(p, elapsed)
	a.hasProfile = true
	a.profiled += w
	for i, m := range []struct {
		of  gpu.Opt[gpu.Ratio]
		sum *float64
	}{{p.SMActive, &a.smActive}, {p.SMOccupancy, &a.smOccupancy}, {p.TensorActive, &a.tensor},
		{p.DRAMActive, &a.dram}} {
		if v, ok := m.of.Get(); ok {
			a.hasMetric[i] = true
			*m.sum += float64(v) * w
		}
	}
	for _, m := range []struct {
		pipe gpu.Pipe
		of   gpu.Opt[gpu.Ratio]
	}{{gpu.PipeFP16, p.FP16Active}, {gpu.PipeFP32, p.FP32Active}, {gpu.PipeFP64, p.FP64Active},
		{gpu.PipeInteger, p.IntegerActive}} {
		if v, ok := m.of.Get(); ok {
			if a.pipes == nil {
				a.pipes = map[gpu.Pipe]float64{}
			}
			a.pipes[m.pipe] += float64(v) * w
		}
	}
}

// sum adds an increment at the ledger's clock.
func (a *activity) sum(in increment, clock float64, now time.Time) {
	if a.method != "" && !a.started {
		a.started, a.lastBusy, a.lastBusyAt = true, now, clock
	}
	a.busy += in.busy
	a.observed += in.observed
	a.memoryBusy += in.memory
	if in.wasBusy {
		a.lastBusyAt = max(a.lastBusyAt, clock-in.sinceBusy)
		a.lastBusy = now.Add(-time.Duration(in.sinceBusy * float64(time.Second)))
	}
	old := 0
	for old < len(a.recent) && a.recent[old].at <= clock-recentSpan {
		old++
	}
	a.recent = append(a.recent[:0], a.recent[old:]...)
	if in.sampled || in.observed > 0 {
		a.recent = append(a.recent, interval{at: clock, busy: in.busy, observed: in.observed, peak: in.peak})
	}
}

// publish returns the counters; gauges only if live, that is while the GPU is read.
func (a *activity) publish(clock float64, live bool) gpu.Activity {
	var out gpu.Activity
	if a.method != "" {
		out.Method = gpu.Some(a.method)
		out.Busy = gpu.Some(gpu.Seconds(a.busy))
		out.Observed = gpu.Some(gpu.Seconds(a.observed))
		if a.hasMemory {
			out.MemoryBusy = gpu.Some(gpu.Seconds(a.memoryBusy))
		}
		if a.started {
			out.LastBusy = gpu.Some(a.lastBusy)
		}
	}
	if live && len(a.recent) > 0 {
		var busy, observed, peak float64
		for _, s := range a.recent {
			if s.at <= clock-recentSpan {
				continue
			}
			busy, observed, peak = busy+s.busy, observed+s.observed, max(peak, s.peak)
		}
		if observed > 0 {
			out.Mean, out.Peak = gpu.Some(gpu.Ratio(min(1, busy/observed))), gpu.Some(gpu.Ratio(peak))
		}
	}
	if a.hasProfile {
		out.Profiled = gpu.Some(gpu.Seconds(a.profiled))
		for i, m := range []struct {
			sum float64
			to  *gpu.Opt[gpu.Seconds]
		}{{a.smActive, &out.SMActive}, {a.smOccupancy, &out.SMOccupancy}, {a.tensor, &out.TensorActive},
			{a.dram, &out.DRAMActive}} {
			if a.hasMetric[i] {
				*m.to = gpu.Some(gpu.Seconds(m.sum))
			}
		}
		if len(a.pipes) > 0 {
			out.Pipes = make(map[gpu.Pipe]gpu.Seconds, len(a.pipes))
			for p, v := range a.pipes {
				out.Pipes[p] = gpu.Seconds(v)
			}
		}
	}
	return out
}
