package sampler

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// updateStates sets the state of every GPU.
func (s *Sampler) updateStates() {
	for _, t := range s.devs {
		if t.pending && !t.hung && s.o.Watch().Sub(t.started) >= s.o.Deadline {
			t.hung = true
			s.errors++
			s.log.Error("driver call timed out; polling of this GPU suspended", "gpu", t.id.UUID, "deadline", s.o.Deadline)
		}
		t.fast.expire(s.clock, max(s.o.Fast, s.o.Deadline))
		t.medium.expire(s.clock, s.o.Medium)
		t.slow.expire(s.clock, s.o.Slow)
		t.state, t.message = s.stateOf(t)
		up := t.state == gpu.DeviceUp
		if !up {
			t.fast.value, t.medium.value, t.slow.value = gpu.None[*gpu.Fast](), gpu.None[*gpu.Medium](), gpu.None[*gpu.Slow]()
		}
		switch {
		case t.state == t.loggedState:
		case up && t.known:
			t.samplesSoon = s.clock + churn // until the first of them its time is unknown
			s.log.Info("GPU available", "gpu", t.id.UUID, "pci", t.id.PCI)
		case !up && (t.loggedState == gpu.DeviceUp || s.session.state == sessionOpen):
			s.log.Error("GPU unavailable", "gpu", t.id.UUID, "pci", t.id.PCI, "state", t.state, "err", t.message)
		}
		t.loggedState = t.state
	}
}

// stateOf returns the state of a GPU, and why it is not up.
func (s *Sampler) stateOf(t *tracked) (gpu.DeviceState, string) {
	onBus, detached := s.expected.has(t.id.PCI)
	switch {
	case t.hung:
		return gpu.DeviceFailed, fmt.Sprintf("hung for %s: a driver call timed out", s.o.Watch().Sub(t.started).Round(time.Second))
	case detached && (t.dev == nil || s.paused()):
		return gpu.DeviceDetached, "bound to another driver"
	case s.paused() && (t.dev != nil || onBus && s.pausedFor(reasonSuspend)) && t.lostErr == nil && t.failErr == nil:
		return gpu.DeviceUp, "suspended " + s.session.pause.words
	case s.session.state != sessionOpen && t.known:
		return gpu.DeviceFailed, "NVML is not available: " + s.session.message
	case t.dev == nil && onBus:
		return gpu.DeviceMissing, "on the PCI bus, but not listed by the driver; check its last XID and the kernel log"
	case t.dev == nil:
		return gpu.DeviceFailed, "no longer listed by the driver"
	case t.lostErr != nil:
		return gpu.DeviceFailed, t.lostErr.Error()
	case t.failErr != nil:
		return gpu.DeviceFailed, t.failErr.Error()
	case errors.Join(t.panicked[:]...) != nil:
		return gpu.DeviceFailed, errors.Join(t.panicked[:]...).Error()
	}
	return gpu.DeviceUp, ""
}

// failure classifies why a failed GPU cannot be read.
func (t *tracked) failure() gpu.Failure {
	switch {
	case t.hung:
		return gpu.FailureHung
	case errors.Is(t.lostErr, gpu.ErrLost):
		return gpu.FailureLost
	case errors.Is(t.lostErr, gpu.ErrResetRequired):
		return gpu.FailureReset
	}
	return gpu.FailureOther
}

// availability maps the state of a GPU to the ledger's.
func (t *tracked) availability(s *Sampler) account.Availability {
	switch {
	case t.state != gpu.DeviceUp:
		return account.Unavailable
	case s.paused():
		return account.Unread
	}
	return account.Readable
}

// expire drops a value that is too old: its poll group has not succeeded for three intervals.
func (l *pollGroup[T]) expire(clock, interval time.Duration) {
	if clock-l.succeeded > 3*interval {
		l.value = gpu.None[*T]()
	}
}

// ends reports whether an error concerns the whole GPU or driver.
func ends(err error) bool {
	return lost(err) || sessionEnded(err)
}

// lost reports whether an error means that the GPU is lost.
func lost(err error) bool {
	return errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrResetRequired)
}

// sessionEnded reports whether an error means that the session has ended.
func sessionEnded(err error) bool {
	return errors.Is(err, gpu.ErrUninitialized) || errors.Is(err, gpu.ErrVersionMismatch) ||
		errors.Is(err, gpu.ErrNoDriver)
}
