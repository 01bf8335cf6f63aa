package hwcheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isolation is a way in which this program may be apart from the machine, and the claims that cannot be tested there: what
// they contradict is the isolation, not the exporter.
type isolation struct {
	name    string
	present func(c config) bool
	stages  []string // all claims of the stages whose names begin so
	claims  []string
}

// initialPID is the inode of the initial PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h of Linux 6.12).
const initialPID = "pid:[4026531836]"

// containers are the stages that make cgroups of pods and look processes up in them.
var containers = []string{stageShared, stageMPS}

func allIsolations() []isolation {
	return []isolation{
		{"a PID namespace of its own (container without hostPID)", func(c config) bool {
			link, err := os.Readlink(c.hostPath("proc/self/ns/pid"))
			return err == nil && link != initialPID
		}, containers, nil},
		{"cgroup v1", func(c config) bool {
			return !c.has("sys/fs/cgroup/cgroup.controllers") && c.has("sys/fs/cgroup/memory")
		}, containers, nil},
		{"cgroups that are read-only", func(c config) bool {
			if _, err := os.Stat(c.cgroups); err != nil {
				return false
			}
			dir, err := os.MkdirTemp(c.cgroups, "hwcheck-")
			_ = os.Remove(dir)
			return err != nil
		}, containers, nil},
		// runsc reports itself as a kernel of 2016, and passes a list of NVIDIA's ioctls through.
		{"gVisor", func(c config) bool {
			return c.contains("proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
		}, []string{stageShared, stageMPS, stageXID, stageUsers},
			[]string{"every busy sample of the ring has a PID", "samples of processes at 0.2 to 5 s",
				"samples of a process: seconds covered", "ioctls per driver call"}},
		{"a virtual machine (such as Firecracker or KVM)", func(c config) bool {
			return c.contains("proc/cpuinfo", " hypervisor ")
		}, nil, []string{"launch of an empty kernel, p99.9"}},
		{"a vGPU", func(c config) bool { return c.vgpu },
			[]string{"copies", stageMIG, stageXID}, []string{"energy against integrated power", "power of the idle GPU",
				"sample rings: samples", "sample rings: milliseconds", "BAR1 against memory",
				"utilization against nvidia-smi", "hidden busy time"}},
	}
}

func (c config) hostPath(path string) string { return filepath.Join(c.host, path) }
func (c config) has(path string) bool        { _, err := os.Stat(c.hostPath(path)); return err == nil }

func (c config) contains(path, text string) bool {
	data, err := os.ReadFile(c.hostPath(path))
	return err == nil && strings.Contains(strings.ReplaceAll(string(data), "\n", " \n"), text)
}

// isolations are those that are present.
func isolations(c config) []isolation {
	return slices.DeleteFunc(allIsolations(), func(i isolation) bool { return !i.present(c) })
}

// covers reports whether nothing of a stage can be tested.
func (i isolation) covers(stage string) bool {
	return slices.ContainsFunc(i.stages, func(prefix string) bool { return stage != "" && strings.HasPrefix(stage, prefix) })
}

// hinders is the isolation under which a claim cannot be tested, or all of a stage; empty where it can.
func (r *run) hinders(stage, claim string) string {
	for _, i := range r.isolated {
		if i.covers(stage) || slices.Contains(i.claims, claim) {
			return i.name
		}
	}
	return ""
}
