package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// Pods has the containers of this node's pods from another source than the names of their logs. It must not block.
type Pods interface {
	// ContainerOf returns the container that the processes of a pod's UID belong to, where that is certain.
	ContainerOf(uid string) (gpu.Container, bool)
}

// EngineNames has the names of the containers of Docker or Podman. It must not block.
type EngineNames interface {
	// Kind is the first part of the names.
	Kind() string
	// Container returns the name of a container by its full ID; empty where unknown. Settled is false while it may become
	// known.
	Container(id string) (name string, settled bool)
}

// Options configure a Finder. Empty paths disable a source.
type Options struct {
	// Procfs is where the host's /proc is mounted.
	Procfs string
	// PodLogs and ContainerLogs are /var/log/pods and /var/log/containers.
	PodLogs, ContainerLogs string
	// Pods names the pods whose logs are missing; nil: none.
	Pods Pods
	// Engines name containers outside pods; without them such a container is named by its ID.
	Engines []EngineNames
	// Kubernetes means that GPUs are only allocated to pods here: a process outside any pod then belongs to the host.
	// Without it they are allocated to containers, jobs, units and users.
	Kubernetes bool
	// Slurm means that GPUs are allocated to the jobs of Slurm beside the pods.
	Slurm bool
	// JobNumbers enables reading SLURM_JOB_ID from the environment of processes whose cgroup names their job only by
	// its SLUID. It needs CAP_SYS_PTRACE; without, such a job is named by its SLUID.
	JobNumbers bool
	// Clock is the time; log names are read again at most every namesInterval.
	Clock func() time.Time
	// Logger gets failures of the data sources once; nil discards them.
	Logger *slog.Logger
	// Deadline is that of one read; where 0, half a second, and of a walk of the cgroups three. Reads of processes that do
	// not return cost one deadline in all, and those processes are Unknown.
	Deadline time.Duration
}

// Owner is what a process belongs to.
type Owner int

// Unknown: its container could not be read or named. Host: no container, job, unit or user that a GPU could be
// allocated to. Owned: the container that was returned.
const (
	Unknown Owner = iota
	Host
	Owned
)

// Finder finds what processes belong to. It belongs to one goroutine, except for Watch.
type Finder struct {
	o       Options
	reader  *host.Reader // of /proc
	logDirs *host.Reader
	names   *logNames
	namesAt time.Time // when names were read
	readAt  time.Time // when that was last tried
	process gpu.Health
	logs    gpu.Health
	entries map[int]entry
	// expected is what Expect read, until it is used.
	expected map[int]look
	swept    time.Time
	jobs     slurmJobs
	watch    *watcher
}

// entry caches a process: a PID that starts at another time is another process.
type entry struct {
	start     string
	command   string // when it was looked up first
	mps       bool
	cgroup    string // as last read
	place     Place
	container gpu.Container
	owner     Owner
	// found is when the process was looked up first in this place, used when last, checked when its cgroup was read.
	found, used, checked time.Time
}

const (
	// placeInterval is the minimum time between reads of the cgroup of one process.
	placeInterval = 10 * time.Second
	// namesInterval is the minimum time between reads of the log names for a process without a name.
	namesInterval = 2 * time.Second
	// staleNames is the age at which Sources reads them again: the health of a source that nothing needs is current too.
	staleNames = 30 * time.Second
	// mpsCommand is the name of MPS's control daemon and of its server, as much of it as the kernel keeps.
	mpsCommand = "nvidia-cuda-mps"
	// hostPIDNamespace is the inode of the first PID namespace of a kernel (PROC_PID_INIT_INO).
	hostPIDNamespace = "pid:[4026531836]"
)

// New returns a Finder; it reads nothing yet.
func New(o Options) *Finder {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	deadline := cmp.Or(o.Deadline, 500*time.Millisecond)
	return &Finder{o: o, reader: host.NewReader(deadline), logDirs: host.NewReader(deadline), entries: map[int]entry{},
		jobs: slurmJobs{bySLUID: map[string]*slurmJob{}}, watch: newWatcher(o.Procfs, o.JobNumbers, o.Clock, deadline)}
}

