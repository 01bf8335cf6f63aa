package sampler

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// world is a sampler on two or three GPUs, and its log.
func world(t *testing.T, gpus int, o Options, f func(s *stand, logged func(message string) int)) {
	t.Helper()
	var log strings.Builder
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	d := newFake(t, gpus)
	bubble(t, d, o, func(s *stand) {
		f(s, func(message string) int {
			return strings.Count(strings.ReplaceAll(log.String(), `msg="`, "msg="), "msg="+message)
		})
	})
}

// stubSampler is a sampler on the PCI bus of GPU "here", which has seen it; nothing runs.
func stubSampler(watch time.Time) *Sampler {
	s := New(Options{Watch: func() time.Time { return watch }})
	s.session.state = sessionOpen
	s.expected.list = []Expected{{PCI: "here"}, {PCI: "vm", Detached: true}}
	return s
}

// The state of a GPU, why it is not up, the kind of its failure and what the ledger makes of its time. The first rule that
// applies decides.
func TestStateOf(t *testing.T) {
	now := time.Unix(1000, 0)
	dev := &handle{}
	for name, tt := range map[string]struct {
		dev          tracked
		pci          gpu.PCIAddress
		change       func(*Sampler)
		state        gpu.DeviceState
		message      string
		failure      gpu.Failure
		availability account.Availability
	}{
		"up": {tracked{dev: dev}, "here", nil, gpu.DeviceUp, "", gpu.FailureOther, account.Readable},
		"hung, whatever else": {tracked{dev: dev, hung: true, started: now.Add(-7600 * time.Millisecond), lostErr: gpu.ErrLost,
			failErr: errOdd}, "here", nil, gpu.DeviceFailed, "hung for 8s: a driver call timed out", gpu.FailureHung,
			account.Unavailable},
		"detached": {tracked{}, "vm", nil, gpu.DeviceDetached, "bound to another driver",
			gpu.FailureOther, account.Unavailable},
		"listed, though bound to another driver": {tracked{dev: dev}, "vm", nil, gpu.DeviceUp, "", gpu.FailureOther, account.Readable},
		"paused": {tracked{dev: dev, known: true}, "here", func(s *Sampler) {
			s.session.state,
				s.session.pausedUntil = sessionClosed, second
			s.session.pause.words = "while a MIG change is pending"
		},
			gpu.DeviceUp, "suspended while a MIG change is pending", gpu.FailureOther, account.Unread},
		"lost before the pause": {tracked{dev: dev, lostErr: gpu.ErrLost}, "here",
			func(s *Sampler) { s.session.state, s.session.pausedUntil = sessionClosed, second },
			gpu.DeviceFailed, gpu.ErrLost.Error(), gpu.FailureLost, account.Unavailable},
		"failed before the pause": {tracked{dev: dev, failErr: errOdd}, "here",
			func(s *Sampler) { s.session.state, s.session.pausedUntil = sessionClosed, second },
			gpu.DeviceFailed, "UNKNOWN", gpu.FailureOther, account.Unavailable},
		"no NVML": {tracked{dev: dev, known: true}, "here", func(s *Sampler) {
			s.session.state,
				s.session.message = sessionClosed, "no file"
		},
			gpu.DeviceFailed, "NVML is not available: no file", gpu.FailureOther, account.Unavailable},
		"never read, no NVML": {tracked{}, "here", func(s *Sampler) { s.session.state = sessionClosed },
			gpu.DeviceMissing, "on the PCI bus, but not listed by the driver; check its last XID and the kernel log", gpu.FailureOther,
			account.Unavailable},
		"missing": {tracked{known: true}, "here", nil, gpu.DeviceMissing,
			"on the PCI bus, but not listed by the driver; check its last XID and the kernel log", gpu.FailureOther,
			account.Unavailable},
		"gone from the bus": {tracked{known: true}, "gone", nil, gpu.DeviceFailed, "no longer listed by the driver", gpu.FailureOther,
			account.Unavailable},
		"no address": {tracked{known: true}, "", nil, gpu.DeviceFailed, "no longer listed by the driver", gpu.FailureOther,
			account.Unavailable},
		"lost": {tracked{dev: dev, lostErr: wrapped(gpu.ErrLost), failErr: errOdd}, "here", nil, gpu.DeviceFailed,
			wrapped(gpu.ErrLost).Error(), gpu.FailureLost, account.Unavailable},
		"reset required": {tracked{dev: dev, lostErr: gpu.ErrResetRequired}, "here", nil, gpu.DeviceFailed,
			gpu.ErrResetRequired.Error(),
			gpu.FailureReset, account.Unavailable},
		"failing": {tracked{dev: dev, failErr: errOdd}, "here", nil, gpu.DeviceFailed, "UNKNOWN", gpu.FailureOther,
			account.Unavailable},
		"panic": {tracked{dev: dev, panicked: [3]error{nil, errOdd}}, "here", nil, gpu.DeviceFailed, "UNKNOWN", gpu.FailureOther,
			account.Unavailable},
	} {
		s := stubSampler(now)
		if tt.change != nil {
			tt.change(s)
		}
		tt.dev.id.PCI = tt.pci
		state, message := s.stateOf(&tt.dev)
		tt.dev.state = state
		if state != tt.state || message != tt.message || tt.dev.failure() != tt.failure || tt.dev.availability(s) != tt.availability {
			t.Errorf("%s: %s %q, %s, %d", name, state, message, tt.dev.failure(), tt.dev.availability(s))
		}
	}
}

