package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// shell quotes a word for a POSIX shell, if it needs to be.
func shell(s string) string {
	plain := s != ""
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._/", c)) {
			plain = false
		}
	}
	if plain && !strings.HasPrefix(s, "-") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// releaseChange is the command that gives GPUs back.
func releaseChange(r *Workload, whole bool, pods int, idle []string) (where, text string) {
	kind := strings.ToLower(r.Kind)
	namespace := "-n " + shell(r.Namespace)
	switch {
	case r.Namespace == "":
		return "host", "Ask the owner of " + r.Kind + " " + r.Name + " to end it."
	case !whole && (kind == "deployment" || kind == "statefulset" || kind == "replicaset"):
		return "shell", fmt.Sprintf("# %d pods fewer; idle now: %s\nkubectl %s scale %s/%s --replicas=%d", pods, oneLine(strings.Join(idle, ", ")), namespace, kind, shell(r.Name), max(0, r.Pods-pods))
	case !whole:
		return "shell", fmt.Sprintf("kubectl %s delete %s", namespace, operands(append([]string{"pod"}, idle...)...))
	case kind == "deployment" || kind == "statefulset" || kind == "replicaset":
		return "shell", fmt.Sprintf("kubectl %s scale %s/%s --replicas=0", namespace, kind, shell(r.Name))
	case r.OwnerFrom == ownerPod || kind == "pod":
		return "shell", fmt.Sprintf("kubectl %s delete %s", namespace, operands("pod", r.Name))
	}
	return "shell", fmt.Sprintf("kubectl %s delete %s", namespace, operands(kind, r.Name))
}

// operands are words of a command that are no options, whatever they begin with.
func operands(list ...string) string {
	out := make([]string, 0, len(list)+1)
	for _, s := range list {
		if strings.HasPrefix(s, "-") && !slices.Contains(out, "--") {
			out = slices.Insert(out, 0, "--")
		}
		out = append(out, shell(s))
	}
	return strings.Join(out, " ")
}

// oneLine keeps a text within the comment in which it stands.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, s)
}

// gpusChange is the resource line of a pod that asks for whole GPUs.
func GPUsChange(r *Workload, devs int) string {
	return fmt.Sprintf("resources:\n  limits:\n    nvidia.com/gpu: %d   # and as many ranks (torchrun --nproc-per-node=%d)", devs, devs)
}

// sizeChange is what makes a workload smaller, for the pod and for the node.
func sizeChange(r *Workload, s *sizing) (where, text string) {
	if s.replicas > 0 {
		text = fmt.Sprintf(`# configuration of the device plugin, for the nodes that are to share
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: %d
# the pods go on asking for nvidia.com/gpu: 1`, s.replicas)
		if r.Preallocated {
			text += fmt.Sprintf(`
# and cap what the program takes, for example
#   vLLM:    --gpu-memory-utilization=%.2f
#   JAX:     XLA_PYTHON_CLIENT_MEM_FRACTION=%.2f
#   PyTorch: torch.cuda.set_per_process_memory_fraction(%.2f)
# then look at its memory again: what it needs can be seen once it no longer takes all`, 0.92/float64(s.replicas), 0.92/float64(s.replicas), 0.92/float64(s.replicas))
		}
		return "device plugin", text
	}
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
      %q: %d`, s.profile.Resource(), s.profile.Name, s.profile.Name, s.profile.Most)
}
