package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config describes a fleet. The same Config gives the same fleet, for ever and on every machine.
type Config struct {
	Seed uint64
	// Epoch is the fleet's Monday midnight: its weeks, hours and maintenance cycles count from there, so that two
	// fleets that differ in it alone do the same at different times. Times before it are valid.
	Epoch time.Time
	// Cycle is how long a rack runs between two maintenances, which end all pods; 0: 14 days.
	Cycle time.Duration
	// Pools are the node pools. Names of nodes follow from them, in order.
	Pools []Pool
	// Pending is how many GPUs pending pods request at any time, by 100 GPUs of a cluster.
	Pending float64
}

// Pool is a number of equal nodes.
type Pool struct {
	Name    string
	Cluster string // empty: "main"
	Model   string // a key of the table of boards, such as "h100"
	Nodes   int
	GPUs    int // on each node
	// MIG are the profiles of the MIG devices on every GPU; empty: whole GPUs.
	MIG []string
	// Replicas are the time-sliced replicas of every GPU; 0 or 1: none.
	Replicas int
	// Limited is the number of nodes, the last ones of each rack, on which a replica has a limit of memory that the
	// driver guarantees, and a limit of time.
	Limited int
	// Rack is how many nodes are maintained together, and how far a job spans; 0: 4.
	Rack int
	// Fixed places workloads on the first racks, one after the other; the rest is drawn from Mix.
	Fixed []Place
	Mix   []Weight
	// Driver is the index in the table of driver releases, 0 the newest; Skewed is the share of racks that is one
	// release behind.
	Driver int
	Skewed float64
	// Hidden: the exporter cannot list processes (no host PID namespace).
	Hidden bool
	// Trouble are the expected numbers of faults by GPU and cycle.
	Trouble map[FaultKind]float64
	// Faults last for the whole of each cycle but its first minutes.
	Faults []Placed
}

// Place is a workload with a fixed place: the GPUs (or replicas, or MIG devices) of each of its pods.
type Place struct {
	Class Class
	GPUs  int
	Pods  int // 1 where it is 0
}

// Weight is how often a class is drawn, relative to the others.
type Weight struct {
	Class  Class
	Weight float64
}

// Placed is a fault on one GPU of a pool: Node counts from 0 in the pool.
type Placed struct {
	Kind      FaultKind
	Node, GPU int
}

// FaultKind is a kind of fault.
type FaultKind string

// The kinds.
const (
	FaultXID       FaultKind = "xid"         // programs crash now and then: XID 31
	FaultCritical  FaultKind = "critical"    // uncontained memory errors: XID 95, needs a reset
	FaultLost      FaultKind = "lost"        // fell off the bus: XID 79
	FaultECC       FaultKind = "ecc"         // corrected errors keep coming
	FaultRemap     FaultKind = "remap"       // uncorrected errors, a row waits for a reset
	FaultRemapFail FaultKind = "remap_fail"  // a row could not be remapped
	FaultThermal   FaultKind = "thermal"     // thermal slowdown
	FaultPowerCap  FaultKind = "power_cap"   // the power limit was lowered
	FaultPCIe      FaultKind = "pcie"        // fewer PCIe lanes than the slot has
	FaultNVLink    FaultKind = "nvlink"      // a link is down
	FaultNoDevice  FaultKind = "missing"     // on the bus and not in NVML
	FaultGap       FaultKind = "gap"         // the node's exporter cannot be scraped for a while
	FaultRestart   FaultKind = "restart"     // the exporter restarts
	FaultKubelet   FaultKind = "kubelet"     // the kubelet does not respond for a while
	FaultBrake     FaultKind = "power_brake" // slowdown by the power supply
	FaultOldDriver FaultKind = "old_driver"  // the previous driver release
)

// FaultKinds lists them all.
var FaultKinds = []FaultKind{FaultXID, FaultCritical, FaultLost, FaultECC, FaultRemap, FaultRemapFail, FaultThermal,
	FaultPowerCap,
	FaultPCIe, FaultNVLink, FaultNoDevice, FaultGap, FaultRestart, FaultKubelet, FaultBrake, FaultOldDriver}

// check checks what flags can set, and names.
func (c *Config) check() error {
	names := map[string]bool{}
	for _, p := range c.Pools {
		name := p.Cluster + "/" + p.Name
		switch {
		case names[name]:
			return fmt.Errorf("two pools are called %s", name)
		case !slices.ContainsFunc(boards(), func(b board) bool { return b.key == p.Model }):
			return fmt.Errorf("pool %s: unknown model %q", name, p.Model)
		case p.Nodes < 0 || p.GPUs < 1 || p.GPUs > 16:
			return fmt.Errorf("pool %s needs 0 or more nodes with 1 to 16 GPUs, got %d nodes with %d GPUs", name, p.Nodes, p.GPUs)
		}
		names[name] = true
	}
	if len(names) == 0 {
		return errors.New("no pool")
	}
	return nil
}

func (b *board) profile(name string) (profile, bool) {
	i := slices.IndexFunc(b.profiles, func(p profile) bool { return p.name == name })
	if i < 0 {
		return profile{}, false
	}
	return b.profiles[i], true
}

func behaviorOf(c Class) (behavior, bool) {
	all := behaviors()
	i := slices.IndexFunc(all, func(b behavior) bool { return b.class == c })
	if i < 0 {
		return behavior{}, false
	}
	return all[i], true
}
