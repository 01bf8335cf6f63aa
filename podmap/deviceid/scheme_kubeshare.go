package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// What KubeShare writes on pods: 2 the GPU's UUID, 1 the name of a placeholder's group.
const (
	kubeShareUUID       = "sharedgpu/gpu_uuid"
	kubeShareMemory     = "sharedgpu/gpu_mem" // bytes
	kubeShareRequest    = "sharedgpu/gpu_request"
	kubeShareOldID      = "kubeshare/GPUID"
	kubeShareOldRequest = "kubeshare/gpu_request"
	kubeShareOldMemory  = "kubeshare/gpu_mem"
	kubeSharePlace      = "kubeshare-vgpu-" // begins a placeholder's name, which ends with its group
)

// kubeShare is KubeShare 2: no device plugin, the scheduler names the GPU. A request of up to 1 is a fraction of the
// time of one GPU, a larger one is a number of whole GPUs.
var kubeShare = Scheme{
	Name:     "kubeshare",
	Resource: kubeShareRequest,
	Daemon:   gpu.PodName{Namespace: "kube-system", Pod: "kubeshare-node-daemon-"}, // deploy/node-daemon.yaml at a862311
	annotated: func(req *Request) []Assignment {
		list := req.annotation(kubeShareUUID)
		if list == "" {
			return nil
		}
		refs := parseVisible(list) // a trailing comma is usual
		if refs == nil || slices.ContainsFunc(refs, func(r Ref) bool { return r.by != byUUID && r.by != byMIG }) {
			return []Assignment{{}} // an unknown GPU
		}
		gpus := assign(refs)
		request, okRequest := amount(req.Pod.Labels[kubeShareRequest])
		if len(gpus) > 1 || okRequest && request == 1 {
			for i := range gpus {
				gpus[i].Exclusive = true
			}
		} else if okRequest && request > 0 && request < 1 {
			gpus[0].fraction, gpus[0].Compute = gpu.Some(request), gpu.Some(request)
		}
		if memory, ok := amount(req.annotation(kubeShareMemory)); ok && len(gpus) == 1 {
			gpus[0].memory = Bytes(memory)
		}
		return gpus
	},
}

// kubeShareOld is KubeShare 1: a placeholder pod in kube-system has the GPU for a group with a random name, which its
// members carry.
var kubeShareOld = Scheme{
	Name: "kubeshare 1",
	reserves: func(name gpu.PodName, _ *Pod) (string, bool) {
		at := strings.LastIndex(name.Pod, "-")
		return name.Pod[at+1:], name.Namespace == "kube-system" && strings.HasPrefix(name.Pod, kubeSharePlace) &&
			at >= len(kubeSharePlace)
	},
	annotated: func(req *Request) []Assignment {
		a := Assignment{Group: req.annotation(kubeShareOldID)}
		if a.Group == "" {
			return nil
		}
		if r, ok := amount(req.annotation(kubeShareOldRequest)); ok && r > 0 && r <= 1 {
			a.fraction, a.Compute = gpu.Some(r), gpu.Some(r)
		}
		if memory, ok := amount(req.annotation(kubeShareOldMemory)); ok {
			a.memory = Bytes(memory)
		}
		return []Assignment{a}
	},
}
