package account

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The value at each limit is kept, the next one beyond is not, and each rejected value counts once under its reading.
func TestLimitsOfReadings(t *testing.T) {
	ratio := func(v float64) gpu.Opt[gpu.Ratio] { return gpu.Some(gpu.Ratio(v)) }
	type result struct {
		kept     bool
		rejected string
	}
	counted := func(s *Filter) string {
		var list []string
		for _, c := range s.Counts() {
			list = append(list, fmt.Sprintf("%s=%d", c.Reading, c.Count))
		}
		return strings.Join(list, " ")
	}
	for name, c := range map[string]struct {
		kept   func(s *Filter) bool
		result result
	}{
		"process of 0 and 100 %": {func(s *Filter) bool {
			f := gpu.Fast{Processes: gpu.Some([]gpu.ProcessSample{{PID: 1, SM: 100, Memory: 100, Encoder: 100, Decoder: 100}, {PID: 2}})}
			s.Fast(&f)
			return len(f.Processes.Or(nil)) == 2
		}, result{true, ""}},
		"process PID 0":              {processKept(gpu.ProcessSample{SM: 1}), result{false, "process_utilization=1"}},
		"process SM 101":             {processKept(gpu.ProcessSample{PID: 1, SM: 101}), result{false, "process_utilization=1"}},
		"process memory 101":         {processKept(gpu.ProcessSample{PID: 1, Memory: 101}), result{false, "process_utilization=1"}},
		"process encoder -1":         {processKept(gpu.ProcessSample{PID: 1, Encoder: -1}), result{false, "process_utilization=1"}},
		"process decoder 101":        {processKept(gpu.ProcessSample{PID: 1, Decoder: 101}), result{false, "process_utilization=1"}},
		"profiling without a period": {gpmKept(gpu.GPM{}), result{false, "gpm=1"}},
		"profiling backwards":        {gpmKept(gpu.GPM{Window: -1}), result{false, "gpm=1"}},
		"profiling of a nanosecond":  {gpmKept(gpu.GPM{Window: 1}), result{true, ""}},
		"profiling -0.1": {func(s *Filter) bool {
			f := gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: 1, TensorActive: ratio(-.1), FP16Active: ratio(maxProfiled + .001)})}
			s.Fast(&f)
			return f.GPM.Or(gpu.GPM{}).TensorActive.Present() || f.GPM.Or(gpu.GPM{}).FP16Active.Present()
		}, result{false, "gpm=2"}},
		"profiling 1.05 is 1": {func(s *Filter) bool {
			f := gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: 1, TensorActive: ratio(maxProfiled)})}
			s.Fast(&f)
			return f.GPM.Or(gpu.GPM{}).TensorActive == ratio(1)
		}, result{true, ""}},
		"PCIe 1 TB/s": {func(s *Filter) bool {
			f := gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: 1, PCIeTransmit: gpu.Some(1e12), PCIeReceive: gpu.Some(0.)})}
			s.Fast(&f)
			return f.GPM.Or(gpu.GPM{}).PCIeTransmit.Present() && f.GPM.Or(gpu.GPM{}).PCIeReceive.Present()
		}, result{true, ""}},
		"PCIe more": {func(s *Filter) bool {
			f := gpu.Fast{GPM: gpu.Some(gpu.GPM{Window: 1, PCIeTransmit: gpu.Some(1.01e12), PCIeReceive: gpu.Some(-1.)})}
			s.Fast(&f)
			return f.GPM.Or(gpu.GPM{}).PCIeTransmit.Present() || f.GPM.Or(gpu.GPM{}).PCIeReceive.Present()
		}, result{false, "gpm=2"}},
		"BAR1 in full": {func(s *Filter) bool {
			m := gpu.Medium{BAR1: gpu.Some(gpu.BAR1{Total: 9, Used: 9})}
			s.Medium(&m)
			return m.BAR1.Present()
		}, result{true, ""}},
		"fan -0.1": {func(s *Filter) bool {
			m := gpu.Medium{Fans: []gpu.Opt[gpu.Ratio]{ratio(-.1)}}
			s.Medium(&m)
			return m.Fans[0].Present()
		}, result{false, "fan_speed=1"}},
		"process memory of all":         {memoryKept(1, 100, true), result{true, ""}},
		"process memory beyond":         {memoryKept(1, 101, true), result{false, "process_memory=1"}},
		"process memory, total unknown": {memoryKept(1, 101, false), result{true, ""}},
		"process list PID 0":            {memoryKept(0, 1, true), result{false, "process_memory=1"}},
		"threshold -50":                 {thresholdKept(-50), result{true, ""}},
		"threshold -51":                 {thresholdKept(-51), result{false, "temperature_limit=1"}},
		"threshold 200":                 {thresholdKept(200), result{true, ""}},
		"threshold 201":                 {thresholdKept(201), result{false, "temperature_limit=1"}},
		"a PCIe link of width 1, generation 2": {func(s *Filter) bool {
			l := gpu.Slow{PCIe: gpu.PCIeLink{MaxGeneration: gpu.Some(2), MaxWidth: gpu.Some(1)}}
			s.Slow(&l)
			return l.PCIe.MaxWidth.Present()
		}, result{true, ""}},
		"a PCIe link of width 2, generation 1": {func(s *Filter) bool {
			l := gpu.Slow{PCIe: gpu.PCIeLink{MaxGeneration: gpu.Some(1), MaxWidth: gpu.Some(2)}}
			s.Slow(&l)
			return l.PCIe.MaxWidth.Present()
		}, result{true, ""}},
	} {
		var s Filter
		if got := (result{c.kept(&s), counted(&s)}); got != c.result {
			t.Errorf("%s: %+v, want %+v", name, got, c.result)
		}
	}
}

