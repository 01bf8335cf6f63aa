package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Class is what the device IDs of a scheme are.
type Class int

const (
	Foreign  Class = iota // of a resource that is no GPU's unless its container received one
	Direct                // the ID contains the GPU's UUID or index
	Opaque                // the ID does not identify the GPU, may be swapped for another, or has no known form
	Quantity              // no device but an amount (memory, cores) beside a device: counted only
	NotGPU                // ignored
)

// Scheme is one row of the table: how one plugin, driver or scheduler identifies the GPUs of its allocations.
type Scheme struct {
	Name  string
	class Class
	// Matches reports whether the row applies to a resource name (for DRA, a driver name).
	Matches func(resource string) bool
	// parse parses an ID; false means that it is not of this scheme's form, and the next row is tried. A nil parse
	// takes every ID.
	parse func(resource, id string) (Ref, bool)
	// Hint describes where the GPU of an allocation is recorded when the ID does not identify it.
	Hint string
	// allocated reads the GPUs of a request from what the plugin returned, by default those that the container received.
	// annotated reads them from the annotations of the pod, and may be nil. Both return nil where they are not there.
	allocated, annotated func(*Request) []Assignment

	// Resource is the resource name of allocations by a scheme that requests nothing of the kubelet.
	Resource string
	// Daemon is the namespace and the beginning of the name of the scheme's own pods on a node. Whoever creates a pod
	// writes its annotations, so those of a scheme count only where its daemon runs, or where they are configured.
	// Without one, its placeholder pods are in a namespace of its own.
	Daemon gpu.PodName
	// PerContainer means that its annotations are about one container each.
	PerContainer bool
	// reserves returns the group for which a placeholder pod reserves its GPUs.
	reserves func(gpu.PodName, *Pod) (group string, ok bool)
	// containers selects the containers of a pod that get its GPUs; nil: all.
	containers func(pod *Pod, listed []string) []string
}

// Parsed is what the table makes of one ID.
type Parsed struct {
	Class  Class
	Scheme *Scheme // nil: no row knows the ID
	Ref    Ref     // of a direct ID
}

// Resolve returns the GPUs of one allocation. What the container was given takes precedence over what a scheduler wrote
// on the pod, for some plugins confuse pods that request the same amount; where both name the same GPUs, the limits that
// one lacks are those of the other. A nil Scheme resolves nothing.
func (s *Scheme) Resolve(req *Request) (Resolution, bool) {
	if s == nil {
		return Resolution{}, false
	}
	var given, noted []Assignment
	switch {
	case req.Response == nil:
	case s.allocated == nil:
		given = assign(req.Response.received())
	default:
		given = s.allocated(req)
	}
	if s.annotated != nil && req.Pod != nil {
		noted = s.annotated(req)
	}
	switch {
	case req.Recorded != nil && (noted == nil || identified(req.Recorded)):
		return Resolution{gpu.SourceFractions, req.Recorded, req.complete(req.Recorded, noted)}, true
	case given != nil:
		return Resolution{gpu.SourceCheckpoint, given, req.complete(given, noted)}, true
	case noted != nil:
		return Resolution{gpu.SourceAnnotation, noted, true}, true
	}
	return Resolution{}, false
}

// identified reports whether every assignment names a GPU.
func identified(gpus []Assignment) bool {
	return !slices.ContainsFunc(gpus, func(a Assignment) bool { return a.Ref == Ref{} })
}

// Runs reports whether a pod is the scheme's daemon.
func (s *Scheme) Runs(pod gpu.PodName) bool {
	return pod.Namespace == s.Daemon.Namespace && strings.HasPrefix(pod.Pod, s.Daemon.Pod)
}

// Reserves returns the group for which a placeholder pod reserves the GPUs that the kubelet lists for it; false: the
// pod is no placeholder.
func (s *Scheme) Reserves(name gpu.PodName, pod *Pod) (group string, ok bool) {
	if s.reserves == nil {
		return "", false
	}
	return s.reserves(name, pod)
}

// Containers returns those of a pod's listed containers that get its GPUs.
func (s *Scheme) Containers(pod *Pod, listed []string) []string {
	if s.containers == nil {
		return listed
	}
	return s.containers(pod, listed)
}

// named matches exactly these resource names.
func named(names ...string) func(string) bool {
	return func(resource string) bool { return slices.Contains(names, resource) }
}

// nvidiaPrefix begins the resource names of NVIDIA's own plugins, and of some that imitate them.
const nvidiaPrefix = "nvidia.com/"

// underNVIDIA matches every resource of nvidia.com.
func underNVIDIA(resource string) bool { return strings.HasPrefix(resource, nvidiaPrefix) }
