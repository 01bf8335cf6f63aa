package proc

import (
	"regexp"
	"slices"
	"strings"
)

// Place is the place of a process according to its cgroup file. The zero Place is unknown.
//
// A process may be able to create cgroups below its own, of any name. So the outermost pod, container or job counts,
// whatever the segments inside it name.
type Place struct {
	// PodUID is the UID of the outermost pod with dashes, or the 32 hex digits of a static pod. Empty outside pods, and
	// for containers of the exporter's own pod, whose path is relative to it.
	PodUID string
	// ContainerID is the runtime's 64 hex digits. Inner is the rest of the path, if it names another pod: that of a
	// nested node, if the outer one is none of this kubelet's.
	ContainerID, Inner string
	// Around is the ID of the container that the pod is in, such as a node of kind.
	Around string
	// Disputed is set where the path does not prove the owner: a pod below the cgroups of a login session, in which
	// users create cgroups, or two lines with different pods.
	Disputed bool
	// Runtime is that of a container outside pods: docker, podman, containerd. Beside is set where the path leads to the
	// container from the cgroups of its engine, so that it is certainly in no pod: a kubelet has its own.
	Runtime string
	Beside  bool
	// SlurmJob is the job's number, or its SLUID ("sEKNKTV3WPV500") where paths carry that.
	SlurmJob string
	// Unit is a systemd service ("ollama.service"), User the uid of a login session.
	Unit, User string
}

var (
	// The word kubepods is not required: in a private cgroup namespace it is not in the path.
	podSegment = regexp.MustCompile(`(?:^|[-_])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})` +
		`(?:\.slice)?(:.*)?$`)
	containerID  = regexp.MustCompile(`^(?:([a-z][a-z-]*?)[-:])?([0-9a-f]{64})(?:\.scope)?$`)
	unified      = regexp.MustCompile(`^:([a-z-]+):([0-9a-f]{64})$`)
	slurmNumber  = regexp.MustCompile(`^job_([0-9]+)$`)
	slurmSLUID   = regexp.MustCompile(`^s[0-9A-Z]{13}$`)
	userSlice    = regexp.MustCompile(`^user-([0-9]+)\.slice$`)
	serviceUnit  = regexp.MustCompile(`^[^/]+\.service$`)
	slurmMarkers = regexp.MustCompile(`^(?:slurm(?:_.+)?|(?:.+_)?slurmstepd\.scope)$`)
)

// maxCgroup bounds what is read of a cgroup file: a real one is some hundred bytes.
const maxCgroup = 64 << 10

// ParseCgroup parses /proc/<pid>/cgroup, of cgroup v1, v2 or both. A line that names a pod takes precedence, then one
// that names a container, a job, a unit, a user, in this order. Invalid lines are ignored.
func ParseCgroup(text string) Place {
	if len(text) > maxCgroup {
		text = text[:maxCgroup]
	}
	var best Place
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		p := parsePath(fields[2])
		if p.PodUID != "" && best.PodUID != "" && p.PodUID != best.PodUID {
			return Place{Disputed: true}
		}
		if p.rank() > best.rank() {
			best = p
		}
	}
	return best
}

// rank is the precedence of a place.
func (p Place) rank() int {
	switch {
	case p.Disputed:
		return 7
	case p.PodUID != "" && p.ContainerID != "":
		return 6
	case p.PodUID != "":
		return 5
	case p.ContainerID != "":
		return 4
	case p.SlurmJob != "":
		return 3
	case p.Unit != "":
		return 2
	case p.User != "":
		return 1
	}
	return 0
}

func parsePath(path string) Place {
	var p Place
	slurm := false
	// The kernel marks the cgroup of a container that is ending.
	segments := strings.Split(strings.TrimSuffix(path, " (deleted)"), "/")
	for i, segment := range segments {
		if m := podSegment.FindStringSubmatch(segment); m != nil {
			switch {
			case p.PodUID != "":
				p.Inner = "/" + strings.Join(segments[i:], "/")
				return p
			case p.SlurmJob != "":
				continue
			case p.User != "":
				return Place{Disputed: true}
			}
			// What precedes the pod (the container of a nested node) is not this pod's container.
			p = Place{PodUID: strings.ReplaceAll(m[1], "_", "-"), Around: p.ContainerID}
			if u := unified.FindStringSubmatch(m[2]); u != nil && !isMonitor(u[1]) {
				p.ContainerID = u[2]
			}
			continue
		}
		if m := containerID.FindStringSubmatch(segment); m != nil {
			if !isMonitor(m[1]) && p.ContainerID == "" && p.SlurmJob == "" {
				p.ContainerID = m[2]
				p.Beside = p.PodUID == "" && p.User == "" && i > 0 && slices.Contains(engineParents, segments[i-1])
				if r := runtimeOf(m[1]); r != "" {
					p.Runtime = r
				}
			}
			continue
		}
		if p.PodUID != "" || p.ContainerID != "" {
			continue
		}
		switch {
		case slurmMarkers.MatchString(segment):
			slurm = true
		case slurm && p.SlurmJob == "" && slurmNumber.MatchString(segment):
			p.SlurmJob = slurmNumber.FindStringSubmatch(segment)[1]
		case slurm && p.SlurmJob == "" && slurmSLUID.MatchString(segment):
			p.SlurmJob = segment
		case segment == "docker":
			p.Runtime = "docker"
		case userSlice.MatchString(segment):
			p.User = userSlice.FindStringSubmatch(segment)[1]
		case serviceUnit.MatchString(segment) && !strings.HasPrefix(segment, "user@"):
			p.Unit = segment
		}
	}
	if p.PodUID != "" || p.ContainerID == "" {
		p.Runtime = ""
	}
	p.Beside = p.Beside && p.Runtime != "" && p.Runtime != "containerd"
	return p
}

// engineParents are the cgroups in which Docker and Podman create those of containers.
var engineParents = []string{"docker", "system.slice", "machine.slice"}

// isMonitor reports whether a scope is that of a container's monitor process (crio-conmon-<id>).
func isMonitor(prefix string) bool { return strings.HasSuffix(prefix, "conmon") }

func runtimeOf(prefix string) string {
	switch {
	case strings.HasPrefix(prefix, "libpod"):
		return "podman"
	case prefix == "docker":
		return "docker"
	case strings.Contains(prefix, "containerd"):
		return "containerd"
	case strings.HasPrefix(prefix, "crio"):
		return "crio"
	}
	return ""
}
