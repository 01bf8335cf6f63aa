package account

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// medium lists processes by PID and their memory in GiB; a negative amount is one that the driver does not tell.
func medium(used gpu.Bytes, pairs ...int) *gpu.Medium {
	list := []gpu.Process{}
	for i := 0; i < len(pairs); i += 2 {
		p := gpu.Process{PID: pairs[i], Kinds: []gpu.ProcessKind{gpu.ProcessCompute}}
		if pairs[i+1] >= 0 {
			p.Memory = gpu.Some(gpu.Bytes(pairs[i+1]) << 30)
		}
		list = append(list, p)
	}
	return &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 << 30, Used: used << 30}), Processes: gpu.Some(list)}
}

func weights(pairs ...float64) []gpu.ProcessSample {
	out := []gpu.ProcessSample{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, gpu.ProcessSample{PID: int(pairs[i]), SM: pairs[i+1]})
	}
	return out
}

var testUsers = Users{1: {Container: pod("p")}, 2: {Container: pod("p")}, 3: {Container: pod("q")},
	8: {Reason: gpu.UnattributedHost}, 9: {Reason: gpu.UnattributedDriver}}

// closes asserts that the sums of a GPU close: busy and energy over all time, memory now.
func closes(t *testing.T, w *world, u gpu.UUID) {
	t.Helper()
	c := w.device(u)
	var busy, energy, memory float64
	for _, x := range c.Unattributed {
		busy += float64(x.Busy.Or(0))
		energy += float64(x.Energy.Or(0))
		memory += float64(x.Memory.Or(0))
	}
	for _, x := range w.Containers() {
		if x.GPU == u {
			busy += float64(x.Busy.Or(0))
			energy += float64(x.Energy.Or(0))
			memory += float64(x.Memory.Or(0))
		}
	}
	near(t, "sum of busy", busy, float64(c.Activity.Busy.Or(0)))
	near(t, "sum of energy", energy, w.Ledger.devices[u].totalEnergy)
	if m := w.Ledger.devices[u].medium; m != nil && m.Memory.Present() {
		near(t, "sum of memory", memory, float64(m.Memory.Or(gpu.Memory{}).Used))
	}
	for _, e := range c.AttributionErrors {
		if e.Ratio != 0 {
			t.Errorf("%s does not close by %v", e.Quantity, e.Ratio)
		}
	}
}

