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
	"github.com/gpu-exporter/gpu-exporter/internal/kmsg"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/slurm"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// exporter is the assembled program; nothing runs until its actors do.
type exporter struct {
	sampler        *sampler.Sampler
	pods           *podmap.Map          // nil without a kubelet
	jobs           *slurm.Jobs          // nil without --slurm.job-mapping-dir
	scanner        *proc.VisibleScanner // nil without --containers.visible
	cgroups        *proc.CgroupScanner  // nil without --path.cgroup
	kmsg           *kmsg.Log            // nil without --path.kmsg
	metrics        *collector.Collector
	compat         *collector.Collector // nil without --compat
	finder         *proc.Finder         // nil without the host's PID namespace
	engines        []*proc.Engine       // Docker and Podman, where configured
	processMetrics *processMetrics
	// maxAge is the age of the last view from which the process counts as broken.
	maxAge time.Duration
	// Intervals of the job mapping, of the visibility scanner and of the process metrics.
	jobsInterval, scanInterval, processInterval time.Duration
}

// hooks modify the options of packages before they are constructed: the tests insert faults and clocks there. The zero
// hooks change nothing.
type hooks struct {
	sampler   func(*sampler.Options)
	pods      func(*podmap.Options)
	processes func(*proc.Options)
}

// newExporter assembles the program. clock is the exporter's time; replaced is called when only a new process can load
// the driver's library. This is the only place that imports both the driver and the kubelet packages.
func newExporter(c *config, clock func() time.Time, replaced func(), change hooks) (*exporter, error) {
	e := &exporter{processMetrics: newProcessMetrics(), maxAge: max(time.Minute, 10*c.fast),
		jobsInterval: c.kubeletPoll, scanInterval: c.slow, processInterval: c.medium}
	lo := nvml.Options{Path: c.library, Logger: c.logger, Clock: clock, SysfsRoot: c.sysfs, FastInterval: c.fast, Links: c.links}
	if c.cgroup != "" {
		lo.Cgroups = func() []string { return e.cgroups.Paths() }
	}
	var hostPIDs atomic.Bool // false until the namespace is known
	lo.Accounts = hostPIDs.Load
	library := nvml.New(lo)
	o := sampler.Options{
		Node: c.node, Build: gpu.Build{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(),
			GoVersion: version.GoVersion},
		Driver: driver{library}, Expecter: bus{library, host.NewReader(time.Second)}, Replaced: replaced,
		Calls: library.Calls, Accounts: c.accounts, Processes: c.processes,
		Fast: c.fast, Medium: c.medium, Slow: c.slow, Deadline: c.deadline, Clock: clock, Logger: c.logger,
	}
	if c.kubelet {
		po := podmap.Options{Socket: c.kubeletSocket, Interval: c.kubeletPoll, MaxAge: c.kubeletMaxAge,
			DirectResources: c.gpuIDResources, PodLabels: c.podLabels, Checkpoint: c.checkpoint,
			DRACheckpoint: c.draCheckpoint, Fractions: c.fractions, Leases: c.mpsNamespaces,
			ContainerLogs: c.containerLogs, Dev: c.dev, Logger: c.logger, Clock: clock,
			Polled: func() { e.sampler.AllocationsChanged() }}
		api := &source.APIOptions{Node: c.node, Server: c.apiServer, TokenFile: c.tokenFile, CAFile: c.caFile}
		if c.annotations {
			po.API = api
		}
		if c.resourceSlices {
			po.Slices = api
		}
		if change.pods != nil {
			change.pods(&po)
		}
		e.pods = podmap.New(po)
	}
	if c.jobDir != "" {
		e.jobs = slurm.New(slurm.Options{Dir: c.jobDir, MaxAge: c.kubeletMaxAge, Logger: c.logger, Clock: clock})
	}
	if e.pods != nil || e.jobs != nil {
		o.Resolver = allocations{e.pods, e.jobs}
	}
	where := proc.Options{Procfs: c.procfs, PodLogs: c.podLogs, ContainerLogs: c.containerLogs, Kubernetes: c.kubelet,
		Slurm: e.jobs != nil, Clock: clock, Logger: c.logger}
	if change.processes != nil {
		change.processes(&where)
	}
	if e.pods != nil {
		where.Pods = e.pods
	}
	for _, o := range []proc.EngineOptions{{Kind: proc.Docker, Socket: c.docker},
		{Kind: proc.Podman, Socket: c.podman}} {
		if o.Socket != "" {
			o.Clock, o.Logger = clock, c.logger
			e.engines = append(e.engines, proc.NewEngine(o))
			where.Engines = append(where.Engines, e.engines[len(e.engines)-1])
		}
	}
	withNumbers := where
	withNumbers.JobNumbers = c.jobNumbers
	finder := &users{Finder: proc.New(withNumbers), verified: &hostPIDs}
	noProcesses := finder.ready()
	mayBeReady := noProcesses == nil || errors.Is(noProcesses, host.ErrHung)
	if mayBeReady {
		o.Users, o.Command, e.finder = finder, finder.Command, finder.Finder
	}
	if c.visible && noProcesses == nil {
		e.scanner = proc.NewVisibleScanner(proc.ScannerOptions{Finder: where, Interval: c.slow, Named: deviceid.Visible,
			Logger: c.logger})
		o.VisibleScanner = e.scanner
	}
	if c.cgroup != "" {
		e.cgroups = proc.NewCgroupScanner(proc.CgroupOptions{Root: c.cgroup, Finder: where, Interval: c.medium})
		o.Cgroups = e.cgroups
	}
	if c.kmsg != "" {
		e.kmsg = kmsg.New(kmsg.Options{Path: c.kmsg, Logger: c.logger, Clock: clock})
	}
	o.Sources = func() []gpu.Source {
		var out []gpu.Source
		if mayBeReady {
			out = finder.Sources()
		}
		if e.kmsg != nil {
			out = append(out, e.kmsg.Source())
		}
		for _, n := range e.engines {
			out = append(out, n.Source())
		}
		if e.scanner != nil {
			out = append(out, e.scanner.Source())
		}
		if e.cgroups != nil {
			if source, offered := e.cgroups.Source(); offered {
				out = append(out, source)
			}
		}
		return out
	}
	o.Features = func() []gpu.Feature { return features(c, e, finder, noProcesses) }
	var page *compat.Page
	var err error
	if c.compat != "" {
		if page, err = compat.New(compat.Options{Release: compat.Release(c.compat), Copies: c.compatShared == "copies",
			PodLabels: c.podLabels, DeviceLabels: c.compatLabels}); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
		o.Published = page.Published
	}
	if change.sampler != nil {
		change.sampler(&o)
	}
	e.sampler = sampler.New(o)
	if page != nil {
		if e.compat, err = collector.NewCompat(e.sampler.Latest, page.Families()); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
	}
	e.metrics, err = collector.New(e.sampler.Latest, catalog.WithPodLabels(catalog.All(), c.podLabels))
	return e, err
}

