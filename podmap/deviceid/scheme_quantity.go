package deviceid

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
