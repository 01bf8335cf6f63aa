package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// exporter is the assembled program; nothing runs until its loops do.
type exporter struct {
	sampler        *sampler.Sampler
	rooms          []*rooms.Room
	pods           *podmap.Map // nil without a kubelet
	metrics        *collector.Collector
	page           *rooms.Page
	compat         replaced     // of page
	finder         *proc.Finder // nil without the host's PID namespace
	processMetrics *processMetrics
	// maxAge is the age of the last view from which the process counts as broken.
	maxAge time.Duration
}

// hooks modify the options of packages before they are constructed: the tests insert faults and clocks there. The zero
// hooks change nothing.
type hooks struct {
	sampler func(*sampler.Options)
	// driver makes the calls to the driver; nil: the library.
	driver func(gpu int, call string, args []int, value any, run func() int32) int32
	// deadline replaces those of all reads of the node's files and sockets, which are in real time: it does not pass
	// between the steps of a test's clock, but on a busy machine within one.
	deadline time.Duration
}

// newExporter assembles the program. clock is the exporter's time; restart is called, with the reason, when only a new
// process can load the driver's library. This is the only place that imports both the driver and the kubelet packages.
func newExporter(c *config, clock func() time.Time, restart func(error), change hooks) (*exporter, error) {
	e := &exporter{maxAge: max(time.Minute, 10*c.Fast)}
	p := &plan{c: c, processMetrics: newProcessMetrics(), Plan: rooms.Plan{Common: &c.Common, Clock: clock, Deadline: change.deadline,
		Driver: nvml.Options{Path: c.library, Logger: c.Logger, Clock: clock, SysfsRoot: c.sysfs, FastInterval: c.Fast,
			Intercept: change.driver},
		Sampler: sampler.Options{Node: c.node, Build: gpu.Build{Version: cmp.Or(version.Version, "unknown"),
			Revision: version.GetRevision(), GoVersion: version.GoVersion}, Restart: restart, Accounts: c.accounts,
			Fast: c.Fast, Medium: c.Medium, Slow: c.Slow, Deadline: c.deadline, Clock: clock,
			Logger: c.Logger},
		Finder: proc.Options{Procfs: c.procfs, PodLogs: c.podLogs, ContainerLogs: c.containerLogs, Kubernetes: c.Kubelet,
			Clock: clock, Logger: c.Logger, Deadline: change.deadline}}}
	for _, open := range c.opens {
		r, err := open(p)
		if err != nil {
			return nil, err
		}
		e.rooms = append(e.rooms, r)
	}
	library := nvml.New(p.Driver)
	o := &p.Sampler
	o.Host = o.Resolver == nil && o.Users != nil && !hasAllocator(c.sysfs)
	o.Driver, o.Expecter, o.Calls = driver{library}, bus{library, host.NewReader(cmp.Or(change.deadline, time.Second))}, library.Calls
	o.Sources, o.Features = e.sources, e.features
	if change.sampler != nil {
		change.sampler(o)
	}
	e.sampler = sampler.New(*o)
	e.pods, e.finder, e.processMetrics = p.pods, p.finder, p.processMetrics
	p.Event, p.LetGo, p.allocationsChanged = e.sampler.Event, e.sampler.LetGo, e.sampler.AllocationsChanged
	var err error
	if e.page = p.Page; e.page != nil {
		p.SetFamilies = func(f []catalog.Family) error {
			c, err := collector.NewCompat(e.sampler.Latest, f)
			if err == nil {
				e.compat.Store(c)
			}
			return err
		}
		if err := p.SetFamilies(e.page.Families); err != nil {
			return nil, fmt.Errorf("%s: %w", e.page.Name, err)
		}
	}
	e.metrics, err = collector.New(e.sampler.Latest, catalog.WithPodLabels(c.metrics.Families(), c.PodLabels))
	return e, err
}

// fixes returns the settings that enable a source or feature.
func (e *exporter) fixes() map[string]rooms.Fix {
	const limited = "no GPU memory limit on the exporter's cgroup and those above it (nvidia-smi memory-limits), and no " +
		"NVIDIA_GPU_MEMORY_LIMIT in its environment"
	const wrapped = "no fractional GPU for the exporter, or --nvml.library=PATH of the driver's own libnvidia-ml.so.VERSION"
	all := map[string]rooms.Fix{
		gpu.SourceNVML: {"runtimeClassName: nvidia; env: NVIDIA_VISIBLE_DEVICES=all, NVIDIA_DRIVER_CAPABILITIES=utility",
			"--gpus all (Podman: --device nvidia.com/gpu=all)",
			"the NVIDIA driver, or --nvml.library=PATH of libnvidia-ml.so.1"},
		"GPUs": {"NVIDIA_VISIBLE_DEVICES=all", "--gpus all (Podman: --device nvidia.com/gpu=all)",
			"read and write access to /dev/nvidia* (unit: SupplementaryGroups=)"},
		"own_limit": {limited, limited, limited}, "total_too_small": {limited, limited, limited},
		"wrapped_library": {wrapped, wrapped, wrapped},
		"NO_PERMISSION": {"env: NVIDIA_MIG_MONITOR_DEVICES=all; securityContext: {capabilities: {add: [SYS_ADMIN]}}, " +
			"without which NVIDIA's runtime refuses the former",
			"-e NVIDIA_MIG_MONITOR_DEVICES=all --cap-add SYS_ADMIN",
			"[Service] AmbientCapabilities=CAP_SYS_ADMIN CapabilityBoundingSet=CAP_SYS_ADMIN (systemctl edit gpu-exporter)"},
	}
	for _, r := range e.rooms {
		maps.Copy(all, r.Fixes)
	}
	return all
}

