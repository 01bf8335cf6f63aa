// Package sampler is the loop of the exporter: it reads every GPU in poll groups, passes the readings to the ledger of
// internal/account, gets the allocations from the resolver, and publishes the result as one immutable gpu.View by one
// atomic store.
//
// It depends neither on NVML nor on the kubelet: both are behind the small interfaces declared here. A driver call can
// hang forever and cannot be canceled, so each GPU is read in a goroutine of its own, with at most one call per GPU in
// progress. A GPU that does not respond in time is published as failed, the others continue, and its result is used
// when it arrives. The driver's session is opened, scanned and closed in the same way. One goroutine, the caller of
// Step, owns everything else.
//
// NVML is shut down while a MIG change is pending, when the driver was replaced, and at the end; never while a call is
// in progress.
package sampler
