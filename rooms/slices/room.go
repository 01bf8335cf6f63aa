// Package slices is the part of the exporter that lists this node's ResourceSlices.
package slices

import (
	"errors"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the kubelet.
func New(flags *kingpin.Application) rooms.Part {
	var on bool
	flags.Flag("kubernetes.resource-slices", "List this node's ResourceSlices: GPUs and capacities of the devices of any "+
		"DRA driver. Requires a token with list on resourceslices.").BoolVar(&on)
	return rooms.Part{Check: func(c *rooms.Common) error {
		if c.APIUsed = c.APIUsed || on; on && !c.Kubelet {
			return errors.New("--kubernetes.resource-slices requires --kubelet")
		}
		return nil
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		if on {
			p.Pods.Slices = &p.API
		}
		return &rooms.Room{}, nil
	}}
}
