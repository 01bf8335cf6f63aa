package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Pods knows the containers of this node's pods from another source than the names of their logs. It must not block.
type Pods interface {
	// ContainerOf returns the container to which the processes of a pod's UID belong, where that is certain.
	ContainerOf(uid string) (gpu.Container, bool)
}

// Engine knows the names of the containers of Docker or Podman. It must not block.
type Engine interface {
	// Kind is the runtime, as Place spells it: docker, podman.
	Kind() string
	// Container returns the name of a container by its full id, empty where it is not known; settled is false while
	// the answer is about to come.
	Container(id string) (name string, settled bool)
}

// Options say where to look. Empty paths leave a source out.
type Options struct {
	// Procfs is where the host's /proc is mounted.
	Procfs string
	// PodLogs and ContainerLogs are /var/log/pods and /var/log/containers.
	PodLogs, ContainerLogs string
	// Pods names the pods whose logs are not there; nil: nobody does.
	Pods Pods
	// Engines name containers that are in no pod; without them such a container is called by its id.
	Engines []Engine
	// Kubernetes says that pods are the only owners here: a process outside any pod then belongs to the host.
	// Without it containers, jobs, units and users own GPUs.
	Kubernetes bool
	// Slurm says that the jobs of Slurm own GPUs beside the pods.
	Slurm bool
	// JobNumbers says that SLURM_JOB_ID may be read from the environment of processes whose cgroup names their job
	// by its SLUID alone. It takes CAP_SYS_PTRACE; without, such a job goes by its SLUID.
	JobNumbers bool
	// Clock is the time; names are read again at most once in a while.
	Clock func() time.Time
}

// Belongs says whose a process is.
type Belongs int

// Unknown: its container could not be read or named. Host: it runs outside all that could own a GPU.
// Owned: it belongs to the container that was returned.
const (
	Unknown Belongs = iota
	Host
	Owned
)

// Finder finds what processes belong to. It belongs to one goroutine.
type Finder struct {
	o       Options
	names   *names
	readAt  time.Time
	entries map[int]entry
	swept   time.Time
	sluids  map[string]*sluidClaim
	closed  error // why the last environment that was asked for was not told
}

// entry remembers a process: a PID that starts at another time is another process.
type entry struct {
	start     string
	mps       bool
	place     Place
	container gpu.Container
	belongs   Belongs
	used      time.Time
}

// namesEvery is how often the names may be read again for a process that has none yet.
const namesEvery = 2 * time.Second

// forgetAfter is when a process that nobody asks for is forgotten.
const forgetAfter = 5 * time.Minute

// New returns a Finder; it reads nothing yet.
func New(o Options) *Finder {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Finder{o: o, entries: map[int]entry{}, sluids: map[string]*sluidClaim{}}
}

// hostPIDNamespace is the inode of the first PID namespace of a kernel (PROC_PID_INIT_INO).
const hostPIDNamespace = "pid:[4026531836]"

// HostPID returns nil where this process is in the host's PID namespace, else what to do about it: in a
// namespace of its own it sees no other pod's processes, and the driver hides them.
func (f *Finder) HostPID() error {
	ns, err := os.Readlink(filepath.Join(f.o.Procfs, "self", "ns", "pid"))
	if err != nil {
		return fmt.Errorf("cannot tell the PID namespace: %w", err)
	}
	if ns != hostPIDNamespace {
		return fmt.Errorf("not in the host's PID namespace (%s); set hostPID: true", ns)
	}
	return nil
}

// Find returns what a process belongs to, and whose container it is if Owned. A process that ended is Unknown.
func (f *Finder) Find(pid int) (gpu.Container, Belongs) {
	now := f.o.Clock()
	if now.Sub(f.swept) > forgetAfter {
		f.Forget()
		f.swept = now
	}
	dir := filepath.Join(f.o.Procfs, strconv.Itoa(pid))
	start, command, ok := readStat(dir)
	if !ok {
		delete(f.entries, pid)
		return gpu.Container{}, Unknown
	}
	e, known := f.entries[pid]
	if !known || e.start != start {
		text, err := readBounded(filepath.Join(dir, "cgroup"))
		place, told := ParseCgroup(text), ""
		if f.o.JobNumbers && isSLUID(place.SlurmJob) {
			told = f.askNumber(dir)
		}
		// The start time again: the PID may have gone to another process between the reads.
		again, ok := startTime(dir)
		// What makes no sense is no answer, and is asked for again: it must not pass for a process of the host.
		if err != nil || !ok || again != start || !f.sensible(text, place) {
			delete(f.entries, pid)
			return gpu.Container{}, Unknown
		}
		e = entry{start: start, place: place}
		if told != "" {
			f.claim(place.SlurmJob, told)
		}
	}
	// What an engine tells may change: a container gets its name late, or another. What a SLUID stands for may be
	// contradicted later.
	if e.belongs == Unknown || isSLUID(e.place.SlurmJob) || len(f.o.Engines) > 0 && e.place.ContainerID != "" && e.place.PodUID == "" {
		e.container, e.belongs = f.name(now, e.place)
	}
	e.used, e.mps = now, command == mpsCommand
	f.entries[pid] = e
	return e.container, e.belongs
}

