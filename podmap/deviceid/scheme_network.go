package deviceid

import "strings"

// networkNames begin the names that NVIDIA's network operator and its documentation give to resources.
var networkNames = []string{"hostdev", "mlnx", "rdma", "sriov", "roce", "infiniband", "macvlan", "ipoib", "bf_", "bf2", "bf3"}

// network are NVIDIA's network GPUs: no GPUs. Their ids are PCI addresses, auxiliary devices
// (mlx5_core.sf.4) or plain numbers.
var network = Scheme{
	Name:    "nvidia network operator",
	class:   NotGPU,
	Matches: underNVIDIA,
	parse: func(resource, id string) (Ref, bool) {
		if strings.HasPrefix(id, "mlx5_") {
			return Ref{}, true
		}
		name := strings.TrimPrefix(resource, nvidiaPrefix)
		for _, prefix := range networkNames {
			if strings.HasPrefix(name, prefix) {
				return Ref{}, true
			}
		}
		return Ref{}, strings.Contains(name, "NVSWITCH")
	},
}
