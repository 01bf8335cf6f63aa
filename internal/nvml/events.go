package nvml

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// ErrNoEvents is returned by WaitEvents where the driver has no events to wait for.
var ErrNoEvents = errors.New("driver without events")

// eventTypes are the events that are registered, of those that a GPU supports.
const eventTypes = uint64(nvml.EventTypeXidCriticalError)

// eventBatch is the maximum number of events of one WaitEvents.
const eventBatch = 256

// WaitEvents waits up to timeout for XIDs of any GPU that Scan has found, and returns all that occurred; none is no
// error. GPUs found while it waits are registered at the next call: earlier events of a GPU are not reported. An event
// names the GPU even if that was lost meanwhile.
//
// Call it from one goroutine. Close makes it return at the end of its timeout.
func (s *Session) WaitEvents(timeout time.Duration) ([]gpu.XIDEvent, error) {
	s.waiting.Lock()
	defer s.waiting.Unlock()
	select {
	case <-s.wake: // register looks anyway
	default:
	}
	defer s.lookAtBindings()
	set, some, err := s.register()
	if err != nil {
		return nil, err
	}
	if !some {
		// Without a GPU in the set the driver returns at once, and the caller would spin.
		return nil, s.pause(timeout)
	}
	var events []gpu.XIDEvent
	wait := timeout
	for range eventBatch {
		var data nvml.EventData
		ret := call(s, callEventSetWait, func() (r nvml.Return) {
			data, r = set.Wait(uint32(max(wait.Milliseconds(), 0)))
			return r
		})
		wait = 0
		switch {
		case ret == nvml.SUCCESS:
			if event, ok := s.event(data); ok {
				events = append(events, event)
			}
			continue
		case ret == nvml.ERROR_TIMEOUT, len(events) > 0:
			// The events must not be lost with an error that follows them; it occurs again at the next call.
			return events, nil
		case ret == nvml.ERROR_GPU_IS_LOST:
			return nil, s.dropLost(timeout)
		}
		return nil, failure(callEventSetWait, ret, "the driver")
	}
	return events, nil
}

// pause waits for as long as a wait for events would have.
func (s *Session) pause(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-s.wake:
	case <-timer.C:
	}
	if s.isClosed() {
		return fmt.Errorf("wait for events: %w", gpu.ErrUninitialized)
	}
	return nil
}

// dropLost handles the driver's error that a GPU of the set is lost, which it may repeat forever and at once. Once the
// poll groups have found which GPU it is, the set is recreated without it; until then it pauses.
func (s *Session) dropLost(timeout time.Duration) error {
	s.mu.Lock()
	set := s.events
	var stay []*device
	lost := 0
	for _, d := range s.byHandle {
		switch {
		case !d.listening:
		case d.dev.Err() != nil:
			lost++
		default:
			stay = append(stay, d)
		}
	}
	if lost == 0 || set == nil {
		s.mu.Unlock()
		return s.pause(timeout)
	}
	for _, d := range s.byHandle {
		d.registered, d.listening = false, false
	}
	s.events, s.pending = nil, stay
	s.mu.Unlock()
	_ = call(s, callEventSetFree, set.Free)
	// At once: events of the others before they are in the new set are lost.
	_, _, err := s.register()
	return err
}

// event converts the driver's event. XID 0 is no XID: other events arrive so.
func (s *Session) event(data nvml.EventData) (gpu.XIDEvent, bool) {
	if data.EventType != nvml.EventTypeXidCriticalError || data.EventData == 0 {
		return gpu.XIDEvent{}, false
	}
	e := gpu.XIDEvent{XID: int(data.EventData), Time: s.library.options.Clock(), Source: gpu.SourceNVML}
	e.GI, e.CI = instanceID(data.GpuInstanceId), instanceID(data.ComputeInstanceId)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byHandle[data.Device]; d != nil && d.dev != nil {
		// From the identity, not from the driver: a lost GPU cannot be read.
		e.GPU, e.PCI = d.dev.identity.UUID, d.dev.identity.PCI
	}
	return e, true
}

