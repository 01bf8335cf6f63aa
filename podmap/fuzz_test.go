package podmap

import (
	"hash/maphash"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	client "github.com/gpu-exporter/gpu-exporter/podmap/podresources"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// schemeResources is an allocation of every scheme's resource, in two pods of two containers.
var schemeResources = []string{
	"hami/p/one nvidia.com/gpu=" + GPUB + "-1", "hami/p/two nvidia.com/gpu=" + GPUB + "-2," + GPUB + "-3",
	"aliyun/p/one aliyun.com/gpu-mem=" + GPUB + "-_-1," + GPUB + "-_-2", "aliyun/p/two aliyun.com/gpu=x",
	"volcano/p/one volcano.sh/gpu-memory=0-1,0-2", "volcano/p/two volcano.sh/gpu-number=0-1",
	"vvgpu/p/one volcano.sh/vgpu-number=" + GPUB + "-1", "vvgpu/p/two volcano.sh/vgpu-number=" + GPUB + "-2",
	"tencent/p/one tencent.com/vcuda-core=a,b", "tencent/p/two tencent.com/vcuda-core=c",
	"elastic/p/one elasticgpu.io/gpu-core=0-1 elasticgpu.io/gpu-memory=0-1", "elastic/p/two elasticgpu.io/gpu-memory=0-2",
	"vm/p/one nvidia.com/vgpu-number=" + GPUB + "::1", "vm/p/two nvidia.com/vgpu-number=" + GPUB + "::2",
	"qgpu/p/one tke.cloud.tencent.com/qgpu-core=a", "quiet/p/one", "quiet/p/two",
	"kube-system/kubeshare-vgpu-n1-abcde/s nvidia.com/gpu=" + GPUC,
}

// FuzzResolve checks what holds for any response of plugins and any annotation: no panic, no GPU that the node lacks,
// no pod that the kubelet does not list, no GPU allocated more than once.
func FuzzResolve(f *testing.F) {
	for _, s := range allSharing(f) {
		for _, c := range s.cases {
			for _, e := range c.entries {
				f.Add("NVIDIA_VISIBLE_DEVICES", e.response.Envs["NVIDIA_VISIBLE_DEVICES"], "CUDA_DEVICE_MEMORY_LIMIT_0",
					e.response.Envs["CUDA_DEVICE_MEMORY_LIMIT_0"])
				f.Add("ALIYUN_COM_GPU_MEM_CONTAINER", e.response.Envs["ALIYUN_COM_GPU_MEM_CONTAINER"], "ALIYUN_COM_GPU_MEM_DEV",
					e.response.Envs["ALIYUN_COM_GPU_MEM_DEV"])
			}
			for _, p := range c.pods {
				meta := p["metadata"].(map[string]any)
				last := [2]string{}
				for k, v := range meta["annotations"].(map[string]string) {
					f.Add(k, v, last[0], last[1])
					last = [2]string{k, v}
				}
				for k, v := range meta["labels"].(map[string]string) {
					f.Add(k, v, last[0], last[1])
				}
			}
		}
	}
	f.Add("/dev/nvidia0", "nvidia.com/gpu=0", "k8s.device-plugin.nvidia.com/gpu=all", "1:0")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		for _, text := range []string{k1, v1, k2, v2} {
			if !utf8.ValidString(text) {
				t.Skip()
			}
		}
		words := map[string]string{k1: v1, k2: v2}
		c := &sharingCase{lists: schemeResources, links: map[string]string{}}
		table := idTable{seed: maphash.MakeSeed()}
		list := client.NewList(table.filter(true))
		must.OK(t, list.Decode(encode(c.list())))
		r := &snapshot{response: table.parse(list), entries: map[allocationKey]*source.Entry{}}
		// Every container gets the same words as environment and as annotations, then as annotations of its pod.
		entry := &source.Entry{UID: "u", Response: source.Response{Env: words, Annotations: words, Nodes: []string{k1, v1},
			CDI: []string{v2}}}
		for i, key := range r.keys {
			if i%2 == 0 {
				r.entries[key] = entry
			}
		}
		r.addReceived(nil, nil)
		var metas []map[string]any
		for name := range r.order {
			metas = append(metas, map[string]any{"metadata": map[string]any{"namespace": name.Namespace, "name": name.Pod, "uid": "u",
				"labels": words, "annotations": words}})
		}
		metas = append(metas, map[string]any{"metadata": map[string]any{"namespace": "gone", "name": "p", "uid": "x", "labels": words,
			"annotations": words}})
		inv := sharingNode(len(v2)%2 == 0)
		sound(t, inv, c, r.allocations(inv, podsOf(metas), podLabels{}))
		r.allocations(nil, podsOf(metas), podLabels{})
	})
}

