package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/kmsg"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/slurm"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// rooms are the optional parts of the program, in the order in which they are opened. Each adds its part of the plan;
// without its line the rest builds and runs.
var rooms = []func(*plan) (*room, error){kubelet, slurmJobs, engines, processes, containerVisible, cgroups, kernelLog, compatPage,
	metricSelection, own}

// plan is what the rooms prepare: the options of the driver and the sampler, and how processes are found.
type plan struct {
	*config
	clock    func() time.Time
	change   hooks
	exporter *exporter
	driver   nvml.Options
	sampler  sampler.Options
	finder   proc.Options
	jobs     *slurm.Jobs
	page     *compat.Page
	// noProcesses is why processes cannot be looked up; nil where they can.
	noProcesses, noNumbers func() error // why job numbers are not known
}

// room is what a part adds to the running program; what it lacks is nil. A feature that is not offered here has none.
type room struct {
	loops    []func(context.Context) // none can fail: no data source ends the program
	polls    []func(context.Context)
	watches  []func(context.Context) // follow events beside the polls
	sources  []func() []gpu.Source
	features []func() (f gpu.Feature, offered bool)
}

func (r *room) feature(name, hint string, offered bool, on func() (on bool, reason string)) {
	r.features = append(r.features, func() (gpu.Feature, bool) {
		is, reason := on()
		if is {
			return gpu.Feature{Name: name, State: gpu.FeatureOn}, offered
		}
		if reason != "" {
			reason = " Reason: " + reason + "."
		}
		return gpu.Feature{Name: name, State: gpu.FeatureLocked, Hint: hint + reason}, offered
	})
}

func (r *room) source(s func() gpu.Source) {
	r.sources = append(r.sources, func() []gpu.Source { return []gpu.Source{s()} })
}

// always is a feature that does not change.
func always(on bool) func() (bool, string) { return func() (bool, string) { return on, "" } }

func kubelet(p *plan) (*room, error) {
	r := &room{}
	if p.kubelet {
		o := podmap.Options{Socket: p.kubeletSocket, Interval: p.kubeletPoll, Timeout: p.change.deadline, MaxAge: p.kubeletMaxAge,
			DirectResources: p.gpuIDResources, PodLabels: p.podLabels, Checkpoint: p.checkpoint,
			DRACheckpoint: p.draCheckpoint, Fractions: p.fractions, Leases: p.mpsNamespaces,
			ContainerLogs: p.containerLogs, Dev: p.dev, Logger: p.logger, Clock: p.clock,
			Polled: func() { p.exporter.sampler.AllocationsChanged() }}
		api := &source.APIOptions{Node: p.node, Server: p.apiServer, TokenFile: p.tokenFile, CAFile: p.caFile}
		if p.annotations {
			o.API = api
		}
		if p.resourceSlices {
			o.Slices = api
		}
		pods := podmap.New(o)
		p.exporter.pods, p.finder.Pods, p.sampler.Resolver = pods, pods, pods
		r.loops = append(r.loops, pods.Run)
		r.polls = append(r.polls, func(ctx context.Context) { _ = pods.Poll(ctx) })
		r.watches = append(r.watches, pods.Watch)
	}
	r.feature("ownership", "Allocation of GPUs to pods: set --kubelet and mount the directory of the kubelet's PodResources "+
		"socket. To Slurm jobs: set --slurm.job-mapping-dir.", true, always(p.kubelet || p.jobDir != ""))
	return r, nil
}

func slurmJobs(p *plan) (*room, error) {
	if p.jobDir == "" {
		return &room{}, nil
	}
	p.finder.Slurm = true
	p.jobs = slurm.New(slurm.Options{Dir: p.jobDir, Timeout: p.change.deadline, MaxAge: p.kubeletMaxAge, Logger: p.logger,
		Clock: p.clock})
	p.sampler.Resolver = allocations{p.exporter.pods, p.jobs}
	return &room{loops: []func(context.Context){repeat(p.kubeletPoll, p.jobs.Poll)},
		polls: []func(context.Context){p.jobs.Poll}}, nil
}

func engines(p *plan) (*room, error) {
	r := &room{}
	for _, o := range []proc.EngineOptions{{Kind: proc.Docker, Socket: p.docker}, {Kind: proc.Podman, Socket: p.podman}} {
		if o.Socket == "" {
			continue
		}
		o.Timeout, o.Clock, o.Logger = p.change.deadline, p.clock, p.logger
		n := proc.NewEngine(o)
		p.finder.Engines = append(p.finder.Engines, n)
		r.loops = append(r.loops, n.Run)
		r.polls = append(r.polls, func(ctx context.Context) { _ = n.Poll(ctx) })
		r.source(n.Source)
	}
	return r, nil
}

