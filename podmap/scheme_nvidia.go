package podmap

// nvidiaPlugin is NVIDIA's device plugin: the NVML name of a GPU or MIG device, with "::<n>" where it is
// time-sliced or shared through MPS. The resource name is free (patterns, ".shared"), so the shape decides.
// On WSL one device "all" stands for every GPU, on Tegra the one device is called "tegra".
var nvidiaPlugin = scheme{
	name:    "nvidia device plugin",
	verdict: honest,
	owns:    underNVIDIA,
	read: func(_, id string) (ref, bool) {
		if r, ok := readNVMLOrSole(id); ok {
			return r, true
		}
		head, _, ok := cutNumber(id, "::")
		if !ok {
			return ref{}, false
		}
		r, ok := readNVMLOrSole(head)
		r.replica, r.base = true, head
		return r, ok
	},
}

func readNVMLOrSole(id string) (ref, bool) {
	switch id {
	case "all":
		return ref{by: byAll, gi: -1, ci: -1}, true
	case "tegra":
		return ref{by: bySole, gi: -1, ci: -1}, true
	}
	return readNVML(id)
}
