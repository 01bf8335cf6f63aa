// Package nvml reads NVIDIA's management library: go-nvml behind a symbol guard.
//
// A Library is a path on disk and the statistics of every call made through it. Open loads it, looks up every symbol
// that this package may call, and starts a Session; a Session scans for GPUs and waits for events; a GPU reads one poll
// group at a time into the plain values of internal/gpu.
//
// The guard exists because go-nvml binds lazily: a call of a function that the loaded library lacks ends the process,
// with no panic to recover from. So every call takes one path, which knows the symbols that the call needs; a missing
// one is "not offered". A test parses this package and fails on a call that bypasses it.
//
// The readings are tables of rows: a name, the call or the field, and where the value is stored. The
// rows of plain values are generated from internal/nvml/calls. A row that a GPU does not offer is not read again until
// the next session or the next change of the MIG layout. A row that fails is absent for that read and counted; only a
// code that concerns the whole GPU (lost, reset required, session closed) becomes an error.
//
// Two calls never run at once on one GPU: each call locks the GPU. Different GPUs are read concurrently. A call that
// hangs blocks its GPU and nothing else.
//
// The binary must be linked dynamically and lazily (-extldflags=-Wl,-z,lazy): with immediate binding the symbols that
// this driver lacks end the process at start.
package nvml
