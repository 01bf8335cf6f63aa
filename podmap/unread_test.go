package podmap

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// Which GPUs a device that is not resolved may be, and which are therefore not known to be unallocated.
func TestPossibleGPUs(t *testing.T) {
	const all = "A B C D"
	offered := "nvidia.com/gpu=" + strings.Join([]string{GPUA, GPUB, migD3, migD7}, ",")
	for _, c := range []struct{ name, pod, allocatable, want string }{
		// Names that say nothing.
		{"an unknown plugin", "acme.io/accelerator=f3a9c1d2", "", all},
		{"beside one that offers some GPUs", "acme.io/accelerator=f3a9c1d2", offered, "C"},
		{"beside one that offers all", "acme.io/accelerator=f3a9c1d2", offered + "," + GPUC, ""},
		{"beside one whose IDs do not identify the GPU", "acme.io/accelerator=f3a9c1d2", "nvidia.com/gpu=" + GPUA + "-0", ""},
		{"beside NVIDIA's DRA driver", "acme.io/accelerator=f3a9c1d2 gpu.nvidia.com:x=gpu-3", "", ""},
		{"network devices", "rdma/hca_shared_devices_a=1 openshift.io/sriov_net=0000:af:00.2 example.com/ib-sriov=x", "", ""},
		{"devices of the host", "devices.kubevirt.io/kvm=kvm1 smarter-devices/fuse=f squat.ai/serial=a x.com/pod-eni=1", "", ""},
		{"accelerators of others", "amd.com/gpu=1 aws.amazon.com/neuron=2 google.com/tpu=0 xilinx.com/fpga-x=9", "", ""},
		{"a name that contains letters of another kind", "acme.io/library=1", "", all},
		// Virtual machines.
		{"a GPU that is passed through", "nvidia.com/GA102GL_A10=0000:41:00.0", "", ""},
		{"by the number of its IOMMU group", "nvidia.com/GA102GL_A10=17", "", ""},
		{"a virtual function of GPU C", "nvidia.com/NVIDIA_A40-4Q=0000:3a:00.4", "", "C"},
		{"a mediated device", "nvidia.com/GRID_T4-1Q=" + mdev, "", all},
		{"a mediated device, the other GPUs are offered", "nvidia.com/GRID_T4-1Q=" + mdev, offered, "C"},
	} {
		k := &fakeKubelet{pods: pods("a/p/c " + c.pod), devices: ids(strings.Fields(c.allocatable)...)}
		h := poll(t, newClock().source(k))
		var got []string
		for _, u := range slices.Sorted(maps.Keys(h.Possible)) {
			got = append(got, strings.ToUpper(string(u)[4:5]))
		}
		if strings.Join(got, " ") != c.want || h.Uncertain {
			t.Errorf("%s: %q, uncertain: %v, want %q", c.name, got, h.Uncertain, c.want)
		}
	}
}

// accelerated is the snapshot of a container with one device of acme.io/accelerator, and what it received; nil is unknown.
func accelerated(t *testing.T, env map[string]string, whole ...string) *snapshot {
	t.Helper()
	m := newMap(Options{Clock: newClock().time, Socket: "/run/k.sock", WholeResources: whole},
		&fakeKubelet{pods: pods("a/p/c acme.io/accelerator=f3a9c1d2")})
	must.OK(t, m.Poll(t.Context()))
	s := *m.state.snapshot
	if env != nil {
		key := s.keys[0].entry()
		entries := &source.Checkpoint{Entries: map[source.EntryKey][]*source.Entry{key: {{UID: "u", EntryKey: key,
			Response: source.Response{Env: env}}}}}
		s.match(entries, "/dev", nil)
		s.addReceived(entries, nil)
	}
	return &s
}

// What the container received settles whether a resource is one of GPUs; the resource is listed until then.
func TestUnreadResources(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want int
		may  bool
	}{{nil, 1, true}, {map[string]string{"FOO": "1"}, 0, false}, {map[string]string{"NVIDIA_VISIBLE_DEVICES": GPUA}, 0, false}} {
		s := accelerated(t, c.env)
		h := s.allocations(node(), nil, podLabels{})
		if got := s.unresolved(nil); len(got) != c.want || h.Possible[GPUB] != c.may {
			t.Errorf("%v: %+v, GPU B: %v", c.env, got, h.Possible[GPUB])
		}
	}
}

// Where one device of a resource is one GPU, its containers have them as a whole.
func TestResourcesOfWholeGPUs(t *testing.T) {
	for _, c := range []struct{ whole, devices, want string }{
		{"", GPUA, "a/p/c acme.io/accelerator A ? shared"},
		{"acme.io/accelerator", GPUA, "a/p/c acme.io/accelerator A 1"},
		{"acme.io/accelerator", GPUA + "," + GPUB, "a/p/c acme.io/accelerator unresolved 1"}, // two GPUs of one device
	} {
		s := accelerated(t, map[string]string{"NVIDIA_VISIBLE_DEVICES": c.devices}, c.whole)
		wantLines(t, s.allocations(node(), nil, podLabels{}), c.want)
	}
}
