package proc

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// SourceVisible is the name of the walk over the node's processes as a gpu.Source.
const SourceVisible = "visible"

// visibleDevices is the one variable of a container's environment that is read here.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// LookerOptions say how to look into containers.
type LookerOptions struct {
	// Finder says whose process is whose. The Looker has a Finder of its own.
	Finder Options
	// Interval is the time from one walk to the next, by which their age is judged; a minute where 0.
	Interval time.Duration
	// Named returns the GPUs that a list in the words of NVIDIA_VISIBLE_DEVICES names; nil: none.
	Named  func(inv *gpu.Inventory, list string) []gpu.UUID
	Logger *slog.Logger // nil: discarded
}

// Looker finds the GPUs that can be seen in each container: it walks over the processes of the node, and looks at
// the device nodes below the root of each container's first process. Where that root is closed to it, the
// process's NVIDIA_VISIBLE_DEVICES stands in. It needs the host's PID namespace and CAP_SYS_PTRACE.
//
// What is found is an upper bound. A privileged container has every node of the host, whatever it was told; a node
// that the device cgroup refuses to open is there all the same. Processes outside containers are left out: they
// see the host's own /dev, all of them the same.
//
// Look and Run walk; Visible and Source are quick and safe for concurrent use beside them.
type Looker struct {
	o   LookerOptions
	log *slog.Logger

	walking sync.Mutex // held through a walk; guards finder and asked
	finder  *Finder
	asked   map[process]string

	mu       sync.Mutex // guards what follows
	sights   []sight    // replaced, never changed
	began    time.Time  // of the walk under way; zero: none is
	success  gpu.Opt[time.Time]
	duration gpu.Opt[time.Duration]
	errors   uint64
	problem  string
	shown    []gpu.VisibleGPU
	shownOf  *gpu.Inventory
	fresh    bool // shown is of sights
}

// process is one process of all that ever had its PID.
type process struct {
	pid   int
	start string
}

// sight is what one container shows of the node's GPUs.
type sight struct {
	container gpu.Container
	// read is true where the device nodes could be read: minors are those of GPUs, placed the MIG instances whose
	// access is granted.
	read   bool
	minors []int
	// placed is nil where the driver's table of capabilities could not be read, so that nobody can tell.
	placed map[GPUInstance]bool
	// told is NVIDIA_VISIBLE_DEVICES, where the nodes could not be read.
	told string
}

// gpuInstance is a GPU instance on the GPU of a minor number.
type GPUInstance struct{ minor, gi int }

// The most that is looked at, so that nothing on a node can make a walk endless.
const (
	maxProcesses  = 65536
	maxContainers = 4096
	maxNodes      = 8192
)

// keptWalks is for how many intervals a walk stands when no other ends well.
const keptWalks = 5

