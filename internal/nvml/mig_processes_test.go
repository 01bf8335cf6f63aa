package nvml

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// TestProcessesOfEveryComputeInstance: the list of a MIG device has the processes of its compute instance alone. Where the GPU's own
// list is denied, those of all compute instances are read: a process that is not listed looks like one that does not exist.
func TestProcessesOfEveryComputeInstance(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
mig gpu=0 layout="`+strings.Join([]string{"gi=1 ci=0 profile=3g.40gb slices=1 start=0 size=4", "gi=1 ci=1 slices=2 index=3",
		"gi=5 profile=1g.10gb start=4 size=1 index=5"}, " ; ")+`"
process gpu=0 pid=10 gi=1 ci=0 memory=1GiB
process gpu=0 pid=11 gi=1 ci=1 memory=2GiB
process gpu=0 pid=50 gi=5 memory=3GiB
`)
	denied := false // the first list that is read, which is the GPU's
	r.library.options.Intercept = func(_ int, call string, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetComputeRunningProcesses" && !denied {
			denied = true
			return int32(nvml.ERROR_NO_PERMISSION)
		}
		return run()
	}
	m := medium(t, r.open()[0])
	got := ""
	for _, p := range m.Processes.Or(nil) {
		got += fmt.Sprintf("%d gi=%d %d GiB; ", p.PID, p.GI.Or(-1), p.Memory.Or(0)>>30)
	}
	if want := "10 gi=1 1 GiB; 11 gi=1 2 GiB; 50 gi=5 3 GiB; "; got != want {
		t.Errorf("processes %q, want %q", got, want)
	}
	var memory gpu.Bytes
	for _, in := range m.Instances {
		memory += in.Memory.Or(gpu.Memory{}).Total >> 20
	}
	if len(m.Instances) != 2 || memory != 40448+9984 {
		t.Errorf("memory of the instances: %+v", m.Instances)
	}
}

// TestHandlesOfAFailedWalk: a layout that could not be read as a whole keeps the instances before with their own handles; those
// of the new MIG devices would give one instance the processes of another.
func TestHandlesOfAFailedWalk(t *testing.T) {
	r := playText(t, `
gpu 0 board=b
mig gpu=0 layout="gi=1 profile=3g.40gb start=0 size=4 uuid=MIG-a"
at 20s gpu 0 mig apply layout="gi=7 profile=1g.10gb start=4 size=1 uuid=MIG-b ; gi=8 profile=1g.10gb start=5 size=1 uuid=MIG-c"
`)
	c := r.open()[0]
	slow(t, c)
	handle := c.mig.handles[0]
	r.at(30 * time.Second)
	devices, refuse := 0, true
	r.library.options.Intercept = func(_ int, call string, _ any, run func() int32) int32 {
		if call == "nvmlDeviceGetGpuInstanceId" {
			if devices++; refuse && devices == 2 {
				return int32(nvml.ERROR_UNKNOWN)
			}
		}
		return run()
	}
	if got := slow(t, c).Instances; len(got) != 1 || got[0].UUID != "MIG-a" || handle == nil || c.mig.handles[0] != handle {
		t.Errorf("after a failed walk: %+v, handles %v, before %v", got, c.mig.handles, handle)
	}
	refuse = false
	if got := slow(t, c).Instances; len(got) != 2 || got[0].UUID != "MIG-b" || len(c.mig.handles) != 2 || c.mig.handles[0] == handle {
		t.Errorf("after the walk: %+v, handles %v, before %v", got, c.mig.handles, handle)
	}
}
