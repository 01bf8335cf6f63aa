package deviceid

// deepomatic is the shared-gpu plugin: GPU-<uuid>-_-<n>. The shape is Aliyun's, the ids are true.
var deepomatic = Scheme{
	Name:    "deepomatic shared gpu",
	class:   Direct,
	Matches: named("deepomatic.com/shared-gpu"),
	parse:   func(_, id string) (Ref, bool) { return parseUUIDReplica(id, "-_-") },
}
