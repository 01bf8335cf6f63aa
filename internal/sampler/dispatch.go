package sampler

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// do reads the poll groups, cheapest first. It stops at an error of the whole GPU or driver.
func (j job) do(watch func() time.Time) *reading {
	a := &reading{job: j}
	for i, read := range []func() error{
		func() (err error) { a.fast = new(gpu.Fast); *a.fast, err = j.from.Fast(j.samples); return err },
		func() (err error) { a.medium = new(gpu.Medium); *a.medium, err = j.from.Medium(); return err },
		func() (err error) { a.slow = new(gpu.Slow); *a.slow, err = j.from.Slow(); return err },
	} {
		if !j.pollGroups[i] {
			continue
		}
		started := watch()
		a.errs[i] = gpu.Recovered(read)
		a.durations[i], a.attempted[i] = watch().Sub(started), true
		if ends(a.errs[i]) {
			return a
		}
	}
	if a.attempted[pollSlow] {
		a.notOffered, a.renewed = j.from.NotOffered(), true
	}
	return a
}

// dispatch starts the reads that are due, one goroutine per GPU, none for a GPU whose last one is in progress, or was received
// in this poll: it is accounted for before the next one.
func (s *Sampler) dispatch() {
	if s.session.state != sessionOpen || s.session.intent != intentNone && !s.hangs() {
		return // NVML is shut down as soon as no call is in progress
	}
	slack := s.o.Fast / 2
	for _, t := range s.devs {
		if t.dev == nil || t.pending || t.lostErr != nil || t.freshFast {
			continue
		}
		j := job{dev: t, from: t.dev}
		j.pollGroups[pollFast] = true
		j.samples = t.fast.due || s.clock-t.sampledAt >= t.samplesEvery-slack || s.clock <= t.samplesSoon
		j.pollGroups[pollMedium] = t.medium.dueAt(s.clock, s.o.Medium-slack)
		j.pollGroups[pollSlow] = t.slow.dueAt(s.clock, s.o.Slow-slack)
		t.pending, t.started = true, s.o.Watch()
		go func() { s.readings <- j.do(s.o.Watch) }()
	}
}

func (l *pollGroup[T]) dueAt(clock, interval time.Duration) bool {
	return l.due || !l.tried || clock-l.read >= interval
}

// collect receives results until all GPUs that are not hung have delivered, or the limit is over.
func (s *Sampler) collect(limit *waitLimit) {
	for s.awaited() && !limit.over {
		select {
		case a := <-s.readings:
			s.accept(a)
		case <-limit.c():
			limit.end()
		case <-s.quit:
			limit.end()
		}
	}
	s.drain()
}

// awaited reports whether a result of some GPU is worth waiting for.
func (s *Sampler) awaited() bool {
	return slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.pending && !t.hung })
}

// drain receives the results that are available.
func (s *Sampler) drain() {
	for {
		select {
		case a := <-s.readings:
			s.accept(a)
		default:
			return
		}
	}
}

// settle receives the results of calls that hung and return, where a test knows which ones hang on.
func (s *Sampler) settle() {
	for s.o.Hung != nil && s.busy() {
		select {
		case a := <-s.readings:
			s.accept(a)
		case r := <-s.results:
			s.apply(r)
		case <-s.o.Hung(s.calls()):
			return
		}
	}
}

// busy reports whether a driver call is in progress.
func (s *Sampler) busy() bool { return s.calls() > 0 }

// hangs reports whether a driver call hangs, so that NVML cannot be shut down.
func (s *Sampler) hangs() bool {
	return s.session.op != "" && s.o.Watch().Sub(s.session.opStarted) >= s.o.Deadline ||
		slices.ContainsFunc(s.devs, func(t *tracked) bool { return t.hung })
}