// What is wrong with the driver, and the sentences of the node page about it.
func TestDriverErrorAndNotes(t *testing.T) {
	now := time.Unix(1000, 0)
	up := func(s *Sampler) { s.devs = []*tracked{{dev: &handle{}, state: gpu.DeviceUp}} }
	for name, tt := range map[string]struct {
		change  func(*Sampler)
		message string
		notes   []string
	}{
		"up":     {up, "", nil},
		"no GPU": {func(*Sampler) {}, "", []string{"The driver lists no GPU."}},
		"closed": {func(s *Sampler) { s.session.state = sessionClosed }, "NVML is not initialized yet",
			[]string{"NVML is not initialized yet."}},
		"refused": {func(s *Sampler) { s.session.state, s.session.message = sessionClosed, "no" }, "no",
			[]string{"NVML cannot be initialized: no. The exporter retries."}},
		"no driver": {func(s *Sampler) {
			s.session.state, s.session.message, s.session.hint = sessionClosed, "no file", wrapped(gpu.ErrNoDriver)
		}, "no file",
			[]string{"No NVIDIA driver yet: no file. The exporter retries; no restart is needed once the driver is installed."}},
		"upgraded": {func(s *Sampler) {
			s.session.state, s.session.message, s.session.mismatch = sessionClosed, "580 is not 590", true
		},
			"580 is not 590", []string{"The driver was upgraded while the exporter had its library loaded: 580 is not 590"}},
		"paused": {func(s *Sampler) {
			s.clock, s.session.state, s.session.message, s.session.pausedUntil = second, sessionClosed,
				"NVML is shut down while a MIG change is pending", 13600*time.Millisecond
		}, "NVML is shut down while a MIG change is pending",
			[]string{"NVML is shut down while a MIG change is pending; readings resume in at most 13s."}},
		"a call that takes long": {func(s *Sampler) {
			up(s)
			s.session.op, s.session.opStarted = opScan, now.Add(-4999*time.Millisecond)
		}, "", nil},
		"a call that hangs": {func(s *Sampler) {
			up(s)
			s.session.op, s.session.opStarted = opScan, now.Add(-5*second)
		}, "list the GPUs: no response for 5s", []string{
			"The driver hangs: list the GPUs: no response for 5s. Check the kernel log for XIDs and hung tasks; restarting the exporter " +
				"does not help."}},
		"every GPU fails": {func(s *Sampler) { s.devs = []*tracked{{dev: &handle{}, failErr: errOdd, state: gpu.DeviceFailed}, {}} },
			"every GPU fails: if the container lost its devices (after systemctl daemon-reload), restart it",
			[]string{"NVML is initialized, but every GPU fails: if the container lost its devices (after systemctl daemon-reload), " +
				"restart it."}},
		"one of two fails": {func(s *Sampler) {
			s.devs = []*tracked{{dev: &handle{}, failErr: errOdd, state: gpu.DeviceFailed}, {dev: &handle{}, state: gpu.DeviceUp}}
		}, "", nil},
		"the only one is lost": {func(s *Sampler) {
			s.devs = []*tracked{{dev: &handle{}, lostErr: gpu.ErrLost, state: gpu.DeviceFailed}, {state: gpu.DeviceUp}}
		}, "no GPU is available", []string{"NVML is initialized, but no GPU is available."}},
		"a GPU hangs": {func(s *Sampler) {
			up(s)
			s.devs = append(s.devs, &tracked{id: gpu.Identity{UUID: "GPU-1"}, dev: &handle{}, hung: true, message: "hung for 8s"})
		}, "", []string{"GPU GPU-1 is hung for 8s. Other GPUs are not affected; polling resumes when the call returns."}},
		"uncertain allocations": {func(s *Sampler) {
			up(s)
			s.allocations.Uncertain = true
		}, "", []string{"Some allocated device IDs could not be resolved to GPUs: no GPU is known to be unallocated."}},
	} {
		s := stubSampler(now)
		tt.change(s)
		if got := s.driverError(); got != tt.message {
			t.Errorf("%s: %q", name, got)
		}
		if got := s.notes(); !slices.Equal(got, tt.notes) {
			t.Errorf("%s: notes %q", name, got)
		}
		if src := s.sources()[0]; src.Up != (tt.message == "") || src.Message != tt.message {
			t.Errorf("%s: %+v", name, src)
		}
	}
}

// GPUs come in NVML's order; those without an index after them, in the order of their addresses.
func TestOrderOfGPUs(t *testing.T) {
	s := New(Options{})
	for _, x := range []struct {
		index int
		pci   gpu.PCIAddress
	}{{-1, "c"}, {1, "z"}, {-1, "a"}, {0, "y"}, {2, "b"}, {1, "x"}, {-1, "a"}, {1, "x"}} {
		s.devs = append(s.devs, &tracked{id: gpu.Identity{Index: x.index, PCI: x.pci, Model: fmt.Sprint(len(s.devs))}})
	}
	s.sortGPUs()
	got := ""
	for _, x := range s.devs {
		got += fmt.Sprintf("%d%s%s ", x.id.Index, x.id.PCI, x.id.Model)
	}
	if got != "0y3 1x5 1x7 1z1 2b4 -1a2 -1a6 -1c0 " {
		t.Error(got)
	}
}

