// Package compat is the part of the exporter that also serves the names of another exporter.
package compat

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened after the metadata of pods.
func New(flags *kingpin.Application) rooms.Part {
	var release, address, shared string
	var labels []string
	flags.Flag("compat", "Also serve the metric names, units and labels of another exporter, at "+compat.DCGM48.Path()+
		" or "+compat.NvidiaSMI.Path()+": "+strings.Join(compat.Releases(), ", ")+" (nvidia_gpu_exporter); empty "+
		"disables it.").EnumVar(&release, append(compat.Releases(), "")...)
	flags.Flag("compat.listen-address", "Serve that page also at this address, as /metrics: dcgm-exporter has :9400, "+
		"nvidia_gpu_exporter :9835. Empty disables it.").StringVar(&address)
	flags.Flag("compat.shared-gpus", "Series of a GPU that several containers share: one, without a pod, as in "+
		"dcgm-exporter's default configuration; or copies, one for each container, as with KUBERNETES_VIRTUAL_GPUS.").
		Default("one").EnumVar(&shared, "one", "copies")
	flags.Flag("compat.device-label", "Additional label of the dcgm pages (repeatable): "+
		strings.Join(compat.DeviceLabels(), ", ")+".").EnumsVar(&labels, compat.DeviceLabels()...)
	return rooms.Part{Check: func(c *rooms.Common) error {
		if release == "" && (address != "" || shared != "one" || labels != nil) {
			return errors.New("--compat.listen-address, --compat.shared-gpus and --compat.device-label require --compat")
		}
		if address == "" {
			return nil
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("--compat.listen-address %s: %w", address, err)
		}
		if c.Web.WebSystemdSocket != nil && *c.Web.WebSystemdSocket {
			return errors.New("--compat.listen-address cannot be used with --web.systemd-socket: add the address to the " +
				"socket unit")
		}
		*c.Web.WebListenAddresses = append(*c.Web.WebListenAddresses, address)
		return nil
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		if release == "" {
			return &rooms.Room{}, nil
		}
		page, err := compat.New(compat.Options{Release: compat.Release(release), Copies: shared == "copies", PodLabels: p.PodLabels,
			DeviceLabels: labels})
		if err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
		p.Sampler.Published = page.Published
		p.Page = &rooms.Page{Path: compat.Release(release).Path(), Name: release, Families: page.Families()}
		if _, port, err := net.SplitHostPort(address); err == nil {
			p.Page.Port = port
		}
		return &rooms.Room{}, nil
	}}
}
