package doctor

import (
	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter: two commands.
func New(*kingpin.Application) rooms.Part {
	return rooms.Part{Commands: []rooms.Command{{Name: doctorCommand, Run: doctorMain,
		Help: "check of this node's setup, with the settings that are missing"},
		{Name: statusCommand, Run: statusMain, Help: "five sentences about this node's GPUs"}}}
}
