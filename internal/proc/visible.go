package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// visibleDevices is the one variable of a container's environment that is read here.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// ScannerOptions configure a VisibleScanner.
type ScannerOptions struct {
	// Finder resolves the containers of processes. The scanner has a Finder of its own.
	Finder Options
	// Interval is the time from one scan to the next, by which their age is judged; a minute where 0.
	Interval time.Duration
	// Named returns the GPUs that a value of NVIDIA_VISIBLE_DEVICES names; nil: none.
	Named  func(inv *gpu.Inventory, list string) []gpu.UUID
	Logger *slog.Logger // nil: discarded
}

// VisibleScanner finds the GPUs that are visible in each container: those whose device nodes are below the root of the
// container's first process, or, where that root is not accessible, those of the process's NVIDIA_VISIBLE_DEVICES. It
// needs the host's PID namespace and CAP_SYS_PTRACE.
//
// The result is an upper bound. A privileged container has every node of the host, regardless of its allocation, and a
// node may exist that the device cgroup refuses to open. Processes outside containers are left out: the host's whole
// /dev is visible to them.
//
// Scan reads; Visible and Source are quick. All methods are safe for concurrent use.
type VisibleScanner struct {
	o ScannerOptions

	scanning sync.Mutex // locked during a scan; guards finder and environ
	finder   *Finder
	environ  map[process]string // values of visibleDevices

	found host.Record[*scan]
}

// scan is what one scan found, and its last resolution.
type scan struct {
	containers []visible // never changed

	mu      sync.Mutex // guards what follows
	cache   []gpu.VisibleGPU
	cacheOf *gpu.Inventory
}

// process is one process of all that ever had its PID.
type process struct {
	pid   int
	start string
}

// visible is what is visible in one container of the node's GPUs.
type visible struct {
	container gpu.Container
	// read is true where the device nodes could be read: minors are those of GPUs, instances the MIG instances that
	// access is granted to.
	read   bool
	minors []int
	// instances is nil where the driver's table of capabilities could not be read.
	instances map[gpuInstance]bool
	// list is NVIDIA_VISIBLE_DEVICES, where the nodes could not be read.
	list string
}

const (
	// maxContainers bounds the containers that are scanned.
	maxContainers = 4096
	// keptScans is for how many intervals the result of a scan is used when later ones fail.
	keptScans = 5
)

// NewVisibleScanner returns a VisibleScanner; it reads nothing yet.
func NewVisibleScanner(o ScannerOptions) *VisibleScanner {
	o.Interval = cmp.Or(o.Interval, time.Minute)
	finder := New(o.Finder)
	o.Finder = finder.o // with its defaults
	return &VisibleScanner{o: o, finder: finder, environ: map[process]string{}, found: host.Record[*scan]{
		Name: gpu.SourceVisible, Pending: "no scan has finished yet", Failing: "cannot determine all GPUs visible in containers",
		MaxAge: keptScans * o.Interval, Clock: o.Finder.Clock, Logger: o.Logger}}
}

// Scan scans once. A container whose /dev does not respond is left out.
func (s *VisibleScanner) Scan(ctx context.Context) {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	start := s.o.Finder.Clock()
	containers, denied, hung, err := s.scan(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("cannot list processes: %w", err)
	case hung != nil:
		err = &host.Partial{Errors: 1, Message: hung.Error()}
	case denied > 0:
		err = &host.Partial{Errors: denied, Message: fmt.Sprintf("%d containers are not accessible: permission denied; "+
			"add the capability SYS_PTRACE, and with AppArmor the profile unconfined", denied)}
	}
	_ = s.found.Set(ctx, start, &scan{containers: containers}, err)
}

