// Package nvml reads NVIDIA's management library: go-nvml behind a symbol guard.
//
// A Library is a path on disk and the statistics of every call ever made through it. Open loads it, looks up
// every symbol that this package may call, and starts a Session; a Session scans for GPUs and waits for
// events; a GPU reads one poll group at a time into the plain values of internal/gpu.
//
// The guard is there because go-nvml binds lazily: a call of a function that the loaded library lacks ends
// the process, with no panic to recover from. So every call passes through one path that knows which symbols
// it needs; a missing one is answered "not offered". A test parses this package and fails on a call that
// goes around it.
//
// What is read is a table of rows (see Readings): a name, the call or the field, and where the value goes. A
// row that a GPU does not offer is learned from its first answer and not asked again until the next session
// or the next change of the MIG layout. A row that fails is absent for that read and counted; only an answer
// that speaks for the whole GPU (it is lost, needs a reset, the session is over) becomes an error.
//
// No two calls ever run at once on one GPU: each call holds the GPU's lock. Different GPUs are read
// concurrently. A call that hangs holds its GPU's lock and nothing else.
//
// The binary must be linked dynamically and lazily (-extldflags=-Wl,-z,lazy): with immediate binding the
// symbols that this driver lacks end the process at start.
package nvml
