// Package account is the arithmetic of the exporter: it integrates readings into counters and attributes the counters
// to containers. It has no clock, starts no goroutine and does no I/O: the sampler passes the readings and the elapsed
// time, and takes the totals.
//
// The steps of one poll: the driver's sample rings become exact busy seconds (ring.go, activity.go), the driver's
// counters become monotonic (counter.go), busy time, energy and memory are attributed to the containers that the GPU is
// allocated to or that use it (place.go, attribution.go, processes.go, energy.go, memory.go), each second of the GPU is
// added to exactly one state (seconds.go), and the rest is unattributed with a reason. Parts are always taken from one
// total and the remainder is never dropped, so they add up to it. The attribution error is computed from totals that
// are kept separately, so that a mistake is visible.
//
// A Ledger belongs to one goroutine. What it returns may be kept, and must not be modified.
package account
