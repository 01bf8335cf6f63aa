package deviceid

import (
	"math"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Request is one container's allocation of one resource, with all that may identify its GPUs.
type Request struct {
	Container gpu.Container
	Resource  string
	Devices   int
	// Allocatable is the number of devices of the resource on the node, 0 where unknown.
	Allocatable float64
	// Beside counts the devices that the container has of the scheme's other resources.
	Beside map[string]int
	// Response is what the plugin returned to the kubelet for this allocation; nil without.
	Response *Response
	// Pod is the pod's metadata; nil without.
	Pod *Pod
	// Siblings are the pod's containers with an allocation by this scheme, in the order of the kubelet's response: that
	// of the pod's spec, restartable init containers first. Ordinary init containers never appear.
	Siblings []Sibling
	// Last is true where no other container of the pod is listed after this one.
	Last bool
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

// annotation returns an annotation of the pod.
func (req *Request) annotation(key string) (string, bool) {
	if req.Pod == nil {
		return "", false
	}
	v := req.Pod.Annotations[key]
	return v, v != ""
}

// env returns an environment variable that the plugin set for the container.
func (req *Request) env(key string) (string, bool) {
	if req.Response == nil {
		return "", false
	}
	v := req.Response.Env[key]
	return v, v != ""
}

// envAmount parses a number in the container's environment.
func (req *Request) envAmount(key string) (float64, bool) {
	text, ok := req.env(key)
	if !ok {
		return 0, false
	}
	return amount(text)
}

// maxText bounds the annotations and variables that are parsed.
const maxText = 16 << 10

// amount parses a finite number that is not negative.
func amount(text string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1<<62 {
		return 0, false
	}
	return v, true
}

// mebibytes converts a number of MiB to a limit.
func mebibytes(n float64) gpu.Opt[gpu.Bytes] {
	if n <= 0 || n > 1<<40 {
		return gpu.None[gpu.Bytes]()
	}
	return gpu.Some(gpu.Bytes(n * (1 << 20)))
}

// percent converts a percentage of a GPU's time to a fraction. Where a scheme writes 0 there is no limit.
func percent(n float64) gpu.Opt[float64] {
	if n <= 0 {
		return gpu.None[float64]()
	}
	return gpu.Some(min(n/100, 1))
}
