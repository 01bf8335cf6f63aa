package deviceid

import (
	"regexp"
)

// networkNames are the resource names in NVIDIA's network operator and its documentation, and switches.
var networkNames = regexp.MustCompile(
	`^nvidia\.com/(hostdev|mlnx|rdma|sriov|roce|infiniband|macvlan|ipoib|bf_|bf2|bf3|.*NVSWITCH)`)

// network is NVIDIA's network devices. Their IDs are PCI addresses, auxiliary devices (mlx5_core.sf.4) or plain
// numbers.
var network = Scheme{
	Name:    "nvidia network operator",
	class:   NotGPU,
	Matches: underNVIDIA,
	parse: func(resource, id string) (Ref, bool) {
		return Ref{}, networkNames.MatchString(resource) || len(id) >= 5 && id[:5] == "mlx5_"
	},
}

// sideQuantity is the amounts that a container requests beside a device: each unit of memory or of cores is one ID, and
// none is a GPU. An amount that can be requested alone belongs to its scheme's row.
var sideQuantity = Scheme{
	Name:  "side quantity",
	class: Quantity,
	Matches: func(resource string) bool {
		return sideQuantities(resource) || hasSuffix(resource, "/vgpu-memory", "/vgpu-cores") // of vgpu-manager and Volcano
	},
}

var sideQuantities = named("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores",
	"nvidia.com/priority", // HAMi
	"volcano.sh/vgpu-memory-percentage", tencentMemory, aliyunCoreIDs)

// qgpu is Tencent's proprietary plugin. Neither the form of its IDs nor its response is public: the GPU is unknown.
var qgpu = Scheme{
	Name:  "tencent qgpu",
	class: Opaque,
	Matches: named("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
		"tke.cloud.tencent.com/qgpu-core-greedy"),
	Hint: "the GPU objects of elasticgpu.io/v1alpha1, which are not read",
}
