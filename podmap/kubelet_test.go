package podmap_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	GPUA = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
	GPUB = "GPU-bbbbbbbb-0000-4000-8000-000000000002"
)

var devs = &gpu.Inventory{GPUs: []gpu.InventoryGPU{
	{UUID: GPUA, Index: 0, Minor: gpu.Some(1)},
	{UUID: GPUB, Index: 1, Minor: gpu.Some(0)},
}}

// socketPath is short: the address of a unix socket has at most 107 bytes.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "kubelet.sock")
}

// serve plays a kubelet of two pods: one with a whole GPU and a claim, one with a replica on two NUMA nodes.
func serve(t *testing.T, socket string) *standin.Kubelet {
	t.Helper()
	node, err := standin.ParsePods("test", strings.NewReader(`
		allocatable nvidia.com/gpu `+GPUA+` `+GPUB+`::0 `+GPUB+`::1
		pod team-a/trainer-0 container main nvidia.com/gpu=`+GPUA+`
		pod team-b/notebook container main nvidia.com/gpu=`+GPUB+`::1 numa=0,1
		pod kube-system/exporter container exporter
	`))
	if err != nil {
		t.Fatal(err)
	}
	k := standin.NewKubelet(time.Now)
	k.SetNode(node)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- k.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if err := k.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

func newMap(t *testing.T, o podmap.Options) *podmap.Map {
	t.Helper()
	m := podmap.New(o)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func wantGood(t *testing.T, m *podmap.Map) gpu.Allocations {
	t.Helper()
	if err := m.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := m.Allocations(devs)
	if !h.Known || len(h.List) != 2 || h.List[0].GPU != GPUA || h.List[1].GPU != GPUB || len(h.Unresolved) != 0 {
		t.Fatalf("allocations %+v", h)
	}
	if s := h.Sources[0]; !s.Up || s.Message != "" {
		t.Fatalf("health %+v", s)
	}
	return h
}

// wantBad polls, and expects the message, and the allocations to remain.
func wantBad(t *testing.T, m *podmap.Map, message string) {
	t.Helper()
	before := m.Allocations(devs)
	if err := m.Poll(t.Context()); err == nil {
		t.Fatal("no error")
	}
	h := m.Allocations(devs)
	s := h.Sources[0]
	if s.Up || !strings.Contains(s.Message, message) || strings.ContainsAny(s.Message, "\n\r") || s.Errors != before.Sources[0].Errors+1 {
		t.Fatalf("health %+v, want a message with %q", s, message)
	}
	if h.Known != before.Known || len(h.List) != len(before.List) {
		t.Fatalf("the mapping went from %+v to %+v", before, h)
	}
}

func TestOverTheSocket(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	for range 20 {
		h := wantGood(t, m)
		if s := h.List[0].Share; s != gpu.Some[gpu.Ratio](1) {
			t.Errorf("share of a whole GPU: %v", s)
		}
		if s := h.List[1].Share; s != gpu.Some[gpu.Ratio](0.5) {
			t.Errorf("share of a replica: %v", s)
		}
		if r := h.Resources; len(r) != 1 || r[0].Allocatable != gpu.Some(3) || r[0].Allocated != 2 {
			t.Errorf("resources %+v", r)
		}
	}
	if l, a := k.Calls("v1.List"), k.Calls("v1.GetAllocatableResources"); l != 20 || a != 20 {
		t.Errorf("%d and %d calls for 20 polls", l, a)
	}
}

func TestClaimsOverTheSocket(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	k.SetPods([]standin.KubeletPod{
		{Namespace: "a", Name: "p", Containers: []standin.KubeletContainer{
			{Name: "x", Claims: []standin.KubeletClaim{
				{Name: "both", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0"},
				{Name: "both", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-1"}}},
			{Name: "y", Claims: []standin.KubeletClaim{{Name: "both", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0"}}}}},
		{Namespace: "b", Name: "q", Containers: []standin.KubeletContainer{
			{Name: "z", Claims: []standin.KubeletClaim{{Namespace: "a", Name: "both", Driver: "gpu.nvidia.com", Pool: "node",
				Device: "gpu-1", ShareID: "s"}}}}},
	})
	m := newMap(t, podmap.Options{Socket: socket})
	if err := m.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	type row struct {
		pod, container string
		dev            gpu.UUID
		share          gpu.Opt[gpu.Ratio]
	}
	var got []row
	for _, h := range m.Allocations(devs).List {
		if h.Resource != "gpu.nvidia.com" {
			t.Errorf("resource %q", h.Resource)
		}
		got = append(got, row{h.Container.Pod, h.Container.Name, h.GPU, h.Share})
	}
	want := []row{{"p", "x", GPUA, gpu.Some[gpu.Ratio](0.5)}, {"p", "x", GPUB, gpu.Some[gpu.Ratio](0.5)},
		{"p", "y", GPUB, gpu.Some[gpu.Ratio](0.5)}, {"q", "z", GPUA, gpu.None[gpu.Ratio]()}}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestKubeletRestart(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	wantGood(t, m)
	for range 3 {
		// The first response after a restart is empty: the GPUs are not unallocated.
		if err := k.Restart(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		wantGood(t, m)
		wantGood(t, m)
	}
	// One that lists pods without devices after a restart needs a second response, one that did not restart does not.
	pods := standin.KubeletPod{Namespace: "kube-system", Name: "exporter", Containers: []standin.KubeletContainer{{Name: "exporter"}}}
	all, err := standin.ParsePods("test", strings.NewReader("pod a/p container c nvidia.com/gpu="+
		GPUA+"\npod a/q container c nvidia.com/gpu="+GPUB+"::1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, restarts := range []bool{true, false} {
		wantGood(t, m)
		k.SetPods([]standin.KubeletPod{pods})
		if restarts {
			if err := k.Restart(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			wantGood(t, m)
		}
		if err := m.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h := m.Allocations(devs); !h.Known || len(h.List) != 0 {
			t.Errorf("restarted %v: %+v", restarts, h)
		}
		k.SetPods(all.Pods)
	}
	// A kubelet without pods.
	wantGood(t, m)
	k.SetPods(nil)
	wantGood(t, m)
	if err := m.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := m.Allocations(devs); !h.Known || len(h.List) != 0 || len(h.Pods) != 0 {
		t.Errorf("two empty responses, and still %+v", h)
	}
}

func TestKubeletDown(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	wantGood(t, m)
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantBad(t, m, "does not exist: mount the directory")
	wantBad(t, m, "using the response from")
	if err := k.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantGood(t, m)
}

// The socket is replaced while whoever served the old one lives on: a new file is a new kubelet.
func TestSocketReplacedUnderALivingConnection(t *testing.T) {
	socket := socketPath(t)
	old := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	wantGood(t, m)
	calls := old.Calls("v1.List")
	if err := os.Rename(socket, socket+".old"); err != nil {
		t.Fatal(err)
	}
	serve(t, socket)
	wantGood(t, m)
	if n := old.Calls("v1.List"); n != calls {
		t.Errorf("the old kubelet was queried %d more times", n-calls)
	}
}

func TestPathsThatAreNoKubelet(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		wantBad(t, newMap(t, podmap.Options{Socket: socketPath(t)}), "does not exist")
	})
	t.Run("directory", func(t *testing.T) {
		// What mounting a socket makes of one that is not there yet.
		socket := socketPath(t)
		if err := os.Mkdir(socket, 0o755); err != nil {
			t.Fatal(err)
		}
		wantBad(t, newMap(t, podmap.Options{Socket: socket}), "is not a socket: mount the kubelet's pod-resources directory")
	})
	t.Run("connection refused", func(t *testing.T) {
		socket := socketPath(t)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		m := newMap(t, podmap.Options{Socket: socket})
		wantBad(t, m, "connection refused: the kubelet is down or restarting")
		// It is tried again at the next poll, not when grpc finds it convenient.
		serve(t, socket)
		wantGood(t, m)
	})
	t.Run("another protocol", func(t *testing.T) {
		socket := socketPath(t)
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
				c.Close()
			}
		}()
		wantBad(t, newMap(t, podmap.Options{Socket: socket}), "the connection failed")
	})
}

func TestFaults(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket, Timeout: 10 * time.Second})
	hasty := newMap(t, podmap.Options{Socket: socket, Timeout: 20 * time.Millisecond})
	small := newMap(t, podmap.Options{Socket: socket, MaxMessage: 1 << 20})
	good := func(t *testing.T) {
		t.Helper()
		k.SetFault(standin.KubeletFault{})
		wantGood(t, m)
	}
	good(t)
	t.Run("rate limit", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Exhausted: true})
		wantBad(t, m, "rate limited by the kubelet")
		wantBad(t, m, "rate limited by the kubelet")
		good(t)
	})
	t.Run("slow", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Delay: 10 * time.Millisecond})
		wantGood(t, m)
		if d := m.Allocations(devs).Sources[0].Duration.Or(0); d < 20*time.Millisecond {
			t.Errorf("two slow calls took %s", d)
		}
		good(t)
	})
	t.Run("hang", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Hang: true})
		wantBad(t, hasty, "no response within 20ms")
		good(t)
		wantGood(t, hasty)
	})
	t.Run("20 MB", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Padding: 20 << 20})
		wantGood(t, m)
		wantBad(t, small, "larger than 1 MiB")
		good(t)
		wantGood(t, small)
	})
	t.Run("more pods than a node can have", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Pods: 5000})
		wantBad(t, m, "more than 4096 pods") // and the last response stays in use
		good(t)
	})
	t.Run("many containers in one pod", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Pods: 1, Containers: 1e5})
		wantBad(t, m, "more than 1024 containers in one pod")
		good(t)
	})
	t.Run("garbage", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{Garbage: true})
		wantBad(t, m, "cannot decode the response")
		good(t)
	})
	t.Run("error", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{ListError: status.Error(codes.Unknown, "out\nof order")})
		wantBad(t, m, "out of order")
		good(t)
	})
	t.Run("no allocatable", func(t *testing.T) {
		before := m.Allocations(devs).Sources[0].Errors
		k.SetFault(standin.KubeletFault{NoAllocatable: true})
		wantGood(t, m)
		k.SetFault(standin.KubeletFault{AllocatableError: status.Error(codes.Unknown,
			"Pod Resources API GetAllocatableResources disabled")})
		wantGood(t, m)
		if n := m.Allocations(devs).Sources[0].Errors; n != before {
			t.Errorf("what is not offered counted %d errors", n-before)
		}
		k.SetFault(standin.KubeletFault{AllocatableError: status.Error(codes.Internal, "broken")})
		h := wantGood(t, m)
		if n := h.Sources[0].Errors; n != before+1 {
			t.Errorf("what failed counted %d errors", n-before)
		}
		good(t)
	})
	t.Run("nothing is offered", func(t *testing.T) {
		k.SetFault(standin.KubeletFault{ListError: status.Error(codes.Unimplemented, "no")})
		wantBad(t, m, "offers no PodResources service")
		good(t)
	})
}

