// Package dra is the part of the exporter that reads the checkpoint of a DRA driver.
package dra

import (
	"errors"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the kubelet.
func New(flags *kingpin.Application) rooms.Part {
	var path string
	flags.Flag("kubelet.dra-checkpoint", "Checkpoint of a DRA driver, such as "+
		"/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json: MIG devices created on demand, "+
		"shares of claims. Empty disables it.").StringVar(&path)
	return rooms.Part{Check: func(c *rooms.Common) error {
		if path != "" && !c.Kubelet {
			return errors.New("--kubelet.dra-checkpoint requires --kubelet")
		}
		return nil
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Pods.DRACheckpoint = path
		return &rooms.Room{}, nil
	}}
}