// sensible reports whether a cgroup file, read as place, says anything of a process: it has a line as the kernel writes
// them, and none that lies among the pods without naming one.
func (f *Finder) sensible(text string, place Place) bool {
	if place != (Place{}) {
		return true
	}
	some := false
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		some = true
		if f.o.Kubernetes && strings.Contains(fields[2], "kubepods") {
			return false
		}
	}
	return some
}

// Forget drops processes that nobody asked for lately.
func (f *Finder) Forget() {
	now := f.o.Clock()
	for pid, e := range f.entries {
		if now.Sub(e.used) > forgetAfter {
			delete(f.entries, pid)
		}
	}
	for sluid, c := range f.sluids {
		if now.Sub(c.used) > forgetAfter {
			delete(f.sluids, sluid)
		}
	}
}

func (f *Finder) name(now time.Time, p Place) (gpu.Container, Belongs) {
	if p.PodUID != "" || f.o.Kubernetes && p.ContainerID != "" {
		c, belongs := f.nameInPod(now, p)
		if belongs == Unknown && p.PodUID == "" {
			if name, _ := f.engineName(p); name != "" {
				return gpu.Container{Pod: name}, Owned // it runs beside Kubernetes
			}
		}
		return c, belongs
	}
	if f.o.Kubernetes && !(f.o.Slurm && p.SlurmJob != "" && p.ContainerID == "") {
		return gpu.Container{}, Host
	}
	switch {
	case p.ContainerID != "":
		name, settled := f.engineName(p)
		switch {
		case name != "":
			return gpu.Container{Pod: name}, Owned
		case !settled:
			return gpu.Container{}, Unknown // for a moment, rather than two names one after the other
		}
		runtime := p.Runtime
		if runtime == "" {
			runtime = "container"
		}
		return gpu.Container{Pod: runtime + "/" + p.ContainerID[:12]}, Owned
	case p.SlurmJob != "":
		return gpu.Container{Pod: "slurm/" + f.jobOf(p.SlurmJob)}, Owned
	case p.Unit != "":
		return gpu.Container{Pod: "systemd/" + p.Unit}, Owned
	case p.User != "":
		return gpu.Container{Pod: "user/" + p.User}, Owned
	}
	return gpu.Container{}, Host
}

// engineName returns docker/NAME, or empty where no engine knows the container. Settled is false while one may still tell.
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

// nameInPod asks the names of logs first, for they tell containers by their ids, then whoever else knows the pod.
func (f *Finder) nameInPod(now time.Time, p Place) (gpu.Container, Belongs) {
	c, found := gpu.Container{}, false
	if f.names != nil {
		c, found = f.names.container(p)
	}
	if !found && (f.names == nil || now.Sub(f.readAt) >= namesEvery || now.Before(f.readAt)) {
		f.names, f.readAt = readNames(f.o.PodLogs, f.o.ContainerLogs), now
		c, found = f.names.container(p)
	}
	if f.o.Pods == nil || p.PodUID == "" {
		return c, owned(found)
	}
	told, ok := f.o.Pods.ContainerOf(p.PodUID)
	switch {
	case !ok:
		return c, owned(found)
	case found:
		// Both must agree on the pod; of the containers, the log of this very one knows more.
		if c.Namespace != told.Namespace || c.Pod != told.Pod {
			return gpu.Container{}, Unknown
		}
		return c, Owned
	case f.names.contradicts(p, told):
		return gpu.Container{}, Unknown
	}
	return told, Owned
}

func owned(ok bool) Belongs {
	if ok {
		return Owned
	}
	return Unknown
}

// mpsCommand is the name of MPS's control daemon and of its server, as much of it as a kernel keeps.
const mpsCommand = "nvidia-cuda-mps"

// NamedMPS reports whether a process bore the name of MPS's daemons when Find was last asked for it. Any process
// may call itself so.
func (f *Finder) NamedMPS(pid int) bool { return f.entries[pid].mps }

// startTime returns a process's start in clock ticks since boot.
func startTime(dir string) (string, bool) {
	start, _, ok := readStat(dir)
	return start, ok
}

// readStat returns what parseStat reads from /proc/<pid>/stat.
func readStat(dir string) (start, command string, ok bool) {
	stat, err := readBounded(filepath.Join(dir, "stat"))
	if err != nil {
		return "", "", false
	}
	return parseStat(stat)
}

// parseStat returns field 22, the process's start, and its command, which stands in parentheses and may hold anything,
// parentheses and spaces too.
func parseStat(stat string) (start, command string, ok bool) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return "", "", false
	}
	fields := strings.Fields(stat[end+1:])
	const startField = 22 - 3 // the fields after the command begin with the third
	if len(fields) <= startField {
		return "", "", false
	}
	return fields[startField], stat[begin+1 : end], true
}

// readBounded reads a small file of /proc.
func readBounded(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, maxCgroup)
	n, err := f.Read(buf)
	if n > 0 {
		return string(buf[:n]), nil
	}
	return "", err
}
