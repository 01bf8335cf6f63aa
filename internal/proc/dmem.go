package proc

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// CgroupOptions configure a CgroupScanner.
type CgroupOptions struct {
	// Root is where the host's cgroup v2 hierarchy is mounted.
	Root string
	// Finder names containers. The scanner has a Finder of its own; it reads no processes.
	Finder Options
	// Interval is the time from one scan to the next, by which their age is judged; 10 s where 0.
	Interval time.Duration
}

// CgroupScanner reads the GPU memory that the kernel's dmem controller charges to each cgroup. It needs no process list,
// no PID namespace and no capability, only the hierarchy. The format is that of Documentation/admin-guide/cgroup-v2.rst
// and kernel/cgroup/dmem.c of Linux 6.14; the regions nvidia/ADDRESS/vidmem are those of NVIDIA's driver R615 and newer
// (docs.nvidia.com: MPS v3 Memory Partitioning, release 615).
//
// Where the kernel charges for no NVIDIA GPU, the driver may (R615 and newer): then the scanner lists the cgroups for
// which the driver is queried, once Paths was called, and names them.
//
// Scan reads; the other methods are quick. All methods are safe for concurrent use.
type CgroupScanner struct {
	o       CgroupOptions
	scan    sync.Mutex // locked during a scan; guards finder
	finder  *Finder
	reader  *host.Reader
	queried atomic.Bool // Paths was called
	last    host.Record[cgroups]
}

// cgroups is what one scan found. It is immutable.
type cgroups struct {
	memory map[gpu.PCIAddress][]gpu.CgroupMemory // where the kernel has regions of NVIDIA GPUs
	paths  []string                              // else
	owners map[string]gpu.CgroupMemory           // of paths: container and reason
}

const (
	// maxCgroups and maxCgroupDepth bound a walk.
	maxCgroups, maxCgroupDepth = 20_000, 16
	// cgroupDeadline is that of a walk, far above the milliseconds that a full node takes.
	cgroupDeadline = 3 * time.Second
	// keptWalks is for how many intervals the result of a walk is used when later ones fail.
	keptWalks = 3
)

// NewCgroupScanner returns a CgroupScanner; it reads nothing yet.
func NewCgroupScanner(o CgroupOptions) *CgroupScanner {
	o.Interval = cmp.Or(o.Interval, 10*time.Second)
	finder := New(o.Finder)
	o.Finder = finder.o // with its defaults
	return &CgroupScanner{o: o, finder: finder, reader: host.NewReader(cmp.Or(o.Finder.Deadline, cgroupDeadline)),
		last: host.Record[cgroups]{
			Name: gpu.SourceCgroups, Pending: "not read yet", Failing: "cannot read GPU memory by cgroup",
			MaxAge: keptWalks * o.Interval, Clock: o.Finder.Clock, Logger: o.Finder.Logger}}
}

// Scan reads the hierarchy once.
func (s *CgroupScanner) Scan(ctx context.Context) {
	s.scan.Lock()
	defer s.scan.Unlock()
	start := s.o.Finder.Clock()
	type result struct {
		used  []cgroupUse
		paths []string
	}
	queried := s.queried.Load()
	found, err := host.Read(ctx, s.reader, s.o.Root, func() (found result, err error) {
		found.used, err = walkCgroups(s.o.Root)
		if queried && len(found.used) == 0 && gone(err) == nil {
			found.paths, err = listCgroups(s.o.Root)
		}
		return found, err
	})
	next := cgroups{memory: map[gpu.PCIAddress][]gpu.CgroupMemory{}, owners: map[string]gpu.CgroupMemory{}}
	for _, u := range found.used {
		m := gpu.CgroupMemory{Used: u.used, Limit: u.limit, Guaranteed: u.guaranteed}
		if u.path != "" {
			s.name(start, u.path, &m)
		}
		next.memory[u.gpu] = append(next.memory[u.gpu], m)
	}
	for _, path := range found.paths {
		var m gpu.CgroupMemory
		s.name(start, path, &m)
		next.paths = append(next.paths, filepath.Join(s.o.Root, path))
		next.owners[filepath.Join(s.o.Root, path)] = m
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no dmem controller, or cgroup v1: nothing is offered
	}
	_ = s.last.Set(ctx, start, next, err)
}

