package podmap

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The node of these tests: minors and indices differ on purpose, GPU D is in MIG mode.
const (
	GPUA  = "GPU-aaaaaaaa-0000-4000-8000-000000000001" // index 0, minor 3
	GPUB  = "GPU-bbbbbbbb-0000-4000-8000-000000000002" // index 1, minor 0
	GPUC  = "GPU-cccccccc-0000-4000-8000-000000000003" // index 2, minor 1
	GPUD  = "GPU-dddddddd-0000-4000-8000-000000000004" // index 3, minor 2, MIG
	gone  = "GPU-99999999-0000-4000-8000-000000000009" // no GPU of this node
	migD3 = "MIG-d3d3d3d3-0000-4000-8000-000000000013" // GI 3: 3g, profile id 9, start 0
	migD7 = "MIG-d7d7d7d7-0000-4000-8000-000000000017" // GI 7: two compute instances
	migD8 = "MIG-d8d8d8d8-0000-4000-8000-000000000018" // the second of them
	mdev  = "0e0e0e0e-0000-4000-8000-00000000000e"
)

func node() *gpu.Inventory {
	return &gpu.Inventory{GPUs: []gpu.InventoryGPU{
		{UUID: GPUA, Index: 0, Minor: gpu.Some(3), PCI: "0000:18:00.0", Memory: gpu.Some[gpu.Bytes](40 << 30)},
		{UUID: GPUB, Index: 1, Minor: gpu.Some(0), PCI: "0000:2a:00.0", Memory: gpu.Some[gpu.Bytes](40 << 30)},
		{UUID: GPUC, Index: 2, Minor: gpu.Some(1), PCI: "0000:3a:00.0"},
		{UUID: GPUD, Index: 3, Minor: gpu.Some(2), PCI: "0000:5d:00.0", MIG: true, Instances: []gpu.Instance{
			{UUID: migD3, GI: 3, Profile: "3g.40gb", Slices: 3, ProfileID: gpu.Some(9), PlacementStart: gpu.Some(0), PlacementSize: gpu.Some(4),
				Compute: []gpu.ComputeInstance{{UUID: migD3, CI: 0, SMs: gpu.Some(60)}}},
			{UUID: migD7, GI: 7, Profile: "3g.40gb", Slices: 3, ProfileID: gpu.Some(9), PlacementStart: gpu.Some(4), PlacementSize: gpu.Some(4),
				Compute: []gpu.ComputeInstance{{UUID: migD7, CI: 0, SMs: gpu.Some(40)}, {UUID: migD8, CI: 1, SMs: gpu.Some(20)}}},
		}},
	}}
}

