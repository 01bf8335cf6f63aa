package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// closeWait is how long Close waits for running calls; longer than a wait for events.
const closeWait = 800 * time.Millisecond

// System returns the driver's versions, read at Open.
func (s *Session) System() gpu.System { return s.system }

func (s *Session) readSystem() error {
	driver, ret := get(s, callDriverVersion, s.nvml.SystemGetDriverVersion)
	if ret != nvml.SUCCESS {
		return failure(callDriverVersion, ret, "the driver")
	}
	s.system.DriverVersion = driver
	if version, ret := get(s, callNVMLVersion, s.nvml.SystemGetNVMLVersion); ret == nvml.SUCCESS {
		s.system.NVMLVersion = version
	}
	if v, ret := get(s, callCudaDriverVersion, s.nvml.SystemGetCudaDriverVersion); ret == nvml.SUCCESS && v > 0 {
		s.system.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return nil
}

// Close shuts NVML down. It waits up to 800 ms for running calls; if one does not return, the error wraps ErrBusy, NVML
// is not shut down under it, and the next Open tries again. Close may be called more than once and while poll groups
// are read: later calls fail with gpu.ErrUninitialized.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return s.release(closeWait)
}

// release shuts NVML down once no call is running.
func (s *Session) release(wait time.Duration) error {
	s.mu.Lock()
	if s.running > 0 && wait > 0 {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-idle:
		case <-timer.C:
		}
		timer.Stop()
		s.mu.Lock()
	}
	running, down, samples, events := s.running, s.down, s.samples, s.events
	if running == 0 {
		s.down, s.samples, s.events = true, nil, nil
	}
	s.mu.Unlock()
	switch {
	case down:
		return nil
	case running > 0:
		return fmt.Errorf("shut down NVML: %w (%d of them)", ErrBusy, running)
	}
	// No other call can begin: closed is set and none is running. The calls from here on bypass Session.make, which
	// refuses, by way of last.
	for _, sample := range samples {
		_ = s.last(callGpmSampleFree, sample.Free)
	}
	if events != nil {
		_ = s.last(callEventSetFree, events.Free)
	}
	switch ret := s.last(callShutdown, s.nvml.Shutdown); ret {
	case nvml.SUCCESS, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
		// the latter two: the driver was unloaded before
		return nil
	default:
		return failure(callShutdown, ret, "the driver")
	}
}

// last makes one of the calls that end a session, under the guard.
func (s *Session) last(id callID, fn func() nvml.Return) nvml.Return {
	if !s.offers.have[id] {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	ret := fn()
	if !silent(ret) {
		s.library.stats[id].count(codeName(ret))
	}
	return ret
}

// Scan lists the driver's GPUs, by index. A GPU that was found before in this session and has not failed since is
// returned as it is, without a call; one that failed is tried again and, when it can be read, returned as a new GPU. A
// GPU that cannot be read is in the list too, with its error (GPU.Err) and what is known of its identity. The error is
// that of the driver as a whole.
//
// Scan may run while poll groups are read; it does not wait for a GPU with a running call.
func (s *Session) Scan() ([]*GPU, error) {
	s.scan.Lock()
	defer s.scan.Unlock()
	count, ret := get(s, callCount, s.nvml.DeviceGetCount)
	if ret != nvml.SUCCESS {
		return nil, failure(callCount, ret, "the driver")
	}
	var devs []*GPU
	var failed []int // positions in GPUs of those without an address
	for index := range count {
		dev, err := s.gpuAt(index)
		if err != nil {
			return nil, err
		}
		if dev.Identity().PCI == "" {
			failed = append(failed, index)
		}
		devs = append(devs, dev)
	}
	s.identify(devs, failed)
	return devs, nil
}

// gpuAt returns the GPU of an index, which does not change in a session: the known one while it works or has a running
// call, otherwise a new one.
func (s *Session) gpuAt(index int) (*GPU, error) {
	s.mu.Lock()
	d := s.byIndex[index]
	var old *GPU
	if d != nil {
		old = d.dev
	}
	s.mu.Unlock()
	if old != nil {
		if old.Err() == nil || !d.busy.TryLock() {
			return old, nil
		}
	}
	handle, ret := get(s, callHandleByIndex, func() (nvml.Device,
		nvml.Return) {
		return s.nvml.DeviceGetHandleByIndex(index)
	}, index)
	if old != nil {
		d.busy.Unlock()
	}
	if ret != nvml.SUCCESS {
		err := failure(callHandleByIndex, ret, fmt.Sprintf("GPU %d", index))
		switch {
		case errors.Is(err, gpu.ErrUninitialized), errors.Is(err, gpu.ErrNoDriver),
			errors.Is(err, gpu.ErrVersionMismatch):
			return nil, err
		case old != nil:
			return old, nil
		}
		return unreadable(gpu.Identity{Index: index}, err), nil
	}
	s.mu.Lock()
	d = s.byHandle[handle]
	if d == nil {
		d = &device{session: s, handle: handle}
		s.byHandle[handle] = d
	}
	s.byIndex[index] = d
	s.mu.Unlock()
	return s.newGPU(d, index, old), nil
}

// newGPU reads the identity of a device and adds it to those to be registered for events.
func (s *Session) newGPU(d *device, index int, old *GPU) *GPU {
	dev := &GPU{dev: d, identity: gpu.Identity{Index: index}, tables: newPollStates()}
	dev.readIdentity(old)
	s.mu.Lock()
	defer s.mu.Unlock()
	d.dev = dev
	if dev.Err() == nil && !d.registered && !slices.Contains(s.pending, d) {
		s.pending = append(s.pending, d)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return dev
}

// identify derives the identity of GPUs without a handle. NVML numbers GPUs in the order of the PCI bus, so if as many
// GPUs of the bus are unaccounted for as have failed, they are the same in the same order. Otherwise it is the GPU that
// was first seen under the index.
func (s *Session) identify(devs []*GPU, failed []int) {
	if len(failed) == 0 {
		return
	}
	taken := map[gpu.PCIAddress]bool{}
	for _, c := range devs {
		if pci := c.Identity().PCI; pci != "" {
			taken[pci] = true
		}
	}
	var free []gpu.PCIAddress
	if bus, err := s.library.Expected(); err == nil {
		for _, e := range bus {
			if !e.Detached && !taken[e.PCI] {
				free = append(free, e.PCI)
			}
		}
	}
	slices.SortFunc(free, func(a, b gpu.PCIAddress) int { return strings.Compare(string(a), string(b)) })
	for i, at := range failed {
		index := devs[at].identity.Index
		id := gpu.Identity{Index: index, UUID: gpu.UUID(fmt.Sprintf("index-%d", index))}
		if len(free) == len(failed) {
			id.PCI = free[i]
			id.UUID = gpu.UUID(free[i])
			if known, ok := s.library.recall(free[i]); ok {
				id = known
			}
		} else if known, ok := s.library.recallIndex(index, taken); ok {
			id = known
			taken[id.PCI] = true
		}
		devs[at] = unreadable(id, devs[at].Err())
	}
}
