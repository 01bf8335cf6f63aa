// Package cgroupmem is the part of the exporter that reads GPU memory by cgroup, where the kernel or the driver accounts it.
package cgroupmem

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened after what names containers.
func New(flags *kingpin.Application) rooms.Part {
	var root string
	var set bool
	rooms.Former(flags, "path.cgroup", "path.host").IsSetByUser(&set).StringVar(&root)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{Advice: advice}
		if root == "" && !set {
			root = p.Path("/sys/fs/cgroup", "cgroup.controllers")
		}
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

// branch is the first driver branch with nvmlDeviceGetMemoryLimits_v1.
const branch = 615

func advice(v *gpu.View, c *gpu.GPU) []rooms.Advice {
	if !slices.ContainsFunc(v.Containers, func(r gpu.ContainerGPU) bool {
		return r.GPU == c.UUID && r.Allocated.Present() && !r.Ended && !r.Memory.Present()
	}) {
		return nil
	}
	reason := "the memory that it charges to cgroups does not add up to the GPU's"
	switch {
	case rooms.Branch(v) < branch:
		reason = "it does not report memory by cgroup"
	case len(c.Medium.Or(&gpu.Medium{}).Cgroups) == 0:
		reason = "it reports no memory of the containers' cgroups"
	}
	return []rooms.Advice{{Fix: "driver R615 or newer and the host's /sys/fs/cgroup mounted below --path.host, or hostPID: true",
		Finding: fmt.Sprintf("memory of containers that share the GPU is not exported: driver %s, %s",
			v.System.Or(gpu.System{}).DriverVersion, reason)}}
}
