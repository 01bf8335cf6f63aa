package podmap

// awsVGPU is awslabs' virtual GPU plugin: GPU-<uuid>-<n>. The shape is HAMi's, the ids are true.
var awsVGPU = scheme{
	name:    "aws virtual gpu",
	verdict: honest,
	owns:    named("k8s.amazonaws.com/vgpu"),
	read:    func(_, id string) (ref, bool) { return readUUIDReplica(id, "-") },
}
