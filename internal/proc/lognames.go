package proc

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// logNames are the pods and containers of this node by the names of their log files. It is immutable.
type logNames struct {
	pods map[string]podName // by UID
	// links are the containers by the first minID digits of their ID. The kubelet truncates a long link name at 255
	// characters, so a link may have only the beginning of the ID.
	links map[string][]link
	// missing means that neither directory exists, both that each could be read.
	missing, both bool
}

type podName struct {
	namespace, pod string
	containers     []string
	// linked is true where some container of the pod has a link.
	linked bool
}

type link struct {
	id string // 64 digits, or their beginning
	gpu.Container
}

// minID is the minimum length of the beginning of a container ID: 48 bits.
const minID = 12

// maxEntries bounds what is read of a directory.
const maxEntries = 65536

// readLogNames reads directory and link names; it opens no log. A missing directory has no names.
func readLogNames(podLogs, containerLogs string) (*logNames, error) {
	pods, errPods := list(podLogs)
	containers, errContainers := list(containerLogs)
	absent := func(err error) bool { return errors.Is(err, fs.ErrNotExist) }
	for _, err := range []error{errPods, errContainers} {
		if err != nil && !absent(err) {
			return nil, err
		}
	}
	n := &logNames{pods: map[string]podName{}, links: map[string][]link{}, missing: errPods != nil && errContainers != nil,
		both: errPods == nil && errContainers == nil}
	linked := map[gpu.PodName]bool{}
	for _, e := range containers {
		if l, ok := parseContainerLink(e); ok {
			n.links[l.id[:minID]] = append(n.links[l.id[:minID]], l)
			linked[l.PodName()] = true
		}
	}
	for _, e := range pods {
		uid, name, ok := parsePodDirectory(e)
		if !ok {
			continue
		}
		name.containers, _ = list(podLogs + "/" + e) // none of a pod that has just ended
		name.linked = linked[gpu.PodName{Namespace: name.namespace, Pod: name.pod}]
		n.pods[uid] = name
	}
	return n, nil
}

func list(dir string) ([]string, error) {
	if dir == "" {
		return nil, fs.ErrNotExist
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.Readdirnames(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// parsePodDirectory parses <namespace>_<pod>_<uid>. Neither a namespace nor a pod name may contain an underscore.
func parsePodDirectory(name string) (uid string, p podName, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || len(parts[2]) < 32 {
		return "", podName{}, false
	}
	return parts[2], podName{namespace: parts[0], pod: parts[1]}, true
}

// parseContainerLink parses <pod>_<namespace>_<container>-<id>.log.
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

// container returns the container of a place: that of the link with its container ID, or where the pod has no links
// the container of the pod's UID, if the pod has just one. An ID without a link in a pod with links is its sandbox (the
// pause process), or a container that has just started.
func (n *logNames) container(p Place) (gpu.Container, bool) {
	pod, known := n.pods[p.PodUID]
	if found := n.linked(p); len(found) == 1 {
		// Link and directory must agree.
		if known && found[0].PodName() != (gpu.PodName{Namespace: pod.namespace, Pod: pod.pod}) {
			return gpu.Container{}, false
		}
		return found[0], true
	}
	if known && p.PodUID != "" && len(pod.containers) == 1 && !(pod.linked && p.ContainerID != "") {
		return gpu.Container{Namespace: pod.namespace, Pod: pod.pod, Name: pod.containers[0]}, true
	}
	return gpu.Container{}, false
}

// linked are the containers of the links with a container ID.
func (n *logNames) linked(p Place) []gpu.Container {
	if n == nil || len(p.ContainerID) < minID {
		return nil
	}
	var found []gpu.Container
	for _, l := range n.links[p.ContainerID[:minID]] {
		if strings.HasPrefix(p.ContainerID, l.id) {
			found = append(found, l.Container)
		}
	}
	return found
}

// contradicts reports whether the names of logs contradict the container of another source: the pod has another name
// here, or logs of several containers, or links and none with that container ID, or that link names another container.
func (n *logNames) contradicts(p Place, c gpu.Container) bool {
	pod, ok := n.pods[p.PodUID]
	if ok && (pod.namespace != c.Namespace || pod.pod != c.Pod || len(pod.containers) > 1 ||
		pod.linked && p.ContainerID != "" && len(n.linked(p)) == 0) {
		return true
	}
	return slices.ContainsFunc(n.linked(p), func(l gpu.Container) bool { return l != c })
}
