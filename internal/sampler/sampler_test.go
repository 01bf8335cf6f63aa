package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func TestBeforeTheFirstRound(t *testing.T) {
	v := New(Options{Driver: newFake(t, 1), Node: "n1"}).Latest()
	if v == nil || v.Node != "n1" || len(v.Notes) != 1 || len(v.Sources) != 1 || v.Sources[0].Up || v.Devices != nil ||
		v.System.Present() {
		t.Errorf("%+v", v)
	}
}

// Sources may report what failed since they were last read: they are read once per poll.
func TestSourcesAreReadOncePerPoll(t *testing.T) {
	d := newFake(t, 1)
	failed, calls := false, 0
	bubble(t, d, Options{Sources: func() []gpu.Source {
		out := []gpu.Source{{Name: gpu.SourceProcesses, Up: !failed}}
		failed = false
		calls++
		return out
	}}, func(s *stand) {
		s.step(3)
		before := calls
		failed = true
		v := s.step(1)
		if i := slices.IndexFunc(v.Sources, func(x gpu.Source) bool { return x.Name == gpu.SourceProcesses }); v.Sources[i].Up {
			t.Errorf("what failed in the poll is not in its view: %+v", v.Sources)
		}
		if calls != before+1 {
			t.Errorf("%d calls in a poll", calls-before)
		}
	})
}

func TestRoundOfAHealthyNode(t *testing.T) {
	d := newFake(t, 2)
	d.devs[0].util = .5
	resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{holdsWhole("train", "GPU-0")},
		Sources: []gpu.Source{{Name: gpu.SourcePodResources, Up: true}}, PollGroups: []gpu.PollHealth{{PollGroup: gpu.PollKubelet}},
		Pods: []gpu.PodRef{{Namespace: "t", Pod: "train"}}}}
	bubble(t, d, Options{
		Resolver: resolver,
		Sources:  func() []gpu.Source { return []gpu.Source{{Name: gpu.SourceKmsg, Up: true}} },
		Calls:    func() []gpu.CallStats { return []gpu.CallStats{{Call: "nvmlInit"}} },
		Features: func() []gpu.Feature {
			return []gpu.Feature{{Name: "processes", State: gpu.FeatureMissingPermission}}
		},
	}, func(s *stand) {
		v := s.step(6)
		if !v.At.Equal(time.Now()) || v.Node != "n1" || !v.Ownership || len(v.Pods) != 1 || len(v.Calls) != 1 || len(v.Features) != 1 {
			t.Errorf("%+v", v)
		}
		if sys, ok := v.System.Get(); !ok || sys.DriverVersion != "580.1" {
			t.Errorf("system %+v", v.System)
		}
		if v.Devices[gpu.DeviceUp] != 2 || v.Devices[gpu.DeviceFailed] != 0 || len(v.Devices) != len(gpu.DeviceStates) {
			t.Errorf("devices %v", v.Devices)
		}
		if len(v.Notes) != 0 {
			t.Errorf("notes %q", v.Notes)
		}
		var names []string
		for _, x := range v.Sources {
			names = append(names, x.Name)
			if !x.Up {
				t.Errorf("source %+v", x)
			}
		}
		if intent := []string{gpu.SourceNVML, gpu.SourceEvents, gpu.SourceKmsg, gpu.SourcePodResources}; !slices.Equal(names, intent) {
			t.Errorf("sources %v, want %v", names, intent)
		}
		var groups []gpu.PollGroup
		for _, l := range v.PollGroups {
			groups = append(groups, l.PollGroup)
		}
		if intent := []gpu.PollGroup{gpu.PollFast, gpu.PollMedium, gpu.PollSlow, gpu.PollKubelet}; !slices.Equal(groups, intent) {
			t.Errorf("poll groups %v", groups)
		}
		c := s.dev(0)
		if c.State != gpu.DeviceUp || !c.Fast.Present() || !c.Medium.Present() || !c.Slow.Present() || len(c.LastRead) != 3 {
			t.Errorf("%+v", c)
		}
		if got := float64(c.Activity.Busy.Or(-1)); got < 4.999 || got > 5.001 {
			t.Errorf("busy %v in 10 s", got)
		}
		s.seconds(0, map[gpu.TimeState]float64{gpu.TimeBusy: 5, gpu.TimeGap: 5})
		s.seconds(1, map[gpu.TimeState]float64{gpu.TimeUnallocated: 10})
		if len(v.Containers) != 1 || v.Containers[0].Attribution != "exclusive" || len(v.Allocations) != 1 {
			t.Errorf("containers %+v", v.Containers)
		}
		if len(v.NotOffered) != 2 || v.NotOffered[0].Readings[0] != "fan_speed" {
			t.Errorf("not offered %+v", v.NotOffered)
		}
		// Every poll group at its interval, and not more often.
		if got := d.calls(0); got != [3]int{6, 2, 1} {
			t.Errorf("calls of the poll groups %v, want 6, 2, 1", got)
		}
		s.step(30)
		if got := d.calls(0); got != [3]int{36, 8, 2} {
			t.Errorf("calls of the poll groups %v, want 36, 8, 2", got)
		}
		// The same inventory is the same pointer, so that podmap need not resolve again.
		if n := len(resolver.inv); resolver.inv[n-1] != resolver.inv[1] || len(resolver.inv[1].GPUs) != 2 {
			t.Error("the inventory changes though nothing did")
		}
	})
}

