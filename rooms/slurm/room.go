package slurm

import (
	"cmp"
	"context"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// New is this package as a part of the exporter, opened after the kubelet and before the processes.
func New(flags *kingpin.Application) rooms.Part {
	var dir string
	var numbers bool
	flags.Flag("slurm.job-mapping-dir", "Directory in which a Slurm prolog records the jobs of each GPU: one file per "+
		"GPU, named by its NVML index (0) or by index and GPU instance ID (0.3), "+
		"one job ID per line. Works with or without a kubelet; empty disables it.").StringVar(&dir)
	flags.Flag("slurm.job-numbers", "Read SLURM_JOB_ID, and nothing else, from the environment of processes whose "+
		"cgroup contains only the SLUID of their job (Slurm 26.05 and newer); "+
		"otherwise such jobs are named by their SLUID. Requires the host's PID namespace and the capability "+
		"SYS_PTRACE.").BoolVar(&numbers)
	return rooms.Part{Open: func(p *rooms.Plan) (*rooms.Room, error) {
		r := &rooms.Room{Fixes: map[string]rooms.Fix{}}
		if dir != "" {
			jobs := Open(Options{Dir: dir, Timeout: p.Deadline, MaxAge: p.MaxAge, Logger: p.Logger, Clock: p.Clock})
			p.Finder.Slurm = true
			p.Sampler.Resolver = allocations{p.Sampler.Resolver, jobs}
			r.Loops = []func(context.Context){rooms.Repeat(min(p.KubeletPoll, p.Fast), jobs.Poll)}
			r.Polls = []func(context.Context){jobs.Poll}
		}
		p.Finder.JobNumbers = numbers
		r.Feature("slurm_job_numbers", "Numbers of Slurm jobs whose cgroups contain a SLUID: set --slurm.job-numbers, the host's PID "+
			"namespace and the capability SYS_PTRACE.", !p.Kubelet || dir != "" || numbers, numbers, func() (bool, string) {
			if !numbers {
				return false, ""
			}
			err := cmp.Or(p.NoProcesses(), p.NoNumbers())
			return err == nil, rooms.Text(err)
		})
		fix := rooms.Ptrace()
		for i := range fix {
			fix[i] = "--slurm.job-numbers; " + fix[i]
		}
		r.Fixes["slurm_job_numbers"] = fix
		r.Fixes[gpu.SourceJobs] = rooms.Fix{"volumes: [{name: job-mapping, hostPath: {path: " + dir + "}}], mounted read-only at the " +
			"same path (chart: features.slurmJobMapping=" + dir + ")", "-v " + dir + ":" + dir + ":ro",
			"the Slurm prolog that writes it (deploy/slurm); mkdir -p " + dir}
		return r, nil
	}}
}

// allocations merges the allocations of pods and Slurm jobs.
type allocations struct {
	pods sampler.Resolver // nil without a kubelet
	jobs *Jobs
}

func (a allocations) Allocations(inv *gpu.Inventory) gpu.Allocations {
	if a.pods == nil {
		return a.jobs.Allocations(inv)
	}
	return a.jobs.Merge(a.pods.Allocations(inv), inv)
}
