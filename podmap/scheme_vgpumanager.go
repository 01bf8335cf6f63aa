package podmap

// vgpuManager is coldzerofear's vgpu-manager. Its ids look like NVIDIA's replicas, <uuid>::<n>, but equal
// the card only under a feature gate: the resource name gives it away.
var vgpuManager = scheme{
	name:    "vgpu-manager",
	verdict: lying,
	owns:    named("nvidia.com/vgpu-number"),
	truth:   "the kubelet's device checkpoint, or the pod annotation nvidia.com/real-allocated",
}

// draVGPUManager is the DRA driver of the same project.
var draVGPUManager = scheme{
	name:    "vgpu-manager dra",
	verdict: lying,
	owns:    named("manager.nvidia.com"),
	truth:   "the status of the ResourceClaim",
}