// What becomes of the GPUs that are known when the driver lists others: a GPU at the address of another replaces it, one that
// cannot be read now keeps its identity and index, one that was never read and is not on the bus is forgotten.
func TestScannedGPUs(t *testing.T) {
	gpuAt := func(uuid gpu.UUID, pci gpu.PCIAddress, index int, model string) GPU {
		return &handle{fakeGPU: &fakeGPU{id: gpu.Identity{UUID: uuid, PCI: pci, Index: index, Model: model}}}
	}
	known := func(uuid gpu.UUID, pci gpu.PCIAddress, index int, pending bool) *tracked {
		return &tracked{id: gpu.Identity{UUID: uuid, PCI: pci, Index: index, Model: "H100"}, index: index, known: true,
			pending: pending,
			lostErr: gpu.ErrLost}
	}
	for name, tt := range map[string]struct {
		before []*tracked
		listed []GPU
		want   string // uuid@address index/NVML's index model, due, lost
	}{
		"new":            {nil, []GPU{gpuAt("a", "1", 0, "H100")}, "a@1 0/0 H100 due"},
		"the same":       {[]*tracked{known("a", "1", 0, false)}, []GPU{gpuAt("a", "1", 0, "H100")}, "a@1 0/0 H100 due"},
		"another index":  {[]*tracked{known("a", "1", 2, false)}, []GPU{gpuAt("a", "1", 0, "H100")}, "a@1 2/0 H100 due"},
		"first an index": {[]*tracked{known("a", "1", -1, false)}, []GPU{gpuAt("a", "1", 3, "H100")}, "a@1 3/3 H100 due"},
		"not readable":   {[]*tracked{known("a", "1", 1, false)}, []GPU{gpuAt("a", "", 0, "")}, "a@1 1/0 H100 due"},
		"replaced":       {[]*tracked{known("a", "1", 0, false)}, []GPU{gpuAt("b", "1", 0, "H200")}, "b@1 0/0 H200 due"},
		"replaced, a call is in progress": {[]*tracked{known("a", "1", 0, true)}, []GPU{gpuAt("b", "1", 1, "H200")},
			"a@1 0/0 H100 lost, b@1 1/1 H200 due"},
		"without addresses": {[]*tracked{known("a", "", 0, false)}, []GPU{gpuAt("b", "", 1, "H200")},
			"a@ 0/0 H100 lost unlisted, b@ 1/1 H200 due"},
		"unlisted":             {[]*tracked{known("a", "1", 0, false)}, nil, "a@1 0/0 H100 lost unlisted"},
		"never read, unlisted": {[]*tracked{{id: gpu.Identity{UUID: "a", PCI: "1"}}}, nil, ""},
		"never read, unlisted, a call is in progress": {[]*tracked{{id: gpu.Identity{UUID: "a", PCI: "1"}, pending: true}}, nil,
			"a@1 0/0 "},
		"never read, unlisted, on the bus": {[]*tracked{{id: gpu.Identity{UUID: "here", PCI: "here"}}}, nil,
			"here@here 0/0  unlisted"},
	} {
		s := stubSampler(time.Time{})
		s.devs = tt.before
		for _, x := range s.devs {
			x.dev = &handle{}
		}
		s.adopt(tt.listed)
		var got []string
		for _, x := range s.devs {
			text := fmt.Sprintf("%s@%s %d/%d %s", x.id.UUID, x.id.PCI, x.id.Index, x.index, x.id.Model)
			if x.fast.due && x.medium.due && x.slow.due {
				text += " due"
			}
			if x.lostErr != nil {
				text += " lost"
			}
			if x.dev == nil {
				text += " unlisted"
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, ", "), tt.want)
		}
	}
	// A GPU that is listed by the handle that is known is not read again out of turn.
	s := stubSampler(time.Time{})
	dev := gpuAt("a", "1", 0, "H100")
	s.adopt([]GPU{dev})
	s.devs[0].fast.due = false
	if s.adopt([]GPU{dev}); s.devs[0].fast.due {
		t.Error("the same handle makes its poll groups due")
	}
}

