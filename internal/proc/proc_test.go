package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const (
	uid   = "0f4a7b3c-1d2e-4f5a-8b6c-7d8e9fa0b1c2"
	uid_  = "0f4a7b3c_1d2e_4f5a_8b6c_7d8e9fa0b1c2"
	hash  = "0f4a7b3c1d2e4f5a8b6c7d8e9fa0b1c2"
	cid   = "aaaabbbbccccddddeeeeffff00001111222233334444555566667777888899ab"
	other = "9999bbbbccccddddeeeeffff00001111222233334444555566667777888899ab"
)

func TestParseCgroup(t *testing.T) {
	pod := Place{PodUID: uid, ContainerID: cid}
	for name, c := range map[string]struct {
		text string
		want Place
	}{
		"v2 systemd containerd": {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ +
			".slice/cri-containerd-" +
			cid + ".scope\n", pod},
		"v2 systemd guaranteed": {"0::/kubepods.slice/kubepods-pod" + uid_ + ".slice/cri-containerd-" + cid + ".scope\n",
			pod},
		"v2 crio": {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid_ + ".slice/crio-" + cid +
			".scope\n", pod},
		"v2 crio with crun": {"0::/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + cid + ".scope/container\n", pod},
		"crio monitor": {"0::/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-conmon-" + cid + ".scope\n",
			Place{PodUID: uid}},
		"v2 cri-dockerd":      {"0::/kubepods.slice/kubepods-pod" + uid_ + ".slice/docker-" + cid + ".scope\n", pod},
		"cgroupfs":            {"0::/kubepods/burstable/pod" + uid + "/" + cid + "\n", pod},
		"cgroupfs guaranteed": {"0::/kubepods/pod" + uid + "/" + cid + "\n", pod},
		"cgroupfs crio":       {"0::/kubepods/pod" + uid + "/crio-" + cid + "\n", pod},
		"v1": {"12:memory:/kubepods/besteffort/pod" + uid + "/" + cid + "\n1:name=systemd:/kubepods/besteffort/pod" +
			uid + "/" + cid + "\n", pod},
		"hybrid": {"0::/system.slice/containerd.service\n5:devices:/kubepods.slice/kubepods-pod" + uid_ +
			".slice/cri-containerd-" + cid + ".scope\n", pod},
		"one segment": {"0::/system.slice/containerd.service/kubepods-burstable-pod" + uid_ + ".slice:cri-containerd:" +
			cid +
			"\n", pod},
		"kind inside": {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + uid_ +
			".slice/cri-containerd-" + cid + ".scope\n", pod},
		"kind from outside": {"0::/system.slice/docker-" + other +
			".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" +
			uid_ + ".slice/cri-containerd-" + cid + ".scope\n", Place{PodUID: uid, ContainerID: cid, Around: other}},
		"a pod inside a pod": {"0::/kubepods/pod" + uid + "/" + cid + "/pod" + hash + "/" + other + "\n",
			Place{PodUID: uid, ContainerID: cid, Inner: "/pod" + hash + "/" + other}},
		"a container inside one": {"0::/docker/" + cid + "/docker/" + other + "\n",
			Place{ContainerID: cid, Runtime: "docker", Beside: true}},
		"a unit inside a pod": {"0::/kubepods/pod" + uid + "/" + cid + "/system.slice/x.service/job_1\n", pod},
		"a pod inside a job":  {"4:devices:/slurm/uid_1000/job_4242/job_7/pod" + uid + "\n", Place{SlurmJob: "4242"}},
		"a pod inside a session": {"0::/user.slice/user-1000.slice/user@1000.service/pod" + uid + "/" + cid + "\n",
			Place{Disputed: true}},
		"a pod's line before a service's": {"5:devices:/kubepods/pod" + uid + "/" + cid + "\n0::/system.slice/containerd.service\n", pod},
		"lines of two pods": {"2:pids:/kubepods/pod" + uid + "/" + cid + "\n1:cpu:/kubepods/pod" + hash + "/" + cid + "\n",
			Place{Disputed: true}},
		"private ns, same QoS": {"0::/../../kubepods-burstable-pod" + uid_ + ".slice/cri-containerd-" + cid + ".scope\n",
			pod},
		"private ns, other QoS": {"0::/../../../kubepods-pod" + uid_ + ".slice/cri-containerd-" + cid + ".scope\n", pod},
		"private ns, cgroupfs":  {"0::/../../pod" + uid + "/" + cid + "\n", pod},
		"private ns, own pod": {"0::/../cri-containerd-" + cid + ".scope\n",
			Place{ContainerID: cid, Runtime: "containerd"}},
		"private ns, own pod in CRI-O": {"0::/../crio-" + cid + ".scope\n", Place{ContainerID: cid, Runtime: "crio"}},
		"exporter itself":              {"0::/\n", Place{}},
		"static pod": {"0::/kubepods/burstable/pod" + hash + "/" + cid + "\n",
			Place{PodUID: hash, ContainerID: cid}},
		"gVisor sandbox": {"0::/kubepods/pod" + uid + "\n", Place{PodUID: uid}},
		"docker cgroupfs": {"0::/docker/" + cid + "\n",
			Place{ContainerID: cid, Runtime: "docker", Beside: true}},
		"docker systemd": {"0::/system.slice/docker-" + cid + ".scope\n",
			Place{ContainerID: cid, Runtime: "docker", Beside: true}},
		"podman": {"0::/machine.slice/libpod-" + cid + ".scope/container\n",
			Place{ContainerID: cid, Runtime: "podman", Beside: true}},
		"podman payload": {"0::/machine.slice/libpod-payload-" + cid + "\n",
			Place{ContainerID: cid, Runtime: "podman", Beside: true}},
		"slurm v1":       {"4:devices:/slurm/uid_1000/job_4242/step_0/task_0\n", Place{SlurmJob: "4242"}},
		"slurm v1 host":  {"4:devices:/slurm_node1/uid_1000/job_4242/step_batch\n", Place{SlurmJob: "4242"}},
		"slurm v2":       {"0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0\n", Place{SlurmJob: "4242"}},
		"slurm v2 named": {"0::/system.slice/node1_slurmstepd.scope/job_7/step_extern/user\n", Place{SlurmJob: "7"}},
		"slurm SLUID": {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
			Place{SlurmJob: "sEKNKTV3WPV500"}},
		"a job outside slurm": {"0::/system.slice/x.service/job_1\n", Place{Unit: "x.service"}},
		"service":             {"0::/system.slice/ollama.service\n", Place{Unit: "ollama.service"}},
		"login session":       {"0::/user.slice/user-1000.slice/session-3.scope\n", Place{User: "1000"}},
		"user manager": {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service\n",
			Place{User: "1000", Unit: "jupyter.service"}},
		"short id": {"0::/kubepods/pod" + uid[:30] + "/" + cid + "\n", Place{ContainerID: cid}},
		"garbage":  {"\x00\xff::\n::::\n0::relative\npod" + uid, Place{}},
		"empty":    {"", Place{}},
	} {
		if got := ParseCgroup(c.text); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/kubepods/pod" + uid + "/" + cid)
	f.Add("0::/../cri-containerd-" + cid + ".scope")
	f.Fuzz(func(t *testing.T, text string) {
		p := ParseCgroup(text)
		// What is named must stand in the input.
		for _, word := range []string{p.ContainerID, p.SlurmJob, p.Unit, p.User} {
			if !strings.Contains(text, word) {
				t.Errorf("%q was not in the input", word)
			}
		}
		if p.PodUID != "" && !strings.Contains(strings.ReplaceAll(text, "_", "-"), p.PodUID) {
			t.Errorf("pod %q was not in the input", p.PodUID)
		}
	})
}

// node is a /proc and /var/log tree in a temporary directory.
type node struct {
	t    *testing.T
	root string
	now  time.Time
	hung []string // what is read there hangs: it is given up at once, and nothing else ever
}

func newNode(t *testing.T) *node { return &node{t, t.TempDir(), time.Unix(1000, 0), nil} }

// patient returns a finder whose reads have no deadline, which is in real time.
func (n *node) patient(f *Finder) *Finder {
	for _, r := range []*host.Reader{f.reader, f.logDirs, f.watch.reader} {
		r.Over = func(what string) <-chan time.Time {
			over := make(chan time.Time)
			if path, err := filepath.Rel(n.root, what); err == nil && slices.Contains(n.hung, path) {
				close(over)
			}
			return over
		}
	}
	return f
}

func (n *node) write(path, text string) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	must.OK(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(n.t, os.WriteFile(path, []byte(text), 0o644))
}

// hostPID makes the namespace of PIDs the host's.
func (n *node) hostPID() {
	n.write("proc/self/ns/x", "")
	os.Symlink(hostPIDNamespace, filepath.Join(n.root, "proc/self/ns/pid"))
}

func (n *node) process(pid int, start, cgroup string) {
	n.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf(
		"%d (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 %s 1000 10\n", pid,
		start))
	n.write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
}

func (n *node) pod(namespace, pod, uid, container, cid string) {
	n.write(fmt.Sprintf("log/pods/%s_%s_%s/%s/0.log", namespace, pod, uid, container), "")
	if cid != "" {
		n.write(fmt.Sprintf("log/containers/%s_%s_%s-%s.log", pod, namespace, container, cid), "")
	}
}

func (n *node) finder(kubernetes bool) *Finder {
	return n.patient(New(Options{Procfs: filepath.Join(n.root, "proc"), PodLogs: filepath.Join(n.root, "log/pods"),
		ContainerLogs: filepath.Join(n.root, "log/containers"),
		Kubernetes:    kubernetes, Clock: func() time.Time { return n.now }}))
}

func expect(t *testing.T, f *Finder, pid int, want gpu.Container, owner Owner) {
	t.Helper()
	if c, b := f.Find(pid); c != want || b != owner {
		t.Errorf("process %d: %+v %v, want %+v %v", pid, c, b, want, owner)
	}
}

func TestFind(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	n.process(11, "556", "0::/system.slice/ollama.service\n")
	n.process(12, "557", "0::/../cri-containerd-"+cid+".scope\n")
	n.process(13, "558", "0::/kubepods/pod11111111-1111-1111-1111-111111111111/"+other+"\n")
	f := n.finder(true)
	main := gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}
	expect(t, f, 10, main, Owned)
	expect(t, f, 11, gpu.Container{}, Host)
	expect(t, f, 12, main, Owned)
	expect(t, f, 13, gpu.Container{}, Unknown)
	expect(t, f, 99, gpu.Container{}, Unknown)

	bare := n.finder(false)
	expect(t, bare, 11, gpu.Container{Pod: "systemd/ollama.service"}, Owned)
}

