package deviceid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// found is where one id led: "GPU", "GPU instance", with " part" where the part is not whole, or one of "unresolved",
// "unresolved elsewhere" (on none of this node's GPUs), "ignored".
func found(r Parsed) string {
	switch r.Class {
	case NotGPU, Quantity, Foreign:
		return "ignored"
	case Opaque:
		return "unresolved"
	}
	targets, elsewhere := Locate(node(), r.Ref)
	switch {
	case len(targets) == 0 && r.Ref.MaybeForeign:
		return "ignored"
	case len(targets) == 0 && elsewhere:
		return "unresolved elsewhere"
	case len(targets) == 0:
		return "unresolved"
	}
	var out []string
	for _, t := range targets {
		s := string(t.GPU)
		if t.Instance != "" {
			s += " " + string(t.Instance)
		}
		if t.Part != 1 {
			s += fmt.Sprintf(" %.3f", t.Part)
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
		{"nvidia device plugin", "nvidia.com/gpu", missing, "unresolved elsewhere"},
		{"nvidia device plugin", "nvidia.com/gpu", missing + "::1", "unresolved elsewhere"},
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
		{"nvidia device plugin", "nvidia.com/gpu", "MIG-" + missing + "/3/0", "unresolved elsewhere"},
		{"nvidia device plugin", "nvidia.com/gpu", "all", strings.Join([]string{GPUA, GPUB, GPUC, GPUD}, ", ")},
		{"nvidia device plugin", "nvidia.com/gpu", "all::1", strings.Join([]string{GPUA, GPUB, GPUC, GPUD}, ", ")},
		{"nvidia device plugin", "nvidia.com/gpu", "tegra", "unresolved"}, // four GPUs: which?

		// GKE uses minors: nvidia0 is index 1 here.
		{"gke", "nvidia.com/gpu", "nvidia0", GPUB},
		{"gke", "nvidia.com/gpu", "nvidia3", GPUA},
		{"gke", "nvidia.com/gpu", "nvidia1/vgpu3", GPUC},
		{"gke", "nvidia.com/gpu", "nvidia2/gi3", GPUD + " " + migD3},
		{"gke", "nvidia.com/gpu", "nvidia2/gi7/vgpu0", GPUD + " " + migD7},
		{"gke", "nvidia.com/gpu", "nvidia2/gi4", "unresolved"},
		{"gke", "nvidia.com/gpu", "nvidia9", "unresolved elsewhere"},
		{"unlisted", "nvidia.com/gpu", "nvidia03", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "nvidia", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "nvidia0/gi", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "nvidia0/vgpu1/gi0", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "nvidia-1", "unresolved"},

		// Direct under one name, opaque under another.
		{"aws virtual gpu", "k8s.amazonaws.com/vgpu", GPUB + "-7", GPUB},
		{"unlisted", "k8s.amazonaws.com/vgpu", GPUB, "unresolved"},
		{"hami", "nvidia.com/gpu", GPUB + "-7", "unresolved"},
		{"hami", "nvidia.com/vgpu", GPUB + "-0", "unresolved"},
		{"hami", "nvidia.com/gpu", migD3 + "-0", "unresolved"},
		{"deepomatic shared gpu", "deepomatic.com/shared-gpu", GPUC + "-_-4", GPUC},
		{"aliyun gpushare", "aliyun.com/gpu-mem", GPUC + "-_-4", "unresolved"},
		{"nos", "nvidia.com/gpu-10gb", GPUA + "::2", GPUA},
		{"nvidia device plugin", "nvidia.com/gpu-10gb", migD3 + "::2", GPUD + " " + migD3},
		{"vgpu-manager", "nvidia.com/vgpu-number", GPUA + "::2", "unresolved"},
		{"vgpu-manager", "nvidia.com/vgpu-number", GPUA, "unresolved"},

		// Opaque under names of their own.
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
		{"kubevirt passthrough", "nvidia.com/GA102GL_A10", "0000:41:00.0", "unresolved elsewhere"},
		{"kubevirt passthrough", "nvidia.com/GA102GL_A10", "12", "unresolved elsewhere"},
		{"kubevirt passthrough", "nvidia.com/NVIDIA_A40-4Q", "0000:18:00.4", "unresolved"},
		{"unlisted", "nvidia.com/NVIDIA_A40-4Q", "12", "unresolved"},
		{"kubevirt passthrough", "nvidia.com/GA102GL_A10", "0000:18:00.0", GPUA},
		{"kubevirt passthrough", "nvidia.com/pgpu", "0000:41:00.0", "unresolved elsewhere"},
		{"kubevirt vgpu", "nvidia.com/GRID_T4-1Q", mdev, "unresolved"},
		{"pci address", "nvidia.com/my-gpu", "0000:18:00.0", GPUA},
		{"pci address", "nvidia.com/my-gpu", "0000:99:00.0", "ignored"},
		{"nvidia network operator", "nvidia.com/GH100_NVSWITCH", "0000:99:00.0", "ignored"},

		// Network devices.
		{"nvidia network operator", "nvidia.com/hostdev", "0000:18:00.0", "ignored"},
		{"nvidia network operator", "nvidia.com/mlnxnics", "0000:af:00.2", "ignored"},
		{"nvidia network operator", "nvidia.com/rdma_shared_device_a", "12", "ignored"},
		{"nvidia network operator", "nvidia.com/east-west", "mlx5_core.sf.4", "ignored"},

		// Not GPUs, unless the container received one.
		{"unlisted", "example.com/cpu", "0-3", "ignored"},
		{"unlisted", "rdma/hca", "0000:18:00.0", "ignored"},
		{"unlisted", "smarter-devices/fuse", "fuse0", "ignored"},
		{"unlisted", "amd.com/gpu", "0000:18:00.0", "ignored"},
		{"unlisted", "example.com/gpu", GPUA, "unresolved"},
		{"unlisted", "example.com/gpu", GPUA + "::3", "unresolved"},
		{"unlisted", "example.com/gpu", "nvidia0", "unresolved"},
		{"configured", "mine.example/gpu", GPUA, GPUA},
		{"configured", "mine.example/gpu", GPUA + "::3", GPUA},
		{"configured", "mine.example/gpu", GPUA + "-3", GPUA},
		{"configured", "mine.example/gpu", GPUA + "-_-3", GPUA},
		{"configured", "mine.example/gpu", "nvidia0/gi1/vgpu2", "unresolved"},
		{"unlisted", "mine.example/gpu", "0-3", "unresolved"},

		// Unknown forms under a resource of GPUs.
		{"unlisted", "nvidia.com/gpu", "", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "GPU-", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "GPU-" + bare + "x", "unresolved"},
		{"unlisted", "nvidia.com/gpu", bare + "::0", "unresolved"},
		{"unlisted", "nvidia.com/gpu", GPUA + "::", "unresolved"},
		{"unlisted", "nvidia.com/gpu", GPUA + "::-1", "unresolved"},
		{"unlisted", "nvidia.com/gpu", GPUA + "::0::1", "unresolved"},
		{"unlisted", "nvidia.com/gpu", GPUA + "::99999999999", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "MIG-" + GPUD + "/3", "unresolved"},
		{"unlisted", "nvidia.com/gpu", "MIG-" + GPUD + "/3/0/1", "unresolved"},
		{"unlisted", "nvidia.com/gpu", " " + GPUA, "unresolved"},
		{"unlisted", "nvidia.com/gpu", GPUA + strings.Repeat("0", 64<<10), "unresolved"},
		{"side quantity", "nvidia.com/gpumem", strings.Repeat("0", 64<<10), "ignored"},
	} {
		p := Table{Direct: []string{"mine.example/gpu"}}.Plugin(c.resource)
		id := c.id
		if len(id) > 80 {
			id = id[:80] + "…"
		}
		got := ""
		if s := p.Parse(c.id).Scheme; s != nil {
			got = s.Name
		}
		if got != c.scheme {
			t.Errorf("%s %q was parsed by %q, want %q", c.resource, id, got, c.scheme)
		}
		if got := found(p.Parse(c.id)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.resource, id, got, c.want)
		}
	}
}

