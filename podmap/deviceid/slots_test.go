package deviceid

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// siblings parses "a:1 b:2".
func siblings(text string) (out []Sibling) {
	for word := range strings.FieldsSeq(text) {
		var s Sibling
		name, n, _ := strings.Cut(word, ":")
		s.Name = name
		fmt.Sscan(n, &s.Devices)
		out = append(out, s)
	}
	return out
}

// Which of a pod's slots is a container's. As many slots as containers are matched in order; with more, only the last
// container of the pod is certain, which is no init container.
func TestSlots(t *testing.T) {
	for _, c := range []struct {
		name, siblings, container string
		devices                   int
		counts                    []int
		tail, last                bool
		want                      int // -1: unknown
	}{
		{"the only one", "a:1", "a", 1, []int{1}, true, true, 0},
		{"the first of two", "a:1 b:2", "a", 1, []int{1, 2}, true, false, 0},
		{"the second of two", "a:1 b:2", "b", 2, []int{1, 2}, true, true, 1},
		{"another number of devices", "a:1", "a", 1, []int{2}, true, true, -1},
		{"a sibling's number", "a:1 b:2", "a", 1, []int{1, 1}, true, false, -1},
		{"a number that is not stated", "a:1 b:2", "b", 2, []int{anyCount, anyCount}, true, true, 1},
		{"fewer slots", "a:1 b:1", "b", 1, []int{1}, true, true, -1},
		{"none", "a:1", "a", 1, nil, false, true, -1},
		{"one more: the last container", "b:1", "b", 1, []int{3, 1}, true, true, 1},
		{"one more: not the last container", "b:1", "b", 1, []int{3, 1}, true, false, -1},
		{"one more: not the last slot of the pod", "b:1", "b", 1, []int{3, 1}, false, true, -1},
		{"one more: of another number", "b:1", "b", 1, []int{3, 2}, true, true, -1},
		{"one more: not stated", "b:1", "b", 1, []int{anyCount, anyCount}, true, true, 1},
		{"one more, of two siblings", "a:1 b:1", "b", 1, []int{1, 1, 1}, true, true, 2},
		{"no sibling itself", "a:1", "b", 1, []int{1}, true, true, -1},
		{"listed twice", "a:1 a:1", "a", 1, []int{1, 1}, true, true, -1},
		{"no siblings", "", "a", 1, []int{1}, true, true, -1},
	} {
		req := &Request{Container: gpu.Container{Name: c.container}, Devices: c.devices, Siblings: siblings(c.siblings), Last: c.last}
		at, ok := req.slot(c.counts, c.tail)
		if ok != (c.want >= 0) || ok && at != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, at, ok, c.want)
		}
	}
}

