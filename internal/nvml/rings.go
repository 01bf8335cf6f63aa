package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/direct"
)

// readBusyRing reads the ring of the GPU's utilization. One that has just started is read in full once more when a deep one has
// filled: then, whatever its size, it is full.
func readBusyRing(c *GPU, to *gpu.Fast) nvml.Return {
	due := !c.ringFillsAt.IsZero() && !c.now().Before(c.ringFillsAt)
	if due && !c.ringFull {
		c.busy = 0
	}
	ret := readRing(c, nvml.GPU_UTILIZATION_SAMPLES, &c.busy, &to.Busy)
	n := len(to.Busy.Or(nil))
	if to.RingFull = !c.ringFull && (n >= fullRing || due && n > 0); to.RingFull {
		c.ringFull = true
	} else if n > 0 && c.ringFillsAt.IsZero() {
		c.ringFillsAt = c.now().Add(ringFills)
	}
	return ret
}

// readRing reads the samples that are newer than the last read. Entries without a time are dropped: go-nvml does not
// trim its buffer. A ring with nothing new is present and empty.
func readRing(c *GPU, kind nvml.SamplingType, seen *cursor, to *gpu.Opt[gpu.Ring]) nvml.Return {
	of, samples, ret := get2(c, callSamples, func() (nvml.ValueType, []nvml.Sample, nvml.Return) {
		if of, n, ret, ok := direct.Samples(c.handle(), kind, uint64(*seen), c.ringBuffer); ok &&
			ret != nvml.ERROR_INSUFFICIENT_SIZE {
			return of, c.ringBuffer[:n], ret
		}
		of, samples, ret := c.handle().GetSamples(kind, uint64(*seen))
		c.ringBuffer = samples
		return of, samples, ret
	}, int(kind), int(*seen))
	switch ret {
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA:
		*to = gpu.Some(gpu.Ring{})
		return nvml.SUCCESS
	case nvml.SUCCESS:
	default:
		return ret
	}
	ring := make(gpu.Ring, 0, len(samples))
	for _, s := range samples {
		v, ok := value{kind: of, raw: s.SampleValue}.number()
		if !ok || s.TimeStamp == 0 {
			continue
		}
		ring = append(ring, gpu.Sample{Time: int64(s.TimeStamp), Value: v})
		seen.pass(s.TimeStamp, v)
	}
	*to = gpu.Some(ring)
	return ret
}

const (
	// fullRing is from how many samples on a ring is full at once, and ringFills how long a deep one takes to fill.
	fullRing  = 60
	ringFills = 20 * time.Second
)

// processLead is how far a process sample may be ahead of the GPU's newest one, in microseconds: they have one clock.
const processLead = 10e6

// processBuffer is how many processes a buffer has room for at first, and more than there were when it was too short;
// maxProcesses is the most.
const (
	processBuffer = 128
	maxProcesses  = 1 << 16
)

// growLimit is how often a list that grows between its sizing and its reading is read again.
const growLimit = 3

// readProcessSamples reads utilization by process since the last read. Without a last time the driver averages its
// whole buffer, with processes that ended long ago: of the first read only the time is used, and the reading is absent.
// An empty buffer is a valid value also the first time.
func readProcessSamples(c *GPU, to *gpu.Fast) nvml.Return {
	for range growLimit {
		samples, grew, ret := processUtilization(c)
		switch {
		case grew, ret == nvml.ERROR_INSUFFICIENT_SIZE && len(samples) > 0:
			continue
		case ret == nvml.ERROR_NOT_FOUND, ret == nvml.ERROR_NO_DATA, ret == nvml.ERROR_INSUFFICIENT_SIZE:
			// No process was active. go-nvml returns the size query's code where the size is 0.
			samples = nil
		case ret != nvml.SUCCESS:
			return ret
		}
		seeding := !c.procsSeen && len(samples) > 0
		c.procsSeen = true
		list := make([]gpu.ProcessSample, 0, len(samples))
		for _, s := range samples {
			if c.busy != 0 && cursor(s.TimeStamp) > c.busy+processLead {
				continue // garbage: it would hide all later samples (Syllo/nvtop#110)
			}
			c.procs.pass(s.TimeStamp, float64(s.SmUtil))
			list = append(list, gpu.ProcessSample{PID: int(s.Pid), Time: int64(s.TimeStamp),
				SM: float64(s.SmUtil), Memory: float64(s.MemUtil), Encoder: float64(s.EncUtil),
				Decoder: float64(s.DecUtil)})
		}
		if !seeding {
			to.Processes = gpu.Some(list)
		}
		return nvml.SUCCESS
	}
	c.count(callProcessUtilization, codeName(nvml.ERROR_INSUFFICIENT_SIZE))
	return nvml.ERROR_NO_DATA
}

// processUtilization makes the call; grew reports that the list is longer than the buffer, which is larger the next time.
// For a device that is not go-nvml's own, go-nvml trims its buffer to the length that the driver reports, and panics where
// the list grew between its two calls.
func processUtilization(c *GPU) (samples []nvml.ProcessUtilizationSample, grew bool, ret nvml.Return) {
	samples, ret = get(c, callProcessUtilization, func() (list []nvml.ProcessUtilizationSample, r nvml.Return) {
		if c.processBuffer == nil {
			c.processBuffer = make([]nvml.ProcessUtilizationSample, processBuffer)
		}
		if n, ret, ok := direct.ProcessUtilization(c.handle(), uint64(c.procs), c.processBuffer); ok {
			if grew = ret == nvml.ERROR_INSUFFICIENT_SIZE && n > len(c.processBuffer); grew {
				c.processBuffer = make([]nvml.ProcessUtilizationSample, min(n+processBuffer, maxProcesses))
			}
			if ret != nvml.SUCCESS {
				return nil, ret
			}
			return c.processBuffer[:min(n, len(c.processBuffer))], ret
		}
		defer func() {
			if recover() != nil {
				list, grew, r = nil, true, nvml.ERROR_INSUFFICIENT_SIZE
			}
		}()
		return c.handle().GetProcessUtilization(uint64(c.procs))
	}, int(c.procs))
	return samples, grew, ret
}
