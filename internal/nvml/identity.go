package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/bus"
)

// identityRows are read once per GPU and session. PCI address and UUID come first: with them a GPU that fails later
// still has an identity.
var identityRows = slices.Concat([]row[gpu.Identity]{
	{reading: "pci_bus_id", read: plain(callPciInfo, nvml.Device.GetPciInfo,
		func(to *gpu.Identity, pci nvml.PciInfo) {
			to.PCI = gpu.NewPCIAddress(pci.Domain, pci.Bus, pci.Device, 0)
		})},
	{reading: "uuid", read: plain(callUUID, nvml.Device.GetUUID,
		func(to *gpu.Identity, uuid string) { to.UUID = gpu.UUID(strings.TrimSpace(uuid)) })},
	{reading: "brand", read: plain(callBrand, nvml.Device.GetBrand,
		func(to *gpu.Identity, v nvml.BrandType) { to.Brand = brandNames[v] })},
	{reading: "architecture", read: plain(callArchitecture, nvml.Device.GetArchitecture,
		func(to *gpu.Identity, v nvml.DeviceArchitecture) { to.Architecture = architectureNames[v] })},
	{reading: "compute_capability", read: plainPair(callCudaComputeCapability, nvml.Device.GetCudaComputeCapability,
		func(to *gpu.Identity, major, minor int) { to.ComputeCapability = fmt.Sprintf("%d.%d", major, minor) })},
	{reading: "xid_events", read: plain(callSupportedEventTypes, nvml.Device.GetSupportedEventTypes,
		func(to *gpu.Identity, types uint64) { to.XIDEvents = types&eventTypes != 0 })},
}, identityValues, identityDetails)

// readIdentity reads the GPU's identity and marks the GPU as lost if that fails. old is the previous GPU of the same
// handle, or nil.
func (c *GPU) readIdentity(old *GPU) {
	id := gpu.Identity{Index: c.identity.Index}
	err := readRows(c, identityRows, c.tables.identity, &id)
	library := c.dev.session.library
	if err == nil && (id.PCI == "" || id.UUID == "") {
		// One stray error must not rename the GPU for the whole session.
		err = readRows(c, identityRows, c.tables.identity, &id)
	}
	if err == nil {
		known, _ := library.recall(id.PCI)
		id.UUID = cmp.Or(id.UUID, known.UUID, gpu.UUID(id.PCI), gpu.UUID(fmt.Sprintf("index-%d", id.Index)))
		id.NUMANode = bus.NUMANode(c.sysfs(), id.PCI)
		c.identity = library.remember(id)
		return
	}
	c.lost = err
	switch known, ok := library.recall(id.PCI); {
	case ok:
		id = known
	case old != nil && old.identity.PCI != "":
		id = old.identity
	case id.UUID == "":
		id.UUID = gpu.UUID(id.PCI)
	}
	c.identity = id
}

// brandNames spells brands as nvidia-smi does.
var brandNames = map[nvml.BrandType]string{
	nvml.BRAND_UNKNOWN:             "Unknown",
	nvml.BRAND_QUADRO:              "Quadro",
	nvml.BRAND_TESLA:               "Tesla",
	nvml.BRAND_NVS:                 "NVS",
	nvml.BRAND_GRID:                "Grid",
	nvml.BRAND_GEFORCE:             "GeForce",
	nvml.BRAND_TITAN:               "Titan",
	nvml.BRAND_NVIDIA_VAPPS:        "NVIDIA Virtual Applications",
	nvml.BRAND_NVIDIA_VPC:          "NVIDIA Virtual PC",
	nvml.BRAND_NVIDIA_VCS:          "NVIDIA Virtual Compute Server",
	nvml.BRAND_NVIDIA_VWS:          "NVIDIA RTX Virtual Workstation",
	nvml.BRAND_NVIDIA_CLOUD_GAMING: "NVIDIA Cloud Gaming",
	nvml.BRAND_QUADRO_RTX:          "Quadro RTX",
	nvml.BRAND_NVIDIA_RTX:          "NVIDIA RTX",
	nvml.BRAND_NVIDIA:              "NVIDIA",
	nvml.BRAND_GEFORCE_RTX:         "GeForce RTX",
	nvml.BRAND_TITAN_RTX:           "Titan RTX",
}

// architectureNames spells architectures as nvidia-smi does.
var architectureNames = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER:    "Kepler",
	nvml.DEVICE_ARCH_MAXWELL:   "Maxwell",
	nvml.DEVICE_ARCH_PASCAL:    "Pascal",
	nvml.DEVICE_ARCH_VOLTA:     "Volta",
	nvml.DEVICE_ARCH_TURING:    "Turing",
	nvml.DEVICE_ARCH_AMPERE:    "Ampere",
	nvml.DEVICE_ARCH_ADA:       "Ada Lovelace",
	nvml.DEVICE_ARCH_HOPPER:    "Hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_RUBIN:     "Rubin",
}
