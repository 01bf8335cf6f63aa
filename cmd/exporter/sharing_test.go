package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A scheme whose ids lie is resolved from what the plugin really gave the container, with the real binary.
func TestCheckpointResolvesGPUs(t *testing.T) {
	t.Parallel()
	const a, b = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"
	// HAMi's id says GPU a; the container was given GPU b, a quarter of its memory.
	m := node(t, twoGPUs, "allocatable nvidia.com/gpu "+a+"-0 "+a+"-1 "+b+"-0 "+b+"-1\npod ml/tenant container main nvidia.com/gpu="+a+
		"-0\n")
	response, err := proto.Marshal(&deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": b,
		"CUDA_DEVICE_MEMORY_LIMIT_0": "20390m"}})
	must.OK(t, err)
	checkpoint, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": []any{map[string]any{
		"PodUID": "11111111-2222-4333-8444-555555555555", "ContainerName": "main", "ResourceName": "nvidia.com/gpu",
		"DeviceIDs": map[string][]string{"-1": {a + "-0"}}, "AllocResp": base64.StdEncoding.EncodeToString(response)}},
		"RegisteredDevices": map[string][]string{}}, "Checksum": 1})
	must.OK(t, err)
	path := filepath.Join(m.Dir, "kubelet_internal_checkpoint")
	must.OK(t, os.WriteFile(path, checkpoint, 0o600))
	p := m.start("--kubelet.checkpoint=" + path)
	p.until(t, "the container holds a quarter of GPU b", func(s series) error {
		share, err := s.one("gpu_container_allocation_ratio", GPUB, `pod="tenant"`)
		if err == nil && (share < 0.24 || share > 0.26) {
			err = fmt.Errorf("a share of %v", share)
		}
		return all(err, s.none("gpu_container_allocation_ratio", GPUA), s.none("gpu_container_unresolved_devices"),
			s.is(1, "gpu_exporter_source_up", `source="checkpoint"`),
			s.is(1, "gpu_pod_info", `pod="tenant"`, `pod_uid="11111111-2222-4333-8444-555555555555"`))
	})
	// Without it the same ids are unattributed GPU.
	other := node(t, twoGPUs, "allocatable nvidia.com/gpu "+a+"-0\npod ml/tenant container main nvidia.com/gpu="+a+"-0\n")
	other.start().until(t, "unresolved", func(s series) error {
		return all(s.none("gpu_container_allocation_ratio"), s.is(1, "gpu_container_unresolved_devices", `pod="tenant"`))
	})
}

