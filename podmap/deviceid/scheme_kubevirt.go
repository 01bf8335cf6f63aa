package deviceid

import (
	"regexp"
	"strings"
)

// virtualMachineNames are the resource names of the KubeVirt and sandbox plugins: the chip's name in the PCI ID list
// (GA102GL_A10), a vGPU type (GRID_T4-1Q, NVIDIA_A40-4Q), or the general alias.
var virtualMachineNames = regexp.MustCompile(`^nvidia\.com/([A-Z]{2}[0-9]{2,3}[A-Z]*_|GRID_|NVIDIA_|pgpu$)`)

// kubevirtPassthrough passes whole GPUs to virtual machines: the ID is a PCI address. Such a GPU is bound to vfio-pci,
// so it is not visible to NVML; if the inventory has the address nevertheless, it is resolved.
var kubevirtPassthrough = Scheme{
	Name:  "kubevirt passthrough",
	class: Direct,
	Matches: func(resource string) bool {
		return virtualMachineNames.MatchString(resource) && !strings.Contains(resource, "NVSWITCH")
	},
	parse: func(_, id string) (Ref, bool) { return ParsePCI(id) },
	Hint:  "the GPU is bound to vfio-pci and not visible to NVML on this node",
}

// kubevirtVGPU passes mediated devices to virtual machines: the ID is the UUID of an mdev, which NVML does not have.
var kubevirtVGPU = Scheme{
	Name:    "kubevirt vgpu",
	class:   Direct,
	Matches: underNVIDIA,
	parse:   func(_, id string) (Ref, bool) { return Ref{by: byNothing}, plainUUID.MatchString(id) },
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
