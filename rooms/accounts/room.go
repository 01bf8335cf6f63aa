// Package accounts is the part of the exporter that reads the driver's accounts of processes that have ended, for the
// gaps between polls that the driver's samples do not cover.
package accounts

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// branch is the first driver branch with nvmlDeviceGetAccountingStats_v2.
const branch = 610

// New is this package as a part of the exporter. It has no flag: an administrator enables the driver's accounting mode.
func New(*kingpin.Application) rooms.Part {
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Driver.Accounts = func() bool { return p.HostPIDs() }
		return &rooms.Room{Advice: func(v *gpu.View, c *gpu.GPU) []rooms.Advice { return advice(v, c, p.Sampler.Users != nil) }}, nil
	}}
}

func advice(v *gpu.View, c *gpu.GPU, hostPIDs bool) []rooms.Advice {
	on, ok := c.Slow.Or(&gpu.Slow{}).AccountingMode.Get()
	if !ok {
		return nil
	}
	gaps := "longer gaps between polls than the driver's samples cover"
	if c.Activity.Profiled.Present() {
		gaps = "in " + gaps + " busy time of containers that share the GPU is unresolved"
	} else {
		gaps += " are not observed"
	}
	driver := v.System.Or(gpu.System{}).DriverVersion
	switch has := rooms.Branch(v) >= branch; {
	case on && has && !hostPIDs:
		return []rooms.Advice{{Fix: "hostPID: true", Finding: "accounting mode is on, but the driver lists ended processes in the host's " +
			"PID namespace only: " + gaps}}
	case on && !has:
		return []rooms.Advice{{Fix: "driver R610 or newer", Finding: fmt.Sprintf("accounting mode is on, but driver %s reports no sums of "+
			"busy time by process: %s", driver, gaps)}}
	case !on && has:
		return []rooms.Advice{{Fix: "nvidia-smi -am 1 -i " + string(c.UUID) + " as root, after every load of the driver",
			Finding: "accounting mode is off: " + gaps}}
	}
	return nil
}
