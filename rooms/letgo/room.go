// Package letgo is the part of the exporter that closes the driver when it is asked to.
package letgo

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// length is how long the driver stays closed: it ends by itself, whatever became of the tool that asked.
const length = 5 * time.Minute

// New is this package as a part of the exporter: SIGUSR1 closes the driver, SIGUSR2 opens it again.
func New(*kingpin.Application) rooms.Part {
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		return &rooms.Room{Loops: []func(context.Context){func(ctx context.Context) {
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
			defer signal.Stop(signals)
			for {
				select {
				case <-ctx.Done():
					return
				case s := <-signals:
					p.LetGo(map[os.Signal]time.Duration{syscall.SIGUSR1: length}[s])
				}
			}
		}}}, nil
	}}
}
