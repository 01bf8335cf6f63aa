package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// mediumRows is the medium poll group. Memory and processes are read back to back, so that their sums fit.
var mediumRows = slices.Concat(
	[]row[gpu.Medium]{
		{reading: "memory", read: func(c *GPU, to *gpu.Medium) nvml.Return { return readMemoryV2(c, c.handle(), &to.Memory) }},
		// Here used contains what the driver reserves.
		{reading: "memory", rank: 1, read: func(c *GPU, to *gpu.Medium) nvml.Return { return readMemoryV1(c, c.handle(), &to.Memory) }},
		{reading: "own_memory_limit", read: readOwnLimit},
		{reading: "cgroup_memory", read: readCgroups},
		{reading: "mig_memory",
			read: func(c *GPU, to *gpu.Medium) nvml.Return { return readInstanceMemory(c, to, readMemoryV2) }},
		{reading: "mig_memory", rank: 1,
			read: func(c *GPU, to *gpu.Medium) nvml.Return { return readInstanceMemory(c, to, readMemoryV1) }},
		{reading: "processes", read: readProcesses},
		{reading: "bar1", read: plain(callBAR1MemoryInfo, nvml.Device.GetBAR1MemoryInfo, func(to *gpu.Medium, m nvml.BAR1Memory) {
			to.BAR1 = gpu.Some(gpu.BAR1{Total: gpu.Bytes(m.Bar1Total), Used: gpu.Bytes(m.Bar1Used)})
		})},
		{reading: "temperature", read: readTemperatureV},
		{reading: "temperature", rank: 1, read: readTemperature},
		// In percent of the highest speed; may exceed 100.
		{reading: "fan_speed", read: readFans},
		// The first fan, where the driver does not report how many there are.
		{reading: "fan_speed", rank: 1, read: func(c *GPU, to *gpu.Medium) nvml.Return { return readFanSpeeds(c, 1, to) }},
	},
	mediumValues, mediumDetails,
	eccRows(),
	[]row[gpu.Medium]{
		{reading: "link_details", read: readLinks},
		{reading: "remapped_rows", rank: 1, read: readRemappedRows},
	},
)

func readMemoryV2(c *GPU, of nvml.Device, to *gpu.Opt[gpu.Memory], mig ...int) nvml.Return {
	m, ret := get(c, callMemoryInfoV2, of.GetMemoryInfo_v2, mig...)
	if ret == nvml.SUCCESS {
		*to = gpu.Some(gpu.Memory{Total: gpu.Bytes(m.Total), Used: gpu.Bytes(m.Used), Free: gpu.Bytes(m.Free),
			Reserved: gpu.Some(gpu.Bytes(m.Reserved))})
	}
	return ret
}

func readMemoryV1(c *GPU, of nvml.Device, to *gpu.Opt[gpu.Memory], mig ...int) nvml.Return {
	m, ret := get(c, callMemoryInfo, of.GetMemoryInfo, mig...)
	if ret == nvml.SUCCESS {
		*to = gpu.Some(gpu.Memory{Total: gpu.Bytes(m.Total), Used: gpu.Bytes(m.Used), Free: gpu.Bytes(m.Free)})
	}
	return ret
}

// readOwnLimit reads the limit that MemoryInfo_v2 applies to what it reports to this process. MIG handles are not
// supported (nvml.h).
func readOwnLimit(c *GPU, to *gpu.Medium) nvml.Return {
	if c.mig.on {
		return nothingToRead
	}
	limits, ret := memoryLimits(c, c.dev.session.cgroup)
	if ret == nvml.SUCCESS && limits.HardLimit != nvml.DEVICE_MEMORY_LIMIT_MAX {
		to.OwnLimit = gpu.Some(gpu.Bytes(limits.HardLimit))
	}
	if ret == nvml.ERROR_NOT_FOUND {
		return nvml.SUCCESS // no limit was ever set for the cgroup
	}
	return ret
}

// readInstanceMemory reads the memory of each MIG GPU instance, through its first MIG device: all devices
// of an instance share its memory.
func readInstanceMemory(c *GPU, to *gpu.Medium, read func(*GPU, nvml.Device, *gpu.Opt[gpu.Memory], ...int) nvml.Return) nvml.Return {
	result := nothingToRead
	for _, in := range c.mig.instances {
		medium := gpu.InstanceMedium{UUID: in.UUID}
		ret := read(c, c.mig.handles[in.Compute[0].Index], &medium.Memory, in.Compute[0].Index)
		if whole(ret) != nil {
			return ret
		}
		c.suspect(in.GI, ret)
		if result != nvml.SUCCESS {
			result = ret
		}
		if medium.Memory.Present() {
			to.Instances = append(to.Instances, medium)
		}
	}
	return result
}

// readFans reads every fan. One that fails is absent in its place.
func readFans(c *GPU, to *gpu.Medium) nvml.Return {
	n, ret := get(c, callNumFans, c.handle().GetNumFans)
	if ret != nvml.SUCCESS {
		return ret
	}
	if n <= 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return readFanSpeeds(c, n, to)
}

