package nvml

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// gpmShortest is the shortest time between two profiling samples that NVML's documentation allows.
const gpmShortest = 100 * time.Millisecond

// gpmMetrics are the metrics that are read.
var gpmMetrics = []struct {
	id nvml.GpmMetricId
	at func(*gpu.GPM) *gpu.Opt[gpu.Ratio]
	// rate is in place of at for what is measured in MiB/s, of the GPU alone.
	rate func(*gpu.GPM) *gpu.Opt[float64]
}{
	{id: nvml.GPM_METRIC_GRAPHICS_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.GraphicsActive }},
	{id: nvml.GPM_METRIC_SM_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.SMActive }},
	{id: nvml.GPM_METRIC_SM_OCCUPANCY, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.SMOccupancy }},
	{id: nvml.GPM_METRIC_INTEGER_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.IntegerActive }},
	{id: nvml.GPM_METRIC_ANY_TENSOR_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.TensorActive }},
	{id: nvml.GPM_METRIC_DRAM_BW_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.DRAMActive }},
	{id: nvml.GPM_METRIC_FP64_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP64Active }},
	{id: nvml.GPM_METRIC_FP32_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP32Active }},
	{id: nvml.GPM_METRIC_FP16_UTIL, at: func(g *gpu.GPM) *gpu.Opt[gpu.Ratio] { return &g.FP16Active }},
	{id: nvml.GPM_METRIC_PCIE_TX_PER_SEC, rate: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeTransmit }},
	{id: nvml.GPM_METRIC_PCIE_RX_PER_SEC, rate: func(g *gpu.GPM) *gpu.Opt[float64] { return &g.PCIeReceive }},
}

// keep drops the instances that are not in a layout; their samples are reused.
func (g *gpmState) keep(layout []migInstance) {
	for uuid, pair := range g.instances {
		if slices.ContainsFunc(layout, func(in migInstance) bool { return in.UUID == uuid }) {
			// A layout that looks the same may be new: the samples are no pair.
			pair.taken = time.Time{}
			continue
		}
		for _, s := range pair.samples {
			if s != nil {
				g.spare = append(g.spare, s)
			}
		}
		delete(g.instances, uuid)
	}
}

