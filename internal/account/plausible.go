package account

import (
	"maps"
	"slices"

	"github.com/gpu-exporter/gpu-exporter/internal/account/counters"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Filter drops implausible values from readings: it makes them absent and counts them per reading. Readings are
// modified in place; maps and lists are replaced, never modified. Not safe for concurrent use.
type Filter struct {
	counts map[string]uint64
}

// The plausible ranges of what is no plain value; those are in the table of NVML calls.
const (
	minCelsius, maxCelsius = -50, 200 // degrees Celsius
	// maxFan: NVML reports a fraction of the maximum speed under noise limits, which may be exceeded.
	maxFan = 2
	// maxProfiled allows for the rounding of profiling metrics, which nvml.h documents as 0 to 100 percent. The sample
	// of a GPU instance "is a GPU-I level aggregation of GPU-CI counters" (DCGM 4.6.0, DcgmGpmManager.cpp), and DCGM, which
	// divides by 100 and neither scales nor limits, showed 1.294 for one (NVIDIA/DCGM, issue 152). Of a GPU instance up to
	// maxProfiledMIG is accepted, the sum over the compute instances, of which there are at most eight; of a compute instance
	// that is sampled on its own, maxProfiled. Values above 1 become 1: no counter exceeds the time that it covers.
	maxProfiled    = 1.05
	maxProfiledMIG = 8 * maxProfiled
)

// Reject counts one implausible value of a reading.
func (s *Filter) Reject(reading string) {
	if s.counts == nil {
		s.counts = map[string]uint64{}
	}
	s.counts[reading]++
}

// Counts returns the rejected values by reading, in the order of the names.
func (s *Filter) Counts() []gpu.RejectedCount {
	out := make([]gpu.RejectedCount, 0, len(s.counts))
	for _, reading := range slices.Sorted(maps.Keys(s.counts)) {
		out = append(out, gpu.RejectedCount{Reading: reading, Count: s.counts[reading]})
	}
	return out
}

// number is the type of a reading.
type number interface{ ~float64 | ~uint64 | ~int }

// within makes o absent and counts it if it is outside of low to high, or NaN.
func within[T number](s *Filter, reading string, o *gpu.Opt[T], low, high float64) {
	if v, ok := o.Get(); ok && !(float64(v) >= low && float64(v) <= high) {
		*o = gpu.None[T]()
		s.Reject(reading)
	}
}

// withinMap is within for the values of a map.
func withinMap[K comparable, T number](s *Filter, reading string, m *map[K]T, low, high float64) {
	rejected := func(v T) bool { return !(float64(v) >= low && float64(v) <= high) }
	for _, v := range *m {
		if rejected(v) {
			kept := make(map[K]T, len(*m))
			for k, v := range *m {
				if rejected(v) {
					s.Reject(reading)
				} else {
					kept[k] = v
				}
			}
			*m = kept
			return
		}
	}
}

// plausible returns a list without the entries that are rejected, and counts those.
func plausible[T any](s *Filter, reading string, list []T, rejected func(T) bool) []T {
	if !slices.ContainsFunc(list, rejected) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool {
		bad := rejected(v)
		if bad {
			s.Reject(reading)
		}
		return bad
	})
}

// Fast filters a fast reading. The samples of the rings are checked where they are integrated.
func (s *Filter) Fast(f *gpu.Fast) {
	s.plainFast(f)
	if u, ok := f.Utilization.Get(); ok && !(u.GPU >= 0 && u.GPU <= 1 && u.Memory >= 0 && u.Memory <= 1) {
		f.Utilization = gpu.None[gpu.Utilization]()
		s.Reject("utilization")
	}
	if samples, ok := f.Processes.Get(); ok {
		rejected := func(p gpu.ProcessSample) bool {
			return p.PID <= 0 || !(min(p.SM, p.Memory, p.Encoder, p.Decoder) >= 0 && max(p.SM, p.Memory, p.Encoder, p.Decoder) <= 100)
		}
		kept := plausible(s, "process_utilization", samples, rejected)
		f.Processes = gpu.Some(kept)
		if len(kept) < len(samples) && slices.ContainsFunc(samples, func(p gpu.ProcessSample) bool {
			return p.PID > 0 && !slices.ContainsFunc(kept, func(k gpu.ProcessSample) bool { return k.PID == p.PID })
		}) {
			f.Processes = gpu.None[[]gpu.ProcessSample]() // one worked, and nothing says how much: no proportion is known
		}
	}
	s.gpm(&f.GPM, maxProfiled)
	if len(f.Instances) > 0 {
		f.Instances = slices.Clone(f.Instances)
		for i := range f.Instances {
			in := &f.Instances[i]
			s.gpm(&in.GPM, maxProfiledMIG)
			in.Compute = slices.Clone(in.Compute)
			for j := range in.Compute {
				s.gpm(&in.Compute[j].GPM, maxProfiled)
			}
		}
	}
}