// actors returns the loops of the program.
func (e *exporter) actors() []func(context.Context) error {
	loops := []func(context.Context) error{e.sampler.Run, repeat(e.processInterval, e.processMetrics.update)}
	if e.pods != nil {
		loops = append(loops, e.pods.Run)
	}
	if e.jobs != nil {
		loops = append(loops, repeat(e.jobsInterval, e.jobs.Poll))
	}
	if e.finder != nil {
		loops = append(loops, e.finder.Watch)
	}
	if e.scanner != nil {
		loops = append(loops, repeat(e.scanInterval, e.scanner.Scan))
	}
	if e.cgroups != nil {
		loops = append(loops, repeat(e.processInterval, e.cgroups.Scan))
	}
	if e.kmsg != nil {
		loops = append(loops, func(ctx context.Context) error { return e.kmsg.Run(ctx, e.sampler.Event) })
	}
	for _, n := range e.engines {
		loops = append(loops, n.Run)
	}
	return loops
}

// poll queries every data source with a loop of its own once, for callers that step time. Errors are in the health of
// the source.
func (e *exporter) poll(ctx context.Context) {
	if e.pods != nil {
		_ = e.pods.Poll(ctx)
	}
	for _, n := range e.engines {
		_ = n.Poll(ctx)
	}
	if e.jobs != nil {
		e.jobs.Poll(ctx)
	}
	if e.scanner != nil {
		e.scanner.Scan(ctx)
	}
	if e.cgroups != nil {
		e.cgroups.Scan(ctx)
	}
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

// features returns what works here, and how to enable the rest.
func features(c *config, e *exporter, finder *users, noProcesses error) []gpu.Feature {
	noScanner := noProcesses // is not started later
	if errors.Is(noProcesses, host.ErrHung) {
		noProcesses = finder.problem
	}
	noNumbers := cmp.Or(noProcesses, finder.JobNumbers())
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	visible, kernel := gpu.Source{Message: text(noScanner)}, gpu.Source{}
	if e.scanner != nil {
		visible = e.scanner.Source()
	}
	if e.kmsg != nil {
		kernel = e.kmsg.Source()
	}
	named := noProcesses == nil && (finder.LogNames() || c.checkpoint != "" || c.annotations)
	var out []gpu.Feature
	for _, f := range []struct {
		name        string
		offered, on bool
		hint        string
		wanted      bool // it is switched on, and does not work for the reason
		reason      string
	}{
		{"ownership", true, c.kubelet || e.jobs != nil,
			"Allocation of GPUs to pods: set --kubelet and mount the directory " +
				"of the kubelet's PodResources socket. To Slurm jobs: set --slurm.job-mapping-dir.", false, ""},
		{"processes", true, noProcesses == nil, "Use of shared GPUs per container: run in the host's PID namespace.", true,
			text(noProcesses)},
		{"process_names", c.kubelet, named, "Pods of processes: enable the processes feature, and mount " + c.podLogs +
			" and " + c.containerLogs + " read-only (only file names are read); or set --kubelet.checkpoint or " +
			"--kubernetes.pods, which cover pods with one GPU container.", false, ""},
		{"device_checkpoint", c.kubelet, c.checkpoint != "", "GPUs of sharing schemes whose device IDs do not identify " +
			"them, and pod UIDs: set --kubelet.checkpoint and mount its directory read-only.", false, ""},
		{"pod_metadata", c.kubelet, c.annotations, "GPUs that schedulers record in annotations, and owners of pods: set " +
			"--kubernetes.pods, with a token that may list and watch pods.", false, ""},
		{"container_names", !c.kubelet || len(e.engines) > 0, len(e.engines) > 0, "Names of containers outside pods, " +
			"docker/NAME instead of docker/ID: set --docker.socket or --podman.socket and mount the socket; write access " +
			"to it amounts to root on the node.", false, ""},
		{"container_visible", true, visible.Up, "GPUs visible in each container: set --containers.visible, the host's PID " +
			"namespace and the capability SYS_PTRACE.", c.visible, visible.Message},
		{"slurm_job_numbers", !c.kubelet || e.jobs != nil || c.jobNumbers, c.jobNumbers && noNumbers == nil, "Numbers of " +
			"Slurm jobs whose cgroups contain a SLUID: set --slurm.job-numbers, the host's PID namespace and the " +
			"capability SYS_PTRACE.", c.jobNumbers, text(noNumbers)},
		{"kernel_log", true, kernel.Up, "XIDs that NVML does not report: set --path.kmsg and run privileged (the device " +
			"cgroup denies /dev/kmsg otherwise).", true, kernel.Message},
	} {
		if f.wanted && f.reason != "" {
			f.hint += " Reason: " + f.reason + "."
		}
		switch {
		case f.offered && f.on:
			out = append(out, gpu.Feature{Name: f.name, State: gpu.FeatureOn})
		case f.offered:
			out = append(out, gpu.Feature{Name: f.name, State: gpu.FeatureLocked, Hint: f.hint})
		}
	}
	return out
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
