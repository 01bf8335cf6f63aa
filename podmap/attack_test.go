package podmap

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// attacks is what the author of a pod may write under each scheme to get the GPU of index 0; {} is its UUID. The formats
// are those of testdata/sharing. Devices are what the kubelet lists for the pod under schemes of device plugins.
var attacks = map[string]struct {
	devices             string
	annotations, labels map[string]string
}{
	"koordinator": {annotations: map[string]string{
		"scheduling.koordinator.sh/device-allocated": `{"gpu":[{"minor":0,"id":"{}","resources":{"koordinator.sh/gpu-core":"100"}}]}`}},
	"kubeshare": {annotations: map[string]string{"sharedgpu/gpu_uuid": "{}"}, labels: map[string]string{"sharedgpu/gpu_request": "1"}},
	"nvfractions": {annotations: map[string]string{"nvidia.com/container.c.gpus.devices": "{}",
		"nvidia.com/container.c.gpu-memory.limit": "40Gi"}},
	"kai": {annotations: map[string]string{"run.ai/reserve_for_gpu_index": "{}", "gpu-fraction": "1"},
		labels: map[string]string{"runai-gpu-group": "{}"}},
	"kubeshare 1": {annotations: map[string]string{"kubeshare/GPUID": "{}", "kubeshare/gpu_request": "1"}},
	"hami": {devices: "nvidia.com/gpu=" + GPUB + "-0", annotations: map[string]string{
		"hami.io/vgpu-devices-allocated": "{},NVIDIA,40960,100:;", "hami.io/bind-phase": "success"}},
	"aliyun gpushare": {devices: "aliyun.com/gpu-mem=" + GPUB + "-_-1", annotations: map[string]string{
		"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_DEV": "1"}},
	"tkestack gpu-manager": {devices: "tencent.com/vcuda-core=tencent.com/vcuda-core-0",
		annotations: map[string]string{"tencent.com/predicate-gpu-idx-0": "0"}},
	"elastic-gpu": {devices: "elasticgpu.io/gpu-core=1-0", annotations: map[string]string{"elasticgpu.io/container-c": "0"}},
	"volcano gpushare": {devices: "volcano.sh/gpu-number=1-0", annotations: map[string]string{
		"volcano.sh/gpu-index": "0"}},
	"volcano-vgpu": {devices: "volcano.sh/vgpu-number=" + GPUB + "-3", annotations: map[string]string{
		"volcano.sh/vgpu-ids-new": "{},NVIDIA,40960,100:"}},
	"vgpu-manager": {devices: "nvidia.com/vgpu-number=" + GPUB + "::0", annotations: map[string]string{
		"nvidia.com/real-allocated": "c[0_{}_100_40960]"}},
	"tencent qgpu": {devices: "tke.cloud.tencent.com/qgpu-core=x-1"}, // no annotation is read
}

// attack is an attacker's pod that names a GPU, beside what the kubelet lists of others.
func attack(t *testing.T, scheme string, index int, asked bool, others ...string) (*Map, gpu.Allocations) {
	t.Helper()
	a, inv := attacks[scheme], sharingNode(true)
	write := func(all map[string]string) map[string]string {
		out := map[string]string{}
		for key, value := range all {
			value = strings.ReplaceAll(value, "{}", string(inv.GPUs[index].UUID))
			if index > 0 && (value == "0" || key == "ALIYUN_COM_GPU_MEM_IDX") {
				value = "2"
			}
			out[key] = value
		}
		return out
	}
	m := newClock().source(&fakeKubelet{pods: pods(append(others, strings.TrimSpace("evil/x/c "+a.devices))...)})
	if asked {
		m.options.PodSchemes = deviceid.DaemonSchemes()
	}
	m.watch = &fakeWatch{source.NewPods(map[gpu.PodName]*source.Pod{
		{Namespace: "evil", Pod: "x"}:  {UID: "x", Annotations: write(a.annotations), Labels: write(a.labels)},
		{Namespace: "team", Pod: "ok"}: {UID: "ok"}})}
	must.OK(t, m.Poll(t.Context()))
	return m, m.Allocations(inv)
}

