package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// FuzzFindVariable: the value is that of the first entry of the name, however the bytes arrive.
func FuzzFindVariable(f *testing.F) {
	long := strings.Repeat("x", 5000)
	for _, text := range []string{"V=1\x00", "A=1\x00V=2\x00B=3\x00", "V=1\x00V=2\x00", "A=1\x00V=2", "V=\x00", "VV=1\x00", "A=V=1\x00",
		"=1\x00", "A=" + long + "\x00V=2\x00", "V=" + long + "\x00", "", "V\x00V"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, there := "", false
		for _, e := range strings.Split(text, "\x00") {
			if v, ok := strings.CutPrefix(e, "V="); ok {
				want, there = v, true
				break
			}
		}
		if len(want) > maxVariable {
			want, there = "", false
		}
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			if got, ok, err := findVariable(r, "V"); got != want || ok != there || err != nil {
				t.Errorf("%q %v %v, want %q %v", got, ok, err, want, there)
			}
		}
		if _, _, err := findVariable(iotest.ErrReader(errors.New("no")), "V"); err == nil {
			t.Error("a failed read is no error")
		}
	})
}

var visibleGPUs = &gpu.Inventory{GPUs: []gpu.InventoryGPU{
	{UUID: "GPU-a", Index: 0, Minor: gpu.Some(3)}, {UUID: "GPU-b", Index: 1, Minor: gpu.Some(0)},
	{UUID: "GPU-m", Index: 2, Minor: gpu.Some(1), MIG: true, Instances: []gpu.Instance{{UUID: "MIG-1", GI: 1}, {UUID: "MIG-2", GI: 2}}},
}}

func (n *node) scanner() *VisibleScanner {
	s := NewVisibleScanner(ScannerOptions{Interval: time.Minute,
		Finder: Options{Procfs: filepath.Join(n.root, "proc"), PodLogs: filepath.Join(n.root, "log/pods"),
			ContainerLogs: filepath.Join(n.root, "log/containers"),
			Kubernetes:    true, Clock: func() time.Time { return n.now }},
		Named: func(_ *gpu.Inventory, list string) []gpu.UUID { return []gpu.UUID{gpu.UUID(list)} }})
	n.patient(s.finder)
	return s
}

// container is one process of a pod of its own, its nodes below its root.
func (n *node) container(pid int, pod string, nodes ...string) {
	uid := fmt.Sprintf("%08d-1111-4111-8111-111111111111", pid)
	n.pod("ml", pod, uid, "main", fmt.Sprintf("%064d", pid))
	n.process(pid, fmt.Sprint(1000+pid), fmt.Sprintf("0::/kubepods/pod%s/%064d\n", uid, pid))
	for _, node := range nodes {
		n.write(fmt.Sprintf("proc/%d/root/dev/%s", pid, node), "")
	}
}

func seen(list []gpu.VisibleGPU) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.Pod+" "+string(v.GPU))
	}
	return out
}

