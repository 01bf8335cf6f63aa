// Package cgroupmem is the part of the exporter that reads GPU memory by cgroup, where the kernel or the driver accounts it.
package cgroupmem

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened after what names containers.
func New(flags *kingpin.Application) rooms.Part {
	var root string
	flags.Flag("path.cgroup", "Mount point of the host's cgroup v2 hierarchy, for GPU memory by container without the host's "+
		"PID namespace where the kernel (Linux 6.14) or the driver accounts it (R615 and newer); empty disables it.").
		Default("/sys/fs/cgroup").StringVar(&root)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{}
		if root == "" {
			return r, nil
		}
		scanner := proc.NewCgroupScanner(proc.CgroupOptions{Root: root, Finder: p.Finder, Interval: p.Medium})
		p.Driver.Cgroups, p.Sampler.Cgroups = scanner.Paths, scanner
		r.Loops = append(r.Loops, rooms.Repeat(p.Medium, scanner.Scan))
		r.Polls = append(r.Polls, scanner.Scan)
		r.Sources = append(r.Sources, func() []gpu.Source {
			if s, offered := scanner.Source(); offered {
				return []gpu.Source{s}
			}
			return nil
		})
		return r, nil
	}}
}
