package engines

import (
	"context"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened before the processes.
func New(flags *kingpin.Application) rooms.Part {
	var docker, podman string
	flags.Flag("docker.socket", "Docker socket, such as /var/run/docker.sock, to name containers outside pods "+
		"docker/NAME instead of docker/ID. Only the list of containers is requested, "+
		"but write access to this socket amounts to root on the node. Empty disables it.").StringVar(&docker)
	flags.Flag("podman.socket", "Podman socket, such as /run/podman/podman.sock, used likewise. Empty disables "+
		"it.").StringVar(&podman)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{Fixes: map[string]rooms.Fix{"container_names": {
			"--docker.socket=/var/run/docker.sock, and the socket mounted",
			"-v /var/run/docker.sock:/var/run/docker.sock, and --docker.socket=/var/run/docker.sock",
			"--docker.socket=/var/run/docker.sock, and [Service] SupplementaryGroups=docker (systemctl edit gpu-exporter)"}}}
		for _, o := range []Options{{Kind: Docker, Socket: docker}, {Kind: Podman, Socket: podman}} {
			if o.Socket == "" {
				continue
			}
			o.Timeout, o.Clock, o.Logger = p.Deadline, p.Clock, p.Logger
			e := Open(o)
			p.Finder.Engines = append(p.Finder.Engines, e)
			r.Loops = append(r.Loops, e.Run)
			r.Polls = append(r.Polls, func(ctx context.Context) { _ = e.Poll(ctx) })
			r.Source(e.Source)
		}
		named := len(r.Loops) > 0
		r.Feature("container_names", "Names of containers outside pods, docker/NAME instead of docker/ID: set --docker.socket or "+
			"--podman.socket and mount the socket; write access to it amounts to root on the node.", !p.Kubelet || named,
			rooms.Always(named))
		return r, nil
	}}
}