// A process that moves to another cgroup belongs to the container there from the next time it is read, and to nobody in the
// poll in between. That of a container which is ending stays its.
func TestProcessThatMoves(t *testing.T) {
	n := newNode(t)
	n.hostPID()
	n.pod("ml", "a", uid, "main", cid)
	n.pod("ml", "b", hash, "main", other)
	a, b, none := gpu.Container{Namespace: "ml", Pod: "a", Name: "main"}, gpu.Container{Namespace: "ml", Pod: "b", Name: "main"},
		gpu.Container{}
	f := n.finder(true)
	in := func(pod, id string) string { return "0::/kubepods/pod" + pod + "/" + id }
	for i, c := range []struct {
		cgroup string
		after  time.Duration
		want   gpu.Container
		owner  Owner
	}{
		{in(uid, cid), 0, a, Owned},
		{in(hash, other), placeInterval - time.Second, a, Owned}, // not read again yet
		{in(hash, other), time.Second, none, Unknown},
		{in(hash, other), time.Second, b, Owned},
		{in(hash, other) + "/child", placeInterval, b, Owned},
		{in(hash, other) + " (deleted)", placeInterval, b, Owned},
		{"0::/system.slice/sshd.service", placeInterval, none, Unknown},
		{"0::/system.slice/sshd.service", 0, none, Host},
		{"0::/user.slice/user-1000.slice/x/pod" + uid, placeInterval, none, Unknown}, // disputed
		{in(uid, cid), 0, a, Owned},
		{in(hash, other), -time.Hour, none, Unknown}, // the clock was set
		{in(hash, other), 0, b, Owned},
	} {
		n.now = n.now.Add(c.after)
		n.process(10, "555", c.cgroup+"\n")
		if got, owner := f.Find(10); got != c.want || owner != c.owner {
			t.Errorf("step %d: %+v %v, want %+v %v", i, got, owner, c.want, c.owner)
		}
	}
}

