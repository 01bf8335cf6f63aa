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

// closeWait is how long Close waits for calls that are under way. It is longer than a wait for events.
const closeWait = 800 * time.Millisecond

// System returns what the driver said of itself at Open.
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

// Close lets the driver go. It waits up to 800 ms for calls that are under way; if one does not return, the
// error wraps ErrBusy, the driver is not shut down under it, and the next Open tries again. Close may be
// called more than once and while poll groups are read: what comes after it is answered gpu.ErrUninitialized.
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

// release shuts the driver down once no call is under way.
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
		return fmt.Errorf("shut NVML down: %w (%d of them)", ErrBusy, running)
	}
	// Nothing else can call now: closed is set and nobody is inside. The calls from here on go around
	// Session.call, which refuses, by way of last.
	for _, sample := range samples {
		_ = s.last(callGpmSampleFree, sample.Free)
	}
	if events != nil {
		_ = s.last(callEventSetFree, events.Free)
	}
	switch ret := s.last(callShutdown, s.nvml.Shutdown); ret {
	case nvml.SUCCESS, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED: // the latter two: it went before
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

// Scan lists the GPUs that the driver knows, by index. A GPU that was already found in this session and
// has not failed since is returned as it is, without a call; one that failed is asked again and, when it
// answers, returned as a new GPU. A GPU that cannot be read is in the list too, with the identity that can
// be had and its error (GPU.Err), so that it hides no other. The error is about the driver as a whole.
//
// Scan may run while poll groups are read; it waits for no GPU: one that is in the middle of a call is left alone.
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
		dev, err := s.GPUAt(index)
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

// gpuAt returns the GPU of an index, which does not change in a session: the one that is there while it
// works or a call on it has not returned, else a new one.
func (s *Session) GPUAt(index int) (*GPU, error) {
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
	handle, ret := get(s, callHandleByIndex, func() (nvml.Device, nvml.Return) { return s.nvml.DeviceGetHandleByIndex(index) }, index)
	if old != nil {
		d.busy.Unlock()
	}
	if ret != nvml.SUCCESS {
		err := failure(callHandleByIndex, ret, fmt.Sprintf("GPU %d", index))
		switch {
		case errors.Is(err, gpu.ErrUninitialized), errors.Is(err, gpu.ErrNoDriver), errors.Is(err, gpu.ErrVersionMismatch):
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

// newGPU finds out who a device is and makes it known to those who wait for events.
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

// identify gives the GPUs whose handle failed the identity that can be had. NVML counts GPUs in the order
// of the PCI bus, so if as many GPUs of the bus are unaccounted for as have failed, they are the same in
// the same order. Otherwise the index under which a GPU was first seen has to do.
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
