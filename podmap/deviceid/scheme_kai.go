package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What KAI and run:ai write on pods.
const (
	kaiGroup     = "runai-gpu-group" // label of members and of the reservation pod
	kaiFraction  = "gpu-fraction"
	kaiMemory    = "gpu-memory" // MiB
	kaiDevices   = "gpu-fraction-num-devices"
	kaiContainer = "gpu-fraction-container-name"
)

// kai is the fractional sharing of KAI-Scheduler and run:ai. A reservation pod has the GPU at the kubelet; the pods
// that use it request nothing of the kubelet. They carry the label of its group, each with a fraction of the GPU or an
// amount of its memory, and get the GPU in one container: the named one, or else the first.
var kai = Scheme{
	Name: "kai",
	reserves: func(name gpu.PodName, pod *Pod) (string, bool) {
		// Labels and annotations alone prove nothing: whoever creates a pod writes them.
		group := pod.Labels[kaiGroup]
		return group, group != "" && Placeholder(gpu.Container{Namespace: name.Namespace})
	},
	annotated: func(req *Request) []Assignment {
		var groups []string
		for key, value := range req.Pod.Labels {
			suffix, more := strings.CutPrefix(key, kaiGroup+"/")
			if key == kaiGroup || more && value == suffix {
				groups = append(groups, value)
			}
		}
		var share Assignment
		if text := req.Pod.Annotations[kaiFraction]; text != "" {
			if f, ok := amount(text); ok && f > 0 && f <= 1 {
				share.fraction = gpu.Some(f)
			}
		} else if mib, ok := amount(req.Pod.Annotations[kaiMemory]); ok {
			share.memory = mebibytes(mib)
		}
		slices.Sort(groups)
		var gpus []Assignment
		for _, group := range slices.Compact(groups) {
			share.Group = group
			gpus = append(gpus, share)
		}
		return gpus
	},
	containers: func(pod *Pod, listed []string) []string {
		// The first is that of the spec, unless restartable init containers precede it.
		name := pod.Annotations[kaiContainer]
		at := max(0, slices.Index(listed, name))
		if name != "" && listed[at] != name {
			return nil // an init container, which is not listed
		}
		return listed[at : at+1]
	},
}

// Placeholder reports whether a container is in a namespace of KAI's reservation pods.
func Placeholder(c gpu.Container) bool {
	return c.Namespace == "kai-resource-reservation" || c.Namespace == "runai-reservation"
}
