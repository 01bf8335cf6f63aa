package deviceid

import (
	"regexp"
	"strings"
)

// virtualMachineNames are the resource names that the KubeVirt and sandbox plugins make: the chip's name
// in the PCI id list (GA102GL_A10), a vGPU type (GRID_T4-1Q, NVIDIA_A40-4Q), or the general alias.
var virtualMachineNames = regexp.MustCompile(`^nvidia\.com/([A-Z]{2}[0-9]{2,3}[A-Z]*_|GRID_|NVIDIA_|pgpu$)`)

// kubevirtPassthrough hands whole GPUs to virtual machines: the id is a PCI address. Such a GPU is bound
// to vfio-pci, so NVML does not have it; where the inventory knows the address all the same, it is resolved.
var kubevirtPassthrough = Scheme{
	Name:  "kubevirt passthrough",
	class: Direct,
	Matches: func(resource string) bool {
		return virtualMachineNames.MatchString(resource) && !strings.Contains(resource, "NVSWITCH")
	},
	parse: func(_, id string) (Ref, bool) { return parsePCI(id) },
	Hint:  "the GPU is bound to vfio-pci and not visible to NVML on this node",
}

// kubevirtVGPU hands mediated devices to virtual machines: the id is the bare UUID of an mdev, which is
// no UUID of NVML's.
var kubevirtVGPU = Scheme{
	Name:    "kubevirt vgpu",
	class:   Direct,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		return Ref{by: byNothing}, isUUID(id)
	},
	Hint: "/sys/bus/mdev/devices/<uuid> is a link below the GPU's PCI address",
}

// pciUnderAnyName are PCI addresses under a name that no row knows. Administrators choose the names of
// SR-IOV network resources and of passthrough GPUs freely, so the name says nothing: what the inventory
// knows is a GPU, everything else is taken for a network function.
var pciUnderAnyName = Scheme{
	Name:    "pci address",
	class:   Direct,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		r, ok := parsePCI(id)
		r.MaybeForeign = true
		return r, ok
	},
}
