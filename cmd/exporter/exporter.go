package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/podmap/slurm"
)

// exporter is the assembled program; nothing runs until its loops do.
type exporter struct {
	sampler        *sampler.Sampler
	rooms          []*room
	pods           *podmap.Map // nil without a kubelet
	metrics        *collector.Collector
	compat         *collector.Collector // nil without --compat
	finder         *proc.Finder         // nil without the host's PID namespace
	processMetrics *processMetrics
	// maxAge is the age of the last view from which the process counts as broken.
	maxAge time.Duration
}

// hooks modify the options of packages before they are constructed: the tests insert faults and clocks there. The zero
// hooks change nothing.
type hooks struct {
	sampler func(*sampler.Options)
	// deadline replaces those of all reads of the node's files and sockets, which are in real time: it does not pass
	// between the steps of a test's clock, but on a busy machine within one.
	deadline time.Duration
}

// newExporter assembles the program. clock is the exporter's time; restart is called, with the reason, when only a new
// process can load the driver's library. This is the only place that imports both the driver and the kubelet packages.
func newExporter(c *config, clock func() time.Time, restart func(error), change hooks) (*exporter, error) {
	e := &exporter{processMetrics: newProcessMetrics(), maxAge: max(time.Minute, 10*c.fast)}
	p := &plan{config: c, clock: clock, change: change, exporter: e,
		driver: nvml.Options{Path: c.library, Logger: c.logger, Clock: clock, SysfsRoot: c.sysfs, FastInterval: c.fast, Links: c.links},
		sampler: sampler.Options{Node: c.node, Build: gpu.Build{Version: cmp.Or(version.Version, "unknown"),
			Revision: version.GetRevision(), GoVersion: version.GoVersion}, Restart: restart, Accounts: c.accounts,
			Processes: c.processes, Fast: c.fast, Medium: c.medium, Slow: c.slow, Deadline: c.deadline, Clock: clock,
			Logger: c.logger},
		finder: proc.Options{Procfs: c.procfs, PodLogs: c.podLogs, ContainerLogs: c.containerLogs, Kubernetes: c.kubelet,
			Clock: clock, Logger: c.logger, Deadline: change.deadline}}
	for _, open := range rooms {
		r, err := open(p)
		if err != nil {
			return nil, err
		}
		e.rooms = append(e.rooms, r)
	}
	library := nvml.New(p.driver)
	o := &p.sampler
	o.Driver, o.Expecter, o.Calls = driver{library}, bus{library, host.NewReader(cmp.Or(change.deadline, time.Second))}, library.Calls
	o.Sources, o.Features = e.sources, e.features
	if change.sampler != nil {
		change.sampler(o)
	}
	e.sampler = sampler.New(*o)
	var err error
	if p.page != nil {
		if e.compat, err = collector.NewCompat(e.sampler.Latest, p.page.Families()); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
	}
	e.metrics, err = collector.New(e.sampler.Latest, catalog.WithPodLabels(c.metrics.Families(), c.podLabels))
	return e, err
}

// loops returns what runs until the end of the program.
func (e *exporter) loops() []func(context.Context) {
	loops := []func(context.Context){e.sampler.Run}
	for _, r := range e.rooms {
		loops = append(loops, r.loops...)
	}
	return loops
}

// poll queries every data source with a loop of its own once, for callers that step time. Errors are in the health of
// the source.
func (e *exporter) poll(ctx context.Context) {
	for _, r := range e.rooms {
		for _, poll := range r.polls {
			poll(ctx)
		}
	}
}

func (e *exporter) sources() (all []gpu.Source) {
	for _, r := range e.rooms {
		for _, source := range r.sources {
			all = append(all, source()...)
		}
	}
	return all
}

// features returns what works here, and how to enable the rest.
func (e *exporter) features() (all []gpu.Feature) {
	for _, r := range e.rooms {
		for _, f := range r.features {
			if out, offered := f(); offered {
				all = append(all, out)
			}
		}
	}
	return all
}

// server returns the web server; it does not listen yet.
func (e *exporter) server(c *config) *http.Server {
	var other *web.Compat
	if e.compat != nil {
		other = &web.Compat{Path: compat.Release(c.compat).Path(), Name: c.compat, Metrics: families{e.compat, nil}}
		if _, port, err := net.SplitHostPort(c.compatAddress); err == nil {
			other.Port = port
		}
	}
	responses := prometheus.NewRegistry() // about the responses to scrapes
	return web.NewServer(web.Options{Latest: e.sampler.Latest,
		Metrics: families{e.metrics, []prometheus.Gatherer{e.processMetrics, responses}}, Own: responses,
		Logger: c.logger,
		Compat: other,
		Alive: func() error {
			if age := time.Since(e.sampler.Latest().At); age > e.maxAge {
				return fmt.Errorf("the polling loop has not published for %v", age.Round(time.Second))
			}
			return nil
		}})
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

// allocations merges the allocations of pods and Slurm jobs.
type allocations struct {
	pods *podmap.Map // nil without a kubelet
	jobs *slurm.Jobs // nil without a job mapping
}

func (a allocations) Allocations(inv *gpu.Inventory) gpu.Allocations {
	switch {
	case a.pods == nil:
		return a.jobs.Allocations(inv)
	case a.jobs == nil:
		return a.pods.Allocations(inv)
	}
	return a.jobs.Merge(a.pods.Allocations(inv), inv)
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
		devs[i] = sampler.Expected{PCI: c.PCI, Detached: c.Detached}
	}
	return devs, err
}

// users resolves processes once the namespace of PIDs is known to be the host's.
type users struct {
	*proc.Finder
	verified *atomic.Bool
	problem  error
}

func (u *users) ready() error {
	if !u.verified.Load() {
		u.problem = u.HostPID()
		u.verified.Store(u.problem == nil)
	}
	return u.problem
}

func (u *users) Expect(pids []int) {
	if u.ready() == nil {
		u.Finder.Expect(pids)
	}
}

func (u *users) Find(pid int) account.User {
	if u.ready() != nil {
		return account.User{Reason: gpu.UnattributedUnresolved}
	}
	c, owner := u.Finder.Find(pid)
	who := account.User{Container: c, MPS: u.NamedMPS(pid)}
	switch owner {
	case proc.Owned:
	case proc.Host:
		who.Reason = gpu.UnattributedHost
	default:
		who.Reason = gpu.UnattributedUnresolved
	}
	return who
}
