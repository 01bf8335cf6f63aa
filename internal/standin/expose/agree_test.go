package expose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// kubeState reads one family of kube-state-metrics by the values of some of its labels.
func kubeState(f *fleet.Fleet, at time.Time, family string, by ...string) map[string]float64 {
	out := map[string]float64{}
	f.KubeState("", at, func(k fleet.KubeFamily, series func(fleet.KubeEmit)) {
		if k.Name != family {
			return
		}
		series(func(v float64, labels ...string) {
			var key []string
			for _, want := range by {
				for i := 0; i < len(labels); i += 2 {
					if labels[i] == want {
						key = append(key, labels[i+1])
					}
				}
			}
			out[strings.Join(key, "/")] += v
		})
	})
	return out
}

// Rules join the exporters' series with those of kube-state-metrics: both must speak of the same pods, nodes and
// counts at any moment.
func TestKubernetesAgreesWithTheExporters(t *testing.T) {
	for _, c := range []fleet.Config{fleet.Demo(1), fleet.Big(2, 40, 8)} {
		f, err := fleet.New(c)
		must.OK(t, err)
		for _, d := range []time.Duration{0, 17 * time.Minute, 5 * time.Hour, 60 * time.Hour} {
			at := someDay.Add(d)
			running := kubeState(f, at, "kube_pod_status_phase", "namespace", "pod", "phase")
			requests := kubeState(f, at, "kube_pod_container_resource_requests", "namespace", "pod", "container", "node", "resource")
			allocatable := kubeState(f, at, "kube_node_status_allocatable", "node", "resource")
			infos := kubeState(f, at, "kube_pod_info", "namespace", "pod", "uid", "node")
			seen := map[string]bool{}
			for i := range f.Len() {
				v := f.View(i, at)
				if v == nil {
					continue
				}
				allocated := map[string]float64{}
				for _, h := range v.Allocations {
					allocated[strings.Join([]string{h.Container.Namespace, h.Container.Pod, h.Container.Name, v.Node,
						catalog.ResourceLabel(h.Resource)}, "/")]++
					if running[h.Container.Namespace+"/"+h.Container.Pod+"/Running"] != 1 {
						t.Errorf("%s at %v: %s holds a gpu and does not run", v.Node, at, h.Container.Pod)
					}
				}
				for key, n := range allocated {
					seen[key] = true
					if requests[key] != n {
						t.Errorf("at %v: %s has %v and requested %v", at, key, n, requests[key])
					}
				}
				for _, p := range v.Pods {
					if infos[strings.Join([]string{p.Namespace, p.Pod, p.UID, v.Node}, "/")] != 1 {
						t.Errorf("%s at %v: Kubernetes does not know %s", v.Node, at, p.Pod)
					}
				}
				for _, r := range v.Resources {
					if n, _ := r.Allocatable.Get(); allocatable[v.Node+"/"+catalog.ResourceLabel(r.Resource)] != float64(n) {
						t.Errorf("%s at %v: %d of %s can be had, Kubernetes says %v", v.Node, at, n, r.Resource,
							allocatable[v.Node+"/"+catalog.ResourceLabel(r.Resource)])
					}
				}
				for key := range requests {
					part := strings.Split(key, "/")
					if part[3] == v.Node && strings.HasPrefix(part[4], "nvidia_com_") && running[part[0]+"/"+part[1]+"/Running"] == 1 &&
						!seen[key] {
						t.Errorf("at %v: %s runs and holds nothing", at, key)
					}
				}
			}
		}
	}
}