func readFanSpeeds(c *GPU, n int, to *gpu.Medium) nvml.Return {
	result := nvml.ERROR_NO_DATA
	fans := make([]gpu.Opt[gpu.Ratio], min(n, maxFans))
	for i := range fans {
		percent, ret := get(c, callFanSpeedV2, func() (uint32, nvml.Return) { return c.handle().GetFanSpeed_v2(i) }, i)
		if whole(ret) != nil {
			return ret
		}
		if ret == nvml.SUCCESS {
			fans[i] = gpu.Some(gpu.Ratio(percent) / 100)
		}
		if result != nvml.SUCCESS {
			result = ret
		}
	}
	if result == nvml.SUCCESS {
		to.Fans = fans
	}
	return result
}

// eccSeverities and eccCounters are the two by two kinds of ECC counter.
var (
	eccSeverities = []struct {
		severity gpu.ECCSeverity
		kind     nvml.MemoryErrorType
	}{
		{gpu.ECCCorrected, nvml.MEMORY_ERROR_TYPE_CORRECTED},
		{gpu.ECCUncorrected, nvml.MEMORY_ERROR_TYPE_UNCORRECTED},
	}
	eccCounters = []struct {
		name string
		kind nvml.EccCounterType
		at   func(*gpu.ECCCount) *gpu.Opt[uint64]
	}{
		{"volatile", nvml.VOLATILE_ECC, func(e *gpu.ECCCount) *gpu.Opt[uint64] { return &e.Volatile }},
		{"lifetime", nvml.AGGREGATE_ECC, func(e *gpu.ECCCount) *gpu.Opt[uint64] { return &e.Lifetime }},
	}
	// eccLocations: Ampere and newer count all static memory as one, older GPUs by part. The parts are read only where
	// the whole is not offered, so that no error is counted twice.
	eccLocations = []struct {
		group    string
		rank     int
		memory   gpu.ECCMemory
		location nvml.MemoryLocation
	}{
		{"dram", 0, gpu.ECCDRAM, nvml.MEMORY_LOCATION_DRAM},
		{"sram", 0, gpu.ECCSRAM, nvml.MEMORY_LOCATION_SRAM},
		{"sram", 1, gpu.ECCL1, nvml.MEMORY_LOCATION_L1_CACHE},
		{"sram", 1, gpu.ECCL2, nvml.MEMORY_LOCATION_L2_CACHE},
		{"sram", 1, gpu.ECCRegisterFile, nvml.MEMORY_LOCATION_REGISTER_FILE},
		{"sram", 1, gpu.ECCTextureMemory, nvml.MEMORY_LOCATION_TEXTURE_MEMORY},
		{"sram", 1, gpu.ECCTextureShared, nvml.MEMORY_LOCATION_TEXTURE_SHM},
		{"sram", 1, gpu.ECCCBU, nvml.MEMORY_LOCATION_CBU},
	}
)

// eccRows are the counters by severity, lifetime and location; the total only where no location is offered.
func eccRows() []row[gpu.Medium] {
	var rows []row[gpu.Medium]
	for _, s := range eccSeverities {
		for _, n := range eccCounters {
			suffix := "_" + string(s.severity) + "_" + n.name
			for _, l := range eccLocations {
				rows = append(rows, row[gpu.Medium]{reading: "ecc_" + l.group + suffix, rank: l.rank,
					read: func(c *GPU, to *gpu.Medium) nvml.Return {
						v, ret := get(c, callMemoryErrorCounter, func() (uint64, nvml.Return) {
							return c.handle().GetMemoryErrorCounter(s.kind, n.kind, l.location)
						}, int(s.kind), int(n.kind), int(l.location))
						if ret == nvml.SUCCESS {
							*n.at(eccCount(to, s.severity, l.memory)) = gpu.Some(v)
						}
						return ret
					}})
			}
			rows = append(rows, row[gpu.Medium]{reading: "ecc_total" + suffix,
				instead: []string{"ecc_dram" + suffix, "ecc_sram" + suffix},
				read: func(c *GPU, to *gpu.Medium) nvml.Return {
					v, ret := get(c, callTotalEccErrors,
						func() (uint64, nvml.Return) { return c.handle().GetTotalEccErrors(s.kind, n.kind) },
						int(s.kind), int(n.kind))
					if ret == nvml.SUCCESS {
						*n.at(eccCount(to, s.severity, gpu.ECCAll)) = gpu.Some(v)
					}
					return ret
				}})
		}
	}
	return rows
}

// eccCount returns the counter of a kind and place, adding it where it is new.
func eccCount(to *gpu.Medium, severity gpu.ECCSeverity, memory gpu.ECCMemory) *gpu.ECCCount {
	at := slices.IndexFunc(to.ECC, func(e gpu.ECCCount) bool { return e.Severity == severity && e.Memory == memory })
	if at < 0 {
		to.ECC = append(to.ECC, gpu.ECCCount{Severity: severity, Memory: memory})
		at = len(to.ECC) - 1
	}
	return &to.ECC[at]
}

func readRemappedRows(c *GPU, to *gpu.Medium) nvml.Return {
	var v struct {
		Corrected, Uncorrected int
		Pending, Failure       bool
	}
	ret := c.do(request{id: callRemappedRows, value: &v, run: func() (r nvml.Return) {
		v.Corrected, v.Uncorrected, v.Pending, v.Failure, r = c.handle().GetRemappedRows()
		return r
	}})
	if ret == nvml.SUCCESS {
		to.RemappedRows = map[gpu.RemapCause]uint64{gpu.CauseCorrected: uint64(v.Corrected), gpu.CauseUncorrected: uint64(v.Uncorrected)}
		to.RemapPending, to.RemapFailed = gpu.Some(v.Pending), gpu.Some(v.Failure)
	}
	return ret
}
