package deviceid

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// draGPUDriver is the name of NVIDIA's DRA driver for GPUs.
const draGPUDriver = "gpu.nvidia.com"

// draGPU is NVIDIA's DRA driver for GPUs and MIG devices. The driver name is the resource, the device name the id:
// gpu-<minor>, gpu-<minor>-mig-<profile>-<profile id>-<start> (from v25.12), the older gpu-<minor>-mig-<profile
// id>-<start>-<size>, and gpu-vfio-<n> for a GPU that a virtual machine has.
var draGPU = Scheme{
	Name:    "nvidia dra",
	class:   Direct,
	Matches: named(draGPUDriver),
	parse:   func(_, id string) (Ref, bool) { return parseDRA(id) },
}

// draComputeDomain hands out IMEX channels: no GPUs.
var draComputeDomain = Scheme{
	Name:    "nvidia compute domains",
	class:   NotGPU,
	Matches: named("compute-domain.nvidia.com"),
}

func parseDRA(device string) (Ref, bool) {
	rest, ok := strings.CutPrefix(device, "gpu-")
	if !ok {
		return Ref{}, false
	}
	if n, ok := strings.CutPrefix(rest, "vfio-"); ok {
		_, ok = decimal(n)
		return Ref{by: byDetached}, ok
	}
	dev, place, isMIG := strings.Cut(rest, "-mig-")
	minor, ok := decimal(dev)
	if !ok {
		return Ref{}, false
	}
	r := minorRef(minor)
	if !isMIG {
		return r, true
	}
	r.by = byProfile
	head, last, okLast := cutNumber(place, "-")
	head, middle, okMiddle := cutNumber(head, "-")
	if !okLast || !okMiddle || head == "" {
		return Ref{}, false
	}
	if first, numeric := decimal(head); numeric {
		r.profile, r.start, r.size = first, middle, gpu.Some(last)
	} else {
		r.profile, r.start = middle, last
	}
	return r, true
}
