package sampler

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Every poll publishes one view, and passes it on after it was stored.
func TestPublished(t *testing.T) {
	var s *Sampler
	var at []time.Time
	d := newFake(t, 1)
	o := Options{Build: gpu.Build{Version: "1.2"}, Published: func(v *gpu.View) {
		at = append(at, v.At)
		if s.Latest() != v {
			t.Error("passed on before it was stored")
		}
	}}
	bubble(t, d, o, func(st *stand) {
		s = st.Sampler
		if v := s.Latest(); !v.At.Equal(time.Now()) || v.Build.Version != "1.2" || len(at) != 0 || v.Sources[0].Name != gpu.SourceNVML {
			t.Errorf("before the first poll: %+v", v)
		}
		st.step(3)
		if len(at) != 3 || !at[2].Equal(time.Now()) || s.Latest().Build.Version != "1.2" {
			t.Errorf("%d views, the last at %v", len(at), at[2])
		}
	})
}

// A point every ten seconds; utilization is busy over observed time since the point before, absent where nothing was observed.
func TestHistoryPoints(t *testing.T) {
	seconds := func(v float64) gpu.Opt[gpu.Seconds] { return gpu.Some(gpu.Seconds(v)) }
	reading := func(total, used gpu.Bytes) gpu.Opt[*gpu.Medium] {
		return gpu.Some(&gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: total, Used: used})})
	}
	var h history
	for _, step := range []struct {
		clock  time.Duration
		c      gpu.GPU
		points int
		want   string // utilization, memory and power of the last point
	}{
		{0, gpu.GPU{}, 1, "– – –"},
		{9999 * time.Millisecond, gpu.GPU{Activity: gpu.Activity{Busy: seconds(1), Observed: seconds(2)}}, 1, "– – –"},
		{10 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(2), Observed: seconds(8)}, Medium: reading(100, 25)}, 2,
			"0.25 0.25 –"},
		{19 * second, gpu.GPU{}, 2, "0.25 0.25 –"},
		{23 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(8), Observed: seconds(16)}, Medium: reading(0, 0),
			Fast: gpu.Some(&gpu.Fast{Power: gpu.Some(gpu.Watts(70))})}, 3, "0.75 – 70"},
		// the next is due ten seconds after the last
		{32 * second, gpu.GPU{}, 3, "0.75 – 70"},
		{33 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(8), Observed: seconds(16)}}, 4, "– – –"}, // nothing was observed
		// not measured: the next counts from the one before
		{43 * second, gpu.GPU{Medium: gpu.Some(&gpu.Medium{})}, 5, "– – –"},
		{53 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(18), Observed: seconds(26)}}, 6, "1 – –"},
		{63 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(0), Observed: seconds(36)}}, 7, "0 – –"},
		{73 * second, gpu.GPU{Activity: gpu.Activity{Busy: seconds(50), Observed: seconds(46)}}, 8, "1 – –"},
	} {
		at := time.Unix(0, 0).Add(step.clock)
		h.add(step.clock, at, &step.c)
		p := h.points[len(h.points)-1]
		got := ""
		for _, v := range []gpu.Opt[gpu.Ratio]{p.Utilization, p.Memory} {
			if x, ok := v.Get(); ok {
				got += fmt.Sprint(x, " ")
			} else {
				got += "– "
			}
		}
		if x, ok := p.Power.Get(); ok {
			got += fmt.Sprint(x)
		} else {
			got += "–"
		}
		if got != step.want || len(h.points) != step.points {
			t.Errorf("at %v: %d points, %q, want %d, %q", step.clock, len(h.points), got, step.points, step.want)
		}
	}
}

