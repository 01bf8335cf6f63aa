// Package fractions is the part of the exporter that reads the records of NVIDIA's GPU fractioning operator.
package fractions

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the kubelet.
func New(flags *kingpin.Application) rooms.Part {
	var dir, leases string
	flags.Flag("gpu-fractioning.map-dir", "Directory in which NVIDIA's GPU fractioning operator (NvFractions of "+
		"KAI-Scheduler) records the containers of this node, /var/run/gpu-fractioning/map: their GPUs and memory limits "+
		"without the API server. Empty disables it.").StringVar(&dir)
	flags.Flag("gpu-fractioning.namespaces", "File in which that operator records the MPS namespace of each container, "+
		"/run/nvidia-mps/.gpu-fractioning-namespaces.json: compute limits. Empty disables it.").StringVar(&leases)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Pods.Fractions, p.Pods.Leases = dir, leases
		return &rooms.Room{}, nil
	}}
}