// found is where one id led: "GPU", "GPU instance", with " part" where the part is not whole, or one of
// "unresolved", "unresolved elsewhere" (on none of this node's GPUs), "ignored".
func found(l lens, id string) string {
	r := l.read(id)
	switch r.verdict {
	case foreign, quantity:
		return "ignored"
	case unknown, lying:
		return "unresolved"
	}
	targets, elsewhere := locate(node(), r.ref)
	switch {
	case len(targets) == 0 && r.ref.perhapsForeign:
		return "ignored"
	case len(targets) == 0 && elsewhere:
		return "unresolved elsewhere"
	case len(targets) == 0:
		return "unresolved"
	}
	var out []string
	for _, t := range targets {
		s := string(t.dev)
		if t.instance != "" {
			s += " " + string(t.instance)
		}
		if t.part != 1 {
			s += fmt.Sprintf(" %.3f", t.part)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func TestEveryIDForm(t *testing.T) {
	bare := strings.TrimPrefix(GPUA, "GPU-")
	for _, c := range []struct{ scheme, resource, id, want string }{
		// NVIDIA's plugin, in all modes, under any name below nvidia.com.
		{"nvidia device plugin", "nvidia.com/gpu", GPUA, GPUA},
		{"nvidia device plugin", "nvidia.com/a100", GPUB, GPUB},
		{"nvidia device plugin", "nvidia.com/gpu", GPUA + "::0", GPUA},
		{"nvidia device plugin", "nvidia.com/gpu.shared", GPUA + "::15", GPUA},
		{"nvidia device plugin", "nvidia.com/gpu", gone, "unresolved elsewhere"},
		{"nvidia device plugin", "nvidia.com/gpu", gone + "::1", "unresolved elsewhere"},
		{"nvidia device plugin", "nvidia.com/gpu", migD3, GPUD + " " + migD3},
		{"nvidia device plugin", "nvidia.com/mig-3g.40gb", migD3, GPUD + " " + migD3},
		{"nvidia device plugin", "nvidia.com/mig-3g.40gb.shared", migD3 + "::2", GPUD + " " + migD3},
		{"nvidia device plugin", "nvidia.com/mig-2c.3g.40gb", migD7, GPUD + " " + migD7 + " 0.667"},
		{"nvidia device plugin", "nvidia.com/mig-1c.3g.40gb", migD8, GPUD + " " + migD7 + " 0.333"},
		{"nvidia device plugin", "nvidia.com/mig-1g.10gb.me", "MIG-" + mdev, "unresolved"},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + GPUD + "/3/0", GPUD + " " + migD3},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + GPUD + "/3/0::1", GPUD + " " + migD3},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + GPUD + "/7/1", GPUD + " " + migD7 + " 0.333"},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + GPUD + "/7/2", "unresolved"},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + GPUD + "/5/0", "unresolved"},
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + gone + "/3/0", "unresolved elsewhere"},
		{"nvidia device plugin", "nvidia.com/gpu", "all", strings.Join([]string{GPUA, GPUB, GPUC, GPUD}, ", ")},
		{"nvidia device plugin", "nvidia.com/gpu", "all::1", strings.Join([]string{GPUA, GPUB, GPUC, GPUD}, ", ")},
		{"nvidia device plugin", "nvidia.com/gpu", "tegra", "unresolved"}, // four GPUs: which?

		// GKE speaks minors: nvidia0 is index 1 here.
		{"gke", "nvidia.com/gpu", "nvidia0", GPUB},
		{"gke", "nvidia.com/gpu", "nvidia3", GPUA},
		{"gke", "nvidia.com/gpu", "nvidia1/vgpu3", GPUC},
		{"gke", "nvidia.com/gpu", "nvidia2/gi3", GPUD + " " + migD3},
		{"gke", "nvidia.com/gpu", "nvidia2/gi7/vgpu0", GPUD + " " + migD7},
		{"gke", "nvidia.com/gpu", "nvidia2/gi4", "unresolved"},
		{"gke", "nvidia.com/gpu", "nvidia9", "unresolved elsewhere"},
		{"", "nvidia.com/gpu", "nvidia03", "unresolved"},
		{"", "nvidia.com/gpu", "nvidia", "unresolved"},
		{"", "nvidia.com/gpu", "nvidia0/gi", "unresolved"},
		{"", "nvidia.com/gpu", "nvidia0/vgpu1/gi0", "unresolved"},
		{"", "nvidia.com/gpu", "nvidia-1", "unresolved"},

		// Honest under one name, a lie under another.
		{"aws virtual gpu", "k8s.amazonaws.com/vgpu", GPUB + "-7", GPUB},
		{"", "k8s.amazonaws.com/vgpu", GPUB, "unresolved"},
		{"hami", "nvidia.com/gpu", GPUB + "-7", "unresolved"},
		{"hami", "nvidia.com/vgpu", GPUB + "-0", "unresolved"},
		{"hami", "nvidia.com/gpu", migD3 + "-0", "unresolved"},
		{"deepomatic shared gpu", "deepomatic.com/shared-gpu", GPUC + "-_-4", GPUC},
		{"aliyun gpushare", "aliyun.com/gpu-mem", GPUC + "-_-4", "unresolved"},
		{"nos", "nvidia.com/gpu-10gb", GPUA + "::2", GPUA},
		{"nvidia device plugin", "nvidia.com/gpu-10gb", migD3 + "::2", GPUD + " " + migD3},
		{"vgpu-manager", "nvidia.com/vgpu-number", GPUA + "::2", "unresolved"},
		{"vgpu-manager", "nvidia.com/vgpu-number", GPUA, "unresolved"},

		// Lies under names of their own.
		{"aliyun gpushare", "aliyun.com/gpu", GPUA, "unresolved"},
		{"tkestack gpu-manager", "tencent.com/vcuda-core", "tencent.com/vcuda-core-17", "unresolved"},
		{"volcano gpushare", "volcano.sh/gpu-memory", "0-13", "unresolved"},
		{"volcano gpushare", "volcano.sh/gpu-number", "1-0", "unresolved"},
		{"volcano-vgpu", "volcano.sh/vgpu-number", GPUA + "-3", "unresolved"},
		{"elastic-gpu", "elasticgpu.io/gpu-core", "0-42", "unresolved"},
		{"elastic-gpu", "elasticgpu.io/gpu-memory", "1-7", "unresolved"},
		{"tencent qgpu", "tke.cloud.tencent.com/qgpu-core", "anything", "unresolved"},
		{"tencent qgpu", "tke.cloud.tencent.com/qgpu-memory", GPUA, "unresolved"},
		{"tencent qgpu", "tke.cloud.tencent.com/qgpu-core-greedy", "x", "unresolved"},

		// Amounts beside a device are no devices.
		{"side quantity", "nvidia.com/gpumem", GPUA + "-5", "ignored"},
		{"side quantity", "nvidia.com/gpucores", "whatever", "ignored"},
		{"side quantity", "nvidia.com/vgpu-memory", GPUA + "::1", "ignored"},
		{"side quantity", "nvidia.com/vgpu-cores", "x", "ignored"},
		{"side quantity", "volcano.sh/vgpu-memory", GPUA + "-memory-5", "ignored"},
		{"side quantity", "volcano.sh/vgpu-cores", GPUA + "-core-5", "ignored"},
		{"side quantity", "tencent.com/vcuda-memory", "tencent.com/vcuda-memory-268435456-3", "ignored"},

		// Virtual machines.
		{"kubevirt passthrough", "nvidia.com/GA102GL_A10", "0000:41:00.0", "unresolved"},
		{"kubevirt passthrough", "nvidia.com/GA102GL_A10", "0000:18:00.0", GPUA},
		{"kubevirt passthrough", "nvidia.com/pgpu", "0000:41:00.0", "unresolved"},
		{"kubevirt vgpu", "nvidia.com/GRID_T4-1Q", mdev, "unresolved"},
		{"pci address", "nvidia.com/my-card", "0000:18:00.0", GPUA},
		{"pci address", "nvidia.com/my-card", "0000:99:00.0", "ignored"},
		{"nvidia network operator", "nvidia.com/GH100_NVSWITCH", "0000:99:00.0", "ignored"},

		// Network GPUs.
		{"nvidia network operator", "nvidia.com/hostdev", "0000:18:00.0", "ignored"},
		{"nvidia network operator", "nvidia.com/mlnxnics", "0000:af:00.2", "ignored"},
		{"nvidia network operator", "nvidia.com/rdma_shared_device_a", "12", "ignored"},
		{"nvidia network operator", "nvidia.com/east-west", "mlx5_core.sf.4", "ignored"},

		// Not GPUs, or nobody's word for it.
		{"", "example.com/cpu", "0-3", "ignored"},
		{"", "rdma/hca", "0000:18:00.0", "ignored"},
		{"", "smarter-devices/fuse", "fuse0", "ignored"},
		{"", "amd.com/gpu", "0000:18:00.0", "ignored"},
		{"unlisted", "example.com/gpu", GPUA, "unresolved"},
		{"unlisted", "example.com/gpu", GPUA + "::3", "unresolved"},
		{"unlisted", "example.com/gpu", "nvidia0", "unresolved"},
		{"named honest", "mine.example/gpu", GPUA, GPUA},
		{"named honest", "mine.example/gpu", GPUA + "::3", GPUA},
		{"named honest", "mine.example/gpu", GPUA + "-3", GPUA},
		{"named honest", "mine.example/gpu", GPUA + "-_-3", GPUA},
		{"named honest", "mine.example/gpu", "nvidia0/gi1/vgpu2", "unresolved"},
		{"", "mine.example/gpu", "0-3", "unresolved"},

		// Shapes nobody knows, under a resource of GPUs.
		{"", "nvidia.com/gpu", "", "unresolved"},
		{"", "nvidia.com/gpu", "GPU-", "unresolved"},
		{"", "nvidia.com/gpu", "GPU-" + bare + "x", "unresolved"},
		{"", "nvidia.com/gpu", bare + "::0", "unresolved"},
		{"", "nvidia.com/gpu", GPUA + "::", "unresolved"},
		{"", "nvidia.com/gpu", GPUA + "::-1", "unresolved"},
		{"", "nvidia.com/gpu", GPUA + "::0::1", "unresolved"},
		{"", "nvidia.com/gpu", GPUA + "::99999999999", "unresolved"},
		{"", "nvidia.com/gpu", "MIG-" + GPUD + "/3", "unresolved"},
		{"", "nvidia.com/gpu", "MIG-" + GPUD + "/3/0/1", "unresolved"},
		{"", "nvidia.com/gpu", " " + GPUA, "unresolved"},
		{"", "nvidia.com/gpu", GPUA + strings.Repeat("0", 64<<10), "unresolved"},
		{"side quantity", "nvidia.com/gpumem", strings.Repeat("0", 64<<10), "ignored"},
	} {
		l := grammar{honest: []string{"mine.example/gpu"}}.lens(c.resource)
		id := c.id
		if len(id) > 80 {
			id = id[:80] + "…"
		}
		if got := l.read(c.id).scheme; got != c.scheme {
			t.Errorf("%s %q was read by %q, want %q", c.resource, id, got, c.scheme)
		}
		if got := found(l, c.id); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.resource, id, got, c.want)
		}
	}
}