// name sets the container of a path, or the reason why it has none.
func (s *CgroupScanner) name(now time.Time, path string, m *gpu.CgroupMemory) {
	container, owner := s.finder.name(now, now, parsePath(path))
	switch owner {
	case Owned:
		m.Container = container
	case Host:
		m.Reason = gpu.UnattributedHost
	default:
		m.Reason = gpu.UnattributedUnresolved
	}
}

// Paths returns the cgroups for which the driver is to be queried, none where the kernel charges for NVIDIA GPUs or the
// last scan is too old. None of them is below another. The first scan after the first call lists them.
func (s *CgroupScanner) Paths() []string {
	s.queried.Store(true)
	last, _ := s.last.Value()
	return last.paths
}

// Owner returns the container of one of Paths, or the reason why it has none.
func (s *CgroupScanner) Owner(path string) (gpu.Container, gpu.UnattributedReason) {
	if m, ok := s.last.Last().owners[path]; ok {
		return m.Container, m.Reason
	}
	return gpu.Container{}, gpu.UnattributedUnresolved
}

// Memory returns what each GPU's memory is charged to, for the GPUs that the kernel charges for. It is nil if the last
// scan is too old.
func (s *CgroupScanner) Memory() map[gpu.PCIAddress][]gpu.CgroupMemory {
	last, _ := s.last.Value()
	return last.memory
}

// Source returns the health of the hierarchy, if the kernel charges for NVIDIA GPUs.
func (s *CgroupScanner) Source() (gpu.Source, bool) {
	last := s.last.Last()
	return s.last.Source(), len(last.memory) > 0 || len(last.paths) > 0
}

// cgroupUse is memory of one GPU that is charged to one cgroup and not to those below it. The one with an empty path
// stands for a GPU that is charged for, and has no memory.
type cgroupUse struct {
	path              string
	gpu               gpu.PCIAddress
	used              gpu.Bytes
	limit, guaranteed gpu.Opt[gpu.Bytes]
}

// cgroupWalk is one walk through the hierarchy.
type cgroupWalk struct {
	root  string
	read  int
	found []cgroupUse
}

// walkCgroups reads the hierarchy at a root. Only the root of all has dmem.capacity: at a private one, as a container has,
// other containers are not visible and their memory would be missing.
func walkCgroups(root string) ([]cgroupUse, error) {
	w := &cgroupWalk{root: root}
	capacity, err := w.values("", "dmem.capacity")
	if err != nil {
		return nil, err
	}
	for pci := range capacity {
		w.found = append(w.found, cgroupUse{gpu: pci})
	}
	if len(capacity) == 0 {
		return nil, nil
	}
	_, err = w.children("", nil, 0)
	return w.found, err
}

// children visits the cgroups below a path, and returns the sum of what is charged to them.
func (w *cgroupWalk) children(path string, limits map[gpu.PCIAddress]uint64, depth int) (map[gpu.PCIAddress]uint64, error) {
	list, err := os.ReadDir(filepath.Join(w.root, path))
	sum := map[gpu.PCIAddress]uint64{}
	if err != nil || depth >= maxCgroupDepth {
		return sum, gone(err)
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		charged, err := w.visit(path+"/"+e.Name(), limits, depth+1)
		if err != nil {
			return nil, err
		}
		for pci, used := range charged {
			sum[pci] += used
		}
	}
	return sum, nil
}

