package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// nvFractionsPrefix begins the annotations of one container, and the container's name follows.
const nvFractionsPrefix = "nvidia.com/container."

// nvFractions is the fractional sharing of KAI-Scheduler since 0.18, by NVIDIA's GPU fractioning operator: a container
// that requests nothing of the kubelet gets the GPUs, the memory and the compute that the scheduler wrote on its pod. The
// operator's agents record on the node what it got.
var nvFractions = Scheme{
	Name:         "nvfractions",
	Resource:     "nvidia.com/gpu-memory",
	PerContainer: true,
	// operator/internal/common/daemonmgr/daemonset_helpers.go at 99edf17d; the namespace is that of its README.
	Daemon: gpu.PodName{Namespace: "gpu-fractioning", Pod: "gpu-fractioning-fractiond-"},
	annotated: func(req *Request) []Assignment {
		value := func(name string) string { return req.annotation(nvFractionsPrefix + req.Container.Name + "." + name) }
		limit, request := value("gpu-memory.limit"), value("gpu-memory.request")
		if limit == "" {
			limit = request // is then the limit too
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
		guaranteed, _ := ParseQuantity(request)
		portion, ok := amount(value("gpu-compute.portion"))
		for i := range gpus {
			gpus[i].memory, gpus[i].Guaranteed = Bytes(bytes), Bytes(min(guaranteed, bytes))
			if ok && portion <= 1 {
				gpus[i].Compute = percent(max(portion*100, min(portion*1e9, 1))) // at least 1 %, as the operator rounds
			}
		}
		return gpus
	},
}

// Fraction is what the agents of the GPU fractioning operator recorded about a container: GPUs by UUID and minor number,
// MiB of memory and a percentage of the threads. No GPU, and a negative number, is an unknown one.
func Fraction(uuids []string, minors []int, mib float64, threads int) []Assignment {
	var out []Assignment
	for _, u := range uuids {
		r, _ := ParseNVML(u)
		out = append(out, Assignment{Ref: r})
	}
	for _, m := range minors {
		a := Assignment{}
		if m >= 0 {
			a.Ref = minorRef(m)
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = []Assignment{{}}
	}
	for i := range out {
		out[i].memory, out[i].Compute = mebibytes(mib), percent(float64(threads))
	}
	return out
}

// Merge joins two records of one container. Of the same GPUs the larger limits count; of different ones, which are in
// use is unknown.
func Merge(a, b []Assignment) []Assignment {
	if !slices.EqualFunc(a, b, func(x, y Assignment) bool { return x.Ref == y.Ref }) {
		return []Assignment{{}}
	}
	a = slices.Clone(a)
	for i := range a {
		a[i].memory = larger(a[i].memory, b[i].memory)
		a[i].Compute = larger(a[i].Compute, b[i].Compute)
	}
	return a
}

func larger[T gpu.Bytes | float64](a, b gpu.Opt[T]) gpu.Opt[T] {
	var none T
	if b.Or(none) > a.Or(none) {
		return b
	}
	return a
}
