package sampler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const second = time.Second

// Options that are not set, or not positive, have the documented defaults. A poll waits for results no longer than Bound.
func TestDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		o                  Options
		fast, medium, slow time.Duration
		bound              time.Duration // duration of a poll while a GPU hangs
	}{
		"none":     {Options{}, 2 * second, 10 * second, time.Minute, second},
		"negative": {Options{Fast: -1, Medium: -1, Slow: -1, Deadline: -1, Bound: -1}, 2 * second, 10 * second, time.Minute, second},
		"short":    {Options{Fast: 400 * time.Millisecond}, 400 * time.Millisecond, 10 * second, time.Minute, 200 * time.Millisecond},
		"set": {Options{Fast: 4 * second, Medium: 5 * second, Slow: 6 * second, Bound: 300 * time.Millisecond},
			4 * second, 5 * second, 6 * second, 300 * time.Millisecond},
	} {
		d := newFake(t, 1)
		bubble(t, d, tt.o, func(s *stand) {
			s.Step(time.Now())
			want := []gpu.PollHealth{{PollGroup: gpu.PollFast, Interval: tt.fast}, {PollGroup: gpu.PollMedium, Interval: tt.medium},
				{PollGroup: gpu.PollSlow, Interval: tt.slow}}
			if got := s.Latest().PollGroups; !slices.EqualFunc(got, want, func(a, b gpu.PollHealth) bool {
				return a.PollGroup == b.PollGroup && a.Interval == b.Interval
			}) {
				t.Errorf("%s: %+v", name, got)
			}
			d.with(func() { d.devs[0].hang = make(chan struct{}) })
			time.Sleep(tt.fast)
			started := time.Now()
			if s.Step(started); time.Since(started) != tt.bound {
				t.Errorf("%s: a poll waits %v, want %v", name, time.Since(started), tt.bound)
			}
		})
	}
}

// A slower poll group is due in the poll that is nearest to its interval: half a fast interval before is not too early. With polls
// every 2 s the polls in which it is read, of the first 24 s.
func TestWhenPollGroupsAreDue(t *testing.T) {
	for _, tt := range []struct {
		interval time.Duration
		want     string
	}{
		{second, "[0 2 4 6 8 10 12 14 16 18 20 22 24]"},
		{3 * second, "[0 2 4 6 8 10 12 14 16 18 20 22 24]"},
		{3*second + 1, "[0 4 8 12 16 20 24]"},
		{5 * second, "[0 4 8 12 16 20 24]"},
		{6 * second, "[0 6 12 18 24]"},
		{7*second + 1, "[0 8 16 24]"},
		{10 * second, "[0 10 20]"},
		{25 * second, "[0 24]"},
		{26 * second, "[0]"},
	} {
		for group, o := range map[int]Options{pollMedium: {Medium: tt.interval, Slow: time.Hour},
			pollSlow: {Slow: tt.interval, Medium: time.Hour}} {
			d := newFake(t, 1)
			bubble(t, d, o, func(s *stand) {
				var at []int
				for i := range 13 {
					before := d.calls(0)[group]
					if s.Step(time.Now()); d.calls(0)[group] != before {
						at = append(at, 2*i)
					}
					time.Sleep(2 * second)
				}
				if got := fmt.Sprint(at); got != tt.want {
					t.Errorf("group %d every %v: read at %s, want %s", group, tt.interval, got, tt.want)
				}
			})
		}
	}
}

// A failed poll group is tried again at its interval, not in the next poll.
func TestFailedPollGroupKeepsItsInterval(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].errs = [3]error{nil, errOdd, errOdd}
	bubble(t, d, Options{}, func(s *stand) {
		if s.step(31); d.calls(0) != [3]int{31, 7, 2} {
			t.Errorf("%v calls in a minute, want 31, 7, 2", d.calls(0))
		}
	})
}

// stubGPU returns one error per poll group and counts the calls; each call takes a second of the test's clock.
type stubGPU struct {
	errs  [3]error
	calls []int
	now   *time.Time
}

func (g *stubGPU) call(group int) error {
	g.calls = append(g.calls, group)
	*g.now = g.now.Add(time.Duration(group+1) * second)
	return g.errs[group]
}

