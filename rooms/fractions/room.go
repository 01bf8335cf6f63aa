// Package fractions is the part of the exporter that reads the records of NVIDIA's GPU fractioning operator.
package fractions

import (
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// The directory in which the operator (NvFractions of KAI-Scheduler) records the containers of the node with their GPUs and memory
// limits, and the file with the MPS namespace of each, which has the compute limit. Where the directory exists, it is read.
const (
	records    = "/var/run/gpu-fractioning/map"
	namespaces = "/run/nvidia-mps/.gpu-fractioning-namespaces.json"
)

// New is this package as a part of the exporter, opened before the kubelet.
func New(flags *kingpin.Application) rooms.Part {
	var dir, leases string
	rooms.Former(flags, "gpu-fractioning.map-dir", "path.host").StringVar(&dir)
	rooms.Former(flags, "gpu-fractioning.namespaces", "path.host").StringVar(&leases)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		if at := p.Path(records, ""); dir == "" {
			if _, err := os.Stat(at); err == nil {
				dir = at
			}
		}
		if leases == "" && dir != "" {
			leases = p.Path(filepath.Dir(namespaces), filepath.Base(namespaces)) + "/" + filepath.Base(namespaces)
		}
		p.Pods.Fractions, p.Pods.Leases = dir, leases
		return &rooms.Room{}, nil
	}}
}