// support reads once whether the GPU can be profiled.
func (g *gpmState) support(c *GPU) nvml.Return {
	if !g.supported.Present() {
		s, ret := get(c, callGpmQueryDeviceSupport, c.handle().GpmQueryDeviceSupport)
		if ret != nvml.SUCCESS {
			return ret
		}
		g.supported = gpu.Some(s.IsSupportedDevice != 0)
	}
	if !g.supported.Or(false) {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.SUCCESS
}

// readGPM profiles the GPU as a whole.
func readGPM(c *GPU, to *gpu.Fast) nvml.Return {
	if ret := c.gpm.support(c); ret != nvml.SUCCESS {
		return ret
	}
	before := c.gpm.dev.taken
	ret := c.profile(&c.gpm.dev, wholeGPU, &to.GPM)
	// The PCIe counters were read just before. Those of a poll without a new sample would cover another period.
	if c.gpm.dev.taken.Equal(before) && !before.IsZero() {
		to.PCIeTransmit, to.PCIeReceive = c.gpm.pcie[0], c.gpm.pcie[1]
	}
	c.gpm.pcie = [2]gpu.Opt[gpu.Bytes]{to.PCIeTransmit, to.PCIeReceive}
	return ret
}

// readInstanceGPM profiles each MIG GPU instance. One that fails alone costs the others nothing.
func readInstanceGPM(c *GPU, to *gpu.Fast) nvml.Return {
	if len(c.mig.instances) == 0 {
		return nothingToRead
	}
	if ret := c.gpm.support(c); ret != nvml.SUCCESS {
		return ret
	}
	result := nothingToRead
	for _, in := range c.mig.instances {
		pair := c.gpm.instances[in.UUID]
		if pair == nil {
			if c.gpm.instances == nil {
				c.gpm.instances = map[gpu.UUID]*gpmPair{}
			}
			pair = &gpmPair{}
			c.gpm.instances[in.UUID] = pair
		}
		fast := gpu.InstanceFast{UUID: in.UUID}
		ret := c.profile(pair, in.GI, &fast.GPM)
		if whole(ret) != nil {
			return ret
		}
		if result != nvml.SUCCESS {
			result = ret
		}
		to.Instances = append(to.Instances, fast)
	}
	return result
}

// profile takes a sample of a subject and reads the metrics since the previous one. Of two samples too close together
// the second is skipped; two too far apart, after a pause, are no pair.
func (c *GPU) profile(p *gpmPair, gi int, to *gpu.Opt[gpu.GPM]) nvml.Return {
	now := c.now()
	if !p.taken.IsZero() && now.Sub(p.taken) >= 0 && now.Sub(p.taken) < gpmShortest {
		return nvml.SUCCESS
	}
	for i := range p.samples {
		if p.samples[i] != nil {
			continue
		}
		s, ret := c.allocateSample()
		if ret != nvml.SUCCESS {
			return ret
		}
		p.samples[i] = s
	}
	if ret := c.sample(p.samples[1-p.newest], gi); ret != nvml.SUCCESS {
		// The instance may have been recreated under the same name.
		p.taken = time.Time{}
		return ret
	}
	now = c.now()
	window, seeded := now.Sub(p.taken), !p.taken.IsZero()
	p.newest, p.taken = 1-p.newest, now
	if !seeded || window < gpmShortest || window > 3*c.interval() {
		return nvml.SUCCESS
	}
	return c.metrics(p, gi, window, to)
}

// wholeGPU stands in place of the ID of a GPU instance.
const wholeGPU = -1

// sample fills a sample of the GPU, or of one of its GPU instances.
func (c *GPU) sample(s nvml.GpmSample, gi int) nvml.Return {
	if gi == wholeGPU {
		return call(c, callGpmSampleGet, func() nvml.Return { return s.Get(c.handle()) })
	}
	return call(c, callGpmMigSampleGet, func() nvml.Return { return s.MigGet(c.handle(), gi) }, gi)
}

// metrics reads the metrics between the two samples of a pair.
func (c *GPU) metrics(p *gpmPair, gi int, window time.Duration, to *gpu.Opt[gpu.GPM]) nvml.Return {
	if c.gpm.request == nil {
		c.gpm.request = &nvml.GpmMetricsGetType{}
	}
	metrics := c.gpm.request
	metrics.Sample1, metrics.Sample2 = p.samples[1-p.newest], p.samples[p.newest]
	metrics.NumMetrics = 0
	var place [16]int
	for i, m := range gpmMetrics {
		if p.dropped[i] || m.rate != nil && gi != wholeGPU {
			continue
		}
		metrics.Metrics[metrics.NumMetrics] = nvml.GpmMetric{MetricId: uint32(m.id)}
		place[metrics.NumMetrics] = i
		metrics.NumMetrics++
	}
	if metrics.NumMetrics == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	wanted := metrics.NumMetrics // the driver may overwrite it
	ret := c.do(request{id: callGpmMetricsGet, args: []int{gi}, value: metrics,
		run: func() nvml.Return { return c.driver().GpmMetricsGet(metrics) }})
	if ret != nvml.SUCCESS {
		return ret
	}
	g := gpu.GPM{Window: window}
	known := false
	for n := range wanted {
		m, i := metrics.Metrics[n], place[n]
		switch code := nvml.Return(m.NvmlReturn); {
		case code == nvml.SUCCESS:
			if !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) {
				if gpmMetrics[i].rate != nil {
					*gpmMetrics[i].rate(&g) = gpu.Some(m.Value * (1 << 20))
				} else {
					*gpmMetrics[i].at(&g) = gpu.Some(gpu.Ratio(m.Value / 100))
				}
				known = true
			}
		case notOffered(code), code == nvml.ERROR_INVALID_ARGUMENT:
			p.dropped[i] = true
		case !silent(code):
			c.count(callGpmMetricsGet, codeName(code))
		}
	}
	if known {
		*to = gpu.Some(g)
	}
	return ret
}

// allocateSample allocates a sample; the session frees it at its end.
func (c *GPU) allocateSample() (nvml.GpmSample, nvml.Return) {
	if n := len(c.gpm.spare); n > 0 {
		sample := c.gpm.spare[n-1]
		c.gpm.spare = c.gpm.spare[:n-1]
		return sample, nvml.SUCCESS
	}
	s := c.dev.session
	sample, ret := get(c, callGpmSampleAlloc, s.nvml.GpmSampleAlloc)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample)
	return sample, ret
}
