package deviceid

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// nos is nebuly's MPS fork of the device plugin: slices of a GPU under names like nvidia.com/gpu-10gb.
// The number in the name is the memory that one slice gpus, in GiB.
var nos = Scheme{
	Name:    "nos",
	class:   Direct,
	Matches: func(resource string) bool { return nosMemory(resource) > 0 },
	parse: func(resource, id string) (Ref, bool) {
		r, ok := parseUUIDReplica(id, "::")
		r.Memory = nosMemory(resource)
		return r, ok
	},
}

// nosMemory is what one slice of the resource gpus, 0 where the name is not of this scheme.
func nosMemory(resource string) gpu.Bytes {
	size, ok := strings.CutPrefix(resource, nvidiaPrefix+"gpu-")
	if !ok {
		return 0
	}
	size, ok = strings.CutSuffix(size, "gb")
	gib, numeric := decimal(size)
	if !ok || !numeric {
		return 0
	}
	return gpu.Bytes(gib) << 30
}
