package deviceid

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What may be decided without parsing an ID is what parsing it decides.
func TestShortcutsOfAParser(t *testing.T) {
	ids := []string{"", "x", "0", GPUA, GPUA + "-1", GPUA + "::1", migD3, "MIG-GPU", "GPU-", "nvidia0", "nvme0", "0000:18:00.0", "mlx5_1",
		mdev}
	resources := []string{"example.com/cpu", "example.com/gpu", "example.com/x", "nvidia.com/gpu", "nvidia.com/gpumem",
		"nvidia.com/vgpu-number",
		"aliyun.com/gpu-mem", "amd.com/gpu", "intel.com/x", "mine.example/device", "rdma/hca", "tencent.com/vcuda-core",
		"volcano.sh/vgpu-cores"}
	fixed, ignored := 0, 0
	for _, resource := range resources {
		p := Table{Direct: []string{"mine.example/device"}}.Plugin(resource)
		all, isFixed := p.Fixed()
		if isFixed {
			fixed++
		} else if all.Scheme != &unlisted || all.Class != Foreign || all.Ref != (Ref{}) {
			t.Errorf("%s: %+v of IDs that differ", resource, all)
		}
		for _, id := range ids {
			got := p.Parse(id)
			if isFixed && got != all {
				t.Errorf("%s %q is %+v, and every ID %+v", resource, id, got, all)
			}
			if p.Ignores(id) {
				if ignored++; got.Class != Foreign || got.Scheme != &unlisted {
					t.Errorf("%s %q is ignored, and %+v", resource, id, got)
				}
			}
		}
	}
	if fixed != 4 || ignored != 5*6 {
		t.Errorf("%d resources of one meaning, %d ignored IDs", fixed, ignored)
	}
	for resource, want := range map[string]string{"example.com/gpu": "unlisted", "volcano.sh/vgpu-cores": "side quantity",
		"aliyun.com/gpu-mem": "aliyun gpushare", "tencent.com/vcuda-core": "tkestack gpu-manager"} {
		if p, ok := (Table{}).Plugin(resource).Fixed(); !ok || p.Scheme.Name != want || p.Class != p.Scheme.class && p.Scheme != &unlisted {
			t.Errorf("%s: %+v, %v", resource, p, ok)
		}
	}
}

// IDs are parsed up to 512 bytes; what is longer is of no form, and a GPU's only under a resource of GPUs.
func TestLongestIDs(t *testing.T) {
	long := func(id string, n int) string { return id + strings.Repeat("x", n-len(id)) }
	for _, c := range []struct{ resource, id, want string }{
		{"nvidia.com/hostdev", long("", 512), "ignored"},
		{"nvidia.com/hostdev", long("", 513), "unresolved"},
		{"example.com/x", long(GPUA, 512), "unresolved"},
		{"example.com/x", long(GPUA, 513), "ignored"},
		{"example.com/gpu", long(GPUA, 513), "unresolved"},
		{"example.com/x", "MIG-" + GPUA + "x", "unresolved"},
		{"k8s.amazonaws.com/vgpu", migD3 + "-0", "unresolved"}, // has whole GPUs only
		{"deepomatic.com/shared-gpu", migD3 + "-_-0", "unresolved"},
		{"example.com/x", "x" + GPUA, "ignored"},
		{"example.com/x", "nvidia0/gi3/vgpu1", "unresolved"},
		{"example.com/x", "nvidia0x", "ignored"},
	} {
		if got := found(Table{}.Plugin(c.resource).Parse(c.id)); got != c.want {
			t.Errorf("%s %.60s (%d bytes): %s, want %s", c.resource, c.id, len(c.id), got, c.want)
		}
	}
}

