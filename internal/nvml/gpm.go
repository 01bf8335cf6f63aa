package nvml

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/direct"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/gpm"
)

// keep drops the instances that are not in a layout; their samples are reused.
func (g *gpmState) keep(layout []gpu.Instance) {
	for _, pair := range g.devices {
		pair.Reset()
	}
	for uuid, pair := range g.instances {
		if slices.ContainsFunc(layout, func(in gpu.Instance) bool { return in.UUID == uuid }) {
			// A layout that looks the same may be new: the samples are no pair.
			pair.Reset()
			continue
		}
		g.release(pair)
		delete(g.instances, uuid)
	}
}

// keepDevices drops the MIG devices that no longer exist.
func (g *gpmState) keepDevices(layout []gpu.Instance, handles map[int]nvml.Device) {
	for handle, pair := range g.devices {
		if !slices.ContainsFunc(layout, func(in gpu.Instance) bool {
			return slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return handles[ci.Index] == handle })
		}) {
			g.release(pair)
			delete(g.devices, handle)
		}
	}
}

// release makes the samples of a pair available to others.
func (g *gpmState) release(pair *gpm.Pair) {
	for _, s := range pair.Samples {
		if s != nil {
			g.spare = append(g.spare, s)
		}
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
	before := c.gpm.dev.Taken
	ret := c.profile(&c.gpm.dev, subject{gi: wholeGPU}, &to.GPM)
	// The PCIe counters were read just before. Those of a poll without a new sample would cover another period.
	if c.gpm.dev.Taken.Equal(before) && !before.IsZero() {
		to.PCIeTransmit, to.PCIeReceive = c.gpm.pcie[0], c.gpm.pcie[1]
	}
	c.gpm.pcie = [2]gpu.Opt[gpu.Bytes]{to.PCIeTransmit, to.PCIeReceive}
	return ret
}

// pairOf returns the pair of a subject, a new one for one that has none.
func pairOf[K comparable](pairs *map[K]*gpm.Pair, of K) *gpm.Pair {
	if (*pairs)[of] == nil {
		put(pairs, of, &gpm.Pair{})
	}
	return (*pairs)[of]
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
		fast := gpu.InstanceFast{UUID: in.UUID}
		ret := c.profile(pairOf(&c.gpm.instances, in.UUID), subject{gi: in.GI}, &fast.GPM)
		if whole(ret) != nil {
			return ret
		}
		c.suspect(in.GI, ret)
		if result != nvml.SUCCESS {
			result = ret
		}
		to.Instances = append(to.Instances, fast)
	}
	return result
}

// readDeviceGPM profiles each MIG device of the GPU instances that have several. One that fails alone is left out: what
// is known of it is in the sample of its GPU instance.
func readDeviceGPM(c *GPU, to *gpu.Fast) nvml.Return {
	result := nothingToRead
	for _, in := range c.mig.instances {
		if len(in.Compute) < 2 {
			continue
		}
		if ret := c.gpm.support(c); ret != nvml.SUCCESS {
			return ret
		}
		for _, ci := range in.Compute {
			handle, ok := c.mig.handles[ci.Index]
			if !ok {
				continue
			}
			fast := gpu.ComputeFast{UUID: ci.UUID}
			ret := c.profile(pairOf(&c.gpm.devices, handle), subject{gi: in.GI, ci: ci.CI, device: handle, index: ci.Index}, &fast.GPM)
			if whole(ret) != nil {
				return ret
			}
			if result != nvml.SUCCESS {
				result = ret
			}
			if ret != nvml.SUCCESS {
				continue
			}
			at := slices.IndexFunc(to.Instances, func(o gpu.InstanceFast) bool { return o.UUID == in.UUID })
			if at < 0 {
				at, to.Instances = len(to.Instances), append(to.Instances, gpu.InstanceFast{UUID: in.UUID})
			}
			to.Instances[at].Compute = append(to.Instances[at].Compute, fast)
		}
	}
	return result
}

