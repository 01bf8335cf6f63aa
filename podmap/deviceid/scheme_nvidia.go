package deviceid

// nvidiaPlugin is NVIDIA's device plugin: the NVML name of a GPU or MIG device, with "::<n>" where it is time-sliced or
// shared through MPS. The resource name is free (patterns, ".shared"), so the form decides. On WSL one device "all"
// stands for every GPU, on Tegra the one device is called "tegra".
var nvidiaPlugin = Scheme{
	Name:    "nvidia device plugin",
	class:   Direct,
	Matches: underNVIDIA,
	parse: func(_, id string) (Ref, bool) {
		if r, ok := parseNVMLOrSole(id); ok {
			return r, true
		}
		head, _, ok := cutNumber(id, "::")
		if !ok {
			return Ref{}, false
		}
		r, ok := parseNVMLOrSole(head)
		r.Replica, r.Base = true, head
		return r, ok
	},
}

func parseNVMLOrSole(id string) (Ref, bool) {
	switch id {
	case "all":
		return Ref{by: byAll}, true
	case "tegra":
		return Ref{by: bySole}, true
	}
	return ParseNVML(id)
}