// HostPID returns nil where this process is in the host's PID namespace, otherwise what to do: in a namespace of its
// own, the processes of other pods are not visible, and the driver hides them.
func (f *Finder) HostPID() error {
	path := filepath.Join(f.o.Procfs, "self", "ns", "pid")
	ns, err := host.Read(context.Background(), f.reader, path, func() (string, error) { return os.Readlink(path) })
	if err != nil {
		return fmt.Errorf("cannot determine the PID namespace: %w", err)
	}
	if ns != hostPIDNamespace {
		return fmt.Errorf("not in the host's PID namespace (%s); set hostPID: true", ns)
	}
	return nil
}

// Expect reads processes that are looked up next, in one goroutine: one for each costs more than reading does. Find reads
// what is missing, such as all of them where one read does not return, and finds out which that is.
func (f *Finder) Expect(pids []int) {
	f.expected = nil
	if len(pids) == 0 {
		return
	}
	known, now := make(map[int]look, len(pids)), f.o.Clock()
	for _, pid := range pids {
		known[pid] = f.entries[pid].known(now)
	}
	f.expected, _ = host.Read(context.Background(), f.reader, f.o.Procfs, func() (map[int]look, error) {
		for pid, k := range known {
			var err error
			if known[pid], err = lookAt(processDir(f.o.Procfs, pid), k, f.o.JobNumbers); err != nil {
				delete(known, pid)
			}
		}
		return known, nil
	})
}

// known is what a look at the process need not read again: its place from time to time, since it may have moved.
func (e entry) known(now time.Time) look {
	if age := now.Sub(e.checked); age >= placeInterval || age < 0 {
		return look{start: e.start, cgroup: e.cgroup, place: e.place}
	}
	return look{start: e.start}
}

// look is readLook, unless its result is expected.
func (f *Finder) look(pid int, known look) (look, error) {
	l, expected := f.expected[pid]
	delete(f.expected, pid)
	if expected && (l.cgroup != "" || known.cgroup == "" && l.start == known.start) {
		return l, nil
	}
	return readLook(context.Background(), f.reader, f.o.Procfs, pid, known, f.o.JobNumbers)
}

// Find returns what a PID belonged to since the previous call for it, and the container if Owned. It is Unknown if
// that may have been several processes, or the process has moved to another container. A process that has just ended
// is known if it was seen before, by Find or by Watch.
func (f *Finder) Find(pid int) (gpu.Container, Owner) {
	now := f.o.Clock()
	if now.Sub(f.swept) > forgetAfter {
		f.Forget()
		f.swept = now
	}
	e := f.entries[pid]
	l, err := f.look(pid, e.known(now))
	g, seen := f.watch.of(pid, now)
	ended := errors.Is(err, errEnded)
	if ended && now.Sub(e.used) > sampledFor {
		e = entry{}
	}
	reused := seen && (g.reused || e.start != "" && g.start != e.start || !ended && g.start != l.start) ||
		!ended && e.start != "" && l.start != e.start
	switch {
	case !ended, reused:
	case e.start != "":
		l, err = look{start: e.start}, nil // the last samples of a process that was known
	case seen:
		l, err = g.look, nil
	default:
		f.watch.miss(now)
	}
	// An invalid file is read again: its process must not pass for one of the host.
	read := l.start != e.start || l.cgroup != ""
	if err != nil || read && (l.place.Disputed || !f.valid(l.cgroup, l.place)) {
		delete(f.entries, pid)
		return gpu.Container{}, Unknown
	}
	// Until it was seen to have moved, it may have been in either place.
	moved := read && l.start == e.start && l.place != e.place
	if moved || l.start != e.start {
		command := l.command
		if moved {
			command = e.command // it may move as often as it likes
		}
		e = entry{start: l.start, command: command, place: l.place, found: now, used: now, mps: l.command == mpsCommand}
		f.jobs.note(l.place.SlurmJob, l.number, l.denied, now)
	}
	// The name of an engine's container may change, or come late. The number of a SLUID may be disputed later.
	inEngine := len(f.o.Engines) > 0 && e.place.ContainerID != "" && e.place.PodUID == ""
	if e.owner == Unknown || isSLUID(e.place.SlurmJob) || inEngine {
		e.container, e.owner = f.name(now, e.found, e.place)
	}
	if !ended {
		e.used, e.mps = now, l.command == mpsCommand
	}
	if read {
		e.checked, e.cgroup = now, l.cgroup
	}
	f.entries[pid] = e
	if reused {
		f.watch.settle(pid)
	}
	if reused || moved {
		return gpu.Container{}, Unknown
	}
	return e.container, e.owner
}