// A process that started without library and kernel module ends once the module is there and the library does not
// follow: its container was created without the driver's files. Any other process stays, so that it cannot be a loop.
func TestModuleWithoutLibrary(t *testing.T) {
	type phase struct {
		steps int // of two seconds
		err   error
	}
	bare, library, unknown := gpu.ErrNoModule, gpu.ErrNoLibrary, gpu.ErrNoDriver
	for name, c := range map[string]struct {
		phases []phase
		ends   gpu.Opt[time.Duration] // when it ends, since the start
		note   string                 // at the end of the phases
	}{
		"module comes, library does not": {[]phase{{50, bare}, {45, library}}, gpu.None[time.Duration](), "exits, so that its container"},
		"for two minutes":                {[]phase{{50, bare}, {80, library}}, gpu.Some(4 * time.Minute), "exits, so that its container"},
		"library in time":                {[]phase{{50, bare}, {45, library}, {60, nil}}, gpu.None[time.Duration](), ""},
		"module leaves in between": {[]phase{{50, bare}, {45, library}, {20, bare}, {45, library}}, gpu.None[time.Duration](),
			"exits, so that its container"},
		"module from the start": {[]phase{{600, library}}, gpu.None[time.Duration](), "files are missing"},
		"module reloaded":       {[]phase{{50, library}, {50, bare}, {300, library}}, gpu.None[time.Duration](), "files are missing"},
		"sysfs not readable at the start": {[]phase{{50, unknown}, {300, library}}, gpu.None[time.Duration](),
			"files are missing"},
		"had a driver": {[]phase{{50, bare}, {50, nil}, {50, bare}, {300, library}}, gpu.None[time.Duration](), "files are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			var start time.Time
			var ended gpu.Opt[time.Duration]
			d := newFake(t, 1)
			bubble(t, d, Options{Restart: func(reason error) {
				if !errors.Is(reason, gpu.ErrNoLibrary) {
					t.Errorf("the reason is %v", reason)
				}
				if !ended.Present() {
					ended = gpu.Some(time.Since(start))
				}
			}}, func(s *stand) {
				start = time.Now()
				var v *gpu.View
				for _, p := range c.phases {
					d.with(func() {
						d.openErr = p.err
						if d.open { // the driver is removed
							d.devs[0].err = gpu.ErrUninitialized
						} else {
							d.devs[0].err = nil
						}
					})
					v = s.step(p.steps)
				}
				// The module is seen at a retry, 30 s after it came at the latest.
				want, ends := c.ends.Get()
				if at, ok := ended.Get(); ok != ends || ok && (at-want).Abs() > 30*time.Second {
					t.Errorf("ended: %v, want %v", ended, c.ends)
				}
				if notes := strings.Join(v.Notes, " "); !strings.Contains(notes, c.note) || c.note == "" && notes != "" ||
					c.note == "files are missing" && strings.Contains(notes, "exits") {
					t.Errorf("notes %q, want %q", notes, c.note)
				}
			})
		})
	}
}

func TestVersionMismatch(t *testing.T) {
	t.Run("at open", func(t *testing.T) {
		d := newFake(t, 1)
		d.openErr = fmt.Errorf("initialize: %w", gpu.ErrVersionMismatch)
		replaced := 0
		bubble(t, d, Options{Restart: func(error) { replaced++ }}, func(s *stand) {
			v := s.step(1)
			if replaced != 1 {
				t.Errorf("replaced %d times", replaced)
			}
			if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "upgraded") {
				t.Errorf("notes %q", v.Notes)
			}
		})
	})
	t.Run("another error at open", func(t *testing.T) {
		d := newFake(t, 1)
		d.openErr = gpu.ErrNoDriver
		bubble(t, d, Options{Restart: func(error) { t.Error("requested a new process without another library") }}, func(s *stand) {
			if v := s.step(20); d.opens < 2 || len(v.Notes) != 1 || strings.Contains(v.Notes[0], "upgraded") {
				t.Errorf("opened %d times, notes %q", d.opens, v.Notes)
			}
		})
	})
	t.Run("while open, under a call", func(t *testing.T) {
		d := newFake(t, 2)
		replaced := 0
		bubble(t, d, Options{Restart: func(reason error) {
			replaced++
			if !errors.Is(reason, gpu.ErrVersionMismatch) {
				t.Errorf("the reason is %v", reason)
			}
			if d.open || d.inside > 0 {
				t.Error("requested a new process while NVML is initialized")
			}
		}}, func(s *stand) {
			s.step(2)
			hang := make(chan struct{})
			d.with(func() { d.devs[0].hang, d.devs[1].err = hang, gpu.ErrVersionMismatch })
			s.step(10)
			if replaced != 0 || d.closes != 0 {
				t.Fatalf("replaced %d, closed %d times during a hanging call", replaced, d.closes)
			}
			d.with(func() { d.devs[0].hang, d.openErr = nil, gpu.ErrVersionMismatch })
			close(hang)
			synctest.Wait()
			s.step(2)
			if replaced == 0 || d.closes != 1 {
				t.Errorf("replaced %d, closed %d times", replaced, d.closes)
			}
			if c := s.dev(0); c.State != gpu.DeviceFailed || c.Fast.Present() {
				t.Errorf("%+v", c)
			}
		})
	})
}

