// Package slurm reads Slurm's job mapping: a directory in which a prolog writes which job has which GPU, with or
// without Kubernetes.
package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

const (
	// jobResource is the resource name of the allocations: Slurm's own name for GPUs.
	jobResource = "gres/gpu"
	// jobPrefix begins the name of a job, as for the processes of a job.
	jobPrefix = "slurm/"
)

// Options configure Jobs.
type Options struct {
	// Dir has a file for each GPU, named by its NVML index ("0"), or by index and GPU instance ID ("0.3"). Its lines
	// are the IDs of the jobs that the GPU is allocated to.
	Dir string
	// Timeout is that of one read of the whole directory, which may be on a network file system; 5 s where 0.
	Timeout time.Duration
	MaxAge  time.Duration    // how long the last mapping is used; 5 min where 0
	Logger  *slog.Logger     // nil: discarded
	Clock   func() time.Time // nil: time.Now
}

// Jobs has the GPU allocations of Slurm's jobs. All methods are safe for concurrent use; only Poll reads files.
type Jobs struct {
	dir     string
	reader  *host.Reader
	polling sync.Mutex // locked during a Poll
	last    host.Record[*mapping]
}

// Open returns a Jobs; it reads nothing yet.
func Open(o Options) *Jobs {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Jobs{dir: o.Dir, reader: host.NewReader(cmp.Or(o.Timeout, 5*time.Second)), last: host.Record[*mapping]{Name: gpu.SourceJobs,
		Pending: "Slurm job mapping not read yet", Failing: "cannot read the Slurm job mapping",
		MaxAge: cmp.Or(o.MaxAge, 5*time.Minute), Clock: o.Clock, Logger: o.Logger}}
}

// Poll reads the directory once. Errors are in the health of the source.
func (j *Jobs) Poll(ctx context.Context) {
	j.polling.Lock()
	defer j.polling.Unlock()
	start := j.last.Clock()
	type read struct {
		mapping  *mapping
		problems []string
	}
	next, err := host.Read(ctx, j.reader, j.dir, func() (r read, err error) {
		r.mapping, r.problems, err = readMapping(j.dir)
		return r, err
	})
	if err != nil {
		err = j.explain(err)
	} else {
		next.mapping.setSince(j.last.Last(), j.last.Clock())
		if n := len(next.problems); n == 1 {
			err = &host.Partial{Errors: n, Message: next.problems[0]}
		} else if n > 1 {
			err = &host.Partial{Errors: n, Message: fmt.Sprintf("%s; and %d more errors", next.problems[0], n-1)}
		}
	}
	_ = j.last.Set(ctx, start, next.mapping, err)
}

func (j *Jobs) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New(j.dir + " does not exist: mount it read-only, or set its path")
	case errors.Is(err, fs.ErrPermission):
		return errors.New(j.dir + ": permission denied: run as user 0")
	}
	return err
}

// Allocations resolves the last mapping against the GPUs of inv; nil is a node without GPUs. Jobs on the same GPU have
// equal shares of it: the mapping does not have theirs.
func (j *Jobs) Allocations(inv *gpu.Inventory) gpu.Allocations {
	last, known := j.last.Value()
	a := gpu.Allocations{Configured: true, Known: known, Sources: []gpu.Source{j.last.Source()}}
	if known {
		last.resolve(inv, &a)
	}
	return a
}

func (m *mapping) resolve(inv *gpu.Inventory, a *gpu.Allocations) {
	a.Uncertain = m.incomplete
	devices := 0
	pods, lost := map[gpu.PodRef]bool{}, map[gpu.Container]int{}
	for i := range m.files {
		f := &m.files[i]
		if len(f.jobs) == 0 {
			continue
		}
		devices++
		dev, instance, ok := f.locate(inv)
		a.Uncertain = a.Uncertain || !ok
		for _, job := range f.jobs {
			c := gpu.Container{Pod: jobPrefix + job}
			pods[gpu.PodRef{Pod: c.Pod}] = true
			if !ok {
				lost[c]++
				continue
			}
			a.List = append(a.List, gpu.Allocation{Container: c, Resource: jobResource, GPU: dev, Instance: instance,
				Share: gpu.Some(gpu.Ratio(1 / float64(len(f.jobs)))), Shared: len(f.jobs) > 1,
				Source: gpu.SourceJobs, Since: f.since[job]})
		}
	}
	for c, n := range lost {
		a.Unresolved = append(a.Unresolved, gpu.Unresolved{Container: c, Resource: jobResource, Devices: n})
	}
	a.Pods = slices.Collect(maps.Keys(pods))
	if devices > 0 {
		a.Resources = []gpu.ResourceCount{{Resource: jobResource, Allocated: devices}}
	}
	a.Sort()
}

// locate finds the GPU or the instance of a file.
func (f *jobFile) locate(inv *gpu.Inventory) (dev, instance gpu.UUID, ok bool) {
	found, ok := inv.ByIndex(f.index)
	switch {
	case !ok:
		return "", "", false
	case f.gi < 0:
		return found.UUID, "", true
	}
	for _, in := range found.Instances {
		if in.GI == f.gi && in.UUID != "" {
			return found.UUID, in.UUID, true
		}
	}
	return "", "", false
}

// Merge returns the allocations of pods and jobs together, given those of pods. A GPU that is allocated to a pod is not
// allocated to jobs as well: jobs that run inside a pod share what it got, and a stale file has no job. Where a job is
// mapped to a GPU of which a pod has an instance, the other instances may be the job's. Without the pods' allocations
// nothing is known; without those of jobs, no GPU is known to be unallocated.
func (j *Jobs) Merge(pods gpu.Allocations, inv *gpu.Inventory) gpu.Allocations {
	jobs := j.Allocations(inv)
	out := pods
	out.Sources = slices.Concat(pods.Sources, jobs.Sources)
	if !pods.Known {
		return out
	}
	out.Uncertain = pods.Uncertain || !jobs.Known || jobs.Uncertain
	type place struct{ dev, instance gpu.UUID }
	taken := map[place]bool{}
	for _, a := range pods.List {
		taken[place{a.GPU, a.Instance}], taken[place{a.GPU, "any"}] = true, true
	}
	out.List = slices.Clone(pods.List)
	for _, a := range jobs.List {
		whole := a.Instance == "" && taken[place{a.GPU, "any"}]
		out.Uncertain = out.Uncertain || whole && !taken[place{a.GPU, ""}]
		if !whole && !taken[place{a.GPU, ""}] && !taken[place{a.GPU, a.Instance}] {
			out.List = append(out.List, a)
		}
	}
	out.Unresolved = slices.Concat(pods.Unresolved, jobs.Unresolved)
	out.Resources = slices.Concat(pods.Resources, jobs.Resources)
	out.Pods = slices.Concat(pods.Pods, jobs.Pods)
	out.Sort()
	return out
}