// A GPU that replaces another at its address has an account of its own, from zero.
func TestReplacedGPUStartsAnew(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, _ func(string) int) {
		s.d.devs[0].util = 1
		s.step(6)
		s.d.with(func() {
			s.d.devs[0].id.UUID, s.d.devs[0].err = "GPU-other", nil
			s.devs[0].lostErr = gpu.ErrLost
		})
		s.session.scanAt = 0
		v := s.step(3)
		if len(v.GPUs) != 1 || v.GPUs[0].UUID != "GPU-other" || v.GPUs[0].Activity.Busy.Or(99) > 4.1 {
			t.Errorf("%+v", v.GPUs)
		}
		s.d.with(func() { s.d.devs[0].id.UUID = "GPU-0" })
		s.session.scanAt = 0
		if v := s.step(1); len(v.GPUs) != 1 || v.GPUs[0].Activity.Busy.Or(0) != 0 {
			t.Errorf("the first one returns with its account: %+v", v.GPUs)
		}
	})
	// A GPU that moves to the address of one that left keeps its account, whatever is now where it was.
	for i := range 2 {
		world(t, 2, Options{}, func(s *stand, _ func(string) int) {
			stays, leaves := s.d.devs[i], s.d.devs[1-i]
			stays.util = 1
			s.step(6)
			s.d.with(func() {
				leaves.id.UUID = "GPU-other"
				stays.id.PCI, leaves.id.PCI = leaves.id.PCI, stays.id.PCI
			})
			s.session.scanAt = 0
			s.Event(gpu.XIDEvent{PCI: stays.id.PCI, XID: 31, Source: gpu.SourceKmsg}) // of the GPU that is found there now
			v := s.step(3)
			at := slices.IndexFunc(v.GPUs, func(g gpu.GPU) bool { return g.UUID == stays.id.UUID })
			if len(v.GPUs) != 2 || at < 0 || v.GPUs[at].PCI != stays.id.PCI || v.GPUs[at].Activity.Busy.Or(0) < 10 ||
				!slices.ContainsFunc(v.GPUs[at].XIDs, func(x gpu.XIDCount) bool { return x.XID == 31 && x.Count == 1 }) {
				t.Errorf("%d moved: %+v", i, v.GPUs)
			}
		})
	}
}

// opensIn returns the seconds at which NVML is initialized within so many polls, one every 2 s.
func (s *stand) opensIn(polls int) string {
	var at []int
	for i := range polls {
		before := s.d.opens
		if s.Step(time.Now()); s.d.opens != before {
			at = append(at, 2*i)
		}
		time.Sleep(2 * second)
	}
	return fmt.Sprint(at)
}

// Attempts to initialize NVML: at once, then after 1, 2, 4, 8, 16, and every 30 s; one warning as long as the error is the same.
// With polls every 2 s.
func TestOpenRetries(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, logged func(string) int) {
		s.d.openErr = errOdd
		if got := s.opensIn(66); got != "[0 2 4 8 16 32 62 92 122]" {
			t.Errorf("attempts at %s", got)
		}
		if n := logged("cannot initialize NVML"); n != 1 {
			t.Errorf("%d warnings for one error", n)
		}
		if src := s.source(gpu.SourceNVML); src.Errors != 9 || src.LastSuccess.Present() {
			t.Errorf("%+v after 9 attempts", src)
		}
		s.d.openErr = errors.New("another")
		s.step(20)
		if n := logged("cannot initialize NVML"); n != 2 {
			t.Errorf("%d warnings for two errors", n)
		}
		s.d.openErr = nil
		s.step(20)
		if n := logged("NVML session opened"); n != 1 || s.dev(0).State != gpu.DeviceUp {
			t.Errorf("%d sessions, %s", n, s.dev(0).State)
		}
	})
}

// A session that ends as soon as it begins is opened again ever more seldom; one that lasted half a minute, at once.
func TestReopenedSessions(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, _ func(string) int) {
		s.d.devs[0].errs[pollFast] = gpu.ErrUninitialized
		if got := s.opensIn(60); got != "[0 2 6 12 22 40 72 104]" {
			t.Errorf("sessions at %s", got)
		}
		s.d.with(func() { s.d.devs[0].errs[pollFast] = nil })
		s.step(30)
		s.d.with(func() { s.d.devs[0].errs[pollFast] = gpu.ErrUninitialized })
		s.step(1)
		opens := s.d.opens
		s.d.with(func() { s.d.devs[0].errs[pollFast] = nil })
		if s.step(1); s.d.opens != opens+1 || s.dev(0).State != gpu.DeviceUp {
			t.Errorf("%d sessions in the next poll, %s", s.d.opens-opens, s.dev(0).State)
		}
	})
}

// GPUs are listed every 10 minutes; 4, 10, 22 and 46 s after one was lost and every 30 s from then on; and 30 s after a scan that
// failed. A scan that ends the session
// opens another.
func TestScans(t *testing.T) {
	scansIn := func(s *stand, steps int) int {
		before := s.d.scans
		s.step(steps)
		return s.d.scans - before
	}
	world(t, 2, Options{}, func(s *stand, _ func(string) int) {
		s.step(1)
		for _, tt := range []struct {
			name   string
			change func()
			steps  int
			want   int
		}{
			{"healthy, ten minutes less a poll", func() {}, 299, 0},
			{"healthy, ten minutes", func() {}, 1, 1},
			{"a GPU is lost", func() { s.d.devs[0].err = gpu.ErrLost }, 1, 0},
			{"after 28 s", func() {}, 14, 3},
			{"after 30 s", func() {}, 1, 0},
			{"a minute", func() {}, 30, 2},
			{"healthy again", func() { s.d.devs[0].err = nil }, 15, 1},
			{"stays healthy", func() {}, 100, 0},
			{"scans fail", func() { s.d.scanErr, s.session.scanAt = errOdd, 0 }, 16, 2},
			{"and succeed", func() { s.d.scanErr = nil }, 15, 1},
		} {
			s.d.with(tt.change)
			if n := scansIn(s, tt.steps); n != tt.want {
				t.Errorf("%s: %d scans, want %d", tt.name, n, tt.want)
			}
		}
		errs, opens := s.source(gpu.SourceNVML).Errors, s.d.opens
		s.d.with(func() { s.d.scanErr, s.session.scanAt = gpu.ErrUninitialized, 0 })
		s.step(1) // the scan fails, and that of the next session
		s.d.with(func() { s.d.scanErr = nil })
		s.step(2)
		if s.d.opens != opens+2 || s.source(gpu.SourceNVML).Errors != errs+2 || s.dev(0).State != gpu.DeviceUp {
			t.Errorf("%d sessions, %d errors, %s", s.d.opens-opens, s.source(gpu.SourceNVML).Errors-errs, s.dev(0).State)
		}
	})
}

