package account

import (
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Memory by cgroup is used where it accounts for all of the GPU's memory but for what the driver needs.
func TestMemoryByCgroup(t *testing.T) {
	const pci, gib = "0000:01:00.0", 1 << 30
	for _, c := range []struct {
		name         string
		p, host      gpu.Bytes // charged, in GiB of 100
		used         gpu.Bytes
		source       string
		driver       float64
		errorOfTotal float64
	}{
		{"all of it", 60, 40, 100, memoryOfCgroups, 0, 0},
		{"all but the driver's", 60, 38, 100, memoryOfCgroups, 2 * gib, 0},
		{"too little", 60, 37, 100, "", 0, 0},
		{"more than is used", 60, 60, 100, memoryOfCgroups, 0, .2},
	} {
		l := New(Options{})
		charged := []gpu.CgroupMemory{{Container: pod("p"), Used: c.p * gib}, {Container: pod("idle")},
			{Reason: gpu.UnattributedHost, Used: c.host * gib}}
		l.Advance(Poll{Allocations: gpu.Allocations{Known: true, Configured: true,
			List: []gpu.Allocation{allocate("p", "A", .5), allocate("q", "A", .5)}},
			Cgroups: map[gpu.PCIAddress][]gpu.CgroupMemory{pci: charged},
			GPUs: []Reading{{Identity: gpu.Identity{UUID: "A", PCI: pci},
				Medium: &gpu.Medium{Memory: gpu.Some(gpu.Memory{Total: 100 * gib, Used: c.used * gib})}}}})
		w := world{Ledger: l, t: t}
		p, q := w.container("p", "A"), w.container("q", "A")
		if p.MemorySource != c.source || (p.Memory == gpu.Some(c.p*gib)) != (c.source != "") || q.Memory.Present() != (c.source != "") {
			t.Errorf("%s: p %v by %q, q %v", c.name, p.Memory, p.MemorySource, q.Memory)
		}
		if _, ok := w.find("idle", "A"); ok {
			t.Errorf("%s: a container without memory is a user", c.name)
		}
		for _, u := range w.device("A").Unattributed {
			if c.source != "" && u.Reason == gpu.UnattributedHost && u.Memory != gpu.Some(c.host*gib) ||
				c.source != "" && u.Reason == gpu.UnattributedDriver && float64(u.Memory.Or(0)) != c.driver {
				t.Errorf("%s: %s %v", c.name, u.Reason, u.Memory)
			}
		}
		near(t, c.name, l.devices["A"].memoryError, c.errorOfTotal)
	}
}