// The outermost pod that this kubelet lists owns a process, whatever cgroups are created inside it.
func TestForgedCgroupPaths(t *testing.T) {
	const attacker, victim, unlisted = "11111111-1111-4111-8111-111111111111", uid, "33333333-3333-4333-8333-333333333333"
	a, v, o := strings.Repeat("a", 64), cid, strings.Repeat("0", 64)
	mallory, train := gpu.Container{Namespace: "evil", Pod: "mallory", Name: "main"},
		gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}
	none := gpu.Container{}
	for _, c := range []struct {
		name, path string
		want       gpu.Container
		owner      Owner
	}{
		{"a child cgroup of another pod", "/kubepods/pod" + attacker + "/" + a + "/pod" + victim + "/" + v, mallory, Owned},
		{"one with the driver's names", "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(attacker, "-", "_") +
			".slice/cri-containerd-" + a +
			".scope/kubepods.slice/kubepods-pod" + strings.ReplaceAll(victim, "-", "_") + ".slice/cri-containerd-" + v +
			".scope", mallory, Owned},
		{"one of an unknown pod", "/kubepods/pod" + attacker + "/" + a + "/pod" + unlisted + "/" + o, mallory, Owned},
		{"another container's ID", "/kubepods/pod" + attacker + "/" + a + "/" + v, mallory, Owned},
		{"a pod in a pod in a pod", "/kubepods/pod" + attacker + "/" + a + "/pod" + unlisted + "/" + o + "/pod" + victim +
			"/" + v, mallory, Owned},
		{"a container of the exporter's pod", "/../cri-containerd-" + a + ".scope/pod" + victim + "/" + v, mallory, Owned},
		{"a pod of a nested node", "/kubepods/pod" + unlisted + "/" + o + "/kubepods/pod" + victim + "/" + v, train, Owned},
		{"a nested node in a container", "/docker/" + o + "/kubepods/pod" + victim + "/" + v, train, Owned},
		{"a login session", "/user.slice/user-1000.slice/user@1000.service/kubepods/pod" + victim + "/" + v, none, Unknown},
		{"a container's ID in a login session", "/user.slice/user-1000.slice/user@1000.service/cri-containerd-" + v +
			".scope", none, Host},
		{"one of Docker", "/user.slice/user-1000.slice/user@1000.service/system.slice/docker-" + v + ".scope", none, Host},
		{"one in a job", "/slurm/uid_1000/job_1/step_0/" + v, none, Host},
		{"a listed pod of several containers", "/kubepods/pod" + hash + "/" + o + "/pod" + victim + "/" + v, none, Unknown},
	} {
		n := newNode(t)
		n.pod("evil", "mallory", attacker, "main", a)
		n.pod("ml", "train-0", victim, "main", v)
		n.pod("ml", "two", hash, "x", "")
		n.pod("ml", "two", hash, "y", "")
		n.process(10, "555", "0::"+c.path+"\n")
		if got, owner := n.finder(true).Find(10); got != c.want || owner != c.owner {
			t.Errorf("%s: %+v %v, want %+v %v", c.name, got, owner, c.want, c.owner)
		}
	}
	// Log names from before the attacker's pod started do not prove that its pod is another kubelet's.
	n := newNode(t)
	n.pod("ml", "train-0", victim, "main", v)
	n.process(9, "500", "0::/kubepods/pod"+victim+"/"+v+"\n")
	f := n.finder(true)
	expect(t, f, 9, train, Owned)
	n.now = n.now.Add(namesInterval / 2)
	n.pod("evil", "mallory", attacker, "main", a)
	n.process(10, "555", "0::/kubepods/pod"+attacker+"/"+a+"/pod"+victim+"/"+v+"\n")
	expect(t, f, 10, none, Unknown)
	n.now = n.now.Add(namesInterval)
	expect(t, f, 10, mallory, Owned)
	// Nor do they prove it of a pod that another source lists, or names that are missing.
	two := n.finder(true)
	two.o.Pods = podsOf{unlisted: gpu.Container{Namespace: "ml", Pod: "train-0", Name: "x"}}
	n.process(11, "556", "0::/kubepods/pod"+unlisted+"/"+o+"/pod"+victim+"/"+v+"\n")
	n.pod("ml", "train-0", victim, "y", "")
	expect(t, two, 11, gpu.Container{Namespace: "ml", Pod: "train-0", Name: "x"}, Owned)
	bare := n.patient(New(Options{Procfs: filepath.Join(n.root, "proc"), Kubernetes: true, Pods: podsOf{victim: train},
		Clock: func() time.Time { return n.now }}))
	expect(t, bare, 10, none, Unknown)
}