func processKept(p gpu.ProcessSample) func(*Filter) bool {
	return func(s *Filter) bool {
		good := gpu.ProcessSample{PID: 7, SM: 7}
		given := []gpu.ProcessSample{p, good}
		f := gpu.Fast{Processes: gpu.Some(given)}
		s.Fast(&f)
		list, known := f.Processes.Get() // where a process had no other sample, nobody's part is known
		return given[0] != p || known != (p.PID <= 0) || slices.Contains(list, p)
	}
}

func gpmKept(g gpu.GPM) func(*Filter) bool {
	return func(s *Filter) bool {
		f := gpu.Fast{GPM: gpu.Some(g)}
		s.Fast(&f)
		return f.GPM.Present()
	}
}

func memoryKept(pid int, used gpu.Bytes, total bool) func(*Filter) bool {
	return func(s *Filter) bool {
		given := []gpu.Process{{PID: pid, Memory: gpu.Some(used)}, {PID: 9}}
		m := gpu.Medium{Processes: gpu.Some(given)}
		if total {
			m.Memory = gpu.Some(gpu.Memory{Total: 100})
		}
		s.Medium(&m)
		list := m.Processes.Or(nil)
		if n := len(list); n == 0 || list[n-1].PID != 9 || (n == 2) != (pid > 0) || !given[0].Memory.Present() {
			return true
		}
		return len(list) == 2 && list[0].Memory.Present()
	}
}

func thresholdKept(v float64) func(*Filter) bool {
	return func(s *Filter) bool {
		given := []gpu.TemperatureThreshold{{Value: gpu.Celsius(v)}, {Value: 90}}
		l := gpu.Slow{TemperatureLimits: given}
		s.Slow(&l)
		return len(l.TemperatureLimits) == 2
	}
}

// The texts of a memory that is not the GPU's, and the totals at the limits.
func TestMemoryGuardTexts(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		model         string
		totals        []gpu.Bytes
		bar1          gpu.Bytes
		limit         gpu.Bytes
		wrapper, want string // detail, or doubt in parentheses
	}{
		{"NVIDIA X 80GB", []gpu.Bytes{60e9}, 0, 0, "", ""},
		{"NVIDIA X 80GB", []gpu.Bytes{60e9 - 1}, 0, 0, "", "(a total of 57220 MiB, but NVIDIA X 80GB has about 76293 MiB)"},
		{"NVIDIA X 80GB", []gpu.Bytes{512 * mib}, 1 << 30, 0, "", "a total of 512 MiB, but NVIDIA X 80GB has about 76293 MiB and " +
			"BAR1, which maps all memory on most boards, has 1024 MiB"},
		{"X", []gpu.Bytes{512*mib + 1}, 1 << 30, 0, "", ""},
		{"X", []gpu.Bytes{512 * mib}, 1 << 30, 0, "", "(a total of 512 MiB, but BAR1, which maps all memory on most boards, has 1024 MiB)"},
		{"X", []gpu.Bytes{100 * mib}, 1<<30 - 1, 0, "", ""},
		{"X", []gpu.Bytes{1000 * mib, 1000 * mib, 900 * mib}, 0, 0, "", ""},
		{"X", []gpu.Bytes{1000 * mib, 1000 * mib, 900*mib - 1}, 0, 0, "", "a total of 899 MiB, but it was 1000 MiB"},
		{"X", []gpu.Bytes{1000 * mib, 1000 * mib, 899 * mib, 899 * mib}, 0, 0, "", "a total of 899 MiB, but it was 1000 MiB"},
		{"X", []gpu.Bytes{1000 * mib, 2000 * mib, 950 * mib}, 0, 0, "", ""}, // read once: not confirmed
		{"X", []gpu.Bytes{10}, 0, 3 * mib, "", "the cgroup of this process has a limit of 3 MiB of it"},
		{"X", []gpu.Bytes{10}, 0, 3 * mib, "/lib/x.so", "the calls of NVML are intercepted by /lib/x.so"},
	} {
		var g MemoryGuard
		var m gpu.Medium
		for _, total := range c.totals {
			m = gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: total}), BAR1: gpu.Some(gpu.BAR1{Total: c.bar1}),
				Instances: []gpu.InstanceMedium{{}}}
			if c.limit > 0 {
				m.OwnLimit = gpu.Some(c.limit)
			}
			g.Check(&gpu.Identity{Model: c.model}, c.wrapper, &m)
		}
		got, kept := "", len(m.Unmeasured) == 0
		if m.MemoryDoubt != "" {
			got = "(" + m.MemoryDoubt + ")"
		}
		for _, u := range m.Unmeasured {
			if got += u.Detail; u.Reading != "memory" {
				t.Errorf("%+v", u)
			}
		}
		if got != c.want || m.Memory.Present() != kept || (m.Instances == nil) != (c.wrapper != "") {
			t.Errorf("%s %v: %q, want %q", c.model, c.totals, got, c.want)
		}
	}
	var g MemoryGuard // a GPU without a total has nothing to compare
	m := gpu.Medium{}
	if u, news := g.Check(&gpu.Identity{}, "", &m); news || u.Reason != "" || g.previous != 0 || len(m.Unmeasured) > 0 {
		t.Errorf("%+v", u)
	}
}
