package deviceid

// qgpu is Tencent's proprietary plugin. Neither the form of its IDs nor its response is public: the GPU is unknown.
var qgpu = Scheme{
	Name:  "tencent qgpu",
	class: Opaque,
	Matches: named("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
		"tke.cloud.tencent.com/qgpu-core-greedy"),
	Hint: "the GPU objects of elasticgpu.io/v1alpha1, which are not read",
}