func TestProcessAttribution(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rows    []gpu.Allocation
		users   Users
		weights []gpu.ProcessSample
		medium  *gpu.Medium
		util    float64
		// over 10 s
		busy        map[string]float64 // by pod, "-" absent
		unbusy      map[gpu.UnattributedReason]float64
		memory      map[string]float64 // GiB
		unmemory    map[gpu.UnattributedReason]float64
		attribution map[string]string
	}{
		{
			name: "by weight", rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}, util: .8,
			weights: weights(1, 20, 2, 10, 3, 30), medium: medium(10, 1, 2, 2, 2, 3, 5),
			busy: map[string]float64{"p": 4, "q": 4}, memory: map[string]float64{"p": 4, "q": 5},
			unmemory:    map[gpu.UnattributedReason]float64{gpu.UnattributedDriver: 1},
			attribution: map[string]string{"p": "process", "q": "process"},
		},
		{
			name: "one works, the other does nothing and that is seen",
			rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}, util: .8,
			weights: weights(1, 3), medium: medium(3, 1, 2),
			busy: map[string]float64{"p": 8, "q": 0}, memory: map[string]float64{"p": 2, "q": 0},
			unmemory: map[gpu.UnattributedReason]float64{gpu.UnattributedDriver: 1},
		},
		{
			name: "no weights, one user takes all", rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)},
			util:    .5,
			weights: weights(), medium: medium(3, 1, 2, 9, 1),
			busy: map[string]float64{"p": 5, "q": 0}, memory: map[string]float64{"p": 2},
			unmemory: map[gpu.UnattributedReason]float64{gpu.UnattributedDriver: 1},
		},
		{
			name: "no weights, several users", rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)},
			util:    .5,
			weights: weights(), medium: medium(3, 1, 2, 3, 1),
			unbusy: map[gpu.UnattributedReason]float64{gpu.UnattributedUnmeasured: 5},
			busy:   map[string]float64{"p": 0, "q": 0},
		},
		{
			name:    "weights of the MPS server belong to no container",
			rows:    []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)},
			util:    .5,
			weights: weights(9, 50), medium: medium(3, 1, 2, 3, 1),
			unbusy: map[gpu.UnattributedReason]float64{gpu.UnattributedMPS: 5},
		},
		{
			name: "the host's and the unnamed", rows: []gpu.Allocation{allocate("p", "A", 1)}, util: .5,
			weights: weights(1, 20, 8, 20, 77, 10), medium: medium(8, 1, 2, 8, 3, 77, 1),
			busy:   map[string]float64{"p": 2},
			unbusy: map[gpu.UnattributedReason]float64{gpu.UnattributedHost: 2, gpu.UnattributedUnresolved: 1},
			memory: map[string]float64{"p": 2},
			unmemory: map[gpu.UnattributedReason]float64{gpu.UnattributedHost: 3, gpu.UnattributedUnresolved: 1,
				gpu.UnattributedDriver: 2},
			attribution: map[string]string{"p": "process"},
		},
		{
			name: "a process that cannot be named may be that of a container who is not seen",
			rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}, util: .5,
			weights: weights(1, 20, 77, 20), medium: medium(8, 1, 2, 77, 1),
			busy:        map[string]float64{"p": 2.5, "q": -1},
			unbusy:      map[gpu.UnattributedReason]float64{gpu.UnattributedUnresolved: 2.5},
			memory:      map[string]float64{"p": 2, "q": -1},
			unmemory:    map[gpu.UnattributedReason]float64{gpu.UnattributedUnresolved: 1, gpu.UnattributedDriver: 5},
			attribution: map[string]string{"p": "process", "q": "none"},
		},
		{
			name: "nor is a sole container idle whose process cannot be named",
			rows: []gpu.Allocation{allocate("p", "A", 1)}, util: .5,
			weights: weights(77, 20), medium: medium(8, 77, 2),
			busy:        map[string]float64{"p": -1},
			unbusy:      map[gpu.UnattributedReason]float64{gpu.UnattributedUnresolved: 5},
			memory:      map[string]float64{"p": -1},
			unmemory:    map[gpu.UnattributedReason]float64{gpu.UnattributedUnresolved: 2, gpu.UnattributedDriver: 6},
			attribution: map[string]string{"p": "none"},
		},
		{
			name: "no other process on the GPU: all of it", rows: []gpu.Allocation{allocate("p", "A", 1)}, util: .5,
			weights: weights(1, 20), medium: medium(8, 1, 2, 2, 3, 9, 1),
			busy: map[string]float64{"p": 5}, memory: map[string]float64{"p": 8},
			attribution: map[string]string{"p": "exclusive"},
		},
		{
			name: "the socket suffices", rows: []gpu.Allocation{allocate("p", "A", 1)}, util: .5, users: Users(nil),
			medium: medium(8),
			busy:   map[string]float64{"p": 5}, memory: map[string]float64{"p": 8},
			attribution: map[string]string{"p": "exclusive"},
		},
		{
			name: "busy time of no visible process", rows: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)},
			util:    .5,
			weights: weights(), medium: medium(1),
			busy: map[string]float64{"p": 0, "q": 0}, unbusy: map[gpu.UnattributedReason]float64{gpu.UnattributedHidden: 5},
		},
		{
			name:    "a process that does not tell its memory",
			rows:    []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)},
			util:    .5,
			weights: weights(1, 3), medium: medium(6, 1, -1, 3, 2),
			busy: map[string]float64{"p": 5, "q": 0}, memory: map[string]float64{"p": -1, "q": 2},
			unmemory: map[gpu.UnattributedReason]float64{gpu.UnattributedUnmeasured: 4},
		},
		{
			name: "who uses without allocation", rows: []gpu.Allocation{allocate("p", "A", .5)}, util: .5,
			weights: weights(3, 50), medium: medium(6, 3, 6),
			busy: map[string]float64{"p": 0, "q": 5}, memory: map[string]float64{"q": 6},
			attribution: map[string]string{"q": "process"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "A")
			a := w.devices[0]
			w.users = testUsers
			if tt.users != nil || tt.name == "the socket suffices" {
				w.users = tt.users
			}
			w.allocs.List = tt.rows
			a.medium, a.hasWeights = tt.medium, w.users != nil
			w.step(2)
			a.util, a.weights, a.watts = tt.util, tt.weights, 100
			w.steps(5, 2)
			for name, want := range tt.busy {
				if want < 0 {
					absent(t, "busy of "+name, w.container(name, "A").Busy)
				} else {
					value(t, "busy of "+name, w.container(name, "A").Busy, want)
				}
			}
			for reason, want := range tt.unbusy {
				value(t, "busy because of "+string(reason), unattributedBy(t, w.device("A"), reason).Busy, want)
			}
			for name, want := range tt.memory {
				if want < 0 {
					absent(t, "memory of "+name, w.container(name, "A").Memory)
				} else {
					value(t, "memory of "+name, w.container(name, "A").Memory, want*(1<<30))
				}
			}
			for reason, want := range tt.unmemory {
				value(t, "memory because of "+string(reason), unattributedBy(t, w.device("A"), reason).Memory, want*(1<<30))
			}
			for name, want := range tt.attribution {
				if got := w.container(name, "A").Attribution; got != want {
					t.Errorf("attribution of %s: %q, want %q", name, got, want)
				}
			}
			if tt.name != "a process that does not tell its memory" {
				closes(t, w, "A")
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	w := newWorld(t, "A", "B")
	w.users = testUsers
	w.devices[0].medium = medium(4, 1, 3, 3, 1)
	w.devices[1].medium = medium(0)
	w.allocs.List = []gpu.Allocation{allocate("q", "B", 1)}
	w.steps(10, 2)
	if m := w.container("p", "A").Mismatch; m != nil {
		t.Errorf("mismatch %v before it lasted", m)
	}
	w.steps(10, 2)
	if m := w.container("p", "A").Mismatch; len(m) != 1 || m[0] != "used_not_allocated" {
		t.Errorf("p: %v", m)
	}
	if m := w.container("q", "A").Mismatch; len(m) != 1 || m[0] != "used_other_gpu" {
		t.Errorf("q: %v", m)
	}
	absent(t, "allocated by who does not hold", w.container("p", "A").Allocated)
	// An init container of a pod that has the GPU.
	own := allocate("p", "A", 1)
	own.Container.Name = "main"
	w.allocs.List = append(w.allocs.List, own)
	w.steps(20, 2)
	if m := w.container("p", "A").Mismatch; m != nil {
		t.Errorf("mismatch %v of an init container of the pod that has the GPU", m)
	}
	// A container that the kubelet lists is neither, nor is one that has a GPU of its own.
	list := w.allocs.List
	for _, c := range []struct {
		kind   string
		listed []string
		list   []gpu.Allocation
	}{
		{"used_not_allocated", []string{"main", "c"}, list},
		{"", []string{"main"}, list},
		{"used_other_gpu", []string{"main"}, append(slices.Clone(list), allocate("p", "B", 1))},
	} {
		w.allocs.List, w.allocs.Listed = c.list, map[gpu.PodName][]string{own.Container.PodName(): c.listed}
		w.step(2)
		if m := strings.Join(w.container("p", "A").Mismatch, ","); m != c.kind {
			t.Errorf("listed %v: mismatch %q, want %q", c.listed, m, c.kind)
		}
	}
	// Where nobody tells who holds, nobody can be wrong.
	w.allocs = gpu.Allocations{}
	w.step(2)
	if m := w.container("p", "A").Mismatch; m != nil {
		t.Errorf("mismatch %v without allocations", m)
	}
	// The process ends.
	w.devices[0].medium = medium(0)
	w.step(2)
	if p := w.container("p", "A"); !p.Ended {
		t.Error("a user without process is not ended")
	}
}

// A pod ends while the last process list, read before, still names it: its gauges end, its memory is
// unresolved until the next list. If it is in the next list, it is a user that holds nothing.
func TestListOlderThanTheEnd(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.weights, a.util = medium(4, 1, 3), true, weights(1, 50), .5
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5)}
	w.steps(3, 2)
	w.allocs.List = nil
	w.step(2)
	p := w.container("p", "A")
	if !p.Ended || p.Memory.Present() {
		t.Errorf("%+v", p)
	}
	value(t, "unresolved memory", unattributedBy(t, w.device("A"), gpu.UnattributedUnresolved).Memory, 3<<30)
	closes(t, w, "A")
	w.step(2)
	a.medium = medium(4, 1, 3)
	w.step(2)
	p = w.container("p", "A")
	if p.Ended {
		t.Error("a process that still runs is a user")
	}
	value(t, "memory", p.Memory, 3<<30)
	closes(t, w, "A")
}