// The expected GPUs by state: nothing is known before the driver, the bus or a configured number does; each state has a count then.
func TestDevices(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Sampler)
		want   string // up, failed, missing, detached
	}{
		"nothing":                {func(*Sampler) {}, "unknown"},
		"the driver without GPU": {func(s *Sampler) { s.session.state = sessionOpen }, "0 0 0 0"},
		"an empty bus":           {func(s *Sampler) { s.expected.ok = true }, "0 0 0 0"},
		"a configured number":    {func(s *Sampler) { s.o.GPUs = 3 }, "0 0 3 0"},
		"a GPU known before":     {func(s *Sampler) { s.devs = []*tracked{{state: gpu.DeviceFailed}} }, "0 1 0 0"},
		"one short":              {func(s *Sampler) { s.o.GPUs, s.devs = 2, []*tracked{{state: gpu.DeviceUp}} }, "1 0 1 0"},
		"one too many": {func(s *Sampler) {
			s.o.GPUs, s.devs = 1, []*tracked{{state: gpu.DeviceUp}, {state: gpu.DeviceDetached}, {state: gpu.DeviceMissing}}
		}, "1 0 1 1"},
	} {
		s := New(Options{})
		tt.change(s)
		got := "unknown"
		if n := s.devices(); n != nil {
			got = fmt.Sprint(n[gpu.DeviceUp], n[gpu.DeviceFailed], n[gpu.DeviceMissing], n[gpu.DeviceDetached])
			if len(n) != len(gpu.DeviceStates) {
				t.Errorf("%s: %v", name, n)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// The PCI bus is read every 30 s and with every list of GPUs, which is made at the same time while a GPU is missing. While
// it cannot be read no GPU is missing; each error is logged once.
func TestBusScans(t *testing.T) {
	var at []int
	var started time.Time
	list, err := []Expected{{PCI: "0000:01:00.0"}, {PCI: "0000:09:00.0"}}, error(nil)
	o := Options{Expecter: expecterFunc(func() ([]Expected, error) {
		at = append(at, int(time.Since(started)/second))
		return list, err
	})}
	world(t, 1, o, func(s *stand, logged func(string) int) {
		started = time.Now().Add(2 * second)
		s.d.settled = true
		s.step(25)
		if got := fmt.Sprint(at); got != "[0 0 30 30]" {
			t.Errorf("read at %s", got)
		}
		missing := func() int { return s.Latest().Devices[gpu.DeviceMissing] }
		if missing() != 1 || len(s.Latest().GPUs) != 2 {
			t.Errorf("%d missing", missing())
		}
		for _, step := range []struct {
			err           error
			lines, steps  int
			missing, gpus int
		}{{errors.New("no sysfs"), 1, 40, 0, 1}, {errors.New("denied"), 2, 40, 0, 1}, {nil, 2, 20, 1, 2}, {errors.New("denied"),
			3, 20, 0, 1}} {
			err = step.err
			s.step(step.steps)
			if n := logged("cannot scan the PCI bus"); n != step.lines || missing() != step.missing {
				t.Errorf("%v: %d lines, %d missing", step.err, n, missing())
			}
		}
		// One that leaves the bus without having been read is forgotten.
		err = nil
		s.step(20)
		list = list[:1]
		if v := s.step(20); len(v.GPUs) != 1 || v.GPUs[0].UUID != "GPU-0" {
			t.Errorf("%+v", v.GPUs)
		}
	})
}

// Allocations are resolved once per poll while the inventory is the same, and again with the new inventory where it changed.
func TestResolverCalls(t *testing.T) {
	d := newFake(t, 2)
	r := &fakeResolver{h: gpu.Allocations{Known: true}}
	bubble(t, d, Options{Resolver: r}, func(s *stand) {
		for _, step := range []struct {
			name   string
			change func()
			calls  int
			gpus   int
		}{
			{"the first inventory", func() {}, 1, 2},
			{"nothing changes", func() {}, 1, 2},
			{"a GPU more", func() { d.devs, s.session.scanAt = append(d.devs, newFake(t, 3).devs[2]), 0; d.devs[2].d = d }, 2, 3},
			{"nothing changes again", func() {}, 1, 3},
		} {
			d.with(step.change)
			before := len(r.inv)
			s.step(1)
			if n := len(r.inv) - before; n != step.calls || len(r.inv[len(r.inv)-1].GPUs) != step.gpus {
				t.Errorf("%s: %d calls, inventory of %d", step.name, n, len(r.inv[len(r.inv)-1].GPUs))
			}
		}
	})
}

// The inventory has the GPUs that the driver lists, has listed or that were read, with memory as last read and MIG layout; those
// that only the bus has, it has not.
func TestInventory(t *testing.T) {
	in := gpu.Instance{UUID: "MIG-1", GI: 1}
	mig := &gpu.Slow{MIGMode: gpu.Some(gpu.ModePair{Current: true}), Instances: []gpu.Instance{in}}
	s := New(Options{})
	s.devs = []*tracked{
		{id: gpu.Identity{UUID: "a", Index: 4, PCI: "1", Minor: gpu.Some(7)}, index: 2, dev: &handle{},
			memory: gpu.Some(gpu.Bytes(80))},
		{id: gpu.Identity{UUID: "b"}, known: true, layout: mig},
		{id: gpu.Identity{UUID: "c"}, known: true, layout: &gpu.Slow{}},
		{id: gpu.Identity{UUID: "lost", PCI: "2"}}, // listed, and never read before the driver went
		{id: gpu.Identity{UUID: "bus", PCI: "bus"}},
		{id: gpu.Identity{UUID: "vfio", PCI: "vfio"}, state: gpu.DeviceDetached},
	}
	s.updateInventory()
	want := []gpu.InventoryGPU{{UUID: "a", Index: 2, PCI: "1", Minor: gpu.Some(7), Memory: gpu.Some(gpu.Bytes(80))},
		{UUID: "b", MIG: true, Instances: []gpu.Instance{in}}, {UUID: "c"}, {UUID: "lost", PCI: "2"}}
	if !slices.EqualFunc(s.inventory.GPUs, want, sameGPU) {
		t.Errorf("%+v", s.inventory.GPUs)
	}
	before := s.inventory
	if s.updateInventory(); s.inventory != before {
		t.Error("another inventory though nothing changed")
	}
	s.devs[2].layout = mig
	if s.updateInventory(); s.inventory == before || before.GPUs[2].MIG {
		t.Error("the inventory that was given away was changed, or is not replaced")
	}
}

// XIDs that no data source can report have no series: without events none, without the kernel log none that NVML lacks.
func TestXIDsOfTheSourcesThatAreUp(t *testing.T) {
	for name, tt := range map[string]struct {
		kmsg bool
		err  error
		want string
	}{"events": {false, nil, "48"}, "events and kernel log": {true, nil, "48 79"}, "kernel log": {true, errOdd, "48 79"},
		"none": {false, errOdd, ""}} {
		d := newFake(t, 1)
		d.eventErr = tt.err
		o := Options{Sources: func() []gpu.Source { return []gpu.Source{{Name: gpu.SourceKmsg, Up: tt.kmsg}} }}
		bubble(t, d, o, func(s *stand) {
			s.step(3)
			var got []string
			for _, x := range s.dev(0).XIDs {
				if x.XID == 48 || x.XID == 79 {
					got = append(got, fmt.Sprint(x.XID))
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%s: %v, want %q", name, got, tt.want)
			}
		})
	}
}

// The health of the events: up once a wait succeeded, with the time of the last one; a failure counts once as long as it lasts.
// There is none without a session.
func TestHealthOfEvents(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, _ func(string) int) {
		s.d.openErr = errOdd
		if v := s.step(1); len(v.Sources) != 1 {
			t.Errorf("without a session: %+v", v.Sources)
		}
		s.d.openErr = nil
		s.step(4)
		last := s.source(gpu.SourceEvents)
		if !last.Up || last.LastSuccess != gpu.Some(time.Now()) || last.Errors != 0 || last.Message != "" {
			t.Errorf("%+v", last)
		}
		for i, err := range []error{errOdd, errOdd, gpu.ErrUninitialized, nil, errOdd} {
			s.d.with(func() { s.d.eventErr = err })
			s.step(1)
			want := []uint64{1, 1, 1, 1, 2}[i]
			if src := s.source(gpu.SourceEvents); src.Errors != want || src.Up != (i == 3) || src.Up == (src.Message != "") ||
				src.LastSuccess.Present() != true {
				t.Errorf("step %d: %+v", i, src)
			}
		}
	})
}

// PIDs are resolved when they are new, and again with each list that has them; one that is no longer listed is forgotten, since it
// may be another process when it returns. A PID on two GPUs is resolved once per poll.
func TestWhenPIDsAreResolved(t *testing.T) {
	d := newFake(t, 2)
	list := func(pids ...int) (out gpu.Opt[[]gpu.Process]) {
		all := []gpu.Process{}
		for _, pid := range pids {
			all = append(all, gpu.Process{PID: pid})
		}
		return gpu.Some(all)
	}
	users := &fakeUsers{names: map[int]string{7: "a"}, attempted: map[int]int{}}
	bubble(t, d, Options{Users: users, Medium: 4 * second}, func(s *stand) {
		for i, step := range []struct {
			first, second gpu.Opt[[]gpu.Process]
			samples       gpu.Opt[[]gpu.ProcessSample]
			accounts      gpu.Opt[[]gpu.ProcessAccount]
			want          map[int]int // resolved in this poll
		}{
			{list(7, 8), list(7), none[[]gpu.ProcessSample](), none[[]gpu.ProcessAccount](), map[int]int{7: 1, 8: 1}},
			{list(7, 8), list(7), none[[]gpu.ProcessSample](), none[[]gpu.ProcessAccount](), map[int]int{}}, // no list in this poll
			{list(7), list(7), none[[]gpu.ProcessSample](), none[[]gpu.ProcessAccount](), map[int]int{7: 1}},
			{list(7), list(7), gpu.Some([]gpu.ProcessSample{{PID: 9}}), none[[]gpu.ProcessAccount](), map[int]int{9: 1}},
			{list(7, 8), list(), none[[]gpu.ProcessSample](), gpu.Some([]gpu.ProcessAccount{{PID: 5}}), map[int]int{7: 1, 8: 1, 5: 1}},
			{list(7, 8), list(), gpu.Some([]gpu.ProcessSample{{PID: 9}}), none[[]gpu.ProcessAccount](), map[int]int{9: 1}},
		} {
			d.with(func() {
				d.devs[0].procs, d.devs[1].procs, d.devs[0].samples, d.devs[0].accounts = step.first, step.second, step.samples,
					step.accounts
			})
			clear(users.attempted)
			s.step(1)
			if fmt.Sprint(users.attempted) != fmt.Sprint(step.want) {
				t.Errorf("poll %d: resolved %v, want %v", i, users.attempted, step.want)
			}
		}
	})
}

// fakeCgroups names the cgroup of one pod.
type fakeCgroups struct{}

func (fakeCgroups) Memory() map[gpu.PCIAddress][]gpu.CgroupMemory { return nil }
func (fakeCgroups) Owner(path string) (gpu.Container, gpu.UnattributedReason) {
	if path == "/pod" {
		return gpu.Container{Pod: "a"}, ""
	}
	return gpu.Container{}, gpu.UnattributedHost
}

// The driver's account of a cgroup has the cgroup's container; without Cgroups it is unresolved, never of no container.
func TestOwnersOfCgroups(t *testing.T) {
	for name, tt := range map[string]struct {
		o    Options
		want [2]gpu.CgroupMemory
	}{
		"named": {Options{Cgroups: fakeCgroups{}}, [2]gpu.CgroupMemory{{Path: "/pod", Used: 1, Container: gpu.Container{Pod: "a"}},
			{Path: "/ssh", Used: 2, Reason: gpu.UnattributedHost}}},
		"not read": {Options{}, [2]gpu.CgroupMemory{{Path: "/pod", Used: 1, Reason: gpu.UnattributedUnresolved},
			{Path: "/ssh", Used: 2, Reason: gpu.UnattributedUnresolved}}},
	} {
		d := newFake(t, 1)
		d.devs[0].cgroups = []gpu.CgroupMemory{{Path: "/pod", Used: 1}, {Path: "/ssh", Used: 2}}
		bubble(t, d, tt.o, func(s *stand) {
			s.step(1)
			if m := s.dev(0).Medium.Or(&gpu.Medium{}); len(m.Cgroups) != 2 || [2]gpu.CgroupMemory(m.Cgroups) != tt.want {
				t.Errorf("%s: %+v", name, m.Cgroups)
			}
		})
	}
}

// The first recovery action that is read is no change: the slow poll group is not read for it.
func TestFirstRecoveryAction(t *testing.T) {
	d := newFake(t, 1)
	bubble(t, d, Options{}, func(s *stand) {
		s.step(2)
		d.with(func() { d.devs[0].recovery = gpu.Some(gpu.RecoveryReset) })
		if s.step(8); d.calls(0)[pollSlow] != 1 {
			t.Errorf("%d slow polls", d.calls(0)[pollSlow])
		}
		d.with(func() { d.devs[0].recovery = none[gpu.RecoveryAction]() })
		if s.step(8); s.dev(0).Recovery != gpu.Some(gpu.RecoveryReset) {
			t.Errorf("%v: the last one stays", s.dev(0).Recovery)
		}
	})
}

// A GPU that was never read and leaves the PCI bus has no account any more.
func TestForgottenGPU(t *testing.T) {
	list := []Expected{{PCI: "0000:01:00.0"}, {PCI: "0000:09:00.0"}}
	world(t, 1, Options{Expecter: expecterFunc(func() ([]Expected, error) { return list, nil })}, func(s *stand, _ func(string) int) {
		account := func() bool {
			g := gpu.GPU{Identity: gpu.Identity{UUID: "0000:09:00.0"}}
			s.ledger.Fill(&g)
			return g.GPUSeconds != nil
		}
		if s.step(3); !account() {
			t.Error("no account while it is on the bus")
		}
		list = list[:1]
		if s.step(40); account() || len(s.Latest().GPUs) != 1 {
			t.Errorf("its account stays; %d GPUs", len(s.Latest().GPUs))
		}
	})
}

// Of 18 links the driver reports 6 as down that no board of the model has: these are healthy until one of the 12 is down.
func TestLinksThatWereNeverUp(t *testing.T) {
	d := newFake(t, 3)
	for _, g := range d.devs {
		g.links = gpu.Some(gpu.NVLinkCount{Up: 12, Down: 6})
	}
	d.devs[1].links = gpu.Some(gpu.NVLinkCount{Up: 11, Down: 7}) // from the start
	d.devs[2].id.Model = "H100 PCIe"
	bubble(t, d, Options{Slow: 10 * time.Second}, func(s *stand) {
		verdicts := func() (out string) {
			for i := range s.Latest().GPUs {
				verdict, _ := s.dev(i).Health(time.Now())
				out += string(verdict) + " "
			}
			return out
		}
		if s.step(10); verdicts() != "healthy degraded healthy " {
			t.Error(verdicts())
		}
		d.with(func() { d.devs[2].links = gpu.Some(gpu.NVLinkCount{Up: 10, Down: 8}) })
		if s.step(10); verdicts() != "healthy degraded degraded " {
			t.Error(verdicts())
		}
	})
}

// An event is of the GPU with its UUID or its address; an event without either is of none. Many of one poll are one line.
func TestWhoseEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		e    gpu.XIDEvent
		want string // GPUs whose slow poll group is read
	}{
		"by UUID": {gpu.XIDEvent{GPU: "GPU-1"}, "1"}, "by address": {gpu.XIDEvent{PCI: "0000:01:00.0"}, "0"},
		"both": {gpu.XIDEvent{GPU: "GPU-0", PCI: "0000:01:00.0"}, "0"}, "unknown": {gpu.XIDEvent{GPU: "GPU-9",
			PCI: "0000:09:00.0"}, ""},
		"neither": {gpu.XIDEvent{}, ""},
	} {
		world(t, 2, Options{}, func(s *stand, logged func(string) int) {
			s.d.devs = append(s.d.devs, &fakeGPU{d: s.d, id: gpu.Identity{UUID: "GPU-nowhere", Index: 2, Model: "Orin"},
				period: second})
			s.step(2)
			tt.e.XID, tt.e.Source, tt.e.Time = 31, gpu.SourceKmsg, time.Now()
			for range 3 {
				s.Event(tt.e)
			}
			s.step(2)
			got := ""
			for i := range s.d.devs {
				if s.d.calls(i)[pollSlow] > 1 {
					got += fmt.Sprint(i)
				}
			}
			if n := logged("XID"); got != tt.want || n != 1 {
				t.Errorf("%s: read %q, want %q; %d lines", name, got, tt.want, n)
			}
		})
	}
}

