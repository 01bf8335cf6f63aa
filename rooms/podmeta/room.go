// Package podmeta is the part of the exporter that watches the metadata of this node's pods.
package podmeta

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the kubelet.
func New(flags *kingpin.Application) rooms.Part {
	var on bool
	var labels, schemes []string
	flags.Flag("kubernetes.pods", "Watch the metadata of this node's pods: GPUs that schedulers record in annotations "+
		"(KAI, KubeShare, Koordinator, HAMi ...) "+
		"and workload owners. Requires a token with list and watch on pods.").BoolVar(&on)
	flags.Flag("kubernetes.pod-label", "Pod label to add to gpu_pod_info as label_NAME (repeatable; requires "+
		"--kubernetes.pods).").StringsVar(&labels)
	flags.Flag("kubernetes.pod-scheme", "Scheduler whose pod annotations count although its daemon does not run on this node "+
		"under its usual name and namespace (repeatable; requires --kubernetes.pods): "+strings.Join(podmap.DaemonSchemes(), ", ")+
		". Whoever may create pods can write them, so others are ignored.").EnumsVar(&schemes, podmap.DaemonSchemes()...)
	return rooms.Part{Check: func(c *rooms.Common) error {
		c.PodLabels, c.APIUsed = labels, c.APIUsed || on
		if len(schemes) > 0 && !on {
			return errors.New("--kubernetes.pod-scheme requires --kubernetes.pods")
		}
		return check(c, on, labels)
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		if on {
			p.Pods.API, p.Pods.PodLabels, p.Pods.PodLabelPattern, p.Pods.PodSchemes = &p.API, labels, p.PodLabelPattern, schemes
		}
		r := &rooms.Room{Fixes: map[string]rooms.Fix{"pod_metadata": {"--kubernetes.pods, and a ClusterRole with list and watch on " +
			"pods (chart: features.podMetadata=true)"}}}
		r.Feature("pod_metadata", "GPUs that schedulers record in annotations, and owners of pods: set --kubernetes.pods, with a "+
			"token that may list and watch pods.", p.Kubelet, on, nil)
		return r, nil
	}}
}

func check(c *rooms.Common, on bool, labels []string) error {
	if len(labels) > 0 && !on {
		return errors.New("--kubernetes.pod-label requires --kubernetes.pods")
	}
	if on && !c.Kubelet {
		return errors.New("--kubernetes.pods requires --kubelet")
	}
	for i, l := range labels {
		for _, other := range labels[:i] {
			if catalog.KubeStateLabel(l) == catalog.KubeStateLabel(other) {
				return fmt.Errorf("--kubernetes.pod-label %s and %s map to the same metric label, %s", other, l,
					catalog.KubeStateLabel(l))
			}
		}
	}
	return nil
}
