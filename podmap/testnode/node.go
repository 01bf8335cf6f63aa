// Package testnode is the node of the tests of podmap and its packages.
package testnode

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// The names of the node: minors and indices differ on purpose, GPU D is in MIG mode.
const (
	GPUA    = "GPU-aaaaaaaa-0000-4000-8000-000000000001" // index 0, minor 3
	GPUB    = "GPU-bbbbbbbb-0000-4000-8000-000000000002" // index 1, minor 0
	GPUC    = "GPU-cccccccc-0000-4000-8000-000000000003" // index 2, minor 1
	GPUD    = "GPU-dddddddd-0000-4000-8000-000000000004" // index 3, minor 2, MIG
	Missing = "GPU-99999999-0000-4000-8000-000000000009" // no GPU of this node
	MIGD3   = "MIG-d3d3d3d3-0000-4000-8000-000000000013" // GI 3: 3g, profile id 9, start 0
	MIGD7   = "MIG-d7d7d7d7-0000-4000-8000-000000000017" // GI 7: two compute instances
	MIGD8   = "MIG-d8d8d8d8-0000-4000-8000-000000000018" // the second of them
	Mdev    = "0e0e0e0e-0000-4000-8000-00000000000e"
)

// New returns the node.
func New() *gpu.Inventory {
	return &gpu.Inventory{GPUs: []gpu.InventoryGPU{
		{UUID: GPUA, Index: 0, Minor: gpu.Some(3), PCI: "0000:18:00.0", Memory: gpu.Some[gpu.Bytes](40 << 30)},
		{UUID: GPUB, Index: 1, Minor: gpu.Some(0), PCI: "0000:2a:00.0", Memory: gpu.Some[gpu.Bytes](40 << 30)},
		{UUID: GPUC, Index: 2, Minor: gpu.Some(1), PCI: "0000:3a:00.0"},
		{UUID: GPUD, Index: 3, Minor: gpu.Some(2), PCI: "0000:5d:00.0", MIG: true, Instances: []gpu.Instance{
			{UUID: MIGD3, GI: 3, Profile: "3g.40gb", Slices: 3, ProfileID: gpu.Some(9), PlacementStart: gpu.Some(0),
				PlacementSize: gpu.Some(4),
				Compute:       []gpu.ComputeInstance{{UUID: MIGD3, CI: 0, SMs: gpu.Some(60)}}},
			{UUID: MIGD7, GI: 7, Profile: "3g.40gb", Slices: 3, ProfileID: gpu.Some(9), PlacementStart: gpu.Some(4),
				PlacementSize: gpu.Some(4),
				Compute:       []gpu.ComputeInstance{{UUID: MIGD7, CI: 0, SMs: gpu.Some(40)}, {UUID: MIGD8, CI: 1, SMs: gpu.Some(20)}}},
		}},
	}}
}