// A process that is new in the samples and in no list yet counts at once.
func TestNewInTheSamples(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.weights, a.util = medium(0), true, weights(3, 50), .5
	w.steps(5, 2)
	value(t, "busy", w.container("q", "A").Busy, 5)
	closes(t, w, "A")
	// Over a sole container it takes its part from the first window on.
	w = newWorld(t, "A")
	w.users = testUsers
	a = w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("p", "A", 1)}
	a.medium, a.hasWeights, a.weights = medium(2, 1, 2), true, weights(1, 50)
	w.step(2)
	a.util, a.weights = 1, weights(1, 50, 3, 50)
	w.step(2)
	value(t, "busy of the container", w.container("p", "A").Busy, 1)
	value(t, "busy of the other", w.container("q", "A").Busy, 1)
}

// A process in the samples alone whose container is unknown may be that of any container without visible processes.
func TestUnresolvedInTheSamples(t *testing.T) {
	w := newWorld(t, "A")
	w.users = Users{1: {Container: pod("p")}, 5: {Reason: gpu.UnattributedUnresolved}}
	a := w.devices[0]
	a.medium, a.hasWeights, a.util = medium(2, 1, 2), true, .5
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	for _, c := range []struct {
		weights []gpu.ProcessSample
		q       string
	}{{weights(1, 50), attributionProcess}, {weights(1, 30, 5, 20), attributionNone}, {weights(1, 50), attributionProcess}} {
		a.weights = c.weights
		w.steps(2, 2)
		if p, q := w.container("p", "A").Attribution, w.container("q", "A").Attribution; p != attributionProcess || q != c.q {
			t.Errorf("%v: p %q, q %q, want %q", c.weights, p, q, c.q)
		}
	}
}