func TestV1Alpha1(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	k.SetFault(standin.KubeletFault{NoV1: true})
	m := newMap(t, podmap.Options{Socket: socket})
	for range 3 {
		h := wantGood(t, m)
		if h.List[1].Share.Present() {
			t.Error("a share without a count of replicas")
		}
		if len(h.Resources) != 1 || h.Resources[0].Allocatable.Present() || h.Resources[0].Allocated != 2 {
			t.Errorf("resources %+v", h.Resources)
		}
		if h.Sources[0].Errors != 0 {
			t.Errorf("an old kubelet is an error: %+v", h.Sources[0])
		}
	}
	if v1, alpha := k.Calls("v1.List"), k.Calls("v1alpha1.List"); v1 != 1 || alpha != 3 {
		t.Errorf("%d calls of v1, %d of v1alpha1", v1, alpha)
	}
	// The kubelet was upgraded.
	k.SetFault(standin.KubeletFault{})
	if err := k.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if h := wantGood(t, m); h.List[1].Share != gpu.Some[gpu.Ratio](0.5) {
		t.Errorf("share %v", h.List[1].Share)
	}
}

func TestStopIsPromptWhileTheKubeletHangs(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	k.SetFault(standin.KubeletFault{Hang: true})
	m := podmap.New(podmap.Options{Socket: socket, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	for k.Calls("v1.List") == 0 {
		runtime.Gosched()
		// Allocations never waits for the kubelet.
		if m.Allocations(devs).Known {
			t.Fatal("known without a response")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := m.Allocations(devs).Sources[0].Errors; n != 0 {
		t.Errorf("our own end counted %d errors", n)
	}
}

func TestPollEndsWithItsContext(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	k.SetFault(standin.KubeletFault{Hang: true})
	m := newMap(t, podmap.Options{Socket: socket, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Poll(ctx) }()
	for k.Calls("v1.List") == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDemoNode(t *testing.T) {
	path := filepath.Join("..", "testdata", "kubelet", "demo.pods")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	node, err := standin.ParsePods(path, f)
	if err != nil {
		t.Fatal(err)
	}
	// The inventory is made of the names in the file: one GPU per GPU-, and one in MIG mode for all MIG-.
	inv := &gpu.Inventory{}
	mig := gpu.InventoryGPU{UUID: "GPU-00000000-0000-4000-8000-000000000000", MIG: true}
	seen := map[string]bool{}
	for _, ids := range node.Allocatable {
		for _, id := range ids {
			uuid, _, _ := strings.Cut(id, "::")
			switch {
			case seen[uuid]:
			case strings.HasPrefix(uuid, "MIG-"):
				mig.Instances = append(mig.Instances, gpu.Instance{UUID: gpu.UUID(uuid), GI: len(mig.Instances)})
			default:
				inv.GPUs = append(inv.GPUs, gpu.InventoryGPU{UUID: gpu.UUID(uuid)})
			}
			seen[uuid] = true
		}
	}
	inv.GPUs = append(inv.GPUs, mig)

	socket := socketPath(t)
	serve(t, socket).SetNode(node)
	m := newMap(t, podmap.Options{Socket: socket})
	if err := m.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := m.Allocations(inv)
	shares := map[string]float64{}
	for _, x := range h.List {
		shares[x.Container.Namespace] += float64(x.Share.Or(0))
	}
	for namespace, want := range map[string]float64{"ml-training": 4, "notebooks": 0.75, "inference": 3, "research": 1} {
		if shares[namespace] != want {
			t.Errorf("%s has %v GPUs or instances, want %v", namespace, shares[namespace], want)
		}
	}
	if len(h.Unresolved) != 0 || h.Uncertain || len(h.Pods) != 8 || len(m.Unrecognized()) != 0 {
		t.Errorf("%+v", h)
	}
}