// Each way in which a GPU was once reported as unallocated, or with another's limits: what the sources show, and what
// the exporter reports. GPU a is index 0, b index 1.
func TestAnyPluginAndDriver(t *testing.T) {
	t.Parallel()
	const a, b = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"
	const hami = "hami-core-gpu.project-hami.io"
	entry := func(resource, id string, env map[string]string) string {
		raw, err := proto.Marshal(&deviceplugin.ContainerAllocateResponse{Envs: env})
		must.OK(t, err)
		return `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"main","ResourceName":"` + resource +
			`","DeviceIDs":{"-1":["` + id + `"]},"AllocResp":"` + base64.StdEncoding.EncodeToString(raw) + `"}]},"Checksum":1}`
	}
	ids := func(format string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ",")
	}
	// What HAMi's driver writes of two claims that share a GPU of minor 3: see testdata/sharing/README.md.
	fixture, err := os.ReadFile(filepath.Join("..", "..", "testdata", "sharing", "hami-dra.txt"))
	must.OK(t, err)
	_, shared, _ := strings.Cut(string(fixture), "case shared\n")
	_, written, _ := strings.Cut(shared, "\ndra ")
	written, _, _ = strings.Cut(written, "\n")
	none := strings.Repeat(",GPU-00000000-0000-0000-0000-000000000000", 14)
	for _, c := range []struct {
		name, pods, checkpoint, dra, gpu, share, memory, compute string
		annotations                                              map[string]string
	}{
		{name: "an unknown DRA driver", pods: "claim=x driver=gpu.example.com device=device-7"},
		{name: "HAMi DRA", pods: "claim=x driver=" + hami + " device=hami-gpu-1 share=s", gpu: b},
		{name: "HAMi DRA, its checkpoint", pods: "claim=x driver=" + hami + " device=hami-gpu-1 share=s",
			dra: strings.NewReplacer("{A}", b, "hami-gpu-3", "hami-gpu-1", `"namespace":"team"`, `"namespace":"ml"`).Replace(written),
			gpu: b, share: "0.25", memory: "21474836480", compute: "0.3"},
		{name: "an unknown DRA driver, its checkpoint", pods: "claim=x driver=gpu.example.com device=device-7",
			dra: `{"v2":{"preparedClaims":{"c":{"namespace":"ml","name":"x","preparedDevices":[{"devices":[{"any":{"info":{"uuid":"` + b +
				`"},"device":{"DeviceName":"device-7"}}}]}]}}}}`, gpu: b, share: "1"},
		{name: "vgpu-manager on index 1", pods: "nvidia.com/vgpu-number=" + a + "::0",
			checkpoint: entry("nvidia.com/vgpu-number", a+"::0", map[string]string{"CUDA_MEM_LIMIT_1": "20390m", "CUDA_CORE_LIMIT_1": "30",
				"MANAGER_VISIBLE_DEVICES": none[1:42] + b + none}),
			gpu: b, share: "0.25", memory: "21380464640", compute: "0.3"},
		{name: "cores without annotations", pods: "aliyun.com/gpu-mem=" + ids(a+"-_-%d", 2) + " aliyun.com/gpu-core.percentage=" +
			ids(a+"-core-%d", 30),
			checkpoint: entry("aliyun.com/gpu-mem", a+"-_-0\",\""+a+"-_-1", map[string]string{"NVIDIA_VISIBLE_DEVICES": "1",
				"ALIYUN_COM_GPU_MEM_CONTAINER": "2", "ALIYUN_COM_GPU_MEM_DEV": "8"}),
			gpu: b, share: "0.25", memory: "21380464640", compute: "0.3"},
		{name: "gpu-manager, annotations", pods: "tencent.com/vcuda-core=" + ids("tencent.com/vcuda-core-%d", 25) +
			" tencent.com/vcuda-memory=" + ids("tencent.com/vcuda-memory-268435456-%d", 80),
			annotations: map[string]string{"tencent.com/predicate-gpu-idx-0": "1"},
			gpu:         b, share: "0.25", memory: "21474836480", compute: "0.25"},
		{name: "an unknown plugin", pods: "example.com/gpu=x-1"},
		{name: "an unknown plugin, the checkpoint", pods: "example.com/gpu=x-1",
			checkpoint: entry("example.com/gpu", "x-1", map[string]string{"NVIDIA_VISIBLE_DEVICES": b}), gpu: b},
		{name: "a name that says nothing, the checkpoint", pods: "example.com/accelerator=x-1",
			checkpoint: entry("example.com/accelerator", "x-1", map[string]string{"NVIDIA_VISIBLE_DEVICES": b}), gpu: b},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := node(t, twoGPUs, "pod ml/train container main "+c.pods+"\n")
			var flags []string
			if c.annotations != nil {
				flags = apiServer(t, m, []any{map[string]any{"metadata": map[string]any{"name": "train", "namespace": "ml", "uid": "u",
					"annotations": c.annotations}}})
			}
			for flag, text := range map[string]string{"--kubelet.checkpoint=": c.checkpoint, "--kubelet.dra-checkpoint=": c.dra} {
				if text == "" {
					continue
				}
				path := filepath.Join(m.Dir, "gpu.example.com", "checkpoint.json")
				must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
				flags = append(flags, flag+path)
			}
			m.start(flags...).until(t, "the GPU is the container's, or unresolved", func(s series) error {
				if c.gpu == "" {
					return all(s.none("gpu_allocation_ratio"), s.is(1, "gpu_container_unresolved_devices", `pod="train"`))
				}
				errs := []error{s.none("gpu_container_unresolved_devices"), s.is(0, "gpu_allocation_ratio", GPUA)}
				for family, want := range map[string]string{"gpu_container_allocation_ratio": c.share,
					"gpu_container_memory_limit_bytes": c.memory, "gpu_container_compute_limit_ratio": c.compute} {
					if want == "" {
						errs = append(errs, s.none(family))
						continue
					}
					number, _ := strconv.ParseFloat(want, 64)
					if got, err := s.one(family, GPUB, `pod="train"`); err != nil || math.Abs(got/number-1) > 0.01 {
						errs = append(errs, fmt.Errorf("%s %v, want %s: %w", family, got, want, err))
					}
				}
				return all(errs...)
			})
		})
	}
}

