// Package machine sets up a node with a fake driver, a kubelet and the files of a host, and runs the real binary on
// it, for tests of the running program from the outside.
package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// build builds the programs once per test binary.
var build = sync.OnceValues(func() (string, error) {
	root, err := standin.RepositoryRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("make", "build")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return root, nil
})

// Root returns the repository's directory, after the exporter was built into its bin.
func Root(t testing.TB) string {
	t.Helper()
	root, err := build()
	must.OK(t, err)
	return root
}

// Binary returns the path of the exporter.
func Binary(t testing.TB) string { return filepath.Join(Root(t), "bin", "gpu-exporter") }

// Node is a node for the real binary. Its kubelet runs until the test ends.
type Node struct {
	Name    string // label of its series; Lay sets test-node
	Dir     string // of everything but the socket
	Library string
	Socket  string
	Kmsg    string // the kernel log; empty: none
	Trees   standin.Trees
	Kubelet *standin.Kubelet
	Control *scenario.Control
	Env     []string // for the fake driver
}

// The node of most tests: two GPUs, the first allocated to a pod.
const (
	GPUA, GPUB = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"

	TwoGPUs = `scenario 1
title "two GPUs"
include boards/h100-sxm.scenario
symbols R580
system DriverVersion = "580.105.08"
system NVMLVersion = "13.580.105.08"
system CudaDriverVersion = 13000
gpu 0 board=h100 uuid=` + GPUA + ` pci=0000:18:00.0 minor=0
gpu 1 board=h100 uuid=` + GPUB + ` pci=0000:2a:00.0 minor=1
`
	TwoPods = "allocatable nvidia.com/gpu " + GPUA + " " + GPUB + "\npod ml/train-0 container main nvidia.com/gpu=" + GPUA + "\n"
)

// Parse sets up a node from the texts of a scenario, which may include those of testdata, and of pods.
func Parse(t testing.TB, text, pods string) *Node {
	t.Helper()
	s, err := scenario.Parse("test.scenario", text, os.DirFS(filepath.Join(Root(t), "testdata", "scenarios")))
	must.OK(t, err)
	n, err := standin.ParsePods("test.pods", strings.NewReader(pods))
	must.OK(t, err)
	return Lay(t, s, n)
}

// Lay sets up a node from a scenario and pods.
func Lay(t testing.TB, s *scenario.Scenario, pods standin.KubeletNode) *Node {
	t.Helper()
	n := &Node{Name: "test-node", Dir: t.TempDir()}
	var err error
	if n.Library, err = standin.BuildFakeNVML(t.Context(), s.Symbols, n.Dir); err != nil {
		t.Fatal(err)
	}
	if n.Env, n.Control, err = standin.SimulateLive(s, n.Dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Control.Close() })
	if n.Trees, err = standin.WriteTrees(n.Dir, s, pods); err != nil {
		t.Fatal(err)
	}
	n.Socket = filepath.Join(must.ShortDir(t), "kubelet.sock")
	n.Kubelet = standin.NewKubelet()
	n.Kubelet.SetNode(pods)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Kubelet.Serve(ctx, n.Socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("kubelet: %v", err)
		}
	})
	must.OK(t, n.Kubelet.Ready(t.Context()))
	return n
}

// Shipped sets up one of the nodes of testdata, by the names of its scenario and its pods.
func Shipped(t testing.TB, name, pods string) *Node {
	t.Helper()
	root := Root(t)
	s, err := scenario.Load(filepath.Join(root, "testdata", "scenarios", name+".scenario"))
	must.OK(t, err)
	path := filepath.Join(root, "testdata", "kubelet", pods+".pods")
	f, err := os.Open(path)
	must.OK(t, err)
	defer f.Close()
	node, err := standin.ParsePods(path, f)
	must.OK(t, err)
	return Lay(t, s, node)
}

// Flags are the flags with which an exporter runs on the node.
func (n *Node) Flags() []string {
	return []string{"--node-name=" + n.Name, "--nvml.library=" + n.Library, "--kubelet.socket=" + n.Socket,
		"--path.sysfs=" + n.Trees.Sysfs,
		"--path.procfs=" + n.Trees.Procfs, "--path.pod-logs=" + n.Trees.PodLogs,
		"--path.container-logs=" + n.Trees.ContainerLogs, "--path.kmsg=" + n.Kmsg}
}

// Options of an exporter.
type Options struct {
	Flags []string // beside those of the node
	Env   []string // beside the test's own
	Under []string // a command that runs the exporter, such as strace with its flags
	// Address is where it listens, host:port; empty: a free port of the loopback.
	Address string
	// Command replaces the program, its flags and its environment by those of a form in which it is shipped; Env is then
	// all that it has. User runs it, where this is root; 0: the same user.
	Command []string
	User    uint32
}

// Exporter is a running exporter.
type Exporter struct {
	// Address is host:port; TLS: it serves TLS.
	Address string
	TLS     bool
	// PID is the process id of the exporter itself.
	PID int
	// Done is closed once the exporter exited; Err is then its error.
	Done chan struct{}
	Err  error

	cmd *exec.Cmd
	out testkit.Output
}

// Said is all output of the exporter.
func (e *Exporter) Said() string { return e.out.String() }

// Base is the exporter's URL without a path.
func (e *Exporter) Base() string {
	if e.TLS {
		return "https://" + e.Address
	}
	return "http://" + e.Address
}

// Start runs the exporter until the test ends. It returns once the port listens.
func (n *Node) Start(t testing.TB, o Options) *Exporter {
	t.Helper()
	e := &Exporter{Address: o.Address, Done: make(chan struct{})}
	if e.Address == "" {
		var err error
		if e.Address, err = standin.FreeAddress(); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{}, o.Under...)
	args = append(args, Binary(t))
	args = append(args, n.Flags()...)
	args = append(args, "--web.listen-address="+e.Address)
	args = append(args, o.Flags...)
	env := append(append(os.Environ(), n.Env...), o.Env...)
	if o.Command != nil {
		args, env = o.Command, o.Env
	}
	e.cmd = exec.Command(args[0], args[1:]...)
	e.cmd.Env = env
	if o.User != 0 && os.Geteuid() == 0 {
		e.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.User, Gid: o.User}}
	}
	e.cmd.Stdout, e.cmd.Stderr = &e.out, &e.out
	must.OK(t, e.cmd.Start())
	go func() { e.Err = e.cmd.Wait(); close(e.Done) }()
	t.Cleanup(func() {
		e.Stop()
		if t.Failed() {
			t.Logf("output of the exporter:\n%s", e.out.End())
		}
	})
	for ; ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-e.Done:
			t.Fatalf("the exporter exited: %v\n%s", e.Err, e.Said())
		default:
		}
		c, err := net.Dial("tcp", e.Address)
		if err == nil {
			c.Close()
			break
		}
	}
	if e.PID = e.cmd.Process.Pid; len(o.Under) > 0 {
		// Under another program, the exporter is its child.
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.PID))
		for _, path := range threads {
			text, _ := os.ReadFile(path)
			if n, _ := fmt.Sscan(string(text), &e.PID); n > 0 {
				break
			}
		}
	}
	return e
}

// Stop sends SIGTERM and waits for the exit. It may be called again.
func (e *Exporter) Stop() {
	select {
	case <-e.Done:
		return
	default:
	}
	_ = syscall.Kill(e.PID, syscall.SIGTERM)
	select {
	case <-e.Done:
	case <-time.After(time.Minute): // it does not end, whatever the load
		_ = syscall.Kill(e.PID, syscall.SIGKILL)
		_ = e.cmd.Process.Kill()
		<-e.Done
	}
}