// The process of an event names its container if the process used the GPU before and still is the same, or its container has the
// GPU; a process that has ended is the one that it was.
func TestProcessOfAnXID(t *testing.T) {
	container := func(pod string) account.User {
		return account.User{Container: gpu.Container{Namespace: "t", Pod: pod, Name: "c"}}
	}
	for name, tt := range map[string]struct {
		before map[int]account.User
		now    account.User
		want   string
	}{
		"uses the GPU":       {map[int]account.User{7: container("x")}, container("x"), "x"},
		"ended":              {map[int]account.User{7: container("x")}, account.User{Reason: gpu.UnattributedUnresolved}, "x"},
		"reused":             {map[int]account.User{7: container("x")}, container("train"), ""},
		"reused by the host": {map[int]account.User{7: container("x")}, account.User{Reason: gpu.UnattributedHost}, ""},
		"of the host": {map[int]account.User{7: {Reason: gpu.UnattributedHost}},
			account.User{Reason: gpu.UnattributedHost}, "train"},
		"has the GPU":                    {nil, container("train"), "train"},
		"of a container without a GPU":   {nil, container("x"), "train"},
		"ended, and was not seen before": {nil, account.User{Reason: gpu.UnattributedUnresolved}, "train"},
	} {
		s := New(Options{Users: finder(tt.now)})
		s.users = tt.before
		s.allocations = gpu.Allocations{Known: true, List: []gpu.Allocation{holdsWhole("other", "GPU-1"), holdsWhole("train", "GPU-0")}}
		if got := s.containerOf(gpu.XIDEvent{PID: 7}, &tracked{id: gpu.Identity{UUID: "GPU-0"}}); got.Pod != tt.want {
			t.Errorf("%s: %q, want %q", name, got.Pod, tt.want)
		}
	}
}