// A new session whose GPUs cannot be listed is shut down again, and both errors are reported.
func TestOpenWithoutScan(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, _ func(string) int) {
		s.d.scanErr, s.d.closeErr = errOdd, errors.New("busy")
		s.step(1)
		if src := s.source(gpu.SourceNVML); s.d.closes != 1 || s.d.open || !strings.Contains(src.Message, "UNKNOWN") ||
			!strings.Contains(src.Message, "busy") {
			t.Errorf("closed %d times, %+v", s.d.closes, src)
		}
	})
}

// An operation of the session that panics fails like one that returns an error, and is counted.
func TestPanicsOfTheSession(t *testing.T) {
	for what, want := range map[string]string{"open": "cannot initialize NVML", "close": "failed to shut down NVML"} {
		world(t, 1, Options{}, func(s *stand, logged func(string) int) {
			if what == "close" {
				s.step(1)
				s.d.with(func() { s.d.devs[0].errs[pollFast] = gpu.ErrUninitialized })
			}
			s.d.panics = what
			s.step(2)
			s.d.with(func() { s.d.panics, s.d.open = "", false })
			v := s.step(1)
			if v.Panics.Or(0) == 0 || s.source(gpu.SourceNVML).Errors == 0 || logged(want) == 0 {
				t.Errorf("%s: %v panics, %d errors, %d lines", what, v.Panics, s.source(gpu.SourceNVML).Errors, logged(want))
			}
			s.d.with(func() { s.d.devs[0].errs[pollFast] = nil })
			if s.step(10); s.dev(0).State != gpu.DeviceUp {
				t.Errorf("%s: %s", what, s.dev(0).Message)
			}
		})
	}
}

// When every GPU fails for an unknown reason a new session is opened, once in five minutes; not when one of them is read.
func TestEveryGPUFails(t *testing.T) {
	world(t, 2, Options{}, func(s *stand, _ func(string) int) {
		s.step(2)
		s.d.with(func() { s.d.devs[0].err = errOdd })
		if s.step(300); s.d.opens != 1 {
			t.Errorf("opened %d times for one of two GPUs", s.d.opens)
		}
		s.d.with(func() { s.d.devs[1].err = errOdd })
		for _, tt := range []struct{ steps, opens int }{{4, 2}, {148, 2}, {3, 3}, {147, 3}, {4, 4}} {
			if s.step(tt.steps); s.d.opens != tt.opens {
				t.Errorf("after %d more polls opened %d times, want %d", tt.steps, s.d.opens, tt.opens)
			}
		}
	})
}

// unbinding plays the kernel: it waits until no session has the GPUs open.
type unbinding struct {
	*stand
	bus  []Expected
	devs []*fakeGPU // of the machine
}

func unbound(t *testing.T, gpus int, f func(*unbinding)) {
	d := newFake(t, gpus)
	d.settled = true
	u := &unbinding{devs: d.devs}
	for _, c := range d.devs {
		u.bus = append(u.bus, Expected{PCI: c.id.PCI})
	}
	o := Options{Expecter: expecterFunc(func() ([]Expected, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(u.bus), nil
	})}
	bubble(t, d, o, func(s *stand) {
		u.stand = s
		runFor(s, func() {
			time.Sleep(20 * second)
			f(u)
		})
	})
}

// until returns how long it takes.
func (u *unbinding) until(limit time.Duration, done func() bool) time.Duration {
	start := time.Now()
	for ok := false; !ok && time.Since(start) < limit; time.Sleep(10 * time.Millisecond) {
		u.d.with(func() { ok = done() })
	}
	return time.Since(start)
}

// bind changes which GPUs are bound to the driver, and reports it to the session, if there is one.
func (u *unbinding) bind(index int, to Expected) {
	to.PCI = u.bus[index].PCI
	u.bus[index] = to
	u.d.devs = nil
	for i, x := range u.bus {
		if !x.Detached && !x.Unbound {
			u.d.devs = append(u.d.devs, u.devs[i])
		}
	}
	u.d.bound = u.d.open && !to.Detached && !to.Unbound
}

