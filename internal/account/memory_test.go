package account

import (
	"fmt"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Figures by cgroup are used where what they lack of the used memory is at most 2 % of it, or 64 MiB.
func TestUnchargedMemory(t *testing.T) {
	const mib, pci = 1 << 20, "0000:01:00.0"
	for _, c := range []struct {
		used, charged gpu.Bytes
		accepted      bool
		driver        gpu.Bytes
		excess        float64
	}{
		{100 * mib, 36 * mib, true, 64 * mib, 0}, {100 * mib, 36*mib - 1, false, 0, 0},
		{10000 * mib, 9800 * mib, true, 200 * mib, 0}, {10000 * mib, 9800*mib - 1, false, 0, 0},
		{100 * mib, 100 * mib, true, 0, 0}, {100 * mib, 150 * mib, true, 0, .5}, {0, 0, true, 0, 0}, {0, 5, true, 0, 5},
	} {
		l := New(Options{})
		l.Advance(Poll{Allocations: gpu.Allocations{Known: true, Configured: true, List: []gpu.Allocation{allocate("p", "A", .5)}},
			Cgroups: map[gpu.PCIAddress][]gpu.CgroupMemory{pci: {{Container: pod("p"), Used: c.charged}}},
			GPUs: []Reading{{Identity: gpu.Identity{UUID: "A", PCI: pci},
				Medium: &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 1 << 40, Used: c.used})}}}})
		w := world{Ledger: l, t: t}
		name := fmt.Sprintf("%d of %d", c.charged, c.used)
		p := w.container("p", "A")
		if (p.MemorySource == memoryOfCgroups) != c.accepted {
			t.Errorf("%s: source %q", name, p.MemorySource)
		}
		if c.accepted {
			value(t, name, p.Memory, float64(c.charged))
			near(t, name+": excess", l.devices["A"].memoryError, c.excess)
			for _, u := range w.device("A").Unattributed {
				if u.Memory.Or(0) > 0 && u.Reason != gpu.UnattributedDriver ||
					u.Reason == gpu.UnattributedDriver && u.Memory.Or(0) != c.driver {
					t.Errorf("%s: %+v", name, u)
				}
			}
		}
	}
}

// Charged memory of a container whose allocation ended after the reading is unresolved; of one that has none, it makes
// the container a user. Two cgroups of one container add up.
func TestMemoryOfCgroupsByOwner(t *testing.T) {
	w := newWorld(t, "A")
	m := &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 100, Used: 90}), Cgroups: []gpu.CgroupMemory{
		{Container: pod("p"), Used: 30}, {Container: pod("p"), Used: 10}, {Container: pod("q"), Used: 20},
		{Reason: gpu.UnattributedHost, Used: 15}, {Reason: gpu.UnattributedHost, Used: 5}, {Container: pod("r")}}}
	w.devices[0].medium = m
	w.allocs.List = []gpu.Allocation{allocate("p", "A", .5), allocate("s", "A", .25)}
	w.step(2)
	for name, want := range map[string]float64{"p": 40, "q": 20, "s": 0} {
		c := w.container(name, "A")
		value(t, name, c.Memory, want)
		if c.MemorySource != memoryOfDriver {
			t.Errorf("%s: source %q", name, c.MemorySource)
		}
	}
	value(t, "host", unattributedBy(t, w.device("A"), gpu.UnattributedHost).Memory, 20)
	value(t, "driver", unattributedBy(t, w.device("A"), gpu.UnattributedDriver).Memory, 10)
	if _, ok := w.find("r", "A"); ok {
		t.Error("a container without memory is a user")
	}
	closes(t, w, "A")
	w.step(2)
	w.allocs.List = w.allocs.List[1:] // p ended, the reading is from before
	w.step(2)
	if c := w.container("p", "A"); !c.Ended {
		t.Errorf("%+v", c)
	}
	value(t, "unresolved", unattributedBy(t, w.device("A"), gpu.UnattributedUnresolved).Memory, 40)
	closes(t, w, "A")
	w.step(2)
	again := *m
	w.devices[0].medium = &again
	w.step(2)
	if c := w.container("p", "A"); c.Ended || c.Memory.Or(0) != 40 {
		t.Errorf("a user that a newer reading has: %+v", c)
	}
	closes(t, w, "A")
	// Under MIG the accounts of cgroups are those of no instance.
	w.devices[0].slow = migSlow(1)
	w.step(2)
	if c := w.container("s", "A"); c.MemorySource == memoryOfDriver {
		t.Errorf("%+v", c)
	}
}