// Reasons that may occur begin at 0, busy time and energy only where they are measured.
func TestReasonsBeginAtZero(t *testing.T) {
	for _, c := range []struct {
		visible bool
		watts   float64
		want    string
	}{
		{true, 100, "hidden:busy,energy host:busy,energy idle:energy unmeasured:busy,energy unresolved:busy,energy"},
		{true, 0, "hidden:busy host:busy unmeasured:busy unresolved:busy"},
		{false, 100, "hidden:busy,energy idle:energy"},
	} {
		w := newWorld(t, "A")
		w.devices[0].watts = c.watts
		if c.visible {
			w.users, w.devices[0].medium = testUsers, &gpu.Medium{Processes: gpu.Some([]gpu.Process{})}
		}
		w.step(0)
		var got []string
		for _, u := range w.device("A").Unattributed {
			var has []string
			if v, ok := u.Busy.Get(); ok && v == 0 {
				has = append(has, "busy")
			}
			if v, ok := u.Energy.Get(); ok && v == 0 {
				has = append(has, "energy")
			}
			got = append(got, string(u.Reason)+":"+strings.Join(has, ","))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("visible %v, %v W: %s, want %s", c.visible, c.watts, got, c.want)
		}
	}
}

// Under MIG no driver weighs processes: an instance with one user is his, one with several unattributed.
func TestProcessesUnderMIG(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.slow, a.gpm = migSlow(3), map[gpu.UUID]float64{"MIG-1": 0, "MIG-2": 0, "MIG-3": 0}
	m := medium(9, 1, 2, 2, 1, 3, 4)
	list := m.Processes.Or(nil)
	list[0].GI, list[1].GI, list[2].GI = gpu.Some(1), gpu.Some(2), gpu.Some(2)
	m.Processes = gpu.Some(append(list, gpu.Process{PID: 3, GI: gpu.Some(3), Memory: gpu.Some(gpu.Bytes(1 << 30))}))
	for i, used := range []gpu.Bytes{2, 5, 1} {
		m.Instances = append(m.Instances, gpu.InstanceMedium{UUID: gpu.UUID(fmt.Sprintf("MIG-%d", i+1)),
			Memory: gpu.Some(gpu.Memory{Total: 10 << 30, Used: used << 30})})
	}
	a.medium = m
	w.allocs.List = []gpu.Allocation{holdInstance("p", "A", "MIG-1", 1), holdInstance("p", "A", "MIG-2", .5),
		holdInstance("q", "A", "MIG-2", .5)}
	w.step(2)
	a.gpm = map[gpu.UUID]float64{"MIG-1": .7, "MIG-2": .35, "MIG-3": .14}
	w.steps(5, 2)
	value(t, "unmeasured", unattributedBy(t, w.device("A"), gpu.UnattributedUnmeasured).Busy, .5)
	value(t, "memory of p", w.container("p", "A").Memory, 3<<30)
	value(t, "memory of q", w.container("q", "A").Memory, 5<<30)
	value(t, "gpu", w.device("A").Activity.Busy, 1.7)
	value(t, "allocation", w.device("A").AllocationRatio, 2./7)
	// Of instance 2 it is unknown who works there: what they did elsewhere is theirs, and that time only is observed.
	value(t, "busy of p", w.container("p", "A").Busy, 1)
	value(t, "observed of p", w.container("p", "A").Observed, 10./7)
	value(t, "busy of q, which holds nothing of instance 3", w.container("q", "A").Busy, .2)
	closes(t, w, "A")
	for _, e := range w.device("A").AttributionErrors {
		if e.Ratio != 0 {
			t.Errorf("%s does not close: %v", e.Quantity, e.Ratio)
		}
	}
}

