package suspend

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// node is a simulated node with a GPU that may suspend or not, and one that may not.
type node struct {
	watcher
	now time.Time
	v   gpu.View
	set func(path, text string) // below /sys/bus/pci/drivers/nvidia
}

func newNode(t *testing.T, control, status, report string) *node {
	dir := t.TempDir()
	n := &node{now: time.Unix(1e9, 0), watcher: watcher{sysfs: dir, procfs: dir, reader: host.NewReader(0), idle: minIdle},
		v: gpu.View{GPUs: make([]gpu.GPU, 1), Sources: []gpu.Source{{Name: gpu.SourceNVML, Up: true}}}, set: func(path, text string) {
			path = filepath.Join(dir, "bus/pci/drivers/nvidia", path)
			must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must.OK(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		}}
	n.set("0000:01:00.0/power/control", control)
	n.set("0000:01:00.0/power/runtime_status", status)
	n.set("../../../../driver/nvidia/gpus/0000:01:00.0/power", "Runtime D3 status:          "+report+"\nVideo Memory:  Active\n")
	n.set("0000:02:00.0/power/control", "on")
	return n
}

// after is decide for a time, in polls of 2 s: for how long NVML was shut down, and whether a GPU may suspend.
func (n *node) after(d time.Duration) (closed time.Duration, possible bool) {
	for end := n.now.Add(d); n.now.Before(end); n.now = n.now.Add(2 * time.Second) {
		var is string
		if is, possible = n.decide(&n.v, n.now); is != "" {
			closed += 2 * time.Second
		}
	}
	return closed, possible
}

// The texts of /proc/driver/nvidia are those of RmGetDynamicPowerManagementStatus (dynamic-power.c) and nv_procfs_read_power
// (nv-procfs.c) of NVIDIA/open-gpu-kernel-modules at 595.45.04, the states those of the kernel's
// Documentation/ABI/testing/sysfs-devices-power. The fourth is a server whose distribution allows it, and whose driver does not.
func TestMaySuspend(t *testing.T) {
	for _, c := range []struct {
		control, status, report string
		want                    bool
	}{
		{"auto", "active", "Enabled (fine-grained)", true}, {"auto", "active", "Enabled (coarse-grained)", true},
		{"auto", "suspended", "?", true}, {"auto", "active", "Disabled by default", false}, {"auto", "active", "Not supported", false},
		{"auto", "unsupported", "?", false}, {"on", "active", "Enabled (fine-grained)", false},
	} {
		if closed, possible := newNode(t, c.control, c.status, c.report).after(2 * minIdle); closed > 0 != c.want || possible != c.want {
			t.Errorf("%+v: closed for %s, %v", c, closed, possible)
		}
	}
}

// A GPU that does not suspend although nothing of ours has it open is read for longer each time, so that one with a display
// loses 20 s in an hour, until it suspends. NVML is not shut down while a GPU is busy, nor without a driver.
func TestOthersUseIt(t *testing.T) {
	n := newNode(t, "auto", "active", "Enabled (fine-grained)")
	for _, c := range []struct {
		what    string
		status  string
		d, want time.Duration
	}{
		{"no driver", "active", 10 * time.Minute, 0}, {"busy", "active", 10 * time.Minute, 0},
		{"idle", "active", 10 * time.Minute, 4 * settle}, // after 0.5, 1, 2 and 4 minutes
		{"idle for hours", "active", 2 * time.Hour, 4 * settle}, {"a display", "active", 4 * (maxIdle + settle), 4 * settle},
		{"suspended", "suspended", time.Hour, time.Hour}, {"resumed", "active", minIdle, 0}, {"idle again", "active", settle, settle},
	} {
		n.v.Sources[0].Up, n.v.GPUs[0].Activity.LastBusy = c.what != "no driver", gpu.None[time.Time]()
		if c.what == "busy" {
			n.v.GPUs[0].Activity.LastBusy = gpu.Some(n.now.Add(c.d)) // until then
		}
		n.set("0000:01:00.0/power/runtime_status", c.status)
		if closed, _ := n.after(c.d); closed != c.want {
			t.Errorf("%s: closed for %s of %s, want %s", c.what, closed, c.d, c.want)
		}
	}
}

// A GPU without persistence mode is left alone while no file of the driver is open, if that is asked for: two of the references are
// those of other modules.
func TestUnopened(t *testing.T) {
	// One with runtime power management suspends by that, whoever has it open.
	laptop := newNode(t, "auto", "suspended", "?")
	laptop.unopened, laptop.v.GPUs[0].PCI = true, "0000:01:00.0"
	laptop.v.GPUs[0].Slow = gpu.Some(&gpu.Slow{PersistenceMode: gpu.Some(false)})
	laptop.set("../../../../module/nvidia/refcnt", "6")
	if closed, _ := laptop.after(time.Hour); closed != time.Hour {
		t.Errorf("a suspended GPU that a program has open is resumed: closed for %s of an hour", closed)
	}
	for _, asked := range []bool{false, true} {
		n := newNode(t, "on", "active", "Not supported")
		n.unopened, n.v.GPUs[0].PCI = asked, "0000:02:00.0"
		n.set("../../../../module/nvidia/holders/nvidia_uvm", "")
		n.set("../../../../module/nvidia/holders/nvidia_modeset", "")
		for _, c := range []struct {
			what, references string
			persistence      gpu.Opt[bool]
			d, want          time.Duration
		}{
			{"persistence mode", "12", gpu.Some(true), 10 * time.Minute, 0}, {"not read", "12", gpu.None[bool](), 10 * time.Minute, 0},
			{"open here alone", "12", gpu.Some(false), 2 * time.Second, 2 * time.Second},
			{"nothing has it open", "2", gpu.None[bool](), time.Hour, time.Hour}, {"a program opens it", "6", gpu.Some(false), minIdle, 0},
			{"the program is idle", "6", gpu.Some(false), 10 * time.Minute, 4 * settle}, {"unknown", "", gpu.Some(false), time.Minute, 0},
		} {
			n.v.GPUs[0].Slow = gpu.Some(&gpu.Slow{PersistenceMode: c.persistence})
			n.set("../../../../module/nvidia/refcnt", c.references)
			closed, possible := n.after(c.d)
			if want := map[bool]time.Duration{true: c.want}[asked]; closed != want {
				t.Errorf("%s: closed for %s of %s, want %s, %v", c.what, closed, c.d, want, possible)
			}
		}
	}
}
