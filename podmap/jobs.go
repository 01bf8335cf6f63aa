package podmap

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// SourceJobs is, as gpu.Holding.Source and as the name of a gpu.Source, the folder of Slurm's job mapping.
	SourceJobs = "slurm_job_mapping"
	// jobResource is by what name the holdings of jobs go: what Slurm itself calls its GPUs.
	jobResource = "gres/gpu"
	// jobPrefix begins the pod of a job, as where a process belongs to one.
	jobPrefix = "slurm/"
)

// The most that is read of the folder.
const (
	mostJobFiles = 4096
	mostJobBytes = 64 << 10
	mostJobs     = 1024 // of one file
)

var (
	jobFileName = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})(?:\.(0|[1-9][0-9]{0,2}))?$`)
	// jobID is a job as Slurm writes it: 42, 42_7 of an array, 42+1 of a heterogeneous job.
	jobID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.+-]{0,63}$`)
)

// JobsOptions say where a prolog of Slurm writes which job has which GPU.
type JobsOptions struct {
	// Folder has a file for each GPU, named by its NVML index ("0"), or by index and GPU instance id ("0.3"). Its
	// lines are the ids of the jobs that have it.
	Dir    string
	MaxAge time.Duration    // how long the last good reading is used; 5 min where 0
	Logger *slog.Logger     // nil: discarded
	Clock  func() time.Time // nil: time.Now
}

// Jobs knows which Slurm job holds which GPU, without Kubernetes or beside it. All methods are safe for
// concurrent use; Poll reads files, the others touch nothing.
type Jobs struct {
	o   JobsOptions
	log *slog.Logger

	polling sync.Mutex // held through a Poll

	mu     sync.Mutex // guards what follows
	health health
	last   *mapping // nil before; replaced, never changed
}

// mapping is one reading of the folder. It is immutable.
type mapping struct {
	files []jobFile
	// loose tells that some GPU may be held by a job that could not be read.
	loose bool
}

// jobFile is the jobs of one GPU or GPU instance.
type jobFile struct {
	dev, gi int // gi is -1 for the GPU itself
	jobs    []string
	since   map[string]gpu.Opt[time.Time]
}

// NewJobs returns a Jobs; it reads nothing yet.
func NewJobs(o JobsOptions) *Jobs {
	o.MaxAge = positive(o.MaxAge, DefaultMaxAge)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Jobs{o: o, log: o.Logger}
}

// Poll reads the folder once. What goes wrong stands in the health of the source. A network file system may keep it
// from returning.
func (j *Jobs) Poll() {
	j.polling.Lock()
	defer j.polling.Unlock()
	began := j.o.Clock()
	next, problems, err := readJobs(j.o.Dir)
	j.mu.Lock()
	defer j.mu.Unlock()
	ended := j.o.Clock()
	h := &j.health
	h.duration = gpu.Some(ended.Sub(began))
	problem := ""
	switch {
	case err != nil:
		h.errors++
		problem = explainFile(err, j.o.Dir)
	case len(problems) > 0:
		h.errors += uint64(len(problems))
		problem = problems[0]
		if len(problems) > 1 {
			problem = fmt.Sprintf("%s; and %d more of that kind", problem, len(problems)-1)
		}
	}
	if problem != "" && problem != h.problem {
		j.log.Warn("cannot read the job mapping of Slurm", "problem", problem)
	}
	h.failing, h.problem = problem != "", problem
	if err != nil {
		return
	}
	next.date(j.last, ended)
	j.last, h.success = next, gpu.Some(ended)
}

// date gives every job its beginning: that of the reading before, else now. What the first reading has began at
// some time before.
func (m *mapping) date(before *mapping, now time.Time) {
	for i := range m.files {
		f := &m.files[i]
		f.since = map[string]gpu.Opt[time.Time]{}
		if before == nil {
			continue
		}
		at := slices.IndexFunc(before.files, func(g jobFile) bool { return g.dev == f.dev && g.gi == f.gi })
		for _, job := range f.jobs {
			f.since[job] = gpu.Some(now)
			if at >= 0 && slices.Contains(before.files[at].jobs, job) {
				f.since[job] = before.files[at].since[job]
			}
		}
	}
}

// readJobs reads all files of the folder. Problems cost no more than their file or line.
func readJobs(dir string) (*mapping, []string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(mostJobFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	slices.Sort(names)
	m := &mapping{}
	var problems []string
	for _, name := range names {
		parts := jobFileName.FindStringSubmatch(name)
		if parts == nil {
			continue // another's
		}
		f := jobFile{gi: -1}
		f.dev, _ = strconv.Atoi(parts[1])
		if parts[2] != "" {
			f.gi, _ = strconv.Atoi(parts[2])
		}
		jobs, refused, err := readJobFile(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the job ended just now
		case err != nil:
			problems = append(problems, "cannot read "+dir+"/"+name+": "+oneLine(err.Error()))
			m.loose = true
			continue
		case refused > 0:
			problems = append(problems, fmt.Sprintf("%s/%s has %d lines that are no job ids", dir, name, refused))
			m.loose = true
		}
		f.jobs = jobs
		m.files = append(m.files, f)
	}
	return m, problems, nil
}

// readJobFile reads the job ids of one file, each once, and counts the lines that are none.
func readJobFile(root *os.Root, name string) (jobs []string, refused int, err error) {
	// A named pipe would wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("it is not a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, mostJobBytes+1))
	if err != nil {
		return nil, 0, err
	}
	if len(text) > mostJobBytes {
		return nil, 0, fmt.Errorf("it is larger than %d KiB", mostJobBytes>>10)
	}
	jobs, refused = parseJobs(string(text))
	return jobs, refused, nil
}

func parseJobs(text string) (jobs []string, refused int) {
	there := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || there[line]:
		case !jobID.MatchString(line) || len(jobs) >= mostJobs:
			refused++
		default:
			there[line] = true
			jobs = append(jobs, line)
		}
	}
	slices.Sort(jobs)
	return jobs, refused
}

