// Package gpu holds the words that every other room speaks: GPUs, MIG instances, processes, holdings,
// and the View that is published. It imports the standard library alone and knows nobody.
//
// Three truths are kept apart everywhere: a value; not offered by this hardware (absent, silent); failed
// (absent, and counted). Zero is only ever a measured zero.
//
// A number travels in one direction: internal/nvml fills the poll group readings (Fast, Medium, Slow), the
// sampler hands them to internal/account, which keeps the counters, podmap says who holds what, and the
// result is one immutable View, which the collector and the pages render. Nothing here is safe for
// concurrent change; everything that was published is never changed again and so is safe to share.
package gpu