// finder finds the same user for every PID.
type finder account.User

func (finder) Expect([]int) {}

func (f finder) Find(int) account.User { return account.User(f) }

// changing is a Users for which the PID changes hands once.
type changing struct{ before, after, asked account.User }

func (*changing) Expect([]int) {}

func (c *changing) Find(int) account.User {
	if c.after != c.before && c.asked != c.after {
		c.before, c.asked = c.after, c.after
		return account.User{Reason: gpu.UnattributedUnresolved}
	}
	c.asked = c.after
	return c.after
}

// A PID that changes hands is found by a process list, and the samples of the ring follow seconds later: what they have of the
// time before is not the new owner's.
func TestSamplesOfAPIDThatChangedHands(t *testing.T) {
	user := func(pod string) account.User {
		return account.User{Container: gpu.Container{Namespace: "t", Pod: pod, Name: "c"}}
	}
	for delay := range 9 {
		users := &changing{user("a"), user("a"), user("a")}
		d := newFake(t, 1)
		d.devs[0].depth, d.devs[0].util = 15*time.Second, .5
		d.devs[0].procs = gpu.Some([]gpu.Process{{PID: 7, Memory: gpu.Some(gpu.Bytes(1))}})
		half := func(pod string) gpu.Allocation {
			h := holdsWhole(pod, "GPU-0")
			h.Share, h.Shared = gpu.Some(gpu.Ratio(.5)), true
			return h
		}
		resolver := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{half("a"), half("b")}}}
		bubble(t, d, Options{Users: users, Resolver: resolver}, func(s *stand) {
			work := func() {
				d.with(func() {
					d.devs[0].samples = gpu.Some([]gpu.ProcessSample{{PID: 7, SM: 50, Time: time.Now().UnixMicro()}})
				})
			}
			for range 20 + delay {
				work()
				s.step(1)
			}
			users.after = user("b")
			changed := time.Now()
			for range 20 {
				work()
				s.step(1)
			}
			passed := time.Since(changed).Seconds()
			for _, c := range s.Latest().Containers {
				// The samples of the time before the change was seen are unresolved, those after it are b's.
				if busy := float64(c.Busy.Or(0)); c.Pod == "b" && busy > passed/2-1 {
					t.Errorf("changed %d polls later: b has %v s of %v", delay, busy, passed/2)
				}
			}
		})
	}
}

