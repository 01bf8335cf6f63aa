package podmap

// qgpu is Tencent's closed plugin. The form of its ids is not public, so nothing is believed.
var qgpu = scheme{
	name:    "tencent qgpu",
	verdict: lying,
	owns: named("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
		"tke.cloud.tencent.com/qgpu-core-greedy"),
	truth: "the kubelet's device checkpoint, or the GPU objects of elasticgpu.io/v1alpha1",
}
