package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// hands are a machine's two clocks. The wall clock is the scenario's, until somebody sets it; the monotonic one, by
// which Go compares times, stands still while the machine is suspended and is not set by anybody. Its methods are
// safe for concurrent use.
type hands struct {
	control *scenario.Control
	base    time.Time
	mu      sync.Mutex
	offset  time.Duration // of the wall clock, since it was set
	slept   time.Duration
}

func newHands(t *testing.T, c *scenario.Control) *hands {
	t.Helper()
	h := &hands{control: c, base: time.Now()}
	a := h.now()
	h.set(-time.Hour)
	c.Advance(3 * time.Second)
	b := h.now()
	h.set(time.Hour)
	if d := b.Sub(a); d != 3*time.Second || !b.Round(0).Equal(a.Round(0).Add(3*time.Second-time.Hour)) {
		t.Fatalf("the hands do not go apart: by one clock %v went by, the other went from %v to %v", d, a, b)
	}
	c.Set(0)
	return h
}

// set moves the wall clock, as an administrator does.
func (h *hands) set(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset += by
}

// sleep suspends the machine.
func (h *hands) sleep(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slept += d
	h.control.Advance(d)
}

// awake is the monotonic clock.
func (h *hands) awake() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.control.Now() - h.slept
}

// now is what time.Now would return: a time with both clocks in it. Only the runtime makes such times with clocks
// that differ; so its layout is written to, and the test begins by trying that.
func (h *hands) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.base.Add(h.control.Now() - h.slept)
	wall := h.control.Time().Add(h.offset)
	const (
		hasMonotonic = 1 << 63
		secondsAt    = 30
		year1885     = (1884*365 + 1884/4 - 1884/100 + 1884/400) * 86400
		year1970     = (1969*365 + 1969/4 - 1969/100 + 1969/400) * 86400
	)
	word := (*uint64)(unsafe.Pointer(&t))
	*word = hasMonotonic | uint64(wall.Unix()+year1970-year1885)<<secondsAt | uint64(wall.Nanosecond())
	return t
}

// doorman ends the waits of the sampler when all driver calls in progress hang. So a call that hangs costs no real time, and
// one that is only slow is waited for, whatever the load. It also knows which calls are inside the guarded driver.
type doorman struct {
	control *scenario.Control
	watch   func() time.Duration
	devs    map[gpu.UUID]int

	inside atomic.Int64
	start  [scenario.MaxGPUs]atomic.Int64 // when the call on a GPU began; 0: none

	mu    sync.Mutex
	calls int            // in progress
	bell  chan time.Time // of the present wait; nil: it has rung
}

// hung is the sampler's Options.Hung.
func (d *doorman) hung(calls int) <-chan time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.bell = calls, make(chan time.Time)
	return d.bell
}

// attend rings until done is closed.
func (d *doorman) attend(done <-chan struct{}) {
	update := time.NewTicker(500 * time.Microsecond)
	defer update.Stop()
	for {
		select {
		case <-done:
			return
		case <-update.C:
		}
		d.mu.Lock()
		if d.bell != nil && d.control.Hanging() == d.calls {
			close(d.bell)
			d.bell = nil
		}
		d.mu.Unlock()
	}
}

// hungFor is for how long the call on a GPU has been inside.
func (d *doorman) hungFor(dev int) time.Duration {
	if start := d.start[dev].Load(); start != 0 {
		return d.watch() - time.Duration(start-1)
	}
	return 0
}

// guarded is a driver that the doorman attends to. The functions are seams for mistakes; nil: none.
type guarded struct {
	sampler.Driver
	door *doorman
	plan *plant
}

func (g guarded) Open() (sampler.Session, error) {
	g.door.inside.Add(1)
	defer g.door.inside.Add(-1)
	s, err := g.Driver.Open()
	err = g.plan.open(err)
	if err != nil {
		return nil, err
	}
	return guardedSession{s, g.door, g.plan}, nil
}

type guardedSession struct {
	sampler.Session
	door *doorman
	plan *plant
}

func (g guardedSession) Scan() ([]sampler.GPU, error) {
	g.door.inside.Add(1)
	defer g.door.inside.Add(-1)
	devs, err := g.Session.Scan()
	g.plan.devs = devs
	out := make([]sampler.GPU, len(devs))
	for i, c := range devs {
		out[i] = guardedGPU{c, g.door, g.plan, g.plan.named(g.plan.found(c.Identity()))}
	}
	return out, err
}

func (g guardedSession) WaitEvents(timeout time.Duration) ([]gpu.XIDEvent, error) {
	g.door.inside.Add(1)
	defer g.door.inside.Add(-1)
	events, err := g.Session.WaitEvents(timeout)
	for i := range events {
		id := g.plan.found(gpu.Identity{UUID: events[i].GPU, PCI: events[i].PCI})
		events[i].GPU, events[i].PCI = id.UUID, id.PCI
	}
	if g.plan.taken() {
		events = nil
	}
	return g.plan.events(events), err
}

func (g guardedSession) Close() error {
	g.door.inside.Add(1)
	defer g.door.inside.Add(-1)
	return g.Session.Close()
}

type guardedGPU struct {
	sampler.GPU
	door *doorman
	plan *plant
	id   gpu.Identity
}

func (g guardedGPU) Identity() gpu.Identity { return g.id }

func (g guardedGPU) enter() func() {
	g.door.inside.Add(1)
	i, known := g.door.devs[g.Identity().UUID]
	if known {
		g.door.start[i].Store(int64(g.door.watch()) + 1)
	}
	return func() {
		if known {
			g.door.start[i].Store(0)
		}
		g.door.inside.Add(-1)
	}
}

func (g guardedGPU) Fast(samples bool) (gpu.Fast, error) {
	defer g.enter()()
	f, err := g.GPU.Fast(samples)
	g.plan.sick(g.Identity(), &f)
	return g.plan.fast(g.Identity(), f, err)
}

func (g guardedGPU) Medium() (gpu.Medium, error) {
	defer g.enter()()
	m, err := g.GPU.Medium()
	return g.plan.medium(g.Identity(), m, err)
}

func (g guardedGPU) Slow() (gpu.Slow, error) {
	defer g.enter()()
	return g.GPU.Slow()
}
