package sampler

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What each event of a GPU's life changes in the next views: which poll groups are read at once, what is published, what
// is counted and what is logged.
func TestWhatFollows(t *testing.T) {
	type world struct {
		*stand
		d   *fakeDriver
		log *strings.Builder
	}
	logged := func(w *world, message string) int {
		return strings.Count(strings.ReplaceAll(w.log.String(), `msg="`, "msg="), "msg="+message)
	}
	for name, test := range map[string]struct {
		options Options
		run     func(t *testing.T, w *world)
	}{
		"before the first medium reading": {run: func(t *testing.T, w *world) {
			w.d.with(func() { w.d.devs[0].errs[pollMedium] = errOdd })
			w.step(3)
			c := w.dev(0)
			if _, ok := c.LastRead[gpu.PollMedium]; ok || len(c.LastRead) != 2 || c.Failure != "" {
				t.Errorf("last reads %v, failure %q", c.LastRead, c.Failure)
			}
		}},
		"a poll group that fails is logged once": {run: func(t *testing.T, w *world) {
			w.step(1)
			w.d.with(func() { w.d.devs[0].errs[pollMedium] = errOdd })
			w.step(20)
			if n := logged(w, "GPU poll failed"); n != 1 {
				t.Errorf("logged %d times", n)
			}
			before := w.source(gpu.SourceNVML).Errors
			if w.step(5); w.source(gpu.SourceNVML).Errors != before+1 {
				t.Errorf("%d errors after %d", w.source(gpu.SourceNVML).Errors, before)
			}
		}},
		"the recovery action changes": {run: func(t *testing.T, w *world) {
			w.d.with(func() { w.d.devs[0].recovery = gpu.Some(gpu.RecoveryNone) })
			w.step(12)
			slow := w.d.calls(0)[pollSlow]
			w.d.with(func() { w.d.devs[0].recovery = gpu.Some(gpu.RecoveryAction("reset")) })
			w.step(7)
			if n := w.d.calls(0)[pollSlow] - slow; n != 1 {
				t.Errorf("the slow poll group was read %d times after it", n)
			}
		}},
		"an XID makes the poll groups of its own GPU due": {run: func(t *testing.T, w *world) {
			w.step(3)
			before := [2][3]int{w.d.calls(0), w.d.calls(1)}
			w.d.with(func() { w.d.events = []gpu.XIDEvent{{GPU: "GPU-0", XID: 31, Time: time.Now(), Source: gpu.SourceNVML}} })
			w.step(2)
			if a, b := w.d.calls(0)[pollSlow]-before[0][pollSlow], w.d.calls(1)[pollSlow]-before[1][pollSlow]; a != 1 || b != 0 {
				t.Errorf("slow polls: %d of its GPU, %d of the other", a, b)
			}
			if n := logged(w, "XID"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		}},
		"an XID from before the start": {run: func(t *testing.T, w *world) {
			w.step(3)
			before := w.d.calls(0)
			at := time.Now().Add(-time.Hour)
			w.Event(gpu.XIDEvent{GPU: "GPU-0", XID: 31, Time: at, Source: gpu.SourceKmsg, Old: true})
			w.step(2)
			for _, x := range w.dev(0).XIDs {
				if last, ok := x.Last.Get(); x.XID == 31 && (!ok || !last.Equal(at) || x.Count != 0) {
					t.Errorf("%+v", x)
				}
			}
			if n := logged(w, "XID"); n != 0 || w.d.calls(0)[pollSlow] != before[pollSlow] {
				t.Errorf("logged %d times, calls %v after %v", n, w.d.calls(0), before)
			}
		}},
		"a GPU that was lost and returns": {run: func(t *testing.T, w *world) {
			w.step(5)
			w.d.with(func() { w.d.devs[0].err = gpu.ErrLost })
			w.step(2)
			if c := w.dev(0); c.Failure != gpu.FailureLost || w.dev(1).Failure != "" {
				t.Errorf("failures %q, %q", c.Failure, w.dev(1).Failure)
			}
			w.d.with(func() { w.d.devs[0].err = nil })
			for range 20 {
				if w.step(1); w.dev(0).State == gpu.DeviceUp {
					break
				}
			}
			if c := w.dev(0); c.State != gpu.DeviceUp || !c.Medium.Present() || !c.Slow.Present() || c.Failure != "" {
				t.Errorf("%s, medium %v, slow %v", c.State, c.Medium.Present(), c.Slow.Present())
			}
		}},
		"a call that takes long": {options: Options{Deadline: time.Hour}, run: func(t *testing.T, w *world) {
			w.step(5)
			w.d.with(func() { w.d.devs[0].hang = make(chan struct{}) })
			w.step(6)
			if c := w.dev(0); !c.Medium.Present() || c.State != gpu.DeviceUp {
				t.Errorf("after 26 s: %s, medium %v", c.State, c.Medium.Present())
			}
			w.step(6)
			if c := w.dev(0); c.Medium.Present() || !c.Slow.Present() || !w.dev(1).Medium.Present() {
				t.Errorf("after 44 s: medium %v, slow %v", c.Medium.Present(), c.Slow.Present())
			}
		}},
		"a hung call is counted": {run: func(t *testing.T, w *world) {
			w.step(3)
			before := w.source(gpu.SourceNVML).Errors
			w.d.with(func() { w.d.devs[0].hang = make(chan struct{}) })
			w.step(10)
			if n := w.source(gpu.SourceNVML).Errors - before; n != 1 {
				t.Errorf("%d errors", n)
			}
			if c := w.dev(0); c.Failure != gpu.FailureHung {
				t.Errorf("failure %q", c.Failure)
			}
		}},
		"the driver is replaced": {run: func(t *testing.T, w *world) {
			w.step(3)
			w.d.with(func() { w.d.devs[0].err = fmt.Errorf("read: %w", gpu.ErrVersionMismatch) })
			w.step(2)
			if n := logged(w, "driver upgraded"); n == 0 {
				t.Error("no new process was requested")
			}
			if notes := strings.Join(w.Latest().Notes, " "); !strings.Contains(notes, "upgraded") {
				t.Errorf("notes %q", notes)
			}
		}},
		"NVML is not initialized": {run: func(t *testing.T, w *world) {
			w.d.with(func() { w.d.openErr = errOdd })
			for i, want := range []string{"NVML cannot be initialized: UNKNOWN", "No NVIDIA driver yet: "} {
				if i > 0 {
					w.d.with(func() { w.d.openErr = fmt.Errorf("open: %w", gpu.ErrNoDriver) })
				}
				if notes := w.step(20).Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], want) {
					t.Errorf("%q, want %q", notes, want)
				}
			}
			w.d.with(func() { w.d.openErr = nil })
			if notes := w.step(20).Notes; len(notes) != 0 {
				t.Errorf("initialized: %q", notes)
			}
		}},
		"the PCI bus cannot be scanned": {options: Options{Expecter: expecterFunc(func() ([]Expected, error) {
			return nil, errors.New("no such directory")
		})}, run: func(t *testing.T, w *world) {
			w.step(60)
			if n := logged(w, "cannot scan the PCI bus"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{d: newFake(t, 2), log: &strings.Builder{}}
			o := test.options
			o.Logger = slog.New(slog.NewTextHandler(w.log, nil))
			bubble(t, w.d, o, func(s *stand) {
				w.stand = s
				test.run(t, w)
			})
		})
	}
}