// A view has what the ledger has of the allocations, the taints with their GPU, and the commands of processes where they are read.
func TestAllocationsInTheView(t *testing.T) {
	d := newFake(t, 2)
	taints := []gpu.Taint{{Key: "gpu", Effect: "NoSchedule"}}
	r := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{holdsWhole("a", "GPU-0")},
		Unresolved: []gpu.Unresolved{{Container: gpu.Container{Pod: "b"}, Resource: "x", Devices: 1}},
		Resources:  []gpu.ResourceCount{{Resource: "nvidia.com/gpu"}}, Pods: []gpu.PodRef{{Pod: "a"}},
		Taints: map[gpu.UUID][]gpu.Taint{"GPU-1": taints}}}
	bubble(t, d, Options{Resolver: r}, func(s *stand) {
		v := s.step(2)
		if len(v.Unresolved) != 1 || len(v.Resources) != 1 || len(v.Pods) != 1 || len(v.Allocations) != 1 || !v.Ownership ||
			len(v.GPUs[0].Taints) != 0 || !slices.Equal(v.GPUs[1].Taints, taints) || !v.Accounts.Present() {
			t.Errorf("%+v", v)
		}
	})
}

// Containers beyond the limit are one, and the node page says so.
func TestNoteOfAggregatedContainers(t *testing.T) {
	d := newFake(t, 1)
	r := &fakeResolver{h: gpu.Allocations{Known: true, Configured: true}}
	for i := range 5 {
		a := holdsWhole(fmt.Sprint("pod-", i), "GPU-0")
		a.Share = gpu.Some(gpu.Ratio(.2))
		r.h.List = append(r.h.List, a)
	}
	bubble(t, d, Options{Resolver: r, Accounts: 2}, func(s *stand) {
		want := fmt.Sprintf("%d containers are aggregated into pod=%q: the limit is 2 (--container-limit).", 3, gpu.OtherContainers.Pod)
		if notes := s.step(2).Notes; len(notes) != 1 || notes[0] != want {
			t.Errorf("%q, want %q", notes, want)
		}
	})
}