func TestLostGPU(t *testing.T) {
	for _, cause := range []error{gpu.ErrLost, gpu.ErrResetRequired} {
		t.Run(cause.Error(), func(t *testing.T) {
			d := newFake(t, 2)
			d.devs[0].util = 1
			d.devs[0].recovery = gpu.Some(gpu.RecoveryNone)
			resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true,
				List: []gpu.Allocation{holdsWhole("train", "GPU-0")}}}
			bubble(t, d, Options{Resolver: resolver}, func(s *stand) {
				s.step(6)
				d.with(func() { d.devs[0].recovery = gpu.Some(gpu.RecoveryReset) })
				s.step(5)
				busy := s.dev(0).Activity.Busy.Or(0)
				d.with(func() { d.devs[0].err = fmt.Errorf("read GPU 0: %w", cause) })
				s.Event(gpu.XIDEvent{GPU: "GPU-0", XID: 79, Time: time.Now(), Source: gpu.SourceKmsg})
				s.step(1)
				c := s.dev(0)
				if c.State != gpu.DeviceFailed || !strings.Contains(c.Message, cause.Error()) {
					t.Errorf("%s: %q", c.State, c.Message)
				}
				if c.Fast.Present() || c.Medium.Present() || c.Slow.Present() || c.Activity.Busy.Present() {
					t.Error("values of a lost GPU go on")
				}
				if c.Recovery != gpu.Some(gpu.RecoveryReset) || c.AllocationRatio != gpu.Some(gpu.Ratio(1)) || c.Index != 0 ||
					len(c.LastRead) != 3 {
					t.Errorf("%+v", c)
				}
				if i := slices.IndexFunc(c.XIDs, func(x gpu.XIDCount) bool { return x.XID == 79 && x.Count == 1 }); i < 0 {
					t.Errorf("XIDs %+v", c.XIDs)
				}
				if s.dev(1).State != gpu.DeviceUp {
					t.Error("the other GPU fails too")
				}
				if !s.source(gpu.SourceNVML).Up || s.Latest().Devices[gpu.DeviceFailed] != 1 {
					t.Errorf("%+v %v", s.source(gpu.SourceNVML), s.Latest().Devices)
				}
				// It is left alone until the GPUs are listed again.
				calls, scans := d.calls(0)[pollFast], d.scans
				s.step(18)
				if d.scans != scans+3 || d.calls(0)[pollFast] != calls+3 {
					t.Errorf("%d scans, %d calls in 36 s", d.scans-scans, d.calls(0)[pollFast]-calls)
				}
				unavailable := s.dev(0).GPUSeconds[gpu.TimeUnavailable]
				if unavailable != 38 {
					t.Errorf("unavailable for %v s, want 38", unavailable)
				}
				// It returns, and goes on.
				d.with(func() { d.devs[0].err = nil })
				s.step(20)
				c = s.dev(0)
				if c.State != gpu.DeviceUp || !c.Fast.Present() || c.Activity.Busy.Or(0) <= busy {
					t.Errorf("%s, busy %v of %v", c.State, c.Activity.Busy, busy)
				}
				sum := gpu.Seconds(0)
				for _, v := range c.GPUSeconds {
					sum += v
				}
				if sum < 97.999 || sum > 98.001 {
					t.Errorf("%v of 98 s: %v", sum, c.GPUSeconds)
				}
			})
		})
	}
}

func TestHangingGPU(t *testing.T) {
	d := newFake(t, 3)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(3)
		hang := make(chan struct{})
		d.with(func() { d.devs[1].hang = hang })
		started := time.Now()
		s.Step(started)
		if durations := time.Since(started); durations > time.Second {
			t.Errorf("the poll took %v", durations)
		}
		if c := s.dev(1); c.State != gpu.DeviceUp || !c.Fast.Present() {
			t.Errorf("before its deadline: %+v", c)
		}
		s.step(4)
		c := s.dev(1)
		if c.State != gpu.DeviceFailed || !strings.HasPrefix(c.Message, "hung for ") || c.Fast.Present() {
			t.Errorf("%s %q", c.State, c.Message)
		}
		// Others go on, no poll waits any more, and there is no second call.
		calls := d.calls(1)
		started = time.Now()
		s.Step(started)
		if durations := time.Since(started); durations != 0 {
			t.Errorf("a poll waits %v for a hung GPU", durations)
		}
		s.step(20)
		if d.calls(1) != calls {
			t.Error("a hung GPU is called")
		}
		for _, i := range []int{0, 2} {
			if c := s.dev(i); c.State != gpu.DeviceUp || !c.LastRead[gpu.PollFast].Equal(s.Latest().At) {
				t.Errorf("GPU %d: %+v", i, c)
			}
		}
		if v := s.Latest(); v.Devices[gpu.DeviceFailed] != 1 || len(v.Notes) != 1 || !s.source(gpu.SourceNVML).Up {
			t.Errorf("%v %q", v.Devices, v.Notes)
		}
		// The answer comes late, and counts.
		d.with(func() { d.devs[1].hang = nil })
		close(hang)
		synctest.Wait()
		s.step(1)
		if c := s.dev(1); c.State != gpu.DeviceUp || !c.Fast.Present() {
			t.Errorf("%s %q", c.State, c.Message)
		}
	})
}

// TestPanicCostsItsGPU: a panic while a GPU is read marks that GPU failed until the poll group succeeds again, and is
// counted; the others are read.
func TestPanicCostsItsGPU(t *testing.T) {
	for group := range 3 {
		d := newFake(t, 2)
		bubble(t, d, Options{}, func(s *stand) {
			s.step(2)
			d.with(func() { d.devs[0].errs[group] = gpu.ErrPanic })
			v := s.step(31)
			if c := s.dev(0); c.State != gpu.DeviceFailed || !strings.Contains(c.Message, "panic: index out of range at fake_test.go:") ||
				v.Panics.Or(0) == 0 {
				t.Errorf("group %d: %s %q, %d panics", group, c.State, c.Message, v.Panics.Or(0))
			}
			if c := s.dev(1); c.State != gpu.DeviceUp || !c.LastRead[gpu.PollFast].Equal(v.At) {
				t.Errorf("group %d: the other GPU: %+v", group, c)
			}
			d.with(func() { d.devs[0].errs[group] = nil })
			if s.step(31); s.dev(0).State != gpu.DeviceUp || !s.dev(0).Medium.Present() {
				t.Errorf("group %d: not back: %s", group, s.dev(0).Message)
			}
		})
	}
}

// Where a test knows which calls hang, that alone ends the waits: one that is slow is waited for, however long it takes, and the
// result of one that hung is received in the poll in which it returns.
func TestHungByATest(t *testing.T) {
	hanging := 0
	var waited atomic.Int64
	d := newFake(t, 2)
	watch := func() time.Time { return time.Time{}.Add(time.Duration(waited.Load())) }
	bubble(t, d, Options{Deadline: time.Second, Watch: watch, Hung: func(calls int) <-chan time.Time {
		c := make(chan time.Time)
		if calls == hanging {
			waited.Add(int64(time.Second))
			close(c)
		}
		return c
	}}, func(s *stand) {
		fresh := func(i int) bool {
			c := s.dev(i)
			return c.State == gpu.DeviceUp && c.Fast.Present() && c.LastRead[gpu.PollFast].Equal(s.Latest().At)
		}
		d.devs[0].delay = time.Hour
		if s.step(1); !fresh(0) || !fresh(1) {
			t.Errorf("a slow call: %+v", s.Latest().GPUs)
		}
		hang := make(chan struct{})
		d.with(func() { d.devs[0].delay, d.devs[1].delay, d.devs[1].hang = 0, time.Hour, hang })
		hanging = 1
		if s.step(2); !fresh(0) || s.dev(1).Failure != gpu.FailureHung {
			t.Errorf("one that hangs: %+v", s.Latest().GPUs)
		}
		d.with(func() { d.devs[1].delay, d.devs[1].hang = 0, nil })
		hanging = 0
		close(hang)
		if s.step(1); !fresh(0) || !fresh(1) {
			t.Errorf("after it returned: %+v", s.Latest().GPUs)
		}
	})
}

