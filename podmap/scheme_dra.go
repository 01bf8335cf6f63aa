package podmap

import "strings"

// draGPUDriver is the name of NVIDIA's DRA driver for GPUs.
const draGPUDriver = "gpu.nvidia.com"

// draGPU is NVIDIA's DRA driver for GPUs and MIG devices. The driver name is the resource, the device
// name the id: gpu-<minor>, gpu-<minor>-mig-<profile>-<profile id>-<start> (from v25.12), the older
// gpu-<minor>-mig-<profile id>-<start>-<size>, and gpu-vfio-<n> for a GPU that a virtual machine has.
var draGPU = scheme{
	name:    "nvidia dra",
	verdict: honest,
	owns:    named(draGPUDriver),
	read:    func(_, id string) (ref, bool) { return readDRA(id) },
}

// draComputeDomain hands out IMEX channels: no GPUs.
var draComputeDomain = scheme{
	name:    "nvidia compute domains",
	verdict: foreign,
	owns:    named("compute-domain.nvidia.com"),
}

func readDRA(device string) (ref, bool) {
	rest, ok := strings.CutPrefix(device, "gpu-")
	if !ok {
		return ref{}, false
	}
	if n, ok := strings.CutPrefix(rest, "vfio-"); ok {
		_, ok = decimal(n)
		return ref{by: byDetached, gi: -1, ci: -1}, ok
	}
	dev, place, isMIG := strings.Cut(rest, "-mig-")
	minor, ok := decimal(dev)
	if !ok {
		return ref{}, false
	}
	r := ref{by: byMinor, minor: minor, gi: -1, ci: -1, size: -1}
	if !isMIG {
		return r, true
	}
	r.by = byProfile
	head, last, okLast := cutNumber(place, "-")
	head, middle, okMiddle := cutNumber(head, "-")
	if !okLast || !okMiddle || head == "" {
		return ref{}, false
	}
	if first, numeric := decimal(head); numeric {
		r.profile, r.start, r.size = first, middle, last
	} else {
		r.profile, r.start = middle, last
	}
	return r, true
}
