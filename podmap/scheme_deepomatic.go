package podmap

// deepomatic is the shared-gpu plugin: GPU-<uuid>-_-<n>. The shape is Aliyun's, the ids are true.
var deepomatic = scheme{
	name:    "deepomatic shared gpu",
	verdict: honest,
	owns:    named("deepomatic.com/shared-gpu"),
	read:    func(_, id string) (ref, bool) { return readUUIDReplica(id, "-_-") },
}