func TestEnergy(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .25), allocate("q", "A", .25)}
	a.medium, a.hasWeights = medium(4, 1, 2, 3, 2), true
	a.watts = 100
	w.steps(11, 2)
	// Idle is proven: to the containers by share, the rest is idle.
	value(t, "idle energy of p", w.container("p", "A").Energy, 500)
	value(t, "unattributed idle energy", unattributedBy(t, w.device("A"), gpu.UnattributedIdle).Energy, 1000)
	near(t, "idle power", w.Ledger.devices["A"].idleWatts, 100)
	a.watts, a.util, a.weights = 500, .5, weights(1, 30, 3, 10)
	w.steps(5, 2)
	// 1000 J idle, 4000 J active at 3 to 1.
	value(t, "energy of p", w.container("p", "A").Energy, 500+250+3000)
	value(t, "energy of q", w.container("q", "A").Energy, 500+250+1000)
	value(t, "unattributed idle energy", unattributedBy(t, w.device("A"), gpu.UnattributedIdle).Energy, 1500)
	closes(t, w, "A")
	if s := w.Ledger.devices["A"].totalEnergy; s != 7000 {
		t.Errorf("spent %v", s)
	}
	// The idle power follows, by a tenth each time, from the second idle reading on.
	a.watts, a.util, a.weights = 200, 0, nil
	w.steps(4, 2)
	near(t, "idle power", w.Ledger.devices["A"].idleWatts, 200-100*.9*.9*.9)
	// Nothing was seen of the work: nobody gets it.
	a.watts, a.util = 500, .5
	a.noRing, a.weights = true, nil
	w.step(2)
	value(t, "unmeasured", unattributedBy(t, w.device("A"), gpu.UnattributedUnmeasured).Energy, 1000)
}

