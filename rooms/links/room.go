// Package links is the part of the exporter that exports each NVLink and C2C link by itself.
package links

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter.
func New(flags *kingpin.Application) rooms.Part {
	var on bool
	flags.Flag("link-details", "Export bytes, errors and state of each NVLink and C2C link, and the errors of the PCIe link: "+
		"gpu_nvlink_link_*, gpu_c2c_link_* and gpu_pcie_errors_total, about 100 to 150 series per GPU.").BoolVar(&on)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Driver.Links = on
		return &rooms.Room{}, nil
	}}
}
