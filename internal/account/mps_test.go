package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// mpsMedium lists processes by PID and GiB; those of clients are of MPS too.
func mpsMedium(used gpu.Bytes, clients []int, pairs ...int) *gpu.Medium {
	m := medium(used, pairs...)
	list := m.Processes.Or(nil)
	for i := range list {
		for _, pid := range clients {
			if list[i].PID == pid {
				list[i].Kinds = append(list[i].Kinds, gpu.ProcessMPS)
			}
		}
	}
	return m
}

// The pods p, q and r have the processes 1, 3 and 4. Of the servers, 20 is the daemon pod's, 21 runs on the host, 22 is
// in pod p, 23 in pod evil, 24 in a pod that nobody can name.
var mpsUsers = Users{1: {Container: pod("p")}, 3: {Container: pod("q")}, 4: {Container: pod("r")}, 8: {Reason: gpu.UnattributedHost},
	20: {Container: pod("daemon"), MPS: true}, 21: {Reason: gpu.UnattributedHost, MPS: true}, 22: {Container: pod("p"), MPS: true},
	23: {Container: pod("evil"), MPS: true}, 24: {Reason: gpu.UnattributedUnresolved, MPS: true}}

func TestMPS(t *testing.T) {
	three := []gpu.Allocation{allocate("p", "A", .25), allocate("q", "A", .25), allocate("r", "A", .25)}
	type figures map[string]float64
	type reasons map[gpu.UnattributedReason]float64
	for _, tt := range []struct {
		name       string
		capability string
		rows       []gpu.Allocation
		medium     *gpu.Medium
		weights    []gpu.ProcessSample
		// Over 10 s of which half is busy; -1 is absent, and a pod of absent busy may have no row.
		busy, memory, processes figures
		unbusy, unmemory        reasons
		nobody                  []string // have no row
	}{
		{
			name: "clients of three pods", capability: "9.0", rows: three, medium: mpsMedium(10, []int{1, 3, 4}, 1, 2, 3, 3, 4, 4, 20, 1),
			weights: weights(1, 30, 3, 10, 4, 10),
			busy:    figures{"p": 3, "q": 1, "r": 1}, memory: figures{"p": 2, "q": 3, "r": 4}, processes: figures{"p": 1, "q": 1, "r": 1},
			unbusy: reasons{gpu.UnattributedMPS: 0}, unmemory: reasons{gpu.UnattributedDriver: 1}, nobody: []string{"daemon"},
		},
		{
			name: "the samples are the server's", capability: "9.0", rows: three,
			medium: mpsMedium(10, []int{1, 3, 4}, 1, 2, 3, 3, 4, 4, 20, 1), weights: weights(20, 30),
			busy: figures{"p": 0, "q": 0, "r": 0}, memory: figures{"p": 2, "q": 3, "r": 4},
			unbusy: reasons{gpu.UnattributedMPS: 5}, unmemory: reasons{gpu.UnattributedDriver: 1}, nobody: []string{"daemon"},
		},
		{
			name: "one client and no samples: a server in a pod may be anybody", capability: "9.0", rows: three,
			medium: mpsMedium(4, []int{1}, 1, 2, 20, 1), weights: weights(),
			busy: figures{"p": 0, "q": 0}, memory: figures{"p": 2, "q": 0}, unbusy: reasons{gpu.UnattributedMPS: 5},
			unmemory: reasons{gpu.UnattributedDriver: 2},
		},
		{
			name: "one client and no samples: the host's server is no other container", capability: "9.0", rows: three,
			medium: mpsMedium(4, []int{1}, 1, 2, 21, 1), weights: weights(),
			busy: figures{"p": 5, "q": 0}, memory: figures{"p": 2, "q": 0}, unbusy: reasons{gpu.UnattributedMPS: 0},
			unmemory: reasons{gpu.UnattributedDriver: 2},
		},
		{
			name: "a sole container and the host's server", capability: "9.0", rows: []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(4, []int{1}, 1, 2, 21, 1), weights: weights(1, 5),
			busy: figures{"p": 5}, memory: figures{"p": 4}, processes: figures{"p": 1}, unmemory: reasons{},
		},
		{
			name: "a container with a server of its own", capability: "9.0", rows: []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(4, []int{1}, 1, 2, 22, 1), weights: weights(1, 5),
			busy: figures{"p": 5}, memory: figures{"p": 4}, processes: figures{"p": 2}, unmemory: reasons{},
		},
		{
			name: "outside Kubernetes, server and clients of one", capability: "9.0", rows: nil,
			medium: mpsMedium(4, []int{1}, 1, 2, 22, 1), weights: weights(1, 5),
			busy: figures{"p": 5}, memory: figures{"p": 3}, processes: figures{"p": 2}, unmemory: reasons{gpu.UnattributedDriver: 1},
		},
		{
			name: "a server without clients is a process like any other", capability: "9.0", rows: three,
			medium: mpsMedium(4, nil, 1, 2, 20, 1), weights: weights(1, 30, 20, 10),
			busy: figures{"p": 3.75, "daemon": 1.25}, memory: figures{"p": 2, "daemon": 1}, unmemory: reasons{gpu.UnattributedDriver: 1},
		},
		{
			name: "unresolved clients, and their server", capability: "9.0", rows: three,
			medium: mpsMedium(4, []int{77}, 77, 2, 24, 1), weights: weights(77, 30),
			busy: figures{"p": -1}, unbusy: reasons{gpu.UnattributedUnresolved: 5},
			unmemory: reasons{gpu.UnattributedUnresolved: 3, gpu.UnattributedDriver: 1},
		},

		// Whoever borrows the name gives nothing of his to another.
		{
			name: "a container that calls himself a server", capability: "9.0", rows: three, medium: mpsMedium(20, []int{3}, 22, 12, 3, 3),
			weights: weights(22, 30, 3, 10),
			busy:    figures{"p": 3.75, "q": 1.25}, memory: figures{"p": 12, "q": 3}, unmemory: reasons{gpu.UnattributedDriver: 5},
		},
		{
			name: "a client that calls himself a server", capability: "9.0", rows: three, medium: mpsMedium(20, []int{3, 23}, 23, 12, 3, 3),
			weights: weights(23, 30, 3, 10),
			busy:    figures{"evil": 3.75, "q": 1.25}, memory: figures{"evil": 12, "q": 3}, unmemory: reasons{gpu.UnattributedDriver: 5},
		},
		{
			name: "an other process on a sole container's GPU, with samples", capability: "9.0",
			rows:   []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(20, []int{1}, 23, 12, 1, 3), weights: weights(23, 30, 1, 10),
			busy: figures{"p": 1.25}, memory: figures{"p": 3}, unbusy: reasons{gpu.UnattributedMPS: 3.75},
			unmemory: reasons{gpu.UnattributedDriver: 17}, nobody: []string{"evil"},
		},
		{
			name: "an other process on a sole container's GPU, without", capability: "9.0", rows: []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(20, []int{1}, 23, 12, 1, 3), weights: weights(),
			busy: figures{"p": 0}, memory: figures{"p": 3}, unbusy: reasons{gpu.UnattributedMPS: 5},
			unmemory: reasons{gpu.UnattributedDriver: 17},
		},
		{
			name: "a real server beside a pretender", capability: "9.0", rows: three,
			medium: mpsMedium(20, []int{1, 3}, 1, 2, 3, 3, 20, 1, 23, 12), weights: weights(1, 10, 3, 10, 23, 20),
			busy: figures{"p": 1.25, "q": 1.25}, memory: figures{"p": 2, "q": 3}, unbusy: reasons{gpu.UnattributedMPS: 2.5},
			unmemory: reasons{gpu.UnattributedDriver: 15},
		},

		// Before Volta the server is all that is listed.
		{
			name: "before Volta", capability: "6.0", rows: three, medium: mpsMedium(10, nil, 20, 9), weights: weights(20, 30),
			busy: figures{"p": -1, "q": -1, "r": -1}, memory: figures{"p": -1, "q": -1, "r": -1}, processes: figures{"p": -1},
			unbusy: reasons{gpu.UnattributedMPS: 5}, unmemory: reasons{gpu.UnattributedMPS: 9, gpu.UnattributedDriver: 1},
			nobody: []string{"daemon"},
		},
		{
			name: "before Volta, and one beside MPS", capability: "6.1", rows: three, medium: mpsMedium(10, nil, 20, 5, 3, 4),
			weights: weights(20, 30, 3, 30),
			busy:    figures{"p": -1, "q": -1}, memory: figures{"p": -1, "q": -1}, processes: figures{"q": -1},
			unbusy: reasons{gpu.UnattributedMPS: 5}, unmemory: reasons{gpu.UnattributedMPS: 9, gpu.UnattributedDriver: 1},
		},
		{
			name: "before Volta, a sole container and the host's server", capability: "6.0", rows: []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(10, nil, 21, 9), weights: weights(21, 30),
			busy: figures{"p": 5}, memory: figures{"p": 10}, unmemory: reasons{},
		},
		{
			name: "before Volta, a sole container and a server of a pod", capability: "6.0", rows: []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(10, nil, 23, 9), weights: weights(23, 30),
			busy: figures{"p": -1}, memory: figures{"p": -1}, unbusy: reasons{gpu.UnattributedMPS: 5},
			unmemory: reasons{gpu.UnattributedMPS: 9, gpu.UnattributedDriver: 1},
		},
		{
			name: "before Volta, the server of a container is the container", capability: "6.0",
			rows:   []gpu.Allocation{allocate("p", "A", 1)},
			medium: mpsMedium(10, nil, 22, 9), weights: weights(22, 30),
			busy: figures{"p": 5}, memory: figures{"p": 10}, processes: figures{"p": 1}, unmemory: reasons{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "A")
			a := w.devices[0]
			a.id.ComputeCapability = tt.capability
			w.users, w.allocs.List = mpsUsers, tt.rows
			a.medium, a.hasWeights = tt.medium, true
			w.step(2)
			a.util, a.weights, a.watts = .5, tt.weights, 100
			w.steps(5, 2)
			row := func(name string) gpu.ContainerGPU {
				c, _ := w.find(name, "A")
				return c
			}
			for name, want := range tt.busy {
				optional(t, "busy of "+name, row(name).Busy, want, 1)
			}
			for name, want := range tt.memory {
				optional(t, "memory of "+name, row(name).Memory, want, 1<<30)
			}
			for name, want := range tt.processes {
				optional(t, "processes of "+name, row(name).Processes, want, 1)
			}
			for reason, want := range tt.unbusy {
				value(t, "busy because of "+string(reason), unattributedBy(t, w.device("A"), reason).Busy, want)
			}
			got := reasons{}
			for _, u := range w.device("A").Unattributed {
				if b, ok := u.Memory.Get(); ok && b > 0 {
					got[u.Reason] = float64(b) / (1 << 30)
				}
			}
			if tt.unmemory != nil {
				for _, reason := range []gpu.UnattributedReason{gpu.UnattributedDriver, gpu.UnattributedMPS, gpu.UnattributedHost,
					gpu.UnattributedUnresolved, gpu.UnattributedUnmeasured, gpu.UnattributedHidden} {
					if got[reason] != tt.unmemory[reason] {
						t.Errorf("memory because of %s: %v GiB, want %v", reason, got[reason], tt.unmemory[reason])
					}
				}
			}
			for _, name := range tt.nobody {
				if c, ok := w.find(name, "A"); ok {
					t.Errorf("%s has a row: %+v", name, c)
				}
			}
			closes(t, w, "A")
		})
	}
}

