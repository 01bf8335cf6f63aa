// Package kube has what the report derives from names of Kubernetes, and the quoting of its commands.
package kube

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Where the owner of a pod is known from.
const (
	Recorded = "recorded" // by the exporter, or by kube-state-metrics
	Guessed  = "name"     // from how controllers name their pods
	Itself   = "pod"      // the pod stands for itself
)

// Owner is the workload of a pod.
type Owner struct{ Kind, Name, From string }

// Kubernetes draws the random part of names from an alphabet without vowels and without digits that look like letters.
var podNames = []struct {
	form *regexp.Regexp
	kind string
}{
	{regexp.MustCompile(`^(.+)-[bcdf-hj-np-tv-xz2456789]{8,10}-[bcdf-hj-np-tv-xz2456789]{5}$`), "Deployment"},
	{regexp.MustCompile(`^(.+)-[0-9]{1,4}$`), "StatefulSet"},
	{regexp.MustCompile(`^(.+)-[bcdf-hj-np-tv-xz2456789]{5}$`), "Job"},
}

// GuessOwner derives the owner from a pod's name. A name that no controller would give belongs to the pod itself.
func GuessOwner(pod string) Owner {
	if kind, name, ok := strings.Cut(pod, "/"); ok {
		return Owner{kind, name, Recorded} // outside Kubernetes: docker/NAME, slurm/JOB
	}
	for _, p := range podNames {
		if m := p.form.FindStringSubmatch(pod); m != nil {
			return Owner{p.kind, m[1], Guessed}
		}
	}
	return Owner{"Pod", pod, Itself}
}

// RecordedOwner is the owner that a rule or a series names; where they name none it is guessed.
func RecordedOwner(kind, name, pod string) Owner {
	if name == "" || kind == "pod" && (pod == "" || name == pod) {
		if pod == "" {
			pod = name
		}
		return GuessOwner(pod)
	}
	return Owner{kind, name, Recorded}
}

// NodeLabels are the labels of nodes that name their pool, or their zone and region, as kube-state-metrics spells them.
func NodeLabels(dimension string) (out []string) {
	for _, d := range catalog.Dimensions() {
		for _, l := range d.Labels {
			if d.Name == dimension {
				out = append(out, catalog.KubeStateLabel(l))
			}
		}
	}
	if dimension == "zone" {
		out = append(out, catalog.KubeStateLabel("topology.kubernetes.io/region"))
	}
	return out
}

// LabelMetric is the label of kube-state-metrics for a label of nodes.
func LabelMetric(label string) string { return catalog.KubeStateLabel(label) }

// counted is the last part of a node's name that distinguishes nodes of a pool: a number, or what a cloud drew.
var counted = regexp.MustCompile(`(?:[-_][0-9a-f]{8,10})?[-_](?:[0-9]+|[bcdf-hj-np-tv-z2456789]{4,5}|[0-9a-f]{8,})$`)

// PoolOf is the name of a node without its number: h100-a-007 and h100-a-008 are one pool. An address has no pool.
func PoolOf(node string) string {
	host, _, _ := strings.Cut(node, ".")
	if strings.HasPrefix(host, "ip-") || strings.Trim(host, "0123456789-") == "" {
		return ""
	}
	if i := counted.FindStringIndex(host); i != nil && i[0] > 0 {
		return host[:i[0]]
	}
	if trimmed := strings.TrimRight(host, "0123456789"); trimmed != "" {
		return trimmed
	}
	return host
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9._/][-a-zA-Z0-9._/]*$`)

// Shell quotes a word for a POSIX shell, if it needs to be.
func Shell(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Operands are words of a command that are no options, whatever they begin with.
func Operands(list ...string) string {
	out := make([]string, 0, len(list)+1)
	for _, s := range list {
		if strings.HasPrefix(s, "-") && !slices.Contains(out, "--") {
			out = slices.Insert(out, 0, "--")
		}
		out = append(out, Shell(s))
	}
	return strings.Join(out, " ")
}

// OneLine keeps a text within the comment in which it stands.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, s)
}

// ResourceName turns kube-state-metrics' spelling of a resource into Kubernetes' own, as far as it is unambiguous.
func ResourceName(resource string) string {
	if rest, ok := strings.CutPrefix(resource, "nvidia_com_mig_"); ok {
		return "nvidia.com/mig-" + strings.Replace(rest, "_", ".", 1)
	}
	if rest, ok := strings.CutPrefix(resource, "nvidia_com_"); ok {
		return "nvidia.com/" + strings.ReplaceAll(rest, "_", ".")
	}
	return resource
}

// Requested are CPUs and bytes of memory.
type Requested struct{ Cores, Bytes float64 }

// Of points at the amount of a resource; nil if it is another one.
func (r *Requested) Of(resource string) *float64 {
	return map[string]*float64{"cpu": &r.Cores, "memory": &r.Bytes}[resource]
}
