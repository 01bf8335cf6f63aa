// Package bus lists the NVIDIA GPUs of the PCI bus from sysfs, without the driver, and reads what of its own process matters to it.
package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// GPU is a GPU on the PCI bus.
type GPU struct {
	PCI gpu.PCIAddress
	// Driver is the kernel driver bound to it; empty for none.
	Driver string
	// Detached: another driver than NVIDIA's is bound to it, on purpose (vfio-pci passes it to a virtual machine).
	Detached bool
}

// Expected lists NVIDIA's display and 3D controllers under root (/sys), ordered by address, without virtual functions
// (SR-IOV). It reads sysfs, never the driver, and so works while NVML does not list a GPU.
func Expected(root string) ([]GPU, error) {
	dir := filepath.Join(root, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	var devs []GPU
	for _, entry := range entries {
		at := filepath.Join(dir, entry.Name())
		if attribute(at, "vendor") != "0x10de" || !strings.HasPrefix(attribute(at, "class"), "0x03") {
			continue
		}
		if _, err := os.Lstat(filepath.Join(at, "physfn")); err == nil {
			continue
		}
		pci, err := gpu.ParsePCIAddress(entry.Name())
		if err != nil {
			continue
		}
		dev := GPU{PCI: pci}
		if link, err := os.Readlink(filepath.Join(at, "driver")); err == nil {
			dev.Driver = filepath.Base(link)
			dev.Detached = dev.Driver != "nvidia"
		}
		devs = append(devs, dev)
	}
	gpu.Sort(devs, func(a, b GPU) int { return strings.Compare(string(a.PCI), string(b.PCI)) })
	return devs, nil
}

// NUMANode returns the NUMA node that a GPU is attached to; absent on machines with one.
func NUMANode(root string, pci gpu.PCIAddress) gpu.Opt[int] {
	var node int
	text := attribute(filepath.Join(root, "bus/pci/devices", string(pci)), "numa_node")
	if _, err := fmt.Sscan(text, &node); err != nil || node < 0 {
		return gpu.None[int]()
	}
	return gpu.Some(node)
}

// attribute returns one sysfs attribute, empty where it cannot be read.
func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
