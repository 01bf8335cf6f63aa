package account

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestFilter(t *testing.T) {
	var s Filter
	f := gpu.Fast{
		Power: gpu.Some(gpu.Watts(600)), PowerInstant: gpu.Some(gpu.Watts(4294967)), Energy: gpu.Some(gpu.Joules(math.NaN())),
		MemoryTemperature: gpu.Some(gpu.Celsius(-300)), Utilization: gpu.Some(gpu.Utilization{GPU: 8083349.05}),
		Limited:   map[gpu.LimitReason]gpu.Seconds{gpu.LimitThermal: -1, gpu.LimitBoard: 2},
		Engines:   map[gpu.Engine]gpu.Ratio{gpu.EngineEncoder: 1.5, gpu.EngineDecoder: .5},
		Processes: gpu.Some([]gpu.ProcessSample{{PID: 7, SM: 50}, {PID: 7, SM: 4294967295}, {PID: 0, SM: 5}}),
		GPM:       gpu.Some(gpu.GPM{Window: time.Second, SMActive: gpu.Some(gpu.Ratio(1.01)), DRAMActive: gpu.Some(gpu.Ratio(7))}),
		Instances: []gpu.InstanceFast{{GPM: gpu.Some(gpu.GPM{})}},
	}
	given := f.Limited
	s.Fast(&f)
	want := gpu.Fast{
		Power: gpu.Some(gpu.Watts(600)), Limited: map[gpu.LimitReason]gpu.Seconds{gpu.LimitBoard: 2},
		Engines:   map[gpu.Engine]gpu.Ratio{gpu.EngineDecoder: .5},
		Processes: gpu.Some([]gpu.ProcessSample{{PID: 7, SM: 50}}),
		GPM:       gpu.Some(gpu.GPM{Window: time.Second, SMActive: gpu.Some(gpu.Ratio(1))}),
		Instances: []gpu.InstanceFast{{}},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("fast: %+v\nwant %+v", f, want)
	}
	if len(given) != 2 {
		t.Error("the reading's own map was changed")
	}
	m := gpu.Medium{
		Memory: gpu.Some(gpu.Memory{Total: 100, Used: 200}), BAR1: gpu.Some(gpu.BAR1{Total: 1, Used: 2}),
		Temperature: gpu.Some(gpu.Celsius(500)), Fans: []gpu.Opt[gpu.Ratio]{gpu.Some(gpu.Ratio(1.1)), gpu.Some(gpu.Ratio(90))},
		Clocks: map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 1e12}, PState: gpu.Some(32),
		Instances: []gpu.InstanceMedium{{Memory: gpu.Some(gpu.Memory{Total: 100, Free: 101})}},
	}
	s.Medium(&m)
	if !reflect.DeepEqual(m, gpu.Medium{Fans: []gpu.Opt[gpu.Ratio]{gpu.Some(gpu.Ratio(1.1)), {}}, Clocks: map[gpu.Clock]gpu.Hertz{},
		Instances: []gpu.InstanceMedium{{}}}) {
		t.Errorf("medium: %+v", m)
	}
	m = gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 100, Used: 50}),
		Processes: gpu.Some([]gpu.Process{{PID: 1, Memory: gpu.Some(gpu.Bytes(50))}, {PID: 2, Memory: gpu.Some(gpu.Bytes(101))}})}
	s.Medium(&m)
	if list := m.Processes.Or(nil); len(list) != 2 || list[1].Memory.Present() || !list[0].Memory.Present() {
		t.Errorf("processes: %+v", list)
	}
	w := gpu.Slow{PowerLimit: gpu.Some(gpu.Watts(-1)), PowerLimitMax: gpu.Some(gpu.Watts(700)),
		MaxClocks:         map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 2e9},
		TemperatureLimits: []gpu.TemperatureThreshold{{Value: 90}, {Value: 999}},
		PCIe:              gpu.PCIeLink{Generation: gpu.Some(0), Width: gpu.Some(16)}}
	s.Slow(&w)
	if !reflect.DeepEqual(w, gpu.Slow{PowerLimitMax: gpu.Some(gpu.Watts(700)), MaxClocks: map[gpu.Clock]gpu.Hertz{gpu.ClockSM: 2e9},
		TemperatureLimits: []gpu.TemperatureThreshold{{Value: 90}}, PCIe: gpu.PCIeLink{Width: gpu.Some(16)}}) {
		t.Errorf("slow: %+v", w)
	}
	counts := map[string]uint64{}
	for _, c := range s.Counts() {
		counts[c.Reading] = c.Count
	}
	if !reflect.DeepEqual(counts, map[string]uint64{"power_instant": 1, "energy": 1, "memory_temperature": 1, "utilization": 1,
		"limited_time": 1, "engine_utilization": 1, "process_utilization": 2, "gpm": 2, "memory": 1, "bar1_memory": 1, "temperature": 1,
		"fan_speed": 1, "clock": 1, "performance_state": 1, "mig_memory": 1, "process_memory": 1, "power_limit": 1,
		"temperature_limit": 1, "pcie_link": 1}) {
		t.Errorf("counts: %v", counts)
	}
}