func TestLastBusyOfASharedGPU(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	a.medium, a.hasWeights, a.weights, a.util = medium(4, 1, 2, 3, 2), true, weights(1, 50), .5
	w.steps(11, 2)
	if got := w.container("p", "A").LastBusy; got != gpu.Some(epoch.Add(22*time.Second)) {
		t.Errorf("p: %v", got)
	}
	if got := w.container("q", "A").LastBusy; got != gpu.Some(epoch.Add(2*time.Second)) {
		t.Errorf("q: %v, want when it was first seen", got)
	}
}

// What the ring has beyond the samples of processes is hidden, if it is more than rounding.
func TestExplained(t *testing.T) {
	type read struct {
		ring   float64 // percent, 2 s of cells of 0.1 s
		cells  int     // of them busy; 0: all
		sample []float64
		busy   float64 // of the poll
		want   float64 // explained
	}
	for name, reads := range map[string][]read{
		"the first is over an unknown period": {{50, 0, []float64{10}, 1, 1}, {50, 0, []float64{10}, 1, .2}},
		"all explained":                       {{50, 0, []float64{20, 30}, 1, 1}, {50, 0, []float64{20, 30}, 1, 1}},
		"no more than rounding": {{50, 0, []float64{50}, 1, 1}, {50, 0, []float64{48.6}, 1, 1},
			{50, 0, []float64{20, 27.51}, 1, 1}},
		"just more than rounding":            {{50, 0, []float64{50}, 1, 1}, {50, 0, []float64{20, 27.49}, 1, .9498}},
		"more than rounding":                 {{50, 0, []float64{50}, 1, 1}, {50, 0, []float64{48.4}, 1, .968}},
		"more than the ring has":             {{50, 0, []float64{50}, 1, 1}, {50, 0, []float64{80}, 1, 1}},
		"no samples":                         {{50, 0, []float64{50}, 1, 1}, {50, 0, nil, 1, 0}, {50, 0, []float64{25}, 1, 1}},
		"no samples yet of the newest cells": {{50, 0, []float64{50}, 1, 1}, {100, 2, nil, .2, .2}},
		"no samples of three cells":          {{50, 0, []float64{50}, 1, 1}, {100, 3, nil, .3, 0}},
		"never a sample":                     {{50, 0, nil, 1, 1}, {50, 0, nil, 1, 1}},
		"explained again":                    {{50, 0, []float64{50}, 1, 1}, {50, 0, nil, 1, 0}, {50, 0, []float64{50}, 1, 1}},
	} {
		var x explained
		at := 1000.0
		for i, r := range reads {
			ring := regular(at, at+2, .1, r.ring)
			for j := 0; r.cells > 0 && j < len(ring)-r.cells; j++ {
				ring[j].Value = 0
			}
			at += 2
			var list []gpu.ProcessSample
			for j, sm := range r.sample {
				list = append(list, gpu.ProcessSample{PID: j, SM: sm, Time: ring[len(ring)-1].Time})
			}
			x.add(list, ring, .2)
			if got := x.take(r.busy); got-r.want > 1e-6 || r.want-got > 1e-6 {
				t.Errorf("%s, reading %d: %v s of %v explained, want %v", name, i, got, r.busy, r.want)
			}
		}
	}
	// A ring that stops while nothing runs has no cells then, and samples that are no values are none.
	var x explained
	x.add([]gpu.ProcessSample{{SM: 50, Time: 1e6}}, samples(1, 50), .2)
	x.add([]gpu.ProcessSample{{SM: 10, Time: 11e6}}, samples(10.9, 100, 10.95, 300, 11, 100), .2)
	near(t, "after a pause", x.take(1), 1)
	if x.until != 11e6 || len(x.cells) != 0 {
		t.Errorf("%+v", x)
	}
	// What the driver does not keep is not kept.
	for s := range 100 {
		x.add(nil, samples(float64(20+s), 0), .2)
	}
	if len(x.cells) > 16 {
		t.Errorf("%d cells are kept", len(x.cells))
	}
}

