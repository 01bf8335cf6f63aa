package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
)

// closeWait is how long Close waits for running calls; longer than a wait for events.
const closeWait = 800 * time.Millisecond

const (
	// identityWait is how long Scan waits for the identities of GPUs.
	identityWait = 3 * time.Second
	// maxGPUs and maxMIGDevices are more than any node and GPU have: a wrong count must not be a loop without end.
	maxGPUs       = 1024
	maxMIGDevices = 256
	maxFans       = 64
)

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
	if s.bindings != nil {
		_ = s.last(callSystemEventSetFree, func() nvml.Return { return s.nvml.SystemEventSetFree(s.bindings) })
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
	deadline, stop := context.WithTimeout(context.Background(), identityWait)
	defer stop()
	var unplaced []int // positions in devs of those without an address
	for index := range min(count, maxGPUs) {
		dev, err := s.gpuAt(index)
		if err != nil {
			return nil, err
		}
		devs = append(devs, dev)
	}
	for index := range devs {
		dev := s.identified(devs[index], index, deadline.Done())
		if dev.Identity().PCI == "" && !dev.placed {
			unplaced = append(unplaced, index)
		}
		devs[index] = dev
	}
	s.identify(devs, unplaced)
	return devs, nil
}

// gpuAt returns the GPU of an index, which does not change in a session: the known one while it works or has a running
// call, otherwise a new one.
func (s *Session) gpuAt(index int) (*GPU, error) {
	s.mu.Lock()
	d := s.byIndex[index]
	var old *GPU
	if d != nil && d.reading != nil {
		defer s.mu.Unlock()
		return d.reading, nil
	}
	if d != nil {
		old = d.dev
	}
	s.mu.Unlock()
	if old != nil {
		if old.Err() == nil || !d.busy.TryLock() {
			return old, nil
		}
	}
	handle, ret := get(s, callHandleByIndex, func() (nvml.Device, nvml.Return) { return s.nvml.DeviceGetHandleByIndex(index) }, index)
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

// newGPU returns a GPU whose identity is being read; identified waits for it.
func (s *Session) newGPU(d *device, index int, old *GPU) *GPU {
	dev := &GPU{dev: d, identity: gpu.Identity{Index: index}, tables: newPollStates(s.library.options.Unread), ready: make(chan struct{})}
	s.mu.Lock()
	d.reading = dev
	s.mu.Unlock()
	go func() {
		defer close(dev.ready)
		if err := gpu.Recovered(func() error { dev.readIdentity(old); return nil }); err != nil {
			dev.count(callUUID, "PANIC")
			dev.lost = err
		}
	}()
	return dev
}

// identified waits until the identity of a new GPU was read, or deadline is closed, and adds the GPU to those to be
// registered for events. One whose calls hang is unreadable until a scan finds that they returned.
func (s *Session) identified(dev *GPU, index int, deadline <-chan struct{}) *GPU {
	if dev.ready == nil {
		return dev
	}
	select {
	case <-dev.ready:
	case <-deadline:
		select {
		case <-dev.ready:
		default:
			return unreadable(gpu.Identity{Index: index}, fmt.Errorf("read the identity of GPU %d: %w", index, ErrBusy))
		}
	}
	d := dev.dev
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.reading != dev {
		return dev // since an earlier scan
	}
	d.dev, d.reading = dev, nil
	if dev.Err() == nil && !d.registered && !slices.Contains(s.pending, d) {
		s.pending = append(s.pending, d)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return dev
}

// identify derives the address of GPUs that did not report it, and the rest of the identity of those among them that
// cannot be read at all. NVML numbers GPUs in the order of the PCI bus, so if as many GPUs of the bus are unaccounted
// for, they are the same in the same order. Otherwise one that cannot be read is the GPU that was first seen under the
// index; one that can be read has no address, as on Jetson, whose GPU is not on the PCI bus.
func (s *Session) identify(devs []*GPU, unplaced []int) {
	if len(unplaced) == 0 {
		return
	}
	taken := map[gpu.PCIAddress]bool{}
	for _, c := range devs {
		if pci := c.Identity().PCI; pci != "" {
			taken[pci] = true
		}
	}
	var free []gpu.PCIAddress // in their order
	if list, err := s.library.Expected(); err == nil {
		for _, e := range list {
			if !e.Detached && !taken[e.PCI] {
				free = append(free, e.PCI)
			}
		}
	}
	for i, at := range unplaced {
		if dev := devs[at]; dev.Err() == nil {
			if len(free) == len(unplaced) {
				s.mu.Lock() // events read the identity
				dev.identity.PCI = free[i]
				dev.identity.NUMANode = bus.NUMANode(dev.sysfs(), free[i])
				dev.identity = s.library.remember(dev.identity)
				s.mu.Unlock()
			}
			dev.placed = true
			continue
		}
		index := devs[at].identity.Index
		id := gpu.Identity{Index: index, UUID: gpu.UUID(fmt.Sprintf("index-%d", index))}
		if len(free) == len(unplaced) {
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
