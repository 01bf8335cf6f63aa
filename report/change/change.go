// Package change writes what carries out advice: commands, and parts of manifests.
package change

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
	"github.com/gpu-exporter/gpu-exporter/report/units"
)

// Release is the command that releases GPUs: those of the whole workload, or of some idle pods.
func Release(r *document.Workload, whole bool, idle []string) (where, text string) {
	kind, namespace := gpu.KindOf(r.Kind), kube.Shell(r.Namespace)
	remove := func(words ...string) string { return "kubectl -n " + namespace + " delete " + kube.Operands(words...) }
	switch {
	case r.Namespace == "":
		return "host", "Ask the owner of " + r.Kind + " " + r.Name + " to stop it."
	case !whole && kind.Scales:
		return "shell", fmt.Sprintf("# %s fewer; idle now: %s\n%s%d", units.Count(float64(len(idle)), "pod"),
			kube.OneLine(strings.Join(idle, ", ")), scale(r), max(0, r.Pods-len(idle)))
	case !whole && kind.Pods == gpu.Together:
		return "workload",
			fmt.Sprintf("# Its pods belong together, and a deleted one is started again: ask the owner to run it without %s.",
				kube.OneLine(strings.Join(idle, ", ")))
	case !whole:
		return "shell", remove(append([]string{"pod"}, idle...)...)
	case kind.Scales:
		return "shell", scale(r) + "0"
	case r.OwnerFrom == kube.Itself:
		return "shell", remove("pod", r.Name)
	}
	return "shell", remove(kind.Resource, r.Name)
}

// scale is the command that sets the number of pods, without the number.
func scale(r *document.Workload) string {
	return fmt.Sprintf("kubectl -n %s scale %s/%s --replicas=", kube.Shell(r.Namespace), gpu.KindOf(r.Kind).Resource, kube.Shell(r.Name))
}

// Size is what makes a workload smaller, for the pod and for the node.
func Size(r *document.Workload, s *sizing.Size) (where, text string) {
	if s.Replicas == 0 {
		return "pod template and mig-parted", fmt.Sprintf(`# pod
resources:
  limits:
    %s: 1
# nodes, configuration of mig-parted
version: v1
mig-configs:
  some-%s:
  - devices: [0]   # as many GPUs as are needed: the others of the node stay as they are
    mig-enabled: true
    mig-devices:
      %q: %d`, s.Profile.Resource(), s.Profile.Name, s.Profile.Name, s.Profile.PerGPU)
	}
	text = fmt.Sprintf(`# configuration of the device plugin, for a node pool whose GPUs are all shared
# (label nvidia.com/device-plugin.config)
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: %d
# pod: requests a share, by a name that pods with a whole GPU do not have
resources:
  limits:
    nvidia.com/gpu.shared: 1`, s.Replicas)
	if r.Preallocated {
		text += fmt.Sprintf(`
# and limit the memory that the program allocates, for example
#   vLLM:    --gpu-memory-utilization=%[1]s
#   JAX:     XLA_PYTHON_CLIENT_MEM_FRACTION=%[1]s
#   PyTorch: torch.cuda.set_per_process_memory_fraction(%[1]s)
# then look at its memory again: the need shows once it no longer allocates all`,
			fmt.Sprintf("%.2f", 0.92/float64(s.Replicas)))
	}
	return "device plugin", text
}

// Replicas is what sets the number of replicas of now: for good, or by a schedule in the hours from one to another.
func Replicas(r *document.Workload, now, high, low, from, to int, zone string) (text string) {
	switch kind := gpu.KindOf(r.Kind); {
	case kind.Name == "KnativeService":
		return fmt.Sprintf(`# spec.template.metadata.annotations; between the two its requests set the number
autoscaling.knative.dev/min-scale: "%d"
autoscaling.knative.dev/max-scale: "%d"`, low, now)
	case kind.Name == "InferenceService":
		return fmt.Sprintf("# between the two its requests set the number\nspec:\n  predictor:\n    minReplicas: %d\n    maxReplicas: %d",
			low, now)
	case from == to:
		return fmt.Sprintf("%s%d\n# or an autoscaler on the metric of its requests, from %d to %d, the number of today",
			scale(r), high, high, now)
	}
	return fmt.Sprintf(`# KEDA: a ScaledObject with two triggers of type cron and timezone: %[1]s, or a CronJob each with timeZone: %[1]s
# at %02[2]d:00 %[1]s
%[3]s%[4]d
# at %02[5]d:00 %[1]s
%[3]s%[6]d`, zone, from, scale(r), low, to, high)
}