// scan finds the first process of each container and reads what is visible to it.
func (s *VisibleScanner) scan(ctx context.Context) (out []visible, denied int, hung, err error) {
	procfs := s.o.Finder.Procfs
	pids, err := host.Read(ctx, s.finder.reader, procfs, func() ([]int, error) { return processes(procfs) })
	if err != nil {
		return nil, 0, nil, err
	}
	starts := map[gpu.Container]map[string]process{} // the first process, by container ID
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, 0, nil, ctx.Err()
		}
		container, owner := s.finder.Find(pid)
		e := s.finder.entries[pid]
		if owner != Owned || e.place.ContainerID == "" && e.place.PodUID == "" {
			continue
		}
		p, ids := process{pid, e.start}, starts[container]
		if ids == nil && len(starts) < maxContainers {
			ids = map[string]process{}
			starts[container] = ids
		}
		if other, ok := ids[e.place.ContainerID]; ids != nil && (!ok || p.compare(other) < 0) {
			ids[e.place.ContainerID] = p
		}
	}
	first := map[gpu.Container]process{}
	for container, ids := range starts {
		list := slices.Collect(maps.Values(ids))
		gpu.Sort(list, process.compare)
		if len(list) > 1 && len(s.finder.names.linked(s.finder.entries[list[0].pid].place)) == 0 {
			list = list[1:] // the sandbox of a pod without links: it starts before its container
		}
		first[container] = list[0]
	}
	maps.DeleteFunc(s.finder.entries, func(pid int, _ entry) bool {
		_, found := slices.BinarySearch(pids, pid)
		return !found
	})
	current := map[process]bool{}
	for _, p := range first {
		current[p] = true
	}
	maps.DeleteFunc(s.environ, func(p process, _ string) bool { return !current[p] })

	type readable struct {
		table  capabilities
		kernel bool
	}
	look, _ := host.Read(ctx, s.finder.reader, procfs+"/driver", func() (readable, error) {
		return readable{readCapabilities(procfs), isProcfs(procfs)}, nil
	})
	for container, p := range first {
		if ctx.Err() != nil {
			return nil, 0, nil, ctx.Err()
		}
		dir := filepath.Join(procfs, strconv.Itoa(p.pid))
		// The environment is read once: later changes by the process do not concern the container.
		list, known := s.environ[p]
		v, err := host.Read(ctx, s.finder.reader, dir+"/root", func() (visible, error) {
			v, err := readVisible(dir, list, known, look.table, look.kernel)
			if start, _, err := readStat(dir); err != nil || start != p.start {
				return v, errEnded // the PID has been reused
			}
			return v, err
		})
		if v.container = container; errors.Is(err, fs.ErrPermission) {
			denied++
		} else if err == nil {
			if !v.read {
				s.environ[p] = v.list
			}
			out = append(out, v)
		}
	}
	gpu.Sort(out, func(a, b visible) int { return a.container.Compare(b.container) })
	return out, denied, s.finder.reader.Hung(), nil
}

// readVisible returns what is visible to a process: device nodes, or else the value of its environment, if that is not
// known yet.
func readVisible(dir, list string, known bool, table capabilities, kernel bool) (v visible, err error) {
	minors, caps, err := deviceNodes(dir, kernel)
	if err == nil {
		return visible{read: true, minors: minors, instances: table.instances(caps)}, nil
	}
	if !known {
		var errEnviron error
		if list, _, errEnviron = variable(filepath.Join(dir, "environ"), visibleDevices); errEnviron != nil {
			return v, errors.Join(err, errEnviron)
		}
	}
	return visible{list: list}, nil
}

// compare orders processes by their start.
func (p process) compare(q process) int {
	return cmp.Or(cmp.Compare(len(p.start), len(q.start)), cmp.Compare(p.start, q.start), cmp.Compare(p.pid, q.pid))
}

// has reports whether a GPU is visible by its nodes. Under MIG the node of the GPU is not enough: it takes access to
// one of its instances too.
func (v *visible) has(c *gpu.InventoryGPU) bool {
	minor, ok := c.Minor.Get()
	if !ok || !slices.Contains(v.minors, minor) {
		return false
	}
	if !c.MIG || v.instances == nil {
		return true
	}
	for in := range v.instances {
		if in.minor == minor {
			return true
		}
	}
	return false
}

// Visible returns the GPUs that are visible in containers, by container, then GPU of the inventory. It reads no file.
// The result is shared and immutable.
func (s *VisibleScanner) Visible(inv *gpu.Inventory) []gpu.VisibleGPU {
	last, ok := s.found.Value()
	if inv == nil || !ok || len(last.containers) == 0 {
		return nil
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	if last.cacheOf == inv {
		return last.cache
	}
	var out []gpu.VisibleGPU
	for i := range last.containers {
		v := &last.containers[i]
		var named []gpu.UUID
		if v.list != "" && s.o.Named != nil {
			named = s.o.Named(inv, v.list)
		}
		for j := range inv.GPUs {
			c := &inv.GPUs[j]
			if v.read && v.has(c) || slices.Contains(named, c.UUID) {
				out = append(out, gpu.VisibleGPU{Container: v.container, GPU: c.UUID, Index: c.Index})
			}
		}
	}
	last.cache, last.cacheOf = out, inv
	return out
}

// Source returns the health of the scan.
func (s *VisibleScanner) Source() gpu.Source { return s.found.Source() }
