// Package processes is the part of the exporter that exports single processes of a GPU.
package processes

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter.
func New(flags *kingpin.Application) rooms.Part {
	var limit int
	flags.Flag("process-limit", "Maximum number of processes of a GPU that have series of their own in gpu_process_* (two "+
		"each, labeled with PID and command); the others are aggregated into command=\"other\". Requires the host's PID "+
		"namespace. 0 disables these metrics.").Default("0").IntVar(&limit)
	return rooms.Part{Check: func(*rooms.Common) error {
		if limit < 0 {
			return fmt.Errorf("--process-limit must be at least 0, got %d", limit)
		}
		return nil
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		p.Sampler.Processes = limit
		return &rooms.Room{}, nil
	}}
}
