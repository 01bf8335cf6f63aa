package proc

import (
	"os"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// names are the pods and containers of this node as their log files are called. It is built once and not
// changed again.
type names struct {
	pods map[string]podName // by UID
	// links are the containers by the first characters of their id. The kubelet cuts a long link name at 255
	// characters, so a link may carry only the beginning of the id.
	links map[string][]link // by the first minID digits
}

type podName struct {
	namespace, pod string
	containers     []string
}

type link struct {
	id string // 64 digits, or the beginning that was left
	gpu.Container
}

// minID is the least part of a container id that is believed: 48 bits.
const minID = 12

// maxEntries bounds what is read of a directory.
const maxEntries = 65536

// readNames reads directory and link names; it opens no log. A directory that is not there gives no names.
func readNames(podLogs, containerLogs string) *names {
	n := &names{pods: map[string]podName{}, links: map[string][]link{}}
	for _, e := range list(podLogs) {
		uid, name, ok := parsePodDirectory(e)
		if !ok {
			continue
		}
		name.containers = list(podLogs + "/" + e)
		n.pods[uid] = name
	}
	for _, e := range list(containerLogs) {
		if l, ok := parseContainerLink(e); ok {
			n.links[l.id[:minID]] = append(n.links[l.id[:minID]], l)
		}
	}
	return n
}

func list(dir string) []string {
	if dir == "" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, err := d.Readdirnames(maxEntries)
	if err != nil {
		return nil
	}
	return entries
}

// parsePodDirectory reads <namespace>_<pod>_<uid>. Neither a namespace nor a pod name may hold an underscore.
func parsePodDirectory(name string) (uid string, p podName, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || len(parts[2]) < 32 {
		return "", podName{}, false
	}
	return parts[2], podName{namespace: parts[0], pod: parts[1]}, true
}

// parseContainerLink reads <pod>_<namespace>_<container>-<id>.log.
func parseContainerLink(name string) (link, bool) {
	base, ok := strings.CutSuffix(name, ".log")
	parts := strings.Split(base, "_")
	if !ok || len(parts) != 3 {
		return link{}, false
	}
	dash := strings.LastIndexByte(parts[2], '-')
	if dash < 1 || parts[0] == "" || parts[1] == "" {
		return link{}, false
	}
	id := parts[2][dash+1:]
	if len(id) < minID || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return link{}, false
	}
	return link{id, gpu.Container{Pod: parts[0], Namespace: parts[1], Name: parts[2][:dash]}}, true
}

// container returns the container of that place. With a container id the link tells; without a link, the
// pod's UID tells the pod, and the container only where the pod has no other.
func (n *names) container(p Place) (gpu.Container, bool) {
	if len(p.ContainerID) >= minID {
		var found []gpu.Container
		for _, l := range n.links[p.ContainerID[:minID]] {
			if strings.HasPrefix(p.ContainerID, l.id) {
				found = append(found, l.Container)
			}
		}
		if len(found) == 1 {
			// Both ends must agree where both are there.
			if pod, ok := n.pods[p.PodUID]; ok && (pod.pod != found[0].Pod || pod.namespace != found[0].Namespace) {
				return gpu.Container{}, false
			}
			return found[0], true
		}
	}
	if pod, ok := n.pods[p.PodUID]; ok && p.PodUID != "" && len(pod.containers) == 1 {
		return gpu.Container{Namespace: pod.namespace, Pod: pod.pod, Name: pod.containers[0]}, true
	}
	return gpu.Container{}, false
}

// contradicts reports whether the names of logs speak against a container that another source tells: the pod has
// another name here, or logs of several containers, or the link of that container id names another container.
func (n *names) contradicts(p Place, c gpu.Container) bool {
	if pod, ok := n.pods[p.PodUID]; ok && (pod.namespace != c.Namespace || pod.pod != c.Pod || len(pod.containers) > 1) {
		return true
	}
	if len(p.ContainerID) < minID {
		return false
	}
	for _, l := range n.links[p.ContainerID[:minID]] {
		if strings.HasPrefix(p.ContainerID, l.id) && l.Container != c {
			return true
		}
	}
	return false
}