func TestHangingDriver(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		d := newFake(t, 1)
		bubble(t, d, Options{}, func(s *stand) {
			hang := make(chan struct{})
			d.with(func() { d.hang["open"] = hang })
			v := s.step(5)
			if !strings.Contains(s.source(gpu.SourceNVML).Message, "initialize NVML: no response for") ||
				!strings.Contains(v.Notes[0], "hangs") {
				t.Errorf("%+v %q", s.source(gpu.SourceNVML), v.Notes)
			}
			d.with(func() { delete(d.hang, "open") })
			close(hang)
			synctest.Wait()
			s.step(1)
			if s.dev(0).State != gpu.DeviceUp || d.opens != 1 {
				t.Errorf("%+v, %d opens", s.dev(0), d.opens)
			}
		})
	})
	t.Run("scan", func(t *testing.T) {
		d := newFake(t, 2)
		bubble(t, d, Options{}, func(s *stand) {
			s.step(2)
			d.with(func() { d.hang["scan"], d.devs[0].err = make(chan struct{}), gpu.ErrLost })
			s.step(40)
			// The GPUs that answer are read all the same.
			if c := s.dev(1); c.State != gpu.DeviceUp || !c.LastRead[gpu.PollFast].Equal(s.Latest().At) {
				t.Errorf("%+v", c)
			}
		})
	})
}

func TestRefusingGPU(t *testing.T) {
	d := newFake(t, 2)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		d.with(func() { d.devs[0].errs[pollMedium] = errOdd })
		s.step(6)
		if c := s.dev(0); c.State != gpu.DeviceUp || c.Medium.Present() || !c.Fast.Present() {
			t.Errorf("one poll group fails: %+v", c)
		}
		d.with(func() { d.devs[0].errs = [3]error{errOdd, errOdd, errOdd} })
		s.step(2)
		if c := s.dev(0); c.State != gpu.DeviceUp || c.Fast.Present() {
			t.Errorf("failed twice: %s", c.State)
		}
		s.step(1)
		if c := s.dev(0); c.State != gpu.DeviceFailed || !strings.Contains(c.Message, "UNKNOWN") {
			t.Errorf("%s %q", c.State, c.Message)
		}
		if d.opens != 1 {
			t.Error("one GPU's trouble ends the session")
		}
		// All of them: the session is recreated, once, and the page says what may help.
		d.with(func() { d.devs[1].errs = [3]error{errOdd, errOdd, errOdd} })
		v := s.step(10)
		if d.opens != 2 || s.source(gpu.SourceNVML).Up || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "restart") {
			t.Errorf("%d opens, %q", d.opens, v.Notes)
		}
		d.with(func() { d.devs[0].errs, d.devs[1].errs = [3]error{}, [3]error{} })
		s.step(2)
		if c := s.dev(0); c.State != gpu.DeviceUp || !c.Medium.Present() {
			t.Errorf("%s %q", c.State, c.Message)
		}
	})
}

// A hanging call keeps the driver; the others are read on, whatever is pending.
func TestPendingMIGChangeUnderAHangingCall(t *testing.T) {
	d := newFake(t, 2)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		d.with(func() { d.devs[0].hang = make(chan struct{}) })
		s.step(4)
		d.with(func() { d.devs[1].mig = gpu.Some(gpu.ModePair{Pending: true}) })
		s.step(40)
		if d.closes != 0 {
			t.Fatal("closed under a call")
		}
		if c := s.dev(1); !c.LastRead[gpu.PollFast].Equal(s.Latest().At) {
			t.Error("the other GPU is not read any more")
		}
	})
}

func TestMIGLayout(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].mig = gpu.Some(gpu.ModePair{Current: true, Pending: true})
	resolver := &fakeResolver{}
	bubble(t, d, Options{Resolver: resolver}, func(s *stand) {
		s.step(3)
		// What contradicts the layout has it read at once, not a minute later.
		for i, contradict := range []func(){
			func() { d.devs[0].staleIn = pollFast + 1 }, func() { d.devs[0].staleIn = pollMedium + 1 },
			func() {
				resolver.mu.Lock()
				defer resolver.mu.Unlock()
				resolver.h = gpu.Allocations{Known: true, Unresolved: []gpu.Unresolved{{Resource: "nvidia.com/gpu", Devices: 1}}}
			},
		} {
			name := gpu.UUID(fmt.Sprintf("MIG-%d", 3-i))
			d.with(func() {
				d.devs[0].layout = []gpu.Instance{{UUID: name, GI: 1, Profile: "1g.10gb", Slices: 1, Share: gpu.Some(gpu.Ratio(1. / 7)),
					Compute: []gpu.ComputeInstance{{UUID: name}}}}
				contradict()
			})
			s.step(7)
			if c := s.dev(0); len(c.Instances) != 1 || c.Instances[0].UUID != name {
				t.Errorf("%+v", c.Instances)
			}
		}
		inv := resolver.inv[len(resolver.inv)-1]
		if dev, in, ok := inv.ByInstance("MIG-1"); !ok || !dev.MIG || in.Profile != "1g.10gb" {
			t.Errorf("%+v", inv)
		}
		if d.closes != 0 {
			t.Error("the driver was shut down though nothing is pending")
		}
	})
}

