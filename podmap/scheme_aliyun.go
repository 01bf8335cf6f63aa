package podmap

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
var aliyun = scheme{
	name:    "aliyun gpushare",
	verdict: lying,
	owns:    named(aliyunMemory, "aliyun.com/gpu"),
	truth: "the kubelet's device checkpoint, or the pod annotations ALIYUN_COM_GPU_MEM_IDX and " +
		"scheduler.framework.gpushare.allocation",
	allocated: func(c *claim) ([]grant, bool) {
		refs, ok := c.alloc.visible()
		if !ok {
			dev, _ := c.env(aliyunGPU)
			if refs, ok = readVisible(dev); !ok {
				return nil, false
			}
		}
		if c.resource != aliyunMemory && len(refs) != c.devices {
			return nil, false // whole GPUs, and not as many as were asked for
		}
		grants := grantsOf(refs)
		granted, okGranted := c.envAmount(aliyunGranted)
		total, okTotal := c.envAmount(aliyunGPUTotal)
		for i := range grants {
			if grants[i].whole = c.resource != aliyunMemory; !grants[i].whole && okGranted && okTotal {
				grants[i].units, grants[i].total = granted, total
			}
		}
		return grants, true
	},
	annotated: func(c *claim) ([]grant, bool) {
		if c.resource != aliyunMemory {
			return nil, false
		}
		if text, ok := c.annotation(aliyunAllocation); ok {
			return c.aliyunGPUs(text)
		}
		text, _ := c.annotation(aliyunGPU)
		r, ok := readIndex(text)
		if !ok || r.by != byIndex {
			return nil, false
		}
		g := grant{ref: r, units: float64(c.devices), pool: c.listed}
		if text, ok := c.annotation(aliyunGPUTotal); ok {
			g.total, _ = amount(text)
		}
		return []grant{g}, true
	},
}

// aliyunGPUs reads {"<container>":{"<gpu>":<units>}}.
func (c *claim) aliyunGPUs(text string) ([]grant, bool) {
	devs, ok := readAliyunMap(text)
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
	at, ok := c.slot(counts, false)
	if !ok {
		return nil, false
	}
	var cores map[int]map[int]int
	if text, ok := c.annotation(aliyunCores); ok {
		cores, _ = readAliyunMap(text)
	}
	var grants []grant
	mine := devs[slots[at]]
	for _, dev := range slices.Sorted(maps.Keys(mine)) {
		grants = append(grants, grant{ref: ref{by: byIndex, minor: dev, gi: -1, ci: -1}, units: float64(mine[dev]), pool: c.listed,
			compute: percent(float64(cores[slots[at]][dev]))})
	}
	return grants, true
}

// readAliyunMap reads container → GPU → amount. All numbers are plain; a container without GPUs has none.
func readAliyunMap(text string) (map[int]map[int]int, bool) {
	var raw map[string]map[string]json.Number
	d := json.NewDecoder(strings.NewReader(text))
	if len(text) > longestValue || d.Decode(&raw) != nil || len(raw) == 0 {
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
