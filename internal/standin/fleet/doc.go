// Package fleet simulates many nodes with GPUs without a driver: what every GPU does, which containers it is allocated
// to and which faults it has are functions of a seed and the time.
//
// A workload has a class (steady training, loaded and quiet, never used …), a plan places workloads on the GPUs of a
// rack for one maintenance cycle, and what a GPU does is constant between two changes, so that every counter is an
// exact sum. The state at a time does not depend on earlier calls: a history that is written and a page that is served
// agree to the last bit.
//
// View returns a gpu.View of a node as an exporter would publish it, KubeState the objects that kube-state-metrics
// would export. Truth returns what each workload really did, to test reports against.
package fleet
