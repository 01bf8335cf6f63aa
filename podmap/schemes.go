package podmap

import (
	"slices"
	"strings"
)

// nvidiaPrefix begins the resource names of NVIDIA's own plugins, and of some that imitate them.
const nvidiaPrefix = "nvidia.com/"

// pluginSchemes is the table for device plugins. The order matters: a name that is known beats a shape
// under any name, and a lie that is known beats an honest reading of the same text.
var pluginSchemes = []scheme{
	network,
	sideQuantity,
	vgpuManager,
	hami,
	nos,
	nvidiaPlugin,
	gke,
	kubevirtPassthrough,
	kubevirtVGPU,
	pciUnderAnyName,
	awsVGPU,
	deepomatic,
	aliyun,
	tkestack,
	volcanoGPUShare,
	volcanoVGPU,
	elasticGPU,
	qgpu,
}

// driverSchemes is the table for the drivers of dynamic resource allocation.
var driverSchemes = []scheme{
	draGPU,
	draComputeDomain,
	draVGPUManager,
}

// namedHonest reads the resources that the operator vouches for: whatever shape names a GPU is believed.
var namedHonest = scheme{
	name:    "named honest",
	verdict: honest,
	owns:    func(string) bool { return true },
	read: func(_, id string) (ref, bool) {
		if r, ok := readNVML(id); ok {
			return r, true
		}
		if r, ok := readMinor(id); ok {
			return r, true
		}
		for _, sep := range []string{"::", "-_-", "-"} {
			if r, ok := readReplica(id, sep); ok {
				return r, true
			}
		}
		return ref{}, false
	},
}

// named owns exactly these resource names.
func named(names ...string) func(string) bool {
	return func(resource string) bool { return slices.Contains(names, resource) }
}

// underNVIDIA owns every resource of nvidia.com.
func underNVIDIA(resource string) bool { return strings.HasPrefix(resource, nvidiaPrefix) }