func TestMissingAndDetached(t *testing.T) {
	d := newFake(t, 2)
	var bus []Expected
	var busErr error
	set := func(list ...Expected) { bus = list }
	set(Expected{PCI: "0000:01:00.0"}, Expected{PCI: "0000:02:00.0"}, Expected{PCI: "0000:03:00.0"},
		Expected{PCI: "0000:04:00.0", Detached: true})
	bubble(t, d, Options{Expecter: expecterFunc(func() ([]Expected, error) { return bus, busErr }), GPUs: 5}, func(s *stand) {
		v := s.step(3)
		if !equalCounts(v.Devices, 2, 0, 2, 1) {
			t.Errorf("%v", v.Devices)
		}
		if c := s.dev(2); c.UUID != "0000:03:00.0" || c.State != gpu.DeviceMissing || c.Index != -1 {
			t.Errorf("%+v", c)
		}
		s.seconds(2, map[gpu.TimeState]float64{gpu.TimeUnavailable: 4})
		// A GPU leaves NVML and stays on the bus.
		second := d.devs[1]
		d.with(func() { d.devs = d.devs[:1] })
		s.step(20)
		if c := s.dev(1); c.UUID != "GPU-1" || c.State != gpu.DeviceMissing {
			t.Errorf("%+v", c)
		}
		// It leaves the bus, too.
		set(Expected{PCI: "0000:01:00.0"}, Expected{PCI: "0000:04:00.0", Detached: true})
		v = s.step(16)
		if c := s.dev(1); c.UUID != "GPU-1" || c.State != gpu.DeviceFailed || len(v.GPUs) != 3 {
			t.Errorf("%+v", v.GPUs)
		}
		// It is given to a virtual machine.
		set(Expected{PCI: "0000:01:00.0"}, Expected{PCI: "0000:02:00.0", Detached: true})
		v = s.step(16)
		if c := s.dev(1); c.UUID != "GPU-1" || c.State != gpu.DeviceDetached || len(v.GPUs) != 2 {
			t.Errorf("%+v", v.GPUs)
		}
		counted := s.dev(1).GPUSeconds[gpu.TimeUnavailable]
		s.step(3)
		if s.dev(1).GPUSeconds[gpu.TimeUnavailable] != counted {
			t.Error("the seconds of a detached GPU are counted")
		}
		// And returns.
		set(Expected{PCI: "0000:01:00.0"}, Expected{PCI: "0000:02:00.0"})
		d.with(func() { d.devs = append(d.devs, second) })
		s.step(40)
		if c := s.dev(1); c.State != gpu.DeviceUp || c.Index != 1 {
			t.Errorf("%+v", c)
		}
		busErr = errors.New("no sysfs")
		if v = s.step(16); v.Devices[gpu.DeviceUp] != 2 {
			t.Errorf("%v", v.Devices)
		}
	})
}

func equalCounts(got map[gpu.DeviceState]int, up, failed, missing, detached int) bool {
	return got[gpu.DeviceUp] == up && got[gpu.DeviceFailed] == failed && got[gpu.DeviceMissing] == missing &&
		got[gpu.DeviceDetached] == detached
}

func TestImplausibleValues(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].power = 4294967.295
	d.devs[0].memory = gpu.Some(gpu.Memory{Total: 1, Used: 2})
	bubble(t, d, Options{}, func(s *stand) {
		v := s.step(3)
		f, m := s.dev(0).Fast.Or(nil), s.dev(0).Medium.Or(nil)
		if f == nil || f.Power.Present() || m == nil || m.Memory.Present() {
			t.Error("implausible values are published")
		}
		intent := []gpu.RejectedCount{{Reading: "memory", Count: 1}, {Reading: "power", Count: 3}}
		if !slices.Equal(v.Rejected, intent) {
			t.Errorf("%v, want %v", v.Rejected, intent)
		}
	})
}

// A clock that goes back, and one that jumps: nothing negative, nothing twice, nothing lost.
func TestClockSteps(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{Resolver: &fakeResolver{h: gpu.Allocations{Known: true, Configured: true}}}, func(s *stand) {
		now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) // without a monotonic part: the sampler sees every step
		step := func(d time.Duration) {
			time.Sleep(2 * time.Second)
			now = now.Add(d)
			s.Step(now)
		}
		total := func() (sum gpu.Seconds) {
			for _, v := range s.dev(0).GPUSeconds {
				sum += v
			}
			return sum
		}
		step(0)
		step(2 * time.Second)
		step(-time.Hour)
		if got := total(); got != 2 {
			t.Errorf("%v s after the clock went back", got)
		}
		step(2 * time.Second)
		step(10 * time.Hour)
		if got := total(); got != 36004 {
			t.Errorf("%v s after a jump, want 2 + 2 + ten hours", got)
		}
		for _, v := range s.dev(0).GPUSeconds {
			if v < 0 {
				t.Errorf("%v", s.dev(0).GPUSeconds)
			}
		}
		calls := d.calls(0)[pollMedium]
		step(-20 * time.Hour)
		for range 6 {
			step(2 * time.Second)
		}
		if d.calls(0)[pollMedium] == calls {
			t.Error("the poll groups stand still after the clock went back")
		}
	})
}

// TestPendingMIGChanges: eight changes that a tool makes one after the other are one pause; what was pending at the
// start, and what waits for a reset anyway, is none. Unobserved time is never observed time.
func TestPendingMIGChanges(t *testing.T) {
	pending := gpu.Some(gpu.ModePair{Pending: true})
	for _, tt := range []struct {
		name         string
		architecture string
		atStart      bool
		closes       int
	}{{"Hopper", "Hopper", false, 1}, {"Ampere", "Ampere", false, 0}, {"at the start", "Hopper", true, 0}} {
		d := newFake(t, 8)
		for _, c := range d.devs {
			c.id.Architecture, c.mig = tt.architecture, gpu.Some(gpu.ModePair{})
			if tt.atStart {
				c.mig = pending
			}
		}
		bubble(t, d, Options{}, func(s *stand) {
			s.step(10)
			for i, c := range d.devs {
				d.with(func() { c.mig = pending })
				if i == 0 {
					s.Event(gpu.XIDEvent{GPU: "GPU-0", XID: 154, Time: time.Now(), Source: gpu.SourceNVML}) // slow poll due
				}
				if i%4 == 3 {
					s.step(1)
				}
			}
			dark := 0
			for range 150 {
				if s.step(1); !s.dev(3).Fast.Present() {
					dark++
				}
			}
			if d.closes != tt.closes || dark > 16*tt.closes {
				t.Errorf("%s: %d pauses, %d of 150 polls without values", tt.name, d.closes, dark)
			}
		})
	}
}