func (g *stubGPU) Identity() gpu.Identity      { return gpu.Identity{} }
func (g *stubGPU) Fast(bool) (gpu.Fast, error) { return gpu.Fast{}, g.call(pollFast) }
func (g *stubGPU) Medium() (gpu.Medium, error) { return gpu.Medium{}, g.call(pollMedium) }
func (g *stubGPU) Slow() (gpu.Slow, error)     { return gpu.Slow{}, g.call(pollSlow) }
func (g *stubGPU) NotOffered() []string        { return []string{"fan_speed"} }
func wrapped(err error) error                  { return fmt.Errorf("read: %w", err) }
func none[T any]() (o gpu.Opt[T])              { return o }
func errorTexts(errs [3]error) (out [3]string) {
	for i, err := range errs {
		out[i] = fmt.Sprint(err)
	}
	return out
}

// A job reads the poll groups that are due, cheapest first, and stops at an error of the whole GPU or driver alone. What is not
// offered is asked after the slow poll group.
func TestJob(t *testing.T) {
	for name, tt := range map[string]struct {
		due     [3]bool
		errs    [3]error
		calls   []int
		renewed bool
	}{
		"all":                    {[3]bool{true, true, true}, [3]error{}, []int{0, 1, 2}, true},
		"fast":                   {[3]bool{true, false, false}, [3]error{}, []int{0}, false},
		"fast and slow":          {[3]bool{true, false, true}, [3]error{}, []int{0, 2}, true},
		"a failure goes on":      {[3]bool{true, true, true}, [3]error{errOdd, errOdd, errOdd}, []int{0, 1, 2}, true},
		"lost":                   {[3]bool{true, true, true}, [3]error{wrapped(gpu.ErrLost)}, []int{0}, false},
		"reset required":         {[3]bool{true, true, true}, [3]error{nil, wrapped(gpu.ErrResetRequired)}, []int{0, 1}, false},
		"uninitialized":          {[3]bool{true, true, true}, [3]error{wrapped(gpu.ErrUninitialized)}, []int{0}, false},
		"another driver version": {[3]bool{true, true, true}, [3]error{wrapped(gpu.ErrVersionMismatch)}, []int{0}, false},
		"no driver":              {[3]bool{true, true, true}, [3]error{nil, wrapped(gpu.ErrNoDriver)}, []int{0, 1}, false},
		"lost at the end":        {[3]bool{true, true, true}, [3]error{nil, nil, gpu.ErrLost}, []int{0, 1, 2}, false},
	} {
		now := time.Unix(0, 0)
		g := &stubGPU{errs: tt.errs, now: &now}
		a := job{from: g, pollGroups: tt.due}.do(func() time.Time { return now })
		if !slices.Equal(g.calls, tt.calls) || a.renewed != tt.renewed || (len(a.notOffered) == 1) != tt.renewed {
			t.Errorf("%s: calls %v, not offered %v", name, g.calls, a.notOffered)
		}
		if errorTexts(a.errs) != errorTexts(tt.errs) {
			t.Errorf("%s: errors %v", name, a.errs)
		}
		for group := range 3 {
			called := slices.Contains(tt.calls, group)
			want := map[bool]time.Duration{true: time.Duration(group+1) * second}[called]
			if a.attempted[group] != called || a.durations[group] != want {
				t.Errorf("%s: group %d attempted %v, took %v", name, group, a.attempted[group], a.durations[group])
			}
		}
	}
}

