// Package gpu holds the types that the other packages share: GPUs, MIG instances, processes, allocations, and the
// View that is published. It imports the standard library alone.
//
// A reading has one of three states, which are kept apart everywhere: a value; not offered by this hardware or driver
// (absent, not counted); failed (absent and counted). Zero is always a measured zero.
//
// Data flows in one direction: internal/nvml fills the readings of each poll group (Fast, Medium, Slow), the sampler
// passes them to internal/account, which maintains the counters, podmap resolves the allocations, and the result is one
// immutable View, which the collector and the pages render. Nothing here is safe for concurrent modification; what has
// been published is never modified again and may be shared.
package gpu