func TestEveryDRADeviceName(t *testing.T) {
	for _, c := range []struct{ driver, device, want string }{
		{"gpu.nvidia.com", "gpu-0", GPUB},
		{"gpu.nvidia.com", "gpu-3", GPUA},
		{"gpu.nvidia.com", "gpu-9", "unresolved elsewhere"},
		{"gpu.nvidia.com", "gpu-2-mig-3g40gb-9-0", GPUD + " " + migD3},
		{"gpu.nvidia.com", "gpu-2-mig-3g40gb-9-4", GPUD + " " + migD7},
		{"gpu.nvidia.com", "gpu-2-mig-1g10gb-me-9-4", GPUD + " " + migD7}, // the profile's own dash
		{"gpu.nvidia.com", "gpu-2-mig-9-4-4", GPUD + " " + migD7},
		{"gpu.nvidia.com", "gpu-2-mig-9-4-8", "unresolved"},
		{"gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0", "unresolved"},
		{"gpu.nvidia.com", "gpu-0-mig-3g40gb-9-0", "unresolved"},
		{"gpu.nvidia.com", "gpu-2-mig-9-4", "unresolved"},
		{"gpu.nvidia.com", "gpu-vfio-0", "unresolved elsewhere"},
		{"gpu.nvidia.com", "gpu-vfio-", "unresolved"},
		{"gpu.nvidia.com", "gpu-", "unresolved"},
		{"gpu.nvidia.com", "gpu-0x", "unresolved"},
		{"gpu.nvidia.com", GPUA, "unresolved"},
		{"compute-domain.nvidia.com", "channel-0", "ignored"},
		{"compute-domain.nvidia.com", "gpu-0", "ignored"},
		{"manager.nvidia.com", "gpu-0", "unresolved"},
		{"gpu.intel.com", "gpu-0", "ignored"},
	} {
		if got := found(grammar{}.driverLens(c.driver), c.device); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.driver, c.device, got, c.want)
		}
	}
}