// register creates the event set and adds the GPUs that Scan has found since. A GPU with a running call is left for the
// next time. It reports whether any GPU is in the set.
func (s *Session) register() (nvml.EventSet, bool, error) {
	s.mu.Lock()
	set, pending := s.events, s.pending
	s.pending = nil
	s.mu.Unlock()
	if set == nil && len(pending) > 0 {
		made, ret := get(s, callEventSetCreate, s.nvml.EventSetCreate)
		if ret != nvml.SUCCESS {
			s.putBack(pending)
			if notOffered(ret) {
				return nil, false, fmt.Errorf("create an event set: %w", ErrNoEvents)
			}
			return nil, false, failure(callEventSetCreate, ret, "the driver")
		}
		set = made
		s.mu.Lock()
		s.events = set
		s.mu.Unlock()
	}
	for _, d := range pending {
		s.registerGPU(set, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("wait for events: %w", gpu.ErrUninitialized)
	}
	some := false
	for _, d := range s.byHandle {
		some = some || d.listening
	}
	return set, some, nil
}

func (s *Session) putBack(pending []*device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, pending...)
}

// registerGPU adds one GPU to the set, with those of our events that it supports.
func (s *Session) registerGPU(set nvml.EventSet, d *device) {
	if !d.busy.TryLock() {
		s.putBack([]*device{d})
		return
	}
	defer d.busy.Unlock()
	supported, ret := get(s, callSupportedEventTypes, d.handle.GetSupportedEventTypes)
	if ret == nvml.SUCCESS {
		if types := supported & eventTypes; types == 0 {
			ret = nvml.ERROR_NOT_SUPPORTED
		} else {
			ret = call(s, callDeviceRegisterEvents, func() nvml.Return { return d.handle.RegisterEvents(types, set) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A GPU that failed otherwise is tried again when Scan returns it as a new one.
	d.listening = ret == nvml.SUCCESS
	d.registered = d.listening || notOffered(ret)
	if !d.listening {
		s.library.log.Info("GPU without events, its XIDs are only in the kernel log", "gpu", d.dev.identity.UUID, "code", codeName(ret))
	}
}

// version1 and its size are the version of a request (NVML_STRUCT_VERSION).
const version1 = 1 << 24

// watchBindings creates the set of system events: what happened before is not reported. A driver before R560 has none.
func (s *Session) watchBindings() {
	create := &nvml.SystemEventSetCreateRequest{Version: version1 | 16}
	ret := call(s, callSystemEventSetCreate, func() nvml.Return { return s.nvml.SystemEventSetCreate(create) })
	if ret == nvml.SUCCESS {
		register := &nvml.SystemRegisterEventRequest{Version: version1 | 24, Set: create.Set,
			EventTypes: nvml.SystemEventTypeGpuDriverUnbind | nvml.SystemEventTypeGpuDriverBind}
		s.bindings = &nvml.SystemEventSetFreeRequest{Version: version1 | 16, Set: create.Set}
		ret = call(s, callSystemRegisterEvents, func() nvml.Return { return s.nvml.SystemRegisterEvents(register) })
	}
	s.keepBindings(ret)
}

// keepBindings ends the watch of a driver that refuses it: each wait would be an error more.
func (s *Session) keepBindings(ret nvml.Return) {
	if s.watching = ret == nvml.SUCCESS || ret == nvml.ERROR_TIMEOUT; !s.watching && ret != nvml.ERROR_UNINITIALIZED {
		s.library.log.Info("driver does not report that a GPU is unbound (R560 and newer do)", "code", codeName(ret))
	}
}

// lookAtBindings receives what happened since the last call.
func (s *Session) lookAtBindings() {
	var data [4]nvml.SystemEventData_v1
	var pinned runtime.Pinner // the request, which C reads, points to it
	pinned.Pin(&data[0])
	defer pinned.Unpin()
	for range eventBatch {
		if !s.watching {
			return
		}
		wait := &nvml.SystemEventSetWaitRequest{Version: version1 | 32, Set: s.bindings.Set, Data: &data[0], DataSize: uint32(len(data))}
		ret := call(s, callSystemEventSetWait, func() nvml.Return { return s.nvml.SystemEventSetWait(wait) })
		if ret != nvml.SUCCESS && ret != nvml.ERROR_INSUFFICIENT_SIZE {
			s.keepBindings(ret)
			return
		}
		s.mu.Lock()
		for _, e := range data[:min(int(wait.NumEvent), len(data))] {
			s.unbound = s.unbound || e.EventType == nvml.SystemEventTypeGpuDriverUnbind
			s.bound = s.bound || e.EventType == nvml.SystemEventTypeGpuDriverBind
		}
		s.mu.Unlock()
	}
}

// Bindings reports whether WaitEvents has received since the last call that a GPU is being unbound from the driver, which
// waits until nobody has it open, and that one was bound to it.
func (s *Session) Bindings() (unbound, bound bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unbound, bound, s.unbound, s.bound = s.unbound, s.bound, false, false
	return unbound, bound
}
