package engines

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the processes.
func New(flags *kingpin.Application) rooms.Part {
	const flag = "containers.socket"
	var sockets []string
	flags.Flag(flag, "Socket of Docker, such as /var/run/docker.sock, or of Podman, such as /run/podman/podman.sock, whose "+
		"path contains podman (repeatable), to name containers outside pods docker/NAME instead of docker/ID. Only the list "+
		"of containers is requested, but write access to this socket amounts to root on the node.").StringsVar(&sockets)
	of := map[string]*string{} // socket by engine
	for _, kind := range []string{Docker, Podman} {
		of[kind] = rooms.Former(flags, kind+".socket", flag).String()
	}
	return rooms.Part{Check: func(*rooms.Common) error {
		for _, socket := range sockets {
			kind := Docker
			if strings.Contains(socket, Podman) {
				kind = Podman
			}
			if other := *of[kind]; other != "" {
				return fmt.Errorf("--%s: %s and %s are both of %s: one is read", flag, other, socket, kind)
			}
			*of[kind] = socket
		}
		return nil
	}, Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{Fixes: map[string]rooms.Fix{"container_names": {
			"--containers.socket=/var/run/docker.sock, and the socket mounted",
			"-v /var/run/docker.sock:/var/run/docker.sock, and --containers.socket=/var/run/docker.sock",
			"--containers.socket=/var/run/docker.sock, and [Service] SupplementaryGroups=docker (systemctl edit gpu-exporter)"}}}
		for _, kind := range []string{Docker, Podman} {
			socket := *of[kind]
			if socket == "" {
				continue
			}
			e := Open(Options{Kind: kind, Socket: socket, Timeout: p.Deadline, Clock: p.Clock, Logger: p.Logger})
			p.Finder.Engines = append(p.Finder.Engines, e)
			r.Loops = append(r.Loops, e.Run)
			r.Polls = append(r.Polls, func(ctx context.Context) { _ = e.Poll(ctx) })
			r.Source(e.Source)
		}
		named := len(r.Loops) > 0
		r.Feature("container_names", "Names of containers outside pods, docker/NAME instead of docker/ID: set --containers.socket "+
			"and mount the socket; write access to it amounts to root on the node.", !p.Kubelet || named, named, nil)
		return r, nil
	}}
}
