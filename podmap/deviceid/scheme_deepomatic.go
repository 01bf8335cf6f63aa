package deviceid

// deepomatic is the shared-gpu plugin: GPU-<uuid>-_-<n>. The form is Aliyun's, but the IDs are direct.
var deepomatic = Scheme{
	Name:    "deepomatic shared gpu",
	class:   Direct,
	Matches: named("deepomatic.com/shared-gpu"),
	parse:   func(_, id string) (Ref, bool) { return parseUUIDReplica(id, "-_-") },
}
