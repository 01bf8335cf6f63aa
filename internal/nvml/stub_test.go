package nvml

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// stub is a device in Go, for answers that the stand-in driver cannot be made to give.
type stub struct {
	nvml.Device
	processes   func() ([]nvml.ProcessInfo, nvml.Return)
	utilization func() ([]nvml.ProcessUtilizationSample, nvml.Return)
}

func (s *stub) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) { return s.processes() }
func (s *stub) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}
func (s *stub) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, nvml.ERROR_FUNCTION_NOT_FOUND
}
func (s *stub) GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	return s.utilization()
}

func stubGPU(handle nvml.Device) *GPU {
	s := &Session{library: New(Options{}), byHandle: map[nvml.Device]*device{}, byIndex: map[int]*device{}}
	for id := range s.offers.have {
		s.offers.have[id] = true
	}
	return &GPU{dev: &device{session: s, handle: handle}, tables: newPollStates(nil)}
}

// TestProcessListGrows: go-nvml panics where the list grows between its two calls. That is tried again, a
// few times, and costs its own reading at most.
func TestProcessListGrows(t *testing.T) {
	calls := 0
	growing := func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		calls++
		made := make([]nvml.ProcessUtilizationSample, 1)
		return made[:calls+1], nvml.SUCCESS // out of range
	}
	device := &stub{utilization: growing}
	c := stubGPU(device)
	var to gpu.Fast
	if ret := readProcessSamples(c, &to); ret != nvml.ERROR_NO_DATA || to.Processes.Present() || calls != growLimit {
		t.Errorf("growing for ever: code %d, %v, %d calls", ret, to.Processes, calls)
	}
	count := func() uint64 {
		for _, s := range c.dev.session.library.Calls() {
			for _, e := range s.Errors {
				if e.Code == "INSUFFICIENT_SIZE" {
					return e.Count
				}
			}
		}
		return 0
	}
	if count() != 1 {
		t.Errorf("counted %d times", count())
	}
	calls = 0
	device.utilization = func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		if calls == 0 {
			return growing()
		}
		return []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 5, SmUtil: 30}}, nvml.SUCCESS
	}
	c.procsSeen = true
	if ret := readProcessSamples(c, &to); ret != nvml.SUCCESS || fmt.Sprint(to.Processes) != "[{7 5 30 0 0 0}]" || c.procs != 5 ||
		count() != 1 {
		t.Errorf("grown once: code %d, %v", ret, to.Processes)
	}
}

// TestProcessesByInstance: what the GPU's list keeps from us, or does not place, is asked of its instances.
func TestProcessesByInstance(t *testing.T) {
	info := func(pid, gi, ci uint32) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: 1024, GpuInstanceId: gi, ComputeInstanceId: ci}
	}
	const none = math.MaxUint32
	for name, aggregate := range map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"closed":   func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NO_PERMISSION },
		"unplaced": func() ([]nvml.ProcessInfo, nvml.Return) { return []nvml.ProcessInfo{info(1, none, none)}, nvml.SUCCESS },
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			c := stubGPU(&stub{processes: func() ([]nvml.ProcessInfo, nvml.Return) { asked++; return aggregate() }})
			c.mig.on = true
			c.mig.instances = []gpu.Instance{{GI: 3, Compute: []gpu.ComputeInstance{{CI: 0, Index: 0}}},
				{GI: 5, Compute: []gpu.ComputeInstance{{CI: 0, Index: 1}, {CI: 1, Index: 4}}}}
			c.mig.handles = map[int]nvml.Device{}
			for index, list := range map[int][]nvml.ProcessInfo{0: {info(30, none, none)}, 1: {info(10, none, none)},
				4: {info(20, 5, 1), info(10, none, none)}} {
				c.mig.handles[index] = &stub{processes: func() ([]nvml.ProcessInfo, nvml.Return) { return list, nvml.SUCCESS }}
			}
			for range 2 {
				var to gpu.Medium
				ret := readProcesses(c, &to)
				// PID 10 is in the lists of two compute instances: it is one process, of neither of them for certain.
				if want := "[{10 [compute] 1024 5 –} {20 [compute] 1024 5 1} {30 [compute] 1024 3 0}]"; ret != nvml.SUCCESS ||
					fmt.Sprint(to.Processes) != want {
					t.Errorf("code %d, %v, want %s", ret, to.Processes, want)
				}
			}
			if asked != 1 {
				t.Errorf("the GPU was asked %d times", asked)
			}
		})
	}
	// A list that places everybody is believed, and costs one call.
	c := stubGPU(&stub{processes: func() ([]nvml.ProcessInfo, nvml.Return) { return []nvml.ProcessInfo{info(1, 3, 0)}, nvml.SUCCESS }})
	c.mig.on = true
	var to gpu.Medium
	if ret := readProcesses(c, &to); ret != nvml.SUCCESS || c.mig.perInstance || fmt.Sprint(to.Processes) != "[{1 [compute] 1024 3 0}]" {
		t.Errorf("placed: code %d, %v", ret, to.Processes)
	}
	if !slices.Equal(c.kinds[:], []bool{false, true, true}) {
		t.Errorf("kinds: %v", c.kinds)
	}
}