// optional asserts a number in units, or with -1 that there is none.
func optional[T ~float64 | ~uint64 | ~int](t *testing.T, what string, o gpu.Opt[T], want, unit float64) {
	t.Helper()
	if want < 0 {
		absent(t, what, o)
		return
	}
	value(t, what, o, want*unit)
}

// Under MIG a server speaks for its instance alone, and what a pretender does there is unattributed.
func TestMPSUnderMIG(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.id.ComputeCapability = "9.0"
	w.users = mpsUsers
	a.slow, a.gpm = migSlow(2), map[gpu.UUID]float64{"MIG-1": 0, "MIG-2": 0}
	m := mpsMedium(9, []int{1}, 1, 2, 23, 3, 3, 4)
	list := m.Processes.Or(nil)
	list[0].GI, list[1].GI, list[2].GI = gpu.Some(1), gpu.Some(1), gpu.Some(2)
	a.medium = m
	w.allocs.List = []gpu.Allocation{holdInstance("p", "A", "MIG-1", 1), holdInstance("q", "A", "MIG-2", 1)}
	w.step(2)
	a.gpm = map[gpu.UUID]float64{"MIG-1": .7, "MIG-2": .35}
	w.steps(5, 2)
	value(t, "busy that may be anybody's", unattributedBy(t, w.device("A"), gpu.UnattributedMPS).Busy, 1)
	value(t, "busy of q, whose instance has no server", w.container("q", "A").Busy, .5)
	value(t, "memory of the server", unattributedBy(t, w.device("A"), gpu.UnattributedDriver).Memory, 3<<30)
	value(t, "memory of p", w.container("p", "A").Memory, 2<<30)
	closes(t, w, "A")
	// On the other instance the same process would be a user like any other.
	list[1].GI = gpu.Some(2)
	w.step(2)
	if c, ok := w.find("evil", "A"); !ok || c.Processes != gpu.Some(1) {
		t.Errorf("a server on an instance without clients: %+v", c)
	}
}

// A server that ends takes its doubt along: the container is sole again.
func TestMPSServerThatEnds(t *testing.T) {
	w := newWorld(t, "A")
	a := w.devices[0]
	a.id.ComputeCapability = "6.0"
	w.users, w.allocs.List = mpsUsers, []gpu.Allocation{allocate("p", "A", 1)}
	a.medium, a.hasWeights = mpsMedium(10, nil, 20, 9), true
	w.step(2)
	a.util = .5
	w.steps(5, 2)
	absent(t, "busy while the server was there", w.container("p", "A").Busy)
	a.medium = mpsMedium(10, nil, 1, 9)
	w.step(2)
	before := w.container("p", "A").Busy
	w.steps(5, 2)
	value(t, "busy without it", w.container("p", "A").Busy, float64(before.Or(0))+5)
	value(t, "what stood for its clients", unattributedBy(t, w.device("A"), gpu.UnattributedMPS).Busy, 5)
	closes(t, w, "A")
}