// Hidden work is never that of the containers whose processes are visible, in samples or in the list alone.
func TestHiddenWork(t *testing.T) {
	for name, c := range map[string]struct {
		medium *gpu.Medium
		sm     float64 // of p's process, and of q's half as much
		hidden float64 // of 10 s, half of it busy, all of it where one container has the GPU
		sole   bool    // the whole GPU is p's, and so are both processes
		method string
		memory gpu.Bytes // of p, in GiB
	}{
		"explained":              {medium(3, 1, 1, 3, 1), 50. / 1.5, 0, false, "process", 1},
		"half of it":             {medium(3, 1, 1, 3, 1), 25. / 1.5, 2.5, false, "process", 1},
		"two idle processes":     {medium(3, 1, 1, 3, 1), 0, 5, false, "process", 1},
		"one idle process":       {medium(3, 1, 1), 0, 5, false, "process", 1},
		"no process in the list": {medium(3), 0, 5, false, "process", 0},
		"one container":          {medium(5, 1, 1, 2, 1), 100. / 1.5, 0, true, "exclusive", 5},
		"one container, half":    {medium(5, 1, 1, 2, 1), 50. / 1.5, 5, true, "process", 2},
		"one idle container":     {medium(5, 1, 1), 0, 10, true, "process", 1},
		"one without processes":  {medium(5), 0, 10, true, "process", 0},
	} {
		w := newWorld(t, "A")
		d := w.devices[0]
		w.users, w.allocs.List = testUsers, []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .25)}
		other, part, busy := 3, 1.5, 5.0
		if c.sole {
			w.allocs.List, other, part, busy = []gpu.Allocation{allocate("p", "A", 1)}, 2, 1, 10
		}
		d.hasWeights, d.util, d.medium, d.watts = true, busy/10, c.medium, 100
		step := func() {
			d.weights = nil
			if at := int64((1000 + w.now + 2) * 1e6); c.sm > 0 || w.now < 8 {
				sm := max(c.sm, 1)
				d.weights = []gpu.ProcessSample{{PID: 1, SM: sm, Time: at}, {PID: other, SM: sm / 2, Time: at}}
			}
			w.step(2)
		}
		for range 10 {
			step()
		}
		before, p := unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy, w.container("p", "A").Busy
		for range 5 {
			step()
		}
		grown := float64(unattributedBy(t, w.device("A"), gpu.UnattributedHidden).Busy.Or(0) - before.Or(0))
		near(t, name+": hidden", grown, c.hidden)
		near(t, name+": busy of p", float64(w.container("p", "A").Busy.Or(0)-p.Or(0)), (busy-c.hidden)/part)
		if got := w.container("p", "A"); got.Attribution != c.method || got.Memory.Or(0) != c.memory<<30 {
			t.Errorf("%s: method %s, %d bytes", name, got.Attribution, got.Memory.Or(0))
		}
		closes(t, w, "A")
	}
}
