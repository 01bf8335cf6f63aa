package sampler

import (
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// frozenAfter and frozenReads are how long, and in how many fast poll groups, readings must be the same to be frozen.
const (
	frozenAfter = 2 * time.Minute
	frozenReads = 20
)

// frozen recognizes a driver that responds with success and with the values of before, such as one whose firmware (GSP)
// hangs. A GPU that draws power uses energy, and the power of one that is busy is not the same to the milliwatt for
// minutes: without the one or the other nothing is frozen, however constant it is.
type frozen struct {
	values       [2]string // of the fast and the medium poll group
	utilization  gpu.Opt[gpu.Utilization]
	since        time.Duration // the sampler's clock at the last change
	reads        int           // since then
	likely, said bool
}

// fast compares a reading with the last one, and drops what is frozen of it.
func (z *frozen) fast(f *gpu.Fast, clock time.Duration) {
	if !f.Unsampled {
		z.utilization = f.Utilization
	}
	z.reads++
	z.likely = f.Power.Or(0) > 0 && (f.Energy.Or(0) > 0 || z.utilization.Or(gpu.Utilization{}).GPU > 0)
	if z.compare(0, clock, f.Energy, f.Power, f.PowerInstant, f.PowerModule, f.PowerMemory, f.PowerModuleInstant,
		f.MemoryTemperature, z.utilization) {
		none := gpu.None[gpu.Watts]()
		f.Power, f.PowerInstant, f.PowerModule, f.PowerMemory, f.PowerModuleInstant = none, none, none, none, none
		f.MemoryTemperature, f.Utilization = gpu.None[gpu.Celsius](), gpu.None[gpu.Utilization]()
	}
}

// medium does the same, adds the reason to m.Unmeasured, and reports whether it is new.
func (z *frozen) medium(m *gpu.Medium, clock time.Duration) (u gpu.Unmeasured, news bool) {
	was := z.said
	if z.said = z.compare(1, clock, m.Temperature, m.Margin, m.Clocks); z.said {
		u = gpu.Unmeasured{Reading: "sensors", Reason: "frozen", Detail: "no reading has changed for " + frozenAfter.String()}
		m.Temperature, m.Margin, m.Clocks = gpu.None[gpu.Celsius](), gpu.None[gpu.Celsius](), nil
		m.Unmeasured = append(m.Unmeasured, u)
	}
	return u, z.said && !was
}

// compare reports whether readings are frozen.
func (z *frozen) compare(group int, clock time.Duration, readings ...any) bool {
	if values := fmt.Sprint(readings...); values != z.values[group] {
		z.values[group], z.reads, z.since = values, 0, clock
	}
	return z.likely && clock-z.since >= frozenAfter && z.reads >= frozenReads
}