// wrote renders assignments: the GPU by its index or name, memory in MiB and time where they are limited.
func wrote(gpus []Assignment) string {
	if gpus == nil {
		return "nil"
	}
	var out []string
	for _, a := range gpus {
		text := "?"
		switch {
		case a.Group != "":
			text = "group " + a.Group
		case a.Ref != Ref{}:
			targets, _ := Locate(node(), a.Ref)
			text = "nowhere"
			if len(targets) == 1 {
				text = strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7").Replace(
					string(targets[0].GPU + targets[0].Instance))
			}
		}
		for name, o := range map[string]gpu.Opt[gpu.Bytes]{" ": a.memory} {
			if b, ok := o.Get(); ok {
				text += fmt.Sprintf("%s%gMiB", name, float64(b)/mib)
			}
		}
		if b, ok := a.Guaranteed.Get(); ok {
			text += fmt.Sprintf(" (%gMiB)", float64(b)/mib)
		}
		for _, f := range []struct {
			unit string
			o    gpu.Opt[float64]
		}{{"", a.Compute}, {" part", a.part}, {" fraction", a.fraction}} {
			if v, ok := f.o.Get(); ok {
				text += fmt.Sprintf("%s %g", f.unit, v)
			}
		}
		if a.units > 0 || a.total > 0 || a.pool > 0 {
			text += fmt.Sprintf(" %g/%g/%g", a.units, a.total, a.pool)
		}
		if a.relative {
			text += " relative"
		}
		if a.Exclusive {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// request is of container c with one device; words set annotations "@k=v", labels "#k=v" and variables "k=v".
func request(resource string, devices int, words ...string) *Request {
	req := &Request{Container: gpu.Container{Namespace: "n", Pod: "p", Name: "c"}, Resource: resource, Devices: devices, Inventory: node(),
		Last:     true,
		Siblings: []Sibling{{"c", devices}}, Amounts: map[string]int{resource: devices}, Response: &Response{Env: map[string]string{}},
		Pod: &Pod{Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k[0] {
		case '@':
			req.Pod.Annotations[k[1:]] = v
		case '#':
			req.Pod.Labels[k[1:]] = v
		case '+':
			fmt.Sscan(v, &devices)
			req.Amounts[k[1:]] = devices
		case '/':
			req.Response.Nodes = append(req.Response.Nodes, w)
		default:
			req.Response.Env[k] = v
		}
	}
	return req
}

// nvf begins annotations of container c by NvFractions, and gpuC is that of its GPU.
const nvf, gpuC = "@nvidia.com/container.c.", "@nvidia.com/container.c.gpus.devices=" + GPUC

// What each scheme reads from the annotations of a pod, and what of them it does not take for its own.
func TestAnnotationsOfSchemes(t *testing.T) {
	fill := func(text string, n int) string { return text + strings.Repeat(" ", n-len(text)) }
	const at = "@" + hamiAllocated + "="
	koord := func(text string) *Request { return request("", 0, "@"+koordinatorAllocated+"="+text) }
	koordC := func(resources string) *Request {
		return koord(`{"gpu":[{"id":"` + GPUC + `","resources":{` + resources + `}}]}`)
	}
	manager := func(devices int, text string) *Request {
		return request("nvidia.com/vgpu-number", devices, "@nvidia.com/real-allocated="+text)
	}
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat(GPUA+",NVIDIA,1,1:", n), ":") }
	for _, c := range []struct {
		name   string
		scheme *Scheme
		req    *Request
		want   string
	}{
		{"hami", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1024,30:;"), "C 1024MiB 0.3"},
		{"hami, up to 2.3", &hami, request("nvidia.com/gpu", 1, "@"+hamiAllocatedOld+"="+GPUC+",NVIDIA,1024,30:;"), "C 1024MiB 0.3"},
		{"hami, both", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,0,0:;", "@"+hamiAllocatedOld+"="+GPUB+",NVIDIA,1,1:;"), "C"},
		{"hami, nothing", &hami, request("nvidia.com/gpu", 1), "nil"},
		{"hami, a slot without a GPU first", &hami, request("nvidia.com/gpu", 1, at+";"+GPUC+",NVIDIA,1,0:;"), "C 1MiB"},
		{"hami, two GPUs", &hami, request("nvidia.com/gpu", 2, at+GPUC+",NVIDIA,1,0:"+GPUB+",NVIDIA,2,0:;"), "C 1MiB, B 2MiB"},
		{"hami, spaces", &hami, request("nvidia.com/gpu", 1, at+" "+GPUC+",NVIDIA,1,0: ; "), "C 1MiB"},
		{"hami, more fields", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0,later:;"), "C 1MiB"},
		{"hami, fewer fields", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1:;"), "nil"},
		{"hami, no UUID", &hami, request("nvidia.com/gpu", 1, at+"x,NVIDIA,1,0:;"), "nil"},
		{"hami, a container's GPU that is none", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;x,NVIDIA,1,0:;"), "nil"},
		{"hami, the most GPUs", &hami, request("nvidia.com/gpu", maxRefs, at+many(maxRefs)),
			strings.TrimSuffix(strings.Repeat("A 1MiB 0.01, ", maxRefs), ", ")},
		{"hami, more", &hami, request("nvidia.com/gpu", maxRefs+1, at+many(maxRefs+1)), "nil"},
		{"hami, the longest", &hami, request("nvidia.com/gpu", 1, at+fill(GPUC+",NVIDIA,1,0:", maxText)), "C 1MiB"},
		{"hami, longer", &hami, request("nvidia.com/gpu", 1, at+fill(GPUC+",NVIDIA,1,0:", maxText+1)), "nil"},
		{"hami, a failed binding", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;", "@"+hamiPhase+"=failed"), "nil"},
		{"hami, a binding", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;", "@"+hamiPhase+"=success"), "C 1MiB"},
		{"hami, a MIG template", &hami, request("nvidia.com/gpu", 1, at+GPUD+"[1-0],NVIDIA,1,0:;"), "nil"},
		{"hami, a MIG template and its device", &hami, request("nvidia.com/gpu", 1, at+GPUD+"[1-0],NVIDIA,1,0:;",
			`@`+hamiMIG+`=[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"`+GPUD+`","migUUID":"`+migD7+`"}]`), "DD7 1MiB"},
		{"hami, a MIG device of another GPU", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;",
			`@`+hamiMIG+`=[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"`+GPUD+`","migUUID":"`+migD7+`"}]`), "nil"},
		{"hami, a MIG device of another container", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;",
			`@`+hamiMIG+`=[{"containerIndex":1,"deviceIndex":0,"gpuUUID":"`+GPUD+`","migUUID":"`+migD7+`"}]`), "C 1MiB"},
		{"hami, invalid MIG devices", &hami, request("nvidia.com/gpu", 1, at+GPUC+",NVIDIA,1,0:;", "@"+hamiMIG+"=["), "nil"},

		{"volcano-vgpu: the unit is private", &volcanoVGPU, request(volcanoVGPUNumber, 1, "@"+volcanoVGPUIDs+"="+GPUC+",NVIDIA,1,30:;"),
			"C 0.3"},
		{"volcano-vgpu, a MIG template", &volcanoVGPU, request(volcanoVGPUNumber, 1, "@"+volcanoVGPUIDs+"="+GPUD+"[1-0],NVIDIA,1,30:;"),
			"nil"},

		{"volcano, memory", &volcanoGPUShare, request("volcano.sh/gpu-memory", 10, "@"+volcanoGPUIndex+"=2"), "C 10/0/0 relative"},
		{"volcano, memory of two GPUs", &volcanoGPUShare, request("volcano.sh/gpu-memory", 10, "@"+volcanoGPUIndex+"=1,2"), "nil"},
		{"volcano, whole GPUs", &volcanoGPUShare, request(volcanoNumber, 2, "@"+volcanoGPUIndex+"=1,2"), "B!, C!"},
		{"volcano, another number", &volcanoGPUShare, request(volcanoNumber, 1, "@"+volcanoGPUIndex+"=1,2"), "nil"},
		{"volcano, nothing", &volcanoGPUShare, request(volcanoNumber, 0), "nil"},

		{"aliyun", &aliyun, request(aliyunMemory, 10, "@"+aliyunGPU+"=2", "@"+aliyunGPUTotal+"=40"), "C 10/40/0"},
		{"aliyun, no total", &aliyun, request(aliyunMemory, 10, "@"+aliyunGPU+"=2"), "C 10/0/0"},
		{"aliyun, cores", &aliyun, request(aliyunMemory, 10, "@"+aliyunGPU+"=2", "+"+aliyunCoreIDs+"=30"), "C 0.3 10/0/0"},
		{"aliyun, no index", &aliyun, request(aliyunMemory, 10, "@"+aliyunGPU+"=x"), "nil"},
		{"aliyun, whole GPUs are not on the pod", &aliyun, request("aliyun.com/gpu", 1, "@"+aliyunGPU+"=2"), "nil"},
		{"aliyun, allocation", &aliyun, request(aliyunMemory, 10, "@"+aliyunAllocation+`={"0":{"1":4,"2":6}}`,
			`@`+aliyunCores+`={"0":{"2":50}}`),
			"B 4/0/0, C 0.5 6/0/0"},
		{"aliyun, allocation before the index", &aliyun, request(aliyunMemory, 10, "@"+aliyunAllocation+`={"0":{"1":10}}`,
			"@"+aliyunGPU+"=2"), "B 10/0/0"},
		{"aliyun, allocation of cores too", &aliyun, request(aliyunMemory, 10, "@"+aliyunAllocation+`={"0":{"1":10}}`,
			"+"+aliyunCoreIDs+"=30"), "B 0.3 10/0/0"},
		{"aliyun, another amount", &aliyun, request(aliyunMemory, 10, "@"+aliyunAllocation+`={"0":{"1":9}}`), "nil"},
		{"aliyun, no allocation", &aliyun, request(aliyunMemory, 10, "@"+aliyunAllocation+`={`, "@"+aliyunGPU+"=2"), "nil"},

		{"kai: a fraction", &kai, request("", 0, "#"+kaiGroup+"=g", "@"+kaiFraction+"=1"), "group g fraction 1"},
		{"kai: no number", &kai, request("", 0, "#"+kaiGroup+"=g", "@"+kaiFraction+"=0"), "group g"},
		{"kai: more than one", &kai, request("", 0, "#"+kaiGroup+"=g", "@"+kaiFraction+"=1.01"), "group g"},
		{"kai: a fraction before memory", &kai, request("", 0, "#"+kaiGroup+"=g", "@"+kaiFraction+"=x", "@"+kaiMemory+"=5"), "group g"},
		{"kai: memory", &kai, request("", 0, "#"+kaiGroup+"=g", "@"+kaiMemory+"=5"), "group g 5MiB"},
		{"kai: no group", &kai, request("", 0, "@"+kaiMemory+"=5"), "nil"},
		{"kai: one group twice", &kai, request("", 0, "#"+kaiGroup+"=g", "#"+kaiGroup+"/g=g", "#"+kaiGroup+"/a=a",
			"#"+kaiGroup+"/i=j", "#x=x"), "group a, group g"},

		{"kubeshare 1", &kubeShareOld, request("", 0, "@"+kubeShareOldID+"=abc", "@"+kubeShareOldRequest+"=0.5",
			"@"+kubeShareOldMemory+"=1048576"),
			"group abc 1MiB 0.5 fraction 0.5"},
		{"kubeshare 1, a whole one", &kubeShareOld, request("", 0, "@"+kubeShareOldID+"=abc", "@"+kubeShareOldRequest+"=1"),
			"group abc 1 fraction 1"},
		{"kubeshare 1, more", &kubeShareOld, request("", 0, "@"+kubeShareOldID+"=abc", "@"+kubeShareOldRequest+"=1.1"), "group abc"},
		{"kubeshare 1, nothing", &kubeShareOld, request("", 0, "@"+kubeShareOldID+"=abc", "@"+kubeShareOldRequest+"=0"), "group abc"},
		{"kubeshare 1, no group", &kubeShareOld, request("", 0, "@"+kubeShareOldRequest+"=0.5"), "nil"},

		{"kubeshare 2", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+GPUC+",", "#"+kubeShareRequest+"=0.5",
			"@"+kubeShareMemory+"=1048576"),
			"C 1MiB 0.5 fraction 0.5"},
		{"kubeshare 2, a whole one", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+GPUC, "#"+kubeShareRequest+"=1"), "C!"},
		{"kubeshare 2, two", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+GPUC+","+GPUB, "#"+kubeShareRequest+"=2",
			"@"+kubeShareMemory+"=1048576"), "C!, B!"},
		{"kubeshare 2, one and a half on one GPU", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+GPUC, "#"+kubeShareRequest+"=1.5"),
			"C"},
		{"kubeshare 2, an index is unknown", &kubeShare, request("", 0, "@"+kubeShareUUID+"=0"), "?"},
		{"kubeshare 2, hardly anything", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+GPUC, "#"+kubeShareRequest+"=0"), "C"},
		{"kubeshare 2, a MIG device and an index", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+migD3+",1"), "?"},
		{"kubeshare 2, a MIG device", &kubeShare, request("", 0, "@"+kubeShareUUID+"="+migD3), "DD3"},
		{"kubeshare 2, nothing", &kubeShare, request("", 0), "nil"},

		{"nvfractions", &nvFractions, request("", 0, gpuC, nvf+"gpu-memory.limit=2Mi", nvf+"gpu-memory.request=1Mi",
			nvf+"gpu-compute.portion=0.5"), "C 2MiB (1MiB) 0.5"},
		{"nvfractions, a request is the limit", &nvFractions, request("", 0, gpuC, nvf+"gpu-memory.request=1Mi"), "C 1MiB (1MiB)"},
		{"nvfractions, a request above the limit", &nvFractions, request("", 0, gpuC, nvf+"gpu-memory.request=3Mi",
			nvf+"gpu-memory.limit=2Mi"), "C 2MiB (2MiB)"},
		{"nvfractions, hardly any time", &nvFractions, request("", 0, gpuC, nvf+"gpu-compute.portion=0.001"), "C 0.01"},
		{"nvfractions, no time", &nvFractions, request("", 0, gpuC, nvf+"gpu-compute.portion=0"), "C"},
		{"nvfractions, more than all time", &nvFractions, request("", 0, gpuC, nvf+"gpu-compute.portion=1.5"), "C"},
		{"nvfractions, of another container", &nvFractions, request("", 0, "@nvidia.com/container.d.gpus.devices="+GPUC), "nil"},
		{"nvfractions, memory of an unknown GPU", &nvFractions, request("", 0, nvf+"gpu-memory.limit=2Mi"), "?"},
		{"nvfractions, a member of a group", &nvFractions, request("", 0, gpuC, "#"+kaiGroup+"=g"), "nil"},
		{"nvfractions, the longest list", &nvFractions, request("", 0, gpuC+strings.Repeat(",", maxText-len(GPUC))), "C"},
		{"nvfractions, a longer one", &nvFractions, request("", 0, gpuC+strings.Repeat(",", maxText+1-len(GPUC))), "?"},

		{"koordinator", &koordinator, koordC(`"koordinator.sh/gpu-core":"30","koordinator.sh/gpu-memory":"1Mi",` +
			`"koordinator.sh/gpu-memory-ratio":"20","other":"x"`), "C 1MiB 0.3 part 0.2"},
		{"koordinator, a whole GPU", &koordinator, koordC(`"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"`),
			"C 1 part 1!"},
		{"koordinator, all memory", &koordinator, koordC(`"koordinator.sh/gpu-memory-ratio":"100"`), "C part 1!"},
		{"koordinator, all memory and half the time", &koordinator,
			koordC(`"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"100"`), "C 0.5 part 1"},
		{"koordinator, all the time", &koordinator, koordC(`"koordinator.sh/gpu-core":"100"`), "C 1"},
		{"koordinator, an amount that is none", &koordinator, koordC(`"x/gpu-core":"y"`), "C"},
		{"koordinator, a number of two GPUs", &koordinator, koord(`{"gpu":[{"minor":0}]}`), "nowhere"},
		{"koordinator, no number", &koordinator, koord(`{"gpu":[{"id":"` + GPUC + `"},{}]}`), "?"},
		{"koordinator, a negative number", &koordinator, koord(`{"gpu":[{"minor":-1}]}`), "?"},
		{"koordinator, too many numbers", &koordinator, koord(`{"gpu":[` + strings.Repeat(`{"minor":0},`, maxRefs) + `{"minor":0}]}`), "?"},
		{"koordinator, network devices", &koordinator, koord(`{"rdma":[{"minor":0}]}`), "nil"},
		{"koordinator, no JSON", &koordinator, koord(`{"gpu":`), "?"},
		{"koordinator, no JSON of others", &koordinator, koord(`{"rdma":`), "nil"},
		{"koordinator, the longest", &koordinator, koord(fill(`{"gpu":[{"id":"`+GPUC+`"}]}`, maxText)), "C"},
		{"koordinator, longer", &koordinator, koord(fill(`{"gpu":[{"id":"`+GPUC+`"}]}`, maxText+1)), "?"},

		{"elastic-gpu, cores", &elasticGPU, request(elasticCore, 30, "@"+elasticContainer+"c=0"), "nowhere 0.3"},
		{"elastic-gpu, of another container", &elasticGPU, request(elasticCore, 30, "@"+elasticContainer+"d=0"), "nil"},

		{"gpu-manager", &tkestack, request(tencentCore, 30, "@"+tencentIndex+"0=1", "+"+tencentMemory+"=2"), "C 512MiB 0.3 fraction 0.3"},
		{"gpu-manager, two GPUs", &tkestack, request(tencentCore, 200, "@"+tencentIndex+"0=1,0", "+"+tencentMemory+"=2"),
			"C 256MiB 1 fraction 1!, B 256MiB 1 fraction 1!"},
		{"gpu-manager, another number of GPUs", &tkestack, request(tencentCore, 30, "@"+tencentIndex+"0=1,0"), "nil"},
		{"gpu-manager, an init container first", &tkestack, request(tencentCore, 30, "@"+tencentIndex+"0=1", "@"+tencentIndex+"1=0"),
			"nil"},
		{"gpu-manager, a key that is no number", &tkestack, request(tencentCore, 30, "@"+tencentIndex+"x=1"), "nil"},
		{"gpu-manager, nothing", &tkestack, request(tencentCore, 30), "nil"},

		{"vgpu-manager", &vgpuManager, manager(1, "c[0_"+GPUC+"_30_1024]"), "C 1024MiB 0.3"},
		{"vgpu-manager, another domain", &vgpuManager, request("x.io/vgpu-number", 1,
			"@x.io/real-allocated=d[0_"+GPUB+"_0_0];c[0_"+GPUC+"_0_0]"), "C"},
		{"vgpu-manager, of another container", &vgpuManager, manager(1, "d[0_"+GPUC+"_30_1024]"), "nil"},
		{"vgpu-manager, cut off", &vgpuManager, manager(1, "c[0_"+GPUC+"_30_1024"), "nil"},
		{"vgpu-manager, another number", &vgpuManager, manager(2, "c[0_"+GPUC+"_30_1024]"), "nil"},
		{"vgpu-manager, fewer fields", &vgpuManager, manager(1, "c["+GPUC+"_30_1024]"), "nil"},
		{"vgpu-manager, no GPU", &vgpuManager, manager(1, "c[0_x_30_1024]"), "nil"},
		{"vgpu-manager, the longest", &vgpuManager, manager(1, fill("c[0_"+GPUC+"_0_0];", maxText)), "C"},
		{"vgpu-manager, longer", &vgpuManager, manager(1, fill("c[0_"+GPUC+"_0_0];", maxText+1)), "nil"},
	} {
		if got := wrote(c.scheme.annotated(c.req)); got != c.want {
			t.Errorf("%s: %.200s, want %.200s", c.name, got, c.want)
		}
	}
	// The index counts as a number only of the pod's one container.
	req := request(volcanoNumber, 1, "@"+volcanoGPUIndex+"=1")
	req.Siblings = append(req.Siblings, Sibling{"d", 1})
	if got := wrote(volcanoGPUShare.annotated(req)); got != "nil" {
		t.Errorf("of two containers: %s", got)
	}
	req = request(volcanoNumber, 1, "@"+volcanoGPUIndex+"=1")
	req.Allocatable = 80
	req.Resource = "volcano.sh/gpu-memory"
	if got := wrote(volcanoGPUShare.annotated(req)); got != "B 1/0/80 relative" {
		t.Errorf("of 80 on the node: %s", got)
	}
	for _, c := range [][2]string{{"@" + aliyunGPU + "=1", "B 10/0/80"}, {"@" + aliyunAllocation + `={"0":{"1":10}}`, "B 10/0/80"}} {
		req := request(aliyunMemory, 10, c[0])
		req.Allocatable = 80
		if got := wrote(aliyun.annotated(req)); got != c[1] {
			t.Errorf("of 80 on the node: %s", got)
		}
	}
}