// processes finds the containers of processes. Its features are those of everything that processes are found by.
func processes(p *plan) (*room, error) {
	var hostPIDs atomic.Bool // false until the namespace is known
	p.driver.Accounts = hostPIDs.Load
	o := p.finder
	o.JobNumbers = p.jobNumbers
	finder := &users{Finder: proc.New(o), verified: &hostPIDs}
	first := finder.ready()
	r := &room{}
	if first == nil || errors.Is(first, host.ErrHung) {
		p.sampler.Users, p.sampler.Command, p.exporter.finder = finder, finder.Command, finder.Finder
		r.loops = append(r.loops, finder.Watch)
		r.sources = append(r.sources, finder.Sources)
	}
	p.noProcesses = func() error {
		if errors.Is(first, host.ErrHung) {
			return finder.problem
		}
		return first
	}
	p.noNumbers = finder.JobNumbers
	r.feature("processes", "Use of shared GPUs per container: run in the host's PID namespace.", true,
		func() (bool, string) { return p.noProcesses() == nil, text(p.noProcesses()) })
	r.feature("process_names", "Pods of processes: enable the processes feature, and mount "+p.podLogs+" and "+p.containerLogs+
		" read-only (only file names are read); or set --kubelet.checkpoint or --kubernetes.pods, which cover pods with one "+
		"GPU container.", p.kubelet, func() (bool, string) {
		return p.noProcesses() == nil && (finder.LogNames() || p.checkpoint != "" || p.annotations), ""
	})
	r.feature("device_checkpoint", "GPUs of sharing schemes whose device IDs do not identify them, and pod UIDs: set "+
		"--kubelet.checkpoint and mount its directory read-only.", p.kubelet, always(p.checkpoint != ""))
	r.feature("pod_metadata", "GPUs that schedulers record in annotations, and owners of pods: set --kubernetes.pods, with a "+
		"token that may list and watch pods.", p.kubelet, always(p.annotations))
	named := len(p.finder.Engines) > 0
	r.feature("container_names", "Names of containers outside pods, docker/NAME instead of docker/ID: set --docker.socket or "+
		"--podman.socket and mount the socket; write access to it amounts to root on the node.", !p.kubelet || named, always(named))
	return r, nil
}

func containerVisible(p *plan) (*room, error) {
	r := &room{}
	first := p.noProcesses() // it is not started later
	state := func() gpu.Source { return gpu.Source{Message: text(first)} }
	if p.visible && first == nil {
		scanner := proc.NewVisibleScanner(proc.ScannerOptions{Finder: p.finder, Interval: p.slow, Named: deviceid.Visible,
			Logger: p.logger})
		p.sampler.VisibleScanner, state = scanner, scanner.Source
		r.loops = append(r.loops, repeat(p.slow, scanner.Scan))
		r.polls = append(r.polls, scanner.Scan)
		r.source(scanner.Source)
	}
	r.feature("container_visible", "GPUs visible in each container: set --containers.visible, the host's PID namespace and the "+
		"capability SYS_PTRACE.", true, func() (bool, string) {
		if s := state(); s.Up || p.visible {
			return s.Up, s.Message
		}
		return false, ""
	})
	return r, nil
}

func cgroups(p *plan) (*room, error) {
	r := &room{}
	if p.cgroup != "" {
		scanner := proc.NewCgroupScanner(proc.CgroupOptions{Root: p.cgroup, Finder: p.finder, Interval: p.medium})
		p.driver.Cgroups, p.sampler.Cgroups = scanner.Paths, scanner
		r.loops = append(r.loops, repeat(p.medium, scanner.Scan))
		r.polls = append(r.polls, scanner.Scan)
		r.sources = append(r.sources, func() []gpu.Source {
			if s, offered := scanner.Source(); offered {
				return []gpu.Source{s}
			}
			return nil
		})
	}
	r.feature("slurm_job_numbers", "Numbers of Slurm jobs whose cgroups contain a SLUID: set --slurm.job-numbers, the host's PID "+
		"namespace and the capability SYS_PTRACE.", !p.kubelet || p.jobs != nil || p.jobNumbers, func() (bool, string) {
		if !p.jobNumbers {
			return false, ""
		}
		err := cmp.Or(p.noProcesses(), p.noNumbers())
		return err == nil, text(err)
	})
	return r, nil
}

func kernelLog(p *plan) (*room, error) {
	r, state := &room{}, func() gpu.Source { return gpu.Source{} }
	if p.kmsg != "" {
		log := kmsg.New(kmsg.Options{Path: p.kmsg, Logger: p.logger, Clock: p.clock})
		state = log.Source
		follow := func(ctx context.Context) { log.Run(ctx, p.exporter.sampler.Event) }
		r.loops = append(r.loops, follow)
		r.watches = append(r.watches, follow)
		r.source(log.Source)
	}
	r.feature("kernel_log", "XIDs that NVML does not report: set --path.kmsg and run privileged (the device cgroup denies "+
		"/dev/kmsg otherwise).", true, func() (bool, string) { return state().Up, state().Message })
	return r, nil
}

func compatPage(p *plan) (_ *room, err error) {
	if p.compat != "" {
		if p.page, err = compat.New(compat.Options{Release: compat.Release(p.compat), Copies: p.compatShared == "copies",
			PodLabels: p.podLabels, DeviceLabels: p.compatLabels}); err != nil {
			return nil, fmt.Errorf("--compat: %w", err)
		}
		p.sampler.Published = p.page.Published
	}
	return &room{}, nil
}

// own are the metrics of this process.
func own(p *plan) (*room, error) {
	return &room{loops: []func(context.Context){repeat(p.medium, p.exporter.processMetrics.update)}}, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