func TestReusedPIDIsAnotherProcess(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	f := n.finder(true)
	expect(t, f, 10, gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}, Owned)
	n.process(10, "900", "0::/system.slice/sshd.service\n")
	expect(t, f, 10, gpu.Container{}, Unknown) // what the PID did since may have been either's
	expect(t, f, 10, gpu.Container{}, Host)
}

// A cgroup file that makes no sense is no response: its process is not the host's, and it is read again.
func TestCgroupThatMakesNoSense(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	f := n.finder(true)
	for _, text := range []string{"", "\x00\x00", "0::", "::\n:\n", "0::/kubepods.slice\n",
		"0::/kubepods/pod" + uid[:9] + "\n",
		strings.Repeat("A", 9000)} {
		n.process(10, "555", text)
		expect(t, f, 10, gpu.Container{}, Unknown)
	}
	n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	expect(t, f, 10, gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}, Owned)
	n.process(11, "556", "0::/\n")
	expect(t, f, 11, gpu.Container{}, Host) // the root is a place
}

func TestCutLinkNames(t *testing.T) {
	for name, want := range map[string]bool{
		"p_ns_c-" + cid + ".log":                     true,
		"p_ns_c-with-dashes-" + cid[:20] + ".log":    true,
		"p_ns_c-" + cid[:minID] + ".log":             true,
		"p_ns_c-" + cid[:minID-1] + ".log":           false,
		"p_ns_c-" + cid + "0.log":                    false,
		"p_ns_c.log":                                 false,
		"p_c-" + cid + ".log":                        false,
		"p_ns_c-" + strings.Repeat("z", 64) + ".log": false,
		"p_ns_c-" + cid:                              false,
	} {
		if _, ok := parseContainerLink(name); ok != want {
			t.Errorf("%s: %v, want %v", name, ok, want)
		}
	}
}

