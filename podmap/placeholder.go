package podmap

import (
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// placeholderScheme is a scheme in which one pod holds a GPU at the kubelet for others that use it.
type placeholderScheme struct {
	name string
	// group is the group for which a pod holds its GPUs; false: the pod is no placeholder.
	group func(podKey, *podMeta) (string, bool)
	// member is what a pod has of the GPUs of which groups; false: it belongs to none.
	member func(*podMeta) (membership, bool)
}

// placeholderSchemes is their table.
var placeholderSchemes = []placeholderScheme{kai, kubeShareOld}

// membership is a pod's part in the GPUs of groups.
type membership struct {
	groups []string
	grant  grant // of each GPU; its ref is the placeholder's
	// container is the one that is given the GPU; empty: the first, or every one alike.
	container string
	every     bool
}

// member is a container for which a placeholder holds its GPUs.
type member struct {
	container gpu.Container
	grant     grant
	among     int
	since     gpu.Opt[time.Time]
}

// reservations are the placeholders among the listed pods, with those for whom they hold. One for whom nobody
// is listed is not among them: its GPU is not free.
func (r *record) reservations(pods *podTable) map[podKey][]member {
	if pods == nil {
		return nil
	}
	type group struct{ scheme, name string }
	places, members := map[group][]podKey{}, map[group][]member{}
	for _, pod := range pods.keys() {
		p := r.metadata(pods, pod)
		if p == nil || len(r.answer.order[pod]) == 0 {
			continue
		}
		for _, s := range placeholderSchemes {
			if name, ok := s.group(pod, p); ok {
				places[group{s.name, name}] = append(places[group{s.name, name}], pod)
				continue
			}
			m, ok := s.member(p)
			if !ok {
				continue
			}
			containers := r.containers(pod, m)
			for _, name := range slices.Compact(slices.Sorted(slices.Values(m.groups))) {
				for _, c := range containers {
					members[group{s.name, name}] = append(members[group{s.name, name}],
						member{container: c, grant: m.grant, among: len(containers), since: p.since})
				}
			}
		}
	}
	out := map[podKey][]member{}
	for g, holders := range places {
		if len(holders) == 1 { // else nobody tells whose GPU is meant
			out[holders[0]] = members[g]
		}
	}
	return out
}

// containers are those of a pod that a membership gives the GPU to. Where it names none it is the first of the
// kubelet's answer, which is that of the specification unless restartable init containers come before it.
func (r *record) containers(pod podKey, m membership) []gpu.Container {
	names := r.answer.order[pod]
	switch {
	case m.every:
	case m.container == "":
		names = names[:1]
	case slices.Contains(names, m.container):
		names = []string{m.container}
	default:
		return nil // it is not listed: an init container
	}
	out := make([]gpu.Container, len(names))
	for i, name := range names {
		out[i] = gpu.Container{Namespace: pod.namespace, Pod: pod.name, Name: name}
	}
	return out
}

// quietScheme is a scheme that asks the kubelet for nothing: all that tells of it is on the pod.
type quietScheme struct {
	name string
	// resource is by what name such a holding goes.
	resource string
	// read reads the GPUs of a pod; false: it is not of this scheme. No grants say that it holds GPUs that
	// cannot be told.
	read func(*podMeta) ([]grant, bool)
}

// quietSchemes is their table.
var quietSchemes = []quietScheme{kubeShare, koordinator}

// quietClaim is what one container holds by such a scheme.
type quietClaim struct {
	container gpu.Container
	resource  string
	grants    []grant
	among     int
	since     gpu.Opt[time.Time]
}

// quiet are the holdings of which the kubelet lists nothing. The GPU is shown to every container of the pod,
// so each has its part. A pod that holds GPUs at the kubelet too is left to that.
func (r *record) quiet(pods *podTable) []quietClaim {
	if pods == nil {
		return nil
	}
	holds := map[podKey]bool{}
	for _, h := range r.answer.held {
		holds[h.pod()] = true
	}
	var out []quietClaim
	for _, pod := range pods.keys() {
		p := r.metadata(pods, pod)
		if p == nil || holds[pod] {
			continue
		}
		containers := r.containers(pod, membership{every: true})
		for _, s := range quietSchemes {
			grants, ok := s.read(p)
			if !ok {
				continue
			}
			if len(grants) == 0 {
				grants = []grant{{ref: ref{by: byNothing}}}
			}
			for _, c := range containers {
				out = append(out, quietClaim{container: c, resource: s.resource, grants: grants, among: len(containers), since: p.since})
			}
		}
	}
	return out
}
