package report

import (
	"regexp"
	"strings"
)

// Where the owner of a pod is known from.
const (
	ownerRecorded = "recorded" // by the exporter, or by kube-state-metrics
	ownerGuessed  = "name"     // from how controllers name their pods
	ownerPod      = "pod"      // the pod stands for itself
)

// owner is the workload of a pod.
type owner struct{ kind, name, from string }

// Kubernetes draws the random part of names from an alphabet without vowels and without digits that look like letters.
var podNames = []struct {
	form *regexp.Regexp
	kind string
}{
	{regexp.MustCompile(`^(.+)-[bcdf-hj-np-tv-xz2456789]{8,10}-[bcdf-hj-np-tv-xz2456789]{5}$`), "Deployment"},
	{regexp.MustCompile(`^(.+)-[0-9]{1,4}$`), "StatefulSet"},
	{regexp.MustCompile(`^(.+)-[bcdf-hj-np-tv-xz2456789]{5}$`), "Job"},
}

// guessOwner derives the owner from a pod's name. A name that no controller would give belongs to the pod itself.
func guessOwner(pod string) owner {
	if kind, name, ok := strings.Cut(pod, "/"); ok {
		return owner{kind, name, ownerRecorded} // outside Kubernetes: docker/NAME, slurm/JOB
	}
	for _, p := range podNames {
		if m := p.form.FindStringSubmatch(pod); m != nil {
			return owner{p.kind, m[1], ownerGuessed}
		}
	}
	return owner{"Pod", pod, ownerPod}
}

// recordedOwner is the owner that a rule or a series names; where they name none it is guessed.
func recordedOwner(kind, name, pod string) owner {
	if name == "" || kind == "pod" && (pod == "" || name == pod) {
		if pod == "" {
			pod = name
		}
		return guessOwner(pod)
	}
	return owner{kind, name, ownerRecorded}
}