// The line of an XID has the GPU instance and the container only where they are known.
func TestLogOfAnXID(t *testing.T) {
	for name, tt := range map[string]struct {
		list []gpu.Allocation
		gi   gpu.Opt[int]
		want string
	}{
		"neither":  {nil, none[int](), "level=WARN msg=XID xid=48 tier=critical gpu=GPU-0 pci=\"\" reports=1\n"},
		"instance": {nil, gpu.Some(0), "level=WARN msg=XID xid=48 tier=critical gpu=GPU-0 pci=\"\" reports=1 gi=0\n"},
		"a container": {[]gpu.Allocation{holdsWhole("a", "GPU-0")}, none[int](),
			"level=WARN msg=XID xid=48 tier=critical gpu=GPU-0 pci=\"\" reports=1 namespace=t pod=a container=c\n"},
	} {
		var log strings.Builder
		s := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.devs = []*tracked{{id: gpu.Identity{UUID: "GPU-0"}}}
		s.allocations = gpu.Allocations{Known: true, List: tt.list}
		s.Event(gpu.XIDEvent{GPU: "GPU-0", XID: 48, GI: tt.gi, Time: time.Now(), Source: gpu.SourceNVML})
		s.takeEvents()
		if _, got, _ := strings.Cut(log.String(), " "); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A result that is there when a poll may wait no longer is used in that poll.
func TestCollectWithoutTime(t *testing.T) {
	s := New(Options{})
	dev := &tracked{pending: true}
	s.devs = []*tracked{dev}
	s.readings <- &reading{job: job{dev: dev}}
	if s.collect(&waitLimit{over: true}); dev.pending {
		t.Error("left for the next poll")
	}
}