func TestOldDriversCallMIGDevicesByTheirParts(t *testing.T) {
	inv := &gpu.Inventory{GPUs: []gpu.InventoryGPU{{UUID: GPUD, MIG: true, Instances: []gpu.Instance{
		{UUID: "MIG-" + GPUD + "/3/0", GI: 3, Compute: []gpu.ComputeInstance{{UUID: "MIG-" + GPUD + "/3/0"}}}}}}}
	r := grammar{}.lens("nvidia.com/gpu").read("MIG-" + GPUD + "/3/0::4")
	targets, _ := locate(inv, r.ref)
	if len(targets) != 1 || targets[0].instance != "MIG-"+GPUD+"/3/0" {
		t.Errorf("found %+v", targets)
	}
}

func TestOneGPUIsTegra(t *testing.T) {
	inv := &gpu.Inventory{GPUs: node().GPUs[:1]}
	targets, _ := locate(inv, grammar{}.lens("nvidia.com/gpu").read("tegra").ref)
	if len(targets) != 1 || targets[0].dev != GPUA {
		t.Errorf("found %+v", targets)
	}
}

// A GPU that NVML could not name may be any: the id may be its.
func TestANamelessGPUMayBeAnyones(t *testing.T) {
	inv := node()
	inv.GPUs[2].UUID = "0000:3a:00.0"
	inv.GPUs[2].Minor = gpu.None[int]()
	for _, id := range []string{gone, "nvidia9"} {
		if _, elsewhere := locate(inv, (grammar{}).lens("nvidia.com/gpu").read(id).ref); elsewhere {
			t.Errorf("%s is said to lie on no GPU of the node", id)
		}
	}
}

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range append(append([]scheme{namedHonest}, pluginSchemes...), driverSchemes...) {
		if s.name == "" || s.owns == nil || seen[s.name] {
			t.Errorf("row %q: every row has a name of its own, and owns resources", s.name)
		}
		seen[s.name] = true
		if s.verdict == lying && s.truth == "" {
			t.Errorf("row %q lies and does not say where the truth is", s.name)
		}
		if silent := s.name == qgpu.name || s.name == draVGPUManager.name; s.verdict == lying && silent == (s.allocated != nil || s.annotated != nil) {
			t.Errorf("row %q: a scheme that lies has its truth read, but for those of which none is public", s.name)
		}
		if s.verdict == honest && s.read == nil {
			t.Errorf("row %q is believed whatever it says", s.name)
		}
	}
}