// Values at the limits of what is plausible are kept, those just beyond are not, and the reading itself does not change.
func TestFilterLimits(t *testing.T) {
	for _, c := range []struct {
		use  gpu.Utilization
		kept bool
	}{{gpu.Utilization{}, true}, {gpu.Utilization{GPU: 1, Memory: 1}, true}, {gpu.Utilization{GPU: 1.01}, false},
		{gpu.Utilization{Memory: 1.01}, false}, {gpu.Utilization{GPU: -.01}, false}, {gpu.Utilization{Memory: -.01}, false}} {
		f := gpu.Fast{Utilization: gpu.Some(c.use)}
		new(Filter).Fast(&f)
		if f.Utilization.Present() != c.kept {
			t.Errorf("%+v: kept %v", c.use, !c.kept)
		}
	}
	for _, c := range []struct {
		memory gpu.Memory
		kept   bool
	}{{gpu.Memory{Total: 9, Used: 9, Free: 9, Reserved: gpu.Some(gpu.Bytes(9))}, true}, {gpu.Memory{Total: 9, Used: 10}, false},
		{gpu.Memory{Total: 9, Free: 10}, false}, {gpu.Memory{Total: 9, Reserved: gpu.Some(gpu.Bytes(10))}, false}, {gpu.Memory{}, false}} {
		fans := []gpu.Opt[gpu.Ratio]{gpu.Some(gpu.Ratio(maxFan)), gpu.Some(gpu.Ratio(0)), gpu.Some(gpu.Ratio(maxFan + .01))}
		m := gpu.Medium{Memory: gpu.Some(c.memory), Fans: fans}
		new(Filter).Medium(&m)
		if m.Memory.Present() != c.kept || !m.Fans[0].Present() || !m.Fans[1].Present() || m.Fans[2].Present() {
			t.Errorf("%+v, fans %v: kept %v", c.memory, m.Fans, !c.kept)
		}
		if !fans[2].Present() {
			t.Error("the reading's own list was changed")
		}
	}
}

func TestPCIePlaceholderIsAbsentAndNotCounted(t *testing.T) {
	placeholder := gpu.PCIeLink{Generation: gpu.Some(1), Width: gpu.Some(1), MaxGeneration: gpu.Some(1), MaxWidth: gpu.Some(1)}
	real := placeholder
	real.MaxGeneration, real.MaxWidth = gpu.Some(5), gpu.Some(16) // an idle link that fell back
	var s Filter
	for link, want := range map[gpu.PCIeLink]gpu.PCIeLink{placeholder: {}, real: real} {
		l := gpu.Slow{PCIe: link}
		s.Slow(&l)
		if l.PCIe != want {
			t.Errorf("%+v became %+v, want %+v", link, l.PCIe, want)
		}
	}
	if c := s.Counts(); len(c) > 0 {
		t.Errorf("counted as rejected: %v", c)
	}
}

func TestShareOfAnInstance(t *testing.T) {
	var s Filter
	given := []gpu.Instance{{Share: gpu.Some(gpu.Ratio(1))}, {Share: gpu.Some(gpu.Ratio(1.01))}, {Share: gpu.Some(gpu.Ratio(-.01))}}
	l := gpu.Slow{Instances: given}
	s.Slow(&l)
	for i, want := range []bool{true, false, false} {
		if l.Instances[i].Share.Present() != want || !given[i].Share.Present() {
			t.Errorf("share %v became %v, or the reading itself changed", given[i].Share, l.Instances[i].Share)
		}
	}
	if c := s.Counts(); len(c) != 1 || c[0].Reading != "mig_share" || c[0].Count != 2 {
		t.Errorf("counts: %v", c)
	}
}

// A driver may add up a metric over the compute instances of a MIG instance: its time is observed, as busy at most.
func TestProfilingAboveOne(t *testing.T) {
	for value, want := range map[gpu.Ratio][2]gpu.Opt[gpu.Ratio]{0.5: {gpu.Some[gpu.Ratio](0.5), gpu.Some[gpu.Ratio](0.5)},
		1.04: {gpu.Some[gpu.Ratio](1), gpu.Some[gpu.Ratio](1)}, 1.8: {{}, gpu.Some[gpu.Ratio](1)}, 9: {{}, {}}} {
		gpm := gpu.Some(gpu.GPM{Window: time.Second, GraphicsActive: gpu.Some(value)})
		f := gpu.Fast{GPM: gpm, Instances: []gpu.InstanceFast{{GPM: gpm}}}
		var s Filter
		s.Fast(&f)
		if got := [2]gpu.Opt[gpu.Ratio]{f.GPM.Or(gpu.GPM{}).GraphicsActive,
			f.Instances[0].GPM.Or(gpu.GPM{}).GraphicsActive}; got != want {
			t.Errorf("%v became %v, want %v", value, got, want)
		}
	}
}
