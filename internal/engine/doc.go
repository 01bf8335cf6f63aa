// Package engine learns the names of containers from Docker or Podman, over the engine's own socket, so that what
// runs outside Kubernetes is called docker/NAME and not docker/<12 digits>.
//
// One question is asked, and no other: GET /containers/json, the list of running containers, of which ids and names
// are kept. A container is never inspected: its configuration (HostConfig.DeviceRequests would tell the GPUs that
// --gpus gave it) comes only together with its environment, and that holds secrets. Whoever may write to such a
// socket is root on its node; this package writes nothing but that request.
package engine
