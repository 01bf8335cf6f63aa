// Package faultkinds is the table of failures that two suites simulate: TestFaults of cmd/exporter in random worlds, with a
// stepped clock, and test/faults in real time, with the real binary, one row after the other.
package faultkinds

// Kind is one kind of failure.
type Kind struct {
	// Name is that of TestFaults; empty where that cannot simulate it.
	Name string
	// Beside is set for what happens once in each storm of a world; the others are dealt out.
	Beside bool
	// Promise is the row of docs/developer/testing.md that holds meanwhile.
	Promise string
	// Rows are those of test/faults.
	Rows []string
}

// The promises of several kinds.
const (
	late       = "no driver, or it comes later"
	lost       = "a GPU is lost or needs a reset"
	anyCall    = "any single call is refused, hangs, or returns garbage, from the start or later"
	hangs      = "a call never returns"
	garbage    = "a value cannot be true"
	kubelet    = "the kubelet is down, slow, refuses, or returns garbage or nothing"
	flaps      = "the kubelet fails at every other poll, or lists more pods than a node can have"
	process    = "a process exits, its cgroup file is garbage, its PID is reused, or a pod creates cgroups with the names of another"
	ids        = "device IDs that do not identify a GPU"
	clocks     = "clocks are set, the machine sleeps"
	storms     = "XIDs in storms, from two sources"
	checkpoint = "the kubelet's checkpoint is half written, or an older one"
	older      = "the kubelet returns an older list, or not what is allocatable"
	stopped    = "the exporter is stopped for minutes, starved, or killed and restarted"
)

// All is the table. The order of the kinds that are dealt out is part of what a seed means.
var All = []Kind{
	{"driver absent", false, late, []string{"driver-late", "driver-unloaded"}},
	{"driver mismatch", false, "the driver is replaced", []string{"driver-replaced", "driver-mismatch"}},
	{"mig pending", false, "MIG changes are pending", []string{"mig-pending"}},
	{"GPU lost", false, lost, []string{"gpu-lost"}},
	{"GPU removed", false, "a GPU was missing when the library was loaded", []string{"gpu-missing"}},
	{"reset required", false, lost, []string{"gpu-reset"}},
	{"call hangs", false, hangs, []string{"call-hangs", "call-hangs-at-end"}},
	{"implausible", false, garbage, []string{"implausible"}},
	{"refused", false, anyCall, []string{"call-refused"}},
	{"call slow", false, anyCall, nil},
	{"process vanishes", false, process, nil},
	{"cgroup garbage", false, process, []string{"cgroup-garbage"}},
	{"proc ended", false, process, nil},
	{"kubelet down", false, kubelet, []string{"kubelet-down", "kubelet-gone"}},
	{"kubelet slow", false, kubelet, []string{"kubelet-slow"}},
	{"kubelet exhausted", false, kubelet, []string{"kubelet-exhausted"}},
	{"kubelet hangs", false, kubelet, []string{"kubelet-hangs"}},
	{"kubelet garbage", false, kubelet, []string{"kubelet-garbage"}},
	{"kubelet error", false, kubelet, nil},
	{"kubelet huge", false, kubelet, []string{"kubelet-huge"}},
	{"kubelet restarted", false, kubelet, []string{"kubelet-restarted"}},
	{"kubelet socket recreated", false, kubelet, nil},
	{"clock forward", false, clocks, nil},
	{"clock back", false, clocks, nil},
	{"suspend", false, clocks, nil},
	{"xid storm", false, storms, []string{"xids"}},
	{"xid kernel storm", false, storms, nil},
	{"xid both storm", false, storms, nil},
	{"ids unknown", false, ids, []string{"ids-unknown"}},
	{"ids lying", false, ids, nil},

	{"cgroup forged", true, process, []string{"pid-reused"}},
	{"kubelet floods", true, flaps, nil},
	{"no descriptors", true, "the process has no file descriptors left", nil},
	{"kubelet flaps", true, flaps, nil},
	{"exporter stopped", true, stopped, []string{"exporter-stopped"}},
	{"exporter starved", true, stopped, nil},
	{"kubelet stale", true, older, nil},
	{"kubelet asymmetric", true, older, nil},
	{"logs replaced", true, process, nil},
	{"PID twice", true, process, nil},
	{"counter flips", true, garbage, nil},
	{"values frozen", true, "the driver responds with success and frozen values", nil},
	{"samples fast", true, clocks, nil},
	{"checkpoint torn", true, checkpoint, nil},
	{"checkpoint old", true, checkpoint, nil},
	{"driver finds another GPU", true, "a GPU is replaced by another at its address", nil},
	{"proc refused", true, process, nil},
	{"rights taken away", true,
		"a data source is absent or may not be read, from the start or later (the kernel log without `CAP_SYSLOG`)", nil},
	{"GPM biased", true, garbage, nil},
	{"GPM late", true, garbage, nil},
	{"list behind checkpoint", true, older, nil},
	{"API servers disagree", true, "two API servers disagree, or one is behind and ends each watch", nil},
	{"events taken", true, "another process receives the driver's events", nil},
	{"network cuts", true, "the network cuts, delays or repeats responses to scrapes", nil},

	{Promise: "an old driver lacks calls", Rows: []string{"driver-old"}},
	{Promise: "a file, directory or socket of the node never responds (`/proc`, `/var/log`, checkpoints, kubelet, API server, Docker)",
		Rows: []string{"proc-hangs"}},
	{Promise: stopped, Rows: []string{"exporter-killed"}},
	{Promise: "SIGTERM", Rows: []string{"sigterm"}},
}

// Names returns the kinds of TestFaults that are dealt out, or happen beside them.
func Names(beside bool) (names []string) {
	for _, k := range All {
		if k.Name != "" && k.Beside == beside {
			names = append(names, k.Name)
		}
	}
	return names
}
