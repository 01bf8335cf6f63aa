package deviceid

// awsVGPU is awslabs' virtual GPU plugin: GPU-<uuid>-<n>. The form is HAMi's, but the IDs are direct.
var awsVGPU = Scheme{
	Name:    "aws virtual gpu",
	class:   Direct,
	Matches: named("k8s.amazonaws.com/vgpu"),
	parse:   func(_, id string) (Ref, bool) { return parseUUIDReplica(id, "-") },
}
