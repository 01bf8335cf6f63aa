package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/collector"
	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/engine"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/podmap"
)

// exporter is the program put together; nothing of it runs until its actors do.
type exporter struct {
	sampler *sampler.Sampler
	pods    *podmap.Map  // nil without a kubelet
	jobs    *podmap.Jobs // nil without a job mapping of Slurm
	looker  *proc.Looker // nil unless asked for
	kmsg    *nvml.Kmsg   // nil without a kernel log
	metrics *collector.Collector
	foreign *collector.Collector // nil unless another exporter's names are asked for
	engines []*engine.Engine     // the container engines that were named
	own     *own
	// quiet is how long the loop may be silent before the process counts as broken.
	quiet time.Duration
	// jobsEvery, lookEvery and ownEvery are the intervals of the jobs, of the looker and of what the process says of itself.
	jobsEvery, lookEvery, ownEvery time.Duration
}

// seam changes what two rooms are given before they are made: the tests put faults, clocks and mistakes between
// them. The zero seam changes nothing.
type seam struct {
	sampler func(*sampler.Options)
	pods    func(*podmap.Options)
}

// newExporter puts the program together. Clock is the exporter's time; replaced is called when only a new
// process can load the driver's library. This is the one place that knows both the driver and the kubelet.
func newExporter(c *config, clock func() time.Time, replaced func(), change seam) (*exporter, error) {
	e := &exporter{own: newOwn(), quiet: max(time.Minute, 10*c.fast), jobsEvery: c.kubeletPoll, lookEvery: c.slow, ownEvery: c.medium}
	library := nvml.New(nvml.Options{Path: c.library, Logger: c.logger, Clock: clock, SysfsRoot: c.sysfs, FastInterval: c.fast})
	o := sampler.Options{
		Node: c.node, Build: gpu.Build{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(), GoVersion: version.GoVersion},
		Driver: driver{library}, Expecter: bus{library}, Replaced: replaced, Calls: library.Calls, Accounts: c.accounts,
		Fast: c.fast, Medium: c.medium, Slow: c.slow, Deadline: c.deadline, Clock: clock, Logger: c.logger,
	}
	if c.kubelet {
		po := podmap.Options{Socket: c.kubeletSocket, Interval: c.kubeletPoll, MaxAge: c.kubeletMaxAge, HonestResources: c.honest,
			Checkpoint: c.checkpoint, DRACheckpoint: c.draCheckpoint, Dev: c.dev, Logger: c.logger, Clock: clock}
		if c.annotations {
			po.API = &podmap.APIOptions{Node: c.node, Server: c.apiServer, TokenFile: c.tokenFile, CAFile: c.caFile}
		}
		if change.pods != nil {
			change.pods(&po)
		}
		e.pods = podmap.New(po)
	}
	if c.jobDir != "" {
		e.jobs = podmap.NewJobs(podmap.JobsOptions{Dir: c.jobDir, MaxAge: c.kubeletMaxAge, Logger: c.logger, Clock: clock})
	}
	if e.pods != nil || e.jobs != nil {
		o.Resolver = holders{e.pods, e.jobs, c.podLabels}
	}
	where := proc.Options{Procfs: c.procfs, PodLogs: c.podLogs, ContainerLogs: c.containerLogs, Kubernetes: c.kubelet, Slurm: e.jobs != nil, Clock: clock}
	if e.pods != nil {
		where.Pods = e.pods
	}
	for _, o := range []engine.Options{{Kind: engine.Docker, Socket: c.docker}, {Kind: engine.Podman, Socket: c.podman}} {
		if o.Socket != "" {
			o.Clock, o.Logger = clock, c.logger
			e.engines = append(e.engines, engine.New(o))
			where.Engines = append(where.Engines, e.engines[len(e.engines)-1])
		}
	}
	asking := where
	asking.JobNumbers = c.jobNumbers
	finder := proc.New(asking)
	noProcesses := finder.HostPID()
	if noProcesses == nil {
		o.Users = users{finder}
	}
	if c.visible && noProcesses == nil {
		e.looker = proc.NewLooker(proc.LookerOptions{Finder: where, Interval: c.slow, Named: podmap.Visible, Logger: c.logger})
		o.VisibleScanner = e.looker
	}
	if c.kmsg != "" {
		e.kmsg = nvml.NewKmsg(nvml.KmsgOptions{Path: c.kmsg, Logger: c.logger, Clock: clock})
	}
	o.Sources = func() []gpu.Source {
		var out []gpu.Source
		if e.kmsg != nil {
			out = append(out, e.kmsg.Source())
		}
		for _, n := range e.engines {
			out = append(out, n.Source())
		}
		if e.looker != nil {
			out = append(out, e.looker.Source())
		}
		return out
	}
	o.Features = func() []gpu.Feature { return features(c, e, noProcesses, finder.JobNumbers()) }
	var page *compat.Page
	var err error
	if c.compat != "" {
		if page, err = compat.New(compat.Release(c.compat)); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
		o.Published = page.Published
	}
	if change.sampler != nil {
		change.sampler(&o)
	}
	e.sampler = sampler.New(o)
	if page != nil {
		if e.foreign, err = collector.NewForeign(e.sampler.Latest, page.Families()); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
	}
	e.metrics, err = collector.New(e.sampler.Latest, catalog.WithPodLabels(catalog.All(), c.podLabels))
	return e, err
}

