package deviceid

// qgpu is Tencent's closed plugin. Neither the form of its ids nor what it gives containers is public, so
// nothing is believed: the GPU stays unknown.
var qgpu = Scheme{
	Name:  "tencent qgpu",
	class: Opaque,
	Matches: named("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
		"tke.cloud.tencent.com/qgpu-core-greedy"),
	Hint: "the GPU objects of elasticgpu.io/v1alpha1, which are not read",
}
