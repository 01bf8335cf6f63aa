// Package fleet plays many nodes with GPUs at once, without a driver: what every GPU does, who holds it and
// what is wrong with it follows from a seed and a moment alone.
//
// The truth comes first. A workload has a class (steady training, loaded and quiet, never used …); a plan lays
// workloads on GPUs for one maintenance cycle of a rack; what a GPU does is constant between the moments at
// which something changes, so that every counter is the exact sum over those pieces. The state at a moment is a
// pure function: a history that is written and a page that is served agree to the last bit, in whatever
// order they are asked for.
//
// The result is a gpu.View for each node, as an exporter would have published it, and the objects that
// kube-state-metrics would tell of beside it. Truth says what each workload really did, for reports to be
// allocated against. Nothing here is a measurement, and nothing here renders.
package fleet
