package standin

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// kubeletClient serves k on a socket of its own and returns a client of it.
func kubeletClient(t *testing.T, k *Kubelet) podresources.PodResourcesListerClient {
	t.Helper()
	socket := filepath.Join(must.ShortDir(t), "kubelet.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- k.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	must.OK(t, k.Ready(t.Context()))
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return podresources.NewPodResourcesListerClient(conn)
}

func TestKubeletListsAsTheRealOneDoes(t *testing.T) {
	k := NewKubelet()
	node, err := ParsePods("x", strings.NewReader("pod a/p container c nvidia.com/gpu=GPU-1,GPU-2 numa=0,1\n"+
		"pod a/p container c claim=x driver=d device=one\npod a/p container c claim=x driver=d device=two share=s\npod a/q"))
	must.OK(t, err)
	k.SetNode(node)
	list, err := kubeletClient(t, k).List(t.Context(), &podresources.ListPodResourcesRequest{})
	must.OK(t, err)
	if len(list.PodResources) != 2 {
		t.Fatalf("%v", list)
	}
	for _, p := range list.PodResources {
		if p.Name == "q" {
			continue
		}
		c := p.Containers[0]
		if len(c.Devices) != 4 {
			t.Errorf("two devices on two NUMA nodes are %d entries", len(c.Devices))
		}
		for _, d := range c.Devices {
			if len(d.DeviceIds) != 1 {
				t.Errorf("an entry of %d ids", len(d.DeviceIds))
			}
		}
		r := c.DynamicResources
		if len(r) != 1 || r[0].ClaimNamespace != "a" || len(r[0].ClaimResources) != 2 ||
			len(r[0].ClaimResources[1].CdiDevices) != 2 || r[0].ClaimResources[1].GetShareId() != "s" {
			t.Errorf("claims %v", r)
		}
	}
}

func TestKubeletIsServedOnce(t *testing.T) {
	k := NewKubelet()
	kubeletClient(t, k)
	if err := k.Serve(t.Context(), filepath.Join(t.TempDir(), "s")); err == nil {
		t.Error("served twice")
	}
}

func TestServeSaysWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "kubelet.sock")
	if err := NewKubelet().Serve(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

func TestParsePods(t *testing.T) {
	got, err := ParsePods("demo.pods", strings.NewReader(`
# A node of two gpus.
allocatable nvidia.com/gpu GPU-1::0 GPU-1::1 # replicas
allocatable nvidia.com/gpu GPU-2#not-a-comment

pod a/p container c nvidia.com/gpu=GPU-1::0,GPU-1::1 rdma/hca=x
pod a/p container c nvidia.com/gpu=GPU-2 numa=1 pids=7,8
pod a/p container setup kind=init pids=6
pod a/p container d claim=x driver=gpu.nvidia.com device=gpu-3 pool=node namespace=b share=s
pod b/q
pod b/q container e comm=nvidia-cuda-mps nodes=nvidia0,nvidia-caps/nvidia-cap12 env=A:b=c
process 9 cgroup=/system.slice/x.service env=B:
`))
	must.OK(t, err)
	want := KubeletNode{
		Allocatable: map[string][]string{"nvidia.com/gpu": {"GPU-1::0", "GPU-1::1", "GPU-2#not-a-comment"}},
		Pods: []KubeletPod{
			{Namespace: "a", Name: "p", Containers: []KubeletContainer{
				{Name: "c", Devices: []KubeletDevices{
					{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1::0", "GPU-1::1"}},
					{Resource: "rdma/hca", IDs: []string{"x"}},
					{Resource: "nvidia.com/gpu", IDs: []string{"GPU-2"}, NUMA: []int64{1}}},
					PIDs: []int{7, 8}},
				{Name: "setup", PIDs: []int{6}, Unlisted: true},
				{Name: "d", Claims: []KubeletClaim{{Namespace: "b", Name: "x", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-3",
					ShareID: "s"}}},
			}},
			{Namespace: "b", Name: "q", Containers: []KubeletContainer{{Name: "e",
				ProcessDetails: ProcessDetails{Command: "nvidia-cuda-mps",
					Nodes: []string{"nvidia0", "nvidia-caps/nvidia-cap12"}, Env: []string{"A=b=c"}}}}},
		},
		Processes: []HostProcess{{PID: 9, Cgroup: "/system.slice/x.service", ProcessDetails: ProcessDetails{Env: []string{"B="}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestParsePodsSaysWhereAndWhat(t *testing.T) {
	for text, want := range map[string]string{
		"\nnode x":                             `f.pods:2: "node" is neither allocatable, pod nor process`,
		"process":                              "f.pods:1: want: process PID",
		"process x cgroup=/a":                  `"x" is no number`,
		"process 1 cgroup=a":                   "unknown keyword",
		"process 1 env=x":                      "is not NAME:VALUE",
		"process 1 comm=x":                     "want cgroup=/PATH",
		"allocatable nvidia.com/gpu":           "f.pods:1: want: allocatable RESOURCE ID",
		"allocatable gpu x":                    "f.pods:1: want: allocatable RESOURCE ID",
		"allocatable a/b x x":                  "f.pods:1: a/b: id x is there twice",
		"pod":                                  "f.pods:1: want: pod",
		"pod a":                                `"a" is not NAMESPACE/NAME`,
		"pod a/b/c":                            `"a/b/c" is not NAMESPACE/NAME`,
		"pod /b":                               `"/b" is not NAMESPACE/NAME`,
		"pod a/b containers c":                 "pod a/b: want: container NAME",
		"pod a/b container":                    "pod a/b: want: container NAME",
		"pod a/b container c gpu":              `"gpu" is not KEY=VALUE`,
		"pod a/b container c gpu=1":            `unknown keyword "gpu"`,
		"pod a/b container c x/y=1,,2":         "x/y: empty id",
		"pod a/b container c x/y=1 numa=a":     `numa: "a" is no number`,
		"pod a/b container c pids=1,-2":        `pids: "-2" is no number`,
		"pod a/b container c claim=x":          "a claim needs claim, driver and device",
		"pod a/b container c claim=x claim=y":  "claim is there twice",
		"pod a/b container c driver=d pool=po": "a claim needs claim, driver and device",
	} {
		_, err := ParsePods("f.pods", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f.pods:") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParsePods(f *testing.F) {
	f.Add("allocatable nvidia.com/gpu GPU-1::0\npod a/b container c x/y=1,2 numa=0 # c\npod a/b container c claim=x driver=d device=e")
	f.Fuzz(func(t *testing.T, text string) {
		node, err := ParsePods("f", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("no place in %q", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, p := range node.Pods {
			if p.Namespace == "" || p.Name == "" || seen[p.Namespace+"/"+p.Name] {
				t.Fatalf("pod %q/%q", p.Namespace, p.Name)
			}
			seen[p.Namespace+"/"+p.Name] = true
		}
	})
}

// The demonstration's pods hold GPUs that its scenario has, and run processes that it has.
func TestDemoPods(t *testing.T) {
	path := filepath.Join("..", "..", "testdata", "kubelet", "demo.pods")
	f, err := os.Open(path)
	must.OK(t, err)
	defer f.Close()
	node, err := ParsePods(path, f)
	must.OK(t, err)
	path = filepath.Join("..", "..", "testdata", "scenarios", "demo.scenario")
	s, err := scenario.Load(path)
	must.OK(t, err)
	text := must.Read(t, path)
	names := map[string]bool{}
	for _, c := range s.GPUs {
		names[string(c.UUID)] = true
	}
	pids := map[int]bool{}
	for _, p := range s.Processes() {
		pids[p.PID] = true
	}
	check := func(resource, id string) {
		uuid, _, _ := strings.Cut(id, "::")
		if mig := strings.HasPrefix(uuid, "MIG-") && strings.Contains(text, "uuid="+uuid); !mig && !names[uuid] {
			t.Errorf("%s: the scenario has no %s", resource, id)
		}
	}
	listed := map[string]bool{}
	for resource, ids := range node.Allocatable {
		for _, id := range ids {
			check(resource, id)
			listed[resource+" "+id] = true
		}
	}
	allocated := map[string]bool{}
	for _, p := range node.Pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				for _, id := range d.IDs {
					check(d.Resource, id)
					if key := d.Resource + " " + id; !listed[key] || allocated[key] {
						t.Errorf("%s/%s has %s, which is not allocatable or already allocated", p.Namespace, p.Name, key)
					} else {
						allocated[key] = true
					}
				}
			}
			for _, pid := range c.PIDs {
				if !pids[pid] {
					t.Errorf("%s/%s: the scenario has no process %d", p.Namespace, p.Name, pid)
				}
			}
		}
	}
	if len(allocated) != 11 {
		t.Errorf("%d devices are allocated, want 4 gpus, 3 slices, 3 MIG devices and 1 gpu", len(allocated))
	}
}
