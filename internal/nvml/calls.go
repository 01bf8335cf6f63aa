package nvml

import (
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// callStats is what was seen of one call since the Library was made.
type callStats struct {
	duration gpu.Observer

	mu     sync.Mutex // guards errors
	errors map[string]uint64
}

func (s *callStats) count(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errors == nil {
		s.errors = map[string]uint64{}
	}
	s.errors[code]++
}

// Calls returns the duration and the errors of every call that was ever made, over all sessions, in the
// order of the guard table. It is safe for concurrent use. The duration of a call that only waits (for
// events) is empty.
func (l *Library) Calls() []gpu.CallStats {
	var list []gpu.CallStats
	for id := range l.stats {
		s := &l.stats[id]
		c := gpu.CallStats{Call: guards[id].name, Duration: s.duration.Snapshot()}
		s.mu.Lock()
		for code, n := range s.errors {
			c.Errors = append(c.Errors, gpu.CodeCount{Code: code, Count: n})
		}
		s.mu.Unlock()
		if c.Duration.Count == 0 && len(c.Errors) == 0 {
			continue
		}
		slices.SortFunc(c.Errors, func(a, b gpu.CodeCount) int {
			if a.Code < b.Code {
				return -1
			}
			return 1
		})
		list = append(list, c)
	}
	return list
}

// caller makes calls: the session, and each GPU, which adds its lock.
type caller interface {
	call(id callID, fn func() nvml.Return) nvml.Return
}

// call makes a call that belongs to no GPU.
func (s *Session) call(id callID, fn func() nvml.Return) nvml.Return { return s.do(id, false, fn) }

// do is the one path by which this package reaches the driver: it refuses what the library lacks and what
// comes after Close, times the rest and counts the errors. fn makes exactly the call that id names. asking
// marks a first try, of which an unknown argument is an answer and no error.
func (s *Session) do(id callID, asking bool, fn func() nvml.Return) nvml.Return {
	if !s.offers.have[id] {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	if !s.enter() {
		return nvml.ERROR_UNINITIALIZED
	}
	defer s.leave()
	// The real clock: a duration is how long the driver took, whatever time the exporter is told it is.
	start := time.Now()
	ret := fn()
	stats := &s.library.stats[id]
	if !guards[id].waits {
		stats.duration.Observe(time.Since(start).Seconds())
	}
	if !silent(ret) && (!asking || ret != nvml.ERROR_INVALID_ARGUMENT) {
		stats.count(codeName(ret))
	}
	return ret
}

// call makes a call on the GPU while holding its lock: the driver never gets two at once for one handle.
func (c *GPU) call(id callID, fn func() nvml.Return) nvml.Return {
	c.dev.busy.Lock()
	defer c.dev.busy.Unlock()
	return c.dev.session.do(id, c.asking, fn)
}

// get makes a call that returns one value.
func get[V any](c caller, id callID, fn func() (V, nvml.Return)) (value V, ret nvml.Return) {
	ret = c.call(id, func() (r nvml.Return) {
		value, r = fn()
		return r
	})
	return value, ret
}

// get2 makes a call that returns two values.
func get2[V, W any](c caller, id callID, fn func() (V, W, nvml.Return)) (v V, w W, ret nvml.Return) {
	ret = c.call(id, func() (r nvml.Return) {
		v, w, r = fn()
		return r
	})
	return v, w, ret
}