func TestEveryDRADeviceName(t *testing.T) {
	for _, c := range []struct{ driver, device, want, cdi string }{
		{"gpu.nvidia.com", "gpu-0", GPUB, ""},
		{"gpu.nvidia.com", "gpu-3", GPUA, ""},
		{"gpu.nvidia.com", "gpu-9", "unresolved elsewhere", ""},
		{"gpu.nvidia.com", "gpu-2-mig-3g40gb-9-0", GPUD + " " + migD3, ""},
		{"gpu.nvidia.com", "gpu-2-mig-3g40gb-9-4", GPUD + " " + migD7, ""},
		{"gpu.nvidia.com", "gpu-2-mig-1g10gb-me-9-4", GPUD + " " + migD7, ""}, // the profile's own dash
		{"gpu.nvidia.com", "gpu-2-mig-9-4-4", GPUD + " " + migD7, ""},
		{"gpu.nvidia.com", "gpu-2-mig-9-4-8", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-0-mig-3g40gb-9-0", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-2-mig-9-4", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-vfio-0", "unresolved elsewhere", ""},
		{"gpu.nvidia.com", "gpu-vfio-", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-", "unresolved", ""},
		{"gpu.nvidia.com", "gpu-0x", "unresolved", ""},
		{"gpu.nvidia.com", GPUA, GPUA, ""},
		{"compute-domain.nvidia.com", "channel-0", "ignored", ""},
		{"compute-domain.nvidia.com", "gpu-0", "ignored", ""},
		{"gpu.nvidia.com", "gpu-x", "unresolved", "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-x"},
		{"hami-core-gpu.project-hami.io", "hami-gpu-0", GPUB, ""},
		{"hami-core-gpu.project-hami.io", "hami-gpu-9", "unresolved elsewhere", ""},
		{"hami-core-gpu.project-hami.io", "gpu-0", "unresolved", ""},
		{"manager.nvidia.com", "vgpu-0", GPUB, ""},
		{"manager.nvidia.com", "gpu-2-mig-9-4-4", GPUD + " " + migD7, ""},
		{"gpu.intel.com", "gpu-0", "ignored", ""},
		{"dranet.example.com", "eth0", "ignored", ""},
		{"tpu.google.com", "0", "ignored", ""},

		// A driver that is not in the table: what its CDI names or its own name of the device contain, or nothing.
		{"gpu.example.com", "gpu-0", "unresolved", ""},
		{"x.example.com", "device-7", "unresolved", "example.com/gpu=7"},
		{"x.example.com", strings.ToLower(GPUA), GPUA, ""},
		{"x.example.com", "device-7", GPUC, "nvidia.com/gpu=2"},
		{"x.example.com", "device-7", GPUC, "example.com/accelerator=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-" + GPUC},
		{"x.example.com", "device-7", GPUD + " " + migD7 + " 0.667", "example.com/gpu=" + migD7},
		{"x.example.com", "device-7", "unresolved", "nvidia.com/gpu=1,nvidia.com/gpu=2"},
		{"x.example.com", "gpu-dab5ab50-d59a-42a6-af16-cfd4628c0f7a", "unresolved", ""}, // a claim's UID
		{"net.example.com", "x", GPUC, "nvidia.com/gpu=" + GPUC},
	} {
		if got := found(Table{}.Claim(c.driver, c.device, c.cdi)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.driver, c.device, got, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range slices.Concat([]*Scheme{&configured, &unlisted}, pluginSchemes, driverSchemes, podSchemes) {
		if s.Name == "" || seen[s.Name] {
			t.Errorf("row %q: every row has a name of its own", s.Name)
		}
		seen[s.Name] = true
		switch {
		case slices.Contains(podSchemes, s):
			if s.annotated == nil || s.Matches != nil || (s.Resource == "") != (s.reserves != nil) {
				t.Errorf("row %q: it has a resource or reserves GPUs, and resolves", s.Name)
			}
			continue
		case s.Matches == nil:
			t.Errorf("row %q matches no resource", s.Name)
		case s.class == Direct && s.parse == nil:
			t.Errorf("row %q takes every ID for a GPU's", s.Name)
		case s.class == Opaque && s.Hint == "":
			t.Errorf("row %q is opaque, and has no hint", s.Name)
		}
	}
}

func TestShape(t *testing.T) {
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
		if got := Shape(id); got != want {
			t.Errorf("Shape(%q) = %q, want %q", id, got, want)
		}
	}
	if n := len(Shape(strings.Repeat("x", 64<<10))); n > 200 {
		t.Errorf("a shape of %d bytes", n)
	}
}

// Each scheme's class decides whether its devices count as GPUs.
func TestClasses(t *testing.T) {
	class := map[Class]string{NotGPU: "nvidia network operator, other devices", Quantity: "side quantity"}
	for _, s := range slices.Concat(pluginSchemes, driverSchemes, podSchemes) {
		for c, names := range class {
			if in := slices.Contains(strings.Split(names, ", "), s.Name); in != (s.class == c) {
				t.Errorf("%s has the class %v", s.Name, s.class)
			}
		}
	}
}
