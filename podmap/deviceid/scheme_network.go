package deviceid

import "regexp"

// networkNames are the resource names in NVIDIA's network operator and its documentation, and switches.
var networkNames = regexp.MustCompile(
	`^nvidia\.com/(hostdev|mlnx|rdma|sriov|roce|infiniband|macvlan|ipoib|bf_|bf2|bf3|.*NVSWITCH)`)

// network is NVIDIA's network devices. Their IDs are PCI addresses, auxiliary devices (mlx5_core.sf.4) or plain
// numbers.
var network = Scheme{
	Name:    "nvidia network operator",
	class:   NotGPU,
	Matches: underNVIDIA,
	parse: func(resource, id string) (Ref, bool) {
		return Ref{}, networkNames.MatchString(resource) || len(id) >= 5 && id[:5] == "mlx5_"
	},
}