func TestParsePodDirectory(t *testing.T) {
	for name, want := range map[string]bool{"ml_train-0_" + uid: true, "ml_train-0_" + hash: true, "_train-0_" + uid: false,
		"ml__" + uid: false, "ml_train-0_x": false, "ml_train-0": false, "a_ml_train-0_" + uid: false,
		"ml_train-0_" + uid + "_x": false} {
		if id, p, ok := parsePodDirectory(name); ok != want || ok && (p.namespace != "ml" || p.pod != "train-0" || len(id) < 32) {
			t.Errorf("%s: %s %+v %v", name, id, p, ok)
		}
	}
}

// podsOf is a source of pods.
type podsOf map[string]gpu.Container

func (p podsOf) ContainerOf(uid string) (gpu.Container, bool) { c, ok := p[uid]; return c, ok }

// Without the names of logs another source names pods; beside them both must agree.
func TestPodsOfAnotherSource(t *testing.T) {
	main, side := gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"},
		gpu.Container{Namespace: "ml", Pod: "train-0", Name: "side"}
	for _, c := range []struct {
		name  string
		logs  func(*node)
		other podsOf
		want  gpu.Container
		owned Owner
	}{
		{"no logs", func(*node) {}, podsOf{uid: main}, main, Owned},
		{"no logs, the other source has another pod", func(*node) {}, podsOf{hash: main}, gpu.Container{}, Unknown},
		{"the link has the container", func(n *node) { n.pod("ml", "train-0", uid, "side", cid) }, podsOf{uid: main}, side,
			Owned},
		{"logs of another pod", func(n *node) { n.pod("ml", "other", uid, "main", cid) }, podsOf{uid: main}, gpu.Container{},
			Unknown},
		{"logs of another pod without a link", func(n *node) {
			n.pod("ml", "other", uid, "main", "")
			n.pod("ml", "other", uid, "b", "")
		},
			podsOf{uid: main}, gpu.Container{}, Unknown},
		{"logs of several containers and no link", func(n *node) {
			n.pod("ml", "train-0", uid, "main", "")
			n.pod("ml", "train-0", uid,
				"side", "")
		}, podsOf{uid: main}, gpu.Container{}, Unknown},
		{"the sandbox of a pod with links", func(n *node) { n.pod("ml", "train-0", uid, "main", strings.Repeat("1", 64)) },
			podsOf{uid: main}, gpu.Container{}, Unknown},
		{"two links of one id", func(n *node) { n.pod("ml", "x", other, "m", cid); n.pod("ml", "y", other, "m", cid) },
			podsOf{uid: main},
			gpu.Container{}, Unknown},
		{"logs alone", func(n *node) { n.pod("ml", "train-0", uid, "main", cid) }, podsOf{}, main, Owned},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			c.logs(n)
			n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
			n.process(11, "556", "0::/../cri-containerd-"+other+".scope\n")
			f := n.finder(true)
			f.o.Pods = c.other
			expect(t, f, 10, c.want, c.owned)
			expect(t, f, 11, gpu.Container{}, Unknown)
		})
	}
}

