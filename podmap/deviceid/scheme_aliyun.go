package deviceid

import (
	"encoding/json"
	"maps"
	"slices"
)

// What Alibaba Cloud's gpushare writes on a pod: the first generation names one GPU for the whole pod, the second has
// the amount per container and GPU.
const (
	aliyunMemory     = "aliyun.com/gpu-mem"
	aliyunGPU        = "ALIYUN_COM_GPU_MEM_IDX"       // NVML index, on the pod and in the container
	aliyunGPUTotal   = "ALIYUN_COM_GPU_MEM_DEV"       // of the GPU, in units
	aliyunUnits      = "ALIYUN_COM_GPU_MEM_CONTAINER" // of each GPU, in units; only in the container
	aliyunAllocation = "scheduler.framework.gpushare.allocation"
	aliyunCoreIDs    = "aliyun.com/gpu-core.percentage" // resource, an ID is a percent of one GPU
	aliyunCores      = "gpushare.alibabacloud.com/core-percentage"
)

// aliyun is Alibaba Cloud's gpushare: GPU-<uuid>-_-<n>, one ID per GiB or MiB of memory. The kubelet selects IDs at
// random, the scheduler extender selects the GPU. The plugin takes the oldest pending pod that requests the same
// amount, so two equal pods may be swapped: the container's environment takes precedence over the pod's annotations.
var aliyun = Scheme{
	Name:    "aliyun gpushare",
	class:   Opaque,
	Matches: named(aliyunMemory, "aliyun.com/gpu"),
	Hint: "the kubelet's device checkpoint, or the pod annotations ALIYUN_COM_GPU_MEM_IDX and " +
		"scheduler.framework.gpushare.allocation",
	allocated: func(req *Request) []Assignment {
		refs := req.Response.visible()
		if refs == nil {
			refs = parseVisible(req.env(aliyunGPU))
		}
		if req.Resource != aliyunMemory {
			return req.wholeGPUs(refs)
		}
		gpus := assign(refs)
		units, okUnits := amount(req.env(aliyunUnits))
		total, okTotal := amount(req.env(aliyunGPUTotal))
		for i := range gpus {
			if okUnits && okTotal {
				gpus[i].units, gpus[i].total = units, total
			}
		}
		return req.withCores(gpus)
	},
	annotated: func(req *Request) []Assignment {
		if req.Resource != aliyunMemory {
			return nil
		}
		if text := req.annotation(aliyunAllocation); text != "" {
			return req.aliyunGPUs(text)
		}
		index, ok := decimal(req.annotation(aliyunGPU))
		if !ok {
			return nil
		}
		total, _ := amount(req.annotation(aliyunGPUTotal))
		return req.withCores([]Assignment{{Ref: indexRef(index), units: float64(req.Devices), total: total,
			pool: req.Allocatable}})
	},
}

// withCores adds the cores that a container requests of its only GPU.
func (req *Request) withCores(gpus []Assignment) []Assignment {
	if len(gpus) == 1 && !gpus[0].Compute.Present() {
		gpus[0].Compute = percent(float64(req.Amounts[aliyunCoreIDs]))
	}
	return gpus
}

// aliyunGPUs parses {"<container>":{"<gpu>":<units>}}.
func (req *Request) aliyunGPUs(text string) []Assignment {
	devs := parseAliyunMap(text)
	slots := slices.Sorted(maps.Keys(devs))
	counts := make([]int, len(slots))
	for i, container := range slots {
		for _, units := range devs[container] {
			counts[i] += units
		}
	}
	at, ok := req.slot(counts, false)
	if !ok {
		return nil
	}
	cores := parseAliyunMap(req.annotation(aliyunCores))[slots[at]]
	var gpus []Assignment
	mine := devs[slots[at]]
	for _, dev := range slices.Sorted(maps.Keys(mine)) {
		gpus = append(gpus, Assignment{Ref: indexRef(dev), units: float64(mine[dev]), pool: req.Allocatable,
			Compute: percent(float64(cores[dev]))})
	}
	return req.withCores(gpus)
}

// parseAliyunMap parses container → GPU → amount. All numbers are plain; a container without GPUs is left out.
func parseAliyunMap(text string) map[int]map[int]int {
	var raw map[string]map[string]json.Number
	if len(text) > maxText || json.Unmarshal([]byte(text), &raw) != nil {
		return nil
	}
	out := map[int]map[int]int{}
	for container, devs := range raw {
		c, ok := decimal(container)
		if !ok {
			return nil
		}
		for dev, units := range devs {
			i, okGPU := decimal(dev)
			n, okUnits := decimal(units.String())
			switch {
			case !okGPU || !okUnits:
				return nil
			case n > 0 && out[c] == nil:
				out[c] = map[int]int{i: n}
			case n > 0:
				out[c][i] = n
			}
		}
	}
	return out
}