// FuzzPreparedClaims reads any file of the DRA driver's.
func FuzzPreparedClaims(f *testing.F) {
	for _, s := range allSharing(f) {
		for _, c := range s.cases {
			if c.dra != "" {
				f.Add([]byte(c.dra))
			}
		}
	}
	list := pods("team/train/main gpu.nvidia.com:x=gpu-3,gpu-2-mig-1g5gb-14-0", "team/one/main gpu.nvidia.com:y=gpu-3@s")
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "checkpoint.json")
		must.OK(t, os.WriteFile(path, data, 0o600))
		m := newMap(Options{DRACheckpoint: path}, &fakeKubelet{pods: list})
		must.OK(t, m.Poll(t.Context()))
		inv := sharingNode(false)
		sound(t, inv, &sharingCase{lists: []string{"team/train/main", "team/one/main"}}, m.Allocations(inv))
	})
}

// FuzzDeviceID checks every ID under every name: no GPU that the node lacks, no instance on another GPU, no direct ID
// of an opaque scheme, shares within the whole.
func FuzzDeviceID(f *testing.F) {
	for _, resource := range []string{"nvidia.com/gpu", "nvidia.com/gpu-10gb", "k8s.amazonaws.com/vgpu", "example.com/x",
		"gpu.nvidia.com"} {
		for _, id := range []string{GPUA, GPUA + "::1", GPUB + "-3", GPUB + "-_-3", migD7, "MIG-" + GPUD + "/7/1", "nvidia2/gi3/vgpu1",
			"gpu-2-mig-3g40gb-9-0", "gpu-3", "0000:18:00.0", "all", "tegra", mdev} {
			f.Add(resource, id)
		}
	}
	inv := node()
	f.Fuzz(func(t *testing.T, resource, id string) {
		if !utf8.ValidString(resource) || !utf8.ValidString(id) {
			t.Skip() // the encoder takes no such text; FuzzDecode does
		}
		table := idTable{deviceid.Table{Direct: []string{"mine.example/gpu"}}, maphash.MakeSeed()}
		list := client.NewList(table.filter(true))
		driver := resource // has no slash
		if strings.Contains(resource, "/") {
			driver = "cpu.example.com"
		}
		if err := list.Decode(encode(&podresources.ListPodResourcesResponse{
			PodResources: []*podresources.PodResources{{Namespace: "n", Name: "p", Containers: []*podresources.ContainerResources{
				{Name: "a", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id, id}}},
					DynamicResources: []*podresources.DynamicResource{{ClaimName: "c", ClaimResources: []*podresources.ClaimResource{
						{DriverName: driver, DeviceName: id}}}}},
				{Name: "b", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}},
			}}}})); err != nil {
			t.Skip(err)
		}
		able := client.NewDevices(table.filter(false))
		if err := able.Decode(encode(&podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
			{ResourceName: resource, DeviceIds: []string{id}}}})); err != nil {
			t.Skip(err)
		}
		r := snapshot{response: table.parse(list), capacity: table.capacity(able, capacity{})}
		r.addReceived(nil, nil)
		h := r.allocations(inv, nil, podLabels{})
		sound(t, inv, &sharingCase{lists: []string{"n/p/a", "n/p/b"}}, h)
		for _, a := range h.List {
			if a.Resource == resource && a.Resource != driver && !strings.Contains(resource, "nvidia.com") &&
				resource != "k8s.amazonaws.com/vgpu" &&
				resource != "deepomatic.com/shared-gpu" && resource != "mine.example/gpu" {
				t.Fatalf("%s %q is direct", resource, id)
			}
		}
		if len(id) > client.MaxIDLength && len(h.List) > 0 {
			t.Fatalf("an ID of %d bytes is parsed", len(id))
		}
		if len(deviceid.Shape(id)) > 200 {
			t.Fatalf("shape of %q is long", id)
		}
	})
}