// Inventories are the same only if everything in them is.
func TestSameGPU(t *testing.T) {
	base := func() gpu.InventoryGPU {
		return gpu.InventoryGPU{UUID: "a", Instances: []gpu.Instance{{UUID: "m", GI: 1, Compute: []gpu.ComputeInstance{{CI: 0}}}}}
	}
	for name, change := range map[string]func(*gpu.InventoryGPU){
		"uuid":  func(g *gpu.InventoryGPU) { g.UUID = "b" },
		"index": func(g *gpu.InventoryGPU) { g.Index = 1 },
		"pci":   func(g *gpu.InventoryGPU) { g.PCI = "x" },
		"mig":   func(g *gpu.InventoryGPU) { g.MIG = true }, "memory": func(g *gpu.InventoryGPU) { g.Memory = gpu.Some(gpu.Bytes(1)) },
		"instances": func(g *gpu.InventoryGPU) { g.Instances = nil },
		"instance":  func(g *gpu.InventoryGPU) { g.Instances[0].UUID = "n" },
		"gi":        func(g *gpu.InventoryGPU) { g.Instances[0].GI = 2 },
		"profile":   func(g *gpu.InventoryGPU) { g.Instances[0].Profile = "1g" },
		"slices":    func(g *gpu.InventoryGPU) { g.Instances[0].Slices = 2 },
		"share":     func(g *gpu.InventoryGPU) { g.Instances[0].Share = gpu.Some(gpu.Ratio(1)) },
		"start":     func(g *gpu.InventoryGPU) { g.Instances[0].PlacementStart = gpu.Some(1) },
		"size":      func(g *gpu.InventoryGPU) { g.Instances[0].PlacementSize = gpu.Some(1) },
		"profileid": func(g *gpu.InventoryGPU) { g.Instances[0].ProfileID = gpu.Some(1) },
		"compute":   func(g *gpu.InventoryGPU) { g.Instances[0].Compute[0].CI = 1 },
	} {
		other := base()
		if change(&other); sameGPU(base(), other) || !sameGPU(base(), base()) {
			t.Errorf("%s makes no difference", name)
		}
	}
}
