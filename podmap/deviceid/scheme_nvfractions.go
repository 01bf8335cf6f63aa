package deviceid

import "strings"

// nvFractionsPrefix begins the annotations of one container, and the container's name follows.
const nvFractionsPrefix = "nvidia.com/container."

// nvFractions is the fractional sharing of KAI-Scheduler since 0.18, by NVIDIA's GPU fractioning operator: a container
// that requests nothing of the kubelet gets the GPUs and the memory that the scheduler wrote on its pod.
var nvFractions = Scheme{
	Name:         "nvfractions",
	Resource:     "nvidia.com/gpu-memory",
	PerContainer: true,
	annotated: func(req *Request) []Assignment {
		value := func(name string) string { return req.annotation(nvFractionsPrefix + req.Container.Name + "." + name) }
		limit := value("gpu-memory.limit")
		if limit == "" {
			limit = value("gpu-memory.request") // is then the limit too
		}
		devices := strings.TrimSpace(value("gpus.devices"))
		switch {
		case limit == "" && devices == "" || req.Pod.Labels[kaiGroup] != "":
			return nil // a member of a group has the GPU that is reserved for the group
		case len(devices) > maxText:
			return []Assignment{{}}
		}
		gpus := assign(parseVisible(devices))
		if gpus == nil {
			return []Assignment{{}} // an unknown GPU
		}
		bytes, _ := ParseQuantity(limit)
		for i := range gpus {
			gpus[i].memory = Bytes(bytes)
		}
		return gpus
	},
}