// The scheme that a claim's device was parsed by, which explains where its GPU may be recorded.
func TestSchemesOfClaims(t *testing.T) {
	for _, c := range []struct{ driver, device, cdi, want string }{
		{"gpu.nvidia.com", "gpu-0", "", "nvidia dra"},
		{"gpu.nvidia.com", "later", "", "unlisted dra"},
		{"gpu.nvidia.com", "later", "nvidia.com/gpu=0", "unlisted dra"},
		{"hami-core-gpu.project-hami.io", "hami-gpu-0", "", "hami dra"},
		{"manager.nvidia.com", "vgpu-0", "", "vgpu-manager dra"},
		{"x.example.com", "device-7", "", "unlisted dra"},
		{"x.example.com", "device-7", "nvidia.com/gpu=0", "unlisted dra"},
		{"dra.net", "eth0", "", "other devices"},
		{"compute-domain.nvidia.com", "channel-0", "", "other devices"},
	} {
		if got := (Table{}).Claim(c.driver, c.device, c.cdi).Scheme; got == nil || got.Name != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	for _, device := range []string{"gpu-2-mig-3g40gb-9-x", "gpu-2-mig-3g40gb-x-0", "gpu-2-mig--9-0", "gpu-2-mig-9-0", "gpu-2-mig-0",
		"gpu-2-mig-",
		"gpu-02", "gpu-2-mig-3g40gb-9-00", "gpu-vfio-x", "gpu", "xgpu-0", "vgpu-0"} {
		if r, ok := parseDRA(device); ok {
			t.Errorf("%s is %+v", device, r)
		}
	}
}

// Which GPU a reference names, in each of the ways in which plugins name one.
func TestLocations(t *testing.T) {
	nameless := node()
	nameless.GPUs[1].UUID, nameless.GPUs[1].Minor = "0000:2a:00.0", gpu.None[int]()
	equal := node()
	for i := range equal.GPUs {
		equal.GPUs[i].Minor = gpu.Some(i)
	}
	old := node()
	old.GPUs[3].Instances[0].UUID = "MIG-" + GPUD + "/3/0"
	old.GPUs[3].Instances[0].GI, old.GPUs[3].Instances[0].Compute[0].UUID = 5, old.GPUs[3].Instances[0].UUID
	old.GPUs[3].Instances[1].Compute[0].UUID = "" // not known
	parts, _ := ParseNVML("MIG-" + GPUD + "/3/0")
	uuid, _ := ParseNVML(GPUD)
	other, _ := ParseNVML(missing)
	guess := other
	guess.Guessed = true
	pci, _ := ParsePCI("0000:3a:00.0")
	gone, _ := ParsePCI("0000:99:00.0")
	function, _ := ParsePCI("0000:3a:00.4")
	number := func(n int) Ref { return Ref{by: byNumber, number: n} }
	profile := func(id, start int, size ...int) Ref {
		r := Ref{by: byProfile, number: 2, profile: id, start: start}
		if len(size) > 0 {
			r.size = gpu.Some(size[0])
		}
		return r
	}
	for _, c := range []struct {
		name string
		inv  *gpu.Inventory
		r    Ref
		want string // "elsewhere": certainly none of the node's
	}{
		{"nothing", node(), Ref{}, ""},
		{"no inventory", nil, indexRef(0), ""},
		{"a UUID", node(), uuid, "D"},
		{"a UUID beside instances without one", old, uuid, "D"},
		{"another node's", node(), other, "elsewhere"},
		{"another node's, on one where a GPU has no name", nameless, other, ""},
		{"a guess", node(), guess, ""},
		{"parts", node(), parts, "D D3"},
		{"parts of an old driver: the name before the numbers", old, parts, "D MIG-D/3/0"},
		{"a minor number", node(), minorRef(3), "A"},
		{"of no GPU", node(), minorRef(9), "elsewhere"},
		{"of no GPU, on a node where one has none", nameless, minorRef(9), ""},
		{"an index", node(), indexRef(3), "D"},
		{"of no GPU: it may be listed later", node(), indexRef(9), ""},
		{"a number of two GPUs", node(), number(0), ""},
		{"a number of one GPU", equal, number(1), "B"},
		{"a number of none", equal, number(9), ""},
		{"a number of a GPU without a minor number", nameless, number(1), ""},
		{"an address", node(), pci, "C"},
		{"of no GPU", node(), gone, "elsewhere"},
		{"of a virtual function, on the bus of a GPU", node(), function, ""},
		{"of a GPU that is passed through", &gpu.Inventory{GPUs: node().GPUs, Detached: []gpu.InventoryGPU{{UUID: "0000:99:00.0",
			PCI: "0000:99:00.0"}}}, gone, "0000:99:00.0"},
		{"the sole GPU", &gpu.Inventory{GPUs: node().GPUs[1:2]}, Ref{by: bySole}, "B"},
		{"of two", &gpu.Inventory{GPUs: node().GPUs[1:3]}, Ref{by: bySole}, ""},
		{"of none", &gpu.Inventory{}, Ref{by: bySole}, ""},
		{"all", node(), Ref{by: byAll}, "A, B, C, D"},
		{"in a virtual machine", node(), Ref{by: byDetached}, "elsewhere"},
		{"GPU instance", node(), Ref{by: byMinorAndGI, number: 2, gi: 7}, "D D7"},
		{"of another GPU", node(), Ref{by: byMinorAndGI, number: 3, gi: 7}, ""},
		{"of no GPU", node(), Ref{by: byMinorAndGI, number: 9, gi: 7}, "elsewhere"},
		{"profile and place", node(), profile(9, 4), "D D7"},
		{"and size", node(), profile(9, 0, 4), "D D3"},
		{"another size", node(), profile(9, 0, 2), ""},
		{"another place", node(), profile(9, 2), ""},
		{"another profile", node(), profile(19, 0), ""},
		{"a MIG device by index", node(), Ref{by: byMIGIndex, number: 3}, "D D3"},
		{"one of several compute instances", node(), Ref{by: byMIG, uuid: migD8}, "D D7/" + migD8},
		{"by an index that none has", node(), Ref{by: byMIGIndex, number: 3, ci: 5}, ""},
	} {
		targets, elsewhere := Locate(c.inv, c.r)
		var all []string
		for _, at := range targets {
			text := string(at.GPU)
			if at.Instance != "" {
				text += " " + string(at.Instance)
			}
			if at.ComputeInstance != "" {
				text += "/" + string(at.ComputeInstance)
			}
			all = append(all, strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7").Replace(text))
		}
		if elsewhere {
			all = append(all, "elsewhere")
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The part of a GPU instance that a compute instance is, by multiprocessors where all have theirs.
func TestPartsOfAnInstance(t *testing.T) {
	of := func(sms ...int) (all []gpu.ComputeInstance) {
		for i, n := range sms {
			ci := gpu.ComputeInstance{CI: i}
			if n >= 0 {
				ci.SMs = gpu.Some(n)
			}
			all = append(all, ci)
		}
		return all
	}
	for _, c := range []struct {
		all  []gpu.ComputeInstance
		want []float64
	}{{of(60), []float64{1}}, {of(40, 20), []float64{2. / 3, 1. / 3}}, {of(40, -1), []float64{.5, .5}}, {of(0, 20), []float64{.5, .5}},
		{of(1, 1, 2), []float64{.25, .25, .5}}, {of(-1), []float64{1}}} {
		in := gpu.Instance{Compute: c.all}
		for i, want := range c.want {
			if got := float64(in.ComputeShare(i)); math.Abs(got-want) > 1e-12 {
				t.Errorf("%+v: %v, want %v", c.all[i], got, want)
			}
		}
	}
}

// Which GPUs a container received, in the precedence of the runtime: CDI names, names in mounts, the environment, and
// device nodes where none of these names one.
func TestReceivedGPUs(t *testing.T) {
	const cdi = "nvidia.com/gpu="
	env := func(v string) map[string]string { return map[string]string{"NVIDIA_VISIBLE_DEVICES": v} }
	for _, c := range []struct {
		name string
		r    Response
		want string
		gpu  bool // one of NVIDIA's, known or not
	}{
		{"nothing", Response{}, "nil", false},
		{"environment", Response{Env: env("0,2")}, "A, C", true},
		{"a MIG device by index", Response{Env: env("3:0")}, "DD3", true},
		{"CDI before mounts and environment", Response{CDI: []string{cdi + "1"}, Mounts: []string{GPUC}, Env: env("0")}, "B", true},
		{"CDI annotations before mounts and environment", Response{Annotations: map[string]string{"cdi.k8s.io/b": cdi + "2",
			"cdi.k8s.io/a": cdi + "1," +
				cdi + "2", "other": cdi + "0"}, Mounts: []string{GPUA}, Env: env("0")}, "B, C", true},
		{"CDI names before CDI annotations", Response{CDI: []string{cdi + "1"}, Annotations: map[string]string{"cdi.k8s.io/a": cdi + "2"}},
			"B", true},
		{"mounts before the environment", Response{Mounts: []string{GPUC}, Env: env(GPUA)}, "C", true},
		{"other CDI names", Response{CDI: []string{"nvidia.com/gds=all", "x"}, Env: env("0")}, "A", true},
		{"other CDI annotations", Response{Annotations: map[string]string{"cdi.k8s.io/a": "nvidia.com/gds=all"}, Env: env("0")}, "A", true},
		{"an unknown GPU among them", Response{CDI: []string{cdi + "1", cdi + "x"}}, "nil", false},
		{"another vendor's index", Response{CDI: []string{"example.com/gpu=1"}}, "nil", false},
		{"another vendor's UUID", Response{CDI: []string{"example.com/gpu=" + GPUC}}, "C", true},
		{"the plugin's kind", Response{CDI: []string{"k8s.device-plugin.nvidia.com/gpu=1"}}, "B", true},
		{"MIG", Response{CDI: []string{"nvidia.com/mig=3:0"}}, "DD3", true},
		{"a class of no GPUs", Response{CDI: []string{"nvidia.com/nic=1"}}, "nil", false},
		{"nodes", Response{Nodes: []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia3"}}, "B, A", true},
		{"nodes where the environment names none", Response{Env: env("void"), Nodes: []string{"/dev/nvidia0"}}, "B", true},
		{"the environment before nodes", Response{Env: env("0"), Nodes: []string{"/dev/nvidia0"}}, "A", true},
		{"none", Response{Env: env("none")}, "nil", false},
		{"by mounts, of which there are none", Response{Env: env(volumeDevices)}, "nil", false},
		{"all of four", Response{Env: env("all")}, "nowhere", true},
		{"a GPU that is not known", Response{Env: env("what")}, "nil", true},
	} {
		if got := wrote(assign(c.r.received())); got != c.want || c.r.ReceivesGPU() != c.gpu {
			t.Errorf("%s: %s, %v; want %s", c.name, got, c.r.ReceivesGPU(), c.want)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "none none none none"},
		{map[string]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
			"21474836480 0.5 none none"},
		{map[string]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "1=20480M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "x"},
			"none none none none"},
		{map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "2", "NVIDIA_GPU_MEMORY_REQUEST": "1"}, "none none 2097152 1048576"},
		{map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "2", "NVIDIA_GPU_MEMORY_REQUEST": "3"}, "none none 2097152 2097152"},
		{map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "2"}, "none none 2097152 none"},
		{map[string]string{"NVIDIA_GPU_MEMORY_REQUEST": "3"}, "none none none 3145728"},
		{map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "x", "NVIDIA_GPU_MEMORY_REQUEST": "3"}, "none none none 3145728"},
	} {
		r := &Response{Env: c.env}
		memory, compute := r.MPSLimits()
		limit, guaranteed := r.ToolkitLimits()
		if got := fmt.Sprint(opt(memory), " ", opt(compute), " ", opt(limit), " ", opt(guaranteed)); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}

// What is kept of pods and responses is what some scheme reads; anything else may be a secret.
func TestWhatIsKept(t *testing.T) {
	kept := func(wants func(string) bool, names ...string) (out []string) {
		return slices.DeleteFunc(names, func(n string) bool { return !wants(n) })
	}
	if got := kept(WantsEnv, "NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_LIMIT", "ALIYUN_COM_GPU_MEM_IDX", "VOLCANO_GPU_TOTAL",
		"CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT", "CUDA_MEM_LIMIT_0", "CUDA_CORE_LIMIT_0", "MANAGER_VISIBLE_DEVICES",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "PASSWORD", "AWS_SECRET_ACCESS_KEY", "",
		"XNVIDIA_VISIBLE_DEVICES"); len(got) != 11 {
		t.Errorf("%q", got)
	}
	if got := kept(WantsContainerAnnotation, "cdi.k8s.io/x", "tencent.com/vcuda-device", "secret", "x/cdi.k8s.io/"); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if got := kept(WantsAnnotation, volcanoGPUIndex, volcanoVGPUIDs, hamiAllocated, hamiAllocatedOld, hamiMIG, hamiPhase, aliyunAllocation,
		aliyunCores, koordinatorAllocated, kaiFraction, kaiMemory, kaiDevices, kaiContainer, kubeShareUUID, kubeShareMemory,
		kubeShareOldID, kubeShareOldRequest, kubeShareOldMemory, nvFractionsPrefix+"c.gpus.devices", "ALIYUN_COM_GPU_MEM_IDX",
		tencentIndex+"0",
		elasticContainer+"c", "x.io/real-allocated", "kubectl.kubernetes.io/last-applied-configuration", "real-allocated",
		"secret"); len(got) != 23 {
		t.Errorf("%q", got)
	}
}
