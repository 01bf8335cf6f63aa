package deviceid

import (
	"regexp"
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

var nosResource = regexp.MustCompile(`^nvidia\.com/gpu-([1-9][0-9]{0,8})gb$`)

// nos is nebuly's MPS fork of the device plugin: slices of a GPU under names like nvidia.com/gpu-10gb. The number in
// the name is the memory limit of one slice, in GiB.
var nos = Scheme{
	Name:    "nos",
	class:   Direct,
	Matches: nosResource.MatchString,
	parse: func(resource, id string) (Ref, bool) {
		r, ok := parseReplica(id, "::")
		gib, _ := strconv.Atoi(nosResource.FindStringSubmatch(resource)[1])
		r.Memory = gpu.Bytes(gib) << 30
		return r, ok && r.by == byUUID
	},
}
