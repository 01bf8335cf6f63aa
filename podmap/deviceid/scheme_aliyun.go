package deviceid

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// What Alibaba Cloud's gpushare writes on a pod: the first generation names one GPU for the whole pod, the
// second has, per container and GPU, the amount.
const (
	aliyunMemory     = "aliyun.com/gpu-mem"
	aliyunGPU        = "ALIYUN_COM_GPU_MEM_IDX"       // NVML index, on the pod and in the container
	aliyunGPUTotal   = "ALIYUN_COM_GPU_MEM_DEV"       // of the GPU, in units
	aliyunGranted    = "ALIYUN_COM_GPU_MEM_CONTAINER" // of each GPU, in units; in the container alone
	aliyunAllocation = "scheduler.framework.gpushare.allocation"
	aliyunCores      = "gpushare.alibabacloud.com/core-percentage"
)

// aliyun is Alibaba Cloud's gpushare: GPU-<uuid>-_-<n>, one id per GiB or MiB of memory. The kubelet picks
// ids at random, the scheduler extender picks the GPU. The plugin takes the oldest waiting pod that asks for
// the same amount, so two equal pods may be swapped: what the container got beats what the pod is annotated with.
var aliyun = Scheme{
	Name:    "aliyun gpushare",
	class:   Opaque,
	Matches: named(aliyunMemory, "aliyun.com/gpu"),
	Hint: "the kubelet's device checkpoint, or the pod annotations ALIYUN_COM_GPU_MEM_IDX and " +
		"scheduler.framework.gpushare.allocation",
	allocated: func(req *Request) ([]Assignment, bool) {
		refs, ok := req.Response.visible()
		if !ok {
			dev, _ := req.env(aliyunGPU)
			if refs, ok = parseVisible(dev); !ok {
				return nil, false
			}
		}
		if req.Resource != aliyunMemory && len(refs) != req.Devices {
			return nil, false // whole GPUs, and not as many as were asked for
		}
		gpus := assign(refs)
		granted, okGranted := req.envAmount(aliyunGranted)
		total, okTotal := req.envAmount(aliyunGPUTotal)
		for i := range gpus {
			if gpus[i].Exclusive = req.Resource != aliyunMemory; !gpus[i].Exclusive && okGranted && okTotal {
				gpus[i].units, gpus[i].total = granted, total
			}
		}
		return gpus, true
	},
	annotated: func(req *Request) ([]Assignment, bool) {
		if req.Resource != aliyunMemory {
			return nil, false
		}
		if text, ok := req.annotation(aliyunAllocation); ok {
			return req.aliyunGPUs(text)
		}
		text, _ := req.annotation(aliyunGPU)
		r, ok := parseIndex(text)
		if !ok || r.by != byIndex {
			return nil, false
		}
		g := Assignment{Ref: r, units: float64(req.Devices), pool: req.Allocatable}
		if text, ok := req.annotation(aliyunGPUTotal); ok {
			g.total, _ = amount(text)
		}
		return []Assignment{g}, true
	},
}

// aliyunGPUs reads {"<container>":{"<gpu>":<units>}}.
func (req *Request) aliyunGPUs(text string) ([]Assignment, bool) {
	devs, ok := parseAliyunMap(text)
	if !ok {
		return nil, false
	}
	slots := slices.Sorted(maps.Keys(devs))
	counts := make([]int, len(slots))
	for i, container := range slots {
		for _, units := range devs[container] {
			counts[i] += units
		}
	}
	at, ok := req.slot(counts, false)
	if !ok {
		return nil, false
	}
	var cores map[int]map[int]int
	if text, ok := req.annotation(aliyunCores); ok {
		cores, _ = parseAliyunMap(text)
	}
	var gpus []Assignment
	mine := devs[slots[at]]
	for _, dev := range slices.Sorted(maps.Keys(mine)) {
		gpus = append(gpus, Assignment{Ref: indexRef(dev), units: float64(mine[dev]), pool: req.Allocatable,
			Compute: percent(float64(cores[slots[at]][dev]))})
	}
	return gpus, true
}

// parseAliyunMap reads container → GPU → amount. All numbers are plain; a container without GPUs has none.
func parseAliyunMap(text string) (map[int]map[int]int, bool) {
	var raw map[string]map[string]json.Number
	d := json.NewDecoder(strings.NewReader(text))
	if len(text) > maxText || d.Decode(&raw) != nil || len(raw) == 0 {
		return nil, false
	}
	out := map[int]map[int]int{}
	for container, devs := range raw {
		c, ok := decimal(container)
		if !ok {
			return nil, false
		}
		for dev, units := range devs {
			i, okGPU := decimal(dev)
			n, okUnits := decimal(units.String())
			if !okGPU || !okUnits {
				return nil, false
			}
			if n == 0 {
				continue
			}
			if out[c] == nil {
				out[c] = map[int]int{}
			}
			out[c][i] = n
		}
	}
	return out, len(out) > 0
}
