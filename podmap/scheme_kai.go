package podmap

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What KAI and run:ai write on pods.
const (
	kaiGroup     = "runai-gpu-group"              // label of members and of the reservation pod
	kaiReserved  = "run.ai/reserve_for_gpu_index" // UUID, despite the name; on the reservation pod
	kaiFraction  = "gpu-fraction"
	kaiMemory    = "gpu-memory" // MiB
	kaiDevices   = "gpu-fraction-num-devices"
	kaiContainer = "gpu-fraction-container-name"
)

// kai is the fractional sharing of KAI-Scheduler and run:ai. A reservation pod holds the GPU at the kubelet;
// those who really use it ask the kubelet for nothing. They carry the label of its group, each a fraction of the
// GPU or an amount of its memory, and are given the GPU in one container: the named one, or else the first.
var kai = placeholderScheme{
	name: "kai",
	group: func(pod podKey, p *podMeta) (string, bool) {
		_, reserves := p.annotations[kaiReserved]
		group := p.labels[kaiGroup]
		return group, group != "" && (reserves || pod.namespace == "kai-resource-reservation" || pod.namespace == "runai-reservation")
	},
	member: func(p *podMeta) (membership, bool) {
		m := membership{container: p.annotations[kaiContainer]}
		for key, value := range p.labels {
			if key == kaiGroup || strings.HasPrefix(key, kaiGroup+"/") && value == strings.TrimPrefix(key, kaiGroup+"/") {
				m.groups = append(m.groups, value)
			}
		}
		switch {
		case len(m.groups) == 0:
			return m, false
		case p.annotations[kaiFraction] != "":
			f, ok := amount(p.annotations[kaiFraction])
			if ok && f > 0 && f <= 1 {
				m.grant.fraction = gpu.Some(f)
			}
		default:
			if mib, ok := amount(p.annotations[kaiMemory]); ok {
				m.grant.memory = mebibytes(mib)
			}
		}
		return m, true
	},
}
