package podmap

import (
	"encoding/json"
	"strings"
)

// koordinatorAllocated is what Koordinator's scheduler writes on a pod.
const koordinatorAllocated = "scheduling.koordinator.sh/device-allocated"

// koordinator shares GPUs without a device plugin: a hook of the runtime shows the container the GPUs that
// the scheduler wrote on its pod. The number there is called a minor, and handed on as an index; it is believed
// where both are the same GPU.
var koordinator = quietScheme{
	name:     "koordinator",
	resource: "koordinator.sh/gpu",
	read: func(p *podMeta) ([]grant, bool) {
		text := p.annotations[koordinatorAllocated]
		if text == "" {
			return nil, false
		}
		var raw struct {
			GPU []struct {
				Minor     *int              `json:"minor"`
				ID        string            `json:"id"`
				Resources map[string]string `json:"resources"`
			} `json:"gpu"`
		}
		if len(text) > longestValue || json.Unmarshal([]byte(text), &raw) != nil {
			return nil, strings.Contains(text, `"gpu"`)
		}
		if len(raw.GPU) == 0 {
			return nil, false // network GPUs alone
		}
		var grants []grant
		for _, device := range raw.GPU {
			var g grant
			r, ok := readNVML(device.ID)
			switch {
			case ok:
				g.ref = r
			case device.Minor == nil || *device.Minor < 0 || len(grants) >= mostNames:
				return nil, true
			default:
				g.ref = ref{by: byNumber, minor: *device.Minor, gi: -1, ci: -1}
			}
			for key, text := range device.Resources {
				n, ok := parseQuantity(text)
				if !ok {
					continue
				}
				switch _, name, _ := strings.Cut(key, "/"); name {
				case "gpu-core":
					g.compute = percent(n)
				case "gpu-memory":
					g.memory = bytesOf(n)
				case "gpu-memory-ratio":
					g.part = percent(n)
				}
			}
			g.whole = g.part.Or(0) >= 1 && g.compute.Or(1) >= 1
			grants = append(grants, g)
		}
		return grants, true
	},
}
