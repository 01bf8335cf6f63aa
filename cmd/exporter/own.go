package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

func kubelet(p *plan) (*rooms.Room, error) {
	r := &rooms.Room{Fixes: map[string]rooms.Fix{
		gpu.SourcePodResources: {"volumes: [{name: pod-resources, hostPath: {path: /var/lib/kubelet/pod-resources}}], " +
			"mounted read-only at the same path, as uid 0 (chart: features.ownership=true); without a kubelet run with " +
			"--no-kubelet"},
		"device_checkpoint": {"--kubelet.checkpoint=/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint, its " +
			"directory mounted read-only (chart: features.deviceCheckpoint=true)"}}}
	if p.Kubelet {
		o := &p.Pods
		o.Socket, o.Interval, o.Timeout, o.MaxAge = p.c.kubeletSocket, p.KubeletPoll, p.Deadline, p.MaxAge
		o.WholeResources = p.c.gpuResources
		o.DirectResources, o.Checkpoint, o.ContainerLogs, o.Dev = p.c.gpuIDResources, p.c.checkpoint, p.c.containerLogs, p.c.dev
		o.Logger, o.Clock, o.Polled = p.Logger, p.Clock, func() { p.allocationsChanged() }
		pods := podmap.New(*o)
		p.pods, p.Finder.Pods, p.Sampler.Resolver = pods, pods, pods
		r.Loops = append(r.Loops, pods.Run)
		r.Polls = append(r.Polls, func(ctx context.Context) { _ = pods.Poll(ctx) })
		r.Watches = append(r.Watches, pods.Watch)
	}
	r.Feature("ownership", "Allocation of GPUs to pods: set --kubelet and mount the directory of the kubelet's PodResources "+
		"socket. To Slurm jobs: set --slurm.job-mapping-dir.", true, false, func() (bool, string) { return p.Sampler.Resolver != nil, "" })
	return r, nil
}

// containers finds the containers of processes. Its features are those of everything that processes are found by.
func containers(p *plan) (*rooms.Room, error) {
	var hostPIDs atomic.Bool // false until the namespace is known
	p.HostPIDs = hostPIDs.Load
	o := p.Finder
	finder := &users{Finder: proc.New(o), verified: &hostPIDs}
	first := finder.ready()
	r := &rooms.Room{Fixes: map[string]rooms.Fix{
		"processes": {"hostPID: true (chart: features.processes=true)", "--pid host",
			"[Service] ProtectProc=default (systemctl edit gpu-exporter)"},
		"process_names": {fmt.Sprintf("volumes: [{name: pod-logs, hostPath: {path: %s}}, {name: container-logs, "+
			"hostPath: {path: %s}}], mounted read-only (chart: features.processNames=true)", p.c.podLogs, p.c.containerLogs)}}}
	if first == nil || errors.Is(first, host.ErrHung) {
		p.Sampler.Users, p.Sampler.Command, p.finder = finder, finder.Command, finder.Finder
		r.Loops = append(r.Loops, finder.Watch)
		r.Sources = append(r.Sources, finder.Sources)
	}
	p.NoProcesses = func() error {
		if errors.Is(first, host.ErrHung) {
			return finder.problem
		}
		return first
	}
	p.NoNumbers = finder.JobNumbers
	r.Feature("processes", "Use of shared GPUs per container: run in the host's PID namespace.", true, true,
		func() (bool, string) { return p.NoProcesses() == nil, rooms.Text(p.NoProcesses()) })
	r.Feature("process_names", "Pods of processes: enable the processes feature, and mount "+p.c.podLogs+" and "+p.c.containerLogs+
		" read-only (only file names are read); or set --kubelet.checkpoint or --kubernetes.pods, which cover pods with one "+
		"GPU container.", p.Kubelet, true, func() (bool, string) {
		return p.NoProcesses() == nil && (finder.LogNames() || p.c.checkpoint != "" || p.Pods.API != nil), ""
	})
	r.Feature("device_checkpoint", "GPUs of sharing schemes whose device IDs do not identify them, and pod UIDs: set "+
		"--kubelet.checkpoint and mount its directory read-only.", p.Kubelet, p.c.checkpoint != "", nil)
	return r, nil
}

// own are the metrics of this process.
func own(p *plan) (*rooms.Room, error) {
	return &rooms.Room{Loops: []func(context.Context){rooms.Repeat(p.Medium, p.processMetrics.update)}}, nil
}

// hasAllocator reports whether a kubelet or slurmd has cgroups: they allocate GPUs although they are no data source of this
// program. Paths of Slurm: schedmd.com's cgroups.html and cgroup_v2.html. It is read once; a later job of Slurm shows by its use.
func hasAllocator(sysfs string) bool {
	return slices.ContainsFunc([]string{"*kubepods*", "*/*kubepods*", "*/slurm*", "*/*_slurmstepd.scope"}, func(pattern string) bool {
		found, _ := filepath.Glob(filepath.Join(sysfs, "fs/cgroup", pattern))
		return len(found) > 0
	})
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
