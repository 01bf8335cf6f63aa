package deviceid

import (
	"regexp"
	"slices"
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

// draHAMi is HAMi's DRA driver: hami-gpu-<minor>, of which a claim consumes cores and memory.
var draHAMi = Scheme{
	Name:    "hami dra",
	class:   Direct,
	Matches: named("hami-core-gpu.project-hami.io"),
	parse: func(_, id string) (Ref, bool) {
		n, ok := strings.CutPrefix(id, "hami-gpu-")
		minor, number := decimal(n)
		return minorRef(minor), ok && number
	},
}

// draVGPUManager is the DRA driver of vgpu-manager: vgpu-<minor>, and the names of NVIDIA's driver.
var draVGPUManager = Scheme{
	Name:    "vgpu-manager dra",
	class:   Direct,
	Matches: named("manager.nvidia.com"),
	parse:   func(_, id string) (Ref, bool) { return parseDRA(strings.TrimPrefix(id, "v")) },
}

// draOther is the drivers of other devices: NVIDIA's of IMEX channels, those of other vendors, and those whose name
// says what they allocate.
var draOther = Scheme{
	Name:  "other devices",
	class: NotGPU,
	Matches: func(driver string) bool {
		kind, _, _ := strings.Cut(driver, ".")
		return otherVendor.MatchString(driver) || otherDrivers(driver) || slices.ContainsFunc(strings.Split(kind, "-"), otherKinds)
	},
}

var (
	otherDrivers = named("compute-domain.nvidia.com", "dra.net", "dra.cpu", "dra.memory", "tpu.google.com")
	otherKinds   = named("net", "network", "dranet", "nic", "rdma", "sriov", "sriovnetwork", "cni", "cpu", "memory", "storage",
		"usb", "tpu", "npu", "neuron", "fpga", "qat", "gaudi")
)

// draUnlisted stands for the drivers that are not in the table, and device names that are not: the device may be any.
var draUnlisted = Scheme{
	Name:    "unlisted dra",
	class:   Opaque,
	Matches: func(string) bool { return false },
	Hint:    "the checkpoint of the driver (--kubelet.dra-checkpoint) or its ResourceSlices (--kubernetes.resource-slices)",
}

// guessed returns the GPU whose UUID is in the name of a device, or that its CDI names name, if that is one GPU.
func guessed(device, cdi string) (Ref, bool) {
	var found []Ref
	for name := range strings.SplitSeq(device+","+cdi, ",") {
		var r Ref
		ok := false
		if kind, id, isCDI := strings.Cut(name, "="); isCDI {
			r, ok = parseCDI(kind, id)
		}
		if all := uuidAnywhere.FindAllString(name, -1); !ok && len(all) == 1 {
			r, ok = ParseNVML(strings.ToUpper(all[0][:3]) + strings.ToLower(all[0][3:]))
		}
		r.Guessed = true
		if ok && !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return Ref{}, false
	}
	return found[0], true
}

var uuidAnywhere = regexp.MustCompile(`(?i)\b(GPU|MIG)-` + uuidPattern + `\b`)

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
