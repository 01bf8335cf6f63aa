package sampler

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Run polls every fast interval, whatever a poll takes; a poll that takes longer is followed by a rest of a tenth of the interval.
func TestPaceOfRun(t *testing.T) {
	ms := time.Millisecond
	for delay, want := range map[time.Duration]time.Duration{0: 2 * second, 700 * ms: 2 * second, 1800 * ms: 2 * second,
		1900 * ms: 2100 * ms, 2500 * ms: 2700 * ms} {
		var at []time.Time
		d := newFake(t, 1)
		d.devs[0].delay = delay
		o := Options{Bound: 10 * second, Deadline: time.Hour, Medium: time.Hour, Slow: time.Hour,
			Published: func(*gpu.View) { at = append(at, time.Now()) }}
		bubble(t, d, o, func(s *stand) {
			runFor(s, func() { time.Sleep(time.Minute) })
			at = at[2:] // in the first all poll groups are read
			if len(at) < 8 {
				t.Fatalf("%d polls in a minute", len(at))
			}
			for i := range at[:7] {
				if got := at[i+1].Sub(at[i]); got != want {
					t.Errorf("polls of %v follow each other after %v, want %v", delay, got, want)
				}
			}
		})
	}
}

// Without a resolver, or before the first inventory, a change of allocations is no reason to poll.
func TestAllocationsChangedWithoutResolver(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		runFor(s, func() {
			time.Sleep(second)
			before := d.calls(0)
			s.AllocationsChanged()
			time.Sleep(500 * time.Millisecond)
			if d.calls(0) != before {
				t.Error("polled")
			}
		})
	})
}

// While Run runs, its listener waits for events, one wait after the other, and no poll does; Step polls them.
func TestWhoWaitsForEvents(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(3)
		if len(d.waits) != 3 {
			t.Errorf("%d polls of events in 3 steps", len(d.waits))
		}
		d.waits = nil
		runFor(s, func() { time.Sleep(10 * second) })
		for i := 1; i < len(d.waits); i++ {
			if gap := d.waits[i].Sub(d.waits[i-1]); gap != eventWait {
				t.Errorf("waits follow each other after %v", gap)
			}
		}
		if len(d.waits) < 24 {
			t.Errorf("%d waits in 10 s", len(d.waits))
		}
		d.waits = nil
		if s.step(2); len(d.waits) != 2 {
			t.Errorf("after Run %d polls of events in 2 steps", len(d.waits))
		}
	})
}

// A wait that returns at once is repeated every 200 ms, one that fails after ten seconds; the failure of one session counts once,
// that of the next one again. A panic is a failure, and counted. The end of a session is none.
func TestPaceOfEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*fakeDriver)
		gap    time.Duration
		errors uint64
		panics bool
	}{
		"returns at once":       {func(d *fakeDriver) { d.hasty = true }, idleWait, 0, false},
		"fails":                 {func(d *fakeDriver) { d.eventErr = errOdd }, errorWait, 1, false},
		"the session has ended": {func(d *fakeDriver) { d.eventErr = gpu.ErrUninitialized }, idleWait, 0, false},
		"panics":                {func(d *fakeDriver) { d.panics = "events" }, errorWait, 1, true},
	} {
		d := newFake(t, 1)
		bubble(t, d, Options{}, func(s *stand) {
			runFor(s, func() {
				time.Sleep(3 * second)
				d.with(func() { tt.change(d) })
				time.Sleep(second)
				d.with(func() { d.waits = nil })
				time.Sleep(60 * second)
				waits := d.waited()
				for i := 1; i < len(waits); i++ {
					if gap := waits[i].Sub(waits[i-1]); gap != tt.gap {
						t.Errorf("%s: waits follow each other after %v", name, gap)
					}
				}
				if n := int(60 * second / tt.gap); len(waits) < n-1 || len(waits) > n+1 {
					t.Errorf("%s: %d waits in a minute", name, len(waits))
				}
				src := s.source(gpu.SourceEvents)
				if src.Errors != tt.errors || src.Up != (tt.errors == 0) || (s.Latest().Panics.Or(0) > 0) != tt.panics {
					t.Errorf("%s: %+v, %v panics", name, src, s.Latest().Panics)
				}
				if name == "fails" {
					d.with(func() { d.devs[0].errs[pollFast] = gpu.ErrUninitialized })
					time.Sleep(3 * second)
					d.with(func() { d.devs[0].errs[pollFast] = nil })
					time.Sleep(20 * second)
					if n := s.source(gpu.SourceEvents).Errors; n != 2 {
						t.Errorf("%d errors in two sessions", n)
					}
				}
			})
		})
	}
}