// actors are the loops of the program.
func (e *exporter) actors() []func(context.Context) error {
	loops := []func(context.Context) error{e.sampler.Run, repeat(e.ownEvery, e.own.look)}
	if e.pods != nil {
		loops = append(loops, e.pods.Run)
	}
	if e.jobs != nil {
		loops = append(loops, repeat(e.jobsEvery, func(context.Context) { e.jobs.Poll() }))
	}
	if e.looker != nil {
		loops = append(loops, repeat(e.lookEvery, e.looker.Look))
	}
	if e.kmsg != nil {
		loops = append(loops, func(ctx context.Context) error { return e.kmsg.Run(ctx, e.sampler.Event) })
	}
	for _, n := range e.engines {
		loops = append(loops, n.Run)
	}
	return loops
}

// poll asks every source once that has a loop of its own, for those who step time by hand. What goes wrong stands
// in the health of the source.
func (e *exporter) poll(ctx context.Context) {
	if e.pods != nil {
		_ = e.pods.Poll(ctx)
	}
	for _, n := range e.engines {
		_ = n.Poll(ctx)
	}
	if e.jobs != nil {
		e.jobs.Poll()
	}
	if e.looker != nil {
		e.looker.Look(ctx)
	}
}

// server returns the web server; it does not listen yet.
func (e *exporter) server(c *config) *http.Server {
	var other *web.Compat
	if e.foreign != nil {
		other = &web.Compat{Path: compat.Path, Name: c.compat, Metrics: e.foreign.Transactional()}
	}
	answers := prometheus.NewRegistry() // of the answers to scrapes
	return web.NewServer(web.Options{Latest: e.sampler.Latest, Metrics: families{e.metrics.Transactional(), e.own, answers}, Own: answers, Logger: c.logger, MaxRequests: c.maxRequests, Compat: other,
		Alive: func() error {
			if age := time.Since(e.sampler.Latest().At); age > e.quiet {
				return fmt.Errorf("the polling loop has been silent for %v", age.Round(time.Second))
			}
			return nil
		}})
}

// families is what a scrape is given, in the order of the families' names.
type families struct {
	view    prometheus.TransactionalGatherer // the catalog's rows
	own     prometheus.Gatherer              // what the process says of itself
	answers prometheus.Gatherer              // what was answered to scrapes
}

// Gather implements prometheus.TransactionalGatherer. The families are shared; only the list is new.
func (f families) Gather() (_ []*dto.MetricFamily, done func(), err error) {
	view, done, err := f.view.Gather()
	all, errs := slices.Clone(view), []error{err}
	for _, g := range []prometheus.Gatherer{f.own, f.answers} {
		more, err := g.Gather()
		all, errs = append(all, more...), append(errs, err)
	}
	slices.SortFunc(all, func(x, y *dto.MetricFamily) int { return cmp.Compare(x.GetName(), y.GetName()) })
	return all, done, errors.Join(errs...)
}

