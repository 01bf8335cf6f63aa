package deviceid

// sideQuantity are the amounts that a container asks for beside a device: each unit of memory or of cores
// is one id, and none of them is a GPU. Only resources without which a device of another resource is
// always asked for as well stand here; an amount that can stand alone belongs to its scheme's row.
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
