package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Before compute capability 7.0 an MPS server stands for its clients; an unknown capability is a newer GPU.
func TestServersThatHideTheirClients(t *testing.T) {
	for capability, want := range map[string]bool{"3.5": true, "6.1": true, "6": true, "7.0": false, "9.0": false, "10.0": false, "": false,
		"x.1": false} {
		if got := hidesClients(gpu.Identity{ComputeCapability: capability}); got != want {
			t.Errorf("%q: %v", capability, got)
		}
	}
}

// Why the activity of a part cannot be attributed.
func TestReasonOfUnknownActivity(t *testing.T) {
	host, pod := server{entry: &gpu.Process{}, trusted: true}, server{entry: &gpu.Process{}}
	for _, c := range []struct {
		capability              string
		servers                 []server
		visible, rows           bool
		configured, unallocated bool
		want                    gpu.UnattributedReason
	}{
		{"6.0", []server{host}, true, true, true, true, gpu.UnattributedMPS},
		{"9.0", []server{host}, true, true, true, true, gpu.UnattributedUnmeasured},
		{"9.0", []server{host, pod}, true, true, true, true, gpu.UnattributedMPS},
		{"9.0", []server{pod, host}, true, true, true, true, gpu.UnattributedMPS},
		{"9.0", nil, true, true, true, true, gpu.UnattributedUnmeasured},
		{"9.0", nil, false, false, true, false, gpu.UnattributedUnresolved},
		{"9.0", nil, false, false, true, true, gpu.UnattributedHidden},
		{"9.0", nil, false, false, false, false, gpu.UnattributedHidden},
		{"9.0", nil, false, true, true, false, gpu.UnattributedHidden},
		{"9.0", nil, true, false, true, false, gpu.UnattributedUnmeasured},
	} {
		l := New(Options{})
		l.allocs.Configured = c.configured
		d := newGPU(gpu.Identity{UUID: "A", ComputeCapability: c.capability}, epoch)
		d.servers, d.visible = c.servers, c.visible
		p := d.parts[0]
		p.unallocatedKnown = c.unallocated
		if c.rows {
			p.rows = []rowShare{{}}
		}
		if got := l.unknownReason(d, p); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	// A server is on its own instance.
	d := newGPU(gpu.Identity{UUID: "A"}, epoch)
	d.servers = []server{{entry: &gpu.Process{GI: gpu.Some(2)}}}
	for gi, want := range map[int]bool{1: false, 2: true} {
		served, untrusted := d.mpsServers(&part{kind: migInstance, instance: gpu.Instance{GI: gi}})
		if served != want || untrusted != want {
			t.Errorf("instance %d: %v %v", gi, served, untrusted)
		}
	}
	if served, _ := d.mpsServers(&part{kind: spareSlices}); served {
		t.Error("a server is on slices without an instance")
	}
}

// The samples of processes are used for one more reading that has none, and are then void.
func TestSamplesOfTheReadingBefore(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.util, a.weights = medium(3, 1, 1, 3, 1), true, 1, weights(1, 75, 3, 25)
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	w.steps(2, 2)
	was := map[string]float64{"p": 3, "q": 1}
	for i, c := range []struct {
		weights       []gpu.ProcessSample
		p, q, unknown float64 // of 2 s
	}{
		{weights(1, 75, 3, 25), 1.5, .5, 0}, {nil, 1.5, .5, 0}, {nil, 0, 0, 2}, {nil, 0, 0, 2}, {weights(3, 10), 0, 2, 0},
		{weights(3, 0), 0, 2, 0}, {weights(3, 0), 0, 0, 2}, {weights(1, 1, 3, 0), 2, 0, 0},
	} {
		a.weights = c.weights
		w.step(2)
		got := map[string]float64{"p": float64(w.container("p", "A").Busy.Or(0)), "q": float64(w.container("q", "A").Busy.Or(0)),
			"": float64(unattributedBy(t, w.device("A"), gpu.UnattributedUnmeasured).Busy.Or(0))}
		for name, want := range map[string]float64{"p": c.p, "q": c.q, "": c.unknown} {
			if d := got[name] - was[name] - want; d > 1e-6 || d < -1e-6 {
				t.Errorf("reading %d: %q got %v s, want %v", i, name, got[name]-was[name], want)
			}
		}
		was = got
	}
	closes(t, w, "A")
	// The driver does not report them any more: the last ones are used once more as well, and are no others'.
	a.hasWeights = false
	w.steps(3, 2)
	value(t, "p", w.container("p", "A").Busy, was["p"]+2)
}

// A GPU that is read for the first time has no time before, and samples of its processes that are older are not used.
func TestFirstReading(t *testing.T) {
	w := newWorld(t)
	w.users = testUsers
	w.steps(5, 2)
	c := &fakeGPU{id: gpu.Identity{UUID: "A"}, util: 1, watts: 100, hasWeights: true, weights: weights(3, 100), medium: medium(3, 1, 1)}
	w.devices = append(w.devices, c)
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	w.step(2)
	sum := 0.0
	for _, v := range w.device("A").GPUSeconds {
		sum += float64(v)
	}
	near(t, "time", sum, 0)
	value(t, "energy", w.device("A").Activity.Energy, 200)
	value(t, "busy", w.device("A").Activity.Busy, 0)
	if _, ok := w.find("q", "A"); ok {
		t.Error("a process of the time before is a user")
	}
	c.weights = weights(1, 100)
	w.step(2)
	p := w.container("p", "A")
	value(t, "busy", p.Busy, 2)
	value(t, "energy", p.Energy, 200)
	closes(t, w, "A")
}