// features says what works here, and how to unlock what does not.
func features(c *config, e *exporter, noProcesses, noNumbers error) []gpu.Feature {
	feature := func(name string, locked bool, hint string) gpu.Feature {
		if locked {
			return gpu.Feature{Name: name, State: gpu.FeatureLocked, Hint: hint}
		}
		return gpu.Feature{Name: name, State: gpu.FeatureOn}
	}
	out := []gpu.Feature{feature("ownership", !c.kubelet && e.jobs == nil, "Which pod holds which GPU: run with --kubelet, and mount the directory of the kubelet's PodResources socket. Which Slurm job: --slurm.job-mapping-dir.")}
	hint := "Who uses a shared GPU: run in the host's PID namespace (hostPID: true)."
	if noProcesses != nil {
		hint += " Now: " + noProcesses.Error() + "."
	}
	out = append(out, feature("processes", noProcesses != nil, hint))
	if c.kubelet {
		out = append(out, feature("process_names", noProcesses != nil || (!readable(c.podLogs) || !readable(c.containerLogs)) && c.checkpoint == "" && !c.annotations,
			fmt.Sprintf("The pods of processes: the processes feature, and %s and %s mounted read-only, of which only names are read; or --kubelet.checkpoint or --kubernetes.pods, which tell pods of which one container holds.", c.podLogs, c.containerLogs)))
	}
	if c.kubelet {
		out = append(out,
			feature("device_checkpoint", c.checkpoint == "", "The GPUs of sharing schemes whose device ids do not name them, and the UIDs of pods: --kubelet.checkpoint, and its folder mounted read-only."),
			feature("pod_metadata", !c.annotations, "GPUs that schedulers write into annotations, and owners of pods: --kubernetes.pods, and a token that may list and watch pods."))
	}
	if !c.kubelet || len(e.engines) > 0 {
		out = append(out, feature("container_names", len(e.engines) == 0, "Names of containers outside pods, docker/NAME and not docker/ID: --docker.socket or --podman.socket, and the socket mounted; it makes whoever may write to it root on the node."))
	}
	hint = "Which GPUs can be seen in each container: --containers.visible, hostPID: true and the capability SYS_PTRACE."
	blind := !c.visible
	switch {
	case blind:
	case e.looker == nil:
		blind, hint = true, hint+" Now: "+noProcesses.Error()+"."
	default:
		if s := e.looker.Source(); !s.Up {
			blind, hint = true, hint+" Now: "+s.Message+"."
		}
	}
	out = append(out, feature("container_visible", blind, hint))
	if !c.kubelet || e.jobs != nil || c.jobNumbers {
		hint = "The numbers of Slurm jobs whose cgroups carry a SLUID: --slurm.job-numbers, hostPID: true and the capability SYS_PTRACE."
		if c.jobNumbers {
			noNumbers = cmp.Or(noProcesses, noNumbers)
			if noNumbers != nil {
				hint += " Now: " + noNumbers.Error() + "."
			}
		}
		out = append(out, feature("slurm_job_numbers", !c.jobNumbers || noNumbers != nil, hint))
	}
	kernel := "XIDs that NVML does not tell: --path.kmsg, and a privileged container, for the device cgroup refuses /dev/kmsg to others."
	if e.kmsg != nil {
		if s := e.kmsg.Source(); s.Message != "" {
			kernel += " Now: " + s.Message + "."
		}
	}
	return append(out, feature("kernel_log", e.kmsg == nil || !e.kmsg.Source().Up, kernel))
}

func readable(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	d.Close()
	return true
}

// The types below fit the rooms to the sampler's interfaces.

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

// holders adds to what pods hold what jobs hold, and what is known of the pods themselves.
type holders struct {
	pods   *podmap.Map  // nil without a kubelet
	jobs   *podmap.Jobs // nil without a job mapping
	labels []string     // to show
}

func (h holders) Allocations(inv *gpu.Inventory) gpu.Allocations {
	if h.pods == nil {
		return h.jobs.Allocations(inv)
	}
	out := h.pods.Allocations(inv)
	if h.jobs != nil {
		out = h.jobs.Beside(out, inv)
	}
	known := h.pods.Pods()
	if len(known) == 0 {
		return out
	}
	out.Pods = slices.Clone(out.Pods)
	for i := range out.Pods {
		p := &out.Pods[i]
		at, found := slices.BinarySearchFunc(known, *p, func(k podmap.Pod, p gpu.PodRef) int {
			return cmp.Or(cmp.Compare(k.Namespace, p.Namespace), cmp.Compare(k.Name, p.Pod))
		})
		if !found || p.UID != "" && known[at].UID != p.UID {
			continue // nothing is told of it, or of another of the same name
		}
		p.UID = known[at].UID
		p.Meta = &gpu.PodMeta{Labels: map[string]string{}}
		p.Meta.WorkloadType, p.Meta.Workload = known[at].Workload()
		for _, l := range h.labels {
			p.Meta.Labels[l] = known[at].Labels[l]
		}
	}
	return out
}

type bus struct{ library *nvml.Library }

func (b bus) Expected() ([]sampler.Expected, error) {
	found, err := b.library.Expected()
	devs := make([]sampler.Expected, len(found))
	for i, c := range found {
		devs[i] = sampler.Expected{PCI: c.PCI, Detached: c.Detached}
	}
	return devs, err
}

type users struct{ finder *proc.Finder }

func (u users) Find(pid int) account.User {
	c, belongs := u.finder.Find(pid)
	who := account.User{Container: c, MPS: u.finder.NamedMPS(pid)}
	switch belongs {
	case proc.Owned:
	case proc.Host:
		who.Reason = gpu.UnattributedHost
	default:
		who.Reason = gpu.UnattributedUnresolved
	}
	return who
}
