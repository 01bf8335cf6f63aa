package fleet

import (
	"fmt"
	"slices"
	"time"
)

// Config describes a fleet. The same Config gives the same fleet, for ever and on every machine.
type Config struct {
	Seed uint64
	// Epoch is a Monday's midnight for the fleet: its weeks, hours and maintenance cycles are counted from there, so that
	// two fleets that differ in it alone do the same one after the other. Any moment may be asked for, also before it.
	Epoch time.Time
	// Cycle is how long a rack runs between two maintenances; all pods end with it. 14 days where it is 0.
	Cycle time.Duration
	// Pools are the node pools. Names of nodes follow from them, in order.
	Pools []Pool
	// Pending is how many GPUs' worth of pods wait at any time, for each hundred GPUs of a cluster.
	Pending float64
}

// Pool is a number of equal nodes.
type Pool struct {
	Name    string
	Cluster string // empty: "main"
	Model   string // a key of the table of boards, such as "h100"
	Nodes   int
	GPUs    int // on each node
	// MIG are the profiles into which every GPU is cut; empty: whole GPUs.
	MIG []string
	// Replicas is into how many time-sliced replicas every GPU is offered; 0 or 1: none.
	Replicas int
	// Rack is how many nodes are maintained together, and how far a job reaches; 4 where it is 0.
	Rack int
	// Fixed lays out the first racks by hand, place after place; what is left is drawn from Mix.
	Fixed []Place
	Mix   []Weight
	// Driver is the position in the table of driver releases, 0 the newest; Skewed is the part of the racks
	// that is one release behind.
	Driver int
	Skewed float64
	// Hidden is true where the exporter does not see processes (no host PID namespace).
	Hidden bool
	// Trouble is how much goes wrong, for each GPU and cycle: expected numbers of faults by kind.
	Trouble map[FaultKind]float64
	// Faults are laid out by hand, for the whole of each cycle but its first minutes.
	Faults []Placed
}

// Place is one workload that is laid out by hand: so many GPUs (or replicas, or instances) for each of its pods.
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

// FaultKind is a way to be invalid.
type FaultKind string

// The kinds.
const (
	FaultXID       FaultKind = "xid"         // programs crash now and then: XID 31
	FaultCritical  FaultKind = "critical"    // uncontained memory errors: XID 95, a reset is wanted
	FaultLost      FaultKind = "lost"        // fell off the bus: XID 79
	FaultECC       FaultKind = "ecc"         // corrected errors keep coming
	FaultRemap     FaultKind = "remap"       // uncorrected errors, a row waits for a reset
	FaultRemapFail FaultKind = "remap_fail"  // a row could not be remapped
	FaultThermal   FaultKind = "thermal"     // slowed down by heat
	FaultPowerCap  FaultKind = "power_cap"   // the power limit was lowered
	FaultPCIe      FaultKind = "pcie"        // fewer lanes than the slot has
	FaultNVLink    FaultKind = "nvlink"      // a link is down
	FaultNoDevice  FaultKind = "missing"     // on the bus and not in NVML
	FaultGap       FaultKind = "gap"         // the node's exporter cannot be scraped for a while
	FaultRestart   FaultKind = "restart"     // the node's exporter starts anew
	FaultKubelet   FaultKind = "kubelet"     // the kubelet does not answer for a while
	FaultBrake     FaultKind = "power_brake" // the power supply slows it down
	FaultOldDriver FaultKind = "old_driver"  // the node runs the driver release before
)

// FaultKinds lists them all.
var FaultKinds = []FaultKind{FaultXID, FaultCritical, FaultLost, FaultECC, FaultRemap, FaultRemapFail, FaultThermal, FaultPowerCap,
	FaultPCIe, FaultNVLink, FaultNoDevice, FaultGap, FaultRestart, FaultKubelet, FaultBrake, FaultOldDriver}

func (c *Config) check() error {
	if len(c.Pools) == 0 {
		return fmt.Errorf("a fleet needs at least one pool")
	}
	names := map[string]bool{}
	for i := range c.Pools {
		p := &c.Pools[i]
		invalid := func(format string, args ...any) error {
			return fmt.Errorf("pool %s: %s", p.Name, fmt.Sprintf(format, args...))
		}
		b := slices.IndexFunc(boards(), func(b board) bool { return b.key == p.Model })
		switch {
		case names[p.Cluster+"/"+p.Name]:
			return invalid("stands twice")
		case b < 0:
			return invalid("there is no model %q", p.Model)
		case p.Nodes < 0 || p.GPUs < 1 || p.GPUs > 16:
			return invalid("%d nodes with %d gpus cannot be", p.Nodes, p.GPUs)
		case len(p.MIG) > 0 && p.Replicas > 1:
			return invalid("MIG instances and replicas together are not played")
		case p.Driver < 0 || p.Driver >= len(releases()):
			return invalid("there is no driver %d", p.Driver)
		}
		names[p.Cluster+"/"+p.Name] = true
		used := 0
		for _, name := range p.MIG {
			prof, ok := boards()[b].profile(name)
			if !ok {
				return invalid("model %s has no MIG profile %q", p.Model, name)
			}
			used += prof.slices
		}
		if used > boards()[b].slices {
			return invalid("the MIG profiles need %d slices of %d", used, boards()[b].slices)
		}
		for _, w := range p.Mix {
			if _, ok := behaviorOf(w.Class); !ok && w.Class != Free || w.Weight < 0 {
				return invalid("class %q with weight %v cannot be drawn", w.Class, w.Weight)
			}
		}
		for _, f := range p.Fixed {
			if _, ok := behaviorOf(f.Class); !ok && f.Class != Free || f.GPUs < 1 {
				return invalid("class %q on %d gpus cannot be placed", f.Class, f.GPUs)
			}
		}
		for _, f := range p.Faults {
			if !slices.Contains(FaultKinds, f.Kind) || f.Node < 0 || f.Node >= p.Nodes || f.GPU < 0 || f.GPU >= p.GPUs {
				return invalid("fault %q on node %d, gpu %d cannot be", f.Kind, f.Node, f.GPU)
			}
		}
		for k := range p.Trouble {
			if !slices.Contains(FaultKinds, k) {
				return invalid("there is no fault %q", k)
			}
		}
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
