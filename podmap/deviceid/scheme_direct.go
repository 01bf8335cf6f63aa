package deviceid

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// nvidiaPlugin is NVIDIA's device plugin: the NVML name of a GPU or MIG device, with "::<n>" where it is time-sliced or
// shared through MPS. The resource name is free (patterns, ".shared"), so the form decides. On WSL one device "all"
// stands for every GPU, on Tegra the one device is called "tegra".
var nvidiaPlugin = Scheme{
	Name:    "nvidia device plugin",
	class:   Direct,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		if r, ok := parseNVMLOrSole(id); ok {
			return r, true
		}
		head, _, ok := cutNumber(id, "::")
		if !ok {
			return Ref{}, false
		}
		r, ok := parseNVMLOrSole(head)
		r.Replica, r.Base = true, head
		return r, ok
	},
}

func parseNVMLOrSole(id string) (Ref, bool) {
	switch id {
	case "all":
		return Ref{by: byAll}, true
	case "tegra":
		return Ref{by: bySole}, true
	}
	return ParseNVML(id)
}

// gke is Google's plugin: nvidia<minor>[/gi<g>][/vgpu<k>]. The number is the minor number of the device node, not the
// NVML index: the two differ on real nodes.
var gke = Scheme{
	Name:    "gke",
	class:   Direct,
	Matches: underNVIDIA,
	parse:   func(_, id string) (Ref, bool) { return parseMinor(id) },
}

var nosResource = regexp.MustCompile(`^nvidia\.com/gpu-([1-9][0-9]{0,8})gb$`)

// nos is nebuly's MPS fork of the device plugin: slices of a GPU under names like nvidia.com/gpu-10gb. The number in
// the name is the memory limit of one slice, in GiB.
var nos = Scheme{
	Name:    "nos",
	class:   Direct,
	Matches: nosResource.MatchString,
	parse: func(resource, id string) (Ref, bool) {
		r, ok := parseReplica(id, "::")
		gib, _ := strconv.Atoi(nosResource.FindStringSubmatch(resource)[1])
		r.Memory = gpu.Bytes(gib) << 30
		return r, ok && r.by == byUUID
	},
}

// awsVGPU is awslabs' virtual GPU plugin: GPU-<uuid>-<n>. The form is HAMi's, but the IDs are direct.
var awsVGPU = Scheme{
	Name:    "aws virtual gpu",
	class:   Direct,
	Matches: named("k8s.amazonaws.com/vgpu"),
	parse:   func(_, id string) (Ref, bool) { return parseUUIDReplica(id, "-") },
}

// deepomatic is the shared-gpu plugin: GPU-<uuid>-_-<n>. The form is Aliyun's, but the IDs are direct.
var deepomatic = Scheme{
	Name:    "deepomatic shared gpu",
	class:   Direct,
	Matches: named("deepomatic.com/shared-gpu"),
	parse:   func(_, id string) (Ref, bool) { return parseUUIDReplica(id, "-_-") },
}

// virtualMachineNames are the resource names of the KubeVirt and sandbox plugins: the chip's name in the PCI ID list
// (GA102GL_A10), a vGPU type (GRID_T4-1Q, NVIDIA_A40-4Q), or the general alias.
var virtualMachineNames = regexp.MustCompile(`^nvidia\.com/([A-Z]{2}[0-9]{2,3}[A-Z]*_|GRID_|NVIDIA_|pgpu$)`)

// chipNames are those among them of whole GPUs.
var chipNames = regexp.MustCompile(`^nvidia\.com/([A-Z]{2}[0-9]{2,3}[A-Z]*_|pgpu$)`)

// kubevirtPassthrough passes whole GPUs to virtual machines: the ID is a PCI address, in older versions of NVIDIA's plugin
// (kubevirt-gpu-device-plugin pkg/device_plugin/device_plugin.go at d26f2374 and 1041cba5) and in KubeVirt's own the
// number of an IOMMU group. Such a GPU is bound to vfio-pci, so it is not visible to NVML. An address may also be that of
// a virtual function, of a GPU on the same bus.
var kubevirtPassthrough = Scheme{
	Name:  "kubevirt passthrough",
	class: Direct,
	Matches: func(resource string) bool {
		return virtualMachineNames.MatchString(resource) && !strings.Contains(resource, "NVSWITCH")
	},
	parse: func(resource, id string) (Ref, bool) {
		if r, ok := ParsePCI(id); ok {
			return r, true
		}
		_, ok := decimal(id)
		return Ref{by: byDetached}, ok && chipNames.MatchString(resource)
	},
	Hint: "the GPU is bound to vfio-pci and not visible to NVML on this node",
}

// kubevirtVGPU passes mediated devices to virtual machines: the ID is the UUID of an mdev, which NVML does not have.
var kubevirtVGPU = Scheme{
	Name:    "kubevirt vgpu",
	class:   Direct,
	Matches: underNVIDIA,
	parse:   func(_, id string) (Ref, bool) { return Ref{by: byMediated}, isUUID(id) },
	Hint:    "/sys/bus/mdev/devices/<uuid> is a link below the GPU's PCI address",
}

// pciUnderAnyName is a PCI address under an unknown name. Administrators choose the names of SR-IOV network resources
// and of passthrough GPUs freely: what the inventory has is a GPU, everything else is taken for a network function.
var pciUnderAnyName = Scheme{
	Name:    "pci address",
	class:   Direct,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		r, ok := ParsePCI(id)
		r.MaybeForeign = true
		return r, ok
	},
}