// NewLooker returns a Looker; it reads nothing yet.
func NewLooker(o LookerOptions) *Looker {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	if o.Finder.Clock == nil {
		o.Finder.Clock = time.Now
	}
	l := &Looker{o: o, log: o.Logger, finder: New(o.Finder), asked: map[process]string{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Look walks once. It does not return while a container has a file system under its /dev that never answers.
func (l *Looker) Look(ctx context.Context) {
	l.walking.Lock()
	defer l.walking.Unlock()
	began := l.o.Finder.Clock()
	l.mu.Lock()
	l.began = began
	l.mu.Unlock()

	sights, refused, err := l.walk(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Time{}
	if ctx.Err() != nil {
		return
	}
	ended := l.o.Finder.Clock()
	l.duration = gpu.Some(ended.Sub(began))
	problem := ""
	switch {
	case err != nil:
		problem = "cannot list the processes: " + err.Error()
		l.errors++
	case refused > 0:
		l.errors += uint64(refused)
		problem = fmt.Sprintf("%d containers cannot be looked into: permission denied; add the capability SYS_PTRACE, and the AppArmor profile unconfined where there is AppArmor", refused)
	}
	if problem != "" && problem != l.problem {
		l.log.Warn("cannot tell all the GPUs that containers see", "problem", problem)
	}
	l.problem = problem
	if err != nil {
		return // what was found before stands; its age is told
	}
	l.sights, l.fresh, l.success = sights, false, gpu.Some(ended)
}

// walk finds the first process of each container and looks through its eyes.
func (l *Looker) walk(ctx context.Context) (sights []sight, refused int, err error) {
	pids, err := processes(l.o.Finder.Procfs)
	if err != nil {
		return nil, 0, err
	}
	first := map[gpu.Container]process{}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		container, belongs := l.finder.Find(pid)
		e := l.finder.entries[pid]
		if belongs != Owned || e.place.ContainerID == "" && e.place.PodUID == "" {
			continue
		}
		mine := process{pid, e.start}
		if other, ok := first[container]; (!ok && len(first) < maxContainers) || ok && mine.before(other) {
			first[container] = mine
		}
	}
	l.finder.keep(pids)
	firsts := map[process]bool{}
	for _, p := range first {
		firsts[p] = true
	}
	maps.DeleteFunc(l.asked, func(p process, _ string) bool { return !firsts[p] })

	var table capabilities
	// A tree that is laid out for a test or a demonstration has files where a kernel has devices.
	kernel := isProcfs(l.o.Finder.Procfs)
	for container, p := range first {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		dir := filepath.Join(l.o.Finder.Procfs, strconv.Itoa(p.pid))
		minors, caps, nodesErr := deviceNodes(dir, kernel)
		s := sight{container: container, read: nodesErr == nil, minors: minors}
		if nodesErr == nil && len(caps) > 0 {
			table.read(l.o.Finder.Procfs)
		}
		if nodesErr == nil {
			s.placed = table.grants(caps)
		}
		var toldErr error
		if nodesErr != nil {
			s.told, toldErr = l.told(dir, p)
		}
		// The PID may have gone to another process meanwhile.
		if start, ok := startTime(dir); !ok || start != p.start {
			continue
		}
		if nodesErr != nil && toldErr != nil {
			if errors.Is(nodesErr, fs.ErrPermission) || errors.Is(toldErr, fs.ErrPermission) {
				refused++
			}
			continue
		}
		sights = append(sights, s)
	}
	slices.SortFunc(sights, func(a, b sight) int { return a.container.Compare(b.container) })
	return sights, refused, nil
}

// told returns what a process was told of GPUs when it began. It is asked once: what a process does to its
// environment later tells nothing of the container.
func (l *Looker) told(dir string, p process) (string, error) {
	if v, ok := l.asked[p]; ok {
		return v, nil
	}
	v, _, err := variable(filepath.Join(dir, "environ"), visibleDevices)
	if err == nil {
		l.asked[p] = v
	}
	return v, err
}

// before orders processes by their start.
func (p process) before(q process) bool {
	return cmp.Or(cmp.Compare(len(p.start), len(q.start)), cmp.Compare(p.start, q.start), cmp.Compare(p.pid, q.pid)) < 0
}

// processes lists the PIDs of a /proc, in their order.
func processes(procfs string) ([]int, error) {
	d, err := os.Open(procfs)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var pids []int
	for len(pids) < maxProcesses {
		entries, err := d.Readdirnames(1024)
		for _, e := range entries {
			if pid, err := strconv.Atoi(e); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// keep forgets all processes but these.
func (f *Finder) keep(pids []int) {
	maps.DeleteFunc(f.entries, func(pid int, _ entry) bool {
		_, found := slices.BinarySearch(pids, pid)
		return !found
	})
}

func isProcfs(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.PROC_SUPER_MAGIC
}

const (
	nvidiaMajor = 195 // the character devices of NVIDIA GPUs
	// Minors from here on are the driver's own nodes, such as nvidiactl.
	firstOwnMinor = 254
)

var (
	GPUNode        = regexp.MustCompile(`^nvidia([0-9]{1,3})$`)
	capabilityNode = regexp.MustCompile(`^nvidia-cap([0-9]{1,5})$`)
)

// deviceNodes lists the nodes of GPUs and of MIG capabilities that the root of a process shows. The numbers are
// those of the nodes, whatever they are called: some plugins show every GPU as nvidia0. It never leaves that
// root: a link that a container put in its place leads nowhere.
func deviceNodes(dir string, kernel bool) (minors, caps []int, err error) {
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	minors, err = numbered(root, "dev", GPUNode, kernel, nvidiaMajor)
	if err != nil {
		return nil, nil, err
	}
	minors = slices.DeleteFunc(minors, func(m int) bool { return m >= firstOwnMinor })
	// The capabilities' major number is given out at boot; their folder holds nothing else.
	caps, err = numbered(root, "dev/nvidia-caps", capabilityNode, kernel, 0)
	if err != nil {
		caps = nil // there is none without MIG
	}
	return minors, caps, nil
}

// numbered lists the minor numbers of the character devices in a folder whose names match. A major of 0 is any.
func numbered(root *os.Root, dir string, name *regexp.Regexp, kernel bool, major uint32) ([]int, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxNodes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out []int
	for _, n := range names {
		m := name.FindStringSubmatch(n)
		if m == nil {
			continue
		}
		if !kernel {
			number, _ := strconv.Atoi(m[1])
			out = append(out, number)
			continue
		}
		info, err := root.Stat(dir + "/" + n)
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && (major == 0 || unix.Major(stat.Rdev) == major) {
			out = append(out, int(unix.Minor(stat.Rdev)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// capabilities is the driver's table of MIG capabilities, /proc/driver/nvidia-caps/mig-minors. It is read once, when
// it is first needed.
type capabilities struct {
	tried    bool
	instance map[int]GPUInstance // by the minor of the capability; nil: could not be read
}

// maxCapabilities bounds the table: eight GPUs have some two thousand lines.
const maxCapabilities = 65536

func (c *capabilities) read(procfs string) {
	if c.tried {
		return
	}
	c.tried = true
	f, err := os.Open(filepath.Join(procfs, "driver", "nvidia-caps", "mig-minors"))
	if err != nil {
		return
	}
	defer f.Close()
	c.instance = map[int]GPUInstance{}
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan() && n < maxCapabilities; n++ {
		// gpu0/gi1/access 12; below a GPU instance stand its compute instances, gpu0/gi1/ci0/access 13.
		path, number, ok := strings.Cut(lines.Text(), " ")
		parts := strings.Split(path, "/")
		if !ok || len(parts) != 3 || parts[2] != "access" {
			continue
		}
		minor, okMinor := suffixed(parts[0], "gpu")
		gi, okGI := suffixed(parts[1], "gi")
		if capability, err := strconv.Atoi(number); err == nil && okMinor && okGI {
			c.instance[capability] = GPUInstance{minor, gi}
		}
	}
}

func suffixed(s, prefix string) (int, bool) {
	number, ok := strings.CutPrefix(s, prefix)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0
}

// grants returns the instances to which capabilities give access, nil where the table could not be read.
func (c *capabilities) grants(caps []int) map[GPUInstance]bool {
	if c.tried && c.instance == nil {
		return nil
	}
	out := map[GPUInstance]bool{}
	for _, m := range caps {
		if in, ok := c.instance[m]; ok {
			out[in] = true
		}
	}
	return out
}

// sees reports whether a container shows a GPU. Under MIG the node of the GPU alone opens nothing: it takes
// access to one of its instances too.
func (s *sight) sees(c *gpu.InventoryGPU) bool {
	minor, ok := c.Minor.Get()
	if !ok || !slices.Contains(s.minors, minor) {
		return false
	}
	if !c.MIG || s.placed == nil {
		return true
	}
	for in := range s.placed {
		if in.minor == minor {
			return true
		}
	}
	return false
}

// Visible returns the GPUs that can be seen in containers, by container, then GPU of the inventory. It touches no
// file. The result is shared and not changed any more.
func (l *Looker) Visible(inv *gpu.Inventory) []gpu.VisibleGPU {
	l.mu.Lock()
	defer l.mu.Unlock()
	sights := l.sights
	if at, ok := l.success.Get(); ok && l.o.Finder.Clock().Sub(at) > keptWalks*l.o.Interval {
		sights = nil // who was seen then may be gone
	}
	if len(sights) == 0 {
		return nil
	}
	if l.fresh && l.shownOf == inv {
		return l.shown
	}
	var out []gpu.VisibleGPU
	for i := range sights {
		s := &sights[i]
		var told []gpu.UUID
		if !s.read && s.told != "" && l.o.Named != nil {
			told = l.o.Named(inv, s.told)
		}
		if inv == nil {
			continue
		}
		for j := range inv.GPUs {
			c := &inv.GPUs[j]
			if s.read && s.sees(c) || slices.Contains(told, c.UUID) {
				out = append(out, gpu.VisibleGPU{Container: s.container, GPU: c.UUID, Index: c.Index})
			}
		}
	}
	l.shown, l.shownOf, l.fresh = out, inv, true
	return out
}

// Source is the health of the walk.
func (l *Looker) Source() gpu.Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := gpu.Source{Name: SourceVisible, Up: l.problem == "" && l.success.Present(), LastSuccess: l.success, Errors: l.errors, Duration: l.duration, Message: l.problem}
	switch took := l.o.Finder.Clock().Sub(l.began); {
	case !l.began.IsZero() && took > l.o.Interval:
		s.Up, s.Message = false, fmt.Sprintf("a walk over the processes has not returned for %s: some container's /dev does not answer", took.Round(time.Second))
	case s.Message == "" && !s.Up:
		s.Message = "the processes have not been looked at yet"
	}
	return s
}
