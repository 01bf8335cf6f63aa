// Package compat is the part of the exporter that also serves the names of another exporter.
package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// options are the flags.
type options struct {
	release, address, shared string
	labels, set, notes       []string
	settings                 *settings
}

// New is this package as a part of the exporter, opened after the metadata of pods.
func New(flags *kingpin.Application) rooms.Part {
	var o options
	flags.Flag("compat", "Also serve the metric names, units and labels of another exporter, at "+compat.DCGM48.Path()+
		" or "+compat.NvidiaSMI.Path()+": "+strings.Join(compat.Releases(), ", ")+" (nvidia_gpu_exporter); empty "+
		"disables it.").EnumVar(&o.release, append(compat.Releases(), "")...)
	flags.Flag("compat.listen-address", "Serve that page also at this address, as /metrics: dcgm-exporter has :9400, "+
		"nvidia_gpu_exporter :9835. Empty disables it.").StringVar(&o.address)
	rooms.Former(flags, "compat.shared-gpus", "compat.set=kubernetes-virtual-gpus=true").Default("one").EnumVar(&o.shared, "one", "copies")
	rooms.Former(flags, "compat.device-label", "compat.set=label=FIELD").EnumsVar(&o.labels, compat.DeviceLabels()...)
	flags.Flag("compat.set", "A setting of that page, NAME=VALUE (repeatable): main=true serves it at /metrics of every address, and the "+
		"exporter's own at /metrics/gpu alone; label=FIELD adds a label-typed field of dcgm-exporter; the others are its flags: "+
		strings.Join(names, ", ")+".").StringsVar(&o.set)
	flags.Flag("compat.note", "A line for the log at the start.").Hidden().StringsVar(&o.notes)
	return rooms.Part{Check: o.check, Open: o.open}
}

// check rejects what cannot work without the page, and adds its address to those of the server.
func (o *options) check(c *rooms.Common) (err error) {
	for _, n := range o.notes {
		c.Logger.Info("started as dcgm-exporter", "option", n)
	}
	if o.release == "" {
		if o.address != "" || o.shared != "one" || o.labels != nil || o.set != nil {
			return errors.New("--compat.listen-address and --compat.set require --compat")
		}
		return nil
	}
	if o.settings, err = parse(o.set, compat.Release(o.release)); err != nil {
		return err
	}
	o.settings.fields = append(o.settings.fields, o.labels...)
	o.settings.copies = o.settings.copies || o.shared == "copies"
	c.PodLabelPattern = o.settings.labels
	c.APIUsed = c.APIUsed || o.settings.configMap != ""
	if o.address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		return fmt.Errorf("--compat.listen-address %s: %w", o.address, err)
	}
	if c.Web.WebSystemdSocket != nil && *c.Web.WebSystemdSocket {
		return errors.New("--compat.listen-address cannot be used with --web.systemd-socket: add the address to the socket unit")
	}
	*c.Web.WebListenAddresses = append(*c.Web.WebListenAddresses, o.address)
	return nil
}

// open adds the page to the plan.
func (o *options) open(p *rooms.Plan) (*rooms.Room, error) {
	if o.release == "" {
		return &rooms.Room{}, nil
	}
	s := &served{plan: p, settings: o.settings, options: compat.Options{Release: compat.Release(o.release), Copies: o.settings.copies,
		PodLabels: p.PodLabels, DeviceLabels: o.settings.fields, Settings: o.settings.Settings}}
	var err error
	if s.settings.file != "" || s.settings.inline != nil {
		if s.options.Collectors, s.text, err = s.settings.collectors(nil); err != nil {
			return nil, err
		}
	}
	page, err := compat.New(s.options)
	if err != nil {
		return nil, fmt.Errorf("--compat: %w", err)
	}
	s.page.Store(page)
	p.Sampler.Published = s.published
	p.Page = &rooms.Page{Path: s.options.Release.Path(), Name: o.release, Main: o.settings.main, Families: page.Families(),
		Note: s.lacks(page)}
	if _, port, err := net.SplitHostPort(o.address); err == nil {
		p.Page.Port = port
	}
	if s.settings.file == "" && s.settings.configMap == "" {
		return &rooms.Room{}, nil
	}
	return &rooms.Room{Loops: []func(context.Context){s.follow}, Polls: []func(context.Context){s.read}}, nil
}
