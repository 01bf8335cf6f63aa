package bus

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// pciDevice makes a device in a tree like /sys. A driver of "" is none.
func pciDevice(t *testing.T, root, address, vendor, class, driver string) {
	t.Helper()
	dir := filepath.Join(root, "bus/pci/devices", address)
	must.OK(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{"vendor": vendor, "class": class, "numa_node": "1"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	if driver != "" {
		must.OK(t, os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(dir, "driver")))
	}
}

func TestExpected(t *testing.T) {
	root := t.TempDir()
	pciDevice(t, root, "0000:9a:00.0", "0x10de", "0x030200", "nvidia")
	pciDevice(t, root, "0000:18:00.0", "0x10de", "0x030000", "")
	pciDevice(t, root, "0000:2a:00.0", "0x10de", "0x030200", "vfio-pci")
	pciDevice(t, root, "0000:18:00.1", "0x10de", "0x040300", "snd_hda_intel") // its audio
	pciDevice(t, root, "0000:c1:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
	pciDevice(t, root, "0000:03:00.0", "0x1a03", "0x030000", "ast")
	pciDevice(t, root, "0000:9a:00.4", "0x10de", "0x030200", "nvidia") // lent to a virtual machine
	must.OK(t, os.Symlink("../0000:9a:00.0", filepath.Join(root, "bus/pci/devices/0000:9a:00.4/physfn")))
	want := []GPU{
		{PCI: "0000:18:00.0"},
		{PCI: "0000:2a:00.0", Driver: "vfio-pci", Detached: true},
		{PCI: "0000:9a:00.0", Driver: "nvidia"},
	}
	got, err := Expected(root)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if n := NUMANode(root, "0000:9a:00.0"); n != gpu.Some(1) {
		t.Errorf("NUMA node: %v", n)
	}
	if n := NUMANode(root, "0000:9b:00.0"); n.Present() {
		t.Errorf("NUMA node of no GPU: %v", n)
	}
	if _, err := Expected(t.TempDir()); err == nil {
		t.Error("a machine without PCI devices expects an unknown number of GPUs, not none")
	}
}
