package deviceid

// gke is Google's plugin: nvidia<minor>[/gi<g>][/vgpu<k>]. The number is the minor number of the device node, not the
// NVML index: the two differ on real nodes.
var gke = Scheme{
	Name:    "gke",
	class:   Direct,
	Matches: underNVIDIA,
	parse:   func(_, id string) (Ref, bool) { return parseMinor(id) },
}