// A change of the kubelet's checkpoint makes the exporter query the kubelet, whatever its interval is.
func TestAllocationsByEvent(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	path := filepath.Join(m.Dir, "kubelet_internal_checkpoint")
	write := func() {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".tmp", []byte(`{"Data":{"PodDeviceEntries":[]},"Checksum":1}`), 0o600),
			os.Rename(path+".tmp", path)); err != nil {
			t.Fatal(err)
		}
	}
	write()
	p := m.startAt("--poll.fast=200ms", "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=1h", "--kubelet.max-age=2h",
		"--kubelet.checkpoint="+path)
	for _, pod := range []string{"train-0", "train-1", "train-2"} {
		k, err := standin.ParsePods("pods", strings.NewReader(strings.ReplaceAll(twoPods, "train-0", pod)))
		must.OK(t, err)
		m.Kubelet.SetNode(k)
		p.until(t, pod+" has its GPU", func(s series) error {
			write() // until the directory is watched
			return s.is(1, "gpu_container_allocation_ratio", GPUA, `pod="`+pod+`"`)
		})
	}
}

// With /var/log not mounted the kubelet's checkpoint names the pod of a process: its entry has the container and the
// ids of one pod that the socket lists. The UID of nobody stays unresolved.
func TestCheckpointNamesProcesses(t *testing.T) {
	t.Parallel()
	const a, uid = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "11111111-2222-4333-8444-555555555555"
	m := node(t, twoGPUs+"process gpu=0 pid=5000 memory=4GiB busy=50% period=1s\nprocess gpu=0 pid=5001 memory=1GiB busy=10% period=1s\n",
		twoPods)
	for pid, owner := range map[int]string{5000: uid, 5001: "99999999-2222-4333-8444-555555555555"} {
		cgroup := filepath.Join(m.Trees.Procfs, fmt.Sprint(pid), "cgroup")
		must.OK(t, os.WriteFile(cgroup, []byte("0::/kubepods/pod"+owner+"/"+strings.Repeat("a", 64)+"\n"), 0o644))
	}
	checkpoint := filepath.Join(m.Dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(checkpoint, []byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"`+uid+
		`","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["`+a+
		`"]},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Trees.PodLogs, m.Trees.ContainerLogs = "", ""
	m.start("--kubelet.checkpoint="+checkpoint).until(t, "the process is its pod's", func(s series) error {
		return all(s.is(4<<30, "gpu_container_memory_used_bytes", GPUA, `pod="train-0"`, `container="main"`),
			s.is(1<<30, "gpu_unattributed_memory_used_bytes", GPUA, `reason="unresolved"`),
			s.is(1, "gpu_exporter_feature", `feature="process_names"`, `state="on"`))
	})
}

// apiServer starts an API server with the metadata of pods and with ResourceSlices, and returns the flags with which the
// exporter watches the pods.
func apiServer(t *testing.T, m *simulated, pods []any, slices ...any) []string {
	t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": slices}
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		case len(slices) > 0 && r.URL.Path == "/apis/resource.k8s.io/v1/resourceslices":
		case r.URL.Path != "/api/v1/pods" || !strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=test-node") ||
			!strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"):
			t.Errorf("it asks for more than the metadata of this node's pods: %s, %s", r.URL, r.Header.Get("Accept"))
			http.Error(w, "no", http.StatusForbidden)
			return
		default:
			list["kind"], list["apiVersion"], list["items"] = "PartialObjectMetadataList", "meta.k8s.io/v1", pods
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		} else {
			_ = json.NewEncoder(w).Encode(list)
		}
	}))
	t.Cleanup(api.Close)
	ca, token := filepath.Join(m.Dir, "ca.crt"), filepath.Join(m.Dir, "token")
	must.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubernetes.pods", "--kubernetes.api-server=" + api.URL, "--kubernetes.ca-file=" + ca,
		"--kubernetes.token-file=" + token}
}

// A scheme of which the kubelet knows nothing is read from annotations; owners and labels come along.
func TestPodMetadata(t *testing.T) {
	t.Parallel()
	const b = "GPU-bbbbbbbb-0000-4000-8000-000000000000"
	m := node(t, twoGPUs, twoPods+"pod team/web-5d4f6c7b8-x container main\n")
	pod := map[string]any{"metadata": map[string]any{"name": "web-5d4f6c7b8-x", "namespace": "team",
		"uid": "99999999-2222-4333-8444-555555555555", "resourceVersion": "5",
		"annotations": map[string]string{"sharedgpu/gpu_uuid": b, "sharedgpu/gpu_mem": "21378367488"},
		"labels":      map[string]string{"pod-template-hash": "5d4f6c7b8", "team": "red", "sharedgpu/gpu_request": "0.5"},
		"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "name": "web-5d4f6c7b8", "controller": true, "apiVersion": "apps/v1",
			"uid": "u"}}}}
	// Whoever may create a pod can write this: it counts where the scheme is configured, or its daemon runs.
	flags := append(apiServer(t, m, []any{pod}), "--kubernetes.pod-label=team")
	if said, _ := m.doctor(flags...); strings.Contains(said, "allocated to  team/") ||
		!strings.Contains(said, "annotations of kubeshare on pods (containers: 1) are ignored") ||
		!strings.Contains(said, "--kubernetes.pod-scheme=kubeshare, if it is installed") {
		t.Errorf("doctor, without the scheme:\n%s", said)
	}
	flags = append(flags, "--kubernetes.pod-scheme=kubeshare")
	// doctor waits for the API server, too, and reads the same.
	if said, _ := m.doctor(flags...); !strings.Contains(said, "ok       source api: up") ||
		!strings.Contains(said, "allocated to  team/web-5d4f6c7b8-x") {
		t.Errorf("doctor:\n%s", said)
	}
	p := m.start(flags...)
	p.until(t, "the annotation names the GPU, the owner the workload", func(s series) error {
		_, share := s.one("gpu_container_allocation_ratio", GPUB, `pod="web-5d4f6c7b8-x"`)
		return all(share, s.is(1, "gpu_pod_info", `pod="web-5d4f6c7b8-x"`, `workload_type="Deployment"`, `workload="web"`,
			`label_team="red"`), s.is(1, "gpu_exporter_source_up", `source="api"`))
	})
	// The token is no secret for a page or a log.
	for _, path := range []string{"/", "/metrics"} {
		if _, body, _ := p.get(path); strings.Contains(body, "secret") {
			t.Errorf("%s holds the token", path)
		}
	}
	if strings.Contains(p.Said(), "secret") {
		t.Error("the log holds the token")
	}
	// A token that is refused costs what the API tells, and nothing else.
	must.OK(t, os.WriteFile(filepath.Join(m.Dir, "token"), []byte("wrong\n"), 0o600))
	refused := node(t, twoGPUs, twoPods+"pod team/web-5d4f6c7b8-x container main\n")
	refused.start(flags...).until(t, "refused, and said so", func(s series) error {
		return all(bothUp(s), s.is(0, "gpu_exporter_source_up", `source="api"`))
	})
}

// A pod that names another's GPU in its annotations, also under a scheme that is in use, has none of it: the GPU stays
// the container's as a whole, with all of its busy time.
func TestPodsThatWriteAllocations(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs+"load gpu=0 busy=50% period=200ms\n", twoPods+"pod evil/x container c\n")
	pod := map[string]any{"metadata": map[string]any{"name": "x", "namespace": "evil", "uid": "99999999-2222-4333-8444-555555555555",
		"resourceVersion": "5", "annotations": map[string]string{"scheduling.koordinator.sh/device-allocated": `{"gpu":[{"id":` +
			`"GPU-aaaaaaaa-0000-4000-8000-000000000000","resources":{"koordinator.sh/gpu-memory-ratio":"100"}}]}`}}}
	m.start(append(apiServer(t, m, []any{pod}), "--kubernetes.pod-scheme=koordinator")...).until(t, "the kubelet's answer stands",
		func(s series) error {
			busy, err := s.one("gpu_container_busy_seconds_total", GPUA, `pod="train-0"`)
			if err == nil && busy < 2 {
				err = fmt.Errorf("%v s busy", busy)
			}
			return all(err, bothUp(s), s.is(1, "gpu_container_allocation_ratio", GPUA, `pod="train-0"`),
				s.is(1, "gpu_container_attribution_info", GPUA, `pod="train-0"`, `method="exclusive"`),
				s.none("gpu_container_allocation_ratio", `pod="x"`), s.is(1, "gpu_container_unresolved_devices", `pod="x"`))
		})
}

// More containers than may have series of their own: the rest are shown as one, and their shares add up.
func TestContainersBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const a = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	replicas := make([]string, 4)
	var pods strings.Builder
	for i := range replicas {
		replicas[i] = fmt.Sprintf("%s::%d", a, i)
		fmt.Fprintf(&pods, "pod team/p%d container c nvidia.com/gpu=%s\n", i, replicas[i])
	}
	m := node(t, twoGPUs, "allocatable nvidia.com/gpu "+strings.Join(replicas, " ")+"\n"+pods.String())
	p := m.start("--container-limit=1")
	p.until(t, "one by its name, three together", func(s series) error {
		return all(s.is(0.25, "gpu_container_allocation_ratio", `pod="p0"`),
			s.is(0.75, "gpu_container_allocation_ratio", `pod="other"`, `namespace=""`),
			s.none("gpu_container_allocation_ratio", `pod="p1"`),
			s.is(1, "gpu_exporter_container_accounts"), s.is(1, "gpu_exporter_container_accounts_limit"),
			s.is(3, "gpu_exporter_container_accounts_aggregated"), s.is(3, "gpu_exporter_container_aggregations_total"),
			s.is(1, "gpu_allocation_ratio", GPUA), s.is(0, "gpu_attribution_error_ratio", GPUA, `quantity="busy"`))
	})
	if _, page, _ := p.get("/"); !strings.Contains(page, "3 containers are aggregated") {
		t.Errorf("the page does not say so:\n%s", page)
	}
}

// A GPU that a plugin gave away under a name that says nothing is not reported as unallocated. Where one device of the
// resource is one GPU, and the checkpoint has which, it is the container's as a whole.
func TestUnreadResources(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, "pod ml/train container main acme.io/accelerator=f3a9c1d2\n")
	p := m.start()
	p.until(t, "both GPUs are unknown", func(s series) error {
		_, err := s.one("gpu_time_seconds_total", GPUA, `state="unknown"`)
		return all(err, s.none("gpu_allocation_ratio"), s.none("gpu_container_unresolved_devices"),
			s.is(0, "gpu_time_seconds_total", GPUA, `state="unallocated"`))
	})
	if said, _ := m.doctor(); !strings.Contains(said, "resource acme.io/accelerator: not read (allocated devices: 1, such as #): "+
		"whether 2 GPUs are unallocated is unknown") {
		t.Errorf("doctor:\n%s", said)
	}
	raw, err := proto.Marshal(&deviceplugin.ContainerAllocateResponse{Envs: map[string]string{
		"NVIDIA_VISIBLE_DEVICES": "GPU-bbbbbbbb-0000-4000-8000-000000000000"}})
	must.OK(t, err)
	path := filepath.Join(m.Dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(path, []byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"main","ResourceName":`+
		`"acme.io/accelerator","DeviceIDs":{"-1":["f3a9c1d2"]},"AllocResp":"`+base64.StdEncoding.EncodeToString(raw)+`"}]},"Checksum":1}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	m.start("--kubelet.checkpoint="+path, "--kubelet.gpu-resource=acme.io/accelerator").until(t, "GPU b is the container's",
		func(s series) error {
			return all(s.is(0, "gpu_allocation_ratio", GPUA), s.is(1, "gpu_allocation_ratio", GPUB),
				s.is(1, "gpu_container_allocation_ratio", GPUB, `pod="train"`))
		})
}

// The pod of a virtual machine has the GPU that is bound to vfio-pci, and says nothing about the others.
func TestVirtualMachineBesideGPUs(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, "pod vms/virt-launcher-win container compute nvidia.com/GA102GL_A10=0000:41:00.0\n")
	device := filepath.Join(m.Trees.Sysfs, "bus/pci/devices/0000:41:00.0")
	if err := errors.Join(os.MkdirAll(device, 0o755), os.WriteFile(filepath.Join(device, "vendor"), []byte("0x10de\n"), 0o600),
		os.WriteFile(filepath.Join(device, "class"), []byte("0x030200\n"), 0o600),
		os.Symlink("../../../../bus/pci/drivers/vfio-pci", filepath.Join(device, "driver"))); err != nil {
		t.Fatal(err)
	}
	m.start().until(t, "two GPUs are unallocated, one is the virtual machine's", func(s series) error {
		_, err := s.one("gpu_container_allocation_ratio", `pod="virt-launcher-win"`, `uuid="0000:41:00.0"`)
		return all(err, s.is(1, "gpu_node_devices", `state="detached"`), s.is(0, "gpu_allocation_ratio", GPUA),
			s.is(0, "gpu_allocation_ratio", GPUB), s.none("gpu_container_unresolved_devices"))
	})
}
