// Package sampler is the loop of the exporter: it reads every GPU in poll groups, hands the readings to the
// ledger of internal/account, asks who holds the GPUs, and publishes the whole as one immutable gpu.View by
// one atomic store.
//
// It knows neither NVML nor the kubelet: both come through the small interfaces declared here. A driver call
// can hang for ever and cannot be cancelled, so each GPU is read in a goroutine of its own, with never more
// than one call per GPU under way. A GPU that does not answer in time is published as failed, the others
// go on, and its answer is taken when it comes at last. The driver's session is opened, scanned and closed
// in the same way. One goroutine, the caller of Step, owns everything else.
//
// The driver is let go when it wants to go: while a MIG change is pending, when it was replaced, and at the
// end; never while a call is under way, because nothing good comes of that.
package sampler
