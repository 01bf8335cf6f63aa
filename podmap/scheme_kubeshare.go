package podmap

import (
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

// kubeShare is KubeShare 2: no device plugin, the scheduler names the GPU. A request of up to 1 is a part of the
// time of one GPU, of more it is a number of whole GPUs.
var kubeShare = quietScheme{
	name:     "kubeshare 2",
	resource: kubeShareRequest,
	read: func(p *podMeta) ([]grant, bool) {
		list := p.annotations[kubeShareUUID]
		if list == "" {
			return nil, false
		}
		refs, ok := readVisible(list) // a trailing comma is usual
		for _, r := range refs {
			ok = ok && (r.by == byUUID || r.by == byMIG)
		}
		if !ok {
			return nil, true // it holds a GPU, and which is not understood
		}
		grants := grantsOf(refs)
		request, okRequest := amount(p.labels[kubeShareRequest])
		if len(grants) > 1 || okRequest && request == 1 {
			for i := range grants {
				grants[i].whole = true
			}
		} else if okRequest && request > 0 && request < 1 {
			grants[0].fraction, grants[0].compute = gpu.Some(request), gpu.Some(request)
		}
		if memory, ok := amount(p.annotations[kubeShareMemory]); ok && len(grants) == 1 {
			grants[0].memory = bytesOf(memory)
		}
		return grants, true
	},
}

// kubeShareOld is KubeShare 1: a placeholder pod in kube-system holds the GPU for a group with an invented
// name, and the members carry that name.
var kubeShareOld = placeholderScheme{
	name: "kubeshare 1",
	group: func(pod podKey, _ *podMeta) (string, bool) {
		at := strings.LastIndex(pod.name, "-")
		return pod.name[at+1:], pod.namespace == "kube-system" && strings.HasPrefix(pod.name, kubeSharePlace) && at >= len(kubeSharePlace)
	},
	member: func(p *podMeta) (membership, bool) {
		m := membership{every: true}
		group := p.annotations[kubeShareOldID]
		if group == "" {
			return m, false
		}
		m.groups = []string{group}
		if request, ok := amount(p.annotations[kubeShareOldRequest]); ok && request > 0 && request <= 1 {
			m.grant.fraction, m.grant.compute = gpu.Some(request), gpu.Some(request)
		}
		if memory, ok := amount(p.annotations[kubeShareOldMemory]); ok {
			m.grant.memory = bytesOf(memory)
		}
		return m, true
	},
}