// While a GPU is unbound from the driver nothing of it is open: closed within a second, and open again, for the others, once
// that is done, and for all within 5 s after it was bound. Time of the pause is unknown, and no time is lost or counted twice.
func TestUnbind(t *testing.T) {
	unbound(t, 2, func(u *unbinding) {
		start, before := time.Now(), u.dev(1).GPUSeconds
		u.d.with(func() { u.d.unbound = true })
		if took := u.until(time.Minute, func() bool { return !u.d.open }); took > second {
			t.Errorf("closed after %s", took)
		}
		time.Sleep(10 * second)
		if v := u.Latest(); u.d.open || !v.Paused[2].Active || v.Paused[0].Active || v.Paused[1].Active {
			t.Errorf("open %v while the kernel waits for another program: %+v", u.d.open, v.Paused)
		}
		u.d.with(func() { u.bind(0, Expected{Unbound: true}) })
		if took := u.until(time.Minute, func() bool { return u.d.open }); took > 5*second {
			t.Errorf("without the GPU open after %s", took)
		}
		time.Sleep(4 * second)
		if v := u.Latest(); u.dev(0).State != gpu.DeviceMissing || u.dev(1).State != gpu.DeviceUp || v.Paused[2].Active {
			t.Errorf("%s, %s, %+v", u.dev(0).State, u.dev(1).State, v.Paused)
		}
		opens := u.d.opens
		u.d.with(func() { u.bind(0, Expected{}) })
		if took := u.until(time.Minute, func() bool { return u.d.opens > opens }); took > 5*second {
			t.Errorf("open after %s", took)
		}
		time.Sleep(4 * second)
		if u.dev(0).State != gpu.DeviceUp || u.dev(1).State != gpu.DeviceUp {
			t.Errorf("%s, %s", u.dev(0).State, u.dev(1).State)
		}
		time.Sleep(20 * second)
		total, after := gpu.Seconds(0), u.dev(1).GPUSeconds
		for state, n := range after {
			if total += n - before[state]; n < before[state] {
				t.Errorf("%s decreased", state)
			}
		}
		if d := float64(total) - time.Since(start).Seconds(); d < -3 || d > 3 || after[gpu.TimeUnknown]-before[gpu.TimeUnknown] < 12 ||
			after[gpu.TimeUnavailable] != 0 {
			t.Errorf("%v after %v in %v", after, before, time.Since(start))
		}
	})
}

// While no GPU is bound to the driver it is not opened, which would keep it loaded. With all of them bound to another there is
// nothing wrong; and whoever keeps a GPU from being unbound keeps the others from being read for five minutes.
func TestUnbindAll(t *testing.T) {
	unbound(t, 2, func(u *unbinding) {
		u.d.with(func() { u.d.unbound = true })
		time.Sleep(second)
		u.d.with(func() { u.bind(0, Expected{Unbound: true}); u.bind(1, Expected{Detached: true}) })
		time.Sleep(time.Hour)
		if v := u.Latest(); u.d.open || u.d.opens != 1 || !v.Paused[2].Active || u.dev(1).State != gpu.DeviceDetached {
			t.Errorf("%d sessions, %+v, %s", u.d.opens, v.Paused, u.dev(1).State)
		}
		u.d.with(func() { u.bind(0, Expected{Detached: true}) })
		time.Sleep(4 * second)
		if v := u.Latest(); u.d.opens != 1 || v.Paused[2].Active || !u.source(gpu.SourceNVML).Up || v.Devices[gpu.DeviceDetached] != 2 {
			t.Errorf("%d sessions, %+v, %+v, %v", u.d.opens, v.Paused, u.source(gpu.SourceNVML), v.Devices)
		}
		u.d.with(func() { u.bind(1, Expected{}) })
		if took := u.until(time.Minute, func() bool { return u.d.open }); took > 5*second {
			t.Errorf("open after %s", took)
		}
		time.Sleep(4 * second)
		u.d.with(func() { u.d.unbound = true })
		u.until(time.Minute, func() bool { return !u.d.open })
		if took := u.until(time.Hour, func() bool { return u.d.open }); took < 298*second || took > 304*second {
			t.Errorf("open after %s", took)
		}
	})
}

// A request takes effect within a second; one that is withdrawn while a call hangs does not close the driver once that returns.
func TestLetGoAtOnce(t *testing.T) {
	unbound(t, 1, func(u *unbinding) {
		u.LetGo(20 * second)
		if took := u.until(time.Minute, func() bool { return !u.d.open }); took > second {
			t.Errorf("closed after %s", took)
		}
		u.LetGo(0)
		if took := u.until(time.Minute, func() bool { return u.d.open }); took > second {
			t.Errorf("open after %s", took)
		}
		closes, hang := u.d.closes, make(chan struct{})
		u.d.with(func() { u.d.devs[0].hang = hang })
		time.Sleep(10 * second)
		u.LetGo(time.Hour)
		time.Sleep(10 * second)
		u.LetGo(0)
		time.Sleep(10 * second)
		u.d.with(func() { u.d.devs[0].hang = nil })
		close(hang)
		if time.Sleep(10 * second); u.d.closes != closes || u.dev(0).State != gpu.DeviceUp {
			t.Errorf("closed %d times, %s", u.d.closes-closes, u.dev(0).State)
		}
	})
}

