package report

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/report/kube"
)

// releaseChange is the command that releases GPUs: those of the whole workload, or of some idle pods.
func releaseChange(r *Workload, whole bool, idle []string) (where, text string) {
	kind, namespace := strings.ToLower(r.Kind), kube.Shell(r.Namespace)
	scalable := kind == "deployment" || kind == "statefulset" || kind == "replicaset"
	scale := func(replicas int) string {
		return fmt.Sprintf("kubectl -n %s scale %s/%s --replicas=%d", namespace, kind, kube.Shell(r.Name), replicas)
	}
	remove := func(words ...string) string { return "kubectl -n " + namespace + " delete " + kube.Operands(words...) }
	switch {
	case r.Namespace == "":
		return "host", "Ask the owner of " + r.Kind + " " + r.Name + " to stop it."
	case !whole && scalable:
		return "shell", fmt.Sprintf("# %d pods fewer; idle now: %s\n%s", len(idle),
			kube.OneLine(strings.Join(idle, ", ")),
			scale(max(0, r.Pods-len(idle))))
	case !whole:
		return "shell", remove(append([]string{"pod"}, idle...)...)
	case scalable:
		return "shell", scale(0)
	case r.OwnerFrom == kube.Itself || kind == "pod":
		return "shell", remove("pod", r.Name)
	}
	return "shell", remove(kind, r.Name)
}

// sizeChange is what makes a workload smaller, for the pod and for the node.
func sizeChange(r *Workload, s *sizing) (where, text string) {
	if s.replicas == 0 {
		return "pod template and mig-parted", fmt.Sprintf(`# pod
resources:
  limits:
    %s: 1
# nodes, configuration of mig-parted
version: v1
mig-configs:
  all-%s:
  - devices: all
    mig-enabled: true
    mig-devices:
      %q: %d`, s.profile.Resource(), s.profile.Name, s.profile.Name, s.profile.PerGPU)
	}
	text = fmt.Sprintf(`# configuration of the device plugin, for the nodes whose GPUs are to be shared
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: %d
# the pods still request nvidia.com/gpu: 1`, s.replicas)
	if r.Preallocated {
		text += fmt.Sprintf(`
# and limit the memory that the program allocates, for example
#   vLLM:    --gpu-memory-utilization=%[1]s
#   JAX:     XLA_PYTHON_CLIENT_MEM_FRACTION=%[1]s
#   PyTorch: torch.cuda.set_per_process_memory_fraction(%[1]s)
# then look at its memory again: the need shows once it no longer allocates all`,
			fmt.Sprintf("%.2f", 0.92/float64(s.replicas)))
	}
	return "device plugin", text
}