// TestContainerOfAnXID: never a wrong one.
func TestContainerOfAnXID(t *testing.T) {
	const a, b = gpu.UUID("GPU-0"), gpu.UUID("MIG-5")
	whole := gpu.Allocations{Known: true, List: []gpu.Allocation{holdsWhole("train", a)}}
	onInstance := func(pod string, in gpu.UUID) gpu.Allocation {
		x := holdsWhole(pod, a)
		x.Instance = in
		return x
	}
	mig := gpu.Allocations{Known: true, List: []gpu.Allocation{onInstance("mig5", "MIG-4"), onInstance("mig9", "MIG-9")}}
	first, second := onInstance("first", "MIG-4"), onInstance("second", "MIG-4")
	first.ComputeInstance, second.ComputeInstance = "MIG-4", b
	divided := gpu.Allocations{Known: true, List: []gpu.Allocation{first, second}}
	alone := gpu.Allocations{Known: true, List: []gpu.Allocation{first}}
	none := gpu.None[int]()
	shared := gpu.Allocations{Known: true, List: []gpu.Allocation{holdsWhole("train", a), holdsWhole("other", a)}}
	uncertain := whole
	uncertain.Uncertain = true
	for name, tt := range map[string]struct {
		allocations gpu.Allocations
		pid, gi     int
		ci          gpu.Opt[int]
		want        string
	}{
		"the only container":                 {whole, 0, 0, none, "train"},
		"its process":                        {whole, 7, 0, none, "train"},
		"a monitor that was running":         {whole, 8, 0, none, "train"},
		"a process of the host":              {whole, 99, 0, none, "train"},
		"two containers":                     {shared, 0, 0, none, ""},
		"two containers, and the process":    {shared, 7, 0, none, "train"},
		"an instance":                        {mig, 0, 5, none, "mig5"},
		"an instance that is not allocated":  {mig, 0, 6, none, ""},
		"no instance":                        {mig, 0, 0, none, ""},
		"allocations may be incomplete":      {uncertain, 0, 0, none, ""},
		"allocations are unknown":            {gpu.Allocations{List: whole.List}, 0, 0, none, ""},
		"another PID since the process list": {whole, 5, 0, none, ""},
		"one of two compute instances":       {divided, 0, 5, gpu.Some(1), "second"},
		"one of them, unknown which":         {divided, 0, 5, none, ""},
		"the one that is not allocated":      {alone, 0, 5, gpu.Some(1), ""},
	} {
		users := &fakeUsers{names: map[int]string{7: "train", 8: "monitor", 5: "train"}, attempted: map[int]int{}}
		s := New(Options{Users: users})
		s.allocations, s.users = tt.allocations, account.Users{5: {Container: gpu.Container{Pod: "gone"}}}
		dev := &tracked{id: gpu.Identity{UUID: a}, layout: &gpu.Slow{Instances: []gpu.Instance{{UUID: "MIG-9", GI: 9},
			{UUID: "MIG-4", GI: 5, Compute: []gpu.ComputeInstance{{UUID: "MIG-4"}, {UUID: b, CI: 1}}}, {UUID: "MIG-6", GI: 6}}}}
		e := gpu.XIDEvent{PID: tt.pid, CI: tt.ci}
		if tt.gi > 0 {
			e.GI = gpu.Some(tt.gi)
		}
		if got := s.containerOf(e, dev); got.Pod != tt.want {
			t.Errorf("%s: %+v, want %q", name, got, tt.want)
		}
		if n := users.attempted[0]; n > 0 {
			t.Errorf("%s: PID 0, which is no process, was looked up %d times", name, n)
		}
	}
}

// fakeUsers counts how often it is asked.
type fakeUsers struct {
	names     map[int]string
	attempted map[int]int
}

func (*fakeUsers) Expect([]int) {}

func (f *fakeUsers) Find(pid int) account.User {
	f.attempted[pid]++
	if name, ok := f.names[pid]; ok {
		return account.User{Container: gpu.Container{Namespace: "t", Pod: name, Name: "c"}}
	}
	return account.User{Reason: gpu.UnattributedHost}
}

func TestUsers(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].procs = gpu.Some([]gpu.Process{{PID: 7, Memory: gpu.Some(gpu.Bytes(1 << 30))},
		{PID: 8, Memory: gpu.Some(gpu.Bytes(2 << 30))}})
	users := &fakeUsers{names: map[int]string{7: "p"}, attempted: map[int]int{}}
	bubble(t, d, Options{Users: users}, func(s *stand) {
		v := s.step(5)
		if len(v.Containers) != 1 || v.Containers[0].Memory != gpu.Some(gpu.Bytes(1<<30)) || v.Containers[0].Processes != gpu.Some(1) {
			t.Errorf("%+v", v.Containers)
		}
		if users.attempted[7] != 1 {
			t.Errorf("asked %d times within one medium poll group", users.attempted[7])
		}
		s.step(1)
		if users.attempted[7] != 2 {
			t.Errorf("asked %d times in two medium poll groups", users.attempted[7])
		}
	})
	bubble(t, newFakeWith(d), Options{}, func(s *stand) {
		v := s.step(2)
		if m := s.dev(0).Medium.Or(nil); m == nil || m.Processes.Present() || len(v.Containers) != 0 {
			t.Error("processes are shown though it is unknown whose they are")
		}
	})
}

// newFakeWith is a driver with the GPUs of another.
func newFakeWith(d *fakeDriver) *fakeDriver {
	n := newFake(d.t, len(d.devs))
	for i, c := range d.devs {
		n.devs[i].procs = c.procs
	}
	return n
}

