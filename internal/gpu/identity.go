package gpu

import (
	"fmt"
	"strings"
)

// UUID names a GPU ("GPU-…") or a MIG device ("MIG-…") as NVML spells it. A GPU without a UUID
// is identified by its PCI address instead.
type UUID string

// PCIAddress is a PCI function as Linux spells it: four hex digits of domain, bus, device, function, in
// lower case: "0000:18:00.0".
type PCIAddress string

// ParsePCIAddress parses the common forms, "00000000:18:00.0", "0000:18:00.0", "18:00.0" and
// the kernel log's "0000:18:00", in any case, and returns the Linux spelling.
func ParsePCIAddress(s string) (PCIAddress, error) {
	parts := strings.Split(strings.ToLower(strings.TrimSpace(s)), ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	var domain, bus, device, function uint32
	bad := fmt.Errorf("%q is not a PCI address like 0000:18:00.0", s)
	if len(parts) != 3 {
		return "", bad
	}
	slot, fn, dotted := strings.Cut(parts[2], ".")
	if !dotted {
		fn = "0"
	}
	for _, field := range []struct {
		text string
		max  uint32
		to   *uint32
	}{{parts[0], 0xffffffff, &domain}, {parts[1], 0xff, &bus}, {slot, 0x1f, &device}, {fn, 7, &function}} {
		v, ok := parseHex(field.text)
		if !ok || v > field.max {
			return "", bad
		}
		*field.to = v
	}
	return NewPCIAddress(domain, bus, device, function), nil
}

// NewPCIAddress returns the Linux spelling of the four numbers.
func NewPCIAddress(domain, bus, device, function uint32) PCIAddress {
	return PCIAddress(fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function))
}

func parseHex(s string) (uint32, bool) {
	if s == "" || len(s) > 8 {
		return 0, false
	}
	var v uint32
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | uint32(c-'0')
		case 'a' <= c && c <= 'f':
			v = v<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// Identity holds the properties of a GPU that do not change while it is installed.
type Identity struct {
	// UUID from nvmlDeviceGetUUID, or the PCI address where NVML has none.
	UUID UUID
	// Index is the NVML index when the GPU was first seen, -1 if it never was.
	Index int
	// PCI from nvmlDeviceGetPciInfo.
	PCI PCIAddress
	// Minor is the number of the device node /dev/nvidia<minor>, from nvmlDeviceGetMinorNumber. It is
	// not the index: the driver assigns minors in probe order.
	Minor Opt[int]

	Model             string // nvmlDeviceGetName
	Brand             string // nvmlDeviceGetBrand, as nvidia-smi spells it
	Architecture      string // nvmlDeviceGetArchitecture
	ComputeCapability string // nvmlDeviceGetCudaComputeCapability, "9.0"
	Serial            string // nvmlDeviceGetSerial; empty where not offered
	BoardPart         string // nvmlDeviceGetBoardPartNumber
	VBIOS             string // nvmlDeviceGetVbiosVersion
	NUMANode          Opt[int]
	// XIDEvents is set if the driver reports the GPU's XIDs as events (nvmlDeviceGetSupportedEventTypes).
	XIDEvents bool
	Firmware  Firmware
	Platform  Platform
}

// Firmware holds versions; empty where not offered.
type Firmware struct {
	InforomImage                         string // nvmlDeviceGetInforomImageVersion
	InforomOEM, InforomECC, InforomPower string // nvmlDeviceGetInforomVersion
	GSP                                  string // nvmlDeviceGetGspFirmwareVersion
}

// Platform is where a GPU is in its rack: nvmlDeviceGetPlatformInfo, Blackwell and newer. The zero Platform is unknown.
type Platform struct {
	Known                              bool
	ChassisSerial                      string
	Slot, Tray, Host, PeerType, Module int
}

// System identifies the driver.
type System struct {
	DriverVersion string // nvmlSystemGetDriverVersion
	CUDAVersion   string // nvmlSystemGetCudaDriverVersion, "13.0"
	NVMLVersion   string // nvmlSystemGetNVMLVersion
	// Wrapper is a library between this process and NVML that changes what NVML reports about memory; empty: none.
	Wrapper string
}