// What each scheme reads from the response of its plugin.
func TestResponsesOfSchemes(t *testing.T) {
	for _, c := range []struct {
		name   string
		scheme *Scheme
		req    *Request
		want   string
	}{
		{"hami", &hami, request("nvidia.com/gpu", 1, "NVIDIA_VISIBLE_DEVICES="+GPUC, "CUDA_DEVICE_MEMORY_LIMIT_0=10m",
			"CUDA_DEVICE_SM_LIMIT=30"), "C 10MiB 0.3"},
		{"hami, no GPU", &hami, request("nvidia.com/gpu", 1, "CUDA_DEVICE_SM_LIMIT=30"), "nil"},
		{"volcano-vgpu", &volcanoVGPU, request(volcanoVGPUNumber, 1, "NVIDIA_VISIBLE_DEVICES="+GPUC, "CUDA_DEVICE_MEMORY_LIMIT_0=10m"),
			"C 10MiB"},
		{"volcano", &volcanoGPUShare, request("volcano.sh/gpu-memory", 1, "NVIDIA_VISIBLE_DEVICES=2", "VOLCANO_GPU_ALLOCATED=10",
			"VOLCANO_GPU_TOTAL=40"),
			"C 10/40/0 relative"},
		{"volcano, the newer name first", &volcanoGPUShare, request("volcano.sh/gpu-memory", 1, "NVIDIA_VISIBLE_DEVICES=2",
			"VOLCANO_GPU_ALLOCATED=10",
			"VOLCANO_GPU_MEMORY_TOTAL=20", "VOLCANO_GPU_TOTAL=40"), "C 10/20/0 relative"},
		{"volcano, no units", &volcanoGPUShare, request("volcano.sh/gpu-memory", 1, "NVIDIA_VISIBLE_DEVICES=2", "VOLCANO_GPU_TOTAL=40"),
			"C"},
		{"volcano, two GPUs", &volcanoGPUShare, request("volcano.sh/gpu-memory", 1, "NVIDIA_VISIBLE_DEVICES=1,2",
			"VOLCANO_GPU_ALLOCATED=10",
			"VOLCANO_GPU_TOTAL=40"), "B, C"},
		{"volcano, whole GPUs", &volcanoGPUShare, request(volcanoNumber, 2, "NVIDIA_VISIBLE_DEVICES=1,2"), "B!, C!"},
		{"aliyun", &aliyun, request(aliyunMemory, 10, "NVIDIA_VISIBLE_DEVICES=2", aliyunUnits+"=10", aliyunGPUTotal+"=40",
			"+"+aliyunCoreIDs+"=30"), "C 0.3 10/40/0"},
		{"aliyun, by its own variable", &aliyun, request(aliyunMemory, 10, aliyunGPU+"=2"), "C"},
		{"aliyun, no units", &aliyun, request(aliyunMemory, 10, "NVIDIA_VISIBLE_DEVICES=2", aliyunGPUTotal+"=40"), "C"},
		{"aliyun, no total", &aliyun, request(aliyunMemory, 10, "NVIDIA_VISIBLE_DEVICES=2", aliyunUnits+"=10"), "C"},
		{"aliyun, cores of two GPUs are of neither", &aliyun, request(aliyunMemory, 10, "NVIDIA_VISIBLE_DEVICES=1,2",
			"+"+aliyunCoreIDs+"=30"), "B, C"},
		{"aliyun, whole GPUs", &aliyun, request("aliyun.com/gpu", 2, "NVIDIA_VISIBLE_DEVICES=1,2"), "B!, C!"},
		{"aliyun, another number", &aliyun, request("aliyun.com/gpu", 1, "NVIDIA_VISIBLE_DEVICES=1,2"), "nil"},
		{"elastic-gpu, cores", &elasticGPU, request(elasticCore, 30, "/dev/nvidia1"), "C 0.3"},
		{"elastic-gpu, memory", &elasticGPU, request(elasticMemory, 512, "/dev/nvidia1"), "C 512MiB"},
		{"elastic-gpu, both: by the memory", &elasticGPU, request(elasticMemory, 512, "/dev/nvidia1", "+"+elasticCore+"=30"),
			"C 512MiB 0.3"},
		{"elastic-gpu, both: not by the cores", &elasticGPU, request(elasticCore, 30, "/dev/nvidia1", "+"+elasticMemory+"=512"), ""},
		{"elastic-gpu, two GPUs", &elasticGPU, request(elasticMemory, 512, "/dev/nvidia1", "/dev/nvidia0", "+"+elasticCore+"=200"),
			"C 256MiB 1!, B 256MiB 1!"},
		{"elastic-gpu, another number", &elasticGPU, request(elasticCore, 30, "/dev/nvidia1", "/dev/nvidia0"), "nil"},
		{"gpu-manager", &tkestack, request(tencentCore, 30, "/dev/nvidia1", "/dev/nvidiactl"), "C 0.3 fraction 0.3"},
		{"vgpu-manager", &vgpuManager, request("nvidia.com/vgpu-number", 2, "MANAGER_VISIBLE_DEVICES="+vgpuManagerNone+","+GPUB+","+GPUC,
			"CUDA_CORE_LIMIT_1=10",
			"CUDA_MEM_LIMIT_2=20m"), "B 0.1, C 20MiB"},
		{"vgpu-manager, by NVIDIA's variable: limits by index", &vgpuManager, request("nvidia.com/vgpu-number", 1,
			"NVIDIA_VISIBLE_DEVICES="+GPUC,
			"CUDA_CORE_LIMIT_2=10", "CUDA_CORE_LIMIT_0=20"), "C 0.1"},
		{"vgpu-manager, a GPU that is not here", &vgpuManager, request("nvidia.com/vgpu-number", 1, "NVIDIA_VISIBLE_DEVICES="+missing,
			"CUDA_CORE_LIMIT_0=20"),
			"nowhere"},
		{"vgpu-manager, more than requested", &vgpuManager, request("nvidia.com/vgpu-number", 1, "MANAGER_VISIBLE_DEVICES="+GPUB+","+GPUC),
			"nil"},
		{"vgpu-manager, none", &vgpuManager, request("nvidia.com/vgpu-number", 1, "MANAGER_VISIBLE_DEVICES="+vgpuManagerNone), "nil"},
		{"unlisted", &unlisted, request("x/gpu", 2, "NVIDIA_VISIBLE_DEVICES=1,2", "CUDA_DEVICE_MEMORY_LIMIT_0=10m",
			"CUDA_DEVICE_MEMORY_LIMIT_1=20m"),
			"B 10MiB, C 20MiB"},
		{"unlisted, more GPUs than devices", &unlisted, request("x/gpu-pair", 1, "NVIDIA_VISIBLE_DEVICES=1,2"), "B, C"},
	} {
		if got := wrote(c.scheme.allocated(c.req)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// gpu-manager names the nodes in an annotation of the container, too.
	req := request(tencentCore, 30, "/dev/nvidia0")
	req.Response.Annotations = map[string]string{tencentDevice: "/dev/nvidia1"}
	if got := wrote(tkestack.allocated(req)); got != "C 0.3 fraction 0.3" {
		t.Errorf("gpu-manager: %s", got)
	}
}

// Which data source counts: what agents recorded, what the container received, what a scheduler wrote.
func TestPrecedenceOfSources(t *testing.T) {
	const note, env = "@" + hamiAllocated + "=" + GPUB + ",NVIDIA,1,20:;", "NVIDIA_VISIBLE_DEVICES="
	for _, c := range []struct {
		name   string
		scheme *Scheme
		words  []string
		record []Assignment
		want   string
	}{
		{"received and noted", &hami, []string{note, env + GPUC}, nil, "checkpoint: C"},
		{"of one GPU, the limits of both", &hami, []string{note, env + GPUB, "CUDA_DEVICE_MEMORY_LIMIT_0=10m"}, nil,
			"checkpoint: B 10MiB 0.2"},
		{"noted", &hami, []string{note}, nil, "annotation: B 1MiB 0.2"},
		{"nothing", &hami, nil, nil, ""},
		{"recorded", &nvFractions, nil, Fraction([]string{GPUC}, nil, 5, 0), "gpu_fractioning: C 5MiB"},
		{"recorded and noted", &nvFractions, []string{nvf + "gpus.devices=" + GPUC,
			nvf + "gpu-compute.portion=0.5"},
			Fraction([]string{GPUC}, nil, 5, 0), "gpu_fractioning: C 5MiB 0.5"},
		{"recorded without a GPU, and noted", &nvFractions, []string{nvf + "gpus.devices=" + GPUC}, Fraction(nil, nil, 5,
			0), "annotation: C"},
		{"recorded without one GPU of two, and noted", &nvFractions, []string{nvf + "gpus.devices=" + GPUC},
			Fraction([]string{GPUC, "?"}, nil, 5, 0), "annotation: C"},
		{"recorded without a GPU alone", &nvFractions, nil, Fraction(nil, nil, 5, 0), "gpu_fractioning: ? 5MiB"},
	} {
		req := request("nvidia.com/gpu", 1, c.words...)
		req.Recorded = c.record
		got := ""
		if c.scheme.allocated == nil {
			req.Response = nil
		}
		if r, ok := c.scheme.Resolve(req); ok {
			got = r.Source + ": " + wrote(r.GPUs)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, ok := (*Scheme)(nil).Resolve(request("x", 1, env+GPUC)); ok {
		t.Error("no scheme resolves")
	}
	req := request("tke.cloud.tencent.com/qgpu-core", 1, env+GPUC)
	if r, ok := qgpu.Resolve(req); !ok || wrote(r.GPUs) != "C" || r.Source != gpu.SourceCheckpoint {
		t.Errorf("a scheme without a form of its own: %+v", r)
	}
	req.Pod, req.Response = nil, nil
	if _, ok := hami.Resolve(req); ok {
		t.Error("without pod and response")
	}
}

// Placeholder pods, and the containers of a pod that get its GPUs.
func TestPlaceholdersAndContainers(t *testing.T) {
	for _, c := range []struct {
		scheme              *Scheme
		namespace, pod      string
		labels, annotations map[string]string
		want                string // empty: no placeholder
	}{
		{&kubeShareOld, "kube-system", "kubeshare-vgpu-node-abc", nil, nil, "abc"},
		{&kubeShareOld, "kube-system", "kubeshare-vgpu--abc", nil, nil, "abc"},
		{&kubeShareOld, "kube-system", "kubeshare-vgpu-abc", nil, nil, ""},
		{&kubeShareOld, "default", "kubeshare-vgpu-node-abc", nil, nil, ""},
		{&kubeShareOld, "kube-system", "other-vgpu-node-abc", nil, nil, ""},
		{&kubeShareOld, "kube-system", "x", nil, nil, ""},
		{&kai, "x", "p", map[string]string{kaiGroup: "g"}, map[string]string{"run.ai/reserve_for_gpu_index": ""}, ""},
		{&kai, "x", "p", map[string]string{kaiGroup: "g"}, nil, ""},
		{&kai, "kai-resource-reservation", "p", map[string]string{kaiGroup: "g"}, nil, "g"},
		{&kai, "runai-reservation", "p", map[string]string{kaiGroup: "g"}, nil, "g"},
		{&kai, "runai-reservation", "p", nil, map[string]string{"run.ai/reserve_for_gpu_index": "x"}, ""},
		{&koordinator, "runai-reservation", "p", map[string]string{kaiGroup: "g"}, nil, ""},
	} {
		group, ok := c.scheme.Reserves(gpu.PodName{Namespace: c.namespace, Pod: c.pod}, &Pod{Labels: c.labels, Annotations: c.annotations})
		if ok != (c.want != "") || ok && group != c.want {
			t.Errorf("%s/%s: %q, %v", c.namespace, c.pod, group, ok)
		}
	}
	for _, c := range []struct{ name, want string }{{"", "a"}, {"a", "a"}, {"b", "b"}, {"c", ""}} {
		pod := &Pod{Annotations: map[string]string{kaiContainer: c.name}}
		if got := strings.Join(kai.Containers(pod, []string{"a", "b"}), " "); got != c.want {
			t.Errorf("container %q: %q, want %q", c.name, got, c.want)
		}
		if got := strings.Join(koordinator.Containers(pod, []string{"a", "b"}), " "); got != "a b" {
			t.Errorf("all: %q", got)
		}
	}
}
