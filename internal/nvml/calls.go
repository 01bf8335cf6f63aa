package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Calls returns the duration and the errors of every call, over all sessions, in the order of the call table. It is
// safe for concurrent use. The duration of a call that only waits (for events) is empty.
func (l *Library) Calls() []gpu.CallStats {
	var list []gpu.CallStats
	for id := range l.stats {
		s := &l.stats[id]
		c := gpu.CallStats{Call: guards[id].name, PollGroup: guards[id].group, Duration: s.duration.Snapshot()}
		s.mu.Lock()
		for code, n := range s.errors {
			c.Errors = append(c.Errors, gpu.CodeCount{Code: code, Count: n})
		}
		s.mu.Unlock()
		if c.Duration.Count == 0 && len(c.Errors) == 0 {
			continue
		}
		gpu.Sort(c.Errors, func(a, b gpu.CodeCount) int {
			if a.Code < b.Code {
				return -1
			}
			return 1
		})
		list = append(list, c)
	}
	return list
}

// do makes a call that belongs to no GPU.
func (s *Session) do(r request) nvml.Return { return s.make(-1, r) }

// make is the one path by which this package reaches the driver: it refuses what the library lacks and what
// comes after Close, times the rest, counts the errors and writes the journal.
func (s *Session) make(gpuIndex int, r request) (ret nvml.Return) {
	id := r.id
	var took time.Duration
	if j := s.library.options.Journal; j != nil {
		defer func() {
			args := make([]int64, len(r.args))
			for i, a := range r.args {
				args[i] = int64(a)
			}
			j.Add(gpuIndex, guards[id].name, args, codeName(ret), journaled(id, r.value), took)
		}()
	}
	if !s.offers.have[id] {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	if !s.enter() {
		return nvml.ERROR_UNINITIALIZED
	}
	defer s.leave()
	// The real clock, not Options.Clock: it measures the driver.
	start := time.Now()
	if intercept := s.library.options.Intercept; intercept != nil {
		ret = nvml.Return(intercept(gpuIndex, guards[id].name, r.args, r.value, func() int32 { return int32(r.run()) }))
	} else {
		ret = r.run()
	}
	took = time.Since(start)
	stats := &s.library.stats[id]
	if !guards[id].waits {
		stats.duration.Observe(took.Seconds())
	}
	if !silent(ret) && (!r.probing || ret != nvml.ERROR_INVALID_ARGUMENT) {
		stats.count(codeName(ret))
	}
	return ret
}

// do makes a call on the GPU while holding its lock: the driver never gets two at once for one handle.
func (c *GPU) do(r request) nvml.Return {
	c.dev.busy.Lock()
	defer c.dev.busy.Unlock()
	r.probing = c.probing
	return c.dev.session.make(c.identity.Index, r)
}

// get makes a call that returns one value.
func get[V any](c caller, id callID, fn func() (V, nvml.Return), args ...int) (value V, ret nvml.Return) {
	ret = c.do(request{id: id, args: args, value: &value, run: func() (r nvml.Return) {
		value, r = fn()
		return r
	}})
	return value, ret
}

// get2 makes a call that returns two values.
func get2[V, W any](c caller, id callID, fn func() (V, W, nvml.Return), args ...int) (v V, w W, ret nvml.Return) {
	var p pair[V, W]
	ret = c.do(request{id: id, args: args, value: &p, run: func() (r nvml.Return) {
		p.first, p.second, r = fn()
		return r
	}})
	return p.first, p.second, ret
}

// call makes a call that returns only a code.
func call(c caller, id callID, fn func() nvml.Return, args ...int) nvml.Return {
	return c.do(request{id: id, args: args, run: fn})
}

// enter counts a call; it refuses after Close.
func (s *Session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running++
	return true
}

func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 && s.idle != nil {
		close(s.idle) // it is the last: no call begins after Close
	}
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