func TestHistory(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].util = .25
	bubble(t, d, Options{}, func(s *stand) {
		s.step(6)
		early := s.Latest()
		if n := len(early.GPUs[0].History); n != 2 {
			t.Fatalf("%d points after 10 s", n)
		}
		s.step(400)
		h := s.dev(0).History
		if len(h) != historyPoints || h[len(h)-1].At.Sub(h[0].At) != (historyPoints-1)*historyEvery {
			t.Errorf("%d points", len(h))
		}
		p := h[len(h)-1]
		if u := p.Utilization.Or(0); u < .2499 || u > .2501 || p.Memory.Or(0) != .1 || p.Power.Or(0) != 100 {
			t.Errorf("%+v", p)
		}
		if len(early.GPUs[0].History) != 2 {
			t.Error("a published view was changed")
		}
	})
}

// A ring of 10 samples of 0.1 s: once it is known to be full, it is read often enough to lose none of them.
func TestShallowRing(t *testing.T) {
	d := newFake(t, 1)
	d.devs[0].depth, d.devs[0].period, d.devs[0].util = 900*time.Millisecond, 100*time.Millisecond, 1
	bubble(t, d, Options{}, func(s *stand) {
		runFor(s, func() {
			time.Sleep(30 * time.Second)
			before := s.dev(0).Activity.Observed.Or(0)
			time.Sleep(100 * time.Second)
			if a := s.dev(0).Activity; a.Observed.Or(0)-before < 99.4 {
				t.Errorf("%v s of 100 s were observed", a.Observed.Or(0)-before)
			}
		})
	})
}

// runFor runs the loop until f returns and says how long its end took.
func runFor(s *stand, f func()) time.Duration {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	f()
	cancel()
	started := time.Now()
	<-done
	return time.Since(started)
}

func TestRunAndShutdown(t *testing.T) {
	d := newFake(t, 2)
	bubble(t, d, Options{}, func(s *stand) {
		durations := runFor(s, func() {
			time.Sleep(11 * time.Second)
			if got := d.calls(0); got[pollFast] != 6 {
				t.Errorf("%v calls in 11 s", got)
			}
			d.with(func() { d.events = []gpu.XIDEvent{{GPU: "GPU-1", XID: 13, Time: time.Now(), Source: gpu.SourceNVML}} })
			time.Sleep(3 * time.Second)
			if !slices.ContainsFunc(s.dev(1).XIDs, func(x gpu.XIDCount) bool { return x.XID == 13 && x.Count == 1 }) {
				t.Error("the event was not heard")
			}
			if src := s.source(gpu.SourceEvents); !src.Up {
				t.Errorf("%+v", src)
			}
		})
		if durations >= time.Second || d.open || d.closes != 1 {
			t.Errorf("the end took %v, open %v, closed %d times", durations, d.open, d.closes)
		}
	})
}

func TestShutdownUnderAHangingCall(t *testing.T) {
	for _, what := range []string{"gpu", "open", "scan", "events"} {
		t.Run(what, func(t *testing.T) {
			d := newFake(t, 2)
			bubble(t, d, Options{}, func(s *stand) {
				hang := make(chan struct{})
				closes := 0
				if what == "open" {
					d.hang[what] = hang
				}
				durations := runFor(s, func() {
					time.Sleep(5 * time.Second)
					d.with(func() {
						if what == "gpu" {
							d.devs[0].hang = hang
						} else {
							d.hang[what] = hang
						}
						if what == "scan" {
							d.devs[0].err = gpu.ErrLost
						}
					})
					time.Sleep(60 * time.Second)
				})
				d.with(func() { closes = d.closes })
				if durations >= time.Second {
					t.Errorf("the end took %v", durations)
				}
				if closes != 0 {
					t.Error("the driver was shut down under a call")
				}
			})
		})
	}
}

// Shutdown in the middle of a poll that waits.
func TestShutdownDuringARound(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{Fast: 20 * time.Second, Bound: 15 * time.Second, Deadline: 30 * time.Second}, func(s *stand) {
		d.devs[0].hang = make(chan struct{})
		if durations := runFor(s, func() { time.Sleep(time.Second) }); durations >= time.Second {
			t.Errorf("the end took %v", durations)
		}
	})
}

// Everything that is safe for concurrent use, at once, in real time.
func TestConcurrentUse(t *testing.T) {
	d := newFake(t, 4)
	resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{holdsWhole("p", "GPU-0")}}}
	s := New(Options{Driver: d, Resolver: resolver, Fast: 2 * time.Millisecond, Medium: 4 * time.Millisecond, Slow: 6 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			// For at least 200 ms, and until the GPUs are there.
			for start := time.Now(); time.Since(start) < 200*time.Millisecond || len(s.Latest().GPUs) != 4; {
				v := s.Latest()
				for j := range v.GPUs {
					_ = v.GPUs[j].GPUSeconds[gpu.TimeBusy]
					_ = len(v.GPUs[j].History)
				}
				s.Event(gpu.XIDEvent{GPU: "GPU-1", XID: 31, Time: time.Now(), Source: fmt.Sprint(i)})
				time.Sleep(time.Millisecond)
			}
		})
	}
	go func() { readers.Wait(); cancel() }()
	s.Run(ctx)
	if v := s.Latest(); len(v.GPUs) != 4 || d.open {
		t.Errorf("%d GPUs, open %v", len(v.GPUs), d.open)
	}
}

// BenchmarkStep is a poll of 8 GPUs, 80 containers and 400 processes.
func BenchmarkStep(b *testing.B) {
	d := newFake(&testing.T{}, 8)
	users := &fakeUsers{names: map[int]string{}, attempted: map[int]int{}}
	resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true}}
	for i, c := range d.devs {
		var list []gpu.Process
		for p := range 10 {
			h := holdsWhole(fmt.Sprintf("pod-%d-%d", i, p), c.id.UUID)
			h.Share = gpu.Some(gpu.Ratio(.1))
			resolver.h.List = append(resolver.h.List, h)
			for k := range 5 {
				pid := 1 + i*50 + p*5 + k
				users.names[pid] = h.Container.Pod
				list = append(list, gpu.Process{PID: pid, Memory: gpu.Some(gpu.Bytes(1 << 26))})
			}
		}
		c.procs = gpu.Some(list)
	}
	s := New(Options{Driver: d, Resolver: resolver, Users: users})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(2 * time.Second)
		resolver.inv = resolver.inv[:0]
		s.Step(now)
	}
}

