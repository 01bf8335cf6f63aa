package source

import (
	"maps"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Pod is the metadata of one pod of this node. It is immutable.
type Pod struct {
	UID                  string
	Labels               map[string]string
	Annotations          map[string]string // those that are kept
	OwnerKind, OwnerName string            // the controller that created the pod, "ReplicaSet" and "web-5d4f"
	// Requests are the names of the extended resources that each container requests.
	Requests map[string][]string
	// Since is when the pod was first listed; absent for the pods of the first list.
	Since gpu.Opt[time.Time]
}

// Pods is the metadata of this node's pods at one time. It is immutable; nil is empty.
type Pods struct{ byName map[gpu.PodName]*Pod }

// NewPods returns a table of pods, which must not change afterwards.
func NewPods(byName map[gpu.PodName]*Pod) *Pods { return &Pods{byName} }

// Get returns the metadata of a pod; nil without.
func (p *Pods) Get(name gpu.PodName) *Pod {
	if p == nil {
		return nil
	}
	return p.byName[name]
}

// Names are the names of the pods, sorted.
func (p *Pods) Names() []gpu.PodName {
	if p == nil {
		return nil
	}
	names := slices.Collect(maps.Keys(p.byName))
	gpu.Sort(names, gpu.PodName.Compare)
	return names
}