func TestScan(t *testing.T) {
	n := newNode(t)
	n.container(10, "one", "nvidia3", "nvidiactl", "nvidia-uvm", "null")
	n.container(11, "privileged", "nvidia0", "nvidia1", "nvidia3", "nvidia254", "nvidia-caps/nvidia-cap1",
		"nvidia-caps/nvidia-cap12",
		"nvidia-caps/nvidia-cap21")
	n.container(12, "mig", "nvidia1", "nvidia-caps/nvidia-cap21")
	n.container(13, "monitor", "nvidia1", "nvidia-caps/nvidia-cap2")
	n.container(14, "closed")
	n.write("proc/14/environ", "TOKEN=secret\x00NVIDIA_VISIBLE_DEVICES=GPU-b\x00")
	n.container(15, "none", "null")
	n.write("proc/15/environ", "NVIDIA_VISIBLE_DEVICES=GPU-a\x00") // CUDA images set all, without a GPU being visible
	n.container(16, "ended")                                       // neither root nor environment: it has just ended
	n.process(17, "1", "0::/system.slice/sshd.service\n")
	n.write("proc/17/root/dev/nvidia0", "")
	n.write("proc/not-a-process", "")
	n.write("proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu1/gi1/access 12\ngpu1/gi1/ci0/access "+
		"13\ngpu1/gi2/access "+
		"21\ngarbage\ngpux/gi1/access 7\n")
	l := n.scanner()
	if s := l.Source(); s.Up || s.Message == "" {
		t.Errorf("before the first scan: %+v", s)
	}
	l.Scan(t.Context())
	want := []string{"closed GPU-b", "mig GPU-m", "one GPU-a", "privileged GPU-a", "privileged GPU-b", "privileged GPU-m"}
	if got := seen(l.Visible(visibleGPUs)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if s := l.Source(); !s.Up || s.Errors != 0 || s.Message != "" {
		t.Errorf("%+v", s)
	}
	if l.Visible(nil) != nil {
		t.Error("GPUs of no inventory")
	}
	if list := l.Visible(visibleGPUs); len(list) == 0 || list[0].Index != 1 {
		t.Errorf("closed has the GPU of index 1: %+v", list)
	}
	// An environment is read once: what a process changes later does not concern its container.
	n.write("proc/14/environ", "NVIDIA_VISIBLE_DEVICES=GPU-a\x00")
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); !slices.Equal(got, want) {
		t.Errorf("after a process changed its environment: %q\nwant %q", got, want)
	}
	// Nothing of an environment is kept but the one variable.
	if text := fmt.Sprintf("%+v", l.environ) + fmt.Sprintf("%+v", l.found.Last().containers); strings.Contains(text, "secret") ||
		!strings.Contains(text, "GPU-b") {
		t.Errorf("kept: %s", text)
	}
	// Without the table of capabilities, the GPU's node alone makes it visible: an upper bound.
	must.OK(t, os.Remove(filepath.Join(n.root, "proc/driver/nvidia-caps/mig-minors")))
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); !slices.Contains(got, "monitor GPU-m") {
		t.Errorf("without a table: %q", got)
	}
	// A process that ended takes what it showed with it.
	os.RemoveAll(filepath.Join(n.root, "proc/10"))
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); slices.Contains(got, "one GPU-a") {
		t.Errorf("an ended container still sees: %q", got)
	}
	if _, remembered := l.finder.entries[10]; remembered || len(l.environ) != 1 {
		t.Error("an ended process is still remembered")
	}
	// A scan that is too old is not used.
	n.now = n.now.Add(6 * time.Minute)
	if got := l.Visible(visibleGPUs); got != nil {
		t.Errorf("after six minutes without a walk: %q", seen(got))
	}
}

// A container's first process represents it: a later one may have another root.
func TestScanAsksTheFirstProcess(t *testing.T) {
	n := newNode(t)
	n.container(900, "one", "nvidia3")
	uid := "00000900-1111-4111-8111-111111111111"
	n.process(7, "20000", fmt.Sprintf("0::/kubepods/pod%s/%064d\n", uid, 900)) // younger, and of a smaller PID
	n.write("proc/7/root/dev/nvidia0", "")
	n.process(901, "20001", fmt.Sprintf("0::/kubepods/pod%s/%064d\n", uid, 900)) // the youngest
	n.write("proc/901/root/dev/nvidia0", "")
	l := n.scanner()
	l.Scan(t.Context())
	if got := seen(l.Visible(visibleGPUs)); !slices.Equal(got, []string{"one GPU-a"}) {
		t.Errorf("%q", got)
	}
}

// The sandbox of a pod starts before its container and has no GPUs: it does not represent it, with links or without.
func TestScanSkipsSandboxes(t *testing.T) {
	for _, link := range []string{"", other} {
		n := newNode(t)
		n.pod("ml", "one", uid, "main", link)
		n.process(5531, "359453", "0::/kubepods/pod"+uid+"/"+cid+"\n")
		n.write("proc/5531/root/dev/null", "")
		n.process(5576, "359484", "0::/kubepods/pod"+uid+"/"+other+"\n")
		n.write("proc/5576/root/dev/nvidia3", "")
		l := n.scanner()
		l.Scan(t.Context())
		if got := seen(l.Visible(visibleGPUs)); !slices.Equal(got, []string{"one GPU-a"}) {
			t.Errorf("link %q: %q", link, got)
		}
	}
}