func (s *Filter) gpm(o *gpu.Opt[gpu.GPM], most float64) {
	g, ok := o.Get()
	if !ok {
		return
	}
	if g.Window <= 0 {
		*o = gpu.None[gpu.GPM]()
		s.Reject("gpm")
		return
	}
	for _, m := range []*gpu.Opt[gpu.Ratio]{&g.GraphicsActive, &g.SMActive, &g.SMOccupancy, &g.TensorActive,
		&g.DRAMActive,
		&g.IntegerActive, &g.FP64Active, &g.FP32Active, &g.FP16Active} {
		within(s, "gpm", m, 0, most)
		if v, ok := m.Get(); ok && v > 1 {
			*m = gpu.Some(gpu.Ratio(1))
		}
	}
	for _, m := range []*gpu.Opt[float64]{&g.PCIeTransmit, &g.PCIeReceive} {
		within(s, "gpm", m, 0, counters.PCIe.MaxRate)
	}
	*o = gpu.Some(g)
}

// Medium filters a medium reading.
func (s *Filter) Medium(m *gpu.Medium) {
	s.plainMedium(m)
	s.memory("memory", &m.Memory)
	if b, ok := m.BAR1.Get(); ok && b.Used > b.Total {
		m.BAR1 = gpu.None[gpu.BAR1]()
		s.Reject("bar1_memory")
	}
	if len(m.Fans) > 0 {
		m.Fans = slices.Clone(m.Fans)
		for i := range m.Fans {
			within(s, "fan_speed", &m.Fans[i], 0, maxFan)
		}
	}
	if list, ok := m.Processes.Get(); ok {
		memory, known := m.Memory.Get()
		rejected := func(p gpu.Process) bool {
			used, reported := p.Memory.Get()
			return p.PID <= 0 || reported && known && used > memory.Total
		}
		if slices.ContainsFunc(list, rejected) {
			kept := make([]gpu.Process, 0, len(list))
			for _, p := range list {
				if rejected(p) {
					s.Reject("process_memory")
					p.Memory = gpu.None[gpu.Bytes]()
				}
				if p.PID > 0 {
					kept = append(kept, p)
				}
			}
			m.Processes = gpu.Some(kept)
		}
	}
	if len(m.Instances) > 0 {
		m.Instances = slices.Clone(m.Instances)
		for i := range m.Instances {
			s.memory("mig_memory", &m.Instances[i].Memory)
		}
	}
}

func (s *Filter) memory(reading string, o *gpu.Opt[gpu.Memory]) {
	m, ok := o.Get()
	if !ok {
		return
	}
	reserved := m.Reserved.Or(0)
	if m.Total == 0 || m.Used > m.Total || m.Free > m.Total || reserved > m.Total {
		*o = gpu.None[gpu.Memory]()
		s.Reject(reading)
	}
}

// Slow filters a slow reading.
func (s *Filter) Slow(l *gpu.Slow) {
	// A maximum of one lane of the first generation is what a GPU without PCIe (GB10) reports in place of "not
	// supported". It is not counted.
	if l.PCIe.MaxGeneration.Or(0) == 1 && l.PCIe.MaxWidth.Or(0) == 1 {
		l.PCIe = gpu.PCIeLink{}
	}
	s.plainSlow(l)
	hot := func(t gpu.TemperatureThreshold) bool { return !(t.Value >= minCelsius && t.Value <= maxCelsius) }
	l.TemperatureLimits = plausible(s, "temperature_limit", l.TemperatureLimits, hot)
	if len(l.Instances) > 0 {
		l.Instances = slices.Clone(l.Instances)
		for i := range l.Instances {
			within(s, "mig_share", &l.Instances[i].Share, 0, 1)
		}
	}
}