// Holdings resolves the last reading against the GPUs of inv; nil is a node without GPUs. Jobs on the same GPU
// have equal parts of it: the folder does not tell theirs.
func (j *Jobs) Allocations(inv *gpu.Inventory) gpu.Allocations {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := gpu.Allocations{Configured: true}
	now := j.o.Clock()
	at, ok := j.health.success.Get()
	h.Known = ok && j.last != nil && now.Sub(at) <= j.o.MaxAge
	h.Sources = []gpu.Source{j.health.source(SourceJobs, "the job mapping of Slurm has not been read yet", now, h.Known)}
	if h.Known {
		j.last.resolve(inv, &h)
	}
	return h
}

func (m *mapping) resolve(inv *gpu.Inventory, h *gpu.Allocations) {
	h.Uncertain = m.loose
	owners := map[gpu.PodRef]bool{}
	devices := 0
	held := map[place]bool{}
	lost := map[gpu.Container]int{}
	for i := range m.files {
		f := &m.files[i]
		if len(f.jobs) == 0 {
			continue
		}
		devices++
		targets, elsewhere := f.locate(inv)
		h.Uncertain = h.Uncertain || len(targets) == 0 && !elsewhere
		for _, job := range f.jobs {
			c := gpu.Container{Pod: jobPrefix + job}
			owners[gpu.PodRef{Pod: c.Pod}] = true
			if len(targets) == 0 {
				lost[c]++
			}
			for _, t := range targets {
				key := place{c, jobResource, t.dev, t.instance}
				part := gpu.Some(gpu.Ratio(t.part / float64(len(f.jobs))))
				if held[key] {
					continue // two GPUs of one number are nobody's, and two files of one GPU cannot be
				}
				held[key] = true
				h.List = append(h.List, gpu.Allocation{Container: c, Resource: jobResource, GPU: t.dev, Instance: t.instance, Share: part,
					Shared: len(f.jobs) > 1, Source: SourceJobs, Since: f.since[job]})
			}
		}
	}
	for c, n := range lost {
		h.Unresolved = append(h.Unresolved, gpu.Unresolved{Container: c, Resource: jobResource, Devices: n})
	}
	h.Pods = slices.Collect(maps.Keys(owners))
	if devices > 0 {
		h.Resources = []gpu.ResourceCount{{Resource: jobResource, Allocated: devices}}
	}
	order(h)
}

// locate finds the GPU or the instance of a file.
func (f *jobFile) locate(inv *gpu.Inventory) ([]target, bool) {
	if f.gi < 0 {
		return locate(inv, ref{by: byIndex, minor: f.dev, gi: -1, ci: -1})
	}
	if inv == nil {
		return nil, false
	}
	dev, ok := byNVMLIndex(inv, f.dev)
	if !ok {
		return nil, false
	}
	return instance(dev, func(in *gpu.Instance) bool { return in.GI == f.gi }, nil), false
}

// order sorts what a Map sorts.
func order(h *gpu.Allocations) {
	slices.SortFunc(h.List, func(a, b gpu.Allocation) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(h.Unresolved, func(a, b gpu.Unresolved) int {
		return cmp.Or(a.Container.Compare(b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	slices.SortFunc(h.Pods, func(a, b gpu.PodRef) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	slices.SortFunc(h.Resources, func(a, b gpu.ResourceCount) int { return cmp.Compare(a.Resource, b.Resource) })
}

// Beside returns what pods and jobs hold together, given the kubelet's holdings. A GPU that a pod holds is the
// pod's, whatever the folder says: jobs that run inside a pod share what it was given, and a file that nobody
// removed tells of nobody. While the kubelet's are not known, nothing is; while the jobs are not, no GPU is free.
func (j *Jobs) Beside(pods gpu.Allocations, inv *gpu.Inventory) gpu.Allocations {
	jobs := j.Allocations(inv)
	out := pods
	out.Sources = slices.Concat(pods.Sources, jobs.Sources)
	if !pods.Known {
		return out
	}
	out.Uncertain = pods.Uncertain || !jobs.Known || jobs.Uncertain
	if !jobs.Known {
		return out
	}
	taken := map[gpu.UUID]map[gpu.UUID]bool{} // instances by GPU; the GPU itself is ""
	for _, h := range pods.List {
		if taken[h.GPU] == nil {
			taken[h.GPU] = map[gpu.UUID]bool{}
		}
		taken[h.GPU][h.Instance] = true
	}
	out.List = slices.Clone(pods.List)
	for _, h := range jobs.List {
		by := taken[h.GPU]
		if len(by) > 0 && (h.Instance == "" || by[""] || by[h.Instance]) {
			continue
		}
		out.List = append(out.List, h)
	}
	out.Unresolved = slices.Concat(pods.Unresolved, jobs.Unresolved)
	out.Resources = slices.Concat(pods.Resources, jobs.Resources)
	out.Pods = slices.Concat(pods.Pods, jobs.Pods)
	order(&out)
	return out
}
