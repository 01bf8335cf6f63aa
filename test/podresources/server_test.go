package podresources_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// builds of test/kubelet by release of Kubernetes: the file of its modules, and the tag of its interfaces.
var builds = map[string][2]string{"1.37": {"kubernetes-1.37.mod", "kubernetes137"}, "1.36": {"go.mod", ""},
	"1.34": {"kubernetes-1.34.mod", ""}}

// release is the one that KUBERNETES names: 1.37 if unset.
func release() string { return cmp.Or(os.Getenv("KUBERNETES"), "1.37") }

// server is the program of test/kubelet, built once.
var server = sync.OnceValues(func() (string, error) {
	release := release() // of Kubernetes
	build, ok := builds[release]
	if !ok {
		return "", fmt.Errorf("KUBERNETES must be 1.37, 1.36 or 1.34, got %s", release)
	}
	dir, err := filepath.Abs(filepath.Join("..", "kubelet"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "..", "..", "bin", "kubelet-"+release)
	cmd := exec.Command("go", "build", "-o", path, "-modfile="+build[0], "-tags="+build[1], ".")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server of Kubernetes %s: %w\n%s", release, err, text)
	}
	return path, nil
})

// state is a node as the program of test/kubelet reads it; see there for what its fields mean.
type state struct {
	Pods        []*corev1.Pod       `json:"pods"`
	Devices     []device            `json:"devices"`
	Claims      []claim             `json:"claims"`
	Allocatable map[string][]string `json:"allocatable"`
}

type device struct {
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Resource  string   `json:"resource"`
	IDs       []string `json:"ids"`
	NUMA      []int64  `json:"numa,omitempty"`
	Answer    []byte   `json:"answer,omitempty"`
}

type claim struct {
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Driver    string   `json:"driver"`
	Pool      string   `json:"pool"`
	Device    string   `json:"device"`
	CDI       []string `json:"cdi,omitempty"`
}

// pod adds a running pod and returns it to be changed. Its UID is "uid-" and its name.
func (s *state) pod(namespace, name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	s.Pods = append(s.Pods, p)
	return p
}

// give hands devices of a plugin to a container.
func (s *state) give(pod, container, resource string, ids ...string) *device {
	s.Devices = append(s.Devices, device{Pod: "uid-" + pod, Container: container, Resource: resource, IDs: ids})
	return &s.Devices[len(s.Devices)-1]
}

// claimed gives a container a device by a claim.
func (s *state) claimed(pod, container, namespace, name, device string) {
	s.Claims = append(s.Claims, claim{Pod: "uid-" + pod, Container: container, Namespace: namespace, Name: name, Driver: "gpu.nvidia.com",
		Pool:   "node",
		Device: device, CDI: []string{"k8s.gpu.nvidia.com/claim=" + name + "-" + device}})
}

// kubelet is a running server of Kubernetes.
type kubelet struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	// counts are its own counts of the calls it answered, as of the last change of its state.
	counts map[string]float64
}

// run starts the server on dir/kubelet.sock, and returns once it listens.
func run(t *testing.T, dir string, s state, flags ...string) *kubelet {
	t.Helper()
	program, err := server()
	must.OK(t, err)
	k := &kubelet{t: t, socket: filepath.Join(dir, "kubelet.sock")}
	k.cmd = exec.Command(program, append([]string{"--dir=" + dir}, flags...)...)
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	must.OK(t, err)
	k.out = bufio.NewReader(out)
	k.cmd.Stderr = os.Stderr
	if testing.Short() || !testing.Verbose() {
		k.cmd.Stderr = nil
	}
	must.OK(t, k.cmd.Start())
	t.Cleanup(k.kill)
	k.set(s)
	return k
}

// set changes what the kubelet knows, and waits until it does.
func (k *kubelet) set(s state) {
	k.t.Helper()
	line, err := json.Marshal(s)
	if err == nil {
		_, err = k.in.Write(append(line, '\n'))
	}
	var answer []byte
	if err == nil {
		answer, err = k.out.ReadBytes('\n')
	}
	if err == nil {
		k.counts = nil
		err = json.Unmarshal(answer, &k.counts)
	}
	if err != nil {
		k.t.Fatalf("the kubelet does not take its state: %v", err)
	}
}

// kill ends the kubelet as a crash does: the socket's file stays.
func (k *kubelet) kill() {
	if k.cmd.ProcessState != nil {
		return
	}
	_ = k.cmd.Process.Signal(syscall.SIGKILL)
	_ = k.cmd.Wait()
}
