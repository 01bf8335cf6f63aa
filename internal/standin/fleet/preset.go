package fleet

import (
	"fmt"
	"time"
)

// DefaultEpoch is a Monday.
func DefaultEpoch() time.Time { return time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC) }

// Workday is an epoch that makes it a Wednesday afternoon now, so that patterns of working hours look the same at any
// time of day.
func Workday(now time.Time) time.Time {
	return now.Truncate(time.Minute).Add(-((45*7+2)*24*time.Hour + 14*time.Hour + 30*time.Minute))
}

// Demo is a small fleet: 13 nodes in four pools, with every class and every fault at least once in any six hours.
func Demo(seed uint64) Config {
	return Config{Seed: seed, Epoch: DefaultEpoch(), Pending: 12, Pools: []Pool{
		{Name: "h100", Model: "h100", Nodes: 4, GPUs: 8, Rack: 4, Fixed: []Place{
			{Training, 8, 2}, // two nodes, one job
			{Imbalanced, 4, 1}, {Imbalanced, 1, 2}, {Stopped, 1, 1}, {Loaded, 1, 1},
			{Weekly, 1, 1}, {Preallocated, 1, 1}, {Inference, 1, 2}, {ShortJobs, 1, 1}, {NeverUsed, 2, 1}, {Free, 1, 1},
		}, Faults: []Placed{{FaultThermal, 0, 3}, {FaultPowerCap, 0, 5}, {FaultBrake, 1, 4}, {FaultXID, 1, 2},
			{FaultNVLink, 1, 6}, {FaultLost, 3, 3}, {FaultRestart, 3, 0}}},
		{Name: "a100-mig", Model: "a100-40gb", Nodes: 3, GPUs: 8, Rack: 3,
			MIG: []string{"3g.20gb", "2g.10gb", "1g.5gb"}, Driver: 1,
			Mix: []Weight{{Inference, 3}, {Small, 3}, {NeverUsed, 1}, {Free, 2}, {Loaded, 1}},
			Faults: []Placed{{FaultThermal, 0, 0}, {FaultRemap, 0, 1}, {FaultECC, 1, 4}, {FaultRemapFail, 2, 5},
				{FaultGap, 2, 0}}},
		{Name: "l40s", Model: "l40s", Nodes: 3, GPUs: 4, Rack: 3, Replicas: 4, Limited: 1, Fixed: []Place{
			{Oversubscribed, 1, 4}, {Small, 1, 4}, {Inference, 1, 2}, {Free, 1, 2}, {Small, 1, 2},
		}, Mix: []Weight{{Inference, 3}, {Small, 4}, {Loaded, 1}, {Free, 2}},
			Faults: []Placed{{FaultPCIe, 0, 1}, {FaultCritical, 1, 2}, {FaultKubelet, 2, 0}}},
		{Name: "t4", Model: "t4", Nodes: 3, GPUs: 4, Rack: 3, Driver: 1,
			Mix:    []Weight{{Small, 4}, {ShortJobs, 2}, {Free, 2}, {Loaded, 1}, {NeverUsed, 1}},
			Faults: []Placed{{FaultRemapFail, 0, 0}, {FaultOldDriver, 1, 0}, {FaultNoDevice, 2, 3}}},
	}}
}

// Big is a fleet of a size, over seven pools in each of the clusters.
func Big(seed uint64, nodes, gpus int, clusters ...string) Config {
	if len(clusters) == 0 {
		clusters = []string{"main"}
	}
	trouble := map[FaultKind]float64{FaultXID: 0.02, FaultCritical: 0.001, FaultLost: 0.002, FaultECC: 0.004,
		FaultRemap: 0.002, FaultRemapFail: 0.0002,
		FaultThermal: 0.006, FaultPowerCap: 0.002, FaultPCIe: 0.001, FaultNVLink: 0.001, FaultNoDevice: 0.0005,
		FaultGap: 0.01, FaultRestart: 0.02, FaultKubelet: 0.005,
		FaultBrake: 0.001}
	whole := []Weight{{Training, 6}, {Inference, 4}, {Loaded, 1}, {NeverUsed, 1}, {Stopped, 1}, {Preallocated, 2},
		{Imbalanced, 0.7}, {Small, 1.5}, {ShortJobs, 1}, {Weekly, 1}, {Free, 2}}
	shared := []Weight{{Inference, 4}, {Small, 5}, {Loaded, 1.5}, {NeverUsed, 0.7}, {Oversubscribed, 1}, {Free, 2.5}}
	pools := []struct {
		part float64
		pool Pool
	}{
		{0.40, Pool{Name: "h100", Model: "h100", Mix: whole}},
		{0.15, Pool{Name: "b200", Model: "b200",
			Mix: []Weight{{Training, 10}, {Imbalanced, 1}, {Inference, 1}, {Free, 1}}}},
		{0.15, Pool{Name: "a100", Model: "a100-40gb", Driver: 1, Skewed: 0.1, Mix: whole}},
		{0.10, Pool{Name: "a100-mig", Model: "a100-40gb", Driver: 1,
			MIG: []string{"3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"}, Mix: shared}},
		{0.05, Pool{Name: "h100-mig", Model: "h100", MIG: []string{"3g.40gb", "2g.20gb", "1g.10gb"}, Mix: shared}},
		{0.10, Pool{Name: "l40s", Model: "l40s", Replicas: 4, Skewed: 0.05, Mix: shared}},
		{0.05, Pool{Name: "t4", Model: "t4", Replicas: 2, Driver: 1, Skewed: 0.2, Hidden: true,
			Mix: []Weight{{Small, 4}, {ShortJobs, 1}, {Free, 2}, {Loaded, 1}, {Inference, 2}}}},
	}
	c := Config{Seed: seed, Epoch: DefaultEpoch(), Pending: 2}
	for i, cluster := range clusters {
		left := nodes/len(clusters) + b2i(i < nodes%len(clusters))
		total := left
		for j, p := range pools {
			n := int(p.part*float64(total) + 0.5)
			if j == len(pools)-1 || n > left {
				n = left
			}
			left -= n
			if n == 0 {
				continue
			}
			p.pool.Cluster, p.pool.Nodes, p.pool.GPUs, p.pool.Trouble = cluster, n, gpus, trouble
			c.Pools = append(c.Pools, p.pool)
		}
	}
	return c
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Preset returns a fleet by name.
func Preset(name string, seed uint64) (Config, error) {
	switch name {
	case "demo":
		return Demo(seed), nil
	}
	return Config{}, fmt.Errorf("unknown preset %q: must be demo", name)
}