// engineOf is a container engine: names by ID; those of pending are about to be known.
type engineOf struct {
	kind    string
	names   map[string]string
	pending map[string]bool
}

func (e *engineOf) Kind() string                       { return e.kind }
func (e *engineOf) Container(id string) (string, bool) { return e.names[id], !e.pending[id] }

func TestNamesOfEngines(t *testing.T) {
	n := newNode(t)
	n.process(10, "555", "0::/system.slice/docker-"+cid+".scope\n")
	n.process(11, "556", "0::/../"+cid+"\n")
	n.process(12, "557", "0::/machine.slice/libpod-"+cid+".scope/container\n")
	n.process(13, "558", "0::/system.slice/docker-"+other+".scope\n")
	n.process(14, "559", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	docker := &engineOf{"docker", map[string]string{cid: "train"}, map[string]bool{}}
	f := n.finder(false)
	f.o.Engines = []EngineNames{docker}
	owned := func(pid int, name string) { t.Helper(); expect(t, f, pid, gpu.Container{Pod: name}, Owned) }
	owned(10, "docker/train")
	owned(11, "docker/train") // a private cgroup namespace hides whose container it is
	owned(12, "podman/"+cid[:12])
	owned(13, "docker/"+other[:12])
	expect(t, f, 14, gpu.Container{}, Unknown) // a pod's, whatever the engine calls it

	// A pending name is waited for; a late name, and another name, are taken over.
	docker.pending[other] = true
	expect(t, f, 13, gpu.Container{}, Unknown)
	docker.pending, docker.names[other], docker.names[cid] = nil, "late", "renamed"
	owned(13, "docker/late")
	owned(10, "docker/renamed")

	podman := &engineOf{"podman", map[string]string{cid: "pod-train"}, nil}
	f.o.Engines = []EngineNames{docker, podman}
	owned(12, "podman/pod-train")
	delete(docker.names, cid)
	owned(11, "podman/pod-train")
}

// On a node of Kubernetes a container beside it is called by its engine's name, or by its ID where it is certainly in no
// pod.
func TestNamesOfEnginesBesideKubernetes(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	n.process(10, "555", "0::/system.slice/docker-"+other+".scope\n")
	n.process(11, "556", "0::/../docker-"+cid+".scope\n")
	n.process(12, "557", "0::/system.slice/docker-"+strings.Repeat("1", 64)+".scope\n")
	n.process(13, "558", "0::/../docker-"+strings.Repeat("1", 64)+".scope\n")
	f := n.finder(true)
	f.o.Engines = []EngineNames{&engineOf{"docker", map[string]string{other: "stray", cid: "no"}, nil}}
	expect(t, f, 10, gpu.Container{Pod: "docker/stray"}, Owned)
	expect(t, f, 11, gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}, Owned)
	expect(t, f, 12, gpu.Container{Pod: "docker/" + strings.Repeat("1", 12)}, Owned)
	expect(t, f, 13, gpu.Container{}, Unknown)
}