// valid reports whether a cgroup file, parsed as place, describes a process: it has a line as the kernel writes them,
// and none among the pods that names no pod.
func (f *Finder) valid(text string, place Place) bool {
	if place != (Place{}) {
		return true
	}
	found := false
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		found = true
		if f.o.Kubernetes && strings.Contains(fields[2], "kubepods") {
			return false
		}
	}
	return found
}

// Forget drops processes that were not looked up lately.
func (f *Finder) Forget() {
	now := f.o.Clock()
	maps.DeleteFunc(f.entries, func(_ int, e entry) bool { return now.Sub(e.used) > forgetAfter })
	f.jobs.forget(now)
}

// name names a place of a process that was found some time ago.
func (f *Finder) name(now, found time.Time, p Place) (gpu.Container, Owner) {
	if p.Around != "" {
		// A container of this node may not create another's pod inside it; one that is unknown here is a nested node.
		around := Place{ContainerID: p.Around}
		if c, owner := f.nameInPod(now, around); owner == Owned {
			return c, owner
		}
		switch name, settled := f.engineName(around); {
		case name != "":
			return gpu.Container{Pod: name}, Owned
		case !settled:
			return gpu.Container{}, Unknown
		}
	}
	// Users create cgroups below those of their sessions, also some with the ID of a pod's container.
	if p.PodUID != "" || f.o.Kubernetes && p.ContainerID != "" && p.User == "" {
		c, owner := f.nameInPod(now, p)
		switch {
		case owner == Owned:
		case p.PodUID == "":
			if name, _ := f.engineName(p); name != "" {
				return gpu.Container{Pod: name}, Owned // a container outside Kubernetes
			}
		case p.Inner != "" && f.elsewhere(found, p.PodUID):
			return f.name(now, found, parsePath(p.Inner))
		}
		if owner == Owned || !p.Beside {
			return c, owner
		}
	}
	if f.o.Kubernetes && !p.Beside && !(f.o.Slurm && p.SlurmJob != "" && p.ContainerID == "") {
		return gpu.Container{}, Host
	}
	var name string
	switch {
	case p.ContainerID != "":
		known, settled := f.engineName(p)
		if name = known; name == "" {
			if !settled {
				return gpu.Container{}, Unknown // until the next list, rather than two names one after the other
			}
			name = cmp.Or(p.Runtime, "container") + "/" + p.ContainerID[:12]
		}
	case p.SlurmJob != "":
		name = "slurm/" + f.jobs.name(p.SlurmJob, now)
	case p.Unit != "":
		name = gpu.UnitPrefix + p.Unit
	case p.User != "":
		name = gpu.UserPrefix + p.User
	default:
		return gpu.Container{}, Host
	}
	return gpu.Container{Pod: name}, Owned
}

// elsewhere reports whether a pod is certainly none of this kubelet's: log names that were read since a process of it
// was found have other pods and not this one.
func (f *Finder) elsewhere(found time.Time, uid string) bool {
	if f.names == nil || len(f.names.pods) == 0 || f.namesAt.Before(found) {
		return false
	}
	_, listed := f.names.pods[uid]
	if !listed && f.o.Pods != nil {
		_, listed = f.o.Pods.ContainerOf(uid)
	}
	return !listed
}