// fakeScanner says that one container sees two GPUs, by the indices that NVML has now.
type fakeScanner struct{ list []gpu.VisibleGPU }

func (l fakeScanner) Visible(*gpu.Inventory) []gpu.VisibleGPU { return l.list }

func TestVisibleGPUsKeepTheirIndex(t *testing.T) {
	d := newFake(t, 2)
	who := gpu.Container{Namespace: "t", Pod: "p", Name: "c"}
	l := fakeScanner{[]gpu.VisibleGPU{{Container: who, GPU: "GPU-0", Index: 7}, {Container: who, GPU: "GPU-1", Index: 0}}}
	bubble(t, d, Options{VisibleScanner: l}, func(s *stand) {
		v := s.step(1)
		if intent := []gpu.VisibleGPU{{Container: who, GPU: "GPU-0", Index: 0},
			{Container: who, GPU: "GPU-1", Index: 1}}; !slices.Equal(v.Visible, intent) {
			t.Errorf("%+v", v.Visible)
		}
		if l.list[0].Index != 7 {
			t.Error("what is shared was changed")
		}
	})
}

// Reads of the rings follow their depth, and what a process or an allocation changes is read at once.
func TestRingReads(t *testing.T) {
	type at = func(*fakeDriver, *fakeResolver, *fakeGPU)
	sampled := func(pid int) gpu.Opt[[]gpu.ProcessSample] {
		return gpu.Some([]gpu.ProcessSample{{PID: pid, Time: 1, SM: 10}})
	}
	for name, tt := range map[string]struct {
		depth, period time.Duration
		begin, change at  // change after a minute
		reads, after  int // in the first and in the second minute, of 30 polls each
	}{
		"14 s of 200 ms": {14200 * time.Millisecond, 200 * time.Millisecond, nil, nil, 14, 10},
		"12 s of 167 ms": {11833 * time.Millisecond, 166667 * time.Microsecond, nil, nil, 18, 15},
		"5 s":            {5 * time.Second, 50 * time.Millisecond, nil, nil, 30, 30},
		"few at first":   {10 * time.Second, 200 * time.Millisecond, nil, nil, 23, 15},
		"an allocation ends": {14200 * time.Millisecond, 200 * time.Millisecond, nil,
			func(_ *fakeDriver, r *fakeResolver, _ *fakeGPU) { r.h.List = nil }, 14, 14},
		"a new process": {14200 * time.Millisecond, 200 * time.Millisecond,
			func(_ *fakeDriver, _ *fakeResolver, c *fakeGPU) { c.samples = sampled(7) },
			func(_ *fakeDriver, _ *fakeResolver, c *fakeGPU) { c.samples = sampled(8) }, 14, 13},
		"a process ends": {14200 * time.Millisecond, 200 * time.Millisecond,
			func(_ *fakeDriver, _ *fakeResolver, c *fakeGPU) { c.procs = gpu.Some([]gpu.Process{{PID: 7}}) },
			func(_ *fakeDriver, _ *fakeResolver, c *fakeGPU) { c.procs = gpu.Some([]gpu.Process{}) }, 14, 13},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake(t, 1)
			c := d.devs[0]
			c.depth, c.period, c.util = tt.depth, tt.period, 1
			r := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{holdsWhole("a", c.id.UUID)}}}
			if tt.begin != nil {
				tt.begin(d, r, c)
			}
			users := &fakeUsers{names: map[int]string{7: "a", 8: "a"}, attempted: map[int]int{}}
			bubble(t, d, Options{Resolver: r, Users: users}, func(s *stand) {
				s.Step(time.Now())
				s.step(29)
				reads := c.rings
				if tt.change != nil {
					tt.change(d, r, c)
				}
				s.step(30)
				if after := c.rings - reads; reads != tt.reads || after != tt.after {
					t.Errorf("%d and %d reads per minute, want %d and %d", reads, after, tt.reads, tt.after)
				}
				if calls := d.calls(0)[pollFast]; calls != 60 {
					t.Errorf("%d fast polls, want 60", calls)
				}
				a := s.dev(0).Activity
				if busy, observed := float64(a.Busy.Or(0)), float64(a.Observed.Or(0)); busy < 111 || busy != observed {
					t.Errorf("busy %v s of %v s, want nearly 2 minutes", busy, observed)
				}
			})
		})
	}
}

// Run polls at once when an allocation begins or ends, and at nothing else.
func TestPollsWhereAllocationsChange(t *testing.T) {
	d, resolver := newFake(t, 1), &fakeResolver{h: gpu.Allocations{Known: true, Configured: true}}
	bubble(t, d, Options{Resolver: resolver}, func(s *stand) {
		runFor(s, func() {
			var polls int
			for i, want := range []int{0, 1, 0, 1} {
				time.Sleep(1500 * time.Millisecond)
				before := d.calls(0)[pollFast]
				resolver.mu.Lock()
				resolver.h.List = [][]gpu.Allocation{nil, {holdsWhole("a", "GPU-0")}, {holdsWhole("a", "GPU-0")}, nil}[i]
				resolver.mu.Unlock()
				s.AllocationsChanged()
				s.AllocationsChanged() // does not block
				time.Sleep(50 * time.Millisecond)
				if polls = d.calls(0)[pollFast] - before; polls != want {
					t.Errorf("change %d: %d polls, want %d", i, polls, want)
				}
			}
			time.Sleep(1500 * time.Millisecond)
			if got := s.Latest().Containers; len(got) != 1 || float64(got[0].Allocated.Or(0)) != 3.1 {
				t.Errorf("%+v, want 3.1 s", got)
			}
		})
	})
}