// The interval of the fast poll group and of reads of the ring follow its depth: half of it may pass between two reads. Hand
// computed: a ring of D seconds allows an interval of D/2, of 0.5 s at least, and reads in every n-th poll, n·interval <= D/2, n <= 3.
func TestRingDepth(t *testing.T) {
	const ms, sixth = time.Millisecond, 166_667 * time.Microsecond
	for _, tt := range []struct {
		fast, depth, period time.Duration
		interval, every     time.Duration // every: between two reads of the ring, 0: in every poll
		short               bool          // fewer than 60 samples: the depth is known after 20 s
	}{
		{2 * second, 14400 * ms, 200 * ms, 2 * second, 6 * second, false}, // the H200's
		{2 * second, 71 * sixth, sixth, 2 * second, 4 * second, false},    // 72 samples of a sixth of a second, as under R545
		{2 * second, 99 * sixth, sixth, 2 * second, 6 * second, false},    // 100 of them, as under drivers up to 430
		{2 * second, 12 * second, 100 * ms, 2 * second, 6 * second, false},
		{2 * second, 11900 * ms, 100 * ms, 2 * second, 4 * second, false},
		{2 * second, 8 * second, 100 * ms, 2 * second, 4 * second, false},
		{2 * second, 7900 * ms, 100 * ms, 2 * second, 0, false},
		{2 * second, 4 * second, 50 * ms, 2 * second, 0, false},
		{2 * second, 3 * second, 25 * ms, 1500 * ms, 0, false},
		{2 * second, 600 * ms, 5 * ms, 500 * ms, 0, false},
		{300 * ms, 400 * ms, 4 * ms, 300 * ms, 0, false}, // never longer than configured
		{second, 14400 * ms, 200 * ms, second, 3 * second, false},
		{10 * second, 14400 * ms, 200 * ms, 7200 * ms, 0, false},
		{2 * second, 10 * second, 200 * ms, 2 * second, 4 * second, true},
		{2 * second, 900 * ms, 100 * ms, 500 * ms, 0, true}, // a ring of 10 samples
	} {
		world(t, 1, Options{Fast: tt.fast}, func(s *stand, logged func(string) int) {
			c := s.d.devs[0]
			c.depth, c.period = tt.depth, tt.period
			if s.Step(time.Now()); tt.short {
				if dev := s.devs[0]; s.fast != tt.fast || dev.samplesEvery != 0 {
					t.Errorf("ring of %v with few samples: %v, %v", tt.depth, s.fast, dev.samplesEvery)
				}
				time.Sleep(20 * second)
				s.Step(time.Now())
			}
			if n := logged("fast poll interval reduced"); (n == 1) != (tt.interval < tt.fast) {
				t.Errorf("every %v, ring of %v: %d lines", tt.fast, tt.depth, n)
			}
			dev := s.devs[0]
			if s.fast.Round(ms) != tt.interval || dev.samplesEvery != tt.every {
				t.Errorf("every %v, ring of %v: interval %v, ring every %v, want %v, %v", tt.fast, tt.depth, s.fast, dev.samplesEvery,
					tt.interval, tt.every)
			}
			// Measured once: a later read returns what is new, which is no depth.
			c.depth = 200 * ms
			time.Sleep(tt.fast)
			if s.Step(time.Now()); s.fast.Round(ms) != tt.interval || dev.samplesEvery != tt.every {
				t.Errorf("measured again: %v, %v", s.fast, dev.samplesEvery)
			}
		})
	}
}

// After the start a deep ring is read in every poll for ten seconds, then in every third. A change of an allocation, or a process
// that begins, makes that of its own GPU alone due. Polls of two seconds; 1 is one in which the ring is read.
func TestWhichPollsReadTheRing(t *testing.T) {
	type change = func(r *fakeResolver, c *fakeGPU)
	for name, tt := range map[string]struct {
		change    change // before the 13th poll
		own, next string // the polls from the first, of the GPU and of its neighbor
	}{
		"nothing":    {func(*fakeResolver, *fakeGPU) {}, "1111110010010010010010", "1111110010010010010010"},
		"allocation": {func(r *fakeResolver, _ *fakeGPU) { r.h.List = r.h.List[1:] }, "1111110010011111110010", "1111110010010010010010"},
		"account": {func(_ *fakeResolver, c *fakeGPU) { c.accounts = gpu.Some([]gpu.ProcessAccount{{PID: 8, New: true}}) },
			"1111110010010011111100", "1111110010010010010010"},
		"no ring in one read": {func(_ *fakeResolver, c *fakeGPU) { c.noRing = true }, "1111110010010011111111",
			"1111110010010010010010"},
	} {
		d := newFake(t, 2)
		for _, c := range d.devs {
			c.depth, c.period, c.util = 14400*time.Millisecond, 200*time.Millisecond, 1
		}
		r := &fakeResolver{h: gpu.Allocations{Known: true, List: []gpu.Allocation{holdsWhole("a", "GPU-0"), holdsWhole("b", "GPU-1")}}}
		users := &fakeUsers{names: map[int]string{8: "a"}, attempted: map[int]int{}}
		bubble(t, d, Options{Resolver: r, Users: users}, func(s *stand) {
			var got [2]string
			for i := range 22 {
				if i == 12 {
					tt.change(r, d.devs[0])
				}
				before := [2]int{d.devs[0].rings, d.devs[1].rings}
				s.Step(time.Now())
				for g, c := range d.devs {
					got[g] += fmt.Sprint(c.rings - before[g])
				}
				time.Sleep(2 * second)
			}
			if got != [2]string{tt.own, tt.next} {
				t.Errorf("%s: %v, want %v", name, got, [2]string{tt.own, tt.next})
			}
		})
	}
}

