package podmap

// qgpu is Tencent's closed plugin. Neither the form of its ids nor what it gives containers is public, so
// nothing is believed: the GPU stays unknown.
var qgpu = scheme{
	name:    "tencent qgpu",
	verdict: lying,
	owns: named("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
		"tke.cloud.tencent.com/qgpu-core-greedy"),
	truth: "the GPU objects of elasticgpu.io/v1alpha1, which are not read",
}
