package podmap

import (
	"cmp"
	"maps"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// names returns the container of every known UID. It is a pure function of its arguments.
func (s *snapshot) names(pods *source.Pods) map[string]gpu.Container {
	users := map[gpu.PodName]string{} // the only container with devices; empty: several
	note := func(c gpu.Container) {
		if other, ok := users[c.PodName()]; ok && other != c.Name {
			users[c.PodName()] = ""
			return
		}
		users[c.PodName()] = c.Name
	}
	for i := range s.direct {
		note(s.direct[i].container)
	}
	for i := range s.opaque {
		note(s.opaque[i].container)
	}
	out := map[string]gpu.Container{}
	disputed := map[string]bool{}
	for pod, order := range s.order {
		uid := s.uid(pods, pod)
		if uid == "" {
			continue
		}
		name, ok := users[pod]
		if !ok && len(order) == 1 {
			name = order[0]
		}
		if _, ok := out[uid]; ok {
			disputed[uid] = true // two pods of one UID: one of the data sources is wrong
		}
		out[uid] = gpu.Container{Namespace: pod.Namespace, Pod: pod.Pod, Name: name}
	}
	maps.DeleteFunc(out, func(uid string, c gpu.Container) bool { return disputed[uid] || c.Name == "" })
	return out
}

// uid is the UID by which the processes of a listed pod may be named; empty where none is certain.
func (s *snapshot) uid(pods *source.Pods, pod gpu.PodName) string {
	p := pods.Get(pod)
	if p == nil || p.UID == "" {
		return s.settled[pod]
	}
	if cmp.Or(s.uids[pod], p.UID) != p.UID {
		return ""
	}
	return p.UID
}