// Whoever may create a pod writes its annotations. Under no scheme do they take a GPU from the container that the kubelet
// lists for it, or make its GPU a shared one; and without the scheme's daemon no GPU becomes theirs.
func TestAnnotationsTakeNothing(t *testing.T) {
	var schemes []*deviceid.Scheme
	for _, s := range slices.Concat(deviceid.PodSchemes(), deviceid.OpaqueSchemes()) {
		if _, ok := attacks[s.Name]; !ok {
			t.Errorf("%s is not attacked", s.Name)
			continue
		}
		schemes = append(schemes, s)
	}
	const listed = "team/ok/main nvidia.com/gpu A 1 podresources"
	for _, s := range schemes {
		plugin := attacks[s.Name].devices != ""
		for _, asked := range []bool{false, true} {
			_, h := attack(t, s.Name, 0, asked, "team/ok/main nvidia.com/gpu="+GPUA)
			got := sharingLines(h)
			if !slices.Contains(got, listed) || len(h.List) != 1 {
				t.Errorf("%s, configured: %v: %q", s.Name, asked, got)
			}
			if h.Uncertain != plugin {
				t.Errorf("%s, configured: %v: uncertain: %v", s.Name, asked, h.Uncertain)
			}
		}
		// A GPU that nobody has.
		m, h := attack(t, s.Name, 2, false, "team/ok/main nvidia.com/gpu="+GPUA)
		if got := sharingLines(h); !plugin && !slices.Equal(got, []string{listed}) {
			t.Errorf("%s, an unallocated GPU: %q", s.Name, got)
		}
		if list := m.Unrecognized(); s.Daemon.Pod != "" && (len(list) != 1 || !list[0].Ignored || list[0].Scheme != s.Name) {
			t.Errorf("%s: the annotations are ignored without a word: %+v", s.Name, list)
		}
	}
}

// An annotation of a device that the kubelet lists gets what the limits of other containers leave of a shared GPU, whatever
// memory it names.
func TestAnnotationsGetWhatIsLeft(t *testing.T) {
	m, _ := attack(t, "hami", 0, false, "team/ok/main example.com/vgpu=x")
	s := *m.state.snapshot
	for _, o := range s.opaque {
		if o.resource == "example.com/vgpu" {
			s.entries = map[allocationKey]*source.Entry{o.allocationKey: {UID: "ok", Response: source.Response{Env: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": GPUA, "CUDA_DEVICE_MEMORY_LIMIT_0": "24576m"}}}}
		}
	}
	h := s.allocations(sharingNode(true), m.podMetadata(), podLabels{})
	if got, want := sharingLines(h), []string{"evil/x/c nvidia.com/gpu A 0.4 shared 40960MiB 100% annotation",
		"team/ok/main example.com/vgpu A 0.6 shared 24576MiB checkpoint"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A reservation counts only in the namespaces of KAI's and run:ai's own: another of the same group, in a namespace of a
// user, would make the GPU of the group ambiguous.
func TestReservationsOfUsers(t *testing.T) {
	m := newClock().source(&fakeKubelet{pods: pods("kai-resource-reservation/r/c nvidia.com/gpu="+GPUA, "team/ok/main",
		"evil/x/c nvidia.com/gpu="+GPUB)})
	group := map[string]string{"runai-gpu-group": "g1"}
	user := func(uid, key, value string) *source.Pod {
		return &source.Pod{UID: uid, Labels: group, Annotations: map[string]string{key: value}}
	}
	m.watch = &fakeWatch{source.NewPods(map[gpu.PodName]*source.Pod{
		{Namespace: "kai-resource-reservation", Pod: "r"}: {UID: "r", Labels: group},
		{Namespace: "evil", Pod: "x"}:                     user("x", "run.ai/reserve_for_gpu_index", GPUB),
		{Namespace: "team", Pod: "ok"}:                    user("ok", "gpu-fraction", "0.5")})}
	wantLines(t, poll(t, m), "evil/x/c nvidia.com/gpu B 1", "team/ok/main nvidia.com/gpu A 0.5 shared")
}
