package standin

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// samples reads a ring and drops the entries that go-nvml leaves at the end.
func samples(t *testing.T, d nvml.Device, kind nvml.SamplingType, since uint64) ([]nvml.Sample, nvml.Return) {
	t.Helper()
	_, all, r := d.GetSamples(kind, since)
	return slices.DeleteFunc(all, func(s nvml.Sample) bool { return s.TimeStamp == 0 }), r
}

func sampleValue(s nvml.Sample) float64 {
	return float64(uint32(s.SampleValue[0]) | uint32(s.SampleValue[1])<<8 | uint32(s.SampleValue[2])<<16 | uint32(s.SampleValue[3])<<24)
}

// Polled oftener than the ring wraps, the samples are the whole truth.
func TestRingIntegral(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=1 busy=37% period=1300ms dram=50%
process gpu=0 pid=2 busy=60% period=700ms phase=111ms from=20s to=60s dram=25%
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	truth := s.Truth(0)
	for _, tc := range []struct {
		kind nvml.SamplingType
		want func(t0, t1 time.Duration) gpu.Seconds
	}{{nvml.GPU_UTILIZATION_SAMPLES, truth.Busy}, {nvml.MEMORY_UTILIZATION_SAMPLES, truth.MemoryBusy}} {
		control.Set(0)
		if _, r := samples(t, d, tc.kind, 0); r != nvml.ERROR_NOT_FOUND {
			t.Errorf("an empty ring answers %v", r)
		}
		var last uint64
		busy, cells := 0.0, 0
		for control.Now() < 80*time.Second {
			control.Advance(1730 * time.Millisecond)
			got, r := samples(t, d, tc.kind, last)
			if r != nvml.SUCCESS {
				t.Fatalf("at %v: %v", control.Now(), r)
			}
			for _, s := range got {
				if last != 0 && s.TimeStamp != last+100_000 {
					t.Fatalf("a sample at %d follows one at %d", s.TimeStamp, last)
				}
				last = s.TimeStamp
				busy += sampleValue(s) / 100 * 0.1
				cells++
			}
		}
		end := time.Duration(cells) * 100 * time.Millisecond
		if end < 79*time.Second {
			t.Fatalf("only %d samples", cells)
		}
		if want := float64(tc.want(0, end)); math.Abs(busy-want) > 0.0025*end.Seconds() {
			t.Errorf("kind %d: samples add up to %v s, the truth is %v s", tc.kind, busy, want)
		}
		if want := float64(truth.Sampled(0, end)); tc.kind == nvml.GPU_UTILIZATION_SAMPLES && math.Abs(busy-want) > 1e-6 {
			t.Errorf("samples add up to %v s, and should to %v s", busy, want)
		}
	}
	// Left alone, the ring keeps its length.
	control.Advance(time.Hour)
	if got, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); len(got) != 20 {
		t.Errorf("after an hour the ring has %d entries", len(got))
	}
	got, r := samples(t, d, nvml.TOTAL_POWER_SAMPLES, 0)
	if r != nvml.SUCCESS || len(got) != 20 || sampleValue(got[0]) < 50_000 || sampleValue(got[0]) > 250_000 {
		t.Errorf("power samples: %d, %v", len(got), r)
	}
	if _, r := samples(t, d, nvml.ENC_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("encoder samples: %v", r)
	}
}

func TestRingOptions(t *testing.T) {
	const lines = `
model idle_watts=1 busy_watts=2
gpu 0 board=b
load gpu=0 busy=100% from=2s to=3s
`
	for _, tc := range []struct {
		name, ring string
		check      func(t *testing.T, d nvml.Device, c *scenario.Control)
	}{
		{"a clock since boot", "clock=boot", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 10 || got[9].TimeStamp > uint64(time.Hour.Microseconds()*24) {
				t.Errorf("%v, %v", got, r)
			}
		}},
		{"entries that were not filled", "unfilled=zeros", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			_, got, r := d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 20 || got[9].TimeStamp == 0 || got[10].TimeStamp != 0 {
				t.Errorf("%v, %v", got, r)
			}
		}},
		{"a sizing call that exaggerates", "sizing=100", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(time.Second)
			_, got, r := d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 100 {
				t.Errorf("%d, %v", len(got), r)
			}
		}},
		{"the order of memory", "order=slot", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(4700 * time.Millisecond) // cells 28 to 47: from slot 0 on 40 to 47, then 28 to 39
			all, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			var got []uint64
			for _, s := range all {
				got = append(got, (s.TimeStamp-all[8].TimeStamp)/100_000+28)
			}
			late, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, all[1].TimeStamp)
			if want := "[40 41 42 43 44 45 46 47 28 29 30 31 32 33 34 35 36 37 38 39]"; fmt.Sprint(got) != want || len(late) != 6 {
				t.Errorf("%v and %d, want %s", got, len(late), want)
			}
		}},
		{"a ring that stops when idle", "idle=stop", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(1900 * time.Millisecond)
			if got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); r != nvml.ERROR_NOT_FOUND {
				t.Errorf("idle: %v, %v", got, r)
			}
			c.Set(3500 * time.Millisecond)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) != 11 || sampleValue(got[0]) != 100 || sampleValue(got[10]) != 0 {
				t.Errorf("after work: %v, %v", got, r)
			}
		}},
		{"a value that cannot be", "", func(t *testing.T, d nvml.Device, c *scenario.Control) {
			c.Set(11 * time.Second)
			got, r := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0)
			if r != nvml.SUCCESS || len(got) == 0 || sampleValue(got[0]) != 808334905 {
				t.Errorf("%v, %v", got, r)
			}
			c.Set(12 * time.Second)
			if got, _ := samples(t, d, nvml.GPU_UTILIZATION_SAMPLES, 0); len(got) == 0 || sampleValue(got[0]) != 0 {
				t.Errorf("afterwards: %v", got)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := written(t, "board b\nring period=100ms entries=20 "+tc.ring+lines+
				"at 10s gpu 0 Samples[gpu] = 808334905\nat 12s gpu 0 Samples[gpu] = default\n")
			lib, control := playing(t, s)
			tc.check(t, device(t, lib, 0), control)
		})
	}
}

