package main

import (
	"cmp"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/rooms"
	"github.com/gpu-exporter/gpu-exporter/rooms/accounts"
	"github.com/gpu-exporter/gpu-exporter/rooms/cgroupmem"
	"github.com/gpu-exporter/gpu-exporter/rooms/compat"
	"github.com/gpu-exporter/gpu-exporter/rooms/doctor"
	"github.com/gpu-exporter/gpu-exporter/rooms/dra"
	"github.com/gpu-exporter/gpu-exporter/rooms/engines"
	"github.com/gpu-exporter/gpu-exporter/rooms/fractions"
	"github.com/gpu-exporter/gpu-exporter/rooms/health"
	"github.com/gpu-exporter/gpu-exporter/rooms/kmsg"
	"github.com/gpu-exporter/gpu-exporter/rooms/letgo"
	"github.com/gpu-exporter/gpu-exporter/rooms/links"
	"github.com/gpu-exporter/gpu-exporter/rooms/podmeta"
	"github.com/gpu-exporter/gpu-exporter/rooms/processes"
	"github.com/gpu-exporter/gpu-exporter/rooms/record"
	"github.com/gpu-exporter/gpu-exporter/rooms/slices"
	"github.com/gpu-exporter/gpu-exporter/rooms/slurm"
	"github.com/gpu-exporter/gpu-exporter/rooms/suspend"
	"github.com/gpu-exporter/gpu-exporter/rooms/visible"
)

// parts are the parts of the program in the order in which they are opened. Without its line here, its import and its
// directory, the rest of the program builds and runs.
var parts = []part{
	{room: fractions.New},
	{room: dra.New},
	{room: slices.New},
	{room: podmeta.New},
	{own: kubelet},
	{room: slurm.New},
	{room: engines.New},
	{own: containers},
	{room: visible.New},
	{room: cgroupmem.New},
	{room: accounts.New},
	{room: kmsg.New},
	{room: letgo.New},
	{room: suspend.New},
	{room: links.New},
	{room: processes.New},
	{room: compat.New},
	{own: metricSelection},
	{own: own},
	{room: record.New},
	{room: health.New},
	{room: doctor.New},
}

// commands returns the programs beside the exporter.
func commands() (all []rooms.Command) {
	for _, p := range parts {
		if p.room != nil {
			all = append(all, p.room(kingpin.New("", "")).Commands...)
		}
	}
	gpu.Sort(all, func(a, b rooms.Command) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// open adds the flags of the parts and returns what checks them and what opens the parts.
func open(app *kingpin.Application) (checks []func(*rooms.Common) error, opens []func(*plan) (*rooms.Room, error)) {
	for _, p := range parts {
		if p.own != nil {
			opens = append(opens, p.own)
			continue
		}
		optional := p.room(app)
		if optional.Check != nil {
			checks = append(checks, optional.Check)
		}
		if optional.Open != nil {
			opens = append(opens, func(p *plan) (*rooms.Room, error) { return optional.Open(&p.Plan) })
		}
	}
	return checks, opens
}
