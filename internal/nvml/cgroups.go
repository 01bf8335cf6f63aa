package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// maxCgroups is the maximum number of cgroups for which the driver is queried in a poll, for each GPU.
	maxCgroups = 512
	// A cgroup without an account is queried again after minCgroupRetry, then after twice as long, up to maxCgroupRetry.
	minCgroupRetry, maxCgroupRetry = 10 * time.Second, time.Minute
)

// cgroupRetry is when a cgroup without an account is queried again.
type cgroupRetry struct {
	at    time.Time
	after time.Duration
}

func memoryLimits(c *GPU, cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
	return get(c, callMemoryLimitsV1, func() (nvml.MemoryLimits_v1, nvml.Return) { return c.handle().GetMemoryLimits_v1(cgroup) })
}

// readCgroups reads the memory that the driver charges to each cgroup, and its limits, with one call for each. Whether the
// driver has an account of a cgroup without a limit, or reports NOT_FOUND, is not documented: one without an account is
// left out. MIG handles are not supported (nvml.h).
func readCgroups(c *GPU, to *gpu.Medium) nvml.Return {
	list := c.dev.session.library.options.Cgroups
	switch {
	case list == nil || c.mig.on:
		return nothingToRead
	case !c.dev.session.offers.have[callMemoryLimitsV1]:
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	now, before := c.now(), c.cgroups
	c.cgroups = map[string]cgroupRetry{}
	paths := list()
	for _, path := range paths[:min(len(paths), maxCgroups)] {
		retry := before[path]
		if now.Before(retry.at) {
			c.cgroups[path] = retry
			continue
		}
		limits, ret := memoryLimits(c, path)
		switch ret {
		case nvml.SUCCESS:
			m := gpu.CgroupMemory{Path: path, Used: gpu.Bytes(limits.CurrentUsed)}
			if limits.HardLimit != nvml.DEVICE_MEMORY_LIMIT_MAX {
				m.Limit = gpu.Some(gpu.Bytes(limits.HardLimit))
			}
			if limits.SoftLimit > 0 {
				m.Guaranteed = gpu.Some(gpu.Bytes(limits.SoftLimit))
			}
			to.Cgroups = append(to.Cgroups, m)
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_OPERATING_SYSTEM: // no account, or the cgroup was removed
			after := min(max(2*retry.after, minCgroupRetry), maxCgroupRetry)
			c.cgroups[path] = cgroupRetry{now.Add(after), after}
		default:
			to.Cgroups = nil
			return ret
		}
	}
	if len(to.Cgroups) == 0 {
		return nothingToRead
	}
	return nvml.SUCCESS
}
