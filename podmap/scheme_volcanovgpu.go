package podmap

// volcanoVGPU is Volcano's plugin of HAMi's making: <uuid>-<n>, chosen by the kubelet.
var volcanoVGPU = scheme{
	name:    "volcano-vgpu",
	verdict: lying,
	owns:    named("volcano.sh/vgpu-number"),
	truth:   "the kubelet's device checkpoint, or the pod annotation volcano.sh/vgpu-ids-new",
}
