package cluster_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The networks of the cluster are of the range for benchmarks (RFC 2544), which no real network has. The address of the API server is
// also that of the service kubernetes, so that pods reach it without kube-proxy.
const (
	bridge      = "gpuxbr0"
	bridgeCIDR  = "198.18.0.1/24"
	serviceCIDR = "198.19.0.0/24"
	serviceIP   = "198.19.0.1"
)

// nodePrograms are the programs of Debian that a node needs, and the packages that have them.
var nodePrograms = map[string]string{"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2",
	"nsenter": "util-linux", "unshare": "util-linux", "fuser": "psmisc", "pgrep": "procps", "/bin/busybox": "busybox-static",
	"/usr/lib/cni/bridge":     "containernetworking-plugins",
	"/usr/lib/cni/host-local": "containernetworking-plugins"}

// needs fails if this machine cannot run the nodes.
func needs(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the nodes need root: namespaces, mounts, cgroups and a bridge")
	}
	var missing []string
	for program, pkg := range nodePrograms {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(missing, pkg) {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		t.Fatalf("missing packages: apt-get install %s", strings.Join(missing, " "))
	}
}

// must runs a command and fails the test if it fails.
func must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// network makes the bridge that connects the nodes with the API server on this machine.
func network(t *testing.T) {
	t.Helper()
	_ = exec.Command("ip", "link", "delete", bridge).Run() // of a run that was killed
	t.Cleanup(func() { must(t, "ip", "link", "delete", bridge) })
	must(t, "ip", "link", "add", bridge, "type", "bridge")
	must(t, "ip", "address", "add", bridgeCIDR, "dev", bridge)
	must(t, "ip", "address", "add", serviceIP+"/32", "dev", bridge)
	must(t, "ip", "link", "set", bridge, "up")
}

// keepSettings restores the settings of the kernel that a kubelet changes.
func keepSettings(t *testing.T) {
	t.Helper()
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		path := "/proc/sys/" + name
		before, err := os.ReadFile(path)
		noErr(t, err)
		t.Cleanup(func() {
			if err := os.WriteFile(path, before, 0); err != nil {
				t.Errorf("restore: %v", err)
			}
		})
	}
}

// node is a machine of the cluster: namespaces of its own for mounts and network, /var and /run of its own, a containerd and a kubelet.
// Its files are seen here under dir. It has no namespace for processes: NVML's PIDs are those of the first one.
type node struct {
	name    string
	index   int
	dir     string
	bin     string // of Kubernetes
	p       *plane
	init    *process
	pid     string // of a process in the namespaces
	kubelet *process
	gpus    inventory
	library string // of the simulated driver

	sharing  []int    // PIDs of the processes of sharing
	assigned sync.Map // UUID that HAMi's scheduler has assigned, by namespace/pod
	mutex    sync.Mutex
	url      string // of the exporter
	path     string // of its page; empty: /metrics
}

func (n *node) root(path string) string { return filepath.Join(n.dir, "root", path) }
func (n *node) ip() string              { return fmt.Sprintf("198.18.0.%d", 10+n.index) }
func (n *node) podCIDR() string         { return fmt.Sprintf("198.18.%d.0/24", n.index) }
func (n *node) cgroup() string          { return "gpu-exporter-test-" + n.name }

// own is the cgroup of the node's processes outside of pods.
func (n *node) own(t *testing.T) string {
	t.Helper()
	for _, root := range cgroupRoots(t, n.cgroup()+"-own") {
		if parent := filepath.Base(filepath.Dir(root)); parent == "pids" || parent == "cgroup" {
			return root
		}
	}
	t.Fatal("no cgroup controller pids under /sys/fs/cgroup")
	return ""
}

// inside is a command line in the namespaces of the node.
func (n *node) inside(program string, args ...string) []string {
	return append([]string{"--target", n.pid, "--mount", "--net", "--wd=/", program}, args...)
}

// run starts a program in the node.
func (n *node) run(t *testing.T, program string, args ...string) *process {
	t.Helper()
	join := []string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, n.own(t), "nsenter"}
	p, err := startAs(filepath.Base(program), n.dir, "bash", append(join, n.inside(program, args...)...)...)
	noErr(t, err)
	return p
}

