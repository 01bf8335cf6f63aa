// Package report accounts for the GPU-hours of a fleet and recommends how to recover the unused ones.
//
// It reads the history of gpu-exporter from a Prometheus-compatible API (package prom): first the nodes, then one
// namespace after the other, so that memory depends on the largest namespace and not on the fleet. Every state is
// summed up on its own; what the sums miss is printed as the difference and never added to a state. Advice comes from
// rules, each with its reason, the evidence, why not a smaller size, and the change; a workload without advice has a
// reason code.
//
// The result is a document.Document: package render shows it. Equal history, options and now give an equal document.
package report
