package sampler

import (
	"fmt"
	"maps"
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
	sensors
	clocks map[gpu.Clock]gpu.Hertz
	since  time.Duration // the sampler's clock at the last change
	reads  int           // since then
	said   bool
}

// sensors are readings that change while a GPU works, and of which one at least changes while it does not.
type sensors struct {
	energy                                                 gpu.Opt[gpu.Joules]
	power, powerInstant, powerModule, powerMemory, instant gpu.Opt[gpu.Watts]
	temperature, memoryTemperature, margin                 gpu.Opt[gpu.Celsius]
	utilization                                            gpu.Opt[gpu.Utilization]
}

// fast compares a reading with the last one, and drops what is frozen of it.
func (z *frozen) fast(f *gpu.Fast, clock time.Duration) {
	now := z.sensors
	now.energy, now.memoryTemperature = f.Energy, f.MemoryTemperature
	now.power, now.powerInstant, now.powerModule, now.powerMemory, now.instant = f.Power, f.PowerInstant, f.PowerModule,
		f.PowerMemory, f.PowerModuleInstant
	if !f.Unsampled {
		now.utilization = f.Utilization
	}
	z.reads++
	z.compare(now, clock)
	if z.is(clock) {
		none := gpu.None[gpu.Watts]()
		f.Power, f.PowerInstant, f.PowerModule, f.PowerMemory, f.PowerModuleInstant = none, none, none, none, none
		f.MemoryTemperature, f.Utilization = gpu.None[gpu.Celsius](), gpu.None[gpu.Utilization]()
	}
}

// medium does the same, adds the reason to m.Unmeasured, and reports whether it is new.
func (z *frozen) medium(m *gpu.Medium, clock time.Duration) (gpu.Unmeasured, bool) {
	now := z.sensors
	now.temperature, now.margin = m.Temperature, m.Margin
	if !maps.Equal(m.Clocks, z.clocks) {
		z.clocks, z.reads, z.since = m.Clocks, 0, clock
	}
	z.compare(now, clock)
	was := z.said
	if z.said = z.is(clock); !z.said {
		return gpu.Unmeasured{}, false
	}
	u := gpu.Unmeasured{Reading: "sensors", Reason: "frozen", Detail: fmt.Sprintf("the same for %s, of energy %v J, power %v W and "+
		"temperature %v °C", (clock - z.since).Round(time.Second), z.energy, z.power, z.temperature)}
	m.Temperature, m.Margin, m.Clocks = gpu.None[gpu.Celsius](), gpu.None[gpu.Celsius](), nil
	m.Unmeasured = append(m.Unmeasured, u)
	return u, !was
}

func (z *frozen) compare(now sensors, clock time.Duration) {
	if now != z.sensors {
		z.sensors, z.reads, z.since = now, 0, clock
	}
}

func (z *frozen) is(clock time.Duration) bool {
	return clock-z.since >= frozenAfter && z.reads >= frozenReads && z.power.Or(0) > 0 &&
		(z.energy.Or(0) > 0 || z.utilization.Or(gpu.Utilization{}).GPU > 0)
}