// must runs a command in the node.
func (n *node) must(t *testing.T, program string, args ...string) string {
	t.Helper()
	return must(t, "nsenter", n.inside(program, args...)...)
}

// setup are the mounts of a node, made by its first process, which then waits.
const setup = `set -eu
mkdir -p "$1"/root/var/log "$1"/root/run "$1"/root/var/lib/kubelet "$1"/root/var/lib/cni "$1"/root/var/tmp
ln -sfn /run "$1"/root/var/run
mount --bind "$1"/root/var /var
mount --bind "$1"/root/run /run
mount --make-rshared /
ip link set lo up
echo ready >"$1"/ready
exec sleep 1000000`

// cgroupRoots are the directories that hold the cgroups of a name, one for each hierarchy.
func cgroupRoots(t *testing.T, name string) []string {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup/" + name}
	}
	mounts, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil || len(mounts) == 0 {
		t.Fatalf("no cgroups under /sys/fs/cgroup: %v", err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, filepath.Join(filepath.Dir(m), name))
	}
	return out
}

// removeCgroups ends the processes of a cgroup and of those below it, and removes them.
func removeCgroups(root string) error {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		pids, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(pid); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if err := syscall.Rmdir(d); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the cgroup %s: %w", d, err)
		}
	}
	return nil
}

// startNode makes a node and starts its containerd and its kubelet.
func startNode(t *testing.T, p *plane, index int, images ...string) *node {
	t.Helper()
	bin, err := programs()
	noErr(t, err)
	n := &node{name: fmt.Sprintf("node-%d", index), index: index, p: p, bin: bin}
	// A short path: those of sockets below it have at most 107 bytes.
	n.dir = filepath.Join(p.dir, n.name)
	noErr(t, os.MkdirAll(n.dir, 0o755))
	t.Cleanup(func() { n.stop(t) })
	for _, root := range append(cgroupRoots(t, n.cgroup()), n.own(t)) {
		n.remove(t, root) // of a run that was killed
		noErr(t, os.Mkdir(root, 0o755))
	}
	n.simulate(t)

	n.init, err = start(n.dir, "unshare", "--mount", "--propagation", "private", "--net", "bash", "-c", setup, "node", n.dir)
	noErr(t, err)
	eventually(t, n.name+" has its namespaces", func() error {
		if _, err := os.Stat(filepath.Join(n.dir, "ready")); err != nil {
			return fmt.Errorf("%w\n%s", err, n.init.output())
		}
		return nil
	})
	n.pid = strconv.Itoa(n.init.cmd.Process.Pid)
	link := fmt.Sprintf("gpux%d", index)
	must(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", n.pid)
	must(t, "ip", "link", "set", link, "master", bridge, "up")
	n.must(t, "ip", "address", "add", n.ip()+"/24", "dev", "eth0")
	n.must(t, "ip", "link", "set", "eth0", "up")
	n.must(t, "ip", "route", "add", "default", "via", strings.TrimSuffix(bridgeCIDR, "/24"))
	n.must(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	must(t, "ip", "route", "add", n.podCIDR(), "via", n.ip())

	n.startContainerd(t)
	for _, image := range images {
		n.must(t, "ctr", "--namespace=k8s.io", "images", "import", image)
	}
	// The later version that docs/install.md upgrades to.
	n.must(t, "ctr", "--namespace=k8s.io", "images", "tag", docsImage, strings.Replace(docsImage, ":0.1.0", ":0.2.0", 1))
	n.startKubelet(t)
	eventually(t, n.name+" is ready", func() error {
		select {
		case <-n.kubelet.done:
			t.Fatalf("kubelet exited:\n%s", n.kubelet.output())
		default:
		}
		out, err := p.command(t, filepath.Join(bin, "kubectl"), "get", "node", n.name, "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		if err == nil && !strings.Contains(out, `"status":"True"`) {
			err = fmt.Errorf("its condition is %s", out)
		}
		return err
	})
	p.kubectl(t, "label", "node", n.name, "nvidia.com/gpu.present=true")
	return n
}

// startContainerd configures and starts containerd, with the runtime nvidia, which adds to every container what NVIDIA's runtime does:
// the driver's library, here the simulated one, and what that reads.
func (n *node) startContainerd(t *testing.T) {
	t.Helper()
	spec := n.must(t, "ctr", "--address=/nowhere", "oci", "spec")
	mount := func(source, destination, mode string) string {
		return fmt.Sprintf(`{"destination":%q,"type":"bind","source":%q,"options":["rbind",%q]},`, destination, source, mode)
	}
	spec = strings.Replace(spec, `"mounts": [`, `"mounts": [`+mount(n.library, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "ro")+
		mount(filepath.Dir(n.library), driverDir, "rw"), 1)
	base := write(t, n.dir, "nvidia.json", spec)
	noErr(t, os.MkdirAll(filepath.Join(n.dir, "cni"), 0o755))
	write(t, filepath.Join(n.dir, "cni"), "10-bridge.conflist", fmt.Sprintf(`{"cniVersion":"0.4.0","name":"pods","plugins":[
{"type":"bridge","bridge":"cni0","isDefaultGateway":true,
"ipam":{"type":"host-local","ranges":[[{"subnet":%q}]],"dataDir":"/var/lib/cni/pods"}}]}`,
		n.podCIDR()))
	runtime := func(name, more string) string {
		return fmt.Sprintf("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.%s]\n"+
			"runtime_type = \"io.containerd.runc.v2\"\n%s\n", name, more)
	}
	config := write(t, n.dir, "containerd.toml", `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "`+boxImage+`"
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "`+filepath.Join(n.dir, "cni")+`"
`+runtime("runc", "")+runtime("nvidia", fmt.Sprintf("base_runtime_spec = %q", base)))
	n.run(t, "containerd", "--config", config)
	eventually(t, "containerd of "+n.name, func() error {
		out, err := exec.Command("nsenter", n.inside("ctr", "version")...).CombinedOutput()
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(n.dir, "containerd.log"))
			err = fmt.Errorf("%w\n%s%s", err, out, log)
		}
		return err
	})
}