// The pause ends by itself, or when asked, and the time of it is unknown.
func TestLetGo(t *testing.T) {
	world(t, 2, Options{}, func(s *stand, _ func(string) int) {
		s.step(10)
		unknown := s.dev(0).GPUSeconds[gpu.TimeUnknown]
		closed := func(steps int) (out string) {
			for range steps {
				s.step(1)
				out += map[bool]string{true: "p", false: "."}[s.Latest().Paused[1].Active]
			}
			return out
		}
		s.LetGo(20 * time.Second)
		if got := closed(14); got != "pppppppppp...." {
			t.Errorf("paused %s", got)
		}
		if src := s.source(gpu.SourceNVML); !src.Up || s.d.closes != 1 {
			t.Errorf("%+v, closed %d times", src, s.d.closes)
		}
		if c := s.dev(0); c.GPUSeconds[gpu.TimeUnavailable] != 0 || c.GPUSeconds[gpu.TimeUnknown]-unknown < 18 {
			t.Errorf("%v", c.GPUSeconds)
		}
		s.LetGo(time.Hour)
		got := closed(3)
		s.LetGo(time.Hour)
		got += closed(2)
		s.LetGo(0)
		if got += closed(3); got != "ppppp..." || s.Latest().Paused[0].Active {
			t.Errorf("paused %s", got)
		}
		s.LetGo(0)
		if got := closed(2); got != ".." || s.d.closes != 2 {
			t.Errorf("paused %s, closed %d times", got, s.d.closes)
		}
		// A session that is about to end for another reason does not lose the request.
		s.session.intent = intentReopen
		s.LetGo(time.Hour)
		if got := closed(4); !strings.HasSuffix(got, "pp") {
			t.Errorf("paused %s", got)
		}
	})
}

// A pause for a MIG change begins four seconds after the first that was seen and lasts thirty; all modes are read before, so that
// the others that are pending have no pause of their own.
func TestPauseTimes(t *testing.T) {
	world(t, 3, Options{}, func(s *stand, logged func(string) int) {
		for _, c := range s.d.devs {
			c.mig = gpu.Some(gpu.ModePair{})
		}
		s.step(10)
		s.d.with(func() {
			for _, c := range s.d.devs {
				c.mig = gpu.Some(gpu.ModePair{Pending: true})
			}
		})
		s.devs[0].slow.due = true
		calls := [2]int{s.d.calls(0)[pollSlow], s.d.calls(2)[pollSlow]}
		pauses := ""
		for i := range 22 {
			s.step(1)
			if i == 1 {
				if got := [2]int{s.d.calls(0)[pollSlow], s.d.calls(2)[pollSlow]}; got != [2]int{calls[0] + 2, calls[1] + 1} {
					t.Errorf("slow polls %v after %v", got, calls)
				}
			}
			pauses += map[bool]string{true: "p", false: "."}[s.Latest().Paused[0].Active]
			if src := s.source(gpu.SourceNVML); s.Latest().Paused[0].Active &&
				(src.Up || src.Message != "NVML is shut down while a MIG change is pending" || !s.Latest().System.Present()) {
				t.Errorf("paused: %+v", src)
			}
			if c := s.dev(0); s.Latest().Paused[0].Active && (c.State != gpu.DeviceUp || c.Fast.Present() || c.Medium.Present() ||
				!c.Activity.Busy.Present() || c.Activity.Mean.Present()) {
				t.Errorf("paused: %+v", c)
			}
		}
		if c := s.dev(0); c.GPUSeconds[gpu.TimeUnavailable] != 0 || c.GPUSeconds[gpu.TimeUnknown] < 30 {
			t.Errorf("%v", c.GPUSeconds)
		}
		if pauses != "..ppppppppppppppp....." {
			t.Errorf("paused %s", pauses)
		}
		if n := logged("NVML shut down"); n != 1 || s.d.closes != 1 {
			t.Errorf("%d pauses, closed %d times", n, s.d.closes)
		}
		for i, mode := range []gpu.ModePair{{Pending: true}, {Current: true, Pending: true}, {Current: true}} { // a second change
			s.d.with(func() { s.d.devs[0].mig = gpu.Some(mode) })
			if s.step(100); s.d.closes != []int{1, 1, 2}[i] {
				t.Errorf("%+v: closed %d times", mode, s.d.closes)
			}
		}
	})
}

// One line in the log for each change of a GPU's state, none for a GPU that was never read.
func TestLogOfStates(t *testing.T) {
	world(t, 2, Options{}, func(s *stand, logged func(string) int) {
		for i, step := range []struct {
			err             error
			steps           int
			up, unavailable int
		}{
			{nil, 3, 2, 0}, {gpu.ErrLost, 20, 2, 1}, {nil, 20, 3, 1}, {nil, 20, 3, 1}, {errOdd, 20, 3, 2}, {nil, 5, 4, 2},
		} {
			s.d.with(func() { s.d.devs[0].err = step.err })
			s.step(step.steps)
			if up, down := logged("GPU available"), logged("GPU unavailable"); up != step.up || down != step.unavailable {
				t.Errorf("step %d: %d lines up, %d unavailable, want %d, %d", i, up, down, step.up, step.unavailable)
			}
		}
		if n := logged("GPU discovered"); n != 2 {
			t.Errorf("%d GPUs discovered", n)
		}
	})
}