// A container may put links where it is looked for. They lead nowhere outside its root.
func TestScanStaysBelowTheRoot(t *testing.T) {
	n := newNode(t)
	n.container(10, "evil", "null")
	elsewhere := filepath.Join(n.root, "elsewhere")
	n.write("elsewhere/nvidia3", "")
	dev := filepath.Join(n.root, "proc/10/root/dev")
	must.OK(t, os.RemoveAll(dev))
	for _, to := range []string{elsewhere, "../../../elsewhere"} {
		os.Remove(dev)
		must.OK(t, os.Symlink(to, dev))
		l := n.scanner()
		l.Scan(t.Context())
		if got := l.Visible(visibleGPUs); len(got) != 0 {
			t.Errorf("a link to %s was followed: %q", to, seen(got))
		}
	}
}

// On a real /proc a node has to be a character device of NVIDIA's, and its number is the node's own.
func TestScanWantsDevices(t *testing.T) {
	dir := t.TempDir()
	dev := filepath.Join(dir, "root", "dev")
	must.OK(t, os.MkdirAll(dev, 0o755))
	for name, text := range map[string]string{"nvidia0": "", "nvidia1": "a file"} {
		must.OK(t, os.WriteFile(filepath.Join(dev, name), []byte(text), 0o644))
	}
	must.OK(t, os.Symlink("/dev/null", filepath.Join(dev, "nvidia2")))
	var want []int
	// An ordinary user may make no devices; then only what is none is looked at.
	if err := unix.Mknod(filepath.Join(dev, "nvidia4"), syscall.S_IFCHR|0o600, int(unix.Mkdev(nvidiaMajor, 6))); err == nil {
		want = []int{6}
		must.OK(t, unix.Mknod(filepath.Join(dev, "nvidia5"), syscall.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	} else {
		t.Logf("no devices can be made here: %v", err)
	}
	if minors, _, err := deviceNodes(dir, true); err != nil || !slices.Equal(minors, want) {
		t.Errorf("%v %v, want %v", minors, err, want)
	}
	// The kernel's own link to a root is followed, and the devices of this machine are what they are.
	if _, _, err := deviceNodes("/proc/self", true); err != nil {
		t.Error(err)
	}
	if !isProcfs("/proc") || isProcfs(dir) {
		t.Error("a directory passes for a /proc")
	}
}

// A container that is not accessible is counted, and the message has the missing permission.
func TestScanIsRefused(t *testing.T) {
	n := newNode(t)
	n.container(10, "closed", "nvidia3")
	n.container(11, "open", "nvidia3")
	n.write("proc/10/environ", "NVIDIA_VISIBLE_DEVICES=GPU-a\x00")
	for _, path := range []string{"proc/10/root", "proc/10/environ"} {
		must.OK(t, os.Chmod(filepath.Join(n.root, path), 0))
	}
	if err := os.Chmod(filepath.Dir(n.root), 0o755); err != nil { // a test's directory is private to its owner
		t.Fatal(err)
	}
	l := n.scanner()
	asNobody(t, func() { l.Scan(t.Context()) })
	if got := seen(l.Visible(visibleGPUs)); !slices.Equal(got, []string{"open GPU-a"}) {
		t.Errorf("%q", got)
	}
	if s := l.Source(); s.Up || s.Errors != 1 || s.Message != "1 containers are not accessible: permission denied; add the capability "+
		"SYS_PTRACE, and with AppArmor the profile unconfined" {
		t.Errorf("%+v", s)
	}
	must.OK(t, os.Chmod(filepath.Join(n.root, "proc/10/root"), 0o755))
	l.Scan(t.Context())
	if s := l.Source(); !s.Up || s.Message != "" {
		t.Errorf("after the permission was added: %+v", s)
	}
	os.RemoveAll(filepath.Join(n.root, "proc"))
	l.Scan(t.Context())
	if s := l.Source(); s.Up || s.Errors != 2 || !strings.Contains(s.Message, "cannot list processes") {
		t.Errorf("%+v", s)
	}
}

// asNobody runs f with the permissions of an ordinary user, in all threads.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		const nobody = 65534
		must.OK(t, syscall.Setresuid(-1, nobody, -1))
		defer func() {
			must.OK(t, syscall.Setresuid(-1, 0, -1))
		}()
	}
	f()
}