// visit reads a cgroup and those below it, and returns what is charged to it, which includes those below. Limits are
// those of the cgroups above.
func (w *cgroupWalk) visit(path string, limits map[gpu.PCIAddress]uint64, depth int) (map[gpu.PCIAddress]uint64, error) {
	if w.read++; w.read > maxCgroups {
		return nil, errors.New("more than " + strconv.Itoa(maxCgroups) + " cgroups")
	}
	charged, err := w.values(path, "dmem.current")
	if err != nil {
		return nil, gone(err) // the controller is not enabled here
	}
	any := false
	for _, used := range charged {
		any = any || used > 0
	}
	if !any {
		return charged, nil
	}
	own, err := w.values(path, "dmem.max")
	if gone(err) != nil {
		return nil, err
	}
	guaranteed, err := w.values(path, "dmem.min")
	if gone(err) != nil {
		return nil, err
	}
	limits = maps.Clone(limits)
	for pci, limit := range own {
		if limits == nil {
			limits = map[gpu.PCIAddress]uint64{}
		}
		if above, ok := limits[pci]; !ok || limit < above {
			limits[pci] = limit
		}
	}
	below := map[gpu.PCIAddress]uint64{}
	isContainer := parsePath(path).ContainerID != ""
	if !isContainer { // what a container creates below its cgroup is its own
		if below, err = w.children(path, limits, depth); err != nil {
			return nil, err
		}
	}
	for pci, used := range charged {
		if used <= below[pci] {
			continue
		}
		u := cgroupUse{path: path, gpu: pci, used: gpu.Bytes(used - below[pci])}
		if limit, ok := limits[pci]; ok && isContainer && limit != math.MaxUint64 {
			u.limit = gpu.Some(gpu.Bytes(limit))
		}
		if least := guaranteed[pci]; isContainer && least > 0 {
			u.guaranteed = gpu.Some(gpu.Bytes(least))
		}
		w.found = append(w.found, u)
	}
	return charged, nil
}

// listCgroups lists the cgroups of containers and Slurm jobs of a hierarchy, and of the others those that have none below
// them, the topmost. A private hierarchy has none: its root is not that of all, which has no cgroup.type.
func listCgroups(root string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		return nil, err // cgroup v1
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.type")); err == nil {
		return nil, nil
	}
	w := &cgroupWalk{root: root}
	containers, others, err := w.list("", 0)
	return append(containers, others...), err
}

// list returns the cgroups of containers below a path, and the topmost of those without any.
func (w *cgroupWalk) list(path string, depth int) (containers, others []string, err error) {
	entries, err := os.ReadDir(filepath.Join(w.root, path))
	if err != nil || depth >= maxCgroupDepth {
		return nil, nil, gone(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if w.read++; w.read > maxCgroups {
			return nil, nil, errors.New("more than " + strconv.Itoa(maxCgroups) + " cgroups")
		}
		at := path + "/" + e.Name()
		if place := parsePath(at); place.ContainerID != "" || place.SlurmJob != "" {
			containers = append(containers, at)
			continue
		}
		below, beside, err := w.list(at, depth+1)
		if err != nil {
			return nil, nil, err
		}
		if len(below) == 0 {
			beside = []string{at}
		}
		containers, others = append(containers, below...), append(others, beside...)
	}
	return containers, others, nil
}

// gone hides the error of a cgroup that was removed meanwhile, or has no such file.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// values reads a file of lines "REGION BYTES", where bytes may be the word max, and returns those of NVIDIA GPUs.
func (w *cgroupWalk) values(path, name string) (map[gpu.PCIAddress]uint64, error) {
	text, err := os.ReadFile(filepath.Join(w.root, path, name))
	if err != nil {
		return nil, err
	}
	out := map[gpu.PCIAddress]uint64{}
	for line := range strings.Lines(string(text)) {
		region, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		address, isNVIDIA := strings.CutPrefix(region, "nvidia/")
		address, isMemory := strings.CutSuffix(address, "/vidmem")
		pci, err := gpu.ParsePCIAddress(strings.ToLower(address))
		if !isNVIDIA || !isMemory || err != nil {
			continue
		}
		n := uint64(math.MaxUint64)
		if value != "max" {
			if n, err = strconv.ParseUint(value, 10, 64); err != nil {
				continue
			}
		}
		out[pci] = n
	}
	return out, nil
}