func TestNamedMPS(t *testing.T) {
	n := newNode(t)
	f := n.finder(true)
	for command, want := range map[string]bool{"nvidia-cuda-mps": true, "nvidia-cuda-mps-server": false, "python": false,
		"x) (nvidia-cuda-mps": false, "": false, "nvidia-cuda-mps)": false} {
		n.write("proc/10/stat", "10 ("+command+") S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 555 1000 10\n")
		n.write("proc/10/cgroup", "0::/system.slice/x.service\n")
		expect(t, f, 10, gpu.Container{}, Host)
		if f.NamedMPS(10) != want {
			t.Errorf("%q: %v", command, !want)
		}
	}
	if f.NamedMPS(11) {
		t.Error("a process that was not looked up has a name")
	}
	n.write("proc/10/stat", "10 )nvidia-cuda-mps( S")
	expect(t, f, 10, gpu.Container{}, Host) // as before it ended
	n.now = n.now.Add(sampledFor + time.Second)
	expect(t, f, 10, gpu.Container{}, Unknown)
}

// What Expect reads serves the next Find alone. A read that does not return costs the process its
// container: the others are found.
func TestExpect(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	inPod, main := "0::/kubepods/pod"+uid+"/"+cid+"\n", gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}
	n.process(10, "555", inPod)
	n.process(11, "556", "0::/system.slice/ollama.service\n")
	f := n.finder(true)
	f.Expect([]int{10, 11, 12})
	expect(t, f, 10, main, Owned)
	expect(t, f, 11, gpu.Container{}, Host)
	f.Expect([]int{10, 11})
	n.process(10, "600", "0::/\n")
	expect(t, f, 10, main, Owned)              // as expected
	expect(t, f, 10, gpu.Container{}, Unknown) // replaced since the last look
	expect(t, f, 10, gpu.Container{}, Host)
	n.process(10, "700", inPod)
	f.Expect([]int{10, 11})
	expect(t, f, 10, gpu.Container{}, Unknown)
	f.Expect(nil)
	if len(f.expected) != 0 {
		t.Errorf("%v is left", f.expected)
	}
	os.Remove(filepath.Join(n.root, "proc/11/stat"))
	defer n.fifo("proc/11/stat", "proc", "proc/11")()
	f.Expect([]int{10, 11})
	expect(t, f, 10, main, Owned)
	expect(t, f, 11, gpu.Container{}, Unknown)
	if s := f.Sources(); s[0].Up || !strings.Contains(s[0].Message, "proc/11") {
		t.Errorf("%+v does not say which process", s[0])
	}
}

// A process has the command with which it was found first: it may change it as often as it likes, also to what no
// terminal should get.
func TestCommand(t *testing.T) {
	n := newNode(t)
	f := n.finder(true)
	write := func(command, start string) {
		n.write("proc/10/stat", "10 ("+command+") S 1 1 1 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 "+start+" 1000 10\n")
		n.write("proc/10/cgroup", "0::/system.slice/x.service\n")
		f.Find(10)
	}
	for _, step := range []struct{ command, start, want string }{
		{"pt main\x1b[2J\n\x7f\xff", "555", "pt main␛[2J␊␡\uFFFD"}, {"another", "555", "pt main␛[2J␊␡\uFFFD"},
		{"another", "777", "another"}, {")) (", "888", ")) ("}, {"", "999", ""},
	} {
		if write(step.command, step.start); f.Command(10) != step.want {
			t.Errorf("%q at %s: %q, want %q", step.command, step.start, f.Command(10), step.want)
		}
	}
	if f.Command(11) != "" {
		t.Error("a process that was not found has a command")
	}
}

