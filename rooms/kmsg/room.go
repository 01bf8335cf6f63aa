package kmsg

import (
	"context"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter.
func New(flags *kingpin.Application) rooms.Part {
	var path string
	flags.Flag("path.kmsg", "Kernel log to read XIDs from; empty disables it.").Default(DefaultPath).StringVar(&path)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r, state := &rooms.Room{}, func() gpu.Source { return gpu.Source{} }
		if path != "" {
			log := Open(Options{Path: path, Logger: p.Logger, Clock: p.Clock})
			state = log.Source
			follow := func(ctx context.Context) { log.Run(ctx, p.Event) }
			r.Loops = append(r.Loops, follow)
			r.Watches = append(r.Watches, follow)
			r.Source(log.Source)
		}
		r.Feature("kernel_log", "XIDs that NVML does not report: set --path.kmsg and run privileged (the device cgroup denies "+
			"/dev/kmsg otherwise).", true, path != "", func() (bool, string) { return state().Up, state().Message })
		r.Fixes = map[string]rooms.Fix{gpu.SourceKmsg: {
			"securityContext: {privileged: true} and /dev/kmsg mounted (chart: features.kernelLog=true); or disable it with --path.kmsg=",
			"--privileged; or disable it with --path.kmsg=",
			"kernel-log.conf in /etc/systemd/system/gpu-exporter.service.d; or disable it with --path.kmsg="}}
		return r, nil
	}}
}
