package account

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// recentSpan is the span of the mean, of the peak, and of the quiet that makes a holder idle, in seconds.
	recentSpan = 60.0
	// ringPatience is for how long a GPU that had rings may fail to answer before the driver's last
	// window is used instead: the ring itself bridges 10 s.
	ringPatience = 30.0
	// rateReach is the longest time for which one reading of the driver's last window may stand.
	rateReach = 5.0
)

// stretch is what one read said, kept for the mean and the peak of the last minute.
type stretch struct {
	at             float64 // ledger's clock
	busy, observed float64
	peak           float64
}

// activity sums what a GPU, or a MIG instance, did.
type activity struct {
	method         gpu.Method // "" until something can be measured
	rings          [2]ring    // GPU, memory
	ringMissing    float64
	busy, observed float64
	memoryBusy     float64
	hasMemory      bool
	recent         []stretch

	began      bool      // it was measured at least once
	lastBusy   time.Time // exporter's clock
	lastBusyAt float64   // the same, by the ledger's clock

	profiled, smActive, smOccupancy, tensor, dram float64
	hasProfile                                    bool
	hasMetric                                     [4]bool // SM active, occupancy, tensor, DRAM
	pipes                                         map[gpu.Pipe]float64
}

// reseed is called when the driver's session is a new one.
func (a *activity) reseed() {
	for i := range a.rings {
		a.rings[i].reseed()
	}
}

// read takes the activity of one fast reading, elapsed seconds after the one before, and returns what it adds.
func (a *activity) read(f *gpu.Fast, elapsed float64, reject func(reading string)) increment {
	busyRing, hasRing := f.Busy.Get()
	rate, hasRate := f.Utilization.Get()
	var in increment
	switch {
	case hasRing:
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
	case a.method == gpu.MethodRing && a.ringMissing+elapsed < ringPatience:
		a.ringMissing += elapsed
	case hasRate:
		first := a.method != gpu.MethodRate
		a.method = gpu.MethodRate
		if first {
			elapsed = 0 // the gauge speaks from now on
		}
		in = gauge(float64(rate.GPU), min(elapsed, rateReach))
		in.lost = elapsed - in.observed
		in.memory, a.hasMemory = float64(rate.Memory)*in.observed, true
	default:
		in = a.readGPM(f.GPM, elapsed)
	}
	return in
}

// readGPM takes the engine activity of a pair of profiling samples.
func (a *activity) readGPM(g gpu.Opt[gpu.GPM], elapsed float64) increment {
	p, ok := g.Get()
	active, offered := p.GraphicsActive.Get()
	if !ok || !offered {
		return increment{}
	}
	a.method = gpu.MethodGPM
	return gauge(float64(active), profiledWindow(p, elapsed))
}

// profiledWindow is the time of which a pair speaks: never more than what went by since the reading before.
func profiledWindow(p gpu.GPM, elapsed float64) float64 {
	return max(0, min(p.Window.Seconds(), elapsed+1))
}

// gauge is a mean over a window as an increment.
func gauge(v, window float64) increment {
	in := increment{busy: v * window, observed: window}
	if window > 0 {
		in.sampled, in.peak, in.worked = true, v, v > 0
	}
	return in
}

// profile sums the profiling metrics.
func (a *activity) profile(g gpu.Opt[gpu.GPM], elapsed float64) {
	p, ok := g.Get()
	if !ok {
		return
	}
	w := profiledWindow(p, elapsed)
	a.hasProfile = true
	a.profiled += w
	for i, m := range []struct {
		of  gpu.Opt[gpu.Ratio]
		sum *float64
	}{{p.SMActive, &a.smActive}, {p.SMOccupancy, &a.smOccupancy}, {p.TensorActive, &a.tensor}, {p.DRAMActive, &a.dram}} {
		if v, ok := m.of.Get(); ok {
			a.hasMetric[i] = true
			*m.sum += float64(v) * w
		}
	}
	for _, m := range []struct {
		pipe gpu.Pipe
		of   gpu.Opt[gpu.Ratio]
	}{{gpu.PipeFP16, p.FP16Active}, {gpu.PipeFP32, p.FP32Active}, {gpu.PipeFP64, p.FP64Active}, {gpu.PipeInteger, p.IntegerActive}} {
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
	if a.method != "" && !a.began {
		a.began, a.lastBusy, a.lastBusyAt = true, now, clock
	}
	a.busy += in.busy
	a.observed += in.observed
	a.memoryBusy += in.memory
	if in.worked {
		a.lastBusyAt = max(a.lastBusyAt, clock-in.sinceWork)
		a.lastBusy = now.Add(-time.Duration(in.sinceWork * float64(time.Second)))
	}
	old := 0
	for old < len(a.recent) && a.recent[old].at <= clock-recentSpan {
		old++
	}
	a.recent = append(a.recent[:0], a.recent[old:]...)
	if in.sampled || in.observed > 0 {
		a.recent = append(a.recent, stretch{at: clock, busy: in.busy, observed: in.observed, peak: in.peak})
	}
}

// publish returns the sums. live is false while the GPU is not read: then no gauge speaks.
func (a *activity) publish(clock float64, live bool) gpu.Activity {
	var out gpu.Activity
	if a.method != "" {
		out.Method = gpu.Some(a.method)
		out.Busy = gpu.Some(gpu.Seconds(a.busy))
		out.Observed = gpu.Some(gpu.Seconds(a.observed))
		if a.hasMemory {
			out.MemoryBusy = gpu.Some(gpu.Seconds(a.memoryBusy))
		}
		if a.began {
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
		}{{a.smActive, &out.SMActive}, {a.smOccupancy, &out.SMOccupancy}, {a.tensor, &out.TensorActive}, {a.dram, &out.DRAMActive}} {
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