// A poll that comes early, or late, reads the ring if that is due within half a poll: here every 6 s, from 5 s on.
func TestRingOfAnUnevenPoll(t *testing.T) {
	for after, want := range map[time.Duration]int{4999 * time.Millisecond: 0, 5 * second: 1, 5001 * time.Millisecond: 1} {
		d := newFake(t, 1)
		d.devs[0].depth, d.devs[0].period = 14400*time.Millisecond, 200*time.Millisecond
		bubble(t, d, Options{}, func(s *stand) {
			for range 8 {
				s.Step(time.Now())
				time.Sleep(2 * second)
			}
			before := d.devs[0].rings
			if s.Step(time.Now()); d.devs[0].rings != before+1 {
				t.Fatalf("%d reads of the ring at 16 s", d.devs[0].rings-before)
			}
			time.Sleep(after)
			if s.Step(time.Now()); d.devs[0].rings != before+1+want {
				t.Errorf("after %v: %d reads of the ring, want %d", after, d.devs[0].rings-before-1, want)
			}
		})
	}
}

// What a job returns after its GPU hung was read at an unknown time before: it is not used, and all poll groups are read again.
func TestWhatAHungJobReturns(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		hang := make(chan struct{})
		d.with(func() { d.devs[0].hang, d.devs[0].power = hang, 777 })
		s.step(10)
		before := s.dev(0).LastRead[gpu.PollFast]
		d.with(func() { d.devs[0].hang = nil })
		close(hang)
		synctest.Wait()
		s.drain()
		if c := s.devs[0]; c.hung || c.pending || c.fast.value.Present() || !c.fast.at.Equal(before) || c.freshFast ||
			!c.medium.due || !c.slow.due {
			t.Errorf("after the hung job: %+v", c)
		}
		calls := d.calls(0)
		s.step(1)
		if got := d.calls(0); got != [3]int{calls[0] + 1, calls[1] + 1, calls[2] + 1} {
			t.Errorf("calls %v after %v", got, calls)
		}
		if f := s.dev(0).Fast.Or(&gpu.Fast{}); f.Power != gpu.Some(gpu.Watts(777)) {
			t.Errorf("power %v", f.Power)
		}
	})
	// The same where the process was stopped meanwhile, so that nothing saw it hang.
	d = newFake(t, 1)
	bubble(t, d, Options{Bound: 1}, func(s *stand) {
		s.step(2)
		hang := make(chan struct{})
		d.with(func() { d.devs[0].hang = hang })
		s.step(1)
		before := s.devs[0].fast.at
		time.Sleep(90 * second)
		d.with(func() { d.devs[0].hang = nil })
		close(hang)
		synctest.Wait()
		s.drain()
		if c := s.devs[0]; c.pending || !c.fast.at.Equal(before) || c.freshFast || !c.medium.due || !c.slow.due {
			t.Errorf("after a stop: %+v", c)
		}
	})
	// An error counts all the same: that of one poll group, and that of the GPU.
	d = newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		hang := make(chan struct{})
		d.with(func() { d.devs[0].hang, d.devs[0].errs[pollFast] = hang, errOdd })
		s.step(10)
		before := s.source(gpu.SourceNVML).Errors
		d.with(func() { d.devs[0].hang = nil })
		close(hang)
		synctest.Wait()
		if s.drain(); s.devs[0].fast.failures != 1 || s.errors != before+1 {
			t.Errorf("%d failures, %d errors", s.devs[0].fast.failures, s.errors-before)
		}
	})
	d = newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		hang := make(chan struct{})
		d.with(func() { d.devs[0].hang, d.devs[0].err = hang, gpu.ErrLost })
		s.step(10)
		d.with(func() { d.devs[0].hang = nil })
		close(hang)
		synctest.Wait()
		if s.step(1); s.dev(0).State != gpu.DeviceFailed || s.dev(0).Failure != gpu.FailureLost {
			t.Errorf("%s %q", s.dev(0).State, s.dev(0).Failure)
		}
	})
}