func TestShapeOf(t *testing.T) {
	for id, want := range map[string]string{
		GPUA:                     "GPU-#-#-#-#-#",
		"nvidia03":               "#",
		"0000:41:00.0":           "#:#:#.#",
		"beef-cafe":              "#-#",
		"bad":                    "bad",
		"a b\n\x00é":             "a b????",
		"":                       "",
		strings.Repeat("::", 99): strings.Repeat("::", 40),
	} {
		if got := shapeOf(id); got != want {
			t.Errorf("shapeOf(%q) = %q, want %q", id, got, want)
		}
	}
	if n := len(shapeOf(strings.Repeat("x", 64<<10))); n > 200 {
		t.Errorf("a shape of %d bytes", n)
	}
}

// FuzzDeviceID holds what must be true of every id under every name: no GPU that the node lacks, no
// instance on another GPU, no lying scheme believed, shares within the whole.
func FuzzDeviceID(f *testing.F) {
	for _, resource := range []string{"nvidia.com/gpu", "nvidia.com/gpu-10gb", "k8s.amazonaws.com/vgpu", "example.com/x", "gpu.nvidia.com"} {
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
		list := newListing(grammar{honest: []string{"mine.example/gpu"}})
		if err := list.decode(encode(&podresources.ListPodResourcesResponse{
			PodResources: []*podresources.PodResources{{Namespace: "n", Name: "p", Containers: []*podresources.ContainerResources{
				{Name: "a", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id, id}}},
					DynamicResources: []*podresources.DynamicResource{{ClaimName: "c", ClaimResources: []*podresources.ClaimResource{
						{DriverName: resource, DeviceName: id}}}}},
				{Name: "b", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}},
			}}}})); err != nil {
			t.Skip(err)
		}
		able := newAllocatable(grammar{})
		if err := able.decode(encode(&podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
			{ResourceName: resource, DeviceIds: []string{id}}}})); err != nil {
			t.Skip(err)
		}
		r := record{answer: readAnswer(list), capacity: readCapacity(able, capacity{})}
		h := r.resolve(inv, nil)
		shares := map[gpu.UUID]float64{}
		for _, held := range h.List {
			dev, ok := inv.ByUUID(held.GPU)
			if !ok {
				t.Fatalf("%s %q: GPU %s is not there", resource, id, held.GPU)
			}
			if held.Instance != "" {
				if on, _, ok := inv.ByInstance(held.Instance); !ok || on != dev {
					t.Fatalf("%s %q: instance %s is not on %s", resource, id, held.Instance, held.GPU)
				}
			}
			shares[held.GPU+held.Instance] += float64(held.Share.Or(0))
			if !strings.Contains(resource, "nvidia.com") && resource != "k8s.amazonaws.com/vgpu" &&
				resource != "deepomatic.com/shared-gpu" && resource != "mine.example/gpu" {
				t.Fatalf("%s %q is believed", resource, id)
			}
		}
		for at, share := range shares {
			if share > 1+1e-9 {
				t.Fatalf("%s %q: %s is held %v times", resource, id, at, share)
			}
		}
		if len(id) > maxIDLength && len(h.List) > 0 {
			t.Fatalf("an id of %d bytes is believed", len(id))
		}
		if len(shapeOf(id)) > 200 {
			t.Fatalf("shape of %q is long", id)
		}
	})
}
