package deviceid

// sideQuantity is the amounts that a container requests beside a device: each unit of memory or of cores is one ID, and
// none is a GPU. An amount that can be requested alone belongs to its scheme's row.
var sideQuantity = Scheme{
	Name:  "side quantity",
	class: Quantity,
	Matches: named(
		"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority", // HAMi
		"nvidia.com/vgpu-memory", "nvidia.com/vgpu-cores", // vgpu-manager
		"volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores", // volcano-vgpu
		"tencent.com/vcuda-memory",       // gpu-manager
		"aliyun.com/gpu-core.percentage", // ACK
	),
}
