package deviceid

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

// Request is one container's allocation of one resource, with all that may identify its GPUs.
type Request struct {
	Container gpu.Container
	Resource  string
	Devices   int
	// Allocatable is the number of devices of the resource on the node, 0 where unknown.
	Allocatable float64
	// Amounts counts the distinct IDs of every resource of the container that a scheme knows.
	Amounts map[string]int
	// Inventory is the GPUs of the node; nil without.
	Inventory *gpu.Inventory
	// Response is what the plugin returned to the kubelet for this allocation; nil without.
	Response *Response
	// Recorded are the GPUs that an agent of the scheme recorded on the node; nil without.
	Recorded []Assignment
	// Pod is the pod's metadata; nil without.
	Pod *Pod
	// Siblings are the pod's containers with an allocation by this scheme, in the order of the kubelet's response: that
	// of the pod's spec, restartable init containers first. Ordinary init containers never appear.
	Siblings []Sibling
	// Last is true where no other container of the pod is listed after this one.
	Last bool
}

// Response is what a plugin returned to the kubelet for one container and resource. It has the fields of the kubelet's
// checkpoint that some scheme reads (source.Response).
type Response struct {
	Env         map[string]string
	Annotations map[string]string // of the container
	Nodes       []string          // device nodes, with the paths of the host
	CDI         []string          // qualified CDI names
	Mounts      []string          // device names that the container runtime reads from mounts
}

// Pod is the metadata of a pod.
type Pod struct{ Labels, Annotations map[string]string }

// Sibling is a container of the same pod, with the number of its devices.
type Sibling struct {
	Name    string
	Devices int
}

// anyCount is the number of devices of a slot that does not state it.
const anyCount = -1

// rank is the container's place among its siblings, -1 where it appears twice or never.
func (req *Request) rank() int {
	at := -1
	for i, s := range req.Siblings {
		if s.Name == req.Container.Name {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// slot finds which of several slots is this container's. The slots are those with a GPU, in the order of the
// containers; counts has the number of devices of each. Tail is true where the very last slot of the pod is among
// them. Schemes differ in whether they count init containers, and the kubelet lists only some of those, so slot
// numbers are not compared: as many slots as siblings, with equal counts, are matched in order. With more slots than
// siblings an ordinary init container had a GPU too; then only the last container is certain, which is never an init
// container.
func (req *Request) slot(counts []int, tail bool) (int, bool) {
	rank := req.rank()
	if rank < 0 {
		return 0, false
	}
	if len(counts) == len(req.Siblings) {
		for i, n := range counts {
			if n != anyCount && n != req.Siblings[i].Devices {
				return 0, false
			}
		}
		return rank, true
	}
	at := len(counts) - 1
	ok := at >= len(req.Siblings) && tail && req.Last && (counts[at] == anyCount || counts[at] == req.Devices)
	return at, ok
}

// annotation returns an annotation of the pod, env an environment variable that the plugin set for the container; empty
// without. They are for schemes whose Request has the Pod or the Response.
func (req *Request) annotation(key string) string { return req.Pod.Annotations[key] }
func (req *Request) env(key string) string        { return req.Response.Env[key] }
