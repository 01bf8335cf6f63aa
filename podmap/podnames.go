package podmap

import (
	"maps"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// A process tells its pod's UID and nothing else that has a name. Two sources tell whose UID it is: the kubelet's
// checkpoint, whose entry has the same container, resource and device ids as one listed pod, and the API server,
// which has both. A UID is given out once, so what was learned of one stays true.

// nameIndex says which container the processes of a pod are of. It is immutable.
type nameIndex struct {
	record *record
	pods   *podTable
	byUID  map[string]gpu.Container
}

// ContainerOf returns the container to which the processes of a pod's UID belong, and whether that is known for
// certain: the pod is listed by the kubelet now, one source tells its UID and none contradicts, and one of its
// containers alone holds devices, or, where none does, it has one container alone. An ordinary init container, which
// the kubelet does not list, counts as that container. It does no input or output, and is safe for concurrent use.
func (m *Map) ContainerOf(uid string) (gpu.Container, bool) {
	if m.lister == nil || uid == "" {
		return gpu.Container{}, false
	}
	pods := m.watched()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	if s.record == nil || m.options.Clock().Sub(s.at) > m.options.MaxAge {
		return gpu.Container{}, false
	}
	if m.names.record != s.record || m.names.pods != pods {
		m.names = nameIndex{s.record, pods, s.record.names(pods)}
	}
	c, ok := m.names.byUID[uid]
	return c, ok
}

// names finds the container of every UID that is known. It is a pure function of its arguments.
func (r *record) names(pods *podTable) map[string]gpu.Container {
	holders := map[podKey]string{} // the only container that holds; empty: several do
	hold := func(c gpu.Container) {
		key := podKey{c.Namespace, c.Pod}
		if other, ok := holders[key]; ok && other != c.Name {
			holders[key] = ""
			return
		}
		holders[key] = c.Name
	}
	for i := range r.answer.units {
		hold(r.answer.units[i].container)
	}
	for i := range r.answer.blind {
		hold(r.answer.blind[i].container)
	}
	out := map[string]gpu.Container{}
	disputed := map[string]bool{}
	for key, order := range r.answer.order {
		uid := r.uid(pods, key)
		if uid == "" {
			continue
		}
		name, holds := holders[key]
		if !holds && len(order) == 1 {
			name = order[0]
		}
		if _, ok := out[uid]; ok {
			disputed[uid] = true // two pods of one UID: one of the sources is wrong
		}
		out[uid] = gpu.Container{Namespace: key.namespace, Pod: key.name, Name: name}
	}
	maps.DeleteFunc(out, func(uid string, c gpu.Container) bool { return disputed[uid] || c.Name == "" })
	return out
}

// uid is the UID of a listed pod by which its processes may be named; empty where none is certain.
func (r *record) uid(pods *podTable, key podKey) string {
	matched := r.uids[key]
	p := pods.get(key)
	switch {
	case p == nil || p.uid == "":
		return r.settled[key]
	case matched != "" && matched != p.uid:
		return ""
	}
	return p.uid
}

// agreed keeps the UIDs that this record and the one before agree on. The list and the checkpoint are read one after
// the other: between the two, an entry of the pod that had the same devices before may still stand in the file.
func agreed(uids map[podKey]string, before *record) map[podKey]string {
	out := map[podKey]string{}
	for key, uid := range uids {
		if before != nil && before.uids[key] == uid {
			out[key] = uid
		}
	}
	return out
}