// program returns the exporter as commands use it.
func (e *exporter) program(c *config) *rooms.Program {
	return &rooms.Program{Common: &c.Common, Node: c.node, Watch: e.watch, Poll: e.poll, Step: e.sampler.Step, View: e.sampler.Latest,
		Close: e.sampler.Close, Fixes: e.fixes(), Advice: e.advice, Unrecognized: func() []podmap.Unrecognized {
			if e.pods == nil {
				return nil
			}
			return e.pods.Unrecognized()
		}, Pause: func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}}
}

// watch follows the events beside the polls until ctx ends.
func (e *exporter) watch(ctx context.Context) {
	var watches sync.WaitGroup
	for _, r := range e.rooms {
		for _, watch := range r.Watches {
			watches.Go(func() { watch(ctx) })
		}
	}
	watches.Wait()
}

// advice returns the notes of the parts on a GPU.
func (e *exporter) advice(v *gpu.View, c *gpu.GPU) (all []rooms.Advice) {
	for _, r := range e.rooms {
		if r.Advice != nil {
			all = append(all, r.Advice(v, c)...)
		}
	}
	return all
}

// loops returns what runs until the end of the program.
func (e *exporter) loops() []func(context.Context) {
	loops := []func(context.Context){e.sampler.Run}
	for _, r := range e.rooms {
		loops = append(loops, r.Loops...)
	}
	return loops
}

// poll queries every data source with a loop of its own once, for callers that step time. Errors are in the health of
// the source.
func (e *exporter) poll(ctx context.Context) {
	for _, r := range e.rooms {
		for _, poll := range r.Polls {
			poll(ctx)
		}
	}
}

func (e *exporter) sources() (all []gpu.Source) {
	for _, r := range e.rooms {
		for _, source := range r.Sources {
			all = append(all, source()...)
		}
	}
	return all
}

// features returns what works here, and how to enable the rest, by name: whatever the order of the parts.
func (e *exporter) features() (all []gpu.Feature) {
	for _, r := range e.rooms {
		for _, f := range r.Features {
			if out, offered := f(); offered {
				all = append(all, out)
			}
		}
	}
	gpu.Sort(all, func(a, b gpu.Feature) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// server returns the web server; it does not listen yet.
func (e *exporter) server(c *config) *http.Server {
	var other *web.Compat
	if e.page != nil {
		other = &web.Compat{Path: e.page.Path, Name: e.page.Name, Port: e.page.Port, Main: e.page.Main, Note: e.page.Note,
			Metrics: &e.compat}
	}
	responses := prometheus.NewRegistry() // about the responses to scrapes
	return web.NewServer(web.Options{Latest: e.sampler.Latest,
		Metrics: families{e.metrics, []prometheus.Gatherer{e.processMetrics, responses}}, Own: responses,
		Logger: c.Logger,
		Compat: other,
		Alive: func() error {
			if age := time.Since(e.sampler.Latest().At); age > e.maxAge {
				return fmt.Errorf("the polling loop has not published for %v", age.Round(time.Second))
			}
			return nil
		}})
}

// replaced is a page whose families may be replaced while it is served.
type replaced struct {
	atomic.Pointer[collector.Collector]
}

// Gather implements prometheus.Gatherer.
func (r *replaced) Gather() ([]*dto.MetricFamily, error) { return r.Load().Gather() }

// WriteText implements web.Metrics.
func (r *replaced) WriteText(out io.Writer, openMetrics bool) error {
	return r.Load().WriteText(out, openMetrics, nil)
}

// families is the page of metrics; its text is in the order of the families' names.
type families struct {
	*collector.Collector
	more []prometheus.Gatherer // process_* and go_*, and promhttp_*
}

func (f families) others() (all []*dto.MetricFamily, err error) {
	for _, g := range f.more {
		more, failed := g.Gather()
		all, err = append(all, more...), errors.Join(err, failed)
	}
	gpu.Sort(all, func(x, y *dto.MetricFamily) int { return cmp.Compare(x.GetName(), y.GetName()) })
	return all, err
}

// Gather implements prometheus.Gatherer.
func (f families) Gather() ([]*dto.MetricFamily, error) {
	all, err := f.Collector.Gather()
	more, failed := f.others()
	return append(all, more...), errors.Join(err, failed)
}

// WriteText implements web.Metrics.
func (f families) WriteText(out io.Writer, openMetrics bool) error {
	more, failed := f.others()
	return errors.Join(f.Collector.WriteText(out, openMetrics, more), failed)
}

// The types below adapt the packages to the sampler's interfaces.

type driver struct{ library *nvml.Library }

func (d driver) Open() (sampler.Session, error) {
	s, err := d.library.Open()
	if err != nil {
		return nil, err
	}
	return session{s}, nil
}

type session struct{ *nvml.Session }

func (s session) Scan() ([]sampler.GPU, error) {
	found, err := s.Session.Scan()
	devs := make([]sampler.GPU, len(found))
	for i, c := range found {
		devs[i] = c
	}
	return devs, err
}

// bus reads sysfs in the polling loop.
type bus struct {
	library *nvml.Library
	reader  *host.Reader
}

func (b bus) Expected() ([]sampler.Expected, error) {
	found, err := host.Read(context.Background(), b.reader, "PCI bus", b.library.Expected)
	devs := make([]sampler.Expected, len(found))
	for i, c := range found {
		devs[i] = sampler.Expected{PCI: c.PCI, Detached: c.Detached, Unbound: c.Driver == ""}
	}
	return devs, err
}