// What memory belongs to, by what is known: on a GPU that is allocated to one container all of it, where processes are
// listed by them and the driver's rest, else it is hidden, and nothing where the GPU's own is not reported.
func TestMemoryByWhatIsKnown(t *testing.T) {
	type reasons = map[gpu.UnattributedReason]gpu.Bytes
	const gib = 1 << 30
	half := []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}
	noTotal := medium(0, 1, 2, 3, 3)
	noTotal.Memory = gpu.None[gpu.Memory]()
	unlisted := &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 80 * gib, Used: 7 * gib})}
	for _, c := range []struct {
		name   string
		medium *gpu.Medium
		list   []gpu.Allocation
		users  Users
		p, q   float64 // GiB; -1: absent
		rest   reasons
		excess float64
	}{
		{"listed", medium(7, 1, 2, 3, 3), half, testUsers, 2, 3, reasons{gpu.UnattributedDriver: 2}, 0},
		{"more than the total", medium(4, 1, 2, 3, 3), half, testUsers, 2, 3, reasons{}, .25},
		{"exactly the total", medium(5, 1, 2, 3, 3), half, testUsers, 2, 3, reasons{gpu.UnattributedDriver: 0}, 0},
		{"no users", medium(7, 1, 2, 3, 3), half, nil, -1, -1, reasons{gpu.UnattributedHidden: 7}, 0},
		{"no list", unlisted, half, testUsers, -1, -1, reasons{gpu.UnattributedHidden: 7}, 0},
		{"one container, no list", unlisted, []gpu.Allocation{allocate("p", "A", 1)}, testUsers, 7, -1,
			reasons{gpu.UnattributedHidden: 0}, 0},
		{"one container, listed", medium(7, 1, 2), []gpu.Allocation{allocate("p", "A", 1)}, testUsers, 7, -1,
			reasons{gpu.UnattributedDriver: 0}, 0},
		{"no total", noTotal, half, testUsers, 2, 3, reasons{}, 0},
		{"one container, no total", noTotal, []gpu.Allocation{allocate("p", "A", 1)}, testUsers, 2, 3, reasons{}, 0},
		{"one not reported", medium(7, 1, 2, 2, -1, 3, 3), half, testUsers, -1, 3, reasons{gpu.UnattributedUnmeasured: 2}, 0},
		{"nothing was read", nil, half, testUsers, -1, -1, reasons{}, 0},
	} {
		w := newWorld(t, "A")
		w.users, w.allocs.List, w.devices[0].medium = c.users, c.list, c.medium
		w.steps(2, 2)
		for name, want := range map[string]float64{"p": c.p, "q": c.q} {
			got, ok := w.find(name, "A")
			if !ok && want < 0 {
				continue
			}
			if want < 0 {
				absent(t, c.name+": "+name, got.Memory)
			} else {
				value(t, c.name+": "+name, got.Memory, want*gib)
			}
		}
		n := 0
		for _, u := range w.device("A").Unattributed {
			if v, ok := u.Memory.Get(); ok {
				n++
				if want, ok := c.rest[u.Reason]; !ok || v != want*gib {
					t.Errorf("%s: %s %v", c.name, u.Reason, v)
				}
			}
		}
		if n != len(c.rest) {
			t.Errorf("%s: %d reasons, want %v", c.name, n, c.rest)
		}
		near(t, c.name+": excess", w.Ledger.devices["A"].memoryError, c.excess)
	}
}

// A container that was busy and is in no process list is a user for twelve seconds after its last samples.
func TestUserBetweenTwoLists(t *testing.T) {
	w := newWorld(t, "A")
	w.users = testUsers
	a := w.devices[0]
	a.medium, a.hasWeights, a.weights, a.util = medium(0), true, weights(3, 50), .5
	w.steps(3, 2)
	a.weights, a.util = nil, 0
	last := w.now
	for range 8 {
		w.step(2)
		c, ok := w.find("q", "A")
		if want := w.now-last < lingering; !ok || c.Ended == want {
			t.Errorf("%v s after its last samples: %+v", w.now-last, c)
		}
	}
	// The samples of its last seconds do not make one whose allocation ended a user again.
	w = newWorld(t, "A")
	w.users = testUsers
	a = w.devices[0]
	w.allocs.List = []gpu.Allocation{allocate("q", "A", .5)}
	a.medium, a.hasWeights, a.weights, a.util = medium(0), true, weights(3, 50), .5
	w.steps(3, 2)
	w.allocs.List = nil
	w.step(2)
	end := w.now
	for range 10 {
		w.step(2)
		c := w.container("q", "A")
		if want := w.now-end <= lingering; c.Ended != want {
			t.Errorf("busy %v s after its allocation ended: ended %v", w.now-end, c.Ended)
		}
	}
}