// While there is no session the listener looks for one every 200 ms, and waits on it then.
func TestEventsOfALaterSession(t *testing.T) {
	d := newFake(t, 1)
	d.openErr = errOdd
	bubble(t, d, Options{}, func(s *stand) {
		runFor(s, func() {
			time.Sleep(3 * second)
			if n := len(d.waited()); n != 0 {
				t.Errorf("%d waits without a session", n)
			}
			d.with(func() { d.openErr = nil })
			for len(s.Latest().GPUs) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			opened := time.Now()
			time.Sleep(second)
			if waits := d.waited(); len(waits) == 0 || waits[0].Sub(opened) > idleWait {
				t.Errorf("waits %v after the session was opened", waits)
			}
		})
	})
}

// The end waits 0.6 s for calls in progress and 0.3 s for the driver to be shut down, and no longer than they take.
func TestEndOfRun(t *testing.T) {
	ms := time.Millisecond
	for name, tt := range map[string]struct {
		delay, closing time.Duration // of a call of a GPU, and of Close
		atLeast, most  time.Duration
		closed         bool
		line           string
	}{
		"nothing is in progress": {0, 0, 0, eventWait, true, ""},
		"a call":                 {450 * ms, 0, 400 * ms, 450 * ms, true, ""},
		"a call that hangs":      {time.Hour, 0, shutdownWait, shutdownWait, false, "driver call hangs: NVML is left initialized"},
		"Close hangs":            {0, time.Hour, closeWait, eventWait + closeWait, false, "NVML shutdown timed out"},
	} {
		world(t, 1, Options{Bound: 100 * ms, Fast: second}, func(s *stand, logged func(string) int) {
			var closing chan struct{}
			took := runFor(s, func() {
				time.Sleep(2*second - 10*ms)
				s.d.with(func() {
					s.d.devs[0].delay = tt.delay
					if tt.delay == time.Hour {
						s.d.devs[0].delay, s.d.devs[0].hang = 0, make(chan struct{})
					}
					if tt.closing > 0 {
						closing = make(chan struct{})
						s.d.hang["close"] = closing
					}
				})
				time.Sleep(30 * ms)
			})
			if took < tt.atLeast || took > tt.most {
				t.Errorf("%s: the end took %v", name, took)
			}
			s.d.mu.Lock()
			closed := s.d.closes == 1
			s.d.mu.Unlock()
			if closed != tt.closed {
				t.Errorf("%s: shut down %v", name, closed)
			}
			for _, line := range []string{"driver call hangs: NVML is left initialized", "NVML shutdown timed out"} {
				if n := logged(line); n != map[bool]int{true: 1}[line == tt.line] {
					t.Errorf("%s: %q logged %d times", name, line, n)
				}
			}
			if closing != nil {
				s.d.with(func() { delete(s.d.hang, "close") })
				close(closing)
				time.Sleep(second)
				for len(s.results) > 0 {
					s.apply(<-s.results)
				}
			}
		})
	}
}

// A session that was opened at the very end is shut down, too.
func TestEndWhileOpening(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		hang := make(chan struct{})
		d.hang["open"] = hang
		runFor(s, func() {
			time.Sleep(second)
			go func() {
				time.Sleep(300 * time.Millisecond)
				d.with(func() { delete(d.hang, "open") })
				close(hang)
			}()
		})
		if d.opens != 1 || d.closes != 1 || d.open {
			t.Errorf("opened %d, shut down %d times", d.opens, d.closes)
		}
	})
}

// The clock of the sampler is that of its caller: it never goes back, and no time between two polls is lost.
func TestAdvance(t *testing.T) {
	s := New(Options{})
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	got := ""
	for _, d := range []time.Duration{0, 2 * second, -second, second, time.Minute, time.Minute + 1, time.Hour} {
		at = at.Add(d)
		got += fmt.Sprint(s.advance(at), " ")
		if !s.now.Equal(at) {
			t.Errorf("now %v, want %v", s.now, at)
		}
	}
	if got != "0s 2s 0s 1s 1m0s 1m0.000000001s 1h0m0s " || s.clock != time.Hour+123*second+1 {
		t.Errorf("%s, clock %v", got, s.clock)
	}
}
