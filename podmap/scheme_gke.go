package podmap

import "strings"

// gke is Google's plugin: nvidia<minor>[/gi<g>][/vgpu<k>]. The number is the minor number of the device
// node, not the NVML index: the two differ on real machines.
var gke = scheme{
	name:    "gke",
	verdict: honest,
	owns:    underNVIDIA,
	read:    func(_, id string) (ref, bool) { return readMinor(id) },
}

func readMinor(id string) (ref, bool) {
	rest, ok := strings.CutPrefix(id, "nvidia")
	if !ok {
		return ref{}, false
	}
	r := ref{by: byMinor, gi: -1, ci: -1}
	if head, _, ok := cutNumber(rest, "/vgpu"); ok {
		rest, r.replica, r.base = head, true, "nvidia"+head
	}
	if head, gi, ok := cutNumber(rest, "/gi"); ok {
		rest, r.gi = head, gi
	}
	r.minor, ok = decimal(rest)
	return r, ok
}
