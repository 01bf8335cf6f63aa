package podmap

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// What Alibaba Cloud's gpushare writes on a pod: the first generation names one card for the whole pod, the
// second has, per container and card, the amount.
const (
	aliyunMemory     = "aliyun.com/gpu-mem"
	aliyunCard       = "ALIYUN_COM_GPU_MEM_IDX"       // NVML index, on the pod and in the container
	aliyunCardTotal  = "ALIYUN_COM_GPU_MEM_DEV"       // of the card, in units
	aliyunGranted    = "ALIYUN_COM_GPU_MEM_CONTAINER" // of each card, in units; in the container alone
	aliyunAllocation = "scheduler.framework.gpushare.allocation"
	aliyunCores      = "gpushare.alibabacloud.com/core-percentage"
)

// aliyun is Alibaba Cloud's gpushare: GPU-<uuid>-_-<n>, one id per GiB or MiB of memory. The kubelet picks
// ids at random, the scheduler extender picks the card. The plugin takes the oldest waiting pod that asks for
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
			card, _ := c.env(aliyunCard)
			if refs, ok = readVisible(card); !ok {
				return nil, false
			}
		}
		if c.resource != aliyunMemory && len(refs) != c.devices {
			return nil, false // whole cards, and not as many as were asked for
		}
		grants := grantsOf(refs)
		granted, okGranted := c.envAmount(aliyunGranted)
		total, okTotal := c.envAmount(aliyunCardTotal)
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
			return c.aliyunCards(text)
		}
		text, _ := c.annotation(aliyunCard)
		r, ok := readIndex(text)
		if !ok || r.by != byIndex {
			return nil, false
		}
		g := grant{ref: r, units: float64(c.devices), pool: c.listed}
		if text, ok := c.annotation(aliyunCardTotal); ok {
			g.total, _ = amount(text)
		}
		return []grant{g}, true
	},
}

// aliyunCards reads {"<container>":{"<card>":<units>}}.
func (c *claim) aliyunCards(text string) ([]grant, bool) {
	cards, ok := readAliyunMap(text)
	if !ok {
		return nil, false
	}
	slots := slices.Sorted(maps.Keys(cards))
	counts := make([]int, len(slots))
	for i, container := range slots {
		for _, units := range cards[container] {
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
	mine := cards[slots[at]]
	for _, card := range slices.Sorted(maps.Keys(mine)) {
		grants = append(grants, grant{ref: ref{by: byIndex, minor: card, gi: -1, ci: -1}, units: float64(mine[card]), pool: c.listed,
			compute: percent(float64(cores[slots[at]][card]))})
	}
	return grants, true
}

// readAliyunMap reads container → card → amount. All numbers are plain; a container without cards has none.
func readAliyunMap(text string) (map[int]map[int]int, bool) {
	var raw map[string]map[string]json.Number
	d := json.NewDecoder(strings.NewReader(text))
	if len(text) > longestValue || d.Decode(&raw) != nil || len(raw) == 0 {
		return nil, false
	}
	out := map[int]map[int]int{}
	for container, cards := range raw {
		c, ok := decimal(container)
		if !ok {
			return nil, false
		}
		for card, units := range cards {
			i, okCard := decimal(card)
			n, okUnits := decimal(units.String())
			if !okCard || !okUnits {
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