// The processes add up to the GPU, and each comes out right if one looks long enough.
func TestProcessUtilization(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
gpu 1 board=b
process gpu=0 pid=11 busy=60% period=910ms
process gpu=0 pid=12 busy=30% period=1270ms phase=300ms
process gpu=0 pid=13 busy=20% period=3s phase=1s
process gpu=0 pid=14 memory=1GiB busy=0%
load gpu=1 busy=100% from=5s to=6s
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	if _, r := device(t, lib, 1).GetProcessUtilization(0); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("an idle gpu answers %v", r)
	}
	const minutes = 30
	busy := map[uint32]float64{}
	var last, start uint64
	total := 0.0
	for control.Now() < minutes*time.Minute {
		control.Advance(1900 * time.Millisecond)
		got, r := d.GetProcessUtilization(last)
		if r == nvml.ERROR_NOT_FOUND {
			continue
		}
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		newest := last
		for _, p := range got {
			newest = max(newest, p.TimeStamp)
		}
		if start == 0 { // the first read only tells where one stands
			last, start = newest, newest
			continue
		}
		window := float64(newest-last) / 1e6
		for _, p := range got {
			busy[p.Pid] += float64(p.SmUtil) / 100 * window
			total += float64(p.SmUtil) / 100 * window
		}
		last = newest
	}
	truth := s.Truth(0)
	// Each report is rounded to one in a hundred of its window.
	if want := float64(truth.Busy(0, minutes*time.Minute)); math.Abs(total-want) > 0.02*want {
		t.Errorf("all processes: %v s, the gpu was busy for %v s", total, want)
	}
	for pid := uint32(11); pid <= 13; pid++ {
		// The ring sees one process at a time, so this is statistics.
		if want := float64(truth.ProcessBusy(int(pid), 0, minutes*time.Minute)); math.Abs(busy[pid]-want) > 0.08*want+1 {
			t.Errorf("process %d: %v s, the truth is %v s", pid, busy[pid], want)
		}
	}
	if busy[14] != 0 || len(busy) != 3 {
		t.Errorf("seen at work: %v", busy)
	}
}

func TestProcessLists(t *testing.T) {
	s := written(t, plainBoard+`
gpu 0 board=b
process gpu=0 pid=21 memory=1GiB
process gpu=0 pid=22 memory=na from=10s to=20s
process gpu=0 pid=23 memory=2GiB kind=graphics
process gpu=0 pid=24 memory=3GiB kind=mps
process gpu=0 pid=25 memory=1GiB gi=1
load gpu=0 memory=1GiB busy=10%
at 30s gpu 0 ComputeRunningProcesses = !NO_PERMISSION
`)
	lib, control := playing(t, s)
	d := device(t, lib, 0)
	pids := func(list []nvml.ProcessInfo, r nvml.Return) string {
		text := fmt.Sprint(int(r))
		for _, p := range list {
			text += fmt.Sprintf(" %d:%d", p.Pid, p.UsedGpuMemory>>30)
			if p.GpuInstanceId != 0xffffffff || p.ComputeInstanceId != 0xffffffff {
				text += "!"
			}
		}
		return text
	}
	for _, tc := range []struct {
		at   time.Duration
		want string
	}{{0, "0 21:1"}, {10 * time.Second, "0 21:1 22:17179869183"}, {20 * time.Second, "0 21:1"},
		{30 * time.Second, "4"}} {
		control.Set(tc.at)
		if got := pids(d.GetComputeRunningProcesses()); got != tc.want {
			t.Errorf("at %v: %s, want %s", tc.at, got, tc.want)
		}
	}
	if got := pids(d.GetGraphicsRunningProcesses()); got != "0 23:2" {
		t.Errorf("graphics: %s", got)
	}
	if got := pids(d.GetMPSComputeRunningProcesses()); got != "0 24:3" {
		t.Errorf("MPS: %s", got)
	}
	if m, _ := d.GetMemoryInfo_v2(); m.Used != 7<<30 {
		t.Errorf("used memory is %d", m.Used)
	}
}
