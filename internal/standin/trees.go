package standin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// Trees are the directories of a node that an exporter reads beside driver and kubelet.
type Trees struct{ Sysfs, Procfs, PodLogs, ContainerLogs string }

// The inode of the first PID namespace of a kernel, as /proc/self/ns/pid shows it.
const hostPIDNamespace = "pid:[4026531836]"

// firstSandbox is the PID of the first pod's sandbox.
const firstSandbox = 900000

// WriteTrees writes what a kernel and a kubelet would show of the scenario's GPUs and the node's pods: PCI devices,
// the processes that containers name, and the names of their logs. A process of the scenario that no container names
// runs in a service of the host.
func WriteTrees(dir string, s *scenario.Scenario, n KubeletNode) (Trees, error) {
	t := Trees{filepath.Join(dir, "sys"), filepath.Join(dir, "proc"), filepath.Join(dir, "var", "log", "pods"),
		filepath.Join(dir, "var", "log", "containers")}
	w := treeWriter{}
	for _, c := range s.GPUs {
		device := filepath.Join(t.Sysfs, "bus", "pci", "devices", string(c.PCI))
		w.file(filepath.Join(device, "vendor"), "0x10de\n")
		w.file(filepath.Join(device, "class"), "0x030200\n")
		w.file(filepath.Join(device, "numa_node"), "0\n")
		w.file(filepath.Join(device, "power", "control"), "on\n")
		w.file(filepath.Join(device, "power", "runtime_status"), "active\n")
		w.link(filepath.Join("..", "..", "devices", string(c.PCI)), filepath.Join(t.Sysfs, "bus/pci/drivers/nvidia", string(c.PCI)))
		w.link(filepath.Join("..", "..", "..", "..", "bus", "pci", "drivers", "nvidia"), filepath.Join(device, "driver"))
	}
	w.link(hostPIDNamespace, filepath.Join(t.Procfs, "self", "ns", "pid"))
	placed := map[int]bool{}
	for i, p := range n.Pods {
		uid := PodUID(p.Namespace, p.Name)
		// The pause process, which has no log: containerd and CRI-O start it before the containers.
		w.process(t.Procfs, firstSandbox+i, "pause", "/kubepods/pod"+uid+"/"+digest(p.Namespace, p.Name),
			ProcessDetails{Nodes: []string{"null"}})
		for _, c := range p.Containers {
			id := ContainerID(p.Namespace, p.Name, c.Name)
			w.file(filepath.Join(t.PodLogs, p.Namespace+"_"+p.Name+"_"+uid, c.Name, "0.log"), "")
			w.file(filepath.Join(t.ContainerLogs, p.Name+"_"+p.Namespace+"_"+c.Name+"-"+id+".log"), "")
			for _, pid := range c.PIDs {
				placed[pid] = true
				w.process(t.Procfs, pid, c.Name, "/kubepods/pod"+uid+"/"+id, c.ProcessDetails)
			}
		}
	}
	for _, p := range n.Processes {
		placed[p.PID] = true
		w.process(t.Procfs, p.PID, "host", p.Cgroup, p.ProcessDetails)
	}
	for _, p := range s.Processes() {
		if !placed[p.PID] {
			w.process(t.Procfs, p.PID, "host", "/system.slice/host-gpu-job.service", ProcessDetails{})
		}
	}
	return t, w.err
}

// treeWriter keeps the first error.
type treeWriter struct{ err error }

func (w *treeWriter) file(path, text string) {
	w.do(path, func() error { return os.WriteFile(path, []byte(text), 0o644) })
}

func (w *treeWriter) link(target, path string) {
	w.do(path, func() error { return os.Symlink(target, path) })
}

func (w *treeWriter) do(path string, make func() error) {
	if w.err != nil {
		return
	}
	if w.err = os.MkdirAll(filepath.Dir(path), 0o755); w.err == nil {
		w.err = make()
	}
}

// process writes one process. Its root and environment exist if the details have them; otherwise they are unreadable,
// as without the permission.
func (w *treeWriter) process(procfs string, pid int, command, cgroup string, look ProcessDetails) {
	command = cmp.Or(look.Command, command)
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	start := 1000 + pid%firstSandbox
	w.file(filepath.Join(dir, "stat"), fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, command, start))
	w.file(filepath.Join(dir, "cgroup"), "0::"+cgroup+"\n")
	for _, node := range look.Nodes {
		w.file(filepath.Join(dir, "root", "dev", filepath.FromSlash(node)), "")
	}
	if len(look.Env) > 0 {
		w.file(filepath.Join(dir, "environ"), strings.Join(look.Env, "\x00")+"\x00")
	}
}

// PodUID is derived from names, so that a node is the same at each start.
func PodUID(namespace, pod string) string {
	h := digest(namespace, pod)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

// ContainerID is derived from names, too.
func ContainerID(namespace, pod, container string) string { return digest(namespace, pod, container) }

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s\n", p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
