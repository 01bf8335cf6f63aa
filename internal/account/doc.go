// Package account is the arithmetic of the exporter: it turns readings into counters, and counters into
// shares. It has no clock, starts no goroutine and does no I/O: the sampler says what was read and how much
// time went by, and takes the sums.
//
// The work of one window, in order: the driver's sample rings become exact busy seconds (ring.go,
// activity.go), the driver's counters become monotonic (counter.go), the window is given to those who held
// and used the GPU (place.go, attribution.go, processes.go, energy.go), each of its seconds goes to exactly
// one use (seconds.go), and what is left has a reason. Sums close by construction: whatever is given is taken
// from one figure, and the remainder is never dropped. The closing error is computed from separately kept
// totals, so that a mistake shows.
//
// A Ledger belongs to one goroutine. What it hands out is copied and may be kept.
package account
