package podmap

// elasticGPU is elastic-gpu-agent: <i>-<nn>, where <i> is not the card. Its plugin is asked for cores,
// memory or both.
var elasticGPU = scheme{
	name:    "elastic-gpu",
	verdict: lying,
	owns:    named("elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"),
	truth: "the links /dev/elastic-gpu-<hash>-<i> that the kubelet's device checkpoint names, or the pod " +
		"annotation elasticgpu.io/container-<name>",
}