// A read that takes longer than a poll waits, and is not hung, is accounted for once it returns, before the next one: what its ring
// covers is observed, and without a ring no more than five seconds are. Nothing else is.
func TestALateReadIsAccounted(t *testing.T) {
	for name, tt := range map[string]struct {
		ring     bool
		observed float64
	}{
		"ring": {true, 24},  // all of it
		"rate": {false, 15}, // 2 + 2, then 5 of 14, then 2 + 2 + 2
	} {
		d := newFake(t, 1)
		c := d.devs[0]
		c.util, c.noRing, c.depth = 1, !tt.ring, 30*second
		r := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{holdsWhole("a", "GPU-0")}}}
		bubble(t, d, Options{Resolver: r, Deadline: time.Hour}, func(s *stand) {
			s.Step(time.Now())
			s.step(2)
			hang := make(chan struct{})
			d.with(func() { c.hang = hang })
			s.step(4) // at 6, 9, 12 and 15 s; each waits a second
			calls := d.calls(0)
			d.with(func() { c.hang = nil })
			close(hang)
			synctest.Wait()
			if s.step(1); d.calls(0) != calls {
				t.Errorf("%s: read again in the poll in which the last read returned", name)
			}
			s.step(3)
			a, sum := s.dev(0).Activity, gpu.Seconds(0)
			for _, v := range s.dev(0).GPUSeconds {
				sum += v
			}
			near := func(v gpu.Opt[gpu.Seconds]) bool { return math.Abs(float64(v.Or(-1))-tt.observed) < 1e-6 }
			if !near(a.Busy) || !near(a.Observed) || sum != 24 || s.dev(0).GPUSeconds[gpu.TimeUnallocated] != 0 {
				t.Errorf("%s: busy %v, observed %v of 24 s, %v", name, a.Busy, a.Observed, s.dev(0).GPUSeconds)
			}
		})
	}
}

// The duration of a poll group is that of the slowest GPU, and of its last run.
func TestDurations(t *testing.T) {
	d := newFake(t, 3)
	for i, ms := range []int{100, 300, 200} {
		d.devs[i].delay = time.Duration(ms) * time.Millisecond
	}
	bubble(t, d, Options{}, func(s *stand) {
		durations := func() (out [3]gpu.Opt[time.Duration]) {
			for i := range out {
				out[i] = s.Latest().PollGroups[i].Duration
			}
			return out
		}
		slowest := gpu.Some(300 * time.Millisecond)
		if s.step(1); durations() != [3]gpu.Opt[time.Duration]{slowest, slowest, slowest} {
			t.Errorf("%v", durations())
		}
		d.with(func() { d.devs[1].delay = 50 * time.Millisecond })
		if s.step(1); durations() != [3]gpu.Opt[time.Duration]{gpu.Some(200 * time.Millisecond), slowest, slowest} {
			t.Errorf("%v", durations())
		}
		if got := s.source(gpu.SourceNVML).Duration; got != gpu.Some(200*time.Millisecond) {
			t.Errorf("duration of NVML %v", got)
		}
	})
}

// A value is published until its poll group has not succeeded for three intervals.
func TestExpiry(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, 30 * second: true, 30*second + 1: false} {
		l := pollGroup[gpu.Medium]{value: gpu.Some(&gpu.Medium{}), succeeded: 5 * second}
		if l.expire(5*second+age, 10*second); l.value.Present() != want {
			t.Errorf("after %v: %v", age, l.value.Present())
		}
	}
	// Of the fast one an interval is at least the deadline of a call.
	d := newFake(t, 1)
	bubble(t, d, Options{Deadline: 20 * second, Bound: time.Millisecond}, func(s *stand) {
		s.step(1)
		s.devs[0].fast.due = false
		dev := s.devs[0]
		dev.pending, dev.started = true, time.Now() // a call that does not return
		if s.step(9); !s.dev(0).Fast.Present() {
			t.Error("gone after 18 s")
		}
		dev.pending = false
	})
}

// Errors that end something are not those of a single GPU.
func TestErrorKinds(t *testing.T) {
	for err, want := range map[error][3]bool{
		gpu.ErrLost: {true, true, false}, gpu.ErrResetRequired: {true, true, false}, gpu.ErrUninitialized: {true, false, true},
		gpu.ErrVersionMismatch: {true, false, true}, gpu.ErrNoDriver: {true, false, true}, errOdd: {}, gpu.ErrPanic: {},
	} {
		if got := [3]bool{ends(wrapped(err)), lost(wrapped(err)), sessionEnded(errors.Join(errOdd, err))}; got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// One poll group that was read is enough for a GPU to be known and for the driver to have responded; a failed one is neither,
// and leaves nothing fresh.
func TestEachPollGroupCounts(t *testing.T) {
	for group := range 3 {
		for _, err := range []error{nil, errOdd} {
			s := New(Options{})
			dev := &tracked{}
			r := &reading{job: job{dev: dev}, fast: &gpu.Fast{}, medium: &gpu.Medium{}, slow: &gpu.Slow{}}
			r.attempted[group], r.errs[group] = true, err
			s.accept(r)
			read := err == nil
			if dev.known != read || s.success.Present() != read || dev.freshFast != (read && group == pollFast) ||
				dev.freshMedium != (read && group == pollMedium) {
				t.Errorf("group %d, %v: known %v, success %v, fresh %v %v", group, err, dev.known, s.success, dev.freshFast,
					dev.freshMedium)
			}
		}
	}
}