// profile takes a sample of a subject and reads the metrics since the previous one. Of two samples too close together
// the second is skipped.
func (c *GPU) profile(p *gpm.Pair, of subject, to *gpu.Opt[gpu.GPM]) nvml.Return {
	if p.Early(c.now()) {
		return nvml.SUCCESS
	}
	for i := range p.Samples {
		if p.Samples[i] != nil {
			continue
		}
		s, ret := c.allocateSample()
		if ret != nvml.SUCCESS {
			return ret
		}
		p.Samples[i] = s
	}
	if ret := c.sample(p.Next(), of); ret != nvml.SUCCESS {
		// The instance may have been recreated under the same name.
		p.Reset()
		return ret
	}
	longest := 3 * c.interval()
	if of.gi == wholeGPU && !c.mig.on { // an instance may have been recreated in a longer pause
		longest = gpm.Longest
	}
	window, ok := p.Add(c.now(), longest)
	if !ok {
		return nvml.SUCCESS
	}
	return c.metrics(p, of, window, to)
}

// wholeGPU stands in place of the ID of a GPU instance.
const wholeGPU = -1

// subject is what is profiled: the GPU, a GPU instance, or a MIG device, that is a compute instance.
type subject struct {
	gi        int         // wholeGPU: the GPU
	device    nvml.Device // the MIG device; nil: the GPU instance
	ci, index int         // of the MIG device
}

// args are the arguments of the query for metrics, for the journal.
func (s subject) args() []int {
	if s.device != nil {
		return []int{s.gi, s.ci}
	}
	return []int{s.gi}
}

// sample fills a sample.
func (c *GPU) sample(s nvml.GpmSample, of subject) nvml.Return {
	switch {
	case of.device != nil:
		return call(c, callGpmSampleGet, func() nvml.Return { return s.Get(of.device) }, of.index)
	case of.gi == wholeGPU:
		return call(c, callGpmSampleGet, func() nvml.Return { return s.Get(c.handle()) })
	}
	return call(c, callGpmMigSampleGet, func() nvml.Return { return s.MigGet(c.handle(), of.gi) }, of.gi)
}

// metrics reads the metrics between the two samples of a pair.
func (c *GPU) metrics(p *gpm.Pair, of subject, window time.Duration, to *gpu.Opt[gpu.GPM]) nvml.Return {
	if c.gpm.buffer == nil {
		c.gpm.buffer = &direct.GPMRequest{}
	}
	r := &c.gpm.request
	// Over a longer period the rates are not precise enough to resolve the overflows of the PCIe counters.
	if !r.Fill(p, of.gi == wholeGPU && window <= 3*c.interval()) {
		return nvml.ERROR_NOT_SUPPORTED
	}
	ret := c.do(request{id: callGpmMetricsGet, args: of.args(), value: &r.Metrics,
		run: func() nvml.Return {
			older, newest := p.Both()
			ret, ok := c.gpm.buffer.Read(older, newest, r.Metrics)
			if !ok {
				m := nvml.GpmMetricsGetType{NumMetrics: uint32(len(r.Metrics)), Sample1: older, Sample2: newest}
				copy(m.Metrics[:], r.Metrics)
				ret = c.driver().GpmMetricsGet(&m)
				copy(r.Metrics, m.Metrics[:])
			}
			return ret
		}})
	if ret == nvml.ERROR_INVALID_ARGUMENT && of.gi == wholeGPU && p.DropSums() {
		return nvml.SUCCESS // a driver that refuses the whole for an ID that is newer than it; the next poll has none
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	if g := r.Read(p, window, func(code nvml.Return) bool {
		if notOffered(code) || code == nvml.ERROR_INVALID_ARGUMENT {
			return true
		}
		if !silent(code) {
			c.count(callGpmMetricsGet, codeName(code))
		}
		return false
	}); g.Present() {
		*to = g
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
