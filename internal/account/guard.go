package account

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// MemoryGuard recognizes memory readings of one GPU that describe something smaller than the GPU. From R615 on
// nvmlDeviceGetMemoryInfo_v2 reports the limit of the caller's cgroup, or of one above it, as the total; libraries that
// share GPUs between containers replace NVML and report the container's part. Not safe for concurrent use.
// Proofs are the driver's limit of this process, a library in front of NVML, and a total below one that NVML reported
// before. Names have other sizes too ("GH200 480GB"), and boards a BAR1 of any size: these two count only together.
type MemoryGuard struct {
	previous, confirmed gpu.Bytes // totals: of the last reading, and the largest that was read twice in a row
	reason              string
}

const (
	// minTotal and minNamed: a change of the ECC mode takes or returns 1/16 of the memory, and a name such as "80GB" is
	// rounded.
	minTotal, minNamed = 0.9, 0.75
	// minBAR1 is the size from which on BAR1, a power of two, maps all memory; on most boards half of it would not.
	minBAR1 = 1 << 30
)

var (
	// namedSize is the memory in names such as "NVIDIA H100 80GB HBM3". That of "NVIDIA GH200 480GB" is the CPU's.
	namedSize = regexp.MustCompile(`(?:^|[- ])(\d+)GB(?:$|[- ])`)
	graceName = regexp.MustCompile(`\bG[HB]\d`)
	// vGPUName is a virtual GPU of a guest, whose BAR1 is its host's choice.
	vGPUName = regexp.MustCompile(`-\d+[A-Z]$`)
)

// Check drops the memory of a reading that is not the GPU's, and adds the reason to m.Unmeasured; what contradicts it and
// does not suffice becomes m.MemoryDoubt. It reports whether the reason is new. wrapper is gpu.System.Wrapper.
func (g *MemoryGuard) Check(id *gpu.Identity, wrapper string, m *gpu.Medium) (gpu.Unmeasured, bool) {
	u := gpu.Unmeasured{Reading: "memory"}
	memory, ok := m.Memory.Get()
	if limit, limited := m.OwnLimit.Get(); limited {
		u.Reason, u.Detail = "own_limit", fmt.Sprintf("the cgroup of this process has a limit of %d MiB of it", limit>>20)
	} else if ok {
		u.Reason, u.Detail, m.MemoryDoubt = g.tooSmall(id, memory.Total, m.BAR1.Or(gpu.BAR1{}).Total)
	}
	if wrapper != "" {
		u.Reason, u.Detail = "wrapped_library", "the calls of NVML are intercepted by "+wrapper
		m.Instances, m.MemoryDoubt = nil, ""
	}
	known := u.Reason == g.reason
	g.reason = u.Reason
	if u.Reason == "" {
		if ok {
			g.confirmed = max(g.confirmed, min(g.previous, memory.Total))
			g.previous = memory.Total
		}
		return u, false
	}
	m.Memory = gpu.None[gpu.Memory]()
	m.Unmeasured = append(m.Unmeasured, u)
	return u, !known
}

// tooSmall compares a total with what else is known about the GPU's memory.
func (g *MemoryGuard) tooSmall(id *gpu.Identity, total, bar1 gpu.Bytes) (reason, detail, doubt string) {
	var found []string
	contradicts := func(of string, size gpu.Bytes) { found = append(found, fmt.Sprintf("%s %d MiB", of, size>>20)) }
	if name := namedSize.FindStringSubmatch(id.Model); name != nil && !graceName.MatchString(id.Model) {
		gigabytes, _ := strconv.ParseFloat(name[1], 64)
		if float64(total) < minNamed*gigabytes*1e9 {
			contradicts(id.Model+" has about", gpu.Bytes(gigabytes*1e9))
		}
	}
	if bar1 >= minBAR1 && total <= bar1/2 && !vGPUName.MatchString(id.Model) {
		contradicts("BAR1, which maps all memory on most boards, has", bar1)
	}
	proved := float64(total) < minTotal*float64(g.confirmed)
	if proved {
		contradicts("it was", g.confirmed)
	}
	if text := fmt.Sprintf("a total of %d MiB, but %s", total>>20, strings.Join(found, " and ")); proved || len(found) > 1 {
		reason, detail = "total_too_small", text
	} else if len(found) == 1 {
		doubt = text
	}
	return reason, detail, doubt
}
