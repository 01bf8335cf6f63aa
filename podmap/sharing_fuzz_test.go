package podmap

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"strings"
	"testing"
	"unicode/utf8"

	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// truthResources is a holder of every scheme's resource, in two pods of two containers.
var truthResources = []string{
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

// FuzzTruth holds what must be true whatever plugins answer and schedulers write: no panic, no GPU that the node
// lacks, no pod that the kubelet does not list, no GPU held more than once.
func FuzzTruth(f *testing.F) {
	for _, s := range allSharing(f) {
		for _, c := range s.cases {
			for _, e := range c.entries {
				f.Add("NVIDIA_VISIBLE_DEVICES", e.answer.Envs["NVIDIA_VISIBLE_DEVICES"], "CUDA_DEVICE_MEMORY_LIMIT_0", e.answer.Envs["CUDA_DEVICE_MEMORY_LIMIT_0"])
				f.Add("ALIYUN_COM_GPU_MEM_CONTAINER", e.answer.Envs["ALIYUN_COM_GPU_MEM_CONTAINER"], "ALIYUN_COM_GPU_MEM_DEV", e.answer.Envs["ALIYUN_COM_GPU_MEM_DEV"])
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
		c := &sharingCase{lists: truthResources, links: map[string]string{}}
		list := newListing(grammar{})
		if err := list.decode(encode(c.list())); err != nil {
			t.Fatal(err)
		}
		r := &record{answer: readAnswer(list)}
		// Every holder gets the same words as environment and as annotations, then as annotations of its pod.
		alloc := &allotment{uid: "u", env: keep(words, wantedEnv), annotations: keep(words, wantedContainerAnnotation), nodes: []string{k1, v1}, beside: &beside{map[string]int{}}}
		if isGPUName(v2) {
			alloc.cdi = []string{v2}
		}
		r.matched = map[holderKey]*allotment{}
		for i, h := range r.answer.held {
			if i%2 == 0 {
				r.matched[h] = alloc
			}
		}
		w := newPodWatch(APIOptions{}, nil, nil, nil)
		var metas []map[string]any
		for key := range r.answer.order {
			metas = append(metas, map[string]any{"metadata": map[string]any{"namespace": key.namespace, "name": key.name, "uid": "u",
				"labels": words, "annotations": words}})
		}
		metas = append(metas, map[string]any{"metadata": map[string]any{"namespace": "gone", "name": "p", "uid": "x", "labels": words, "annotations": words}})
		inv := sharingNode(len(v2)%2 == 0)
		sound(t, inv, c, r.resolve(inv, podTableOf(t, w, metas)))
		r.resolve(nil, podTableOf(t, w, metas))
	})
}

func FuzzVisible(f *testing.F) {
	for _, list := range []string{GPUA, GPUA + "," + migD3, "0,1", "0:1", "all", "none", "void", "nvidia.com/gpu=gpu0", "nvidia.com/mig=mig0:1", ",", "no-gpu-has-3GiB-to-run"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		refs, ok := readVisible(list)
		if ok != (len(refs) > 0) || len(refs) > mostNames || len(refs) > strings.Count(list, ",")+1 {
			t.Fatalf("%q gives %d refs, %v", list, len(refs), ok)
		}
		for _, r := range refs {
			targets, _ := locate(node(), r)
			for _, at := range targets {
				if _, ok := node().ByUUID(at.dev); !ok {
					t.Fatalf("%q gives GPU %s", list, at.dev)
				}
			}
		}
	})
}

// FuzzCheckpoint reads any file: it is an error, or its entries have names and what is kept of them is bounded.
func FuzzCheckpoint(f *testing.F) {
	for _, s := range allSharing(f) {
		for _, c := range s.cases {
			var small []checkpointEntry
			for _, e := range c.entries {
				if ids, ok := e.DeviceIDs.(map[string][]string); ok && len(ids["-1"]) < 10 {
					small = append(small, e)
				}
			}
			f.Add(checkpointFile(f, small))
		}
	}
	f.Add(checkpointFile(f, []checkpointEntry{{PodUID: "u", ContainerName: "c", ResourceName: "r", DeviceIDs: []string{"a"},
		answer: &deviceplugin.ContainerAllocateResponse{Mounts: []*deviceplugin.Mount{{ContainerPath: volumeDevices + "/0"}}}}}))
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readCheckpoint(bytes.NewReader(data), seed)
		if err != nil {
			if got != nil {
				t.Fatal("an error, and entries")
			}
			return
		}
		for key, entries := range got.entries {
			for _, e := range entries {
				if e.uid == "" || key.container == "" || key.resource == "" || e.container != key.container || e.resource != key.resource || e.ids != key.ids {
					t.Fatalf("%+v under %+v", e, key)
				}
				if len(e.env) > mostNames || len(e.nodes) > mostNames || len(e.uid) > maxIDLength {
					t.Fatal("unbounded")
				}
				e.visible()
				e.minors(e.nodes)
			}
		}
		if !json.Valid(data) && len(got.entries) > 0 {
			// What stands behind the end of the file's object is not read; the object itself was whole.
			d := json.NewDecoder(bytes.NewReader(data))
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatalf("entries of a file that is broken: %v", err)
			}
		}
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
	list := newListing(grammar{})
	if err := list.decode(encode(pods("team/train/main gpu.nvidia.com:x=gpu-3,gpu-2-mig-1g5gb-14-0", "team/one/main gpu.nvidia.com:y=gpu-3@s"))); err != nil {
		f.Fatal(err)
	}
	a := readAnswer(list)
	f.Fuzz(func(t *testing.T, data []byte) {
		claims, err := readPreparedClaims(bytes.NewReader(data))
		if (err == nil) != (claims != nil) {
			t.Fatal(claims, err)
		}
		inv := sharingNode(false)
		sound(t, inv, &sharingCase{lists: []string{"team/train/main", "team/one/main"}}, (&record{answer: a, prepared: claims}).resolve(inv, nil))
	})
}

// FuzzAPI reads any list and any event.
func FuzzAPI(f *testing.F) {
	f.Add([]byte(apiPod("a/p", "u", "1", "label:runai-gpu-group=g", hamiAllocated+"=x")))
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"n","labels":null,"ownerReferences":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o apiObject
		if json.Unmarshal(data, &o) != nil {
			return
		}
		w := newPodWatch(APIOptions{}, newClock().time, nil, nil)
		for _, kind := range []string{"ADDED", "DELETED"} {
			table, err := w.apply(kind, &o)
			if err != nil {
				continue
			}
			for _, key := range table.keys() {
				p := table.pods[key]
				if key.name == "" || len(p.labels) > mostLabels || len(p.annotations) > mostNames {
					t.Fatalf("%+v %+v", key, p)
				}
			}
		}
	})
}
