package podmap

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

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

// mpsLimits are the limits of NVIDIA's MPS that GKE's plugin gives a container of one shared GPU:
// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M.
func (a *allotment) mpsLimits() (memory gpu.Opt[gpu.Bytes], compute gpu.Opt[float64]) {
	if text, ok := strings.CutPrefix(a.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0="); ok {
		memory = readLimit(text)
	}
	if threads, ok := amount(a.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]); ok {
		compute = percent(threads)
	}
	return memory, compute
}
