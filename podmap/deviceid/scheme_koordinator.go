package deviceid

import (
	"encoding/json"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// koordinatorAllocated is what Koordinator's scheduler writes on a pod.
const koordinatorAllocated = "scheduling.koordinator.sh/device-allocated"

// koordinator shares GPUs without a device plugin: a hook of the runtime makes the GPUs visible that the scheduler
// wrote on the pod. The number there is called a minor, and used as an index; it counts where both are the same GPU.
var koordinator = Scheme{
	Name:     "koordinator",
	Resource: "koordinator.sh/gpu",
	// config/manager/koordlet.yaml at a7a1b76b; the namespace is the default of its chart.
	Daemon: gpu.PodName{Namespace: "koordinator-system", Pod: "koordlet-"},
	annotated: func(req *Request) []Assignment {
		text := req.annotation(koordinatorAllocated)
		unknown := []Assignment{{}}
		var raw struct {
			GPU []struct {
				Minor     *int              `json:"minor"`
				ID        string            `json:"id"`
				Resources map[string]string `json:"resources"`
			} `json:"gpu"`
		}
		if len(text) > maxText || json.Unmarshal([]byte(text), &raw) != nil {
			if strings.Contains(text, `"gpu"`) {
				return unknown
			}
			return nil
		}
		var gpus []Assignment
		for _, device := range raw.GPU {
			var g Assignment
			r, ok := ParseNVML(device.ID)
			switch {
			case ok:
				g.Ref = r
			case device.Minor == nil || *device.Minor < 0 || len(gpus) >= maxRefs:
				return unknown
			default:
				g.Ref = Ref{by: byNumber, number: *device.Minor}
			}
			for key, text := range device.Resources {
				n, ok := ParseQuantity(text)
				if !ok {
					continue
				}
				switch _, name, _ := strings.Cut(key, "/"); name {
				case "gpu-core":
					g.Compute = percent(n)
				case "gpu-memory":
					g.memory = Bytes(n)
				case "gpu-memory-ratio":
					g.part = percent(n)
				}
			}
			g.Exclusive = g.part.Or(0) >= 1 && g.Compute.Or(1) >= 1
			gpus = append(gpus, g)
		}
		return gpus // none of network devices
	},
}