// An engine that has not responded delays the names of its own containers alone.
func TestEngineThatHasNotResponded(t *testing.T) {
	n := newNode(t)
	n.pod("ml", "train-0", uid, "main", cid)
	n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
	n.process(11, "556", "0::/system.slice/docker-"+other+".scope/kubepods/pod"+uid+"/"+cid+"\n")
	n.process(12, "557", "0::/../"+other+"\n")
	f := n.finder(true)
	docker := &engineOf{"docker", map[string]string{}, map[string]bool{"": true, other: true}}
	f.o.Engines = []EngineNames{docker}
	main := gpu.Container{Namespace: "ml", Pod: "train-0", Name: "main"}
	expect(t, f, 10, main, Owned)
	expect(t, f, 11, gpu.Container{}, Unknown) // the container may be one of this node, and the pod inside it forged
	docker.pending = nil
	expect(t, f, 11, main, Owned)
	docker.names[other] = "stray"
	n.process(11, "600", "0::/system.slice/docker-"+other+".scope/kubepods/pod"+uid+"/"+cid+"\n")
	f.Find(11)
	expect(t, f, 11, gpu.Container{Pod: "docker/stray"}, Owned)
	expect(t, f, 12, gpu.Container{Pod: "docker/stray"}, Owned)
}

// The names of logs are a data source: absent without its directories, down where one cannot be read.
func TestLogNamesSource(t *testing.T) {
	for _, c := range []struct {
		name       string
		make       func(n *node)
		there, up  bool
		both, pods bool
	}{
		{"no directories", func(*node) {}, false, false, false, false},
		{"empty ones", func(n *node) {
			os.MkdirAll(filepath.Join(n.root, "log/pods"), 0o755)
			os.MkdirAll(filepath.Join(n.root, "log/containers"), 0o755)
		}, true, true, true, false},
		{"one of them", func(n *node) { n.pod("ml", "train-0", uid, "main", "") }, true, true, false, true},
		{"other names", func(n *node) {
			n.pod("ml", "train-0", uid, "main", cid)
			n.write("log/pods/a_b", "")
			n.write("log/containers/a_b.log", "")
		}, true, true, true, true},
		{"a file", func(n *node) { n.write("log/pods", ""); n.write("log/containers", "") }, true, false, false, false},
	} {
		n := newNode(t)
		n.hostPID()
		c.make(n)
		n.process(10, "555", "0::/kubepods/pod"+uid+"/"+cid+"\n")
		f := n.finder(true)
		if _, owner := f.Find(10); (owner == Owned) != c.pods {
			t.Errorf("%s: owner %v", c.name, owner)
		}
		sources := f.Sources()
		if len(sources) == 2 != c.there || c.there && sources[1].Up != c.up || f.LogNames() != c.both {
			t.Errorf("%s: %+v, both %v", c.name, sources, f.LogNames())
		}
		if p := sources[0]; p.Name != gpu.SourceProcesses || !p.Up {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	stale := newNode(t)
	stale.pod("ml", "train-0", uid, "main", cid)
	f := stale.finder(true)
	f.Sources()
	os.RemoveAll(filepath.Join(stale.root, "log"))
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 2}, {staleNames - 1, 2}, {1, 1}} { // sources
		stale.now = stale.now.Add(c.age)
		if got := f.Sources(); len(got) != c.want {
			t.Errorf("%v later: %+v", c.age, got)
		}
	}
	n := newNode(t) // in another namespace
	if s := n.finder(true).Sources(); s[0].Up || s[0].Errors != 1 {
		t.Errorf("%+v", s)
	}
}

func TestParseStat(t *testing.T) {
	fields := strings.Repeat(" 7", 30)
	for _, text := range []string{"", "1", ")(" + fields, "1 x" + fields, "1 (x", "1 x)" + fields, "1 (x) S 1 2 3"} {
		if _, _, ok := parseStat(text); ok {
			t.Errorf("%q passes", text)
		}
	}
}