// fifo puts a named pipe without a writer in the place of a file: reading it waits for ever. The function returned ends
// the wait, and takes the pipe away.
func (n *node) fifo(path string, reads ...string) (end func()) {
	n.hung = append(n.hung, reads...)
	n.t.Helper()
	path = filepath.Join(n.root, path)
	os.RemoveAll(path)
	must.OK(n.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), unix.Mkfifo(path, 0o600)))
	return sync.OnceFunc(func() {
		w, err := os.OpenFile(path, os.O_RDWR, 0)
		must.OK(n.t, err)
		os.Remove(path)
		w.Close()
	})
}

// A read that hangs costs one deadline and what it was to read, and its source says which it is.
func TestHungReads(t *testing.T) {
	one, two := "0::/kubepods/pod"+uid+"/"+cid+"\n", "0::/kubepods/pod"+hash+"/"+other+"\n"
	for _, c := range []struct {
		path, read    string
		source        string // that is down
		blind, others bool   // the process, and another one, are unresolved
		visible       bool   // the GPUs of the other process are
	}{
		{"proc/10/stat", "proc/10", gpu.SourceProcesses, true, false, true},
		{"proc/10/cgroup", "proc/10", gpu.SourceProcesses, true, false, true},
		{"proc/10/root/dev", "proc/10/root", "", false, false, true},
		{"proc/driver/nvidia-caps/mig-minors", "proc/driver", "", false, false, true},
	} {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.pod("ml", "one", uid, "main", cid)
			n.pod("ml", "two", hash, "main", other)
			n.process(10, "555", one)
			n.process(11, "556", two)
			n.write("proc/10/root/dev/null", "")
			n.write("proc/11/root/dev/nvidia3", "")
			n.hostPID()
			end := n.fifo(c.path, c.read)
			defer end()
			f := n.finder(true)
			up := func() (down string) {
				for _, s := range f.Sources() {
					if !s.Up {
						down += s.Name
						if !strings.Contains(s.Message, filepath.Join(n.root, "proc/10")) ||
							!strings.Contains(s.Message, "no response") || s.Errors == 0 {
							t.Errorf("%+v", s)
						}
					}
				}
				return down
			}
			for range 3 { // again, the read is refused at once
				_, a := f.Find(10)
				_, b := f.Find(11)
				if (a == Unknown) != c.blind || (b == Unknown) != c.others {
					t.Errorf("owners %v %v", a, b)
				}
				if down := up(); down != c.source {
					t.Errorf("down %q", down)
				}
			}
			l := n.scanner()
			l.Scan(t.Context())
			if got := seen(l.Visible(visibleGPUs)); slices.Contains(got, "two GPU-a") != c.visible {
				t.Errorf("visible %q", got)
			}
			if s := l.Source(); s.Up || !strings.Contains(s.Message, "no response") {
				t.Errorf("%+v", s)
			}
			end()
		})
	}
}

// What a scan of a big node costs: see docs/developer/ARCHITECTURE.md.
func BenchmarkScan(b *testing.B) {
	n := &node{root: b.TempDir(), now: time.Unix(1000, 0)}
	n.t = &testing.T{}
	for pid := 10; pid < 90; pid++ {
		n.container(pid, fmt.Sprintf("pod-%d", pid), "nvidia0", "nvidiactl", "nvidia-uvm", "null", "zero", "tty")
	}
	for pid := 100; pid < 2020; pid++ {
		n.process(pid, "1", "0::/system.slice/x.service\n")
	}
	l := n.scanner()
	l.Scan(b.Context())
	for b.Loop() {
		l.Scan(b.Context())
	}
}