// startKubelet starts the kubelet, also again.
func (n *node) startKubelet(t *testing.T) {
	t.Helper()
	config := write(t, n.dir, "kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /`+n.cgroup()+`
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
resolvConf: ""
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
`)
	kubeconfig := write(t, n.dir, "kubelet.kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"node",
"clusters":[{"name":"test","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"node","user":{"token":%q}}],
"contexts":[{"name":"node","context":{"cluster":"test","user":"node"}}]}`, n.p.url, n.p.ca, nodeToken(n.index)))
	n.kubelet = n.run(t, filepath.Join(n.bin, "kubelet"), "--config="+config, "--kubeconfig="+kubeconfig, "--hostname-override="+n.name,
		"--node-ip="+n.ip(), "--v=1")
}

// kill ends a process at once.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// stop ends every process of the node and removes what is left of it.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if t.Failed() && n.kubelet != nil && os.Getenv("VERBOSE") != "" {
		t.Logf("%s: kubelet: %s", n.name, n.kubelet.output())
	}
	if n.init != nil {
		n.init.kill()
	}
	for _, root := range append([]string{n.own(t)}, cgroupRoots(t, n.cgroup())...) {
		n.remove(t, root)
	}
}

// remove removes a cgroup with its processes, which takes them a moment.
func (n *node) remove(t *testing.T, root string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := removeCgroups(root)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", n.name, err)
			return
		}
	}
}

// nothingLeft fails if the run left a process, a mount, a link or a cgroup.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left := []string{""}
	for deadline := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		left = nil
		processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range processes {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(dir)) {
				left = append(left, "process "+strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, dir) {
				left = append(left, "mount "+line)
			}
		}
		for _, pattern := range []string{"/sys/class/net/gpux*", "/sys/fs/cgroup/gpu-exporter-test-*",
			"/sys/fs/cgroup/*/gpu-exporter-test-*"} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}