// A call is hung from the deadline on, and no sooner; the others of its GPU are suspended.
func TestDeadlineOfACall(t *testing.T) {
	world(t, 1, Options{Deadline: 6 * second, Bound: 1}, func(s *stand, logged func(string) int) {
		s.step(1)
		hang := make(chan struct{})
		s.d.with(func() { s.d.devs[0].hang = hang })
		s.Step(time.Now().Add(2 * second)) // each poll waits a nanosecond for it
		time.Sleep(6*second - 3)
		if s.Step(time.Now()); s.dev(0).State != gpu.DeviceUp {
			t.Error("hung before the deadline")
		}
		if s.Step(time.Now()); s.dev(0).State != gpu.DeviceFailed || s.dev(0).Failure != gpu.FailureHung {
			t.Errorf("at the deadline: %s", s.dev(0).State)
		}
		s.step(3)
		if n := logged("driver call timed out"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		s.d.with(func() { s.d.devs[0].hang = nil })
		close(hang)
		synctest.Wait()
		s.step(1)
		if n := logged("hung driver call returned"); n != 1 || s.dev(0).State != gpu.DeviceUp {
			t.Errorf("%d lines, %s", n, s.dev(0).State)
		}
	})
}

// A MIG change that was pending at the start is logged, and is none that this process blocks.
func TestMIGChangePendingAtTheStart(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, logged func(string) int) {
		s.d.devs[0].mig = gpu.Some(gpu.ModePair{Pending: true})
		if s.step(62); logged("MIG mode change pending") != 1 || s.d.closes != 0 {
			t.Errorf("%d lines, shut down %d times", logged("MIG mode change pending"), s.d.closes)
		}
	})
}

// After a session ended nothing of it is published: not the driver's version, not a GPU that was never read as one that is up.
func TestAfterTheSession(t *testing.T) {
	world(t, 2, Options{}, func(s *stand, _ func(string) int) {
		s.d.devs[0].err = errOdd
		s.step(2)
		s.d.with(func() { s.d.devs[0].err, s.d.openErr = gpu.ErrUninitialized, errOdd })
		v := s.step(2)
		if v.System.Present() || v.GPUs[0].State == gpu.DeviceUp || v.GPUs[1].State != gpu.DeviceFailed ||
			v.GPUs[1].Message != "NVML is not available: UNKNOWN" || v.Devices[gpu.DeviceUp] != 0 {
			t.Errorf("%v, %+v", v.System, v.GPUs)
		}
	})
}

// Each search for a missing GPU begins after a minute, whatever the last one had come to.
func TestSearchesBeginAnew(t *testing.T) {
	d := newFake(t, 2)
	d.settled = true
	both := d.devs
	o := Options{Expecter: expecterFunc(func() ([]Expected, error) {
		return []Expected{{PCI: both[0].id.PCI}, {PCI: both[1].id.PCI}}, nil
	})}
	bubble(t, d, o, func(s *stand) {
		for range 2 {
			d.with(func() { d.devs = both[:1] })
			s.session.intent = intentReopen // the driver lists one GPU less after it
			s.step(2)
			opens := d.opens
			var waits []int
			for range 250 {
				before := d.opens
				if s.step(1); d.opens != before {
					waits = append(waits, int(s.clock/second))
				}
			}
			if len(waits) != 3 || waits[1]-waits[0] != 120 || waits[2]-waits[1] != 240 {
				t.Errorf("new sessions at %v s, %d of them", waits, d.opens-opens)
			}
			d.with(func() { d.devs = both })
			s.step(400)
		}
	})
}

// Without Users the samples of processes are of nobody.
func TestSamplesWithoutUsers(t *testing.T) {
	world(t, 1, Options{}, func(s *stand, _ func(string) int) {
		s.d.devs[0].samples = gpu.Some([]gpu.ProcessSample{{PID: 7, Time: 1, SM: 50}})
		if v := s.step(3); len(v.Containers) != 0 || v.GPUs[0].State != gpu.DeviceUp {
			t.Errorf("%+v", v.Containers)
		}
	})
}

// What is not offered is published once it was read: of a GPU whose slow poll group was never read it is unknown.
func TestNotOffered(t *testing.T) {
	world(t, 2, Options{}, func(s *stand, _ func(string) int) {
		s.d.devs[0].errs[pollFast] = gpu.ErrLost
		if v := s.step(3); len(v.NotOffered) != 1 || v.NotOffered[0].GPU != "GPU-1" || len(v.NotOffered[0].Readings) != 1 {
			t.Errorf("%+v", v.NotOffered)
		}
	})
}

// NVML cannot be shut down while an operation of the session hangs, or a call on a GPU. Without an operation, when the last one
// began is of no concern.
func TestHangs(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		op      operation
		started time.Duration // ago
		hung    []bool        // calls on the GPUs
		want    bool
	}{"nothing": {"", time.Hour, nil, false}, "an operation": {opScan, 4 * second, nil, false},
		"one that hangs": {opScan, 5 * second, nil, true},
		"a GPU":          {"", 0, []bool{false, true}, true}, "no GPU": {"", time.Hour, []bool{false, false}, false}} {
		s := New(Options{Watch: func() time.Time { return now }})
		s.session.op, s.session.opStarted = tt.op, now.Add(-tt.started)
		for _, hung := range tt.hung {
			s.devs = append(s.devs, &tracked{hung: hung})
		}
		if s.hangs() != tt.want {
			t.Errorf("%s: hangs is %v", name, !tt.want)
		}
	}
}
