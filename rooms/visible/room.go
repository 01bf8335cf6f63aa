// Package visible is the part of the exporter that scans which GPUs are visible in each container.
package visible

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened after the processes.
func New(flags *kingpin.Application) rooms.Part {
	var on bool
	flags.Flag("containers.visible", "Export which GPUs are visible in each container, scanned at the slow poll "+
		"interval. Requires the host's PID namespace and the capability SYS_PTRACE; "+
		"of a process's environment, only NVIDIA_VISIBLE_DEVICES is read.").BoolVar(&on)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{}
		first := p.NoProcesses() // it is not started later
		state := func() gpu.Source { return gpu.Source{Message: rooms.Text(first)} }
		if on && first == nil {
			scanner := proc.NewVisibleScanner(proc.ScannerOptions{Finder: p.Finder, Interval: p.Slow, Named: deviceid.Visible,
				Logger: p.Logger})
			p.Sampler.VisibleScanner, state = scanner, scanner.Source
			r.Loops = append(r.Loops, rooms.Repeat(p.Slow, scanner.Scan))
			r.Polls = append(r.Polls, scanner.Scan)
			r.Source(scanner.Source)
		}
		r.Feature("container_visible", "GPUs visible in each container: set --containers.visible, the host's PID namespace and the "+
			"capability SYS_PTRACE.", true, on, func() (bool, string) {
			if s := state(); s.Up || on {
				return s.Up, s.Message
			}
			return false, ""
		})
		fix := rooms.Ptrace()
		r.Fixes = map[string]rooms.Fix{gpu.SourceVisible: fix}
		if !on {
			for i := range fix {
				fix[i] = "--containers.visible; " + fix[i]
			}
		}
		fix[rooms.Kubernetes] += " (chart: features.containerVisible=true)"
		r.Fixes["container_visible"] = fix
		return r, nil
	}}
}
