// Package health is the part of the exporter that reads the page of the running one: the health of the GPUs as a line and an
// exit code, and the evidence for Kubernetes AI Conformance.
package health

import (
	"context"
	"io"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter: two commands.
func New(*kingpin.Application) rooms.Part {
	return rooms.Part{Commands: []rooms.Command{
		{Name: healthCommand, Help: "health of the GPUs in one line and an exit code, from the running exporter",
			Run: func(ctx context.Context, _ rooms.Assemble, args []string, stdout, stderr io.Writer) int {
				return healthMain(ctx, args, stdout, stderr)
			}},
		{Name: conformanceCommand, Help: "what Kubernetes AI Conformance requires, from the running exporter",
			Run: func(ctx context.Context, _ rooms.Assemble, args []string, stdout, stderr io.Writer) int {
				return conformanceMain(ctx, args, stdout, stderr)
			}},
	}}
}