// shutdowns is a driver that counts its shutdowns.
type shutdowns struct {
	nvml.Interface
	n int
}

func (s *shutdowns) Shutdown() nvml.Return { s.n++; return nvml.SUCCESS }

// Close waits for a call that is running, and shuts NVML down at once after the last of them; after 800 ms it leaves NVML
// as it is, and the next Close tries again. NVML is shut down once.
func TestCloseWaitsForCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		running int
		returns time.Duration // of one call after the other
		takes   time.Duration
		busy    bool
	}{"none": {0, 0, 0, false}, "one": {1, 300 * time.Millisecond, 300 * time.Millisecond, false},
		"two":       {2, 300 * time.Millisecond, 600 * time.Millisecond, false},
		"one hangs": {1, time.Hour, closeWait, true}} {
		synctest.Test(t, func(t *testing.T) {
			driver := &shutdowns{}
			s := stubGPU(nil).dev.session
			s.nvml, s.wake = driver, make(chan struct{}, 1)
			for range tt.running {
				if !s.enter() {
					t.Fatal("refused")
				}
			}
			go func() {
				for range tt.running {
					time.Sleep(tt.returns)
					s.leave()
				}
			}()
			started := time.Now()
			if err := s.Close(); errors.Is(err, ErrBusy) != tt.busy || !tt.busy && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(started); took != tt.takes {
				t.Errorf("%s: it took %v", name, took)
			}
			if (driver.n == 0) != tt.busy || s.enter() {
				t.Errorf("%s: %d shutdowns", name, driver.n)
			}
			time.Sleep(2 * time.Hour)
			for range 2 {
				if err := s.Close(); err != nil || driver.n != 1 {
					t.Errorf("%s, later: %v, %d shutdowns", name, err, driver.n)
				}
			}
		})
	}
}

// A GPU that returns keeps the index under which it was first seen; another GPU at its address does not get it.
func TestRememberedIndex(t *testing.T) {
	l := New(Options{})
	for i, step := range []struct {
		uuid, pci   string
		index, want int
	}{{"a", "1", 0, 0}, {"a", "1", 3, 0}, {"b", "1", 4, 4}, {"b", "1", 5, 4}, {"a", "1", 6, 6}, {"a", "2", 7, 7}, {"a", "", 8, 8}} {
		id := l.remember(gpu.Identity{UUID: gpu.UUID(step.uuid), PCI: gpu.PCIAddress(step.pci), Index: step.index})
		if id.Index != step.want {
			t.Errorf("step %d: index %d, want %d", i, id.Index, step.want)
		}
	}
}