// engineName returns docker/NAME; empty where no engine has the container. Settled is false while one may still have
// it.
func (f *Finder) engineName(p Place) (name string, settled bool) {
	settled = true
	for _, e := range f.o.Engines {
		if p.Runtime != "" && p.Runtime != e.Kind() {
			continue
		}
		name, known := e.Container(p.ContainerID)
		if name != "" {
			return e.Kind() + "/" + name, true
		}
		settled = settled && known
	}
	return "", settled
}

// readNames reads the log names. Those of before stay in use where that fails.
func (f *Finder) readNames(now time.Time) {
	pods, links := f.o.PodLogs, f.o.ContainerLogs
	names, err := host.Read(context.Background(), f.logDirs, "log names in "+pods+" and "+links, func() (*logNames, error) {
		return readLogNames(pods, links)
	})
	f.logs.Took(max(0, f.o.Clock().Sub(now)))
	f.readAt = now
	if err == nil {
		f.names, f.namesAt = names, now
		f.logs.Succeeded(now)
		return
	}
	if f.logs.Failed(err.Error()) {
		f.o.Logger.Warn("cannot read the names of pod logs", "err", err)
	}
	if f.names == nil || f.names.missing {
		f.names = &logNames{}
	}
}

// Sources returns the health of /proc, and of the log names where there are any. It belongs to the goroutine of Find, and
// reads what nothing needed lately.
func (f *Finder) Sources() []gpu.Source {
	now := f.o.Clock()
	err := f.HostPID()
	if hung := f.reader.Hung(); hung != nil {
		err = hung // until what hangs returns, though nothing asks for it again
	}
	if err != nil {
		if f.process.Failed(err.Error()) {
			f.o.Logger.Warn("cannot look up processes", "err", err)
		}
	} else {
		f.process.Succeeded(now)
	}
	out := []gpu.Source{f.process.Source(gpu.SourceProcesses, "", now, 0)}
	if now.Sub(f.readAt) >= staleNames || now.Before(f.readAt) {
		f.readNames(now)
	}
	if !f.names.missing {
		out = append(out, f.logs.Source(gpu.SourceLogs, "", now, 0))
	}
	return out
}

// LogNames reports whether the directories of the log names could both be read.
func (f *Finder) LogNames() bool { return f.names != nil && f.names.both }

// nameInPod uses the names of logs first, which have container IDs, then the other source of pods.
func (f *Finder) nameInPod(now time.Time, p Place) (gpu.Container, Owner) {
	c, found := gpu.Container{}, false
	if f.names != nil {
		c, found = f.names.container(p)
	}
	if !found && (f.readAt.IsZero() || now.Sub(f.readAt) >= namesInterval || now.Before(f.readAt)) {
		f.readNames(now)
		c, found = f.names.container(p)
	}
	if f.o.Pods != nil && p.PodUID != "" {
		if other, ok := f.o.Pods.ContainerOf(p.PodUID); ok {
			switch {
			case !found:
				c, found = other, !f.names.contradicts(p, other)
			case c.PodName() != other.PodName():
				found = false // of the containers of one pod, the log is certain
			}
		}
	}
	if !found {
		return gpu.Container{}, Unknown
	}
	return c, Owned
}

// NamedMPS reports whether a process had the name of MPS's daemons when Find was last called for it. Any process may
// have that name.
func (f *Finder) NamedMPS(pid int) bool { return f.entries[pid].mps }

// Command returns the command of a process when Find first looked it up, with the control characters replaced, since any
// process may choose it; empty if unknown.
func (f *Finder) Command(pid int) string { return gpu.Printable(f.entries[pid].command) }

// JobNumbers returns nil unless an environment that should have the number of a Slurm job could not be read; then the
// reason. It belongs to the goroutine of Find.
func (f *Finder) JobNumbers() error { return f.jobs.denied }
