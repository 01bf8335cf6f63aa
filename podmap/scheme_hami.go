package podmap

import "strings"

// hami is Project-HAMi's plugin: GPU-<uuid>-<n> under nvidia.com/gpu, or whatever name was configured. The
// scheduler extender chooses the card and the kubelet is not told: the UUID in the id is one of the node's
// cards, and as often as not the wrong one.
var hami = scheme{
	name:    "hami",
	verdict: lying,
	owns:    underNVIDIA,
	read: func(_, id string) (ref, bool) {
		if strings.Contains(id, "::") || strings.Contains(id, "_") {
			return ref{}, false
		}
		_, ok := readReplica(id, "-")
		return ref{}, ok
	},
	truth: "the kubelet's device checkpoint, or the pod annotation hami.io/vgpu-devices-allocated",
}
